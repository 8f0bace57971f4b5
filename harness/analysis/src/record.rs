//! Everything that is known about one process after reading its frames.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::java::{JavaRecord, JavaWindow};
use crate::os_names::mapped;
use crate::sampling::{Estimates, estimate};
use memgate_wire::native_holders::NativeHolders;
use memgate_wire::setup::is_setup;
use memgate_wire::{
    AgentCost, Counters, ErrorFrame, Goodbye, GoodbyeReason, Hello, MappedKind, Module, Outcome,
    SnapshotRecord, StackNode, TRUNCATED_PC, ThreadEntry, capability,
};

/// One process, as described by its stream.
#[derive(Debug, Clone, Default)]
pub struct ProcessRecord {
    /// The first frame of the stream. `None`: nothing readable came.
    pub hello: Option<Hello>,
    /// Time of its first frame, the zero of the curves.
    pub first_ns: u64,
    /// Time of its last frame.
    pub last_ns: u64,
    /// Tests that ended, in that order.
    pub windows: Vec<Window>,
    /// Tests that began and have not ended, in the order they began.
    pub open: Vec<OpenTest>,
    /// Iterations over all selected tests that the runner has begun.
    pub iterations: u32,
    /// The last iteration has begun, and not all of its tests have run.
    pub in_iteration: bool,
    /// Counters at its start: a forked child begins with those of its parent.
    pub start: Option<Counters>,
    /// State when `main` returned or the program called `exit`, before static destructors, with everything that was
    /// alive then.
    pub main_end: Option<ProcessEnd>,
    /// State at an orderly end, with everything that was still alive.
    pub end: Option<ProcessEnd>,
    /// Values over time, at most a few thousand of them, evenly thinned.
    pub curve: Vec<CurveSample>,
    /// Largest values seen in any frame, thinned or not.
    pub peak: CurveSample,
    /// Threads in the last sample of the operating system.
    pub last_threads: Vec<ThreadEntry>,
    /// Errors that the agent reported.
    pub errors: Vec<SeenError>,
    /// Warnings for the reader of the report.
    pub warnings: Vec<String>,
    /// The last frame of a stream that ended in order.
    pub goodbye: Option<Goodbye>,
    /// Cost of measuring, from the latest frame that has it.
    pub cost: AgentCost,
    /// CPU time of the process, from the latest sample of the operating system.
    pub cpu_ns: Option<u64>,
    /// What is missing from the stream, and why. The record is valid only up to there. The reader of the stream sets it
    /// too ([`crate::Observer::damage`]).
    pub damaged: Option<String>,
    /// Holders of blocks of sites that grew, if they were searched.
    pub native_holders: Option<NativeHolders>,
    /// Data that a Java virtual machine reported. `None`: the process had none.
    pub java: Option<JavaRecord>,
    /// The modules of each generation. Generations share the modules that are equal.
    pub(crate) modules: BTreeMap<u32, Vec<Arc<Module>>>,
    /// The first module generation that came from another process, if stacks of another process were added to this
    /// record.
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
    pub fn modules(&self, generation: u32) -> &[Arc<Module>] {
        self.modules.get(&generation).map_or(&[], Vec::as_slice)
    }

    /// The modules that are loaded at the end of the record.
    #[must_use]
    pub fn last_modules(&self) -> &[Arc<Module>] {
        self.own_modules().next_back().unwrap_or_default()
    }

    /// The modules of each generation of this process.
    pub(crate) fn own_modules(&self) -> impl DoubleEndedIterator<Item = &[Arc<Module>]> {
        let own = self.modules.range(..self.borrowed_from.unwrap_or(u32::MAX));
        own.map(|(_, modules)| modules.as_slice())
    }

    /// The modules of the other process whose stacks were added.
    pub(crate) fn borrowed_modules(&self) -> impl Iterator<Item = &[Arc<Module>]> {
        let others = self.borrowed_from.into_iter().flat_map(|first| self.modules.range(first..));
        others.map(|(_, modules)| modules.as_slice())
    }

