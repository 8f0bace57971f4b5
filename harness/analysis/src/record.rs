//! What is known of one process after its frames were read.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::java::{JavaRecord, JavaWindow};
use crate::sampling::{Estimate, estimate};
use memgate_wire::native_holders::NativeHolders;
use memgate_wire::setup::is_setup;
use memgate_wire::{
    AgentCost, Counters, ErrorFrame, Goodbye, GoodbyeReason, Hello, Module, Outcome, SnapshotRecord,
    StackNode, TRUNCATED_PC, ThreadEntry, capability,
};

/// One process, as its stream tells it.
#[derive(Debug, Clone, Default)]
pub struct ProcessRecord {
    /// Who wrote the stream; `None`: nothing readable came.
    pub hello: Option<Hello>,
    /// Time of its first frame, the zero of the curves.
    pub first_ns: u64,
    /// Time of its last frame.
    pub last_ns: u64,
    /// Tests that ended, in that order.
    pub windows: Vec<Window>,
    /// Tests that began and have not ended, in the order they began.
    pub open: Vec<OpenTest>,
    /// Iterations of its whole selection the runner has begun.
    pub iterations: u32,
    /// The last of them has begun, and not all of its tests have run.
    pub in_iteration: bool,
    /// What it had as it began: a forked child has what is its parent's.
    pub start: Option<Counters>,
    /// Where `main` returned or the program called `exit`, before static destructors, with
    /// everything that was alive then.
    pub main_end: Option<ProcessEnd>,
    /// The orderly end, with everything that was still alive.
    pub end: Option<ProcessEnd>,
    /// Values over time, at most a few thousand of them, evenly thinned.
    pub curve: Vec<CurveSample>,
    /// Largest values seen in any frame, thinned or not.
    pub peak: CurveSample,
    /// The last thing the operating system said of its threads.
    pub last_threads: Vec<ThreadEntry>,
    /// What the agent could not do.
    pub errors: Vec<SeenError>,
    /// Lines for the reader of the report.
    pub warnings: Vec<String>,
    /// The last frame of an orderly stream.
    pub goodbye: Option<Goodbye>,
    /// Cost of measuring, as last told.
    pub cost: AgentCost,
    /// CPU time of the process, as last told by the operating system.
    pub cpu_ns: Option<u64>,
    /// What of the stream is missing, and why: the record is then good only up to there. The reader
    /// of the stream sets it too ([`crate::Observer::damage`]).
    pub damaged: Option<String>,
    /// Who held blocks of sites that grew, where somebody looked.
    pub native_holders: Option<NativeHolders>,
    /// What a Java virtual machine told of itself; `None`: none did.
    pub java: Option<JavaRecord>,
    pub(crate) modules: BTreeMap<u32, Vec<Module>>,
    /// The first generation that was another process's, where one took the stacks of this record.
    pub(crate) borrowed_from: Option<u32>,
    pub(crate) stacks: HashMap<u32, Node>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) node: StackNode,
    pub(crate) generation: u32,
}

/// One address of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackStep {
    /// Return address: look up `pc - 1`.
    pub pc: u64,
    /// Module list it resolves against, see [`ProcessRecord::modules`].
    pub generation: u32,
}

impl ProcessRecord {
    /// The modules of a generation.
    #[must_use]
    pub fn modules(&self, generation: u32) -> &[Module] {
        self.modules.get(&generation).map_or(&[], Vec::as_slice)
    }

    /// The modules that are loaded at the end of the record.
    #[must_use]
    pub fn last_modules(&self) -> &[Module] {
        let own = self.modules.range(..self.borrowed_from.unwrap_or(u32::MAX));
        own.last().map_or(&[], |(_, modules)| modules.as_slice())
    }

    /// The stack whose innermost node is `stack`, innermost first, and whether it stops short of
    /// its root. An unknown node, or a parent that does not come before its child, ends it there.
    #[must_use]
    pub fn stack(&self, stack: u32) -> (Vec<StackStep>, bool) {
        let mut steps = Vec::new();
        let mut id = stack;
        while id != 0 {
            let Some(Node { node, generation }) = self.stacks.get(&id) else { return (steps, true) };
            if node.pc == TRUNCATED_PC {
                return (steps, true);
            }
            steps.push(StackStep { pc: node.pc, generation: *generation });
            id = node.parent;
        }
        (steps, false)
    }

