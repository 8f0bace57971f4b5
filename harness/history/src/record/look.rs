//! How thoroughly a run looked for leaks.

use memgate_model::{RunReport, SuiteReport};
use serde::{Deserialize, Serialize};

/// How thoroughly a run looked for leaks. If it looked less thoroughly than all runs that saw a leak, its not seeing
/// the leak proves nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Look {
    /// Native allocations were sampled.
    Sampled,
    /// Suspects were repeated.
    #[default]
    Plain,
    /// Other tests were repeated, too (`--hunt`).
    Hunted,
}

impl Look {
    /// Its number in the database.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::Plain => 0,
            Self::Sampled => 1,
            Self::Hunted => 2,
        }
    }

    /// The variant with this number.
    #[must_use]
    pub fn of_number(number: i64) -> Option<Self> {
        [Self::Plain, Self::Sampled, Self::Hunted].into_iter().find(|look| look.number() == number)
    }

    pub(super) fn of(report: &RunReport) -> Self {
        let hunted = |suite: &SuiteReport| suite.hunt.as_ref().is_some_and(|hunt| hunt.not_hunted.is_none());
        if report.suites.iter().any(|suite| suite.native_sampling.is_some()) {
            Self::Sampled
        } else if report.suites.iter().any(hunted) {
            Self::Hunted
        } else {
            Self::Plain
        }
    }
}
