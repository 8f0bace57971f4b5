//! The test framework of a suite.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The test framework of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Runner {
    /// GoogleTest.
    Gtest,
    /// No test framework: the whole process is one test.
    Command,
    /// JUnit in Java virtual machines.
    Junit,
    /// Android instrumentation on a device.
    Instrumentation,
}

impl Runner {
    /// The name in reports and sessions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gtest => "gtest",
            Self::Command => "command",
            Self::Junit => "junit",
            Self::Instrumentation => "instrumentation",
        }
    }
}

impl fmt::Display for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_has_one_name_and_an_unknown_one_is_named_in_the_error() {
        for runner in [Runner::Gtest, Runner::Command, Runner::Junit, Runner::Instrumentation] {
            let json = serde_json::to_string(&runner).unwrap();
            assert_eq!(json, format!("\"{runner}\""));
            assert_eq!(serde_json::from_str::<Runner>(&json).unwrap(), runner);
        }
        let error = serde_json::from_str::<Runner>("\"catch2\"").unwrap_err().to_string();
        assert!(error.starts_with("unknown variant `catch2`"), "{error}");
    }
}
