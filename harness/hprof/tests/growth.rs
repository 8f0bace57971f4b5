//! Containers that grow from dump to dump: on dumps made here, whose truth is known.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "what a test cannot do without fails it")]

mod made;

use made::{Dump, REF, Value};
use memgate_hprof::read::DumpFile;
use memgate_hprof::{Growing, Heap, Ledger, LedgerError, Rules, growth};

fn ledger(dump: &Dump) -> Ledger {
    let file = DumpFile::of_bytes(dump.finish()).unwrap();
    let rules = Rules::default();
    Heap::read(file, &rules, &|_, _, _| ()).unwrap().ledger(&rules, &|_, _, _| ()).unwrap()
}

/// A shop with so many orders, which a map and a list hold; a table of a thread's that grows once; a list that comes
/// and goes; a chain of nodes and a tree; each order has a list of its own.
fn shop(day: u64) -> Ledger {
    let mut dump = Dump::new("JAVA PROFILE 1.0.2", 8);
    let object = dump.object;
    // Addresses mean nothing: they are others each day.
    for _ in 0..day * 7 {
        dump.instance(object, &[]);
    }
    let array = dump.class("java.lang.Object[]", object, &[], &[]);
    let list = dump.class("java.util.ArrayList", object, &[], &[("elementData", REF)]);
    let item = dump.class("com.acme.Item", object, &[], &[]);
    let order = dump.class("com.acme.Order", object, &[], &[("items", REF)]);
    let key = dump.class("java.lang.Integer", object, &[], &[]);
    let entry =
        dump.class("java.util.HashMap$Node", object, &[], &[("key", REF), ("value", REF), ("next", REF)]);
    let entries = dump.class("java.util.HashMap$Node[]", object, &[], &[]);
    let map = dump.class("java.util.HashMap", object, &[], &[("table", REF)]);
    let node =
        dump.class("java.util.LinkedList$Node", object, &[], &[("item", REF), ("next", REF), ("prev", REF)]);
    let linked = dump.class("java.util.LinkedList", object, &[], &[("first", REF), ("last", REF)]);
    let (mut table, mut first) = (Vec::new(), 0);
    for _ in 0..10 + 2 * day {
        let items = [dump.instance(item, &[]), dump.instance(item, &[])];
        let items = dump.array(array, &items);
        let items = dump.instance(list, &[Value::Ref(items)]);
        let order = dump.instance(order, &[Value::Ref(items)]);
        let key = dump.instance(key, &[]);
        table.push(dump.instance(entry, &[Value::Ref(key), Value::Ref(order), Value::Ref(0)]));
        first = dump.instance(node, &[Value::Ref(order), Value::Ref(first), Value::Ref(0)]);
    }
    let table = dump.array(entries, &table);
    let by_id = dump.instance(map, &[Value::Ref(table)]);
    let history = dump.instance(linked, &[Value::Ref(first), Value::Ref(first)]);
    let local = dump.class("java.lang.ThreadLocal$Entry", object, &[], &[]);
    let locals: Vec<u64> = (0..if day == 0 { 1 } else { 2 }).map(|_| dump.instance(local, &[])).collect();
    let locals_class = dump.class("java.lang.ThreadLocal$Entry[]", object, &[], &[]);
    let locals = dump.array(locals_class, &locals);
    let swings: Vec<u64> =
        (0..if day.is_multiple_of(2) { 20 } else { 3 }).map(|_| dump.instance(item, &[])).collect();
    let swings = dump.array(array, &swings);
    let link = dump.class("com.acme.Link", object, &[], &[("next", REF)]);
    let chain = (0..=day).fold(0, |next, _| dump.instance(link, &[Value::Ref(next)]));
    let shop = dump.class(
        "com.acme.Shop",
        object,
        &[
            ("byId", Value::Ref(by_id)),
            ("history", Value::Ref(history)),
            ("locals", Value::Ref(locals)),
            ("swings", Value::Ref(swings)),
            ("chain", Value::Ref(chain)),
        ],
        &[],
    );
    dump.sticky(shop);
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

/// As deep as the largest lists there are, and a tree: one place each.
#[test]
fn a_deep_chain_and_a_tree_are_one_place() {
    let mut dump = Dump::new("JAVA PROFILE 1.0.2", 8);
    let object = dump.object;
    let link = dump.class("com.acme.Link", object, &[], &[("next", REF)]);
    let chain = (0..100_000).fold(0, |next, _| dump.instance(link, &[Value::Ref(next)]));
    let branch = dump.class("com.acme.Branch", object, &[], &[("leaves", REF)]);
    let branches = dump.class("com.acme.Branch[]", object, &[], &[]);
    let tree = (0..50_000).fold(0, |below, _| {
        let leaves = dump.array(branches, &[below]);
        dump.instance(branch, &[Value::Ref(leaves)])
    });
    let kept = [("chain", Value::Ref(chain)), ("tree", Value::Ref(tree))];
    let holder = dump.class("com.acme.Holder", object, &kept, &[]);
    dump.sticky(holder);
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
