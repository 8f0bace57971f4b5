//! Suspects of the screen are confirmed: rare leaks, leaks that need other tests, blocks that are passed to
//! other tests.

use std::process::Command;

use memgate_e2e::{Project, Run, has_tool, memgate, samples, skip};
use memgate_model::{TestReport, Verdict};

/// Each test leaves something in its first execution, so that the screen suspects it. The later executions
/// decide.
const RARE: &str = r#"
#include <gtest/gtest.h>
#include <unistd.h>
static char* volatile lost;
__attribute__((noinline)) void lose() { lost = new char[61]; }
static int calls;
static unsigned luck = 12;

TEST(Rare, EveryTenth) { if (calls++ % 10 == 0) lose(); }
TEST(Rare, OneInTwentyByChance) {
    static bool again;
    luck ^= luck << 13, luck ^= luck >> 17, luck ^= luck << 5;
    if (!again || luck % 20 == 0) lose();
    again = true;
}
TEST(Rare, EveryThirdAndSlow) { usleep(100000); static int n; if (n++ % 3 == 0) lose(); }
TEST(Once, Fast) { static char* kept = new char[71]; EXPECT_TRUE(kept); }
TEST(Once, Slow) { usleep(100000); static char* kept = new char[73]; EXPECT_TRUE(kept); }
"#;

fn rare(arguments: &[&str]) -> Run {
    let program = samples::own_suite("rare", RARE);
    let project = Project::new(&format!("rare-{}", arguments.len()));
    let mut all = vec!["run"];
    all.extend(arguments);
    all.extend(["--", program.to_str().unwrap()]);
    project.memgate(&all)
}

/// Parses `one-time: 71 B; nothing more in 90 executions: a leak in one of 20 would have been missed with 1 %
/// at most`.
#[track_caller]
fn one_time(test: &TestReport, left: &str) -> (usize, usize) {
    let number = |text: &str| text.parse().unwrap();
    let parts = test.reason.strip_prefix(&format!("one-time: {left}; nothing more in "));
    let parts = parts.and_then(|rest| rest.strip_suffix(" would have been missed with 1 % at most"));
    let parts = parts.and_then(|rest| rest.split_once(" executions: a leak in one of "));
    let (executions, one_in) = parts.unwrap_or_else(|| panic!("{}: {}", test.id, test.reason));
    assert_eq!(test.verdict, Verdict::Pass);
    (number(executions), number(one_in))
}

#[test]
fn a_leak_that_comes_now_and_then_is_no_one_time_cost() {
    let run = rare(&[]);
    run.ends_with(1);
    for (test, bytes) in
        [("EveryTenth", 5.5..6.7), ("OneInTwentyByChance", 2.0..4.5), ("EveryThirdAndSlow", 15.0..27.0)]
    {
        let test = run.test(&format!("Rare.{test}"));
        assert_eq!(test.verdict, Verdict::Fail, "{}: {}", test.id, test.reason);
        let [leak] = test.leaks.as_slice() else { panic!("{}: {:?}", test.id, test.leaks) };
        assert_eq!(leak.frames[0].function.as_deref(), Some("lose()"));
        assert!(bytes.contains(&leak.bytes_per_iteration), "{}: {}", test.id, leak.title);
    }
    assert_eq!(one_time(&run.test("Once.Fast"), "71 B"), (90, 20), "so many as the policy asks for");
    // Repeated for two seconds, or for the minimum number of executions that counts.
    let (executions, one_in) = one_time(&run.test("Once.Slow"), "73 B");
    assert!((12..20).contains(&executions) && (3..5).contains(&one_in), "{executions} {one_in}");
}

#[test]
fn iterations_that_are_asked_for_are_a_minimum() {
    let run = rare(&["--iterations", "200", "--filter", "Once.Fast"]);
    run.ends_with(0);
    assert_eq!(one_time(&run.test("Once.Fast"), "71 B"), (202, 44));
}

