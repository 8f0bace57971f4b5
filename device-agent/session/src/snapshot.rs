//! Turns live allocations into snapshot records.
//!
//! The number of records is not known in advance. A lack of memory for them must not end the guest.

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;
use std::sync::Arc;

use memgate_tracker::table::Entry;
use memgate_wire::SnapshotRecord;

use crate::recording::TRACKER;

/// Live allocations per group. There is no room to record more than four thousand million of one group.
pub(crate) type Counts = HashMap<Group, u32, BuildHasherDefault<Mix>>;

/// Allocations of one size from one stack. Packed, because there may be as many groups as allocations, and the memory
/// is the guest's.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C, packed(4))]
pub(crate) struct Group {
    stack: u32,
    size: u64,
}

/// A hasher for small integer keys; the standard one keeps its keys in thread-local storage.
#[derive(Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(b.into());
        }
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 ^= self.0 >> 32;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Counts live blocks that were born in epoch `from` or later (0: all). `None`: no memory, or too many.
pub(crate) fn count(from: u32) -> Option<Counts> {
    count_those(&|visit| TRACKER.scan(from, visit), &|_| true)
}

/// The live blocks that a set-up or a tear-down left.
#[derive(Debug, Clone)]
pub(crate) enum Born {
    /// Blocks born from the first epoch on, before the second.
    Between(u32, u32),
    /// Blocks born before the epochs restarted, with one of these stacks, which are sorted.
    Before(Arc<Vec<u32>>),
}

/// Counts these blocks, without blocks that the test framework made for itself meanwhile, which are identified by their
/// stacks. `None`: no memory, or too many.
pub(crate) fn count_born(born: &Born, is_its_own: fn(u32) -> bool) -> Option<Counts> {
    let is_users = |entry: &Entry| !is_its_own(entry.stack);
    match born {
        Born::Between(from, until) => {
            count_those(&|visit| TRACKER.scan(*from, visit), &|entry| entry.epoch < *until && is_users(entry))
        }
        Born::Before(stacks) => {
            let has_stack = |entry: &Entry| stacks.binary_search(&entry.stack).is_ok();
            count_those(&|visit| TRACKER.scan_ancient(visit), &has_stack)
        }
    }
}

/// The stacks of the counted blocks, sorted. `None`: no memory.
pub(crate) fn stacks(counts: &Counts) -> Option<Vec<u32>> {
    let records = records(counts)?;
    let mut stacks = Vec::new();
    stacks.try_reserve_exact(records.len()).ok()?;
    stacks.extend(records.iter().map(|record| record.stack));
    Some(stacks)
}

/// Passes every entry of some kind to a visitor.
type Scan<'a> = dyn Fn(&mut dyn FnMut(Entry)) + 'a;

fn count_those(scan: &Scan<'_>, wanted: &dyn Fn(&Entry) -> bool) -> Option<Counts> {
    let mut counts = Counts::default();
    let mut enough = true;
    scan(&mut |entry| {
        if !wanted(&entry) {
            return;
        }
        enough &= counts.len() < counts.capacity() || counts.try_reserve(1).is_ok();
        if enough {
            let count = counts.entry(Group { stack: entry.stack, size: entry.size }).or_default();
            match count.checked_add(1) {
                Some(more) => *count = more,
                None => enough = false,
            }
        }
    });
    enough.then_some(counts)
}

/// All records, in a stable order. `None`: no memory.
pub(crate) fn records(counts: &Counts) -> Option<Vec<SnapshotRecord>> {
    sorted(counts.len(), counts.iter().map(|(&group, &count)| record(group, count)))
}

/// The records that differ between two counts, with their count now. `None`: no memory.
pub(crate) fn changes(before: &Counts, now: &Counts) -> Option<Vec<SnapshotRecord>> {
    let changed = now
        .iter()
        .filter(|(key, count)| before.get(key) != Some(count))
        .map(|(&group, &count)| record(group, count));
    let gone = before.keys().filter(|key| !now.contains_key(key)).map(|&group| record(group, 0));
    let all = changed.chain(gone);
    sorted(all.clone().count(), all)
}

fn record(group: Group, count: u32) -> SnapshotRecord {
    SnapshotRecord { stack: group.stack, size: group.size, count: count.into() }
}

fn sorted(count: usize, records: impl Iterator<Item = SnapshotRecord>) -> Option<Vec<SnapshotRecord>> {
    let mut sorted = Vec::new();
    sorted.try_reserve_exact(count).ok()?;
    sorted.extend(records);
    sorted.sort_unstable_by_key(|r| (r.stack, r.size));
    Some(sorted)
}
