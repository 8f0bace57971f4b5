//! Instrumented tests on a device: planted leaks are named, clean tests pass, and nothing stays on the
//! device.

use memgate_e2e::stand_in::{Adb, AdbServer, StandIn, adbs};
use memgate_e2e::waiting::Running;
use memgate_e2e::{Run, repository};
use memgate_model::{BoundaryQuality, Leak, Runner, SuiteReport, TestReport, Verdict};
use rustix::process::Signal;
use serde_json::Value;

use crate::android::instrumentation::app::{APP, configure, device, on_devices, project, run_on};

/// Types `memgate run ARGUMENTS` for the app on this device.
fn run(adb: &Adb, device: &StandIn, name: &str, arguments: &[&str]) -> Run {
    let project = project(&format!("{name}-{}", adb.name.replace(' ', "-")), "    timeout: 300s\n");
    run_on(adb, device, &project, &[&["run"], arguments].concat())
}

#[test]
fn planted_leaks_of_an_app_are_named_and_its_clean_tests_pass() {
    let Some((adb, (device, _app))) = adbs().pop().zip(device(34)) else { return };
    let run = run(&adb, &device, "instrumentation", &["--suite", "tracks"]);
    run.ends_with(1).says("the agent comes by startup_agents");
    let suite = run.suite();
    assert_eq!((suite.runner, suite.boundary), (Runner::Instrumentation, BoundaryQuality::Exact));
    let wrong = differences(&suite);
    assert!(wrong.is_empty(), "{}\n{run}", wrong.join("\n"));
    assert_eq!(run.report().errors, [], "{run}");
    assert!(run.stdout.contains("OK (7 tests)"), "{run}");
    tells_of_memory(&suite);
    device.assert_clean();
}

#[test]
fn a_filter_chooses_tests_of_the_app_and_clean_ones_pass_with_every_adb() {
    for adb in adbs() {
        let Some((device, _app)) = device(34) else { return };
        let run =
            run(&adb, &device, "instrumentation-filter", &["--suite", "tracks", "--filter", "*.CleanTest"]);
        run.ends_with(0);
        let mut tests: Vec<String> = run.suite().tests.into_iter().map(|test| test.id).collect();
        tests.sort();
        let class = "com.example.tracks.CleanTest";
        assert_eq!(tests, [format!("{class}.adds"), format!("{class}.allocatesAndForgets")], "{run}");
        device.assert_clean();
    }
}

#[test]
fn every_way_into_an_app_finds_its_leak() {
    // One with the oldest adb, the other with the newest.
    let programs = adbs();
    let ways = [(programs.first(), 29, "am set-agent-app"), (programs.last(), 28, "am attach-agent")];
    for (adb, api, way) in ways {
        let Some((adb, (device, _app))) = adb.zip(device(api)) else { return };
        let filter = "com.example.tracks.TileCacheTest.keepsAllTiles";
        let run = run(
            adb,
            &device,
            &format!("instrumentation-api-{api}"),
            &["--suite", "tracks", "--filter", filter],
        );
        run.ends_with(1)
            .says(&format!("the agent comes by {way}"))
            .says("5 × com.example.tracks.TileCache$Tile");
        tells_of_memory(&run.suite());
        device.assert_clean();
    }
}

/// As [`run`], of a suite with these classes only.
fn run_of(device: &StandIn, name: &str, classes: &str, arguments: &[&str]) -> Run {
    let project = project(name, "");
    configure(&project, "", &format!("    arguments: {{ class: \"{classes}\" }}\n"));
    let arguments = [&["run", "--suite", "tracks"], arguments].concat();
    run_on(&adbs().pop().unwrap(), device, &project, &arguments)
}

#[test]
fn a_test_or_a_parameter_that_fails_is_shown_and_hides_no_leak_of_its_class() {
    let Some((_adb, (device, _app))) = adbs().pop().zip(device(34)) else { return };
    let [class, parameters, once] =
        ["FailingTest", "LevelsTest", "OnceTest"].map(|class| format!("com.example.tracks.{class}"));
    let run = run_of(&device, "instrumentation-failing", &format!("{class},{parameters},{once}"), &[]);
    run.ends_with(1);
    assert!(run.stdout.contains(&format!("failed: {class}.fails")), "{run}");
    assert!(run.stdout.contains("and another expected:<4> but was:<5>"), "{run}");
    for (class, fails, keeps) in [
        (&class, "fails", "keeps"),
        (&parameters, "keepsTheTile[1]", "keepsTheTile[0]"),
        // It fails only when it is repeated.
        (&once, "registersOnce", "keeps"),
    ] {
        assert_eq!(run.test(&format!("{class}.{fails}")).verdict, Verdict::NotJudged, "{run}");
        assert_eq!(run.test(&format!("{class}.{keeps}")).verdict, Verdict::Fail, "{run}");
    }
    let told = run.suite().reason;
    assert!(told.contains(&format!("it fails when it is repeated: {once}.registersOnce")), "{run}");
    assert!(told.contains(&format!("it is skipped when it is repeated: {once}.welcomesOnce")), "{run}");
    device.assert_clean();
}

