//! Native memory of libraries that JVM tests load: a test's leak in JNI code is named by its function, and
//! memory that garbage still held is not blamed on a test.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::{Project, Run, junit, probes, repository, samples::successful};
use memgate_model::{LeakKind, Metric, Verdict};
use memgate_wire::{Frame, Runtime, capability};

const KEEPS: &str = "KeepsTest.keepsItsTile";

/// The command that runs the sample's tests.
fn tests(project: &Project, jdk: &Jdk) -> Vec<String> {
    let sample = repository().join("tests/samples/jni");
    let source = |name: &str| fs::read_to_string(sample.join(format!("{name}.java"))).unwrap();
    let names = ["Tiles", "KeepsTest", "CleanTest"];
    let sources = names.map(|name| (name, source(name)));
    let sources = sources.each_ref().map(|(name, source)| (*name, source.as_str()));
    let classes = junit::compile(jdk, project.folder(), &sources);
    let library: PathBuf = project.folder().join("libtiles.so");
    let include = jdk.home.join("include");
    let mut cc = Command::new("cc");
    cc.args(["-g", "-O1", "-shared", "-fPIC", "-fno-inline", "-fno-optimize-sibling-calls", "-I"])
        .arg(&include);
    successful(cc.arg("-I").arg(include.join("linux")).arg("-o").arg(&library).arg(sample.join("tiles.c")));
    junit::java(jdk, &[&format!("-Dtiles={}", library.display())], &classes)
}

/// Types `memgate run -- java …`.
fn run(project: &Project, jdk: &Jdk) -> Run {
    let command = tests(project, jdk);
    let words: Vec<&str> = ["run", "--"].into_iter().chain(command.iter().map(String::as_str)).collect();
    project.memgate(&words)
}

#[test]
fn what_a_test_leaks_behind_jni_is_named_and_what_garbage_held_is_not_blamed() {
    for jdk in jvm::jdks_in_turn(0) {
        let project = Project::new(&format!("junit-native-{}", jdk.release));
        let run = run(&project, &jdk);
        run.ends_with(1).says("native memory is judged too, of libtiles-");
        let keeps = run.test(KEEPS);
        assert_eq!(keeps.verdict, Verdict::Fail, "{}\n{run}", keeps.reason);
        assert_eq!(keeps.metrics[&Metric::NativeLiveBytes].value, 115_003.0, "{run}");
        let [leak] = keeps.leaks.as_slice() else { panic!("{:#?}\n{run}", keeps.leaks) };
        assert_eq!(
            (leak.kind, leak.count_per_iteration, leak.bytes_per_iteration),
            (LeakKind::Native, 1.0, 115_003.0)
        );
        let named: Vec<String> = leak.frames.iter().filter_map(|frame| frame.function.clone()).collect();
        assert_eq!(named, ["decoded", "Java_Tiles_open"], "{:#?}", leak.frames);
        assert!(leak.frames.iter().all(|frame| frame.module.starts_with("libtiles-")), "{:#?}", leak.frames);
        for test in run.suite().tests.iter().filter(|test| test.id != KEEPS) {
            assert_eq!(test.verdict, Verdict::Pass, "{}: {}\n{run}", test.id, test.reason);
        }
        // The library's file is gone by now.
        let session = project.session();
        let gate = project.memgate(&["gate", "--format", "json", session.to_str().unwrap()]);
        gate.ends_with(1);
        assert_eq!(
            (&gate.test(KEEPS).leaks, &gate.test(KEEPS).reason),
            (&keeps.leaks, &keeps.reason),
            "{gate}"
        );
        // The agent was loaded twice but acts as one: one stream for each process. Those of memgate's own
        // runs track Java and native memory.
        for stream in project.streams() {
            let frames = probes::frames(&probes::stream_bytes(&stream));
            let Some((_, Frame::Hello(hello))) = frames.first() else { panic!("no hello: {run}") };
            let tracked = hello.offers(capability::NATIVE_LIVE);
            let own = !hello.label.starts_with("screen");
            assert_eq!((hello.runtime, tracked), (Runtime::HotSpot, own), "{}", hello.label);
        }
    }
}

#[test]
fn where_rounds_are_sampled_what_leaves_samples_is_confirmed_exactly() {
    let Some(jdk) = jvm::jdks_in_turn(2).pop() else { return };
    let project = Project::new("junit-native-sampled");
    project.write("memgate.yaml", "version: 1\nmeasure: { native: { sampling: 16 KiB } }\n");
    let run = run(&project, &jdk);
    run.ends_with(1).says("native allocations sampled, every 16.0 KiB on average");
    let keeps = run.test(KEEPS);
    assert_eq!(keeps.verdict, Verdict::Fail, "{}\n{run}", keeps.reason);
    assert_eq!(keeps.metrics[&Metric::NativeLiveBytes].value, 115_003.0, "{run}");
    for test in run.suite().tests.iter().filter(|test| test.id != KEEPS) {
        assert_eq!(test.verdict, Verdict::Pass, "{}: {}\n{run}", test.id, test.reason);
    }
}

#[test]
fn native_memory_that_is_not_judged_is_told() {
    let Some(jdk) = jvm::jdks_in_turn(1).pop() else { return };
    let project = Project::new("junit-native-off");
    project.write("memgate.yaml", "version: 1\nmeasure: { java: { native: off } }\n");
    let run = run(&project, &jdk);
    run.ends_with(0);
    let told = run.suite().reason;
    assert!(
        told.contains("native memory of libtiles-") && told.contains("`measure.java.native` is off"),
        "{told}"
    );
}
