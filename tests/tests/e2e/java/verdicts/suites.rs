//! JUnit suites in JVMs: the build runs unchanged, memgate adds the rounds and the verdict.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::{Project, Run, has_tool, skip_without};
use memgate_model::Verdict;

const LEAK: &str = "com.example.TileCacheTest.evicts";
const TILE: &str = "com.example.Registry$Tile";
pub(crate) const MVN: [&str; 6] = ["run", "--", "mvn", "-q", "-B", "test"];

/// A sample that was run once, without any configuration.
pub(crate) struct Session {
    pub(crate) junit: &'static str,
    pub(crate) jdk: Jdk,
    pub(crate) project: Project,
    pub(crate) run: Run,
}

/// `memgate ARGUMENTS` with this JDK, in an environment with the user's own variables.
pub(crate) fn run(project: &Project, jdk: &Jdk, arguments: &[&str]) -> Run {
    let mut command = project.command(arguments);
    command.env("JAVA_HOME", &jdk.home);
    command.env("JAVA_TOOL_OPTIONS", "-Dtiles.user=user").env("TILES_VARIABLE", "variable");
    project.finish(&mut command)
}

/// JUnit 4 with the first JDK and JUnit 5 with the second; in the long form, both with every JDK found here.
/// Each runs on first use.
pub(crate) fn sessions() -> impl Iterator<Item = &'static Session> {
    static JDKS: [OnceLock<Vec<Jdk>>; 2] = [const { OnceLock::new() }; 2];
    static SESSIONS: [OnceLock<Session>; 4] = [const { OnceLock::new() }; 4];
    let wanted = ["junit4", "junit5"].into_iter().enumerate().flat_map(|(turn, junit)| {
        JDKS[turn].get_or_init(|| jvm::jdks_in_turn(turn)).iter().map(move |jdk| (jdk, junit))
    });
    SESSIONS.iter().zip(wanted).map(|(session, (jdk, junit))| {
        session.get_or_init(|| {
            let project = jvm::sample(&format!("jvm-{}", jdk.release), junit);
            let run = run(&project, jdk, &MVN);
            Session { junit, jdk: jdk.clone(), project, run }
        })
    })
}

#[test]
fn a_jvm_session_is_judged_again_with_the_same_result() {
    for Session { project, run, .. } in sessions() {
        let again = project.memgate(&["gate", "--format", "json", ".memgate/latest"]);
        assert_eq!(again.code, run.code);
        assert_eq!(again.suite().tests, run.suite().tests);
        let streams: Vec<String> = project.streams().iter().map(|path| path.display().to_string()).collect();
        let mut arguments = vec!["gate", "--format", "json"];
        arguments.extend(streams.iter().map(String::as_str));
        let bare = project.memgate(&arguments);
        assert_eq!(bare.test(LEAK).leaks, run.test(LEAK).leaks, "from the streams alone");
    }
}

#[test]
fn the_tests_run_again_in_what_the_build_gave_them() {
    for Session { junit, project, .. } in sessions() {
        let seen = project.read("target/surroundings.txt");
        let here = fs::canonicalize(project.folder()).unwrap();
        let parameter = if *junit == "junit5" { " parameter" } else { "" };
        let want = format!(
            "flag property user late agent{parameter} variable -Dtiles.user=user own true {}",
            here.display()
        );
        assert!(seen.lines().all(|line| line == want), "{want}\n{seen}");
        assert!(seen.lines().count() >= 4, "once in the build, three times in rounds:\n{seen}");
    }
}

#[test]
fn nothing_but_paths_is_in_the_environment_of_the_build() {
    for Session { project, run, .. } in sessions() {
        let picked =
            run.stderr.lines().chain(run.stdout.lines()).find(|line| line.contains("JAVA_TOOL_OPTIONS"));
        let picked = picked.unwrap_or_else(|| panic!("the option was not picked up:\n{run}"));
        assert!(picked.contains("-Dtiles.user=user ") && !picked.contains("dir="), "{picked}");
        let files: Vec<PathBuf> = fs::read_dir(project.session().join("java"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        let options: Vec<&PathBuf> =
            files.iter().filter(|path| path.extension().is_some_and(|e| e == "options")).collect();
        assert!(options.len() >= 3, "screen, rounds, confirming: {files:?}");
        for file in options {
            assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
        }
    }
}

#[test]
fn clean_tests_pass_and_failing_ones_keep_their_result() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let project = jvm::sample("jvm-results", "junit4");
    let clean = run(&project, &jdk, &["run", "--", "mvn", "-q", "-B", "test", "-Dtest=CleanTest"]);
    clean.ends_with(0);
    assert_eq!(clean.suite().verdict, Verdict::Pass, "{clean}");
    let failing = run(&project, &jdk, &["run", "--", "mvn", "-q", "-B", "test", "-Dtest=Fails"]);
    failing.ends_with(1);
    assert!(failing.stdout.contains("on purpose"), "Maven tells it as always:\n{failing}");
    let results = project.read("target/surefire-reports/TEST-com.example.Fails.xml");
    assert!(results.contains("failures=\"1\""), "{results}");
}

#[test]
fn a_class_path_run_by_junit_itself_is_measured_too() {
    let Some(Session { project: four, jdk, .. }) = sessions().next() else { return };
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".m2/repository");
    let jars =
        ["junit/junit/4.13.2/junit-4.13.2.jar", "org/hamcrest/hamcrest-core/1.3/hamcrest-core-1.3.jar"];
    let jars = jars.map(|jar| home.join(jar));
    if !jars.iter().all(|jar| jar.exists()) {
        skip_without("JUnit 4 in Maven's repository");
        return;
    }
    let target = four.folder().join("target");
    let classes = [target.join("test-classes"), target.join("classes")];
    let path =
        classes.iter().chain(&jars).map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
    let java = jdk.home.join("bin/java").display().to_string();
    let project = Project::new("jvm-class-path");
    let run = project.memgate(&[
        "run",
        "--",
        &java,
        "-cp",
        &path,
        "org.junit.runner.JUnitCore",
        "com.example.TileCacheTest",
    ]);
    run.ends_with(1);
    assert!(run.stdout.contains("OK (2 tests)"), "{run}");
    assert_eq!(run.test(LEAK).leaks[0].class.as_deref(), Some(TILE));
}

#[test]
fn a_build_without_a_test_machine_is_not_measured() {
    if !has_tool("java") {
        return;
    }
    let run = Project::new("jvm-none").memgate(&["run", "--", "java", "-version"]);
    run.ends_with(2);
    assert!(
        run.problems().contains("no Java virtual machine below `java` ran JUnit tests"),
        "{}",
        run.problems()
    );
}
