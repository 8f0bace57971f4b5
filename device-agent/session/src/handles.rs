//! The stacks of the calls that opened descriptors and started threads, by number of the descriptor or thread.
//!
//! Data flow: an exported function of the agent calls the C library's, then [`opened`] with the result; before a
//! descriptor is closed, [`closes`] forgets it. A new thread passes through [`begun`]. At a boundary the session asks
//! for the changes since the last one. `open`, `dup2` and `close` are called in signal handlers and between `vfork` and
//! `exec`. Therefore nothing here locks, allocates or changes `errno`, and a child that shares this memory changes
//! nothing.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(target_os = "android"))]
use core::time::Duration;

use memgate_ffi::lock::RawLock;
use memgate_ffi::process;
use memgate_tracker::capture::Registers;
use memgate_tracker::sys::{Errno, noted_thread_id, thread_pointer};
use memgate_tracker::table::Entry;
use memgate_tracker::thread::Inside;
use memgate_wire::Handle;

use crate::recording::{self, TRACKER};

/// Descriptors with a larger number are not noted. The tables are small, because a guest that locks all its memory also
/// locks them.
pub const MOST_DESCRIPTORS: usize = 1 << 12;
/// Maximum number of threads that are noted between two boundaries. The last ones are kept.
const MOST_THREADS: usize = 1024;
/// Maximum number of requested threads that have not begun.
const MOST_STARTS: usize = 64;

/// The stack that opened each descriptor; 0: not known.
pub static DESCRIPTORS: [AtomicU32; MOST_DESCRIPTORS] = [const { AtomicU32::new(0) }; MOST_DESCRIPTORS];
/// One more than the largest descriptor that was noted.
static HIGHEST: AtomicU32 = AtomicU32::new(0);

/// Threads that began, in order: `id 32 | stack 32`.
static THREADS: [AtomicU64; MOST_THREADS] = [const { AtomicU64::new(0) }; MOST_THREADS];
static BEGUN: AtomicU32 = AtomicU32::new(0);
/// Number of requested threads.
static ASKED: AtomicU32 = AtomicU32::new(0);

/// The routine of a new thread, and the stack that started it.
pub struct Start {
    /// Held from the call until both threads are done with this place.
    taken: RawLock,
    /// How many of the two threads are done with this place: the new one, and the one that started it.
    passed: AtomicU32,
    /// See [`state`].
    state: AtomicU32,
    /// The new thread, once one of the two knows its handle.
    thread: AtomicUsize,
    /// See [`Kept`].
    kept: (AtomicUsize, AtomicU64),
    /// Where the C library writes the new thread's handle.
    place: AtomicUsize,
    stack: AtomicU32,
    routine: AtomicUsize,
    argument: AtomicUsize,
}

static STARTS: [Start; MOST_STARTS] = [const { Start::new() }; MOST_STARTS];

impl Start {
    const fn new() -> Self {
        Self {
            taken: RawLock::new(),
            passed: AtomicU32::new(0),
            state: AtomicU32::new(0),
            thread: AtomicUsize::new(0),
            kept: (AtomicUsize::new(0), AtomicU64::new(0)),
            place: AtomicUsize::new(0),
            stack: AtomicU32::new(0),
            routine: AtomicUsize::new(0),
            argument: AtomicUsize::new(0),
        }
    }

    /// Where the C library has written the new thread's handle. `None`: the thread runs, knows its handle itself, and
    /// may have freed the place.
    #[must_use]
    pub fn place(&self) -> Option<usize> {
        (self.passed.load(Ordering::Acquire) == 0).then(|| self.place.load(Ordering::Relaxed))
    }

