//! The life of a stream in one process: open → boundaries → end; through forks.
//!
//! The state is behind one lock that no hook takes. A thread at a boundary writes its frames under the lock, releases
//! it, and then waits for the harness. `fork` holds the lock, so that the child finds the state consistent.

mod copy;
mod fork;
mod waiting;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
#[cfg(not(target_os = "android"))]
use core::time::Duration;

use memgate_ffi::calm::CancelHeld;
use memgate_ffi::lock::Lock;
use memgate_ffi::process::{self, ForkMark};
use memgate_ffi::{modules, stack};
use memgate_tracker::thread::Inside;
use memgate_wire::options::{EndOfMain, Options};
use memgate_wire::reply::Reply;
use memgate_wire::spool::order;
use memgate_wire::{
    BoundaryKind, END_OF_MAIN, END_OF_TESTS, ErrorCode, ErrorFrame, Event, Frame, Goodbye, GoodbyeReason,
    LOOK, Log, LogLevel, Outcome, ProcessRole, capability,
};

use self::copy::copy_process;
use self::fork::{after_fork_in_child, after_fork_in_parent, before_fork};
pub use self::waiting::is_repeating;
use self::waiting::{Waiting, is_abandoned, wait_until_quiet};
use crate::carrier::{Carrier, Meeting};
#[cfg(not(target_os = "android"))]
use crate::handles;
use crate::recording::{self, TRACKER, counters};
use crate::setups::Around;
use crate::stream::{Bypassing, Known, Offers, Session};

/// Longest wait of a boundary for requested threads that have not begun.
#[cfg(not(target_os = "android"))]
const LONGEST_START: Duration = Duration::from_millis(200);

pub(crate) static SESSION: Lock<Option<Session>> = Lock::new(None);
/// Set in the process whose stream this is: a child that was forked without our handlers must not write into it.
static OWN: ForkMark = ForkMark::new();
/// The loader's count of loads, plus one, at the time when the guest's constructors were about to load a library that
/// binds past the agent; 0: none.
static EARLY_BYPASS: AtomicU64 = AtomicU64::new(0);
/// Was a test boundary reached? Otherwise the process is the test.
static HAS_TESTS: AtomicBool = AtomicBool::new(false);
/// GoogleTest has begun an iteration, and not all tests of it have run.
static IN_ITERATION: AtomicBool = AtomicBool::new(false);

/// Begins work of the agent. `None`: this thread already does such work (a signal handler interrupted it, and the
/// interrupted code may hold a lock), or this process is not the recorded one.
pub(crate) fn begin() -> Option<Work> {
    (!Inside::now() && is_recorded()).then(Work::new)
}

/// Is this the process that is recorded, or one that shares its memory?
pub(crate) fn is_recorded() -> bool {
    OWN.holds()
}

/// While this value lives, this thread does the agent's own work: its allocations are not the guest's, and it is not
/// cancelled in the middle.
pub struct Work {
    _inside: Inside,
    _cancel: CancelHeld,
}

impl Work {
    /// Begins the work.
    #[must_use]
    pub fn new() -> Self {
        Self { _inside: Inside::enter(), _cancel: CancelHeld::new() }
    }
}

impl Default for Work {
    fn default() -> Self {
        Self::new()
    }
}

/// Ends the stream when the process exits, and follows it through forks. Must be called before the guest registers
/// anything, so that our handler runs last at exit.
#[must_use]
pub fn register() -> bool {
    process::at_exit(at_exit) && process::at_fork(before_fork, after_fork_in_parent, after_fork_in_child)
}

/// Why a process has no stream.
pub enum Silent {
    /// This process has one already, or is a child that shares its parent's memory.
    Taken,
    /// Its carrier could not be opened.
    NoCarrier,
}

/// The loader's count of loads when the guest's constructors were about to load a library that binds past the agent;
/// `None`: there was none.
#[must_use]
pub fn early_bypass() -> Option<u64> {
    EARLY_BYPASS.load(Ordering::Relaxed).checked_sub(1)
}

