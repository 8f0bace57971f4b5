//! Where descriptors were opened and threads started: the stack of the call, by the number of the
//! descriptor or thread.
//!
//! Data flow: an exported function of the agent calls the C library's, then [`opened`] with
//! the result; before a descriptor is closed, [`closes`] forgets it. A new thread passes through
//! [`begun`]. At a boundary the session asks for what changed since the one before. `open`, `dup2`
//! and `close` are called in signal handlers and between `vfork` and `exec`: nothing here locks,
//! allocates or changes `errno`, and a child that shares this memory changes nothing.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use memgate_ffi::process;
use memgate_tracker::capture::Registers;
use memgate_tracker::sys::{Errno, noted_thread_id};
use memgate_tracker::thread::Inside;
use memgate_wire::Handle;

use crate::recording::{self, TRACKER};

/// Descriptors with a larger number are not noted. These tables are small, because a guest that
/// locks all its memory locks them, too.
pub const MOST_DESCRIPTORS: usize = 1 << 12;
/// Threads that are noted between two boundaries: the last ones.
const MOST_THREADS: usize = 1024;
/// Threads that have been asked for and have not begun.
const MOST_STARTS: usize = 64;

/// The stack that opened each descriptor; 0: not known.
pub static DESCRIPTORS: [AtomicU32; MOST_DESCRIPTORS] = [const { AtomicU32::new(0) }; MOST_DESCRIPTORS];
/// One more than the largest descriptor that was noted.
static HIGHEST: AtomicU32 = AtomicU32::new(0);

/// Threads that began, in this order: `id 32 | stack 32`.
static THREADS: [AtomicU64; MOST_THREADS] = [const { AtomicU64::new(0) }; MOST_THREADS];
static BEGUN: AtomicU32 = AtomicU32::new(0);
/// Threads that were asked for.
static ASKED: AtomicU32 = AtomicU32::new(0);

/// What a new thread is to run, and where it was started.
pub struct Start {
    taken: AtomicU32,
    /// How many are through of two: the thread, and who started it.
    passed: AtomicU32,
    /// See [`state`].
    state: AtomicU32,
    /// The thread, as soon as one of both knows.
    thread: AtomicUsize,
    /// See [`Kept`].
    kept: (AtomicUsize, AtomicU64),
    /// Where the C library writes which thread it is.
    place: AtomicUsize,
    stack: AtomicU32,
    routine: AtomicUsize,
    argument: AtomicUsize,
}

static STARTS: [Start; MOST_STARTS] = [const { Start::new() }; MOST_STARTS];