    /// The stack whose innermost node is `stack`, innermost first, and whether it ends before its root: at an unknown
    /// node, or where the agent could not unwind it.
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

    /// Does it run Java code without a native tracker and without the system's own malloc debugging? Then its native
    /// figures mean nothing.
    #[must_use]
    pub fn is_java_only(&self) -> bool {
        let is_java = |h: &Hello| h.runtime != memgate_wire::Runtime::Native;
        self.stacks.is_empty()
            && self.hello.as_ref().is_some_and(is_java)
            && !self.offers(capability::NATIVE_LIVE)
    }

    /// Does the program itself mark its tests (by the C API), without a listener of a test framework?
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

    /// Does it contain GoogleTest, and did it end without running GoogleTest?
    #[must_use]
    pub fn asked_for_no_test(&self) -> bool {
        let is_whole = self.goodbye.is_some() && self.errors.is_empty() && self.damaged.is_none();
        let no_test = self.windows.is_empty() && self.open.is_empty() && self.iterations == 0;
        is_whole && no_test && self.is_main() && self.offers(capability::GTEST)
    }

    /// Did the process get a filter of tests as an argument? It overrides memgate's, which is a variable.
    #[must_use]
    pub fn selects_tests(&self) -> bool {
        let filter = |argument: &String| {
            ["--", "-", "/"].iter().any(|dashes| {
                argument.strip_prefix(dashes).is_some_and(|flag| flag.starts_with("gtest_filter="))
            })
        };
        let arguments = self.hello.iter().flat_map(|hello| &hello.arguments);
        self.is_main() && arguments.into_iter().any(filter)
    }

    /// Did tests begin in a forked child? Such tests are not tracked.
    #[must_use]
    pub fn began_tests_in_a_child(&self) -> bool {
        let mut windows = self.open.iter().map(|open| &open.window).chain(&self.windows);
        !self.is_main() && windows.any(|window| window.start_sequence > 0)
    }

    /// Did it end in any way between two tests, before all tests of an iteration had run?
    #[must_use]
    pub fn broke_off_between_tests(&self) -> bool {
        let is_over = |goodbye: &Goodbye| goodbye.reason != GoodbyeReason::Stopped;
        self.in_iteration
            && self.offers(capability::ROUND_ENDS)
            && self.open.is_empty()
            && self.goodbye.as_ref().is_none_or(is_over)
    }

    /// Does the process wait for the harness only at some ends of tests?
    pub(crate) fn looks_now_and_then(&self) -> bool {
        self.offers(capability::LOOKS_NOW_AND_THEN)
    }

    pub(crate) fn offers(&self, capability: &str) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.offers(capability))
    }

    /// Is it the program itself, not a forked child (of a death test, for example)?
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
    /// Sequence number of the boundary that opened it. 0: missing in the stream.
    pub start_sequence: u32,
    /// Sequence number of the boundary that closed it (the last one if there were several).
    pub end_sequence: u32,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// How the user's own test ended, if the runner reports it.
    pub outcome: Option<Outcome>,
    /// Counters at its start.
    pub start: Counters,
    /// Counters at its end.
    pub end: Counters,
    /// Allocations made in it and alive at its end, if the agent screens.
    pub survivors: Vec<SnapshotRecord>,
    /// Number of survivors (reported even without a snapshot).
    pub survivor_count: u64,
    /// If set, survivors are samples, with this many bytes between two of them on average, and counters are estimates.
    pub interval: Option<u64>,
    /// All survivors have been freed since, before all tests of the process had run.
    pub freed_since: bool,
    /// It has a snapshot of survivors, or there were none.
    pub survivors_known: bool,
    /// Pairs of stack and size whose live count differs from the window before, with the new count, if the agent
    /// confirms.
    pub changes: Vec<SnapshotRecord>,
    /// Largest number of tests that were open during it. If it is more than 1, it is unknown which of the tests left
    /// something.
    pub open_tests: u32,
    /// Parts of its snapshot are missing.
    pub incomplete: bool,
    /// State of the process at its start.
    pub os_start: Option<OsState>,
    /// State of the process at its end.
    pub os_end: Option<OsState>,
    /// Set if other tests ran between the same two samples of descriptors and threads. Counts new handles of which it
    /// is unknown which test left them.
    pub shared_look: Option<Unclear>,
    /// No sample was taken at its start, so resident memory at that time is unknown.
    pub started_unseen: bool,
    /// Mappings of the program itself at its start; `None` if unknown.
    pub mapped_start: Option<Mapped>,
    /// The same at its end.
    pub mapped_end: Option<Mapped>,
    /// Mappings were recorded at first, but later not all could be stored.
    pub mappings_lost: bool,
    /// State of the Java virtual machine at its end.
    pub java: Option<Box<JavaWindow>>,
}