#[test]
fn classes_of_junit_3_are_repeated_too_and_those_of_androids_own_kinds_are_no_pass() {
    let Some((_adb, (device, _app))) = adbs().pop().zip(device(34)) else { return };
    let (class, androids) = ("com.example.tracks.LegacyTest", "com.example.tracks.LegacyInstrumentedTest");
    let run = run_of(&device, "instrumentation-legacy", &format!("{class},{androids}"), &[]);
    run.ends_with(2);
    let suite = run.suite();
    assert_eq!(
        (suite.verdict, suite.reason),
        (Verdict::Error, format!("not in the rounds: {androids}")),
        "{run}"
    );
    assert_eq!(run.test(&format!("{class}.testAdds")).verdict, Verdict::Pass, "{run}");
    device.assert_clean();
}

/// The runner cannot select this test by its name, and its class counts as one test.
#[test]
fn the_leak_of_a_method_with_one_named_parameter_is_confirmed() {
    let Some((_adb, (device, _app))) = adbs().pop().zip(device(34)) else { return };
    let class = "com.example.tracks.ZoomTest";
    let filter = format!("{class}.keepsTheTile");
    let run = run_of(&device, "instrumentation-parameter", class, &["--filter", &filter]);
    run.ends_with(1);
    assert_eq!(run.report().errors, [], "{run}");
    let test = run.test(&format!("{class}.keepsTheTile[level=3,pixels=1,000]"));
    assert_eq!((test.verdict, test.leaks.len()), (Verdict::Fail, 1), "{}\n{run}", test.reason);
    device.assert_clean();
}

#[test]
fn ctrl_c_leaves_nothing_on_the_device() {
    let Some((adb, (device, _app))) = adbs().pop().zip(device(34)) else { return };
    let server = AdbServer::start(&adb);
    server.connect(&device);
    let project = project("instrumentation-ctrl-c", "    timeout: 300s\n");
    let running = Running::start(&mut on_devices(&project, &server, &["run", "--suite", "tracks"]));
    device.wait_until("the agent is there and the app starts", |device| {
        device.commands().iter().any(|command| command.contains("am instrument"))
    });
    assert!(!device.startup_agents(APP).is_empty());
    running.signal(Signal::INT);
    let output = running.output();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    device.assert_clean();
}

/// The memory figures of a JVM as Android's tools report them: every source was asked, and every sum is
/// consistent.
fn tells_of_memory(suite: &SuiteReport) {
    let memory = suite.app_memory.as_ref().unwrap();
    let bytes =
        |name: &str| memory.bytes.get(name).copied().unwrap_or_else(|| panic!("no {name}: {memory:?}"));
    assert_eq!(memory.source, "dumpsys meminfo", "{memory:?}");
    assert!(suite.tests.iter().any(|test| test.id == memory.test), "{memory:?}");
    assert!(bytes("total_pss") > 32 << 20 && bytes("total_pss") < 1 << 30, "{memory:?}");
    assert_eq!(
        bytes("java_heap") + bytes("native_heap") + bytes("code") + bytes("system"),
        bytes("total_pss")
    );
    assert!(bytes("private") <= bytes("total_pss") && bytes("total_pss") <= bytes("total_rss"), "{memory:?}");
    assert_eq!(memory.objects["activities"], 1);
    assert!(memory.objects["threads"] > 5, "{memory:?}");
}

/// Differences between the sample's truth and the report, as readable lines; empty if there are none.
pub(crate) fn differences(suite: &SuiteReport) -> Vec<String> {
    let path = repository().join("tests/samples/android/truth.json");
    let truth: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let leaks = truth["leaks"].as_object().unwrap();
    let mut wrong = Vec::new();
    for test in &suite.tests {
        match leaks.get(&test.id) {
            Some(leak) => wrong.extend(leak_differs(test, leak)),
            None if test.verdict != Verdict::Pass => {
                wrong.push(format!("{}: clean, but {:?} ({})", test.id, test.verdict, test.reason));
            }
            None => {}
        }
    }
    let missing = leaks.keys().filter(|id| !suite.tests.iter().any(|test| test.id == **id));
    wrong.extend(missing.map(|id| format!("{id}: not in the report")));
    if truth["tests"].as_u64() != Some(suite.tests.len() as u64) {
        wrong.push(format!("{} tests", suite.tests.len()));
    }
    wrong
}

fn leak_differs(test: &TestReport, truth: &Value) -> Option<String> {
    let (class, root) = (truth["class"].as_str().unwrap(), truth["root"].as_str().unwrap());
    if test.verdict != Verdict::Fail {
        return Some(format!("{}: {:?} ({})", test.id, test.verdict, test.reason));
    }
    let named = |leak: &&Leak| {
        leak.class.as_deref() == Some(class) || leak.holder.iter().any(|step| step.class == class)
    };
    let shown =
        || test.leaks.iter().map(|l| format!("{} {:?}", l.title, l.holder)).collect::<Vec<_>>().join("\n  ");
    let Some(leak) = test.leaks.iter().find(named) else {
        return Some(format!("{}: {class} is not named:\n  {}", test.id, shown()));
    };
    let from = leak.holder.first().map(|from| format!("{} {}.{}", from.kind, from.owner, from.name));
    (from.as_deref() != Some(root)).then(|| format!("{}: held by {from:?}, {root} is right", test.id))
}