    /// Sets the state. Returns false if it was set before, or if the place belongs to another thread since this state
    /// was `seen`.
    fn becomes(&self, seen: u32, state: u32) -> bool {
        state::of(seen) == state::JOINABLE
            && self.state.compare_exchange(seen, seen | state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// One of the two threads is done. It stores the new thread's handle, if it knows it. The second one to finish
    /// gives the place back.
    fn passes(&self, thread: Option<usize>) {
        if let Some(thread) = thread {
            self.thread.store(thread, Ordering::Release);
        }
        if self.passed.fetch_add(1, Ordering::AcqRel) == 1 {
            self.note();
            self.give_back();
        }
    }

    /// Notes the block that the C library allocated, or had kept, for the thread. The block belongs to the thread's
    /// owner until the thread is joined or detached: a thread that is never joined leaks it. Until this call, neither
    /// the thread nor its starter has gone on. During the call, one of the two may go on, and give the thread up.
    fn note(&self) {
        let (address, bytes) = (self.kept.0.load(Ordering::Relaxed), self.kept.1.load(Ordering::Relaxed));
        let seen = self.state.load(Ordering::Acquire);
        if address == 0 || state::of(seen) != state::JOINABLE {
            return;
        }
        let is_new = TRACKER.note_kept(address, bytes, self.stack.load(Ordering::Relaxed));
        if !self.becomes(seen, state::NOTED) && is_new {
            TRACKER.forget(address);
        }
    }

    fn give_back(&self) {
        // A search for holders of the block must not find this place.
        self.kept.0.store(0, Ordering::Relaxed);
        self.taken.release();
    }
}

/// The state of a requested thread, in the lowest bits. The bits above count the threads that had this place.
mod state {
    /// It must be joined or detached.
    pub(super) const JOINABLE: u32 = 0;
    /// It must be joined or detached, and its block is noted.
    pub(super) const NOTED: u32 = 1;
    /// It need not be joined or detached any more, or a thread has begun to do so.
    pub(super) const GIVEN_UP: u32 = 2;

    const ALL: u32 = 3;

    pub(super) const fn of(word: u32) -> u32 {
        word & ALL
    }

    /// The number of the thread among those that had this place.
    #[cfg(not(target_os = "android"))]
    pub(super) const fn turn(word: u32) -> u32 {
        word & !ALL
    }

    /// The word of the next thread in this place.
    pub(super) const fn after(word: u32, state: u32) -> u32 {
        (word | ALL).wrapping_add(1) | state
    }
}

/// A block that the C library allocates for a thread, and keeps for other threads when it has ended.
#[derive(Clone, Copy)]
pub struct Kept {
    /// Its address.
    pub address: usize,
    /// Its bytes.
    pub bytes: u64,
}

/// A requested thread.
pub struct Asked {
    /// See [`Start::place`].
    pub place: usize,
    /// It will not be joined.
    pub is_detached: bool,
    /// The routine that the thread is to run.
    pub routine: usize,
    /// The argument of that routine.
    pub argument: usize,
}

/// A routine and its argument, in the two registers that a function returns.
#[repr(C)]
pub struct Routine {
    routine: usize,
    argument: usize,
}

/// Is this a thread of this process, and not a child that shares its memory (`vfork`)? Such a child runs with its
/// parent's control block. `None`: unknown, because the C library is not a known one, or the kernel has no such
/// futexes, or a filter refuses them.
pub(crate) fn is_ours() -> Option<bool> {
    if !recording::asks_the_kernel() {
        return Some(false);
    }
    let errno = Errno::save();
    let ours = noted_thread_id().zip(process::thread_id_by_futex()).map(|(noted, own)| noted == own);
    errno.restore();
    ours
}

fn cell(descriptor: c_int) -> Option<&'static AtomicU32> {
    DESCRIPTORS.get(usize::try_from(descriptor).ok()?)
}

/// The caller with these registers has opened a descriptor.
pub fn opened(descriptor: c_int, at: Registers) {
    let Some(cell) = cell(descriptor).filter(|_| !Inside::now() && is_ours() == Some(true)) else { return };
    cell.store(TRACKER.stack_of(at), Ordering::Relaxed);
    HIGHEST.fetch_max(descriptor.cast_unsigned().wrapping_add(1), Ordering::Relaxed);
}

/// A descriptor is about to be closed. This is called before the close, because afterwards the number may be another
/// thread's new descriptor.
pub fn closes(descriptor: c_int) {
    let is_noted = |cell: &&AtomicU32| cell.load(Ordering::Relaxed) != 0;
    // If it is unknown whether this is our process, no stack is better than a wrong one.
    if let Some(cell) = cell(descriptor).filter(is_noted).filter(|_| is_ours() != Some(false)) {
        cell.store(0, Ordering::Relaxed);
    }
}

/// A thread is requested. `None`: it cannot be noted, and begins as it would without the agent.
pub fn starts(thread: &Asked, at: Registers) -> Option<&'static Start> {
    if Inside::now() {
        return None;
    }
    ASKED.fetch_add(1, Ordering::Relaxed);
    let start = STARTS.iter().find(|start| start.taken.try_acquire())?;
    start.stack.store(TRACKER.stack_of(at), Ordering::Relaxed);
    let state = if thread.is_detached { state::GIVEN_UP } else { state::JOINABLE };
    start.passed.store(0, Ordering::Relaxed);
    // Cleared first: a reader of the new state must not find the previous thread here.
    start.thread.store(0, Ordering::Relaxed);
    start.state.store(state::after(start.state.load(Ordering::Relaxed), state), Ordering::Release);
    start.kept.0.store(0, Ordering::Relaxed);
    start.place.store(thread.place, Ordering::Relaxed);
    start.routine.store(thread.routine, Ordering::Relaxed);
    start.argument.store(thread.argument, Ordering::Relaxed);
    Some(start)
}

