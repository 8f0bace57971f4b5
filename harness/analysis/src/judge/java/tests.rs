//! JVM suites, described as streams, and the verdicts that they must get.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use memgate_model::{BoundaryQuality, Leak, Metric, RunReport, Runner, TestReport, Verdict};
use memgate_wire::Outcome;

pub(super) use super::super::tests::{report, report_of, run_of, waiver, waiving};
use crate::input::{ConfirmationInput, JavaInput, RunInput, SuiteInput};
use crate::java::dsl::Jvm;
use crate::policy::{GatePolicy, Limit, NamePattern, Rule, TestPattern, TextPattern, Waiver, WaiverMatch};
use crate::record::ProcessRecord;

pub(super) const CLASS: &str = "com.example.TileCacheTest";
pub(super) const TEST: &str = "com.example.TileCacheTest.evicts";
pub(super) const ITERATIONS: u32 = 24;

/// The build's own run: two tests of one class.
fn build() -> ProcessRecord {
    let mut jvm = Jvm::new();
    jvm.test(CLASS, "opens");
    jvm.test(CLASS, "evicts");
    jvm.end()
}

/// Six rounds of the class.
pub(super) fn rounds(body: impl Fn(&mut Jvm, u32)) -> ProcessRecord {
    let mut jvm = Jvm::new();
    (0..6).for_each(|round| jvm.window(CLASS, "", round, |jvm| body(jvm, round)));
    jvm.end()
}

/// Repeats one test alone; `explain` reports the holders.
fn alone(body: impl Fn(&mut Jvm, u32), explain: impl FnOnce(&mut Jvm)) -> ConfirmationInput {
    let mut jvm = Jvm::new();
    (0..ITERATIONS).for_each(|i| jvm.window(CLASS, "evicts", i, |jvm| body(jvm, i)));
    explain(&mut jvm);
    jvm.explained(CLASS, "evicts", ITERATIONS - 1);
    again(jvm)
}

/// A test, or the whole class, repeated alone.
pub(super) fn repeated(method: &str, iterations: u32, body: impl Fn(&mut Jvm, u32)) -> ConfirmationInput {
    let mut jvm = Jvm::new();
    (0..iterations).for_each(|i| jvm.window(CLASS, method, i, |jvm| body(jvm, i)));
    again(jvm)
}

pub(super) fn again(jvm: Jvm) -> ConfirmationInput {
    ConfirmationInput::Repeated(Arc::new(jvm.end().into()))
}

/// A suite of which nothing was confirmed.
pub(super) fn unconfirmed(rounds: Vec<ProcessRecord>) -> RunInput {
    suite(rounds, BTreeMap::<String, _>::new())
}

pub(super) fn suite(
    rounds: Vec<ProcessRecord>,
    confirmations: impl IntoIterator<Item = (impl Into<String>, ConfirmationInput)>,
) -> RunInput {
    let suite = SuiteInput {
        name: "loaders".to_owned(),
        runner: Runner::Junit,
        boundary: BoundaryQuality::Class,
        screened: Duration::from_secs(4),
        screen: vec![build().into()],
        stacks: Vec::new(),
        confirmations: confirmations.into_iter().map(|(id, run)| (id.into(), run)).collect(),
        lost: Duration::ZERO,
        takes_filter: false,
        problems: Vec::new(),
        java: Some(JavaInput {
            rounds: rounds.into_iter().map(Into::into).collect(),
            ..JavaInput::default()
        }),
        hunt: None,
        app_memory: None,
        heap: Vec::new(),
    };
    run_of(suite)
}

pub(super) fn confirmed(body: impl Fn(&mut Jvm, u32) + Copy, explain: impl FnOnce(&mut Jvm)) -> RunInput {
    suite(vec![rounds(body)], [(TEST, alone(body, explain))])
}

pub(super) fn evicts(report: &RunReport) -> &TestReport {
    report.suites[0].tests.iter().find(|test| test.id == TEST).expect("it ran")
}

/// The only leak of [`TEST`].
pub(super) fn only_leak(report: &RunReport) -> &Leak {
    let [leak] = evicts(report).leaks.as_slice() else { panic!("one leak: {:#?}", evicts(report).leaks) };
    leak
}

/// The entry of the class as a whole.
fn of_class(report: &RunReport) -> Option<&TestReport> {
    report.suites[0].tests.iter().find(|test| test.is_class)
}

/// Waives the leaks of this class.
pub(super) fn of_objects(class: &'static str) -> Waiver {
    waiver(WaiverMatch::Class(TextPattern::new(class, move |of| of == class)), None)
}

#[test]
fn a_stack_through_a_class_on_the_way_goes_before_one_that_allocated_more() {
    let titles = |jvm: &mut Jvm, _: u32| jvm.add("java.lang.String", 10, 24);
    let input = confirmed(titles, |jvm| {
        let list = [
            "static com.example.Titles.all -> java.lang.Object[]",
            "array java.lang.Object[].[x] -> java.lang.String",
        ];
        jvm.held("java.lang.String", &[(10, &list)]);
        jvm.sites(
            "java.lang.String",
            &[("org.junit.Runner", "names", 4096), ("com.example.Titles", "remember", 240)],
        );
    });
    let report = report_of(&input);
    let leak = only_leak(&report);
    assert_eq!(leak.frames[0].function.as_deref(), Some("com.example.Titles.remember"));
}