impl Window {
    /// The process as one execution of `test`, up to `end`; `None`: it is still open.
    #[must_use]
    pub fn of_process(record: &ProcessRecord, test: &str, end: Option<&ProcessEnd>) -> Self {
        let begun =
            Self { test: test.to_owned(), start_ns: record.first_ns, open_tests: 1, ..Self::default() };
        let Some(end) = end else { return begun };
        Self {
            end_ns: end.t_ns,
            end: end.counters,
            survivors: end.survivors.clone(),
            survivor_count: end.survivor_count,
            survivors_known: !end.incomplete,
            incomplete: end.incomplete,
            interval: record.interval(),
            ..begun
        }
    }

    /// `Suite.Test`, as GoogleTest prints it. Without a suite: the test. Without a test (the window is a whole Java
    /// test class): the suite.
    #[must_use]
    pub fn id(&self) -> String {
        test_id(&self.suite, &self.test, self.java.is_some())
    }

    /// Is this its id? Does not allocate, because it is called for every pair of tests and windows.
    #[must_use]
    pub fn is(&self, id: &str) -> bool {
        if self.suite.is_empty() {
            return self.test == id;
        }
        if self.test.is_empty() && self.java.is_some() {
            return self.suite == id;
        }
        // From the end: this is asked for each window and suspect, and windows of one suite differ in the test.
        id.strip_suffix(self.test.as_str())
            .and_then(|rest| rest.strip_suffix('.'))
            .is_some_and(|suite| suite == self.suite)
    }

    /// Is it no test, but a set-up that GoogleTest runs around tests?
    #[must_use]
    pub fn is_setup(&self) -> bool {
        is_setup(&self.suite, &self.test)
    }

    /// Bytes and blocks that it left, estimated from samples. `None`: it was not sampled.
    pub(crate) fn estimate(&self) -> Option<Estimates> {
        self.interval.filter(|_| self.survivors_known).map(|interval| estimate(&self.survivors, interval))
    }

    /// Bytes that it left: from exact survivors, from samples of them, or without a snapshot from the difference of the
    /// counters.
    #[must_use]
    pub fn left_bytes(&self) -> u64 {
        if let Some(estimates) = self.estimate() {
            estimates.bytes.rounded()
        } else if self.survivors_known {
            total_bytes(&self.survivors)
        } else {
            self.end.live_bytes().saturating_sub(self.start.live_bytes())
        }
    }

    /// Allocations that it left.
    #[must_use]
    pub fn left_allocations(&self) -> u64 {
        if let Some(estimates) = self.estimate() {
            estimates.blocks.rounded()
        } else if self.survivors_known {
            self.survivor_count
        } else {
            self.end.live_allocations().saturating_sub(self.start.live_allocations())
        }
    }
}

