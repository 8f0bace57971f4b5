//! The life of the agent in one process: load → start → boundaries → end; through forks.
//!
//! State behind one lock that no hook takes. A thread at a boundary writes its frames under the
//! lock, gives it back, and waits for the harness outside it. `fork` holds the lock, so that the
//! child finds everything whole.

#[cfg(not(target_os = "android"))]
mod given_up;
mod java;
mod listed;
mod setups;
mod stream;
mod system;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use memgate_ffi::calm::{CancelHeld, SignalsHeld};
use memgate_ffi::lock::Lock;
#[cfg(not(target_os = "android"))]
use memgate_ffi::modules;
use memgate_ffi::process::{self, ForkMark, ThreadKey};
use memgate_ffi::stack;
use memgate_tracker::StackLayout;
use memgate_tracker::thread::Inside;
#[cfg(not(target_os = "android"))]
use memgate_wire::END_OF_MAIN;
use memgate_wire::handshake::Answer;
use memgate_wire::options::{Carrier as CarrierKind, Detail, Options, Target, fits};
use memgate_wire::spool::order;
use memgate_wire::{BoundaryKind, Event, Frame, Goodbye, GoodbyeReason, Log, LogLevel, Outcome, ProcessRole};

#[cfg(not(target_os = "android"))]
pub(crate) use self::given_up::{gives_up_counter, gives_up_system_calls};
pub(crate) use self::java::{
    fails, java_channel, java_event, java_exhausted, java_growing, java_heap, java_info, java_is_blind,
    java_objects, java_passes, java_test_ends, start_java,
};
#[cfg(not(target_os = "android"))]
pub(crate) use self::setups::Around;
pub(crate) use self::stream::counters;
use self::stream::{Bypassing, Known, Offers, Session, arguments, executable};
use crate::carrier::{Carrier, Meeting};
use crate::native::handles;
use crate::native::hooks::{self, TRACKER};
#[cfg(not(target_os = "android"))]
use crate::native::starts;
use crate::{HEAP, entry, native::gtest, native::leak_info, native::next, platform};

const SETTLE_STEPS: u32 = 50;

/// Room that the agent's heap must have before the options are read, before a stream is opened, and
/// in a forked child. Without it nothing is recorded, which the harness tells: a failed allocation
/// of ours would end the guest.
const LOAD_ROOM: usize = 32 << 10;
const OPEN_ROOM: usize = 256 << 10;
const CHILD_ROOM: usize = 128 << 10;

static SESSION: Lock<Option<Session>> = Lock::new(None);
/// Options of a process that is a target, and the nanoseconds that loading took, between load and
/// start.
static PENDING: Lock<Option<(Options, u64)>> = Lock::new(None);
/// The thread key, plus one; 0: none. Read by hooks, so no lock.
static THREAD_KEY: AtomicU32 = AtomicU32::new(0);
/// Set in the process whose stream this is: a child that was forked past our handlers has nothing
/// to say in it.
static OWN: ForkMark = ForkMark::new();
/// The loader's count of loads, plus one, when a library of the guest's constructors was about to
/// bind past us; 0: none.
static EARLY_BYPASS: AtomicU64 = AtomicU64::new(0);
/// The signals of the thread that forks, as long as it holds the locks.
static FORKING: Lock<Option<SignalsHeld>> = Lock::new(None);
/// Test boundaries reached so far: zero means that the process is the test.
static TESTS: AtomicU64 = AtomicU64::new(0);

