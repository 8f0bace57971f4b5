//! Limits the time of a walk over the heap.

use memgate_ffi::process;

/// Elapsed time allowed per unit of processor time. A busy machine finds as much as a quiet one, but a test waits only
/// for a limited time.
const PATIENCE: u64 = 4;
/// Objects or references between two looks at the clocks.
const PER_LOOK: u32 = 1 << 16;

/// Processor time of the process, and elapsed time, after which a walk stops. Heap visitors check it, so it neither
/// allocates nor locks.
pub(super) struct Limit {
    until_cpu_ns: u64,
    until_ns: u64,
    to_look: u32,
}

impl Limit {
    /// A limit of this much processor time from now on.
    pub(super) fn of(cpu_ns: u64) -> Self {
        Self {
            until_cpu_ns: process::cpu_ns().saturating_add(cpu_ns),
            until_ns: process::monotonic_ns().saturating_add(cpu_ns.saturating_mul(PATIENCE)),
            to_look: PER_LOOK,
        }
    }

    /// Is the time over? It is called for every object, but reads the clocks only now and then.
    pub(super) fn is_late(&mut self) -> bool {
        self.to_look = self.to_look.wrapping_sub(1);
        if self.to_look > 0 {
            return false;
        }
        self.to_look = PER_LOOK;
        self.is_over()
    }

    pub(super) fn is_over(&self) -> bool {
        process::cpu_ns() > self.until_cpu_ns || process::monotonic_ns() > self.until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_is_late_once_its_processor_time_is_used_up() {
        let mut limit = Limit::of(1_000_000);
        assert!(!limit.is_late(), "the clocks were not looked at yet");
        let mut objects = 0_u64;
        while !limit.is_late() {
            objects += 1;
        }
        assert!(objects >= u64::from(PER_LOOK) - 2 && limit.is_over());
        assert!(!Limit::of(u64::MAX).is_over());
    }
}
