use memgate_wire::Frame;
use memgate_wire::java::JvmInfo;

use super::*;
use crate::java::dsl::Jvm;

type Body = Box<dyn Fn(&mut Jvm, u32)>;

/// Six rounds of three classes. `body` is the second class.
fn suspects(body: &Body) -> Vec<(String, Vec<String>, String)> {
    let mut jvm = Jvm::new();
    for round in 0..6 {
        jvm.window("FirstTest", "", round, |jvm| jvm.set("byte[]", 100, 9000 + 10 * u64::from(round % 2)));
        jvm.window("SecondTest", "", round, |jvm| body(jvm, round));
        jvm.window("ThirdTest", "", round, |_| ());
    }
    let found = screen_rounds(&jvm.end(), "loaders", &GatePolicy::default()).expect("six rounds");
    found.into_iter().map(|s| (s.suite, s.classes, s.why)).collect()
}

/// Rounds over the tests of a class, ordered as the harness does: how often each test was measured, and which tests
/// grow.
fn rounds_of_tests(
    policy: &GatePolicy,
    tests: &[&str],
    body: impl Fn(&mut Jvm, &str, u32),
) -> (Vec<u32>, Vec<String>) {
    let (measured, narrowed) = narrowed(policy, tests, body);
    (measured, narrowed.growing)
}

fn narrowed(
    policy: &GatePolicy,
    tests: &[&str],
    body: impl Fn(&mut Jvm, &str, u32),
) -> (Vec<u32>, NarrowedTests) {
    let (mut jvm, mut observer) = (Jvm::new(), crate::observer::Observer::new());
    let mut watch = RoundsWatch::new(policy, "loaders", Unit::Test);
    let (mut done, mut measured) = (BTreeSet::new(), vec![0; tests.len()]);
    'rounds: for round in 0..ROUNDS_OF_LITERALS {
        for (at, test) in tests.iter().enumerate() {
            let id = format!("PageTest.{test}");
            if round < WARM_UP || done.contains(&id) {
                jvm.unmeasured("PageTest", test, round, |jvm| body(jvm, test, round));
            } else {
                jvm.window("PageTest", test, round, |jvm| body(jvm, test, round));
                measured[at] += 1;
            }
            jvm.pass_to(&mut observer);
            watch.observe(observer.record());
            if watch.is_done("PageTest", test) {
                done.insert(id);
            }
            if watch.is_over(&done) {
                break 'rounds;
            }
        }
    }
    (measured, growing_tests(&observer.into_record(), "loaders", policy).expect("enough rounds"))
}

#[test]
fn rounds_over_tests_tell_which_of_them_grow() {
    let body = |jvm: &mut Jvm, test: &str, round: u32| match test {
        "keeps" => jvm.add("com.example.Tile", 2, 24),
        "warms" => jvm.add("com.example.Tile", u64::from(round < 3), 24),
        "toggles" => jvm.set("byte[]", 100, 9000 + 10 * u64::from(round % 2)),
        _ => {}
    };
    let tests = ["first", "opens", "keeps", "warms", "toggles"];
    let (measured, growing) = rounds_of_tests(&GatePolicy::default(), &tests, body);
    assert_eq!(growing, ["PageTest.keeps"]);
    assert_eq!(measured, [2, 1, 4, 2, 4], "before the first nothing was counted");
    let limit = |metric| crate::policy::Limit::fail(metric, 1e6, "memgate.yaml:7");
    let defaults = [Metric::JavaLiveObjects, Metric::JavaLiveBytes].map(limit).into();
    let generous = GatePolicy { defaults, ..GatePolicy::default() };
    assert_eq!(rounds_of_tests(&generous, &tests, body).1, ["PageTest.keeps"], "whatever it is allowed");
}

/// All tests rest at once. Changes of a test that is no longer measured do not make a resting test suspect.
#[test]
fn rounds_over_tests_of_which_none_grows_are_over_soon() {
    let policy = GatePolicy::default();
    assert_eq!(rounds_of_tests(&policy, &["first", "opens"], |_, _, _| ()), (vec![3, 1], Vec::new()));
    let late = |jvm: &mut Jvm, test: &str, round: u32| {
        if test == "opens" && round >= 3 {
            jvm.add("com.example.Tile", 2, 24);
        }
        if test == "keeps" {
            jvm.add("com.example.Page", 2, 24);
        }
    };
    let (_, growing) = rounds_of_tests(&policy, &["first", "opens", "closes", "keeps"], late);
    assert_eq!(growing, ["PageTest.keeps"]);
}

