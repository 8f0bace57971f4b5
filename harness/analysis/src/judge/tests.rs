//! Whole runs, described as streams, and the verdicts that they must get.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use memgate_model::Outcome as Ended;
use memgate_model::{
    BoundaryQuality, Leak, LeakKind, Level, Metric, Per, RunReport, Runner, TestReport, ThresholdSource,
    Verdict, WaiverState,
};
use memgate_wire::{
    BoundaryKind, ErrorCode, ErrorFrame, Frame, GoodbyeReason, Hello, MappedKind, Mappings, Outcome,
    ProcessRole, SnapshotScope,
};

use super::judge;
use crate::dsl::{ByNumber, Process, hello};
use crate::input::{ConfirmationInput, Ending, ProcessInput, Repetition, RunInput, SuiteInput};
use crate::policy::{
    Bound, FramePattern, GatePolicy, Limit, NamePattern, Rule, TestPattern, Waiver, WaiverMatch,
};
use crate::record::ProcessRecord;
use crate::screen::screen;

pub(super) const TEST: &str = "Map.insert";

pub(crate) fn suite(screen: Vec<ProcessInput>) -> SuiteInput {
    SuiteInput {
        name: "engine".to_owned(),
        runner: Runner::Gtest,
        boundary: BoundaryQuality::Exact,
        screened: Duration::from_millis(1240),
        screen,
        stacks: Vec::new(),
        confirmations: BTreeMap::new(),
        lost: Duration::ZERO,
        takes_filter: false,
        problems: Vec::new(),
        java: None,
        hunt: None,
        app_memory: None,
        heap: Vec::new(),
    }
}

pub(crate) fn run_of(suite: SuiteInput) -> RunInput {
    RunInput { project: "tiles".to_owned(), suites: vec![suite], ..RunInput::default() }
}

pub(super) fn report(input: &RunInput, policy: &GatePolicy) -> RunReport {
    figures_are_told_from_words(judge(input, policy, &mut ByNumber))
}

/// The report by the default policy.
pub(super) fn report_of(input: &RunInput) -> RunReport {
    report(input, &GatePolicy::default())
}

/// A policy with this limit alone.
pub(super) fn limited(limit: Limit) -> GatePolicy {
    GatePolicy { defaults: vec![limit], ..GatePolicy::default() }
}

/// A policy with these limits for a metric of every test.
fn ruled(metric: Metric, limits: Vec<Limit>) -> GatePolicy {
    let rule = Rule { metric, matches: NamePattern::new(|_| true), of_tests: HashMap::new(), limits };
    GatePolicy { rules: vec![rule], ..GatePolicy::default() }
}

/// The default policy without a limit for this metric.
fn without_limit(metric: Metric) -> GatePolicy {
    let mut policy = GatePolicy::default();
    policy.defaults.retain(|limit| limit.metric != metric);
    policy
}

pub(crate) fn waiving(waivers: impl IntoIterator<Item = Waiver>) -> GatePolicy {
    GatePolicy { waivers: waivers.into_iter().collect(), ..GatePolicy::default() }
}

/// A policy that waives these leaks by their ids.
pub(super) fn waiving_ids<'l>(leaks: impl IntoIterator<Item = &'l Leak>) -> GatePolicy {
    waiving(leaks.into_iter().map(|leak| waiver(WaiverMatch::Leak(leak.id.clone()), None)))
}

/// `reason_beside_figures` is everything without the form `48.0 KiB per iteration (allowed 0 B)`.
pub(super) fn figures_are_told_from_words(report: RunReport) -> RunReport {
    let words = |part: &'_ str| match part.split_once(" (allowed ") {
        Some((figure, rest))
            if PER.iter().any(|per| figure.ends_with(per)) && !figure.starts_with("inconclusive") =>
        {
            // `…, in 8 of 2000 executions`
            rest.split_once("), ").map(|(_, more)| more.to_owned())
        }
        _ => Some(part.to_owned()),
    };
    for test in report.suites.iter().flat_map(|suite| &suite.tests) {
        let words: Vec<String> = test.reason.split("; ").filter_map(words).collect();
        let beside = test.reason_beside_figures.as_ref().unwrap_or(&test.reason);
        assert_eq!(*beside, words.join("; "), "{}: {}", test.id, test.reason);
    }
    report
}

/// Units of figures.
const PER: [&str; 4] = [" per iteration", " left by one execution", " per repetition", " executions"];

/// The screen of one test.
pub(super) fn screened(body: impl FnOnce(&mut Process)) -> ProcessRecord {
    let mut p = Process::screen();
    p.run(TEST, 0, body);
    p.end()
}

/// The test repeated alone.
pub(super) fn repeated(iterations: u32, body: impl Fn(&mut Process, u32)) -> ProcessRecord {
    let mut p = Process::confirm();
    (0..iterations).for_each(|i| p.run(TEST, i, |p| body(p, i)));
    p.end()
}

fn screened_and_repeated(iterations: u32, body: impl Fn(&mut Process, u32)) -> RunInput {
    repeated_alone(screened(|p| body(p, 0)), repeated(iterations, body))
}

/// A run of one process, in which nothing is confirmed.
pub(super) fn run_once(screen: impl Into<ProcessInput>) -> RunInput {
    run_of(suite(vec![screen.into()]))
}

/// A run whose test was repeated in another process.
pub(super) fn repeated_alone(screen: ProcessRecord, again: impl Into<ProcessInput>) -> RunInput {
    confirmed_by(screen, ConfirmationInput::Repeated(Arc::new(again.into())))
}

pub(super) fn confirmed_by(screen: ProcessRecord, confirmation: ConfirmationInput) -> RunInput {
    let mut suite = suite(vec![screen.into()]);
    suite.confirmations.insert(TEST.to_owned(), confirmation);
    run_of(suite)
}

pub(super) fn only(report: &RunReport) -> &TestReport {
    let [suite] = report.suites.as_slice() else { panic!("one suite") };
    let [test] = suite.tests.as_slice() else { panic!("one test: {:?}", suite.tests) };
    test
}

/// [`TEST`] after another test, this often in one process.
pub(super) fn after_another(
    mut p: Process,
    iterations: u32,
    body: impl Fn(&mut Process, u32),
) -> ProcessRecord {
    for i in 0..iterations {
        p.run("Map.before", i, |_| ());
        p.run(TEST, i, |p| body(p, i));
    }
    p.end()
}

/// A run whose test was repeated alone, and then with the tests before it.
pub(super) fn in_company(
    screen: ProcessRecord,
    alone: ProcessRecord,
    together: Result<ProcessRecord, &str>,
) -> RunInput {
    let together = together.map(|record| Arc::new(record.into())).map_err(str::to_owned);
    confirmed_by(screen, ConfirmationInput::InCompany { alone: Arc::new(alone.into()), together })
}

/// The report of [`TEST`].
pub(super) fn of_test(report: &RunReport) -> &TestReport {
    report.suites[0].tests.iter().find(|test| test.id == TEST).unwrap()
}

/// The verdict of the only test, and the exit code that follows from it unless the user's own test failed.
#[track_caller]
pub(super) fn assert_verdict(input: &RunInput, policy: &GatePolicy, verdict: Verdict, reason: &str) {
    let exit_code = match verdict {
        Verdict::Fail => 1,
        Verdict::Error => 2,
        Verdict::Pass | Verdict::Warn | Verdict::NotJudged => 0,
    };
    assert_ends(input, policy, verdict, reason, exit_code);
}

#[track_caller]
pub(super) fn assert_judged(input: &RunInput, verdict: Verdict, reason: &str) {
    assert_verdict(input, &GatePolicy::default(), verdict, reason);
}

#[track_caller]
fn assert_ends(input: &RunInput, policy: &GatePolicy, verdict: Verdict, reason: &str, exit_code: i32) {
    let report = report(input, policy);
    let test = only(&report);
    assert_eq!((test.verdict, test.reason.as_str()), (verdict, reason));
    assert_eq!(report.exit_code, exit_code, "{reason}");
    let worst = verdict.max(report.suites[0].verdict);
    let of_run = if worst == Verdict::NotJudged { Verdict::Pass } else { worst };
    assert_eq!(report.verdict, of_run, "{reason}");
}

type Body = Box<dyn Fn(&mut Process, u32)>;

