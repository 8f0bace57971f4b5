//! The stream of one process: what is known goes in, encoded frames come out at the carrier.

use memgate_ffi::{heap, modules, process};
use memgate_tracker::StopReason;
use memgate_wire::{
    AgentCost, Boundary, BoundaryKind, Counters, ErrorCode, ErrorFrame, Frame, Hello, Module, Modules,
    NativeSnapshot, Outcome, ProcessRole, Runtime, SnapshotRecord, SnapshotScope, StackNode, Stacks,
    WIRE_VERSION, encode,
};

use crate::carrier::{Carrier, Socket, Spool};
use crate::entry;
use crate::native::hooks::TRACKER;
use crate::native::snapshot::{self, Counts};
use crate::options::{CarrierKind, Detail, Options};

const RECORDS_PER_PART: usize = 4096;
const NODES_PER_FRAME: usize = 8192;

/// Everything that is written goes through one of these.
pub(super) struct Session {
    pub(super) options: Options,
    pub(super) role: ProcessRole,
    pid: u32,
    executable: String,
    main_thread: usize,
    pub(super) carrier: Carrier,
    pub(super) buffer: Vec<u8>,
    pub(super) sequence: u32,
    pub(super) iteration: u32,
    pub(super) windows: Vec<Window>,
    pub(super) known: Known,
    pub(super) sent_nodes: Vec<u64>,
    pub(super) last_counts: Counts,
    pub(super) boundary_ns: u64,
    pub(super) told_stop: bool,
    pub(super) harness_silent: bool,
}

/// The modules as last written, and the loader's counts of loads and unloads at that time.
#[derive(Default)]
pub(super) struct Known {
    at: Option<(u64, u64)>,
    modules: Vec<Module>,
}

/// What the hello tells beside the process itself.
#[derive(Default)]
pub(super) struct Offers {
    pub(super) gtest: bool,
    pub(super) blind: Option<String>,
}

/// A test that has begun and not ended.
pub(super) struct Window {
    pub(super) suite: String,
    pub(super) test: String,
    /// Epoch it began with; 0: so long ago that nobody knows.
    pub(super) epoch: u32,
    pub(super) outcome: Option<Outcome>,
}

impl Session {
    /// `known`: modules of the parent, in a forked child.
    pub(super) fn open(options: Options, role: ProcessRole, offers: Offers, known: Known) -> Option<Self> {
        let carrier = match &options.carrier {
            CarrierKind::Spool => {
                let child = role == ProcessRole::ForkChild;
                Carrier::Spool(Spool::create(&options.directory, options.harness, child).ok()?)
            }
            kind => Carrier::Socket(Socket::serve(kind, &options.token).ok()?),
        };
        let mut session = Self {
            role,
            pid: process::pid(),
            executable: executable(),
            main_thread: memgate_tracker::sys::thread_pointer(),
            carrier,
            buffer: Vec::new(),
            sequence: 0,
            iteration: 0,
            windows: Vec::new(),
            known,
            sent_nodes: Vec::new(),
            last_counts: Counts::default(),
            boundary_ns: 0,
            told_stop: false,
            harness_silent: false,
            options,
        };
        session.append_hello(offers);
        match role {
            ProcessRole::Main => session.append_modules(),
            ProcessRole::ForkChild => session.append_known_modules(),
        }
        session.flush();
        Some(session)
    }

    fn append_hello(&mut self, offers: Offers) {
        let mut capabilities = vec!["native.live".to_owned(), "boundary.c_api".to_owned()];
        if entry::find_object().is_some() {
            capabilities.push("native.stacks".to_owned());
        }
        if offers.gtest {
            capabilities.push("boundary.gtest".to_owned());
        }
        let hello = Hello {
            wire_version: WIRE_VERSION,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: self.pid,
            parent_pid: process::parent_pid(),
            abi: "x86_64-linux-gnu".to_owned(),
            pointer_bytes: 8,
            runtime: Runtime::Native,
            role: self.role,
            executable: self.executable.clone(),
            arguments: arguments(),
            working_directory: std::env::current_dir()
                .map(|d| d.to_string_lossy().into_owned())
                .unwrap_or_default(),
            realtime_offset_ns: process::realtime_offset_ns(),
            capabilities,
            blind: offers.blind,
            label: self.options.label.clone(),
        };
        self.append(&Frame::Hello(hello));
        for complaint in core::mem::take(&mut self.options.complaints) {
            self.append(&Frame::Error(ErrorFrame { code: ErrorCode::BadOption, text: complaint }));
        }
    }

