//! Tests for paths and retained sizes, with dumps made here.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "what a test cannot do without fails it")]

mod made;

use made::Value::{Bool, Byte, Double, Int, Ref};
use made::{BOOL, BYTE, DOUBLE, Dump, INT, REF};
use memgate_hprof::read::DumpFile;
use memgate_hprof::{
    Analysis, Bitmap, Cropped, Dominators, Grouping, Heap, Index, Keep, Leak, Pixels, Question, Rules,
    Status, together, tree, tree_of_trimmed, trim, trim_file, uncrop,
};

fn read(bytes: Vec<u8>, rules: &Rules) -> Heap {
    Heap::read(DumpFile::of_bytes(bytes).unwrap(), rules, &|_, _, _| ()).unwrap()
}

fn heap(bytes: Vec<u8>) -> Heap {
    read(bytes, &Rules::built_in().unwrap())
}

fn answer(bytes: Vec<u8>, rules: &Rules, question: &Question) -> Analysis {
    read(bytes, rules).analyse(rules, question, &|_, _, _| ()).unwrap()
}

fn analysis(bytes: Vec<u8>, wanted: &[&str]) -> Analysis {
    let wanted = wanted.iter().map(|class| (*class).to_owned()).collect();
    answer(bytes, &Rules::built_in().unwrap(), &Question { wanted, ..Question::default() })
}

/// The built-in rules and these.
fn rules_with(text: &str) -> Rules {
    let mut rules = Rules::built_in().unwrap();
    rules.add(text).unwrap();
    rules
}

fn dominators(bytes: Vec<u8>) -> (Index, Dominators) {
    let Heap { dump, graph, .. } = heap(bytes);
    let dominators = Dominators::of(&dump, graph, &|_, _, _| ());
    (dump, dominators)
}

/// An app with one destroyed activity below a static field, and one in use.
fn app(id_bytes: usize) -> Vec<u8> {
    let mut dump = Dump::new("JAVA PROFILE 1.0.3", id_bytes);
    dump.android();
    let activity = dump.class("android.app.Activity", &[("mDestroyed", BOOL), ("mWindow", REF)]);
    let main = dump.subclass(activity, "com.acme.Main", &[("payload", REF)]);
    let payload = dump.bytes(&[7; 1000]);
    let over = dump.instance(main, &[Ref(payload), Bool(true), Ref(0)]);
    let used = dump.instance(main, &[Ref(0), Bool(false), Ref(0)]);
    let array = dump.class("com.acme.Main[]", &[]);
    let held = dump.array(array, &[0, used, 0, over]);
    dump.root("com.acme.Holder", &[("kept", Ref(held))]);
    dump.finish()
}

#[test]
fn a_destroyed_activity_is_a_leak_with_its_path() {
    for id_bytes in [4, 8] {
        let found = analysis(app(id_bytes), &[]);
        let [leak] = found.leaks.as_slice() else { panic!("{:?}", found.leaks) };
        let class = 1 + id_bytes as u64 + id_bytes as u64;
        assert_eq!((leak.attributed, leak.objects), (class + 1000, 2));
        let text = tree(leak);
        let told = "\
┬───
│ GC Root: System class
│
├─ com.acme.Holder class
│    Leaking: NO (a class is never leaking)
│    ↓ static Holder.kept
│                    ~~~~
├─ com.acme.Main[] array
│    Leaking: UNKNOWN
│    ↓ Main[3]
│          ~~~
╰→ com.acme.Main instance
\u{200b}     Leaking: YES (Activity#mDestroyed is true)
\u{200b}     Retaining 1.0 kB in 2 objects
";
        assert_eq!(text, told, "ids of {id_bytes} bytes");
        // SHA-1 of "com.acme.Holder" "kept" "com.acme.Main[]" "[x]", computed by `sha1sum`.
        assert_eq!(leak.fingerprint, "c60f43d305c8d5aec2371b85b5bfee748545764b");
    }
}

/// Regression: all objects of a place were named after the class of the first.
#[test]
fn a_leak_names_all_classes_at_its_place() {
    // Eight objects have paths of their own; most of 3,000 are only counted.
    for count in [8_u32, 3000] {
        let mut dump = Dump::jvm();
        let (reader, writer) = (dump.class("com.acme.Reader", &[]), dump.class("com.acme.Writer", &[]));
        let all: Vec<u64> =
            (0..count).map(|at| dump.instance(if at % 4 == 0 { reader } else { writer }, &[])).collect();
        let held = dump.objects(&all);
        dump.root("com.acme.Holder", &[("kept", Ref(held))]);
        let found = analysis(dump.finish(), &["com.acme.Reader", "com.acme.Writer"]);
        let [leak] = found.leaks.as_slice() else { panic!("{:?}", found.leaks) };
        let classes: Vec<_> = leak.classes.iter().map(|of| (of.class.as_str(), of.instances)).collect();
        let count = u64::from(count);
        assert_eq!(classes, [("com.acme.Writer", count * 3 / 4), ("com.acme.Reader", count / 4)]);
        assert_eq!(leak.instances, count);
    }
}

#[test]
fn weak_references_hold_nothing_and_can_be_followed_all_the_same() {
    let mut dump = Dump::jvm();
    let reference = dump.class("java.lang.ref.Reference", &[("referent", REF)]);
    let weak = dump.subclass(reference, "java.lang.ref.WeakReference", &[]);
    let own = dump.subclass(weak, "com.acme.Handle", &[]);
    let session = dump.class("com.acme.Session", &[]);
    let held = dump.instance(session, &[]);
    let handle = dump.instance(own, &[Ref(held)]);
    dump.root("com.acme.Holder", &[("handle", Ref(handle))]);
    let bytes = dump.finish();
    let paths = |rules: Rules| {
        let question = Question { wanted: vec!["com.acme.Session".into()], only_wanted: true, ways: 0 };
        answer(bytes.clone(), &rules, &question)
    };
    let strong = paths(Rules::built_in().unwrap());
    assert_eq!((strong.leaks.len(), strong.unreachable.len()), (0, 1));
    let through = paths(Rules::built_in().unwrap().through_weak());
    let [path] = through.leaks.as_slice() else { panic!("{:?}", through.leaks) };
    assert!(
        tree(path).contains("com.acme.Handle instance") && tree(path).contains("Reference.referent"),
        "{}",
        tree(path)
    );
}

fn shown(found: &Analysis) -> String {
    let shown = |leak: &Leak| format!("{} {}\n{}", leak.fingerprint, leak.attributed, tree(leak));
    found.leaks.iter().map(shown).collect()
}

/// The dump with only these contents, and the number of bytes that were overwritten.
fn trimmed(whole: &[u8], keep: &Keep) -> (Vec<u8>, u64) {
    let mut trimmed = Vec::new();
    let file = DumpFile::of_bytes(whole.to_vec()).unwrap();
    let zeroed = trim_file(&file, keep, &mut trimmed, &|_, _, _| ()).unwrap();
    (trimmed, zeroed)
}

#[test]
fn a_trimmed_dump_has_the_same_leaks_and_none_of_the_texts() {
    let mut dump = Dump::new("JAVA PROFILE 1.0.3", 4);
    dump.name("a symbol that names nothing");
    let string = dump.class("java.lang.String", &[("value", REF)]);
    let made = dump.text(string, b"samsung");
    dump.statics("android.os.Build", &[("MANUFACTURER", Ref(made))]);
    dump.android();
    let reference = dump.class("java.lang.ref.Reference", &[("referent", REF)]);
    let watcher = dump.subclass(reference, "com.squareup.leakcanary.KeyedWeakReference", &[("key", REF)]);
    let secret = dump.text(string, b"a secret");
    let session = dump.class("com.acme.Session", &[("user", REF)]);
    let held = dump.instance(session, &[Ref(secret)]);
    let key = dump.text(string, b"c0ffee");
    dump.instance(watcher, &[Ref(key), Ref(held)]);
    dump.root("com.acme.Holder", &[("kept", Ref(held))]);
    let whole = dump.finish();
    let (copy, zeroed) = trimmed(&whole, &heap(whole.clone()).kept());
    assert_eq!(zeroed, 8, "the secret");
    let holds = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|at| at == text.as_bytes());
    for (text, stays) in [("a secret", false), ("a symbol that", false), ("samsung", true), ("c0ffee", true)]
    {
        assert!(holds(&whole, text) && holds(&copy, text) == stays, "{text}");
    }
    let (bare, _) = trimmed(&whole, &heap(whole.clone()).dump.kept_names());
    for text in ["a secret", "a symbol that", "samsung", "c0ffee"] {
        assert!(!holds(&bare, text), "{text}");
    }
    assert!(holds(&bare, "com.acme.Session") || holds(&bare, "com/acme/Session"));
    let before = analysis(whole, &[]);
    assert!(before.leaks.len() == 1 && shown(&before).contains("key = c0ffee"));
    assert_eq!(shown(&analysis(copy.clone(), &[])), shown(&before));
    assert_eq!(trimmed(&copy, &heap(copy.clone()).kept()).0, copy, "trimmed twice");
}

