//! Growth that shows in one place only, or only in part, must not pass.

use memgate_model::{Metric, Per, Verdict};
use memgate_wire::{ErrorCode, ErrorFrame, Event, Frame, GoodbyeReason, MappedKind, capability};

use super::tests::{
    TEST, after_another, assert_verdict, in_company, of_test, only, process_suite, repeated, repeated_alone,
    report, run_once, screened, waiver,
};
use crate::dsl::{Process, hello};
use crate::input::{ConfirmationInput, ProcessInput, Repetition, RunInput};
use crate::policy::{GatePolicy, Limit, WaiverMatch};
use crate::record::ProcessRecord;

/// Stack and size of the block that its set-up allocates before each execution.
const SET_UP: (u32, u64) = (9, 433);

fn with_set_up(iterations: u32, body: impl Fn(&mut Process)) -> RunInput {
    let run = |mut p: Process, iterations: u32| {
        for i in 0..iterations {
            p.alloc(SET_UP.0, SET_UP.1, 1);
            p.run(TEST, i, &body);
        }
        p.end()
    };
    repeated_alone(run(Process::screen(), 1), run(Process::confirm(), iterations))
}

#[test]
fn a_test_that_frees_what_its_set_up_made_leaks_its_own() {
    let input = with_set_up(20, |p| {
        p.free(SET_UP.0, SET_UP.1, 1);
        p.alloc(3, 40, 1);
    });
    let fails = "40 B per iteration in one place (allowed 0 B)";
    assert_verdict(&input, &GatePolicy::default(), Verdict::Fail, fails);
}

#[test]
fn a_waived_set_up_hides_no_leak_of_the_test() {
    let input = with_set_up(20, |p| p.alloc(3, 40, 1));
    let leaks = report(&input, &GatePolicy::default());
    let of_set_up = only(&leaks).leaks.iter().find(|leak| leak.bytes_per_iteration > 400.0).unwrap();
    let waivers = vec![waiver(WaiverMatch::Leak(of_set_up.id.clone()), None)];
    let policy = GatePolicy { waivers, ..GatePolicy::default() };
    assert_verdict(&input, &policy, Verdict::Fail, "40 B per iteration (allowed 0 B)");
}

#[test]
fn a_leak_where_a_set_up_leaks_too_is_the_tests_beyond_what_the_set_up_leaves() {
    let with = |of_test: u64| {
        let mut screen = Process::screen();
        (0..2).for_each(|i| screen.run("Environment.SetUp()", i, |p| p.alloc(SET_UP.0, SET_UP.1, 1)));
        screen.run(TEST, 0, |p| p.alloc(3, 40, 1));
        let mut again = Process::confirm();
        for i in 0..20 {
            again.alloc(SET_UP.0, SET_UP.1, 1);
            again.run(TEST, i, |p| {
                p.alloc(3, 40, u64::from(i == 0));
                p.alloc(SET_UP.0, of_test, u64::from(of_test > 0));
            });
        }
        repeated_alone(screen.end(), again.end())
    };
    let default = GatePolicy::default();
    let own = of_test(&report(&with(0), &default)).clone();
    assert_eq!(own.verdict, Verdict::Pass, "{}", own.reason);
    let leaks = of_test(&report(&with(24), &default)).clone();
    assert_eq!(leaks.verdict, Verdict::Fail, "{}", leaks.reason);
}

