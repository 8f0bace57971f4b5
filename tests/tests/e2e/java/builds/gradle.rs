//! Gradle: its daemon and its compilers are not affected, its test workers are measured.

use std::fs;
use std::process::Command;

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::{Project, Run, has_tool, skip_without, waiting};
use memgate_model::{Runner, Verdict};

use crate::ci::shards::is_the_same_in_shards;

const LEAK: &str = "com.example.TileCacheTest.evicts";

/// Debian's Gradle 4.4.1 supports Java up to 17.
fn jdk() -> Option<Jdk> {
    let jdk = jvm::jdks().into_iter().find(|jdk| jdk.release == 17).filter(|_| has_tool("gradle"));
    if jdk.is_none() {
        skip_without("`gradle` with a JDK 17");
    }
    jdk
}

fn run(project: &Project, jdk: &Jdk, arguments: &[&str]) -> Run {
    let all = [&["run", "--", "gradle"], arguments].concat();
    project.finish(project.command(&all).env("JAVA_HOME", &jdk.home))
}

fn is_measured(project: &Project, run: &Run) {
    run.ends_with(1);
    assert!(run.stdout.contains("BUILD SUCCESSFUL"), "{run}");
    let suite = run.suite();
    assert_eq!((suite.runner, suite.tests.len()), (Runner::Junit, 2), "{run}");
    for test in &suite.tests {
        let want = if test.id == LEAK { Verdict::Fail } else { Verdict::Pass };
        assert_eq!(test.verdict, want, "{}: {}", test.id, test.reason);
    }
    let leaks = run.test(LEAK).leaks;
    assert_eq!(leaks[0].title, "5 × com.example.TileCacheTest$Tile");
    assert_eq!(leaks[0].holder[0].name, "CACHE", "{:?}", leaks[0].holder);
    // JVMs that ran no test were not recorded.
    let streams = project.streams().len();
    assert_eq!(streams, 3, "the worker, the rounds, the suspect: {:?}", project.streams());
}

#[test]
fn test_workers_are_measured_and_nothing_else_of_gradle() {
    let Some(jdk) = jdk() else { return };
    let project = jvm::project("gradle", "jvm-gradle");
    is_measured(&project, &run(&project, &jdk, &["--no-daemon", "test"]));
    let here = fs::canonicalize(project.folder()).unwrap();
    let seen = project.read("surroundings.txt");
    assert!(seen.lines().all(|line| line == here.display().to_string()), "{seen}");
    // A class in which nothing grows may be finished after the third round.
    assert!(seen.lines().count() >= 4, "once in the build, three times in rounds:\n{seen}");
    // The tests are up to date now, but run again.
    let again = run(&project, &jdk, &["--no-daemon", "test"]);
    is_measured(&project, &again);
    let clean = "com.example.CleanTest.runsWithWhatTheBuildGaveIt";
    let filtered = ["run", "--filter", clean, "--", "gradle", "--no-daemon", "test", "cacheTest"];
    let filtered = project.finish(project.command(&filtered).env("JAVA_HOME", &jdk.home));
    filtered.ends_with(0);
    let tests: Vec<_> = filtered.suite().tests.iter().map(|test| test.id.clone()).collect();
    assert_eq!(tests, [clean], "the filter is for both tasks, and one of them has no such test: {filtered}");
    let typed = ["--", "gradle", "--no-daemon", "test"];
    is_the_same_in_shards(&project, &again.report(), 2, &typed, &|command| {
        command.env("JAVA_HOME", &jdk.home);
    });
}

#[test]
fn a_daemon_that_runs_already_takes_the_agent_to_its_workers() {
    let Some(jdk) = jdk() else { return };
    let project = jvm::project("gradle-daemon", "jvm-gradle");
    // A separate daemon, which ends soon after the test.
    project.write(
        "gradle.properties",
        "org.gradle.daemon.idletimeout=20000\norg.gradle.jvmargs=-Xmx256m -Dtiles=1\n",
    );
    let mut first = Command::new("gradle");
    first.arg("classes").current_dir(project.folder()).env("JAVA_HOME", &jdk.home);
    assert!(waiting::output(&mut first).status.success());
    is_measured(&project, &run(&project, &jdk, &["test"]));
    // After that, the daemon runs without memgate.
    let mut later = Command::new("gradle");
    later.args(["cleanTest", "test"]).current_dir(project.folder()).env("JAVA_HOME", &jdk.home);
    let said = String::from_utf8_lossy(&waiting::output(&mut later).stdout).into_owned();
    assert!(said.contains("evicts PASSED") && !said.contains("agentpath"), "{said}");
}
