//! The captured streams of all versions stay readable, frame by frame, forever.

use std::fs;

use memgate_e2e::repository;
use memgate_wire::spool::{CONTROL_BYTES, Extent, state};
use memgate_wire::{
    BoundaryKind, Decoded, Frame, Outcome, ProcessRole, Runtime, SnapshotScope, WIRE_VERSION, decode,
};

/// The stream of each version, from the same program.
fn streams() -> impl Iterator<Item = (u16, Vec<Frame>)> {
    (1..=WIRE_VERSION).map(|version| (version, frames(version)))
}

fn frames(version: u16) -> Vec<Frame> {
    fixture(&format!("v{version}.mgf"))
}

fn fixture(name: &str) -> Vec<Frame> {
    let spool = fs::read(repository().join("tests/fixtures").join(name)).unwrap();
    let extent = Extent::of(&spool);
    assert_eq!(extent.start, CONTROL_BYTES as u64);
    assert_eq!(extent.end, Some(spool.len() as u64), "it is trimmed to what is committed");
    assert_eq!(extent.state, state::CLOSED);
    let (mut at, mut before, mut frames) = (CONTROL_BYTES, 0, Vec::new());
    while at < spool.len() {
        let Decoded::Frame { frame, t_ns, bytes } = decode(&spool[at..], at as u64).unwrap() else {
            panic!("byte {at} of {name} is no frame");
        };
        assert!(t_ns >= before, "time runs backwards at byte {at}");
        before = t_ns;
        at += bytes;
        frames.push(frame);
    }
    frames
}

#[test]
fn it_begins_with_who_wrote_it_and_ends_with_a_goodbye() {
    for (version, frames) in streams() {
        let Some(Frame::Hello(hello)) = frames.first() else { panic!("no hello first") };
        assert_eq!(hello.wire_version, version);
        assert_eq!((hello.runtime, hello.role, hello.pointer_bytes), (Runtime::Native, ProcessRole::Main, 8));
        assert_eq!(hello.executable, "/tmp/memgate-fixture/leaks");
        assert_eq!(hello.working_directory, "/tmp/memgate-fixture");
        assert!(hello.arguments[0].ends_with("leaks"), "{:?}", hello.arguments);
        assert!(hello.capabilities.iter().any(|name| name == "boundary.gtest"), "{:?}", hello.capabilities);
        assert_eq!((hello.blind.as_deref(), hello.label.as_str()), (None, "fixture"));
        let Some(Frame::Goodbye(goodbye)) = frames.last() else { panic!("no goodbye last") };
        assert!(goodbye.counters.allocations > goodbye.counters.frees, "{goodbye:?}");
        assert_eq!(goodbye.cost.recording_ns > 0, version >= 2, "{goodbye:?}");
    }
}

#[test]
fn it_holds_every_test_in_its_order_with_what_it_left_behind() {
    for (_, frames) in streams() {
        let ends: Vec<_> = frames
            .iter()
            .filter_map(|frame| match frame {
                Frame::Boundary(b) if b.kind == BoundaryKind::TestEnd => Some(b),
                _ => None,
            })
            .collect();
        assert_eq!(ends.len(), 20);
        assert_eq!((ends[0].suite.as_str(), ends[0].test.as_str()), ("Leaks", "NodeLeftInContainer"));
        assert!(ends.iter().all(|end| end.outcome == Some(Outcome::Passed) && end.open_tests == 1));
        let strdup = ends.iter().find(|end| end.test == "Strdup").unwrap();
        assert_eq!(survivors(&frames, strdup.sequence), [(61, 1)]);
        let exception = ends.iter().find(|end| end.test == "ExceptionPath").unwrap();
        assert!(survivors(&frames, exception.sequence).contains(&(1003, 1)));
        let idle =
            ends.iter().find(|end| end.suite == "Levels/OneParameter" && end.test == "Loads/0").unwrap();
        assert_eq!((idle.survivors, idle.snapshot_parts), (0, 0));
    }
}

