//! A run that is split over several machines: which of its units run where, and how the shards are merged into one
//! report.
//!
//! Data flow: the units of a suite → [`Split`] (the units of this shard) → the shard runs and reports them, and stores
//! a [`ShardDescription`] with its report. All [`ShardReport`]s → [`merge`] → one report; anything missing or
//! inconsistent becomes its errors. So a shard that never ran is no pass.
//!
//! A **unit** is never divided: a test of a GoogleTest executable, a test of `ctest`, a Java test class, or any other
//! suite as a whole.

mod check;
mod merge;
mod split;

use std::collections::BTreeMap;

use memgate_model::{RunReport, Shard, ShardNumber, Verdict};
use serde::{Deserialize, Serialize};

pub use merge::{Merged, merge};
pub use split::{Split, Timings};

/// Version of the format of [`ShardDescription`].
pub const DESCRIPTION_VERSION: u32 = 1;

/// Data that a shard stores with its report (`partition.json`): the run, and the number of the shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardDescription {
    /// [`DESCRIPTION_VERSION`] of the writer.
    pub version: u32,
    /// Version of memgate.
    pub memgate: String,
    /// Which shard it is.
    #[serde(rename = "part")]
    pub number: ShardNumber,
    /// The commit; empty if unknown.
    #[serde(default)]
    pub commit: String,
    /// Files of the project differ from the commit.
    #[serde(default)]
    pub dirty: bool,
    /// SHA-256 of the settings of memgate.yaml.
    #[serde(default)]
    pub config: String,
    /// The options that decide what runs and how it is judged.
    #[serde(default)]
    pub options: String,
    /// SHA-256 of the accepted baseline; empty if there is none.
    #[serde(default)]
    pub baseline: String,
    /// SHA-256 of the files of `--timings`. Empty: the units are split by name.
    #[serde(default)]
    pub timings: String,
    /// Only some of the tests were requested, for example by a filter.
    #[serde(default)]
    pub narrowed: bool,
    /// All units to run in all shards together, and those of this shard.
    #[serde(default)]
    pub suites: Vec<SuiteUnits>,
}

/// The kind of a suite's units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitKind {
    /// Tests, by their ids in reports.
    #[default]
    Test,
    /// Java test classes.
    Class,
    /// Programs and tests of `ctest`: their names differ from those of tests in reports.
    Program,
}

/// Is the test disabled? GoogleTest lists disabled tests but does not run them.
#[must_use]
pub fn is_disabled(test: &str) -> bool {
    test.split(['.', '/']).any(|part| part.starts_with("DISABLED_"))
}

/// The units of a suite.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuiteUnits {
    /// The planned suite: its name in memgate.yaml, otherwise the command.
    pub suite: String,
    /// The kind of its units.
    #[serde(default)]
    pub kind: UnitKind,
    /// All units, in the order the suite lists them.
    pub units: Vec<String>,
    /// The units of this shard.
    pub own: Vec<String>,
    /// The suites in this shard's report that come from it: their names, each with its program or folder.
    #[serde(default)]
    pub measured: BTreeMap<String, String>,
}

impl ShardDescription {
    /// The number of units of this shard, and of all units.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let count = |of: fn(&SuiteUnits) -> &Vec<String>| {
            self.suites.iter().map(|suite| of(suite).len() as u64).sum()
        };
        (count(|suite| &suite.own), count(|suite| &suite.units))
    }

    /// The entry of this shard in a report. `report`: its own report; `None` if it ended before it had one.
    #[must_use]
    pub fn entry(&self, report: Option<&RunReport>) -> Shard {
        let (units, of_units) = self.counts();
        Shard {
            number: self.number,
            session: report.map_or_else(String::new, |report| report.session.clone()),
            started: report.map_or_else(String::new, |report| report.started.clone()),
            duration_s: report.map_or(0.0, |report| report.duration_s),
            verdict: report.map_or(Verdict::Error, |report| report.verdict),
            units,
            of_units,
            replaces: Vec::new(),
            disagree: Vec::new(),
        }
    }
}

/// A shard that was received.
#[derive(Debug, Clone)]
pub struct ShardReport {
    /// Which shard of which run it is.
    pub description: ShardDescription,
    /// Its report. `None`: it ended before it had one.
    pub report: Option<RunReport>,
    /// Name of its session.
    pub session: String,
    /// When it started.
    pub started: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disabled_tests_were_not_to_run() {
        for (test, disabled) in [
            ("A.DISABLED_b", true),
            ("DISABLED_A.b", true),
            ("Inst/DISABLED_A.b/0", true),
            ("A.b", false),
            ("A.not_DISABLED_b", false),
        ] {
            assert_eq!(is_disabled(test), disabled, "{test}");
        }
    }
}
