//! Errors in a configuration are reported with their line; the file that `init` writes is valid.

use std::process::{Command, Stdio};

use memgate_e2e::{Project, has_tool, samples};

#[track_caller]
fn refused(name: &str, yaml: &str, told: &[&str]) {
    let project = Project::new(name);
    project.write("memgate.yaml", yaml);
    let program = samples::suite("clean");
    let run = project.memgate(&["run", "--", program.to_str().unwrap()]);
    run.ends_with(2);
    for text in told {
        run.says(text);
    }
    assert!(!run.stdout.contains("RUN"), "nothing may run with a wrong configuration:\n{run}");
}

#[test]
fn broken_yaml_is_shown_with_its_line() {
    refused(
        "broken-yaml",
        "version: 1\nthresholds: {\n  native.live_bytes: 0\n",
        &["error", "memgate.yaml:"],
    );
}

#[test]
fn every_mistake_is_shown_at_once_with_the_nearest_name() {
    refused(
        "mistakes",
        "version: 1\nmeasure:\n  iteratons: 10\nthresholds:\n  native.live_byte: 0\n  os.fds: many\n",
        &[
            "memgate.yaml:3:3",
            "iteratons: 10",
            "iterations",
            "memgate.yaml:5:3",
            "native.live_byte: 0",
            "native.live_bytes",
            "memgate.yaml:6:11",
        ],
    );
}

/// Regression: such files took 24 GB and 1.7 GB of memory.
#[test]
fn long_files_take_no_more_memory_than_they_need() {
    let project = Project::new("long-files");
    let program = samples::suite("clean");
    let limited = |arguments: &[&str]| project.limited(arguments, "ulimit -v 1000000");
    let entry = |n| format!("    - {{ match: \"engine::Suite{n}.*\", os.fds: 1 }}\n");
    let entries: String = (0..9_000).map(entry).collect();
    let mail = "reports: { mail: { server: \"smtp+plain://127.0.0.1:1\", to: [a@example.com], owners: CODEOWNERS } }\n";
    project.write("memgate.yaml", format!("version: 1\n{mail}thresholds:\n  tests:\n{entries}"));
    let owners: String = (0..200_000).map(|n| format!("/src/a{n}/*.c @team{n}\n")).collect();
    project.write("CODEOWNERS", owners);
    limited(&["run", "--", program.to_str().unwrap()]).ends_with(0);
    limited(&["mail", "--preview"]).ends_with(0);
}

#[test]
fn a_configuration_that_is_not_there_is_an_error() {
    let project = Project::new("no-config");
    project.memgate(&["run", "-c", "strict.yaml"]).ends_with(2).says("strict.yaml");
    project.memgate(&["run"]).ends_with(2).says("nothing to run").says("memgate init");
    project.write("memgate.yml", "version: 1\n");
    project.memgate(&["run", "--", "true"]).ends_with(2).says("memgate.yml is not read").says("rename it");
}

/// Regression: a waivers file came into the wrong folder, and the next run did not read it.
#[test]
fn a_waiver_is_not_written_below_the_folder_of_the_configuration() {
    let project = Project::new("waive-below");
    project.write(".git/HEAD", "ref: refs/heads/main\n");
    project.write("memgate.yaml", "version: 1\n");
    let build = project.write("build/memgate.log", "").parent().unwrap().to_owned();
    let mut waive = project.command(&["waive", "n1-5f1c09a2b47d1e03", "--reason", "x", "--until", "never"]);
    project
        .finish(waive.current_dir(&build))
        .ends_with(2)
        .says("memgate.yaml")
        .says("run memgate in its folder");
    assert!(!build.join("memgate-waivers.yaml").exists());
}

#[test]
fn init_writes_a_file_for_a_cmake_project_that_is_read_without_a_word() {
    let project = Project::new("init");
    project.write("CMakeLists.txt", "project(tiles)\n");
    project.memgate(&["init"]).ends_with(0).says("CMake");
    assert!(project.read("memgate.yaml").contains("ctest"));
    let doctor = project.memgate(&["doctor"]);
    doctor.ends_with(0);
    assert!(doctor.stdout.contains("memgate.yaml, "), "{doctor}");
    project.memgate(&["init"]).ends_with(2).says("--force");
}

