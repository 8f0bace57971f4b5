//! Planted leaks are found with figure and culprit, and nothing else is reported.

use std::collections::BTreeSet;

use memgate_e2e::{Project, Run, is_long, samples, say, truth};
use memgate_model::Runner;

use crate::{clean_session, leaks_session};

#[test]
fn every_planted_leak_fails_with_its_culprit_and_its_figure_and_no_other_test_does() {
    let (_, run) = leaks_session();
    run.ends_with(1);
    let suite = run.suite();
    assert_eq!((suite.name.as_str(), suite.runner), ("leaks", Runner::Gtest));
    matches_truth("leaks", run);
}

#[test]
fn a_leak_is_told_with_what_to_do_about_it() {
    let (_, run) = leaks_session();
    let id = &run.test("Leaks.Strdup").leaks[0].id;
    assert!(id.starts_with("n1-"), "{id}");
    run.says("FAIL  Leaks.Strdup   leaks::copy_title leaks 61 B per run · ")
        .says("tests/samples/native/leaks.cc:")
        .says("61 B per iteration (allowed 0 B)")
        .says("leaks::copy_title()")
        .says(&format!("memgate waive {id} --reason"));
}

#[test]
fn the_output_of_the_tests_stays_theirs() {
    let (_, run) = leaks_session();
    assert!(run.stdout.contains("[  PASSED  ] 20 tests."), "{run}");
    assert!(!run.stdout.contains("FAIL  Leaks"), "memgate speaks on stderr alone:\n{run}");
}

#[test]
fn clean_tests_pass_every_time() {
    let long = is_long();
    if !long {
        say("clean suite: 3 runs instead of 20 (MEMGATE_E2E_LONG=1 runs all)");
    }
    let (_, first) = clean_session();
    first.ends_with(0);
    matches_truth("clean", first);
    let project = Project::new("clean-again");
    for _ in 1..if long { 20 } else { 3 } {
        let run = project.run(&samples::suite("clean"));
        run.ends_with(0);
        matches_truth("clean", &run);
    }
}

#[track_caller]
fn matches_truth(suite: &str, run: &Run) {
    let expected = truth::of(suite);
    let tests = run.suite().tests;
    let ids = |ids: Vec<String>| ids.into_iter().collect::<BTreeSet<_>>();
    assert_eq!(
        ids(tests.iter().map(|test| test.id.clone()).collect()),
        ids(expected.iter().map(|test| test.id.clone()).collect())
    );
    let wrong: Vec<String> =
        expected.iter().flat_map(|expected| expected.differences(&run.test(&expected.id))).collect();
    assert!(wrong.is_empty(), "{}\n{run}", wrong.join("\n"));
}
