//! Per-thread state: counters, the remembered stack, scratch for the walk.
//!
//! The thread-local storage of this library is two words, of the initial-exec model: the state itself is mapped
//! memory, so that no thread's stack shrinks and nothing is allocated lazily inside a hook. States are never unmapped; a
//! thread that ends gives its state back for the next one, counters included, so the sum over all states is the process's total.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence};

use crate::capture::Scratch;
use crate::sys;

/// Epochs whose live counts are kept apart in a thread's state.
pub const RECENT_EPOCHS: usize = 8;

core::arch::global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".p2align 3",
    ".hidden memgate_thread_words",
    ".type memgate_thread_words,@object",
    ".size memgate_thread_words,16",
    ".globl memgate_thread_words",
    "memgate_thread_words:",
    ".zero 16",
    ".text",
);

/// The two words of thread-local storage.
#[repr(C)]
struct ThreadWords {
    state: *mut ThreadState,
    /// Depth of code whose allocations are the agent's own doing.
    inside: u32,
    /// 1: the thread is past its last destructor and must not take a state for itself again.
    ended: u32,
}

#[inline(always)]
fn words() -> *mut ThreadWords {
    let at: *mut ThreadWords;
    // SAFETY: initial-exec access as the psABI writes it; the symbol is 16 zeroed bytes in this module's TLS block.
    unsafe {
        core::arch::asm!(
            "mov {0}, qword ptr [rip + memgate_thread_words@GOTTPOFF]",
            "add {0}, fs:[0]",
            out(reg) at, options(pure, readonly, nostack)
        );
    }
    at
}

/// Counters of one thread. Only the owning thread writes, with plain stores; anybody reads.
#[derive(Default)]
pub struct ThreadCounters {
    /// Successful allocations.
    pub allocations: AtomicU64,
    /// Frees of tracked allocations.
    pub frees: AtomicU64,
    /// Requested bytes allocated.
    pub allocated_bytes: AtomicU64,
    /// Requested bytes freed.
    pub freed_bytes: AtomicU64,
    /// Frees of unknown pointers.
    pub unknown_frees: AtomicU64,
    /// Stacks that did not reach their root.
    pub truncated: AtomicU64,
    /// Live allocations per recent epoch, modulo [`RECENT_EPOCHS`].
    pub balance: [AtomicI64; RECENT_EPOCHS],
    /// What was published of the first four.
    pub published: [AtomicU64; 4],
}

/// Adds to a counter that only this thread writes.
#[inline(always)]
pub fn bump(counter: &AtomicU64, by: u64) -> u64 {
    let now = counter.load(Ordering::Relaxed).wrapping_add(by);
    counter.store(now, Ordering::Relaxed);
    now
}

/// State of one thread.
#[repr(C)]
pub struct ThreadState {
    next_of_all: *mut ThreadState,
    next_free: AtomicPtr<ThreadState>,
    busy: AtomicU32,
    /// Counters.
    pub counters: ThreadCounters,
    scratch: UnsafeCell<Scratch>,
}

/// All states of the process. One lives in a static of the agent.
pub struct ThreadStates {
    all: AtomicPtr<ThreadState>,
    /// tag 16 | address 48: the tag makes a state that left and came back distinguishable (ABA).
    free: AtomicU64,
}

const ADDRESS: u64 = (1 << 48) - 1;

impl ThreadStates {
    /// No states.
    #[must_use]
    pub const fn new() -> Self {
        Self { all: AtomicPtr::new(ptr::null_mut()), free: AtomicU64::new(0) }
    }

    /// Runs `work` with the calling thread's state. A thread that is inside already (a signal handler that allocates) or
    /// past its end works with a spare one. `None`: no memory. `first` runs when the thread takes its state.
    #[inline(always)]
    pub fn with<R>(&self, first: fn(), work: impl FnOnce(&ThreadState, &mut Scratch) -> R) -> Option<R> {
        // SAFETY: this thread's words.
        let mut own = unsafe { (*words()).state };
        if own.is_null() {
            own = self.adopt(first)?;
        }
        // SAFETY: states are never unmapped.
        let state = unsafe { &*own };
        if state.busy.load(Ordering::Relaxed) != 0 {
            return self.with_spare(work);
        }
        state.busy.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: `busy` keeps every other user of this thread out; other threads never touch the scratch.
        let result = work(state, unsafe { &mut *state.scratch.get() });
        compiler_fence(Ordering::SeqCst);
        state.busy.store(0, Ordering::Relaxed);
        // SAFETY: this thread's words.
        if unsafe { (*words()).ended } != 0 {
            self.release();
        }
        Some(result)
    }

    /// Gives the calling thread's state back; `ended`: for good, later events use spare states.
    pub fn thread_ends(&self) {
        // SAFETY: this thread's words.
        unsafe { (*words()).ended = 1 };
        self.release();
    }

    /// In a forked child: the states of threads that do not exist here stay unused, this thread is not inside anything.
    pub fn after_fork(&self) {
        // SAFETY: this thread's words.
        let own = unsafe { (*words()).state };
        // SAFETY: states are never unmapped.
        if let Some(state) = unsafe { own.as_ref() } {
            state.busy.store(0, Ordering::Relaxed);
        }
    }