#[test]
fn repetitions_that_leave_descriptors_open_leak_them() {
    let lengths = |opens: &dyn Fn(u64) -> u64| {
        let runs = [1, 2, 4, 8, 16].map(|n| {
            let mut p = Process::screen();
            (0..opens(n)).for_each(|_| p.open("/tmp/log", 6));
            p.works(n);
            Repetition { n, process: p.end().into() }
        });
        let mut run = process_suite(Process::screen().end(), &[(1, 0)]);
        run.suites[0].confirmations.insert("engine".to_owned(), ConfirmationInput::Lengths(runs.into()));
        run
    };
    let default = GatePolicy::default();
    let leaks = lengths(&|n| n);
    assert_verdict(&leaks, &default, Verdict::Fail, "1 descriptor per repetition (allowed 0)");
    let told = report(&leaks, &default);
    let titles: Vec<&str> = only(&told).leaks.iter().map(|leak| leak.title.as_str()).collect();
    assert_eq!(titles, ["1 × descriptor /tmp/log"]);
    let waivers = vec![waiver(WaiverMatch::Leak(only(&told).leaks[0].id.clone()), None)];
    assert_eq!(only(&report(&leaks, &GatePolicy { waivers, ..default.clone() })).verdict, Verdict::Pass);
    assert_verdict(&lengths(&|_| 7), &default, Verdict::Pass, "");

    let mut partly = lengths(&|_| 7);
    let mut blind = Process::screen().without_os();
    blind.works(4);
    let blind = blind.end().into();
    let Some(ConfirmationInput::Lengths(runs)) = partly.suites[0].confirmations.get_mut("engine") else {
        panic!("lengths")
    };
    runs[2].process = blind;
    let why = "not measured: descriptors were listed at the end of 4 of 5 runs; not measured: threads were listed at the end of 4 of 5 runs";
    assert_verdict(&partly, &default, Verdict::Error, why);
}

#[test]
fn what_cannot_be_listed_is_not_measured() {
    let mut screen = Process::screen().without_os();
    screen.run(TEST, 0, |_| ());
    let text = "its descriptors and threads could not be listed".to_owned();
    screen.frame(Frame::Error(ErrorFrame { code: ErrorCode::Unlisted, text }));
    let input = run_once(screen.end());
    let why = "not measured: its descriptors and threads could not be listed; `os.fds: off` and `os.threads: off` do without";
    assert_verdict(&input, &GatePolicy::default(), Verdict::Error, why);
    let native = vec![Limit::fail(Metric::NativeLiveBytes, 0.0, "memgate.yaml:24")];
    let policy = GatePolicy { defaults: native, ..GatePolicy::default() };
    assert_verdict(&input, &policy, Verdict::Pass, "");
}

/// GoogleTest has begun an iteration with these tests.
fn in_iteration(tests: &[&str]) -> Process {
    let mut p = Process::screen();
    let mut hello = hello();
    hello.capabilities.push(capability::ROUND_ENDS.to_owned());
    p.frames[0].0 = Frame::Hello(hello);
    p.iteration(0);
    tests.iter().for_each(|test| p.run(test, 0, |_| ()));
    p
}

#[test]
fn a_process_that_ends_between_tests_has_not_run_them_all() {
    let judged = |process: ProcessInput| {
        let report = report(&run_once(process), &GatePolicy::default());
        (report.verdict, report.suites[0].reason.clone())
    };
    let exits = |p: Process, reason| judged(p.end_with(reason, Some(0)).into());
    let error = |reason: &str| (Verdict::Error, reason.to_owned());
    let after = "after Map.insert, its process ended with exit, and not all tests have run";
    assert_eq!(exits(in_iteration(&[TEST]), GoodbyeReason::Exit), error(after));
    let before = "before its first test, its process ended with _exit, and not all tests have run";
    assert_eq!(exits(in_iteration(&[]), GoodbyeReason::QuickExit), error(before));
    let killed = ProcessInput::from(in_iteration(&[]).cut());
    let before = "before its first test, its process ended without a word; last seen: main in futex_wait";
    assert_eq!(judged(killed), error(before));

    let mut over = in_iteration(&[TEST]);
    over.frame(Frame::Event(Event { name: capability::ROUND_ENDS.to_owned(), detail: String::new() }));
    assert_eq!(exits(over, GoodbyeReason::QuickExit), (Verdict::Pass, String::new()));
    // Another version of the agent does not report the end of a round.
    let mut silent = Process::screen();
    silent.iteration(0);
    silent.run(TEST, 0, |_| ());
    assert_eq!(exits(silent, GoodbyeReason::Exit), (Verdict::Pass, String::new()));
}