/// Cases with and without a leak, from streams to verdict and text.
#[test]
fn every_way_to_leak_and_not_to_leak() {
    let cases: Vec<(&str, u32, Body, Verdict, &str)> = vec![
        (
            "leaks every time",
            13,
            Box::new(|p, _| p.alloc(3, 4096, 12)),
            Verdict::Fail,
            "48.0 KiB per iteration (allowed 0 B)",
        ),
        (
            "leaks every third time",
            40,
            Box::new(|p, i| p.alloc(3, 37, u64::from(i.is_multiple_of(3)))),
            Verdict::Fail,
            "12.3 B per iteration (allowed 0 B)",
        ),
        (
            "a vector that doubles",
            64,
            Box::new(|p, i| {
                let capacity = |pushes: u32| u64::from(pushes.next_power_of_two());
                p.alloc(3, 4 * capacity(i + 1), 1);
                if i > 0 {
                    p.free(3, 4 * capacity(i), 1);
                }
            }),
            Verdict::Fail,
            "4.1 B per iteration (allowed 0 B), in 4 of 61 executions",
        ),
        (
            "a cache made the first time",
            8,
            Box::new(|p, i| p.alloc(3, 12 * 1024, u64::from(i == 0))),
            Verdict::Pass,
            "one-time: 12.0 KiB; nothing more in 7 executions: a leak in one of 2 would have been missed with 1 % at most",
        ),
        (
            "a cache of 400 entries that takes 5",
            200,
            Box::new(|p, i| p.alloc(3, 56, 5 * u64::from(i < 80))),
            Verdict::Pass,
            "one-time: 21.9 KiB; nothing more in 120 executions: a leak in one of 26 would have been missed with 1 % at most",
        ),
        (
            "a block that toggles",
            100,
            Box::new(|p, i| if i % 2 == 0 { p.alloc(3, 64, 1) } else { p.free(3, 64, 1) }),
            Verdict::Pass,
            "",
        ),
        (
            "the last value is kept",
            100,
            Box::new(|p, i| {
                let size = |i: u32| 100 + 8 * u64::from(i % 3);
                p.alloc(3, size(i), 1);
                if i > 0 {
                    p.free(3, size(i - 1), 1);
                }
            }),
            Verdict::Pass,
            "one-time: 100 B; nothing more in 99 executions: a leak in one of 22 would have been missed with 1 % at most",
        ),
        (
            "freed late by another thread",
            100,
            Box::new(|p, i| {
                p.alloc(3, 37, 3);
                let late = |i: u32| u64::from(i * i % 3);
                p.free(3, 37, 3 - late(i));
                if i > 0 {
                    p.free(3, 37, late(i - 1));
                }
            }),
            Verdict::Pass,
            "",
        ),
        (
            "a descriptor every time",
            13,
            Box::new(|p, _| p.fds.push("/tmp/log")),
            Verdict::Fail,
            "1 descriptor per iteration (allowed 0)",
        ),
        (
            "a parked thread every time",
            13,
            Box::new(|p, _| p.threads.push("worker-3")),
            Verdict::Fail,
            "1 thread per iteration (allowed 0)",
        ),
        (
            "a descriptor opened once",
            8,
            Box::new(|p, i| {
                if i == 0 {
                    p.fds.push("/tmp/log")
                }
            }),
            Verdict::Pass,
            "one-time: 1 descriptor; nothing more in 7 executions: a leak in one of 2 would have been missed with 1 % at most",
        ),
    ];
    for (what, iterations, body, verdict, reason) in cases {
        let input = screened_and_repeated(iterations, body);
        let report = report_of(&input);
        let test = only(&report);
        assert_eq!((test.verdict, test.reason.as_str()), (verdict, reason), "{what}");
        assert!(test.confirmed, "{what}");
        assert_eq!(report.exit_code, i32::from(verdict == Verdict::Fail), "{what}");
        assert_eq!(test.leaks.is_empty(), verdict == Verdict::Pass, "{what}: {:?}", test.leaks);
        assert!(!test.curve.is_empty() && test.curve.len() <= 500, "{what}");
    }
}

/// Regression test: 128 instances of inotify counted as a one-time cost.
#[test]
fn what_stops_after_many_executions_in_a_row_may_have_met_a_limit() {
    let opens = |most: u32| {
        screened_and_repeated(600, move |p, i| {
            if i < most {
                p.fds.push("/tmp/log");
            }
        })
    };
    let reason = "inconclusive: 125 descriptors more, 125 executions in a row, then none: a limit of the system, or a \
                  pool that is full";
    assert_judged(&opens(126), Verdict::Warn, reason);
    let doubted = report_of(&opens(126));
    let [leak] = &only(&doubted).leaks[..] else { panic!("what it keeps is listed") };
    let waived = "1 leak waived: the figures are without it";
    assert_verdict(&opens(126), &waiving_ids([leak]), Verdict::Pass, waived);
    assert_eq!(only(&report_of(&opens(40))).verdict, Verdict::Pass, "a pool of 40");
    let one = limited(Limit::fail(Metric::OsFds, 1.0, "memgate.yaml:24"));
    assert_eq!(only(&report(&opens(126), &one)).verdict, Verdict::Pass, "one in each execution is allowed");
}

/// A thread of an earlier test continues. The test that runs then gets the verdict, and the report names the test whose
/// code it is.
#[test]
fn a_leak_in_the_code_of_another_test_names_that_test() {
    let leaks_after = |other: &str| {
        let mut screen = Process::screen();
        screen.run(other, 0, |_| ());
        screen.run(TEST, 0, |p| p.alloc(3, 97, 1));
        let again = repeated(20, |p, _| p.alloc(3, 97, 1));
        let input = repeated_alone(screen.end(), again);
        of_test(&report_of(&input)).reason.clone()
    };
    let plain = "97 B per iteration (allowed 0 B)";
    let told =
        format!("{plain}; code of Suite.test allocates it, in a thread or task that goes on after that test");
    assert_eq!(leaks_after("Suite.test"), told);
    assert_eq!(leaks_after("Suite.Other"), plain, "no test of the suite has this code");
}

/// Regression test: a program that sets `repeat` in its own `main` runs a test five times, less often than requested.
/// It passed.
#[test]
fn too_few_executions_tell_no_one_time_cost() {
    let keeps_at = |at: u32| {
        move |p: &mut Process, i: u32| {
            if i == at {
                p.alloc(3, 48, 1)
            }
        }
    };
    let policy = GatePolicy::default();
    let reason = "inconclusive: kept 48 B, and ran 5 times in all; nothing more in 3 executions: only a leak in each of \
                  them would have shown";
    assert_verdict(&screened_and_repeated(5, keeps_at(1)), &policy, Verdict::Warn, reason);
    let once = only(&report(&screened_and_repeated(13, keeps_at(1)), &policy)).verdict;
    assert_eq!(once, Verdict::Pass, "as often as it was asked to");
}

/// A pool that allocated one chunk may allocate another, or not. With the third chunk it is a leak.
#[test]
fn one_step_or_two_in_many_iterations_are_inconclusive() {
    let chunks = |at: &'static [u32]| {
        screened_and_repeated(1000, move |p, i| p.alloc(3, 65_536, u64::from(at.contains(&i))))
    };
    let open = |size: &str, at: u32| {
        format!(
            "inconclusive: {size} KiB more, the last of it in iteration {at} of 1000: a rare leak, or over (allowed 0 B)"
        )
    };
    let policy = GatePolicy::default();
    assert_verdict(&chunks(&[600]), &policy, Verdict::Warn, &open("64.0", 601));
    assert_verdict(&chunks(&[333, 666]), &policy, Verdict::Warn, &open("128.0", 667));
    let report = report(&chunks(&[249, 499, 749]), &policy);
    let test = only(&report);
    assert_eq!(test.verdict, Verdict::Fail, "{}", test.reason);
    assert!(test.reason.ends_with("(allowed 0 B), in 3 of 997 executions"), "{}", test.reason);
}

#[test]
fn a_leak_names_place_size_and_interval() {
    let input = screened_and_repeated(38, |p, _| p.alloc(3, 4096, 12));
    let report = report_of(&input);
    let test = only(&report);
    let [leak] = test.leaks.as_slice() else { panic!("one leak: {:?}", test.leaks) };
    assert_eq!(leak.title, "12 × 4096 B");
    assert_eq!((leak.bytes_per_iteration, leak.count_per_iteration), (49152.0, 12.0));
    assert!(leak.id.starts_with("n1-"));
    let functions: Vec<_> = leak.frames.iter().filter_map(|f| f.function.as_deref()).collect();
    assert_eq!(functions, ["leak_3(int)", "Suite_test_Test::TestBody()"]);
    let figure = &test.metrics[&Metric::NativeLiveBytes];
    assert_eq!((figure.low, figure.value, figure.high), (49152.0, 49152.0, 49152.0));
    assert_eq!((figure.iterations, figure.confidence, figure.per), (35, 0.99, Per::Iteration));
    assert_eq!(figure.threshold.clone().map(|t| (t.limit, t.source)), Some((0.0, ThresholdSource::Default)));
    assert!(test.one_time.is_empty());
}

#[test]
fn a_leak_beside_a_one_time_cost_is_told_from_it() {
    let input = screened_and_repeated(20, |p, i| {
        if i == 0 {
            p.alloc(5, 1_000_000, 1);
        }
        p.alloc(3, 37, 1);
    });
    let report = report_of(&input);
    let test = only(&report);
    assert_eq!(test.reason, "37 B per iteration (allowed 0 B)");
    assert_eq!(test.leaks.len(), 1);
    assert_eq!(test.leaks[0].title, "1 × 37 B");
    assert_eq!(test.one_time.len(), 1);
    assert_eq!(test.one_time[0].title, "1 × 1000000 B");
}

/// What `SetUpTestSuite` leaks in every repetition does not belong to the test, but is reported.
#[test]
fn growth_between_the_windows_is_not_the_tests() {
    let screen = screened(|p| p.alloc(5, 100, 1));
    let mut again = Process::confirm();
    for i in 0..20 {
        again.alloc(3, 64, 1);
        again.run(TEST, i, |p| p.alloc(5, 100, u64::from(i == 0)));
    }
    let again = again.end();
    let input = repeated_alone(screen.clone(), again.clone());
    let reason = "64 B per iteration outside of the test itself, in the set-up of its suite or in another thread (allowed 0 B)";
    assert_judged(&input, Verdict::Warn, reason);

    // If the program itself ends the windows, it could hide any leak by ending them early.
    let mut told = again;
    told.hello.as_mut().unwrap().capabilities.push(memgate_wire::capability::C_API.to_owned());
    let input = repeated_alone(screen.clone(), told.clone());
    let reason = "64 B per iteration outside of the windows that the program gives the test (allowed 0 B)";
    assert_judged(&input, Verdict::Fail, reason);
    told.hello.as_mut().unwrap().capabilities.push(memgate_wire::capability::GTEST.to_owned());
    let of_gtest = report_of(&repeated_alone(screen, told));
    assert_eq!(only(&of_gtest).verdict, Verdict::Warn);
}

#[test]
fn what_a_program_that_reports_its_own_tests_leaves_after_the_last_one_is_told() {
    let left = |count| {
        let mut process = Process::screen();
        process.run(TEST, 0, |_| {});
        process.alloc(3, 64, count);
        let mut record = process.end();
        record.hello.as_mut().unwrap().capabilities.push(memgate_wire::capability::C_API.to_owned());
        let report = report(&run_once(record), &GatePolicy::default());
        (report.suites[0].verdict, report.suites[0].reason.clone())
    };
    assert_eq!(left(99), (Verdict::Pass, String::new()), "the runner's own");
    let reason =
        "not judged: after its last test it left 62.5 KiB in 1000 allocations, which belong to no test";
    assert_eq!(left(1000), (Verdict::Warn, reason.to_owned()));
}