#[test]
fn the_line_of_a_frame_that_holds_a_leak_is_not_in_its_id() {
    let id = |line: u32| {
        let root = "thread pool-1-thread-3. -> java.lang.Thread";
        let frame = format!("stack com.example.Worker.run(Worker_java:{line}) -> com.example.Tile");
        let input = confirmed(
            |jvm, _| jvm.add("com.example.Tile", 2, 24),
            |jvm| jvm.held("com.example.Tile", &[(2, &[root, &frame])]),
        );
        let report = report_of(&input);
        let leak = &evicts(&report).leaks[0];
        assert_eq!(leak.holder[1].name, format!("run(Worker_java:{line})"), "{:?}", leak.holder);
        leak.id.clone()
    };
    assert_eq!(id(12), id(40));
}

#[test]
fn the_cost_of_screening_is_told_as_a_multiple_of_the_suite_alone() {
    let input = confirmed(|_, _| (), |_| ());
    let report = report_of(&input);
    let cost = report.suites[0].screen_cost.as_ref().expect("there were rounds");
    assert!(cost.alone_s > 0.0 && cost.screened_s > cost.alone_s, "{cost:?}");
    assert_eq!(cost.ratio, cost.screened_s / cost.alone_s);
    let unscreened = unconfirmed(Vec::new());
    assert_eq!(self::report_of(&unscreened).suites[0].screen_cost, None);
}