    pub(super) fn boundary(&mut self, kind: BoundaryKind, suite: &str, test: &str, outcome: Option<Outcome>) {
        if kind == BoundaryKind::TestStart {
            let epoch = self.next_epoch();
            let window = Window { suite: suite.to_owned(), test: test.to_owned(), epoch, outcome: None };
            self.windows.push(window);
        }
        TRACKER.publish();
        let sequence = self.sequence + 1;
        let (mut survivors, mut parts, mut outcome) = (0, 0, outcome);
        match kind {
            BoundaryKind::TestEnd => {
                let window = self.windows.iter().rposition(|w| w.suite == suite && w.test == test);
                if let Some(window) = window.and_then(|i| self.windows.get(i)) {
                    outcome = outcome.or(window.outcome).or(Some(Outcome::Passed));
                    let epoch = window.epoch;
                    (survivors, parts) = self.append_test_snapshot(sequence, epoch);
                }
            }
            BoundaryKind::ProcessEnd => {
                let counts = snapshot::count(0);
                survivors = counts.values().sum();
                parts = self.append_records(sequence, SnapshotScope::Survivors, &snapshot::records(&counts));
            }
            _ => {}
        }
        self.append_boundary(kind, (suite, test), outcome, (survivors, parts));
        self.tell_stop();
        self.flush();
    }

    /// A new epoch begins. When the count starts again, a window that is open belongs to no epoch any more: at its end
    /// everything alive is taken for its own, which can only send it to be confirmed.
    pub(super) fn next_epoch(&mut self) -> u32 {
        let epoch = TRACKER.begin_epoch();
        for window in self.windows.iter_mut().filter(|w| w.epoch > epoch) {
            window.epoch = 0;
        }
        epoch
    }

    /// The survivors of a window, or in detail `growth` what changed: (survivors, parts written).
    fn append_test_snapshot(&mut self, sequence: u32, epoch: u32) -> (u64, u32) {
        let alive = TRACKER.alive_since(epoch);
        match self.options.detail {
            Detail::Survivors if alive == Some(0) => (0, 0),
            Detail::Survivors => {
                let counts = snapshot::count(epoch);
                let survivors = counts.values().sum();
                (
                    survivors,
                    self.append_records(sequence, SnapshotScope::Survivors, &snapshot::records(&counts)),
                )
            }
            Detail::Growth => {
                let now = snapshot::count(0);
                let changes = snapshot::changes(&self.last_counts, &now);
                self.last_counts = now;
                let survivors = alive.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
                (survivors, self.append_records(sequence, SnapshotScope::Changes, &changes))
            }
        }
    }

    fn append_records(&mut self, boundary: u32, scope: SnapshotScope, records: &[SnapshotRecord]) -> u32 {
        if !records.is_empty() {
            self.append_modules();
            self.append_stacks(records);
        }
        let mut part = 0;
        for chunk in records.chunks(RECORDS_PER_PART) {
            self.append(&Frame::NativeSnapshot(NativeSnapshot {
                boundary,
                scope,
                part,
                records: chunk.to_vec(),
            }));
            part += 1;
        }
        part
    }

    fn append_stacks(&mut self, records: &[SnapshotRecord]) {
        let mut by_generation: Vec<(u32, Vec<StackNode>)> = Vec::new();
        let mut path = Vec::new();
        for record in records {
            let mut id = record.stack;
            while id != 0 && self.mark_sent(id) {
                let Some(node) = TRACKER.stack_node(id) else { break };
                path.push((node.generation, StackNode { id, parent: node.parent, pc: node.pc }));
                id = node.parent;
            }
            while let Some((generation, node)) = path.pop() {
                match by_generation.iter_mut().find(|(g, _)| *g == generation) {
                    Some((_, nodes)) => nodes.push(node),
                    None => by_generation.push((generation, vec![node])),
                }
            }
        }
        for (generation, nodes) in by_generation {
            for chunk in nodes.chunks(NODES_PER_FRAME) {
                self.append(&Frame::Stacks(Stacks { generation, nodes: chunk.to_vec() }));
            }
        }
    }

