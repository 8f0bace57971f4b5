//! What is written before a boundary: snapshots of live blocks, descriptors, threads, mappings, and the stacks and
//! modules that these name.

use memgate_ffi::{heap, modules};
use memgate_wire::options::Detail;
use memgate_wire::{
    Frame, Freed, Handle, Handles, Module, Modules, NativeSnapshot, SnapshotRecord, SnapshotScope, StackNode,
    Stacks,
};

use super::{BOUNDARY_ROOM, Known, Session};
use crate::handles;
#[cfg(not(target_os = "android"))]
use crate::mappings;
use crate::recording::TRACKER;
use crate::snapshot::{self, Born, Counts};

const RECORDS_PER_PART: usize = 4096;
const NODES_PER_FRAME: usize = 8192;
/// Room for one module of a list, and for one record or stack node of a frame: the item, a copy, and its bytes while
/// the buffer grows.
const MODULE_ROOM: usize = 1 << 10;
const RECORD_ROOM: usize = 128;
/// Room for one descriptor or thread: its last report, its current one, its stack, and its bytes while the buffer
/// grows.
const HANDLE_ROOM: usize = 64;
/// The same for one group of mappings, with its places in three maps.
#[cfg(not(target_os = "android"))]
const MAPPED_ROOM: usize = 256;

impl Session {
    /// All tests have run: reports which of them left something that is freed by now. Samples cannot tell.
    pub(crate) fn append_freed(&mut self) {
        let room = self.leavers.len().saturating_mul(RECORD_ROOM).saturating_add(BOUNDARY_ROOM);
        if !recording() || self.options.native_sampling > 0 || !self.make_room(room) {
            return;
        }
        let boundaries = self.leavers.freed(|from, visit| TRACKER.scan(from, visit));
        for chunk in boundaries.chunks(RECORDS_PER_PART) {
            self.append(&Frame::Freed(Freed { boundaries: chunk.to_vec() }));
            self.flush();
        }
    }

    /// Writes the survivors of a window, or in detail `growth` what changed; both for a set-up. Returns (survivors,
    /// parts written).
    pub(super) fn append_test_snapshot(
        &mut self,
        sequence: u32,
        epoch: u32,
        born: Option<&Born>,
    ) -> (u64, u32) {
        let alive = TRACKER.alive_since(epoch);
        match self.options.detail {
            Detail::Survivors if born.is_some() => self.append_born(sequence, born),
            Detail::Survivors if alive == Some(0) => (0, 0),
            Detail::Survivors => {
                if epoch != 0 {
                    self.leavers.note(sequence, (epoch, self.epoch));
                }
                self.append_survivors(sequence, epoch)
            }
            // A set-up is being confirmed: its tests need no snapshot.
            Detail::Growth if !self.options.setups.is_empty() && born.is_none() => (0, 0),
            Detail::Growth => {
                let counts = recording().then(|| snapshot::count(0)).flatten();
                let changes = counts.as_ref().and_then(|now| snapshot::changes(&self.last_counts, now));
                let (Some(now), Some(changes)) = (counts, changes) else { return self.gives_up() };
                self.last_counts = now;
                let parts = self.append_records(sequence, SnapshotScope::Changes, &changes);
                if born.is_none() {
                    return (alive.unwrap_or(0), parts);
                }
                let (survivors, more) = self.append_born(sequence, born);
                (survivors, parts.saturating_add(more))
            }
        }
    }

    /// Writes the live blocks that were born in `epoch` or later; returns (survivors, parts written).
    pub(super) fn append_survivors(&mut self, sequence: u32, epoch: u32) -> (u64, u32) {
        self.append_counts(sequence, recording().then(|| snapshot::count(epoch)).flatten())
    }

    /// Writes the live blocks that a set-up left.
    fn append_born(&mut self, sequence: u32, born: Option<&Born>) -> (u64, u32) {
        self.append_counts(sequence, born.filter(|_| recording()).and_then(|born| self.count_born(born)))
    }

