//! Boundaries in unmodified programs, however they are linked, repeated, shuffled, sharded and named.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use memgate_e2e::{Project, Run, repository, samples, skip_without, truth};
use memgate_model::{BoundaryQuality, LeakKind, Metric, Outcome, Verdict};
use memgate_wire::{BoundaryKind, Frame};

use crate::agent::spool;
use crate::names_session;

/// One test that leaks 157 bytes, one that does not.
const TINY: &str = "#include <gtest/gtest.h>\nchar* volatile lost;\n\
                    __attribute__((noinline)) void lose() { lost = new char[157]; }\n\
                    TEST(Tiny, Leaks) { lose(); }\nTEST(Tiny, Idle) {}\n";

const BUNDLED: &str = "/usr/src/googletest/googletest";

fn tiny() -> PathBuf {
    samples::own_suite("tiny", TINY)
}

#[track_caller]
fn tiny_is_right(run: &Run) {
    run.ends_with(1);
    assert_eq!(run.suite().boundary, BoundaryQuality::Exact);
    let leaks = run.test("Tiny.Leaks");
    assert_eq!(leaks.verdict, Verdict::Fail, "{run}");
    assert_eq!(leaks.metrics[&Metric::NativeLiveBytes].value, 157.0);
    assert_eq!(run.test("Tiny.Idle").verdict, Verdict::Pass);
    assert_eq!(run.suite().tests.len(), 2, "{run}");
}

#[test]
fn two_idle_boundaries_differ_by_nothing() {
    let project = Project::new("idle");
    let program = tiny();
    let idle = ["run", "--", program.to_str().unwrap(), "--gtest_filter=Tiny.Idle", "--gtest_repeat=3"];
    let run = project.memgate(&idle);
    run.ends_with(0);
    let live = |wanted: BoundaryKind| -> Vec<_> {
        let frames = spool::frames(&project.streams()[0]).into_iter();
        let boundaries = frames.filter_map(|frame| match frame {
            Frame::Boundary(boundary) if boundary.kind == wanted => Some(boundary),
            _ => None,
        });
        boundaries.map(|b| (b.counters.live_bytes(), b.counters.live_allocations(), b.survivors)).collect()
    };
    let ends = live(BoundaryKind::TestEnd);
    assert_eq!(ends.len(), 3);
    // The fixture is created and destroyed between these boundaries.
    assert_eq!(ends, live(BoundaryKind::TestStart));
    assert_eq!(ends[1], ends[2], "nor from one iteration to the next");
    assert!(ends.iter().all(|(.., survivors)| *survivors == 0));
    let test = run.test("Tiny.Idle");
    assert_eq!((test.metrics[&Metric::NativeLiveBytes].value, test.confirmed), (0.0, false));
}

#[test]
fn a_shared_googletest_is_found() {
    tiny_is_right_with("gtest", "1");
}

/// Programs built for old distributions use the old string layout.
#[test]
fn names_are_read_from_the_strings_that_libstdcxx_had_before_cxx11() {
    tiny_is_right_with("gtest_old", "0");
}

