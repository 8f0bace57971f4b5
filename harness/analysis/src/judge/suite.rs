//! Judges one suite: its tests in the order they ran, and the suite as a whole.

use std::collections::{BTreeMap, HashMap};

use memgate_model::{
    BoundaryQuality, Metric, MetricValue, Per, Problem, SuiteReport, TestReport, Verdict, format_bytes,
    format_number_of,
};
use memgate_wire::{GoodbyeReason, Outcome};

use super::context::JudgeContext;
use super::judgement::{Executions, applied};
use super::{children, curve, has_failed, heap, java, pools, test};
use crate::input::{ProcessInput, SuiteInput};
use crate::measured::{self, When};
use crate::own_tests;
use crate::policy::thresholds;
use crate::range::Range;
use crate::record::{OpenTest, ProcessRecord, Window};
use crate::sampling::Estimate;
use crate::screen::{too_much, undecided};
use crate::stats::float;

/// Why a relative threshold does not apply.
const LACKS: &str = "its threshold is relative, and the baseline has no figure";
/// How to get a figure.
const REMEDY: &str = "(`memgate baseline accept`)";

/// A problem with its place.
pub(super) fn problem(r#where: &str, what: &str, hint: &str) -> Problem {
    Problem { r#where: r#where.to_owned(), what: what.to_owned(), hint: hint.to_owned() }
}

/// A suite with its verdict.
pub(super) struct JudgedSuite {
    pub(super) report: SuiteReport,
    /// A process of it failed, but no test did.
    pub(super) failed_without_a_test: bool,
}

/// Judges a suite.
pub(super) fn judge(context: &mut JudgeContext<'_>, suite: &SuiteInput) -> JudgedSuite {
    let as_tests: Vec<(Vec<Window>, Vec<OpenTest>)> =
        suite.screen.iter().map(|p| whole_process(suite, p)).collect();
    let mut notes: Vec<(Verdict, String)> =
        suite.problems.iter().map(|problem| (Verdict::Error, with_hint(problem))).collect();
    let runs = executions(suite, &as_tests);
    let mut tests: Vec<TestReport> = match &suite.java {
        Some(java) => java::tests(context, suite, java, &runs, &mut notes),
        None => runs.iter().map(|(id, runs)| test::judge(context, suite, id, runs)).collect(),
    };
    notes.extend(suite.screen.iter().filter_map(of_process).map(|what| (Verdict::Error, what)));
    notes.extend(suite.screen.iter().filter_map(after_the_last_test).map(|what| (Verdict::Warn, what)));
    notes.extend(children::left(context, suite).map(|what| (Verdict::Warn, what)));
    notes.extend(pools::hide_objects(context, suite).map(|what| (Verdict::Warn, what)));
    notes.extend(pools::hide_slices(context, suite).map(|what| (Verdict::Warn, what)));
    if tests.is_empty() && notes.iter().all(|(verdict, _)| *verdict < Verdict::Error) {
        let (verdict, why) = without_tests(suite);
        notes.push((verdict, why.to_owned()));
    }
    let failed_status = failed_without_a_test(suite, &tests);
    heap::add_to(&mut tests, &suite.heap);
    tests.extend(suite.heap.iter().filter_map(|check| heap::entry(context, &suite.name, check)));
    if let Some(status) = failed_status {
        let what = format!("its process ended with status {status} though no test failed");
        notes.push((Verdict::NotJudged, what));
    }
    let metrics = metrics(context, suite, &mut notes);
    notes.extend(of_no_accepted_figure(context, suite, &tests).into_iter().map(|what| (Verdict::Warn, what)));
    let own = notes.iter().map(|(verdict, _)| *verdict).max().unwrap_or(Verdict::Pass);
    let mut reasons: Vec<String> = notes.into_iter().map(|(_, what)| what).collect();
    reasons.dedup();
    let report = SuiteReport {
        name: suite.name.clone(),
        runner: suite.runner,
        boundary: suite.boundary,
        verdict: tests.iter().map(|t| t.verdict).fold(own, Verdict::max),
        own_verdict: Some(own),
        screened_s: suite.screened.as_secs_f64(),
        screen_executions: screen_executions(suite, &runs),
        native_sampling: interval(suite),
        stacks_of_suspects: suite.screen.iter().any(|process| process.record.takes_stacks_later()),
        selects_itself: !suite.takes_filter
            && suite.screen.iter().any(|process| process.record.selects_tests()),
        screen_cost: suite
            .java
            .as_ref()
            // Only the durations of single tests are known from results, not the time between them.
            .filter(|_| suite.boundary != BoundaryQuality::Observed)
            .and_then(|java| java::cost::cost(&suite.screen, &java.rounds)),
        app_memory: suite.app_memory.clone(),
        hunt: suite.hunt.clone(),
        reason: reasons.join("; "),
        metrics,
        curve: curve::of_suite(&suite.screen),
        test_ends: curve::test_ends(&suite.screen),
        clean_metrics: BTreeMap::new(),
        shards: Vec::new(),
        tests,
    };
    JudgedSuite { report, failed_without_a_test: failed_status.is_some() }
}

/// The reason of a suite has no place for hints of its own.
fn with_hint(Problem { what, hint, .. }: &Problem) -> String {
    if hint.is_empty() { what.clone() } else { format!("{what}; {hint}") }
}

/// Why a suite has no test although nothing went wrong.
fn without_tests(suite: &SuiteInput) -> (Verdict, &'static str) {
    let all = |has: &dyn Fn(&ProcessRecord) -> bool| suite.screen.iter().all(|process| has(&process.record));
    match () {
        () if suite.screen.is_empty() || suite.java.is_some() => (Verdict::Error, "no test ran"),
        () if all(&had_nothing) => {
            (Verdict::NotJudged, "no test to run: its own filter, its shard, or DISABLED_ leave none")
        }
        () if all(&ProcessRecord::asked_for_no_test) => (
            Verdict::NotJudged,
            "not measured: it contains GoogleTest, and ended without running tests of it",
        ),
        () => (Verdict::Error, "no test ran"),
    }
}

/// How often the tests ran in the screen. `None`: no test ran more than once, or the suite is screened in rounds.
fn screen_executions(suite: &SuiteInput, runs: &[(String, Executions<'_>)]) -> Option<(u64, u64)> {
    let ended = runs.iter().map(|(_, runs)| runs.ended.len() as u64);
    let (fewest, most) = (ended.clone().min()?, ended.max()?);
    (suite.java.is_none() && most > 1).then_some((fewest, most))
}

/// GoogleTest began a round without any test in it, and did not break off.
fn had_nothing(record: &ProcessRecord) -> bool {
    record.iterations > 0 && !record.broke_off_between_tests()
}

/// Executions of every test, in the order of their first execution.
fn executions<'a>(
    suite: &'a SuiteInput,
    as_tests: &'a [(Vec<Window>, Vec<OpenTest>)],
) -> Vec<(String, Executions<'a>)> {
    let mut order: Vec<(String, Executions<'a>)> = Vec::new();
    let mut known = HashMap::<String, usize>::new();
    let mut at = |id: String, order: &mut Vec<(String, Executions<'a>)>| {
        *known.entry(id.clone()).or_insert_with(|| {
            order.push((id, Executions::default()));
            order.len() - 1
        })
    };
    for (process, whole) in suite.screen.iter().zip(as_tests).filter(|(p, _)| p.record.is_main()) {
        let record = &process.record;
        let (windows, open) = match suite.boundary {
            BoundaryQuality::Process => (&whole.0, &whole.1),
            _ => (&record.windows, &record.open),
        };
        // A window of a whole Java test class is no test.
        let is_test = |w: &Window| suite.java.is_none() || !w.test.is_empty();
        for window in windows.iter().filter(|w| is_test(w)) {
            let index = at(window.id(), &mut order);
            order[index].1.ended.push((process, window));
        }
        for test in open.iter().filter(|open| is_test(&open.window)) {
            let index = at(test.id.clone(), &mut order);
            order[index].1.broken_off.push((process, test));
        }
    }
    if suite.java.is_some() {
        order.iter_mut().for_each(|(_, runs)| runs.leave_out_retried());
    }
    order
}

/// The process as one execution of a test with the suite's name. A process that became another program is reported by
/// that program's own record.
fn whole_process(suite: &SuiteInput, process: &ProcessInput) -> (Vec<Window>, Vec<OpenTest>) {
    let record = &process.record;
    if record.goodbye.as_ref().is_some_and(|g| g.reason == GoodbyeReason::Exec) {
        return (Vec::new(), Vec::new());
    }
    // A process that was killed after its last boundary may have had more to record.
    let end = record.end.as_ref().filter(|_| record.goodbye.is_some());
    let mut window = Window::of_process(record, &suite.name, end);
    if end.is_none() {
        return (Vec::new(), vec![OpenTest { id: window.id(), window }]);
    }
    let failed = measured::status(process).is_some_and(|status| status != 0);
    window.outcome = Some(if failed { Outcome::Failed } else { Outcome::Passed });
    (vec![window], Vec::new())
}

/// Problems that concern a process but none of its tests.
fn of_process(process: &ProcessInput) -> Option<String> {
    let record = &process.record;
    if !record.is_main() {
        return None;
    }
    if let Some(damage) = &record.damaged {
        return Some(format!("its recording is damaged: {damage}"));
    }
    if !record.open.is_empty() {
        return None;
    }
    let last = record.windows.last();
    if last.is_none()
        && let Some(why) = measured::unmeasured(record, None)
    {
        return Some(why);
    }
    let lost = record.goodbye.is_none() && (last.is_some() || record.iterations > 0);
    (lost || record.broke_off_between_tests()).then(|| {
        let (_, how) = measured::broken_off(process, When::AfterATest);
        let when = last.map_or_else(|| "before its first test".to_owned(), |w| format!("after {}", w.id()));
        format!("{when}, {how}")
    })
}

/// Fewest blocks after the last test that are told: the runner itself keeps some until its end.
const MANY_BLOCKS: u64 = 100;

/// Blocks that a program with `memgate.h` allocated after its last test, and kept until its end.
fn after_the_last_test(process: &ProcessInput) -> Option<String> {
    let record = &process.record;
    // A test that is open may have made them, and a sample stands for many blocks.
    let is_told = record.is_main() && record.open.is_empty() && record.interval().is_none();
    let last = &record.windows.last().filter(|_| is_told && own_tests::repeats_itself(record))?.end;
    let end = &record.end.as_ref()?.counters;
    let count = end.live_allocations().saturating_sub(last.live_allocations());
    let bytes = end.live_bytes().saturating_sub(last.live_bytes());
    (count >= MANY_BLOCKS).then(|| {
        format!(
            "not judged: after its last test it left {} in {count} allocations, which belong to no test",
            format_bytes(float(bytes))
        )
    })
}

/// An exit status other than 0 that no failed or crashed test explains.
fn failed_without_a_test(suite: &SuiteInput, tests: &[TestReport]) -> Option<i32> {
    if tests.iter().any(|t| has_failed(t.outcome)) {
        return None;
    }
    let main = suite.screen.iter().filter(|p| p.record.is_main());
    main.filter_map(measured::status).find(|status| *status != 0)
}

/// Peaks over the processes of the suite, checked against the thresholds of the suite as a whole.
fn metrics(
    context: &JudgeContext<'_>,
    suite: &SuiteInput,
    notes: &mut Vec<(Verdict, String)>,
) -> BTreeMap<Metric, MetricValue> {
    let mut metrics = BTreeMap::new();
    for metric in Metric::ALL {
        let peaks = suite.screen.iter().filter_map(|p| peak(&p.record, metric));
        let Some(value) = peaks.max().map(float) else { continue };
        let limits = thresholds(context.policy, &suite.name, "", metric, Per::Suite);
        let peak = peak_between(context, suite, metric, value);
        for threshold in &limits {
            if peak.low > threshold.limit {
                notes.push((
                    threshold.level.verdict(),
                    too_much(metric, value, "at the peak", threshold.limit),
                ));
            } else if peak.high > threshold.limit {
                notes.push((Verdict::Warn, undecided(metric, peak, "at the peak", threshold.limit)));
            }
        }
        if context.policy.lacks_figure(&suite.name, "", metric, Per::Suite) {
            notes.push((Verdict::Warn, format!("{metric} is not judged: {LACKS} of this suite {REMEDY}")));
        }
        let figure = peak.figure(metric, Per::Suite, context.policy.confidence);
        metrics.insert(metric, MetricValue { threshold: applied(&limits, value), ..figure });
    }
    metrics
}

/// Mean bytes between two samples of its screen. `None`: everything was recorded.
fn interval(suite: &SuiteInput) -> Option<u64> {
    let rounds = suite.java.iter().flat_map(|java| &java.rounds);
    suite.screen.iter().chain(rounds).find_map(|process| process.record.interval())
}

/// A peak with its bounds.
fn peak_between(context: &JudgeContext<'_>, suite: &SuiteInput, metric: Metric, value: f64) -> Range {
    let interval = interval(suite);
    // A recorded block stands for at most as many blocks as there are bytes between two samples. So the interval is
    // valid for blocks, too.
    let is_sampled = matches!(metric, Metric::NativeLiveBytes | Metric::NativeLiveAllocations);
    let estimate = interval.filter(|_| is_sampled).map(|interval| Estimate::of_counter(value, interval));
    estimate.map_or(Range::exact(value), |estimate| estimate.range(context.policy.confidence))
}

/// Figures of tests that must be compared with the baseline, but are missing there. A test that keeps nothing needs no
/// figure.
fn of_no_accepted_figure(
    context: &JudgeContext<'_>,
    suite: &SuiteInput,
    tests: &[TestReport],
) -> Vec<String> {
    let of_metric = |metric: Metric| {
        let lacks = |test: &&TestReport| {
            test.metrics.get(&metric).is_some_and(|figure| {
                figure.threshold.as_ref().is_none_or(|threshold| figure.value > threshold.limit)
                    && context.policy.lacks_figure(&suite.name, &test.id, metric, figure.per)
            })
        };
        let count = tests.iter().filter(lacks).count();
        (count > 0).then(|| {
            let tests = format_number_of(count, "test");
            format!("{metric} of {tests} is not judged: {LACKS} of them {REMEDY}")
        })
    };
    Metric::ALL.into_iter().filter_map(of_metric).collect()
}

fn peak(record: &ProcessRecord, metric: Metric) -> Option<u64> {
    let peak = &record.peak;
    match metric {
        Metric::NativeLiveBytes | Metric::NativeLiveAllocations if record.is_java_only() => None,
        Metric::NativeLiveBytes => peak.live_bytes,
        Metric::NativeLiveAllocations => peak.live_allocations,
        Metric::NativeMappedBytes => peak.mapped_bytes,
        Metric::OsRss => peak.rss_bytes,
        Metric::OsPss => peak.pss_bytes,
        Metric::OsThreads => peak.threads,
        Metric::OsFds => peak.fds,
        _ => None,
    }
}
