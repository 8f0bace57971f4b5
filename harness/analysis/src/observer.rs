//! From the frames of one process to its record, in bounded memory.
//!
//! Snapshot parts wait for their boundary. A boundary opens or closes a window (`windows`). A sample of the operating
//! system finds its boundary by number, whichever of the two comes first. A record never exceeds its [`Limits`],
//! whatever the frames contain. If something is dropped, the record is marked as damaged.

mod curve;
mod os;
mod setup;
mod windows;

use std::collections::{BTreeMap, HashMap, hash_map::Entry};
use std::sync::Arc;

use memgate_wire::native_holders::NativeHolders;
use memgate_wire::{
    AgentCost, Boundary, BoundaryKind, END_OF_MAIN, Frame, LogLevel, Mappings, Module, Modules,
    NativeSnapshot, OsSample, Outcome, SnapshotScope, Stacks, capability,
};

use crate::java::JavaReader;
use crate::looks::{Looks, Named};
use crate::os_names;
use crate::record::{CurveSample, Names, Node, OsName, OsState, ProcessRecord, SeenError};
use curve::{Curve, counted};
use os::{MappedNow, Origins};
use setup::RepeatedSetUp;
use windows::Snapshot;

/// Size limits of one record. Further frames are dropped, and `damaged` in the record reports it.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Snapshot records over all windows, 24 bytes each.
    pub records: usize,
    /// Windows.
    pub windows: usize,
    /// Stack nodes.
    pub stacks: usize,
    /// Names of descriptors and threads, counted where they change between boundaries.
    pub names: usize,
    /// Different loaded modules over all generations.
    pub modules: usize,
    /// Modules over all generations, 8 bytes each.
    pub listed: usize,
}

impl Default for Limits {
    /// At most a few hundred MiB.
    fn default() -> Self {
        Self {
            records: 4_000_000,
            windows: 200_000,
            stacks: 2_000_000,
            names: 1_000_000,
            modules: 50_000,
            listed: 4_000_000,
        }
    }
}

/// Number of errors and warnings to keep; later ones add nothing new.
const MAX_LINES: usize = 100;
/// Results about holders that are kept. The harness asks for 4,096 sites, and each has at most four results.
const MAX_HELD: usize = 4 * 4096;
/// Limit on tests open at one time, and on snapshots waiting for their boundary.
const MAX_PENDING: usize = 1000;

/// Reads the frames of one process.
#[derive(Debug, Default)]
pub struct Observer {
    record: ProcessRecord,
    limits: Limits,
    used: Used,
    /// Snapshot parts still waiting for their boundary, by its number.
    snapshots: BTreeMap<u32, Snapshot>,
    /// Samples still waiting for their boundary, by its number.
    samples: BTreeMap<u32, OsState>,
    /// Looks of a process that waits for the harness only now and then.
    looks: Looks,
    /// Windows by the numbers of their boundaries, for samples that come after the end of a window.
    window_of: HashMap<u32, (usize, Side)>,
    end_sequence: Option<u32>,
    /// The number of the boundary at the end of `main`.
    main_end_sequence: Option<u32>,
    last_boundary: u32,
    last_os: OsState,
    origins: Origins,
    mapped: MappedNow,
    setup: RepeatedSetUp,
    java: JavaReader,
    curve: Curve,
    seen_any: bool,
}

#[derive(Debug, Clone, Copy)]
enum Side {
    Start,
    End,
}

#[derive(Debug, Default)]
struct Used {
    records: usize,
    names: usize,
    modules: usize,
    listed: usize,
}

