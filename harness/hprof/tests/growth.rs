//! Tests for containers that grow from dump to dump, with dumps made here.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "what a test cannot do without fails it")]

mod made;

use made::Value::Ref;
use made::{Dump, REF};
use memgate_hprof::read::DumpFile;
use memgate_hprof::{Growing, Heap, Ledger, LedgerError, Rules, growth};

fn ledger(dump: &Dump) -> Ledger {
    let file = DumpFile::of_bytes(dump.finish()).unwrap();
    let rules = Rules::default();
    Heap::read(file, &rules, &|_, _, _| ()).unwrap().ledger(&rules, &|_, _, _| ()).unwrap()
}

/// A shop with this many orders, which a map and a list hold; a thread's table that grows once; a list that comes and
/// goes; a chain of nodes and a tree; each order has its own list.
fn shop(day: u64) -> Ledger {
    let mut dump = Dump::jvm();
    // Addresses must not matter: they differ in each dump.
    for _ in 0..day * 7 {
        dump.instance(dump.object, &[]);
    }
    let array = dump.class("java.lang.Object[]", &[]);
    let list = dump.class("java.util.ArrayList", &[("elementData", REF)]);
    let item = dump.class("com.acme.Item", &[]);
    let order = dump.class("com.acme.Order", &[("items", REF)]);
    let key = dump.class("java.lang.Integer", &[]);
    let entry = dump.class("java.util.HashMap$Node", &[("key", REF), ("value", REF), ("next", REF)]);
    let entries = dump.class("java.util.HashMap$Node[]", &[]);
    let map = dump.class("java.util.HashMap", &[("table", REF)]);
    let node = dump.class("java.util.LinkedList$Node", &[("item", REF), ("next", REF), ("prev", REF)]);
    let linked = dump.class("java.util.LinkedList", &[("first", REF), ("last", REF)]);
    let (mut table, mut first) = (Vec::new(), 0);
    for _ in 0..10 + 2 * day {
        let items = [dump.instance(item, &[]), dump.instance(item, &[])];
        let items = dump.array(array, &items);
        let items = dump.instance(list, &[Ref(items)]);
        let order = dump.instance(order, &[Ref(items)]);
        let key = dump.instance(key, &[]);
        table.push(dump.instance(entry, &[Ref(key), Ref(order), Ref(0)]));
        first = dump.instance(node, &[Ref(order), Ref(first), Ref(0)]);
    }
    let table = dump.array(entries, &table);
    let by_id = dump.instance(map, &[Ref(table)]);
    let history = dump.instance(linked, &[Ref(first), Ref(first)]);
    let local = dump.class("java.lang.ThreadLocal$Entry", &[]);
    let locals: Vec<u64> = (0..if day == 0 { 1 } else { 2 }).map(|_| dump.instance(local, &[])).collect();
    let locals_class = dump.class("java.lang.ThreadLocal$Entry[]", &[]);
    let locals = dump.array(locals_class, &locals);
    let swings: Vec<u64> =
        (0..if day.is_multiple_of(2) { 20 } else { 3 }).map(|_| dump.instance(item, &[])).collect();
    let swings = dump.array(array, &swings);
    let link = dump.class("com.acme.Link", &[("next", REF)]);
    let chain = (0..=day).fold(0, |next, _| dump.instance(link, &[Ref(next)]));
    dump.root(
        "com.acme.Shop",
        &[
            ("byId", Ref(by_id)),
            ("history", Ref(history)),
            ("locals", Ref(locals)),
            ("swings", Ref(swings)),
            ("chain", Ref(chain)),
        ],
    );
    ledger(&dump)
}

fn told(growing: &[Growing]) -> Vec<(String, u64, Vec<String>)> {
    let held_by = |of: &Growing| of.held_by.iter().map(memgate_hprof::Container::way).collect();
    growing.iter().map(|of| (of.class.clone(), of.rise(), held_by(of))).collect()
}

