//! Exit codes, the rule that selects one, and the expected errors of a user, each with its code.
//!
//! Data flow: a command returns `Result<u8, ExpectedError>`; `main.rs` prints the error (`error:`
//! and `hint:` lines, through `output`) and exits with its code.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use memgate_adb::AdbError;
use memgate_model::{Outcome, RunReport, Verdict, format_number_of};

/// Everything was measured and within its thresholds (warnings allowed).
pub(crate) const PASS: u8 = 0;
/// A gate failed, or the wrapped tests themselves failed.
pub(crate) const FAIL: u8 = 1;
/// Nothing failed, but something could not be measured, or memgate cannot do what was requested.
pub(crate) const NOT_MEASURED: u8 = 2;
/// Ended by the user (SIGINT, SIGTERM).
pub(crate) const INTERRUPTED: u8 = 130;

const DISK_FULL: &str = "the disk is full: make room, or name a folder on another disk";

/// The exit code of a judged run.
///
/// `analysis` applies this rule: 1 when a gate failed, or the wrapped command or one of its tests did (unless
/// `--ignore-test-failures` was given); otherwise 2 when something could not be measured; otherwise 0. So the wrapped
/// command's own failure is never hidden, and tests that were not measured never pass.
#[must_use]
pub(crate) fn of_report(report: &RunReport) -> u8 {
    u8::try_from(report.exit_code).unwrap_or(NOT_MEASURED)
}

/// Like [`of_report`], if an upload is required: a run that was not uploaded does not pass. A failure stays a failure.
#[must_use]
pub(crate) const fn with_upload(code: u8, is_uploaded: bool) -> u8 {
    if code == PASS && !is_uploaded { NOT_MEASURED } else { code }
}

/// Why a run ends with 1 although no gate failed and the wrapped command ended with 0: a build may succeed although its
/// tests fail.
#[must_use]
pub(crate) fn against_the_command(report: &RunReport, command_status: Option<i32>) -> Option<String> {
    if report.exit_code != i32::from(FAIL) || report.verdict == Verdict::Fail || command_status != Some(0) {
        return None;
    }
    let tests = report.suites.iter().flat_map(|suite| &suite.tests);
    let failed = tests.filter(|t| !matches!(t.outcome, Outcome::Passed | Outcome::Skipped)).count();
    let what = match failed {
        0 => "a process of the tests failed".to_owned(),
        some => format!("{} failed", format_number_of(some, "test")),
    };
    Some(format!(
        "exit code 1: {what}, though the command ended with 0 (--ignore-test-failures leaves that to the command)"
    ))
}

/// An error for the user to solve. The text fits after `error: `; [`ExpectedError::hint`] has the advice.
#[derive(Debug, thiserror::Error)]
pub enum ExpectedError {
    /// The configuration has mistakes; the text shows all of them with their lines.
    #[error("{0}")]
    Configuration(String),
    /// There is neither a configuration nor a program to run.
    #[error("nothing to run: there is no `{}`, and no program after `--`", .0.display())]
    NothingToRun(PathBuf),
    /// The configuration has no suites, and there is no program to run.
    #[error("{} has no suites", .0.display())]
    NoSuites(PathBuf),
    /// `--suite` names none of the configured suites.
    #[error("there is no suite `{name}` in {}", file.display())]
    UnknownSuite {
        /// The requested name.
        name: String,
        /// The configuration file.
        file: PathBuf,
        /// The existing names.
        known: Vec<String>,
    },
    /// The program to run cannot be found or executed.
    #[error("cannot run `{program}`: {why}")]
    Program {
        /// The program as typed.
        program: String,
        /// What is wrong with it.
        why: String,
        /// What to do.
        hint: String,
    },
    /// An argument is invalid.
    #[error("{what}")]
    Usage {
        /// What is wrong.
        what: String,
        /// What to do, may be empty.
        hint: String,
    },
    /// A file or folder could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// `read`, `write`, `create`, …
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A session or a stream cannot be used.
    #[error("cannot use {}: {why}", path.display())]
    Session {
        /// The path.
        path: PathBuf,
        /// Why.
        why: String,
        /// What to do, may be empty.
        hint: String,
    },
    /// Something needed is not installed.
    #[error("{what}")]
    Missing {
        /// What is missing.
        what: String,
        /// How to get it.
        hint: String,
    },
    /// The machinery around the run failed: launching, recording, the agent file.
    #[error("{what}")]
    Machinery {
        /// What failed.
        what: String,
        /// What to do, may be empty.
        hint: String,
    },
    /// The user ended the run; the session is kept.
    #[error("interrupted; what was recorded so far is in {}", .0.display())]
    Interrupted(PathBuf),
}