/// `abi`: the ABI of libstdc++'s strings.
fn tiny_is_right_with(name: &str, abi: &str) {
    let abi = format!("-D_GLIBCXX_USE_CXX11_ABI={abi}");
    let Some(library) = shared_gtest(name, &abi) else { return };
    let folder = library.parent().unwrap().display().to_string();
    let (search, run_path, library) =
        (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"), format!("-l{name}"));
    let flags = ["-std=c++17", "-O1", "-g", &abi, &search, &run_path, &library, "-lpthread"];
    let program = samples::own(&format!("tiny_{name}"), "cc", TINY, "c++", &flags);
    tiny_is_right(&Project::new(name).run(&program));
}

fn shared_gtest(name: &str, abi: &str) -> Option<PathBuf> {
    let all = format!("{BUNDLED}/src/gtest-all.cc");
    if !fs::exists(&all).unwrap() {
        skip_without(&format!("{all} (package googletest)"));
        return None;
    }
    let main = format!("{BUNDLED}/src/gtest_main.cc");
    let (root, include) = (format!("-I{BUNDLED}"), format!("-I{BUNDLED}/include"));
    let (file, soname) = (format!("lib{name}.so"), format!("-Wl,-soname,lib{name}.so"));
    let arguments = ["-std=c++17", "-O0", "-shared", "-fPIC", abi, &root, &include, &all, &main, &soname];
    Some(samples::compile(&file, "c++", &arguments, &[]))
}

#[test]
fn repeating_and_shuffling_the_suite_changes_no_verdict() {
    let project = Project::new("repeat-shuffle");
    let program = tiny();
    let program = program.to_str().unwrap();
    tiny_is_right(&project.memgate(&["run", "--", program, "--gtest_repeat=3", "--gtest_shuffle"]));
}

/// `Late.Leaks` leaks from its third execution on, `Late.Once` cannot run twice in a process.
#[test]
fn a_leak_that_begins_with_a_later_execution_is_seen_where_the_screen_repeats() {
    let program = samples::own_suite(
        "late",
        "#include <gtest/gtest.h>\nchar* volatile lost;\n\
         __attribute__((noinline)) void lose() { lost = new char[157]; }\n\
         TEST(Late, Leaks) { static int times; if (++times >= 3) lose(); }\nTEST(Late, Idle) {}\n\
         TEST(Late, Once) { static int times; ASSERT_EQ(++times, 1); }\n",
    );
    let program = program.to_str().unwrap();
    let project = Project::new("repeat-screen");
    let once = project.memgate(&["run", "--", program]);
    once.ends_with(0);
    assert_eq!(once.test("Late.Leaks").verdict, Verdict::Pass);
    let thrice = project.memgate(&["run", "--repeat-screen", "3", "--", program]);
    thrice.ends_with(1);
    let leaks = thrice.test("Late.Leaks");
    assert_eq!((leaks.verdict, leaks.confirmed), (Verdict::Fail, true), "{thrice}");
    assert_eq!(leaks.metrics[&Metric::NativeLiveBytes].value, 157.0);
    assert_eq!(thrice.test("Late.Idle").verdict, Verdict::Pass);
    assert_eq!(
        thrice.test("Late.Once").reason,
        "the test itself failed in execution 2 of 3: not judged for leaks"
    );
    assert_eq!(thrice.suite().screen_executions, Some((3, 3)));
    assert!(thrice.stderr.contains("screened 3 times in"), "{thrice}");
    // The repeat count in the command takes precedence, and memgate reports the effect.
    let own = project.memgate(&["run", "--repeat-screen", "3", "--", program, "--gtest_repeat=1"]);
    own.ends_with(0);
    assert!(own.stderr.contains("executed 3 of 3 tests fewer than 3 times (the fewest: 1)"), "{own}");
}

#[test]
fn a_shard_is_judged_by_what_it_ran_and_confirmed_though_it_is_one() {
    let project = Project::new("shard");
    let program = tiny();
    let shard = |index: &str| {
        let mut command = project.command(&["run", "--", program.to_str().unwrap()]);
        command.env("GTEST_TOTAL_SHARDS", "2").env("GTEST_SHARD_INDEX", index);
        project.finish(&mut command)
    };
    let first = shard("0");
    first.ends_with(1);
    assert_eq!(first.suite().tests.len(), 1);
    assert_eq!(first.test("Tiny.Leaks").verdict, Verdict::Fail);
    let second = shard("1");
    second.ends_with(0);
    assert_eq!(second.suite().tests.len(), 1);
    assert_eq!(second.test("Tiny.Idle").verdict, Verdict::Pass);
}

#[test]
fn names_no_macro_lets_through_are_measured_and_told() {
    let (_, run) = names_session();
    let suite = run.suite();
    assert_eq!(suite.tests.len(), 11, "{run}");
    let wrong: Vec<String> = truth::of("names")
        .iter()
        .flat_map(|expected| expected.differences(&run.test(&expected.id)))
        .collect();
    assert!(wrong.is_empty(), "{}\n{run}", wrong.join("\n"));
    let long = suite.tests.iter().find(|test| test.id.len() > 5000).unwrap();
    assert_eq!(long.verdict, Verdict::Pass);
    assert!(
        !run.stderr.contains(['\u{7}', '\u{1b}', '\u{1}']),
        "no control character of theirs reaches the terminal"
    );
}

#[test]
fn a_stripped_static_binary_is_never_passed_silently() {
    let flags = ["-std=c++17", "-O1", "-static", "-s", "-lgtest", "-lgtest_main", "-lpthread"];
    let program = samples::own("tiny_static", "cc", TINY, "c++", &flags);
    let run = Project::new("static").run(&program);
    run.ends_with(2).says("static");
    assert_eq!(run.report().verdict, Verdict::Error);
    assert!(run.problems().contains("not measured"), "{}", run.problems());
    assert!(run.stdout.contains("[  PASSED  ] 2 tests."), "it ran all the same:\n{run}");
}

/// Regression: only what was alive at the end of the process counted. A static map that only its destructor frees
/// passed.
#[test]
fn a_stripped_suite_is_measured_test_by_test() {
    let source = "#include <gtest/gtest.h>\n#include <map>\n#include <string>\n\
                  static std::map<int, std::string> all;\n\
                  TEST(Stripped, Grows) { all[int(all.size())] = std::string(1000, 'x'); }\n\
                  TEST(Stripped, KeepsOnce) { static std::string once(5000, 'y'); once[0] = 'z'; }\n\
                  TEST(Stripped, Clean) { RecordProperty(\"key\", \"value\"); EXPECT_DEATH(abort(), \"\"); }\n";
    let flags = ["-std=c++17", "-O1", "-s", "-lgtest", "-lgtest_main", "-lpthread"];
    let program = samples::own("stripped", "cc", source, "c++", &flags);
    let run = Project::new("stripped").run(&program);
    run.ends_with(1);
    assert_eq!(run.suite().boundary, BoundaryQuality::Observed);
    assert_eq!(run.test("Stripped.Grows").verdict, Verdict::Fail, "{run}");
    for clean in ["Stripped.KeepsOnce", "Stripped.Clean"] {
        assert_eq!(run.test(clean).verdict, Verdict::Pass, "{run}");
    }
}

#[test]
fn a_program_with_an_allocator_of_its_own_is_never_passed_silently() {
    // Blocks of one big array: `new` never calls malloc.
    let own_new = "#include <cstddef>\n#include <new>\nalignas(64) static char arena[64 << 20];\n\
                   static size_t used;\n\
                   void* operator new(size_t n) { used = (used + 63) & ~size_t(63); char* p = arena + used; used += n; return p; }\n\
                   void* operator new[](size_t n) { return operator new(n); }\n\
                   void operator delete(void*) noexcept {}\nvoid operator delete(void*, size_t) noexcept {}\n\
                   void operator delete[](void*) noexcept {}\nvoid operator delete[](void*, size_t) noexcept {}\n";
    let run =
        Project::new("own-allocator").run(&samples::own_suite("tiny_own_new", &format!("{own_new}{TINY}")));
    run.ends_with(2);
    assert_eq!(run.report().verdict, Verdict::Error);
    assert!(run.stderr.contains("not measured"), "{run}");
}

/// Regression test: the agent's listener came before it, so every test failed.
#[test]
fn what_a_listener_that_main_appends_keeps_about_each_test_belongs_to_no_test() {
    let source = format!(
        "{TINY}#include <list>\n#include <string>\nstruct Results : testing::EmptyTestEventListener {{\n\
         std::list<std::string> all;\n\
         void OnTestStart(const testing::TestInfo& test) override {{ all.push_back(test.name()); }}\n\
         void OnTestEnd(const testing::TestInfo& test) override {{\n all.push_back(test.name());\n\
         if (all.back() == \"Refused\") ADD_FAILURE();\n}}\n}};\nTEST(Tiny, Refused) {{}}\n\
         int main(int argc, char** argv) {{\n testing::InitGoogleTest(&argc, argv);\n\
         testing::UnitTest::GetInstance()->listeners().Append(new Results);\n return RUN_ALL_TESTS();\n}}\n"
    );
    let flags = ["-std=c++17", "-O1", "-g", "-lgtest", "-lpthread"];
    let program = samples::own("results", "cc", &source, "c++", &flags);
    let run = Project::new("results").run(&program);
    run.ends_with(1);
    let leaks = run.test("Tiny.Leaks");
    assert_eq!((leaks.verdict, leaks.leaks.len()), (Verdict::Fail, 1), "{run}");
    let idle = run.test("Tiny.Idle");
    assert_eq!((idle.verdict, idle.confirmed), (Verdict::Pass, false), "{run}");
    assert_eq!(run.test("Tiny.Refused").outcome, Outcome::Failed, "the listener says so\n{run}");
}

#[test]
fn a_stripped_suite_has_its_boundaries_by_the_listener_of_the_header() {
    let source = samples::sources().join("listener.cc");
    let include = format!("-I{}", repository().join("device-agent/include").display());
    let arguments = ["-std=c++17", "-O1", "-s", &include, source.to_str().unwrap(), "-lgtest", "-lpthread"];
    let program = samples::compile("listener", "c++", &arguments, &[]);
    let run = Project::new("listener").run(&program);
    run.ends_with(1);
    assert_eq!(run.suite().boundary, BoundaryQuality::Exact);
    assert_eq!(run.test("Listener.Leaks").metrics[&Metric::NativeLiveBytes].value, 251.0);
    assert_eq!(run.test("Listener.Clean").verdict, Verdict::Pass);
}

fn api() -> PathBuf {
    let source = samples::sources().join("api.c");
    let include = format!("-I{}", repository().join("device-agent/include").display());
    samples::compile("api", "cc", &["-std=c11", "-O1", "-g", &include, source.to_str().unwrap()], &[])
}

#[test]
fn a_program_with_the_c_api_runs_unchanged_without_the_agent() {
    let output = Command::new(api()).output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "passed, not recorded\n");
}

