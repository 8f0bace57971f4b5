//! What GoogleTest runs around tests is judged like a separate test: set-up and tear-down of suites and of
//! environments.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use memgate_e2e::{Project, Run, samples, skip_without};
use memgate_model::{Outcome, Verdict};

/// Leaks of 211 B to 269 B in each kind of set-up, cases that are no leaks, and a test that leaks 157 B.
const SOURCE: &str = r#"
#include <gtest/gtest.h>
#include <cstdlib>
#ifndef GTEST_REMOVE_LEGACY_TEST_CASEAPI_
#define SET_UP SetUpTestCase
#define TEAR_DOWN TearDownTestCase
#else
#define SET_UP SetUpTestSuite
#define TEAR_DOWN TearDownTestSuite
#endif
#define NOINLINE __attribute__((noinline))
void* volatile lost;
NOINLINE void open_server() { lost = std::malloc(211); }
NOINLINE void close_server() { lost = std::malloc(223); }
NOINLINE void old_name() { lost = std::malloc(227); }
NOINLINE void log_in() { lost = std::malloc(263); }
NOINLINE void log_out() { lost = std::malloc(269); }
NOINLINE void lose() { lost = std::malloc(157); }

struct Leaky : testing::Test {
  static void SetUpTestSuite() { open_server(); }
  static void TearDownTestSuite() { close_server(); }
};
TEST_F(Leaky, First) {}
TEST_F(Leaky, Second) {}
TEST_F(Leaky, DISABLED_Third) {}

struct Old : testing::Test {
  static void SET_UP() { old_name(); }
  static void TEAR_DOWN() {}
};
TEST_F(Old, Name) {}

// The fixture lives as long as its tests; one of them leaks.
struct Shared : testing::Test {
  static void SetUpTestSuite() { fixture = static_cast<char*>(std::malloc(401)); }
  static void TearDownTestSuite() { std::free(fixture); }
  static char* fixture;
};
char* Shared::fixture;
TEST_F(Shared, Leaks) { lose(); }
TEST_F(Shared, Uses) { fixture[0] = 1; }

// What it keeps is replaced when it runs again.
struct Replaced : testing::Test {
  static void SetUpTestSuite() { std::free(kept); kept = std::malloc(409); }
  static void* kept;
};
void* Replaced::kept;
TEST_F(Replaced, Uses) {}

TEST(Lazy, KeepsOnce) { static void* volatile kept = std::malloc(431); (void)kept; }

struct Session : testing::Environment {
  void SetUp() override { if (std::getenv("LEAKY")) log_in(); else kept = std::malloc(419); }
  void TearDown() override { if (std::getenv("LEAKY")) log_out(); std::free(kept); kept = nullptr; }
  void* kept = nullptr;
};