#[test]
fn every_stack_of_a_survivor_goes_to_its_root_in_modules_that_are_told() {
    for (_, frames) in streams() {
        let nodes: std::collections::BTreeMap<u32, (u32, u64)> = frames
            .iter()
            .filter_map(|frame| if let Frame::Stacks(stacks) = frame { Some(&stacks.nodes) } else { None })
            .flatten()
            .map(|node| (node.id, (node.parent, node.pc)))
            .collect();
        let modules: Vec<_> = frames
            .iter()
            .filter_map(
                |frame| if let Frame::Modules(modules) = frame { Some(&modules.modules) } else { None },
            )
            .flatten()
            .collect();
        assert!(
            modules
                .iter()
                .any(|module| module.path == "/tmp/memgate-fixture/leaks" && !module.build_id.is_empty())
        );
        let mut walked = 0;
        for frame in &frames {
            let Frame::NativeSnapshot(snapshot) = frame else { continue };
            assert_eq!(snapshot.scope, SnapshotScope::Survivors);
            for record in &snapshot.records {
                let mut id = record.stack;
                while id != 0 {
                    let (parent, pc) = nodes[&id];
                    assert!(modules.iter().any(|m| (m.start..m.end).contains(&(pc - 1))), "{pc:#x}");
                    (id, walked) = (parent, walked + 1);
                }
            }
        }
        assert!(walked > 100, "{walked}");
    }
}

/// (size, count) of the blocks that survived that boundary.
fn survivors(frames: &[Frame], sequence: u32) -> Vec<(u64, u64)> {
    frames
        .iter()
        .filter_map(|frame| match frame {
            Frame::NativeSnapshot(part) if part.boundary == sequence => Some(&part.records),
            _ => None,
        })
        .flatten()
        .map(|record| (record.size, record.count))
        .collect()
}

#[test]
fn a_stream_tells_where_a_descriptor_was_opened_and_a_thread_started() {
    let frames = fixture("handles.mgf");
    let end_of = |test: &str| {
        frames.iter().find_map(|frame| match frame {
            Frame::Boundary(b) if b.kind == BoundaryKind::TestEnd && b.test == test => Some(b.sequence),
            _ => None,
        })
    };
    let nodes: Vec<u32> = frames
        .iter()
        .filter_map(|frame| if let Frame::Stacks(stacks) = frame { Some(&stacks.nodes) } else { None })
        .flatten()
        .map(|node| node.id)
        .collect();
    let (mut descriptors, mut threads) = (Vec::new(), Vec::new());
    for frame in &frames {
        let Frame::Handles(handles) = frame else { continue };
        descriptors.extend(handles.descriptors.iter().map(|handle| (Some(handles.boundary), handle)));
        threads.extend(handles.threads.iter().map(|handle| (Some(handles.boundary), handle)));
    }
    for (handles, test) in [(descriptors, "Descriptor"), (threads, "ParkedThread")] {
        let (boundary, handle) = handles.last().unwrap();
        assert_eq!(*boundary, end_of(test));
        assert!(nodes.contains(&handle.stack), "{handle:?}");
    }
}

#[test]
fn a_java_stream_tells_of_followed_objects_and_of_the_error_that_ended_a_test() {
    let frames = fixture("java.mgf");
    let Some(Frame::Hello(hello)) = frames.first() else { panic!("no hello first") };
    assert_eq!((hello.runtime, hello.label.as_str()), (Runtime::HotSpot, "fixture"));
    let classes: Vec<(u32, &str)> = frames
        .iter()
        .filter_map(|frame| if let Frame::Classes(classes) = frame { Some(&classes.classes) } else { None })
        .flatten()
        .map(|class| (class.id, class.name.as_str()))
        .collect();
    let name = |id: u32| classes.iter().find(|(known, _)| *known == id).unwrap().1;
    let objects: Vec<_> = frames
        .iter()
        .filter_map(|f| if let Frame::JavaObjects(objects) = f { Some(objects) } else { None })
        .collect();
    let born: Vec<_> = objects.iter().flat_map(|objects| &objects.born).collect();
    assert_eq!((born.len(), objects.iter().map(|o| o.freed.len()).sum::<usize>()), (1000, 900));
    assert!(born.iter().all(|o| name(o.class) == "com.example.Probes$Note" && o.bytes == 16 && o.stack != 0));
    let exhausted =
        frames.iter().find_map(|f| if let Frame::JavaExhausted(e) = f { Some(e) } else { None }).unwrap();
    assert_eq!((exhausted.what.as_str(), name(exhausted.classes[0].class)), ("Java heap space", "long[]"));
    assert!(exhausted.heap_used <= exhausted.heap_max);
}
