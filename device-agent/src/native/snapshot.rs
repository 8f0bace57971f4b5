//! From live allocations to snapshot records.

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;

use memgate_wire::SnapshotRecord;

use super::hooks::TRACKER;

/// Live allocations per (stack, size).
pub(crate) type Counts = HashMap<(u32, u64), u64, BuildHasherDefault<Mix>>;

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

/// Counts what is alive and was born in epoch `from` or later (0: everything).
pub(crate) fn count(from: u32) -> Counts {
    let mut counts = Counts::default();
    TRACKER.scan(from, &mut |entry| *counts.entry((entry.stack, entry.size)).or_default() += 1);
    counts
}

/// All of them, in a stable order.
pub(crate) fn records(counts: &Counts) -> Vec<SnapshotRecord> {
    sorted(counts.iter().map(|(&(stack, size), &count)| SnapshotRecord { stack, size, count }).collect())
}

/// Those that differ between two counts, with their count now.
pub(crate) fn changes(before: &Counts, now: &Counts) -> Vec<SnapshotRecord> {
    let mut out: Vec<SnapshotRecord> = now
        .iter()
        .filter(|(key, count)| before.get(key) != Some(count))
        .map(|(&(stack, size), &count)| SnapshotRecord { stack, size, count })
        .collect();
    let gone = before.keys().filter(|key| !now.contains_key(key));
    out.extend(gone.map(|&(stack, size)| SnapshotRecord { stack, size, count: 0 }));
    sorted(out)
}

fn sorted(mut records: Vec<SnapshotRecord>) -> Vec<SnapshotRecord> {
    records.sort_unstable_by_key(|r| (r.stack, r.size));
    records
}