/// Opens the stream of this process. `early`: the result of [`early_bypass`], if its native side is recorded;
/// `cost_ns`: the time that the start took so far, read when the stream is open.
///
/// # Errors
/// The reason why it has no stream.
pub fn open(
    options: Options,
    offers: Offers,
    early: Option<u64>,
    cost_ns: impl FnOnce() -> u64,
) -> Result<(), Silent> {
    if !OWN.set() {
        return Err(Silent::Taken);
    }
    let session = Session::open(options, ProcessRole::Main, offers, Known::default());
    let mut session = session.ok_or(Silent::NoCarrier)?;
    session.bypassing = early.map(|loads| Bypassing { loads, path: String::new(), own_name_space: true });
    publish(&session);
    session.boundary_ns = cost_ns();
    *SESSION.lock() = Some(session);
    Ok(())
}

/// Opens the stream of a process in which the agent woke up late (a virtual machine), and reports its start. If the
/// agent was preloaded as well, the process has a stream already.
pub fn open_late(options: Options, blind: Option<String>) {
    let _work = Work::new();
    if SESSION.lock().is_some() || !process::at_exit(at_exit) {
        return;
    }
    let offers = Offers { blind, java: true, ..Offers::default() };
    // Libraries that it loaded past the agent do not matter, because its native side is not recorded.
    if open(options, offers, None, || 0).is_ok() {
        process_starts();
    }
}

/// The process begins. Handles and mappings that exist already belong to no test.
pub fn process_starts() {
    reach(BoundaryKind::ProcessStart, "", "", None);
}

/// Writes frames of another module, between boundaries. `None`: there is no stream, or this thread cannot write now.
pub fn write<R>(what: impl FnOnce(&mut Session) -> R) -> Option<R> {
    let _work = begin()?;
    SESSION.lock().as_mut().map(|session| flushed(session, what))
}

/// The same, unless another thread is writing.
pub fn try_write<R>(what: impl FnOnce(&mut Session) -> R) -> Option<R> {
    let _work = begin()?;
    SESSION.try_lock()?.as_mut().map(|session| flushed(session, what))
}

fn flushed<R>(session: &mut Session, what: impl FnOnce(&mut Session) -> R) -> R {
    let result = what(session);
    session.flush();
    result
}

/// Something could not be measured.
pub fn fails(why: &str) {
    write(|session| {
        session.append(&Frame::Error(ErrorFrame { code: ErrorCode::Other, text: why.to_owned() }));
    });
}

/// Reports an event with a name.
pub fn event(name: &str, detail: &str) {
    write(|session| {
        session.append(&Frame::Event(Event { name: name.to_owned(), detail: detail.to_owned() }));
    });
}

/// The channel for orders that arrive between boundaries.
pub fn channel() -> Option<Meeting> {
    let _work = begin()?;
    SESSION.lock().as_ref().map(|session| session.carrier.meeting())
}

/// A boundary of a test that is not measured. It gets no orders, so the guest does not wait.
pub fn test_passes(kind: BoundaryKind, suite: &str, test: &str, outcome: Option<Outcome>) {
    let Some(_work) = begin() else { return };
    HAS_TESTS.store(true, Ordering::Relaxed);
    if let Some(session) = SESSION.lock().as_mut() {
        if kind == BoundaryKind::TestEnd {
            session.append_loaded_modules();
        }
        session.boundary(kind, suite, test, outcome);
        if kind == BoundaryKind::TestEnd {
            session.close_window(suite, test);
        }
    }
}

/// Appends frames of another module's measurement.
pub type Append<'a> = dyn FnMut(&mut Session) + 'a;

