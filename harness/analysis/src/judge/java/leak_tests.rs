//! Tests of leaks of Java objects: the objects of one leak, its title, and its holder.

use memgate_model::{LeakKind, Metric, Verdict};

use super::tests::{
    CLASS, ITERATIONS, TEST, again, confirmed, evicts, of_objects, only_leak, report, report_of, rounds,
    suite, waiving,
};
use crate::java::dsl::Jvm;
use crate::judge::tests::waiver;
use crate::policy::{TextPattern, WaiverMatch};
use crate::signature::java_id;

#[test]
fn twelve_tiles_in_a_map_are_one_leak_named_by_class_and_holder() {
    let input = confirmed(
        |jvm, _| jvm.tiles(12),
        |jvm| {
            jvm.tiles_held("cache", 12);
            jvm.site("com.example.Tile", "com.example.TileLoader", "load", "TileLoader.java", 31);
        },
    );
    let report = report_of(&input);
    let test = evicts(&report);
    assert_eq!((test.verdict, report.exit_code), (Verdict::Fail, 1), "{}", test.reason);
    let [leak] = test.leaks.as_slice() else { panic!("one leak: {:#?}", test.leaks) };
    assert_eq!((leak.kind, leak.title.as_str()), (LeakKind::Java, "12 × com.example.Tile"));
    assert_eq!(
        (leak.count_per_iteration, leak.bytes_per_iteration),
        (12.0, 12.0 * (24.0 + 4000.0 + 16.0 + 32.0))
    );
    assert_eq!(leak.class.as_deref(), Some("com.example.Tile"));
    let steps: Vec<String> =
        leak.holder.iter().map(|s| format!("{} {}.{}", s.kind, s.owner, s.name)).collect();
    assert_eq!(
        steps,
        [
            "static com.example.Registry.cache",
            "field java.util.HashMap.table[x]",
            "field java.util.HashMap$Node.value"
        ]
    );
    let frame = &leak.frames[0];
    assert_eq!(frame.function.as_deref(), Some("com.example.TileLoader.load"));
    assert_eq!((frame.file.as_deref(), frame.line), (Some("TileLoader.java"), Some(31)));
    assert!(leak.id.starts_with("j1-"), "{}", leak.id);
    let bytes = &test.metrics[&Metric::JavaLiveBytes];
    assert_eq!((bytes.value, bytes.low, bytes.high), (48864.0, 48864.0, 48864.0));
    assert_eq!(test.metrics[&Metric::JavaLiveObjects].value, 48.0);
    assert!(!test.metrics.contains_key(&Metric::NativeLiveBytes), "nobody tracked native memory");
    assert_eq!(report.suites[0].tests.len(), 2, "the class is no entry of its own");
    assert_eq!(report.suites[0].tests[0].verdict, Verdict::Pass);
}

#[test]
fn what_two_fields_hold_is_two_leaks() {
    let input = confirmed(
        |jvm, _| {
            jvm.tiles(12);
            jvm.add("com.example.Marker", 5, 40);
        },
        |jvm| {
            jvm.tiles_held("cache", 12);
            let list = [
                "static com.example.Registry.marks -> java.util.ArrayList",
                "field java.util.ArrayList.elementData -> java.lang.Object[]",
                "array java.lang.Object[].[x] -> com.example.Marker",
            ];
            jvm.held("com.example.Marker", &[(5, &list)]);
        },
    );
    let report = report_of(&input);
    let titles: Vec<&str> = evicts(&report).leaks.iter().map(|leak| leak.title.as_str()).collect();
    assert_eq!(titles, ["12 × com.example.Tile", "5 × com.example.Marker"]);
}

/// Regression test: few objects in another field were part of the leak in the first field, and equal numbers of strings
/// were all of the first. So a waiver of the first field covered a new leak.
#[test]
fn a_waiver_of_one_field_covers_no_objects_of_the_class_in_another_field() {
    let list = |field: &str, class: &str| {
        [
            format!("static com.example.Registry.{field} -> java.util.ArrayList"),
            "field java.util.ArrayList.elementData -> java.lang.Object[]".to_owned(),
            format!("array java.lang.Object[].[x] -> {class}"),
        ]
    };
    let titles = |class: &str, (old, new): (u64, u64), stacks: &[(&str, &str, u64)]| {
        let input = confirmed(
            |jvm, _| jvm.add(class, old + new, 40),
            |jvm| {
                let (first, second) = (list("old", class), list("new", class));
                let [first, second] =
                    [first.each_ref(), second.each_ref()].map(|way| way.map(String::as_str));
                jvm.held(class, &[(old, &first), (new, &second)]);
                jvm.site(class, "com.example.Registry", "add", "Registry.java", 7);
                jvm.sites(class, stacks);
            },
        );
        let field = "com.example.Registry.old";
        let matches = WaiverMatch::Holder(TextPattern::new(field, move |step| step == field));
        let report = report(&input, &waiving([waiver(matches, None)]));
        let test = evicts(&report);
        let leaks = test.leaks.iter().map(|leak| format!("{} {}", leak.title, leak.holder[0].name));
        (test.verdict, leaks.collect::<Vec<_>>())
    };
    let stack = ("com.example.Registry", "add", 40);
    let both = |old: &str, new: &str| (Verdict::Fail, vec![old.to_owned(), new.to_owned()]);
    let mark = "com.example.Marker";
    let three_and_one = |class: &str| both(&format!("3 × {class} old"), &format!("1 × {class} new"));
    for class in [mark, "java.lang.String"] {
        assert_eq!(titles(class, (3, 1), &[stack]), three_and_one(class));
    }
    // Other paths to the same objects: not each has a stack of its own.
    let one = (Verdict::Pass, vec!["4 × com.example.Marker old".to_owned()]);
    assert_eq!(titles(mark, (3, 1), &[]), one);
    assert_eq!(titles(mark, (3, 1), &[stack, ("com.example.Names", "add", 40)]), one);
}

/// Small arrays of the virtual machine come and go as well: the number is uneven, but the bytes rise each time.
#[test]
fn arrays_in_uneven_numbers_are_in_the_sum_of_what_holds_them() {
    let input = confirmed(
        |jvm, i| {
            jvm.add("com.example.Picture", 1, 16);
            let small = [3, 0, 5, 1, 4, 2][i as usize % 6];
            jvm.set("byte[]", 1000 + u64::from(i) + small, (1 << 20) + 200_016 * u64::from(i));
        },
        |jvm| {
            let list = [
                "static com.example.Registry.marks -> java.util.ArrayList",
                "field java.util.ArrayList.elementData -> java.lang.Object[]",
                "array java.lang.Object[].[x] -> com.example.Picture",
            ];
            jvm.held("com.example.Picture", &[(1, &list)]);
        },
    );
    let report = report_of(&input);
    let test = evicts(&report);
    let [leak] = test.leaks.as_slice() else { panic!("one leak: {:#?}", test.leaks) };
    assert_eq!(leak.title, "1 × com.example.Picture");
    let bytes = test.metrics[&Metric::JavaLiveBytes].value;
    assert!((200_000.0..200_100.0).contains(&bytes), "{bytes}");
}

