//! Test classes that a run did not measure again, because they left no more than the baseline allows (`screen:
//! baseline`). The accepted figures of their tests stay valid.
//!
//! A session has them in its [`Facts`]. A session merged from shards has no facts: it has them in a file.

use std::collections::{BTreeMap, BTreeSet};

use super::Session;
use super::facts::Facts;
use crate::exit::ExpectedError;

const FILE: &str = "unchanged.json";

/// The classes, by the name of their suite.
pub type Unchanged = BTreeMap<String, BTreeSet<String>>;

/// The unchanged classes of a session; `None`: they are not known.
///
/// # Errors
/// When it cannot be read.
pub fn of(session: &Session) -> Result<Option<Unchanged>, ExpectedError> {
    if let Some(facts) = Facts::load(session)? {
        let mut all = Unchanged::new();
        for suite in facts.suites {
            all.entry(suite.name).or_default().extend(suite.java.into_iter().flat_map(|java| java.unchanged));
        }
        return Ok(Some(all));
    }
    let path = session.folder().join(FILE);
    if !path.exists() {
        return Ok(None);
    }
    let bytes = session.read(FILE).map_err(|why| ExpectedError::failed(&why))?;
    let read = serde_json::from_slice(&bytes);
    read.map(Some).map_err(|why| ExpectedError::session(path, why.to_string(), "merge the shards again"))
}

/// Stores the classes of all shards in the session into which they are merged. If they are not known for one shard,
/// nothing is stored.
///
/// # Errors
/// When a shard cannot be read, or the session cannot be written.
pub fn merge<'a>(shards: impl Iterator<Item = &'a Session>, into: &Session) -> Result<(), ExpectedError> {
    let mut all = Unchanged::new();
    for shard in shards {
        let Some(unchanged) = of(shard)? else { return Ok(()) };
        for (suite, classes) in unchanged {
            all.entry(suite).or_default().extend(classes);
        }
    }
    let json = serde_json::to_vec(&all).map_err(|why| ExpectedError::failed(&why))?;
    into.write(FILE, &json).map(drop).map_err(|why| ExpectedError::failed(&why))
}

#[cfg(test)]
mod tests {
    use super::super::SessionInfo;
    use super::super::facts::{JavaFacts, Kind, SuiteFacts};
    use super::*;

    fn session(root: &std::path::Path, classes: Option<&[&str]>) -> Session {
        let session = Session::create(root, &SessionInfo::now(Vec::new(), "1")).unwrap();
        let Some(classes) = classes else { return session };
        let unchanged = classes.iter().map(|class| (*class).to_owned()).collect();
        let java = JavaFacts { unchanged, ..JavaFacts::default() };
        let suite = SuiteFacts::new("core".to_owned(), Kind::Junit, Vec::new());
        let suite = SuiteFacts { java: Some(java), ..suite };
        Facts { version: 1, suites: vec![suite], ..Facts::default() }.save(&session).unwrap();
        session
    }

    /// Before, accepting a merged session dropped the figures of tests that no shard had measured again.
    #[test]
    fn a_merged_session_tells_what_its_shards_tell() {
        let root = tempfile::tempdir().unwrap();
        let shards = [session(root.path(), Some(&["a.One"])), session(root.path(), Some(&["a.Two"]))];
        let merged = session(root.path(), None);
        assert_eq!(of(&merged).unwrap(), None);
        merge(shards.iter(), &merged).unwrap();
        let both = ["a.One".to_owned(), "a.Two".to_owned()].into();
        assert_eq!(of(&merged).unwrap(), Some([("core".to_owned(), both)].into()));
        let unknown = session(root.path(), None);
        let another = session(root.path(), None);
        merge(shards.iter().chain([&unknown]), &another).unwrap();
        assert_eq!(of(&another).unwrap(), None);
    }
}