#[test]
fn growth_that_is_only_in_part_outside_of_the_windows_is_told_as_such() {
    let screen = screened(|p| p.alloc(5, 48, 1));
    let mut again = Process::confirm();
    for i in 0..20 {
        again.run(TEST, i, |p| p.alloc(5, 48, 1));
        again.alloc(3, 72, 1);
    }
    let mut again = again.end();
    again.hello.as_mut().unwrap().capabilities.push(memgate_wire::capability::C_API.to_owned());
    let input = repeated_alone(screen, again);
    let policy = limited(Limit::fail(Metric::NativeLiveBytes, 50.0, ThresholdSource::Default));
    let reason =
        "120 B per iteration, in part outside of the windows that the program gives the test (allowed 50 B)";
    assert_verdict(&input, &policy, Verdict::Fail, reason);
}

/// A thread frees the block after the test has ended, before the next iteration begins.
#[test]
fn what_is_freed_between_the_windows_does_not_grow() {
    let screen = screened(|p| p.alloc(3, 64, 1));
    let mut again = Process::confirm();
    for i in 0..20 {
        again.run(TEST, i, |p| p.alloc(3, 64, 1));
        again.free(3, 64, 1);
    }
    let input = repeated_alone(screen, again.end());
    let report = report_of(&input);
    assert_eq!((only(&report).verdict, only(&report).leaks.len()), (Verdict::Pass, 0));
}

#[test]
fn titles_tell_how_a_group_grows() {
    let title = |body: Body| {
        let report = report_of(&screened_and_repeated(64, body));
        only(&report).leaks[0].title.clone()
    };
    assert_eq!(
        title(Box::new(|p, i| p.alloc(3, 37, u64::from(i.is_multiple_of(3))))),
        "1 × 37 B every 3 iterations"
    );
    assert_eq!(title(Box::new(|p, i| p.alloc(3, 37 + u64::from(i), 2))), "2 allocations, 141 B");
    let buffer: Body = Box::new(|p, i| {
        p.alloc(3, 100 * u64::from(i + 1), 1);
        if i > 0 {
            p.free(3, 100 * u64::from(i), 1);
        }
    });
    assert_eq!(title(buffer), "growing allocation, 100 B more per iteration");
}

/// A buffer that is freed in the middle of the run must not hide the later leak.
#[test]
fn a_leak_is_seen_though_the_total_shrinks() {
    let input = screened_and_repeated(40, |p, i| {
        if i == 0 {
            p.alloc(5, 1_000_000, 1);
        }
        if i == 15 {
            p.free(5, 1_000_000, 1);
        }
        p.alloc(3, 37, 1);
    });
    assert_judged(&input, Verdict::Fail, "37 B per iteration in one place (allowed 0 B)");
}

/// A ring of 400 entries that another place filled: its new entries grow while the old ones go.
#[test]
fn a_ring_buffer_that_was_filled_before_is_no_leak() {
    let ring = |iterations| {
        let mut screen = Process::screen();
        screen.alloc(9, 64, 400);
        screen.run(TEST, 0, |p| {
            p.alloc(3, 64, 5);
            p.free(9, 64, 5);
        });
        let mut again = Process::confirm();
        again.alloc(9, 64, 400);
        for i in 0..iterations {
            again.run(TEST, i, |p| {
                p.alloc(3, 64, 5);
                p.free(if i < 80 { 9 } else { 3 }, 64, 5);
            });
        }
        repeated_alone(screen.end(), again.end())
    };
    let settled = report_of(&ring(200));
    assert_eq!(only(&settled).verdict, Verdict::Pass);
    assert!(only(&settled).leaks.is_empty());
    assert_judged(
        &ring(40),
        Verdict::Warn,
        "inconclusive: between 0 B and 0 B per iteration after 37 iterations, one place grows while another shrinks by as much (allowed 0 B)",
    );
}

#[test]
fn thresholds_decide_and_are_named() {
    let input = screened_and_repeated(20, |p, _| p.alloc(3, 4096, 1));
    let bytes = |limit| Limit::fail(Metric::NativeLiveBytes, limit, "memgate.yaml:24");
    assert_verdict(&input, &limited(bytes(4096.0)), Verdict::Pass, "");
    assert_verdict(&input, &limited(bytes(4095.0)), Verdict::Fail, "4096 B per iteration (allowed 4095 B)");
    let warn = Limit { level: Level::Warn, ..bytes(0.0) };
    assert_verdict(&input, &limited(warn), Verdict::Warn, "4.0 KiB per iteration (allowed 0 B)");
    let per_test = Limit { per: Per::Test, ..bytes(1024.0) };
    assert_verdict(
        &input,
        &limited(per_test),
        Verdict::Fail,
        "4.0 KiB left by one execution (allowed 1.0 KiB)",
    );
    let counts = Limit::fail(Metric::NativeLiveAllocations, 0.0, "memgate.yaml:25");
    assert_verdict(&input, &limited(counts), Verdict::Fail, "1 allocation per iteration (allowed 0)");
}

/// Regression test: the baseline of a run that confirmed nothing had no such figure either, so nothing was judged, and
/// no message said so.
#[test]
fn what_grows_without_an_accepted_figure_is_confirmed_and_warns() {
    let of = |level| Limit {
        bound: Bound::NoFigure,
        level,
        ..Limit::fail(Metric::NativeLiveBytes, 0.0, "memgate.yaml:24")
    };
    let policy = ruled(Metric::NativeLiveBytes, vec![of(Level::Fail), of(Level::Warn)]);
    let leaks = screened_and_repeated(20, |p, _| p.alloc(3, 4096, 1));
    let screened = &leaks.suites[0].screen[0].record;
    assert_eq!(screen(&[screened], "engine", &policy).len(), 1, "a suspect");
    assert_verdict(&leaks, &policy, Verdict::Warn, "4.0 KiB per iteration (allowed 0 B)");
    let suite = &report(&leaks, &policy).suites[0];
    assert_eq!(
        suite.reason,
        "native.live_bytes of 1 test is not judged: its threshold is relative, and the baseline has no figure of them \
         (`memgate baseline accept`)"
    );
    let figure = &suite.tests[0].metrics[&Metric::NativeLiveBytes];
    assert_eq!(figure.per, Per::Iteration, "a figure to accept");
    let source = figure.threshold.as_ref().map(|threshold| threshold.source.to_string());
    assert_eq!(source.as_deref(), Some("memgate.yaml:24 has no figure in the baseline"));
    let clean = screened_and_repeated(20, |_, _| ());
    assert_verdict(&clean, &policy, Verdict::Pass, "");
    assert_eq!(report(&clean, &policy).suites[0].reason, "");
}

#[test]
fn what_is_left_within_the_threshold_needs_no_second_run() {
    let input = run_once(screened(|p| p.alloc(3, 100, 1)));
    let policy = limited(Limit::fail(Metric::NativeLiveBytes, 100.0, "memgate.yaml:24"));
    assert_verdict(&input, &policy, Verdict::Pass, "");
    let report = report(&input, &policy);
    let test = only(&report);
    assert!(!test.confirmed && test.curve.is_empty());
    assert_eq!(test.metrics[&Metric::NativeLiveBytes].value, 100.0);
    assert_eq!(test.metrics[&Metric::NativeLiveBytes].iterations, 1);
}

#[test]
fn growth_that_cannot_be_confirmed_warns_or_fails_by_choice() {
    let screen = || screened(|p| p.alloc(3, 4096, 12));
    let reason =
        "unconfirmed: left 48.0 KiB in 12 allocations in one execution; the suite cannot be repeated";
    let input =
        confirmed_by(screen(), ConfirmationInput::Impossible("the suite cannot be repeated".to_owned()));
    assert_judged(&input, Verdict::Warn, reason);
    let strict = GatePolicy { unconfirmed: Level::Fail, ..GatePolicy::default() };
    assert_verdict(&input, &strict, Verdict::Fail, reason);
    let report = report(&input, &strict);
    assert!(!only(&report).confirmed);
    assert_eq!(only(&report).leaks[0].title, "12 × 4096 B");

    let waived = GatePolicy { unconfirmed: Level::Fail, ..waiving_ids(&only(&report).leaks) };
    assert_verdict(&input, &waived, Verdict::Pass, "left 48.0 KiB in 12 allocations, waived");

    let freed = confirmed_by(screen(), ConfirmationInput::FreedSince);
    let reason = "left 48.0 KiB in 12 allocations, which later tests freed; not confirmed, to save time";
    assert_verdict(&freed, &strict, Verdict::Pass, reason);

    let once = run_once(screen());
    let reason = "unconfirmed: left 48.0 KiB in 12 allocations in one execution; it ran only once";
    assert_judged(&once, Verdict::Warn, reason);

    let mut alone = Process::confirm().outcome(Outcome::Failed);
    alone.run(TEST, 0, |_| ());
    let input = repeated_alone(screen(), alone.end());
    let reason = "unconfirmed: left 48.0 KiB in 12 allocations in one execution; it fails when it runs alone, again and again";
    assert_judged(&input, Verdict::Warn, reason);
}