/// 100 B more each time are 96 or 104 B, and literals of the compiler come in addition.
#[test]
fn an_array_that_a_larger_one_replaces_each_time_leaks() {
    let of = |grown: u64| {
        let input = confirmed(
            |jvm, i| {
                let literals: u64 = (0..=i).map(|i| [0, 0, 1, 0, 3, 0, 2][i as usize % 7]).sum();
                jvm.set("byte[]", 1000 + literals, (1 << 20) + grown * u64::from(i) / 8 * 8 + 32 * literals);
            },
            |jvm| {
                jvm.held("byte[]", &[]);
                jvm.site("byte[]", "org.junit.Reflection", "methods", "Reflection.java", 1743);
            },
        );
        evicts(&report_of(&input)).clone()
    };
    let test = of(100);
    assert_eq!(test.verdict, Verdict::Fail, "{}", test.reason);
    let [leak] = test.leaks.as_slice() else { panic!("one leak: {:#?}", test.leaks) };
    assert_eq!(leak.title, "growing byte[]");
    assert!((99.0..101.0).contains(&leak.bytes_per_iteration), "{}", leak.bytes_per_iteration);
    assert!(leak.frames.is_empty(), "what survived is another array: {:?}", leak.frames);
    assert_ne!(leak.id, java_id("byte[]", std::iter::empty()), "it is not the leak of every test");
    assert!(of(0).leaks.is_empty(), "literals alone");
}

#[test]
fn ids_survive_other_addresses_and_counts_but_not_another_field() {
    let id = |count: u64, field: &str, lambda: &str| {
        let body = |jvm: &mut Jvm, _: u32| {
            jvm.tiles(count);
            jvm.add(lambda, count, 16);
        };
        let mut jvm = Jvm::new();
        (0..ITERATIONS).for_each(|i| jvm.window(CLASS, "evicts", i, |jvm| body(jvm, i)));
        jvm.tiles_held(field, count);
        jvm.explained(CLASS, "evicts", ITERATIONS - 1);
        let again = again(jvm);
        let input = suite(vec![rounds(body)], [(TEST, again)]);
        report_of(&input).suites[0].tests[1].leaks[0].id.clone()
    };
    let first = id(12, "cache", "com.example.A$$Lambda/0x00007f3c1c001000");
    assert_eq!(first, id(7, "cache", "com.example.A$$Lambda$3/0x0000000800c03000"));
    assert_ne!(first, id(12, "other", "com.example.A$$Lambda/0x00007f3c1c001000"));
}

/// Cleaners hold the objects to clean, and a loaded class holds its class loader. Neither is a leak of its own.
#[test]
fn what_only_follows_a_leak_belongs_to_it() {
    let list = |class: &str| {
        [
            "static com.example.All.kept -> java.util.ArrayList",
            "field java.util.ArrayList.elementData -> java.lang.Object[]",
        ]
        .map(str::to_owned)
        .into_iter()
        .chain([format!("array java.lang.Object[].[x] -> {class}")])
        .collect::<Vec<_>>()
    };
    let cases: [(&str, &str, &[&str]); 3] = [
        (
            "com.example.Texture",
            "jdk.internal.ref.Cleaner",
            &["static jdk.internal.ref.Cleaner.first -> jdk.internal.ref.Cleaner"],
        ),
        (
            "com.example.Plugin",
            "com.example.Loader",
            &["class loader com.example.Plugin. -> com.example.Loader"],
        ),
        ("com.example.Plugin", "java.lang.Class", &[]),
    ];
    for (kept, follows, ways) in cases {
        let input = confirmed(
            |jvm, _| {
                jvm.add(kept, 1, 16);
                jvm.add(follows, 1, 40);
            },
            |jvm| {
                let list = list(kept);
                jvm.held(kept, &[(1, &list.iter().map(String::as_str).collect::<Vec<_>>())]);
                if !ways.is_empty() {
                    jvm.held(follows, &[(1, ways)]);
                }
            },
        );
        let report = report_of(&input);
        let [leak] = evicts(&report).leaks.as_slice() else {
            panic!("{follows}: {:#?}", evicts(&report).leaks)
        };
        assert_eq!(
            (leak.title.as_str(), leak.bytes_per_iteration),
            (format!("1 × {kept}").as_str(), 56.0),
            "{follows}"
        );
        assert_eq!(leak.holder[0].owner, "com.example.All", "{follows}");
    }
}

/// The leak is smaller than noise of the same class.
#[test]
fn the_way_of_a_leak_is_found_among_literals() {
    let map = [
        "static com.example.Titles.all -> java.util.HashMap",
        "field java.util.HashMap.table -> java.util.HashMap$Node[]",
    ];
    let input = confirmed(
        |jvm, _| {
            jvm.add("java.lang.String", 10, 24);
            jvm.add("java.util.HashMap$Node", 5, 32);
        },
        |jvm| {
            let way =
                |last| [map[0], map[1], "array java.util.HashMap$Node[].[x] -> java.util.HashMap$Node", last];
            let (key, value) = (
                way("field java.util.HashMap$Node.key -> java.lang.String"),
                way("field java.util.HashMap$Node.value -> java.lang.String"),
            );
            let literals: [&str; 2] =
                ["system class . -> java.lang.Object[]", "array java.lang.Object[].[x] -> java.lang.String"];
            jvm.held("java.lang.String", &[(20, &literals), (5, &key), (5, &value)]);
        },
    );
    let report = report_of(&input);
    let leak = only_leak(&report);
    assert_eq!(
        (leak.title.as_str(), leak.holder[0].owner.as_str()),
        ("10 × java.lang.String", "com.example.Titles")
    );
}

