//! Streams for tests. A test describes a process by the tests that it ran and what each left; this file writes the
//! frames.

use memgate_model as model;
use memgate_wire::{
    AgentCost, Boundary, BoundaryKind, Counters, FdEntry, Frame, Goodbye, GoodbyeReason, Handle, Handles,
    Hello, Mapped, MappedKind, Mappings, NativeSnapshot, OsSample, Outcome, SnapshotRecord, SnapshotScope,
    StackNode, Stacks, ThreadEntry,
};

use crate::observer::Observer;
use crate::record::ProcessRecord;
use crate::resolve::{Resolve, ResolvedStack};

pub(crate) const MS: u64 = 1_000_000;

/// A process under construction.
pub(crate) struct Process {
    pub(crate) frames: Vec<(Frame, u64)>,
    pub(crate) t_ns: u64,
    sequence: u32,
    counters: Counters,
    /// Everything alive, as the `Changes` snapshots of a confirming run show it: (stack, size) and count.
    live: std::collections::BTreeMap<(u32, u64), u64>,
    reported: std::collections::BTreeMap<(u32, u64), u64>,
    pub(crate) fds: Vec<&'static str>,
    pub(crate) threads: Vec<&'static str>,
    growth: bool,
    os: bool,
    outcome: Outcome,
    open_tests: u32,
}

impl Process {
    /// A process that is screened.
    pub(crate) fn screen() -> Self {
        Self::new(false)
    }

    /// A process that repeats one test.
    pub(crate) fn confirm() -> Self {
        Self::new(true)
    }

    fn new(growth: bool) -> Self {
        let mut process = Self {
            frames: Vec::new(),
            t_ns: 1000 * MS,
            sequence: 0,
            counters: Counters::default(),
            live: std::collections::BTreeMap::new(),
            reported: std::collections::BTreeMap::new(),
            fds: vec!["/dev/null", "/dev/null", "/dev/null"],
            threads: vec!["main"],
            growth,
            os: true,
            outcome: Outcome::Passed,
            open_tests: 1,
        };
        let known = (1..Self::BARE).map(|id| StackNode { id, parent: 0, pc: 0x1000 + u64::from(id) });
        let bare = StackNode { id: Self::BARE, parent: 0, pc: memgate_wire::TRUNCATED_PC };
        let nodes = known.chain([bare]).collect();
        process.frame(Frame::Hello(hello()));
        process.frame(Frame::Stacks(Stacks { generation: 0, nodes }));
        let mappings = Mappings { boundary: 1, lost: false, mapped: Vec::new() };
        process.frames.push((Frame::Mappings(mappings), process.t_ns));
        process.boundary(BoundaryKind::ProcessStart, "", 0, Vec::new(), 0, SnapshotScope::All);
        process
    }

    /// A stack without any known frame.
    pub(crate) const BARE: u32 = 41;
    /// A stack in which the C library registers a function to run at exit.
    pub(crate) const NOTES_EXIT: u32 = 40;

    /// The process records no stacks of its tests' allocations.
    pub(crate) fn stacks_later(mut self) -> Self {
        if let Some((Frame::Hello(hello), _)) = self.frames.first_mut() {
            hello.capabilities.push(memgate_wire::capability::STACKS_LATER.to_owned());
        }
        self
    }

    pub(crate) fn without_os(mut self) -> Self {
        self.os = false;
        self
    }

