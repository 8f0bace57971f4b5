//! The same suites started by ctest, make and a shell script: every GoogleTest executable is measured,
//! nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use memgate_e2e::samples::successful;
use memgate_e2e::{Project, Run, has_tool, samples, skip, truth};
use memgate_model::{BoundaryQuality, SuiteReport, Verdict};

use crate::ci::shards::is_the_same_in_shards;

const FILTER: &str = "Leaks.Strdup:Leaks.ArrayNew:Levels/*";

#[track_caller]
fn is_right(run: &Run, suites: &[&str]) {
    run.ends_with(1);
    let report = run.report();
    let mut names: Vec<&str> = report.suites.iter().map(|suite| suite.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, suites, "{run}");
    assert!(report.suites.iter().all(|suite| suite.boundary == BoundaryQuality::Exact), "{run}");
    for id in ["Leaks.Strdup", "Leaks.ArrayNew", "Levels/OneParameter.Loads/0", "Levels/OneParameter.Loads/2"]
    {
        let wrong = truth::of_test("leaks", id).differences(&run.test(id));
        assert!(wrong.is_empty(), "{}\n{run}", wrong.join("\n"));
    }
    let failed: Vec<&str> = report
        .suites
        .iter()
        .flat_map(|suite| &suite.tests)
        .filter(|test| test.verdict == Verdict::Fail)
        .map(|test| test.id.as_str())
        .collect();
    assert_eq!(failed.len(), 3, "{failed:?}");
}

#[test]
fn ctest_with_a_process_for_each_test_gives_one_suite() {
    if !has_tool("cmake") || !has_tool("ctest") {
        return;
    }
    let project = Project::new("ctest");
    let sources = samples::sources();
    let sources = sources.display();
    project.write(
        "CMakeLists.txt",
        format!(
            "cmake_minimum_required(VERSION 3.22)\nproject(tiles CXX)\nset(CMAKE_CXX_STANDARD 17)\n\
             set(CMAKE_CXX_FLAGS \"-O1 -g\")\nfind_package(GTest REQUIRED)\ninclude(GoogleTest)\nenable_testing()\n\
             add_executable(leaks {sources}/leaks.cc)\ntarget_link_libraries(leaks GTest::gtest_main)\n\
             gtest_discover_tests(leaks TEST_FILTER {FILTER})\n\
             add_test(NAME says COMMAND ${{CMAKE_COMMAND}} -E echo nothing to measure)\n"
        ),
    );
    successful(Command::new("cmake").args(["-S", ".", "-B", "build"]).current_dir(project.folder()));
    successful(Command::new("cmake").args(["--build", "build"]).current_dir(project.folder()));
    let run = project.memgate(&["run", "--", "ctest", "--test-dir", "build"]);
    is_right(&run, &["leaks"]);
    assert_eq!(run.suite().tests.len(), 6, "{run}");
    assert!(run.stdout.contains("100% tests passed"), "its own result is untouched:\n{run}");
    // One spool for each test and one for each confirmation: ctest and cmake left none.
    assert_eq!(project.streams().len(), 6 + 3);
    is_the_same_in_shards(&project, &run.report(), 2, &["--", "ctest", "--test-dir", "build"], &|_| ());
    project.write("memgate.yaml", "version: 1\nsuites: { unit: { run: [ctest, --test-dir, build] } }\n");
    let filtered = |filter| project.memgate(&["run", "--filter", filter, "--suite", "unit"]);
    let one = filtered("Leaks.Strdup");
    one.ends_with(1);
    assert_eq!((one.suite().name.as_str(), one.suite().tests.len()), ("unit", 1), "{one}");
    let again = "run only this test: memgate run --filter Leaks.Strdup --suite unit";
    one.says(again);
    filtered("Leaks.Strdub").ends_with(2).says("did you mean Leaks.Strdup?");
}

#[test]
fn a_shell_script_and_make_are_looked_below() {
    let project = Project::new("script");
    let (leaks, clean) = (samples::suite("leaks"), samples::suite("clean"));
    let (leaks, clean) = (leaks.display(), clean.display());
    let script = project.write(
        "run_all.sh",
        format!(
            "#!/bin/sh\nset -e\necho begin | cat\n{leaks} '--gtest_filter={FILTER}'\n\
             sh -c 'exec {clean} --gtest_filter=Clean.Churn:Clean.NothingAtAll'\n"
        ),
    );
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let run = project.memgate(&["run", "--", "./run_all.sh"]);
    is_right(&run, &["clean", "leaks"]);
    assert_eq!(project.streams().len(), 2 + 3, "the shell, cat and echo stay dormant");

    if !has_tool("make") {
        return;
    }
    project.write("Makefile", "check:\n\t@./run_all.sh\n");
    let make = project.memgate(&["run", "--no-confirm", "--", "make", "check"]);
    make.ends_with(0);
    assert_eq!(project.streams().len(), 2, "make stays dormant");
    assert_eq!(make.test("Leaks.Strdup").verdict, Verdict::Warn, "not confirmed by choice");
    assert_eq!(make.test("Clean.Churn").verdict, Verdict::Pass);
}

