//! Turns items into tests, and determines how the run ended.

use std::time::Duration;

use super::{Bundle, Item};

/// The `id` of what the system reports, not the runner or the app.
const SYSTEM: &str = "ActivityManagerService";
/// Keys with a fixed meaning; all others are measurements of the test.
const KNOWN_KEYS: [&str; 10] =
    ["class", "test", "current", "numtests", "id", "stream", "stack", "Error", "shortMsg", "longMsg"];
/// Maximum text kept for all tests together, so that a device that never stops does not fill the memory.
const LARGEST_RUN: usize = 256 << 20;
/// Maximum number of kept lines outside the protocol.
const OTHER_LINES: usize = 20;

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Passed.
    Passed,
    /// An assertion failed, or it threw.
    Failed,
    /// It threw (old runners distinguish that from a failure).
    Error,
    /// Excluded from the run.
    Ignored,
    /// The test does not apply here.
    AssumptionFailed,
    /// Its process died.
    Crashed,
    /// No end was reported.
    NotEnded,
    /// Ended with an unreadable code, or one that no runner documents.
    Unknown,
}

impl Status {
    /// Can the run still pass with this status?
    #[must_use]
    pub const fn is_good(self) -> bool {
        matches!(self, Self::Passed | Self::Ignored | Self::AssumptionFailed)
    }

    const fn of(code: Option<i64>) -> Self {
        match code {
            Some(0) => Self::Passed,
            Some(-1) => Self::Error,
            Some(-2) => Self::Failed,
            Some(-3) => Self::Ignored,
            Some(-4) => Self::AssumptionFailed,
            _ => Self::Unknown,
        }
    }
}

/// One test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestResult {
    /// Its class.
    pub class: String,
    /// Its method; `None`: code that runs before or after all tests of the class (`@BeforeClass`, `@AfterClass`).
    pub method: Option<String>,
    /// Number in the run, from 1, if the runner counts.
    pub number: Option<u64>,
    /// How it ended.
    pub status: Status,
    /// Stack trace of the failure, or other text reported about it.
    pub trace: Option<String>,
    /// Other values that it reported.
    pub metrics: Bundle,
}

/// How a run ended. The text fits after "the instrumentation run: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Ending {
    /// The runner reached its end, and every test it announced has ended.
    #[error("complete")]
    Complete,
    /// The runner reached its end, and there was no test.
    #[error("no test ran: the filter matches none, or the test APK has none")]
    NoTests,
    /// The process of the tests died.
    #[error("the process crashed: {0}")]
    Crashed(String),
    /// The system ended it because it did not respond.
    #[error("the process did not respond: {0}")]
    NotResponding(String),
    /// The runner failed outside of the tests, whatever it reports as its end.
    #[error("the test runner failed: {0}")]
    RunnerFailed(String),
    /// It could not be started: unknown component, missing target, other signature.
    #[error("it could not be started: {0}")]
    NotStarted(String),
    /// The system crashed, or gave up the run.
    #[error("the system ended it: {0}")]
    SystemCrashed(String),
    /// The runner reached its end, but announced more tests than ended.
    #[error("only {ended} of {expected} tests ended")]
    Incomplete {
        /// Tests announced.
        expected: u64,
        /// Tests that ended.
        ended: u64,
    },
    /// It finished with a code that is neither success nor crash.
    #[error("it finished with code {0}")]
    OtherCode(i64),
    /// Other output was printed into the lines of the protocol.
    #[error("its output is damaged: a status code cannot be read")]
    Damaged,
    /// It reported more than the limit.
    #[error("it reported more than 256 MiB of results")]
    TooMuch,
    /// The stream stopped: device or connection lost.
    #[error("its output stopped before the end: the device or the connection was lost")]
    StreamEnded,
    /// No line of the protocol: the command line was wrong.
    #[error("it reported nothing: {0}")]
    Nothing(String),
}

/// A run, as far as it has been reported.
#[derive(Debug, Default)]
pub struct InstrumentationRun {
    tests: Vec<TestResult>,
    open: Option<TestResult>,
    expected: Option<u64>,
    finished: Option<(Option<i64>, Bundle)>,
    not_started: Option<String>,
    aborted: Option<String>,
    on_error: Option<String>,
    other: Vec<String>,
    damaged: bool,
    kept: usize,
}

impl InstrumentationRun {
    /// A run without any report yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next item.
    pub fn apply(&mut self, item: Item) {
        match item {
            Item::Status { code, values } => self.status(code, values),
            Item::Finished { code, values } => {
                self.finished = Some((code, values));
                self.add_untold();
            }
            Item::Failed(component) => drop(self.not_started.get_or_insert(component)),
            Item::Aborted(why) => self.aborted = Some(why),
            Item::OnError(why) => self.on_error = Some(why),
            Item::Other(line) if self.other.len() < OTHER_LINES => self.other.push(line),
            Item::Other(_) => {}
        }
    }

