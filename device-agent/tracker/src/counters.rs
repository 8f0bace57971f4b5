//! Counters that one thread writes and anybody reads.
#![cfg_attr(
    not(test),
    expect(clippy::arithmetic_side_effects, reason = "counters of one thread, in every allocation")
)]

use crate::sync::{AtomicU64, Ordering, sized};

/// Epochs whose live counts are kept apart in a thread's state.
pub const RECENT_EPOCHS: usize = sized(8, 4);

/// Adds to a counter that only this thread writes. Who sees the new value sees what was done before
/// it.
#[inline(always)]
pub fn bump(counter: &AtomicU64, by: u64) -> u64 {
    let now = counter.load(Ordering::Relaxed).wrapping_add(by);
    counter.store(now, Ordering::Release);
    now
}

const COUNT_BITS: u32 = 36;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// Counts of recent epochs, modulo [`RECENT_EPOCHS`], each `epoch 28 | count 36`: a place that
/// still holds an older epoch counts nothing for the one that is asked for.
#[derive(Default)]
pub struct RecentCounts([AtomicU64; RECENT_EPOCHS]);

impl RecentCounts {
    /// Counts one more. Epochs here never start again; only the owning thread calls this.
    #[inline(always)]
    pub fn add(&self, epoch: u32) {
        // SAFETY: the remainder indexes an array of that length.
        let cell = unsafe { self.0.get_unchecked(epoch as usize % RECENT_EPOCHS) };
        let tag = u64::from(epoch) << COUNT_BITS;
        let now = cell.load(Ordering::Relaxed);
        let count = if now & !COUNT_MASK == tag { now } else { tag };
        cell.store(count + 1, Ordering::Release);
    }

    /// What was counted in the epochs `from` to `to`.
    #[must_use]
    pub fn sum(&self, from: u32, to: u32) -> u64 {
        let tags = u64::from(from) << COUNT_BITS..=u64::from(to) << COUNT_BITS | COUNT_MASK;
        let counts = self.0.iter().map(|cell| cell.load(Ordering::Acquire));
        counts.filter(|now| tags.contains(now)).map(|now| now & COUNT_MASK).sum()
    }
}
