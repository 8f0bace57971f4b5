//! Several devices at once: each runs its share of the tests, and one report covers all, device by device.

use std::collections::BTreeMap;

use memgate_e2e::Run;
use memgate_e2e::stand_in::{AdbServer, StandIn, adbs};
use memgate_e2e::waiting::Running;
use memgate_model::{TestReport, Verdict};
use rustix::process::Signal;
use serde_json::Value;

use crate::android::instrumentation::app::{configure, device, device_of, on_devices, project};

#[test]
fn tests_are_spread_over_all_devices_and_come_together_in_one_report() {
    let Some(adb) = adbs().pop() else { return };
    let (Some((first, _app)), Some((second, _other))) = (device(34), device(34)) else { return };
    let server = AdbServer::start(&adb);
    server.connect(&first);
    server.connect(&second);
    let refusing = StandIn::builder().start();
    refusing.unauthorize();
    assert!(server.adb(&["connect", &refusing.serial()]).status.success(), "adb tells by words alone");
    let project = project("instrumentation-devices", "    timeout: 300s\n");
    let arguments =
        ["run", "--suite", "tracks", "--devices", "all", "--filter", "com.example.tracks.*le*Test"];
    let run = project.finish(&mut on_devices(&project, &server, &arguments));
    run.ends_with(1).says("its tests are spread over 2 devices");
    run.says(&format!("warning: tracks: {} gets no tests: adb says `unauthorized`", refusing.serial()));

    let suites = run.report().suites;
    let mut names: Vec<&str> = suites.iter().map(|suite| suite.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["tracks on Stand In, API 34", "tracks on Stand In, API 34 #2"], "{run}");
    let mut tests: BTreeMap<String, TestReport> = BTreeMap::new();
    for test in suites.iter().flat_map(|suite| &suite.tests) {
        assert!(tests.insert(test.id.clone(), test.clone()).is_none(), "{} ran on both:\n{run}", test.id);
    }
    let verdicts: Vec<(&str, Verdict)> = tests.iter().map(|(id, test)| (id.as_str(), test.verdict)).collect();
    let want = [
        ("com.example.tracks.CleanTest.adds", Verdict::Pass),
        ("com.example.tracks.CleanTest.allocatesAndForgets", Verdict::Pass),
        ("com.example.tracks.TileCacheTest.keepsAllTiles", Verdict::Fail),
        ("com.example.tracks.TileCacheTest.keepsRecentTiles", Verdict::Pass),
    ];
    assert_eq!(verdicts, want, "{run}");
    assert_eq!(run.report().errors, [], "{run}");
    first.assert_clean();
    second.assert_clean();
}

#[test]
fn a_device_with_two_serials_is_refused_and_two_from_one_snapshot_are_not() {
    let Some(adb) = adbs().pop() else { return };
    let phone = || StandIn::builder().answer("cat /proc/sys/kernel/random/boot_id", "5f\n", 0).start();
    let (one, other) = (phone(), phone());
    let refuses = |serials: [&str; 2]| {
        let server = AdbServer::start(&adb);
        for serial in serials {
            assert!(server.adb(&["connect", serial]).stdout.starts_with(b"connected to"), "{serial}");
            assert!(server.adb(&["-s", serial, "wait-for-device"]).status.success(), "{serial}");
        }
        let project = project("instrumentation-twice", "");
        let run = project.finish(&mut on_devices(
            &project,
            &server,
            &["run", "--suite", "tracks", "--devices", "all"],
        ));
        run.ends_with(2);
        run.problems().contains("are the same device")
    };
    let alias = one.serial().replace("127.0.0.1", "localhost");
    assert_ne!(one.serial(), alias);
    assert!(refuses([&one.serial(), &alias]));
    assert!(!refuses([&one.serial(), &other.serial()]));
    one.assert_clean();
    other.assert_clean();
}