/// The constructor: binds the next allocator and decides whether this process is a target.
pub(crate) fn load() {
    next::bind();
    #[cfg(not(target_os = "android"))]
    entry::bind_controls();
    let Some(text) = platform::options_at_load(|| HEAP.has_room(LOAD_ROOM)) else { return };
    let (_work, _held) = (Work::new(), SignalsHeld::new());
    let began_ns = process::thread_cpu_ns();
    let mut options = platform::parse(&text);
    platform::complete(&mut options);
    if options.directory.is_empty() && options.carrier == CarrierKind::Spool {
        return;
    }
    #[cfg(not(target_os = "android"))]
    if !options.starts.is_empty() {
        entry::bind_starts();
        starts::note_in(&options.starts, &options.directory);
    }
    if !is_target(&options) {
        return;
    }
    // Registered before the guest registers anything, so that it runs after everything else at
    // exit.
    if process::at_exit(at_exit) && process::at_fork(before_fork, after_fork_in_parent, after_fork_in_child) {
        // Early for a low number: glibc allocates in every thread for keys beyond the 32nd.
        THREAD_KEY.store(ThreadKey::new(entry::thread_ends).map_or(0, |key| key.0 + 1), Ordering::Relaxed);
        *PENDING.lock() = Some((options, process::thread_cpu_ns().saturating_sub(began_ns)));
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

/// Runs in the wrapped `main`, after the guest's constructors: opens the carrier, says hello,
/// begins recording.
pub(crate) fn start() {
    let Some((options, loading_ns)) = PENDING.lock().take() else { return };
    let began_ns = process::thread_cpu_ns();
    let (_work, held) = (Work::new(), SignalsHeld::new());
    if !HEAP.has_room(OPEN_ROOM) {
        is_silent();
        return;
    }
    #[cfg(not(target_os = "android"))]
    let counts = process::may_read_counter();
    #[cfg(not(target_os = "android"))]
    if !counts {
        gives_up_counter();
    }
    let layout = StackLayout {
        main_thread: memgate_tracker::sys::thread_pointer(),
        main_top: platform::stack_end(),
        thread_bytes: process::default_thread_stack_bytes(),
    };
    stack::set_main(layout.main_top, layout.thread_bytes);
    TRACKER.prepare(layout, platform::find_object(), next::is_glibc(), thread_starts);
    #[cfg(feature = "crosscheck")]
    let crosschecks = options.crosscheck == 0
        || memgate_tracker::crosscheck::start(options.crosscheck, &options.directory, entry::find_object());
    let blind = self_test();
    let gtest = gtest::install(&executable());
    let seeing = blind.is_none();
    // A runtime of Java comes later in this process, and finds the session that begins here.
    let java = options.java;
    // Where only the native side cannot be seen, Java's can.
    let (blind, unseen) = if java { (None, blind) } else { (blind, None) };
    let offers = Offers { native: seeing || !java, java, gtest: gtest.is_ok(), blind };
    if !OWN.set() {
        is_silent();
        return;
    }
    let repeats = is_repeating(&options);
    let Some(mut session) = Session::open(options, ProcessRole::Main, offers, Known::default()) else {
        if repeats {
            drop(held);
            Inside::suspended(|| process::exit(0));
        }
        is_silent();
        return;
    };
    let early = EARLY_BYPASS.load(Ordering::Relaxed).checked_sub(1);
    session.bypassing = early.map(|loads| Bypassing { loads, path: String::new(), own_name_space: true });
    publish(&session);
    session.boundary_ns = loading_ns + process::thread_cpu_ns().saturating_sub(began_ns);
    *SESSION.lock() = Some(session);
    #[cfg(feature = "crosscheck")]
    if !crosschecks {
        log(LogLevel::Warn, "libgcc's unwinder was not found: nothing is compared");
    }
    #[cfg(not(target_os = "android"))]
    if !counts {
        log(LogLevel::Warn, "what recording costs is not known: the time-stamp counter may not be read");
    }
    if let Some(why) = unseen {
        log(LogLevel::Warn, &format!("native allocations are not seen: {why}"));
    }
    if let Err(why) = gtest {
        log(LogLevel::Debug, &format!("no GoogleTest boundaries: {why}"));
    }
    if seeing {
        #[cfg(not(target_os = "android"))]
        entry::find_thread_id();
        #[cfg(not(target_os = "android"))]
        entry::bind_all();
        hooks::start();
    }
    TRACKER.begin_epoch();
    drop(held);
    reach(BoundaryKind::ProcessStart, "", "", None);
}

/// The process was to be recorded and is not: the harness cannot know of it from its stream.
fn is_silent() {
    #[cfg(not(target_os = "android"))]
    starts::is_silent(&executable());
}

/// Begins work of our own. `None`: this thread is at such work already (a signal handler came in
/// between, and what it interrupted may hold a lock), or this process is not the one that is
/// recorded.
fn begin() -> Option<Work> {
    (!Inside::now() && OWN.holds()).then(Work::new)
}

/// While it lives, this thread does our own work: what it allocates is not the guest's, and it is
/// not cancelled in the midst of it.
struct Work {
    _inside: Inside,
    _cancel: CancelHeld,
}

impl Work {
    fn new() -> Self {
        Self { _inside: Inside::enter(), _cancel: CancelHeld::new() }
    }
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

/// Destructor of the thread key: the first round only asks for a second one, because other
/// destructors may still allocate.
pub(crate) fn thread_ends(round: usize) {
    match thread_key() {
        Some(key) if round < 2 => key.set(round + 1),
        _ => TRACKER.thread_ends(),
    }
}

/// A test begins.
pub(crate) fn test_begins(suite: &str, test: &str) {
    let Some(_work) = begin() else { return };
    TESTS.fetch_add(1, Ordering::Relaxed);
    reach(BoundaryKind::TestStart, suite, test, None);
}

/// A test ended; `outcome` overrides what was noted while it ran.
pub(crate) fn test_ends(suite: &str, test: &str, outcome: Option<Outcome>) {
    let Some(_work) = begin() else { return };
    reach(BoundaryKind::TestEnd, suite, test, outcome);
}

/// Something happened to the test that is open: the worst of what was noted counts.
#[cfg(not(target_os = "android"))]
pub(crate) fn note_outcome(outcome: Outcome) {
    let Some(_work) = begin() else { return };
    let mut session = SESSION.lock();
    let Some(session) = session.as_mut() else { return };
    match session.windows.last_mut() {
        Some(window) if window.outcome == Some(Outcome::Failed) => {}
        Some(window) => window.outcome = Some(outcome),
        None => session.setups.fails(),
    }
}

/// What runs before the tests of a suite, or before all tests, begins.
#[cfg(not(target_os = "android"))]
pub(crate) fn set_up_begins(around: Around) {
    in_session(|session| session.set_up_begins(around));
}

/// It has ended. Of a suite the first test tells that.
#[cfg(not(target_os = "android"))]
pub(crate) fn set_up_ends(around: Around) {
    in_session(|session| {
        let epoch = session.next_epoch();
        session.set_up_ends(around, epoch);
    });
}

/// What runs behind them begins. Of a suite it is what comes after its last test.
#[cfg(not(target_os = "android"))]
pub(crate) fn tear_down_begins(around: Around) {
    in_session(|session| session.tear_down_begins(around));
}

/// It has ended: what both left is told.
#[cfg(not(target_os = "android"))]
pub(crate) fn tear_down_ends(around: Around) {
    let Some(_work) = begin() else { return };
    let told = SESSION.lock().as_mut().map_or_else(Vec::new, |session| session.torn_down(around));
    for told in told {
        if let Some(session) = SESSION.lock().as_mut() {
            session.begin_told(&told);
        }
        reach(BoundaryKind::TestEnd, &told.suite, told.name, None);
    }
}

#[cfg(not(target_os = "android"))]
fn in_session(what: impl FnOnce(&mut Session)) {
    let Some(_work) = begin() else { return };
    if let Some(session) = SESSION.lock().as_mut() {
        what(session);
    }
}

/// The runner begins an iteration.
pub(crate) fn iteration_begins(iteration: u32) {
    let Some(_work) = begin() else { return };
    // It would repeat nothing for ever: only the end of a test can tell it to stop.
    let ours = |s: &Session| s.role == ProcessRole::Main && s.is_this_process();
    let is_main = || SESSION.lock().as_ref().is_some_and(ours);
    if iteration > 0 && TESTS.load(Ordering::Relaxed) == 0 && is_confirming() && is_main() {
        Inside::suspended(|| process::exit(0));
    }
    if let Some(session) = SESSION.lock().as_mut() {
        session.iteration = iteration;
    }
    reach(BoundaryKind::IterationStart, "", "", None);
}

/// The program set a mark.
pub(crate) fn mark(name: &str) {
    let Some(_work) = begin() else { return };
    reach(BoundaryKind::Mark, "", name, None);
}

/// Waits, bounded, until other threads have stopped freeing and allocating.
pub(crate) fn settle() {
    if let Some(_work) = begin() {
        wait_until_quiet();
    }
}

fn wait_until_quiet() {
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
    begin().is_some_and(|_work| SESSION.lock().is_some())
}

/// `main` has returned or the program has called `exit`; exit handlers and static destructors come
/// next. Where the process is the test, and the harness asked for it, what is alive now is written.
#[cfg(not(target_os = "android"))]
pub(crate) fn main_ends() {
    static ENDED: AtomicU32 = AtomicU32::new(0);
    let Some(_work) = begin() else { return };
    let is_asked = |s: &Session| s.options.end_of_main && s.role == ProcessRole::Main && s.is_this_process();
    let asked = SESSION.lock().as_ref().is_some_and(is_asked);
    if asked && TESTS.load(Ordering::Relaxed) == 0 && ENDED.swap(1, Ordering::Relaxed) == 0 {
        let (suite, name) = END_OF_MAIN;
        stack::with_room(|| reach(BoundaryKind::Mark, suite, name, None));
    }
}

/// The process ends in an orderly way, on whatever stack: handlers of fatal signals call `_exit`.
pub(crate) fn ends(reason: GoodbyeReason, status: Option<i32>) {
    if let Some(_work) = begin() {
        stack::with_room(|| say_goodbye(reason, status));
    }
}

fn say_goodbye(reason: GoodbyeReason, status: Option<i32>) {
    let ours = |session: &&Session| session.is_this_process();
    let Some(main) = SESSION.lock().as_ref().filter(ours).map(|s| s.role == ProcessRole::Main) else {
        return;
    };
    TRACKER.publish();
    if main && TESTS.load(Ordering::Relaxed) == 0 {
        reach(BoundaryKind::ProcessEnd, "", "", None);
    } else if let Some(session) = SESSION.lock().as_mut() {
        session.append_boundary(BoundaryKind::ProcessEnd, ("", ""), None, (0, 0));
        session.flush();
    }
    hooks::stop();
    #[cfg(feature = "crosscheck")]
    memgate_tracker::crosscheck::finish();
    let Some(mut session) = SESSION.lock().take() else { return };
    let goodbye = Goodbye { reason, status, counters: counters(), cost: session.cost() };
    session.append(&Frame::Goodbye(goodbye));
    session.flush();
    // The words stay mapped: a thread that is still in a hook may be publishing.
    let limit = session.options.wait;
    session.carrier.close(limit);
    core::mem::forget(session);
}

/// A module is about to be unloaded: stacks through it must stay nameable. Returns the loader's
/// counts, if they matter.
#[cfg(not(target_os = "android"))]
pub(crate) fn module_unloads() -> Option<(u64, u64)> {
    let _work = begin()?;
    if let Some(session) = SESSION.lock().as_mut() {
        session.tell_bypassing();
        session.append_modules();
        session.flush();
    }
    Some(modules::counts())
}

/// It was, unless somebody else still uses it.
#[cfg(not(target_os = "android"))]
pub(crate) fn module_unloaded(before: (u64, u64)) {
    let Some(_work) = begin() else { return };
    if modules::counts().1 != before.1 {
        TRACKER.modules_changed();
    }
}

/// A library is about to be loaded that binds `malloc` past us; the next boundary sees whether it
/// was.
#[cfg(not(target_os = "android"))]
pub(crate) fn library_bypasses(path: String, own_name_space: bool) {
    let loads = modules::counts().0;
    if hooks::MODE.load(Ordering::Relaxed) != hooks::TRACKING {
        EARLY_BYPASS.store(loads + 1, Ordering::Relaxed);
        return;
    }
    let Some(_inside) = begin() else { return };
    if let Some(session) = SESSION.lock().as_mut() {
        // What an earlier one has to say is said before.
        session.tell_bypassing();
        session.bypassing = Some(Bypassing { loads, path, own_name_space });
    }
}

/// Writes a line for a person.
pub(crate) fn log(level: LogLevel, text: &str) {
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
            let Some(session) = guard.as_mut() else { return };
            let started = process::monotonic_ns();
            session.boundary(kind, suite, test, outcome);
            session.boundary_ns += process::monotonic_ns().saturating_sub(started);
            Waiting::of(session, kind)
        };
        let waited = waiting.is_some();
        let orders = waiting.and_then(|w| w.wait());
        // A confirming run repeats its test until it is told to stop: without a harness that would
        // be for ever.
        let abandoned = waited && orders.is_none() && kind == BoundaryKind::TestEnd && is_confirming();
        if abandoned || orders.is_some_and(|bits| bits & order::STOP != 0) {
            // The guest's own exit handlers run now, and the agent's last words.
            Inside::suspended(|| process::exit(0));
        }
        if !settled && kind == BoundaryKind::TestEnd && orders.is_some_and(|bits| bits & order::SETTLE != 0) {
            settled = true;
            wait_until_quiet();
            continue;
        }
        break;
    }
    if let Some(session) = SESSION.lock().as_mut().filter(|_| kind == BoundaryKind::TestEnd)
        && !session.close_window(suite, test)
    {
        let epoch = session.next_epoch();
        session.setups.test_ended(epoch);
    }
}

fn is_confirming() -> bool {
    SESSION.lock().as_ref().is_some_and(|session| is_repeating(&session.options))
}

/// Started by the harness to repeat one test until it says that it is enough: of no use to anybody
/// without it.
fn is_repeating(options: &Options) -> bool {
    options.detail == Detail::Growth && options.harness
}

struct Waiting {
    meeting: Meeting,
    sequence: u32,
    limit: Duration,
    expected: bool,
}

impl Waiting {
    fn of(session: &Session, kind: BoundaryKind) -> Option<Self> {
        if session.role == ProcessRole::ForkChild
            || session.options.wait.is_zero()
            || kind == BoundaryKind::IterationStart
        {
            return None;
        }
        let first = kind == BoundaryKind::ProcessStart && session.options.harness;
        let limit = if session.harness_silent { Duration::ZERO } else { session.options.wait };
        let meeting = session.carrier.meeting();
        meeting.announce(session.sequence);
        Some(Self { meeting, sequence: session.sequence, limit, expected: first })
    }

    /// The orders; `None`: nobody gave any.
    fn wait(&self) -> Option<u32> {
        let answer = self.meeting.wait(self.sequence, self.limit, self.expected);
        if let Some(session) = SESSION.lock().as_mut() {
            // One full wait without an answer is enough: from then on only a harness that answers
            // is waited for.
            session.harness_silent = match answer {
                Answer::Orders(_) => false,
                Answer::Silence => session.harness_silent || !self.limit.is_zero(),
                Answer::Nobody => session.harness_silent,
            };
        }
        match answer {
            Answer::Orders(bits) => Some(bits),
            Answer::Silence | Answer::Nobody => None,
        }
    }
}

extern "C" fn at_exit() {
    ends(GoodbyeReason::Exit, None);
}

/// A fork in a signal handler that interrupted our own work cannot take its locks: its child stays
/// silent. Signals wait meanwhile: a handler of the guest's that comes in between and ends the
/// process would wait for these locks for ever.
extern "C" fn before_fork() {
    if !Inside::now() {
        let held = SignalsHeld::new();
        SESSION.raw().acquire();
        *FORKING.lock() = Some(held);
        leak_info::raw_lock().acquire();
        HEAP.lock().acquire();
    }
}

extern "C" fn after_fork_in_parent() {
    if !Inside::now() {
        HEAP.lock().release();
        leak_info::raw_lock().release();
        let _held = FORKING.lock().take();
        SESSION.raw().release();
    }
}

/// The child keeps its copy of the table and gets a stream of its own; what stands in the parent's
/// pages is not touched. The loader is not asked for anything here: another thread of the parent
/// may have held its lock.
extern "C" fn after_fork_in_child() {
    TRACKER.after_fork();
    handles::after_fork();
    if Inside::now() {
        hooks::stop();
        return;
    }
    HEAP.lock().release();
    leak_info::raw_lock().release();
    let _held = FORKING.lock().take();
    SESSION.raw().release();
    let _work = Work::new();
    stack::with_room(follow_fork);
}

/// Opens the child's own stream.
fn follow_fork() {
    let Some(mut parent) = SESSION.lock().take() else { return };
    if !HEAP.has_room(CHILD_ROOM) {
        hooks::stop();
        return;
    }
    let options = Options { complaints: Vec::new(), ..parent.options.clone() };
    // In a confirming run only the process that repeats the test is of interest.
    let followed = matches!(parent.carrier, Carrier::Spool(_)) && options.detail == Detail::Survivors;
    let known = core::mem::take(&mut parent.known);
    let blind = parent.blind.take();
    // Dropping it unmaps the child's view of the parent's spool and closes nothing, because nothing
    // is open.
    drop(parent);
    let child = if followed {
        let offers = Offers { native: true, blind, ..Offers::default() };
        Session::open(options, ProcessRole::ForkChild, offers, known)
    } else {
        None
    };
    let Some(mut child) = child.filter(|_| OWN.set()) else {
        hooks::stop();
        return;
    };
    publish(&child);
    child.append(&Frame::Event(Event { name: "fork".to_owned(), detail: String::new() }));
    child.append_boundary(BoundaryKind::ProcessStart, ("", ""), None, (0, 0));
    child.flush();
    *SESSION.lock() = Some(child);
}

/// From now on threads add to the live counters in the stream's first page.
fn publish(session: &Session) {
    if let (Carrier::Spool(spool), Some(place)) = (&session.carrier, OWN.pointer()) {
        place.store(spool.live_counters(), Ordering::Release);
        entry::publish_to(place);
    }
}