    /// Executions of one test, in the order they ended.
    pub fn windows_of<'a>(&'a self, test: &'a str) -> impl Iterator<Item = &'a Window> {
        self.windows.iter().filter(move |w| w.is(test))
    }

    /// The longest time between two tests, before the first one, or after the last one.
    #[must_use]
    pub fn longest_beside_tests(&self) -> Duration {
        let begins = self.windows.iter().map(|window| window.start_ns).chain([self.last_ns]);
        let ends = [self.first_ns].into_iter().chain(self.windows.iter().map(|window| window.end_ns));
        let between = begins.zip(ends).map(|(begin, end)| begin.saturating_sub(end));
        Duration::from_nanos(between.max().unwrap_or_default())
    }

    /// Does it run Java code that no native tracker looks behind, nor the system's own malloc
    /// debugging? Its native figures are then nobody's.
    #[must_use]
    pub fn is_java_only(&self) -> bool {
        let is_java = |h: &Hello| h.runtime != memgate_wire::Runtime::Native;
        self.stacks.is_empty()
            && self.hello.as_ref().is_some_and(is_java)
            && !self.offers(capability::NATIVE_LIVE)
    }

    /// Does the program itself say where its tests begin and end (the C API), and not a framework's
    /// listener?
    #[must_use]
    pub fn tells_its_own_tests(&self) -> bool {
        let listened = capability::LISTENERS.into_iter().any(|listener| self.offers(listener));
        self.offers(capability::C_API) && !listened
    }

    /// Mean bytes between two samples of native allocations; `None`: all are recorded.
    #[must_use]
    pub fn interval(&self) -> Option<u64> {
        self.hello.as_ref().and_then(|hello| memgate_wire::sampling::interval(&hello.capabilities))
    }

    /// Does it contain GoogleTest, and has it ended without asking it for tests?
    #[must_use]
    pub fn asked_for_no_test(&self) -> bool {
        let is_whole = self.goodbye.is_some() && self.errors.is_empty() && self.damaged.is_none();
        let no_test = self.windows.is_empty() && self.open.is_empty() && self.iterations == 0;
        is_whole && no_test && self.is_main() && self.offers(capability::GTEST)
    }

    /// Did tests begin in it though it is a child that was forked? Nobody follows those.
    #[must_use]
    pub fn began_tests_in_a_child(&self) -> bool {
        let mut windows = self.open.iter().map(|open| &open.window).chain(&self.windows);
        !self.is_main() && windows.any(|window| window.start_sequence > 0)
    }

    /// Did it end, in whatever way, before all tests of an iteration had run, and not in the middle of one?
    #[must_use]
    pub fn broke_off_between_tests(&self) -> bool {
        let is_over = |goodbye: &Goodbye| goodbye.reason != GoodbyeReason::Stopped;
        self.in_iteration
            && self.offers(capability::ROUND_ENDS)
            && self.open.is_empty()
            && self.goodbye.as_ref().is_none_or(is_over)
    }

    /// Does not every end of a test wait for the harness?
    pub(crate) fn looks_now_and_then(&self) -> bool {
        self.offers(capability::LOOKS_NOW_AND_THEN)
    }

    pub(crate) fn offers(&self, capability: &str) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.offers(capability))
    }

    /// Is it the program itself, not a child it forked (of a death test, say)?
    #[must_use]
    pub fn is_main(&self) -> bool {
        self.hello.as_ref().is_none_or(|h| h.role == memgate_wire::ProcessRole::Main)
    }
}