/// Nine instances were added and three have known paths, which need not include the instance that stays.
#[test]
fn ways_of_other_instances_do_not_make_a_leak_of_their_own() {
    let list = [
        "static com.example.All.kept -> java.util.ArrayList",
        "field java.util.ArrayList.x -> com.example.Plugin",
    ];
    let caches = [
        "static java.lang.ClassLoader.scl -> java.lang.Loader",
        "field java.lang.Loader.c -> java.lang.ref.SoftReference",
    ];
    let input = confirmed(
        |jvm, _| {
            jvm.add("com.example.Plugin", 1, 16);
            jvm.add("java.lang.ref.SoftReference", 1, 40);
        },
        |jvm| {
            jvm.held("com.example.Plugin", &[(1, &list)]);
            jvm.held_some(9, "java.lang.ref.SoftReference", &[(3, &caches)]);
        },
    );
    let report = report_of(&input);
    let titles: Vec<_> = evicts(&report).leaks.iter().map(|leak| leak.title.as_str()).collect();
    assert_eq!(titles, ["1 × com.example.Plugin"]);
}

/// 174 objects are held through as many paths. Those that a library keeps are most alike, but do not explain the
/// others.
#[test]
fn a_way_of_few_names_no_leak_beside_the_projects_own() {
    let library: &[&str] = &[
        "static java.lang.invoke.LambdaForm._D_0 -> java.lang.invoke.LambdaForm",
        "field java.lang.invoke.LambdaForm.names -> java.lang.Object[]",
    ];
    for tiles in [2, 0] {
        let input = confirmed(
            |jvm, _| {
                jvm.add("com.example.Tile", tiles, 24);
                jvm.add("java.lang.Object[]", 174, 64);
            },
            |jvm| {
                if tiles > 0 {
                    jvm.held(
                        "com.example.Tile",
                        &[(tiles, &["static com.example.Registry.all -> com.example.Tile"])],
                    );
                }
                jvm.held_some(174, "java.lang.Object[]", &[(9, library)]);
            },
        );
        let report = report_of(&input);
        let leak = only_leak(&report);
        let (title, owner, bytes) = match tiles {
            // This path is used only if no other is known.
            0 => ("174 × java.lang.Object[]", "java.lang.invoke.LambdaForm", 174.0 * 64.0),
            _ => ("2 × com.example.Tile", "com.example.Registry", 2.0 * 24.0 + 174.0 * 64.0),
        };
        assert_eq!((leak.title.as_str(), leak.holder[0].owner.as_str()), (title, owner));
        assert_eq!(leak.bytes_per_iteration, bytes);
    }
}

const FORM: &str = "static java.lang.invoke.LambdaForm$MH._D_0 -> java.lang.invoke.LambdaForm";

/// Recorded with JDK 25: a class loader has an array in each of four fields, and the JDK keeps more arrays that look
/// the same.
#[test]
fn arrays_in_several_fields_belong_to_what_has_these_fields() {
    let loader = ["static com.example.Registry.all -> com.example.Plugins"];
    let form = [FORM, "field java.lang.invoke.LambdaForm.names -> java.lang.Object[]"];
    let field = |name: &str| format!("field com.example.Plugins.{name} -> java.lang.Object[]");
    let fields = ["classes", "path", "open", "loaders"].map(field);
    let input = confirmed(
        |jvm, _| {
            jvm.add("com.example.Plugins", 1, 96);
            jvm.add("java.lang.Object[]", 4, 40);
        },
        |jvm| {
            let in_fields = fields.each_ref().map(|field| [loader[0], field.as_str()]);
            let ways: Vec<(u64, &[&str])> =
                std::iter::once((5, &form[..])).chain(in_fields.iter().map(|way| (1, &way[..]))).collect();
            jvm.held("com.example.Plugins", &[(1, &loader)]);
            jvm.held_some(11, "java.lang.Object[]", &ways);
        },
    );
    let report = report_of(&input);
    let leak = only_leak(&report);
    assert_eq!((leak.title.as_str(), leak.bytes_per_iteration), ("1 × com.example.Plugins", 256.0));
}

/// A `CopyOnWriteArrayList` has a longer array after each call. This array is not among those that survive.
#[test]
fn an_array_that_is_replaced_each_time_is_not_held_by_what_holds_others() {
    let input = confirmed(
        |jvm, i| {
            jvm.add("com.example.Tile", 1, 24);
            jvm.set("java.lang.Object[]", 9, 400 + 8 * u64::from(i));
        },
        |jvm| {
            jvm.held("com.example.Tile", &[(1, &["static com.example.Registry.all -> com.example.Tile"])]);
            jvm.held(
                "java.lang.Object[]",
                &[(1, &[FORM, "field java.lang.invoke.LambdaForm.names -> java.lang.Object[]"])],
            );
        },
    );
    let report = report_of(&input);
    let leak = only_leak(&report);
    assert_eq!((leak.title.as_str(), leak.bytes_per_iteration), ("1 × com.example.Tile", 32.0));
}

/// Recorded with JDK 25: more objects of each class survive than grow, and one of the JDK's own arrays has the shortest
/// path.
#[test]
fn what_several_growing_classes_are_held_by_goes_before_what_holds_one() {
    let entry = [
        "static java.io.DeleteOnExitHook.files -> java.util.LinkedHashSet",
        "field java.util.LinkedHashSet.map -> java.util.LinkedHashMap",
        "field java.util.LinkedHashMap.tail -> java.util.LinkedHashMap$Entry",
    ];
    let text = [&entry[..], &["field java.util.LinkedHashMap$Entry.key -> java.lang.String"]].concat();
    let bytes = [&text[..], &["field java.lang.String.value -> byte[]"]].concat();
    let others = [
        "static sun.security.provider.NativePRNG.INSTANCE -> sun.security.provider.NativePRNG$RandomIO",
        "field sun.security.provider.NativePRNG$RandomIO.mixRandom -> sun.security.provider.SecureRandom",
        "field sun.security.provider.SecureRandom.remainder -> byte[]",
    ];
    let input = confirmed(
        |jvm, _| {
            jvm.add("java.lang.String", 1, 24);
            jvm.add("byte[]", 1, 48);
            jvm.add("java.util.LinkedHashMap$Entry", 1, 40);
        },
        |jvm| {
            jvm.held_some(24, "byte[]", &[(1, &others), (1, &bytes)]);
            jvm.held_some(15, "java.lang.String", &[(1, &text)]);
            jvm.held_some(5, "java.util.LinkedHashMap$Entry", &[(1, &entry)]);
        },
    );
    let report = report_of(&input);
    let leak = only_leak(&report);
    assert_eq!(leak.holder[0].owner, "java.io.DeleteOnExitHook", "{}", leak.title);
    assert_eq!(leak.bytes_per_iteration, 112.0);
}