/// Regression test: a test kept a mock, and its window freed a mock of the test before. It passed as clean.
#[test]
fn a_test_that_may_free_as_much_as_it_keeps_is_doubtful() {
    // The next one, "keeps", frees that of this one and keeps its own: nothing seems to change.
    let body = |jvm: &mut Jvm, test: &str, round: u32| match test {
        "passes" => jvm.add("com.example.Mock", 1, 24),
        "toggles" => jvm.set("byte[]", 100, 9000 + 10 * u64::from(round % 2)),
        _ => {}
    };
    let tests = ["first", "passes", "keeps", "toggles", "rests"];
    let (_, NarrowedTests { growing, doubtful }) = narrowed(&GatePolicy::default(), &tests, body);
    assert_eq!(growing, ["PageTest.passes"]);
    assert_eq!(doubtful, ["PageTest.keeps", "PageTest.toggles"]);
    let (_, last) = narrowed(&GatePolicy::default(), &["keeps", "rests", "passes"], body);
    assert_eq!(last.doubtful, ["PageTest.keeps"], "it follows the last one of the round before");
}

#[test]
fn only_what_grows_in_each_of_the_last_three_rounds_is_suspect() {
    let cases: Vec<(&str, Body, Option<&str>)> = vec![
        ("nothing", Box::new(|_, _| ()), None),
        ("every round", Box::new(|jvm, _| jvm.add("com.example.Tile", 2, 24)), Some("2 × com.example.Tile")),
        (
            "the first three rounds",
            Box::new(|jvm, r| {
                if r < 3 {
                    jvm.add("com.example.Tile", 2, 24)
                }
            }),
            None,
        ),
        (
            "every other round",
            Box::new(|jvm, r| {
                if r % 2 == 0 {
                    jvm.add("com.example.Tile", 2, 24)
                }
            }),
            None,
        ),
        (
            "the last three rounds",
            Box::new(|jvm, r| {
                if r >= 3 {
                    jvm.add("com.example.Tile", u64::from(r), 24)
                }
            }),
            Some("3 × com.example.Tile"),
        ),
        (
            "an array that doubles in every round",
            Box::new(|jvm, r| jvm.set("int[]", 1, 64 << r)),
            Some("256 B more of int[]"),
        ),
        ("a thread", Box::new(|jvm, r| jvm.threads.push(format!("w{r}"))), Some("1 Java thread")),
        ("direct buffers", Box::new(|jvm, _| jvm.direct_bytes += 4096), Some("4.0 KiB of direct buffers")),
        ("global references, without a limit", Box::new(|jvm, _| jvm.jni_globals += 1), None),
        (
            "another lambda in every round",
            Box::new(|jvm, r| jvm.add(&format!("A$$Lambda${r}/0x0{r}"), 1, 16)),
            Some("1 × A$$Lambda"),
        ),
    ];
    for (what, body, why) in cases {
        let found = suspects(&body);
        let whys: Vec<_> = found.iter().map(|(suite, _, why)| (suite.as_str(), why.as_str())).collect();
        assert_eq!(whys, why.map(|why| ("SecondTest", why)).into_iter().collect::<Vec<_>>(), "{what}");
    }
}

#[test]
fn a_test_that_fails_in_the_warm_up_is_left_out_and_its_class_is_compared() {
    let mut jvm = Jvm::new();
    for round in 0..8 {
        jvm.window("LeakTest", "", round, |jvm| {
            jvm.tiles(3);
            jvm.outcome = if round == 1 { Outcome::Failed } else { Outcome::Passed };
        });
        if round == 1 {
            jvm.window("LeakTest", "once()[2]", round, |jvm| jvm.outcome = Outcome::Failed);
        }
    }
    let record = jvm.end();
    assert_eq!(screen_rounds(&record, "loaders", &GatePolicy::default()).map(|s| s.len()), Ok(1));
    assert_eq!(failing(&record), BTreeSet::new());
    assert_eq!(left_out(&record), BTreeSet::from([("LeakTest".to_owned(), "once".to_owned())]));
}

