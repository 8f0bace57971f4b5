//! The screen takes no call stacks: suspects run once more to get theirs, and nothing else changes.

use std::collections::{BTreeMap, BTreeSet};

use memgate_e2e::{Project, Run, samples};
use memgate_model::{Leak, TestReport, Verdict};
use memgate_wire::{Frame, TRUNCATED_PC};

use crate::agent::spool;

const ALWAYS: &str = "version: 1\nmeasure:\n  native: { stacks: always }\n";
const AGAIN: &str = "once more, for the call stacks";

/// Leaks of every kind that the screen may see, and tests that leave nothing.
const SUITE: &str = r#"
#include <gtest/gtest.h>
#include <string>
#include <vector>
#define KEEP __attribute__((noinline))
static void* volatile lost;
static std::vector<std::string>* cache;
static bool opened;
static char* handed;
KEEP void lose_block() { lost = new char[37]; }
KEEP void fill_cache() { if (!cache) cache = new std::vector<std::string>(3, std::string(60, 'x')); }
KEEP void lose_if_opened() { if (opened) lost = new char[97]; }
KEEP void hand_over() { delete[] handed; handed = new char[101]; }
KEEP void lose_in_set_up() { lost = new char[53]; }
KEEP void lose_little() { lost = new char[11]; }
TEST(Clean, One) { delete new int; }
TEST(Leaks, EachTime) { lose_block(); }
TEST(Cache, First) { fill_cache(); }
TEST(Cache, Second) { fill_cache(); }
TEST(Opens, It) { opened = true; }
TEST(Needs, It) { lose_if_opened(); }
TEST(Hands, Over) { hand_over(); }
TEST(Takes, It) { delete[] handed; handed = nullptr; }
TEST(Allowed, Little) { lose_little(); }
struct SetsUp : testing::Test { static void SetUpTestSuite() { lose_in_set_up(); } };
TEST_F(SetsUp, A) {}
TEST_F(SetsUp, B) {}
TEST(Clean, Two) { delete new int; }
"#;

const LIMITS: &str = "thresholds:\n  tests:\n    - match: \"*Allowed.*\"\n      native.live_bytes: 1 KiB\n";

/// A run's result for each test.
fn told(run: &Run) -> BTreeMap<String, (Verdict, String, Vec<String>)> {
    let leak = |leak: &Leak| {
        let functions: Vec<_> = leak.frames.iter().filter_map(|frame| frame.function.as_deref()).collect();
        format!("{} {} {}", leak.id, leak.title, functions.join(" < "))
    };
    // The number of executions differs between runs.
    let reason = |test: &TestReport| test.reason.split(" in ").next().unwrap_or_default().to_owned();
    let of = |test: TestReport| {
        let leaks = test.leaks.iter().chain(&test.one_time).map(leak).collect();
        (test.id.clone(), (test.verdict, reason(&test), leaks))
    };
    run.suite().tests.into_iter().map(of).collect()
}

#[test]
fn every_kind_of_leak_is_told_as_with_stacks_in_the_screen() {
    let program = samples::own_suite("every_kind", SUITE);
    let run = |name: &str, config: &str| {
        let project = Project::new(name);
        project.write("memgate.yaml", format!("{config}{LIMITS}"));
        let run = project.run(&program);
        run.ends_with(1);
        (project, run)
    };
    let (project, later) = run("stacks-later", "version: 1\n");
    let (other, always) = run("stacks-always", ALWAYS);
    let bare = [&project, &other].map(has_survivors_without_a_stack);
    assert_eq!(bare, [true, false]);
    assert_eq!(told(&later), told(&always));
    let of = |run: &Run| run.suite().stacks_of_suspects;
    assert_eq!((of(&later), of(&always)), (true, false));
    assert!(later.stderr.contains(AGAIN) && !always.stderr.contains(AGAIN), "{later}\n{always}");
    for (id, verdict, function) in [
        ("Leaks.EachTime", Verdict::Fail, "lose_block()"),
        ("Cache.First", Verdict::Pass, "fill_cache()"),
        ("Needs.It", Verdict::Fail, "lose_if_opened()"),
        ("SetsUp.SetUpTestSuite()", Verdict::Fail, "lose_in_set_up()"),
    ] {
        let test = later.test(id);
        let named = test.leaks.iter().chain(&test.one_time).flat_map(|leak| &leak.frames);
        assert!(named.clone().any(|frame| frame.function.as_deref() == Some(function)), "{id}\n{later}");
        assert_eq!(test.verdict, verdict, "{id}\n{later}");
    }
    // Judging the session again, or only its streams, gives the same result.
    let session = project.session();
    let again = project.memgate(&["gate", "--format", "json", session.to_str().unwrap()]);
    assert_eq!(told(&again), told(&later));
    let streams = project.streams().into_iter().map(|stream| stream.to_string_lossy().into_owned());
    let again = project
        .memgate(&[["gate", "--format", "json"].map(str::to_owned).to_vec(), streams.collect()].concat());
    let (again, live) = (told(&again), told(&later));
    for id in ["Leaks.EachTime", "Cache.First", "Allowed.Little"] {
        assert_eq!(again[id], live[id]);
    }
}