#[test]
fn the_rarest_leak_that_is_looked_for_can_be_chosen() {
    let program = samples::own_suite("rare", RARE);
    let project = Project::new("rare-chosen");
    let program = program.to_str().unwrap();
    project.write(
        "memgate.yaml",
        format!("version: 1\nproject: p\nsuites:\n  rare: {{ run: [\"{program}\"] }}\nmeasure: {{ rarest_leak: 50 }}\n"),
    );
    let run = project.memgate(&["run", "--filter", "Once.Fast"]);
    run.ends_with(0);
    assert_eq!(one_time(&run.test("Once.Fast"), "71 B"), (228, 50));
}

/// Tests behave differently alone and among others: a leak that needs an earlier test, also of a descriptor,
/// and a block that a later test frees next to one that nobody frees.
const COMPANY: &str = r#"
#include <gtest/gtest.h>
#include <fcntl.h>
#include <unistd.h>
static bool opened;
static char *handed, *volatile lost;
static int handed_fd = -1;
#define NOINLINE __attribute__((noinline))
NOINLINE void lose_if_opened() { if (opened) lost = new char[97]; }
NOINLINE void open_if_opened() { if (opened) open("/dev/null", O_RDONLY); usleep(1000); }
NOINLINE void hand_over() { handed = new char[101]; }
NOINLINE void hand_over_and_lose() { handed = new char[103]; }
NOINLINE void lose_beside() { lost = new char[107]; }
NOINLINE void cache_if_opened() { static char* cache; if (opened && !cache) cache = new char[113]; }

TEST(Before, Opens) { opened = true; }
TEST(Needs, EarlierTest) { lose_if_opened(); }
TEST(Needs, EarlierTestForADescriptor) { open_if_opened(); }
TEST(Needs, EarlierTestOnce) { cache_if_opened(); }
TEST(HandsBlock, Over) { hand_over(); }
TEST(TakesBlock, Over) { delete[] handed; handed = nullptr; }
TEST(HandsDescriptor, Over) { handed_fd = open("/dev/zero", O_RDONLY); usleep(1000); }
TEST(TakesDescriptor, Over) { close(handed_fd); }
TEST(HandsAndLoses, Over) { hand_over_and_lose(); lose_beside(); }
TEST(TakesAgain, Over) { delete[] handed; handed = nullptr; opened = false; }
"#;

fn company() -> &'static Run {
    static RUN: std::sync::OnceLock<Run> = std::sync::OnceLock::new();
    RUN.get_or_init(|| Project::new("company").run(&samples::own_suite("company", COMPANY)))
}

#[test]
fn a_leak_that_needs_an_earlier_test_fails() {
    let run = company();
    run.ends_with(1);
    let test = run.test("Needs.EarlierTest");
    let why = "97 B per iteration (allowed 0 B); only after the tests before it: alone nothing of this in 91 executions";
    assert_eq!((test.verdict, test.reason.as_str()), (Verdict::Fail, why), "{run}");
    let [leak] = test.leaks.as_slice() else { panic!("{:?}", test.leaks) };
    assert_eq!(
        (leak.title.as_str(), leak.frames[0].function.as_deref()),
        ("1 × 97 B", Some("lose_if_opened()"))
    );
    assert!(test.one_time.is_empty(), "{:?}", test.one_time);
    let test = run.test("Needs.EarlierTestForADescriptor");
    assert_eq!(test.verdict, Verdict::Fail, "{}", test.reason);
    assert!(test.reason.starts_with("1 descriptor per iteration (allowed 0)"), "{}", test.reason);
    let test = run.test("Needs.EarlierTestOnce");
    assert_eq!(test.verdict, Verdict::Pass, "{}", test.reason);
    assert!(test.reason.starts_with("one-time: 113 B; nothing more in 90 executions"), "{}", test.reason);
}

#[test]
fn what_a_test_hands_to_a_later_one_is_not_its_leak() {
    let run = company();
    for (id, reason) in [
        ("HandsBlock.Over", "101 B handed to a later test, which frees it"),
        ("HandsDescriptor.Over", "1 descriptor handed to a later test, which closes it"),
    ] {
        let test = run.test(id);
        assert_eq!((test.verdict, test.reason.as_str()), (Verdict::Pass, reason), "{run}");
        assert!(test.leaks.is_empty(), "{:?}", test.leaks);
    }
    let test = run.test("HandsAndLoses.Over");
    assert_eq!(
        (test.verdict, test.reason.as_str()),
        (Verdict::Fail, "107 B per iteration (allowed 0 B)"),
        "{run}"
    );
    let [leak] = test.leaks.as_slice() else { panic!("{:?}", test.leaks) };
    assert_eq!(leak.frames[0].function.as_deref(), Some("lose_beside()"));
    for id in ["Before.Opens", "TakesBlock.Over", "TakesDescriptor.Over", "TakesAgain.Over"] {
        assert_eq!(run.test(id).verdict, Verdict::Pass, "{id}");
    }
}