impl Observer {
    /// With the default limits.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    /// With these limits.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Takes a frame of the agent's stream, or a sample of the harness's own stream (`NAME.os.mgf`). Samples find their
    /// boundary by its number, so they may come before, between or after the agent's frames.
    pub fn push(&mut self, frame: Frame, t_ns: u64) {
        self.tick(t_ns);
        match frame {
            Frame::Hello(hello) => {
                self.record.hello.get_or_insert(hello);
            }
            Frame::Counters(counters) => {
                self.curve.add(&mut self.record, CurveSample { t_ns, ..counted(&counters) })
            }
            Frame::Boundary(boundary) => self.boundary(boundary, t_ns),
            Frame::NativeSnapshot(snapshot) => self.snapshot_part(snapshot),
            Frame::Modules(modules) => self.modules(modules),
            Frame::Stacks(stacks) => self.stacks(&stacks),
            Frame::Handles(handles) => self.origins.learn(handles),
            Frame::Mappings(mappings) => self.mappings(mappings, t_ns),
            Frame::Freed(freed) => self.freed(&freed),
            Frame::Log(log) if log.level != LogLevel::Debug && self.record.warnings.len() < MAX_LINES => {
                self.record.warnings.push(log.text);
            }
            Frame::Error(error) if self.record.errors.len() < MAX_LINES => {
                self.record.errors.push(SeenError { t_ns, error });
            }
            Frame::Goodbye(goodbye) => {
                self.curve.add(&mut self.record, CurveSample { t_ns, ..counted(&goodbye.counters) });
                self.record.cost = later(self.record.cost, goodbye.cost);
                self.record.goodbye = Some(goodbye);
            }
            Frame::OsSample(sample) => self.os_sample(sample, t_ns),
            Frame::Event(event) if event.name == memgate_wire::spool::follow::EVENT => {
                self.record.java.get_or_insert_default().followed.obeyed(&event.detail);
            }
            Frame::Event(event) if event.name == capability::ROUND_ENDS => self.record.in_iteration = false,
            Frame::Event(event) if event.name == capability::FAILED_BY_LISTENER => {
                if let Some(window) = self.record.windows.last_mut() {
                    window.outcome = Some(Outcome::Failed);
                }
            }
            Frame::NativeHolders(holders) => self.native_holders(holders),
            // The reader of the stream converts these to snapshots, or reads the copy.
            Frame::LeakInfo(_) | Frame::NativeCopy(_) => {}
            Frame::Event(_) | Frame::Order(_) | Frame::Log(_) | Frame::Error(_) => {}
            Frame::JvmInfo(_)
            | Frame::Classes(_)
            | Frame::HeapHistogram(_)
            | Frame::JavaState(_)
            | Frame::JavaStacks(_)
            | Frame::JavaSites(_)
            | Frame::Holders(_)
            | Frame::JavaExhausted(_)
            | Frame::JavaObjects(_) => {
                if let Err(damage) = self.java_frame(frame, t_ns) {
                    self.damage(damage);
                }
            }
        }
    }

    fn mappings(&mut self, told: Mappings, t_ns: u64) {
        self.mapped.learn(told);
        let Some(state) = &self.mapped.state else { return };
        let (mapped_bytes, kept) = (Some(state.total()), state.bytes.len());
        self.curve.add(&mut self.record, CurveSample { t_ns, mapped_bytes, ..CurveSample::default() });
        self.used.names = self.used.names.saturating_add(kept);
        if self.used.names > self.limits.names {
            (self.mapped.state, self.mapped.lost) = (None, true);
            self.damage(format!("more than {} names of mappings", self.limits.names));
        }
    }

    /// The holders of one copy come in parts.
    fn native_holders(&mut self, part: NativeHolders) {
        let whole = self.record.native_holders.get_or_insert_default();
        let mut held = std::mem::take(&mut whole.held);
        held.extend(part.held.iter().take(MAX_HELD.saturating_sub(held.len())).cloned());
        *whole = NativeHolders { held, ..part };
    }

