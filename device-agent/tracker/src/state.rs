//! The state of one thread.
#![cfg_attr(
    not(test),
    expect(clippy::arithmetic_side_effects, reason = "a small number of a thread, in some allocations")
)]

use core::cell::UnsafeCell;
use core::sync::atomic::compiler_fence;

use crate::capture::Scratch;
use crate::cost::ticks;
use crate::sampling::Countdown;
use crate::sync::{AtomicPtr, AtomicU32, Ordering, Zeroed};
use crate::thread_counters::ThreadCounters;

/// State of one thread. The fields that every event needs come first.
#[repr(C)]
pub struct ThreadState {
    /// [`FREE`], [`BUSY`], [`TIMED`], or a larger value: the number of events before the timed one, plus [`TIMED`].
    pub(crate) busy: AtomicU32,
    /// Value of `busy` after the present event.
    pub(crate) next_mark: AtomicU32,
    /// Counters.
    pub counters: ThreadCounters,
    /// Countdown to the next sample.
    pub(crate) countdown: Countdown,
    pub(crate) next_of_all: AtomicPtr<ThreadState>,
    pub(crate) next_free: AtomicPtr<ThreadState>,
    pub(crate) scratch: UnsafeCell<Scratch>,
}

/// The thread is in no event.
pub(crate) const FREE: u32 = 0;
/// The thread is in an event.
pub(crate) const BUSY: u32 = 1;
/// The thread is in no event, and its next event is timed, see [`crate::cost`].
pub(crate) const TIMED: u32 = 2;
/// The sample is one of this many events (as a power of two) after the event that requested it.
const DRAWN_BITS: u32 = 4;

impl ThreadState {
    /// Begins an event of a thread that is in no event and whose next event is not timed. It takes no closure, because
    /// that might become a call.
    #[inline(always)]
    pub(crate) fn begin(&self) {
        self.busy.store(BUSY, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    /// Ends the event.
    #[inline(always)]
    pub(crate) fn end(&self) {
        compiler_fence(Ordering::SeqCst);
        self.busy.store(FREE, Ordering::Relaxed);
    }

    /// Starts timing the coming event, which is otherwise a normal event.
    #[inline(always)]
    pub(crate) fn begin_timing(&self) {
        self.next_mark.store(FREE, Ordering::Relaxed);
        self.busy.store(FREE, Ordering::Relaxed);
        self.counters.timed.begin(&self.counters.allocations);
    }

    /// Ends the timed event.
    #[inline(always)]
    pub(crate) fn end_timing(&self) {
        if self.counters.timed.end(ticks(), &self.counters.allocations) {
            self.time_again();
        }
    }

    /// Marks the coming event as timed.
    #[inline(always)]
    pub(crate) fn time_again(&self) {
        self.next_mark.store(TIMED, Ordering::Relaxed);
        self.busy.store(TIMED, Ordering::Relaxed);
    }

    /// Marks one of the next events as timed. Only the owning thread calls this, during its event number `event`.
    #[cold]
    #[inline(never)]
    pub fn draw(&self, event: u64) {
        // Multiples of the golden ratio spread evenly, for any sequence of event numbers.
        let drawn = event.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - DRAWN_BITS);
        // At least one event comes before it, which loads the code for timed events into the cache.
        self.next_mark.store(TIMED + 1 + drawn as u32, Ordering::Relaxed);
    }

    /// Marks the next event as timed. Only the owning thread calls this, during an event.
    pub(crate) fn time_next(&self) {
        self.next_mark.store(TIMED, Ordering::Relaxed);
    }
}

// SAFETY: all-zero is a state that belongs to no thread and remembers nothing.
unsafe impl Zeroed for ThreadState {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self {
            busy: Zeroed::zeroed(),
            next_mark: Zeroed::zeroed(),
            counters: ThreadCounters::default(),
            countdown: Countdown::default(),
            next_of_all: Zeroed::zeroed(),
            next_free: Zeroed::zeroed(),
            // SAFETY: plain numbers.
            scratch: unsafe { core::mem::zeroed() },
        }
    }
}

// SAFETY: the counters are atomics, the list pointers are written before publication, the scratch
// is guarded by `busy`.
unsafe impl Sync for ThreadState {}