/// Each case alone determines a verdict, with its text.
#[test]
fn every_way_to_leak_and_not_to_leak() {
    type Body = Box<dyn Fn(&mut Jvm, u32)>;
    type Explain = Box<dyn Fn(&mut Jvm)>;
    let nobody = || -> Explain { Box::new(|_| ()) };
    let constant_pool: &[&str] = &[
        "class loader com.example.Loader -> com.example.Text",
        "constant pool com.example.Text -> java.lang.String",
    ];
    let resolved: &[&str] =
        &["system class . -> java.lang.Object[]", "array java.lang.Object[].[x] -> java.lang.String"];
    let accessor: &[&str] = &[
        "class loader jdk.internal.reflect.GeneratedSerializationConstructorAccessor. -> jdk.internal.reflect.DelegatingClassLoader",
        "field jdk.internal.reflect.DelegatingClassLoader.nameAndId -> java.lang.String",
    ];
    let described: &[&str] = &[
        "static java.lang.invoke.LambdaForm$DMH._D_0 -> java.lang.invoke.LambdaForm",
        "field java.lang.invoke.LambdaForm.vmentry -> java.lang.invoke.MemberName",
        "field java.lang.invoke.MemberName.name -> java.lang.String",
    ];
    let bound: &[&str] = &[
        "static java.lang.invoke.LambdaForm$MH._D_1 -> java.lang.invoke.BoundMethodHandle$Species_LL",
        "field java.lang.invoke.BoundMethodHandle$Species_LL.argL0 -> java.lang.invoke.DirectMethodHandle",
        "field java.lang.invoke.DirectMethodHandle.member -> java.lang.invoke.MemberName",
        "field java.lang.invoke.MemberName.name -> java.lang.String",
    ];
    let argument: &[&str] = &[
        "static java.lang.invoke.LambdaForm$MH._D_1 -> java.lang.invoke.BoundMethodHandle$Species_LL",
        "field java.lang.invoke.BoundMethodHandle$Species_LL.argL0 -> java.lang.String",
    ];
    let last_entry: &[&str] = &[
        "static java.lang.ClassLoader.scl -> java.util.jar.JarFile",
        "field java.util.jar.JarFile.lastEntryName -> java.lang.String",
    ];
    let thread_local: &[&str] = &[
        "thread pool-1-thread-1 -> java.lang.Thread",
        "field java.lang.Thread.threadLocals -> java.lang.ThreadLocal$ThreadLocalMap",
        "field java.lang.ThreadLocal$ThreadLocalMap.table -> java.lang.ThreadLocal$ThreadLocalMap$Entry[]",
        "array java.lang.ThreadLocal$ThreadLocalMap$Entry[].[x] -> java.lang.ThreadLocal$ThreadLocalMap$Entry",
        "field java.lang.ThreadLocal$ThreadLocalMap$Entry.value -> com.example.Session",
    ];
    let cases: Vec<(&str, Body, Explain, Verdict, &str)> = vec![
        ("still", Box::new(|_, _| ()), nobody(), Verdict::Pass, ""),
        (
            "a bounded cache that fills, then rests",
            Box::new(|jvm, i| {
                if i < 9 {
                    jvm.add("com.example.Tile", 5, 24)
                }
            }),
            nobody(),
            Verdict::Pass,
            "",
        ),
        (
            "warm caches of the first executions",
            Box::new(|jvm, i| {
                if i < 3 {
                    jvm.add("java.lang.invoke.MemberName", 40, 48)
                }
            }),
            nobody(),
            Verdict::Pass,
            "",
        ),
        (
            "a weak cache that settles one iteration later",
            Box::new(|jvm, i| {
                jvm.add("com.example.Tile", 9, 24);
                if i > 0 {
                    jvm.remove("com.example.Tile", 9, 24);
                }
            }),
            nobody(),
            Verdict::Pass,
            "",
        ),
        (
            "literals that are resolved while code is compiled",
            Box::new(|jvm, i| jvm.add("java.lang.String", [2, 0, 5, 1, 6, 0, 0, 3][i as usize % 8], 24)),
            Box::new(move |jvm| jvm.held("java.lang.String", &[(51, constant_pool)])),
            Verdict::Pass,
            "java.lang.String grows by 51 B per iteration but is held by constant pools and system classes only",
        ),
        (
            "literals that classes of the JDK resolved",
            Box::new(|jvm, _| jvm.add("java.lang.String", 2, 24)),
            Box::new(move |jvm| jvm.held("java.lang.String", &[(20, resolved)])),
            Verdict::Pass,
            "java.lang.String grows by 48 B per iteration but is held by constant pools and system classes only",
        ),
        (
            "literals, of which the JDK describes a method handle by one",
            Box::new(|jvm, _| jvm.add("java.lang.String", 1, 24)),
            Box::new(move |jvm| jvm.held("java.lang.String", &[(20, resolved), (1, described)])),
            Verdict::Pass,
            "java.lang.String grows by 24 B per iteration but is held by constant pools and system classes only",
        ),
        (
            "literals, and the name of a loader that deserialization made for an accessor",
            Box::new(|jvm, _| jvm.add("java.lang.String", 1, 24)),
            Box::new(move |jvm| jvm.held("java.lang.String", &[(20, resolved), (1, accessor)])),
            Verdict::Pass,
            "java.lang.String grows by 24 B per iteration but is held by constant pools and system classes only",
        ),
        (
            "names of methods in handles that were bound",
            Box::new(|jvm, _| jvm.add("java.lang.String", 1, 24)),
            Box::new(move |jvm| jvm.held("java.lang.String", &[(20, resolved), (1, bound)])),
            Verdict::Pass,
            "java.lang.String grows by 24 B per iteration but is held by constant pools and system classes only",
        ),
        (
            "texts that a program bound to method handles",
            Box::new(|jvm, _| {
                jvm.add("java.lang.String", 2, 24);
                jvm.add("java.lang.invoke.BoundMethodHandle$Species_LL", 2, 40);
            }),
            Box::new(move |jvm| jvm.held("java.lang.String", &[(20, argument)])),
            Verdict::Fail,
            "128 B of Java objects per iteration (allowed 0 B); 4 objects per iteration (allowed 0)",
        ),
        (
            "the same, where nobody could tell the holders",
            Box::new(|jvm, i| jvm.add("java.lang.String", [2, 0, 5, 1, 6, 0, 0, 3][i as usize % 8], 24)),
            nobody(),
            Verdict::Pass,
            "java.lang.String grows by 51 B per iteration but is irregular",
        ),
        (
            "the same, where the JDK keeps one of them",
            Box::new(|jvm, i| jvm.add("java.lang.String", [2, 0, 5, 1, 6, 0, 0, 3][i as usize % 8], 24)),
            Box::new(move |jvm| jvm.held_some(18, "java.lang.String", &[(2, last_entry)])),
            Verdict::Pass,
            "java.lang.String grows by 51 B per iteration but is irregular",
        ),
        (
            "strings of which an object keeps the last one",
            Box::new(|jvm, _| jvm.add("java.lang.String", 1, 24)),
            Box::new(move |jvm| jvm.held_some(216, "java.lang.String", &[(2, last_entry)])),
            Verdict::Pass,
            "java.lang.String grows by 24 B per iteration but is held by a fixed number of objects",
        ),
        (
            "the same, where more objects come that keep one",
            Box::new(|jvm, _| {
                jvm.add("java.lang.String", 1, 24);
                jvm.add("java.util.jar.JarFile", 1, 80);
            }),
            Box::new(move |jvm| {
                jvm.held_some(216, "java.lang.String", &[(2, last_entry)]);
                jvm.held("java.util.jar.JarFile", &[(1, &last_entry[..1])]);
            }),
            Verdict::Fail,
            "104 B of Java objects per iteration (allowed 0 B); 2 objects per iteration (allowed 0)",
        ),
        (
            "the same, where not all of them were searched",
            Box::new(|jvm, _| jvm.add("java.lang.String", 1, 24)),
            Box::new(move |jvm| jvm.held_some(300, "java.lang.String", &[(2, last_entry)])),
            Verdict::Fail,
            "24 B of Java objects per iteration (allowed 0 B); 1 object per iteration (allowed 0)",
        ),
        (
            "strings that come by the same number",
            Box::new(|jvm, _| {
                jvm.add("java.lang.String", 3, 24);
                jvm.add("byte[]", 3, 32);
            }),
            nobody(),
            Verdict::Fail,
            "168 B of Java objects per iteration (allowed 0 B); 6 objects per iteration (allowed 0)",
        ),
        (
            "objects that wait to be finalized",
            Box::new(|jvm, _| jvm.add("com.example.Late", 2, 24)),
            Box::new(|jvm| jvm.held("com.example.Late", &[])),
            Verdict::Pass,
            "com.example.Late grows by 48 B per iteration but is held by nothing",
        ),
        (
            "a thread's local value",
            Box::new(|jvm, _| jvm.add("com.example.Session", 1, 64)),
            Box::new(move |jvm| jvm.held("com.example.Session", &[(1, thread_local)])),
            Verdict::Fail,
            "64 B of Java objects per iteration (allowed 0 B); 1 object per iteration (allowed 0)",
        ),
        (
            "a thread that goes on",
            Box::new(|jvm, i| jvm.threads.push(format!("worker-{i}"))),
            nobody(),
            Verdict::Fail,
            "1 Java thread per iteration (allowed 0)",
        ),
        (
            "direct buffers",
            Box::new(|jvm, _| jvm.direct_bytes += 4096),
            nobody(),
            Verdict::Fail,
            "4.0 KiB of direct buffers per iteration (allowed 0 B)",
        ),
        (
            "global references have no limit",
            Box::new(|jvm, _| jvm.jni_globals += 1),
            nobody(),
            Verdict::Pass,
            "",
        ),
    ];
    for (what, body, explain, verdict, reason) in cases {
        let input = confirmed(&*body, |jvm| explain(jvm));
        let report = report_of(&input);
        let test = evicts(&report);
        assert_eq!(test.verdict, verdict, "{what}: {:#?}", test.leaks);
        let still = "nothing more in ";
        assert!(
            test.reason == reason || reason.is_empty() && test.reason.starts_with(still),
            "{what}: {}",
            test.reason
        );
        assert_eq!(report.exit_code, i32::from(verdict == Verdict::Fail), "{what}");
        assert_eq!(report.suites[0].verdict, verdict, "{what}: {}", report.suites[0].reason);
    }
}

