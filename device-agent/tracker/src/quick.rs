//! The quick path for usual events, an allocation or a free. The only call is the one that takes a stack.
//!
//! The quick path records nothing for an unusual event. The event then takes the full path, by
//! [`Tracker::record_unusual_alloc`] and [`Tracker::record_unusual_free`]. Unusual events are those at a thread's
//! beginning and end, events inside other events, events that publish counters, samples, large blocks, addresses that
//! fit into no word, memory that is not mapped yet, blocks whose free was not seen, and, while stacks are off, the free
//! of a block that has a stack.
#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "counters that no process lives long enough to overflow"
    )
)]

use crate::capture::{self, Registers};
use crate::counters::bump;
use crate::radix::Slot;
use crate::sync::Ordering;
use crate::sys::without_mark;
use crate::table::{Entry, MAX_EPOCH};
use crate::thread::{Inside, ThreadState};
use crate::tracker::{LARGE, PUBLISH_MASK, Removed, StopReason, Tracker};

impl Tracker {
    /// Records an allocation of `size` bytes while stacks are off. Returns false if it did nothing.
    #[inline(always)]
    pub fn record_alloc_quickly(&self, address: usize, size: u64) -> bool {
        let stack = self.no_stack.load(Ordering::Relaxed);
        let now = self.epoch.load(Ordering::Relaxed);
        let entry = Entry { size, stack, epoch: now & MAX_EPOCH };
        if stack == 0 || size >= LARGE {
            return false;
        }
        let Some(place) = self.table.narrow_place(without_mark(address), entry.epoch) else { return false };
        self.note_quickly(size, now, |_| {
            place.store(entry.narrow_bits() as u32, Ordering::Release);
            Some(true)
        })
    }

    /// Records an allocation and the stack of the caller with these registers. Returns false if it did nothing.
    #[inline(always)]
    pub fn record_alloc_with_stack_quickly(&self, address: usize, size: u64, at: Registers) -> bool {
        let now = self.epoch.load(Ordering::Relaxed);
        let entry = Entry { size, stack: 0, epoch: now & MAX_EPOCH };
        let takes_stacks = self.interval().is_none() && self.stopped().is_none() && !self.takes_none();
        if !takes_stacks || size >= LARGE {
            return false;
        }
        let Some(place) = self.table.wide_place(without_mark(address), entry.epoch) else { return false };
        self.note_quickly(size, now, |state| {
            let stack = self.stack_at(at, state);
            // A test may have ended meanwhile, which begins a new epoch.
            if self.epoch.load(Ordering::Relaxed) != now {
                return None;
            }
            if stack == 0 {
                self.stop(StopReason::Stacks);
            } else {
                place.store(Entry { stack, ..entry }.bits(), Ordering::Release);
            }
            Some(stack != 0)
        })
    }

    /// Runs `note` in an event, and counts the allocation if `note` recorded it (`Some(true)`). Returns false if
    /// nothing was done, or if `note` left the event to the full path (`None`).
    #[inline(always)]
    fn note_quickly(&self, size: u64, epoch: u32, note: impl FnOnce(&ThreadState) -> Option<bool>) -> bool {
        let Some(state) = self.threads.at_rest().filter(|_| !Inside::now()) else { return false };
        let counters = &state.counters;
        state.begin();
        let count = counters.allocations.load(Ordering::Relaxed) + 1;
        let noted = if count & PUBLISH_MASK == 0 { None } else { note(state) };
        if noted == Some(true) {
            bump(&counters.allocated_bytes, size);
            counters.recent.add_born(epoch);
            counters.allocations.store(count, Ordering::Release);
        }
        state.end();
        noted.is_some()
    }

    /// Takes a stack. Called after an event of this thread has begun.
    #[inline(always)]
    fn stack_at(&self, at: Registers, state: &ThreadState) -> u32 {
        // SAFETY: an event of this thread has begun, which keeps every other user of it out; other threads never
        // touch the scratch.
        let scratch = unsafe { &mut *state.scratch.get() };
        let stack = capture::capture(at.pc, at.sp, at.fp, scratch, &self.captures, &state.counters);
        #[cfg(feature = "crosscheck")]
        if stack != 0 {
            crate::crosscheck::captured(&self.captures, at, stack);
        }
        stack
    }

    /// Like [`Tracker::record_free`]. Returns `None` if it did nothing.
    #[inline(always)]
    pub fn record_free_quickly(&self, address: usize) -> Removed {
        if self.interval().is_some() {
            return None;
        }
        let state = self.threads.at_rest()?;
        let address = without_mark(address);
        if self.takes_none() {
            let (place, entry) = self.table.filled_narrow(address)?;
            self.forget_quickly(state, place, entry)
        } else {
            let (place, entry) = self.table.filled_wide(address)?;
            self.forget_quickly(state, place, entry)
        }
    }

    #[inline(always)]
    fn forget_quickly(&self, state: &ThreadState, place: &impl Slot, entry: Entry) -> Removed {
        let counters = &state.counters;
        state.begin();
        let count = counters.frees.load(Ordering::Relaxed) + 1;
        if count & PUBLISH_MASK == 0 {
            state.end();
            return None;
        }
        place.store(0, Ordering::Relaxed);
        counters.frees.store(count, Ordering::Release);
        bump(&counters.freed_bytes, entry.size);
        if let Some(epoch) = self.recent(entry) {
            counters.recent.add_died(epoch);
        }
        state.end();
        Some(entry)
    }

    /// Starts timing the next event, if that event is to be timed. [`Timing::end`] stops it.
    #[inline(always)]
    pub fn begin_timing(&self) -> Option<Timing<'_>> {
        let state = self.threads.at_timed_event()?;
        state.begin_timing();
        Some(Timing(state))
    }
}

/// A running timing of an event.
pub struct Timing<'a>(&'a ThreadState);

impl Timing<'_> {
    /// Ends the timing: the event is over.
    #[inline(always)]
    pub fn end(self) {
        self.0.end_timing();
    }

    /// The event takes the full path, which times it again.
    #[inline(always)]
    pub fn goes_the_long_way(self) {
        self.0.time_again();
    }
}