/// Both figures are reported: what the screen saw, and what the executions alone showed. A run with the others that
/// broke is no error of the test.
#[test]
fn what_is_not_reproduced_is_unconfirmed_with_both_figures() {
    let input = |together: Option<Result<ProcessRecord, &str>>| {
        let screen = after_another(Process::screen(), 1, |p, _| p.alloc(3, 100, 2));
        let alone = repeated(91, |_, _| ());
        match together {
            None => repeated_alone(screen, alone),
            Some(together) => in_company(screen, alone, together),
        }
    };
    let company = |body: &dyn Fn(&mut Process, u32), outcome| {
        after_another(Process::confirm().outcome(outcome), 30, body)
    };
    let once = |p: &mut Process, i: u32| p.alloc(3, 100, 2 * u64::from(i == 0));
    let unconfirmed =
        "unconfirmed: left 200 B in 2 allocations in one execution; alone nothing of it in 91 executions";
    let leaks = "200 B per iteration (allowed 0 B); only after the tests before it: alone nothing of this in 91 executions";
    let seen = "nothing more in 29 executions: a leak in one of 6 would have been missed with 1 % at most";
    for (together, verdict, reason) in [
        (None, Verdict::Warn, unconfirmed.to_owned()),
        (Some(Err("it crashed")), Verdict::Warn, format!("{unconfirmed}; it crashed")),
        (
            Some(Ok(company(&|_, _| (), Outcome::Passed))),
            Verdict::Warn,
            format!("{unconfirmed}, nor in 30 executions after the tests before it"),
        ),
        (
            Some(Ok(company(&|p, _| p.alloc(3, 100, 2), Outcome::Failed))),
            Verdict::Warn,
            format!("{unconfirmed}; it fails when it runs again with the tests before it"),
        ),
        (Some(Ok(company(&|p, _| p.alloc(3, 100, 2), Outcome::Passed))), Verdict::Fail, leaks.to_owned()),
        (Some(Ok(company(&once, Outcome::Passed))), Verdict::Pass, format!("one-time: 200 B; {seen}")),
    ] {
        let report = report_of(&input(together));
        let test = of_test(&report);
        assert_eq!((test.verdict, test.reason.as_str()), (verdict, reason.as_str()));
        assert_eq!(test.only_among_others, verdict != Verdict::Pass, "{reason}");
        assert_eq!(test.one_time.is_empty(), verdict != Verdict::Pass, "{reason}");
        assert_eq!(test.leaks.is_empty(), verdict == Verdict::Pass, "{reason}");
    }
}

/// Regression test: the largest of both headed the test, with its bytes of one execution as a leak in each.
#[test]
fn what_only_the_screen_saw_follows_the_leak_that_grows() {
    let screen = screened(|p| {
        p.alloc(3, 24, 1);
        p.alloc(5, 5000, 2);
    });
    let alone = repeated(91, |p, _| p.alloc(3, 24, 1));
    let report = report_of(&repeated_alone(screen, alone));
    let test = only(&report);
    assert_eq!((test.verdict, test.reason.as_str()), (Verdict::Fail, "24 B per iteration (allowed 0 B)"));
    let titles: Vec<&str> = test.leaks.iter().map(|leak| leak.title.as_str()).collect();
    assert_eq!(titles, ["1 × 24 B", "2 × 5000 B"]);
}

/// libxml2 fills tables with a random seed when it is first used. Regression test: each such run had a warning.
#[test]
fn a_number_that_chance_decides_once_in_each_process_is_a_one_time_cost() {
    let judged = |alone: u64, together: u64, more: u64| {
        let screen = after_another(Process::screen(), 1, |p, _| p.alloc(3, 48, 10));
        let again = repeated(91, |p, i| p.alloc(3, 48, if i == 0 { alone } else { 0 }));
        let among = after_another(Process::confirm(), 91, |p, i| {
            p.alloc(3, 48, if i == 0 { together } else { more });
        });
        of_test(&report_of(&in_company(screen, again, Ok(among)))).verdict
    };
    assert_eq!(judged(8, 9, 0), Verdict::Pass);
    assert_eq!(judged(8, 8, 0), Verdict::Warn, "no chance is seen");
    assert_eq!(judged(0, 9, 0), Verdict::Warn, "alone it does not come");
    assert_eq!(judged(4, 3, 0), Verdict::Warn, "the screen had far more");
    assert_eq!(judged(8, 9, 1), Verdict::Fail, "it grows");
    let of_others = |p: &mut Process| p.alloc(3, 48, 4);
    let mut screen = Process::screen();
    screen.run("Map.before", 0, of_others);
    screen.run(TEST, 0, |p| p.alloc(3, 48, 6));
    let once = |p: &mut Process, i: u32| p.alloc(3, 48, u64::from(i == 0));
    let mut among = Process::confirm();
    for i in 0..91 {
        among.run("Map.before", i, |p| {
            if i == 0 {
                of_others(p)
            }
        });
        among.run(TEST, i, |p| once(p, i));
    }
    let input = in_company(screen.end(), repeated(91, once), Ok(among.end()));
    let verdict = of_test(&report_of(&input)).verdict;
    assert_eq!(verdict, Verdict::Warn, "the blocks of other tests are no chance");
}

/// glibc allocates 1,040 bytes for each 32 functions that run at exit, in the test that registers the 33rd.
#[test]
fn a_list_of_functions_that_run_at_exit_is_a_one_time_cost_of_any_test() {
    for (stack, size, verdict) in [
        (Process::NOTES_EXIT, 1040, Verdict::Pass),
        (Process::NOTES_EXIT, 1041, Verdict::Warn),
        (3, 1040, Verdict::Warn),
    ] {
        let screen = screened(|p| p.alloc(stack, size, 1));
        let alone = repeated(91, |_, _| ());
        let input = repeated_alone(screen, alone);
        let test = report_of(&input).suites.remove(0).tests.remove(0);
        assert_eq!(test.verdict, verdict, "{stack}, {size} B: {}", test.reason);
    }
}

#[test]
fn a_confirming_run_that_breaks_is_an_error() {
    let screen = || screened(|p| p.alloc(3, 100, 1));
    let input = confirmed_by(screen(), ConfirmationInput::Broken("its program is gone".to_owned()));
    assert_judged(&input, Verdict::Error, "when it was repeated: its program is gone");

    let mut again = Process::confirm();
    (0..4).for_each(|i| again.run(TEST, i, |p| p.alloc(3, 100, 1)));
    again.start(TEST, 4);
    let crashed = ProcessInput { record: again.cut(), ending: Ending::Signalled(11) };
    let input = repeated_alone(screen(), crashed);
    let reason = "when it was repeated: after 4 iterations its process was ended by signal 11 (SIGSEGV); last seen: main in futex_wait";
    assert_judged(&input, Verdict::Error, reason);

    // The first execution worked. If memory ran out, the test may leak that much.
    for (signal, verdict, exit_code, reason) in [
        (
            6,
            Verdict::Warn,
            0,
            "unconfirmed: left 100 B in 1 allocation in one execution; it cannot be repeated in one process: after 1 iteration its process was ended by signal 6 (SIGABRT); last seen: main in futex_wait",
        ),
        (
            9,
            Verdict::Error,
            2,
            "when it was repeated: after 1 iteration its process was ended by signal 9 (SIGKILL); last seen: main in futex_wait",
        ),
    ] {
        let mut again = Process::confirm();
        again.run(TEST, 0, |p| p.alloc(3, 100, 1));
        again.start(TEST, 1);
        let crashed = ProcessInput { record: again.cut(), ending: Ending::Signalled(signal) };
        let input = repeated_alone(screen(), crashed);
        assert_ends(&input, &GatePolicy::default(), verdict, reason, exit_code);
    }

    let input = repeated_alone(screen(), Process::confirm().end());
    let reason = "when it was repeated: no iteration of it was recorded";
    assert_judged(&input, Verdict::Error, reason);
}

#[test]
fn few_iterations_are_no_proof_of_a_leak() {
    let input = screened_and_repeated(4, |p, _| p.alloc(3, 100, 1));
    let reason = "inconclusive: between 100 B and 100 B per iteration after 3 iterations, too few to call it a leak (allowed 0 B)";
    assert_judged(&input, Verdict::Warn, reason);
}

/// The user's `--gtest_repeat=12` with two tests in turn: each test has its own growth.
#[test]
fn repetitions_by_the_user_are_judged_by_what_each_test_did() {
    let mut p = Process::screen();
    for i in 0..12 {
        p.run("Map.leaks", i, |p| p.alloc(3, 64, 2));
        p.run("Map.clean", i, |_| ());
        p.run("Map.keeps_last", i, |p| {
            p.alloc(4, 24, 1);
            if i > 0 {
                p.free(4, 24, 1);
            }
        });
    }
    let report = report_of(&run_once(p.end()));
    let found: Vec<_> =
        report.suites[0].tests.iter().map(|t| (t.id.as_str(), t.verdict, t.reason.as_str())).collect();
    assert_eq!(
        found,
        [
            ("Map.leaks", Verdict::Fail, "128 B per iteration (allowed 0 B)"),
            ("Map.clean", Verdict::Pass, ""),
            (
                "Map.keeps_last",
                Verdict::Pass,
                "one-time: 24 B; nothing more in 11 executions: a leak in one of 2 would have been missed with 1 % at most"
            ),
        ]
    );
    let leaks = &report.suites[0].tests[0].leaks;
    assert_eq!(leaks.iter().map(|l| l.title.as_str()).collect::<Vec<_>>(), ["2 × 64 B"]);
}

/// Id, title and innermost function of each leak.
fn os_leaks(report: &RunReport) -> Vec<(String, String, Option<String>)> {
    let leaks = only(report).leaks.iter();
    let innermost = |leak: &Leak| leak.frames.first().and_then(|f| f.function.clone());
    let mut leaks: Vec<_> =
        leaks.map(|leak| (leak.id.clone(), leak.title.clone(), innermost(leak))).collect();
    leaks.sort_by(|a, b| a.2.cmp(&b.2));
    leaks
}