/// The program says when a test ends: a leak after that is still a leak. A block that the next test frees is none.
#[test]
fn a_leak_behind_the_end_that_the_program_gives_its_test_fails() {
    let source = "#include <memgate.h>\n#include <stdlib.h>\nvoid *volatile kept, *handed;\n\
                  int main(void) { for (int i = 0; i < 40; ++i) {\n\
                  MemgateIteration(i); MemgateTestBegin(\"Api\", \"early\"); handed = malloc(31);\n\
                  MemgateTestEnd(\"Api\", \"early\", MEMGATE_PASSED); kept = malloc(157);\n\
                  MemgateTestBegin(\"Api\", \"frees\"); free(handed);\n\
                  MemgateTestEnd(\"Api\", \"frees\", MEMGATE_PASSED); } }\n";
    let project = Project::new("ends-early");
    project.memgate(&["native-kit", "kit"]).ends_with(0);
    let include = format!("-I{}", project.folder().join("kit").display());
    let program = samples::own("ends_early", "c", source, "cc", &["-std=c11", "-O1", "-g", &include]);
    let run = project.run(&program);
    run.ends_with(1);
    let test = run.test("Api.early");
    assert_eq!(test.verdict, Verdict::Fail, "{run}");
    let why = "157 B per iteration outside of the windows that the program gives the test (allowed 0 B)";
    assert_eq!(test.reason, why);
    assert_eq!(run.test("Api.frees").verdict, Verdict::Pass, "{run}");
}

