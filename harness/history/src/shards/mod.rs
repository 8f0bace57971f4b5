//! A run that is spread over several machines: which of its units run where, and how the shards become one report
//! again.
//!
//! Data flow: the units of a suite → [`Split`] (which of them fall to this shard) → the shard runs and reports them,
//! and keeps a [`Partition`] beside its report. All [`ShardReport`]s → [`merge`] → one report, with what is missing or
//! does not fit together as its errors: no shard that never ran is a pass.
//!
//! A **unit** is what is never divided: a test of a GoogleTest executable, a test of `ctest`, a Java test class, and
//! any other suite as a whole.

mod check;
mod merge;
mod split;

use std::collections::BTreeMap;

use memgate_model::{Part, RunReport};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use merge::{Merged, merge};
pub use split::{Split, Timings};

/// Version of the shape of [`Partition`].
pub const PARTITION_VERSION: u32 = 1;

/// SHA-256 in hexadecimal digits.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a shard keeps beside its report (`partition.json`): of which whole it is a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// [`PARTITION_VERSION`] of the writer.
    pub version: u32,
    /// Version of memgate.
    pub memgate: String,
    /// Which part.
    pub part: Part,
    /// The commit; empty: it is not known.
    #[serde(default)]
    pub commit: String,
    /// Files of the project differ from the commit.
    #[serde(default)]
    pub dirty: bool,
    /// SHA-256 of the settings of memgate.yaml.
    #[serde(default)]
    pub config: String,
    /// The options that decide what is run and how it is judged.
    #[serde(default)]
    pub options: String,
    /// SHA-256 of the accepted baseline; empty: there is none.
    #[serde(default)]
    pub baseline: String,
    /// SHA-256 of the files of `--timings`; empty: the units are spread by their names.
    #[serde(default)]
    pub timings: String,
    /// Only part of the tests was asked for, by a filter for example.
    #[serde(default)]
    pub narrowed: bool,
    /// What there is to run, in all shards together, and what of it fell to this one.
    #[serde(default)]
    pub suites: Vec<SuiteUnits>,
}

/// What the units of a suite are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitKind {
    /// Tests, by the ids that reports give them.
    #[default]
    Test,
    /// Java test classes.
    Class,
    /// Programs and tests of `ctest`: their names are not those of tests in reports.
    Program,
}

/// GoogleTest lists disabled tests and does not run them.
#[must_use]
pub fn is_disabled(test: &str) -> bool {
    test.split(['.', '/']).any(|part| part.starts_with("DISABLED_"))
}

/// The units of a suite.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuiteUnits {
    /// The suite as it is planned: its name in memgate.yaml, else the command.
    pub suite: String,
    /// What its units are.
    #[serde(default)]
    pub kind: UnitKind,
    /// All units, in the order the suite lists them.
    pub units: Vec<String>,
    /// Those that fell to this shard.
    pub own: Vec<String>,
    /// The suites of the report that came of it in this shard: by their names, what each is, a program or a folder.
    #[serde(default)]
    pub measured: BTreeMap<String, String>,
}

impl Partition {
    /// How many units fell to this shard, and of how many.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let count = |of: fn(&SuiteUnits) -> &Vec<String>| {
            self.suites.iter().map(|suite| of(suite).len() as u64).sum()
        };
        (count(|suite| &suite.own), count(|suite| &suite.units))
    }
}

/// A shard, as it arrived.
#[derive(Debug, Clone)]
pub struct ShardReport {
    /// Of which whole it is a part.
    pub partition: Partition,
    /// What it found; `None`: it ended before it had a report.
    pub report: Option<RunReport>,
    /// Name of its session.
    pub session: String,
    /// When it began.
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