#[test]
fn a_limit_that_is_set_is_applied() {
    let global = Limit::fail(Metric::JavaJniGlobals, 0.0, "memgate.yaml:7");
    let mut strict = GatePolicy::default();
    strict.defaults.push(global);
    let input = confirmed(|jvm, _| jvm.jni_globals += 2, |_| ());
    let reason = "2 JNI global references per iteration (allowed 0)";
    assert_eq!(evicts(&report(&input, &strict)).reason, reason);

    let of = |bytes, objects| {
        let defaults = vec![
            Limit::fail(Metric::JavaLiveBytes, bytes, "memgate.yaml:7"),
            Limit::fail(Metric::JavaLiveObjects, objects, "memgate.yaml:8"),
        ];
        GatePolicy { defaults, ..GatePolicy::default() }
    };
    let tiles = confirmed(|jvm, _| jvm.tiles(12), |jvm| jvm.tiles_held("cache", 12));
    assert_eq!(evicts(&report(&tiles, &of(65536.0, 100.0))).verdict, Verdict::Pass);
    assert_eq!(evicts(&report(&tiles, &of(4096.0, 100.0))).verdict, Verdict::Fail);
    let mut per_suite = GatePolicy::default();
    let whole = Limit { per: memgate_model::Per::Suite, ..Limit::fail(Metric::JavaMetaspace, 9.0, "x") };
    per_suite.defaults.push(whole);
    let unmeasured = report(&tiles, &per_suite);
    assert!(unmeasured.suites[0].reason.contains("java.metaspace per suite is not measured"));
}

/// The memory of direct buffers has no leak of its own that a waiver could name.
#[test]
fn a_waiver_of_direct_buffers_covers_their_memory() {
    let buffers = |jvm: &mut Jvm, class: &str| {
        jvm.add(class, 1, 64);
        jvm.direct_bytes += 4096;
    };
    let judged = |class: &'static str, waived: &'static str| {
        let held = |jvm: &mut Jvm| {
            jvm.held(class, &[(1, &["static com.example.Registry.pool -> java.util.ArrayList.elementData"])])
        };
        let input = confirmed(move |jvm, _| buffers(jvm, class), held);
        evicts(&report(&input, &waiving([of_objects(waived)]))).verdict
    };
    assert_eq!(judged("java.nio.DirectByteBuffer", "java.nio.DirectByteBuffer"), Verdict::Pass);
    assert_eq!(judged("java.nio.DirectByteBuffer", "com.example.Tile"), Verdict::Fail);
    assert_eq!(judged("com.example.Tile", "com.example.Tile"), Verdict::Fail, "other memory");
}

#[test]
fn a_few_bytes_of_direct_buffers_now_and_then_are_undecided_unless_buffers_come() {
    let judged = |buffers: u64| {
        let body = move |jvm: &mut Jvm, i: u32| {
            jvm.direct_bytes += u64::from(i.is_multiple_of(3));
            jvm.add("java.nio.DirectByteBuffer", buffers, 64);
        };
        let held = |jvm: &mut Jvm| {
            jvm.held(
                "java.nio.DirectByteBuffer",
                &[(1, &["static com.example.Registry.pool -> java.util.List"])],
            );
        };
        let report = report_of(&confirmed(body, held));
        (evicts(&report).verdict, evicts(&report).reason.clone())
    };
    let (verdict, why) = judged(0);
    assert_eq!(verdict, Verdict::Warn);
    assert!(why.contains("but no buffers that stay for certain"), "{why}");
    assert_eq!(judged(1).0, Verdict::Fail);
}

#[test]
fn a_leak_is_waived_by_id_class_or_holder() {
    let input = confirmed(|jvm, _| jvm.tiles(12), |jvm| jvm.tiles_held("cache", 12));
    let id = evicts(&report_of(&input)).leaks[0].id.clone();
    let class = |name: &'static str| WaiverMatch::Class(TextPattern::new(name, move |class| class == name));
    let holder = |name: &'static str| WaiverMatch::Holder(TextPattern::new(name, move |step| step == name));
    for (matches, waived) in [
        (WaiverMatch::Leak(id), true),
        (class("com.example.Tile"), true),
        (class("byte[]"), false),
        (holder("com.example.Registry.cache"), true),
        (holder("java.util.HashMap.table"), true),
        (holder("com.example.Registry.other"), false),
    ] {
        let text = format!("{matches:?}");
        let report = report(&input, &waiving([waiver(matches, None)]));
        let verdict = if waived { Verdict::Pass } else { Verdict::Fail };
        assert_eq!(evicts(&report).verdict, verdict, "{text}");
        assert_eq!(evicts(&report).leaks[0].waiver.is_some(), waived, "{text}");
    }
}

