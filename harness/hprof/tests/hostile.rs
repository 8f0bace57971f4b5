//! Tests with dumps that are cut, damaged, packed, or made to be expensive. Each gives an error, or an answer that
//! mentions the defect; never a panic, and never more memory than the input.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "what a test cannot do without fails it")]

mod made;

use std::io::Write as _;
use std::sync::LazyLock;

use made::Value::{Bool, Ref};
use made::{BOOL, Dump, REF, record};
use memgate_hprof::read::{DumpFile, Odd, ReadError};
use memgate_hprof::{Dominators, Heap, Index, Kind, Node, Question, Rules};

/// A dump of a small program, reduced to few objects.
const HOTSPOT: &[u8] = include_bytes!("../../../fuzz/seeds/hprof/hotspot");

fn small() -> Vec<u8> {
    let mut dump = Dump::new("JAVA PROFILE 1.0.3", 4);
    let node = dump.class("java.util.LinkedList$Node", &[("item", REF), ("next", REF)]);
    let list = dump.class("java.util.LinkedList", &[("first", REF)]);
    let activity = dump.class("android.app.Activity", &[("mDestroyed", BOOL), ("x", REF)]);
    let over = dump.instance(activity, &[Bool(true), Ref(0)]);
    let mut next = 0;
    for _ in 0..20 {
        next = dump.instance(node, &[Ref(over), Ref(next)]);
    }
    let list = dump.instance(list, &[Ref(next)]);
    let bytes = dump.bytes(b"abc");
    let held = dump.objects(&[list, 0, bytes]);
    dump.root("Holder", &[("list", Ref(held))]);
    dump.thread(over, 3);
    dump.local(list, 3, 1);
    dump.finish()
}

/// Runs every query of a dump.
fn everything(bytes: Vec<u8>) -> Result<Index, ReadError> {
    static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::built_in().unwrap());
    let rules = &*RULES;
    let quiet = |_: &'static str, _: u64, _: Option<u64>| ();
    let heap = Heap::read(DumpFile::of_bytes(bytes)?, rules, &quiet)?;
    heap.analyse(
        rules,
        &Question { wanted: vec!["byte[]".to_owned()], only_wanted: false, ways: 0 },
        &quiet,
    )?;
    heap.ledger(rules, &quiet)?.check().unwrap();
    heap.threads(&quiet)?;
    heap.texts(3, &quiet)?;
    let Heap { dump, graph, .. } = heap;
    let dominators = Dominators::of(&dump, graph, &quiet);
    drop(dominators.by_class(&dump));
    Ok(dump)
}

#[test]
fn a_dump_that_is_cut_says_so_wherever_it_is_cut() {
    for whole in [small(), HOTSPOT[2..].to_vec()] {
        let whole_objects = everything(whole.clone()).unwrap();
        assert!(!whole_objects.truncated());
        for cut in (0..whole.len()).step_by((whole.len() / 200).max(1)) {
            match everything(whole[..cut].to_vec()) {
                Ok(dump) => {
                    assert!(dump.truncated(), "cut at {cut}");
                    assert!(dump.objects() <= whole_objects.objects(), "cut at {cut}");
                }
                Err(why) => assert!(matches!(why, ReadError::NotADump), "cut at {cut}: {why}"),
            }
        }
    }
}

#[test]
fn damaged_bytes_make_no_panic() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random >> 16).unwrap() % below
    };
    for whole in [small(), HOTSPOT[2..].to_vec()] {
        for _ in 0..400 {
            let mut bytes = whole.clone();
            for _ in 0..=next(4) {
                let at = next(bytes.len());
                bytes[at] = [0, 1, 0x20, 0x21, 0x22, 0x23, 0x7f, 0xff][next(8)];
            }
            drop(everything(bytes));
        }
    }
}