/// The thread was created.
pub fn started(start: &Start, thread: Option<usize>) {
    start.passes(thread);
}

/// A thread is about to be joined or detached. The C library itself then frees what it allocated for the thread.
pub fn given_up(thread: usize, kept: Option<Kept>) {
    gives_up(thread);
    if let Some(kept) = kept {
        for join in JOINS.iter().filter(|join| join.address.load(Ordering::Acquire) == kept.address) {
            join.given_up.store(true, Ordering::Release);
        }
        was_kept(kept.address);
    }
}

/// If the thread was just requested, its block need no longer be noted. Returns its place, and its previous state.
fn gives_up(thread: usize) -> Option<(usize, u32)> {
    STARTS.iter().enumerate().find_map(|(at, start)| {
        let seen = start.state.load(Ordering::Acquire);
        let is_it = start.thread.load(Ordering::Acquire) == thread && start.taken.is_held();
        (is_it && start.becomes(seen, state::GIVEN_UP)).then_some((at, seen))
    })
}

/// Reports that this block belonged to a thread that is given up.
fn was_kept(address: usize) {
    if !Inside::now() {
        TRACKER.forget(address);
    }
}

/// A call that joins a thread if the thread has ended, or ends in time. The thread's block is forgotten before the
/// join, because afterwards the block may be another thread's. If the thread is not joined, the block is noted again.
struct Join {
    /// The thread that waits, by its thread pointer; 0: none.
    by: AtomicUsize,
    /// The block that the C library keeps for the thread; 0: not known yet.
    address: AtomicUsize,
    /// Another thread gave the thread up meanwhile.
    given_up: AtomicBool,
    /// Size of the block that was forgotten; 0: none yet.
    size: AtomicU64,
    stack: AtomicU32,
    /// The epoch of the block; [`NOT_NOTED`]: the block was not noted yet.
    epoch: AtomicU32,
    /// See [`gives_up`]. A value beyond all places means that the thread had none.
    start: AtomicUsize,
    seen: AtomicU32,
}

/// The block had no epoch.
const NOT_NOTED: u32 = u32::MAX;

/// Maximum number of calls that wait at the same time. Further ones forget the block only after they have joined.
const MOST_JOINS: usize = 64;

static JOINS: [Join; MOST_JOINS] = [const { Join::new() }; MOST_JOINS];

impl Join {
    const fn new() -> Self {
        Self {
            by: AtomicUsize::new(0),
            address: AtomicUsize::new(0),
            given_up: AtomicBool::new(false),
            size: AtomicU64::new(0),
            stack: AtomicU32::new(0),
            epoch: AtomicU32::new(0),
            start: AtomicUsize::new(0),
            seen: AtomicU32::new(0),
        }
    }