/// Regression: the program ran once more, with an argument of GoogleTest. And the second report of an end hid the leak.
#[test]
fn a_program_that_reports_its_own_tests_and_crashes_is_not_run_again_to_list_them() {
    let source = "#include <memgate.h>\n#include <stdio.h>\n#include <stdlib.h>\nvoid *volatile kept;\n\
                  int main(void) { fputs(\"x\", fopen(\"starts\", \"a\")); fflush(NULL);\n\
                  MemgateTestBegin(\"Api\", \"twice\"); kept = malloc(157);\n\
                  MemgateTestEnd(\"Api\", \"twice\", 0); MemgateTestEnd(\"Api\", \"twice\", 0);\n\
                  MemgateTestBegin(\"Api\", \"dies\"); abort(); }\n";
    let project = Project::new("own-crash");
    let include = format!("-I{}", repository().join("device-agent/include").display());
    let program = samples::own("own_crash", "c", source, "cc", &["-std=c11", "-O1", "-g", &include]);
    let run = project.run(&program);
    run.ends_with(1);
    assert_eq!(fs::read_to_string(project.folder().join("starts")).unwrap(), "x", "{run}");
    let why = "the process ended in Api.dies; which tests did not run is not known: its program reports them itself";
    assert!(run.suite().reason.contains(why), "{run}");
    let twice = run.test("Api.twice");
    assert!(twice.reason.starts_with("unconfirmed: left 157 B"), "{run}");
}