#[test]
fn a_private_copy_keeps_no_number_but_those_that_rules_read() {
    for id_bytes in [4, 8] {
        let mut dump = Dump::new("JAVA PROFILE 1.0.2", id_bytes);
        dump.android();
        let activity = dump.class("android.app.Activity", &[("mDestroyed", BOOL), ("mTaskId", INT)]);
        let fields = [("pin", INT), ("next", REF), ("account", INT), ("floor", INT)];
        let main = dump.subclass(activity, "com.acme.Main", &fields);
        let (pin, task, floor) = (Int(0x5ec2_0001), Int(0x5ec2_0002), Int(0x5ec2_0003));
        let (kept, over) = (Ref(0), Bool(true));
        let last = dump.instance(main, &[pin, kept, task, floor, over, task]);
        let first = dump.instance(main, &[task, Ref(last), pin, floor, over, task]);
        let statics = [("kept", Ref(first)), ("total", Int(0x5ec2_0004))];
        dump.root("com.acme.Holder", &statics);
        let whole = dump.finish();
        let rules = "[[rule]]\nclass = \"com.acme.Main\"\nfield = \"floor\"\nnot_leaking = \"0\"\n";
        for (rules, stay) in [(Rules::built_in().unwrap(), 0), (rules_with(rules), 2)] {
            let keep = read(whole.clone(), &rules).kept_in_private(&rules);
            let (private, _) = trimmed(&whole, &keep);
            let secrets = |bytes: &[u8]| bytes.windows(2).filter(|at| *at == [0x5e, 0xc2]).count();
            assert_eq!((secrets(&whole), secrets(&private)), (9, stay), "ids of {id_bytes} bytes");
            assert_eq!(private.len(), whole.len());
            let found = analysis(private.clone(), &[]);
            assert_eq!(shown(&found), shown(&analysis(whole.clone(), &[])));
            assert_eq!(found.about.sdk, Some(19));
        }
    }
}