#[test]
fn a_packed_dump_is_the_dump() {
    let whole = small();
    let plain = everything(whole.clone()).unwrap();
    // HotSpot writes a separate member for each piece.
    let mut members = Vec::new();
    for piece in whole.chunks(100) {
        let mut packed = flate2::write::GzEncoder::new(&mut members, flate2::Compression::fast());
        packed.write_all(piece).unwrap();
        packed.finish().unwrap();
    }
    assert_eq!(everything(members.clone()).unwrap().counts, plain.counts);
    let cut = everything(members[..members.len() - 20].to_vec()).unwrap();
    assert!(cut.truncated());
    let file = DumpFile::of_bytes(members.clone()).unwrap();
    let mut restored = Vec::new();
    file.unpack(&mut restored, &|_, _, _| ()).unwrap();
    assert_eq!(restored, whole);
    // `gzip` skips zeros after the last member, but nothing else.
    let followed = |by: &[u8]| DumpFile::of_bytes([&members, by].concat()).unwrap();
    restored.clear();
    followed(&[0; 100_000]).unpack(&mut restored, &|_, _, _| ()).unwrap();
    assert_eq!(restored, whole);
    assert!(followed(&[0, 0, 7]).unpack(std::io::sink(), &|_, _, _| ()).is_err());
    let file = DumpFile::of_bytes(members[..members.len() - 20].to_vec()).unwrap();
    assert!(file.unpack(std::io::sink(), &|_, _, _| ()).is_err(), "half a dump is no dump");
    let mut frames = vec![0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    for piece in whole.chunks(300) {
        frames.extend(zstd::encode_all(piece, 1).unwrap());
    }
    assert_eq!(everything(frames.clone()).unwrap().counts, plain.counts);
    frames.truncate(frames.len() - 5);
    assert!(everything(frames.clone()).unwrap().truncated());
    assert!(DumpFile::of_bytes(frames).unwrap().unpack(std::io::sink(), &|_, _, _| ()).is_err());
}

#[test]
fn lengths_that_lie_take_no_memory() {
    let head = [b"JAVA PROFILE 1.0.2\0".as_slice(), &[0, 0, 0, 8], &[0; 8]].concat();
    // An array of four billion elements, an instance and a text of four billion bytes each.
    let id = [0, 0, 0, 0, 0, 0, 0, 16];
    for (tag, body) in [
        (0x1c, [&[0x22][..], &id, &[0; 4], &[0xff; 4], &id].concat()),
        (0x1c, [&[0x21][..], &id, &[0; 4], &id, &[0xff; 4]].concat()),
        (0x1c, [&[0x23][..], &id, &[0; 4], &[0xff; 4], &[11]].concat()),
    ] {
        let mut bytes = head.clone();
        record(&mut bytes, tag, &body);
        let dump = everything(bytes).unwrap();
        assert_eq!((dump.objects(), dump.truncated()), (0, true));
    }
    let mut text = head;
    text.extend([1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1]);
    assert!(everything(text).unwrap().truncated());
}

#[test]
fn classes_above_themselves_end() {
    let mut dump = Dump::jvm();
    let (a, b) = (dump.room(), dump.room());
    dump.class_at(a, "A", b, &[], &[]);
    // The test helper would loop too, so the second class is written without it.
    let mut bytes = dump.finish();
    let at = bytes.windows(8).rposition(|id| id == b.to_be_bytes()).unwrap();
    bytes[at..at + 8].copy_from_slice(&a.to_be_bytes());
    let dump = everything(bytes).unwrap();
    assert!(dump.odd.kinds().any(|odd| odd == Odd::Hierarchy));
}

/// The object in place of the elements of a list has a field that is null.
#[test]
fn a_list_whose_elements_are_no_array_holds_what_is_there() {
    let mut dump = Dump::jvm();
    let elements = dump.class("Elements", &[("a", REF), ("b", REF)]);
    let bytes = dump.bytes(b"abc");
    let elements = dump.instance(elements, &[Ref(0), Ref(bytes)]);
    let class = dump.class("java.util.ArrayList", &[("elementData", REF)]);
    let list = dump.instance(class, &[Ref(elements)]);
    let held = dump.objects(&[list]);
    dump.root("Holder", &[("list", Ref(held))]);
    everything(dump.finish()).unwrap();
}

#[test]
fn an_unknown_object_loses_the_rest_of_its_segment_alone() {
    let mut dump = Dump::jvm();
    let array = dump.bytes(b"first");
    let mut bytes = dump.finish();
    bytes.truncate(bytes.len() - 9);
    record(&mut bytes, 0x1c, &[0x77, 1, 2, 3]);
    let second = [&[0x23][..], &(array + 64).to_be_bytes(), &[0; 4], &[0, 0, 0, 2], &[8], b"ab"].concat();
    record(&mut bytes, 0x1c, &second);
    record(&mut bytes, 0x2c, &[]);
    let dump = everything(bytes).unwrap();
    assert_eq!((dump.counts.primitive_arrays, dump.truncated()), (2, true));
    assert!(dump.odd.sentences().any(|told| told.contains("unknown kind (0x77)")));
}

#[test]
fn ids_all_over_the_address_space_cost_no_page_each() {
    let mut dump = Dump::jvm();
    let node = dump.class("Node", &[("next", REF)]);
    let holder_id = dump.room();
    let mut next = 0;
    for n in 1..20_000_u64 {
        let id = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) & !7;
        dump.instance_at(id, node, &[Ref(next)]);
        next = id;
    }
    dump.class_at(holder_id, "Holder", dump.object, &[("first", Ref(next))], &[]);
    dump.sticky(holder_id);
    let heap =
        Heap::read(DumpFile::of_bytes(dump.finish()).unwrap(), &Rules::default(), &|_, _, _| ()).unwrap();
    let dominators = Dominators::of(&heap.dump, heap.graph, &|_, _, _| ());
    assert_eq!(dominators.reachable(), 20_002);
}

