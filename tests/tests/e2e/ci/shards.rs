//! A run that is spread over several machines: its shards run every test once, and `memgate merge` gives the
//! same result as one machine. Missing parts are never a pass.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use memgate_e2e::stand_in::{AdbServer, adbs};
use memgate_e2e::{Project, Run, has_tool, is_long, samples};
use memgate_model::{Outcome, RunReport, Verdict};

use crate::android::instrumentation::app;
use crate::android::instrumentation::leaks;

/// Result of a test: verdict, outcome, leaks.
type Told = (Verdict, Outcome, Vec<(String, String)>);

fn told(report: &RunReport) -> BTreeMap<(String, String), Told> {
    let suites = report.suites.iter();
    let tests = suites.flat_map(|suite| suite.tests.iter().map(|test| (suite.name.clone(), test)));
    tests
        .map(|(suite, test)| {
            let mut leaks: Vec<_> =
                test.leaks.iter().map(|leak| (leak.id.clone(), leak.title.clone())).collect();
            leaks.sort();
            ((suite, test.id.clone()), (test.verdict, test.outcome, leaks))
        })
        .collect()
}

/// One-time allocations.
fn one_time(report: &RunReport) -> Vec<(&str, f64)> {
    let tests = report.suites.iter().flat_map(|suite| &suite.tests);
    let leaks = tests.flat_map(|test| &test.one_time);
    leaks.map(|leak| (leak.id.as_str(), leak.bytes_per_iteration)).collect()
}

/// Runs one shard; its session is `FOLDER/INDEX/latest`.
fn shard(project: &Project, (index, of): (u32, u32), typed: &[&str], prepare: &dyn Fn(&mut Command)) -> Run {
    let (part, folder) = (format!("{index}/{of}"), format!("shards-{of}/{index}"));
    let all = [&["run", "--partition", &part, "--output-dir", &folder], typed].concat();
    let mut command = project.command(&all);
    prepare(&mut command);
    project.finish(&mut command)
}

/// Runs the command `typed` in `of` shards and merges them; checks that the result is the same as on one
/// machine.
#[track_caller]
pub(crate) fn is_the_same_in_shards(
    project: &Project,
    whole: &RunReport,
    of: u32,
    typed: &[&str],
    prepare: &dyn Fn(&mut Command),
) -> Run {
    for index in 1..=of {
        let run = shard(project, (index, of), typed, prepare);
        assert!(run.code.is_some_and(|code| code < 2), "{run}");
        run.says(&format!("shard {index}/{of}: "));
    }
    let run = project.memgate(&["merge", "--expect", &of.to_string(), &format!("shards-{of}")]);
    run.ends_with(whole.exit_code);
    let merged = run.report();
    assert_eq!(told(&merged), told(whole), "{of} shards\n{run}");
    let parts: Vec<String> = merged.shards.iter().map(|shard| shard.number.to_string()).collect();
    assert_eq!(parts, (1..=of).map(|index| format!("{index}/{of}")).collect::<Vec<_>>());
    assert_eq!(
        (merged.verdict, &merged.errors, &merged.waivers),
        (whole.verdict, &whole.errors, &whole.waivers),
        "{run}"
    );
    run
}

/// Two tests that leak, and a dozen that do not, one of which skips itself; a fixture that leaves something
/// once.
fn suite() -> String {
    let clean: String = (0..9).map(|n| format!("TEST(Quick, T{n}) {{ delete new int; }}\n")).collect();
    let program = format!(
        "#include <gtest/gtest.h>\n#include <stdlib.h>\nchar* volatile kept;\nchar* volatile base;\n\
         struct Map : testing::Test {{ static void SetUpTestSuite() {{ if (!base) base = (char*)malloc(77); }} }};\n\
         TEST_F(Map, scrolls) {{ kept = (char*)malloc(4096); }}\nTEST_F(Map, zooms) {{ }}\nTEST_F(Map, turns) {{ }}\n\
         TEST(Names, keeps) {{ kept = (char*)malloc(48); }}\nTEST(Names, skips) {{ GTEST_SKIP(); }}\n{clean}"
    );
    samples::own_suite("partition", &program).to_str().unwrap().to_owned()
}

