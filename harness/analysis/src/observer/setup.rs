//! Separates what a repeated set-up left from everything that is alive at its end.

use std::collections::{HashMap, HashSet};

use memgate_wire::{Counters, SnapshotRecord};

/// The set-up that a confirming run repeats. Its own allocations are found by the stacks of its survivors. Stacks reach
/// to the root, so no test has the same stack.
#[derive(Debug, Default)]
pub(super) struct RepeatedSetUp {
    /// True in confirming runs, which report changes.
    pub(super) is_watched: bool,
    /// Everything alive at its last end, by stack and size.
    alive: HashMap<(u32, u64), u64>,
    /// Stacks of allocations that survived it at least once.
    stacks: HashSet<u32>,
    /// Last reported counts of these stacks.
    told: HashMap<(u32, u64), u64>,
}

impl RepeatedSetUp {
    /// The part of these changes that belongs to the set-up.
    pub(super) fn own(
        &mut self,
        changes: Vec<SnapshotRecord>,
        survivors: &[SnapshotRecord],
    ) -> Vec<SnapshotRecord> {
        for SnapshotRecord { stack, size, count } in changes {
            match count {
                0 => self.alive.remove(&(stack, size)),
                _ => self.alive.insert((stack, size), count),
            };
        }
        self.stacks.extend(survivors.iter().map(|record| record.stack));
        let own = self.alive.iter().filter(|((stack, _), _)| self.stacks.contains(stack));
        let now: HashMap<(u32, u64), u64> = own.map(|(key, count)| (*key, *count)).collect();
        let gone = self.told.keys().filter(|key| !now.contains_key(*key)).map(|key| (*key, 0));
        let changed = now.iter().filter(|(key, count)| self.told.get(*key) != Some(*count));
        let changed = changed.map(|(key, count)| (*key, *count)).chain(gone);
        let mut own: Vec<SnapshotRecord> =
            changed.map(|((stack, size), count)| SnapshotRecord { stack, size, count }).collect();
        own.sort_unstable_by_key(|record| (record.stack, record.size));
        self.told = now;
        own
    }

    /// Live allocations of the set-up, as counters.
    pub(super) fn counters(&self) -> Counters {
        let add = |sum: Counters, ((_, size), count): (&(u32, u64), &u64)| Counters {
            allocations: sum.allocations.saturating_add(*count),
            allocated_bytes: sum.allocated_bytes.saturating_add(size.saturating_mul(*count)),
            ..sum
        };
        self.told.iter().fold(Counters::default(), add)
    }
}

#[cfg(test)]
mod tests {
    use memgate_wire::Counters;

    use crate::dsl::Process;
    use crate::record::Window;

    #[test]
    fn a_set_up_that_is_repeated_has_only_what_is_its_own() {
        let id = "Map.SetUpTestSuite()";
        let mut p = Process::confirm();
        p.alloc(9, 1000, 1);
        for i in 0..4 {
            p.alloc(2, 211, 1);
            // Its fixture is replaced each time from the second run on.
            if i > 0 {
                p.free(4, 401, 1);
            }
            p.alloc(4, 401, 1);
            // A test leaks, and opens a descriptor.
            p.alloc(1, 37, 1);
            p.fds.push("/tmp/log");
            p.torn_down(id, i, Some(if i == 1 { (4, 401) } else { (2, 211) }));
        }
        p.torn_down(id, 4, None);
        let record = p.end();
        let windows: Vec<&Window> = record.windows_of(id).collect();
        assert!(windows.iter().all(|w| !w.incomplete && w.os_end.is_none()), "{windows:?}");
        let live =
            |of: fn(&Window) -> &Counters| windows.iter().map(|w| of(w).live_bytes()).collect::<Vec<_>>();
        // Once a stack has survived the set-up, all of its live blocks count from then on.
        assert_eq!(live(|w| &w.end), [211, 823, 1034, 1245, 1245]);
        assert_eq!(live(|w| &w.start), [0, 211, 823, 1034, 1245]);
        let changes: Vec<_> = windows[1].changes.iter().map(|c| (c.stack, c.size, c.count)).collect();
        assert_eq!(changes, [(2, 211, 2), (4, 401, 1)]);
        assert!(windows[4].changes.is_empty());
    }
}
