//! The differences between two snapshots.
//!
//! Frames are compared by position in their file if both snapshots know it, so that dumps of two runs can be compared
//! although libraries have other addresses in each. Otherwise they are compared by address, which is valid only within
//! one process.

use std::collections::BTreeMap;

use super::{Maps, Record, Snapshot};

/// An allocation site whose number of live allocations changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change<'a> {
    /// The record with more information: from the second snapshot, or from the first if the site is gone.
    pub record: &'a Record,
    /// Does `record` belong to the first snapshot?
    pub gone: bool,
    /// Live in the first snapshot.
    pub before: u64,
    /// Live in the second.
    pub after: u64,
}

impl Change<'_> {
    /// By how many bytes it grew.
    #[must_use]
    pub fn bytes(&self) -> i128 {
        i128::from(self.record.size).saturating_mul(self.count())
    }

    /// By how many allocations it grew.
    #[must_use]
    pub fn count(&self) -> i128 {
        i128::from(self.after).saturating_sub(i128::from(self.before))
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Frame<'a> {
    Place(&'a str, u64),
    Address(u64),
}

type Key<'a> = (bool, u64, Vec<Frame<'a>>);

/// Every site whose number changed, largest growth first.
#[must_use]
pub fn compare<'a>(before: &'a Snapshot, after: &'a Snapshot) -> Vec<Change<'a>> {
    let by_place = !before.maps.is_empty() && !after.maps.is_empty();
    let mut sites: BTreeMap<Key<'a>, Change<'a>> = BTreeMap::new();
    for (snapshot, gone) in [(before, true), (after, false)] {
        for record in &snapshot.records {
            let site = sites.entry(key(record, &snapshot.maps, by_place));
            let site = site.or_insert(Change { record, gone, before: 0, after: 0 });
            if gone {
                site.before = site.before.saturating_add(record.count);
            } else {
                site.after = site.after.saturating_add(record.count);
                (site.record, site.gone) = (record, false);
            }
        }
    }
    let mut changed: Vec<_> = sites.into_values().filter(|site| site.before != site.after).collect();
    changed.sort_by_key(|site| std::cmp::Reverse(site.bytes()));
    changed
}

fn key<'a>(record: &Record, maps: &'a Maps, by_place: bool) -> Key<'a> {
    let frame = |pc: &u64| match maps.place(*pc) {
        Some(place) if by_place => Frame::Place(place.name, place.offset),
        _ => Frame::Address(*pc),
    };
    (record.zygote_child, record.size, record.frames.iter().map(frame).collect())
}

#[cfg(test)]
mod tests {
    use super::super::read_heap_dump;
    use super::*;

    fn dump(base: u64, records: &[(u64, u64, u64)]) -> Snapshot {
        let total: u64 = records.iter().map(|(size, num, _)| size * num).sum();
        let mut text = format!(
            "Android Native Heap Dump v1.1\nTotal memory: {total}\nAllocation records: {}\n",
            records.len()
        );
        for (size, num, offset) in records {
            text += &format!("z 0  sz {size:8}  num    {num}  bt {:x}\n", base + offset);
        }
        text += &format!("MAPS\n{base:x}-{:x} r-xp 00000000 0:0 0 /lib/a.so\nEND\n", base + 0x1000);
        read_heap_dump(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_library_that_moved_is_still_the_same_site() {
        let before = dump(0x10000, &[(24, 1, 0x10), (8, 3, 0x20), (16, 5, 0x40)]);
        let after = dump(0x90000, &[(24, 4, 0x10), (8, 3, 0x20), (100, 1, 0x30)]);
        let changes = compare(&before, &after);
        let told: Vec<_> =
            changes.iter().map(|c| (c.record.size, c.before, c.after, c.bytes(), c.gone)).collect();
        assert_eq!(told, [(100, 0, 1, 100, false), (24, 1, 4, 72, false), (16, 5, 0, -80, true)]);
    }
}
