//! Writes the seeds that are made of frames: `cargo run --release --example seeds` in this folder.
//! They hold one of every frame, a process of two tests, and the same test repeated with growth,
//! alone and as runs of different length; and Java virtual machines: the build's own, rounds, and a
//! test class repeated, with its holders.

use std::fs;
use std::path::Path;

use memgate_wire::java::{
    ClassCount, ClassName, Classes, HeapHistogram, HistogramScope, HolderLink, HolderPath, Holders,
    JavaState, JvmInfo,
};
use memgate_wire::reply::Reply;
use memgate_wire::{
    AgentCost, Boundary, BoundaryKind, Counters, ErrorCode, ErrorFrame, Event, FdEntry, Frame, Goodbye,
    GoodbyeReason, Hello, Log, LogLevel, Module, Modules, NativeSnapshot, Order, OsSample, Outcome,
    ProcessRole, Runtime, SnapshotRecord, SnapshotScope, StackNode, Stacks, ThreadEntry, encode,
};

/// Frames with the times they are given.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    t_ns: u64,
    sequence: u32,
}

impl Stream {
    fn push(&mut self, frame: &Frame) {
        self.t_ns += 1_000_000;
        encode(frame, self.t_ns, &mut self.bytes);
    }

    fn begin(&mut self, label: &str) {
        self.push(&Frame::Hello(Hello {
            wire_version: 1,
            agent_version: "1".to_owned(),
            pid: 7,
            parent_pid: 1,
            abi: "x86_64-linux-gnu".to_owned(),
            pointer_bytes: 8,
            runtime: Runtime::Native,
            role: ProcessRole::Main,
            executable: "/b/t".to_owned(),
            arguments: vec![
                "./t".to_owned(),
                "--gtest_filter=*".to_owned(),
                "std::vector<int>::push_back(int)".to_owned(),
            ],
            working_directory: "/b".to_owned(),
            realtime_offset_ns: 5,
            capabilities: vec![memgate_wire::capability::GTEST.to_owned()],
            blind: None,
            label: label.to_owned(),
        }));
        let module =
            Module { start: 4096, end: 8192, bias: 0, path: "/b/t".to_owned(), build_id: vec![1, 2, 3] };
        self.push(&Frame::Modules(Modules { generation: 0, modules: vec![module] }));
        let nodes = [(1, 0, 4100), (2, 1, 4200), (3, 2, 4301), (4, 0, 1)];
        let nodes = nodes.map(|(id, parent, pc)| StackNode { id, parent, pc });
        self.push(&Frame::Stacks(Stacks { generation: 0, nodes: nodes.into() }));
        self.boundary(BoundaryKind::ProcessStart, "", 0, &[], SnapshotScope::Survivors);
    }

    fn boundary(
        &mut self,
        kind: BoundaryKind,
        test: &str,
        iteration: u32,
        left: &[(u32, u64, u64)],
        scope: SnapshotScope,
    ) {
        self.sequence += 1;
        let records: Vec<_> =
            left.iter().map(|&(stack, size, count)| SnapshotRecord { stack, size, count }).collect();
        if !records.is_empty() {
            self.push(&Frame::NativeSnapshot(NativeSnapshot {
                boundary: self.sequence,
                scope,
                part: 0,
                records,
            }));
        }
        let grown = u64::from(self.sequence) * 48;
        self.push(&Frame::Boundary(Boundary {
            sequence: self.sequence,
            kind,
            suite: if test.is_empty() && kind != BoundaryKind::TestEnd {
                String::new()
            } else {
                "S".to_owned()
            },
            test: test.to_owned(),
            iteration,
            outcome: (kind == BoundaryKind::TestEnd).then_some(Outcome::Passed),
            thread_id: 7,
            open_tests: u32::from(!test.is_empty()),
            counters: Counters {
                allocations: 9 + grown / 48,
                allocated_bytes: 900 + grown,
                frees: 2,
                freed_bytes: 50,
                ..Counters::default()
            },
            survivors: left.iter().map(|(_, _, count)| count).sum(),
            snapshot_parts: u32::from(!left.is_empty()),
            cost: AgentCost::default(),
        }));
        self.push(&Frame::OsSample(OsSample {
            pid: 7,
            boundary: self.sequence,
            rss_bytes: 1 << 20,
            pss_bytes: Some(1 << 19),
            private_dirty_bytes: None,
            cpu_ns: 1_000,
            threads: vec![ThreadEntry { id: 7, name: "t".to_owned(), waits_in: String::new() }],
            fds: vec![FdEntry { fd: 0, target: "/dev/null".to_owned() }],
            counters: None,
        }));
    }