/// Objects that Robolectric keeps are no leak, and neither are objects that the JDK holds in addition, whatever the
/// name of the thread.
#[test]
fn what_a_test_framework_keeps_is_no_leak_unless_something_leads_to_the_project() {
    let of_the_jdk: &[&str] = &[
        "thread Worker.main -> java.lang.Thread",
        "field java.lang.Thread.threadLocals -> sun.nio.fs.NativeBuffer",
        "field sun.nio.fs.NativeBuffer.owner -> sun.nio.fs.UnixPath",
    ];
    let of_the_project: &[&str] = &["static com.example.Registry.paths -> sun.nio.fs.UnixPath"];
    for class in ["org.robolectric.shadows.RefHolder", "org.testng.internal.AutoCloseableLock"] {
        let framework = format!("static {class}s.all -> {class}");
        for (way, verdict) in [(of_the_jdk, Verdict::Pass), (of_the_project, Verdict::Fail)] {
            let input = confirmed(
                |jvm, _| {
                    jvm.add(class, 59, 24);
                    jvm.add("sun.nio.fs.UnixPath", 1, 32);
                },
                |jvm| {
                    jvm.held(class, &[(59, &[&framework])]);
                    jvm.held("sun.nio.fs.UnixPath", &[(1, way)]);
                },
            );
            let report = report_of(&input);
            assert_eq!(evicts(&report).verdict, verdict, "{:#?}", evicts(&report).leaks);
        }
    }
}

/// Log4j 2.17 keeps its last 200 messages about itself. A slow test is confirmed before its queue is full.
#[test]
fn status_messages_of_log4j_are_no_leak_but_what_they_hold_of_the_project_is() {
    const QUEUE: &str = "org.apache.logging.log4j.status.StatusLogger$BoundedQueue";
    let status = "org.apache.logging.log4j.status.StatusData";
    for (holds, verdict) in [(status, Verdict::Pass), ("com.example.Tile", Verdict::Fail)] {
        let way = [
            format!("static org.apache.logging.log4j.core.jmx.Server.LOGGER -> {QUEUE}"),
            format!("field {QUEUE}.head -> {status}"),
            format!("field {status}.msg -> {holds}"),
        ];
        let way: Vec<&str> = way.iter().map(String::as_str).collect();
        let input = confirmed(|jvm, _| jvm.add(holds, 2, 48), |jvm| jvm.held(holds, &[(2, way.as_slice())]));
        let report = report_of(&input);
        assert_eq!(evicts(&report).verdict, verdict, "{:#?}", evicts(&report).leaks);
    }
}

/// A histogram of Dropwizard Metrics is full after 1,028 samples: a test that adds one is confirmed before.
#[test]
fn samples_of_a_reservoir_of_dropwizard_are_no_leak_but_more_reservoirs_are() {
    const RESERVOIR: &str = "com.codahale.metrics.ExponentiallyDecayingReservoir";
    const SAMPLE: &str = "com.codahale.metrics.WeightedSnapshot$WeightedSample";
    const NODE: &str = "java.util.concurrent.ConcurrentSkipListMap$Node";
    for (reservoirs, verdict) in [(0, Verdict::Pass), (1, Verdict::Fail)] {
        let histogram = "static com.example.Registry.sizes -> com.codahale.metrics.Histogram";
        let reservoir = format!("field com.codahale.metrics.Histogram.reservoir -> {RESERVOIR}");
        let values = format!("field {RESERVOIR}.values -> {NODE}");
        let sample = format!("field {NODE}.val -> {SAMPLE}");
        let input = confirmed(
            |jvm, _| {
                jvm.add(SAMPLE, 1, 32);
                jvm.add(NODE, 1, 24);
                jvm.add(RESERVOIR, reservoirs, 48);
            },
            |jvm| {
                jvm.held(RESERVOIR, &[(reservoirs, &[histogram, &reservoir])]);
                jvm.held(NODE, &[(1, &[histogram, &reservoir, &values])]);
                jvm.held(SAMPLE, &[(1, &[histogram, &reservoir, &values, &sample])]);
            },
        );
        let report = report_of(&input);
        assert_eq!(evicts(&report).verdict, verdict, "{:#?}", evicts(&report).leaks);
    }
}

/// A cache that keeps 2,048 entries is not full when a slow test is confirmed.
#[test]
fn what_fills_a_cache_with_a_limit_is_undecided_and_what_outgrows_it_is_a_leak() {
    const HIBERNATE: &str = "org.hibernate.internal.util.collections.BoundedConcurrentHashMap";
    const CAFFEINE: &str = "com.github.benmanes.caffeine.cache.";
    const NODE: &str = "java.util.concurrent.ConcurrentHashMap$Node";
    const TILE: &str = "com.example.Tile";
    let caffeine = |cache: &str, entry: &str| {
        let cache = format!("{CAFFEINE}{cache}");
        let map = format!("field {cache}.data -> java.util.concurrent.ConcurrentHashMap");
        let table = format!("field java.util.concurrent.ConcurrentHashMap.table -> {NODE}[]");
        let node = format!("array {NODE}[].[x] -> {NODE}");
        (cache, vec![map, table, node], format!("{CAFFEINE}{entry}"))
    };
    let hibernate = |entry: &str| {
        let segments = format!("field {HIBERNATE}.segments -> {HIBERNATE}$Segment[]");
        let segment = format!("array {HIBERNATE}$Segment[].[x] -> {HIBERNATE}$Segment");
        let table = format!("field {HIBERNATE}$Segment.table -> {HIBERNATE}$HashEntry[]");
        let entries = format!("array {HIBERNATE}$HashEntry[].[x] -> {HIBERNATE}${entry}");
        (HIBERNATE.to_owned(), vec![segments, segment, table, entries], format!("{HIBERNATE}${entry}"))
    };
    let lru_map = |class: &str| {
        let entry = "org.apache.commons.collections4.map.AbstractLinkedMap$LinkEntry".to_owned();
        let entries = format!("field {class}.data -> {entry}");
        (class.to_owned(), vec![entries], entry)
    };
    let verdict = |(cache, mut way, entry): (String, Vec<String>, String), caches, entries, beside: bool| {
        way.insert(0, format!("static com.example.App.cache -> {cache}"));
        if way.last().is_some_and(|last| last.ends_with(NODE)) {
            way.push(format!("field {NODE}.val -> {entry}"));
        }
        let to_entry: Vec<&str> = way.iter().map(String::as_str).collect();
        let value = format!("field {entry}.value -> java.util.ArrayList");
        let list = "field java.util.ArrayList.elementData -> java.lang.Object[]";
        let to_tile = [&to_entry[..], &[&value, list, "array java.lang.Object[].[x] -> com.example.Tile"]];
        let to_tile = to_tile.concat();
        let other = ["static com.example.App.last -> com.example.Tile"];
        let input = confirmed(
            |jvm, _| {
                jvm.add(&cache, caches, 48);
                for class in [&entry, NODE, "java.util.ArrayList", "java.lang.Object[]"] {
                    jvm.add(class, entries, 32);
                }
                jvm.add(TILE, 2, 40);
            },
            |jvm| {
                jvm.held(&entry, &[(1, &to_entry)]);
                for inside in [NODE, "java.util.ArrayList", "java.lang.Object[]"] {
                    jvm.held(inside, &[(1, &to_entry)]);
                }
                let ways: &[(u64, &[&str])] = &[(1, &to_tile), (1, if beside { &other } else { &to_tile })];
                jvm.held(TILE, ways);
            },
        );
        let report = report_of(&input);
        (evicts(&report).verdict, evicts(&report).reason.clone())
    };
    let (open, why) = verdict(hibernate("LIRSHashEntry"), 0, 1, false);
    assert_eq!(open, Verdict::Warn, "{why}");
    assert!(
        why.contains(&format!("{HIBERNATE} keeps a limited number of entries, and was still filling")),
        "{why}"
    );
    const LRU_MAP: &str = "org.apache.commons.collections4.map.LRUMap";
    for (what, cache, expected) in [
        ("LRUMap", lru_map(LRU_MAP), Verdict::Warn),
        ("a subclass may have no limit", lru_map("com.example.MyMap"), Verdict::Fail),
        ("maximumSize", caffeine("SSMS", "PSMS"), Verdict::Warn),
        ("maximumSize, expireAfterWrite", caffeine("SSMSW", "PSWMS"), Verdict::Warn),
        ("expireAfterWrite only", caffeine("SSW", "PSW"), Verdict::Fail),
        ("maximumWeight: some entries weigh nothing", caffeine("SSMW", "PSMW"), Verdict::Fail),
        ("Eviction.NONE", hibernate("HashEntry"), Verdict::Fail),
    ] {
        assert_eq!(verdict(cache, 0, 1, false).0, expected, "{what}");
    }
    for (what, caches, entries, beside) in [
        ("more and more caches", 1, 1, false),
        ("the list of one entry", 0, 0, false),
        ("another field holds some of them", 0, 1, true),
    ] {
        for cache in [hibernate("LIRSHashEntry"), lru_map(LRU_MAP), caffeine("SSMS", "PSMS")] {
            let (verdict, why) = verdict(cache, caches, entries, beside);
            assert_eq!(verdict, Verdict::Fail, "{what}: {why}");
        }
    }
}