/// A leak that occurs once and never again, neither alone nor after the tests before it.
const SEEN_ONCE: &str = r#"
#include <gtest/gtest.h>
#include <fcntl.h>
#include <unistd.h>
static char* volatile lost;
__attribute__((noinline)) void lose_once() {
    int marker = open("marker", O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (marker >= 0) { close(marker); lost = new char[127]; }
}
TEST(Seen, Before) {}
TEST(Seen, Once) { lose_once(); }
"#;

#[test]
fn what_cannot_be_reproduced_is_unconfirmed_with_both_figures() {
    let project = Project::new("seen-once");
    let program = samples::own_suite("seen_once", SEEN_ONCE);
    let run = project.run(&program);
    run.ends_with(0);
    let test = run.test("Seen.Once");
    let left = "unconfirmed: left 127 B in 1 allocation in one execution; alone nothing of it in 91 executions, nor in ";
    assert_eq!(test.verdict, Verdict::Warn, "{run}");
    assert!(
        test.reason.starts_with(left) && test.reason.ends_with(" executions after the tests before it"),
        "{}",
        test.reason
    );
    assert!(test.one_time.is_empty(), "{:?}", test.one_time);
    run.says("unconfirmed: left 127 B");
    // Without tests before it, only its executions alone count.
    std::fs::remove_file(project.folder().join("marker")).unwrap();
    let run = project.run_filtered("Seen.Once", &program);
    let test = run.test("Seen.Once");
    let why =
        "unconfirmed: left 127 B in 1 allocation in one execution; alone nothing of it in 91 executions";
    assert_eq!((test.verdict, test.reason.as_str()), (Verdict::Warn, why));
    // Judging the session again gives the same result.
    let session = project.session();
    let again = project.memgate(&["gate", session.to_str().unwrap()]);
    assert!(again.stdout.contains(why), "{again}");
}

/// From its second start on, the program has no test to run, and repeats that forever.
const OTHER_TESTS: &str = "\
#include <gtest/gtest.h>
#include <cstdio>
char* volatile lost;
TEST(Tiny, Leaks) { lost = new char[157]; }
int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  if (!GTEST_FLAG_GET(list_tests)) {
    if (FILE* seen = fopen(\"seen\", \"r\")) { fclose(seen); GTEST_FLAG_SET(filter, \"None.*\"); }
    else fclose(fopen(\"seen\", \"w\"));
  }
  return RUN_ALL_TESTS();
}
";

#[test]
fn a_program_that_has_no_test_to_repeat_ends_at_once_and_says_so() {
    let project = Project::new("other-tests");
    let run = project.run(&samples::own_suite("other_tests", OTHER_TESTS));
    run.ends_with(2);
    let test = run.test("Tiny.Leaks");
    assert_eq!(test.verdict, Verdict::Error, "{run}");
    let why = "alone, the test did not run, though its program did: it chooses its tests itself";
    assert!(test.reason.contains(why), "{}", test.reason);
    assert!(!run.stderr.contains("nothing was recorded for 60 s"), "{run}");
}

/// Ignores the requested filter and runs both suites by itself.
const OWN_CHOICE: &str = "\
#include <gtest/gtest.h>
char* volatile lost;
TEST(First, Clean) {}
TEST(Second, Leaks) { lost = new char[157]; }
int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  int failed = 0;
  for (char const* suite : {\"First.*\", \"Second.*\"}) {
    GTEST_FLAG_SET(filter, suite);
    failed |= RUN_ALL_TESTS();
  }
  return failed;
}
";

/// Regression: the program's first tests were repeated for a minute.
#[test]
fn a_program_that_repeats_other_tests_than_it_was_asked_for_ends_at_once_and_says_so() {
    let project = Project::new("own-choice");
    let run = project.run(&samples::own_suite("own_choice", OWN_CHOICE));
    run.ends_with(2);
    let test = run.test("Second.Leaks");
    assert_eq!(test.verdict, Verdict::Error, "{run}");
    let why = "alone, the test did not run, though its program did: it chooses its tests itself";
    assert!(test.reason.contains(why), "{}", test.reason);
    let log = project.session().join("confirm");
    let log = std::fs::read_dir(log).unwrap().next().unwrap().unwrap().path();
    assert!(std::fs::read_to_string(log).unwrap().matches("Repeating all tests").count() <= 3, "{run}");
}

/// fakeroot's library asks a daemon that ended with the first run.
#[test]
fn tests_below_fakeroot_are_confirmed_below_a_new_one() {
    if !has_tool("fakeroot") {
        return;
    }
    let source = "#include <gtest/gtest.h>\n#include <sys/stat.h>\n#include <unistd.h>\nchar* volatile lost;\n\
                  TEST(Root, Owns) { lost = new char[157]; struct stat s;\n\
                  ASSERT_EQ(stat(\"/proc/self/exe\", &s), 0); ASSERT_EQ(s.st_uid, 0u); }\n";
    let program = samples::own_suite("owns", source);
    let run = Project::new("fakeroot").memgate(&["run", "--", "fakeroot", program.to_str().unwrap()]);
    run.ends_with(1);
    let test = run.test("Root.Owns");
    assert_eq!((test.verdict, test.confirmed), (Verdict::Fail, true), "{}", test.reason);
}

/// A file system of 40 KiB is full before a stream can start.
#[test]
fn a_full_disk_is_named() {
    let project = Project::new("full-disk");
    // Without a history, so that the session does not list commits, whose number grows.
    project.write("memgate.yaml", "version: 1\nhistory: off\n");
    let clean = samples::suite("clean");
    let script = "mount -t tmpfs -o size=40k none \"$1\" || { echo no mount; exit 77; }\n\
                  \"$2\" run --output-dir \"$1\"/sessions -- \"$3\"; echo \"status $?\"";
    let folder = project.folder().join("small");
    std::fs::create_dir(&folder).unwrap();
    let mut command = Command::new("unshare");
    let own = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    command.args([own, "sh", "-c", script, "sh"]).args([folder.as_path(), memgate(), &clean]);
    let run = project.finish(command.current_dir(project.folder()));
    let told = format!("{}{}", run.stdout, run.stderr);
    if told.contains("no mount") || told.contains("unshare:") {
        skip(&format!("no file system can be mounted here: {told}"));
        return;
    }
    assert!(told.contains("there is no room for what is recorded in "), "{told}");
    assert!(told.contains("No space left on device") && told.contains("status 2"), "{told}");
}

/// Two tests with the same slow cause, then one with another. Confirming each takes four seconds.
const SLOW: &str = "\
#include <gtest/gtest.h>
#include <unistd.h>
char* volatile lost;
__attribute__((noinline)) void shared() { usleep(300000); lost = new char[61]; }
__attribute__((noinline)) void other() { usleep(300000); lost = new char[67]; }
TEST(Slow, First) { shared(); }
TEST(Slow, Second) { shared(); }
TEST(Slow, Third) { other(); }
";

#[test]
fn what_the_time_to_confirm_leaves_open_is_unconfirmed_and_each_cause_comes_first() {
    let program = samples::own_suite("slow_causes", SLOW);
    let project = Project::new("budget");
    let suite = format!("suites: {{ slow: {{ run: [{program:?}] }} }}");
    project.write("memgate.yaml", format!("version: 1\n{suite}\nmeasure: {{ confirm_budget: 8s }}\n"));
    let run = project.memgate(&["run"]);
    run.ends_with(1);
    for confirmed in ["Slow.First", "Slow.Third"] {
        assert_eq!(run.test(confirmed).verdict, Verdict::Fail, "{run}");
    }
    let open = run.test("Slow.Second");
    assert_eq!((open.verdict, open.confirmed), (Verdict::Warn, false), "{run}");
    assert!(open.reason.contains("the time to confirm is 8 s (measure.confirm_budget): "), "{}", open.reason);
    assert!(open.reason.starts_with("unconfirmed: left 61 B in 1 allocation in one execution; "));
    run.says("slow: 1 unconfirmed, because 8 s were not enough to repeat all suspects");
    assert!(
        project.read(".memgate/latest/report.html").contains("measure.confirm_budget"),
        "on the page, too"
    );
    assert_eq!(open.leaks.len(), 1, "its culprit is named all the same");

    // A confirmation cut after ten executions would be only a warning, however clear the leak.
    project.write("memgate.yaml", format!("version: 1\n{suite}\nmeasure: {{ confirm_budget: 3s }}\n"));
    let run = project.memgate(&["run"]);
    run.ends_with(1);
    assert_eq!(run.test("Slow.First").verdict, Verdict::Fail, "what has begun gets its answer: {run}");
    assert_eq!(run.test("Slow.Third").verdict, Verdict::Warn, "{run}");
}

/// What a test leaves is freed by the next test, only in part, by the tear-down of its suite, only after all
/// tests have run, or never; one test leaves a running thread.
const FREED: &str = r#"
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>
static char *last, *torn_down, *volatile lost;
__attribute__((noinline)) void replace() { char* now = new char[61]; delete[] last; last = now; }
struct TornDown : testing::Test {
    static void TearDownTestSuite() { delete[] torn_down; torn_down = nullptr; }
};
struct Environment : testing::Environment {
    char* kept = nullptr;
    void TearDown() override { delete[] kept; }
};
static auto* environment = static_cast<Environment*>(testing::AddGlobalTestEnvironment(new Environment));

TEST(Replaces, First) { replace(); }
TEST(Replaces, Second) { replace(); }
TEST(Loses, Beside) { replace(); lost = new char[67]; }
TEST(Leaves, AThread) { replace(); std::thread([] { pause(); }).detach(); }
TEST(Leaves, ToTheEnvironment) { delete[] environment->kept; environment->kept = new char[71]; }
TEST_F(TornDown, BySuite) { delete[] torn_down; torn_down = new char[73]; }
TEST(Remains, Last) { replace(); }
"#;

#[test]
fn without_time_a_test_passes_if_later_tests_freed_all_that_it_left() {
    let program = samples::own_suite("freed_since", FREED);
    let project = Project::new("freed-since");
    let suite = format!("suites: {{ freed: {{ run: [{program:?}] }} }}");
    project.write("memgate.yaml", format!("version: 1\n{suite}\nmeasure: {{ confirm_budget: 3s }}\n"));
    let run = project.memgate(&["run"]);
    run.ends_with(1);
    for (id, left) in [("Replaces.First", 61), ("Replaces.Second", 61), ("TornDown.BySuite", 73)] {
        let test = run.test(id);
        let why =
            format!("left {left} B in 1 allocation, which later tests freed; not confirmed, to save time");
        assert_eq!((test.verdict, test.reason), (Verdict::Pass, why), "{run}");
        assert!(test.leaks.is_empty(), "{:?}", test.leaks);
    }
    assert_eq!(run.test("Loses.Beside").verdict, Verdict::Fail, "of whom nothing is left comes last: {run}");
    for id in ["Leaves.AThread", "Leaves.ToTheEnvironment", "Remains.Last"] {
        let test = run.test(id);
        assert!(!test.reason.contains("later tests freed"), "{id}: {}", test.reason);
    }
    let open = run.test("Remains.Last");
    assert_eq!(open.verdict, Verdict::Warn, "{}", open.reason);
    run.says("freed: 3 not confirmed, to save time: later tests freed all that they left");
    // Judges again, without running anything.
    let again = project.memgate(&["gate", project.session().to_str().unwrap()]);
    again.ends_with(1);

    // With enough time all are repeated.
    project.write("memgate.yaml", format!("version: 1\n{suite}\n"));
    let run = project.memgate(&["run"]);
    run.ends_with(1);
    for id in ["Replaces.First", "Replaces.Second", "TornDown.BySuite", "Remains.Last"] {
        let test = run.test(id);
        assert_eq!((test.verdict, test.confirmed), (Verdict::Pass, true), "{id}: {} {run}", test.reason);
    }
    for id in ["Loses.Beside", "Leaves.AThread"] {
        assert_eq!(run.test(id).verdict, Verdict::Fail, "{id}: {run}");
    }
}