    /// Every state there ever was.
    pub fn each(&self, mut visit: impl FnMut(&ThreadState)) {
        let mut at = self.all.load(Ordering::Acquire);
        // SAFETY: states are never unmapped.
        while let Some(state) = unsafe { at.as_ref() } {
            visit(state);
            at = state.next_of_all;
        }
    }

    #[cold]
    #[inline(never)]
    fn adopt(&self, first: fn()) -> Option<*mut ThreadState> {
        let state = self.take()?;
        // SAFETY: this thread's words.
        unsafe { (*words()).state = state };
        // SAFETY: this thread's words.
        if unsafe { (*words()).ended } == 0 {
            let _inside = Inside::enter();
            first();
        }
        Some(state)
    }

    #[cold]
    #[inline(never)]
    fn release(&self) {
        // SAFETY: this thread's words.
        let own = unsafe { core::mem::replace(&mut (*words()).state, ptr::null_mut()) };
        if !own.is_null() {
            self.give(own);
        }
    }

    #[cold]
    #[inline(never)]
    fn with_spare<R>(&self, work: impl FnOnce(&ThreadState, &mut Scratch) -> R) -> Option<R> {
        let spare = self.take()?;
        // SAFETY: states are never unmapped, and a taken one belongs to its taker.
        let state = unsafe { &*spare };
        // SAFETY: as above.
        let result = work(state, unsafe { &mut *state.scratch.get() });
        self.give(spare);
        Some(result)
    }

    fn take(&self) -> Option<*mut ThreadState> {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let at = (head & ADDRESS) as *mut ThreadState;
            // SAFETY: states are never unmapped.
            let Some(state) = (unsafe { at.as_ref() }) else { break };
            let next = state.next_free.load(Ordering::Relaxed) as u64;
            let tagged = next | (head & !ADDRESS).wrapping_add(ADDRESS + 1);
            match self.free.compare_exchange_weak(head, tagged, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    state.busy.store(0, Ordering::Relaxed);
                    return Some(at);
                }
                Err(now) => head = now,
            }
        }
        // SAFETY: all-zero is a valid ThreadState.
        let new = unsafe { sys::map_zeroed::<ThreadState>() }?.as_ptr();
        let mut head = self.all.load(Ordering::Relaxed);
        loop {
            // SAFETY: nobody else knows the new state yet.
            unsafe { (*new).next_of_all = head };
            match self.all.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(new),
                Err(now) => head = now,
            }
        }
    }

    fn give(&self, state: *mut ThreadState) {
        let mut head = self.free.load(Ordering::Relaxed);
        loop {
            // SAFETY: states are never unmapped; this one belongs to the caller.
            unsafe { (*state).next_free.store((head & ADDRESS) as *mut ThreadState, Ordering::Relaxed) };
            let tagged = (state as u64) | (head & !ADDRESS).wrapping_add(ADDRESS + 1);
            match self.free.compare_exchange_weak(head, tagged, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

impl Default for ThreadStates {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: the counters are atomics, the list pointers are written before publication, the scratch is guarded by `busy`.
unsafe impl Sync for ThreadState {}

/// While it lives, allocations of this thread are the agent's own doing and are not recorded.
pub struct Inside(());

impl Inside {
    /// Begins.
    #[must_use]
    pub fn enter() -> Self {
        // SAFETY: this thread's words.
        unsafe { (*words()).inside += 1 };
        Self(())
    }

    /// Runs `work` as if this thread were the guest's own.
    pub fn suspended<R>(work: impl FnOnce() -> R) -> R {
        // SAFETY: this thread's words.
        let depth = unsafe { core::mem::replace(&mut (*words()).inside, 0) };
        let result = work();
        // SAFETY: as above.
        unsafe { (*words()).inside = depth };
        result
    }

    /// Is this thread inside?
    #[inline(always)]
    #[must_use]
    pub fn now() -> bool {
        // SAFETY: this thread's words.
        unsafe { (*words()).inside != 0 }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // SAFETY: this thread's words.
        unsafe { (*words()).inside -= 1 };
    }
}

#[cfg(test)]
mod tests {
    use std::boxed::Box;

    use super::*;

    fn states() -> &'static ThreadStates {
        Box::leak(Box::new(ThreadStates::new()))
    }

    #[test]
    fn a_state_is_reused_and_its_counts_stay() {
        let states = states();
        for _ in 0..50 {
            std::thread::spawn(|| {
                states.with(|| {}, |s, _| bump(&s.counters.allocations, 1)).unwrap();
                states.thread_ends();
                // What comes after the end works with a state of its own that is given back at once.
                states.with(|| {}, |s, _| bump(&s.counters.allocations, 1)).unwrap();
            })
            .join()
            .unwrap();
        }
        let (mut count, mut sum) = (0, 0);
        states.each(|s| {
            count += 1;
            sum += s.counters.allocations.load(Ordering::Relaxed);
        });
        assert_eq!(sum, 100);
        assert_eq!(count, 1);
    }

    #[test]
    fn re_entry_gets_a_spare_state() {
        let states = states();
        std::thread::spawn(|| {
            let outer = states.with(
                || {},
                |s, _| {
                    let inner = states.with(|| {}, |t, _| ptr::from_ref(t)).unwrap();
                    assert_ne!(inner, ptr::from_ref(s));
                },
            );
            assert!(outer.is_some());
            states.thread_ends();
        })
        .join()
        .unwrap();
    }
}