#[test]
fn ctrl_c_while_devices_are_told_apart_ends_the_run_and_leaves_no_file() {
    let Some(adb) = adbs().pop() else { return };
    let boot = "cat /proc/sys/kernel/random/boot_id";
    let phone = || StandIn::builder().answer(boot, "5f\n", 0).start();
    let (one, other) = (phone(), phone());
    let server = AdbServer::start(&adb);
    server.connect(&one);
    server.connect(&other);
    let project = project("instrumentation-devices-ctrl-c", "");
    let running =
        Running::start(&mut on_devices(&project, &server, &["run", "--suite", "tracks", "--devices", "all"]));
    let first = if one.serial() < other.serial() { &one } else { &other };
    first.wait_until("it is asked who it is", |device| device.commands().iter().any(|line| line == boot));
    running.signal(Signal::INT);
    let output = running.output();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    one.assert_clean();
    other.assert_clean();
}

/// Two tests, one for each device. Each repetition leaves equally many bytes: those of an activity would vary by more
/// than a tenth, because Robolectric's own caches grow too.
const ONE_EACH: &str = "com.example.tracks.ZoomTest,com.example.tracks.TileCacheTest#keepsAllTiles";
/// Allows the accepted figures plus a tenth.
const RELATIVE: &str = "{ java.live_bytes: { fail: +10%, against: baseline }, java.live_objects: { fail: +10%, against: baseline } }";

#[test]
fn each_device_is_compared_with_its_own_baseline() {
    let Some(adb) = adbs().pop() else { return };
    let (Some((small, _app)), Some((large, _other))) = (device_of("Small"), device_of("Large")) else {
        return;
    };
    let server = AdbServer::start(&adb);
    server.connect(&small);
    server.connect(&large);
    let project = project("instrumentation-baselines", "");
    let thresholds = |thresholds: &str| {
        let more = format!("    devices: all\n    arguments: {{ class: \"{ONE_EACH}\" }}\n");
        configure(&project, &format!("thresholds: {thresholds}\n"), &more);
    };
    let run = || project.finish(&mut on_devices(&project, &server, &["run", "--suite", "tracks"]));
    let verdicts = |run: &Run| -> BTreeMap<String, Verdict> {
        run.report().suites.into_iter().map(|suite| (suite.name, suite.verdict)).collect()
    };
    let [on_small, on_large] = ["tracks on Small, API 34", "tracks on Large, API 34"];
    let both = |small, large| BTreeMap::from([(on_small.to_owned(), small), (on_large.to_owned(), large)]);
    thresholds("{}");
    let first = run();
    first.ends_with(1);
    assert_eq!(verdicts(&first), both(Verdict::Fail, Verdict::Fail), "{first}");
    project.memgate(&["baseline", "accept", ".memgate/latest"]).ends_with(0);

    thresholds(RELATIVE);
    let again = run();
    again.ends_with(0);
    assert_eq!(verdicts(&again), both(Verdict::Pass, Verdict::Pass), "{again}");

    // One device accepted less for a test; the other device's baseline for that test must not apply to it.
    let mut baseline: Value = serde_json::from_str(&project.read("memgate-baseline.json")).unwrap();
    let tests = baseline["suites"][on_large]["tests"].as_object().unwrap().clone();
    let (test, accepted) = tests.into_iter().next().unwrap();
    let bytes = accepted["java.live_bytes"]["value"].as_f64().unwrap();
    baseline["suites"][on_small]["tests"][&test] = accepted;
    baseline["suites"][on_large]["tests"][&test]["java.live_bytes"]["value"] = (bytes / 2.0).into();
    project.write("memgate-baseline.json", baseline.to_string());
    // The first session has both leaks confirmed.
    let session = format!(".memgate/{}", first.report().session);
    let judged = project.memgate(&["gate", &session, "--format=json"]);
    judged.ends_with(1);
    assert_eq!(verdicts(&judged), both(Verdict::Pass, Verdict::Fail), "{judged}");
    small.assert_clean();
    large.assert_clean();
}
