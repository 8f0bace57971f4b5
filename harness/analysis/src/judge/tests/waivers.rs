//! Waivers of leaks.

use memgate_model::WaiverState;

use super::*;
use crate::policy::TestPattern;

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
fn a_waiver_covers_as_much_as_it_says_and_is_unused_only_if_it_names_no_leak() {
    let input = screened_and_repeated(20, |p, _| p.alloc(3, 37, 1));
    let id = only(&report_of(&input)).leaks[0].id.clone();
    let up_to = |limits: &[f64]| {
        let limited =
            |limit: &f64| Waiver { up_to: Some(*limit), ..waiver(WaiverMatch::Leak(id.clone()), None) };
        report(&input, &waiving(limits.iter().map(limited)))
    };
    for (limits, verdict, exceeded, used) in [
        (&[37.0][..], Verdict::Pass, None, &[1][..]),
        (&[36.0], Verdict::Pass, None, &[1]),
        (&[30.0], Verdict::Fail, Some(30.0), &[0]),
        (&[10.0, 30.0], Verdict::Fail, Some(30.0), &[0, 0]),
        (&[10.0, 40.0], Verdict::Pass, None, &[0, 1]),
        (&[40.0, 50.0], Verdict::Pass, None, &[1, 0]),
    ] {
        let report = up_to(limits);
        let (test, waivers) = (only(&report), &report.waivers);
        assert_eq!((test.verdict, test.leaks[0].waived_up_to), (verdict, exceeded), "{limits:?}");
        let told: Vec<_> = waivers.iter().map(|waiver| (waiver.state, waiver.used)).collect();
        let expected: Vec<_> = used.iter().map(|used| (WaiverState::InForce, *used)).collect();
        assert_eq!(told, expected, "{limits:?}");
    }
}

/// A first execution may leave more than others: the figure of the only one is no reason to fail.
#[test]
fn the_limit_of_a_waiver_counts_for_repeated_tests_only() {
    let input = run_once(screened(|p| p.alloc(3, 4096, 1)));
    let id = only(&report_of(&input)).leaks[0].id.clone();
    let limited = Waiver { up_to: Some(37.0), ..waiver(WaiverMatch::Leak(id), None) };
    let report = report(&input, &waiving([limited]));
    assert_eq!((only(&report).verdict, only(&report).leaks[0].waived_up_to), (Verdict::Pass, None));
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

/// Regression: an old answer of the server said that the leak was fixed, and the waiver was called stale, not expired.
#[test]
fn the_leak_of_an_expired_waiver_that_this_run_saw_is_not_fixed() {
    let input = screened_and_repeated(20, |p, _| p.alloc(3, 37, 1));
    let id = only(&report_of(&input)).leaks[0].id.clone();
    let mut policy = waiving([waiver(WaiverMatch::Leak(id.clone()), Some("2020-01-01"))]);
    (policy.today, policy.fixed) = ("2026-01-01".to_owned(), ([(id, "b2".to_owned())].into(), Level::Fail));
    let report = report(&input, &policy);
    assert_eq!((only(&report).verdict, report.waivers[0].state), (Verdict::Fail, WaiverState::Expired));
    assert_eq!(report.waivers[0].fixed, None);
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
    broken.errors.push(super::super::suite::problem("engine_tests", "not measured", ""));
    assert_eq!(state(&broken), WaiverState::InForce);
    assert_eq!(state(&RunInput::default()), WaiverState::InForce, "nothing ran");
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
