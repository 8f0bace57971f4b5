//! JUnit suites in Java virtual machines: the build runs as it is, memgate adds the rounds and the verdict.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use memgate_e2e::{Project, Run, has_tool, repository, say};
use memgate_model::{LeakKind, Verdict};

const LEAK: &str = "com.example.TileCacheTest.evicts";
const TILE: &str = "com.example.Registry$Tile";
const MVN: [&str; 6] = ["run", "--", "mvn", "-q", "-B", "test"];

/// A copy of a sample project, with what the user's own environment holds.
fn sample(name: &str, junit: &str) -> Option<Project> {
    if !(has_tool("mvn") && has_tool("javac")) {
        return None;
    }
    let project = Project::new(name);
    copy(&repository().join("tests/samples/jvm").join(junit), project.folder());
    Some(project)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let into = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &into);
        } else {
            fs::copy(entry.path(), into).unwrap();
        }
    }
}

fn run(project: &Project, arguments: &[&str]) -> Run {
    let mut command = project.command(arguments);
    command.env("JAVA_TOOL_OPTIONS", "-Dtiles.user=user").env("TILES_VARIABLE", "variable");
    project.finish(&mut command)
}

/// Both samples, run once without any configuration; `None`: there is no Maven here.
fn sessions() -> Option<&'static [(Project, Run); 2]> {
    static SESSIONS: OnceLock<Option<[(Project, Run); 2]>> = OnceLock::new();
    let session = |junit: &str| {
        let project = sample(&format!("jvm-{junit}"), junit)?;
        let run = run(&project, &MVN);
        Some((project, run))
    };
    SESSIONS.get_or_init(|| Some([session("junit4")?, session("junit5")?])).as_ref()
}

#[test]
fn a_static_map_that_grows_fails_with_class_count_and_holder() {
    for (_, run) in sessions().into_iter().flatten() {
        run.ends_with(1);
        let suite = run.suite();
        assert_eq!(suite.runner, "junit");
        for test in &suite.tests {
            let want = if test.id == LEAK { Verdict::Fail } else { Verdict::Pass };
            assert_eq!(test.verdict, want, "{}: {}", test.id, test.reason);
        }
        assert_eq!(suite.tests.len(), 5, "{run}");
        let leaks = run.test(LEAK).leaks;
        let [leak] = leaks.as_slice() else { panic!("{leaks:?}") };
        assert_eq!((leak.kind, leak.title.as_str()), (LeakKind::Java, format!("12 × {TILE}").as_str()));
        assert_eq!(leak.class.as_deref(), Some(TILE));
        assert!((leak.count_per_iteration - 12.0).abs() < 0.01, "{}", leak.count_per_iteration);
        assert!(leak.id.starts_with("j1-"), "{}", leak.id);
        let root = leak.holder.first().unwrap();
        assert_eq!(
            (root.kind.as_str(), root.owner.as_str(), root.name.as_str()),
            ("static", "com.example.Registry", "cache")
        );
    }
}

#[test]
fn the_same_leak_has_the_same_id_under_both_junits() {
    let Some([(_, four), (_, five)]) = sessions() else { return };
    assert_eq!(four.test(LEAK).leaks[0].id, five.test(LEAK).leaks[0].id);
}

#[test]
fn a_jvm_session_is_judged_again_with_the_same_result() {
    for (project, run) in sessions().into_iter().flatten() {
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
    for (project, _) in sessions().into_iter().flatten() {
        let seen = project.read("target/surroundings.txt");
        let here = fs::canonicalize(project.folder()).unwrap();
        let want = format!("flag property user variable true {}", here.display());
        assert!(seen.lines().all(|line| line == want), "{want}\n{seen}");
        assert!(seen.lines().count() >= 7, "once in the build, six times in rounds:\n{seen}");
    }
}

#[test]
fn nothing_but_paths_is_in_the_environment_of_the_build() {
    for (project, run) in sessions().into_iter().flatten() {
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
    let Some(project) = sample("jvm-results", "junit4") else { return };
    let clean = run(&project, &["run", "--", "mvn", "-q", "-B", "test", "-Dtest=CleanTest"]);
    clean.ends_with(0);
    assert_eq!(clean.suite().verdict, Verdict::Pass, "{clean}");
    let failing = run(&project, &["run", "--", "mvn", "-q", "-B", "test", "-Dtest=Fails"]);
    failing.ends_with(1);
    assert!(failing.stdout.contains("on purpose"), "Maven tells it as always:\n{failing}");
    let results = project.read("target/surefire-reports/TEST-com.example.Fails.xml");
    assert!(results.contains("failures=\"1\""), "{results}");
}

#[test]
fn a_class_path_run_by_junit_itself_is_measured_too() {
    let Some([(four, _), _]) = sessions() else { return };
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".m2/repository");
    let jars =
        ["junit/junit/4.13.2/junit-4.13.2.jar", "org/hamcrest/hamcrest-core/1.3/hamcrest-core-1.3.jar"];
    let jars = jars.map(|jar| home.join(jar));
    if !jars.iter().all(|jar| jar.exists()) {
        say("skipped: Maven keeps its jars elsewhere here");
        return;
    }
    let classes = four.folder().join("target/test-classes");
    let path = format!("{}:{}:{}", classes.display(), jars[0].display(), jars[1].display());
    let project = Project::new("jvm-class-path");
    let run = project.memgate(&[
        "run",
        "--",
        "java",
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