    pub(crate) fn outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = outcome;
        self
    }

    pub(crate) fn overlapping(mut self) -> Self {
        self.open_tests = 2;
        self
    }

    pub(crate) fn frame(&mut self, frame: Frame) {
        self.frames.push((frame, self.t_ns));
        self.t_ns += MS;
    }

    pub(crate) fn alloc(&mut self, stack: u32, size: u64, count: u64) {
        *self.live.entry((stack, size)).or_default() += count;
        self.counters.allocations += count;
        self.counters.allocated_bytes += size * count;
    }

    pub(crate) fn free(&mut self, stack: u32, size: u64, count: u64) {
        let live = self.live.get_mut(&(stack, size)).expect("was allocated");
        *live -= count;
        self.counters.frees += count;
        self.counters.freed_bytes += size * count;
    }

    /// Repeats work that leaves nothing.
    pub(crate) fn works(&mut self, n: u64) {
        self.alloc(9, 32, n);
        self.free(9, 32, n);
    }

    /// Opens a descriptor from this stack.
    pub(crate) fn open(&mut self, target: &'static str, stack: u32) {
        let id = u32::try_from(self.fds.len()).expect("few descriptors");
        self.fds.push(target);
        let descriptors = vec![Handle { id, stack }];
        self.frame(Frame::Handles(Handles { boundary: self.sequence + 1, descriptors, threads: Vec::new() }));
    }

    /// Starts a thread from this stack.
    pub(crate) fn spawn(&mut self, name: &'static str, stack: u32) {
        self.threads.push(name);
        let id = u32::try_from(self.threads.len()).expect("few threads");
        let threads = vec![Handle { id, stack }];
        self.frame(Frame::Handles(Handles { boundary: self.sequence + 1, descriptors: Vec::new(), threads }));
    }

    /// Sets the ranges and bytes that are mapped from this stack.
    pub(crate) fn mapped(&mut self, stack: u32, kind: MappedKind, count: u64, bytes: u64) {
        let mapped = vec![Mapped { stack, kind: kind.number(), count, bytes }];
        self.frame(Frame::Mappings(Mappings { boundary: self.sequence + 1, lost: false, mapped }));
    }

    pub(crate) fn start(&mut self, test: &str, iteration: u32) {
        self.boundary(BoundaryKind::TestStart, test, iteration, Vec::new(), 0, SnapshotScope::All);
    }

    /// One execution of `Suite.name`. `body` does its allocations and frees.
    pub(crate) fn run(&mut self, test: &str, iteration: u32, body: impl FnOnce(&mut Self)) {
        self.start(test, iteration);
        let before = self.live.clone();
        body(self);
        if self.growth {
            let changes = self.changes();
            self.boundary(BoundaryKind::TestEnd, test, iteration, changes, 0, SnapshotScope::Changes);
        } else {
            let born = |(key, &count): (&(u32, u64), &u64)| {
                let born = count.saturating_sub(before.get(key).copied().unwrap_or(0));
                (born > 0).then_some((*key, born))
            };
            let survivors: Vec<_> = self.live.iter().filter_map(born).collect();
            let count = survivors.iter().map(|(_, n)| n).sum();
            self.boundary(BoundaryKind::TestEnd, test, iteration, survivors, count, SnapshotScope::Survivors);
        }
    }

    fn changes(&mut self) -> Vec<((u32, u64), u64)> {
        let changed = |(key, &count): (&(u32, u64), &u64)| {
            (self.reported.get(key).copied().unwrap_or(0) != count).then_some((*key, count))
        };
        let changes: Vec<_> = self.live.iter().filter_map(changed).collect();
        self.reported.extend(changes.iter().copied());
        changes
    }

    /// In a confirming run of a set-up: the tear-down has run and left one block of this stack and size.
    pub(crate) fn torn_down(&mut self, id: &str, iteration: u32, left: Option<(u32, u64)>) {
        self.start(id, iteration);
        let changes = self.changes();
        let records: Vec<_> =
            left.into_iter().map(|(stack, size)| SnapshotRecord { stack, size, count: 1 }).collect();
        let (boundary, parts) = (self.sequence + 1, u32::from(!records.is_empty()));
        if parts > 0 {
            let scope = SnapshotScope::Survivors;
            self.frame(Frame::NativeSnapshot(NativeSnapshot { boundary, scope, part: 0, records }));
        }
        self.boundary(BoundaryKind::TestEnd, id, iteration, changes, parts.into(), SnapshotScope::Changes);
        for (frame, _) in self.frames.iter_mut().rev().take(2) {
            if let Frame::Boundary(end) = frame {
                end.snapshot_parts += parts;
            }
        }
    }

    pub(crate) fn boundary(
        &mut self,
        kind: BoundaryKind,
        test: &str,
        iteration: u32,
        records: Vec<((u32, u64), u64)>,
        survivors: u64,
        scope: SnapshotScope,
    ) {
        self.sequence += 1;
        let sequence = self.sequence;
        let records: Vec<_> =
            records.into_iter().map(|((stack, size), count)| SnapshotRecord { stack, size, count }).collect();
        let parts = u32::from(!records.is_empty());
        if parts > 0 {
            self.frame(Frame::NativeSnapshot(NativeSnapshot { boundary: sequence, scope, part: 0, records }));
        }
        let (suite, test) = test.split_once('.').unwrap_or(("", test));
        self.frame(Frame::Boundary(Boundary {
            sequence,
            kind,
            suite: suite.to_owned(),
            test: test.to_owned(),
            iteration,
            outcome: (kind == BoundaryKind::TestEnd).then_some(self.outcome),
            thread_id: 1,
            open_tests: self.open_tests,
            counters: self.counters,
            survivors,
            snapshot_parts: parts,
            cost: AgentCost {
                boundary_ns: u64::from(sequence) * 1000,
                recording_ns: u64::from(sequence) * 3000,
                ..AgentCost::default()
            },
        }));
        if self.os {
            self.os_sample(sequence);
        }
    }

    pub(crate) fn os_sample(&mut self, boundary: u32) {
        let sample = OsSample {
            pid: 7,
            boundary,
            rss_bytes: 10_000_000 + self.counters.live_bytes(),
            cpu_ns: u64::from(self.sequence) * MS,
            threads: self
                .threads
                .iter()
                .zip(1..)
                .map(|(name, id)| ThreadEntry {
                    id,
                    name: (*name).to_owned(),
                    waits_in: "futex_wait".to_owned(),
                })
                .collect(),
            fds: self.fds.iter().zip(0..).map(|(t, fd)| FdEntry { fd, target: (*t).to_owned() }).collect(),
            ..OsSample::default()
        };
        self.frame(Frame::OsSample(sample));
    }

    /// The runner begins an iteration.
    pub(crate) fn iteration(&mut self, iteration: u32) {
        self.boundary(BoundaryKind::IterationStart, "", iteration, Vec::new(), 0, SnapshotScope::All);
    }

    /// Writes the mark for the end of `main`.
    pub(crate) fn main_ends(&mut self) {
        let alive: Vec<_> = self.live.iter().filter(|(_, n)| **n > 0).map(|(key, n)| (*key, *n)).collect();
        let count = alive.iter().map(|(_, n)| n).sum();
        let (suite, name) = memgate_wire::END_OF_MAIN;
        let mark = format!("{suite}.{name}");
        self.boundary(BoundaryKind::Mark, &mark, 0, alive, count, SnapshotScope::Survivors);
    }

    /// Ends in order, with a goodbye.
    pub(crate) fn end(self) -> ProcessRecord {
        self.end_with(GoodbyeReason::Exit, Some(0))
    }

    pub(crate) fn end_with(mut self, reason: GoodbyeReason, status: Option<i32>) -> ProcessRecord {
        let alive: Vec<_> = self.live.iter().filter(|(_, n)| **n > 0).map(|(key, n)| (*key, *n)).collect();
        let count = alive.iter().map(|(_, n)| n).sum();
        self.boundary(BoundaryKind::ProcessEnd, "", 0, alive, count, SnapshotScope::Survivors);
        let (counters, cost) = (self.counters, AgentCost::default());
        self.frame(Frame::Goodbye(Goodbye { reason, status, counters, cost }));
        self.cut()
    }

    /// Ends the stream here, without a goodbye.
    pub(crate) fn cut(mut self) -> ProcessRecord {
        let mut observer = Observer::new();
        self.pass_to(&mut observer);
        observer.into_record()
    }

    /// Passes on the frames that came since the last call, like a reader of a stream that grows.
    pub(crate) fn pass_to(&mut self, observer: &mut Observer) {
        self.frames.drain(..).for_each(|(frame, t_ns)| observer.push(frame, t_ns));
    }
}