#[test]
fn the_name_of_a_test_has_no_number_and_no_parameter() {
    for (test, base) in [
        ("scroll(int)[2]", "scroll(int)"),
        ("shrinks()[1][3]", "shrinks"),
        ("[plain]/decodes[plain]", "decodes"),
        ("[1]/leaks", "leaks"),
        ("[plain]", ""),
        ("tiles/keeps", "tiles/keeps"),
        ("many()/0", "many"),
        ("parses (fast)/1", "parses (fast)/1"),
    ] {
        assert_eq!(base_of(test), base, "{test}");
    }
}

#[test]
fn what_the_rest_of_the_round_gives_back_is_no_growth() {
    let mut jvm = Jvm::new();
    for round in 0..6 {
        jvm.window("FillTest", "", round, |jvm| jvm.add("com.example.Tile", 7, 24));
        jvm.window("EmptyTest", "", round, |jvm| jvm.remove("com.example.Tile", 7, 24));
    }
    assert_eq!(screen_rounds(&jvm.end(), "loaders", &GatePolicy::default()), Ok(Vec::new()));
}

/// As in the harness, test classes that are known to be no suspects do not run again.
#[test]
fn later_rounds_are_of_suspects_alone() {
    let policy = GatePolicy::default();
    let mut jvm = Jvm::new();
    let mut observer = crate::observer::Observer::new();
    let mut watch = RoundsWatch::new(&policy, "loaders", Unit::Class);
    let mut left = vec!["FirstTest", "LeakTest", "StillTest", "FillTest", "EmptyTest"];
    let mut ran = Vec::new();
    for round in 0..8 {
        ran.push(left.len());
        left.retain(|class| {
            jvm.window(class, "", round, |jvm| match *class {
                // Its arrays are freed in the next window of any class.
                "FirstTest" => jvm.set("byte[]", 500, 50_000),
                "LeakTest" => {
                    jvm.set("byte[]", 100, 10_000);
                    jvm.tiles(3);
                }
                "StillTest" => (),
                "FillTest" => jvm.add("com.example.Page", 7, 24),
                _ => jvm.remove("com.example.Page", 7, 24),
            });
            jvm.pass_to(&mut observer);
            watch.observe(observer.record());
            !watch.is_done(class, "")
        });
    }
    assert_eq!(ran, [5, 5, 5, 5, 5, 2, 2, 2], "the last two: the suspect, and what runs behind it");
    let found = watch.suspects(observer.record()).expect("eight rounds");
    assert_eq!(found.len(), 1);
    assert!(found[0].why.contains("3 × com.example.Tile"), "{}", found[0].why);
    assert_eq!(Ok(found), screen_rounds(&observer.into_record(), "loaders", &policy), "read again");
}

/// Objects that the warm-up left are freed late. After that, the leaking class has run only once.
#[test]
fn what_goes_once_within_a_round_hides_no_leak() {
    let policy = GatePolicy::default();
    let mut jvm = Jvm::new();
    let mut observer = crate::observer::Observer::new();
    let mut watch = RoundsWatch::new(&policy, "kit", Unit::Class);
    let mut left = vec!["LeakTest", "CleanTest"];
    let mut ran = Vec::new();
    let names = ["java.lang.String", "byte[]", "java.util.HashMap$Node"];
    names.iter().for_each(|name| jvm.add(name, 20, 32));
    for round in 0..8 {
        ran.push(left.len());
        left.retain(|class| {
            jvm.window(class, "", round, |jvm| {
                for name in names {
                    match (*class, round) {
                        ("LeakTest", _) => jvm.add(name, 1, 32),
                        (_, 2) => jvm.remove(name, 2, 32),
                        _ => {}
                    }
                }
                if *class == "LeakTest" {
                    jvm.threads.push(format!("worker-{round}"));
                } else if round == 2 {
                    jvm.threads.drain(1..3);
                }
            });
            jvm.pass_to(&mut observer);
            watch.observe(observer.record());
            !watch.is_done(class, "")
        });
    }
    assert_eq!(ran, [2, 2, 2, 2, 1, 1, 1, 1], "CleanTest changed nothing in the fourth round");
    let found = watch.suspects(observer.record()).expect("eight rounds");
    let whys: Vec<_> = found.iter().map(|s| (s.suite.as_str(), s.why.as_str())).collect();
    let why = "1 × byte[], 1 × java.lang.String, 1 × java.util.HashMap$Node, 1 Java thread";
    assert_eq!(whys, [("LeakTest", why)]);
}

