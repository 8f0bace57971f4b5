//! The states of all threads. Each has the thread's counters, the remembered stack, and scratch memory for the walk.
//!
//! A thread has two words of this library ([`crate::words`]). The state itself is mapped memory, so that no thread's
//! stack shrinks and nothing is allocated lazily inside a hook. States are never unmapped. A thread that ends returns
//! its state, with its counters, for the next thread. So the sum over all states is the process's total.
#![cfg_attr(
    not(test),
    expect(clippy::arithmetic_side_effects, reason = "counters of one thread, in every allocation")
)]

use core::ptr;
use core::sync::atomic::compiler_fence;

use crate::capture::Scratch;
use crate::cost::ticks;
pub use crate::counters::{RECENT_EPOCHS, RecentCounts, bump};
pub use crate::state::ThreadState;
use crate::state::{BUSY, FREE, TIMED};
use crate::sync::{self, AtomicPtr, AtomicU64, Ordering, Use, Zeroed, sized, zero_constructor};
pub use crate::thread_counters::ThreadCounters;
use crate::words;

/// All states of the process. One lives in a static of the agent.
pub struct ThreadStates {
    all: AtomicPtr<ThreadState>,
    /// tag 16 | address 48. The tag counts the returned states, so that a state that was taken and returned meanwhile
    /// is recognized (ABA).
    free: AtomicU64,
}

const ADDRESS: u64 = (1 << 48) - 1;

impl ThreadStates {
    zero_constructor! {
        /// No states.
    }

    /// The calling thread's state, if it has one already.
    #[inline(always)]
    pub(crate) fn own(&self) -> Option<&ThreadState> {
        // SAFETY: states are never unmapped.
        unsafe { words::state().as_ref() }
    }

    /// The calling thread's state, if it has one, is in no event, and its next event is not timed.
    #[inline(always)]
    pub(crate) fn at_rest(&self) -> Option<&ThreadState> {
        self.own().filter(|own| own.busy.load(Ordering::Relaxed) == FREE)
    }

    /// The calling thread's state, if the coming event is to be timed.
    #[inline(always)]
    pub(crate) fn at_timed_event(&self) -> Option<&ThreadState> {
        self.own().filter(|own| own.busy.load(Ordering::Relaxed) == TIMED)
    }

