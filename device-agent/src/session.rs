//! The life of the agent in one process: load → start → boundaries → end; through forks.
//!
//! State behind one lock that no hook takes. A thread at a boundary writes its frames under the lock, gives it back,
//! and waits for the harness outside it. `fork` holds the lock, so that the child finds everything whole.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use memgate_ffi::lock::Lock;
use memgate_ffi::process::{self, ThreadKey};
use memgate_ffi::{heap, modules};
use memgate_tracker::thread::Inside;
use memgate_tracker::{StopReason, capture::StackLayout};
use memgate_wire::spool::order;
use memgate_wire::{
    AgentCost, Boundary, BoundaryKind, Counters, ErrorCode, ErrorFrame, Event, Frame, Goodbye, GoodbyeReason,
    Hello, Log, LogLevel, Module, Modules, NativeSnapshot, Outcome, ProcessRole, Runtime, SnapshotRecord,
    SnapshotScope, StackNode, Stacks, WIRE_VERSION, encode,
};

use crate::carrier::{Carrier, Meeting, Orders, Socket, Spool};
use crate::native::hooks::{self, TRACKER};
use crate::native::snapshot::{self, Counts};
use crate::options::{CarrierKind, Detail, Options, Target, fits};
use crate::{HEAP, entry, native::gtest, native::next};

const RECORDS_PER_PART: usize = 4096;
const NODES_PER_FRAME: usize = 8192;
const SETTLE_STEPS: u32 = 50;

static SESSION: Lock<Option<Session>> = Lock::new(None);
/// Options of a process that is a target, between load and start.
static PENDING: Lock<Option<Options>> = Lock::new(None);
/// The thread key, plus one; 0: none. Read by hooks, so no lock.
static THREAD_KEY: AtomicU32 = AtomicU32::new(0);
/// Test boundaries reached so far: zero means that the process is the test.
static TESTS: AtomicU64 = AtomicU64::new(0);

struct Session {
    options: Options,
    role: ProcessRole,
    pid: u32,
    carrier: Carrier,
    buffer: Vec<u8>,
    sequence: u32,
    iteration: u32,
    windows: Vec<Window>,
    /// Loads and unloads the last module list was made at.
    modules_at: Option<(u64, u64)>,
    sent_nodes: Vec<u64>,
    last_counts: Counts,
    boundary_ns: u64,
    told_stop: bool,
    harness_silent: bool,
}

/// What the hello tells beside the process itself.
#[derive(Default)]
struct Offers {
    gtest: bool,
    blind: Option<String>,
}

/// A test that has begun and not ended.
struct Window {
    suite: String,
    test: String,
    epoch: u32,
    outcome: Option<Outcome>,
}

/// The constructor: binds the next allocator and decides whether this process is a target.
pub(crate) fn load() {
    next::bind();
    let Some(text) = process::variable(c"MEMGATE_AGENT_OPTIONS") else { return };
    let _inside = Inside::enter();
    let options = Options::parse(&text);
    if options.directory.is_empty() && options.carrier == CarrierKind::Spool {
        return;
    }
    if !is_target(&options) {
        return;
    }
    // Registered before the guest registers anything, so that it runs after everything else at exit.
    if process::at_exit(at_exit) && process::at_fork(before_fork, after_fork_in_parent, after_fork_in_child) {
        *PENDING.lock() = Some(options);
    }
}

fn is_target(options: &Options) -> bool {
    let arguments = arguments();
    let is_child = |a: &String| a == "--gtest_list_tests" || a.starts_with("--gtest_internal_run_death_test");
    if arguments.iter().any(is_child) {
        return false;
    }
    let executable = executable();
    options.targets.iter().any(|target| match target {
        Target::All => true,
        Target::Executable(path) => *path == executable,
        Target::Glob(glob) => fits(glob.as_bytes(), executable.as_bytes()),
        Target::GoogleTest => gtest::is_present(&executable),
    })
}

