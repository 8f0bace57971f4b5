//! Counters that one thread writes and any thread reads.
#![cfg_attr(
    not(test),
    expect(clippy::arithmetic_side_effects, reason = "counters of one thread, in every allocation")
)]

use crate::sync::{AtomicU64, Ordering, sized};

/// Number of recent epochs whose live counts a thread's state keeps separately.
pub const RECENT_EPOCHS: usize = sized(8, 4);

/// Adds to a counter that only this thread writes. A thread that sees the new value also sees everything done before
/// it.
#[inline(always)]
pub fn bump(counter: &AtomicU64, by: u64) -> u64 {
    let now = counter.load(Ordering::Relaxed).wrapping_add(by);
    counter.store(now, Ordering::Release);
    now
}

const COUNT_BITS: u32 = 36;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// Allocations and frees of recent epochs, modulo [`RECENT_EPOCHS`], each `epoch 28 | count 36`. A cell that still
/// holds an older epoch counts as zero for the requested one. The two counts of an epoch are adjacent, because most
/// events belong to the present epoch.
#[derive(Default)]
pub struct RecentCounts([[AtomicU64; 2]; RECENT_EPOCHS]);

impl RecentCounts {
    /// Counts an allocation. Epoch numbers never restart here. Only the owning thread calls this.
    #[inline(always)]
    pub fn add_born(&self, epoch: u32) {
        add(&self.of(epoch)[0], epoch);
    }

    /// Counts a free of an allocation of that epoch. Same conditions as [`RecentCounts::add_born`].
    #[inline(always)]
    pub fn add_died(&self, epoch: u32) {
        add(&self.of(epoch)[1], epoch);
    }

    /// Allocations in the epochs `from` to `to`.
    #[must_use]
    pub fn born(&self, from: u32, to: u32) -> u64 {
        self.0.iter().map(|[born, _]| count(born, from, to)).sum()
    }

    /// Frees of allocations of the epochs `from` to `to`.
    #[must_use]
    pub fn died(&self, from: u32, to: u32) -> u64 {
        self.0.iter().map(|[_, died]| count(died, from, to)).sum()
    }

    #[inline(always)]
    fn of(&self, epoch: u32) -> &[AtomicU64; 2] {
        // SAFETY: the remainder indexes an array of that length.
        unsafe { self.0.get_unchecked(epoch as usize % RECENT_EPOCHS) }
    }
}

#[inline(always)]
fn add(cell: &AtomicU64, epoch: u32) {
    let tag = u64::from(epoch) << COUNT_BITS;
    let now = cell.load(Ordering::Relaxed);
    let count = if now & !COUNT_MASK == tag { now } else { tag };
    cell.store(count + 1, Ordering::Release);
}

fn count(cell: &AtomicU64, from: u32, to: u32) -> u64 {
    let tags = u64::from(from) << COUNT_BITS..=u64::from(to) << COUNT_BITS | COUNT_MASK;
    let now = cell.load(Ordering::Acquire);
    if tags.contains(&now) { now & COUNT_MASK } else { 0 }
}