#[test]
fn a_program_with_the_c_api_tells_its_own_boundaries() {
    let project = Project::new("c-api");
    let program = api();
    let program = program.to_str().unwrap();
    let run = project.memgate(&["run", "--", program, "--count=30"]);
    run.ends_with(1);
    assert_eq!(run.stdout, "passed, recorded\n");
    assert_eq!(run.suite().boundary, BoundaryQuality::Exact);
    for expected in truth::of("api") {
        let wrong = expected.differences(&run.test(&expected.id));
        assert!(wrong.is_empty(), "{}\n{run}", wrong.join("\n"));
    }

    // A test that ran once and cannot be repeated does not pass either.
    let once = project.memgate(&["run", "--", program]);
    once.ends_with(0);
    assert_eq!(once.test("Api.stores").verdict, Verdict::Warn);
    assert!(once.test("Api.stores").reason.contains("only the program can repeat it"), "{once}");
    assert_eq!(once.test("Api.formats").verdict, Verdict::Pass);
}

#[test]
fn the_argument_that_repeats_the_work_tells_the_growth_of_a_whole_program() {
    let project = Project::new("repeating-argument");
    let clean = samples::command("command_clean");
    let leaks = samples::command("command_leaks");
    project.write(
        "memgate.yaml",
        format!(
            "version: 1\nsuites:\n  clean: {{ run: [{}, \"--count={{n}}\"], runner: command }}\n  \
             leaks: {{ run: [{}, \"--count={{n}}\"], runner: command }}\n",
            clean.display(),
            leaks.display()
        ),
    );
    let run = project.memgate(&["run"]);
    run.ends_with(1);
    let verdicts: Vec<_> =
        run.report().suites.iter().map(|suite| (suite.name.clone(), suite.verdict)).collect();
    assert_eq!(verdicts, [("clean".to_owned(), Verdict::Pass), ("leaks".to_owned(), Verdict::Fail)]);
    let leaking = run.test("leaks");
    // The list of orders grows, too. Its destructor frees it only at exit, so it counts as growth.
    assert_eq!(leaking.metrics[&Metric::NativeLiveBytes].value, 67.0 + 24.0);
    let functions: Vec<_> =
        leaking.leaks.iter().map(|leak| leak.frames[0].function.clone().unwrap_or_default()).collect();
    assert_eq!(functions.len(), 2, "{run}");
    assert_eq!(functions[0], "command::print_receipt()");
    // Holders are found when `main` ends.
    run.says("lost: no pointer to it is left");
    run.says("held by  static command::orders (command_leaks.cc:");
}

