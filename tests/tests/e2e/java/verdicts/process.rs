//! A Java program without JUnit is one test as a whole: the growth per repetition of its work decides.

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::{Project, Run, probes};
use memgate_model::{BoundaryQuality, Metric, Runner, Verdict};

fn run(jdk: &Jdk, options: &[&str], what: &str) -> Run {
    let project = Project::new(&format!("jvm-program-{what}-{}{}", jdk.release, options.concat()));
    let words = probes::java(jdk, options, &["com.example.Replay", what, "{n}"]);
    let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    project.write(
        "memgate.yaml",
        format!("version: 1\nsuites:\n  replay: {{ run: [{}], runner: command }}\n", words.join(", ")),
    );
    project.memgate(&["run"])
}

#[test]
fn what_a_java_program_keeps_of_each_repetition_is_a_leak() {
    for jdk in jvm::jdks() {
        let leaks = run(&jdk, &[], "leaks");
        leaks.ends_with(1);
        let suite = leaks.suite();
        assert_eq!((suite.runner, suite.boundary), (Runner::Command, BoundaryQuality::Process), "{leaks}");
        let test = leaks.test("replay");
        let told: Vec<&str> = test.leaks.iter().map(|leak| leak.title.as_str()).collect();
        assert_eq!(told, ["2 × com.example.Replay$Record"], "{}\n{leaks}", test.reason);
        let bytes = &test.metrics[&Metric::JavaLiveBytes];
        assert_eq!(bytes.value, 2.0 * (16.0 + 32.0), "a record and its array\n{leaks}");
        assert!(
            !test.metrics.contains_key(&Metric::NativeLiveBytes),
            "the virtual machine's own memory is not judged"
        );

        let clean = run(&jdk, &[], "rests");
        clean.ends_with(0);
        assert_eq!(clean.test("replay").verdict, Verdict::Pass, "{clean}");
    }
}

/// When the agent is notified of the JVM's end, the threads of these collectors are gone.
#[test]
fn what_is_alive_at_the_end_is_counted_while_the_collector_is_there() {
    for (jdk, collector) in jvm::jdks().iter().zip(["-XX:+UseZGC", "-XX:+UseShenandoahGC"]) {
        let leaks = run(jdk, &[collector], "leaks");
        leaks.ends_with(1);
        assert_eq!(leaks.test("replay").leaks[0].title, "2 × com.example.Replay$Record", "{leaks}");
    }
}

#[test]
fn a_program_that_halts_is_not_measured() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let halts = run(&jdk, &[], "halts");
    halts.ends_with(2);
    let reason = halts.test("replay").reason;
    assert!(reason.contains("the virtual machine was halted"), "{reason}\n{halts}");
}

#[test]
fn without_an_argument_that_repeats_its_work_it_is_not_measured_and_says_what_to_do() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let words = probes::java(&jdk, &[], &["com.example.Replay", "leaks", "3"]);
    let run = Project::new("jvm-program-plain").run_command(&words);
    run.ends_with(2);
    assert!(run.problems().contains("name the argument that repeats its work, as {n}"), "{}", run.problems());
}
