//! Tests that do nothing leave nothing behind: none becomes a suspect, none is repeated.

use std::fs;

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::probes;
use memgate_model::Verdict;

use crate::java::verdicts::suites::{MVN, run};

const CLASSES: usize = 20;
const TESTS: usize = 15;

fn nothing_leaks(turn: usize, junit: &str, import: &str) {
    for jdk in jvm::jdks_in_turn(turn) {
        nothing_leaks_with(&jdk, junit, import);
    }
}

/// A sample project with 300 empty tests instead of its own.
fn nothing_leaks_with(jdk: &Jdk, junit: &str, import: &str) {
    let project = jvm::sample("jvm-empty", junit);
    fs::remove_dir_all(project.folder().join("src")).unwrap();
    for class in 0..CLASSES {
        let tests: String =
            (0..TESTS).map(|test| format!("    @Test\n    public void test{test}() {{}}\n")).collect();
        project.write(
            &format!("src/test/java/com/example/Empty{class}Test.java"),
            format!(
                "package com.example;\n\nimport {import};\n\npublic class Empty{class}Test {{\n{tests}}}\n"
            ),
        );
    }
    let run = run(&project, jdk, &MVN);
    run.ends_with(0);
    let suite = run.suite();
    assert_eq!((suite.tests.len(), suite.verdict), (CLASSES * TESTS, Verdict::Pass), "{run}");
    assert!(!run.stderr.contains("confirming"), "one was suspected:\n{run}");
    let odd: Vec<_> = suite.tests.iter().filter(|test| test.confirmed || !test.reason.is_empty()).collect();
    assert!(odd.is_empty(), "{odd:#?}");
    let frames = fs::read_dir(project.session().join("frames")).unwrap();
    let mut streams = frames.map(|entry| probes::stream_bytes(&entry.unwrap().path()));
    let said = b"1 compiler directives added";
    let is_there = streams.any(|stream| stream.windows(said.len()).any(|part| part == said));
    assert!(is_there, "compilers work in the rounds that are compared: {run}");
}

#[test]
fn of_three_hundred_empty_junit_4_tests_none_is_suspected() {
    nothing_leaks(0, "junit4", "org.junit.Test");
}

#[test]
fn of_three_hundred_empty_junit_5_tests_none_is_suspected() {
    nothing_leaks(1, "junit5", "org.junit.jupiter.api.Test");
}