#[test]
fn both_containers_of_the_same_objects_are_named_from_the_third_dump_on() {
    let days: Vec<Ledger> = (0..5).map(shop).collect();
    assert_eq!(growth(&days[..2], 1), None, "two dumps decide nothing");
    for count in 3..=5 {
        let growing = growth(&days[..count], 1).unwrap();
        let expected = [
            (
                "com.acme.Order".to_owned(),
                2,
                vec![
                    "static com.acme.Shop.byId: java.util.HashMap".to_owned(),
                    "static com.acme.Shop.history: java.util.LinkedList".to_owned(),
                ],
            ),
            ("com.acme.Link".to_owned(), 1, vec!["static com.acme.Shop.chain: com.acme.Link".to_owned()]),
        ];
        assert_eq!(told(&growing), expected, "{count} dumps");
        assert_eq!(growing[0].held_by[0].counts[..3], [10, 12, 14]);
    }
    let twice = growth(&days, 2).unwrap();
    assert_eq!(twice.len(), 1, "the chain grows by one only: {twice:?}");
}

#[test]
fn growth_that_ended_is_none() {
    let days = [shop(0), shop(1), shop(2), shop(2)];
    assert_eq!(growth(&days, 1).unwrap(), []);
    let back = [shop(3), shop(1), shop(4)];
    assert_eq!(growth(&back, 1).unwrap(), []);
}

/// Each is one place: a chain as deep as the largest existing lists, and a tree.
#[test]
fn a_deep_chain_and_a_tree_are_one_place() {
    let mut dump = Dump::jvm();
    let link = dump.class("com.acme.Link", &[("next", REF)]);
    let chain = (0..100_000).fold(0, |next, _| dump.instance(link, &[Ref(next)]));
    let branch = dump.class("com.acme.Branch", &[("leaves", REF)]);
    let branches = dump.class("com.acme.Branch[]", &[]);
    let tree = (0..50_000).fold(0, |below, _| {
        let leaves = dump.array(branches, &[below]);
        dump.instance(branch, &[Ref(leaves)])
    });
    let kept = [("chain", Ref(chain)), ("tree", Ref(tree))];
    dump.root("com.acme.Holder", &kept);
    let ledger = ledger(&dump);
    assert!(ledger.places.len() < 10, "{:?}", ledger.places);
    let counts: Vec<u64> = ledger.holds.iter().map(|held| held.count).collect();
    assert_eq!(counts, [99_999, 49_999], "{:?}", ledger.holds);
}

#[test]
fn what_is_no_ledger_is_refused() {
    let good = shop(0);
    assert_eq!(good.check(), Ok(()));
    let mut other = good.clone();
    other.schema_version = 7;
    assert_eq!(other.check(), Err(LedgerError::Version(7)));
    let mut circle = good.clone();
    circle.places[0].parent = Some(0);
    assert_eq!(circle.check(), Err(LedgerError::Place(0)));
    let mut lost = good;
    lost.holds[0].place = 1_000_000;
    assert_eq!(lost.check(), Err(LedgerError::Place(1_000_000)));
}

/// A table of a `ConcurrentHashMap` with `count` sessions; `bucket` builds each bucket from its nodes.
fn sessions_in_a_table(count: u64, bucket: fn(&mut Dump, u64, Vec<u64>) -> u64) -> Ledger {
    let mut dump = Dump::jvm();
    let node = dump
        .class("java.util.concurrent.ConcurrentHashMap$Node", &[("key", REF), ("val", REF), ("next", REF)]);
    let session = dump.class("com.acme.Session", &[]);
    let key = dump.class("com.acme.Key", &[]);
    let tree_node =
        dump.subclass(node, "java.util.concurrent.ConcurrentHashMap$TreeNode", &[("parent", REF)]);
    let mut next = 0;
    let mut nodes = Vec::new();
    for _ in 0..count {
        let (key, session) = (dump.instance(key, &[]), dump.instance(session, &[]));
        let values = [Ref(0), Ref(key), Ref(session), Ref(next)];
        next = dump.instance(tree_node, &values);
        nodes.insert(0, next);
    }
    let table = bucket(&mut dump, node, nodes);
    let map = dump.class("java.util.concurrent.ConcurrentHashMap", &[("table", REF)]);
    let map = dump.instance(map, &[Ref(table)]);
    dump.root("com.acme.Pool", &[("sessions", Ref(map))]);
    ledger(&dump)
}

