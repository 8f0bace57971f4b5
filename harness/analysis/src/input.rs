//! Input of the judge: everything that a run recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use memgate_model::{AppMemory, BoundaryQuality, HeapCheck, Hunt, Origin, Problem, Runner};

use crate::record::ProcessRecord;

/// A whole run, as recorded.
#[derive(Debug, Default)]
pub struct RunInput {
    /// Name of the project.
    pub project: String,
    /// Name of the session folder.
    pub session: String,
    /// When the run began, RFC 3339 with zone.
    pub started: String,
    /// How long the run took, confirmation included.
    pub duration: Duration,
    /// Only some of the tests were requested. A waiver that matches nothing may still be needed.
    pub partial: bool,
    /// The run may have no suite: it is one part of a run, and the other parts have them.
    pub may_be_empty: bool,
    /// The run was ended before it was complete. A test that runs then did not fail: nobody knows how it would have
    /// ended.
    pub ended_early: bool,
    /// Exit status of the wrapped command. `None`: no command (`memgate gate`), or its status is unknown.
    pub command_status: Option<i32>,
    /// The suites, in the order they ran.
    pub suites: Vec<SuiteInput>,
    /// Commit, CI job, machine.
    pub origin: Option<Origin>,
    /// Problems outside the suites. Any of them makes the run an error.
    pub errors: Vec<Problem>,
}

/// One suite: an executable with its normalised arguments, in however many processes it ran.
#[derive(Debug)]
pub struct SuiteInput {
    /// Name in reports, and before `::` in the names that rules match.
    pub name: String,
    /// The test framework that marks its tests.
    pub runner: Runner,
    /// How exactly the test boundaries are known. With [`BoundaryQuality::Process`] the whole process is the one test.
    pub boundary: BoundaryQuality,
    /// How long the screening pass took.
    pub screened: Duration,
    /// Every process of the screening pass, in the order they started.
    pub screen: Vec<ProcessInput>,
    /// Processes that recorded stacks of what the tests left, for a screen that recorded none. They are in
    /// [`Self::screen`].
    pub stacks: Vec<ProcessInput>,
    /// Results of repeating the suspects, by test id (by suite name where the process is the test).
    pub confirmations: BTreeMap<String, ConfirmationInput>,
    /// Duration of repetitions that were ended without a result. Their processes are not among `confirmations`.
    pub lost: Duration,
    /// Whether `--filter` also selects tests whose programs get a filter as an argument.
    pub takes_filter: bool,
    /// Why the suite as a whole could not be measured. Any of them makes the suite an error.
    pub problems: Vec<Problem>,
    /// Results of the launcher's runs of a JVM suite. `None`: not a JVM suite. [`Self::screen`] is then the build's own
    /// run, in which single tests are not measured.
    pub java: Option<JavaInput>,
    /// Result of `--hunt`.
    pub hunt: Option<Hunt>,
    /// Memory of the app as Android reports it.
    pub app_memory: Option<AppMemory>,
    /// Checks of its heap dumps.
    pub heap: Vec<HeapCheck>,
}

/// How a JVM suite was screened.
#[derive(Debug, Default)]
pub struct JavaInput {
    /// The processes of the launcher's rounds.
    pub rounds: Vec<ProcessInput>,
    /// Why some or all classes needed no rounds (`screen: off`). `None`: all had to run in rounds.
    pub not_screened: Option<String>,
    /// Classes that left no more than their baseline and needed no rounds.
    pub unchanged: BTreeSet<String>,
    /// Classes that cannot be repeated, each with what happens if they are: `hangs`.
    pub breaking: BTreeMap<String, String>,
    /// Duration of the rounds that such classes ended. Their processes are not among `rounds`.
    pub broken_off: Duration,
    /// Screening was switched off: no test is judged.
    pub is_off: bool,
    /// Text on what the figures of this kind of run do not show. `None`: they show everything.
    pub limits: Option<String>,
    /// Native memory of its libraries was excluded from judging.
    pub native_is_off: bool,
    /// Failures of the user's own that no test explains.
    pub failures: BTreeSet<String>,
}

/// One process and how it ended, as far as the harness knows.
#[derive(Debug)]
pub struct ProcessInput {
    /// The record of the process.
    pub record: ProcessRecord,
    /// How the process ended.
    pub ending: Ending,
}

impl From<ProcessRecord> for ProcessInput {
    fn from(record: ProcessRecord) -> Self {
        Self { record, ending: Ending::Unknown }
    }
}

/// How a process ended, seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Nobody waited for it. Only its goodbye, or a missing one, shows how it ended.
    Unknown,
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
    /// The harness ended it because a test ran longer than this.
    TimedOut(Duration),
}

/// Result of repeating a suspect.
#[derive(Debug)]
pub enum ConfirmationInput {
    /// The test alone, repeated in one process.
    Repeated(Arc<ProcessInput>),
    /// The test was repeated alone, and together with its neighbours in one process; or the reason why that was
    /// impossible.
    InCompany {
        /// The test alone.
        alone: Arc<ProcessInput>,
        /// Together with the others, or why that was impossible.
        together: Result<Arc<ProcessInput>, String>,
    },
    /// The process is the test: runs that each repeated their work a different number of times.
    Lengths(Vec<Repetition>),
    /// Later tests freed all that it left. There was no time to confirm it.
    FreedSince,
    /// It cannot be repeated, and why, as a fragment after "unconfirmed: …". A warning, or a failure by policy.
    Impossible(String),
    /// It can be repeated, but memgate's own run of it broke, and why. An error.
    Broken(String),
    /// It could not be screened, and why: what it leaves is unknown. A warning.
    Unscreened(String),
}

/// One run of a process that repeats its work.
#[derive(Debug)]
pub struct Repetition {
    /// How many times it repeats its work (the value of `{n}`).
    pub n: u64,
    /// The run.
    pub process: ProcessInput,
}
