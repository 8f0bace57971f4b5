//! Tests that failed by themselves, and what was not measured.

use memgate_model::Outcome as Ended;
use memgate_wire::{ErrorCode, ErrorFrame, Frame, GoodbyeReason, Hello, Mappings, ProcessRole};

use super::*;
use crate::dsl::hello;

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
        vec![super::super::suite::problem("app", "not measured: the process crashed", "look at its log")];
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
        assert_eq!(judge(&broken(ending), &lenient, &mut ByNumber).exit_code, 2);
    }
    // Regression: after Ctrl-C, `memgate gate` said that a test had failed.
    let mut ended = broken(Ending::Unknown);
    ended.ended_early = true;
    assert_eq!(report_of(&ended).exit_code, 2, "nobody knows how it would have ended");
    let mut failed = Process::screen().outcome(Outcome::Failed);
    failed.run(TEST, 0, |_| ());
    ended.suites.push(suite(vec![failed.cut().into()]));
    assert_eq!(report_of(&ended).exit_code, 1, "another test had failed before");
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