/// One execution of a test.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Window {
    /// Suite as the runner names it.
    pub suite: String,
    /// Test within it.
    pub test: String,
    /// Iteration of the runner, from 0.
    pub iteration: u32,
    /// Sequence number of the boundary that opened it; 0: it was not seen.
    pub start_sequence: u32,
    /// Sequence number of the boundary that closed it (the last one, where it settled).
    pub end_sequence: u32,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// How the user's own test ended, where the runner tells.
    pub outcome: Option<Outcome>,
    /// Counters as it began.
    pub start: Counters,
    /// Counters as it ended.
    pub end: Counters,
    /// Allocations born in it and alive at its end, where the agent screens.
    pub survivors: Vec<SnapshotRecord>,
    /// How many they are (told even where no snapshot was written).
    pub survivor_count: u64,
    /// Survivors are samples, with this many bytes between two of them on average, and counters estimates.
    pub interval: Option<u64>,
    /// All of them have been freed since, before all tests of the process had run.
    pub freed_since: bool,
    /// A snapshot of survivors belongs to it, or there were none.
    pub survivors_known: bool,
    /// Pairs of stack and size whose live count differs from the window before, with the count now,
    /// where the agent confirms.
    pub changes: Vec<SnapshotRecord>,
    /// Largest number of tests that were open during it: more than 1 means that what it left cannot
    /// be told from what another test left.
    pub open_tests: u32,
    /// Parts of its snapshot are missing.
    pub incomplete: bool,
    /// The process as it began.
    pub os_start: Option<OsState>,
    /// The process as it ended.
    pub os_end: Option<OsState>,
    /// Other tests ran between the same two looks at descriptors and threads; and what came meanwhile by nobody knows
    /// which of them.
    pub shared_look: Option<Unclear>,
    /// Nobody looked as it began: what was resident then is not known.
    pub started_unseen: bool,
    /// What the program itself had mapped as it began; `None`: not known.
    pub mapped_start: Option<Mapped>,
    /// The same as it ended.
    pub mapped_end: Option<Mapped>,
    /// Mappings were noted, and then there was no room for all of them.
    pub mappings_lost: bool,
    /// The Java virtual machine as it ended.
    pub java: Option<Box<JavaWindow>>,
}

impl Window {
    /// `Suite.Test`, as GoogleTest prints it; without a suite just the test, and without a test
    /// (the window is a whole Java test class) just the suite.
    #[must_use]
    pub fn id(&self) -> String {
        test_id(&self.suite, &self.test, self.java.is_some())
    }

    /// Is this its id? Asked for every pair of tests and windows, so it makes no text.
    #[must_use]
    pub fn is(&self, id: &str) -> bool {
        if self.suite.is_empty() {
            return self.test == id;
        }
        if self.test.is_empty() && self.java.is_some() {
            return self.suite == id;
        }
        id.strip_prefix(self.suite.as_str())
            .and_then(|rest| rest.strip_prefix('.'))
            .is_some_and(|test| test == self.test)
    }

    /// Is it no test, but what GoogleTest runs around tests?
    #[must_use]
    pub fn is_setup(&self) -> bool {
        is_setup(&self.suite, &self.test)
    }

    /// What samples tell of the bytes and blocks that it left; `None`: nothing was sampled.
    pub(crate) fn estimate(&self) -> Option<(Estimate, Estimate)> {
        self.interval.filter(|_| self.survivors_known).map(|interval| estimate(&self.survivors, interval))
    }

    /// Bytes it left behind: its exact survivors, an estimate by samples of them, or the difference of
    /// the counters where there is no snapshot.
    #[must_use]
    pub fn left_bytes(&self) -> u64 {
        if let Some((bytes, _)) = self.estimate() {
            bytes.rounded()
        } else if self.survivors_known {
            total_bytes(&self.survivors)
        } else {
            self.end.live_bytes().saturating_sub(self.start.live_bytes())
        }
    }

    /// Allocations it left behind.
    #[must_use]
    pub fn left_allocations(&self) -> u64 {
        if let Some((_, blocks)) = self.estimate() {
            blocks.rounded()
        } else if self.survivors_known {
            self.survivor_count
        } else {
            self.end.live_allocations().saturating_sub(self.start.live_allocations())
        }
    }
}

/// Bytes of snapshot records. Records come from a file: the sum saturates.
pub(crate) fn total_bytes(records: &[SnapshotRecord]) -> u64 {
    records.iter().fold(0, |sum, r| sum.saturating_add(r.size.saturating_mul(r.count)))
}

/// See [`Window::id`].
pub(crate) fn test_id(suite: &str, test: &str, java: bool) -> String {
    match (suite, test) {
        ("", test) => test.to_owned(),
        // GoogleTest lets a test have no name.
        (suite, "") if java => suite.to_owned(),
        (suite, test) => format!("{suite}.{test}"),
    }
}

/// A test that began and has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenTest {
    /// `Suite.Test`.
    pub id: String,
    /// What is known of its window.
    pub window: Window,
}

