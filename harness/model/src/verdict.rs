//! How a test, a suite or a run was judged, and how the user's own tests ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Judgement, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Measured and within its thresholds.
    Pass,
    /// The user's own test failed, was skipped, or was not screened: its leaks are not judged.
    NotJudged,
    /// Needs attention, but does not fail the build.
    Warn,
    /// It could not be measured, which is never a pass.
    Error,
    /// Leaks more than its threshold.
    Fail,
}

impl Verdict {
    /// The label in reports for people.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::NotJudged => "NOT JUDGED",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
            Self::Fail => "FAIL",
        }
    }

    /// The worst of several verdicts; `None` if there are none, because no data is never a pass.
    #[must_use]
    pub fn worst(verdicts: impl IntoIterator<Item = Self>) -> Option<Self> {
        verdicts.into_iter().max()
    }

    /// The exit code of a run. 0: nothing failed; 1: a gate or the user's own tests failed; 2: something could not be
    /// measured.
    #[must_use]
    pub const fn exit_code(self, users_failed: bool) -> i32 {
        match self {
            Self::Fail => 1,
            _ if users_failed => 1,
            Self::Error => 2,
            Self::Pass | Self::NotJudged | Self::Warn => 0,
        }
    }
}

/// How the user's own test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All assertions held.
    Passed,
    /// An assertion failed, or the process ended with a status other than 0.
    Failed,
    /// The test skipped itself.
    Skipped,
    /// The process ended during the test.
    Crashed,
    /// The test ran longer than its timeout.
    TimedOut,
}

/// What happens if a threshold is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// A warning.
    Warn,
    /// A failure.
    Fail,
}

impl Level {
    /// The verdict if such a threshold is exceeded.
    #[must_use]
    pub const fn verdict(self) -> Verdict {
        match self {
            Self::Warn => Verdict::Warn,
            Self::Fail => Verdict::Fail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_verdict_of_nothing_is_not_a_pass() {
        assert_eq!(Verdict::worst([]), None);
        assert_eq!(Verdict::worst([Verdict::Error, Verdict::Fail, Verdict::Warn]), Some(Verdict::Fail));
        assert_eq!(Verdict::worst([Verdict::Warn, Verdict::Error]), Some(Verdict::Error));
        assert_eq!(Verdict::worst([Verdict::Pass, Verdict::NotJudged]), Some(Verdict::NotJudged));
    }
}
