//! The marker that R8 leaves in compiled code: it identifies the mapping file of that build.
//!
//! It is a string in the dex or class file, one for each compilation that went into it:
//! `~~R8{"backend":"dex","compilation-mode":"release",…,"pg-map-id":"4eb8288","r8-mode":"full","version":"8.5.35"}`

use std::collections::BTreeSet;

const MARK: &[u8] = b"~~R8{";
/// Maximum length of a marker.
const LONGEST: usize = 4096;

/// The ids of the mapping files that belong to compiled code (`classes.dex`, a class file).
#[must_use]
pub fn map_ids(code: &[u8]) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    let mut rest = code;
    while let Some((_, behind)) =
        rest.iter().position(|byte| *byte == b'~').and_then(|at| rest.split_at_checked(at))
    {
        rest = match behind.strip_prefix(MARK) {
            Some(marked) => {
                ids.extend(map_id(marked));
                marked
            }
            None => behind.get(1..).unwrap_or_default(),
        };
    }
    ids
}

/// The id in a marker; `marked` begins after its brace. Values are texts, numbers and words, so the marker ends at
/// the next brace.
fn map_id(marked: &[u8]) -> Option<String> {
    let within = marked.get(..LONGEST.min(marked.len()))?;
    let (json, _) = within.split_at_checked(within.iter().position(|byte| *byte == b'}')?)?;
    let json = format!("{{{}}}", std::str::from_utf8(json).ok()?);
    let marker: serde_json::Value = serde_json::from_str(&json).ok()?;
    marker.get("pg-map-id")?.as_str().filter(|id| !id.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_names_the_mapping_files_it_was_made_with() {
        let marked =
            |id: &str| format!("\0~~R8{{\"backend\":\"dex\",\"min-api\":26,\"pg-map-id\":\"{id}\"}}\0");
        let ids = |code: &str| map_ids(code.as_bytes()).into_iter().collect::<Vec<_>>();
        assert_eq!(
            ids(&format!("dex\n{}~~{}", marked("4eb8288"), marked("1111111"))),
            ["1111111", "4eb8288"]
        );
        for none in [
            "",
            "~~R8{",
            "~~R8{\"pg-map-id\":\"4eb8288\"",
            "~~R8{\"pg-map-id\":7}",
            "~~R8{\"pg-map-id\":\"\"}",
            "~~D8{\"pg-map-id\":\"4eb8288\"}",
            "~~R8{no json}",
        ] {
            assert!(ids(none).is_empty(), "{none}");
        }
        assert!(map_ids(&[MARK, &vec![b' '; LONGEST], b"\"pg-map-id\":\"4eb8288\"}"].concat()).is_empty());
    }
}