#[test]
fn descriptors_and_threads_are_leaks_of_the_place_they_come_from() {
    let input = screened_and_repeated(20, |p, i| {
        p.open("socket:[17]", 3);
        p.open("socket:[18]", 4);
        // One place opens files of different names.
        p.open(["/home/a", "/home/b"][i as usize % 2], 5);
        p.spawn("worker-1", 6);
        p.threads.push("pool-1");
    });
    let leaks = os_leaks(&report_of(&input));
    let told: Vec<_> =
        leaks.iter().map(|(_, title, function)| (title.as_str(), function.as_deref())).collect();
    let want = [
        ("1 × thread pool-…", None),
        ("1 × descriptor socket:[…]", Some("leak_3(int)")),
        ("1 × descriptor socket:[…]", Some("leak_4(int)")),
        ("1 × descriptor /home/a, /home/b", Some("leak_5(int)")),
        ("1 × thread worker-…", Some("leak_6(int)")),
    ];
    assert_eq!(told, want);
    assert!(leaks.iter().all(|(id, ..)| id.starts_with("o1-")), "{leaks:?}");
    assert_eq!(leaks[0].0, crate::signature::os_id("thread", "pool-…"), "where nobody saw it, as ever");
    let ids: std::collections::BTreeSet<_> = leaks.iter().map(|(id, ..)| id).collect();
    assert_eq!(ids.len(), 5);
    // These ids are in users' waivers.
    assert_eq!(leaks[1].0, "o1-82c02069f42e62cc");
    let waived = waiving([waiver(WaiverMatch::Leak(leaks[1].0.clone()), None)]);
    assert_verdict(
        &input,
        &waived,
        Verdict::Fail,
        "2 descriptors per iteration (allowed 0); 2 threads per iteration (allowed 0)",
    );
}

#[test]
fn mapped_memory_is_a_leak_of_the_place_that_mapped_it() {
    let input = screened_and_repeated(20, |p, i| {
        let i = u64::from(i) + 1;
        p.mapped(3, MappedKind::Anonymous, 2 * i, 65536 * i);
        // A mapping that is enlarged.
        p.mapped(4, MappedKind::File, 1, 8192 * i);
        p.mapped(5, MappedKind::Anonymous, 1, 1 << 20);
    });
    let judged = report_of(&input);
    let test = only(&judged);
    let told: Vec<_> =
        test.leaks.iter().map(|leak| (leak.kind, leak.title.as_str(), leak.bytes_per_iteration)).collect();
    let want = [
        (LeakKind::Mapped, "2 mappings of anonymous memory, 64.0 KiB", 65536.0),
        (LeakKind::Mapped, "growing mapping of a file, 8.0 KiB more per iteration", 8192.0),
    ];
    assert_eq!(told, want);
    assert_eq!(test.leaks[0].frames[0].function.as_deref(), Some("leak_3(int)"));
    assert_eq!(test.one_time.len(), 1, "{:?}", test.one_time);
    assert_eq!(test.reason, "72.0 KiB of mapped memory per iteration (allowed 0 B)");
    // These ids are in users' waivers.
    let waived = report(&input, &waiving_ids(&test.leaks));
    assert_eq!(only(&waived).verdict, Verdict::Pass, "{}", only(&waived).reason);
}

/// If the agent could not record all mappings, nothing with a limit passes.
#[test]
fn mappings_that_were_lost_are_not_measured() {
    let mut screen = Process::screen();
    let lost = Mappings { boundary: 0, lost: true, mapped: Vec::new() };
    screen.run(TEST, 0, |p| p.frame(Frame::Mappings(lost)));
    let input = run_once(screen.end());
    let judged = report_of(&input);
    assert_eq!(only(&judged).verdict, Verdict::Error);
    assert!(only(&judged).reason.starts_with("not measured: not all mappings"), "{}", only(&judged).reason);
    let unlimited = report(&input, &without_limit(Metric::NativeMappedBytes));
    assert_eq!(only(&unlimited).verdict, Verdict::Pass);
}

#[test]
fn descriptors_from_another_place_each_time_are_a_leak_of_their_name() {
    let input = screened_and_repeated(20, |p, i| p.open("socket:[17]", 3 + i));
    let leaks = os_leaks(&report_of(&input));
    let id = crate::signature::os_id("descriptor", "socket:[…]");
    assert_eq!(leaks, [(id, "1 × descriptor socket:[…]".to_owned(), None)]);
}

#[test]
fn a_waiver_limited_to_tests_covers_no_other() {
    let input = screened_and_repeated(20, |p, _| p.alloc(3, 37, 1));
    let id = only(&report_of(&input)).leaks[0].id.clone();
    let limited = |suite: &'static str| {
        let test = TestPattern::new(format!("{suite}::*"), move |asked, test| asked == suite && test == TEST);
        let waiver = Waiver { test: Some(test), ..waiver(WaiverMatch::Leak(id.clone()), None) };
        waiving([waiver])
    };
    let covered = report(&input, &limited("engine"));
    assert_eq!(only(&covered).verdict, Verdict::Pass);
    assert_eq!(covered.waivers[0].matches, format!("leak {id} in engine::*"));
    let other = report(&input, &limited("maps"));
    assert_eq!((only(&other).verdict, other.waivers[0].state), (Verdict::Fail, WaiverState::Unused));
}

pub(crate) fn waiver(matches: WaiverMatch, until: Option<&str>) -> Waiver {
    Waiver {
        matches,
        test: None,
        reason: "upstream issue 1234".to_owned(),
        owner: None,
        until: until.map(str::to_owned),
    }
}

#[test]
fn a_waiver_covers_its_leak_until_its_day_has_passed() {
    let input = screened_and_repeated(20, |p, _| p.alloc(3, 37, 1));
    let id = only(&report_of(&input)).leaks[0].id.clone();
    let fails = (Verdict::Fail, "37 B per iteration (allowed 0 B)");
    let passes = (Verdict::Pass, "1 leak waived: the figures are without it");
    let frame =
        || WaiverMatch::Frame(FramePattern::new("engine*!leak_3", |name| name == "engine_tests!leak_3"));
    let cases = [
        (waiver(WaiverMatch::Leak(id.clone()), None), passes, WaiverState::InForce, 1),
        (waiver(WaiverMatch::Leak(id.clone()), Some("2026-11-21")), passes, WaiverState::InForce, 1),
        (waiver(WaiverMatch::Leak(id), Some("2026-11-20")), fails, WaiverState::Expired, 0),
        (waiver(frame(), None), passes, WaiverState::InForce, 1),
        (waiver(WaiverMatch::Leak("n1-0000000000000000".to_owned()), None), fails, WaiverState::Unused, 0),
    ];
    for (waiver, expected, state, used) in cases {
        let policy =
            GatePolicy { waivers: vec![waiver], today: "2026-11-21".to_owned(), ..GatePolicy::default() };
        let report = report(&input, &policy);
        let test = only(&report);
        assert_eq!((test.verdict, test.reason.as_str()), expected);
        assert_eq!((report.waivers[0].state, report.waivers[0].used), (state, used));
        let reason = (expected == passes).then(|| "upstream issue 1234".to_owned());
        assert_eq!(test.leaks[0].waiver, reason);
    }
}

#[test]
fn a_waiver_covers_one_leak_and_not_the_one_beside_it() {
    let input = screened_and_repeated(20, |p, _| {
        p.alloc(3, 1000, 1);
        p.alloc(4, 37, 1);
    });
    let pattern = FramePattern::new("*!leak_3", |name| name.ends_with("!leak_3"));
    let policy = waiving([waiver(WaiverMatch::Frame(pattern), None)]);
    assert_verdict(&input, &policy, Verdict::Fail, "37 B per iteration (allowed 0 B)");
}

#[test]
fn in_a_partial_run_a_waiver_that_matches_nothing_may_still_be_needed() {
    let mut input = screened_and_repeated(8, |_, _| ());
    let unused = waiver(WaiverMatch::Leak("n1-0000000000000000".to_owned()), None);
    let policy = waiving([unused]);
    assert_eq!(report(&input, &policy).waivers[0].state, WaiverState::Unused);
    let fixed = [("n1-0000000000000000".to_owned(), "b2".to_owned())].into();
    let stale = GatePolicy { fixed: (fixed, Level::Fail), ..policy.clone() };
    let level = |report: &RunReport| report.waivers[0].fixed.as_ref().unwrap().level;
    let whole = report(&input, &stale);
    assert_eq!((whole.verdict, level(&whole)), (Verdict::Fail, Level::Fail));
    input.partial = true;
    assert_eq!(report(&input, &policy).waivers[0].state, WaiverState::InForce);
    let part = report(&input, &stale);
    assert_eq!((part.verdict, level(&part)), (Verdict::Pass, Level::Warn));
}

#[test]
fn a_waiver_may_be_needed_by_what_failed_or_was_not_measured() {
    let unused = waiver(WaiverMatch::Leak("n1-0000000000000000".to_owned()), None);
    let policy = waiving([unused]);
    let state = |input: &RunInput| report(input, &policy).waivers[0].state;
    let mut failed = screened_and_repeated(8, |_, _| ());
    failed.command_status = Some(1);
    assert_eq!(state(&failed), WaiverState::InForce);
    let mut broken = screened_and_repeated(8, |_, _| ());
    broken.errors.push(super::suite::problem("engine_tests", "not measured", ""));
    assert_eq!(state(&broken), WaiverState::InForce);
    assert_eq!(state(&RunInput::default()), WaiverState::InForce, "nothing ran");
}