/// Runs in the wrapped `main`, after the guest's constructors: opens the carrier, says hello, begins recording.
pub(crate) fn start() {
    let Some(options) = PENDING.lock().take() else { return };
    let _inside = Inside::enter();
    THREAD_KEY.store(ThreadKey::new(entry::thread_ends).map_or(0, |key| key.0 + 1), Ordering::Relaxed);
    let layout = StackLayout {
        main_thread: memgate_tracker::sys::thread_pointer(),
        main_top: entry::stack_end(),
        thread_bytes: process::default_thread_stack_bytes(),
    };
    TRACKER.prepare(layout, entry::find_object(), next::is_glibc(), thread_starts);
    let blind = self_test();
    let gtest = gtest::install(&executable());
    let offers = Offers { gtest: gtest.is_ok(), blind };
    let Some(session) = Session::open(options, ProcessRole::Main, offers) else { return };
    *SESSION.lock() = Some(session);
    if let Err(why) = gtest {
        log(LogLevel::Debug, &format!("no GoogleTest boundaries: {why}"));
    }
    hooks::start();
    TRACKER.begin_epoch();
    reach(BoundaryKind::ProcessStart, "", "", None);
}

/// Allocates once with recording on, as the guest would.
fn self_test() -> Option<String> {
    hooks::start();
    let blind = Inside::suspended(entry::blind);
    hooks::stop();
    blind
}

fn thread_key() -> Option<ThreadKey> {
    THREAD_KEY.load(Ordering::Relaxed).checked_sub(1).map(ThreadKey)
}

fn thread_starts() {
    if let Some(key) = thread_key() {
        key.set(1);
    }
}

/// Destructor of the thread key: the first round only asks for a second one, because other destructors may still allocate.
pub(crate) fn thread_ends(round: usize) {
    match thread_key() {
        Some(key) if round < 2 => key.set(round + 1),
        _ => TRACKER.thread_ends(),
    }
}

/// A test begins.
pub(crate) fn test_begins(suite: &str, test: &str) {
    let _inside = Inside::enter();
    TESTS.fetch_add(1, Ordering::Relaxed);
    reach(BoundaryKind::TestStart, suite, test, None);
}

/// A test ended; `outcome` overrides what was noted while it ran.
pub(crate) fn test_ends(suite: &str, test: &str, outcome: Option<Outcome>) {
    let _inside = Inside::enter();
    reach(BoundaryKind::TestEnd, suite, test, outcome);
}

/// Something happened to the test that is open: the worst of what was noted counts.
pub(crate) fn note_outcome(outcome: Outcome) {
    let _inside = Inside::enter();
    let mut session = SESSION.lock();
    let window = session.as_mut().and_then(|s| s.windows.last_mut());
    if let Some(window) = window.filter(|w| w.outcome != Some(Outcome::Failed)) {
        window.outcome = Some(outcome);
    }
}

/// The runner begins an iteration.
pub(crate) fn iteration_begins(iteration: u32) {
    let _inside = Inside::enter();
    if let Some(session) = SESSION.lock().as_mut() {
        session.iteration = iteration;
    }
    reach(BoundaryKind::IterationStart, "", "", None);
}

/// The program set a mark.
pub(crate) fn mark(name: &str) {
    let _inside = Inside::enter();
    reach(BoundaryKind::Mark, "", name, None);
}

/// Waits, bounded, until other threads have stopped freeing and allocating.
pub(crate) fn settle() {
    let _inside = Inside::enter();
    let (mut last, mut quiet) = (TRACKER.totals(), 0);
    for _ in 0..SETTLE_STEPS {
        // No event tells that a background thread is done: only its counters, standing still, do.
        process::pause(Duration::from_millis(1));
        let now = TRACKER.totals();
        quiet = if now == last { quiet + 1 } else { 0 };
        last = now;
        if quiet == 5 {
            return;
        }
    }
}