/// A destroyed activity in a map, by a text; and one below the root of a window with a title.
#[test]
fn a_trimmed_dump_has_the_same_leaks_whatever_texts_their_paths_show() {
    let mut dump = Dump::new("JAVA PROFILE 1.0.3", 4);
    dump.android();
    let string = dump.class("java.lang.String", &[("value", REF)]);
    let [key, title] = [&b"a secret"[..], b"a title"].map(|text| dump.text(string, text));
    let activity = dump.class("android.app.Activity", &[("mDestroyed", BOOL)]);
    let [first, second] = [(); 2].map(|()| dump.instance(activity, &[Bool(true)]));
    let fields = [("key", REF), ("value", REF), ("next", REF)];
    let entry = dump.class("java.util.HashMap$Node", &fields);
    let entries = dump.class("java.util.HashMap$Node[]", &[]);
    let map = dump.class("java.util.HashMap", &[("table", REF)]);
    let node = dump.instance(entry, &[Ref(key), Ref(first), Ref(0)]);
    let table = dump.array(entries, &[node]);
    let map = dump.instance(map, &[Ref(table)]);
    let attributes = dump.class("android.view.WindowManager$LayoutParams", &[("mTitle", REF)]);
    let attributes = dump.instance(attributes, &[Ref(title)]);
    let fields = [("mView", REF), ("mWindowAttributes", REF), ("held", REF)];
    let root = dump.class("android.view.ViewRootImpl", &fields);
    let root = dump.instance(root, &[Ref(map), Ref(attributes), Ref(second)]);
    let statics = [("kept", Ref(map)), ("root", Ref(root))];
    dump.root("com.acme.Holder", &statics);
    let whole = dump.finish();
    let (copy, _) = trimmed(&whole, &heap(whole.clone()).kept());
    let (before, after) = (analysis(whole, &[]), analysis(copy, &[]));
    assert_eq!((before.leaks.len(), after.leaks.len()), (2, 2));
    for text in ["[\"a secret\"]", "mWindowAttributes.mTitle = \"a title\""] {
        assert!(shown(&before).contains(text) && !shown(&after).contains(text), "{text}");
    }
    let told = |found: &Analysis| found.leaks.iter().map(tree_of_trimmed).collect::<Vec<String>>();
    assert_eq!(told(&after), told(&before));
}

#[test]
fn an_element_of_a_list_has_the_place_it_has_there() {
    let mut dump = Dump::jvm();
    let session = dump.class("com.acme.Session", &[]);
    let held = dump.instance(session, &[]);
    let list = dump.list(&[0, 0, 0, held]);
    dump.root("com.acme.Holder", &[("kept", Ref(list))]);
    let found = analysis(dump.finish(), &["com.acme.Session"]);
    let text = tree(&found.leaks[0]);
    assert!(text.contains("↓ ArrayList[3]"), "{text}");
}

/// An object that a field of two holders holds, and a list that two static fields hold.
#[test]
fn every_way_to_an_object_is_told_the_shortest_first() {
    let mut dump = Dump::jvm();
    let session = dump.class("com.acme.Session", &[]);
    let held = dump.instance(session, &[]);
    let list = dump.list(&[held]);
    for (class, field, value) in
        [("com.acme.A", "session", held), ("com.acme.B", "all", list), ("com.acme.C", "again", list)]
    {
        dump.root(class, &[(field, Ref(value))]);
    }
    let heap = heap(dump.finish());
    let ways = |most| {
        let question = Question { wanted: vec!["com.acme.Session".into()], only_wanted: true, ways: most };
        let found = heap.analyse(&Rules::built_in().unwrap(), &question, &|_, _, _| ()).unwrap();
        let root = |leak: &Leak| leak.path[0].class.clone();
        found.leaks.iter().map(root).collect::<Vec<_>>()
    };
    assert_eq!(ways(9), ["com.acme.A", "com.acme.B", "com.acme.C"]);
    assert_eq!(ways(2), ["com.acme.A", "com.acme.B"]);
}

#[test]
fn a_known_leak_of_a_library_is_none_of_the_program() {
    let mut dump = Dump::new("JAVA PROFILE 1.0.3", 4);
    dump.android();
    let activity = dump.class("android.app.Activity", &[("mDestroyed", BOOL)]);
    let over = dump.instance(activity, &[Bool(true)]);
    dump.root("android.text.TextLine", &[("sCached", Ref(over))]);
    let found = analysis(dump.finish(), &[]);
    assert!(found.leaks.is_empty());
    let [leak] = found.library_leaks.as_slice() else { panic!("{:?}", found.library_leaks) };
    assert_eq!(leak.library.as_deref(), Some("static field android.text.TextLine#sCached"));
    assert_eq!(leak.library_name.as_deref(), Some("TEXT_LINE__SCACHED"));
}

/// A map of OpenJDK with one entry, whose key is a text.
fn map(dump: &mut Dump, key: &str, value: u64) -> u64 {
    let string = dump.class("java.lang.String", &[("value", REF)]);
    let key = dump.text(string, key.as_bytes());
    let node = dump.class("java.util.HashMap$Node", &[("key", REF), ("value", REF), ("next", REF)]);
    let entry = dump.instance(node, &[Ref(key), Ref(value), Ref(0)]);
    let array = dump.class("java.util.HashMap$Node[]", &[]);
    let table = dump.array(array, &[0, entry]);
    let class = dump.class("java.util.HashMap", &[("table", REF), ("size", INT)]);
    dump.instance(class, &[Ref(table), Int(1)])
}

#[test]
fn a_map_holds_its_values_by_their_keys() {
    let mut dump = Dump::jvm();
    let session = dump.class("com.acme.Session", &[("open", BOOL)]);
    let held = dump.instance(session, &[Bool(true)]);
    let map = map(&mut dump, "ada\x1b", held);
    dump.root("com.acme.Holder", &[("sessions", Ref(map))]);
    let found = analysis(dump.finish(), &["com.acme.Session"]);
    let path: Vec<_> = found.leaks[0].path.iter().map(|node| node.class.as_str()).collect();
    assert_eq!(path, ["com.acme.Holder", "java.util.HashMap", "com.acme.Session"]);
    assert_eq!(found.leaks[0].path[1].reference.as_ref().unwrap().name, "[\"ada\\u{1b}\"]");
}

#[test]
fn many_objects_in_one_collection_are_looked_at_together() {
    let mut dump = Dump::jvm();
    let session = dump.class("com.acme.Session", &[("open", BOOL)]);
    let node = dump.class("java.util.LinkedList$Node", &[("item", REF), ("next", REF)]);
    let mut next = 0;
    for _ in 0..3000 {
        let held = dump.instance(session, &[Bool(true)]);
        next = dump.instance(node, &[Ref(held), Ref(next)]);
    }
    let list = dump.class("java.util.LinkedList", &[("first", REF)]);
    let list = dump.instance(list, &[Ref(next)]);
    dump.root("com.acme.Holder", &[("list", Ref(list))]);
    let found = analysis(dump.finish(), &["com.acme.Session"]);
    assert!(found.about.odd.is_empty(), "{:?}", found.about.odd);
    let [leak] = found.leaks.as_slice() else { panic!("{:?}", found.leaks.len()) };
    assert_eq!((leak.instances, found.not_looked_at), (3000, 0));
    assert_eq!((leak.path[1].class.as_str(), leak.path.len()), ("java.util.LinkedList", 3));
}