int main(int argc, char** argv) {
  testing::AddGlobalTestEnvironment(new Session);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
"#;

fn program() -> PathBuf {
    samples::own_suite("setups", SOURCE)
}

fn run(name: &str, program: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Run {
    let project = Project::new(name);
    let mut command = project.command(&[&["run", "--", program.to_str().unwrap()], arguments].concat());
    command.envs(variables.iter().copied());
    project.finish(&mut command)
}

fn leaky() -> &'static Run {
    static RUN: OnceLock<Run> = OnceLock::new();
    RUN.get_or_init(|| run("setups", &program(), &[("LEAKY", "1")], &[]))
}

#[track_caller]
fn fails(run: &Run, id: &str, bytes: u64, function: &str) {
    let test = run.test(id);
    assert_eq!(
        (test.verdict, test.outcome),
        (Verdict::Fail, Outcome::Passed),
        "{id}: {}\n{run}",
        test.reason
    );
    assert_eq!(test.reason, format!("{bytes} B per iteration (allowed 0 B)"), "{id}");
    let [leak] = test.leaks.as_slice() else { panic!("{id}: {:?}", test.leaks) };
    assert_eq!(leak.frames[0].function.as_deref(), Some(function), "{id}");
}

#[track_caller]
fn all_leaks_are_found(run: &Run) {
    run.ends_with(1);
    fails(run, "Leaky.SetUpTestSuite()", 211, "open_server()");
    fails(run, "Leaky.TearDownTestSuite()", 223, "close_server()");
    fails(run, "Old.SetUpTestSuite()", 227, "old_name()");
    fails(run, "Environment.SetUp()", 263, "log_in()");
    fails(run, "Environment.TearDown()", 269, "log_out()");
    // These are repeated with the environment's set-up and tear-down, which leak each time.
    fails(run, "Shared.Leaks", 157, "lose()");
    assert_eq!(run.test("Lazy.KeepsOnce").verdict, Verdict::Pass, "{run}");
}

#[test]
fn a_set_up_that_leaks_fails_by_its_own_name() {
    all_leaks_are_found(leaky());
    leaky()
        .says("FAIL  Leaky.SetUpTestSuite()   open_server leaks 211 B per run")
        .says("211 B per iteration (allowed 0 B)")
        .says("6 of 13 tests leak");
}

#[test]
fn what_a_set_up_keeps_for_its_tests_or_replaces_is_no_leak() {
    let run = leaky();
    let mut ids: Vec<String> = run.suite().tests.into_iter().map(|test| test.id).collect();
    ids.sort();
    let around = ids.iter().filter(|id| id.ends_with("()")).collect::<Vec<_>>();
    assert!(!around.iter().any(|id| id.starts_with("Shared.")), "{ids:?}");
    let replaced = run.test("Replaced.SetUpTestSuite()");
    assert_eq!(replaced.verdict, Verdict::Pass, "{}\n{run}", replaced.reason);
    assert!(replaced.reason.starts_with("one-time: 409 B"), "{}", replaced.reason);
    assert_eq!(run.test("Shared.Uses").verdict, Verdict::Pass);
}

#[test]
fn a_program_whose_set_ups_are_clean_passes_and_shows_none_of_them() {
    // GoogleTest's XML printer loads the time zone after all environments: no test is charged for that.
    for output in ["", "xml:out.xml"] {
        let run =
            run("setups-clean", &program(), &[("GTEST_OUTPUT", output)], &["--gtest_filter=Shared.Uses"]);
        run.ends_with(0);
        assert_eq!(run.suite().tests.len(), 1, "{run}");
    }
}

#[test]
fn shards_filters_and_repetitions_change_nothing_of_what_a_set_up_leaves() {
    let shard = [("LEAKY", "1"), ("GTEST_TOTAL_SHARDS", "2"), ("GTEST_SHARD_INDEX", "1")];
    let arguments = ["--gtest_filter=Leaky.*:Shared.Uses", "--gtest_repeat=6", "--gtest_shuffle"];
    let run = run("setups-shard", &program(), &shard, &arguments);
    run.ends_with(1);
    fails(&run, "Leaky.SetUpTestSuite()", 211, "open_server()");
    fails(&run, "Leaky.TearDownTestSuite()", 223, "close_server()");
    fails(&run, "Environment.SetUp()", 263, "log_in()");
    assert_eq!(run.test("Leaky.Second").verdict, Verdict::Pass, "{run}");
    assert!(!run.suite().tests.iter().any(|test| test.id.starts_with("Shared.SetUp")), "{run}");
}

#[test]
fn the_leak_of_a_set_up_is_waived_like_any_other() {
    let project = Project::new("setups-waived");
    let program = program();
    let run = project.memgate(&["run", "--", program.to_str().unwrap(), "--gtest_filter=Leaky.First"]);
    fails(&run, "Leaky.SetUpTestSuite()", 211, "open_server()");
    let id = run.test("Leaky.SetUpTestSuite()").leaks[0].id.clone();
    project.memgate(&["waive", &id, "--reason", "known", "--until", "never"]).ends_with(0);
    let gate = project.memgate(&["gate", "--format", "json", ".memgate/latest"]);
    gate.ends_with(1);
    assert_eq!(gate.test("Leaky.SetUpTestSuite()").verdict, Verdict::Pass, "{gate}");
    fails(&gate, "Leaky.TearDownTestSuite()", 223, "close_server()");
}

/// Alone, the shortest test neither frees the first set-up's fixture nor loses the second's.
#[test]
fn a_set_up_that_does_something_else_with_one_test_is_repeated_with_all_of_its_suite() {
    let source = r#"
#include <gtest/gtest.h>
#include <unistd.h>
#include <cstdlib>
struct Freed : testing::Test {
  static void SetUpTestSuite() { if (!kept) kept = std::malloc(431); fixture = std::malloc(433); }
  static void *kept, *fixture;
};
void *Freed::kept, *Freed::fixture;
TEST_F(Freed, Quick) {}
TEST_F(Freed, Frees) { usleep(2000); std::free(fixture); }

struct Lost : testing::Test {
  static void SetUpTestSuite() { fixture = std::malloc(439); }
  static void TearDownTestSuite() { std::free(fixture); }
  static void* fixture;
};
void* Lost::fixture;
TEST_F(Lost, Quick) {}
TEST_F(Lost, Replaces) { usleep(2000); fixture = std::malloc(443); }
"#;
    let run = Project::new("setups-company").run(&samples::own_suite("setups_company", source));
    run.ends_with(1);
    let freed = run.test("Freed.SetUpTestSuite()");
    assert_eq!(freed.verdict, Verdict::Pass, "{}\n{run}", freed.reason);
    assert!(freed.reason.starts_with("one-time: 431 B"), "{}", freed.reason);
    fails(&run, "Lost.SetUpTestSuite()", 439, "Lost::SetUpTestSuite()");
}

#[test]
fn a_set_up_that_fails_is_not_judged_for_what_it_leaves() {
    let source = "#include <gtest/gtest.h>\n#include <cstdlib>\nvoid* volatile lost;\n\
                  struct Broken : testing::Test {\n  static void SetUpTestSuite() { lost = std::malloc(211); FAIL(); }\n};\n\
                  TEST_F(Broken, Never) {}\nTEST(Other, Runs) {}\n";
    let run = Project::new("setups-broken").run(&samples::own_suite("setups_broken", source));
    run.ends_with(1);
    assert!(
        run.suite().tests.iter().all(|test| !test.id.ends_with("()") && test.verdict != Verdict::Fail),
        "{run}"
    );
}

#[test]
fn the_callbacks_of_googletest_without_its_legacy_names_are_found() {
    let bundled = "/usr/src/googletest/googletest";
    let all = format!("{bundled}/src/gtest-all.cc");
    if !Path::new(&all).exists() {
        return skip_without(&format!("{all} (package googletest)"));
    }
    let (root, include) = (format!("-I{bundled}"), format!("-I{bundled}/include"));
    let flags = [
        "-std=c++17",
        "-O0",
        "-g",
        "-DGTEST_REMOVE_LEGACY_TEST_CASEAPI_",
        &root,
        &include,
        &all,
        "-lpthread",
    ];
    let program = samples::own("setups_no_legacy", "cc", SOURCE, "c++", &flags);
    all_leaks_are_found(&run("setups-no-legacy", &program, &[("LEAKY", "1")], &[]));
}