/// Is this process recorded?
pub(crate) fn is_active() -> bool {
    let _inside = Inside::enter();
    SESSION.lock().is_some()
}

/// The process ends in an orderly way.
pub(crate) fn ends(reason: GoodbyeReason, status: Option<i32>) {
    let _inside = Inside::enter();
    let main = match SESSION.lock().as_ref() {
        // A child that came about without our fork handlers has nothing to say in its parent's stream.
        Some(session) if session.pid == process::pid() => session.role == ProcessRole::Main,
        _ => return,
    };
    TRACKER.publish();
    if main && TESTS.load(Ordering::Relaxed) == 0 {
        reach(BoundaryKind::ProcessEnd, "", "", None);
    } else if let Some(session) = SESSION.lock().as_mut() {
        session.append_boundary(BoundaryKind::ProcessEnd, ("", ""), None, (0, 0));
        session.flush();
    }
    hooks::stop();
    let Some(mut session) = SESSION.lock().take() else { return };
    let goodbye = Goodbye { reason, status, counters: counters(), cost: session.cost() };
    session.append(&Frame::Goodbye(goodbye));
    session.flush();
    // The words stay mapped: a thread that is still in a hook may be publishing.
    session.carrier.close();
    core::mem::forget(session);
}

/// A module was unloaded.
pub(crate) fn module_unloaded(before: (u64, u64)) {
    let _inside = Inside::enter();
    if modules::counts().1 != before.1 {
        TRACKER.modules_changed();
    }
}

/// A module is about to be unloaded: stacks through it must stay nameable.
pub(crate) fn module_unloads() -> (u64, u64) {
    let _inside = Inside::enter();
    if let Some(session) = SESSION.lock().as_mut() {
        session.append_modules();
        session.flush();
    }
    modules::counts()
}

/// Writes a line for a person.
fn log(level: LogLevel, text: &str) {
    if let Some(session) = SESSION.lock().as_mut() {
        session.append(&Frame::Log(Log { level, text: text.to_owned() }));
    }
}

/// Writes the frames of a boundary, waits for the harness, does what it says.
fn reach(kind: BoundaryKind, suite: &str, test: &str, outcome: Option<Outcome>) {
    let mut settled = false;
    loop {
        let waiting = {
            let mut guard = SESSION.lock();
            let Some(session) = guard.as_mut().filter(|s| s.pid == process::pid()) else { return };
            let started = process::thread_cpu_ns();
            session.boundary(kind, suite, test, outcome);
            session.boundary_ns += process::thread_cpu_ns().saturating_sub(started);
            session.meeting(kind)
        };
        let waited = waiting.is_some();
        let orders = waiting.and_then(|w| w.wait());
        // A confirming run repeats its test until it is told to stop: without a harness that would be for ever.
        let abandoned = waited && orders.is_none() && kind == BoundaryKind::TestEnd && is_confirming();
        if abandoned || orders.is_some_and(|Orders(bits)| bits & order::STOP != 0) {
            process::exit(0);
        }
        if !settled
            && kind == BoundaryKind::TestEnd
            && orders.is_some_and(|Orders(bits)| bits & order::SETTLE != 0)
        {
            settled = true;
            settle();
            continue;
        }
        break;
    }
    if let Some(session) = SESSION.lock().as_mut().filter(|_| kind == BoundaryKind::TestEnd) {
        session.windows.retain(|w| w.suite != suite || w.test != test);
        TRACKER.begin_epoch();
    }
}

fn is_confirming() -> bool {
    SESSION.lock().as_ref().is_some_and(|s| s.options.detail == Detail::Growth && s.options.harness)
}

struct Waiting {
    meeting: Meeting,
    sequence: u32,
    limit: Duration,
    expected: bool,
}

impl Waiting {
    fn wait(&self) -> Option<Orders> {
        let orders = self.meeting.wait(self.sequence, self.limit, self.expected);
        if let Some(session) = SESSION.lock().as_mut() {
            // One full wait without an answer is enough: from then on only a harness that answers is waited for.
            session.harness_silent = orders.is_none() && !self.limit.is_zero();
        }
        orders
    }
}