/// The test is repeated in the first process. The second process leaves something that the first never had.
#[test]
fn what_a_test_leaves_in_another_process_is_no_pass() {
    let screen = |stack: u32, size: u64| screened(|p| p.alloc(stack, size, 1));
    let judged = |second: ProcessRecord| {
        let again = repeated(91, |p, i| p.alloc(3, 4096, u64::from(i == 0)));
        let mut run = repeated_alone(screen(3, 4096), again);
        run.suites[0].screen.push(second.into());
        report(&run, &GatePolicy::default())
    };
    assert_eq!(only(&judged(screen(3, 4096))).verdict, Verdict::Pass, "a one-time cost in both");
    let other = judged(screen(5, 48));
    assert_eq!(only(&other).verdict, Verdict::Warn);
    let why = "left 48 B in 1 allocation in one execution; alone nothing of it in 91 executions";
    assert!(only(&other).reason.contains(why), "{}", only(&other).reason);
}

#[test]
fn a_descriptor_left_only_after_other_tests_is_a_leak_that_can_be_waived() {
    let opens = |p, iterations| after_another(p, iterations, |p, _| p.open("/tmp/log", 6));
    let (screen, together) = (opens(Process::screen(), 1), opens(Process::confirm(), 30));
    let input = in_company(screen, repeated(91, |_, _| ()), Ok(together));
    let judged = |policy: &GatePolicy| of_test(&report(&input, policy)).clone();
    let fails = judged(&GatePolicy::default());
    assert_eq!(fails.verdict, Verdict::Fail, "{}", fails.reason);
    let titles: Vec<&str> = fails.leaks.iter().map(|leak| leak.title.as_str()).collect();
    assert_eq!(titles, ["1 × descriptor /tmp/log"]);
    let waivers = vec![waiver(WaiverMatch::Leak(fails.leaks[0].id.clone()), None)];
    let waived = judged(&GatePolicy { waivers, ..GatePolicy::default() });
    assert_eq!(waived.verdict, Verdict::Pass, "{}", waived.reason);
}

#[test]
fn a_waiver_of_a_descriptor_holds_for_a_limit_per_test() {
    let mut screen = Process::screen();
    screen.run(TEST, 0, |p| p.open("/tmp/log", 6));
    let input = run_once(screen.end());
    let limit = Limit { per: Per::Test, ..Limit::fail(Metric::OsFds, 0.0, "memgate.yaml:24") };
    let policy = GatePolicy { defaults: vec![limit], ..GatePolicy::default() };
    assert_verdict(&input, &policy, Verdict::Fail, "1 descriptor left by one execution (allowed 0)");
    let leaks = only(&report(&input, &policy)).leaks.clone();
    assert_eq!(leaks.len(), 1, "listed once: {leaks:?}");
    let waivers = vec![waiver(WaiverMatch::Leak(leaks[0].id.clone()), None)];
    assert_eq!(only(&report(&input, &GatePolicy { waivers, ..policy })).verdict, Verdict::Pass);
}

/// The memory that a pool maps depends on the number of threads that use it at the same time. In the screen it mapped
/// five ranges.
#[test]
fn a_pool_that_maps_less_the_next_time_is_a_cost_that_comes_once() {
    let maps = |p: &mut Process, stack: u32, ranges: u64| {
        p.mapped(stack, MappedKind::Anonymous, ranges, ranges << 16);
    };
    let judged = |again: &dyn Fn(&mut Process, u32)| {
        let screen = screened(|p| maps(p, 7, 5));
        let alone = repeated(91, |p, i| again(p, i));
        let report = report(&repeated_alone(screen, alone), &GatePolicy::default());
        (only(&report).verdict, only(&report).reason.clone())
    };
    let (verdict, reason) = judged(&|p, _| maps(p, 7, 3));
    assert_eq!(verdict, Verdict::Pass, "{reason}");
    assert!(reason.starts_with("one-time: 320.0 KiB of mapped memory; nothing more in "), "{reason}");
    let (verdict, reason) = judged(&|p, _| maps(p, 8, 3));
    assert_eq!(verdict, Verdict::Warn, "another place: {reason}");
    let (verdict, reason) = judged(&|p, i| maps(p, 7, if i > 50 { 4 } else { 3 }));
    assert_eq!(verdict, Verdict::Warn, "and more later: {reason}");
    let (verdict, reason) = judged(&|p, i| maps(p, 7, 1 + u64::from(i)));
    assert_eq!(verdict, Verdict::Fail, "{reason}");
}
