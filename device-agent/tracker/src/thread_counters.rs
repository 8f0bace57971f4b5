//! All counters of one thread.

use crate::cost::Timed;
use crate::counters::RecentCounts;
use crate::sync::AtomicU64;

/// Counters of one thread. Only the owning thread writes, with plain stores; any thread reads. The fields that every
/// event writes come first.
#[derive(Default)]
#[repr(C)]
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
    /// Allocations of recent epochs, and their frees.
    pub recent: RecentCounts,
    /// Timing of some events.
    pub timed: Timed,
    /// Published values of the first four counters.
    pub published: [AtomicU64; 4],
}