    fn java_frame(&mut self, frame: Frame, t_ns: u64) -> Result<(), String> {
        let heap_used = match &frame {
            Frame::JavaState(state) => state.heap_used,
            Frame::JavaExhausted(exhausted) => exhausted.heap_used,
            _ => None,
        };
        if heap_used.is_some() {
            self.curve.add(&mut self.record, CurveSample { t_ns, heap_used, ..CurveSample::default() });
        }
        let record = self.record.java.get_or_insert_default();
        let room = self.limits.records.saturating_sub(self.used.records);
        match frame {
            Frame::JvmInfo(info) => self.java.jvm(record, info),
            Frame::Classes(classes) => self.java.classes(record, classes)?,
            Frame::HeapHistogram(part) => self.used.records += self.java.histogram(record, part, room)?,
            Frame::JavaSites(sites) => self.used.records += self.java.sites(sites, room)?,
            Frame::JavaState(state) => {
                let names = self.limits.names.saturating_sub(self.used.names);
                self.used.names += self.java.state(&state, names)?;
            }
            Frame::JavaStacks(stacks) => self.java.stacks(record, stacks)?,
            Frame::Holders(holders) => self.java.holders(record, holders)?,
            Frame::JavaExhausted(exhausted) => record.ran_out(&exhausted, t_ns),
            Frame::JavaObjects(objects) => record.followed.objects(&objects),
            _ => {}
        }
        Ok(())
    }

    /// Marks the stream as damaged. What was read so far stays. Only the first damage is reported.
    pub fn damage(&mut self, what: impl Into<String>) {
        self.record.damaged.get_or_insert_with(|| what.into());
    }

    /// The record so far.
    #[must_use]
    pub fn record(&self) -> &ProcessRecord {
        &self.record
    }

    /// The record.
    #[must_use]
    pub fn into_record(mut self) -> ProcessRecord {
        if self.record.looks_now_and_then() {
            self.looks.share(&mut self.record.windows);
        }
        self.record
    }

    fn tick(&mut self, t_ns: u64) {
        if !self.seen_any {
            self.seen_any = true;
            self.record.first_ns = t_ns;
        }
        self.record.first_ns = self.record.first_ns.min(t_ns);
        self.record.last_ns = self.record.last_ns.max(t_ns);
    }

    fn modules(&mut self, modules: Modules) {
        let Self { record, limits, used, .. } = self;
        let mut list = record.modules.remove(&modules.generation).unwrap_or_default();
        let before = record.modules.range(..modules.generation).next_back().map(|(_, before)| before);
        let position = |list: &[Arc<Module>], start| list.binary_search_by_key(&start, |m| m.start);
        let mut too_many = None;
        for module in modules.modules {
            // A generation ends when a module is unloaded, so within it an address belongs to one module.
            let Err(at) = position(&list, module.start) else { continue };
            let known = before.and_then(|before| before.get(position(before, module.start).ok()?));
            let known = known.filter(|known| ***known == module);
            used.modules += usize::from(known.is_none());
            used.listed += 1;
            let exceeded = [(used.modules, limits.modules), (used.listed, limits.listed)];
            too_many = exceeded.into_iter().find(|(used, most)| used > most);
            if too_many.is_some() {
                break;
            }
            list.insert(at, known.map_or_else(|| Arc::new(module), Arc::clone));
        }
        record.modules.insert(modules.generation, list);
        if let Some((_, most)) = too_many {
            self.damage(format!("more than {most} modules: the rest was not read"));
        }
    }

    /// A node must come after its parent, and only once. So following parents always ends.
    fn stacks(&mut self, stacks: &Stacks) {
        for node in &stacks.nodes {
            if node.id == 0 || (node.parent != 0 && !self.record.stacks.contains_key(&node.parent)) {
                continue;
            }
            if self.record.stacks.len() >= self.limits.stacks {
                return self
                    .damage(format!("more than {} stack nodes: the rest was not read", self.limits.stacks));
            }
            if let Entry::Vacant(entry) = self.record.stacks.entry(node.id) {
                entry.insert(Node { node: *node, generation: stacks.generation });
            }
        }
    }

    fn snapshot_part(&mut self, part: NativeSnapshot) {
        if self.snapshots.len() >= MAX_PENDING && !self.snapshots.contains_key(&part.boundary) {
            return self.damage(format!("more than {MAX_PENDING} snapshots without a boundary"));
        }
        let room = self.limits.records.saturating_sub(self.used.records);
        let kept = part.records.len().min(room);
        let dropped = kept < part.records.len();
        self.used.records += kept;
        let snapshot = self.snapshots.entry(part.boundary).or_default();
        snapshot.parts = snapshot.parts.saturating_add(1);
        snapshot.truncated |= dropped;
        let records = part.records.into_iter().take(kept);
        match part.scope {
            SnapshotScope::Survivors => {
                snapshot.has_survivors = true;
                snapshot.survivors.extend(records);
            }
            SnapshotScope::Changes => snapshot.changes.extend(records),
            SnapshotScope::All => self.used.records -= kept,
        }
        if dropped {
            self.damage(format!("more than {} snapshot records: the rest was not read", self.limits.records));
        }
    }

