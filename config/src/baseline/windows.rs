//! What each clean window of a JVM suite left. `screen: baseline` compares with it. A window is two lines of text, so
//! that its diffs are readable in a merge request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Test classes that were measured together, and what they left.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "Text")]
pub struct WindowBaseline {
    /// Its test classes, in the order they ran.
    pub classes: Vec<String>,
    /// Instances and bytes that it left, by class (or the name of another metric). `None`: the window ended there, but
    /// was not clean.
    pub left: Option<BTreeMap<String, (u64, u64)>>,
}

/// `classes`: names separated by spaces. `left`: `NAME INSTANCES/BYTES`, separated by `, `.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    classes: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<String>,
}

impl From<WindowBaseline> for Text {
    fn from(WindowBaseline { classes, left }: WindowBaseline) -> Self {
        let text = |left: BTreeMap<String, (u64, u64)>| {
            let entry =
                |(name, (instances, bytes)): (String, (u64, u64))| format!("{name} {instances}/{bytes}");
            left.into_iter().map(entry).collect::<Vec<_>>().join(", ")
        };
        Self { classes: classes.join(" "), left: left.map(text) }
    }
}

impl TryFrom<Text> for WindowBaseline {
    type Error = String;

    fn try_from(Text { classes, left }: Text) -> Result<Self, String> {
        let figures = |entry: &str| {
            let (name, figures) = entry.rsplit_once(' ')?;
            let (instances, bytes) = figures.split_once('/')?;
            Some((name.to_owned(), (instances.parse().ok()?, bytes.parse().ok()?)))
        };
        let entry = |entry: &str| {
            figures(entry)
                .ok_or_else(|| format!("`{entry}` is not `CLASS INSTANCES/BYTES`: accept a new baseline"))
        };
        let entries = |left: String| left.split(", ").filter(|e| !e.is_empty()).map(entry).collect();
        Ok(Self {
            classes: classes.split(' ').filter(|class| !class.is_empty()).map(str::to_owned).collect(),
            left: left.map(entries).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_two_lines_of_text() {
        let window = WindowBaseline {
            classes: vec!["a.ATest".into(), "a.BTest".into()],
            left: Some(BTreeMap::from([("byte[]".into(), (2, 48)), ("java.lang.String".into(), (1, 24))])),
        };
        let json = serde_json::to_string(&window).unwrap();
        assert_eq!(json, r#"{"classes":"a.ATest a.BTest","left":"byte[] 2/48, java.lang.String 1/24"}"#);
        assert_eq!(serde_json::from_str::<WindowBaseline>(&json).unwrap(), window);
        for left in [None, Some(BTreeMap::new())] {
            let nothing = WindowBaseline { classes: vec!["a.ATest".into()], left };
            let json = serde_json::to_string(&nothing).unwrap();
            assert_eq!(serde_json::from_str::<WindowBaseline>(&json).unwrap(), nothing);
        }
    }

    #[test]
    fn what_is_no_window_says_so() {
        let why =
            serde_json::from_str::<WindowBaseline>(r#"{"classes":"A","left":"byte[] many"}"#).unwrap_err();
        assert!(why.to_string().starts_with("`byte[] many` is not `CLASS INSTANCES/BYTES`"), "{why}");
    }
}