#[test]
fn a_suspect_nobody_could_confirm_is_a_warning() {
    let leaking = || vec![rounds(|jvm, _| jvm.tiles(12))];
    let why = "48 × ";
    let impossible = ConfirmationInput::Impossible("it needs its order".to_owned());
    for (confirmations, id, end) in [
        (BTreeMap::new(), CLASS, "it was not run alone"),
        (BTreeMap::from([(CLASS, impossible)]), CLASS, "it needs its order"),
    ] {
        let report = report_of(&suite(leaking(), confirmations));
        let entry = report.suites[0].tests.iter().find(|test| test.id == id).expect("an entry");
        assert_eq!(entry.verdict, Verdict::Warn);
        let begin = "unconfirmed: 12 × byte[], 12 × java.util.HashMap$Node, 12 × com.example.Tile";
        assert!(entry.reason.starts_with(begin) && entry.reason.ends_with(end), "{}", entry.reason);
        assert!(!entry.reason.contains(why));
        let test = evicts(&report);
        let unknown = format!("its class grew, and was not confirmed: {CLASS}");
        assert_eq!((test.verdict, &test.reason), (Verdict::NotJudged, &unknown), "its tests may leak");
    }
    let broken = BTreeMap::from([(TEST, ConfirmationInput::Broken("no port".to_owned()))]);
    let report = report_of(&suite(leaking(), broken));
    assert_eq!((evicts(&report).verdict, report.exit_code), (Verdict::Error, 2));
}

#[test]
fn a_test_that_could_not_be_screened_is_a_warning_whatever_others_of_its_class_did() {
    let unscreened = ConfirmationInput::Unscreened("it fails when it is repeated".to_owned());
    let confirmations = BTreeMap::from([(TEST, unscreened)]);
    let mut input = suite(vec![rounds(|_, _| ())], confirmations);
    let limits = "figures are within a test".to_owned();
    input.suites[0].java.as_mut().expect("a Java suite").limits = Some(limits.clone());
    let report = report_of(&input);
    assert_eq!(
        (evicts(&report).verdict, evicts(&report).reason.as_str()),
        (Verdict::Warn, "not screened: it fails when it is repeated")
    );
    assert_eq!(report.suites[0].reason, limits, "the report says what kind of figures these are");
    assert!(!report.suites[0].tests.iter().any(|test| test.id == CLASS));
}

#[test]
fn growth_of_a_class_that_none_of_its_tests_shows_is_the_classs() {
    let again = repeated("", ITERATIONS, |jvm, _| jvm.tiles(12));
    let still = alone(|_, _| (), |_| ());
    let confirmations = BTreeMap::from([(CLASS, again), (TEST, still)]);
    let report = report_of(&suite(vec![rounds(|jvm, _| jvm.tiles(12))], confirmations));
    let entry = report.suites[0].tests.last().expect("an entry");
    assert_eq!((entry.id.as_str(), entry.verdict), (CLASS, Verdict::Fail));
    assert_eq!(entry.leaks[0].title, "12 × com.example.Tile", "without holders too");
    assert_eq!(entry.leaks[0].bytes_per_iteration, 12.0 * 4072.0);
    assert_eq!(evicts(&report).verdict, Verdict::Pass);
}

/// A class after a suspect is a suspect itself only if the other one does not grow alone. Then it is repeated.
#[test]
fn a_class_behind_a_suspect_is_told_of_only_if_it_was_repeated() {
    let mut jvm = Jvm::new();
    for round in 0..8 {
        jvm.window("com.example.BeforeTest", "", round, |jvm| jvm.tiles(12));
        jvm.window(CLASS, "", round, |_| ());
    }
    let rounds = jvm.end();
    let told = |confirmations| {
        let report = report_of(&suite(vec![rounds.clone()], confirmations));
        let of_class = report.suites[0].tests.iter().find(|test| test.id == CLASS);
        (of_class.map(|test| test.verdict), evicts(&report).verdict)
    };
    assert_eq!(told(BTreeMap::new()), (None, Verdict::Pass));
    let again = repeated("", ITERATIONS, |jvm, _| jvm.tiles(12));
    let leaks = BTreeMap::from([(CLASS, again)]);
    assert_eq!(told(leaks).0, Some(Verdict::Fail));
}

/// The growth of a class includes what a test may leave by its own limit. The class has no limit of its own.
#[test]
fn what_its_tests_leave_alone_does_not_fail_a_class_as_well() {
    let objects = Limit::fail(Metric::JavaLiveObjects, 100.0, "memgate.yaml:7");
    let bytes = Limit::fail(Metric::JavaLiveBytes, 65536.0, "memgate.yaml:8");
    let rules = [objects, bytes].map(|limit| Rule {
        metric: limit.metric,
        matches: NamePattern::new(|name| name.ends_with(TEST)),
        of_tests: HashMap::new(),
        limits: vec![limit],
    });
    let policy = GatePolicy { rules: rules.into(), ..GatePolicy::default() };
    let of_class = |tiles: u64| {
        let class = repeated("", ITERATIONS, |jvm, _| jvm.tiles(tiles));
        let test = alone(|jvm, _| jvm.tiles(12), |jvm| jvm.tiles_held("cache", 12));
        let confirmations = BTreeMap::from([(CLASS, class), (TEST, test)]);
        let report = report(&suite(vec![rounds(move |jvm, _| jvm.tiles(tiles))], confirmations), &policy);
        assert_eq!(evicts(&report).verdict, Verdict::Pass);
        (report.suites[0].tests.iter().filter(|test| test.is_class).count(), report.exit_code)
    };
    assert_eq!(of_class(12), (0, 0));
    assert_eq!(of_class(13), (1, 1), "none of its tests leaves the thirteenth");
}