/// Judges a test that puts an entry with a tile into an `LRUMap` in each execution, and leaves a `byte[]` of 1 MiB
/// without a known holder. The agent searched the holders of this many classes.
fn beside_a_filling_cache(class: &str, searched: usize, tiles: u64) -> Verdict {
    const LRU_MAP: &str = "org.apache.commons.collections4.map.LRUMap";
    const ENTRY: &str = "org.apache.commons.collections4.map.AbstractLinkedMap$LinkEntry";
    let cache = format!("static com.example.App.cache -> {LRU_MAP}");
    let (entries, value) =
        (format!("field {LRU_MAP}.data -> {ENTRY}"), format!("field {ENTRY}.value -> com.example.Tile"));
    let input = confirmed(
        |jvm, _| {
            jvm.add(ENTRY, 1, 32);
            jvm.add("com.example.Tile", tiles, 40);
            jvm.add(class, u64::from(!class.is_empty()), 1 << 20);
        },
        |jvm| {
            jvm.held(ENTRY, &[(1, &[&cache, &entries])]);
            jvm.held_some(tiles, "com.example.Tile", &[(1, &[&cache, &entries, &value])]);
            for n in 2..searched {
                jvm.held(&format!("com.example.Other{n}"), &[(1, &[&cache])]);
            }
        },
    );
    evicts(&report_of(&input)).verdict
}

#[test]
fn a_leak_beside_what_fills_a_cache_is_a_leak() {
    assert_eq!(beside_a_filling_cache("", 2, 1), Verdict::Warn);
    assert_eq!(
        beside_a_filling_cache("", 2, 2),
        Verdict::Fail,
        "the search finds one of two tiles in the cache"
    );
    assert_eq!(beside_a_filling_cache("byte[]", 2, 1), Verdict::Fail, "the agent searched whatever grew");
    assert_eq!(beside_a_filling_cache("byte[]", 24, 1), Verdict::Warn, "more classes grew than it searches");
    assert_eq!(beside_a_filling_cache("com.example.Page", 24, 1), Verdict::Fail, "a class of the project");
}

/// Each execution reads a JSON object with another field.
#[test]
fn field_names_that_jackson_keeps_are_undecided_and_more_mappers_are_a_leak() {
    for (keeper, mappers, verdict) in [
        ("sym.ByteQuadsCanonicalizer", 0, Verdict::Warn),
        ("sym.ByteQuadsCanonicalizer", 1, Verdict::Fail),
        ("util.InternCache", 0, Verdict::Warn),
        ("JsonFactory", 0, Verdict::Fail),
    ] {
        let keeper = format!("com.fasterxml.jackson.core.{keeper}");
        let root = format!("static com.example.App.symbols -> {keeper}");
        let table = format!("field {keeper}._names -> java.lang.String[]");
        let name = "array java.lang.String[].[x] -> java.lang.String";
        let characters = "field java.lang.String.value -> byte[]";
        let input = confirmed(
            |jvm, _| {
                jvm.add("java.lang.String", 1, 24);
                jvm.add("byte[]", 1, 24);
                jvm.add(&keeper, mappers, 80);
            },
            |jvm| {
                jvm.held("java.lang.String", &[(1, &[&root, &table, name])]);
                jvm.held("byte[]", &[(1, &[&root, &table, name, characters])]);
            },
        );
        let report = report_of(&input);
        assert_eq!(evicts(&report).verdict, verdict, "{keeper}: {}", evicts(&report).reason);
    }
}