/// If ids are far apart, a repeated id is not recognised at once.
#[test]
fn a_class_with_the_id_of_an_instance_is_no_class() {
    let mut dump = Dump::jvm();
    let of_nothing = dump.room();
    let statics = ["a", "b"].map(|name| (name, Ref(dump.object)));
    let twice = 20_001_u64.wrapping_mul(0x9E37_79B9_7F4A_7C15) & !7;
    for n in 1..20_000_u64 {
        dump.instance_at(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) & !7, dump.object, &[]);
    }
    dump.instance_at(twice, of_nothing, &[]);
    dump.class_at(twice, "Twice", dump.object, &statics, &[]);
    dump.sticky(twice);
    let read = everything(dump.finish()).unwrap();
    assert_eq!(read.objects(), 20_001);
    assert!(read.odd.kinds().any(|odd| odd == Odd::SameId));
    let heap = heap(&dump, &Rules::default());
    let twice = heap.dump.object(twice).unwrap();
    assert_eq!((heap.graph.kind(twice), heap.graph.references(twice).len()), (Kind::Unknown, 0));
}

#[test]
fn objects_whose_class_is_missing_are_counted_and_no_place_is_made_up() {
    let mut dump = Dump::jvm();
    for n in 0..3 {
        let missing = dump.room();
        dump.instance_at(0x1000 + n * 8, missing, &[]);
    }
    let told: Vec<String> = everything(dump.finish()).unwrap().odd.sentences().collect();
    assert_eq!(told, ["3 times: an instance of a class that is not in the dump"]);
}

#[test]
fn an_analysis_counts_what_is_odd_as_often_as_it_is_there() {
    let mut dump = Dump::jvm();
    let node = dump.class("Node", &[("next", REF)]);
    // Four without the field of their class.
    let nodes = [(); 4].map(|()| dump.instance(node, &[]));
    let held = dump.objects(&nodes);
    dump.root("Holder", &[("nodes", Ref(held))]);
    let question = Question { wanted: vec!["Node".to_owned()], only_wanted: true, ways: 0 };
    let analysis =
        heap(&dump, &Rules::default()).analyse(&Rules::default(), &question, &|_, _, _| ()).unwrap();
    let [told] = analysis.about.odd.as_slice() else { panic!("{:?}", analysis.about.odd) };
    let short = "and 3 more: an instance shorter than its class: its references are left out";
    assert!(told.ends_with(short), "{told}");
}

fn heap(dump: &Dump, rules: &Rules) -> Heap {
    Heap::read(DumpFile::of_bytes(dump.finish()).unwrap(), rules, &|_, _, _| ()).unwrap()
}

fn labels(node: &Node, beginning: &str) -> usize {
    node.labels.iter().filter(|label| label.starts_with(beginning)).count()
}

#[test]
fn a_stack_is_told_once_whoever_claims_it() {
    let mut dump = Dump::jvm();
    let thread = dump.class("java.lang.Thread", &[]);
    let [first, second] = [(); 2].map(|()| dump.instance(thread, &[]));
    dump.trace(3, &[7; 1000]);
    (0..1000).for_each(|_| dump.thread(first, 3));
    dump.thread(second, 3);
    let threads = heap(&dump, &Rules::default()).threads(&|_, _, _| ()).unwrap();
    let frames: Vec<usize> = threads.iter().map(|thread| thread.frames.len()).collect();
    assert_eq!(frames, [1000, 0]);
}

#[test]
fn a_local_that_is_a_class_is_no_instance_of_it() {
    let mut dump = Dump::jvm();
    let thread = dump.class("java.lang.Thread", &[]);
    let main = dump.instance(thread, &[]);
    dump.thread(main, 3);
    dump.trace(3, &[7]);
    [thread, main].into_iter().for_each(|local| dump.local(local, 3, 0));
    let threads = heap(&dump, &Rules::default()).threads(&|_, _, _| ()).unwrap();
    let locals: Vec<&str> = threads[0].frames[0].locals.iter().map(|local| local.class.as_str()).collect();
    assert_eq!(locals, ["class java.lang.Thread", "java.lang.Thread"]);
}