impl ExpectedError {
    /// The exit code of this error.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted(_) => INTERRUPTED,
            Self::Configuration(_)
            | Self::NothingToRun(_)
            | Self::NoSuites(_)
            | Self::UnknownSuite { .. }
            | Self::Program { .. }
            | Self::Usage { .. }
            | Self::File { .. }
            | Self::Session { .. }
            | Self::Missing { .. }
            | Self::Machinery { .. } => NOT_MEASURED,
        }
    }

    /// Advice for the user, if there is any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NothingToRun(_) => Some(
                "wrap a test command (`memgate run -- build/my_tests`), or write a configuration with `memgate init`"
                    .to_owned(),
            ),
            Self::NoSuites(_) => Some("name one under `suites:` (`unit: { run: [build/my_tests] }`), or wrap a test command: `memgate run -- build/my_tests`".to_owned()),
            Self::UnknownSuite { known, .. } => Some(format!("it has: {}", known.join(", "))),
            Self::Interrupted(session) => {
                Some(format!("judge it as it is: memgate gate {}", session.display()))
            }
            Self::Program { hint, .. }
            | Self::Usage { hint, .. }
            | Self::Session { hint, .. }
            | Self::Missing { hint, .. }
            | Self::Machinery { hint, .. } => (!hint.is_empty()).then(|| hint.clone()),
            Self::File { source, .. } if source.kind() == ErrorKind::StorageFull => Some(DISK_FULL.to_owned()),
            Self::Configuration(_) | Self::File { .. } => None,
        }
    }

    /// An invalid argument: the problem, and advice (may be empty).
    pub fn usage(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage { what: what.into(), hint: hint.into() }
    }

    /// Something needed is not installed: what is missing, and how to get it.
    pub(crate) fn missing(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Missing { what: what.into(), hint: hint.into() }
    }

    /// The machinery around the run failed: what failed, and what to do (may be empty).
    pub fn machinery(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Machinery { what: what.into(), hint: hint.into() }
    }

    /// A session or a stream cannot be used: which, why, and what to do (may be empty).
    pub(crate) fn session(path: impl Into<PathBuf>, why: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Session { path: path.into(), why: why.into(), hint: hint.into() }
    }

    /// For `map_err`, where the machinery around a run failed.
    pub(crate) fn failed(why: &dyn std::error::Error) -> Self {
        let mut causes = std::iter::successors(why.source(), |cause| cause.source());
        let is_full = causes.any(|cause| {
            cause.downcast_ref::<io::Error>().is_some_and(|why| why.kind() == ErrorKind::StorageFull)
        });
        Self::failed_with_hint(why, if is_full { DISK_FULL } else { "" })
    }

    /// For `map_err`, where the machinery around a run failed and the user can do something about it.
    pub(crate) fn failed_with_hint(why: &dyn std::error::Error, hint: &str) -> Self {
        Self::machinery(failed_to(why), hint)
    }

    /// For `map_err` after file operations.
    pub(crate) fn file(action: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }
}

/// The text of an error that says what could not be done: `failed to`, the error, and its causes.
pub(crate) fn failed_to(why: &dyn std::error::Error) -> String {
    format!("failed to {}", chain(why))
}

impl From<AdbError> for ExpectedError {
    fn from(error: AdbError) -> Self {
        let (what, hint) = (failed_to(&error), error.hint());
        match error {
            AdbError::NoProgram { .. } => Self::Missing { what, hint },
            _ => Self::Machinery { what, hint },
        }
    }
}

/// An error with all its sources, as one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let told = error.to_string();
        // Some errors already include their source in their text.
        if !text.ends_with(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use memgate_analysis::{GatePolicy, ProcessRecord, Resolve, ResolvedStack, RunInput, judge};

    use super::*;

    struct NoSymbols;

    impl Resolve for NoSymbols {
        fn frames(&mut self, _: &ProcessRecord, _: u32) -> ResolvedStack {
            ResolvedStack::default()
        }
    }

    #[test]
    fn a_failing_command_is_never_hidden_and_nothing_measured_is_no_pass() {
        for (status, ignore, code, why) in [
            (Some(0), false, 2, "nothing was measured"),
            (None, false, 2, "nothing was measured, and nobody knows how it ended"),
            (Some(8), false, 1, "the command failed"),
            (Some(139), false, 1, "the command crashed"),
            (Some(8), true, 2, "its failure is ignored by choice, nothing was measured all the same"),
        ] {
            let input = RunInput { command_status: status, ..RunInput::default() };
            let policy = GatePolicy { ignore_test_failures: ignore, ..GatePolicy::default() };
            assert_eq!(of_report(&judge(&input, &policy, &mut NoSymbols)), code, "{why}");
        }
    }

    #[test]
    fn errors_end_with_two_and_an_interruption_with_130() {
        assert_eq!(ExpectedError::NothingToRun("memgate.yaml".into()).exit_code(), 2);
        assert_eq!(ExpectedError::Interrupted(".memgate/s".into()).exit_code(), 130);
    }

    #[test]
    fn an_error_says_what_to_do() {
        let error = ExpectedError::UnknownSuite {
            name: "engin".into(),
            file: "memgate.yaml".into(),
            known: vec!["engine".into(), "replay".into()],
        };
        assert_eq!(error.to_string(), "there is no suite `engin` in memgate.yaml");
        assert_eq!(error.hint().as_deref(), Some("it has: engine, replay"));
        let hint = |why: i32| {
            ExpectedError::file("write", "x.log".as_ref())(std::io::Error::from_raw_os_error(why)).hint()
        };
        assert_eq!((hint(28).as_deref(), hint(2)), (Some(DISK_FULL), None));
        let of_a_session = crate::session::StoreError::Path {
            action: "write",
            path: "session.json".into(),
            source: io::Error::from(ErrorKind::StorageFull),
        };
        assert_eq!(ExpectedError::failed(&of_a_session).hint().as_deref(), Some(DISK_FULL));
    }
}