#[test]
fn a_suite_that_leaves_nothing_runs_once() {
    let project = Project::new("stacks-clean");
    let run = project.run(&samples::own_suite(
        "leaves_nothing",
        "#include <gtest/gtest.h>\nTEST(Clean, One) { delete new int; }\n",
    ));
    run.ends_with(0);
    assert_eq!(project.streams().len(), 1, "{run}");
    assert!(run.suite().stacks_of_suspects && !run.stderr.contains(AGAIN), "{run}");
}

/// Does the screen's stream have a survivor without a stack?
fn has_survivors_without_a_stack(project: &Project) -> bool {
    let is_screen =
        |frames: &Vec<Frame>| matches!(&frames[0], Frame::Hello(hello) if hello.label.starts_with("screen"));
    let frames = project.streams().iter().map(|stream| spool::frames(stream)).find(is_screen).unwrap();
    let nodes = frames.iter().flat_map(|frame| match frame {
        Frame::Stacks(stacks) => stacks.nodes.as_slice(),
        _ => &[],
    });
    let unknown: BTreeSet<u32> = nodes.filter(|node| node.pc == TRUNCATED_PC).map(|node| node.id).collect();
    frames.iter().any(|frame| match frame {
        Frame::NativeSnapshot(part) => part.records.iter().any(|record| unknown.contains(&record.stack)),
        _ => false,
    })
}

/// When started again, waits before its first test.
const WAITS: &str = r#"
#include <gtest/gtest.h>
#include <cstdio>
#include <unistd.h>
static void* volatile lost;
TEST(Loses, It) { lost = new char[61]; }
int main(int count, char** arguments) {
    testing::InitGoogleTest(&count, arguments);
    if (!GTEST_FLAG_GET(list_tests)) {
        if (access("started", F_OK) == 0) for (;;) pause();
        fclose(fopen("started", "w"));
    }
    return RUN_ALL_TESTS();
}
"#;

#[test]
fn a_program_that_waits_when_it_runs_again_is_ended_and_passes_nothing() {
    let project = Project::new("stacks-waits");
    project.write("memgate.yaml", "version: 1\nmeasure: { timeout: 1s }\n");
    let run = project.run(&samples::own_suite("waits_again", WAITS));
    assert!(run.stderr.contains("the call stacks of what the screen saw are not known"), "{run}");
    assert!(run.test("Loses.It").verdict > Verdict::Pass, "{run}");
}

/// At every start, prepares for longer than a test may take.
const PREPARES: &str = r#"
#include <gtest/gtest.h>
#include <chrono>
#include <thread>
static void* volatile lost;
TEST(Loses, It) { lost = new char[61]; }
int main(int count, char** arguments) {
    testing::InitGoogleTest(&count, arguments);
    if (!GTEST_FLAG_GET(list_tests)) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return RUN_ALL_TESTS();
}
"#;

#[test]
fn a_program_that_prepares_longer_than_a_test_may_take_is_confirmed() {
    let project = Project::new("stacks-prepares");
    project.write("memgate.yaml", "version: 1\nmeasure: { timeout: 1s }\n");
    let run = project.run(&samples::own_suite("prepares", PREPARES));
    assert_eq!(run.test("Loses.It").verdict, Verdict::Fail, "{run}");
    assert_eq!(run.test("Loses.It").leaks[0].count_per_iteration, 1.0, "{run}");
}

#[test]
fn where_nothing_is_repeated_the_screen_takes_the_stacks() {
    let program = samples::own_suite(
        "lost_at_once",
        "#include <gtest/gtest.h>\nstatic void* volatile lost;\n__attribute__((noinline)) void lose() { lost = new char[41]; }\nTEST(Loses, It) { lose(); }\n",
    );
    for (name, more) in [("stacks-unconfirmed", "--no-confirm"), ("stacks-repeated", "--repeat-screen=6")] {
        let project = Project::new(name);
        let run = project.memgate(&["run", more, "--", program.to_str().unwrap()]);
        assert!(!run.suite().stacks_of_suspects, "{run}");
        let test = run.test("Loses.It");
        assert_eq!(test.leaks[0].frames[0].function.as_deref(), Some("lose()"), "{run}");
    }
}

/// The size of one test's leak changes with each execution of the program.
const GROWS: &str = r#"
#include <gtest/gtest.h>
#include <cstdio>
static void* volatile lost;
__attribute__((noinline)) void lose(int bytes) { lost = new char[bytes]; }
TEST(Before, It) {}
TEST(Counts, Executions) {
    int runs = 0;
    if (FILE* file = fopen("runs", "r")) { if (fscanf(file, "%d", &runs) != 1) runs = 0; fclose(file); }
    if (FILE* file = fopen("runs", "w")) { fprintf(file, "%d", runs + 1); fclose(file); }
    if (runs < 3) lose(100 + runs);
}
"#;

#[test]
fn other_sizes_after_the_same_tests_are_the_same_leak() {
    let project = Project::new("stacks-sizes");
    let run = project.run(&samples::own_suite("other_sizes", GROWS));
    assert!(run.stderr.contains("all tests once more"), "{run}");
    let test = run.test("Counts.Executions");
    assert_eq!(test.verdict, Verdict::Warn, "{run}");
    assert_eq!(test.leaks[0].frames[0].function.as_deref(), Some("lose(int)"), "{run}");
}