/// Rounds of a class until it is done, and its suspicion.
fn rounds_of(body: impl Fn(&mut Jvm, u32)) -> (u32, Option<String>) {
    let mut jvm = Jvm::new();
    let mut observer = crate::observer::Observer::new();
    let mut watch = RoundsWatch::new(&GatePolicy::default(), "kit", Unit::Class);
    jvm.add("com.example.Late", 20, 32);
    jvm.add("com.example.Tile", 20, 24);
    let last = (0..ROUNDS_OF_LITERALS).find(|&round| {
        jvm.window("PoolTest", "", round, |jvm| body(jvm, round));
        jvm.pass_to(&mut observer);
        watch.observe(observer.record());
        watch.is_done("PoolTest", "")
    });
    let suspects = watch.suspects(observer.record()).expect("all rounds");
    (last.map_or(ROUNDS_OF_LITERALS, |last| last + 1), suspects.into_iter().next().map(|s| s.why))
}

/// An object of the same class, or a thread of an earlier test, is freed late: in that round their number does not
/// grow.
#[test]
fn what_another_test_gives_back_late_hides_no_leak() {
    for hidden in 3..8 {
        let objects = rounds_of(|jvm, round| match round == hidden {
            true => jvm.remove("com.example.Late", 1, 32),
            false => jvm.add("com.example.Tile", 1, 24),
        });
        assert_eq!(objects, (8, Some("1 × com.example.Tile".to_owned())), "round {hidden}");
        if hidden == 3 {
            continue;
        }
        let threads = rounds_of(|jvm, round| {
            if round != hidden {
                jvm.threads.push(format!("worker-{round}"));
            }
        });
        assert_eq!(threads, (8, Some("1 Java thread".to_owned())), "round {hidden}, as soon as of objects");
    }
    let now_and_then = rounds_of(|jvm, round| match round % 2 {
        0 => jvm.remove("com.example.Late", 1, 32),
        _ => jvm.add("com.example.Tile", 1, 24),
    });
    assert_eq!(now_and_then, (7, None));
}

/// Rounds of a class that leaves some strings in each round until one leaves none, and its suspicion.
fn rounds_of_strings(each: u64, until: u32, other: bool, round_ms: u64) -> (u32, Option<String>) {
    let policy = GatePolicy::default();
    let mut jvm = Jvm::new();
    let mut observer = crate::observer::Observer::new();
    let mut watch = RoundsWatch::new(&policy, "loaders", Unit::Class);
    let rounds = (0..ROUNDS_OF_LITERALS).find(|&round| {
        jvm.window("EmptyTest", "", round, |jvm| {
            jvm.wait(round_ms);
            if round < until {
                jvm.add("java.lang.String", each, 24);
                jvm.add("byte[]", each, 40);
                jvm.add("com.example.Tile", u64::from(other), 24);
            }
        });
        jvm.pass_to(&mut observer);
        watch.observe(observer.record());
        watch.is_done("EmptyTest", "")
    });
    let suspects = watch.suspects(observer.record()).expect("all rounds");
    (rounds.map_or(ROUNDS_OF_LITERALS, |last| last + 1), suspects.into_iter().next().map(|s| s.why))
}

#[test]
fn two_rounds_warm_up() {
    let mut jvm = Jvm::new();
    let mut observer = crate::observer::Observer::new();
    let mut watch = RoundsWatch::new(&GatePolicy::default(), "loaders", Unit::Class);
    for round in 0..3 {
        assert!(!watch.is_warm(), "before round {round}");
        jvm.window("EmptyTest", "", round, |_| ());
        jvm.pass_to(&mut observer);
        watch.observe(observer.record());
    }
    assert!(watch.is_warm());
}

#[test]
fn a_few_strings_have_to_grow_for_longer() {
    let why = |count| Some(format!("{count} × byte[], {count} × java.lang.String"));
    assert_eq!(rounds_of_strings(2, 20, false, 10), (21, None), "the compiler came late");
    assert_eq!(rounds_of_strings(2, 99, false, 10), (40, why(2)), "a cache of strings");
    assert_eq!(rounds_of_strings(13, 99, false, 10), (8, why(13)), "too many");
    let (rounds, said) = rounds_of_strings(2, 99, true, 10);
    assert_eq!((rounds, said.is_some()), (8, true), "another class, too");
    assert_eq!(rounds_of_strings(2, 99, false, 700), (10, why(2)), "slow tests");
}

