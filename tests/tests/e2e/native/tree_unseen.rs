//! Started by a script, ctest or make: a GoogleTest program without the agent is an error with its name, even
//! if other programs are measured.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use memgate_e2e::samples::{compile, own_program, successful};
use memgate_e2e::{Project, Run, has_tool, junit, jvm, repository};
use memgate_model::Verdict;

const SUITE: &str = "#include <gtest/gtest.h>\nTEST(Small, Passes) { EXPECT_EQ(1 + 1, 2); }\n";

/// A suite of one test, linked in this way.
fn suite(name: &str, flags: &[&str]) -> PathBuf {
    let arguments =
        [&["small.cc", "-std=c++17", "-O0", "-g"], flags, &["-lgtest", "-lgtest_main", "-lpthread"]].concat();
    compile(name, "c++", &arguments, &[("small.cc", SUITE)])
}

fn script(name: &str, text: &str) -> (Project, Run) {
    let project = Project::new(name);
    let run = project.memgate(&["run", "--", "sh", "-c", text]);
    (project, run)
}

/// Checks that the measured suite passes, and that this one is the only error, for this reason.
#[track_caller]
fn is_not_measured(run: &Run, name: &str, why: &str) {
    run.ends_with(2);
    let report = run.report();
    let error = report.suites.iter().find(|suite| suite.name == name);
    let error = error.unwrap_or_else(|| panic!("no suite {name}\n{run}"));
    assert_eq!(error.verdict, Verdict::Error, "{run}");
    assert!(error.reason.starts_with("not measured: ") && error.reason.contains(why), "{}", error.reason);
    assert!(run.stderr.contains(why), "{run}");
    let others: Vec<Verdict> =
        report.suites.iter().filter(|suite| suite.name != name).map(|suite| suite.verdict).collect();
    assert_eq!(others, [Verdict::Pass], "{run}");
    assert!(!run.stderr.contains("ld.so"), "{run}");
}

#[test]
fn what_the_file_of_a_test_keeps_the_agent_out_of_is_told() {
    let (clean, fixed, stripped) =
        (suite("small", &[]), suite("small_static", &["-static"]), suite("small_stripped", &["-s"]));
    let [clean, fixed, stripped] = [&clean, &fixed, &stripped].map(|path| path.display());
    let (_, run) = script("unseen-static", &format!("{clean}; {fixed}"));
    is_not_measured(&run, "small_static", "linked statically");
    let (_, run) = script("unseen-stripped", &format!("{clean}; {stripped}"));
    is_not_measured(&run, "small_stripped", "symbols are stripped");

    let (_, run) = script("unseen-alone", &format!("exec {fixed}"));
    run.ends_with(2);
    assert!(run.report().suites[0].reason.contains("linked statically"), "{run}");
}

/// Regression: such programs were named only if another program was measured.
#[test]
fn ctest_names_programs_without_googletest_even_if_it_measured_nothing() {
    if !has_tool("ctest") {
        return;
    }
    let project = Project::new("unseen-plain");
    let program = project.folder().join("plain");
    fs::copy(own_program("plain_of_ctest", "int main(void) { return 0; }\n"), &program).unwrap();
    project.write("CTestTestfile.cmake", format!("add_test(plain {program:?})\n"));
    let run = project.memgate(&["run", "--", "ctest"]);
    run.ends_with(2).says("because they contain no GoogleTest: plain; --target GLOB");
}

#[test]
fn what_is_started_without_the_agent_is_told_though_it_was_measured_before() {
    let clean = suite("small", &[]).display().to_string();
    for (name, how) in [
        ("unseen-env", format!("env -i {clean}")),
        ("unseen-env-shell", format!("env -i sh -c 'cd / && {clean}'")),
        ("unseen-preload", format!("LD_PRELOAD= {clean}")),
    ] {
        let (_, run) = script(name, &format!("{clean}; {how}"));
        is_not_measured(&run, "small (not measured)", "without memgate's variables");
    }
}

