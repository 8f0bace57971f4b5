//! Converts the lists of Android's malloc debugging into snapshots of native allocations.
//!
//! Data flow: parts of a list (`LeakInfo` frames of a process without memgate's own tracker) → the whole list at its
//! boundary, equal records added up (`memgate_formats::malloc_debug`) → stacks as nodes of the stream, each once →
//! survivors: records with a higher count than in the list before; changes: all differences → from here on it is a
//! normal snapshot. Each list is complete, so a missing one loses nothing; the first is compared with nothing and has
//! no survivors.

use std::collections::{BTreeMap, HashMap};

use memgate_formats::malloc_debug::{OutValues, Record, read_leak_info};
use memgate_wire::{
    Boundary, BoundaryKind, Frame, LeakInfo, NativeSnapshot, SnapshotRecord, SnapshotScope, StackNode, Stacks,
};

/// Maximum bytes of one list: some millions of records.
const LARGEST: u64 = 1 << 30;
/// Records and nodes of a frame: this many are in memory at once anyway.
const PER_FRAME: usize = 4096;

/// Live allocations by stack and size.
type Live = BTreeMap<(u32, u64), u64>;

/// The lists of one stream.
#[derive(Debug, Default)]
pub struct MallocDebugAdapter {
    parts: Vec<u8>,
    about: Option<LeakInfo>,
    /// Numbers of nodes, by parent and address.
    nodes: HashMap<(u32, u64), u32>,
    last: Option<Live>,
    /// Generation of the last list of modules.
    generation: u32,
    complaint: Option<String>,
}

impl MallocDebugAdapter {
    /// Passes the frame on; replaces a list by its snapshot.
    pub fn frame(&mut self, frame: Frame, mut each: impl FnMut(Frame)) {
        match frame {
            Frame::LeakInfo(part) => self.part(part),
            Frame::Boundary(boundary)
                if self.about.as_ref().is_some_and(|about| about.boundary == boundary.sequence) =>
            {
                let boundary = self.snapshot(boundary, &mut each);
                each(Frame::Boundary(boundary));
            }
            frame => {
                if let Frame::Modules(modules) = &frame {
                    self.generation = modules.generation;
                }
                each(frame);
            }
        }
    }

    /// The error in a list, returned once.
    pub fn complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    fn part(&mut self, mut part: LeakInfo) {
        let records = std::mem::take(&mut part.records);
        if part.part == 0 || self.about.as_ref().is_none_or(|about| about.boundary != part.boundary) {
            self.parts.clear();
        }
        let bytes = (self.parts.len() as u64).saturating_add(records.len() as u64);
        // Missing or surplus bytes are reported when the list is read.
        if bytes <= part.overall_bytes.min(LARGEST) {
            self.parts.extend(records);
        }
        self.about = Some(part);
    }

    /// Writes the list of this boundary as frames before it.
    fn snapshot(&mut self, boundary: Boundary, each: &mut impl FnMut(Frame)) -> Boundary {
        let bytes = std::mem::take(&mut self.parts);
        let Some(about) = self.about.take() else { return boundary };
        let out = OutValues {
            overall_size: about.overall_bytes,
            info_size: about.record_bytes,
            total_memory: Some(about.total_bytes),
            backtrace_size: about.backtrace_size,
            android_api: None,
        };
        let listed = match read_leak_info(&bytes, &out) {
            Ok(listed) => listed,
            Err(why) => {
                self.complaint.get_or_insert(format!(
                    "the list of malloc_debug at boundary {}: {why}",
                    boundary.sequence
                ));
                return boundary;
            }
        };
        let (live, nodes) = self.live(&listed.records);
        for nodes in nodes.chunks(PER_FRAME) {
            each(Frame::Stacks(Stacks { generation: self.generation, nodes: nodes.to_vec() }));
        }
        let mut snapshots = Snapshots { boundary: boundary.sequence, parts: 0 };
        let mut survivors = Vec::new();
        if let Some(last) = &self.last {
            let more = live.iter().filter_map(|(key, count)| {
                let before = last.get(key).copied().unwrap_or(0);
                Some((key, count.checked_sub(before).filter(|more| *more > 0)?))
            });
            survivors = more.map(record).collect();
        }
        let last = self.last.take().unwrap_or_default();
        let changed =
            live.iter().filter(|(key, count)| last.get(key) != Some(count)).map(|(key, count)| (key, *count));
        let gone = last.keys().filter(|key| !live.contains_key(key)).map(|key| (key, 0));
        let changes: Vec<SnapshotRecord> = changed.chain(gone).map(record).collect();
        if boundary.kind == BoundaryKind::TestEnd {
            snapshots.tell(SnapshotScope::Survivors, &survivors, each);
            snapshots.tell(SnapshotScope::Changes, &changes, each);
        }
        self.last = Some(live);
        let mut boundary = boundary;
        boundary.survivors = survivors.iter().map(|record| record.count).sum();
        boundary.snapshot_parts = boundary.snapshot_parts.saturating_add(snapshots.parts);
        // Freed allocations are not listed: only live ones are known.
        boundary.counters.allocations = listed.total_count;
        boundary.counters.allocated_bytes = listed.total_bytes;
        boundary
    }

    /// The list by stack and size, and the new nodes.
    fn live(&mut self, records: &[Record]) -> (Live, Vec<StackNode>) {
        let (mut live, mut new) = (Live::new(), Vec::new());
        for Record { size, count, frames, .. } in records {
            let mut parent = 0;
            for pc in frames.iter().rev() {
                let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX).saturating_add(1);
                parent = *self.nodes.entry((parent, *pc)).or_insert_with(|| {
                    // The process moved the address back into the call; a stream has the return address.
                    new.push(StackNode { id: next, parent, pc: pc.saturating_add(1) });
                    next
                });
            }
            let sum = live.entry((parent, *size)).or_default();
            *sum = sum.saturating_add(*count);
        }
        (live, new)
    }
}

