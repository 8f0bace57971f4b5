//! The shard of a run that this machine runs (`--partition`).
//!
//! Data flow: a runner names the units of a suite → [`ThisShard::own`] selects those of this shard and notes both lists
//! → the measured suites are noted → at the end [`ThisShard::description`] gives what the shard stores next to its
//! report. It is also stored before anything runs, so that a killed shard is noticed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use memgate_history::sha256_hex;
use memgate_history::shards::{DESCRIPTION_VERSION, ShardDescription, Split, SuiteUnits, Timings, UnitKind};

use crate::bounded;
use crate::exit::ExpectedError;
use crate::plan::PlannedShard;
use crate::session::Session;

/// The shard of a run that this machine runs.
#[derive(Debug)]
pub(in crate::run) struct ThisShard {
    state: Mutex<State>,
    /// The state before any suite was divided.
    fresh: Split,
    timings: String,
}

#[derive(Debug)]
struct State {
    split: Split,
    suites: Vec<SuiteUnits>,
}

impl ThisShard {
    /// Reads the timings.
    pub(in crate::run) fn begin(planned: &PlannedShard) -> Result<Self, ExpectedError> {
        let mut timings = (!planned.timings.is_empty()).then(Timings::default);
        let mut read = Vec::new();
        for path in &planned.timings {
            let bytes =
                bounded::read(path, bounded::LONGEST_REPORT).map_err(ExpectedError::file("read", path))?;
            let report = memgate_reports::from_json(&bytes).map_err(|why| ExpectedError::Usage {
                what: format!("{}: {why}", path.display()),
                hint: "--timings takes the report.json of an earlier run".to_owned(),
            })?;
            timings.get_or_insert_default().add(&report);
            read.extend_from_slice(sha256_hex(&bytes).as_bytes());
        }
        let fresh = Split::new(planned.number, timings);
        let timings = if read.is_empty() { String::new() } else { sha256_hex(&read) };
        Ok(Self { state: Mutex::new(State { split: fresh.clone(), suites: Vec::new() }), fresh, timings })
    }

    /// The units of a suite that belong to this shard.
    pub(in crate::run) fn own(&self, suite: &str, kind: UnitKind, units: Vec<String>) -> Vec<String> {
        let own = self.state().split.own(suite, &units);
        self.note(suite, kind, units, own)
    }

    /// Like `own`, for a suite that runs in parallel with others, in no fixed order: it is divided independently.
    pub(in crate::run) fn own_alone(&self, suite: &str, kind: UnitKind, units: Vec<String>) -> Vec<String> {
        let own = self.fresh.clone().own(suite, &units);
        self.note(suite, kind, units, own)
    }

    fn note(&self, suite: &str, kind: UnitKind, units: Vec<String>, own: Vec<String>) -> Vec<String> {
        let noted =
            SuiteUnits { suite: suite.to_owned(), kind, units, own: own.clone(), measured: BTreeMap::new() };
        self.state().suites.push(noted);
        own
    }

    /// These suites of the report came from `suite`: their names and identities.
    pub(in crate::run) fn measured(&self, suite: &str, came: &[(String, String)]) {
        for noted in self.state().suites.iter_mut().filter(|noted| noted.suite == suite) {
            noted.measured.extend(came.iter().cloned());
        }
    }

    /// Whether it is fine that nothing was measured. Classes of this shard may contain no tests, and programs may not
    /// use GoogleTest: only all shards together show this.
    pub(in crate::run) fn may_be_empty(&self) -> bool {
        let state = self.state();
        let has_units = state.suites.iter().any(|suite| !suite.units.is_empty());
        has_units && state.suites.iter().all(|suite| suite.kind != UnitKind::Test || suite.own.is_empty())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `shard 3/8`.
    pub(in crate::run) fn name(&self) -> String {
        format!("shard {}", self.fresh.number())
    }

    /// The description that the shard stores next to its report.
    pub(in crate::run) fn description(
        &self,
        planned: &PlannedShard,
        (commit, dirty): (&str, bool),
    ) -> ShardDescription {
        let mut suites = self.state().suites.clone();
        suites.sort_by(|a, b| a.suite.cmp(&b.suite));
        ShardDescription {
            version: DESCRIPTION_VERSION,
            memgate: env!("CARGO_PKG_VERSION").to_owned(),
            number: planned.number,
            commit: commit.to_owned(),
            dirty,
            config: planned.config.clone(),
            options: planned.options.clone(),
            baseline: planned.baseline.clone(),
            timings: self.timings.clone(),
            narrowed: planned.narrowed,
            suites,
        }
    }
}

/// File in the session that describes the shard.
pub const FILE: &str = "partition.json";

/// Writes the description into the session.
pub(in crate::run) fn keep(session: &Session, description: &ShardDescription) -> Result<(), ExpectedError> {
    let json = serde_json::to_vec(description).map_err(|why| ExpectedError::failed(&why))?;
    session.write(FILE, &json).map(drop).map_err(|why| ExpectedError::failed(&why))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use memgate_model::ShardNumber;

    use super::*;

    fn planned(timings: Vec<PathBuf>) -> PlannedShard {
        PlannedShard {
            number: ShardNumber::new(1, 2).unwrap(),
            timings,
            narrowed: false,
            config: "s".into(),
            options: String::new(),
            baseline: String::new(),
        }
    }

    #[test]
    fn timings_that_are_no_report_are_told_by_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("times.json");
        std::fs::write(&path, "{}").unwrap();
        let error = ThisShard::begin(&planned(vec![path])).unwrap_err();
        assert!(error.to_string().contains("times.json"), "{error}");
        assert!(error.hint().unwrap().contains("report.json"));
    }

    #[test]
    fn what_was_divided_is_kept_by_suite() {
        let shard = ThisShard::begin(&planned(Vec::new())).unwrap();
        let units = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let own = shard.own("b", UnitKind::Test, units(&["A.x", "A.y", "A.z"]));
        shard.own_alone("a", UnitKind::Program, units(&["one"]));
        let description = shard.description(&planned(Vec::new()), ("abc", false));
        assert_eq!(description.suites.iter().map(|it| it.suite.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(description.suites[1].own, own);
        assert_eq!(description.counts().1, 4);
    }
}