    /// Runs `work` with the calling thread's state. A thread that is already in an event (a signal handler that
    /// allocates) or past its end uses a spare state. `None`: no memory. `first` runs when the thread takes its state.
    #[inline(always)]
    pub fn with<R>(&self, first: fn(), work: impl FnOnce(&ThreadState, &mut Scratch) -> R) -> Option<R> {
        let mut own = words::state();
        if own.is_null() {
            own = self.adopt(first)?;
        }
        // SAFETY: states are never unmapped.
        let mark = unsafe { &*own }.busy.load(Ordering::Relaxed);
        let at = if mark == FREE { own } else { self.special_begins(own, mark)? };
        // SAFETY: states are never unmapped, and a taken one belongs to its taker.
        let state = unsafe { &*at };
        state.busy.store(BUSY, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // One call for all cases, because a second one would add a frame to the guest's stack.
        // SAFETY: `busy` keeps every other user of this thread out; other threads never touch the
        // scratch.
        let result = work(state, unsafe { &mut *state.scratch.get() });
        compiler_fence(Ordering::SeqCst);
        state.busy.store(state.next_mark.load(Ordering::Relaxed), Ordering::Relaxed);
        if mark != FREE {
            // The clock is read here and not in the call, because the called code is rarely in the cache.
            self.special_ends(own, at, ticks());
        } else if words::ended() {
            self.release();
        }
        Some(result)
    }

    /// Begins a special event: its thread is already in another event, or this event is timed, or one of the next
    /// events is.
    #[cold]
    #[inline(never)]
    fn special_begins(&self, own: *mut ThreadState, mark: u32) -> Option<*mut ThreadState> {
        if mark == BUSY {
            return self.take();
        }
        // SAFETY: states are never unmapped.
        let state = unsafe { &*own };
        if mark == TIMED {
            state.next_mark.store(FREE, Ordering::Relaxed);
            state.counters.timed.begin(&state.counters.allocations);
        } else {
            state.next_mark.store(mark - 1, Ordering::Relaxed);
        }
        Some(own)
    }

    #[cold]
    #[inline(never)]
    fn special_ends(&self, own: *mut ThreadState, at: *mut ThreadState, now: u64) {
        if at != own {
            self.give(at);
            return;
        }
        // SAFETY: states are never unmapped.
        let state = unsafe { &*own };
        if state.counters.timed.end(now, &state.counters.allocations) {
            state.next_mark.store(TIMED, Ordering::Relaxed);
            state.busy.store(TIMED, Ordering::Relaxed);
        }
        if words::ended() {
            self.release();
        }
    }

    /// Returns the calling thread's state permanently. Later events use spare states.
    pub fn thread_ends(&self) {
        words::set_ended();
        self.release();
    }

    /// In a forked child: states of threads that do not exist here stay unused, and this thread is in no event.
    pub fn after_fork(&self) {
        let own = words::state();
        // SAFETY: states are never unmapped.
        if let Some(state) = unsafe { own.as_ref() } {
            state.busy.store(FREE, Ordering::Relaxed);
        }
    }

    /// Visits every state that was ever made.
    pub fn each(&self, mut visit: impl FnMut(&ThreadState)) {
        let mut at = self.all.load(Ordering::Acquire);
        // SAFETY: states are never unmapped.
        while let Some(state) = unsafe { at.as_ref() } {
            visit(state);
            at = state.next_of_all.load(Ordering::Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn adopt(&self, first: fn()) -> Option<*mut ThreadState> {
        let state = self.take()?;
        words::set_state(state);
        if !words::ended() {
            let _inside = Inside::enter();
            first();
        }
        Some(state)
    }

    #[cold]
    #[inline(never)]
    fn release(&self) {
        let own = words::state();
        words::set_state(ptr::null_mut());
        if !own.is_null() {
            self.give(own);
        }
    }

    #[cold]
    #[inline(never)]
    fn take(&self) -> Option<*mut ThreadState> {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let at = (head & ADDRESS) as *mut ThreadState;
            // SAFETY: states are never unmapped.
            let Some(state) = (unsafe { at.as_ref() }) else { break };
            let next = state.next_free.load(Ordering::Relaxed) as u64;
            let tagged = next | (head & !ADDRESS);
            match self.free.compare_exchange_weak(head, tagged, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    state.busy.store(FREE, Ordering::Relaxed);
                    state.next_mark.store(FREE, Ordering::Relaxed);
                    return Some(at);
                }
                Err(now) => head = now,
            }
        }
        let new = sync::map::<ThreadState, ()>(0, Use::Sparse)?.as_ptr();
        // In a model no event is timed, because nothing there depends on timing.
        let mark = sized(TIMED, FREE);
        // SAFETY: fresh memory.
        unsafe { (*new).busy.store(mark, Ordering::Relaxed) };
        // SAFETY: fresh memory.
        unsafe { (*new).next_mark.store(mark, Ordering::Relaxed) };
        let mut head = self.all.load(Ordering::Relaxed);
        loop {
            // SAFETY: fresh memory.
            unsafe { (*new).next_of_all.store(head, Ordering::Relaxed) };
            match self.all.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(new),
                Err(now) => head = now,
            }
        }
    }

    #[cold]
    #[inline(never)]
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

// SAFETY: all-zero means no states.
unsafe impl Zeroed for ThreadStates {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self { all: Zeroed::zeroed(), free: Zeroed::zeroed() }
    }
}

/// While this value lives, allocations of this thread belong to the agent and are not recorded.
pub struct Inside(());

impl Inside {
    /// Enters the agent's own work.
    #[must_use]
    pub fn enter() -> Self {
        words::set_inside(words::inside() + 1);
        Self(())
    }

    /// Runs `work` as if this thread belonged to the guest.
    pub fn suspended<R>(work: impl FnOnce() -> R) -> R {
        let depth = words::inside();
        words::set_inside(0);
        let result = work();
        words::set_inside(depth);
        result
    }

    /// Is this thread inside?
    #[inline(always)]
    #[must_use]
    pub fn now() -> bool {
        words::inside() != 0
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        words::set_inside(words::inside() - 1);
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
                // Events after the thread's end use a spare state, which is returned at once.
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