/// Regression: each cache with more entries than the longest of the first runs has repetitions failed.
#[test]
fn a_cache_that_is_full_after_some_repetitions_is_no_leak_of_a_whole_program() {
    let source = "#include <stdlib.h>\n#include <string.h>\nstatic char *cache[256], *volatile lost;\n\
         __attribute__((noinline)) void fill(int n) { free(cache[n % 256]); cache[n % 256] = strdup(\"entry\"); }\n\
         __attribute__((noinline)) void lose(void) { lost = malloc(77); }\n\
         int main(int count, char **a) {\n  for (int n = atoi(a[1]); n > 0; --n) { fill(n); if (count > 2 && n % 10 == 0) lose(); }\n}\n";
    let program = samples::own_program("cache_of_a_program", source);
    let project = Project::new("cache-of-a-program");
    let path = program.display();
    project.write(
        "memgate.yaml",
        format!(
            "version: 1\nsuites:\n  cache: {{ run: [{path}, \"{{n}}\"], runner: command }}\n  \
             beside: {{ run: [{path}, \"{{n}}\", loses], runner: command }}\n"
        ),
    );
    let run = project.memgate(&["run"]);
    run.ends_with(1);
    assert_eq!((run.test("cache").verdict, run.test("cache").leaks.len()), (Verdict::Pass, 0), "{run}");
    let beside = run.test("beside");
    let bytes = &beside.metrics[&Metric::NativeLiveBytes];
    assert!(beside.verdict == Verdict::Fail && (bytes.value - 7.7).abs() < 0.1, "{run}");
    let named = beside.leaks.iter().map(|leak| leak.frames[0].function.as_deref()).collect::<Vec<_>>();
    assert_eq!(named, [Some("lose")], "{run}");
}

#[test]
fn growth_that_only_static_destructors_free_is_a_leak_of_a_whole_program() {
    let source = |end: &str| {
        format!(
            "#include <cstdlib>\n#include <memory>\n#include <vector>\n\
             static std::vector<std::unique_ptr<char[]>> kept;\n\
             __attribute__((noinline)) void keep() {{ kept.emplace_back(new char[333]); }}\n\
             int main(int, char** argv) {{\n  kept.reserve(10000);\n  for (int n = std::atoi(argv[1]); n > 0; --n) keep();\n  {end}\n}}\n"
        )
    };
    for (name, end) in [("kept_return", "return 0;"), ("kept_exit", "std::exit(0);")] {
        let program = samples::own(name, "cc", &source(end), "c++", &["-std=c++17", "-O1", "-g"]);
        let project = Project::new(name);
        let suite = format!(
            "version: 1\nsuites:\n  kept: {{ run: [{}, \"{{n}}\"], runner: command }}\n",
            program.display()
        );
        project.write("memgate.yaml", suite);
        let run = project.memgate(&["run"]);
        run.ends_with(1);
        let kept = run.test("kept");
        assert_eq!(
            kept.reason,
            "333 B per repetition at the end of main, freed only by exit handlers (allowed 0 B)"
        );
        assert_eq!(kept.leaks[0].frames[0].function.as_deref(), Some("keep()"), "{run}");
        run.says("held by  static kept (kept_");
    }
}

