//! Everything that is counted of one thread.

use crate::cost::Timed;
use crate::counters::RecentCounts;
use crate::sync::AtomicU64;

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
    /// Allocations of recent epochs.
    pub born: RecentCounts,
    /// Frees of allocations of recent epochs.
    pub died: RecentCounts,
    /// What some events took.
    pub timed: Timed,
    /// What was published of the first four.
    pub published: [AtomicU64; 4],
}