    /// A virtual machine with the classes of a small heap.
    fn begin_java(&mut self, label: &str, listener: &str) {
        self.begin(label);
        let text = |s: &str| s.to_owned();
        self.push(&Frame::JvmInfo(JvmInfo {
            vm: text("OpenJDK 64-Bit Server VM 17"),
            version: text("17"),
            home: text("/jdk"),
            collector: text("G1"),
            command: text("com.example.Main"),
            vm_arguments: vec![text("-Xmx64m")],
            class_path: vec![text("/classes")],
            module_path: Vec::new(),
            properties: Vec::new(),
            listener: text(listener),
        }));
        let names = ["java.lang.String", "byte[]", "com.example.Tile"];
        let classes = (1..).zip(names).map(|(id, name)| ClassName { id, name: text(name) });
        self.push(&Frame::Classes(Classes { classes: classes.collect() }));
    }

    /// The end of a whole test class, with what is alive.
    fn window(&mut self, iteration: u32, live: &[(u32, u64, u64)]) {
        self.boundary(BoundaryKind::IterationStart, "", iteration, &[], SnapshotScope::Changes);
        let boundary = self.sequence + 1;
        let scope = if boundary < 3 { HistogramScope::All } else { HistogramScope::Changes };
        let count = |&(class, instances, bytes)| ClassCount { class, instances, bytes };
        let records = live.iter().map(count).collect();
        self.push(&Frame::HeapHistogram(HeapHistogram { boundary, part: 0, scope, records }));
        self.push(&Frame::JavaState(JavaState {
            boundary,
            heap_used: Some(1 << 20),
            threads: Some(5),
            thread_names: vec!["main".to_owned()],
            ..JavaState::default()
        }));
        self.boundary(BoundaryKind::TestEnd, "", iteration, &[], SnapshotScope::Changes);
    }

    fn test(&mut self, name: &str, iteration: u32, left: &[(u32, u64, u64)], scope: SnapshotScope) {
        self.boundary(BoundaryKind::TestStart, name, iteration, &[], scope);
        self.boundary(BoundaryKind::TestEnd, name, iteration, left, scope);
    }

    fn end(&mut self, left: &[(u32, u64, u64)]) {
        self.boundary(BoundaryKind::ProcessEnd, "", 0, left, SnapshotScope::Survivors);
        let (counters, cost) = (Counters::default(), AgentCost::default());
        self.push(&Frame::Goodbye(Goodbye { reason: GoodbyeReason::Exit, status: Some(0), counters, cost }));
    }
}

/// One of each, though no process says all that.
fn everything() -> Vec<u8> {
    let mut stream = Stream::default();
    stream.begin("screen");
    stream.push(&Frame::Counters(Counters { allocations: 3, ..Counters::default() }));
    stream.push(&Frame::Event(Event { name: "fork".to_owned(), detail: String::new() }));
    stream.push(&Frame::Log(Log { level: LogLevel::Warn, text: "careful".to_owned() }));
    stream.push(&Frame::Error(ErrorFrame { code: ErrorCode::Other, text: "odd".to_owned() }));
    stream.push(&Frame::Order(Order { boundary: 2, reply: Reply::of(1) }));
    stream.test("a", 0, &[], SnapshotScope::Survivors);
    stream.end(&[]);
    stream.bytes
}

fn screened() -> Vec<u8> {
    let mut stream = Stream::default();
    stream.begin("screen");
    stream.test("clean", 0, &[], SnapshotScope::Survivors);
    stream.test("leaks", 0, &[(3, 48, 1), (4, 7, 2)], SnapshotScope::Survivors);
    stream.end(&[(3, 48, 1), (4, 7, 2)]);
    stream.bytes
}