#[test]
fn entries_of_a_concurrent_map_count_however_its_buckets_keep_them() {
    let tree: fn(&mut Dump, u64, Vec<u64>) -> u64 = |dump, node, nodes| {
        let bin = dump.subclass(
            node,
            "java.util.concurrent.ConcurrentHashMap$TreeBin",
            &[("root", REF), ("first", REF)],
        );
        let first = nodes[0];
        let none = Ref(0);
        let bin = dump.instance(bin, &[none, Ref(first), none, none, none]);
        let table = dump.class("java.util.concurrent.ConcurrentHashMap$Node[]", &[]);
        dump.array(table, &[0, bin])
    };
    // The map grows: the second table has the entries, and each bucket of the first one leads to it.
    let moved: fn(&mut Dump, u64, Vec<u64>) -> u64 = |dump, node, nodes| {
        let table = dump.class("java.util.concurrent.ConcurrentHashMap$Node[]", &[]);
        let new = dump.array(table, &[0, nodes[0], 0, 0]);
        let forward = dump.subclass(
            node,
            "java.util.concurrent.ConcurrentHashMap$ForwardingNode",
            &[("nextTable", REF)],
        );
        let none = Ref(0);
        let forward = dump.instance(forward, &[Ref(new), none, none, none]);
        dump.array(table, &[forward, forward])
    };
    // A class of a virtual machine that memgate does not know yet.
    let unknown: fn(&mut Dump, u64, Vec<u64>) -> u64 = |dump, node, nodes| {
        let other = dump.subclass(node, "java.util.concurrent.ConcurrentHashMap$Pile", &[("entries", REF)]);
        let sessions = dump.objects(&nodes);
        let none = Ref(0);
        let other = dump.instance(other, &[Ref(sessions), none, none, none]);
        let table = dump.class("java.util.concurrent.ConcurrentHashMap$Node[]", &[]);
        dump.array(table, &[0, other])
    };
    for bucket in [tree, moved] {
        let days: Vec<Ledger> = (1..=4).map(|day| sessions_in_a_table(day * 10, bucket)).collect();
        let held_by =
            vec!["static com.acme.Pool.sessions: java.util.concurrent.ConcurrentHashMap".to_owned()];
        let growing = growth(&days, 1).unwrap();
        assert_eq!(told(&growing), [("com.acme.Session".to_owned(), 10, held_by)]);
    }
    let days: Vec<Ledger> = (1..=4).map(|day| sessions_in_a_table(day * 10, unknown)).collect();
    let growing = told(&growth(&days, 1).unwrap());
    assert!(growing.iter().any(|(_, rise, _)| *rise == 10), "{growing:?}");
}