    /// Tests that have ended, in order.
    #[must_use]
    pub fn tests(&self) -> &[TestResult] {
        &self.tests
    }

    /// The test that runs.
    #[must_use]
    pub const fn running(&self) -> Option<&TestResult> {
        self.open.as_ref()
    }

    /// How many tests the runner announced.
    #[must_use]
    pub const fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// Measurements of the whole run.
    pub fn metrics(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.finished.iter().flat_map(|(_, values)| values);
        all.filter(|(key, _)| !KNOWN_KEYS.contains(&key.as_str()))
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The duration that the runner reports.
    #[must_use]
    pub fn elapsed(&self) -> Option<Duration> {
        self.summary().lines().find_map(|line| line.strip_prefix("Time: ")).and_then(elapsed)
    }

    /// The stream has ended: closes a test that never ended, and returns how the run ended.
    pub fn end(&mut self) -> Ending {
        let ending = self.ending();
        if let Some(open) = self.open.take() {
            let crashed = matches!(ending, Ending::Crashed(_) | Ending::NotResponding(_));
            let status = if crashed { Status::Crashed } else { Status::NotEnded };
            self.tests.push(TestResult { status, ..open });
        }
        ending
    }

    fn status(&mut self, code: Option<i64>, mut values: Bundle) {
        // An app may send a value of this name itself.
        if values.get("id").is_some_and(|id| id == SYSTEM)
            && let Some(error) = values.remove("Error")
        {
            self.not_started = Some(error);
            return;
        }
        self.damaged |= code.is_none();
        let size: usize = values.iter().map(|(key, value)| key.len().saturating_add(value.len())).sum();
        self.kept = self.kept.saturating_add(size).saturating_add(size_of::<TestResult>());
        if self.kept > LARGEST_RUN {
            return;
        }
        self.expected = self.expected.or_else(|| values.get("numtests")?.parse().ok());
        match code {
            // A status that the app itself sends is never the start or the end of a test, whatever its code.
            _ if code == Some(2) || !is_of_a_test(&values) => {
                if let Some(open) = &mut self.open {
                    open.metrics.extend(metrics(values));
                }
            }
            Some(1) => {
                self.close_open();
                self.open = Some(test(Status::NotEnded, values));
            }
            code => self.ended(test(Status::of(code), values)),
        }
    }

    fn ended(&mut self, mut test: TestResult) {
        let same = |other: &TestResult| (&other.class, &other.method) == (&test.class, &test.method);
        match self.open.take() {
            Some(open) if same(&open) => {
                test.number = test.number.or(open.number);
                let mut metrics = open.metrics;
                metrics.append(&mut test.metrics);
                test.metrics = metrics;
            }
            Some(open) => {
                self.open = Some(open);
                self.close_open();
            }
            // The process crashed after the test had failed: the failure is reported again.
            None if self.tests.last().is_some_and(|last| {
                same(last)
                    && last.number == test.number
                    && last.number.is_some()
                    && !last.status.is_good()
                    && !test.status.is_good()
            }) =>
            {
                return;
            }
            None => {}
        }
        self.tests.push(test);
    }

    /// Adds the failures without a status: runners before 1.6 report failures before or after the tests of a class
    /// only in their summary.
    fn add_untold(&mut self) {
        let summary = self.summary();
        let failures = summary.lines().rev().find_map(|line| {
            line.trim().strip_prefix("Tests run: ")?.split_once("Failures: ")?.1.trim().parse::<usize>().ok()
        });
        let failed: Vec<&TestResult> = self.tests.iter().filter(|test| !test.status.is_good()).collect();
        if failures.is_none_or(|failures| failures <= failed.len()) {
            return;
        }
        let same = |a: &TestResult, b: &TestResult| (&a.class, &a.method) == (&b.class, &b.method);
        let mut untold = listed(summary);
        untold.retain(|entry| !failed.iter().any(|test| same(test, entry)));
        // A summary that is not completely readable is still a failure.
        if untold.is_empty() && failed.is_empty() {
            untold.push(failure("the run as a whole"));
        }
        self.tests.append(&mut untold);
    }

    fn close_open(&mut self) {
        self.tests.extend(self.open.take());
    }

    /// The summary that the runner printed at its end.
    fn summary(&self) -> &str {
        self.finished.as_ref().and_then(|(_, values)| values.get("stream")).map_or("", String::as_str)
    }

    fn ending(&self) -> Ending {
        let on_error = || self.on_error.as_deref().unwrap_or_default();
        if let Some(why) = &self.aborted {
            return Ending::SystemCrashed(why.clone());
        }
        if let Some(why) = &self.not_started {
            return Ending::NotStarted(why.clone());
        }
        if self.kept > LARGEST_RUN {
            return Ending::TooMuch;
        }
        match &self.finished {
            Some((code, values)) => self.finished_with(*code, values),
            None if self.on_error.is_some() => Ending::NotStarted(on_error().to_owned()),
            None if self.tests.is_empty() && self.open.is_none() && self.expected.is_none() => {
                match self.other.as_slice() {
                    [] => Ending::StreamEnded,
                    other => Ending::Nothing(other.join(" / ")),
                }
            }
            None => Ending::StreamEnded,
        }
    }

    fn finished_with(&self, code: Option<i64>, values: &Bundle) -> Ending {
        let (short, long) = (values.get("shortMsg"), values.get("longMsg"));
        let why = || long.or(short).map_or_else(|| "no reason is told".to_owned(), Clone::clone);
        if short.is_some_and(|short| short == "keyDispatchingTimedOut") {
            return Ending::NotResponding(why());
        }
        if code == Some(0) || short.is_some() {
            return Ending::Crashed(why());
        }
        if let Some(fatal) = fatal(self.summary()) {
            return Ending::RunnerFailed(fatal);
        }
        match code {
            Some(-1) if !self.damaged => self.complete(),
            Some(-1) | None => Ending::Damaged,
            Some(other) => Ending::OtherCode(other),
        }
    }

    fn complete(&self) -> Ending {
        let ended = self.tests.iter().filter(|test| test.status != Status::NotEnded).count() as u64;
        let begun = self.tests.iter().chain(&self.open).count() as u64;
        // If a class failed (or did not apply) as a whole, none of its tests is reported; only a reader that knows
        // their names can list them. An ignored class is announced as one test.
        let as_a_whole =
            self.tests.iter().any(|test| test.method.is_none() && test.status != Status::Ignored);
        let announced = if as_a_whole { 0 } else { self.expected.unwrap_or(0) };
        if begun == 0 && announced == 0 {
            return Ending::NoTests;
        }
        match begun.max(announced) {
            expected if expected > ended => Ending::Incomplete { expected, ended },
            _ => Ending::Complete,
        }
    }
}

fn test(status: Status, mut values: Bundle) -> TestResult {
    let stream = values.remove("stream").filter(|stream| !stream.trim().is_empty() && !status.is_good());
    let trace = values.remove("stack").or(stream);
    let crashed = trace.as_deref().is_some_and(says_crash) && status == Status::Failed;
    TestResult {
        class: values.remove("class").unwrap_or_default(),
        method: values.remove("test").filter(|test| test != "null"),
        number: values.remove("current").and_then(|number| number.parse().ok()),
        status: if crashed { Status::Crashed } else { status },
        trace,
        metrics: metrics(values),
    }
}

/// The runner names the test in each of its statuses, except for a crash before the first test.
fn is_of_a_test(values: &Bundle) -> bool {
    let named = ["class", "test"].iter().all(|key| values.contains_key(*key));
    named || values.get("stream").is_some_and(|stream| says_crash(stream))
}

pub(super) fn says_crash(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with("Process crashed ") || text.starts_with("Test instrumentation process crashed")
}

fn metrics(mut values: Bundle) -> Bundle {
    values.retain(|key, _| !KNOWN_KEYS.contains(&key.as_str()));
    values
}

/// The numbered failures of a summary: `1) a.B` of a class, `2) t(a.B)` of a test, each with its stack.
fn listed(summary: &str) -> Vec<TestResult> {
    let mut failures: Vec<TestResult> = Vec::new();
    for line in summary.lines() {
        let number = format!("{}) ", failures.len().saturating_add(1));
        if let Some(name) = line.strip_prefix(&number) {
            failures.push(failure(name.trim()));
        } else if line == "FAILURES!!!" {
            break;
        } else if let Some(TestResult { trace: Some(trace), .. }) = failures.last_mut() {
            trace.push_str(line);
            trace.push('\n');
        }
    }
    failures
}

fn failure(name: &str) -> TestResult {
    let of_test = name.strip_suffix(')').and_then(|name| name.rsplit_once('('));
    let (class, method) = of_test.map_or((name, None), |(method, class)| (class, Some(method.to_owned())));
    TestResult {
        class: class.to_owned(),
        method,
        number: None,
        status: Status::Failed,
        trace: Some(String::new()),
        metrics: Bundle::new(),
    }
}

/// The runner's report of its own failure: alone on a line, or as an entry of its list of failures.
fn fatal(summary: &str) -> Option<String> {
    const FATAL: &str = "Fatal exception when running tests";
    let says = |line: &&str| {
        let line = line.trim();
        let entry = line.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(") ");
        line.starts_with(FATAL) || entry.is_some_and(|entry| entry.starts_with(FATAL))
    };
    let mut lines = summary.lines().skip_while(|line| !says(line));
    let first = lines.next()?.trim();
    let cause = lines.find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    Some(format!("{first} {cause}").trim_end().to_owned())
}

/// `1,745.755`, in seconds.
fn elapsed(text: &str) -> Option<Duration> {
    let number: String = text.trim().trim_end_matches(')').chars().filter(|c| *c != ',').collect();
    Duration::try_from_secs_f64(number.parse().ok()?).ok()
}

#[cfg(test)]
mod tests;