#[test]
fn a_long_name_of_many_classes_is_shown_by_its_beginning() {
    let mut dump = Dump::jvm();
    let long = "[".repeat(65_000);
    for _ in 0..1000 {
        dump.class(&long, &[]);
    }
    let read = everything(dump.finish()).unwrap();
    let bytes: usize = read.classes.iter().map(|class| class.name.len()).sum();
    assert!(bytes < 1_100_000, "{bytes}");
}

#[test]
fn an_object_has_so_many_labels_and_no_more() {
    let mut dump = Dump::jvm();
    let context = dump.class("android.content.Context", &[]);
    let context = dump.instance(context, &[]);
    let names: Vec<String> = (0..100).map(|at| format!("field{at}")).collect();
    let fields: Vec<(&str, u8)> = names.iter().map(|name| (name.as_str(), REF)).collect();
    let many = dump.class("Many", &fields);
    let many = dump.instance(many, &[Ref(context); 100]);
    // A hundred others hold it, and so does the static field that is reached first.
    let other = dump.class("Other", &[("held", REF)]);
    let others: Vec<u64> = (0..100).map(|_| dump.instance(other, &[Ref(many)])).collect();
    let array = dump.class("Other[]", &[]);
    let others = dump.array(array, &others);
    let statics = [("a", Ref(many)), ("b", Ref(others))];
    dump.root("Holder", &statics);
    let question =
        Question { wanted: vec!["Many".to_owned(), "Other".to_owned()], only_wanted: true, ways: 0 };
    let rules = Rules::default();
    let found = heap(&dump, &rules).analyse(&rules, &question, &|_, _, _| ()).unwrap();
    let many = found.leaks.iter().find_map(|leak| leak.path.last().filter(|node| node.class == "Many"));
    let many = many.unwrap();
    assert_eq!(labels(many, "field"), 64);
    assert_eq!(labels(many, "Also retained by leaking object"), 64);
    assert_eq!(labels(many, "Also retained by 36 more leaking objects"), 1);
}

/// Long names on a long path to many objects.
#[test]
fn paths_are_shown_as_far_as_there_is_room() {
    const LEAKS: u64 = 30;
    let mut dump = Dump::jvm();
    let context = dump.class("android.content.Context", &[]);
    let context = dump.instance(context, &[]);
    let names: Vec<String> = (0..64).map(|at| format!("{at}{}", "x".repeat(1000))).collect();
    let mut fields: Vec<(&str, u8)> = names.iter().map(|name| (name.as_str(), REF)).collect();
    fields.push(("y", REF));
    let node = dump.class("Node", &fields);
    let rules = (0..LEAKS).map(|at| format!("Leak{at}")).collect::<Vec<String>>();
    let leaks = rules.iter().map(|name| {
        let class = dump.class(name, &[("held", REF)]);
        // Each is held by a different class, so that each is a separate leak.
        let over = dump.instance(class, &[Ref(0)]);
        let holder = dump.class(&format!("{name}Holder"), &[("held", REF)]);
        dump.instance(holder, &[Ref(over)])
    });
    let leaks: Vec<u64> = leaks.collect();
    let array = dump.class("java.lang.Object[]", &[]);
    let mut next = dump.array(array, &leaks);
    for _ in 0..100 {
        let mut values = vec![Ref(context); 64];
        values.push(Ref(next));
        next = dump.instance(node, &values);
    }
    dump.root("Holder", &[("first", Ref(next))]);
    let question = Question { wanted: rules, only_wanted: true, ways: 0 };
    let rules = Rules::default();
    let found = heap(&dump, &rules).analyse(&rules, &question, &|_, _, _| ()).unwrap();
    let told = found.leaks.len() as u64;
    assert!(told < LEAKS && told > 1, "{told}");
    assert_eq!(found.not_looked_at, LEAKS - told);
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let pipe = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("pipe.hprof");
    drop(std::fs::remove_file(&pipe));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let why = DumpFile::open(&pipe).err().map(|why| why.to_string());
    assert_eq!(why.as_deref(), Some("it is no regular file"));
}

#[test]
fn another_file_is_no_heap_dump() {
    for other in
        [&b""[..], b"PK\x03\x04", b"JAVA PROFILE 1.0.2", b"JAVA PROFILE 1.0.2\0\0\0\0\x05\0\0\0\0\0\0\0\0"]
    {
        assert!(matches!(everything(other.to_vec()), Err(ReadError::NotADump)), "{other:?}");
    }
    assert!(matches!(everything(b"JAVA PROFILE 6.0.1\x01".to_vec()), Err(ReadError::Tailor)));
}