#[test]
fn the_users_own_failures_are_not_judged_and_never_hidden() {
    let leaking = |outcome| {
        let mut screen = Process::screen().outcome(outcome);
        screen.run(TEST, 0, |p| p.alloc(3, 4096, 12));
        run_once(screen.end())
    };
    let failed = leaking(Outcome::Failed);
    let reason = "the test itself failed: not judged for leaks";
    assert_ends(&failed, &GatePolicy::default(), Verdict::NotJudged, reason, 1);
    let lenient = GatePolicy { ignore_test_failures: true, ..GatePolicy::default() };
    assert_verdict(&failed, &lenient, Verdict::NotJudged, reason);
    assert_judged(&leaking(Outcome::Skipped), Verdict::NotJudged, "the test was skipped");

    let mut screen = Process::screen();
    screen.run(TEST, 0, |_| ());
    let input = run_of(suite(vec![screen.end_with(GoodbyeReason::Exit, Some(3)).into()]));
    let report_ = report_of(&input);
    assert_eq!((report_.verdict, report_.exit_code), (Verdict::Pass, 1));
    assert_eq!(report_.suites[0].reason, "its process ended with status 3 though no test failed");
    let mut input = run_once(screened(|_| ()));
    input.command_status = Some(8);
    let failed = report_of(&input);
    assert_eq!((failed.verdict, failed.exit_code), (Verdict::NotJudged, 1));
    assert_eq!(
        failed.errors[0].what,
        "it ended with status 8, though no test failed: so does this run, with 1"
    );
    let ignored = report(&input, &lenient);
    assert_eq!((ignored.verdict, ignored.exit_code, ignored.errors.len()), (Verdict::Pass, 0, 0));
    let on_device = &mut input.suites[0];
    on_device.runner = Runner::Instrumentation;
    on_device.problems =
        vec![super::suite::problem("app", "not measured: the process crashed", "look at its log")];
    let crashed = report_of(&input);
    assert_eq!((crashed.verdict, crashed.exit_code, crashed.errors.len()), (Verdict::Error, 1, 0));
    assert_eq!(crashed.suites[0].reason, "not measured: the process crashed; look at its log");
}

/// A crashed process has its own name as its only thread, which tells nothing.
#[test]
fn threads_that_waited_nowhere_are_named_only_where_a_test_hung() {
    let reason = |ending| {
        let mut screen = Process::screen();
        screen.start(TEST, 0);
        screen.os_sample(0);
        let mut record = screen.cut();
        record.last_threads.iter_mut().for_each(|thread| thread.waits_in = "0".to_owned());
        let input = run_of(suite(vec![ProcessInput { record, ending }]));
        report_of(&input).suites[0].tests[0].reason.clone()
    };
    let crashed = reason(Ending::Signalled(11));
    assert!(crashed.starts_with("its process was ended by signal 11 (SIGSEGV); run it alone"), "{crashed}");
    let hung = reason(Ending::TimedOut(Duration::from_secs(60)));
    assert_eq!(hung, "still running after 60 s; last seen: main");
}

#[test]
fn a_test_that_does_not_end_is_an_error_with_its_last_curve() {
    let broken = |ending| {
        let mut screen = Process::screen();
        screen.run("Map.first", 0, |_| ());
        screen.start(TEST, 0);
        screen.alloc(3, 1 << 20, 1);
        screen.os_sample(0);
        run_of(suite(vec![ProcessInput { record: screen.cut(), ending }]))
    };
    let cases = [
        (
            Ending::Signalled(11),
            Ended::Crashed,
            "its process was ended by signal 11 (SIGSEGV); last seen: main in futex_wait; \
             run it alone, without memgate, and repair it: a test is judged only if it ends by itself",
        ),
        (
            Ending::TimedOut(Duration::from_secs(60)),
            Ended::TimedOut,
            "still running after 60 s; last seen: main in futex_wait",
        ),
        (
            Ending::Unknown,
            Ended::Crashed,
            "its process ended in the middle of it; last seen: main in futex_wait",
        ),
    ];
    for (ending, outcome, reason) in cases {
        let report = report_of(&broken(ending));
        let tests = &report.suites[0].tests;
        assert_eq!((tests[0].verdict, tests[1].verdict), (Verdict::Pass, Verdict::Error));
        assert_eq!((tests[1].outcome, tests[1].reason.as_str()), (outcome, reason));
        assert!(tests[1].curve.iter().any(|p| p.metric == Metric::OsRss && p.value > 1e6));
        assert_eq!(report.exit_code, 1, "the user's own test did not pass");
        let lenient = GatePolicy { ignore_test_failures: true, ..GatePolicy::default() };
        assert_eq!(super::judge(&broken(ending), &lenient, &mut ByNumber).exit_code, 2);
    }
}

#[test]
fn a_test_that_ends_its_own_process_is_an_error() {
    let mut screen = Process::screen();
    screen.start(TEST, 0);
    let record = screen.end_with(GoodbyeReason::QuickExit, Some(0));
    let reason = "the test ended its process with _exit";
    assert_ends(&run_once(record), &GatePolicy::default(), Verdict::Error, reason, 1);
}

#[test]
fn what_was_not_measured_never_passes() {
    let measured_with = |change: &dyn Fn(&mut Hello), error: Option<ErrorCode>| {
        let mut screen = Process::screen();
        if let Some(code) = error {
            screen.frame(Frame::Error(ErrorFrame { code, text: "the table is full".to_owned() }));
        }
        screen.run(TEST, 0, |_| ());
        if let Frame::Hello(hello) = &mut screen.frames[0].0 {
            change(hello);
        }
        run_once(screen.end())
    };
    let blind = |h: &mut Hello| h.blind = Some("the program brings its own allocator".to_owned());
    let other = |h: &mut Hello| (h.wire_version, h.agent_version) = (9, "9.0".to_owned());
    let same = |_: &mut Hello| ();
    let cases: [(RunInput, &str); 4] = [
        (measured_with(&blind, None), "not measured: the program brings its own allocator"),
        (measured_with(&other, None), "not measured: agent 9.0 writes version 9 of the stream"),
        (measured_with(&same, Some(ErrorCode::OutOfTable)), "not measured: the table is full"),
        (
            {
                let mut screen = Process::screen().overlapping();
                screen.run(TEST, 0, |_| ());
                run_once(screen.end())
            },
            "not measured: 2 tests ran at the same time, what each left cannot be told apart",
        ),
    ];
    for (input, reason) in cases {
        assert_judged(&input, Verdict::Error, reason);
    }
    assert_judged(&measured_with(&same, Some(ErrorCode::Other)), Verdict::Pass, "");
}

#[test]
fn a_suite_without_a_test_is_an_error() {
    let reason = |suite: SuiteInput| {
        let report = report_of(&run_of(suite));
        assert_eq!((report.verdict, report.exit_code), (Verdict::Error, 2));
        report.suites[0].reason.clone()
    };
    assert_eq!(reason(suite(vec![])), "no test ran");
    assert_eq!(reason(suite(vec![process(|_| ()).into()])), "no test ran");
    let empty = |may_be_empty| {
        let mut record = process(|_| ());
        record.iterations = 1;
        let run = RunInput { may_be_empty, ..run_once(record) };
        report_of(&run)
    };
    let shard = empty(true);
    assert_eq!((shard.verdict, shard.exit_code), (Verdict::Pass, 0), "an empty shard is no error");
    assert!(shard.suites[0].reason.starts_with("no test to run"), "{}", shard.suites[0].reason);
    let typo = empty(false);
    assert_eq!((typo.verdict, typo.exit_code), (Verdict::Error, 2), "its filter matches none");
    assert_eq!(typo.errors[0].what, "no test ran: nothing was measured");
    let blind = {
        let mut p = Process::screen();
        p.frames[0].0 = Frame::Hello(Hello { blind: Some("it is linked statically".to_owned()), ..hello() });
        p.end()
    };
    assert_eq!(reason(suite(vec![blind.into()])), "not measured: it is linked statically");
    let nothing = report_of(&RunInput::default());
    assert_eq!((nothing.verdict, nothing.exit_code, nothing.errors.len()), (Verdict::Error, 2, 1));
}

#[test]
fn a_process_that_vanishes_after_its_tests_is_an_error_of_the_suite() {
    let mut p = Process::screen();
    p.run(TEST, 0, |_| ());
    let lost = ProcessInput { record: p.without_os().cut(), ending: Ending::Signalled(9) };
    let report = report_of(&run_of(suite(vec![lost])));
    assert_eq!(report.verdict, Verdict::Error);
    assert!(
        report.suites[0].reason.starts_with("after Map.insert, its process was ended by signal 9 (SIGKILL)")
    );
    assert_eq!(only(&report).verdict, Verdict::Pass, "the test itself was measured");
}

#[test]
fn damage_is_an_error_and_what_was_read_before_is_used() {
    let mut record = screened(|p| p.alloc(3, 100, 1));
    record.damaged = Some("damaged frame at byte 4711".to_owned());
    let report = report_of(&run_once(record));
    assert_eq!((report.verdict, report.exit_code), (Verdict::Error, 2));
    assert_eq!(report.suites[0].reason, "its recording is damaged: damaged frame at byte 4711");
    assert_eq!(only(&report).verdict, Verdict::Warn);
}

#[test]
fn children_that_a_test_forked_are_no_tests() {
    let p = screened(|_| ());
    let mut child = Process::screen();
    child.frames[0].0 = Frame::Hello(Hello { role: ProcessRole::ForkChild, ..hello() });
    child.start(TEST, 0);
    let child = ProcessInput { record: child.cut(), ending: Ending::Signalled(6) };
    let report = report_of(&run_of(suite(vec![p.into(), child])));
    assert_eq!((report.verdict, report.exit_code), (Verdict::Pass, 0));
}