/// The class repeated as a whole, and its test alone.
fn class_and_test(class: impl Fn(&mut Jvm) + Copy, test: impl Fn(&mut Jvm) + Copy) -> RunInput {
    let explain = |jvm: &mut Jvm| {
        jvm.tiles_held("cache", 12);
        jvm.held("com.example.Marker", &[(1, &["static com.example.Marks.last -> com.example.Marker"])]);
    };
    let mut whole = Jvm::new();
    (0..ITERATIONS).for_each(|i| whole.window(CLASS, "", i, |jvm| class(jvm)));
    explain(&mut whole);
    whole.explained(CLASS, "", ITERATIONS - 1);
    let whole = again(whole);
    let test = alone(|jvm, _| test(jvm), explain);
    let confirmations = BTreeMap::from([(CLASS, whole), (TEST, test)]);
    suite(vec![rounds(move |jvm, _| class(jvm))], confirmations)
}

#[test]
fn beside_a_test_that_fails_its_class_tells_what_no_test_leaves_alone() {
    let policy = |bytes, objects| {
        let bytes = Limit::fail(Metric::JavaLiveBytes, bytes, "memgate.yaml:7");
        let objects = Limit::fail(Metric::JavaLiveObjects, objects, "memgate.yaml:8");
        GatePolicy { defaults: vec![bytes, objects], ..GatePolicy::default() }
    };
    let marked = class_and_test(
        |jvm| {
            jvm.tiles(12);
            jvm.add("com.example.Marker", 1, 40);
        },
        |jvm| jvm.tiles(12),
    );
    let of_marks = report_of(&marked);
    assert_eq!(evicts(&of_marks).verdict, Verdict::Fail);
    let class = of_class(&of_marks).expect("the marker is told");
    let why = "40 B of Java objects per iteration (allowed 0 B); 1 object per iteration (allowed 0); \
               none of its tests that ran alone leaves this";
    assert_eq!((class.verdict, class.reason.as_str()), (Verdict::Fail, why));
    let titles = |test: &TestReport| test.leaks.iter().map(|leak| leak.title.clone()).collect::<Vec<_>>();
    assert_eq!(titles(class), ["1 × com.example.Marker"]);
    assert_eq!(
        (class.metrics[&Metric::JavaLiveBytes].value, class.leaks[0].bytes_per_iteration),
        (40.0, 40.0)
    );

    let more = report_of(&class_and_test(|jvm| jvm.tiles(13), |jvm| jvm.tiles(12)));
    assert_eq!(titles(of_class(&more).expect("the thirteenth is told")), ["1 × com.example.Tile"]);

    assert_eq!(of_class(&report(&marked, &policy(64.0, 2.0))), None, "within the limits of the class");
    let same = class_and_test(|jvm| jvm.tiles(12), |jvm| jvm.tiles(12));
    assert_eq!(of_class(&report_of(&same)), None, "its test says it all");
}

/// Memory outside the heap has no name: nothing but the figure of the class shows it.
#[test]
fn growth_without_a_name_that_no_test_leaves_alone_fails_the_class_beside_a_test_that_leaks() {
    let buffer = |jvm: &mut Jvm| jvm.direct_bytes += 4096;
    let thread = |jvm: &mut Jvm| jvm.threads.push("worker".to_owned());
    let entry = |class: &dyn Fn(&mut Jvm), test: &dyn Fn(&mut Jvm)| {
        let with_tiles = |body: &dyn Fn(&mut Jvm), jvm: &mut Jvm| {
            jvm.tiles(12);
            body(jvm);
        };
        let input = class_and_test(|jvm| with_tiles(class, jvm), |jvm| with_tiles(test, jvm));
        let report = report_of(&input);
        assert_eq!(evicts(&report).verdict, Verdict::Fail);
        of_class(&report).map(|test| test.reason.clone())
    };
    let beside = "none of its tests that ran alone leaves this";
    let buffers = format!("4.0 KiB of direct buffers per iteration (allowed 0 B); {beside}");
    assert_eq!(entry(&buffer, &|_| ()), Some(buffers));
    let threads = format!("1 Java thread per iteration (allowed 0); {beside}");
    assert_eq!(entry(&thread, &|_| ()), Some(threads));
    for body in [&buffer as &dyn Fn(&mut Jvm), &thread] {
        assert_eq!(entry(body, body), None, "its test says it all");
    }
}

/// Names with a counter are longer in the class, which runs all its tests, and leaks are grouped differently.
#[test]
fn a_class_that_leaves_a_little_more_of_what_its_tests_leave_leaks_nothing_besides() {
    let is_told = |markers, bytes| {
        let in_class = move |jvm: &mut Jvm| {
            jvm.tiles(12);
            jvm.add("com.example.Marker", markers, bytes);
        };
        let alone = |jvm: &mut Jvm| {
            jvm.tiles(12);
            jvm.add("com.example.Mark", 1, 40);
        };
        let report = report_of(&class_and_test(in_class, alone));
        assert_eq!(evicts(&report).verdict, Verdict::Fail);
        of_class(&report).is_some()
    };
    assert!(!is_told(1, 48), "as many objects, with a longer name");
    assert!(!is_told(2, 48), "one of 38 objects more, in as many bytes");
    assert!(is_told(1, 9000), "an object that is much larger is another one");
    assert!(is_told(6, 48), "five objects more");
}

#[test]
fn beside_a_leak_less_than_an_object_per_iteration_is_not_worth_a_line() {
    let is_told = |size: u64| {
        let body = move |jvm: &mut Jvm, i: u32| {
            jvm.add("com.example.Tile", 12, 24);
            jvm.add("java.lang.String", [2, 0, 5, 1, 6, 0, 0, 3][i as usize % 8], size);
        };
        let report = report_of(&confirmed(body, |_| ()));
        assert_eq!(evicts(&report).verdict, Verdict::Fail);
        evicts(&report).reason.contains("java.lang.String grows by")
    };
    assert!(is_told(24) && !is_told(4));
}