pub(crate) fn hello() -> Hello {
    Hello {
        wire_version: memgate_wire::WIRE_VERSION,
        agent_version: "0.1.0".to_owned(),
        pid: 7,
        parent_pid: 1,
        abi: "x86_64-linux-gnu".to_owned(),
        pointer_bytes: 8,
        executable: "/build/engine_tests".to_owned(),
        arguments: vec!["engine_tests".to_owned()],
        working_directory: "/build".to_owned(),
        ..Hello::default()
    }
}

/// Stack N was taken in `leak_N`, called from the body of a GoogleTest test.
pub(crate) struct ByNumber;

impl Resolve for ByNumber {
    fn frames(&mut self, _: &ProcessRecord, stack: u32) -> ResolvedStack {
        if stack == Process::BARE {
            return ResolvedStack { frames: Vec::new(), truncated: true };
        }
        let allocates = if stack == Process::NOTES_EXIT { "__new_exitfn" } else { "malloc" };
        let frames = vec![
            frame("libc.so.6", allocates),
            frame("engine_tests", &format!("leak_{stack}(int)")),
            frame("engine_tests", "Suite_test_Test::TestBody()"),
            frame("engine_tests", "testing::Test::Run()"),
            frame("engine_tests", "main"),
        ];
        ResolvedStack { frames, truncated: false }
    }
}

pub(crate) fn frame(module: &str, function: &str) -> model::Frame {
    model::Frame {
        function: (!function.is_empty()).then(|| function.to_owned()),
        file: Some("leaks.cpp".to_owned()),
        line: Some(17),
        module: module.to_owned(),
        offset: 0x1234,
        inlined: false,
    }
}
