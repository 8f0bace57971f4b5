//! State of a run's processes: which test is open since when, which processes have ended. It reads no clock and touches
//! no process: times come in, decisions go out.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use memgate_analysis::ProcessRecord;
use memgate_wire::{Hello, ProcessRole};

use super::news::Seen;
use crate::recorder::{Process, ProcessKey};
use crate::session::facts::{EndingFacts, ProcessFacts};

/// The span of time that a timeout limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::run) enum Clocked {
    /// The time between a test's boundaries. From the first test on, also the time between two tests and after the last
    /// one.
    Test,
    /// The whole process.
    Process,
    /// Like `Test`, for a single test: the time before and after it counts too.
    Alone,
}

/// Handling of a test that takes too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::run) enum Limit {
    /// memgate's own run: the test is ended.
    Ends(Duration),
    /// The user's run: memgate warns once, and the test goes on. The run stops waiting only for
    /// processes that outlive the command.
    Tells(Duration),
}

impl Limit {
    pub(in crate::run) const fn duration(self) -> Duration {
        match self {
            Self::Ends(duration) | Self::Tells(duration) => duration,
        }
    }
}

/// A process in which a test takes too long.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::run) struct Overdue {
    pub(in crate::run) key: ProcessKey,
    /// The test, or the executable if no test is open.
    pub(in crate::run) what: String,
    /// The time limit.
    pub(in crate::run) limit: Duration,
    /// memgate only warns; the process goes on.
    pub(in crate::run) goes_on: bool,
}

/// A process whose recording is over.
#[derive(Debug)]
pub(in crate::run) struct Finished {
    /// The process.
    pub(in crate::run) process: Process,
    /// Record of its stream.
    pub(in crate::run) record: ProcessRecord,
    /// How it ended, as far as known.
    pub(in crate::run) ending: EndingFacts,
}

impl Finished {
    /// Its first frame.
    pub(in crate::run) fn hello(&self) -> &Hello {
        &self.process.hello
    }

    /// File name of its stream.
    pub(in crate::run) fn stream(&self) -> String {
        self.process.file.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The facts that the session keeps of it, apart from its stream.
    pub(in crate::run) fn facts(&self) -> ProcessFacts {
        ProcessFacts { stream: self.stream(), ending: self.ending, as_test: None }
    }

    /// Its environment, needed to start it again.
    pub(in crate::run) fn environment(&self) -> Option<&Vec<(OsString, OsString)>> {
        self.process.environ.as_ref()
    }

    /// Whether it is a program of its own, not forked from a measured one.
    pub(in crate::run) fn is_main(&self) -> bool {
        self.hello().role == ProcessRole::Main
    }
}

#[derive(Debug)]
struct Live {
    process: Process,
    /// Start of the current test, or end of the last one.
    since: Instant,
    open: Option<String>,
    /// Whether a test has begun in it.
    tested: bool,
    /// Whether memgate has warned about the current test.
    told: bool,
    /// The limit it exceeded. The run no longer waits for it.
    timed_out: Option<Duration>,
}

/// All processes of a run.
#[derive(Debug)]
pub(in crate::run) struct RunState {
    clocked: Clocked,
    limit: Limit,
    /// Tests with a time limit of their own.
    limits: BTreeMap<String, Duration>,
    /// Whether the started command has ended.
    over: bool,
    live: BTreeMap<ProcessKey, Live>,
    finished: Vec<Finished>,
    tests: u64,
    with_survivors: u64,
    newest: String,
}

impl RunState {
    /// Nothing has happened yet.
    pub(in crate::run) fn new(clocked: Clocked, limit: Limit) -> Self {
        Self {
            clocked,
            limit,
            limits: BTreeMap::new(),
            over: false,
            live: BTreeMap::new(),
            finished: Vec::new(),
            tests: 0,
            with_survivors: 0,
            newest: String::new(),
        }
    }

    /// Sets time limits for single tests.
    pub(in crate::run) fn with_limits(self, limits: BTreeMap<String, Duration>) -> Self {
        Self { limits, ..self }
    }

    /// Updates the state with an event.
    pub(in crate::run) fn note(&mut self, seen: Seen, now: Instant) {
        match seen {
            Seen::Started(process) => {
                let live = Live {
                    process: *process,
                    since: now,
                    open: None,
                    tested: false,
                    told: false,
                    timed_out: None,
                };
                self.live.insert(live.process.key, live);
            }
            Seen::TestBegan { key, test } => {
                self.newest.clone_from(&test);
                self.with_live(key, |live| {
                    live.open = Some(test);
                    live.tested = true;
                    live.told = false;
                    live.since = now;
                });
            }
            Seen::TestEnded { key, survivors } => {
                let was_open = self.live.get(&key).is_some_and(|live| live.open.is_some());
                // A test that settled has a second end: it counts once.
                if was_open {
                    self.tests += 1;
                    self.with_survivors += u64::from(survivors > 0);
                }
                self.with_live(key, |live| {
                    live.open = None;
                    live.since = now;
                });
            }
            Seen::Ended { key, record } => self.ended(key, *record),
        }
    }