#[test]
fn texts_that_are_there_more_than_once_are_told() {
    let mut dump = Dump::jvm();
    let string = dump.class("java.lang.String", &[("value", REF)]);
    let shared = dump.bytes(b"shared by two, and no waste");
    for _ in 0..2 {
        dump.instance(string, &[Ref(shared)]);
    }
    for text in ["twice", "thrice\x1b", "once", "twice", "thrice\x1b", "thrice\x1b", "", ""] {
        dump.text(string, text.as_bytes());
    }
    dump.text(string, &[0; 40]);
    let texts = heap(dump.finish()).texts(1, &|_, _, _| ()).unwrap();
    assert_eq!((texts.texts, texts.arrays, texts.bytes, texts.wasted), (11, 10, 27 + 10 + 21 + 4, 5 + 14));
    let [first] = texts.duplicates.as_slice() else { panic!("{texts:?}") };
    assert_eq!((first.text.as_str(), first.copies, first.wasted), ("thrice\\u{1b}", 3, 14));
    assert_eq!((texts.more, texts.trimmed), (1, 1), "what was cut out is no copy");
}

#[test]
fn rings_of_entries_end() {
    let mut dump = Dump::jvm();
    let node = dump.class("java.util.LinkedList$Node", &[("item", REF), ("next", REF)]);
    let session = dump.class("com.acme.Session", &[("open", BOOL)]);
    let held = dump.instance(session, &[Bool(true)]);
    let (first, second) = (dump.room(), dump.room());
    dump.instance_at(first, node, &[Ref(0), Ref(second)]);
    dump.instance_at(second, node, &[Ref(held), Ref(second)]);
    let list = dump.class("java.util.LinkedList", &[("first", REF)]);
    let list = dump.instance(list, &[Ref(first)]);
    dump.root("com.acme.Holder", &[("list", Ref(list))]);
    let found = analysis(dump.finish(), &["com.acme.Session"]);
    assert_eq!(found.leaks.len(), 1);
}

#[test]
fn a_thread_holds_what_its_locals_hold() {
    let mut dump = Dump::jvm();
    let thread = dump.class("java.lang.Thread", &[("threadStatus", INT), ("group", REF)]);
    let worker = dump.instance(thread, &[Int(0x191), Ref(0)]);
    let session = dump.class("com.acme.Session", &[("open", BOOL)]);
    let held = dump.instance(session, &[Bool(true)]);
    dump.thread(worker, 7);
    dump.local(held, 7, 0);
    let bytes = dump.finish();
    let found = analysis(bytes.clone(), &["com.acme.Session"]);
    assert_eq!(found.leaks[0].root, "Thread object");
    assert_eq!(found.leaks[0].path[0].reference.as_ref().unwrap().name, "<Java Local>");
    let threads = heap(bytes).threads(&|_, _, _| ()).unwrap();
    assert_eq!(
        (threads[0].state, threads[0].locals[0].class.as_str()),
        (Some("WAITING"), "com.acme.Session")
    );
}

#[test]
fn rules_of_the_user_find_what_memgate_does_not_know() {
    let mut dump = Dump::jvm();
    let session = dump.class("com.acme.Session", &[("closed", BOOL)]);
    let closed = dump.instance(session, &[Bool(true)]);
    let open = dump.instance(session, &[Bool(false)]);
    let statics = [("a", Ref(closed)), ("b", Ref(open))];
    dump.root("com.acme.Holder", &statics);
    let rule = "[[rule]]\nclass = \"com.acme.Session\"\nfield = \"closed\"\nleaking = \"true\"\n";
    let found = answer(dump.finish(), &rules_with(rule), &Question::default());
    assert_eq!((found.leaks.len(), found.leaks[0].instances), (1, 1));
    let last = found.leaks[0].path.last().unwrap();
    assert_eq!((last.status, last.why.as_str()), (Status::Leaking, "Session#closed is true"));
}

/// Two paths to one object; a circle after it.
#[test]
fn what_two_objects_hold_is_retained_by_neither() {
    let mut dump = Dump::jvm();
    let pair = dump.class("Pair", &[("a", REF), ("b", REF)]);
    let (left, right, both, back) = (dump.room(), dump.room(), dump.room(), dump.room());
    dump.instance_at(left, pair, &[Ref(both), Ref(0)]);
    dump.instance_at(right, pair, &[Ref(both), Ref(0)]);
    dump.instance_at(both, pair, &[Ref(back), Ref(0)]);
    dump.instance_at(back, pair, &[Ref(both), Ref(back)]);
    let top = dump.instance(pair, &[Ref(left), Ref(right)]);
    dump.root("Holder", &[("top", Ref(top))]);
    let (index, dominators) = dominators(dump.finish());
    let of = |id| index.object(id).unwrap();
    let retained = |id| dominators.retained(of(id)).unwrap();
    assert_eq!((retained(left), retained(right), retained(both), retained(top)), (16, 16, 32, 80));
    assert_eq!(dominators.above(of(both)), Some(of(top)), "not the left or the right one");
    let pairs = dominators.by_class(&index);
    let pair = pairs.iter().find(|class| class.name == "Pair").unwrap();
    assert_eq!((pair.count, pair.bytes, pair.retained, pair.largest), (5, 80, 80, 80));
}

/// Two loaders have a class with the same name.
#[test]
fn classes_of_one_name_are_one() {
    let mut dump = Dump::jvm();
    let [first, second] = [(); 2].map(|()| dump.class("Node", &[("next", REF)]));
    let below = dump.instance(second, &[Ref(0)]);
    let above = dump.instance(first, &[Ref(below)]);
    dump.root("Holder", &[("first", Ref(above))]);
    let (index, dominators) = dominators(dump.finish());
    let all = dominators.by_class(&index);
    let nodes: Vec<_> = all.iter().filter(|class| class.name == "Node").collect();
    let [node] = nodes.as_slice() else { panic!("{nodes:?}") };
    assert_eq!((node.count, node.bytes, node.retained, node.largest), (2, 16, 16, 16));
}