/// Recorded with JUnit 4.12 and JDK 17: each `@Test(timeout = …)` leaves a thread group and its table of threads.
#[test]
fn groups_that_junit_makes_for_time_limits_are_its_own_and_no_others() {
    const JUNIT: (&str, &str, u64) = ("org.junit.internal.runners.statements.FailOnTimeout", "evaluate", 48);
    const OURS: (&str, &str, u64) = ("com.example.Workers", "start", 48);
    let verdict = |groups: u64, thread: u64, sites: &[(&str, &str, u64)]| {
        let input = confirmed(
            |jvm, i| {
                jvm.set("java.lang.ThreadGroup[]", 2, 32 + 4 * u64::from(i + 1).next_power_of_two());
                jvm.add("java.lang.ThreadGroup", groups, 48);
                jvm.add("java.lang.Thread[]", groups, 32);
                jvm.add("java.lang.Thread", thread, 120);
            },
            |jvm| {
                let parent = "virtual machine . -> java.lang.ThreadGroup";
                let groups_of = "field java.lang.ThreadGroup.groups -> java.lang.ThreadGroup[]";
                let group = [parent, groups_of, "array java.lang.ThreadGroup[].[x] -> java.lang.ThreadGroup"];
                jvm.held("java.lang.ThreadGroup", &[(groups, &group)]);
                jvm.sites("java.lang.ThreadGroup", sites);
                jvm.sites("java.lang.Thread[]", sites);
            },
        );
        let report = report_of(&input);
        (evicts(&report).verdict, evicts(&report).reason.clone())
    };
    let (passed, why) = verdict(1, 0, &[JUNIT]);
    assert_eq!(passed, Verdict::Pass);
    assert!(why.starts_with("java.lang.ThreadGroup, java.lang.Thread[]"), "{why}");
    assert!(
        why.ends_with("but are JUnit 4.12's own (`@Test(timeout = …)`), which JUnit 4.13 mends"),
        "{why}"
    );
    for (what, groups, thread, sites) in [
        ("the project makes one too", 2, 0, &[JUNIT, OURS][..]),
        ("the project makes all", 1, 0, &[OURS][..]),
        ("not all were seen", 2, 0, &[JUNIT][..]),
        ("a thread goes on", 1, 1, &[JUNIT][..]),
        ("nobody saw where", 1, 0, &[][..]),
    ] {
        assert_eq!(verdict(groups, thread, sites).0, Verdict::Fail, "{what}");
    }
}

/// ClassGraph makes the thread groups in threads of its own. The virtual machine samples only some of their
/// allocations.
#[test]
fn groups_of_threads_that_look_through_the_class_path_are_kotests_own_and_no_others() {
    const SCANS: (&str, &str, u64) =
        ("nonapi.io.github.classgraph.concurrency.SimpleThreadFactory", "newThread", 48);
    const OURS: (&str, &str, u64) = ("com.example.Workers", "start", 48);
    let judged = |framework: &str, sites: &[(&str, &str, u64)], leaks: bool| {
        let input = confirmed(
            |jvm, _| {
                jvm.set(framework, 1, 16);
                jvm.add("java.lang.ThreadGroup[]", 2, 32);
                jvm.add("java.lang.ThreadGroup", 8, 48);
                jvm.add("java.lang.Thread[]", 8, 32);
                if leaks {
                    jvm.add("com.example.Tile", 1, 16);
                }
            },
            |jvm| {
                let parent = "virtual machine . -> java.lang.ThreadGroup";
                let groups = "field java.lang.ThreadGroup.groups -> java.lang.ThreadGroup[]";
                let group = [parent, groups, "array java.lang.ThreadGroup[].[x] -> java.lang.ThreadGroup"];
                jvm.held("java.lang.ThreadGroup", &[(8, &group)]);
                jvm.sites("java.lang.ThreadGroup", sites);
                let start = ("nonapi.io.github.classgraph.concurrency.WorkQueue", "startWorkers", 32);
                let begins = ("io.github.classgraph.ClassGraph", "scanAsync", 32);
                jvm.sites("java.lang.Thread[]", &[start, begins]);
            },
        );
        let report = report_of(&input);
        (evicts(&report).verdict, evicts(&report).reason.clone(), evicts(&report).leaks.clone())
    };
    const KOTEST: &str = "io.kotest.core.spec.Spec";
    let (verdict, reason, _) = judged(KOTEST, &[SCANS], false);
    assert_eq!(verdict, Verdict::Pass, "{reason}");
    assert!(
        reason.contains("Kotest's own (it looks through the class path), which JDK 19 mends"),
        "{reason}"
    );
    let (verdict, reason, leaks) = judged(KOTEST, &[SCANS], true);
    let titles: Vec<&str> = leaks.iter().map(|leak| leak.title.as_str()).collect();
    assert_eq!((verdict, &titles[..]), (Verdict::Fail, &["1 × com.example.Tile"][..]), "{reason}");
    for (what, framework, sites) in [
        ("the project looks through the class path", "com.example.Tile", &[SCANS][..]),
        ("the project makes one too", KOTEST, &[SCANS, OURS][..]),
        ("nobody saw where", KOTEST, &[][..]),
    ] {
        assert_eq!(judged(framework, sites, false).0, Verdict::Fail, "{what}");
    }
}

/// `File.deleteOnExit`, recorded with JDK 25: which of the three classes had a holder, and where strings seemed to come
/// from, differed in each run.
#[test]
fn a_leak_that_the_jdk_holds_has_one_name_and_id_whatever_was_seen_of_it() {
    const TABLE: [&str; 3] = [
        "static java.io.DeleteOnExitHook.files -> java.util.LinkedHashSet",
        "field java.util.LinkedHashSet.map -> java.util.LinkedHashMap",
        "field java.util.LinkedHashMap.table[x] -> java.util.LinkedHashMap$Entry",
    ];
    const KEY: &str = "field java.util.LinkedHashMap$Entry.key -> java.lang.String";
    const VALUE: &str = "field java.lang.String.value -> byte[]";
    const NODE: &str = "java.util.LinkedHashMap$Entry";
    let leak = |held: [bool; 2], nodes: &[&str], strings: &str| {
        let input = confirmed(
            |jvm, _| {
                jvm.add(NODE, 3, 40);
                jvm.add("java.lang.String", 3, 24);
                jvm.add("byte[]", 3, 48);
            },
            |jvm| {
                let [root, map, table] = TABLE;
                jvm.held(NODE, &[(3, &TABLE)]);
                if held[0] {
                    jvm.held("java.lang.String", &[(3, &[root, map, table, KEY])]);
                }
                if held[1] {
                    jvm.held("byte[]", &[(3, &[root, map, table, KEY, VALUE])]);
                }
                let made: Vec<_> = nodes.iter().map(|method| ("com.example.Files", *method, 40)).collect();
                jvm.sites(NODE, &made);
                jvm.sites(
                    "java.lang.String",
                    &[("org.junit.MethodSorter", "sort", 4096), ("com.example.Names", strings, 24)],
                );
            },
        );
        let report = report_of(&input);
        let leak = only_leak(&report);
        assert_eq!(leak.title, "3 × java.lang.String", "{held:?}");
        assert_eq!(leak.holder[0].owner, "java.io.DeleteOnExitHook", "{held:?}");
        let call = leak.frames[0].function.clone().unwrap_or_default();
        (leak.id.clone(), call)
    };
    let (id, call) = leak([true, true], &["marks"; 3], "a");
    assert_eq!(call, "com.example.Files.marks");
    for held in [[true, false], [false, true], [false, false]] {
        assert_eq!(leak(held, &["marks"; 3], "b"), (id.clone(), call.clone()), "{held:?}");
    }
    let (other, call) = leak([true, true], &["keeps"; 3], "a");
    assert_eq!(call, "com.example.Files.keeps");
    assert_ne!(other, id, "another call, another leak");
    let several = leak([true, true], &["marks", "keeps", "keeps"], "a").0;
    assert_eq!(leak([true, true], &["keeps", "marks", "marks"], "b").0, several, "the same calls");
    let unsure = leak([true, true], &["marks"; 4], "a").0;
    assert_eq!(leak([true, true], &["keeps"; 2], "b").0, unsure, "no call is certain");
    assert_eq!(std::collections::BTreeSet::from([id, other, several, unsure]).len(), 4);
}