    fn with_live(&mut self, key: ProcessKey, change: impl FnOnce(&mut Live)) {
        if let Some(live) = self.live.get_mut(&key) {
            change(live);
        }
    }

    fn ended(&mut self, key: ProcessKey, record: ProcessRecord) {
        let Some(live) = self.live.remove(&key) else { return };
        let timed_out = |limit: Duration| EndingFacts::TimedOut(limit.as_secs_f64());
        let ending = live.timed_out.map_or(EndingFacts::Unknown, timed_out);
        self.finished.push(Finished { process: live.process, record, ending });
    }

    /// The time limit for the current activity of a process.
    fn limit(&self, live: &Live) -> Duration {
        let own = live.open.as_ref().and_then(|test| self.limits.get(test));
        own.copied().unwrap_or_else(|| self.limit.duration())
    }

    fn deadline(&self, live: &Live) -> Option<Instant> {
        let counts = match (self.limit, self.clocked) {
            // The user's run has no limit outside of tests.
            (Limit::Tells(_), _) => live.open.is_some() && (!live.told || self.over),
            (Limit::Ends(_), Clocked::Test) => live.tested,
            (Limit::Ends(_), Clocked::Process | Clocked::Alone) => {
                live.process.hello.role == ProcessRole::Main
            }
        };
        (counts && live.timed_out.is_none()).then(|| live.since.checked_add(self.limit(live))).flatten()
    }

    /// The command has ended; processes that it left may still run.
    pub(in crate::run) const fn command_ended(&mut self) {
        self.over = true;
    }

    /// When the next test will have taken too long.
    pub(in crate::run) fn next_deadline(&self) -> Option<Instant> {
        self.live.values().filter_map(|live| self.deadline(live)).min()
    }

    /// Processes in which a test has taken too long, each once.
    pub(in crate::run) fn overdue(&mut self, now: Instant) -> Vec<Overdue> {
        let late: Vec<(ProcessKey, Duration)> = self
            .live
            .iter()
            .filter(|(_, live)| self.deadline(live).is_some_and(|deadline| deadline <= now))
            .map(|(key, live)| (*key, self.limit(live)))
            .collect();
        let mut overdue = Vec::new();
        let goes_on = matches!(self.limit, Limit::Tells(_)) && !self.over;
        for (key, limit) in late {
            self.with_live(key, |live| {
                live.told = true;
                live.timed_out = (!goes_on).then_some(limit);
                let what = live.open.clone().unwrap_or_else(|| live.process.hello.executable.clone());
                overdue.push(Overdue { key, what, limit, goes_on });
            });
        }
        overdue
    }

    /// Processes that have not ended.
    pub(in crate::run) fn processes(&self) -> Vec<ProcessKey> {
        self.live.keys().copied().collect()
    }

    /// Whether a test is open in some process.
    pub(in crate::run) fn has_open_tests(&self) -> bool {
        self.live.values().any(|live| live.open.is_some() && live.timed_out.is_none())
    }

    /// Number of tests that have ended.
    pub(in crate::run) const fn tests(&self) -> u64 {
        self.tests
    }

    /// The newest test, and how many tests had survivors so far.
    pub(in crate::run) fn status(&self) -> String {
        match self.with_survivors {
            0 => self.newest.clone(),
            n => format!("{} ({n} with survivors)", self.newest),
        }
    }