fn record((&(stack, size), count): (&(u32, u64), u64)) -> SnapshotRecord {
    SnapshotRecord { stack, size, count }
}

/// The parts of the snapshots of one boundary.
struct Snapshots {
    boundary: u32,
    parts: u32,
}

impl Snapshots {
    fn tell(&mut self, scope: SnapshotScope, records: &[SnapshotRecord], each: &mut impl FnMut(Frame)) {
        // A snapshot is written even if it is empty: it shows that nothing survived.
        let chunks = records.chunks(PER_FRAME).map(<[SnapshotRecord]>::to_vec);
        let chunks: Vec<_> = if records.is_empty() { vec![Vec::new()] } else { chunks.collect() };
        for records in chunks {
            let (boundary, part) = (self.boundary, self.parts);
            each(Frame::NativeSnapshot(NativeSnapshot { boundary, scope, part, records }));
            self.parts = self.parts.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    /// A list of (size, count, innermost address), each called from 0x9000, in two parts.
    fn list(boundary: u32, records: &[(u64, u64, u64)]) -> Vec<Frame> {
        let bytes =
            |&(size, count, pc): &(u64, u64, u64)| [size, count, pc, 0x9000].map(u64::to_le_bytes).concat();
        let total_bytes: u64 = records.iter().map(|(size, count, _)| size * count).sum();
        let overall_bytes = 32 * records.len() as u64;
        let part = |(part, records): (u32, &[(u64, u64, u64)])| {
            let records = records.iter().flat_map(bytes).collect();
            let (record_bytes, backtrace_size) = (32, 2);
            Frame::LeakInfo(LeakInfo {
                boundary,
                part,
                overall_bytes,
                record_bytes,
                total_bytes,
                backtrace_size,
                records,
            })
        };
        let (first, second) = records.split_at(records.len() / 2);
        (0..).zip([first, second]).map(part).collect()
    }

    fn end(sequence: u32) -> Frame {
        Frame::Boundary(Boundary {
            sequence,
            kind: BoundaryKind::TestEnd,
            suite: "A".into(),
            test: "a".into(),
            thread_id: 1,
            open_tests: 1,
            ..Boundary::default()
        })
    }

    #[derive(Default)]
    struct Told {
        nodes: Vec<StackNode>,
        survivors: Vec<SnapshotRecord>,
        changes: Vec<SnapshotRecord>,
        parts: u32,
        boundary: Option<Boundary>,
    }

    fn told(listed: &mut MallocDebugAdapter, frames: Vec<Frame>) -> Told {
        let mut told = Told::default();
        for frame in frames {
            listed.frame(frame, |frame| match frame {
                Frame::Stacks(stacks) => told.nodes.extend(stacks.nodes),
                Frame::NativeSnapshot(snapshot) => {
                    told.parts += 1;
                    match snapshot.scope {
                        SnapshotScope::Survivors => told.survivors.extend(snapshot.records),
                        _ => told.changes.extend(snapshot.records),
                    }
                }
                Frame::Boundary(boundary) => told.boundary = Some(boundary),
                other => panic!("{other:?}"),
            });
        }
        told
    }

    #[test]
    fn lists_become_snapshots_of_what_changed() {
        let mut listed = MallocDebugAdapter::default();
        let first = told(&mut listed, [list(2, &[(24, 1, 0x10), (8, 3, 0x20)]), vec![end(2)]].concat());
        let nodes: Vec<_> = first.nodes.iter().map(|node| (node.id, node.parent, node.pc)).collect();
        assert_eq!(
            nodes,
            [(1, 0, 0x9001), (2, 1, 0x21), (3, 1, 0x11)],
            "callers first, the address behind the call"
        );
        assert!(first.survivors.is_empty(), "nobody knows when these were allocated");
        let boundary = first.boundary.unwrap();
        assert_eq!((boundary.snapshot_parts, boundary.survivors), (first.parts, 0));
        assert_eq!((boundary.counters.allocated_bytes, boundary.counters.allocations), (48, 4));

        // One more of the first, in a record of its own as Android writes it; all of the second are
        // gone.
        let second = told(&mut listed, [list(4, &[(24, 1, 0x10), (24, 1, 0x10)]), vec![end(4)]].concat());
        assert!(second.nodes.is_empty(), "told already");
        assert_eq!(second.survivors, [SnapshotRecord { stack: 3, size: 24, count: 1 }]);
        let changes =
            [SnapshotRecord { stack: 3, size: 24, count: 2 }, SnapshotRecord { stack: 2, size: 8, count: 0 }];
        assert_eq!(second.changes, changes);
        assert_eq!(second.boundary.unwrap().survivors, 1);
        assert_eq!(listed.complaint(), None);
    }

    #[test]
    fn a_list_with_a_part_missing_is_told_and_no_snapshot() {
        let mut listed = MallocDebugAdapter::default();
        let mut frames = list(2, &[(24, 1, 0x10), (8, 3, 0x20)]);
        frames.pop();
        frames.push(end(2));
        let told = told(&mut listed, frames);
        assert_eq!((told.parts, told.boundary.unwrap().snapshot_parts), (0, 0));
        assert!(listed.complaint().unwrap().contains("the buffer has 32"));
    }
}
