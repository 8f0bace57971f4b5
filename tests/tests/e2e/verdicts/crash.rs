//! A suite that ends badly is an error or a failure that names the place, never a pass; the other tests are
//! still judged.

use std::fs;
use std::time::{Duration, Instant};

use memgate_e2e::waiting::{Running, until};
use memgate_e2e::{Project, Run, samples, truth};
use memgate_model::{Outcome, Verdict};
use rustix::process::Signal;

/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(30);

#[track_caller]
fn says_that_after_did_not_run(run: &Run, ended_in: &str) {
    let told = run.problems();
    let want = format!("Crash.After did not run: the process ended in {ended_in}");
    assert!(told.contains(&want), "`{want}` is missing:\n{told}");
}

#[test]
fn a_segmentation_fault_is_an_error_where_it_happened_and_what_ran_before_is_judged() {
    let run = Project::new("crash-segv").run(&samples::suite("crash_segv"));
    // The wrapped tests failed, as they do without memgate.
    run.ends_with(1);
    let crashed = run.test("Crash.Segfault");
    assert_eq!((crashed.outcome, crashed.verdict), (Outcome::Crashed, Verdict::Error), "{}", crashed.reason);
    assert!(crashed.reason.contains("SIGSEGV") || crashed.reason.contains("signal 11"), "{}", crashed.reason);
    let before = truth::of_test("crash_segv", "Crash.Before");
    assert_eq!(before.differences(&run.test("Crash.Before")), [""; 0]);
    says_that_after_did_not_run(&run, "Crash.Segfault");
}

#[test]
fn an_abort_is_an_error_and_the_tests_after_it_are_named() {
    let run = Project::new("crash-abort").run(&samples::suite("crash_abort"));
    run.ends_with(1);
    let crashed = run.test("Crash.Abort");
    assert_eq!((crashed.outcome, crashed.verdict), (Outcome::Crashed, Verdict::Error), "{}", crashed.reason);
    assert!(crashed.reason.contains("SIGABRT") || crashed.reason.contains("signal 6"), "{}", crashed.reason);
    assert_eq!(run.test("Crash.Before").verdict, Verdict::Pass);
    says_that_after_did_not_run(&run, "Crash.Abort");
}

#[test]
fn a_killed_process_leaves_everything_behind_up_to_its_end() {
    let program = samples::own_suite(
        "killed",
        "#include <gtest/gtest.h>\n#include <signal.h>\n#include <unistd.h>\n\
         TEST(Killed, Before) {}\nTEST(Killed, Now) { kill(getpid(), SIGKILL); }\n",
    );
    let run = Project::new("killed-process").run(&program);
    run.ends_with(1);
    assert_eq!(run.test("Killed.Before").verdict, Verdict::Pass);
    let killed = run.test("Killed.Now");
    assert_eq!((killed.outcome, killed.verdict), (Outcome::Crashed, Verdict::Error), "{}", killed.reason);
    assert!(killed.reason.contains("SIGKILL"), "{}", killed.reason);
}

#[test]
fn leaving_in_the_middle_with_status_zero_is_no_pass() {
    let run = Project::new("exit-early").run(&samples::suite("exit_early"));
    // The test did not pass, whatever the exit status says.
    run.ends_with(1);
    let left = run.test("Crash.Exit");
    assert_eq!((left.outcome, left.verdict), (Outcome::Crashed, Verdict::Error), "{}", left.reason);
    assert_eq!(run.test("Crash.Before").verdict, Verdict::Pass);
    says_that_after_did_not_run(&run, "Crash.Exit");
}