impl Session {
    fn open(options: Options, role: ProcessRole, offers: Offers) -> Option<Self> {
        let carrier = match &options.carrier {
            CarrierKind::Spool => {
                let spool =
                    Spool::create(&options.directory, options.harness, role == ProcessRole::ForkChild)
                        .ok()?;
                entry::publish_to(spool.live_counters());
                Carrier::Spool(spool)
            }
            kind => Carrier::Socket(Socket::serve(kind, &options.token).ok()?),
        };
        let mut session = Self {
            role,
            pid: process::pid(),
            carrier,
            buffer: Vec::new(),
            sequence: 0,
            iteration: 0,
            windows: Vec::new(),
            modules_at: None,
            sent_nodes: Vec::new(),
            last_counts: Counts::default(),
            boundary_ns: 0,
            told_stop: false,
            harness_silent: false,
            options,
        };
        session.append_hello(offers);
        session.append_modules();
        session.flush();
        Some(session)
    }

    fn append_hello(&mut self, offers: Offers) {
        let mut capabilities = vec!["native.live".to_owned(), "boundary.c_api".to_owned()];
        if entry::find_object().is_some() {
            capabilities.push("native.stacks".to_owned());
        }
        if offers.gtest {
            capabilities.push("boundary.gtest".to_owned());
        }
        let hello = Hello {
            wire_version: WIRE_VERSION,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: self.pid,
            parent_pid: process::parent_pid(),
            abi: "x86_64-linux-gnu".to_owned(),
            pointer_bytes: 8,
            runtime: Runtime::Native,
            role: self.role,
            executable: executable(),
            arguments: arguments(),
            working_directory: std::env::current_dir()
                .map(|d| d.to_string_lossy().into_owned())
                .unwrap_or_default(),
            realtime_offset_ns: process::realtime_offset_ns(),
            capabilities,
            blind: offers.blind,
            label: self.options.label.clone(),
        };
        self.append(&Frame::Hello(hello));
        for complaint in core::mem::take(&mut self.options.complaints) {
            self.append(&Frame::Error(ErrorFrame { code: ErrorCode::BadOption, text: complaint }));
        }
    }

    fn boundary(&mut self, kind: BoundaryKind, suite: &str, test: &str, outcome: Option<Outcome>) {
        if kind == BoundaryKind::TestStart {
            let epoch = TRACKER.begin_epoch();
            let window = Window { suite: suite.to_owned(), test: test.to_owned(), epoch, outcome: None };
            self.windows.push(window);
        }
        TRACKER.publish();
        let sequence = self.sequence + 1;
        let (mut survivors, mut parts, mut outcome) = (0, 0, outcome);
        match kind {
            BoundaryKind::TestEnd => {
                let window = self.windows.iter().rposition(|w| w.suite == suite && w.test == test);
                if let Some(window) = window.and_then(|i| self.windows.get(i)) {
                    outcome = outcome.or(window.outcome).or(Some(Outcome::Passed));
                    let epoch = window.epoch;
                    (survivors, parts) = self.append_test_snapshot(sequence, epoch);
                }
            }
            BoundaryKind::ProcessEnd => {
                let counts = snapshot::count(0);
                survivors = counts.values().sum();
                parts = self.append_records(sequence, SnapshotScope::Survivors, &snapshot::records(&counts));
            }
            _ => {}
        }
        self.append_boundary(kind, (suite, test), outcome, (survivors, parts));
        self.tell_stop();
        self.flush();
    }