/// Regression test: the report showed the place of the class that comes first in the alphabet.
#[test]
fn a_leak_that_the_jdk_holds_shows_where_its_own_class_was_allocated() {
    let input = confirmed(
        |jvm, _| {
            jvm.add("com.example.Job", 1, 24);
            jvm.add("com.example.Envelope", 1, 16);
        },
        |jvm| {
            let list = "static java.util.Registry.jobs -> com.example.Job";
            jvm.held("com.example.Job", &[(1, &[list])]);
            let envelope = "field com.example.Job.envelope -> com.example.Envelope";
            jvm.held("com.example.Envelope", &[(1, &[list, envelope])]);
            jvm.sites("com.example.Job", &[("com.example.Desk", "makes", 24)]);
            jvm.sites("com.example.Envelope", &[("com.example.Mail", "wraps", 16)]);
        },
    );
    let report = report_of(&input);
    let leak = only_leak(&report);
    assert_eq!(leak.title, "1 × com.example.Job");
    assert_eq!(leak.frames[0].function.as_deref(), Some("com.example.Desk.makes"));
}

/// Regression test: a bean's list leaked numbers, and the report showed where the container had made others.
#[test]
fn a_stack_through_the_project_with_as_many_samples_goes_before_one_through_a_librarys_class_on_the_path() {
    let shown = |tests: &[(&str, &str, u64)]| {
        let input = confirmed(
            |jvm, _| jvm.add("int[]", tests.len() as u64, 56),
            |jvm| {
                let bean = [
                    "static org.springframework.Contexts.cache -> org.springframework.Beans",
                    "field org.springframework.Beans.bean -> com.example.Service",
                    "field com.example.Service.kept -> java.util.ArrayList",
                    "field java.util.ArrayList.elementData -> java.lang.Object[]",
                    "array java.lang.Object[].[x] -> int[]",
                ];
                jvm.held("int[]", &[(tests.len() as u64, &bean)]);
                let beans = [("org.springframework.Beans", "describes", 4096)];
                jvm.sites("int[]", &[&beans, tests].concat());
            },
        );
        let report = report_of(&input);
        let leak = only_leak(&report);
        leak.frames[0].function.clone().unwrap_or_default()
    };
    let test = ("com.example.TilesTest", "evicts", 56);
    assert_eq!(shown(&[test]), "com.example.TilesTest.evicts");
    let other = ("com.example.Setup", "begins", 56);
    assert_eq!(shown(&[test, other]), "org.springframework.Beans.describes", "each has fewer samples");
}

/// Regression test: of the arrays that a new Spring context left, 256 were searched, and none of them was held.
#[test]
fn an_array_more_each_time_leaks_though_nothing_holds_those_of_many_that_were_searched() {
    let judged = |class: &str, added: u64, instances: u64| {
        let input =
            confirmed(|jvm, _| jvm.add(class, added, 1040), |jvm| jvm.held_some(instances, class, &[]));
        evicts(&report_of(&input)).verdict
    };
    assert_eq!(judged("byte[]", 1, 900), Verdict::Fail);
    assert_eq!(judged("byte[]", 1, 9), Verdict::Pass, "all of them were searched");
    assert_eq!(judged("byte[]", 300, 300), Verdict::Pass, "most of what grows was searched");
    assert_eq!(judged("com.example.Tile", 1, 900), Verdict::Pass, "no string or array");
}

#[test]
fn a_thread_that_leaks_is_named() {
    let input = confirmed(|jvm, i| jvm.threads.push(format!("pool-{i}-thread-1")), |_| ());
    let report = report_of(&input);
    assert_eq!(evicts(&report).leaks[0].title, "1 × thread pool-…-thread-…");
}

/// A running thread has one object: who accepts the objects of its threads accepts the threads.
#[test]
fn a_waiver_of_the_objects_of_threads_covers_as_many_threads_of_that_name() {
    let judged = |threads: u64, of_worker: &[&str], waived: &'static str| {
        let input = confirmed(
            |jvm, i| {
                jvm.add("com.example.Worker", 1, 120);
                (0..threads).for_each(|_| jvm.threads.push(format!("worker-{i}")));
            },
            |jvm| jvm.held("com.example.Worker", &[(1, of_worker)]),
        );
        let report = report(&input, &waiving([of_objects(waived)]));
        let test = evicts(&report);
        let titles = test.leaks.iter().filter(|leak| leak.waiver.is_none()).map(|leak| leak.title.clone());
        (test.verdict, titles.collect::<Vec<_>>())
    };
    let own: &[&str] = &["thread worker-7. -> com.example.Worker"];
    let task: &[&str] =
        &["thread worker-7. -> java.lang.Thread", "field java.lang.Thread.target -> com.example.Worker"];
    let (worker, thread) = ("1 × com.example.Worker", "1 × thread worker-…");
    for of_worker in [own, task] {
        assert_eq!(judged(1, of_worker, "com.example.Worker"), (Verdict::Pass, Vec::new()));
    }
    let more = vec!["2 × thread worker-…".to_owned()];
    assert_eq!(judged(2, own, "com.example.Worker"), (Verdict::Fail, more), "threads of another class");
    let pool: &[&str] =
        &["thread worker-7. -> com.example.Pool", "field com.example.Pool.items -> com.example.Worker"];
    for (of_worker, why) in [
        (&["thread pump. -> com.example.Worker"][..], "other threads"),
        (&["static com.example.Registry.worker -> com.example.Worker"], "perhaps no thread at all"),
        (pool, "one thread may hold many"),
    ] {
        let left = vec![thread.to_owned()];
        assert_eq!(judged(1, of_worker, "com.example.Worker"), (Verdict::Fail, left), "{why}");
    }
    let all = vec![worker.to_owned(), thread.to_owned()];
    assert_eq!(judged(1, own, "com.example.Tile"), (Verdict::Fail, all), "no waiver");
}