/// A test or a window ended that another module measured: `frames` come before its boundary, with the time that they
/// took. Returns the answer of the harness. If the harness orders to settle after a measured window, the window stays
/// open, and its second end comes without frames.
pub fn window_ends(
    suite: &str,
    test: &str,
    outcome: Option<Outcome>,
    frames: Option<(u64, &mut Append<'_>)>,
) -> Reply {
    let Some(_work) = begin() else { return Reply::default() };
    HAS_TESTS.store(true, Ordering::Relaxed);
    let is_measured = frames.is_some();
    let waiting = {
        let mut guard = SESSION.lock();
        let Some(session) = guard.as_mut() else { return Reply::default() };
        if let Some((cost_ns, append)) = frames {
            session.boundary_ns = session.boundary_ns.saturating_add(cost_ns);
            append(session);
        }
        session.boundary(BoundaryKind::TestEnd, suite, test, outcome);
        Waiting::of(session, BoundaryKind::TestEnd)
    };
    let waited = waiting.is_some();
    let reply = match waiting.and_then(|w| w.wait()) {
        Some(reply) => reply,
        None if waited && is_abandoned() => Reply::of(order::STOP),
        None => Reply::default(),
    };
    let ends_again = is_measured && reply.has(order::SETTLE);
    if let Some(session) = SESSION.lock().as_mut().filter(|_| !ends_again) {
        session.close_window(suite, test);
    }
    reply
}

/// A test begins. Its suite and name are made within the agent's own work: a signal handler that forks may interrupt
/// while the agent's heap is locked.
pub fn test_begins<T: AsRef<str>>(names: impl FnOnce() -> Option<(T, T)>) {
    let Some(_work) = begin() else { return };
    let Some((suite, test)) = names() else { return };
    reach(BoundaryKind::TestStart, suite.as_ref(), test.as_ref(), None);
}

/// A test ended. `outcome` overrides the outcome that was noted while it ran.
pub fn test_ends<T: AsRef<str>>(names: impl FnOnce() -> Option<(T, T)>, outcome: Option<Outcome>) {
    let Some(_work) = begin() else { return };
    let Some((suite, test)) = names() else { return };
    reach(BoundaryKind::TestEnd, suite.as_ref(), test.as_ref(), outcome);
}

/// Notes an outcome for the open test. The worst noted outcome counts.
pub fn note_outcome(outcome: Outcome) {
    let Some(_work) = begin() else { return };
    let mut session = SESSION.lock();
    let Some(session) = session.as_mut() else { return };
    match session.windows.last_mut() {
        Some(window) if window.outcome == Some(Outcome::Failed) => {}
        Some(window) => window.outcome = Some(outcome),
        None => session.setups.fails(),
    }
}

/// The code that runs before the tests of a suite, or before all tests, begins.
pub fn set_up_begins(around: Around) {
    in_session(|session| session.set_up_begins(around));
}

/// That code has ended. For a suite, its first test shows this.
pub fn set_up_ends(around: Around) {
    in_session(|session| session.set_up_ends(around));
}

/// The listeners are about to be told of a test: what ran before it was the set-up of its suite.
pub fn set_up_is_over() {
    let Some(_work) = begin() else { return };
    if let Some(session) = SESSION.lock().as_mut() {
        session.set_up_is_over();
    }
}

/// All listeners have been told that a test ended. What they keep about it belongs to no tear-down. `failed`: the test
/// has failed, maybe in one of them.
pub fn test_is_reported(failed: bool) {
    let Some(_work) = begin() else { return };
    if let Some(session) = SESSION.lock().as_mut() {
        session.test_is_reported();
        if failed {
            let name = capability::FAILED_BY_LISTENER.to_owned();
            session.append(&Frame::Event(Event { name, detail: String::new() }));
        }
    }
}

/// The code that runs after the tests begins. For a suite, it is everything after its last test.
pub fn tear_down_begins(around: Around) {
    in_session(|session| session.tear_down_begins(around));
}

/// That code has ended: reports the blocks that set-up and tear-down left.
pub fn tear_down_ends(around: Around) {
    let Some(_work) = begin() else { return };
    look();
    let reports = SESSION.lock().as_mut().map_or_else(Vec::new, |session| session.torn_down(around));
    for report in reports {
        if let Some(session) = SESSION.lock().as_mut() {
            session.begin_report(&report);
        }
        reach(BoundaryKind::TestEnd, &report.suite, report.name, None);
    }
}

fn in_session(what: impl FnOnce(&mut Session)) {
    let Some(_work) = begin() else { return };
    look();
    if let Some(session) = SESSION.lock().as_mut() {
        // The next test does not own the handles that this code opens.
        session.looks.expire();
        what(session);
    }
}

/// Lets the harness look at the process if tests have ended since its last look, because the code that follows is no
/// test.
fn look() {
    if SESSION.lock().as_ref().is_some_and(|session| session.looks.is_due()) {
        let (suite, name) = LOOK;
        reach(BoundaryKind::Mark, suite, name, None);
    }
}

/// The runner begins an iteration.
pub fn iteration_begins(iteration: u32) {
    let Some(_work) = begin() else { return };
    // The process would repeat forever without a test, because only the end of a test can stop it.
    let ours = |s: &Session| s.role == ProcessRole::Main && s.is_this_process();
    let is_main = || SESSION.lock().as_ref().is_some_and(ours);
    if iteration > 0 && !HAS_TESTS.load(Ordering::Relaxed) && is_confirming() && is_main() {
        Inside::suspended(|| process::exit(0));
    }
    IN_ITERATION.store(true, Ordering::Relaxed);
    if let Some(session) = SESSION.lock().as_mut() {
        session.iteration = iteration;
    }
    reach(BoundaryKind::IterationStart, "", "", None);
}

/// All tests of the iteration have run.
pub fn iteration_is_over() {
    let Some(_work) = begin() else { return };
    let is_first = IN_ITERATION.swap(false, Ordering::Relaxed);
    if let Some(session) =
        SESSION.lock().as_mut().filter(|session| is_first && !is_repeating(&session.options))
    {
        let over = Event { name: capability::ROUND_ENDS.to_owned(), detail: String::new() };
        flushed(session, |session| session.append(&Frame::Event(over)));
    }
}

/// The program set a mark. Its name is made within the agent's own work, like the names of tests.
pub fn mark(name: impl FnOnce() -> String) {
    let Some(_work) = begin() else { return };
    reach(BoundaryKind::Mark, "", &name(), None);
}

/// The last test is over: waits for the harness, which looks at the live objects.
pub fn tests_end() {
    let Some(_work) = begin() else { return };
    let (suite, name) = END_OF_TESTS;
    reach(BoundaryKind::Mark, suite, name, None);
}

/// Waits, for a limited time, until other threads have stopped freeing and allocating.
pub fn settle() {
    if let Some(_work) = begin() {
        wait_until_quiet();
    }
}

/// Is this process recorded?
#[must_use]
pub fn is_active() -> bool {
    begin().is_some_and(|_work| SESSION.lock().is_some())
}

/// `main` has returned or the program has called `exit`; exit handlers and static destructors come next. If the
/// harness asked for it, the live blocks are written now.
pub fn main_ends() {
    static ENDED: AtomicU32 = AtomicU32::new(0);
    let Some(_work) = begin() else { return };
    let asked = SESSION.lock().as_ref().is_some_and(|session| {
        session.options.end_of_main != EndOfMain::Unreported && session.is_the_program()
    });
    // A virtual machine that such a program starts still reports its tests.
    if asked && !HAS_TESTS.load(Ordering::Relaxed) && ENDED.swap(1, Ordering::Relaxed) == 0 {
        let (suite, name) = END_OF_MAIN;
        stack::with_room(|| reach(BoundaryKind::Mark, suite, name, None));
    }
}

/// The process ends normally, on any stack: handlers of fatal signals call `_exit`.
pub fn ends(reason: GoodbyeReason, status: Option<i32>) {
    if let Some(_work) = begin() {
        stack::with_room(|| say_goodbye(reason, status));
    }
}

fn say_goodbye(reason: GoodbyeReason, status: Option<i32>) {
    let ours = |session: &&Session| session.is_this_process();
    let Some(main) = SESSION.lock().as_ref().filter(ours).map(|s| s.role == ProcessRole::Main) else {
        return;
    };
    look();
    TRACKER.publish();
    if main && !HAS_TESTS.load(Ordering::Relaxed) {
        reach(BoundaryKind::ProcessEnd, "", "", None);
    } else if let Some(session) = SESSION.lock().as_mut() {
        session.append_boundary(BoundaryKind::ProcessEnd, ("", ""), None, (0, 0));
        session.flush();
    }
    recording::stop();
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
#[must_use]
pub fn module_unloads() -> Option<(u64, u64)> {
    let _work = begin()?;
    if let Some(session) = SESSION.lock().as_mut() {
        session.tell_bypassing();
        session.append_modules();
        session.flush();
    }
    Some(modules::counts())
}

/// The module was unloaded, unless it is still in use.
pub fn module_unloaded(before: (u64, u64)) {
    let Some(_work) = begin() else { return };
    if modules::counts().1 != before.1 {
        TRACKER.modules_changed();
    }
}

/// A library is about to be loaded that binds `malloc` past the agent; the next boundary checks whether it was. Its
/// path is made within the agent's own work, and only if it is reported.
pub fn library_bypasses(path: impl FnOnce() -> String, own_name_space: bool) {
    let loads = modules::counts().0;
    if !recording::is_tracking() {
        EARLY_BYPASS.store(loads.saturating_add(1), Ordering::Relaxed);
        return;
    }
    let Some(_inside) = begin() else { return };
    if let Some(session) = SESSION.lock().as_mut() {
        // An earlier library is reported first.
        session.tell_bypassing();
        session.bypassing = Some(Bypassing { loads, path: path(), own_name_space });
    }
}

/// Writes a line for a human reader.
pub fn log(level: LogLevel, text: &str) {
    if let Some(session) = SESSION.lock().as_mut() {
        session.append(&Frame::Log(Log { level, text: text.to_owned() }));
    }
}

/// Writes the frames of a boundary, waits for the harness, and obeys its orders.
fn reach(kind: BoundaryKind, suite: &str, test: &str, outcome: Option<Outcome>) {
    let (mut settled, mut copied) = (false, false);
    #[cfg(not(target_os = "android"))]
    if matches!(kind, BoundaryKind::TestEnd | BoundaryKind::Mark) {
        handles::wait_until_begun(LONGEST_START);
    }
    loop {
        let waiting = {
            let mut guard = SESSION.lock();
            let Some(session) = guard.as_mut() else { return };
            if matches!(kind, BoundaryKind::TestStart | BoundaryKind::TestEnd) {
                if session.is_the_test() {
                    return;
                }
                HAS_TESTS.store(true, Ordering::Relaxed);
            }
            let started = process::monotonic_ns();
            session.boundary(kind, suite, test, outcome);
            session.boundary_ns =
                session.boundary_ns.saturating_add(process::monotonic_ns().saturating_sub(started));
            Waiting::of(session, kind)
        };
        let waited = waiting.is_some();
        let reply = waiting.and_then(|w| w.wait());
        let has = |order| reply.is_some_and(|reply| reply.has(order));
        let abandoned = waited && reply.is_none() && kind == BoundaryKind::TestEnd && is_abandoned();
        if abandoned || has(order::STOP) {
            // The guest's own exit handlers run now, and the agent writes its last frames.
            Inside::suspended(|| process::exit(0));
        }
        if !settled && kind == BoundaryKind::TestEnd && has(order::SETTLE) {
            settled = true;
            wait_until_quiet();
            continue;
        }
        if !copied && matches!(kind, BoundaryKind::TestEnd | BoundaryKind::Mark) && has(order::COPY) {
            copied = true;
            copy_process();
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

extern "C" fn at_exit() {
    ends(GoodbyeReason::Exit, None);
}

/// From now on threads add to the live counters in the first page of the stream.
fn publish(session: &Session) {
    if let (Carrier::Spool(spool), Some(place)) = (&session.carrier, OWN.pointer()) {
        place.store(spool.live_counters(), Ordering::Release);
        recording::publish_to(place);
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn what_is_loaded_past_us_before_a_late_session_does_not_blind_it() {
        let folder = std::env::temp_dir().join(format!("memgate-late-{}", process::pid()));
        std::fs::create_dir_all(&folder).unwrap();
        library_bypasses(|| "libx.so".to_owned(), false);
        assert!(early_bypass().is_some());
        let directory = folder.to_string_lossy().into_owned();
        open_late(Options { directory, wait: Duration::ZERO, ..Options::default() }, None);
        assert_eq!(write(|session| session.bypassing.is_some()), Some(false));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