impl Start {
    const fn new() -> Self {
        Self {
            taken: AtomicU32::new(0),
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

    /// Where the C library has written which thread it is. `None`: the thread runs, knows that itself, and may have freed
    /// the place.
    #[must_use]
    pub fn place(&self) -> Option<usize> {
        (self.passed.load(Ordering::Acquire) == 0).then(|| self.place.load(Ordering::Relaxed))
    }

    /// False: it was before.
    fn becomes(&self, state: u32) -> bool {
        self.state.compare_exchange(state::JOINABLE, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// One of both is through, and knows which thread it is, unless the other one told before. The second is the last that
    /// needs this.
    fn passes(&self, thread: Option<usize>) {
        if let Some(thread) = thread {
            self.thread.store(thread, Ordering::Release);
        }
        if self.passed.fetch_add(1, Ordering::AcqRel) == 1 {
            self.note();
            self.give_back();
        }
    }

    /// Until somebody joins or detaches it, what the C library allocated for it, or had kept, is its owner's: a thread
    /// that nobody joins leaks it. Neither the thread nor who started it went on before this, but one of both may do
    /// so meanwhile, and give the thread up.
    fn note(&self) {
        let (address, bytes) = (self.kept.0.load(Ordering::Relaxed), self.kept.1.load(Ordering::Relaxed));
        if address == 0 || self.state.load(Ordering::Acquire) != state::JOINABLE {
            return;
        }
        let is_new = TRACKER.note_kept(address, bytes, self.stack.load(Ordering::Relaxed));
        if !self.becomes(state::NOTED) && is_new {
            TRACKER.forget(address);
        }
    }

    fn give_back(&self) {
        self.taken.store(0, Ordering::Release);
    }
}

/// What is known of a thread that was asked for.
mod state {
    /// Somebody has to join or to detach it.
    pub(super) const JOINABLE: u32 = 0;
    /// That is noted.
    pub(super) const NOTED: u32 = 1;
    /// Nobody has to, or somebody has begun to.
    pub(super) const GIVEN_UP: u32 = 2;
}

/// A block that the C library allocates for a thread, and keeps for others when that has ended.
#[derive(Clone, Copy)]
pub struct Kept {
    /// Its address.
    pub address: usize,
    /// Its bytes.
    pub bytes: u64,
}

/// A thread that is asked for.
pub struct Asked {
    /// See [`Start::place`].
    pub place: usize,
    /// Nobody will join it.
    pub is_detached: bool,
    /// What it is to run.
    pub routine: usize,
    /// With this.
    pub argument: usize,
}

/// A routine and its argument, in the two registers that a function returns.
#[repr(C)]
pub struct Routine {
    routine: usize,
    argument: usize,
}

/// Is this a thread of this process, and not a child that shares its memory (`vfork`)? Such a child
/// runs with its parent's control block. `None`: nobody can tell. The C library is none that we know, or the kernel has
/// no such futexes, or somebody's filter refuses them.
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

/// A descriptor was opened by the caller whose registers these are.
pub fn opened(descriptor: c_int, at: Registers) {
    let Some(cell) = cell(descriptor).filter(|_| !Inside::now() && is_ours() == Some(true)) else { return };
    cell.store(TRACKER.stack_of(at), Ordering::Relaxed);
    HIGHEST.fetch_max(descriptor.cast_unsigned().wrapping_add(1), Ordering::Relaxed);
}

/// A descriptor is about to be closed. Before it is: after that, it may be another thread's new
/// one.
pub fn closes(descriptor: c_int) {
    let is_noted = |cell: &&AtomicU32| cell.load(Ordering::Relaxed) != 0;
    // Where nobody can tell, no stack is better than a wrong one.
    if let Some(cell) = cell(descriptor).filter(is_noted).filter(|_| is_ours() != Some(false)) {
        cell.store(0, Ordering::Relaxed);
    }
}

/// A thread is asked for. `None`: it cannot be noted, and begins as it would without us.
pub fn starts(thread: &Asked, at: Registers) -> Option<&'static Start> {
    if Inside::now() {
        return None;
    }
    ASKED.fetch_add(1, Ordering::Relaxed);
    let take =
        |start: &&Start| start.taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let start = STARTS.iter().find(take)?;
    start.stack.store(TRACKER.stack_of(at), Ordering::Relaxed);
    let state = if thread.is_detached { state::GIVEN_UP } else { state::JOINABLE };
    start.passed.store(0, Ordering::Relaxed);
    start.state.store(state, Ordering::Relaxed);
    start.thread.store(0, Ordering::Relaxed);
    start.kept.0.store(0, Ordering::Relaxed);
    start.place.store(thread.place, Ordering::Relaxed);
    start.routine.store(thread.routine, Ordering::Relaxed);
    start.argument.store(thread.argument, Ordering::Relaxed);
    Some(start)
}

/// It was made.
pub fn started(start: &Start, thread: Option<usize>) {
    start.passes(thread);
}

/// A thread is about to be joined or detached: nobody has to free any more what the C library allocated for it.
pub fn given_up(thread: usize, kept: Option<Kept>) {
    let is_it = |start: &&Start| {
        start.thread.load(Ordering::Acquire) == thread && start.taken.load(Ordering::Acquire) != 0
    };
    if let Some(start) = STARTS.iter().find(is_it) {
        start.becomes(state::GIVEN_UP);
    }
    if let Some(kept) = kept {
        was_kept(kept.address);
    }
}

/// This block belonged to a thread that is given up.
pub fn was_kept(address: usize) {
    if !Inside::now() {
        TRACKER.forget(address);
    }
}

/// The thread that was asked for could not be made.
pub fn start_failed(start: &Start) {
    start.give_back();
}

/// A new thread begins: what it is to run.
pub fn begun(start: &Start, thread: usize, kept: Option<Kept>) -> Routine {
    let routine = Routine {
        routine: start.routine.load(Ordering::Relaxed),
        argument: start.argument.load(Ordering::Relaxed),
    };
    let stack = start.stack.load(Ordering::Relaxed);
    if let Some(kept) = kept {
        start.kept.0.store(kept.address, Ordering::Relaxed);
        start.kept.1.store(kept.bytes, Ordering::Relaxed);
        if start.state.load(Ordering::Relaxed) == state::GIVEN_UP {
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

/// How many threads were asked for: more begin, or have begun, than [`Told`] knows of.
pub(crate) fn asked() -> u32 {
    ASKED.load(Ordering::Relaxed)
}

/// In a forked child: threads that were asked for do not begin here.
pub(crate) fn after_fork() {
    STARTS.iter().for_each(Start::give_back);
}

/// What was reported last.
#[derive(Default)]
pub(crate) struct Told {
    descriptors: Vec<u32>,
    threads: u32,
}

impl Told {
    /// Of a process that begins now: a forked child has its parent's descriptors and not its
    /// threads.
    pub(crate) fn new() -> Self {
        Self { descriptors: Vec::new(), threads: BEGUN.load(Ordering::Relaxed) }
    }

    /// At most so many numbers there are to tell.
    pub(crate) fn most(&self) -> usize {
        (HIGHEST.load(Ordering::Relaxed) as usize)
            .wrapping_add(BEGUN.load(Ordering::Relaxed).wrapping_sub(self.threads) as usize)
    }

    /// Descriptors whose stack differs from what was reported last, and threads that began since.
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
