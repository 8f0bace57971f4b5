//! Time that recording takes, from two clocks.

use memgate_ffi::process;
use memgate_tracker::cost::ticks;

use crate::recording::TRACKER;

/// Time that recording took since the stream began; a forked child's tracker includes the parent's time.
pub(crate) struct Clock {
    /// Ticks and nanoseconds at the beginning.
    began: (u64, u64),
    /// The same when the ticks could last be read.
    now: (u64, u64),
    before: (u64, u32),
}

impl Clock {
    /// What the guest loses later for each new stack node: nodes, their places in the map and the page tables of both
    /// push its own memory out of the caches. The sum of the hooks lacks this much if there are many stacks
    /// (`device-agent/benches`, cc1plus).
    const EVICTION_NS: u64 = 105;

    pub(super) fn start() -> Self {
        let before = (TRACKER.recording_ticks(), TRACKER.stack_nodes());
        let began = (ticks(), process::monotonic_ns());
        Self { began, now: began, before }
    }

    /// Compares the two clocks, as long as both can be read.
    pub(crate) fn look(&mut self) {
        let ticks = ticks();
        if ticks != 0 {
            self.now = (ticks, process::monotonic_ns());
        }
    }

    pub(super) fn recording_ns(&mut self) -> u64 {
        self.look();
        let passed_ticks = u128::from(self.now.0.saturating_sub(self.began.0));
        let passed_ns = u128::from(self.now.1.saturating_sub(self.began.1));
        let recording = u128::from(TRACKER.recording_ticks().saturating_sub(self.before.0));
        // If the ticks could never be read, nothing was timed, and nothing is known.
        let Some(ns) = recording.saturating_mul(passed_ns).checked_div(passed_ticks) else { return 0 };
        let nodes = u64::from(TRACKER.stack_nodes().saturating_sub(self.before.1));
        u64::try_from(ns).unwrap_or(u64::MAX).saturating_add(nodes * Self::EVICTION_NS)
    }
}