#[test]
fn a_whole_program_that_leaves_descriptors_and_threads_behind_leaks_them() {
    let source = "#include <fcntl.h>\n#include <pthread.h>\n#include <semaphore.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
         static sem_t runs;\nstatic void *forever(void *unused) { sem_post(&runs); pause(); return unused; }\n\
         __attribute__((noinline)) void leave_open(void) { open(\"/dev/null\", O_RDONLY); }\n\
         __attribute__((noinline)) void leave_running(void) { pthread_t id; pthread_create(&id, 0, forever, 0); sem_wait(&runs); }\n\
         int main(int count, char **a) {\n  for (int n = atoi(a[1]); n > 0; --n) a[2][0] == 'd' ? leave_open() : leave_running();\n  \
         return count > 9;\n}\n";
    let program = samples::own_program("handles_per_repetition", source);
    let project = Project::new("handles-per-repetition");
    let run = format!("{{ run: [{}, \"{{n}}\", KIND], runner: command }}", program.display());
    let suites = |kind: &str| run.replace("KIND", kind);
    project.write(
        "memgate.yaml",
        format!("version: 1\nsuites:\n  descriptors: {}\n  threads: {}\n", suites("d"), suites("t")),
    );
    let run = project.memgate(&["run"]);
    run.ends_with(1);
    for (test, reason, function) in [
        ("descriptors", "1 descriptor per repetition (allowed 0)", "leave_open"),
        ("threads", "1 thread per repetition (allowed 0)", "leave_running"),
    ] {
        let told = run.test(test);
        assert!(told.reason.contains(reason), "{run}");
        let place =
            |leak: &memgate_model::Leak| leak.frames.iter().any(|f| f.function.as_deref() == Some(function));
        assert!(told.leaks.iter().any(|leak| leak.kind == LeakKind::Os && place(leak)), "{run}");
    }
}

/// A program that is judged as a whole leaks what its tests leave.
#[test]
fn a_whole_program_that_tells_of_tests_leaks_what_these_leave() {
    let leaks = "#include <fcntl.h>\n#include <stdlib.h>\n\
         __attribute__((noinline)) void leave_open(void) { open(\"/dev/null\", O_RDONLY); }\n\
         __attribute__((noinline)) void *lose(void) { return malloc(77); }\nvoid *volatile lost;\n";
    let api = format!(
        "#include <memgate.h>\n{leaks}int main(int count, char **a) {{\n  for (int n = atoi(a[1]); n > 0; --n) {{\n    \
         MemgateTestBegin(\"A\", \"a\");\n    lost = lose(), leave_open();\n    MemgateTestEnd(\"A\", \"a\", 0);\n  }}\n  \
         return count > 2;\n}}\n"
    );
    let gtest = format!("#include <gtest/gtest.h>\n{leaks}TEST(A, a) {{ lost = lose(), leave_open(); }}\n");
    let include = format!("-I{}", repository().join("device-agent/include").display());
    let api = samples::own("tests_of_a_program", "c", &api, "cc", &["-O1", "-g", &include]);
    let arguments = ["-std=c++17", "-O1", "-g", "-lgtest_main", "-lgtest", "-lpthread"];
    let gtest = samples::own("gtest_of_a_program", "cc", &gtest, "c++", &arguments);
    let project = Project::new("tests-of-a-program");
    let suite = |program: &PathBuf, argument: &str| {
        format!("{{ run: [{}, \"{argument}\"], runner: command }}", program.display())
    };
    project.write(
        "memgate.yaml",
        format!(
            "version: 1\nsuites:\n  api: {}\n  gtest: {}\n  once: {}\n",
            suite(&api, "{n}"),
            suite(&gtest, "--gtest_repeat={n}"),
            suite(&api, "7"),
        ),
    );
    let run = project.memgate(&["run"]);
    run.ends_with(1);
    for test in ["api", "gtest"] {
        let told = run.test(test);
        assert_eq!(told.verdict, Verdict::Fail, "{run}");
        for (kind, function) in [(LeakKind::Native, "lose"), (LeakKind::Os, "leave_open")] {
            let is_there = |leak: &memgate_model::Leak| {
                let named =
                    leak.frames.iter().any(|f| f.function.as_ref().is_some_and(|f| f.starts_with(function)));
                leak.kind == kind && named
            };
            assert!(told.leaks.iter().any(is_there), "{test}: {function}\n{run}");
        }
    }
    let once = run.test("once");
    assert!(
        once.verdict == Verdict::Warn && once.reason.contains("not judged: 539 B in 7 allocations"),
        "{run}"
    );
    // Regression: it passed, and its leaks counted as fixed.
    let none = project.memgate(&["run", "--", &api.display().to_string(), "0"]);
    none.ends_with(2);
    none.says("it reports its own tests (memgate.h), and reported none");
}

/// Regression: libuv's runner starts itself for each test. The leaks of those processes passed without a message.
#[test]
fn a_plain_program_that_starts_itself_for_its_tests_does_not_hide_what_they_leave() {
    let project = Project::new("starts-itself");
    let runner = "#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
                  void *kept;\n__attribute__((noinline)) void lose(void) { kept = malloc(4711); }\n\
                  int main(int n, char **a) {\n\
                  if (n > 1) { if (a[1][0] == 'l') lose(); return 0; }\n\
                  char *tests[] = {\"lost\", \"clean\"};\n\
                  for (int i = 0; i < 2; i++) { if (!fork()) { execl(a[0], a[0], tests[i], (char *)0); _exit(1); } wait(0); }\n\
                  return 0; }\n";
    let run = project.run(&samples::own_program("runner", runner));
    run.ends_with(0);
    let report = run.report();
    let verdict = |test: &str| {
        let of = |id: &str| id.rsplit(' ').next() == Some(test);
        let all = report.suites.iter().flat_map(|suite| &suite.tests);
        let found: Vec<_> = all.filter(|found| of(&found.id)).collect();
        assert_eq!(found.len(), 1, "{test}\n{run}");
        found[0].clone()
    };
    let lost = verdict("lost");
    assert_eq!(lost.verdict, Verdict::Warn, "{run}");
    assert_eq!(lost.leaks[0].frames[0].function.as_deref(), Some("lose"), "{run}");
    assert_eq!(verdict("clean").verdict, Verdict::Pass, "{run}");
    assert_eq!(report.suites.len(), 3, "{run}");
}

#[test]
fn a_plain_program_that_leaves_memory_behind_is_not_judged_and_says_so() {
    let project = Project::new("alive-at-exit");
    let leaves = "#include <dlfcn.h>\n#include <fcntl.h>\n#include <locale.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
                  void *kept, *other;\n__attribute__((noinline)) void keep(void) { kept = malloc(4711); open(\"/dev/null\", 0); }\n\
                  int main(int n, char **a) { setlocale(LC_ALL, \"C.UTF-8\"); dlopen(\"libresolv.so.2\", RTLD_NOW);\n\
                  puts(\"hello\"); if (n > 1) { other = malloc(13); keep(); } return 0; }\n";
    let program = samples::own_program("leaves", leaves);
    let run = project.memgate(&["run".as_ref(), "--".as_ref(), program.as_os_str(), "1".as_ref()]);
    run.ends_with(0);
    assert_eq!(run.report().verdict, Verdict::Warn, "{run}");
    let leaves = run.test("leaves");
    assert!(
        leaves.reason.starts_with("not judged: 4.6 KiB in 2 allocations, 1 descriptor alive at exit"),
        "{}",
        leaves.reason
    );
    assert_eq!(leaves.leaks[0].frames[0].function.as_deref(), Some("keep"), "{run}");
    assert!(run.stderr.contains("{n}") && run.stderr.contains("not judged"), "{run}");
    let bytes = leaves.metrics.get(&Metric::NativeLiveBytes).map(|figure| figure.value);
    assert_eq!(bytes, Some(4724.0), "without what the C library keeps in the same function\n{run}");
    // Output, the locale and loaded libraries leave blocks of the C library allocated, which the program cannot free.
    let run = project.run(&program);
    assert_eq!(run.report().verdict, Verdict::Pass, "{run}");
}