    fn boundary(&mut self, boundary: Boundary, t_ns: u64) {
        self.last_boundary = boundary.sequence;
        self.record.cost = later(self.record.cost, boundary.cost);
        self.curve.add(&mut self.record, CurveSample { t_ns, ..counted(&boundary.counters) });
        let snapshot = self.snapshots.remove(&boundary.sequence).unwrap_or_default();
        // Drops snapshots of boundaries that never came.
        self.snapshots = self.snapshots.split_off(&boundary.sequence);
        let ends_test = boundary.kind == BoundaryKind::TestEnd;
        let java = self.java.take(boundary.sequence, ends_test).unwrap_or_else(|damage| {
            self.damage(damage);
            None
        });
        match boundary.kind {
            BoundaryKind::TestStart => self.test_start(boundary, t_ns),
            BoundaryKind::TestEnd => self.test_end(&boundary, snapshot, java, t_ns),
            BoundaryKind::ProcessEnd => {
                self.end_sequence = Some(boundary.sequence);
                self.record.end = Some(self.process_end(&boundary, snapshot, t_ns));
            }
            BoundaryKind::Mark if (boundary.suite.as_str(), boundary.test.as_str()) == END_OF_MAIN => {
                self.main_end_sequence = Some(boundary.sequence);
                self.record.main_end = Some(self.process_end(&boundary, snapshot, t_ns));
            }
            BoundaryKind::IterationStart => {
                // A repeated test is judged by what each execution left.
                if boundary.iteration > 0 {
                    self.record.windows.iter_mut().for_each(|window| window.freed_since = false);
                }
                self.record.iterations = self.record.iterations.max(boundary.iteration.saturating_add(1));
                self.record.in_iteration = true;
            }
            BoundaryKind::ProcessStart => self.record.start = Some(boundary.counters),
            BoundaryKind::Mark => {}
        }
    }

    fn os_sample(&mut self, sample: OsSample, t_ns: u64) {
        let live = sample.counters.as_ref().map(counted).unwrap_or_default();
        self.curve.add(
            &mut self.record,
            CurveSample {
                t_ns,
                rss_bytes: Some(sample.rss_bytes),
                pss_bytes: sample.pss_bytes,
                threads: Some(sample.threads.len() as u64),
                fds: Some(sample.fds.len() as u64),
                ..live
            },
        );
        self.record.cpu_ns = self.record.cpu_ns.max(Some(sample.cpu_ns));
        let sequence = sample.boundary;
        let named = self.origins.named(&sample);
        let is_look =
            sequence != 0 && self.record.looks_now_and_then() && self.looks.len() < self.limits.windows;
        let state = if is_look {
            let told = self.origins.told_at(sequence);
            let (unclear, before) = self.looks.compare(&sample, &named, told);
            let before = before.map(|before| self.os_state(&sample, before));
            let state = self.os_state(&sample, named);
            self.looks.learn(sequence, state.clone(), before, unclear);
            state
        } else {
            let is_look = sequence == 0 && self.record.looks_now_and_then() && self.looks.is_calm(&sample);
            let state = self.os_state(&sample, named);
            if is_look && self.looks.len() < self.limits.windows {
                self.looks.learn_calm(self.last_boundary, &state);
            }
            state
        };
        if sequence != 0 && self.origins.fit(&sample) {
            self.origins.forget_the_dead(&sample);
        }
        self.record.last_threads = sample.threads;
        if sequence != 0 {
            self.attach(sequence, state);
        }
    }