    /// True the first time a node is asked for.
    fn mark_sent(&mut self, id: u32) -> bool {
        let (word, bit) = (id as usize / 64, 1_u64 << (id % 64));
        if word >= self.sent_nodes.len() {
            self.sent_nodes.resize(word + 1, 0);
        }
        self.sent_nodes.get_mut(word).is_some_and(|w| {
            let first = *w & bit == 0;
            *w |= bit;
            first
        })
    }

    /// The module list, if it has changed since it was last written.
    pub(super) fn append_modules(&mut self) {
        if self.known.at == Some(modules::counts()) {
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
        self.known = Known { modules: modules.collect(), at: Some((adds, subs)) };
        self.append_known_modules();
    }

    fn append_known_modules(&mut self) {
        let modules = self.known.modules.clone();
        self.append(&Frame::Modules(Modules { generation: TRACKER.generation(), modules }));
    }

    /// Without a system call in the main thread: it may be under a filter by now that forbids all but a few.
    fn thread_id(&self) -> u32 {
        if memgate_tracker::sys::thread_pointer() == self.main_thread {
            self.pid
        } else {
            process::thread_id()
        }
    }

    pub(super) fn append_boundary(
        &mut self,
        kind: BoundaryKind,
        (suite, test): (&str, &str),
        outcome: Option<Outcome>,
        (survivors, parts): (u64, u32),
    ) {
        self.sequence += 1;
        let boundary = Boundary {
            sequence: self.sequence,
            kind,
            suite: suite.to_owned(),
            test: test.to_owned(),
            iteration: self.iteration,
            outcome,
            thread_id: self.thread_id(),
            open_tests: u32::try_from(self.windows.len()).unwrap_or(u32::MAX),
            counters: counters(),
            survivors,
            snapshot_parts: parts,
            cost: self.cost(),
        };
        self.append(&Frame::Boundary(boundary));
    }

    /// Recording stopped: say so once, in the stream.
    fn tell_stop(&mut self) {
        let Some(reason) = TRACKER.stopped().filter(|_| !self.told_stop) else { return };
        self.told_stop = true;
        let (code, text) = match reason {
            StopReason::Memory => (ErrorCode::OutOfMemory, "no memory for a thread's state"),
            StopReason::Table => (ErrorCode::OutOfTable, "no memory for the table of live allocations"),
            StopReason::Stacks => (ErrorCode::OutOfTable, "no memory for call stacks"),
        };
        self.append(&Frame::Error(ErrorFrame { code, text: format!("recording stopped: {text}") }));
    }

    pub(super) fn cost(&self) -> AgentCost {
        AgentCost {
            boundary_ns: self.boundary_ns,
            mapped_bytes: memgate_tracker::sys::mapped_bytes()
                + heap::mapped_bytes()
                + self.carrier.mapped_bytes(),
            stack_nodes: TRACKER.stack_nodes().into(),
            truncated_stacks: TRACKER.totals().truncated_stacks,
        }
    }

    pub(super) fn append(&mut self, frame: &Frame) {
        encode(frame, process::monotonic_ns(), &mut self.buffer);
    }

    pub(super) fn flush(&mut self) {
        self.carrier.write(&self.buffer);
        self.buffer.clear();
    }
}

pub(crate) fn counters() -> Counters {
    let t = TRACKER.totals();
    Counters {
        allocations: t.allocations,
        frees: t.frees,
        allocated_bytes: t.allocated_bytes,
        freed_bytes: t.freed_bytes,
        unknown_frees: t.unknown_frees,
        dropped_frames: 0,
    }
}

pub(super) fn executable() -> String {
    std::fs::read_link("/proc/self/exe").map(|p| p.to_string_lossy().into_owned()).unwrap_or_default()
}

pub(super) fn arguments() -> Vec<String> {
    let text = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let text = text.strip_suffix(b"\0").unwrap_or(&text);
    text.split(|&b| b == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect()
}