#[test]
fn suites_of_the_configuration_are_run_by_their_names() {
    let project = Project::new("suites");
    let program = samples::suite("clean");
    let program = program.display();
    project.write(
        "memgate.yaml",
        format!(
            "version: 1\nproject: tiles\nsuites:\n  churn: {{ run: [{program}, --gtest_filter=Clean.Churn] }}\n  \
             idle: {{ run: [{program}, --gtest_filter=Clean.NothingAtAll] }}\n"
        ),
    );
    let run = project.memgate(&["run"]);
    run.ends_with(0);
    let names: Vec<String> = run.report().suites.into_iter().map(|suite| suite.name).collect();
    assert_eq!(names, ["churn", "idle"]);
    assert_eq!(run.report().project, "tiles");
    let one = project.memgate(&["run", "--suite", "idle"]);
    one.ends_with(0);
    assert_eq!(one.suite().name, "idle");
    project.memgate(&["run", "--suite", "idel"]).ends_with(2).says("idel").says("idle");
}

#[test]
fn a_threshold_of_the_configuration_says_where_it_stands_and_every_report_that_it_is_for_no_test() {
    let project = Project::new("thresholds");
    project.write(
        "memgate.yaml",
        "version: 1\nthresholds:\n  native.live_bytes: 0\n  tests:\n    - match: \"*Leaks.Strdup\"\n      \
         native.live_bytes: 1 KiB\n    - match: \"*Leaks.Stradup\"\n      native.live_bytes: 2 KiB\n",
    );
    let session = crate::leaks_session().0.session();
    let gate = project.memgate(&["gate", "--format", "json", session.to_str().unwrap()]);
    let allowed = gate.test("Leaks.Strdup");
    assert_eq!(allowed.verdict, memgate_model::Verdict::Pass, "{}", allowed.reason);
    let denied = gate.test("Leaks.LostArray");
    let threshold = denied.metrics[&memgate_model::Metric::NativeLiveBytes].threshold.clone().unwrap();
    assert_eq!(
        (denied.verdict, threshold.source.to_string().as_str()),
        (memgate_model::Verdict::Fail, "memgate.yaml:3")
    );
    // Regression: only the terminal showed this, and it scrolls away.
    let warning = "memgate.yaml:7: `*Leaks.Stradup` matches no test";
    let warnings = gate.report().warnings;
    assert!(matches!(&*warnings, [one] if one.starts_with(warning)), "{warnings:?}");
    gate.says(warning);
    for (format, begins) in
        [("human", "warning: memgate"), ("markdown", "- warning"), ("html", "<li>memgate")]
    {
        let gate = project.memgate(&["gate", "--format", format, session.to_str().unwrap()]);
        assert!(gate.stdout.contains(begins) && gate.stdout.contains(" matches no test"), "{gate}");
    }
}

#[test]
fn doctor_says_what_it_found() {
    let run = Project::new("doctor").memgate(&["doctor"]);
    run.ends_with(0);
    for what in ["agent: ", "C++ compiler", "GoogleTest", "/proc"] {
        assert!(run.stdout.contains(what), "{what}:\n{run}");
    }
}

#[test]
fn the_demo_says_what_to_install_where_a_compiler_is_missing() {
    let project = Project::new("demo-without-compiler");
    let mut demo = project.command(&["demo"]);
    let run = project.finish(demo.env("PATH", "/nowhere").env_remove("CXX"));
    run.ends_with(2).says("hint:").says("g++");
}

#[test]
fn schemas_are_json_and_know_the_names() {
    let project = Project::new("schema");
    for (name, knows) in [("config", "native.live_bytes"), ("report", "bytes_per_iteration")] {
        let run = project.memgate(&["schema", name]);
        run.ends_with(0);
        let schema: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        assert!(schema["$schema"].is_string() && run.stdout.contains(knows), "{run}");
    }
}

#[test]
fn completions_and_manual_are_printed() {
    let project = Project::new("shell");
    let bash = project.memgate(&["completions", "bash"]);
    bash.ends_with(0);
    assert!(bash.stdout.contains("complete -F _memgate"), "{bash}");
    if has_tool("bash") {
        let mut check = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut check.stdin.take().unwrap(), bash.stdout.as_bytes()).unwrap();
        assert!(check.wait().unwrap().success(), "bash cannot read it");
    }
    let man = project.memgate(&["man"]);
    man.ends_with(0);
    assert!(man.stdout.contains(".TH memgate") || man.stdout.contains(".TH MEMGATE"), "{man}");
}
