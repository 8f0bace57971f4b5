//! Quick tests that leave nothing do not each wait for a sample by the harness; a test that leaves something
//! is still named.

use std::collections::BTreeMap;

use memgate_e2e::{Project, Run, is_long, samples};
use memgate_model::{LeakKind, Metric, Verdict};

use crate::agent::spool;
use crate::leaks_session;

/// A limit that is never exceeded but needs a sample at each test, and stacks in the screen.
const LOOK_AT_EACH: &str =
    "version: 1\nmeasure:\n  native: { stacks: always }\nthresholds:\n  os.rss: 1 TiB\n";

/// Tests that do nothing, with `others` among them.
fn quick_tests(others: &str) -> String {
    format!(
        "#include <gtest/gtest.h>\n#include <fcntl.h>\n#include <signal.h>\n#include <stdio.h>\n#include <sys/syscall.h>\n\
         #include <unistd.h>\n\
         #define QUICK(name) TEST(Quick, name) {{}}\n\
         QUICK(A0) QUICK(A1) QUICK(A2) QUICK(A3) QUICK(A4) QUICK(A5) QUICK(A6) QUICK(A7) QUICK(A8) QUICK(A9)\n\
         {others}\n\
         QUICK(B0) QUICK(B1) QUICK(B2) QUICK(B3) QUICK(B4) QUICK(B5) QUICK(B6) QUICK(B7) QUICK(B8) QUICK(B9)\n"
    )
}

/// How often the harness sampled the only process of the screen.
fn looks(project: &Project) -> usize {
    let [stream] = project.streams().try_into().unwrap();
    spool::frames(&stream.with_extension("os.mgf")).iter().filter(|frame| is_look(frame)).count()
}

fn is_look(frame: &memgate_wire::Frame) -> bool {
    matches!(frame, memgate_wire::Frame::OsSample(sample) if sample.boundary != 0)
}

#[track_caller]
fn only(run: &Run, leaks: &str) {
    for test in run.suite().tests {
        let expected = if test.id == leaks { Verdict::Fail } else { Verdict::Pass };
        assert_eq!(test.verdict, expected, "{}: {}\n{run}", test.id, test.reason);
    }
}

#[test]
fn quick_tests_end_without_a_look_at_each() {
    let project = Project::new("looks");
    let run = project.run(&samples::own_suite("quick", &quick_tests("")));
    run.ends_with(0);
    assert_eq!(run.suite().tests.len(), 20);
    let looks = looks(&project);
    assert!((1..20).contains(&looks), "{looks} looks at 20 tests");
}

#[test]
fn what_a_quick_test_opens_is_named() {
    // Opens with a function that the agent hooks, then with a direct system call.
    for (name, opens, again) in [
        (
            "quick-hooked",
            "volatile FILE *kept; TEST(Quick, Opens) { kept = fopen(\"/dev/null\", \"r\"); }",
            false,
        ),
        (
            "quick-raw",
            "TEST(Quick, Opens) { EXPECT_GT(syscall(SYS_openat, AT_FDCWD, \"/dev/null\", O_RDONLY, 0), 0); }",
            true,
        ),
    ] {
        let project = Project::new(name);
        let run = project.run(&samples::own_suite(name, &quick_tests(opens)));
        run.ends_with(1);
        only(&run, "Quick.Opens");
        let opens = run.test("Quick.Opens");
        assert_eq!(opens.metrics[&Metric::OsFds].value, 1.0, "{run}");
        assert!(opens.leaks.iter().any(|leak| leak.kind == LeakKind::Os), "{run}");
        assert_eq!(run.stderr.contains("screened again, with a look at each"), again, "{run}");
    }
}

#[test]
fn tests_before_a_crash_are_looked_at_by_running_them_again() {
    let project = Project::new("quick-crash");
    let run = project
        .run(&samples::own_suite("quick-crash", &quick_tests("TEST(Quick, Dies) { raise(SIGKILL); }")));
    run.ends_with(1);
    let before: Vec<_> =
        run.suite().tests.into_iter().filter(|test| test.id.starts_with("Quick.A")).collect();
    assert_eq!(before.len(), 10, "{run}");
    assert!(before.iter().all(|test| test.verdict == Verdict::Pass), "{run}");
    assert!(before.iter().all(|test| test.metrics.contains_key(&Metric::OsFds)), "{run}");
}

/// A run's result for each test: its verdict, its figures, its leaks.
fn verdicts(run: &Run) -> BTreeMap<String, (Verdict, Vec<String>)> {
    let told = |test: memgate_model::TestReport| {
        let figures = [Metric::NativeLiveBytes, Metric::OsFds, Metric::OsThreads, Metric::NativeMappedBytes];
        // Memory that threads take for themselves differs between runs.
        let value = |metric| test.metrics.get(&metric).map(|it| format!("{:.1e}", it.value));
        let figures = figures.map(|metric| format!("{metric}: {:?}", value(metric)));
        let leaks = test.leaks.iter().map(|leak| format!("{} {}", leak.id, leak.count_per_iteration));
        let mut told: Vec<String> = figures.into_iter().chain(leaks).collect();
        told.sort();
        (test.id, (test.verdict, told))
    };
    run.suite().tests.into_iter().map(told).collect()
}

#[test]
fn a_look_at_every_test_tells_the_same() {
    let each = |name: &str| {
        let project = Project::new(&format!("looks-each-{name}"));
        project.write("memgate.yaml", LOOK_AT_EACH);
        project.run(&samples::suite(name))
    };
    assert_eq!(verdicts(&leaks_session().1), verdicts(&each("leaks")));
    if is_long() {
        for name in ["clean", "epochs", "names", "holders", "mappings", "measure", "sampling"] {
            let now_and_then = Project::new(&format!("looks-{name}")).run(&samples::suite(name));
            assert_eq!(verdicts(&now_and_then), verdicts(&each(name)), "{name}");
        }
    }
}
