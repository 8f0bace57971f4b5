//! Whole runs, described as streams, and the verdicts that they must get.

mod programs;
mod unmeasured;
mod waivers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use memgate_model::{
    BoundaryQuality, Leak, LeakKind, Level, Metric, Per, RunReport, Runner, TestReport, ThresholdSource,
    Verdict,
};
use memgate_wire::{MappedKind, Outcome};

use super::judge;
use crate::dsl::{ByNumber, Process};
use crate::input::{ConfirmationInput, Ending, ProcessInput, RunInput, SuiteInput};
use crate::policy::{Bound, FramePattern, GatePolicy, Limit, NamePattern, Rule, Waiver, WaiverMatch};
use crate::record::ProcessRecord;
use crate::screen::screen;
pub(super) use programs::process_suite;

pub(crate) const TEST: &str = "Map.insert";

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

pub(crate) fn waiver(matches: WaiverMatch, until: Option<&str>) -> Waiver {
    Waiver {
        matches,
        test: None,
        reason: "upstream issue 1234".to_owned(),
        owner: None,
        until: until.map(str::to_owned),
        up_to: None,
    }
}

/// `reason_beside_figures` is everything without the form `48.0 KiB per iteration (allowed 0 B)`.
fn figures_are_told_from_words(report: RunReport) -> RunReport {
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
        let mut said = BTreeSet::new();
        let words = test.reason.split("; ").filter_map(words).filter(|words| said.insert(words.clone()));
        let words: Vec<String> = words.collect();
        let beside = test.reason_beside_figures.as_ref().unwrap_or(&test.reason);
        assert_eq!(*beside, words.join("; "), "{}: {}", test.id, test.reason);
    }
    report
}

/// The record of a plain program that does this.
fn process(body: impl FnOnce(&mut Process)) -> ProcessRecord {
    let mut p = Process::screen();
    body(&mut p);
    p.end()
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

fn confirmed_by(screen: ProcessRecord, confirmation: ConfirmationInput) -> RunInput {
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
fn a_leak_of_memory_and_a_descriptor_now_and_then_says_once_how_often() {
    let input = screened_and_repeated(100, |p, i| {
        if i % 10 == 9 {
            p.alloc(1, 48, 1);
            p.open("/dev/null", 2);
        }
    });
    let report = report_of(&input);
    let test = only(&report);
    assert_eq!(test.reason_beside_figures.as_deref(), Some("in 10 of 97 executions"), "{}", test.reason);
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

/// Regression test: such a leak was also listed as kept once, because its id is that of the test.
#[test]
fn a_leak_without_a_stack_is_no_one_time_cost_too() {
    let report = report_of(&screened_and_repeated(38, |p, _| p.alloc(Process::BARE, 48, 1)));
    let test = only(&report);
    assert_eq!((test.leaks.len(), test.one_time.len()), (1, 0), "{test:?}");
    assert_eq!(test.reason, "48 B per iteration (allowed 0 B)");
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
    let left = |count, capability: &str, open: &[&str]| {
        let mut process = Process::screen();
        process.run(TEST, 0, |_| {});
        open.iter().for_each(|test| process.start(test, 0));
        process.alloc(3, 64, count);
        let mut record = process.end();
        let capabilities = &mut record.hello.as_mut().unwrap().capabilities;
        capabilities.extend([memgate_wire::capability::C_API, capability].map(str::to_owned));
        let report = report_of(&run_once(record));
        (report.suites[0].verdict, report.suites[0].reason.clone())
    };
    assert_eq!(left(99, "", &[]), (Verdict::Pass, String::new()), "the runner's own");
    let reason =
        "not judged: after its last test it left 62.5 KiB in 1000 allocations, which belong to no test";
    assert_eq!(left(1000, "", &[]), (Verdict::Warn, reason.to_owned()));
    let sampled = memgate_wire::sampling::capability(65_536);
    assert!(!left(1000, &sampled, &[]).1.contains(reason), "one sample stands for many blocks");
    assert!(!left(1000, "", &["Other.open"]).1.contains(reason), "it may have made them");
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

#[test]
fn descriptors_from_another_place_each_time_are_a_leak_of_their_name() {
    let input = screened_and_repeated(20, |p, i| p.open("socket:[17]", 3 + i));
    let leaks = os_leaks(&report_of(&input));
    let id = crate::signature::os_id("descriptor", "socket:[…]");
    assert_eq!(leaks, [(id, "1 × descriptor socket:[…]".to_owned(), None)]);
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
