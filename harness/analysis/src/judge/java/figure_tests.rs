//! JVM suites whose figures are uneven, or whose leak ends the virtual machine.

use memgate_model::{Metric, TestReport, Verdict};
use memgate_wire::java::{ClassCount, JavaExhausted};
use memgate_wire::{Frame, Outcome};

use super::tests::{
    CLASS, TEST, again, confirmed, evicts, repeated, report, report_of, rounds, suite, unconfirmed, waiver,
    waiving,
};
use crate::input::ConfirmationInput;
use crate::java::dsl::Jvm;
use crate::policy::{TextPattern, WaiverMatch};
use crate::record::ProcessRecord;

const MIB: u64 = 1 << 20;

/// Repeats one test alone.
fn alone(iterations: u32, body: impl Fn(&mut Jvm, u32)) -> ConfirmationInput {
    repeated("evicts", iterations, body)
}

fn judged(screen: Vec<ProcessRecord>, alone: ConfirmationInput) -> TestReport {
    let input = suite(screen, [(TEST, alone)]);
    evicts(&report_of(&input)).clone()
}

/// Small arrays that come and go, like those of a pool's threads.
fn noise(jvm: &mut Jvm, i: u32) {
    match i % 3 {
        0 => jvm.add("byte[]", 5, 32),
        1 => jvm.remove("byte[]", 5, 32),
        _ => (),
    }
}

#[test]
fn a_large_array_counts_by_its_bytes_where_the_number_of_arrays_is_uneven() {
    let input = confirmed(
        |jvm, i| {
            noise(jvm, i);
            jvm.add("byte[]", 1, 200_016);
        },
        |_| (),
    );
    let report = report_of(&input);
    let test = evicts(&report);
    assert_eq!(test.verdict, Verdict::Fail, "{test:#?}");
    let bytes = test.metrics[&Metric::JavaLiveBytes].value;
    assert!((199_900.0..200_200.0).contains(&bytes), "{bytes}");
}

#[test]
fn the_array_of_a_leaking_object_is_in_its_sum() {
    let body = |jvm: &mut Jvm, i: u32| {
        noise(jvm, i);
        jvm.add("byte[]", 1, 200_016);
        jvm.add("com.example.Holder", 1, 16);
    };
    let test = judged(vec![rounds(body)], alone(40, body));
    assert_eq!(test.verdict, Verdict::Fail, "{}", test.reason);
    let [leak] = test.leaks.as_slice() else { panic!("{:#?}", test.leaks) };
    assert_eq!(leak.title, "1 × com.example.Holder");
    assert!((199_900.0..200_200.0).contains(&leak.bytes_per_iteration), "{leak:#?}");
}

/// The number of objects shows nothing, and the bytes of each class rise unevenly. But the heap grows by more than the
/// classes explain.
#[test]
fn growth_of_the_heap_that_no_class_explains_is_no_pass() {
    // Each of the classes stays constant for long, and then another one takes over: 40 KiB per iteration, of no single
    // class.
    let body = |jvm: &mut Jvm, i: u32| {
        jvm.add(
            &format!("java.util.Kind{}[]", char::from(b'A' + u8::try_from(i / 4).unwrap_or(0))),
            1,
            40 << 10,
        )
    };
    let test = judged(vec![rounds(|jvm, _| jvm.tiles(1))], alone(40, body));
    assert_eq!(test.verdict, Verdict::Warn, "{}", test.reason);
    assert!(test.reason.contains("per iteration more than its classes explain"), "{}", test.reason);
}

