//! What a run hands to the judge.

use std::collections::{BTreeMap, BTreeSet};
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
    /// How long it took, confirming included.
    pub duration: Duration,
    /// Only part of the tests was asked for: a waiver that matches nothing may still be needed.
    pub partial: bool,
    /// A part of a run may have no suite: the other parts have them.
    pub may_be_empty: bool,
    /// Exit status of the wrapped command; `None`: there was none (`memgate gate`), or it is not
    /// known.
    pub command_status: Option<i32>,
    /// The suites, in the order they ran.
    pub suites: Vec<SuiteInput>,
    /// Commit, CI job, machine.
    pub origin: Option<Origin>,
    /// What went wrong outside the suites; any of them makes the run an error.
    pub errors: Vec<Problem>,
}

/// One suite: an executable with its normalised arguments, in however many processes it ran.
#[derive(Debug)]
pub struct SuiteInput {
    /// Its name in reports, and before `::` in the names that rules match.
    pub name: String,
    /// Who tells its tests apart.
    pub runner: Runner,
    /// How exactly its boundaries are known. With [`BoundaryQuality::Process`] the process is the
    /// one test.
    pub boundary: BoundaryQuality,
    /// How long the screening pass took.
    pub screened: Duration,
    /// Every process of the screening pass, in the order they started.
    pub screen: Vec<ProcessInput>,
    /// Processes that took the stacks of what its tests left, where the screen did not; they are in [`Self::screen`].
    pub stacks: Vec<ProcessInput>,
    /// What came of running suspects again, by test id (for a process as the test: the suite's
    /// name).
    pub confirmations: BTreeMap<String, ConfirmationInput>,
    /// Why the suite as a whole could not be measured. Any of them makes the suite an error.
    pub problems: Vec<Problem>,
    /// What the launcher's runs of a JVM suite add; `None`: no JVM suite. [`Self::screen`] is then
    /// the build's own run, whose tests are not measured one by one.
    pub java: Option<JavaInput>,
    /// What `--hunt` repeated of it.
    pub hunt: Option<Hunt>,
    /// What Android said of the app's memory.
    pub app_memory: Option<AppMemory>,
    /// Its heap dumps.
    pub heap: Vec<HeapCheck>,
}

/// How a JVM suite was screened.
#[derive(Debug, Default)]
pub struct JavaInput {
    /// The processes of the launcher's rounds.
    pub rounds: Vec<ProcessInput>,
    /// Why some or all of its classes did not need rounds (`screen: off`); `None`: all had to run
    /// in them.
    pub not_screened: Option<String>,
    /// Its classes that left no more than a baseline says, and needed none.
    pub unchanged: BTreeSet<String>,
    /// Its classes that cannot be repeated, and what they do instead: `hangs`.
    pub breaking: BTreeMap<String, String>,
    /// Nothing was screened, because that was switched off: no test is judged.
    pub is_off: bool,
    /// What figures of this kind of run do not tell; `None`: nothing is special about it.
    pub limits: Option<String>,
    /// Native memory of its libraries was not to be judged.
    pub native_is_off: bool,
}

/// One process and how it ended, as far as the harness knows.
#[derive(Debug)]
pub struct ProcessInput {
    /// What it wrote.
    pub record: ProcessRecord,
    /// How it ended.
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
    /// Nobody waited for it: its own goodbye, or the lack of one, is all there is.
    Unknown,
    /// With this status.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// The harness ended it because a test ran longer than this.
    TimedOut(Duration),
}

/// What came of running a suspect again.
#[derive(Debug)]
pub enum ConfirmationInput {
    /// The test alone, repeated in one process.
    Repeated(Box<ProcessInput>),
    /// The same, and with the tests around it, repeated in one process; or why that could not be.
    InCompany {
        /// The test alone.
        alone: Box<ProcessInput>,
        /// With the others.
        together: Result<Box<ProcessInput>, String>,
    },
    /// The process is the test: runs that repeated their work a different number of times each.
    Lengths(Vec<Repetition>),
    /// Later tests freed all that it left, and there was no time to confirm it.
    FreedSince,
    /// It cannot be repeated; why, as a fragment after "unconfirmed: …". A warning, or a failure by
    /// policy.
    Impossible(String),
    /// It could have been repeated, but memgate's own run of it broke; why. An error.
    Broken(String),
    /// It could not be screened, so nothing is known of what it leaves; why. A warning.
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