#[test]
fn the_owner_of_a_class_is_what_a_person_would_name() {
    let mut dump = Dump::jvm();
    let map = dump.class("java.util.HashMap", &[("table", REF)]);
    let node = dump.class("java.util.HashMap$Node", &[("value", REF)]);
    let table = dump.class("java.util.HashMap$Node[]", &[]);
    let tile = dump.class("com.acme.Tile", &[("next", REF)]);
    let lone = dump.class("com.acme.Lone", &[]);
    // Two tiles below one node, one below another: a list, and a separate tile.
    let last = dump.instance(tile, &[Ref(0)]);
    let tiles = [last, last, 0].map(|next| dump.instance(tile, &[Ref(next)]));
    let nodes = tiles.map(|tile| dump.instance(node, &[Ref(tile)]));
    let table = dump.array(table, &nodes);
    let map = dump.instance(map, &[Ref(table)]);
    let alone = [(); 2].map(|()| dump.instance(lone, &[]));
    dump.root("com.acme.Cache", &[("map", Ref(map)), ("lone", Ref(alone[0]))]);
    dump.root("com.acme.Other", &[("lone", Ref(alone[1]))]);
    let (index, dominators) = dominators(dump.finish());
    let owners = dominators.owners(&index, |class| class.starts_with("com.acme.") && !class.ends_with("[]"));
    let name = |class: &str| owners.get(class).map(|owner| dominators.graph.class_name(&index, *owner));
    assert_eq!(name("com.acme.Tile"), Some("com.acme.Cache"), "through the map, and through the list");
    assert_eq!(name("java.util.HashMap$Node"), Some("com.acme.Cache"));
    assert_eq!(name("com.acme.Lone"), None, "one each: nobody has most of them");
}

#[test]
fn a_chain_of_a_million_objects_takes_no_stack() {
    const LONG: usize = 1_000_000;
    let mut dump = Dump::jvm();
    let node = dump.class("Node", &[("next", REF)]);
    let mut next = 0;
    for _ in 0..LONG {
        next = dump.instance(node, &[Ref(next)]);
    }
    dump.root("Holder", &[("first", Ref(next))]);
    let bytes = dump.finish();
    // The last object of the chain is wanted: its path has a million steps.
    let first_made = format!("0x{:x}", 0x1000_0000 + 3 * 16);
    let found = analysis(bytes.clone(), &[first_made.as_str()]);
    let leak = &found.leaks[0];
    assert!(leak.path.len() <= 201, "{}", leak.path.len());
    assert!(
        leak.path
            .iter()
            .any(|node| node.labels.iter().any(|label| label.contains("more objects of the path")))
    );
    let (index, dominators) = dominators(bytes);
    assert_eq!((dominators.reachable(), dominators.bytes()), (LONG + 3, 8 * LONG as u64 + 8));
    let owners = dominators.owners(&index, |_| true);
    assert_eq!(owners.get("Node").map(|owner| dominators.graph.class_name(&index, *owner)), Some("Holder"));
}

/// Cropped like KOOM: values of arrays of primitives are missing, but lengths still include them.
fn cropped(whole: &[u8], id_bytes: usize, values: &[&[u8]]) -> Vec<u8> {
    let mut cropped = whole.to_vec();
    for values in values {
        let at = cropped.windows(values.len()).position(|at| at == *values).unwrap();
        cropped.drain(at..at + values.len());
    }
    assert!(cropped.len() + id_bytes < whole.len());
    cropped
}

#[test]
fn a_dump_that_koom_cropped_has_its_arrays_again() {
    for id_bytes in [4, 8] {
        let mut dump = Dump::new("JAVA PROFILE 1.0.3", id_bytes);
        let (first, second) = ([7; 1000], [9; 70_000]);
        let bytes = [dump.bytes(&first), dump.bytes(&second)];
        let held = dump.objects(&bytes);
        dump.root("com.acme.Holder", &[("kept", Ref(held))]);
        let whole = dump.finish();
        let quiet = |_: &'static str, _: u64, _: Option<u64>| ();
        let koom = DumpFile::of_bytes(cropped(&whole, id_bytes, &[&first, &second])).unwrap();
        let is = |file: &DumpFile| Cropped::of(file, &quiet).unwrap();
        assert_eq!(is(&DumpFile::of_bytes(whole.clone()).unwrap()), Cropped::Whole);
        assert_eq!(is(&koom), Cropped::Cropped);
        let mut restored = Vec::new();
        let mut zeroed = Vec::new();
        trim(whole.as_slice(), &mut zeroed).unwrap();
        assert_eq!(uncrop(&koom, &mut restored, &quiet).unwrap(), whole.len() as u64);
        assert!(restored == zeroed, "ids of {id_bytes} bytes");
        for end in [40, 200, koom.bytes() - 10] {
            let cut = cropped(&whole, id_bytes, &[&first, &second])[..usize::try_from(end).unwrap()].to_vec();
            let cut = DumpFile::of_bytes(cut).unwrap();
            assert_eq!(is(&cut), Cropped::Neither, "cut at {end}");
            assert!(uncrop(&cut, std::io::sink(), &quiet).is_err());
        }
    }
}