/// The framework Check runs each test in a child, so its program has nothing alive at its end. Regression test: such a
/// program passed without a message.
#[test]
fn what_children_of_a_plain_program_end_with_is_told() {
    let child = |reason, (size, live)| {
        let mut child = Process::screen();
        child.frames[0].0 = Frame::Hello(Hello { role: ProcessRole::ForkChild, ..hello() });
        child.alloc(5, 5000, 1);
        child.boundary(BoundaryKind::ProcessStart, "", 0, Vec::new(), 0, SnapshotScope::Survivors);
        child.alloc(3, size, live);
        ProcessInput::from(child.end_with(reason, Some(0)))
    };
    let program = |children: Vec<ProcessInput>| {
        let mut run = process_suite(process(|_| ()), &[]);
        run.suites[0].screen.extend(children);
        run
    };
    let told = |run: &RunInput, policy: &GatePolicy| {
        let report = report(run, policy);
        assert_eq!((report.suites[0].tests[0].verdict, report.exit_code), (Verdict::Pass, 0));
        (report.verdict, report.suites[0].reason.clone())
    };
    let default = GatePolicy::default();
    let two = || vec![child(GoodbyeReason::Exit, (8, 10)), child(GoodbyeReason::QuickExit, (8, 2))];
    let (verdict, reason) = told(&program(two()), &default);
    assert_eq!(verdict, Verdict::Warn);
    let begin =
        "not judged: 2 children that it forked ended with 96 B in 12 allocations of their own alive; ";
    assert!(reason.starts_with(begin), "{reason}");
    let nothing = (Verdict::Pass, String::new());
    let passes = |child, why: &str| assert_eq!(told(&program(vec![child]), &default), nothing, "{why}");
    passes(child(GoodbyeReason::Exit, (8, 0)), "what it has is its parent's");
    passes(child(GoodbyeReason::Exit, (4096, 1)), "the C library's buffer of a stream");
    passes(child(GoodbyeReason::Exec, (8, 10)), "another program");
    let mut gtest = suite(vec![process(|_| ()).into()]);
    gtest.screen.extend(two());
    assert!(!report(&run_of(gtest), &default).suites[0].reason.contains("children"), "death tests");
}

/// The records of a screen of [`Process`] whose body is the whole process.
fn process(body: impl FnOnce(&mut Process)) -> ProcessRecord {
    let mut p = Process::screen();
    body(&mut p);
    p.end()
}

/// A plain program, repeated with these lengths.
fn of_lengths(
    screen: impl Into<ProcessInput>,
    lengths: impl IntoIterator<Item = u64>,
    body: impl Fn(&mut Process, u64),
) -> RunInput {
    let mut suite = SuiteInput { boundary: BoundaryQuality::Process, ..suite(vec![screen.into()]) };
    let run = |n| Repetition { n, process: process(|p| body(p, n)).into() };
    let runs: Vec<_> = lengths.into_iter().map(run).collect();
    if !runs.is_empty() {
        suite.confirmations.insert("engine".to_owned(), ConfirmationInput::Lengths(runs));
    }
    run_of(suite)
}

/// A plain program, with the lengths of its repetitions and the blocks that each leaves.
pub(super) fn process_suite(screen: impl Into<ProcessInput>, lengths: &[(u64, u64)]) -> RunInput {
    let live: BTreeMap<u64, u64> = lengths.iter().copied().collect();
    of_lengths(screen, lengths.iter().map(|(n, _)| *n), |p, n| {
        p.alloc(3, 8, live[&n]);
        p.alloc(5, 4096, 1);
        p.works(n);
    })
}

#[test]
fn a_whole_process_is_judged_by_runs_of_different_length() {
    let screen = || process(|p| p.alloc(3, 8, 10));
    let default = GatePolicy::default();
    let reason = "not judged: 80 B in 10 allocations alive at exit; to have it judged, write {n} for the number in \
                  the argument that repeats its work: `memgate run -- PROGRAM --count={n}`, or a suite in memgate.yaml; \
                  if its test framework has no such argument: memgate docs agent";
    assert_verdict(&process_suite(screen(), &[]), &default, Verdict::Warn, reason);
    let told = report(&process_suite(screen(), &[]), &default);
    assert_eq!(only(&told).leaks.len(), 1, "with its stack");
    assert_verdict(&process_suite(process(|_| ()), &[]), &default, Verdict::Pass, "");
    let leaks = [(10, 10), (20, 20), (30, 30), (40, 40), (50, 50)];
    assert_verdict(
        &process_suite(screen(), &leaks),
        &default,
        Verdict::Fail,
        "8 B per repetition (allowed 0 B)",
    );
    let report = report(&process_suite(screen(), &leaks), &default);
    let titles: Vec<_> = only(&report).leaks.iter().map(|l| l.title.as_str()).collect();
    assert_eq!(titles, ["1 × 8 B"]);
    let still = [(10, 7), (20, 7), (30, 7), (40, 7), (50, 7)];
    assert_verdict(&process_suite(screen(), &still), &default, Verdict::Pass, "");
    let fills_up = [(10, 10), (20, 20), (30, 20), (40, 20), (50, 20)];
    assert_verdict(&process_suite(screen(), &fills_up), &default, Verdict::Pass, "");
    let two = [(10, 10), (20, 20)];
    let reason = "unconfirmed: left 80 B in 10 allocations in one execution; it ran with 2 different lengths, 3 are needed";
    assert_verdict(&process_suite(screen(), &two), &default, Verdict::Warn, reason);
}

#[test]
fn a_vector_of_a_plain_program_that_grows_from_several_places_is_one_leak() {
    let grows = |p: &mut Process, stack, n| {
        p.alloc(stack, 8 * n, 1);
        p.works(n);
    };
    let stack = |n: u64| 1 + u32::try_from(n / 10 - 1).unwrap() % 3;
    let run = of_lengths(process(|p| grows(p, 1, 1)), [10, 20, 30, 40, 50], |p, n| grows(p, stack(n), n));
    let report = report_of(&run);
    let test = only(&report);
    let titles: Vec<_> = test.leaks.iter().map(|leak| leak.title.as_str()).collect();
    assert_eq!(test.verdict, Verdict::Fail);
    assert_eq!(titles, ["growing allocation, 8 B more per iteration, also from leak_1, leak_3"]);
}

/// Regression: the reason was the growth of the total, which may be negative.
#[test]
fn a_leak_beside_memory_that_comes_and_goes_is_told_with_its_own_figure() {
    let noise = [4, 9, 1, 5, 2, 3];
    let run = of_lengths(process(|_| ()), 5..11, |p, n| {
        p.alloc(3, 77, n);
        p.alloc(5, 100, noise[usize::try_from(n).unwrap() - 5]);
        p.works(n);
    });
    assert_judged(&run, Verdict::Fail, "77 B per repetition in one place (allowed 0 B)");
}

/// Regression test: only memory was compared, so the program passed with all of these.
#[test]
fn descriptors_threads_and_mappings_alive_at_exit_are_not_judged_either() {
    let mut p = Process::screen();
    // The program found it open, or the place that opened it is unknown.
    p.fds.push("/inherited");
    p.open("/log", 4);
    p.open("/log", 4);
    p.spawn("worker-1", 5);
    p.mapped(6, MappedKind::Anonymous, 1, 65536);
    let input = process_suite(p.end(), &[]);
    let why = "not judged: 64.0 KiB of mapped memory, 2 descriptors, 1 thread alive at exit; to have it judged, write {n} \
               for the number in the argument that repeats its work: `memgate run -- PROGRAM --count={n}`, or a suite in memgate.yaml; \
               if its test framework has no such argument: memgate docs agent";
    assert_judged(&input, Verdict::Warn, why);
    let judged = report_of(&input);
    let leaks = &only(&judged).leaks;
    let titles: Vec<_> = leaks.iter().map(|leak| leak.title.as_str()).collect();
    let want = ["1 mapping of anonymous memory, 64.0 KiB", "2 × descriptor /log", "1 × thread worker-…"];
    assert_eq!(titles, want);
    let waived = report(&input, &waiving_ids(leaks));
    assert_eq!((only(&waived).verdict, only(&waived).reason.as_str()), (Verdict::Pass, "3 leaks waived"));
    let mut off = GatePolicy::default();
    off.defaults.retain(|limit| limit.metric == Metric::NativeLiveBytes);
    let passed = report(&input, &off);
    assert_eq!((only(&passed).verdict, only(&passed).reason.as_str()), (Verdict::Pass, ""));
    assert!(only(&passed).leaks.is_empty(), "within its limits");
}

#[test]
fn what_only_exit_handlers_free_grows_at_the_end_of_main() {
    let judged = |kept: &dyn Fn(u64) -> u64, freed: &dyn Fn(u64) -> u64| {
        let run = of_lengths(process(|_| ()), [10, 20, 30, 40, 50], |p, n| {
            p.alloc(3, 8, kept(n));
            p.alloc(5, 16, freed(n));
            p.works(n);
            p.main_ends();
            p.free(5, 16, freed(n));
        });
        report_of(&run)
    };
    let at_main = judged(&|_| 3, &|n| n);
    let reason = "16 B per repetition at the end of main, freed only by exit handlers (allowed 0 B)";
    assert_eq!((only(&at_main).verdict, only(&at_main).reason.as_str()), (Verdict::Fail, reason));
    assert_eq!(only(&at_main).leaks.len(), 1);
    let at_both = judged(&|n| n, &|n| n);
    assert_eq!(only(&at_both).reason, "24 B per repetition (allowed 0 B)");
    let at_none = judged(&|_| 3, &|_| 7);
    assert_eq!(only(&at_none).verdict, Verdict::Pass);
    let bouncing = judged(&|_| 3, &|n| n % 20);
    assert_eq!(only(&bouncing).verdict, Verdict::Pass, "what other threads are about to free");
}