    fn take(&self) -> bool {
        self.by.compare_exchange(0, thread_pointer(), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Forgets the thread's block. Returns false if the block was not noted and will not be.
    fn forgets(&self, thread: usize, kept: Kept) -> bool {
        self.given_up.store(false, Ordering::Relaxed);
        self.size.store(0, Ordering::Relaxed);
        self.address.store(kept.address, Ordering::Release);
        let asked = gives_up(thread);
        let (start, seen) = asked.unwrap_or((MOST_STARTS, 0));
        let not_noted = || {
            let stack = STARTS.get(start)?.stack.load(Ordering::Relaxed);
            Some(Entry { size: kept.bytes, stack, epoch: NOT_NOTED })
        };
        let Some(entry) = TRACKER.forget(kept.address).or_else(not_noted) else { return false };
        self.start.store(start, Ordering::Relaxed);
        self.seen.store(seen, Ordering::Relaxed);
        self.stack.store(entry.stack, Ordering::Relaxed);
        self.epoch.store(entry.epoch, Ordering::Relaxed);
        self.size.store(entry.size, Ordering::Relaxed);
        true
    }

    fn takes_back(&self) {
        let size = self.size.load(Ordering::Relaxed);
        let is_given_up = || self.given_up.load(Ordering::Acquire);
        if size == 0 || is_given_up() {
            return;
        }
        let (stack, epoch) = (self.stack.load(Ordering::Relaxed), self.epoch.load(Ordering::Relaxed));
        if let Some(start) = STARTS.get(self.start.load(Ordering::Relaxed)) {
            let seen = self.seen.load(Ordering::Relaxed);
            let given_up = seen | state::GIVEN_UP;
            // If this fails, the place belongs to another thread.
            _ = start.state.compare_exchange(given_up, seen, Ordering::AcqRel, Ordering::Relaxed);
        }
        // The thread may note the block at the same time.
        let address = self.address.load(Ordering::Relaxed);
        if epoch == NOT_NOTED {
            TRACKER.note_kept(address, size, stack);
        } else {
            TRACKER.restore(address, Some(Entry { size, stack, epoch }));
        }
        if is_given_up() {
            TRACKER.forget(address);
        }
    }

    fn give_back(&self) {
        self.address.store(0, Ordering::Relaxed);
        self.by.store(0, Ordering::Release);
    }
}

/// Marks a block that is to be forgotten only after the thread was joined: no block has an odd address.
const AFTER: usize = 1;

/// A thread may be joined now. Returns the argument for [`tried_to_join`].
#[must_use]
pub fn tries_to_join(thread: usize, kept: Option<Kept>) -> usize {
    let Some(kept) = kept.filter(|_| !Inside::now()) else { return 0 };
    let Some(at) = JOINS.iter().position(Join::take) else { return kept.address | AFTER };
    match JOINS.get(at).filter(|join| !join.forgets(thread, kept)) {
        Some(nothing) => {
            nothing.give_back();
            0
        }
        None => at.wrapping_add(1).wrapping_mul(2),
    }
}

/// The attempt to join a thread is over.
pub fn tried_to_join(told: usize, is_joined: bool) {
    if told & AFTER != 0 {
        if is_joined {
            was_kept(told & !AFTER);
        }
    } else if let Some(join) = (told / 2).checked_sub(1).and_then(|at| JOINS.get(at)) {
        if !is_joined {
            join.takes_back();
        }
        join.give_back();
    }
}

/// The calling thread ends. If it was cancelled while it waited, it joined no thread.
pub fn thread_ends() {
    let own = thread_pointer();
    for join in JOINS.iter().filter(|join| join.by.load(Ordering::Relaxed) == own) {
        join.takes_back();
        join.give_back();
    }
}

/// The requested thread could not be created.
pub fn start_failed(start: &Start) {
    start.give_back();
}

/// A new thread begins; returns the routine that it must run.
pub fn begun(start: &Start, thread: usize, kept: Option<Kept>) -> Routine {
    let routine = Routine {
        routine: start.routine.load(Ordering::Relaxed),
        argument: start.argument.load(Ordering::Relaxed),
    };
    let stack = start.stack.load(Ordering::Relaxed);
    if let Some(kept) = kept {
        start.kept.0.store(kept.address, Ordering::Relaxed);
        start.kept.1.store(kept.bytes, Ordering::Relaxed);
        if state::of(start.state.load(Ordering::Relaxed)) == state::GIVEN_UP {
            was_kept(kept.address);
        }
    }
    start.passes(Some(thread));
    if let Some(thread) = noted_thread_id() {
        let place = BEGUN.fetch_add(1, Ordering::Relaxed) as usize % MOST_THREADS;
        if let Some(cell) = THREADS.get(place) {
            cell.store(u64::from(thread) << 32 | u64::from(stack), Ordering::Release);
        }
    }
    routine
}

/// Waits, no longer than `limit`, until each requested thread has begun: only then is the block noted that the C
/// library keeps for it, and the block belongs to the test that requested the thread. Threads that are requested
/// meanwhile are not waited for.
#[cfg(not(target_os = "android"))]
pub(crate) fn wait_until_begun(limit: Duration) {
    let since = process::monotonic_ns();
    for start in &STARTS {
        let turn = || state::turn(start.state.load(Ordering::Acquire));
        let first = turn();
        while start.taken.is_held() && turn() == first {
            let spent = Duration::from_nanos(process::monotonic_ns().saturating_sub(since));
            let Some(rest) = limit.checked_sub(spent).filter(|rest| !rest.is_zero()) else { return };
            start.taken.await_release(rest);
        }
    }
}

/// Number of requested threads so far. If it grows, there may be new threads that [`ReportedHandles`] does not contain
/// yet.
pub(crate) fn asked() -> u32 {
    ASKED.load(Ordering::Relaxed)
}

/// Called in a forked child: requested threads do not begin here, and no thread waits for one.
pub(crate) fn after_fork() {
    STARTS.iter().for_each(Start::give_back);
    JOINS.iter().for_each(Join::give_back);
}

/// The handles that were last reported.
#[derive(Default)]
pub(crate) struct ReportedHandles {
    descriptors: Vec<u32>,
    threads: u32,
}

impl ReportedHandles {
    /// For a process that begins now. A forked child has its parent's descriptors but not its threads.
    pub(crate) fn new() -> Self {
        Self { descriptors: Vec::new(), threads: BEGUN.load(Ordering::Relaxed) }
    }

    /// Maximum number of handles to report.
    pub(crate) fn most(&self) -> usize {
        (HIGHEST.load(Ordering::Relaxed) as usize)
            .wrapping_add(BEGUN.load(Ordering::Relaxed).wrapping_sub(self.threads) as usize)
    }

    /// Descriptors whose stack differs from the last report, and threads that began since.
    pub(crate) fn changes(&mut self) -> (Vec<Handle>, Vec<Handle>) {
        let highest = HIGHEST.load(Ordering::Relaxed) as usize;
        if self.descriptors.len() < highest {
            self.descriptors.resize(highest, 0);
        }
        let mut descriptors = Vec::new();
        for (id, (told, now)) in (0..).zip(self.descriptors.iter_mut().zip(&DESCRIPTORS)) {
            let stack = now.load(Ordering::Relaxed);
            if *told != stack {
                *told = stack;
                descriptors.push(Handle { id, stack });
            }
        }
        let begun = BEGUN.load(Ordering::Relaxed);
        let new = (begun.wrapping_sub(self.threads) as usize).min(MOST_THREADS);
        self.threads = begun;
        let of = |back: usize| {
            let at = (begun as usize).wrapping_sub(back) % MOST_THREADS;
            let noted = THREADS.get(at)?.load(Ordering::Acquire);
            let half = |part: u64| u32::try_from(part & u64::from(u32::MAX)).unwrap_or(0);
            let (id, stack) = (half(noted >> 32), half(noted));
            (id != 0).then_some(Handle { id, stack })
        };
        (descriptors, (1..=new).rev().filter_map(of).collect())
    }
}

#[cfg(test)]
mod tests {
    use memgate_tracker::StackLayout;

    use super::*;

    /// Regression: a thread that was joined late was taken for the next one in its place, whose block was then not
    /// noted.
    #[test]
    fn a_thread_that_is_given_up_is_not_taken_for_the_next_one_in_its_place() {
        let start = Start::new();
        let seen = start.state.load(Ordering::Relaxed);
        start.state.store(state::after(seen, state::JOINABLE), Ordering::Relaxed);
        assert!(!start.becomes(seen, state::GIVEN_UP));
        let seen = start.state.load(Ordering::Relaxed);
        assert!(start.becomes(seen, state::GIVEN_UP) && !start.becomes(seen, state::NOTED));
        let now = start.state.load(Ordering::Relaxed);
        assert_eq!(
            (state::of(now), state::of(state::after(now, state::JOINABLE))),
            (state::GIVEN_UP, state::JOINABLE)
        );
    }

    #[test]
    fn a_boundary_waits_for_threads_that_have_not_begun_and_for_no_later_ones() {
        const LONG: Duration = Duration::from_hours(1);
        let has_begun = AtomicBool::new(false);
        let start = STARTS.iter().find(|start| start.taken.try_acquire()).unwrap();
        wait_until_begun(Duration::ZERO);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                wait_until_begun(LONG);
                has_begun.load(Ordering::Acquire)
            });
            while !start.taken.is_awaited() {
                std::thread::yield_now();
            }
            has_begun.store(true, Ordering::Release);
            // The next thread may get this place before any thread sees it free.
            let word = start.state.load(Ordering::Relaxed);
            start.state.store(state::after(word, state::JOINABLE), Ordering::Release);
            start.taken.release();
            while !start.taken.try_acquire() {
                std::thread::yield_now();
            }
            assert!(waiting.join().unwrap());
        });
        start.give_back();
    }

    #[test]
    fn what_is_kept_of_a_thread_is_noted_again_only_if_nobody_joined_it() {
        const THREAD: usize = 4711;
        let layout = StackLayout { main_thread: 0, main_top: 0, thread_bytes: 8 << 20 };
        TRACKER.prepare(layout, None, true, || {});
        let kept = Kept { address: 0x10_0000, bytes: 304 };
        // Notes the block, tries to join, and in between calls `meanwhile`, which acts as another thread.
        let tries = |is_joined: bool, meanwhile: fn(Kept)| {
            TRACKER.note_kept(kept.address, kept.bytes, 0);
            let told = tries_to_join(THREAD, Some(kept));
            let is_forgotten = TRACKER.note_kept(kept.address, kept.bytes, 0);
            TRACKER.forget(kept.address);
            meanwhile(kept);
            tried_to_join(told, is_joined);
            (is_forgotten, TRACKER.forget(kept.address).map(|entry| entry.size))
        };
        let joins = |kept| given_up(THREAD, Some(kept));
        let joins_and_starts = |kept: Kept| {
            given_up(THREAD, Some(kept));
            TRACKER.note_kept(kept.address, 305, 0);
        };
        let starts = |kept: Kept| assert!(TRACKER.note_kept(kept.address, 305, 0));
        assert_eq!(tries(true, |_| ()), (true, None));
        assert_eq!(tries(false, |_| ()), (true, Some(304)), "it runs on");
        assert_eq!(tries(false, joins), (true, None), "somebody else joined it");
        assert_eq!(tries(false, joins_and_starts), (true, Some(305)), "and the next thread has its block");
        assert_eq!(tries(true, starts), (true, Some(305)), "the next thread has its block");
        // The thread has not begun. Meanwhile it notes the same block.
        let begins = |kept: Kept| assert!(TRACKER.note_kept(kept.address, kept.bytes, 0));
        let alive = || TRACKER.totals().allocations - TRACKER.totals().frees;
        let before = alive();
        assert_eq!((tries(false, begins), alive()), ((true, Some(304)), before), "it is counted once");
        // The block is not noted yet. This happens when its place is given back.
        let start = STARTS.iter().find(|start| start.taken.try_acquire()).unwrap();
        start.thread.store(THREAD, Ordering::Relaxed);
        start.kept.0.store(kept.address, Ordering::Relaxed);
        start.kept.1.store(kept.bytes, Ordering::Relaxed);
        let is_noted = |is_joined: bool| {
            let told = tries_to_join(THREAD, Some(kept));
            start.note();
            let early = TRACKER.forget(kept.address).is_some();
            tried_to_join(told, is_joined);
            start.note();
            (early, TRACKER.forget(kept.address).is_some())
        };
        assert_eq!(is_noted(false), (false, true), "nobody joined it");
        start.state.store(state::after(0, state::JOINABLE), Ordering::Relaxed);
        assert_eq!(is_noted(true), (false, false), "it is joined, and was about to be noted");
        start.give_back();
        // As many calls as may wait. The next one forgets the block only after it has joined.
        let waiting: Vec<usize> = (0..MOST_JOINS)
            .map(|i| {
                let kept = Kept { address: 0x20_0000 + i * 512, bytes: 304 };
                TRACKER.note_kept(kept.address, kept.bytes, 0);
                tries_to_join(THREAD, Some(kept))
            })
            .collect();
        assert_eq!(tries(true, |_| ()), (false, None));
        // The thread is cancelled, so none of the threads is joined.
        thread_ends();
        let is_noted = |i: usize| TRACKER.forget(0x20_0000 + i * 512).is_some();
        assert!((0..waiting.len()).all(is_noted) && tries(false, |_| ()) == (true, Some(304)));
    }
}