/// Regression test: a thread whose task holds an object of the project needed two waivers.
#[test]
fn a_waiver_of_what_the_task_of_a_thread_holds_covers_the_thread() {
    let judged = |threads: u64, tasks: u64| {
        let input = confirmed(
            |jvm, i| {
                jvm.add("com.example.Tile", 1, 72);
                jvm.add("com.example.Loader$$Lambda", tasks, 24);
                jvm.add("java.lang.Thread", threads, 120);
                (0..threads).for_each(|_| jvm.threads.push(format!("worker-{i}")));
            },
            |jvm| {
                let thread = "thread worker-7. -> java.lang.Thread";
                let task = "field java.lang.Thread.target -> com.example.Loader$$Lambda";
                let captured = "field com.example.Loader$$Lambda.arg$1 -> com.example.Tile";
                jvm.held("com.example.Tile", &[(1, &[thread, task, captured])]);
                jvm.held("com.example.Loader$$Lambda", &[(tasks, &[thread, task])]);
                jvm.held("java.lang.Thread", &[(threads, &[thread])]);
            },
        );
        let report = report(&input, &waiving([of_objects("com.example.Tile")]));
        let test = evicts(&report);
        let titles = test.leaks.iter().filter(|leak| leak.waiver.is_none()).map(|leak| leak.title.clone());
        (test.verdict, titles.collect::<Vec<_>>())
    };
    assert_eq!(judged(1, 1), (Verdict::Pass, Vec::new()));
    assert_eq!(judged(2, 1), (Verdict::Pass, Vec::new()), "two threads share a task");
    assert_eq!(judged(2, 2).0, Verdict::Fail, "the other thread holds nothing that is waived");
}

/// Regression test: a thread that stays had no place in the report.
#[test]
fn a_leaked_thread_has_the_stack_that_made_it_if_all_threads_of_its_name_come_from_there() {
    let places = |threads: u64| {
        let input = confirmed(
            |jvm, i| {
                jvm.add("com.example.Tile", 1, 72);
                jvm.add("java.lang.Thread", 1, 120);
                (0..threads).for_each(|_| jvm.threads.push(format!("worker-{i}")));
            },
            |jvm| {
                let thread = "thread worker-7. -> java.lang.Thread";
                let local = "field java.lang.Thread.threadLocals -> com.example.Tile";
                jvm.held("com.example.Tile", &[(1, &[thread, local])]);
                jvm.held("java.lang.Thread", &[(1, &[thread])]);
                jvm.sites("com.example.Tile", &[("com.example.Worker", "run", 216)]);
                jvm.sites("java.lang.Thread", &[("com.example.Loader", "start", 120)]);
            },
        );
        let report = report_of(&input);
        let leaks = evicts(&report).leaks.iter().filter(|leak| leak.kind == memgate_model::LeakKind::Os);
        let place = |leak: &memgate_model::Leak| leak.frames.first().and_then(|frame| frame.function.clone());
        leaks.map(|leak| (leak.title.clone(), place(leak))).collect::<Vec<_>>()
    };
    let started = Some("com.example.Loader.start".to_owned());
    assert_eq!(places(1), [("1 × thread worker-…".to_owned(), started)]);
    assert_eq!(
        places(2),
        [("2 × thread worker-…".to_owned(), None)],
        "the other one may come from elsewhere"
    );
}

/// Kotlin's `Dispatchers.IO` starts a thread whenever all others are busy. Each has objects of its own.
#[test]
fn threads_of_a_pool_that_is_filling_are_inconclusive_and_a_leak_beside_them_fails() {
    const WORKER: &str = "kotlinx.coroutines.scheduling.CoroutineScheduler$Worker";
    const POOL: &str = "DefaultDispatcher-worker";
    let run = |pool: &str, every: u32, leaks: bool| {
        let input = confirmed(
            |jvm, i| {
                if i % every == 0 {
                    jvm.threads.push(format!("{pool}-{i}"));
                    jvm.add(WORKER, 1, 424);
                }
                if leaks {
                    jvm.tiles(1);
                }
            },
            |jvm| {
                if leaks {
                    jvm.tiles_held("cache", 1);
                }
            },
        );
        let report = report_of(&input);
        let test = evicts(&report);
        let titles: Vec<String> = test.leaks.iter().map(|leak| leak.title.clone()).collect();
        (test.verdict, test.reason.clone(), titles)
    };
    let (verdict, reason, leaks) = run(POOL, 3, false);
    assert_eq!((verdict, leaks.len()), (Verdict::Warn, 0), "{reason}");
    let pool = "Java threads started in 6 of 21 iterations, as in a pool that is filling";
    assert!(reason.contains(&format!("inconclusive: 6 {pool}")), "{reason}");
    let (verdict, reason, leaks) = run(POOL, 3, true);
    assert_eq!((verdict, &leaks[..]), (Verdict::Fail, &["1 × com.example.Tile".to_owned()][..]), "{reason}");
    assert!(!reason.contains("0.3 Java threads"), "{reason}");
    let (verdict, reason, leaks) = run(POOL, 1, false);
    assert_eq!((verdict, leaks.len()), (Verdict::Fail, 2), "{reason}");
    let (verdict, reason, _) = run("Timer", 3, false);
    assert_eq!(verdict, Verdict::Fail, "a thread of no known pool: {reason}");
}

/// A Kotlin channel keeps its elements in segments of 32.
#[test]
fn what_each_iteration_leaves_in_segments_of_a_queue_names_the_leak() {
    let input = confirmed(
        |jvm, i| {
            jvm.add("byte[]", 1, 120);
            jvm.add("kotlinx.coroutines.channels.ChannelSegment", u64::from(i % 8 == 0), 40);
        },
        |jvm| {
            let channel = [
                "static com.example.Pages.channel -> kotlinx.coroutines.channels.BufferedChannel",
                "field kotlinx.coroutines.channels.BufferedChannel.sendSegment -> kotlinx.coroutines.channels.ChannelSegment",
                "field kotlinx.coroutines.channels.ChannelSegment.data -> java.lang.Object[]",
                "array java.lang.Object[].[x] -> byte[]",
            ];
            jvm.held("byte[]", &[(1, &channel)]);
        },
    );
    let report = report_of(&input);
    let leak = only_leak(&report);
    assert_eq!(leak.title, "1 × byte[]");
    assert_eq!(leak.holder[0].owner, "com.example.Pages");
}