/// One command measures native tests or JUnit tests. This holds even if the class is missing: nobody knows
/// what it would have left.
#[test]
fn junit_tests_beside_native_ones_are_told() {
    let clean = suite("small", &[]).display().to_string();
    for jdk in jvm::jdks_in_turn(0) {
        let runs = junit::java4(&jdk, Path::new("classes"), "com.example.None").join(" ");
        let (_, run) = script("unseen-junit", &format!("{clean}; {runs}; true"));
        is_not_measured(&run, "java", "it ran JUnit tests (org.junit.runner.JUnitCore)");
        let (_, run) = script("unseen-junit-alone", &format!("{runs}; true"));
        run.ends_with(2);
        assert!(run.problems().contains("`runner: junit`"), "{}", run.problems());
        let java = runs.split(' ').next().unwrap();
        let (_, run) =
            script("unseen-java", &format!("{clean}; {java} -version; {java} com.example.None; true"));
        run.ends_with(0);
    }
}

#[test]
fn listings_failed_starts_and_programs_that_are_no_tests_are_silent() {
    let (clean, fixed) = (suite("small", &[]), suite("small_static", &["-static"]));
    let [clean, fixed] = [&clean, &fixed].map(|path| path.display());
    let quiet = format!(
        "{clean}; {fixed} --gtest_list_tests; env -i {fixed} --help; /no/such/program; env -i ls {fixed}; grep -c x {fixed}; true"
    );
    let (_, run) = script("unseen-none", &quiet);
    run.ends_with(0);
    assert_eq!(run.report().suites.len(), 1, "{run}");
    let project = Project::new("unseen-filter");
    let run =
        project.memgate(&["run", "--filter", "Other.*", "--", "sh", "-c", &format!("{clean}; {fixed}")]);
    assert!(run.report().suites.is_empty(), "a filter that leaves nothing of it:\n{run}");
}

/// The program's own `main` is the test. It is linked with GoogleTest only because its build links every
/// program so.
#[test]
fn a_program_that_contains_googletest_and_asks_for_no_test_of_it_is_told_and_no_error() {
    let own = "int main(int count, char**) { if (count > 9) return RUN_ALL_TESTS(); puts(\"fine\"); }\n";
    let text = format!("#include <cstdio>\n{SUITE}{own}");
    let arguments = ["own.cc", "-std=c++17", "-O0", "-g", "-lgtest", "-lpthread"];
    let own = compile("own", "c++", &arguments, &[("own.cc", &text)]);
    let (small, own) = (suite("small", &[]), own.display().to_string());
    let told = "not measured: it contains GoogleTest, and ended without running tests of it";

    let (_, run) = script("unseen-own-main", &format!("{}; {own}", small.display()));
    run.ends_with(0);
    assert_eq!(run.report().suites.len(), 2, "{run}");
    assert!(run.problems().contains(told), "{}", run.problems());
    let (_, run) = script("unseen-help", &format!("{small} --help > help; {small}", small = small.display()));
    run.ends_with(0);
    assert_eq!(run.report().suites.len(), 2, "{run}");
    assert!(run.problems().contains(told), "{}", run.problems());

    let (_, run) = script("unseen-own-main-alone", &format!("{own}; true"));
    run.ends_with(2);
    assert!(run.problems().contains("no GoogleTest executable ran"), "{}", run.problems());
    let run = Project::new("own-main").memgate(&["run", "--", &own]);
    run.ends_with(2);
    assert!(run.problems().contains("ended without running a test of GoogleTest"), "{}", run.problems());
}