/// The time limit applies only to memgate's own runs, not to the user's run.
#[test]
fn leaving_between_tests_is_no_pass_and_the_tests_after_it_are_named() {
    let suite = |name: &str, before: &str| {
        let text = format!(
            "#include <gtest/gtest.h>\n#include <unistd.h>\n\
             struct Leaves : testing::Test {{ static void SetUpTestSuite() {{ {before} }} }};\n\
             TEST(Early, Passes) {{}}\nTEST_F(Leaves, Late) {{}}\n"
        );
        samples::own_suite(name, &text)
    };
    for (name, before, how) in [
        ("leaves_by_exit", "exit(0);", "its process ended with exit, and not all tests have run"),
        ("leaves_by__exit", "_exit(0);", "its process ended with _exit, and not all tests have run"),
        ("leaves_by_kill", "kill(getpid(), SIGKILL);", "signal 9 (SIGKILL)"),
    ] {
        let run = Project::new(name).run(&suite(name, before));
        assert_eq!(run.report().verdict, Verdict::Error, "{run}");
        assert_eq!(run.test("Early.Passes").verdict, Verdict::Pass);
        let told = run.problems();
        assert!(told.contains("after Early.Passes") && told.contains(how), "{told}");
        let missing = "Leaves.Late did not run: the process ended after Early.Passes";
        assert!(told.contains(missing), "{told}");
    }
    let whole = Project::new("leaves-not").run(&suite("leaves_not", ""));
    whole.ends_with(0);
    assert_eq!(whole.report().verdict, Verdict::Pass, "{whole}");
    // After all tests have run, it does not matter how the process ends.
    let behind = samples::own_suite(
        "leaves_behind_all",
        "#include <gtest/gtest.h>\n#include <unistd.h>\nTEST(Early, Passes) {}\n\
         struct Quick : testing::Environment { void TearDown() override { _exit(0); } };\n\
         int main(int n, char** a) { testing::InitGoogleTest(&n, a); AddGlobalTestEnvironment(new Quick); return RUN_ALL_TESTS(); }\n",
    );
    let run = Project::new("leaves-behind-all").run(&behind);
    run.ends_with(0);
    assert_eq!(run.report().verdict, Verdict::Pass, "{run}");
}

#[test]
fn a_test_that_takes_long_says_where_it_stands_and_goes_on() {
    let program = samples::own_suite(
        "slow",
        "#include <gtest/gtest.h>\n#include <unistd.h>\n\
         TEST(Slow, Sleeps) { for (unsigned left = 3; left > 0;) left = sleep(left); }\n",
    );
    let run = Project::new("slow").memgate(&["run", "--timeout", "1s", "--", program.to_str().unwrap()]);
    run.ends_with(0).says("Slow.Sleeps has not ended after 1 s; its threads: slow (").says("; it goes on: ");
    assert_eq!(run.test("Slow.Sleeps").verdict, Verdict::Pass, "{run}");
}

/// A test that hangs only when it is repeated: the time limit ends it.
#[test]
fn a_repetition_that_hangs_is_ended_and_unconfirmed_and_says_where_it_hung() {
    let program = samples::own_suite(
        "hangs_again",
        "#include <gtest/gtest.h>\n#include <unistd.h>\n\
         TEST(Again, Hangs) { static int times; new int; if (times++ > 0) for (;;) pause(); }\n",
    );
    let run =
        Project::new("hangs-again").memgate(&["run", "--timeout", "4s", "--", program.to_str().unwrap()]);
    run.ends_with(0);
    let hung = run.test("Again.Hangs");
    assert_eq!(hung.verdict, Verdict::Warn, "{run}");
    let why = "unconfirmed: left 4 B in 1 allocation in one execution; it cannot be repeated in one process: after 1 iteration still";
    assert!(hung.reason.starts_with(why), "{}", hung.reason);
    assert!(hung.reason.contains("still running after 4 s; last seen: hangs_again in "), "{}", hung.reason);
}

#[test]
fn the_wrapped_tests_own_failure_is_never_hidden_and_not_judged_for_leaks() {
    let project = Project::new("failing");
    let program = samples::suite("failing");
    let run = project.run(&program);
    run.ends_with(1);
    assert_eq!(run.test("Failing.Passes").verdict, Verdict::Pass);
    let failed = run.test("Failing.Fails");
    assert_eq!((failed.outcome, failed.verdict), (Outcome::Failed, Verdict::NotJudged));
    assert!(run.stdout.contains("[  FAILED  ] Failing.Fails"), "their output is untouched:\n{run}");

    let ignoring = project.memgate(&["run", "--ignore-test-failures", "--", program.to_str().unwrap()]);
    ignoring.ends_with(0);
}