    /// Counts these blocks, without those that the framework made for itself meanwhile.
    pub(crate) fn count_born(&self, born: &Born) -> Option<Counts> {
        snapshot::count_born(born, self.offers.is_its_own)
    }

    fn append_counts(&mut self, sequence: u32, counts: Option<Counts>) -> (u64, u32) {
        let records = counts.as_ref().and_then(snapshot::records);
        let (Some(counts), Some(records)) = (counts, records) else { return self.gives_up() };
        let survivors = counts.values().map(|&count| u64::from(count)).sum();
        drop(counts);
        (survivors, self.append_records(sequence, SnapshotScope::Survivors, &records))
    }

    /// Returns the parts written. If there is no memory for all of them, recording stops.
    pub(super) fn append_records(
        &mut self,
        boundary: u32,
        scope: SnapshotScope,
        records: &[SnapshotRecord],
    ) -> u32 {
        let modules = usize::try_from(modules::counts().0).unwrap_or(usize::MAX);
        if !records.is_empty() && self.make_room(modules.saturating_mul(MODULE_ROOM)) {
            self.append_modules();
            self.append_stacks(records.iter().map(|record| record.stack));
        }
        let mut part = 0;
        for chunk in records.chunks(RECORDS_PER_PART) {
            if !recording()
                || !self.make_room(BOUNDARY_ROOM.saturating_add(chunk.len().saturating_mul(RECORD_ROOM)))
            {
                break;
            }
            self.append(&Frame::NativeSnapshot(NativeSnapshot {
                boundary,
                scope,
                part,
                records: chunk.to_vec(),
            }));
            self.flush();
            part = part.saturating_add(1);
        }
        part
    }

    /// Writes the libraries that tests loaded since the list was last written: the harness looks for those that are
    /// not the virtual machine's. Without memory the list stays as it was.
    pub(crate) fn append_loaded_modules(&mut self) {
        let modules = usize::try_from(modules::counts().0).unwrap_or(usize::MAX);
        if heap::HEAP.has_room(modules.saturating_mul(MODULE_ROOM).saturating_add(BOUNDARY_ROOM)) {
            self.append_modules();
        }
    }

    /// Writes where descriptors were opened and threads started since the last boundary. Without memory it is left
    /// out: a leak is then known only by its name.
    pub(super) fn append_handles(&mut self, boundary: u32) {
        // Java opens everything through the same few functions of the virtual machine, whoever called. So the name of
        // a descriptor or thread says more than its stack.
        if self.options.java {
            return;
        }
        // A thread that has not begun comes later.
        let asked = handles::asked();
        if core::mem::replace(&mut self.asked, asked) != asked {
            self.handles_came = boundary;
        }
        let most = self.sent_handles.most();
        if !heap::HEAP.has_room(BOUNDARY_ROOM.saturating_add(most.saturating_mul(HANDLE_ROOM))) {
            self.handles_came = boundary;
            return;
        }
        let (descriptors, threads) = self.sent_handles.changes();
        let stacks = |handles: &[Handle]| handles.iter().map(|handle| handle.stack).collect::<Vec<_>>();
        let stacks = [stacks(&descriptors), stacks(&threads)].concat();
        if stacks.is_empty() {
            return;
        }
        self.handles_came = boundary;
        self.append_modules();
        self.append_stacks(stacks.into_iter());
        for chunk in descriptors.chunks(RECORDS_PER_PART) {
            self.append(&Frame::Handles(Handles {
                boundary,
                descriptors: chunk.to_vec(),
                threads: Vec::new(),
            }));
        }
        for chunk in threads.chunks(RECORDS_PER_PART) {
            self.append(&Frame::Handles(Handles {
                boundary,
                descriptors: Vec::new(),
                threads: chunk.to_vec(),
            }));
        }
    }