/// In `AtOnce`, both programs meet the first time. `Alone` fails while another process runs it.
const AT_ONCE: &str = r#"
#include <gtest/gtest.h>
#include <fcntl.h>
#include <unistd.h>
#include <string>
void* volatile kept;
TEST(AtOnce, Leaks) {
    kept = new char[321];
    int meet = open("meet", std::string(program_invocation_short_name) == "one" ? O_RDONLY : O_WRONLY);
    if (meet < 0) return;
    close(meet);
    unlink("meet");
}
TEST(Alone, Leaks) {
    int lock = open("lock", O_CREAT | O_EXCL, 0600);
    ASSERT_GE(lock, 0) << "it runs in another process";
    kept = new char[123];
    usleep(20000);  // So long that the other program meets the lock.
    close(lock);
    unlink("lock");
}
"#;

#[test]
fn suspects_run_at_once_where_the_tests_of_the_users_own_run_did() {
    if std::thread::available_parallelism().is_ok_and(|processors| processors.get() < 2) {
        return skip("two processors are needed for two tests at once");
    }
    let project = Project::new("at-once");
    let program = samples::own_suite("at_once", AT_ONCE);
    for name in ["one", "two"] {
        fs::copy(&program, project.folder().join(name)).unwrap();
    }
    project.write(
        "check.sh",
        "mkfifo meet
         ./one --gtest_filter=AtOnce.* & ./two --gtest_filter=AtOnce.*; wait
         ./one --gtest_filter=Alone.*; ./two --gtest_filter=Alone.*",
    );
    let run = project.memgate(&["run", "--", "sh", "check.sh"]);
    run.ends_with(1).says("confirming 4, each alone, up to 2 at once, as in your own run");
    run.says("did not pass beside others: once more, one after the other");
    let report = run.report();
    let failed =
        |suite: &SuiteReport| suite.tests.iter().filter(|test| test.verdict == Verdict::Fail).count();
    let mut suites: Vec<_> = report.suites.iter().map(|suite| (suite.name.as_str(), failed(suite))).collect();
    suites.sort_unstable();
    assert_eq!(suites, [("one", 2), ("two", 2)], "{run}");
    let folders = fs::read_dir(project.session().join("frames")).unwrap();
    assert!(
        folders.into_iter().all(|entry| entry.unwrap().file_type().unwrap().is_file()),
        "all streams lie together"
    );
    let again = project.memgate(&["gate", ".memgate/latest"]);
    again.ends_with(1);
    assert!(again.stdout.contains("4 of 4 tests leak"), "{again}");
}

#[test]
fn a_failing_script_is_not_hidden() {
    let project = Project::new("failing-script");
    let clean = samples::suite("clean");
    let run = project.memgate(&[
        "run",
        "--",
        "sh",
        "-c",
        &format!("{} --gtest_filter=Clean.Churn; exit 3", clean.display()),
    ]);
    run.ends_with(1);
    assert_eq!(run.test("Clean.Churn").verdict, Verdict::Pass);
    assert_eq!(run.report().verdict, Verdict::NotJudged, "not a pass beside an exit code of 1: {run}");
    assert!(run.problems().contains("it ended with status 3, though no test failed"), "{}", run.problems());
    assert!(run.stderr.contains("status 3"), "{run}");
}

#[test]
fn a_tree_without_a_suite_is_an_error() {
    let run = Project::new("no-suite").memgate(&["run", "--", "sh", "-c", "echo nothing here"]);
    run.ends_with(2);
    // By the name that was typed: `sh` is a link to a shell.
    assert!(
        run.problems().starts_with("sh: not measured: no GoogleTest executable ran"),
        "{}",
        run.problems()
    );
    assert_eq!(run.stdout, "nothing here\n");
}

#[test]
fn what_proc_does_not_show_is_not_measured_and_never_a_pass() {
    let namespace = ["-U", "-p", "-f", "--mount-proc"];
    let possible = Command::new("unshare").args(namespace).arg("true").output();
    if !possible.is_ok_and(|output| output.status.success()) {
        memgate_e2e::skip("unshare cannot make a pid namespace here");
        return;
    }
    let project = Project::new("namespace");
    let clean = samples::suite("clean").display().to_string();
    let mut arguments = vec!["run", "--filter", "Clean.Churn", "--", "unshare"];
    arguments.extend(namespace);
    arguments.push(&clean);
    let run = project.memgate(&arguments);
    run.ends_with(2);
    assert!(run.stderr.contains("descriptors and threads were not measured"), "{run}");
}