/// Regression test: after 24 rounds of five arrays each, the virtual machine freed twenty of its own, and the leak was
/// missed.
#[test]
fn what_the_machine_gives_back_once_hides_no_leak_of_arrays() {
    let found = |falls: &[u32], in_test: &str| {
        let mut jvm = Jvm::new();
        for round in 0..ROUNDS_OF_LITERALS {
            for test in ["BuffersTest", "OtherTest"] {
                jvm.window(test, "", round, |jvm| {
                    if test == "BuffersTest" {
                        jvm.add("byte[]", 5, 720);
                    }
                    if test == in_test && falls.contains(&round) {
                        jvm.remove("byte[]", 24, 205);
                    }
                });
            }
        }
        screen_rounds(&jvm.end(), "loaders", &GatePolicy::default()).map(|suspects| suspects.len())
    };
    for test in ["BuffersTest", "OtherTest"] {
        assert_eq!(found(&[], test), Ok(1));
        assert_eq!(found(&[28], test), Ok(1), "in {test}");
        assert_eq!(found(&[20, 28], test), Ok(0), "what comes and goes is no leak");
        assert_eq!(found(&[5], test), Ok(0), "nor what goes before it is known for one");
    }
}

/// 100 objects with finalizers are freed in the next window. Two more stay, which may come from either window.
#[test]
fn a_leak_in_whose_window_something_of_the_one_before_goes_is_suspect() {
    let suspects = |leaks: [u64; 2]| {
        let mut jvm = Jvm::new();
        for round in 0..ROUNDS_OF_SUSPECTS {
            jvm.window("com.example.FinalizedTest", "", round, |jvm| {
                jvm.add("com.example.Tile", 100 + leaks[0], 24)
            });
            jvm.window("com.example.TilesTest", "", round, |jvm| {
                jvm.add("com.example.Tile", leaks[1], 24);
                jvm.remove("com.example.Tile", 100, 24);
            });
            jvm.window("com.example.OtherTest", "", round, |jvm| jvm.add("com.example.Tile", 1, 24));
            jvm.window("com.example.LastTest", "", round, |jvm| jvm.remove("com.example.Tile", 1, 24));
        }
        let suspects = screen_rounds(&jvm.end(), "loaders", &GatePolicy::default()).unwrap();
        let told = |s: JavaSuspect| (s.suite.clone(), s.why.clone(), s.keeps_classes_of_project());
        suspects.into_iter().map(told).collect::<Vec<_>>()
    };
    let suspect =
        |suite: &str, count: u32, own: bool| (suite.to_owned(), format!("{count} × com.example.Tile"), own);
    let behind = suspect("com.example.OtherTest", 1, true);
    assert_eq!(suspects([0, 0]), []);
    let first = suspect("com.example.FinalizedTest", 100, true);
    assert_eq!(suspects([0, 2]), [first, suspect("com.example.TilesTest", 2, false), behind.clone()]);
    let first = suspect("com.example.FinalizedTest", 102, true);
    assert_eq!(
        suspects([2, 0]),
        [first, suspect("com.example.TilesTest", 2, false), behind],
        "or it was of the first"
    );
}

/// An object of one test is freed in the next test, which keeps another: each round adds nothing there.
#[test]
fn what_runs_behind_a_suspect_is_suspect_if_that_one_does_not_grow_alone() {
    let mut jvm = Jvm::new();
    let mut observer = crate::observer::Observer::new();
    let mut watch = RoundsWatch::new(&GatePolicy::default(), "kit", Unit::Class);
    let mut done = BTreeMap::<&str, u32>::new();
    for round in 0..ROUNDS_OF_SUSPECTS {
        for class in ["com.example.PassesTest", "com.example.KeepsTest", "com.example.OtherTest"] {
            if done.contains_key(class) {
                continue;
            }
            jvm.window(class, "", round, |jvm| {
                if class == "com.example.PassesTest" {
                    jvm.add("com.example.Tile", 1, 24);
                }
            });
            jvm.pass_to(&mut observer);
            watch.observe(observer.record());
            if watch.is_done(class, "") {
                done.insert(class, round + 1);
            }
        }
    }
    assert_eq!(
        done,
        BTreeMap::from([
            ("com.example.PassesTest", ROUNDS_OF_SUSPECTS),
            ("com.example.KeepsTest", ROUNDS_OF_SUSPECTS),
            ("com.example.OtherTest", WARM_UP + 1),
        ])
    );
    let suspects = watch.suspects(observer.record()).expect("all rounds");
    let [suspect] = suspects.as_slice() else { panic!("{suspects:#?}") };
    assert_eq!(suspect.suite, "com.example.PassesTest");
    let behind = suspect.behind.as_deref().expect("a class behind");
    assert_eq!(behind.suite, "com.example.KeepsTest");
    assert_eq!(
        behind.seen(),
        "1 × com.example.Tile here or in com.example.PassesTest in each of the last rounds"
    );
    assert_eq!(behind.added, (vec!["com.example.Tile".to_owned()], Vec::new()));
    assert!(!behind.keeps_classes_of_project());
}

