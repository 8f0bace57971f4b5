//! Disks that are full, folders that are read-only or vanish, limits on files, a harness that stops: the
//! tests continue as they do alone, what could not be recorded is an error with its reason, and nothing
//! passes because there was no space.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use memgate_e2e::waiting::{Running, until};
use memgate_e2e::{Project, Run, agent, memgate, samples, skip};
use memgate_model::{RunReport, Verdict};
use rustix::process::Signal;

use crate::guest::DEEP;

/// Nothing here takes longer, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long the guest waits for a harness, once.
const BOUNDARY_WAIT: Duration = Duration::from_secs(2);

/// Tests that leave much behind, from many places, then some that leave nothing.
const SUITE: &str = r#"
#include <gtest/gtest.h>
static void much() { for (unsigned i = 0; i < 4000; i++) deep(12, i); }
TEST(First, Clean) { free(malloc(9)); }
TEST(Much, One) { much(); }
TEST(Then, RunsWhatItIsTold) { if (const char *command = getenv("IN_THE_MIDDLE")) ASSERT_EQ(system(command), 0); }
TEST(Then, Much) { much(); }
TEST(Last, Clean) { free(malloc(9)); }
"#;

const PASSED: &str = "[  PASSED  ] 5 tests.";

fn suite() -> PathBuf {
    samples::own_suite("survive", &[DEEP, SUITE].concat())
}

/// The flags with which `unshare` may create its own mounts here; reports if it may not.
fn own_mounts() -> Option<&'static str> {
    static FLAGS: OnceLock<Option<&str>> = OnceLock::new();
    *FLAGS.get_or_init(|| {
        let may = |flags: &&str| {
            let tried =
                Command::new("unshare").args([flags, "sh", "-c", "mount -t tmpfs none /mnt"]).output();
            tried.is_ok_and(|tried| tried.status.success())
        };
        let flags = ["-m", "-rm"].into_iter().find(may);
        if flags.is_none() {
            skip("no mounts of our own are allowed here");
        }
        flags
    })
}

/// Runs a shell script in its own mount namespace: `$small` is a file system of this size, `$memgate` the
/// program, `$suite` the tests. Afterwards the session is below the project, as far as it was copied.
fn on_a_small_disk(project: &Project, size: &str, script: &str) -> Option<Output> {
    let flags = own_mounts()?;
    let small = project.folder().join("small");
    fs::create_dir_all(&small).unwrap();
    let whole = format!("mount -t tmpfs -o size={size} none $small && cd $small || exit 99\n{script}");
    let mut command = project.command::<&str>(&[]);
    let output = command_in_shell(&mut command, &whole, Some(flags))
        .env("small", &small)
        .env("project", project.folder())
        .output()
        .unwrap();
    assert_ne!(output.status.code(), Some(99), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output)
}