/// Bytes of snapshot records. The records come from a file, so the sum saturates.
pub(crate) fn total_bytes(records: &[SnapshotRecord]) -> u64 {
    records.iter().fold(0, |sum, r| sum.saturating_add(r.size.saturating_mul(r.count)))
}

/// See [`Window::id`].
pub(crate) fn test_id(suite: &str, test: &str, java: bool) -> String {
    match (suite, test) {
        ("", test) => test.to_owned(),
        // GoogleTest allows a test without a name.
        (suite, "") if java => suite.to_owned(),
        (suite, test) => format!("{suite}.{test}"),
    }
}

/// A test that began and has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenTest {
    /// `Suite.Test`.
    pub id: String,
    /// The incomplete window of the test.
    pub window: Window,
}

/// Everything still alive at the orderly end of a process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProcessEnd {
    /// Time.
    pub t_ns: u64,
    /// Counters.
    pub counters: Counters,
    /// Allocations born since tracking began and still alive.
    pub survivors: Vec<SnapshotRecord>,
    /// Number of survivors.
    pub survivor_count: u64,
    /// Parts of the snapshot are missing.
    pub incomplete: bool,
    /// State of the process at its end.
    pub os: Option<OsState>,
    /// Mappings of the program itself; `None` if unknown.
    pub mapped: Option<Mapped>,
    /// As in [`Window`].
    pub mappings_lost: bool,
}

/// Key by which descriptors, threads or mappings are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OsName {
    /// Normalised target or name; for a mapping, its kind.
    pub name: String,
    /// Stack that opened, started or mapped it; 0 if unknown.
    pub stack: u32,
}

/// Sorted names, each with its count (or its bytes).
pub type Names = Arc<Vec<(OsName, u64)>>;

/// Mappings of the program itself. Equal lists are shared between windows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mapped {
    /// Bytes.
    pub bytes: Names,
    /// Number of ranges.
    pub counts: Names,
}

impl Mapped {
    /// All bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        sum(&self.bytes)
    }

    /// System V segments that the process made and that still exist. They outlive it, and the system has few.
    #[must_use]
    pub fn segments(&self) -> u64 {
        let unremoved = mapped(Some(MappedKind::Unremoved));
        let of_segments = self.counts.iter().filter(|(name, _)| name.name == unremoved);
        of_segments.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

/// Sum of all counts.
pub(crate) fn sum(names: &[(OsName, u64)]) -> u64 {
    names.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
}

/// New descriptors and threads of which it is unknown which of several tests left them.
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

/// Sample of the operating system for a process at a boundary. Equal lists are shared between windows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OsState {
    /// Resident bytes.
    pub rss_bytes: u64,
    /// Proportional set size, if it was read.
    pub pss_bytes: Option<u64>,
    /// Open descriptors by normalised target and origin.
    pub fds: Names,
    /// Threads by normalised name and origin.
    pub threads: Names,
}

impl OsState {
    /// Are the counts of each name equal? Origins are ignored.
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

/// Counts by name, over all origins.
pub(crate) fn by_name(names: &[(OsName, u64)]) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    for (OsName { name, .. }, count) in names {
        let sum: &mut u64 = counts.entry(name.as_str()).or_default();
        *sum = sum.saturating_add(*count);
    }
    counts
}

/// Values at one moment; `None` for a value that was not read then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CurveSample {
    /// Time.
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
    /// Used bytes of the Java heap, including garbage.
    pub heap_used: Option<u64>,
}

/// An error that the agent reported, and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenError {
    /// Time.
    pub t_ns: u64,
    /// The error.
    pub error: ErrorFrame,
}

/// The unit that rounds execute, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Test classes. Windows of their single tests are no windows of a unit.
    Class,
    /// Single tests of a class.
    Test,
}

impl Unit {
    /// Is it the window of a unit of this kind?
    pub(crate) fn is(self, window: &Window) -> bool {
        window.test.is_empty() == (self == Self::Class)
    }

    /// The name of the unit to which a window of this class, or of a test in it, belongs.
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