    /// The survivors of a window, or in detail `growth` what changed: (survivors, parts written).
    fn append_test_snapshot(&mut self, sequence: u32, epoch: u32) -> (u64, u32) {
        let alive = TRACKER.alive_since(epoch);
        match self.options.detail {
            Detail::Survivors if alive == Some(0) => (0, 0),
            Detail::Survivors => {
                let counts = snapshot::count(epoch);
                let survivors = counts.values().sum();
                (
                    survivors,
                    self.append_records(sequence, SnapshotScope::Survivors, &snapshot::records(&counts)),
                )
            }
            Detail::Growth => {
                let now = snapshot::count(0);
                let changes = snapshot::changes(&self.last_counts, &now);
                self.last_counts = now;
                let survivors = alive.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
                (survivors, self.append_records(sequence, SnapshotScope::Changes, &changes))
            }
        }
    }

    fn append_records(&mut self, boundary: u32, scope: SnapshotScope, records: &[SnapshotRecord]) -> u32 {
        if !records.is_empty() {
            self.append_modules();
            self.append_stacks(records);
        }
        let mut part = 0;
        for chunk in records.chunks(RECORDS_PER_PART) {
            self.append(&Frame::NativeSnapshot(NativeSnapshot {
                boundary,
                scope,
                part,
                records: chunk.to_vec(),
            }));
            part += 1;
        }
        part
    }

    fn append_stacks(&mut self, records: &[SnapshotRecord]) {
        let mut by_generation: Vec<(u32, Vec<StackNode>)> = Vec::new();
        let mut path = Vec::new();
        for record in records {
            let mut id = record.stack;
            while id != 0 && self.mark_sent(id) {
                let Some(node) = TRACKER.stack_node(id) else { break };
                path.push((node.generation, StackNode { id, parent: node.parent, pc: node.pc }));
                id = node.parent;
            }
            while let Some((generation, node)) = path.pop() {
                match by_generation.iter_mut().find(|(g, _)| *g == generation) {
                    Some((_, nodes)) => nodes.push(node),
                    None => by_generation.push((generation, vec![node])),
                }
            }
        }
        for (generation, nodes) in by_generation {
            for chunk in nodes.chunks(NODES_PER_FRAME) {
                self.append(&Frame::Stacks(Stacks { generation, nodes: chunk.to_vec() }));
            }
        }
    }

    /// True the first time a node is asked for.
    fn mark_sent(&mut self, id: u32) -> bool {
        let (word, bit) = (id as usize / 64, 1_u64 << (id % 64));
        if word >= self.sent_nodes.len() {
            self.sent_nodes.resize(word + 1, 0);
        }
        self.sent_nodes.get_mut(word).is_some_and(|w| {
            let first = *w & bit == 0;
            *w |= bit;
            first
        })
    }

    /// The module list, if it has changed since it was last written.
    fn append_modules(&mut self) {
        if self.modules_at == Some(modules::counts()) {
            return;
        }
        let (loaded, adds, subs) = modules::loaded();
        self.modules_at = Some((adds, subs));
        let own = executable();
        let modules = loaded
            .into_iter()
            .map(|m| Module {
                start: m.start,
                end: m.end,
                bias: m.bias,
                path: if m.path.is_empty() { own.clone() } else { m.path },
                build_id: m.build_id,
            })
            .collect();
        self.append(&Frame::Modules(Modules { generation: TRACKER.generation(), modules }));
    }

    fn append_boundary(
        &mut self,
        kind: BoundaryKind,
        (suite, test): (&str, &str),
        outcome: Option<Outcome>,
        (survivors, parts): (u64, u32),
    ) {
        self.sequence += 1;
        let boundary = Boundary {
            sequence: self.sequence,
            kind,
            suite: suite.to_owned(),
            test: test.to_owned(),
            iteration: self.iteration,
            outcome,
            thread_id: process::thread_id(),
            open_tests: u32::try_from(self.windows.len()).unwrap_or(u32::MAX),
            counters: counters(),
            survivors,
            snapshot_parts: parts,
            cost: self.cost(),
        };
        self.append(&Frame::Boundary(boundary));
    }

