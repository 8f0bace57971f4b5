//! Every planted Java leak is named by class, count, bytes and holder, and no other test fails.

use memgate_e2e::jvm::Truth;
use memgate_e2e::truth::name;
use memgate_model::{BoundaryQuality, LeakKind};

use crate::java::{Session, sessions};

#[track_caller]
fn matches_truth(junit: &str) {
    for Session { jdk, run, .. } in sessions().filter(|session| session.junit == junit) {
        run.ends_with(1);
        let suite = run.suite();
        assert_eq!((suite.runner.as_str(), suite.boundary), ("junit", BoundaryQuality::Class));
        let wrong = Truth::of(junit, jdk.release).differences(&suite);
        assert!(wrong.is_empty(), "JDK {}:\n{}\n{run}", jdk.release, wrong.join("\n"));
        assert_eq!(run.report().errors, [], "{run}");
    }
}

#[test]
fn every_planted_leak_under_junit_4_is_named_counted_and_held_and_no_other_test_fails() {
    matches_truth("junit4");
}

#[test]
fn every_planted_leak_under_junit_5_is_named_counted_and_held_and_no_other_test_fails() {
    matches_truth("junit5");
}

#[test]
fn a_java_leak_is_told_with_its_holder_and_what_to_do_about_it() {
    for Session { run, .. } in sessions() {
        let id = &run.test("com.example.TileCacheTest.evicts").leaks[0].id;
        run.says("FAIL  com.example.TileCacheTest.evicts").says("12 × com.example.Registry$Tile");
        run.says("static com.example.Registry.cache").says(&format!("memgate waive {id}"));
    }
}

#[test]
fn the_same_leaks_have_the_same_ids_with_every_jdk() {
    let known = |junit: &str| {
        let of_junit = sessions().filter(move |session| session.junit == junit);
        of_junit.map(ids).collect::<Vec<_>>()
    };
    for junit in ["junit4", "junit5"] {
        let known = known(junit);
        assert!(known.windows(2).all(|pair| pair[0] == pair[1]), "{junit}: {known:#?}");
    }
}

/// Tests with the ids of their Java leaks.
fn ids(session: &Session) -> Vec<(String, String, Vec<String>)> {
    let suite = session.run.suite();
    let java = |leak: &&memgate_model::Leak| leak.kind == LeakKind::Java;
    let leaks =
        |test: &memgate_model::TestReport| test.leaks.iter().filter(java).map(|l| l.id.clone()).collect();
    suite.tests.iter().map(|test| (test.id.clone(), name(test.verdict), leaks(test))).collect()
}
