//! The native sample suites for arm64: `tests/aarch64/run` builds them and runs these tests if the kernel
//! passes such programs to qemu.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use memgate_e2e::{Project, Run, truth};

/// `memgate run` of a script that starts the suite: memgate itself refuses to start a program for another
/// machine.
fn run(suite: &str) -> Run {
    let suites =
        std::env::var_os("MEMGATE_AARCH64_SUITES").expect("tests/aarch64/run names the folder of suites");
    let project = Project::new(&format!("aarch64-{suite}"));
    let program = PathBuf::from(suites).join(suite);
    let script = project.write("suite.sh", format!("#!/bin/sh\nexec {}\n", program.display()));
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    project.run(&script)
}

#[track_caller]
fn matches_truth(suite: &str, code: i32) {
    let run = run(suite);
    run.ends_with(code);
    let expected = truth::of(suite);
    assert_eq!(run.suite().tests.len(), expected.len(), "{run}");
    let wrong: Vec<String> =
        expected.iter().flat_map(|expected| expected.differences(&run.test(&expected.id))).collect();
    assert!(wrong.is_empty(), "{}\n{run}", wrong.join("\n"));
}

#[test]
#[ignore = "needs arm64's programs: tests/aarch64/run"]
fn every_planted_leak_fails_with_its_culprit_and_its_figure() {
    matches_truth("leaks", 1);
}

#[test]
#[ignore = "needs arm64's programs: tests/aarch64/run"]
fn clean_tests_pass() {
    matches_truth("clean", 0);
}

#[test]
#[ignore = "needs arm64's programs: tests/aarch64/run"]
fn a_leak_belongs_to_the_test_that_allocated_it() {
    matches_truth("epochs", 1);
}

#[test]
#[ignore = "needs arm64's programs: tests/aarch64/run"]
fn a_failing_test_is_not_judged() {
    matches_truth("failing", 1);
}

#[test]
#[ignore = "needs arm64's programs: tests/aarch64/run"]
fn what_is_mapped_and_stays_is_told() {
    crate::native::mappings::tells_each_leak(&run("mappings"));
}