    /// Lists that did not change since the previous sample share its memory.
    fn os_state(&mut self, sample: &OsSample, (fds, threads): Named) -> OsState {
        let wide = |(name, count)| (name, u64::from(count));
        let counted = |names: Vec<OsName>| os_names::count(names.into_iter()).into_iter().map(wide).collect();
        let fds = self.share(counted(fds), |os| &os.fds);
        let threads = self.share(counted(threads), |os| &os.threads);
        let state = OsState { rss_bytes: sample.rss_bytes, pss_bytes: sample.pss_bytes, fds, threads };
        self.last_os = state.clone();
        state
    }

    fn share(&mut self, names: Vec<(OsName, u64)>, of: fn(&OsState) -> &Names) -> Names {
        let last = of(&self.last_os);
        if **last == names {
            return Arc::clone(last);
        }
        if self.used.names.saturating_add(names.len()) > self.limits.names {
            let last = Arc::clone(last);
            self.damage(format!("more than {} names of descriptors and threads", self.limits.names));
            return last;
        }
        self.used.names += names.len();
        Arc::new(names)
    }

    fn attach(&mut self, sequence: u32, state: OsState) {
        let record = &mut self.record;
        if let Some(open) = record.open.iter_mut().find(|o| o.window.start_sequence == sequence) {
            open.window.os_start = Some(state);
        } else if let Some(&(at, side)) = self.window_of.get(&sequence) {
            match side {
                // Descriptors and threads of set-ups cannot be distinguished from those of tests.
                _ if record.windows[at].is_setup() => {}
                Side::Start => record.windows[at].os_start = Some(state),
                Side::End => {
                    if let Some(next) = record.windows.get_mut(at + 1)
                        && next.os_start.is_none()
                        && Some(next.start_sequence) == sequence.checked_add(1)
                    {
                        next.os_start = Some(state.clone());
                    }
                    record.windows[at].os_end = Some(state);
                }
            }
        } else if self.end_sequence == Some(sequence)
            && let Some(end) = &mut record.end
        {
            end.os = Some(state);
        } else if self.main_end_sequence == Some(sequence)
            && let Some(end) = &mut self.record.main_end
        {
            end.os = Some(state);
        } else if self.samples.len() < self.limits.windows {
            self.samples.insert(sequence, state);
        }
    }
}

