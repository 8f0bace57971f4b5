//! What of a run falls to this shard (`--partition`).
//!
//! Data flow: a runner names the units of a suite → [`Divided::own`] says which are its own, and notes both → at the end
//! [`Divided::partition`] is what the shard keeps beside its report.

use std::sync::{Mutex, PoisonError};

use memgate_history::shards::{PARTITION_VERSION, Partition, Split, SuiteUnits, Timings, UnitKind, digest};
use memgate_model::{RunReport, Shard};

use crate::exit::ExpectedError;
use crate::plan::PlannedPart;
use crate::session::Session;

/// What of a run falls to this shard.
#[derive(Debug)]
pub(in crate::run) struct Divided {
    state: Mutex<(Split, Vec<SuiteUnits>)>,
    /// As it was before any suite was divided.
    fresh: Split,
    timings: String,
}

impl Divided {
    /// Reads the timings.
    pub(in crate::run) fn begin(planned: &PlannedPart) -> Result<Self, ExpectedError> {
        let mut timings = (!planned.timings.is_empty()).then(Timings::default);
        let mut read = Vec::new();
        for path in &planned.timings {
            let bytes = std::fs::read(path).map_err(ExpectedError::file("read", path))?;
            let report = memgate_reports::from_json(&bytes).map_err(|why| ExpectedError::Usage {
                what: format!("{}: {why}", path.display()),
                hint: "--timings takes the report.json of an earlier run".to_owned(),
            })?;
            timings.get_or_insert_default().add(&report);
            read.extend_from_slice(digest(&bytes).as_bytes());
        }
        let fresh = Split::new(planned.part, timings);
        let timings = if read.is_empty() { String::new() } else { digest(&read) };
        Ok(Self { state: Mutex::new((fresh.clone(), Vec::new())), fresh, timings })
    }

    /// The units of a suite that fall to this shard.
    pub(in crate::run) fn own(&self, suite: &str, kind: UnitKind, units: Vec<String>) -> Vec<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let own = state.0.own(suite, &units);
        state.1.push(SuiteUnits { suite: suite.to_owned(), kind, units, own: own.clone() });
        own
    }

    /// The same of a suite that runs beside others, in no order: it is divided by itself.
    pub(in crate::run) fn own_alone(&self, suite: &str, kind: UnitKind, units: Vec<String>) -> Vec<String> {
        let own = self.fresh.clone().own(suite, &units);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.1.push(SuiteUnits { suite: suite.to_owned(), kind, units, own: own.clone() });
        own
    }

    /// Is there anything to divide?
    pub(in crate::run) fn has_units(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.1.iter().any(|suite| !suite.units.is_empty())
    }

    /// `shard 3/8`.
    pub(in crate::run) fn name(&self) -> String {
        format!("shard {}", self.fresh.part())
    }

    /// What the shard keeps beside its report.
    pub(in crate::run) fn partition(&self, planned: &PlannedPart, commit: &str) -> Partition {
        let mut suites = self.state.lock().unwrap_or_else(PoisonError::into_inner).1.clone();
        suites.sort_by(|a, b| a.suite.cmp(&b.suite));
        Partition {
            version: PARTITION_VERSION,
            memgate: env!("CARGO_PKG_VERSION").to_owned(),
            part: planned.part,
            commit: commit.to_owned(),
            config: planned.settings.clone(),
            baseline: planned.baseline.clone(),
            timings: self.timings.clone(),
            narrowed: planned.narrowed,
            suites,
        }
    }
}

/// What the report of a shard says of itself.
pub(in crate::run) fn told(partition: &Partition, report: &RunReport) -> Shard {
    let (units, of_units) = partition.counts();
    Shard {
        part: partition.part,
        session: report.session.clone(),
        started: report.started.clone(),
        duration_s: report.duration_s,
        verdict: report.verdict,
        units,
        of_units,
        replaces: Vec::new(),
        disagree: Vec::new(),
    }
}

/// Where a shard keeps of which whole it is a part, in its session.
pub const FILE: &str = "partition.json";

/// Writes it into the session.
pub(in crate::run) fn keep(session: &Session, partition: &Partition) -> Result<(), ExpectedError> {
    let json = serde_json::to_vec(partition).map_err(|why| ExpectedError::failed(&why))?;
    session.write(FILE, &json).map(drop).map_err(|why| ExpectedError::failed(&why))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use memgate_model::Part;

    use super::*;

    fn part(timings: Vec<PathBuf>) -> PlannedPart {
        PlannedPart {
            part: Part::new(1, 2).unwrap(),
            timings,
            narrowed: false,
            settings: "s".into(),
            baseline: String::new(),
        }
    }

    #[test]
    fn timings_that_are_no_report_are_told_by_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("times.json");
        std::fs::write(&path, "{}").unwrap();
        let error = Divided::begin(&part(vec![path])).unwrap_err();
        assert!(error.to_string().contains("times.json"), "{error}");
        assert!(error.hint().unwrap().contains("report.json"));
    }

    #[test]
    fn what_was_divided_is_kept_by_suite() {
        let divided = Divided::begin(&part(Vec::new())).unwrap();
        let units = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let own = divided.own("b", UnitKind::Test, units(&["A.x", "A.y", "A.z"]));
        divided.own_alone("a", UnitKind::Program, units(&["one"]));
        let partition = divided.partition(&part(Vec::new()), "abc");
        assert_eq!(partition.suites.iter().map(|it| it.suite.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(partition.suites[1].own, own);
        assert_eq!(partition.counts().1, 4);
    }
}