/// A command with the environment of `like`.
fn command_in_shell(like: &mut Command, script: &str, unshare: Option<&str>) -> Command {
    let mut command = match unshare {
        Some(flags) => {
            let mut command = Command::new("unshare");
            command.args([flags, "sh", "-c", script]);
            command
        }
        None => {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        }
    };
    command.env("memgate", memgate()).env("suite", suite()).env("agent", agent());
    command.stdin(Stdio::null()).current_dir(like.get_current_dir().unwrap());
    for (name, value) in like.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

struct Told {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Told {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Checks that it was not measured, for one of these reasons, without a sign of a defect.
    #[track_caller]
    fn is_an_error_because(&self, reasons: &[&str]) {
        let Self { code, stdout, stderr } = self;
        let whole = format!("{code:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
        assert!(matches!(code, Some(1 | 2)), "{whole}");
        assert!(!stderr.contains("panicked") && !stderr.contains("by a defect"), "{whole}");
        assert!(reasons.iter().any(|reason| stderr.contains(reason)), "none of {reasons:?}:\n{whole}");
    }

    /// Checks that the user's tests ran to their end and passed.
    #[track_caller]
    fn tests_passed(&self) {
        assert!(self.stdout.contains(PASSED), "{}\n{}", self.stdout, self.stderr);
    }
}

/// Judges a session that was copied from the disk: never a pass, never a crash.
#[track_caller]
fn gate_does_not_pass(project: &Project) -> Run {
    let gate = project.memgate(&["gate", "--format", "json", "kept"]);
    assert!(matches!(gate.code, Some(1 | 2)) && !gate.stderr.contains("panicked"), "{gate}");
    gate
}

#[test]
fn a_disk_that_is_full_before_the_run_is_told_and_nothing_is_run() {
    let project = Project::new("disk-full-before");
    let script = "cat /dev/zero >fill 2>/dev/null; $memgate run -- $suite";
    let Some(output) = on_a_small_disk(&project, "256k", script) else { return };
    let told = Told::of(&output);
    told.is_an_error_because(&["No space left on device"]);
    assert!(told.stderr.contains(".memgate"), "it says where: {}", told.stderr);
    assert!(told.stderr.contains("hint: "), "and what to do: {}", told.stderr);
}

#[test]
fn a_disk_that_fills_up_during_the_run_is_an_error_and_the_tests_pass_all_the_same() {
    let project = Project::new("disk-full-during");
    // Space for the session and the first windows of the spool, in different sizes, so that it runs out at
    // different places.
    for size in ["160k", "600k"] {
        let script = "$memgate run -- $suite; code=$?; rm -rf $project/kept; cp -r .memgate/latest/ $project/kept; exit $code";
        let Some(output) = on_a_small_disk(&project, size, script) else { return };
        let told = Told::of(&output);
        told.tests_passed();
        told.is_an_error_because(&["no room to write", "No space left on device"]);
        gate_does_not_pass(&project);
    }
}

#[test]
fn a_test_that_fills_the_disk_is_an_error_from_there_on() {
    let project = Project::new("disk-full-by-a-test");
    let script = "IN_THE_MIDDLE='cat /dev/zero >fill 2>/dev/null || true' $memgate run --filter='-Much.*' -- $suite; code=$?; \
                  rm fill; cp -r .memgate/latest/ $project/kept; exit $code";
    let Some(output) = on_a_small_disk(&project, "3m", script) else { return };
    let told = Told::of(&output);
    assert!(told.stdout.contains("[  PASSED  ] 4 tests."), "{}\n{}", told.stdout, told.stderr);
    told.is_an_error_because(&["no room to write", "No space left on device"]);
    let gate = gate_does_not_pass(&project);
    let first = gate.report().suites.iter().flat_map(|s| &s.tests).find(|t| t.id == "First.Clean").cloned();
    assert_eq!(first.map(|test| test.verdict), Some(Verdict::Pass), "what came before is judged:\n{gate}");
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_kills_nobody() {
    let project = Project::new("file-size-limit");
    // In units of 512 bytes: limits that affect the spool, and then also memgate's own files.
    for limit in [200, 1600] {
        let script = format!("ulimit -f {limit}; exec $memgate run -- $suite");
        let output = command_in_shell(&mut project.command::<&str>(&[]), &script, None).output().unwrap();
        let told = Told::of(&output);
        told.tests_passed();
        told.is_an_error_because(&["no room to write", "File too large"]);
        let gate = project.memgate(&["gate", "--format", "json", ".memgate/latest"]);
        assert!(matches!(gate.code, Some(1 | 2)) && !gate.stderr.contains("panicked"), "{gate}");
    }
}

#[test]
fn too_few_open_files_are_told_with_what_to_do() {
    let project = Project::new("open-files-limit");
    let script = "ulimit -n 8; exec $memgate run -- $suite";
    let output = command_in_shell(&mut project.command::<&str>(&[]), script, None).output().unwrap();
    let told = Told::of(&output);
    assert_eq!(output.status.code(), Some(2), "{}", told.stderr);
    assert!(told.stderr.contains("8 open files are allowed here, memgate needs 32"), "{}", told.stderr);
    assert!(told.stderr.contains("ulimit -n 32") && !told.stderr.contains("panicked"), "{}", told.stderr);
}

#[test]
fn a_read_only_project_is_told_and_another_folder_helps() {
    let project = Project::new("read-only");
    let script = "mkdir elsewhere && mount -t tmpfs -o size=64m none elsewhere && mount -o remount,ro $small || exit 99\n\
                  $memgate run -- $suite; code=$?\n\
                  $memgate run --filter 'First.*:Last.*' --output-dir elsewhere/sessions -- $suite >/dev/null || exit 98\n\
                  exit $code";
    let Some(output) = on_a_small_disk(&project, "1m", script) else { return };
    let told = Told::of(&output);
    told.is_an_error_because(&["Read-only file system"]);
    assert!(told.stderr.contains("--output-dir"), "the hint names what helps: {}", told.stderr);
}

#[test]
fn a_memgate_folder_that_cannot_be_written_is_told_with_its_path() {
    let project = Project::new("unwritable");
    project.write(".memgate", "a file of the user's");
    let run = project.run(&suite());
    run.ends_with(2).says(".memgate").says("hint:");
    assert_eq!(project.read(".memgate"), "a file of the user's");
}

/// Regression: the run ended with the error alone, and its verdict was lost.
#[test]
fn a_session_that_cannot_be_written_does_not_hide_the_verdict() {
    let project = Project::new("unsaved");
    let mut command = project.command(&["run".as_ref(), "--".as_ref(), suite().as_os_str()]);
    let session = format!("{}/.memgate/2*", project.folder().display());
    command.env("IN_THE_MIDDLE", format!("cd {session} && rm session.json && mkdir session.json"));
    let told = Told::of(&command.output().unwrap());
    told.tests_passed();
    assert_eq!(told.code, Some(1), "{}", told.stderr);
    for text in ["FAIL  Much.One", "error: ", "session.json"] {
        assert!(told.stderr.contains(text), "{text}: {}", told.stderr);
    }
}

#[test]
fn an_agent_that_cannot_open_its_spool_leaves_the_tests_alone() {
    let project = Project::new("no-spool");
    let file = project.write("file", "");
    let mut folders =
        vec!["/nonexistent/folder".to_owned(), file.display().to_string(), "/proc/self".to_owned()];
    // A folder in which every path is too long for the system.
    folders.push(format!("{}/{}", project.folder().display(), "x".repeat(255)));
    for folder in folders {
        let options = format!("dir={folder};target=all;harness=1;wait_ms=60000");
        let begun = Instant::now();
        let output = Command::new(suite())
            .env("LD_PRELOAD", agent())
            .env("MEMGATE_AGENT_OPTIONS", options)
            .output()
            .unwrap();
        let told = Told::of(&output);
        told.tests_passed();
        assert_eq!((told.code, told.stderr.as_str()), (Some(0), ""), "{folder}");
        assert!(begun.elapsed() < BOUNDARY_WAIT * 5, "it waited for nobody: {:?}", begun.elapsed());
    }
}

#[test]
fn a_spool_folder_that_vanishes_during_the_run_never_makes_a_pass() {
    for (name, victim) in [("frames", ".memgate/*/frames"), ("session", ".memgate/*"), ("root", ".memgate")] {
        let project = Project::new(&format!("vanished-{name}"));
        let mut command = project.command(&["run".as_ref(), "--".as_ref(), suite().as_os_str()]);
        // The link to the latest session is deleted too, or dangles.
        command.env("IN_THE_MIDDLE", format!("rm -rf {}/{victim}", project.folder().display()));
        let output = command.output().unwrap();
        let told = Told::of(&output);
        told.tests_passed();
        // The suite leaks. What was read live may be known; the rest is an error.
        told.is_an_error_because(&["No such file", "no room to write", "no such file", "leak"]);
        let gate = project.memgate(&["gate", ".memgate"]);
        assert!(matches!(gate.code, Some(1 | 2)) && !gate.stderr.contains("panicked"), "{gate}");
    }
}

#[test]
fn a_vanished_folder_takes_the_pass_of_a_clean_suite_with_it_or_leaves_everything_known() {
    let project = Project::new("vanished-clean");
    let mut command = project.command(&[
        "run",
        "--filter",
        "First.*:Then.RunsWhatItIsTold:Last.*",
        "--",
        suite().to_str().unwrap(),
    ]);
    command.env("IN_THE_MIDDLE", format!("rm -rf {}/.memgate/*/frames", project.folder().display()));
    let output = command.output().unwrap();
    let told = Told::of(&output);
    assert!(told.stdout.contains("[  PASSED  ] 3 tests."), "{}", told.stdout);
    let report = fs::read_to_string(project.session().join("report.json")).unwrap();
    let report: RunReport = serde_json::from_str(&report).unwrap();
    let judged: Vec<_> = report.suites.iter().flat_map(|s| &s.tests).map(|t| t.verdict).collect();
    let all_known = judged == [Verdict::Pass; 3];
    assert_eq!(told.code == Some(0), all_known && report.errors.is_empty(), "{}\n{report:#?}", told.stderr);
    // Nothing is left to judge again: that is an error, whatever the run itself reported.
    let gate = project.memgate(&["gate", ".memgate/latest"]);
    assert!(matches!(gate.code, Some(2)) && !gate.stderr.contains("panicked"), "{gate}");
}

#[test]
fn a_harness_that_stands_still_costs_its_timeout_once_and_then_nothing() {
    let project = Project::new("harness-stopped");
    let undisturbed = Instant::now();
    let filter = "First.*:Then.RunsWhatItIsTold:Last.*";
    project.run_filtered(filter, &suite()).ends_with(0);
    let undisturbed = undisturbed.elapsed();

    let done = project.folder().join("done");
    let mut command = project.command(&["run", "--filter", filter, "--", suite().to_str().unwrap()]);
    // The test itself stops the harness that waits for its end, and records when its own process has ended.
    // Only once: a test that was not sampled in time is measured again, and nobody would continue the harness
    // a second time.
    let script = format!(
        "[ -e {done} ] || kill -STOP $(cat {folder}/harness); (while readlink /proc/$PPID/exe; do sleep 0.05; done; touch {done}) >/dev/null 2>&1 &",
        folder = project.folder().display(),
        done = done.display()
    );
    command.env(
        "IN_THE_MIDDLE",
        format!("while ! [ -s {}/harness ]; do sleep 0.02; done; {script}", project.folder().display()),
    );
    let begun = Instant::now();
    let harness = Running::start(&mut command);
    project.write("harness", harness.id().to_string());
    until(DEADLINE, "the tests have ended without their harness", || done.exists().then_some(()));
    let took = begun.elapsed();
    let woken = Instant::now();
    harness.signal(Signal::CONT);
    let status = harness.output().status;
    assert!(woken.elapsed() < DEADLINE, "memgate ended after {:?}", woken.elapsed());
    assert!(
        took < undisturbed * 4 + BOUNDARY_WAIT + Duration::from_secs(4),
        "{took:?}, undisturbed {undisturbed:?}"
    );
    let report: RunReport = serde_json::from_str(&project.read(".memgate/latest/report.json")).unwrap();
    assert_eq!(status.code(), Some(report.exit_code));
    let tests: usize = report.suites.iter().map(|s| s.tests.len()).sum();
    assert!(report.exit_code != 0 || tests == 3, "a pass only with all tests: {report:#?}");
}

/// Regression, found with a full disk: a process repeats its test until it is told to stop. When its records
/// no longer arrived, it went on forever.
#[test]
fn a_repeated_test_that_is_not_heard_of_is_ended_and_no_pass() {
    let program = samples::own_suite(
        "leaves_its_harness",
        "#include <gtest/gtest.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n\
         __attribute__((constructor)) static void leave(int argc, char **argv) {\n\
           for (int i = 0; i < argc; i++)\n\
             if (!strcmp(argv[i], \"--gtest_repeat=-1\") && getenv(\"LD_PRELOAD\")) {\n\
               unsetenv(\"LD_PRELOAD\");\n\
               execv(\"/proc/self/exe\", argv);\n\
             }\n\
         }\n\
         static void *volatile sink;\n\
         TEST(Leaves, ItsHarness) { sink = malloc(61); usleep(1000); }\n",
    );
    let project = Project::new("unheard-of");
    let begun = Instant::now();
    let run = project.memgate(&["run", "--timeout", "2s", "--", program.to_str().unwrap()]);
    assert!(begun.elapsed() < DEADLINE, "it took {:?}", begun.elapsed());
    run.ends_with(2).says("nothing was recorded for 2 s");
    assert_eq!(run.test("Leaves.ItsHarness").verdict, Verdict::Error);
}