/// Costs never fall, but boundaries of two threads may come in either order.
fn later(a: AgentCost, b: AgentCost) -> AgentCost {
    AgentCost {
        boundary_ns: a.boundary_ns.max(b.boundary_ns),
        mapped_bytes: a.mapped_bytes.max(b.mapped_bytes),
        stack_nodes: a.stack_nodes.max(b.stack_nodes),
        truncated_stacks: a.truncated_stacks.max(b.truncated_stacks),
        recording_ns: a.recording_ns.max(b.recording_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsl::Process;
    use crate::record::Window;
    use memgate_wire::{
        Counters, Event, FdEntry, Goodbye, GoodbyeReason, Handle, Handles, Hello, Module, Outcome,
        SnapshotRecord, StackNode,
    };

    #[test]
    fn a_test_that_a_listener_lets_fail_at_its_end_has_failed() {
        let mut p = Process::screen();
        p.run("Map.insert", 0, |_| {});
        let name = capability::FAILED_BY_LISTENER.to_owned();
        p.frame(Frame::Event(Event { name, detail: String::new() }));
        p.run("Map.erase", 0, |_| {});
        let outcomes: Vec<_> = p.end().windows.iter().map(|window| window.outcome).collect();
        assert_eq!(outcomes, [Some(Outcome::Failed), Some(Outcome::Passed)]);
    }

    #[test]
    fn a_test_becomes_a_window_with_its_survivors() {
        let mut p = Process::screen();
        p.run("Map.insert", 0, |p| p.alloc(3, 37, 2));
        let record = p.end();
        let [window] = record.windows.as_slice() else { panic!("one window") };
        assert_eq!(window.id(), "Map.insert");
        assert_eq!(window.survivors, [SnapshotRecord { stack: 3, size: 37, count: 2 }]);
        assert_eq!((window.left_bytes(), window.left_allocations()), (74, 2));
        assert_eq!(window.outcome, Some(Outcome::Passed));
        assert_eq!(window.os_start.as_ref().map(OsState::fd_count), Some(3));
        assert_eq!(window.os_end.as_ref().map(OsState::thread_count), Some(1));
        assert!(window.survivors_known && !window.incomplete);
        assert_eq!(record.end.as_ref().map(|e| e.survivor_count), Some(2));
        assert!(record.goodbye.is_some() && record.open.is_empty() && record.damaged.is_none());
    }

    /// Regression: the second end replaced what the test had left, and its leak passed.
    #[test]
    fn a_program_that_reports_an_end_twice_hides_no_leak() {
        let twice = |others_open: bool| {
            let mut p = Process::screen();
            p.run("Map.insert", 0, |p| p.alloc(3, 37, 2));
            if others_open {
                p.start("Map.find", 0);
            }
            p.boundary(BoundaryKind::TestEnd, "Map.insert", 0, Vec::new(), 0, SnapshotScope::Survivors);
            let end = p.frames.iter_mut().rev().find_map(|(frame, _)| match frame {
                Frame::Boundary(boundary) => Some(boundary),
                _ => None,
            });
            end.unwrap().open_tests = u32::from(others_open);
            p.end()
        };
        for record in [twice(false), twice(true)] {
            let [window] = record.windows.as_slice() else { panic!("one window") };
            assert_eq!((window.left_bytes(), window.end_sequence), (74, 3));
        }
    }

    #[test]
    fn a_test_without_an_end_stays_open() {
        let mut p = Process::screen();
        p.run("Map.insert", 0, |_| ());
        p.start("Map.crash", 0);
        let record = p.cut();
        assert_eq!(record.windows.len(), 1);
        assert_eq!(record.open[0].id, "Map.crash");
        assert!(record.goodbye.is_none());
    }

    #[test]
    fn a_second_end_replaces_the_first() {
        let mut p = Process::screen();
        p.run("Map.late", 0, |p| p.alloc(1, 100, 1));
        let mut observer = Observer::new();
        for (frame, t_ns) in p.frames.clone() {
            observer.push(frame, t_ns);
        }
        assert_eq!(observer.record().windows[0].left_bytes(), 100);
        let settled = p.frames.iter().rev().find_map(|(f, _)| match f {
            Frame::Boundary(b) => {
                Some(Boundary { sequence: 9, survivors: 0, snapshot_parts: 0, ..b.clone() })
            }
            _ => None,
        });
        observer.push(Frame::Boundary(settled.expect("an end")), p.t_ns);
        let record = observer.into_record();
        assert_eq!(record.windows.len(), 1);
        assert_eq!((record.windows[0].left_bytes(), record.windows[0].end_sequence), (0, 9));
    }

    #[test]
    fn samples_find_their_boundary_whichever_stream_is_read_first() {
        let mut p = Process::screen();
        p.run("Map.insert", 0, |p| p.fds.push("/tmp/log"));
        let is_os = |f: &Frame| matches!(f, Frame::OsSample(_));
        let expected = p.frames.clone();
        for os_first in [true, false] {
            let mut observer = Observer::new();
            for os in [os_first, !os_first] {
                for (frame, t_ns) in expected.iter().filter(|(f, _)| is_os(f) == os).cloned() {
                    observer.push(frame, t_ns);
                }
            }
            let window = &observer.record().windows[0];
            assert_eq!(window.os_start.as_ref().map(OsState::fd_count), Some(3), "os_first {os_first}");
            assert_eq!(window.os_end.as_ref().map(OsState::fd_count), Some(4), "os_first {os_first}");
        }
    }

    #[test]
    fn a_test_begins_with_what_was_seen_at_the_end_of_the_one_before_where_nobody_looked_again() {
        let mut p = Process::screen();
        p.run("Map.first", 0, |p| p.fds.push("/tmp/log"));
        p.run("Map.second", 0, |p| p.fds.push("/tmp/other"));
        let second = p.frames.iter().rev().find_map(|(frame, _)| match frame {
            Frame::Boundary(b) if b.kind == BoundaryKind::TestStart => Some(b.sequence),
            _ => None,
        });
        let unseen = |frame: &Frame| matches!(frame, Frame::OsSample(s) if Some(s.boundary) == second);
        p.frames.retain(|(frame, _)| !unseen(frame));
        let is_os = |f: &Frame| matches!(f, Frame::OsSample(_));
        for order in [[true, false], [false, true]] {
            let mut observer = Observer::new();
            for os in order {
                for (frame, t_ns) in p.frames.iter().filter(|(f, _)| is_os(f) == os).cloned() {
                    observer.push(frame, t_ns);
                }
            }
            let counts = |w: &Window| [&w.os_start, &w.os_end].map(|os| os.as_ref().map(OsState::fd_count));
            let [first, second] = [0, 1].map(|i| counts(&observer.record().windows[i]));
            assert_eq!((first, second), ([Some(3), Some(4)], [Some(4), Some(5)]), "{order:?}");
        }
    }

    #[test]
    fn an_end_without_a_start_or_with_missing_parts_is_incomplete() {
        let mut p = Process::screen();
        p.run("Map.insert", 0, |p| p.alloc(3, 37, 2));
        for missing in ["start", "snapshot"] {
            let mut observer = Observer::new();
            for (frame, t_ns) in p.frames.clone() {
                let skip = match &frame {
                    Frame::Boundary(b) => missing == "start" && b.kind == BoundaryKind::TestStart,
                    Frame::NativeSnapshot(_) => missing == "snapshot",
                    _ => false,
                };
                if !skip {
                    observer.push(frame, t_ns);
                }
            }
            assert!(observer.record().windows[0].incomplete, "without its {missing}");
        }
    }

    #[test]
    fn what_exceeds_the_limits_is_dropped_and_said() {
        let limits = Limits { records: 3, ..Limits::default() };
        let mut p = Process::screen();
        p.run("A.a", 0, |p| (1..=4).for_each(|stack| p.alloc(stack, 8, 1)));
        let mut observer = Observer::with_limits(limits);
        for (frame, t_ns) in p.frames {
            observer.push(frame, t_ns);
        }
        let record = observer.into_record();
        assert_eq!(record.damaged.as_deref(), Some("more than 3 snapshot records: the rest was not read"));
        assert_eq!(record.windows[0].survivors.len(), 3);
        assert!(record.windows[0].incomplete);

        let mut observer = Observer::with_limits(Limits { windows: 2, ..Limits::default() });
        let mut p = Process::screen();
        (0..4).for_each(|i| p.run("A.a", i, |_| ()));
        for (frame, t_ns) in p.frames {
            observer.push(frame, t_ns);
        }
        let said = observer.record().damaged.as_deref();
        assert_eq!(said, Some("more than 2 executions of tests: the rest was not read"));
        assert_eq!(observer.record().windows.len(), 2);
    }

    #[test]
    fn a_stack_ends_at_its_root_at_a_gap_and_never_loops() {
        let mut observer = Observer::new();
        let node = |id, parent, pc| StackNode { id, parent, pc };
        let nodes = vec![
            node(5, 6, 50), // its parent did not come first: dropped
            node(1, 0, 10),
            node(2, 1, 20),
            node(1, 2, 99), // would close a loop: the first one stays
            node(3, 0, memgate_wire::TRUNCATED_PC),
            node(4, 3, 40),
        ];
        observer.push(Frame::Stacks(Stacks { generation: 2, nodes }), 1);
        let record = observer.into_record();
        let pcs = |id| {
            let (steps, truncated) = record.stack(id);
            (steps.iter().map(|s| s.pc).collect::<Vec<_>>(), truncated)
        };
        assert_eq!(pcs(2), (vec![20, 10], false));
        assert_eq!(pcs(4), (vec![40], true));
        assert_eq!(pcs(5), (vec![], true));
        assert_eq!(pcs(0), (vec![], false));
    }

    fn module(start: u64, path: &str) -> Module {
        Module { start, end: start + 1, bias: start, path: path.to_owned(), build_id: Vec::new() }
    }

    #[test]
    fn a_later_module_list_extends_the_earlier_one() {
        let mut observer = Observer::new();
        for modules in [vec![module(10, "a")], vec![module(5, "b"), module(10, "a")]] {
            observer.push(Frame::Modules(Modules { generation: 1, modules }), 1);
        }
        let paths: Vec<_> = observer.record().modules(1).iter().map(|m| m.path.as_str()).collect();
        assert_eq!(paths, ["b", "a"]);
        assert!(observer.record().modules(2).is_empty());
    }

    /// Regression: a program with 45 libraries that loads a plugin in each execution had too many after 1,100.
    #[test]
    fn modules_that_stay_loaded_count_once_for_all_generations() {
        let limits = Limits { modules: 12, listed: 35, ..Limits::default() };
        let mut observer = Observer::with_limits(limits);
        let mut load = |generation: u32| {
            let stay = (0..4).map(|i| module(i, "libc.so"));
            let modules = stay.chain([module(100 + u64::from(generation), "plugin.so")]).collect();
            observer.push(Frame::Modules(Modules { generation, modules }), 1);
            (observer.record().modules(generation).len(), observer.record().damaged.is_some())
        };
        let loaded: Vec<_> = (0..8).map(&mut load).collect();
        assert_eq!(loaded[..7], [(5, false); 7]);
        assert_eq!(loaded[7], (0, true), "36 in all");
        let Observer { used, .. } = observer;
        assert_eq!(used.modules, 11, "four that stay, and the plugin of each generation");
    }

    proptest::proptest! {
        /// Boundaries in any order, of any number, never panic; what is stored stays within the
        /// limits.
        #[test]
        fn no_order_of_boundaries_panics(
            now_and_then in proptest::bool::ANY,
            steps in proptest::collection::vec((0_u8..6, 0_u32..4, 0_u32..3, 0_usize..4), 0..60)
        ) {
            let limits = Limits { records: 10, windows: 5, ..Limits::default() };
            let mut observer = Observer::with_limits(limits);
            let capabilities = now_and_then.then(|| capability::LOOKS_NOW_AND_THEN.to_owned());
            let hello = Hello { capabilities: capabilities.into_iter().collect(), ..crate::dsl::hello() };
            observer.push(Frame::Hello(hello), 0);
            for (what, sequence, iteration, records) in steps {
                let records = vec![SnapshotRecord { stack: 1, size: u64::MAX, count: u64::MAX }; records];
                let scope = if iteration == 0 { SnapshotScope::Survivors } else { SnapshotScope::Changes };
                let fds = (0..iteration).map(|fd| FdEntry { fd, target: records.len().to_string() });
                let sample = OsSample { boundary: sequence, fds: fds.collect(), ..OsSample::default() };
                let kind = if what == 0 { BoundaryKind::TestStart } else { BoundaryKind::TestEnd };
                let boundary = Boundary {
                    sequence, kind, iteration, suite: String::new(), test: "t".to_owned(), outcome: None,
                    thread_id: 1, open_tests: 1, counters: Counters::default(), survivors: u64::MAX,
                    snapshot_parts: 1, cost: AgentCost::default(),
                };
                observer.push(match what {
                    0 | 1 => Frame::Boundary(boundary),
                    2 => Frame::NativeSnapshot(NativeSnapshot { boundary: sequence, scope, part: 0, records }),
                    3 => Frame::OsSample(sample),
                    5 => Frame::Handles(Handles {
                        boundary: sequence,
                        descriptors: vec![Handle { id: iteration, stack: 1 }],
                        threads: Vec::new(),
                    }),
                    _ => Frame::Goodbye(Goodbye {
                        reason: GoodbyeReason::Exit, status: None,
                        counters: Counters::default(), cost: AgentCost::default(),
                    }),
                }, 1);
            }
            let record = observer.into_record();
            proptest::prop_assert!(record.windows.len() <= 5);
            let stored: usize = record.windows.iter().map(|w| w.survivors.len() + w.changes.len()).sum();
            proptest::prop_assert!(stored <= 10);
            let _again: bool = crate::must_be_screened_again(&record);
            let _bytes: u64 = record.windows.iter().map(Window::left_bytes).fold(0, u64::saturating_add);
        }
    }
}
