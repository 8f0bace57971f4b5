//! The usual event, in few instructions and without a call but that for a stack: an allocation and a free.
//!
//! What is unusual in any way is not done here, and nothing of it has happened then: it goes the long way, by
//! [`Tracker::record_unusual_alloc`] and [`Tracker::record_unusual_free`]. Unusual are events of a thread's beginning
//! and end, inside other events, those that publish counters, samples, addresses and sizes that no slot holds, memory
//! that is not mapped yet, and blocks whose free was not seen.
#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "counters that no process lives long enough to overflow"
    )
)]

use crate::capture::{self, Registers};
use crate::counters::bump;
use crate::sync::Ordering;
use crate::sys::without_mark;
use crate::table::{Entry, MAX_EPOCH};
use crate::thread::{Inside, ThreadState};
use crate::tracker::{PUBLISH_MASK, Removed, StopReason, Tracker};

impl Tracker {
    /// As [`Tracker::record_alloc`], where no stack is taken. False: it did nothing.
    #[inline(always)]
    pub fn record_alloc_quickly(&self, address: usize, size: u64) -> bool {
        let stack = self.no_stack.load(Ordering::Relaxed);
        stack != 0 && self.note_quickly(address, size, |_| stack)
    }

    /// As [`Tracker::record_alloc`]. False: it did nothing.
    #[inline(always)]
    pub fn record_alloc_with_stack_quickly(&self, address: usize, size: u64, at: Registers) -> bool {
        let is_plain = self.interval().is_none() && self.stopped().is_none();
        is_plain && self.note_quickly(address, size, |state| self.stack_at(at, state))
    }

    /// As [`Tracker::record_alloc`], if it is the turn of this allocation to be timed. False: it did nothing.
    #[inline(always)]
    pub fn record_timed_alloc(&self, address: usize, size: u64, at: Registers) -> bool {
        let Some(state) = self.threads.at_timed_event() else { return false };
        state.begin_timing();
        let is_over = self.record_alloc_with_stack_quickly(address, size, at);
        state.end_timing(is_over);
        is_over
    }

    #[inline(always)]
    fn note_quickly(&self, address: usize, size: u64, stack: impl FnOnce(&ThreadState) -> u32) -> bool {
        let now = self.epoch.load(Ordering::Relaxed);
        let entry = Entry { size, stack: 0, epoch: now & MAX_EPOCH };
        let Some(state) = self.threads.at_rest() else { return false };
        if Inside::now() || !entry.fits() {
            return false;
        }
        let Some(slot) = self.table.empty_slot(without_mark(address), entry.epoch) else { return false };
        let counters = &state.counters;
        state.begin();
        let count = counters.allocations.load(Ordering::Relaxed) + 1;
        if count & PUBLISH_MASK == 0 {
            state.end();
            return false;
        }
        let stack = stack(state);
        // A test may have ended meanwhile.
        if self.epoch.load(Ordering::Relaxed) != now {
            state.end();
            return false;
        }
        if stack == 0 {
            self.stop(StopReason::Stacks);
        } else {
            slot.store((Entry { stack, ..entry }).bits(), Ordering::Release);
            bump(&counters.allocated_bytes, size);
            counters.born.add(now);
            counters.allocations.store(count, Ordering::Release);
        }
        state.end();
        true
    }

    /// Takes a stack, in an event of this thread.
    #[inline(always)]
    fn stack_at(&self, at: Registers, state: &ThreadState) -> u32 {
        let none = self.no_stack.load(Ordering::Relaxed);
        if none != 0 {
            return none;
        }
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

    /// As [`Tracker::record_free`]. `None`: it did nothing.
    #[inline(always)]
    pub fn record_free_quickly(&self, address: usize) -> Removed {
        if self.interval().is_some() {
            return None;
        }
        let state = self.threads.at_rest()?;
        let (slot, entry) = self.table.filled_slot(without_mark(address))?;
        let counters = &state.counters;
        state.begin();
        let count = counters.frees.load(Ordering::Relaxed) + 1;
        if count & PUBLISH_MASK == 0 {
            state.end();
            return None;
        }
        slot.store(0, Ordering::Relaxed);
        counters.frees.store(count, Ordering::Release);
        bump(&counters.freed_bytes, entry.size);
        if let Some(epoch) = self.recent(entry) {
            counters.died.add(epoch);
        }
        state.end();
        Some(entry)
    }

    /// As [`Tracker::record_free`], if it is the turn of this free to be timed. `None`: it did nothing.
    #[inline(always)]
    pub fn record_timed_free(&self, address: usize) -> Removed {
        let state = self.threads.at_timed_event()?;
        state.begin_timing();
        let removed = self.record_free_quickly(address);
        state.end_timing(removed.is_some());
        removed
    }
}
