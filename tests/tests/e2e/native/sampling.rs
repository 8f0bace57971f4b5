//! With a sampling screen, tests that leave enough samples are confirmed exactly, figures of tests that are
//! not repeated are estimates with bounds, and the reports say what may go unseen.

use memgate_e2e::{Project, Run, samples};
use memgate_model::{Metric, MetricValue, TestReport, Verdict};

/// Tests that leave much or little.
const SUITE: &str = include_str!("../../../samples/native/sampling.cc");
const CONFIG: &str = "version: 1\nmeasure:\n  native: { sampling: 512 KiB }\n";
const MUCH: f64 = 8_000_000.0;
const LARGE: f64 = 67_108_864.0;

fn live(test: &TestReport) -> &MetricValue {
    &test.metrics[&Metric::NativeLiveBytes]
}

fn passes(run: &Run, tests: &[&str]) {
    for name in tests {
        let test = run.test(name);
        assert_eq!((test.verdict, test.leaks.len()), (Verdict::Pass, 0), "{name}: {}\n{run}", test.reason);
    }
}

#[test]
fn what_leaves_samples_is_confirmed_exactly_and_the_report_says_what_goes_unseen() {
    let project = Project::new("sampling");
    project.write("memgate.yaml", CONFIG);
    let run = project.run(&samples::own_suite("sampling", SUITE));
    run.ends_with(1);
    for (name, count, bytes) in [("Leaks.Much", 8000.0, MUCH), ("Leaks.Large", 1.0, LARGE)] {
        let test = run.test(name);
        assert!(test.verdict == Verdict::Fail && test.confirmed, "{run}");
        assert_eq!((live(&test).value, live(&test).low), (bytes, bytes), "{run}");
        let [leak] = test.leaks.as_slice() else { panic!("one leak: {run}") };
        assert_eq!((leak.count_per_iteration, leak.bytes_per_iteration), (count, bytes), "{leak:#?}");
        assert!(leak.frames.iter().any(|f| f.function.as_deref() == Some("paint::tile(unsigned long)")));
    }
    passes(&run, &["Leaks.Unseen", "Clean.Frees", "Clean.Moves"]);
    assert_eq!(run.suite().native_sampling, Some(512 << 10));
    let unseen =
        "native allocations sampled, every 512.0 KiB on average: a leak goes unseen of 1.5 MiB with 5 %";
    run.says(unseen);
    let page = project.memgate(&["report", "--format", "html"]).stdout;
    assert!(page.contains(unseen), "{page:.2000}");
}

#[test]
fn without_a_confirmation_figures_are_estimates_and_what_they_leave_open_warns() {
    let project = Project::new("sampling-estimates");
    // The limit for Much is within the bounds of any sample of it; Large is certainly above its limit.
    let limits = "thresholds:\n  tests:\n    - match: \"*Leaks.Much\"\n      native.live_bytes: 8 MB\n    - match: \"*Leaks.Large\"\n      native.live_bytes: { fail: 1 MB, per: test }\n";
    project.write("memgate.yaml", format!("{CONFIG}{limits}"));
    let suite = samples::own_suite("sampling", SUITE);
    let run = project.memgate(&["run", "--no-confirm", "--", &suite.to_string_lossy()]);
    run.ends_with(1);
    let much = run.test("Leaks.Much");
    let MetricValue { low, high, confidence, .. } = *live(&much);
    assert!(low < MUCH && MUCH < high && confidence == 0.99, "{low} {high} {confidence}\n{run}");
    assert_eq!(much.verdict, Verdict::Warn, "{run}");
    assert!(much.reason.contains("not decided by samples: left about "), "{}", much.reason);
    let large = run.test("Leaks.Large");
    assert_eq!((large.verdict, live(&large).value.round()), (Verdict::Fail, LARGE), "{run}");
    passes(&run, &["Leaks.Unseen", "Clean.Frees", "Clean.Moves"]);
}

#[test]
fn an_interval_that_sees_nothing_is_refused() {
    let project = Project::new("sampling-refused");
    project.write("memgate.yaml", CONFIG.replace("512 KiB", "2 GiB"));
    let run = project.memgate(&["run", "--", "true"]);
    run.ends_with(2).says("expected 0, or 4 KiB to 1 GiB");
}