/// In a forked child, nobody waits for the ends of tests or repeats them.
#[test]
fn tests_that_begin_in_a_forked_child_are_an_error() {
    let main = "int main(int count, char** given) { testing::InitGoogleTest(&count, given); \
                pid_t child = fork(); if (child == 0) exit(RUN_ALL_TESTS()); \
                int status; waitpid(child, &status, 0); return WEXITSTATUS(status); }\n";
    let text = format!("#include <sys/wait.h>\n#include <unistd.h>\n{SUITE}{main}");
    let arguments = ["forks.cc", "-std=c++17", "-O0", "-g", "-lgtest", "-lpthread"];
    let googletest = compile("forks", "c++", &arguments, &[("forks.cc", &text)]).display().to_string();
    let told = "tests began in a child that it forked";
    let (_, run) = script("unseen-forked", &format!("{}; {googletest}", suite("small", &[]).display()));
    is_not_measured(&run, "forks", told);

    let text = "#include <memgate.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
                int main(void) { if (fork() == 0) { MemgateTestBegin(\"Api\", \"child\"); \
                void* volatile lost = malloc(77); MemgateTestEnd(\"Api\", \"child\", 0); exit(lost == 0); } \
                return wait(0) < 0; }\n";
    let include = format!("-I{}", repository().join("device-agent/include").display());
    let api = compile("forks_api", "cc", &["forks.c", "-O0", "-g", &include], &[("forks.c", text)]);
    let run = Project::new("forked-api").memgate(&["run", "--", &api.display().to_string()]);
    run.ends_with(2);
    assert!(run.problems().contains(told), "{}", run.problems());
}

/// Check runs each test in a child process. Regression: such a program passed without a message. Blocks that
/// a child inherits from its parent, and the C library's buffer, do not count as the child's.
#[test]
fn what_forked_children_of_a_plain_program_end_with_is_told() {
    let text = "#include <stdio.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
                void* volatile kept;\n\
                static void leaks(void) { kept = malloc(4321); }\nstatic void clean(void) { free(malloc(9)); }\n\
                static void run(void (*test)(void)) { if (fork() == 0) { test(); puts(\"ok\"); exit(0); } \
                wait(0); }\n\
                int main(void) { void* volatile suite = malloc(5000); puts(\"begin\"); fflush(stdout); run(leaks); run(clean); free(suite); return 0; }\n";
    let program = compile("forks_tests", "cc", &["forks.c", "-O0", "-g"], &[("forks.c", text)]);
    let project = Project::new("forked-tests");
    let run = project.memgate(&["run", "--", &program.display().to_string()]);
    run.ends_with(0);
    let suite = run.suite();
    assert_eq!(suite.verdict, Verdict::Warn, "{}", suite.reason);
    let told = "not judged: a child that it forked ended with 4.2 KiB in 1 allocation of its own alive;";
    assert!(suite.reason.starts_with(told), "{}", suite.reason);
    run.says("a child that it forked");
}

#[test]
fn a_target_by_its_glob_that_is_not_measured_is_told() {
    let plain = "int main(void) { return 0; }\n";
    let (seen, fixed) =
        (own_program("t_seen", plain), compile("t_static", "cc", &["t.c", "-static"], &[("t.c", plain)]));
    let project = Project::new("unseen-target");
    let text = format!("{}; {}", seen.display(), fixed.display());
    let run = project.memgate(&["run", "--target", "*/t_*", "--", "sh", "-c", &text]);
    run.ends_with(2);
    let report = run.report();
    let told = report.suites.iter().find(|suite| suite.name == "t_static").map(|suite| suite.reason.as_str());
    assert!(told.is_some_and(|reason| reason.contains("linked statically")), "{run}");
}

#[test]
fn every_way_of_starting_a_program_is_seen() {
    let fixed = suite("small_static", &["-static"]);
    let clean = suite("small", &[]);
    let ways = own_program(
        "ways",
        "#define _GNU_SOURCE\n#include <spawn.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
         extern char **environ;\n\
         int main(int n, char **a) {\n\
           char *way = a[1], *t = a[2], *v[] = {t, \"1\", \"2\", \"3\", \"4\", \"5\", \"6\", 0};\n\
           char *none[] = {\"A=1\", 0};\n\
           if (!strcmp(way, \"spawn\")) { int s; pid_t p; if (posix_spawn(&p, t, 0, 0, v, none)) return 9; waitpid(p, &s, 0); return s; }\n\
           if (!strcmp(way, \"spawnp\")) { int s; pid_t p; if (posix_spawnp(&p, t, 0, 0, v, none)) return 9; waitpid(p, &s, 0); return s; }\n\
           if (!strcmp(way, \"vfork\")) { int s; pid_t p = vfork(); if (!p) { execve(t, v, none); _exit(9); } waitpid(p, &s, 0); return s; }\n\
           if (!strcmp(way, \"execve\")) execve(t, v, none);\n\
           if (!strcmp(way, \"execvpe\")) execvpe(t, v, none);\n\
           if (!strcmp(way, \"execle\")) execle(t, t, \"1\", \"2\", \"3\", \"4\", \"5\", \"6\", (char *)0, none);\n\
           if (!strcmp(way, \"path\")) { setenv(\"PATH\", a[3], 1); execlp(a[4], a[4], \"1\", (char *)0); }\n\
           environ = none;\n\
           if (!strcmp(way, \"system\")) return system(t);\n\
           if (!strcmp(way, \"popen\")) return pclose(popen(t, \"w\"));\n\
           if (!strcmp(way, \"execv\")) execv(t, v);\n\
           if (!strcmp(way, \"execvp\")) execvp(t, v);\n\
           if (!strcmp(way, \"execl\")) execl(t, t, \"1\", \"2\", \"3\", \"4\", \"5\", \"6\", (char *)0);\n\
           if (!strcmp(way, \"execlp\")) execlp(t, t, (char *)0);\n\
           return 9;\n\
         }\n",
    );
    for way in [
        "spawn", "spawnp", "vfork", "execve", "execvpe", "execle", "execv", "execvp", "execl", "execlp",
        "system", "popen",
    ] {
        let (_, run) =
            script("unseen-ways", &format!("{c}; {} {way} {c}", ways.display(), c = clean.display()));
        is_not_measured(&run, "small (not measured)", "without memgate's variables");
    }
    let (folder, name) = (fixed.parent().unwrap(), fixed.file_name().unwrap().to_str().unwrap());
    let text = format!("{}; {} path x /nowhere:{} {name}", clean.display(), ways.display(), folder.display());
    let (_, run) = script("unseen-path", &text);
    is_not_measured(&run, "small_static", "linked statically");
}

/// Only root can become another user.
fn as_root() -> bool {
    let is_root = successful(Command::new("id").arg("-u")).trim() == "0";
    if !is_root || !has_tool("setpriv") {
        memgate_e2e::skip("only root can become another user, by setpriv");
    }
    is_root && has_tool("setpriv")
}

/// A copy that every user can access, with this mode.
fn reachable(name: &str, program: &Path, mode: u32) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join(name);
    fs::copy(program, &copy).unwrap();
    std::os::unix::fs::chown(&copy, Some(65534), None).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).unwrap();
    (folder, copy.display().to_string())
}

#[test]
fn a_test_that_runs_as_another_user_is_told() {
    if !as_root() {
        return;
    }
    let (_folder, clean) = reachable("small", &suite("small", &[]), 0o755);
    let nobody = "setpriv --reuid 65534 --clear-groups";
    let (_, run) = script("unseen-user", &format!("{clean}; {nobody} {clean}"));
    is_not_measured(&run, "small (not measured)", "another user");

    let (_folder, privileged) = reachable("privileged", &suite("small", &[]), 0o4755);
    let (_, run) = script("unseen-set-user-id", &format!("{clean}; {privileged}"));
    is_not_measured(&run, "privileged", "privileges of its file");

    // Like sudo: no agent is loaded into it, and it starts the program that its arguments name.
    let starter = own_program(
        "as_nobody",
        "#include <unistd.h>\nint main(int n, char **a) { return execv(a[3], a + 3); }\n",
    );
    let (_folder, starter) = reachable("as_nobody", &starter, 0o4755);
    let (_, run) = script("unseen-sudo", &format!("{clean}; {starter} -u nobody {clean}"));
    is_not_measured(&run, "small (not measured)", "sudo");
}

#[test]
fn a_test_below_another_root_is_told_and_hears_nothing_of_the_loader() {
    if !as_root() || !has_tool("chroot") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let clean = suite("small", &[]);
    let libraries = successful(Command::new("ldd").arg(&clean));
    let needed = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    for file in needed.chain([clean.to_str().unwrap()]) {
        let copy = root.path().join(file.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(file, copy).unwrap();
    }
    let text = format!("{c}; chroot {} {c}", root.path().display(), c = clean.display());
    let (_, run) = script("unseen-chroot", &text);
    run.ends_with(2);
    assert!(run.stdout.matches("[  PASSED  ] 1 test").count() == 2, "{run}");
    assert!(!run.stderr.contains("ld.so"), "{run}");
    assert!(run.report().suites.iter().any(|s| s.reason.contains("another root folder")), "{run}");
}

#[test]
fn a_sanitized_test_with_options_of_its_own_passes_and_is_not_measured() {
    let sanitized = suite("small_asan", &["-fsanitize=address"]);
    let text = format!("ASAN_OPTIONS=detect_leaks=0 {} && echo it passes", sanitized.display());
    let (_, run) = script("unseen-asan", &text);
    run.ends_with(2);
    assert!(run.stdout.contains("it passes"), "{run}");
    assert!(run.test("Small.Passes").reason.contains("a sanitizer"), "{run}");
}