#[test]
fn pictures_are_listed_by_the_size_of_their_pixels_and_shown() {
    let mut dump = Dump::new("JAVA PROFILE 1.0.3", 4);
    let fields = [("mBuffer", REF), ("mWidth", INT), ("mHeight", INT), ("mRecycled", BOOL)];
    let bitmap = dump.class("android.graphics.Bitmap", &fields);
    let pixels: Vec<u8> = (0..24).collect();
    let buffer = dump.bytes(&pixels);
    let mut picture = |buffer: u64, width: i32, height: i32, gone: bool| {
        let sides = [Int(width), Int(height), Bool(gone)];
        dump.instance(bitmap, &[&[Ref(buffer)][..], &sides].concat())
    };
    let small = picture(buffer, 3, 2, false);
    let large = picture(0, 100, 50, false);
    let gone = picture(0, 100, 50, true);
    let odd = picture(0, -1, 7, false);
    let heap = heap(dump.finish());
    let all = heap.bitmaps();
    let told: Vec<(u64, u64, Pixels)> = all.iter().map(|of| (of.id, of.bytes, of.pixels)).collect();
    let last = [(gone, 0, Pixels::Gone), (odd, 0, Pixels::Unknown)];
    assert_eq!(told[..2], [(large, 20_000, Pixels::Unknown), (small, 24, Pixels::Heap)]);
    assert_eq!(told[2..], last);
    assert_eq!(together(&all), (20_024, 4));
    let mut shown = Vec::new();
    let mut show = |of: &Bitmap, pixels: &[u8]| -> Result<(), memgate_hprof::read::ReadError> {
        shown.push((of.id, pixels.to_vec()));
        Ok(())
    };
    heap.pictures(&all, &mut show, &|_, _, _| ()).unwrap();
    assert_eq!(shown, [(small, pixels)]);
}

/// A plugin whose loader no field refers to: an object of one of its classes is held, and a class keeps a session.
fn plugin() -> Vec<u8> {
    let mut dump = Dump::jvm();
    dump.sticky(dump.object);
    let loaders = dump.class("com.acme.Loader", &[("jar", REF)]);
    dump.sticky(loaders);
    let jar = dump.bytes(&[0; 4321]);
    let loader = dump.instance(loaders, &[Ref(jar)]);
    let buffer = dump.bytes(&[0; 50_000]);
    let (session_class, plugin_class) = (dump.room(), dump.room());
    dump.loaded_by(loader);
    dump.class_at(session_class, "com.acme.Session", dump.object, &[], &[("closed", BOOL), ("buffer", REF)]);
    let session = dump.instance(session_class, &[Bool(true), Ref(buffer)]);
    dump.class_at(plugin_class, "com.acme.Plugin", dump.object, &[("last", Ref(session))], &[]);
    let plugin = dump.instance(plugin_class, &[]);
    dump.loaded_by(0);
    dump.root("com.acme.Holder", &[("held", Ref(plugin))]);
    dump.finish()
}

#[test]
fn an_object_keeps_its_class_and_its_loader() {
    let found = analysis(plugin(), &["com.acme.Session", "com.acme.Loader"]);
    assert!(found.unreachable.is_empty(), "{:?}", found.unreachable);
    let paths: Vec<String> = found.leaks.iter().map(tree).collect();
    let [session, loader] = [&paths[0], &paths[1]];
    for (path, steps) in [
        (session, ["static Holder.held", "Plugin.<class>", "static Plugin.last"]),
        (loader, ["static Holder.held", "Plugin.<class>", "Plugin.<loader>"]),
    ] {
        assert!(steps.iter().all(|step| path.contains(&format!("↓ {step}\n"))), "{path}");
    }
    let (dump, dominators) = dominators(plugin());
    let retained = |class: &str| {
        let object = (0..u32::try_from(dump.objects()).unwrap()).find(|object| {
            dominators.graph.class_name(&dump, *object) == class && dominators.above(*object).is_some()
        });
        dominators.retained(object.unwrap()).unwrap()
    };
    assert!(retained("com.acme.Plugin") >= 50_000 + 4321, "{}", retained("com.acme.Plugin"));
    // The loader has two classes, with what their static fields hold, and an instance of each; the package has two
    // more classes, and the loader.
    for (grouping, name, count) in
        [(Grouping::Loader, "com.acme.Loader 0x", 4), (Grouping::Package, "com.acme", 7)]
    {
        let all = dominators.by(&dump, grouping);
        let group = all.iter().find(|group| group.name.starts_with(name)).unwrap();
        assert_eq!(group.count, count, "{group:?}");
    }
}

/// Regression: a generated class with the protection domain of a plugin kept the plugin, which was held by nothing.
#[test]
fn a_class_keeps_its_protection_domain() {
    let mut dump = Dump::jvm();
    dump.sticky(dump.object);
    let [session, domain] = ["com.acme.Session", "java.security.ProtectionDomain"].map(|name| {
        let class = dump.class(name, &[("held", REF)]);
        dump.sticky(class);
        class
    });
    let session = dump.instance(session, &[Ref(0)]);
    let domain = dump.instance(domain, &[Ref(session)]);
    dump.protected_by(domain);
    let made = dump.class("com.acme.Made", &[]);
    dump.sticky(made);
    let found = analysis(dump.finish(), &["com.acme.Session"]);
    assert!(found.unreachable.is_empty(), "{:?}", found.unreachable);
    let path = tree(&found.leaks[0]);
    assert!(path.contains("↓ Made.<domain>\n"), "{path}");
}

#[test]
fn what_keeps_a_class_is_told_only_of_what_nothing_else_holds() {
    let mut dump = Dump::jvm();
    dump.sticky(dump.object);
    let session = dump.class("com.acme.Session", &[]);
    dump.sticky(session);
    let session = dump.instance(session, &[]);
    // The short path is through the class of the plugin, the long one through fields.
    let plugin = dump.statics("com.acme.Plugin", &[("last", Ref(session))]);
    let plugin = dump.instance(plugin, &[]);
    let link = dump.class("com.acme.Link", &[("next", REF)]);
    dump.sticky(link);
    let chain = (0..9).fold(session, |next, _| dump.instance(link, &[Ref(next)]));
    let statics = [("plugin", Ref(plugin)), ("chain", Ref(chain))];
    dump.root("com.acme.Holder", &statics);
    let found = analysis(dump.finish(), &["com.acme.Session"]);
    let path = tree(&found.leaks[0]);
    assert!(path.contains("static Holder.chain") && !path.contains("<class>"), "{path}");
}