/// Collections that LeakCanary does not know, with `count` orders in each; each is held by a field of a shop.
fn other_collections(count: u64) -> Ledger {
    let mut dump = Dump::jvm();
    let none = Ref(0);
    let order = dump.class("com.acme.Order", &[]);
    let key = dump.class("java.lang.Integer", &[]);
    let mut statics = Vec::new();
    // A chain of nodes with an item each, the first one empty.
    for (field, class, node, first) in [
        ("queue", "ConcurrentLinkedQueue", "Node", "head"),
        ("deque", "ConcurrentLinkedDeque", "Node", "head"),
        ("blocking", "LinkedBlockingQueue", "Node", "head"),
        ("transfer", "LinkedTransferQueue", "DualNode", "head"),
        ("both", "LinkedBlockingDeque", "Node", "first"),
    ] {
        let class = format!("java.util.concurrent.{class}");
        let node = dump.class(&format!("{class}${node}"), &[("item", REF), ("next", REF)]);
        let mut next = 0;
        for _ in 0..count {
            let order = dump.instance(order, &[]);
            next = dump.instance(node, &[Ref(order), Ref(next)]);
        }
        let taken = dump.room();
        dump.instance_at(taken, node, &[Ref(taken), Ref(next)]);
        let queue = dump.class(&class, &[(first, REF)]);
        statics.push((field, dump.instance(queue, &[Ref(taken)])));
    }
    let entry =
        dump.class("java.util.TreeMap$Entry", &[("key", REF), ("value", REF), ("left", REF), ("right", REF)]);
    let mut below = [0, 0];
    for at in 0..count {
        let (key, order) = (dump.instance(key, &[]), dump.instance(order, &[]));
        let [left, right] = below.map(Ref);
        let root = dump.instance(entry, &[Ref(key), Ref(order), left, right]);
        below = if at % 2 == 0 { [root, 0] } else { [0, root] };
    }
    let tree = dump.class("java.util.TreeMap", &[("root", REF)]);
    statics.push(("tree", dump.instance(tree, &[Ref(below[0] | below[1])])));
    let skipped = "java.util.concurrent.ConcurrentSkipListMap";
    let node = dump.class(&format!("{skipped}$Node"), &[("key", REF), ("val", REF), ("next", REF)]);
    let above = dump.class(&format!("{skipped}$Index"), &[("node", REF), ("down", REF), ("right", REF)]);
    let mut next = 0;
    for _ in 0..count {
        let (key, order) = (dump.instance(key, &[]), dump.instance(order, &[]));
        next = dump.instance(node, &[Ref(key), Ref(order), Ref(next)]);
    }
    let header = dump.instance(node, &[none, none, Ref(next)]);
    let right = dump.instance(above, &[Ref(next), none, none]);
    let low = dump.instance(above, &[Ref(header), none, Ref(right)]);
    let high = dump.instance(above, &[Ref(header), Ref(low), none]);
    let skips = dump.class(skipped, &[("head", REF)]);
    statics.push(("skips", dump.instance(skips, &[Ref(high)])));
    // Sets of concurrent programs: keys, and one value for all. And an old table.
    let truth = dump.class("java.lang.Boolean", &[]);
    let truth = dump.instance(truth, &[]);
    for (field, class, of, value) in [
        ("set", "java.util.concurrent.ConcurrentHashMap", "Node", "val"),
        ("old", "java.util.Hashtable", "Entry", "value"),
    ] {
        let node = dump.class(&format!("{class}${of}"), &[("key", REF), (value, REF), ("next", REF)]);
        let mut nodes = Vec::new();
        for _ in 0..count {
            let held = dump.instance(order, &[]);
            let (key, value) = if field == "set" { (held, truth) } else { (dump.instance(key, &[]), held) };
            nodes.push(dump.instance(node, &[Ref(key), Ref(value), none]));
        }
        let table = dump.class(&format!("{class}${of}[]"), &[]);
        let table = dump.array(table, &nodes);
        let map = dump.class(class, &[("table", REF)]);
        statics.push((field, dump.instance(map, &[Ref(table)])));
    }
    let statics: Vec<_> = statics.into_iter().map(|(name, object)| (name, Ref(object))).collect();
    dump.root("com.acme.Shop", &statics);
    ledger(&dump)
}

#[test]
fn elements_of_every_collection_of_the_jdk_count() {
    let days: Vec<Ledger> = (1..=4).map(|day| other_collections(day * 5)).collect();
    let growing = growth(&days, 1).unwrap();
    let [of] = growing.as_slice() else { panic!("{:?}", told(&growing)) };
    assert_eq!(of.class, "com.acme.Order");
    let mut fields: Vec<&str> =
        of.held_by.iter().map(|at| at.path.last().unwrap().by.rsplit('.').next().unwrap()).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["blocking", "both", "deque", "old", "queue", "set", "skips", "transfer", "tree"]);
    assert!(of.held_by.iter().all(|at| at.counts == [5, 10, 15, 20]), "{:?}", told(&growing));
}
