//! Selects the mapping file that belongs to a build.
//!
//! R8 writes the id of its mapping file into the code (a marker in `classes.dex`), and as the source file of renamed
//! methods (`r8-map-id-…`, in stack frames). So the APKs of a suite identify it before a run, and a stream afterwards.
//! If neither does, or two files match, nothing is guessed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use memgate_formats::mapping::map_ids;
use memgate_wire::Frame;

use super::files::Candidate;
use crate::apk;
use crate::exit::ExpectedError;
use crate::reading::stream;

/// Prefix of the source file that R8 writes for everything it renamed.
pub(super) const MAP_ID: &str = "r8-map-id-";

/// Maximum size of a dex file: its indexes allow no more.
const LARGEST_DEX: u64 = 512 << 20;

/// The candidate that belongs to a build which names these mapping ids; `what` describes that build.
pub(super) fn choose<'c>(
    candidates: &'c [Candidate],
    ids: &BTreeSet<String>,
    what: &str,
) -> Result<&'c Candidate, String> {
    let fitting: Vec<&Candidate> =
        candidates.iter().filter(|one| ids.iter().any(|id| one.is_of_build(id))).collect();
    let told = ids.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    match fitting.as_slice() {
        [only] => Ok(only),
        [] if ids.is_empty() => Err(format!(
            "which of {} mapping files is the one cannot be told, because {what} names none: {}",
            candidates.len(),
            list(candidates.iter())
        )),
        [] => Err(format!(
            "{what} was renamed by the mapping {told}, and none of the mapping files is that: {}",
            list(candidates.iter())
        )),
        several => Err(format!(
            "{what} names the mappings {told}, and {} mapping files fit: {}",
            several.len(),
            list(several.iter().copied())
        )),
    }
}

fn list<'c>(candidates: impl Iterator<Item = &'c Candidate>) -> String {
    candidates.map(Candidate::shown).collect::<Vec<_>>().join(", ")
}

/// The mapping ids in the code of an APK.
fn ids_of_apk(path: &Path) -> Result<BTreeSet<String>, ExpectedError> {
    let hint = "it is to tell which mapping file is the right one: name one mapping file, or the tested APKs";
    let is_code = |name: &str| !name.contains('/') && name.ends_with(".dex");
    let mut ids = BTreeSet::new();
    apk::read(path, (is_code, LARGEST_DEX), hint, |_, _, code| {
        ids.extend(map_ids(&code));
        Ok(())
    })?;
    Ok(ids)
}

/// The mapping ids of several APKs.
pub(super) fn ids_of_apks(apks: &[PathBuf]) -> Result<BTreeSet<String>, ExpectedError> {
    let mut ids = BTreeSet::new();
    for apk in apks {
        ids.extend(ids_of_apk(apk)?);
    }
    Ok(ids)
}

/// The label of a stream, and the mapping ids in its frames.
pub(super) fn ids_of_stream(path: &Path) -> (String, BTreeSet<String>) {
    let (mut label, mut ids) = (String::new(), BTreeSet::new());
    let read = stream::read(path, |frame, _| match frame {
        Frame::Hello(hello) => label = hello.label,
        Frame::JavaStacks(stacks) => {
            let named = stacks.methods.iter().filter_map(|method| method.file.strip_prefix(MAP_ID));
            ids.extend(named.map(str::to_owned));
        }
        _ => {}
    });
    // Damage is reported when the stream is read for its figures; everything before the damage counts here.
    drop(read);
    (label, ids)
}

#[cfg(test)]
mod tests {
    use super::super::files::candidates;
    use std::fs;

    use super::*;

    fn mappings(folder: &Path, ids: &[&str]) -> Vec<Candidate> {
        for (number, id) in ids.iter().enumerate() {
            let own = folder.join(number.to_string());
            fs::create_dir_all(&own).unwrap();
            let head = if id.is_empty() { String::new() } else { format!("# pg_map_id: {id}\n") };
            fs::write(own.join("mapping.txt"), format!("{head}com.example.Tile -> a.b:\n")).unwrap();
        }
        candidates([folder].into_iter()).unwrap()
    }

    #[test]
    fn the_mapping_that_the_build_names_is_chosen_and_nothing_is_guessed() {
        let folder = tempfile::tempdir().unwrap();
        let known = mappings(folder.path(), &["4eb8288", "1111111", "1111111", ""]);
        let chosen = |ids: &[&str]| {
            let ids = ids.iter().map(|&id| id.to_owned()).collect();
            choose(&known, &ids, "the build").map(|one| one.path.clone())
        };
        assert_eq!(chosen(&["4eb8288"]).unwrap(), folder.path().join("0/mapping.txt"));
        assert_eq!(
            chosen(&["4eb8288", "2222222"]).unwrap(),
            folder.path().join("0/mapping.txt"),
            "a library's own"
        );
        for (ids, want) in [
            (&[][..], "which of 4 mapping files is the one cannot be told, because the build names none: "),
            (
                &["2222222"],
                "the build was renamed by the mapping 2222222, and none of the mapping files is that: ",
            ),
            (&["1111111"], "the build names the mappings 1111111, and 2 mapping files fit: "),
        ] {
            let why = chosen(ids).unwrap_err();
            assert!(why.starts_with(want) && why.contains("1/mapping.txt (1111111), "), "{why}");
        }
        assert!(chosen(&[]).unwrap_err().contains("3/mapping.txt (it names no build)"));
    }

    #[test]
    fn what_is_no_apk_is_told_with_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let apk = folder.path().join("app.apk");
        fs::write(&apk, "no zip").unwrap();
        let error = ids_of_apks(std::slice::from_ref(&apk)).unwrap_err();
        assert!(error.to_string().contains("app.apk: it is no APK, or damaged"), "{error}");
        assert!(error.hint().unwrap().contains("name one mapping file"));
        assert!(ids_of_apk(&folder.path().join("absent.apk")).is_err());
    }
}