/// Removes the results of failed checks, as the tests of test tools do.
const TAKES_BACK: &str = "\
#include <gtest/gtest.h>
namespace testing::internal {
struct TestResultAccessor { static void clear(TestResult* r) { r->ClearTestPartResults(); } };
}
void clear() {
  auto* info = testing::UnitTest::GetInstance()->current_test_info();
  testing::internal::TestResultAccessor::clear(const_cast<testing::TestResult*>(info->result()));
}
char* volatile lost;
TEST(Parts, Cleared) { EXPECT_TRUE(false); clear(); }
TEST(Parts, ClearedAndLeaks) { lost = new char[91]; EXPECT_TRUE(false); clear(); }
TEST(Parts, ClearedAndSkipped) { EXPECT_TRUE(false); clear(); GTEST_SKIP(); }
TEST(Parts, FailsAfterwards) { EXPECT_TRUE(false); clear(); EXPECT_TRUE(false); }
TEST(Parts, FailsForGood) { ASSERT_TRUE(false); }
";

/// Regression: the listener took every failed check for a failed test.
#[test]
fn a_test_that_takes_its_failed_checks_back_has_passed() {
    let project = Project::new("takes-back");
    let program = samples::own_suite("takes_back", TAKES_BACK);
    let run = project.run_filtered("Parts.Cleared*", &program);
    run.ends_with(1);
    assert!(run.stdout.contains("[  PASSED  ] 2 tests"), "as it does alone: {run}");
    let is = |test: &str, outcome: Outcome, verdict: Verdict| {
        let test = run.test(test);
        assert_eq!((test.outcome, test.verdict), (outcome, verdict), "{run}");
    };
    is("Parts.Cleared", Outcome::Passed, Verdict::Pass);
    is("Parts.ClearedAndLeaks", Outcome::Passed, Verdict::Fail);
    is("Parts.ClearedAndSkipped", Outcome::Skipped, Verdict::NotJudged);

    let run = project.run_filtered("Parts.Fails*", &program);
    run.ends_with(1);
    for test in ["Parts.FailsAfterwards", "Parts.FailsForGood"] {
        assert_eq!(run.test(test).outcome, Outcome::Failed, "{run}");
    }
}

#[test]
fn a_filter_that_matches_nothing_is_an_error() {
    let run = Project::new("no-test").run_filtered("Nothing.*", &samples::suite("clean"));
    run.ends_with(2);
    assert_eq!(run.report().verdict, Verdict::Error, "{}", run.problems());
}

#[test]
fn a_program_that_runs_no_test_is_an_error() {
    let project = Project::new("no-test-of-its-own");
    let program = samples::own_suite(
        "leaves_early",
        "#include <gtest/gtest.h>\n#include <cstdlib>\nstatic bool early = (std::atexit([] {}), true);\n\
         int main() { return early ? 0 : RUN_ALL_TESTS(); }\nTEST(A, b) {}\n",
    );
    let run = project.memgate(&["run", "--", program.to_str().unwrap()]);
    run.ends_with(2);
    assert!(run.problems().contains("ended without running a test of GoogleTest"), "{}", run.problems());
}

#[test]
fn a_run_without_a_test_is_an_error_and_one_program_of_several_may_have_none() {
    let project = Project::new("nothing-to-run");
    let clean = samples::suite("clean").display().to_string();
    let run = project.memgate(&["run", "--", &clean, "--gtest_filter=Nothing.*"]);
    run.ends_with(2).says("no test ran: nothing was measured");
    assert!(run.problems().contains("no test to run"), "{}", run.problems());
    let [stream] = &project.streams()[..] else { panic!("{run}") };
    let gate = project.memgate(&["gate", stream.to_str().unwrap()]);
    assert!(gate.ends_with(2).stdout.contains("no test ran: nothing was measured"), "{gate}");
    project.write(
        "memgate.yaml",
        format!(
            "version: 1\nsuites:\n  churn: {{ run: [{clean}, --gtest_filter=Clean.Churn] }}\n  \
             mistyped: {{ run: [{clean}, --gtest_filter=Nothing.*] }}\n"
        ),
    );
    let run = project.memgate(&["run"]);
    run.ends_with(2);
    assert!(run.problems().contains("the suite's own filter selects none"), "{}", run.problems());
    let shards = format!(
        "{clean} --gtest_filter=Clean.Churn; GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=1 {clean} --gtest_filter=Clean.Churn --own"
    );
    let run = project.memgate(&["run", "--", "sh", "-c", &shards]);
    run.ends_with(0);
    assert_eq!(run.test("Clean.Churn").verdict, Verdict::Pass);
    assert_eq!(run.report().suites.len(), 2, "{run}");
}