/// The number selects a test, or a size: allocations do not depend on repetitions. Regression test: such a program
/// passed as clean.
#[test]
fn a_program_whose_allocations_do_not_follow_the_repetitions_is_not_judged() {
    let judged = |counts: &[u64], made: &dyn Fn(u64) -> u64| {
        let run = of_lengths(process(|p| p.alloc(3, 8, 1)), counts.iter().copied(), |p, n| {
            p.alloc(3, 8, 1 + made(n));
            p.free(3, 8, made(n));
        });
        let report = report_of(&run);
        let test = only(&report);
        (test.verdict, test.reason.clone())
    };
    let (three, six) = ([4, 8, 12], [4, 8, 12, 16, 20, 24]);
    let (verdict, reason) = judged(&three, &|n| if n == 8 { 60 } else { 20 + n });
    assert_eq!(verdict, Verdict::Warn);
    assert!(
        reason.starts_with("not judged: with 4 repetitions it made 25 allocations, with 12 33, so it"),
        "{reason}"
    );
    assert_eq!(judged(&six, &|n| 100 - n).0, Verdict::Warn);
    assert_eq!(judged(&six, &|n| n * 7 % 40).0, Verdict::Warn);
    let longer_text = |n| if n < 12 { 103 } else { 105 };
    assert_eq!(judged(&six, &longer_text).0, Verdict::Warn, "the argument itself takes another block");
    assert_eq!(
        judged(&six, &|n| 1000 + n / 8).0,
        Verdict::Pass,
        "a pool takes a chunk for eight repetitions"
    );
    assert_eq!(judged(&three, &|n| 1000 + n).0, Verdict::Pass);
    assert_eq!(
        judged(&three, &|n| 1000 + n / 4).0,
        Verdict::Pass,
        "a pool takes a chunk for four repetitions"
    );
    let threads = |n| 1000 + 10 * n + if n == 8 { 60 } else { 0 };
    assert_eq!(judged(&six, &threads).0, Verdict::Pass, "threads make some more or fewer");
}

/// Regression test: such a program passed as clean.
#[test]
fn a_program_that_allocates_nothing_more_with_more_repetitions_is_not_judged() {
    let ignores = |opens: &dyn Fn(u64) -> u64| {
        of_lengths(process(|p| p.alloc(3, 8, 1)), [4, 8, 12], |p, n| {
            p.alloc(3, 8, 1);
            (0..opens(n)).for_each(|_| p.open("/log", 6));
        })
    };
    let why = "not judged: with 4 repetitions it made 1 allocation, with 12 as many, so it seems not to repeat its work; if \
               the work allocates nothing, switch native.live_bytes off for it";
    assert_judged(&ignores(&|_| 0), Verdict::Warn, why);
    assert!(!only(&report_of(&ignores(&|_| 0))).confirmed);
    assert_judged(&ignores(&|n| n), Verdict::Fail, "1 descriptor per repetition (allowed 0)");
    assert_verdict(&ignores(&|_| 0), &without_limit(Metric::NativeLiveBytes), Verdict::Pass, "");
}

#[test]
fn a_process_that_fails_is_not_judged() {
    let record = Process::screen().end_with(GoodbyeReason::Exit, Some(2));
    let reason = "the test itself failed: not judged for leaks";
    assert_ends(&process_suite(record, &[]), &GatePolicy::default(), Verdict::NotJudged, reason, 1);
}

/// Found by the fuzz target `session`: a stream that ends after its last boundary passed if it was unknown how the
/// process ended.
#[test]
fn a_process_that_never_said_goodbye_is_no_pass() {
    let killed = |mut record: ProcessRecord| {
        record.goodbye = None;
        ProcessInput { record, ending: Ending::Signalled(9) }
    };
    let how = "its process was ended by signal 9 (SIGKILL); last seen: main in futex_wait";
    let whole = process_suite(killed(process(|_| ())), &[]);
    let reason = format!("{how}; who killed it? the kernel does if memory runs out (`dmesg` shows that)");
    assert_ends(&whole, &GatePolicy::default(), Verdict::Error, &reason, 1);

    let left = |p: &mut Process| p.alloc(3, 8, 7);
    let mut lengths = process_suite(process(left), &[(10, 7), (20, 7), (30, 7)]);
    let run = Repetition { n: 40, process: killed(process(left)) };
    if let Some(ConfirmationInput::Lengths(runs)) = lengths.suites[0].confirmations.get_mut("engine") {
        runs.push(run);
    }
    let reason = format!("with 40 repetitions: {how}");
    assert_judged(&lengths, Verdict::Error, &reason);

    let mut repeated = screened_and_repeated(12, |p, _| p.alloc(3, 8, 1));
    if let Some(ConfirmationInput::Repeated(again)) = repeated.suites[0].confirmations.get_mut(TEST) {
        *again = Arc::new(killed(again.record.clone()));
    }
    let reason = format!("when it was repeated: after 12 iterations {how}");
    assert_judged(&repeated, Verdict::Error, &reason);
}

#[test]
fn a_process_that_became_another_program_is_not_measured_and_has_not_failed() {
    let mut record = process(|_| ());
    (record.end, record.goodbye) = (None, None);
    let run = process_suite(ProcessInput { record, ending: Ending::Exited(0) }, &[]);
    let reason = "not measured: its process became another program (exec), or ended past the C library; \
                  measure the other program, or let it end by exit";
    assert_judged(&run, Verdict::Error, reason);
}

#[test]
fn suite_thresholds_apply_or_say_why_they_do_not() {
    let input = run_once(screened(|_| ()));
    let limit = |bound| Limit {
        metric: Metric::OsRss,
        per: Per::Suite,
        bound,
        level: Level::Warn,
        source: "memgate.yaml:20".into(),
    };
    // The stream's peak is 10 000 000 bytes.
    let cases = [
        (Bound::Absolute(10e6), Verdict::Pass, ""),
        (Bound::Absolute(8e6), Verdict::Warn, "9.5 MiB RSS at the peak (allowed 7.6 MiB)"),
        (
            Bound::NoFigure,
            Verdict::Warn,
            "os.rss is not judged: its threshold is relative, and the baseline has no figure of this suite (`memgate baseline accept`)",
        ),
    ];
    for (bound, verdict, reason) in cases {
        let report = report(&input, &ruled(Metric::OsRss, vec![limit(bound)]));
        assert_eq!((report.suites[0].verdict, report.suites[0].reason.as_str()), (verdict, reason));
        assert_eq!(report.suites[0].metrics[&Metric::OsRss].value, 10e6);
    }
}

#[test]
fn the_cost_of_measuring_is_told() {
    let p = screened(|_| ());
    let policy = GatePolicy::default();
    let ratio = report(&run_once(p), &policy).agent_cost.cpu_ratio.expect("CPU time is known");
    // Of each millisecond, one microsecond is for boundaries and three are for recording.
    assert!((ratio - 1000.0 / 996.0).abs() < 1e-9, "{ratio}");
    let mut busy = Process::screen();
    busy.run(TEST, 0, |_| ());
    let mut busy = busy.end();
    busy.cost.boundary_ns = busy.cpu_ns.expect("CPU time is known") * 3 / 5;
    let of_busy = report(&run_once(busy), &policy).agent_cost;
    assert_eq!(of_busy.cpu_ratio, None, "boundaries waited for a processor");
    let screened = || screened(|p| p.alloc(1, 1 << 20, 1));
    let once = report(&run_once(screened()), &policy).agent_cost;
    let repeated = repeated(50, |_, _| ());
    let confirmed = repeated_alone(screened(), repeated);
    let confirmed = report(&confirmed, &policy).agent_cost;
    assert!(confirmed.repeated_s > 0.0 && once.boundary_s > 0.0);
    assert_eq!((confirmed.cpu_s, confirmed.boundary_s), (once.cpu_s, once.boundary_s), "of the screen alone");
}

/// The origin of a leak without a stack is unknown: accepting it in one test does not accept it in another.
#[test]
fn a_leak_without_a_stack_is_waived_in_its_test_alone() {
    let mut p = Process::screen();
    ["A.one", "A.other"].iter().for_each(|test| p.run(test, 0, |p| p.alloc(Process::BARE, 48, 1)));
    let input = run_once(p.end());
    let leaks = |policy: &GatePolicy| -> Vec<(String, bool)> {
        let tests = report(&input, policy).suites.remove(0).tests;
        tests.into_iter().map(|mut test| test.leaks.remove(0)).map(|l| (l.id, l.waiver.is_some())).collect()
    };
    let unwaived = leaks(&GatePolicy::default());
    let [(one, false), (other, false)] = unwaived.as_slice() else { panic!("{unwaived:?}") };
    assert_ne!(one, other);
    let waived = leaks(&waiving([waiver(WaiverMatch::Leak(one.clone()), None)]));
    assert_eq!(waived, [(one.clone(), true), (other.clone(), false)]);
}

/// Regression test: a vector that three functions enlarge failed its test without a leak, so nobody could waive it.
#[test]
fn a_vector_that_grows_from_several_places_is_one_leak_of_its_test() {
    let grows = |p: &mut Process, i: u32| {
        let capacity = |i: u32| i.next_power_of_two();
        let place = |capacity: u32| 1 + capacity.trailing_zeros() % 3;
        let (before, now) = (capacity(i.max(1)), capacity(i + 1));
        if i == 0 || before != now {
            p.alloc(place(now), 8 * u64::from(now), 1);
        }
        if before != now {
            p.free(place(before), 8 * u64::from(before), 1);
        }
    };
    let told = |executions: u32, waivers: Vec<Waiver>| {
        let mut report = report(&screened_and_repeated(executions, grows), &waiving(waivers));
        let mut test = report.suites.remove(0).tests.remove(0);
        assert!(test.one_time.is_empty() && !test.reason.contains("one-time"), "{}", test.reason);
        (test.verdict, test.leaks.remove(0), test.leaks.len())
    };
    let (verdict, leak, others) = told(1000, Vec::new());
    assert_eq!(
        (verdict, others, leak.frames[0].function.as_deref()),
        (Verdict::Fail, 0, Some("leak_2(int)"))
    );
    assert!(leak.title.ends_with(" more per iteration, also from leak_1, leak_3"), "{}", leak.title);
    let (_, later, _) = told(1900, Vec::new());
    assert_eq!((leak.id == later.id, later.frames[0].function.as_deref()), (true, Some("leak_3(int)")));
    assert_eq!(told(1000, vec![waiver(WaiverMatch::Leak(leak.id), None)]).0, Verdict::Pass);
    let frame = |part: &'static str| {
        let pattern = FramePattern::new(part, move |name: &str| name.contains(part));
        told(1000, vec![waiver(WaiverMatch::Frame(pattern), None)]).0
    };
    assert_eq!((frame("leak_2"), frame("TestBody")), (Verdict::Fail, Verdict::Pass));
}