    /// Recording stopped: say so once, in the stream.
    fn tell_stop(&mut self) {
        let Some(reason) = TRACKER.stopped().filter(|_| !self.told_stop) else { return };
        self.told_stop = true;
        let (code, text) = match reason {
            StopReason::Memory => (ErrorCode::OutOfMemory, "no memory for a thread's state"),
            StopReason::Table => (ErrorCode::OutOfTable, "no memory for the table of live allocations"),
            StopReason::Stacks => (ErrorCode::OutOfTable, "no memory for call stacks"),
        };
        self.append(&Frame::Error(ErrorFrame { code, text: format!("recording stopped: {text}") }));
    }

    fn cost(&self) -> AgentCost {
        AgentCost {
            boundary_ns: self.boundary_ns,
            mapped_bytes: memgate_tracker::sys::mapped_bytes()
                + heap::mapped_bytes()
                + self.carrier.mapped_bytes(),
            stack_nodes: TRACKER.stack_nodes().into(),
            truncated_stacks: TRACKER.totals().truncated_stacks,
        }
    }

    fn append(&mut self, frame: &Frame) {
        encode(frame, process::monotonic_ns(), &mut self.buffer);
    }

    fn flush(&mut self) {
        self.carrier.write(&self.buffer);
        self.buffer.clear();
    }

    fn meeting(&self, kind: BoundaryKind) -> Option<Waiting> {
        if self.role == ProcessRole::ForkChild
            || self.options.wait.is_zero()
            || kind == BoundaryKind::IterationStart
        {
            return None;
        }
        let first = kind == BoundaryKind::ProcessStart && self.options.harness;
        let limit = if self.harness_silent { Duration::ZERO } else { self.options.wait };
        Some(Waiting { meeting: self.carrier.meeting(), sequence: self.sequence, limit, expected: first })
    }
}

pub(crate) fn counters() -> Counters {
    let t = TRACKER.totals();
    Counters {
        allocations: t.allocations,
        frees: t.frees,
        allocated_bytes: t.allocated_bytes,
        freed_bytes: t.freed_bytes,
        unknown_frees: t.unknown_frees,
        dropped_frames: 0,
    }
}

fn executable() -> String {
    std::fs::read_link("/proc/self/exe").map(|p| p.to_string_lossy().into_owned()).unwrap_or_default()
}

fn arguments() -> Vec<String> {
    let text = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let text = text.strip_suffix(b"\0").unwrap_or(&text);
    text.split(|&b| b == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect()
}

extern "C" fn at_exit() {
    ends(GoodbyeReason::Exit, None);
}

extern "C" fn before_fork() {
    SESSION.raw().acquire();
    HEAP.lock().acquire();
}

extern "C" fn after_fork_in_parent() {
    HEAP.lock().release();
    SESSION.raw().release();
}

/// The child keeps its copy of the table and gets a stream of its own; what stands in the parent's pages is not touched.
extern "C" fn after_fork_in_child() {
    TRACKER.after_fork();
    HEAP.lock().release();
    SESSION.raw().release();
    let _inside = Inside::enter();
    let Some(parent) = SESSION.lock().take() else { return };
    let options = Options { complaints: Vec::new(), ..parent.options.clone() };
    // In a confirming run only the process that repeats the test is of interest.
    let followed = matches!(parent.carrier, Carrier::Spool(_)) && options.detail == Detail::Survivors;
    // Dropping it unmaps the child's view of the parent's spool and closes nothing, because nothing is open.
    drop(parent);
    if !followed {
        hooks::stop();
        return;
    }
    match Session::open(options, ProcessRole::ForkChild, Offers::default()) {
        Some(mut child) => {
            child.append(&Frame::Event(Event { name: "fork".to_owned(), detail: String::new() }));
            child.append_boundary(BoundaryKind::ProcessStart, ("", ""), None, (0, 0));
            child.flush();
            *SESSION.lock() = Some(child);
        }
        None => hooks::stop(),
    }
}