/// The number of objects that a user's rule finds in a dump with one session, and the mistakes in the rule.
fn ruled(rule: &str) -> (usize, Vec<String>) {
    let mut dump = Dump::jvm();
    let truth = dump.class("java.util.concurrent.atomic.AtomicBoolean", &[("value", INT)]);
    let truth = dump.instance(truth, &[Int(1)]);
    let open = dump.room();
    let state = dump.statics("com.acme.State", &[("OPEN", Ref(open))]);
    dump.instance_at(open, state, &[]);
    let base = dump.class("com.acme.Base", &[("closed", BOOL)]);
    let session = dump.room();
    let fields = [("code", BYTE), ("done", REF), ("state", REF), ("rate", DOUBLE), ("users", INT)];
    dump.class_at(session, "com.acme.Session", base, &[("all", Ref(0))], &fields);
    let values = [Byte(-1), Ref(truth), Ref(open), Double(1.5), Int(-7)];
    let session = dump.instance(session, &[&values[..], &[Bool(true)]].concat());
    dump.root("com.acme.Holder", &[("kept", Ref(session))]);
    let found = answer(dump.finish(), &rules_with(rule), &Question::default());
    (found.leaks.len(), found.mistakes)
}

#[test]
fn a_rule_of_the_users_that_can_never_match_is_told_and_others_find_what_is_over() {
    let of = |field: &str, leaking: &str| {
        ruled(&format!(
            "[[rule]]\nclass = \"com.acme.Session\"\nfield = \"{field}\"\nleaking = \"{leaking}\"\n"
        ))
    };
    for (field, value) in [
        ("closed", "true"),
        ("code", "-1"),
        ("done", "true"),
        ("done", "set"),
        ("state", "OPEN"),
        ("users", "-7"),
    ] {
        assert_eq!(of(field, value), (1, Vec::new()), "{field} {value}");
    }
    for (field, value) in [("closed", "false"), ("code", "127"), ("done", "false"), ("users", "7")] {
        assert_eq!(of(field, value), (0, Vec::new()), "{field} {value}");
    }
    let rule = "the rule for `com.acme.Session` ";
    for (field, value, told) in [
        (
            "Closed",
            "true",
            "names its field `Closed`, and the class in the dump has none of that name (closed, code, done, rate, \
             state, users)",
        ),
        (
            "closed",
            "True",
            "waits for `True`, which its field `closed` never is: it is a boolean, `true` or `false`",
        ),
        (
            "code",
            "255",
            "waits for `255`, which its field `code` never is: it is a byte, a number from -128 to 127",
        ),
        (
            "rate",
            "1",
            "waits for `1`, which its field `rate` never is: it is a double, and no rule reads those",
        ),
        (
            "rate",
            "1.5",
            "waits for `1.5`, which its field `rate` never is: it is a double, and no rule reads those",
        ),
        (
            "state",
            "Open",
            "waits for `Open`, which its field `state` never is: it is a reference: `null`, `set`, a constant of its \
             enum, `true` or `false` of a Boolean or AtomicBoolean",
        ),
    ] {
        assert_eq!(of(field, value), (0, vec![format!("{rule}{told}")]));
    }
    let (_, state) = of("state", "true");
    let (_, number) = of("done", "1");
    assert_eq!((state.len(), number.len()), (1, 1), "{state:?} {number:?}");
    // The class is not loaded, so its fields are unknown.
    assert_eq!(ruled("[[rule]]\nclass = \"com.acme.Gone\"\nfield = \"x\"\nleaking = \"true\"\n").1, [""; 0]);
    for (pattern, is_known) in [
        ("instance field com.acme.Session#done", true),
        ("instance field com.acme.Session#undone", false),
        ("static field com.acme.Session#all", true),
        ("static field com.acme.Session#none", false),
    ] {
        let (_, mistakes) = ruled(&format!("[[ignored]]\npattern = \"{pattern}\"\n"));
        assert_eq!(mistakes.is_empty(), is_known, "{mistakes:?}");
        assert!(is_known || mistakes[0].starts_with(&format!("the pattern `{pattern}` names its field")));
    }
}

#[test]
fn a_leak_in_a_lambda_has_one_fingerprint_in_every_run() {
    let found = |lambda: &str| {
        let mut dump = Dump::jvm();
        let session = dump.class("com.acme.Session", &[]);
        let session = dump.instance(session, &[]);
        let lambda = dump.class(lambda, &[("arg$1", REF)]);
        let lambda = dump.instance(lambda, &[Ref(session)]);
        dump.root("com.acme.Bus", &[("listener", Ref(lambda))]);
        let found = analysis(dump.finish(), &["com.acme.Session"]);
        (found.leaks[0].fingerprint.clone(), found.leaks[0].path[1].class.clone())
    };
    let first = found("com/acme/Bus$$Lambda$14+0x0000000800c03000");
    assert_eq!(first.1, "com.acme.Bus$$Lambda");
    for lambda in ["com/acme/Bus$$Lambda+0x000000006f045b38", "com/acme/Bus$$Lambda$3/1324119927"] {
        assert_eq!(found(lambda), first);
    }
}

#[test]
fn a_frame_of_a_lambda_has_one_name_in_every_run() {
    for lambda in ["com/acme/Bus$$Lambda$14+0x0000000800c03000", "com/acme/Bus$$Lambda+0x000000006f045b38"] {
        let mut dump = Dump::jvm();
        let thread = dump.class("java.lang.Thread", &[]);
        let worker = dump.instance(thread, &[]);
        dump.thread(worker, 3);
        dump.class(lambda, &[]);
        dump.frame(7, "run");
        dump.trace(3, &[7]);
        let threads = heap(dump.finish()).threads(&|_, _, _| ()).unwrap();
        assert_eq!(threads[0].frames[0].method, "com.acme.Bus$$Lambda.run");
    }
}