const YAML: &str =
    "version: 1\nproject: tiles\nwaivers:\n  - { leak: n1-0123456789abcdef, reason: gone, until: never }\n";

fn project(name: &str) -> (Project, String, RunReport) {
    let (project, program) = (Project::new(name), suite());
    project.write("memgate.yaml", YAML);
    let whole = project.memgate(&["run", "--", &program]);
    whole.ends_with(1);
    let report = whole.report();
    assert_eq!(
        report.suites[0].tests.iter().filter(|test| test.verdict == Verdict::Fail).count(),
        2,
        "{whole}"
    );
    (project, program, report)
}

#[test]
fn shards_of_a_suite_are_the_suite_however_many_there_are() {
    let (project, program, whole) = project("partition");
    let numbers = if is_long() { (1..=16).collect() } else { vec![1, 3, 16] };
    for of in numbers {
        let run = is_the_same_in_shards(&project, &whole, of, &["--", &program], &|_| ());
        let order = |report: &RunReport| -> Vec<String> {
            report.suites.iter().flat_map(|suite| &suite.tests).map(|test| test.id.clone()).collect()
        };
        assert_eq!(order(&run.report()), order(&whole), "as one machine runs them");
        assert_eq!(one_time(&run.report()), one_time(&whole), "{of} shards");
        run.says("matches nothing, remove it");
    }
    // Merged shards are one run of the history; a shard alone is none.
    let runs = project.memgate(&["history", "runs"]);
    assert_eq!(
        runs.stdout.lines().filter(|line| line.contains("  fail  ")).count(),
        if is_long() { 17 } else { 4 },
        "{runs}"
    );
    for command in [
        &["baseline", "accept", "shards-3/1/latest"][..],
        &["upload", "shards-3/1/latest", "--server", "http://127.0.0.1:9"],
    ] {
        project.memgate(command).ends_with(2).says("it is part 1/3 of a run").says("memgate merge");
    }
    project
        .memgate(&["baseline", "accept"])
        .ends_with(0)
        .says("accepted the figures of 14 tests")
        .says("not judged: 1;");
}