/// Arrays of a leak may be too irregular in the test, because the virtual machine adds its own, and count in the class.
#[test]
fn as_many_objects_in_the_same_place_are_the_leak_of_the_test_whatever_hangs_on_them() {
    let without_arrays = |jvm: &mut Jvm| {
        jvm.tiles(12);
        jvm.remove("byte[]", 12, 4000);
    };
    let is_told = |tiles| {
        let report = report_of(&class_and_test(move |jvm| jvm.tiles(tiles), without_arrays));
        assert_eq!(evicts(&report).verdict, Verdict::Fail);
        of_class(&report).is_some()
    };
    assert!(!is_told(12));
    assert!(is_told(13));
}

/// A waiver for the test does not apply to its class.
#[test]
fn a_leak_that_is_waived_in_a_test_does_not_fail_its_class_as_a_whole() {
    let test = Some(TestPattern::new(TEST, |_, test| test == TEST));
    let policy = waiving([Waiver { test, ..of_objects("com.example.Tile") }]);
    for (tiles, verdict) in [(12, Verdict::Pass), (24, Verdict::Fail)] {
        let report = report(&class_and_test(|jvm| jvm.tiles(tiles), |jvm| jvm.tiles(12)), &policy);
        assert_eq!(evicts(&report).verdict, Verdict::Pass);
        assert_eq!(report.suites[0].verdict, verdict, "{:#?}", report.suites[0].tests.last());
        assert_eq!(
            of_class(&report).is_some(),
            verdict == Verdict::Fail,
            "what its test leaves is told there"
        );
    }
}

#[test]
fn growth_that_needs_another_class_is_unconfirmed_and_no_pass() {
    let still = repeated("", ITERATIONS, |_, _| ());
    let mut input = suite(vec![rounds(|jvm, _| jvm.add("com.example.Tile", 12, 24))], [(CLASS, still)]);
    let of_class = |input: &RunInput| {
        let tests = report_of(input).suites.remove(0).tests;
        tests.into_iter().find(|test| test.id == CLASS)
    };
    let entry = of_class(&input).expect("an entry");
    assert_eq!(entry.verdict, Verdict::Warn);
    assert_eq!(
        entry.reason,
        "unconfirmed: 12 × com.example.Tile in each of the last rounds; alone, it did not grow in 24 executions"
    );
    // One other repeated test class leaves different objects, another leaves these.
    for (class, is_told) in [("com.example.Marker", false), ("com.example.Tile", true)] {
        let (mut other, id) = (Jvm::new(), "com.example.KeepsTest");
        (0..ITERATIONS).for_each(|i| other.window(id, "", i, |jvm| jvm.add(class, 12, 24)));
        input.suites[0].confirmations.insert(id.to_owned(), again(other));
        let warns = of_class(&input).is_some_and(|entry| entry.verdict == Verdict::Warn);
        assert_eq!(warns, !is_told, "{class}");
    }
}

#[test]
fn rounds_that_a_class_broke_off_are_in_the_cost() {
    let mut input = unconfirmed(vec![rounds(|_, _| ())]);
    let repeated_s = |input: &RunInput| report_of(input).agent_cost.repeated_s;
    let before = repeated_s(&input);
    input.suites[0].java.as_mut().expect("a Java suite").broken_off = Duration::from_secs(40);
    assert!((repeated_s(&input) - before - 40.0).abs() < 1e-6);
    input.suites[0].lost = Duration::from_secs(60);
    assert!((repeated_s(&input) - before - 100.0).abs() < 1e-6, "nor is a repetition that hung");
}

#[test]
fn what_was_not_screened_is_no_pass_unless_that_was_wanted() {
    let mut input = unconfirmed(Vec::new());
    let none = report_of(&input);
    assert_eq!(
        (none.verdict, none.suites[0].reason.as_str()),
        (Verdict::Error, "not screened: no rounds were run")
    );
    input.suites[0].java = Some(JavaInput {
        not_screened: Some("unchanged".to_owned()),
        unchanged: BTreeSet::from([CLASS.to_owned()]),
        ..JavaInput::default()
    });
    let unchanged = report_of(&input);
    assert_eq!(
        (unchanged.verdict, unchanged.suites[0].reason.as_str()),
        (Verdict::Pass, "not screened in rounds: unchanged")
    );
    input.suites[0].java.as_mut().expect("a Java suite").is_off = true;
    let off = report_of(&input);
    assert_eq!((off.verdict, off.exit_code), (Verdict::NotJudged, 0), "nothing was looked at");
    assert_eq!(evicts(&off).verdict, Verdict::NotJudged);

    let mut few = Jvm::new();
    (0..3).for_each(|round| few.window(CLASS, "", round, |_| ()));
    let few = report_of(&unconfirmed(vec![few.end()]));
    let reason = "the rounds were not measured: round 4 has no end of com.example.TileCacheTest";
    assert!(
        few.verdict == Verdict::Error && few.suites[0].reason.contains(reason),
        "{}",
        few.suites[0].reason
    );

    let mut other = Jvm::new();
    (0..6).for_each(|round| other.window("com.example.OtherTest", "", round, |_| ()));
    let other = report_of(&unconfirmed(vec![other.end()]));
    assert_eq!(other.suites[0].reason, "not in the rounds: com.example.TileCacheTest");

    let mut failing = Jvm::new();
    failing.outcome = Outcome::Failed;
    (0..6).for_each(|round| failing.window(CLASS, "", round, |jvm| jvm.tiles(2)));
    let failing = report_of(&unconfirmed(vec![failing.end()]));
    assert_eq!(failing.verdict, Verdict::Warn);
    assert_eq!(failing.suites[0].tests[2].reason, "not screened: it fails when it is repeated");
    assert_eq!(evicts(&failing).verdict, Verdict::NotJudged);

    let mut once = Jvm::new();
    for round in 0..6 {
        once.outcome = if round == 1 { Outcome::Failed } else { Outcome::Passed };
        once.window(CLASS, "", round, |_| ());
        if round == 1 {
            once.window(CLASS, "evicts", round, |_| ());
        }
    }
    let once = report_of(&unconfirmed(vec![once.end()]));
    assert_eq!(evicts(&once).reason, "not screened: it fails when it is repeated");
    let verdicts: Vec<Verdict> = once.suites[0].tests.iter().map(|test| test.verdict).collect();
    assert_eq!(verdicts.iter().filter(|v| **v == Verdict::NotJudged).count(), 1, "the others were screened");
    assert_eq!(once.verdict, Verdict::Warn, "{}", once.suites[0].reason);
}