#[test]
fn characters_of_a_text_and_boxed_numbers_are_held_by_what_holds_them() {
    let mut dump = Dump::jvm();
    let string = dump.class("java.lang.String", &[("value", REF)]);
    let text = dump.text(string, &[b'x'; 5000]);
    let integer = dump.class("java.lang.Integer", &[("value", INT)]);
    dump.sticky(string);
    dump.sticky(integer);
    let number = dump.instance(integer, &[Int(100_001)]);
    let array = dump.class("java.lang.Integer[]", &[]);
    let numbers = dump.array(array, &[number]);
    let statics = [("text", Ref(text)), ("numbers", Ref(numbers))];
    dump.root("com.acme.Holder", &statics);
    let bytes = dump.finish();
    for (class, field, size) in [("byte[]", "text", 5000), ("java.lang.Integer", "numbers", 4)] {
        let found = analysis(bytes.clone(), &[class]);
        assert!(found.unreachable.is_empty(), "{class}");
        assert_eq!((found.attributed_bytes, found.attributed_objects), (size, 1));
        let path = tree(&found.leaks[0]);
        assert!(path.contains(&format!("↓ static Holder.{field}\n")), "{path}");
    }
    // A query for the text includes its characters, once.
    let found = analysis(bytes, &["java.lang.String"]);
    assert_eq!((found.attributed_bytes, found.attributed_objects), (8 + 5000, 1));
}

#[test]
fn a_field_with_the_name_of_a_weak_one_holds_what_it_refers_to() {
    let mut dump = Dump::jvm();
    let reference = dump.class("java.lang.ref.Reference", &[("referent", REF)]);
    let weak = dump.subclass(reference, "java.lang.ref.WeakReference", &[]);
    let own = dump.subclass(weak, "com.acme.Handle", &[("referent", REF)]);
    let session = dump.class("com.acme.Session", &[]);
    let session = dump.instance(session, &[]);
    let handle = dump.instance(own, &[Ref(session), Ref(0)]);
    dump.root("com.acme.Holder", &[("handle", Ref(handle))]);
    let found = analysis(dump.finish(), &["com.acme.Session"]);
    let [leak] = found.leaks.as_slice() else { panic!("{:?}", found.unreachable) };
    assert!(tree(leak).contains("↓ Handle.referent\n"), "{}", tree(leak));
}

#[test]
fn what_holds_thousands_of_others_is_told_with_the_first_of_them() {
    let mut dump = Dump::jvm();
    let node = dump.class("com.acme.Node", &[("next", REF)]);
    let all = dump.class("com.acme.Node[]", &[]);
    dump.sticky(node);
    let nodes: Vec<u64> = (0..5000).map(|_| dump.instance(node, &[Ref(0)])).collect();
    let kept = dump.array(all, &nodes);
    let top = dump.instance(node, &[Ref(kept)]);
    // Next to it are 3,000 other nodes, each of which holds it.
    let tops: Vec<u64> = (0..3000).map(|_| dump.instance(node, &[Ref(top)])).collect();
    let tops = dump.array(all, &[&[top][..], &tops].concat());
    dump.root("com.acme.Holder", &[("nodes", Ref(tops))]);
    let found = analysis(dump.finish(), &["com.acme.Node"]);
    assert_eq!((found.attributed_objects, found.not_looked_at), (8002, 0));
    let labels = &found.leaks[0].path.last().unwrap().labels;
    for told in ["Also retains 4936 more leaking objects", "Also retained by 2936 more leaking objects"] {
        assert!(labels.iter().any(|label| label == told), "{labels:?}");
    }
}

/// A known leak of thousands of objects made every run an error, because others might be hidden by it.
#[test]
fn thousands_of_objects_in_one_collection_hide_no_other_leak() {
    let mut dump = Dump::jvm();
    let session = dump.class("com.acme.Session", &[("buffer", REF)]);
    let array = dump.class("java.lang.Object[]", &[]);
    dump.sticky(array);
    dump.sticky(session);
    let sessions: Vec<u64> = (0..5000)
        .map(|_| {
            let buffer = dump.array(array, &[]);
            dump.instance(session, &[Ref(buffer)])
        })
        .collect();
    let all = dump.array(array, &sessions);
    let own: Vec<u64> = (0..3).map(|_| dump.instance(session, &[Ref(0)])).collect();
    // After the crowd, and next to it in a field.
    let other = dump.class("com.acme.Other", &[("last", REF)]);
    let others: Vec<u64> = own.iter().map(|own| dump.instance(other, &[Ref(*own)])).collect();
    let others = dump.array(array, &others);
    dump.root("com.acme.Holder", &[("all", Ref(all)), ("others", Ref(others))]);
    let found = analysis(dump.finish(), &["com.acme.Session"]);
    let mut told: Vec<(u64, u64)> = found.leaks.iter().map(|leak| (leak.instances, leak.objects)).collect();
    told.sort_unstable();
    assert_eq!((told, found.not_looked_at), (vec![(3, 3), (5000, 10_000)], 0));
    let sum: u64 = found.leaks.iter().map(|leak| leak.attributed).sum();
    assert_eq!((sum, found.attributed_objects), (found.attributed_bytes, 10_003));
}

/// Regression: objects that the locals of thousands of virtual threads hold took all paths.
#[test]
fn thousands_of_objects_in_places_of_one_kind_hide_no_other_leak() {
    let mut dump = Dump::jvm();
    let session = dump.class("com.acme.Session", &[]);
    let task = dump.class("com.acme.Task", &[("session", REF)]);
    for _ in 0..3000 {
        let own = dump.instance(session, &[]);
        let running = dump.instance(task, &[Ref(own)]);
        dump.sticky(running);
    }
    // The search finds this object after the others.
    let last = dump.instance(session, &[]);
    let holders: Vec<u64> =
        (0..4).map(|at| dump.class(&format!("com.acme.Holder{at}"), &[("next", REF)])).collect();
    let chain = holders.iter().fold(last, |held, class| dump.instance(*class, &[Ref(held)]));
    dump.root("com.acme.Registry", &[("all", Ref(chain))]);
    let found = analysis(dump.finish(), &["com.acme.Session"]);
    let mut told: Vec<u64> = found.leaks.iter().map(|leak| leak.instances).collect();
    told.sort_unstable();
    assert_eq!((told, found.not_looked_at), (vec![1, 1999], 1001));
}