#[test]
fn a_test_whose_folder_is_gone_is_unconfirmed_and_the_others_are_judged() {
    let project = Project::new("gone-when-confirmed");
    let leaks = samples::suite("leaks").display().to_string();
    let text = format!(
        "cp {leaks} kept; mkdir t; cp {leaks} t/removed; ./kept --gtest_filter=Leaks.Strdup; \
         (cd t; ./removed --gtest_filter=Leaks.ArrayNew); rm -rf t"
    );
    let run = project.memgate(&["run", "--", "sh", "-c", &text]);
    run.ends_with(1);
    assert_eq!(run.test("Leaks.Strdup").verdict, Verdict::Fail, "{run}");
    let gone = run.test("Leaks.ArrayNew");
    assert_eq!(gone.verdict, Verdict::Warn, "{run}");
    assert!(gone.reason.contains("unconfirmed") && gone.reason.contains("may be gone"), "{}", gone.reason);
}

#[test]
fn a_missing_program_is_told_with_a_hint() {
    let project = Project::new("missing-program");
    for program in ["./engine_tests", "engine-tests-nobody-has"] {
        let run = project.memgate(&["run", "--", program]);
        run.ends_with(2).says(program).says("hint:");
        assert!(!project.session().exists(), "nothing ran, so there is no session");
    }
}

/// Some service managers start their jobs with SIGCHLD ignored. The kernel then keeps no exit codes.
#[test]
fn tests_run_although_memgate_was_started_with_sigchld_ignored() {
    let project = Project::new("sigchld-ignored");
    let leaks = samples::suite("leaks");
    let run =
        project.limited(&["run", "--filter", "Leaks.Strdup", "--", leaks.to_str().unwrap()], "trap '' CHLD");
    run.ends_with(1);
    assert_eq!(run.test("Leaks.Strdup").verdict, Verdict::Fail, "{run}");
}

#[test]
fn ctrl_c_stops_the_tests_and_keeps_the_session() {
    let project = Project::new("interrupted");
    let program = samples::suite("hang");
    let memgate = Running::start(&mut project.command(&["run", "--", program.to_str().unwrap()]));
    let guest = until(DEADLINE, "the test hangs", || hanging(&project));
    let asked = Instant::now();
    memgate.signal(Signal::INT);
    assert_eq!(memgate.output().status.code(), Some(130));
    assert!(asked.elapsed() < DEADLINE, "{:?}", asked.elapsed());
    until(DEADLINE, "the tests have ended", || {
        (!fs::exists(format!("/proc/{guest}")).unwrap()).then_some(())
    });

    let gate = project.memgate(&["gate", "--format", "json", ".memgate/latest"]);
    gate.ends_with(2);
    assert_eq!(gate.report().verdict, Verdict::Error);
    assert_eq!(gate.test("Crash.Before").verdict, Verdict::Pass, "what had ended is judged");
    assert_eq!(gate.test("Crash.Hang").verdict, Verdict::Error);
}

/// Process id of the guest that runs the hanging test, from its spool.
fn hanging(project: &Project) -> Option<u32> {
    let frames = fs::read_dir(project.session().join("frames")).ok()?;
    let name = frames
        .flatten()
        .map(|entry| entry.path())
        .find(|path| fs::read(path).is_ok_and(|bytes| bytes.windows(4).any(|word| word == b"Hang")))?;
    name.file_name()?.to_str()?.split('-').next()?.parse().ok()
}