#[test]
fn a_class_on_a_device_that_fails_after_its_tests_ends_the_run_with_1_and_all_were_measured() {
    let mut input = suite(vec![rounds(|_, _| ())], BTreeMap::<String, _>::new());
    (input.suites[0].runner, input.command_status) = (Runner::Instrumentation, Some(1));
    let failure = "a.B failed outside of its tests".to_owned();
    input.suites[0].java.as_mut().expect("a JVM suite").failures.insert(failure.clone());
    let report = report_of(&input);
    assert_eq!((report.verdict, report.exit_code), (Verdict::Pass, 1));
    assert_eq!((&report.suites[0].reason, report.errors.len()), (&failure, 0));
    input.suites[0].java.as_mut().expect("a JVM suite").failures.clear();
    assert_eq!(report_of(&input).errors.len(), 1, "nothing else says why it ends with 1");
}

#[test]
fn what_does_not_run_when_it_is_repeated_is_not_judged() {
    let rounds = |told: Option<&str>, class: Outcome| {
        let mut jvm = Jvm::new();
        for round in 0..6 {
            jvm.outcome = class;
            jvm.window(CLASS, "", round, |_| ());
            jvm.outcome = Outcome::Skipped;
            told.filter(|_| round == 1).into_iter().for_each(|test| jvm.window(CLASS, test, round, |_| ()));
        }
        report_of(&unconfirmed(vec![jvm.end()]))
    };
    let not_judged = |report: &RunReport| {
        report.suites[0].tests.iter().filter(|test| test.verdict == Verdict::NotJudged).count()
    };
    let one = rounds(Some("evicts"), Outcome::Passed);
    assert_eq!(evicts(&one).reason, "not screened: it is skipped when it is repeated");
    assert_eq!((one.verdict, not_judged(&one)), (Verdict::Warn, 1), "the others were screened");
    let told = "1 test not judged, for it is skipped when it is repeated: com.example.TileCacheTest.evicts";
    assert_eq!(one.suites[0].reason, told);
    let all = rounds(None, Outcome::Skipped);
    assert_eq!((all.verdict, not_judged(&all)), (Verdict::Warn, 2), "{}", all.suites[0].reason);
    let known = rounds(Some("isSkippedInTheBuild"), Outcome::Passed);
    assert_eq!((known.verdict, not_judged(&known)), (Verdict::Pass, 0), "{}", known.suites[0].reason);
}

#[test]
fn a_baseline_excuses_the_classes_that_it_compared_and_no_other_test() {
    let mut input = unconfirmed(Vec::new());
    let mut build = Jvm::new();
    build.test(CLASS, "evicts");
    build.test("", "Search: finds nothing");
    input.suites[0].screen = vec![build.end().into()];
    let java = input.suites[0].java.insert(JavaInput::default());
    java.not_screened = Some("1 of 1 test class left no more than the baseline says".to_owned());
    java.unchanged.insert(CLASS.to_owned());
    let report = report_of(&input);
    assert_eq!(report.verdict, Verdict::Error);
    assert!(
        report.suites[0].reason.contains("not in the rounds: Search: finds nothing"),
        "{}",
        report.suites[0].reason
    );
    assert_eq!(evicts(&report).verdict, Verdict::Pass);
}

#[test]
fn a_test_that_the_build_ran_again_ended_as_it_did_at_last() {
    for (outcomes, outcome, exit_code) in [
        ([Outcome::Failed, Outcome::Passed], memgate_model::Outcome::Passed, 0),
        ([Outcome::Passed, Outcome::Failed], memgate_model::Outcome::Failed, 1),
    ] {
        let mut input = unconfirmed(vec![rounds(|_, _| ())]);
        let mut build = Jvm::new();
        for outcome in outcomes {
            build.outcome = outcome;
            build.test(CLASS, "evicts");
        }
        input.suites[0].screen = vec![build.end().into()];
        let report = report_of(&input);
        assert_eq!((evicts(&report).outcome, report.exit_code), (outcome, exit_code), "{outcomes:?}");
    }
}

#[test]
fn a_confirming_run_that_breaks_off_is_an_error() {
    let mut jvm = Jvm::new();
    (0..12).for_each(|i| jvm.window(CLASS, "evicts", i, |jvm| jvm.tiles(12)));
    let cut = ConfirmationInput::Repeated(Arc::new(jvm.cut().into()));
    let input = suite(vec![rounds(|jvm, _| jvm.tiles(12))], [(TEST, cut)]);
    let report = report_of(&input);
    assert_eq!(evicts(&report).verdict, Verdict::Error);
    assert!(
        evicts(&report).reason.starts_with("when it was repeated: after 12 iterations"),
        "{}",
        evicts(&report).reason
    );
}