/// A method handle is specialised after 127 calls: a class of the virtual machine goes, a larger one comes, and no
/// holder is reported.
#[test]
fn classes_that_the_virtual_machine_makes_now_and_then_fail_no_test() {
    let larger = |jvm: &mut Jvm, i: u32, steps: &[u32]| {
        let so_far = steps.iter().filter(|step| i >= **step).count() as u64;
        jvm.set("java.lang.Class", 500, 52_000 + 440 * so_far);
    };
    let one_more = |jvm: &mut Jvm, i: u32, steps: &[u32]| {
        jvm.add("java.lang.Class", u64::from(steps.contains(&i)), 440);
    };
    type Body<'a> = &'a dyn Fn(&mut Jvm, u32);
    let cases: [(&str, Body<'_>); 3] = [
        ("larger, three times", &|jvm, i| larger(jvm, i, &[81, 162, 243])),
        ("larger, six times", &|jvm, i| larger(jvm, i, &[46, 92, 138, 184, 230, 276])),
        ("more, six times", &|jvm, i| one_more(jvm, i, &[46, 92, 138, 184, 230, 276])),
    ];
    for (what, body) in cases {
        // They grow in the rounds, too.
        let screen = vec![rounds(|jvm, round| {
            jvm.set("java.lang.Class", 500 + u64::from(round), 60_000 + u64::from(round))
        })];
        let test = judged(screen, alone(324, body));
        assert_eq!(test.verdict, Verdict::Warn, "{what}: {}: {:#?}", test.reason, test.leaks);
        assert_eq!(test.reason, "inconclusive: java.lang.Class may grow, after 324 iterations", "{what}");
    }
}

/// Regression test: with a waived leak in the test, this was a remark of a pass.
#[test]
fn a_waived_leak_does_not_hide_that_another_class_may_grow() {
    let body = |jvm: &mut Jvm, i: u32| {
        jvm.tiles(12);
        jvm.add("com.example.Late", u64::from([14, 25, 33].contains(&i)), 440);
    };
    let screen = rounds(|jvm, round| {
        jvm.tiles(12);
        jvm.add("com.example.Late", 1, 440 + u64::from(round));
    });
    let input = suite(vec![screen], [(TEST, alone(37, body))]);
    let matches = WaiverMatch::Class(TextPattern::new("*", |_| true));
    let policy = waiving([waiver(matches, None)]);
    let report = report(&input, &policy);
    let test = evicts(&report);
    assert!(
        test.leaks.iter().all(|leak| leak.waiver.is_some()) && !test.leaks.is_empty(),
        "{:#?}",
        test.leaks
    );
    assert_eq!(test.verdict, Verdict::Warn, "{}", test.reason);
    assert!(test.reason.contains("inconclusive: com.example.Late may grow"), "{}", test.reason);
}

/// A cache that is full after eight executions. As recorded: the compiler made two classes of arrays late, and one more
/// while holders were searched.
#[test]
fn classes_that_the_machine_makes_late_are_open_where_the_rounds_saw_them_come() {
    let cache = |jvm: &mut Jvm, i: u32| jvm.add("byte[]", if i < 8 { 5 } else { 0 }, 112);
    let late = |class: &'static str| {
        alone(154, move |jvm, i| {
            cache(jvm, i);
            match i {
                84 | 152 => jvm.add(class, if i == 84 { 2 } else { 1 }, 120),
                153 => jvm.remove(class, 1, 120),
                _ => (),
            }
        })
    };
    let rounds_of_cache = || vec![rounds(cache)];
    let clean = judged(rounds_of_cache(), late("java.lang.Class"));
    assert_eq!(clean.verdict, Verdict::Pass, "{}", clean.reason);
    assert!(clean.reason.starts_with("java.lang.Class grew by "), "{}", clean.reason);
    assert!(clean.reason.contains(" per iteration but may have stopped: not counted"), "{}", clean.reason);
    let seen = vec![rounds(|jvm, i| {
        cache(jvm, i);
        jvm.add("java.lang.Class", u64::from(i == 4), 120);
    })];
    let now_and_then = alone(154, |jvm, i| {
        cache(jvm, i);
        jvm.add("java.lang.Class", u64::from(i % 20 == 13), 120);
    });
    for (what, test) in [
        ("a round added one", judged(seen, late("java.lang.Class"))),
        ("in one of twenty", judged(rounds_of_cache(), now_and_then)),
        ("the project's own", judged(rounds_of_cache(), late("com.example.Tile"))),
        ("a loader of the JDK's", judged(rounds_of_cache(), late("java.net.URLClassLoader"))),
    ] {
        assert_eq!(test.verdict, Verdict::Warn, "{what}: {}", test.reason);
        assert!(test.reason.starts_with("inconclusive: "), "{what}: {}", test.reason);
    }
}

/// Classes without instances count, because their mirrors (`java.lang.Class`) grow.
#[test]
fn classes_that_each_execution_adds_fail_its_test() {
    type Body = fn(&mut Jvm, u32);
    let cases: [(&str, Body); 3] = [
        ("hidden classes", |jvm, _| jvm.add("java.lang.Class", 1, 120)),
        ("a class in each of its loaders", |jvm, _| {
            jvm.add("java.lang.Class", 1, 120);
            jvm.add("java.net.URLClassLoader", 1, 80);
        }),
        ("below others that come and go", |jvm, i| {
            jvm.set("java.lang.Class", 500 + 3 * u64::from(i) + u64::from(i % 3 == 0), 60_000);
        }),
    ];
    for (what, body) in cases {
        let test = judged(vec![rounds(body)], alone(40, body));
        assert_eq!(test.verdict, Verdict::Fail, "{what}: {}", test.reason);
        assert!(test.leaks.iter().any(|leak| leak.title.contains("java.lang.")), "{what}: {:#?}", test.leaks);
    }
}

