//! Native leaks of an app on a device: the agent is preloaded, as `wrap.sh` does it, and the app's own
//! library is symbolized, over a real adb. The stand-in's app is a JVM of this machine with this machine's
//! agent.

use std::fs;
use std::process::Command;

use memgate_e2e::samples::successful;
use memgate_e2e::stand_in::{Adb, StandIn, adbs};
use memgate_e2e::{Project, Run};
use memgate_model::{LeakKind, Metric, Verdict};

use crate::android::instrumentation::app::{
    TESTS, decoder, device_with_decoder, device_with_wrap, project, run_on,
};

const KEEPS: &str = "com.example.tracks.DecoderTest.keepsWhatItDecoded";
const FREES: &str = "com.example.tracks.DecoderTest.freesWhatItDecoded";

/// Runs the tests with native code; `more` are keys of the suite.
pub(crate) fn run(project: &Project, adb: &Adb, device: &StandIn, more: &str) -> Run {
    let suite = format!(
        "version: 1\nsuites:\n  native:\n    runner: instrumentation\n    package: {TESTS}\n    timeout: 60s\n    arguments: {{ class: com.example.tracks.DecoderTest }}\n{more}"
    );
    project.write("memgate.yaml", suite);
    run_on(adb, device, project, &["run"])
}

/// Symbols in the stack of the leaking test: functions, and places as `file:line`.
fn named(run: &Run) -> Vec<String> {
    let leaking = run.test(KEEPS);
    let [leak] = leaking.leaks.as_slice() else { panic!("{:#?}\n{run}", leaking.leaks) };
    let shown = leak.frames.iter().filter(|frame| frame.module.contains("libtracks")).map(|frame| {
        let file = frame.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file));
        let place = file.zip(frame.line).map(|(file, line)| format!(" {file}:{line}"));
        format!("{}{}", frame.function.as_deref().unwrap_or("?"), place.unwrap_or_default())
    });
    shown.collect()
}

const NAMED: [&str; 3] =
    ["decoded decoder.c:7", "kept decoder.c:14", "Java_com_example_tracks_Decoder_keep decoder.c:22"];

#[test]
fn a_stripped_library_of_an_app_is_named_by_the_file_of_its_build_and_by_no_other() {
    let Some((adb, whole)) = adbs().pop().zip(decoder(&["-Wl,--build-id=sha1"])) else { return };
    let other = decoder(&["-Wl,--build-id=sha1", "-O2"]).unwrap();
    let project = project("android-symbols", "");
    for (folder, library) in [("this", &whole), ("other", &other)] {
        fs::create_dir_all(project.folder().join(folder).join("out/x86_64")).unwrap();
        fs::copy(library, project.folder().join(folder).join("out/x86_64/libtracks.so")).unwrap();
    }
    let installed = project.folder().join("libtracks.so");
    successful(Command::new("strip").arg("-o").arg(&installed).arg(&whole));
    let Some((device, _app)) = device_with_decoder(34, installed.clone()) else { return };
    let ran = run(&project, &adb, &device, "    symbols: [other, this]\n");
    ran.ends_with(1);
    assert_eq!(named(&ran), NAMED, "{ran}");
    device.assert_clean();

    // Another machine has neither the device's files nor the symbols found during the run.
    fs::remove_file(installed).unwrap();
    fs::remove_file(project.session().join("symbols.json")).unwrap();
    project.write("memgate.yaml", "version: 1\n");
    let session = project.session();
    let gate = |symbols: &[&str]| {
        let named = symbols.iter().flat_map(|folder| ["--symbols", folder]);
        let arguments: Vec<&str> =
            ["gate", "--format", "json"].into_iter().chain(named).chain(session.to_str()).collect();
        project.memgate(&arguments)
    };
    let wrong = gate(&["other"]);
    wrong
        .ends_with(1)
        .says("libtracks.so")
        .says("out/x86_64/libtracks.so is of another build: its build id is");
    let leaks = wrong.test(KEEPS).leaks;
    assert!(
        !leaks.is_empty() && leaks.iter().flat_map(|leak| &leak.frames).all(|frame| frame.function.is_none()),
        "{wrong}"
    );
    let right = gate(&["other", "this"]);
    assert_eq!(named(&right), NAMED, "{right}");
    assert!(!right.stderr.contains("another build"), "{right}");
}

#[test]
fn files_with_symbols_that_are_none_are_told_before_anything_runs() {
    let project = Project::new("symbols-wrong");
    project.write("notes.txt", "no symbols\n");
    for (symbols, what) in [("absent", "absent"), ("notes.txt", "it is no APK, or damaged")] {
        let suite =
            format!("version: 1\nsuites:\n  unit: {{ run: [sh, -c, touch ran], symbols: [{symbols}] }}\n");
        project.write("memgate.yaml", suite);
        project.memgate(&["run"]).ends_with(2).says(symbols).says(what);
        project
            .memgate(&["run", "--symbols", symbols, "--", "sh", "-c", "touch ran"])
            .ends_with(2)
            .says(what);
    }
    assert!(!project.folder().join("ran").exists());
}

/// Checks the expected verdicts: the leak has its figures and its symbol.
pub(crate) fn is_judged(run: &Run) {
    run.ends_with(1);
    let leaking = run.test(KEEPS);
    assert_eq!(leaking.verdict, Verdict::Fail, "{run}");
    let [leak] = leaking.leaks.as_slice() else { panic!("{:#?}\n{run}", leaking.leaks) };
    assert_eq!(
        (leak.kind, leak.count_per_iteration, leak.bytes_per_iteration),
        (LeakKind::Native, 2.0, 2018.0),
        "{run}"
    );
    assert_eq!(named(run), NAMED, "{run}");
    assert_eq!(leaking.metrics[&Metric::NativeLiveBytes].value, 2018.0);
    let clean = run.test(FREES);
    assert_eq!(clean.verdict, Verdict::Pass, "{clean:#?}\n{run}");
}

#[test]
fn a_native_leak_of_an_app_is_named_by_its_own_library_and_clean_tests_pass() {
    let Some((adb, (device, _app))) = adbs().pop().zip(device_with_wrap(34)) else { return };
    let project = project("android-native", "");
    is_judged(&run(&project, &adb, &device, ""));
    device.assert_clean();
}