/// Then the class behind it may have left them.
#[test]
fn objects_of_a_leaking_suspect_that_do_not_grow_alone_are_told() {
    let suspect = |classes: &[&str]| {
        let classes = classes.iter().map(|&class| class.to_owned()).collect();
        JavaSuspect { classes, ..JavaSuspect::default() }
    };
    let mut jvm = Jvm::new();
    for round in 0..ROUNDS_OF_SUSPECTS {
        jvm.window("com.example.PassesTest", "", round, |jvm| {
            jvm.add("com.example.Page", 1, 24);
            jvm.set("com.example.Tile", 1, 24);
            jvm.set("byte[]", 100, 9000);
        });
    }
    let alone = jvm.end();
    assert!(suspect(&["com.example.Page", "com.example.Tile"]).grew_more_than(&alone));
    assert!(!suspect(&["com.example.Page", "byte[]"]).grew_more_than(&alone));
}

/// Another test class keeps one in each round, and frees the one that the suspect would have freed.
#[test]
fn objects_that_come_in_larger_numbers_in_the_rounds_than_alone_may_be_of_another_test_class() {
    let alone = |executions: u32| {
        let mut jvm = Jvm::new();
        for round in 0..executions {
            jvm.window("com.example.PassesTest", "", round, |jvm| {
                // What the warm-up and one late execution add does not count.
                let more = u64::from(round < 2 || round == 5);
                jvm.add("com.example.Tile", 1 + more, 24);
                jvm.add("java.util.ArrayList", 1, 24);
            });
        }
        jvm.end()
    };
    let (few, alone) = (alone(ROUNDS_OF_SUSPECTS), alone(ROUNDS_OF_SUSPECTS + 1));
    let suspect = |class: &str, least: f64| {
        let least = [(class.to_owned(), least)].into();
        JavaSuspect { least, ..JavaSuspect::default() }
    };
    let hidden = |class: &str, least: f64| suspect(class, least).kept_by_another(&alone);
    assert_eq!(hidden("com.example.Tile", 2.0).as_deref(), Some("com.example.Tile"));
    assert_eq!(hidden("com.example.Page", 1.0).as_deref(), Some("com.example.Page"), "it never grows alone");
    assert_eq!(hidden("com.example.Tile", 1.0), None);
    assert_eq!(hidden("java.util.ArrayList", 2.0), None, "the JDK's come and go");
    assert_eq!(suspect("com.example.Page", 1.0).kept_by_another(&few), None, "stopped for lack of time");
}

/// A test class leaves one, and the next class keeps as many as it frees.
#[test]
fn what_runs_behind_a_suspect_is_suspect_for_counters_too() {
    let limits = vec![crate::policy::Limit::fail(Metric::JavaJniGlobals, 0.0, "x")];
    let policy = GatePolicy { defaults: limits, ..GatePolicy::default() };
    let mut jvm = Jvm::new();
    let mut observer = crate::observer::Observer::new();
    let mut watch = RoundsWatch::new(&policy, "kit", Unit::Class);
    let mut left = vec!["com.example.PassesTest", "com.example.KeepsTest", "com.example.OtherTest"];
    for round in 0..ROUNDS_OF_SUSPECTS {
        left.retain(|class| {
            jvm.window(class, "", round, |jvm| match *class {
                "com.example.PassesTest" => jvm.jni_globals += 1,
                // Takes one, and frees that of the class before.
                "com.example.KeepsTest" if round == 0 => jvm.jni_globals += 1,
                _ => {}
            });
            jvm.pass_to(&mut observer);
            watch.observe(observer.record());
            !watch.is_done(class, "")
        });
    }
    let suspects = watch.suspects(observer.record()).expect("all rounds");
    let [suspect] = suspects.as_slice() else { panic!("{suspects:#?}") };
    let behind = suspect.behind.as_deref().expect("a class behind");
    assert_eq!(
        (suspect.suite.as_str(), behind.suite.as_str()),
        ("com.example.PassesTest", "com.example.KeepsTest")
    );
    assert_eq!(behind.added, (vec![], vec![Metric::JavaJniGlobals]));
}