fn repeated() -> Vec<u8> {
    let mut stream = Stream::default();
    stream.begin("confirm");
    for iteration in 0..9 {
        stream.boundary(BoundaryKind::IterationStart, "", iteration, &[], SnapshotScope::Changes);
        stream.test("leaks", iteration, &[(3, 48, 1)], SnapshotScope::Changes);
    }
    stream.end(&[]);
    stream.bytes
}

fn java_own() -> Vec<u8> {
    let mut stream = Stream::default();
    stream.begin_java("screen", "junit4");
    stream.test("leaks", 0, &[], SnapshotScope::Survivors);
    stream.end(&[]);
    stream.bytes
}

/// Windows in which tiles grow by twelve each time; alone: with those who hold them.
fn java_grows(label: &str, windows: u32, alone: bool) -> Vec<u8> {
    let mut stream = Stream::default();
    stream.begin_java(label, "launcher");
    for i in 0..windows {
        let tiles = 12 * (u64::from(i) + 1);
        stream.window(i, &[(1, 400, 9600), (2, 400, 24000), (3, tiles, tiles * 24)]);
    }
    if alone {
        let link = |kind: &str, owner: &str, name: &str, class: &str| HolderLink {
            kind: kind.to_owned().into(),
            owner: owner.to_owned(),
            name: name.to_owned(),
            class: class.to_owned(),
        };
        let links = vec![
            link("static", "com.example.Registry", "cache", "java.util.HashMap"),
            link("array", "java.util.HashMap$Node[]", "[x]", "com.example.Tile"),
        ];
        let boundary = stream.sequence + 1;
        let paths = vec![HolderPath { instances: 12, links }];
        stream.push(&Frame::Holders(Holders { boundary, class: 3, instances: 12, paths, cut: None }));
        stream.boundary(BoundaryKind::TestEnd, "", windows - 1, &[], SnapshotScope::Changes);
    }
    stream.end(&[]);
    stream.bytes
}

fn length(n: u64) -> Vec<u8> {
    let mut stream = Stream::default();
    stream.begin("length");
    stream.end(&[(3, 48, n)]);
    stream.bytes
}

fn main() -> std::io::Result<()> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let write = |name: &str, prefix: &[u8], parts: &[Vec<u8>]| {
        let path = seeds.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&seeds))?;
        fs::write(path, [prefix, &parts.concat()].concat())
    };
    let order = |sequence, reply| {
        let mut bytes = Vec::new();
        encode(&Frame::Order(Order { boundary: sequence, reply }), 1, &mut bytes);
        bytes
    };
    write("wire/everything", &[], &[everything()])?;
    write("spool/spool", &[16; 24], &[everything()])?;
    write("spool/bare", &[2; 24], &[everything()])?;
    write("spool/cut", &[12; 24], &[everything()])?;
    write("session/clean", &[0; 4], &[everything()])?;
    write("session/leaks", &[0, 0, 0x48, 0], &[screened(), repeated()])?;
    write("session/broken", &[0, 6, 0x48, 12], &[screened()])?;
    write("session/process", &[1, 4, 0x48, 8], &[length(1), length(1), length(20), length(300)])?;
    write("java_session/clean", &[0, 0x24, 0x48, 0], &[java_own(), java_grows("rounds", 2, false)])?;
    let rounds = || java_grows("rounds", 6, false);
    write(
        "java_session/leaks",
        &[0, 0x24, 0x48, 0],
        &[java_own(), rounds(), java_grows("confirm", 14, true)],
    )?;
    write("java_session/broken", &[3, 0x24, 0x48, 0], &[java_own(), rounds()])?;
    for how in 0..4 {
        write(&format!("harness_socket/{how}"), &[how, 9], &[screened()])?;
        write(
            &format!("agent_socket/{how}"),
            &[how | 12],
            &[order(1, Reply::default()), order(2, Reply::default())],
        )?;
        let classes = Reply::explain([7, 300].into_iter().collect());
        write(&format!("agent_socket/classes-{how}"), &[how | 12], &[order(1, classes)])?;
    }
    Ok(())
}