    /// All ended processes, in the order they began to record.
    pub(in crate::run) fn into_finished(mut self) -> Vec<Finished> {
        self.finished.sort_by_key(|finished| finished.process.key);
        self.finished
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn process(key: u64, role: ProcessRole) -> Seen {
        let hello = Hello {
            pid: 7,
            role,
            executable: "/b/tests".into(),
            working_directory: "/".into(),
            ..Hello::default()
        };
        let file = format!("/s/{key}-1.mgf").into();
        Seen::Started(Box::new(Process { key: ProcessKey(key), file, hello, environ: None, visible: true }))
    }

    fn began(key: u64, test: &str) -> Seen {
        Seen::TestBegan { key: ProcessKey(key), test: test.into() }
    }

    fn ended(key: u64) -> Seen {
        Seen::TestEnded { key: ProcessKey(key), survivors: 1 }
    }

    fn gone(key: u64) -> Seen {
        Seen::Ended { key: ProcessKey(key), record: Box::default() }
    }

    #[test]
    fn a_test_that_takes_too_long_is_overdue_once() {
        let start = Instant::now();
        let mut state = RunState::new(Clocked::Test, Limit::Ends(TIMEOUT));
        state.note(process(1, ProcessRole::Main), start);
        assert_eq!(state.next_deadline(), None, "no test is open");
        state.note(began(1, "A.b"), start + Duration::from_secs(5));
        assert_eq!(state.next_deadline(), Some(start + Duration::from_secs(65)));
        assert!(state.overdue(start + Duration::from_secs(64)).is_empty());
        let late = start + Duration::from_secs(65);
        let told =
            |goes_on| [Overdue { key: ProcessKey(1), what: "A.b".to_owned(), limit: TIMEOUT, goes_on }];
        assert_eq!(state.overdue(late), told(false));
        assert!(state.overdue(late).is_empty() && state.next_deadline().is_none());
        assert!(!state.has_open_tests(), "nobody waits for it any more");
        state.note(gone(1), late);
        assert_eq!(state.into_finished()[0].ending, EndingFacts::TimedOut(60.0));
    }

    #[test]
    fn a_test_with_a_limit_of_its_own_is_ended_by_that() {
        let (start, own) = (Instant::now(), Duration::from_secs(7));
        let limits = BTreeMap::from([("A".to_owned(), own)]);
        let mut state = RunState::new(Clocked::Alone, Limit::Ends(TIMEOUT)).with_limits(limits);
        state.note(process(1, ProcessRole::Main), start);
        state.note(began(1, "B"), start);
        assert_eq!(state.next_deadline(), Some(start + TIMEOUT));
        state.note(began(1, "A"), start);
        assert_eq!(state.next_deadline(), Some(start + own));
        assert_eq!(state.overdue(start + own)[0].limit, own);
        state.note(gone(1), start + own);
        assert_eq!(state.into_finished()[0].ending, EndingFacts::TimedOut(7.0));
    }

    #[test]
    fn a_test_of_the_users_run_is_told_once_and_given_up_when_the_command_is_over() {
        let start = Instant::now();
        let mut state = RunState::new(Clocked::Test, Limit::Tells(TIMEOUT));
        state.note(process(1, ProcessRole::Main), start);
        state.note(began(1, "A.a"), start);
        state.note(ended(1), start);
        assert_eq!(state.next_deadline(), None, "what lies between its tests is the build's");
        state.note(began(1, "A.b"), start);
        let late = start + TIMEOUT;
        let told =
            |goes_on| [Overdue { key: ProcessKey(1), what: "A.b".to_owned(), limit: TIMEOUT, goes_on }];
        assert_eq!(state.overdue(late), told(true));
        assert!(state.overdue(late).is_empty() && state.next_deadline().is_none(), "once");
        assert!(state.has_open_tests(), "it is waited for");
        state.command_ended();
        assert_eq!(state.overdue(late), told(false), "nobody else ends what the command left running");
        assert!(!state.has_open_tests());
        state.note(gone(1), late);
        assert_eq!(state.into_finished()[0].ending, EndingFacts::TimedOut(60.0));
    }

    #[test]
    fn a_process_as_the_test_is_clocked_from_its_start_but_its_children_are_not() {
        let start = Instant::now();
        let mut state = RunState::new(Clocked::Process, Limit::Ends(TIMEOUT));
        state.note(process(2, ProcessRole::ForkChild), start);
        assert_eq!(state.next_deadline(), None);
        state.note(process(1, ProcessRole::Main), start);
        assert_eq!(state.next_deadline(), Some(start + TIMEOUT));
        assert_eq!(state.overdue(start + TIMEOUT)[0].what, "/b/tests");
    }

    #[test]
    fn a_test_that_settles_counts_once() {
        let now = Instant::now();
        let mut state = RunState::new(Clocked::Test, Limit::Ends(TIMEOUT));
        state.note(process(1, ProcessRole::Main), now);
        for seen in [began(1, "A.b"), ended(1), ended(1), began(1, "A.c"), ended(1)] {
            state.note(seen, now);
        }
        assert_eq!((state.tests(), state.status()), (2, "A.c (2 with survivors)".to_owned()));
    }

    #[test]
    fn processes_are_given_back_in_the_order_they_began() {
        let now = Instant::now();
        let mut state = RunState::new(Clocked::Test, Limit::Ends(TIMEOUT));
        for seen in [process(1, ProcessRole::Main), process(2, ProcessRole::ForkChild), gone(2), gone(1)] {
            state.note(seen, now);
        }
        let streams: Vec<String> = state.into_finished().iter().map(Finished::stream).collect();
        assert_eq!(streams, ["1-1.mgf", "2-1.mgf"]);
    }
}