/// Everything still alive at the orderly end of a process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProcessEnd {
    /// When.
    pub t_ns: u64,
    /// Counters.
    pub counters: Counters,
    /// Allocations born since tracking began and still alive.
    pub survivors: Vec<SnapshotRecord>,
    /// How many they are.
    pub survivor_count: u64,
    /// Parts of the snapshot are missing.
    pub incomplete: bool,
    /// The process as it ended.
    pub os: Option<OsState>,
    /// What the program itself had mapped; `None`: not known.
    pub mapped: Option<Mapped>,
    /// As in a window.
    pub mappings_lost: bool,
}

/// What descriptors, threads or mappings have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OsName {
    /// Normalised target or name; of a mapping, what was mapped.
    pub name: String,
    /// Stack that opened, started or mapped them; 0: not known.
    pub stack: u32,
}

/// Names, each with how many (or bytes) of it there are, sorted.
pub type Names = Arc<Vec<(OsName, u64)>>;

/// What the program itself has mapped. Equal lists are shared between windows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mapped {
    /// Bytes.
    pub bytes: Names,
    /// Ranges.
    pub counts: Names,
}

impl Mapped {
    /// All bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        sum(&self.bytes)
    }
}

/// All of them.
pub(crate) fn sum(names: &[(OsName, u64)]) -> u64 {
    names.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
}

/// How many descriptors and threads came by nobody knows which of several tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unclear {
    /// Descriptors.
    pub fds: u64,
    /// Threads.
    pub threads: u64,
}

impl Unclear {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { fds: self.fds.saturating_add(other.fds), threads: self.threads.saturating_add(other.threads) }
    }

    pub(crate) fn less(self, other: Self) -> Self {
        Self { fds: self.fds.saturating_sub(other.fds), threads: self.threads.saturating_sub(other.threads) }
    }
}

/// What the operating system said of a process at a boundary. Equal lists are shared between
/// windows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OsState {
    /// Resident bytes.
    pub rss_bytes: u64,
    /// Proportional set size, where it was read.
    pub pss_bytes: Option<u64>,
    /// Open descriptors by normalised target and origin.
    pub fds: Names,
    /// Threads by normalised name and origin.
    pub threads: Names,
}

impl OsState {
    /// As many of each name? Where they were opened is not looked at.
    #[must_use]
    pub fn holds_the_same(&self, other: &Self) -> bool {
        let same = |a: &Names, b: &Names| a == b || by_name(a) == by_name(b);
        same(&self.fds, &other.fds) && same(&self.threads, &other.threads)
    }

    /// Open descriptors.
    #[must_use]
    pub fn fd_count(&self) -> u64 {
        sum(&self.fds)
    }

    /// Threads.
    #[must_use]
    pub fn thread_count(&self) -> u64 {
        sum(&self.threads)
    }
}

/// How many there are of each name, wherever they come from.
pub(crate) fn by_name(names: &[(OsName, u64)]) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    for (OsName { name, .. }, count) in names {
        let sum: &mut u64 = counts.entry(name.as_str()).or_default();
        *sum = sum.saturating_add(*count);
    }
    counts
}

/// Values at one moment; a value that was not read then is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CurveSample {
    /// When.
    pub t_ns: u64,
    /// Live native bytes.
    pub live_bytes: Option<u64>,
    /// Live native allocations.
    pub live_allocations: Option<u64>,
    /// Resident bytes.
    pub rss_bytes: Option<u64>,
    /// Proportional set size.
    pub pss_bytes: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
    /// Open descriptors.
    pub fds: Option<u64>,
    /// Bytes that the program itself has mapped.
    pub mapped_bytes: Option<u64>,
    /// Used bytes of the Java heap, garbage included.
    pub heap_used: Option<u64>,
}

/// What the agent could not do, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenError {
    /// When.
    pub t_ns: u64,
    /// What.
    pub error: ErrorFrame,
}

/// What the rounds run, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Test classes: what their tests say is told apart.
    Class,
    /// Single tests of a class.
    Test,
}

impl Unit {
    /// Is it the window of a unit?
    pub(crate) fn is(self, window: &Window) -> bool {
        window.test.is_empty() == (self == Self::Class)
    }

    /// The name of the unit that a window of this class, or of a test in it, belongs to.
    pub(crate) fn id(self, suite: &str, test: &str) -> String {
        match self {
            Self::Class => suite.to_owned(),
            Self::Test => test_id(suite, test, true),
        }
    }

    pub(crate) fn of(self, window: &Window) -> String {
        self.id(&window.suite, &window.test)
    }
}