/// Two threads of an earlier test end in the first round that counts, and in the first that is compared.
#[test]
fn threads_that_end_once_hide_no_leak_of_a_thread() {
    for hidden in [2, 3] {
        let found = rounds_of(|jvm, round| {
            match round {
                0 => jvm.threads.extend(["late-1".to_owned(), "late-2".to_owned()]),
                _ if round == hidden => jvm.threads.retain(|name| !name.starts_with("late")),
                _ => {}
            }
            jvm.threads.push(format!("worker-{round}"));
        });
        assert_eq!(found, (8, Some("1 Java thread".to_owned())), "in round {hidden}");
    }
}

#[test]
fn rounds_that_break_off_are_not_measured() {
    let mut jvm = Jvm::new();
    for round in 0..3 {
        jvm.window("FirstTest", "", round, |_| ());
    }
    let why = |jvm: Jvm| screen_rounds(&jvm.cut(), "loaders", &GatePolicy::default());
    assert_eq!(why(jvm), Err("round 4 has no end of FirstTest".to_owned()));
    let mut jvm = Jvm::new();
    for round in 0..7 {
        jvm.window("LeakTest", "", round, |jvm| jvm.tiles(3));
        if round < 5 {
            jvm.window("OtherTest", "", round, |jvm| jvm.add("com.example.Page", 1, 24));
        }
    }
    assert_eq!(why(jvm), Err("round 6 has no end of OtherTest".to_owned()));
    assert_eq!(why(Jvm::new()), Err("there is no class histogram behind their warm-up".to_owned()));
}

/// Regression: without collections every clean test failed.
#[test]
fn a_virtual_machine_that_frees_nothing_is_not_measured() {
    let screened = |collector: &str| {
        let mut jvm = Jvm::new();
        jvm.frame(Frame::JvmInfo(JvmInfo {
            vm: "OpenJDK".to_owned(),
            version: "17".to_owned(),
            home: "/jdk".to_owned(),
            collector: collector.to_owned(),
            command: "launcher".to_owned(),
            vm_arguments: Vec::new(),
            class_path: Vec::new(),
            module_path: Vec::new(),
            properties: Vec::new(),
            listener: "launcher".to_owned(),
        }));
        (0..6).for_each(|round| jvm.window("CleanTest", "", round, |jvm| jvm.tiles(3)));
        screen_rounds(&jvm.end(), "loaders", &GatePolicy::default()).map(|suspects| suspects.len())
    };
    assert_eq!(screened("G1"), Ok(1));
    assert!(screened("Epsilon").unwrap_err().contains("-XX:+UseEpsilonGC"));
}

#[test]
fn a_limit_is_for_all_classes_of_a_window_together() {
    let mut jvm = Jvm::new();
    for round in 0..6 {
        jvm.window("ManyTest", "", round, |jvm| {
            (0..10).for_each(|i| jvm.add(&format!("com.example.C{}", char::from(b'A' + i)), 3, 32));
        });
    }
    let record = jvm.end();
    for (objects, bytes, suspects) in [(29.0, 1e9, 1), (30.0, 960.0, 0), (30.0, 959.0, 1)] {
        let defaults = vec![
            crate::policy::Limit::fail(Metric::JavaLiveObjects, objects, "x"),
            crate::policy::Limit::fail(Metric::JavaLiveBytes, bytes, "x"),
        ];
        let policy = GatePolicy { defaults, ..GatePolicy::default() };
        assert_eq!(
            screen_rounds(&record, "loaders", &policy).map(|s| s.len()),
            Ok(suspects),
            "{objects} {bytes}"
        );
    }
}