    /// Writes the groups of stack and kind whose mappings differ from the last report.
    #[cfg(not(target_os = "android"))]
    pub(super) fn append_mappings(&mut self, boundary: u32) {
        let Some(most) = self.sent_mappings.most() else { return };
        if !self.make_room(BOUNDARY_ROOM.saturating_add(most.saturating_mul(MAPPED_ROOM))) {
            return;
        }
        let mappings::Changes { mapped, lost } = self.sent_mappings.changes();
        if !mapped.is_empty() {
            self.append_modules();
            self.append_stacks(mapped.iter().map(|group| group.stack));
        }
        let mut rest = mapped.as_slice();
        loop {
            let (part, after) = rest.split_at(rest.len().min(RECORDS_PER_PART));
            self.append(&Frame::Mappings(memgate_wire::Mappings { boundary, lost, mapped: part.to_vec() }));
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }

    fn append_stacks(&mut self, stacks: impl Iterator<Item = u32>) {
        let mut by_generation: Vec<(u32, Vec<StackNode>)> = Vec::new();
        let mut path = Vec::new();
        for mut id in stacks {
            while id != 0 && self.mark_sent(id) {
                let Some(node) = TRACKER.stack_node(id) else { break };
                let step = (node.generation, StackNode { id, parent: node.parent, pc: node.pc });
                if !push(&mut path, step) {
                    self.gives_up();
                    return;
                }
                id = node.parent;
            }
            while let Some((generation, node)) = path.pop() {
                if !by_generation.iter().any(|(g, _)| *g == generation) {
                    by_generation.push((generation, Vec::new()));
                }
                let nodes = by_generation.iter_mut().find(|(g, _)| *g == generation);
                if !nodes.is_some_and(|(_, nodes)| push(nodes, node)) {
                    self.gives_up();
                    return;
                }
            }
        }
        for (generation, nodes) in by_generation {
            for chunk in nodes.chunks(NODES_PER_FRAME) {
                if !self.make_room(BOUNDARY_ROOM.saturating_add(chunk.len().saturating_mul(RECORD_ROOM))) {
                    return;
                }
                self.append(&Frame::Stacks(Stacks { generation, nodes: chunk.to_vec() }));
                self.flush();
            }
        }
    }

    /// True the first time a node is asked for. If that cannot be noted, recording stops.
    fn mark_sent(&mut self, id: u32) -> bool {
        let (word, bit) = (id as usize / 64, 1_u64 << (id % 64));
        if let Some(more @ 1..) = word.saturating_add(1).checked_sub(self.sent_nodes.len()) {
            if self.sent_nodes.try_reserve(more).is_err() {
                self.gives_up();
                return false;
            }
            self.sent_nodes.resize(word.saturating_add(1), 0);
        }
        self.sent_nodes.get_mut(word).is_some_and(|w| {
            let first = *w & bit == 0;
            *w |= bit;
            first
        })
    }

    /// The module list, if it has changed since it was last written.
    pub(crate) fn append_modules(&mut self) {
        let now = modules::counts();
        // A library was unloaded without the agent's `dlclose`.
        let untold =
            self.known.at.is_some_and(|at| at.1 != now.1 && self.known.generation == TRACKER.generation());
        if untold {
            TRACKER.modules_changed();
        }
        if self.known.at == Some(now) && self.known.generation == TRACKER.generation() {
            return;
        }
        let (loaded, adds, subs) = modules::loaded();
        let own = &self.executable;
        let modules = loaded.into_iter().map(|m| Module {
            start: m.start,
            end: m.end,
            bias: m.bias,
            path: if m.path.is_empty() { own.clone() } else { m.path },
            build_id: m.build_id,
        });
        let generation = TRACKER.generation();
        self.known = Known { modules: modules.collect(), at: Some((adds, subs)), generation };
        self.append_known_modules();
    }

    pub(super) fn append_known_modules(&mut self) {
        let modules = self.known.modules.clone();
        self.append(&Frame::Modules(Modules { generation: TRACKER.generation(), modules }));
    }
}

/// Has everything been recorded so far?
fn recording() -> bool {
    TRACKER.stopped().is_none()
}

/// False: no memory.
fn push<T>(to: &mut Vec<T>, item: T) -> bool {
    let enough = to.try_reserve(1).is_ok();
    if enough {
        to.push(item);
    }
    enough
}