#[test]
fn a_test_fails_for_what_grew_in_the_rounds_of_its_class() {
    let screen = || vec![rounds(|jvm, _| jvm.tiles(3))];
    let pages = judged(
        screen(),
        alone(24, |jvm, i| {
            jvm.add("com.example.Page", 2, 24);
            jvm.direct_bytes += 4096;
            jvm.threads.push(format!("w{i}"));
        }),
    );
    assert_eq!(pages.verdict, Verdict::Warn, "{}", pages.reason);
    let why = "grew only when the test ran alone, and in no round of its class: 2 × com.example.Page, 48 B, 4.0 KiB of direct buffers, 1 Java thread per iteration";
    assert_eq!(pages.reason, why);
    let both = judged(
        screen(),
        alone(24, |jvm, _| {
            jvm.add("com.example.Page", 2, 24);
            jvm.tiles(3);
        }),
    );
    assert_eq!(both.verdict, Verdict::Fail, "what is held by nobody known is one leak: {}", both.reason);
}

/// Executions that leave `each` bytes, until one runs out of memory.
fn filling(test: &str, executions: u32, each: u64) -> Jvm {
    let mut jvm = Jvm::new();
    for i in 0..executions {
        jvm.window(CLASS, test, i, |jvm| jvm.add("byte[]", 1, each));
    }
    jvm.outcome = Outcome::Failed;
    jvm.window(CLASS, test, executions, |jvm| {
        jvm.frame(Frame::JavaExhausted(JavaExhausted {
            what: "Java heap space".into(),
            flags: 3,
            heap_used: Some(125 * MIB),
            heap_max: Some(128 * MIB),
            classes: vec![ClassCount { class: 2, instances: 6, bytes: 120 * MIB }],
            sites: Vec::new(),
            dump: None,
        }));
    });
    jvm
}

fn full(executions: u32, each: u64) -> ConfirmationInput {
    again(filling("evicts", executions, each))
}

#[test]
fn a_leak_that_fills_the_heap_fails_its_test_with_the_error_as_the_reason() {
    let screen = || vec![filling("", 5, 20 * MIB).end()];
    let test = judged(screen(), full(5, 20 * MIB));
    assert_eq!(test.verdict, Verdict::Fail, "{}", test.reason);
    let why = "memory ran out after 5 executions, 20.0 MiB more alive after each: OutOfMemoryError: Java heap space, \
               125.0 MiB of 128.0 MiB used, most by 6 × byte[] (120.0 MiB)";
    assert_eq!(test.reason, why);
    assert_eq!(
        (test.leaks[0].title.as_str(), test.leaks[0].bytes_per_iteration),
        ("1 × byte[]", 20.0 * 1_048_576.0)
    );
    // It was not repeated alone: the report shows what the rounds saw.
    let mut alone = unconfirmed(screen());
    alone.suites[0].problems.clear();
    let entry = report_of(&alone).suites[0].tests.last().cloned().expect("an entry");
    assert!(entry.is_class && entry.verdict == Verdict::Warn, "{entry:#?}");
    assert!(entry.reason.contains("until memory ran out in round 6: OutOfMemoryError"), "{}", entry.reason);
}

#[test]
fn memory_that_ran_out_for_another_reason_is_an_error() {
    for test in [full(1, 70 * MIB), full(5, MIB)] {
        let test = judged(vec![filling("", 5, 20 * MIB).end()], test);
        assert_eq!(test.verdict, Verdict::Error, "{}", test.reason);
        assert!(
            test.reason.starts_with("when it was repeated: memory ran out: OutOfMemoryError"),
            "{}",
            test.reason
        );
    }
}

#[test]
fn a_test_that_is_skipped_when_it_is_repeated_did_not_fail() {
    let mut jvm = Jvm::new();
    jvm.outcome = Outcome::Skipped;
    (0..2).for_each(|i| jvm.window(CLASS, "evicts", i, |_| ()));
    let test = judged(vec![rounds(|jvm, _| jvm.tiles(3))], again(jvm));
    assert_eq!(test.verdict, Verdict::Warn);
    assert!(test.reason.ends_with(
        "it is skipped when it runs alone, again and again: an assumption of it does not hold then"
    ));
}