#[test]
fn shards_arrive_in_any_order_and_what_is_missing_is_no_pass() {
    let (project, program, whole) = project("partition-missing");
    project.write("times.json", fs::read(project.session().join("report.json")).unwrap());
    let typed = ["--timings", "times.json", "--", &program];
    is_the_same_in_shards(&project, &whole, 3, &typed, &|_| ());
    let merged = |shards: &[&str], options: &[&str]| {
        let all = [&["merge"], options, shards].concat();
        let run = project.memgate(&all);
        let mut report = run.report();
        report.session.clear();
        (run, report)
    };
    let (_, forward) = merged(&["shards-3/1", "shards-3/2", "shards-3/3"], &[]);
    let (_, backward) = merged(&["shards-3/3", "shards-3/1", "shards-3/2"], &["--expect", "3"]);
    assert_eq!(forward, backward);
    for left_out in 1..=3 {
        let shards: Vec<String> =
            (1..=3).filter(|index| *index != left_out).map(|index| format!("shards-3/{index}")).collect();
        let (run, report) = merged(&shards.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
        assert!(run.code != Some(0) && report.verdict >= Verdict::Error, "{run}");
        run.says(&format!("shard {left_out}/3 is missing: what fell there was not measured"));
        run.says("belong to none of these shards: not measured");
        assert!(
            report.waivers.iter().all(|waiver| waiver.state == memgate_model::WaiverState::InForce),
            "{run}"
        );
    }
    let (run, _) = merged(&["shards-3"], &["--expect", "4"]);
    run.says("and there must be 4 of them").says("shard 4/4 is missing");
    // An incomplete upload of one shard does not hide what the others found.
    fs::write(project.folder().join("shards-3/1/latest/report.json"), "{").unwrap();
    let (run, report) = merged(&["shards-3", "nowhere"], &["--expect", "3"]);
    assert!(run.code != Some(0) && report.verdict >= Verdict::Error && report.shards.len() == 2, "{run}");
    run.says("it is not JSON of a report").says("shard 1/3 is missing").says("cannot list nowhere");
    project.memgate(&["merge", ".memgate/latest"]).ends_with(2).says("there is no shard in it");
}

#[test]
fn shards_that_do_not_fit_together_are_an_error() {
    let project = Project::new("partition-other");
    let build = |name: &str, more: &str| {
        let text = format!(
            "#include <gtest/gtest.h>\nTEST(A, a) {{}}\nTEST(A, b) {{}}\nTEST(A, c) {{}}\nTEST(A, d) {{}}\n{more}"
        );
        let built = samples::own_suite(name, &text);
        let program = project.folder().join("tests");
        fs::copy(built, &program).unwrap();
    };
    build("partition-one", "");
    shard(&project, (1, 2), &["--", "./tests"], &|_| ()).ends_with(0);
    build("partition-two", "TEST(A, e) {}\n");
    shard(&project, (2, 2), &["--iterations", "20", "--", "./tests"], &|_| ()).ends_with(0);
    let run = project.memgate(&["merge", "shards-2"]);
    run.ends_with(2)
        .says("shard 2/2: it alone has A.e of tests")
        .says("shard 2/2: another set of options than shard 1/2");
    // Again with the first shard's program and options; the earlier attempt stays in the folder.
    build("partition-one", "");
    shard(&project, (2, 2), &["--", "./tests"], &|_| ()).ends_with(0);
    project.memgate(&["merge", "shards-2"]).ends_with(0).says("the last of 2 attempts");
    // A folder that is not a shard, or a broken shard, is an error that names it.
    let partition = project.folder().join("shards-2/1/latest/partition.json");
    fs::write(&partition, "{\"version\": 9}").unwrap();
    project.memgate(&["merge", "shards-2"]).ends_with(2).says("partition.json");
    // A job that ended before memgate started leaves nothing; a shard that ended too early leaves no report.
    fs::create_dir_all(project.folder().join("empty")).unwrap();
    let run = project.memgate(&["merge", "shards-2/2", "empty"]);
    run.ends_with(2).says("empty: there is no shard in it").says("shard 1/2 is missing");
}

#[test]
fn an_attempt_that_was_killed_counts() {
    let project = Project::new("partition-killed");
    let text = "#include <gtest/gtest.h>\n#include <signal.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
                TEST(A, a) { if (getenv(\"KILLED\")) kill(getppid(), SIGKILL); }\nTEST(A, b) {}\n";
    let program = samples::own_suite("partition-killed", text).to_str().unwrap().to_owned();
    let attempt = |index, killed: bool| {
        shard(&project, (index, 2), &["--", &program], &|command| {
            if killed {
                command.env("KILLED", "1");
            }
        })
    };
    let killed: Vec<u32> = (1..=2)
        .filter(|index| {
            attempt(*index, false).ends_with(0);
            attempt(*index, true).code.is_none()
        })
        .collect();
    let [killed] = killed[..] else { panic!("one of the shards has the test: {killed:?}") };
    let run = project.memgate(&["merge", "shards-2"]);
    run.ends_with(2).says(&format!("shard {killed}/2: it ended before it had a report"));
    run.says("the last of 2 attempts").says("belong to none of these shards: not measured");
}

/// A build folder of `ctest`, as CMake writes it: a GoogleTest program, programs that are not, and a name
/// that two folders have.
fn ctest(project: &Project, program: &str) {
    let test = |name: &str, command: &str| format!("add_test({name} {command:?})\n");
    let scripts: String = (0..4).map(|n| test(&format!("script{n}"), "/bin/true")).collect();
    let all = format!("{}{scripts}subdirs(a b)\n", test("gtest", program));
    project.write("build/CTestTestfile.cmake", all);
    project.write("build/a/CTestTestfile.cmake", test("same", "/bin/true"));
    project.write("build/b/CTestTestfile.cmake", test("same", "/bin/true"));
}

#[test]
fn programs_that_are_no_tests_are_divided_with_those_that_are() {
    if !has_tool("ctest") {
        return;
    }
    let project = Project::new("partition-ctest");
    ctest(&project, &suite());
    for filter in ["*", "Quick.*"] {
        let typed = ["--filter", filter, "--", "ctest", "--test-dir", "build"];
        let whole = project.memgate(&[&["run"], &typed[..]].concat()).report();
        is_the_same_in_shards(&project, &whole, 3, &typed, &|_| ());
        fs::remove_dir_all(project.folder().join("shards-3")).unwrap();
    }
    // If no shard can measure anything, the result is not a pass.
    ctest(&project, "/bin/true");
    let typed = ["--", "ctest", "--test-dir", "build"];
    for index in 1..=2 {
        shard(&project, (index, 2), &typed, &|_| ()).ends_with(0);
    }
    let run = project.memgate(&["merge", "shards-2"]);
    run.ends_with(2).says("no shard measured anything of ctest");
}

#[test]
fn what_cannot_be_divided_says_so() {
    let project = Project::new("partition-cannot");
    let typed = |command: &[&str]| project.memgate(&[&["run", "--partition", "1/2", "--"], command].concat());
    typed(&["sh", "-c", "true"]).ends_with(2).says("`sh` cannot be divided");
    typed(&["mvn", "-Dtest=ATest", "test"]).ends_with(2).says("`mvn` cannot be divided");
    typed(&["ctest", "-I", "1,2"]).ends_with(2).says("it chooses tests by their numbers");
    project.memgate(&["run", "--partition", "9/8", "--", "sh"]).ends_with(2).says("the third of eight");
    let mut sharded = project.command(&["run", "--partition", "1/2", "--", "sh"]);
    project.finish(sharded.env("GTEST_TOTAL_SHARDS", "2")).ends_with(2).says("divides the tests already");
    // Next to other suites, such a suite is a unit: one of the shards runs it.
    let program = suite();
    project.write(
        "memgate.yaml",
        format!(
            "version: 1\nsuites:\n  says: {{ run: [/bin/echo, ran], runner: command }}\n  map: {{ run: [{program:?}] }}\n"
        ),
    );
    let ran: Vec<bool> =
        (1..=2).map(|index| shard(&project, (index, 2), &[], &|_| ()).stdout.contains("ran\n")).collect();
    assert!(ran[0] != ran[1], "{ran:?}");
}

#[test]
fn tests_of_an_app_are_divided_by_class() {
    let Some((adb, (device, _app))) = adbs().pop().zip(app::device(34)) else { return };
    let server = AdbServer::start(&adb);
    server.connect(&device);
    let project = app::project("partition-app", "    timeout: 300s\n");
    let agents = project.folder().join(app::AGENTS);
    let prepare = |command: &mut Command| {
        command.envs(server.environment()).env("MEMGATE_ANDROID_AGENT", &agents);
    };
    // One class: one of the shards gets it, and the other gets nothing.
    let typed: &[&str] =
        if is_long() { &["--suite", "tracks"] } else { &["--suite", "tracks", "--filter", "*.CleanTest"] };
    let runs: Vec<Run> = (1..=2).map(|index| shard(&project, (index, 2), typed, &prepare)).collect();
    let nothing = runs.iter().filter(|run| run.stderr.contains("tracks: 0 of 2 tests fall to shard")).count();
    assert!(is_long() || nothing == 1, "{runs:?}");
    device.assert_clean();
    let run = project.memgate(&["merge", "shards-2"]);
    run.ends_with(i32::from(is_long()));
    let wrong = if is_long() { leaks::differences(&run.suite()) } else { Vec::new() };
    assert!(is_long() || run.suite().tests.len() == 2, "{run}");
    assert!(wrong.is_empty() && run.report().errors.is_empty(), "{}\n{run}", wrong.join("\n"));
}
