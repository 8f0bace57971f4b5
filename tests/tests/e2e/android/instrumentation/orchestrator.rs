//! Each test in its own process, as with Android's Test Orchestrator, also if the app's data is cleared
//! before each test: the agent and its options are restored, figures are those of single tests, and the
//! report says so.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use memgate_e2e::stand_in::{Adb, Package, StandIn, adbs};
use memgate_e2e::{Project, Run};
use memgate_model::Verdict;
use serde_json::Value;

use crate::android::instrumentation::app::{APP, RUNNER, TESTS, configure, device, project, run_on};

const LEAKING: &str = "com.example.tracks.TileCacheTest.keepsAllTiles";
const CLEAN: &str = "com.example.tracks.CleanTest.adds";
const CRASHING: &str = "com.example.tracks.CrashingTest.ends";

/// Runs the suite with additional lines of configuration.
fn run(adb: &Adb, device: &StandIn, name: &str, more: &str) -> (Run, Project) {
    let project = project(name, "");
    configure(&project, "", more);
    (run_on(adb, device, &project, &["run", "--suite", "tracks"]), project)
}

#[test]
fn each_test_has_its_own_process_and_the_agent_survives_cleared_data() {
    let Some((adb, (device, _app))) = adbs().pop().zip(device(34)) else { return };
    let classes = "com.example.tracks.IsolatedTest,com.example.tracks.TileCacheTest#keepsAllTiles,\
                   com.example.tracks.CrashingTest,com.example.tracks.CleanTest#adds";
    let more = format!(
        "    execution: orchestrator\n    arguments: {{ clearPackageData: true, class: \"{classes}\" }}\n"
    );
    let (run, project) = run(&adb, &device, "orchestrator", &more);
    run.ends_with(1).says("each test in a process of its own, with the app's data cleared before");
    assert!(run.stdout.contains("Tests run: 5,  Failures: 1"), "{run}");
    assert!(run.stdout.contains(&format!("the process crashed in {CRASHING}")), "{run}");
    assert!(run.problems().contains(&format!("{CRASHING}: not measured: ")), "{run}");

    let suite = run.suite();
    assert!(
        suite.reason.contains("figures are within a test, growth from test to test is not seen"),
        "{run}"
    );
    assert_eq!(run.test(CLEAN).verdict, Verdict::Pass, "{run}");
    assert_eq!(run.test(LEAKING).verdict, Verdict::Fail, "{run}");
    assert_eq!(run.test(LEAKING).leaks[0].title, "5 × com.example.tracks.TileCache$Tile", "{run}");
    // These tests would fail in a shared process. Here they pass, but fail when repeated: nothing is known
    // about them, so that is no pass.
    for id in ["com.example.tracks.IsolatedTest.isTheFirst", "com.example.tracks.IsolatedTest.isTheFirstToo"]
    {
        let test = run.test(id);
        let why = "not screened: it fails when it is repeated";
        assert_eq!((test.verdict, test.reason.as_str()), (Verdict::Warn, why), "{run}");
    }

    let session: Value =
        serde_json::from_slice(&std::fs::read(project.session().join("session.json")).unwrap()).unwrap();
    let screen = session["run"]["suites"][0]["screen"].as_array().unwrap();
    let streams: BTreeSet<&str> = screen.iter().map(|process| process["stream"].as_str().unwrap()).collect();
    assert_eq!(streams.len(), 5, "a stream for each process: {screen:?}");
    everything_was_put_back(&device);
    device.assert_clean();
}

/// Checks that before each start the data of app and tests was cleared, and then library and options were
/// delivered.
fn everything_was_put_back(device: &StandIn) {
    let commands = device.commands();
    let starts: Vec<usize> = (0..commands.len())
        .filter(|at| commands[*at].starts_with("am instrument") && !commands[*at].contains("-e log true"))
        .collect();
    // Once each, again if it passed, and alone if it leaks.
    assert_eq!(starts.len(), 5 + 4 + 1, "{commands:#?}");
    let mut from = commands.iter().position(|line| line.contains("-e log true")).unwrap();
    for start in starts {
        let between = &commands[from..start];
        let place = |what: &str| {
            between
                .iter()
                .position(|line| line.contains(what))
                .unwrap_or_else(|| panic!("{what}: {between:#?}"))
        };
        let cleared = [place(&format!("pm clear {APP}")), place(&format!("pm clear {TESTS}"))];
        // Android creates the folder only when the app starts.
        assert!(cleared.iter().max() < Some(&place("mkdir -p code_cache")), "{between:#?}");
        let brought = [place("startup_agents/libmemgate_agent.so"), place("code_cache/memgate.options")];
        assert!(cleared.iter().max() < brought.iter().min(), "{between:#?}");
        from = start;
    }
}

#[test]
fn an_agent_that_is_attached_comes_into_each_process_in_time() {
    let Some((adb, (device, _app))) = adbs().pop().zip(device(28)) else { return };
    let more = format!(
        "    execution: orchestrator\n    heap_dump: trimmed\n    arguments: {{ clearPackageData: true, class: \"{SECRET}\" }}\n"
    );
    let (run, project) = run(&adb, &device, "orchestrator-attach", &more);
    run.ends_with(1).says("the agent comes by am attach-agent").says("5 × com.example.tracks.TileCache$Tile");
    is_trimmed(&run, &project);
    device.assert_clean();
}

/// An argument of the runner, which the app's memory contains as text.
const SECRET: &str = "com.example.tracks.TileCacheTest#keepsAllTiles";

/// Checks that the dump has all objects but no texts, and that nothing else stays.
fn is_trimmed(run: &Run, project: &Project) {
    let dumps: Vec<PathBuf> = std::fs::read_dir(project.session().join("heap-dumps"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let [dump] = dumps.as_slice() else { panic!("{dumps:?}\n{run}") };
    assert_eq!(dump.file_name().unwrap(), format!("0001-{LEAKING}.hprof.gz").as_str());
    let unpacked = Command::new("gzip").arg("-dc").arg(dump).output().unwrap();
    assert!(unpacked.status.success(), "{unpacked:?}");
    let holds = |text: &str| unpacked.stdout.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(unpacked.stdout.starts_with(b"JAVA PROFILE 1.0."));
    assert!(holds("com/example/tracks/TileCache$Tile"), "names of classes stay");
    assert!(!holds(SECRET), "texts do not");
    run.says("heap dump of");
}

#[test]
fn the_orchestrator_itself_is_refused_with_what_to_write_instead() {
    let Some(adb) = adbs().pop() else { return };
    let device = StandIn::builder()
        .package(Package::app(APP))
        .package(Package::test(TESTS, RUNNER, APP))
        .package(Package::test("androidx.test.orchestrator", ".AndroidTestOrchestrator", APP))
        .start();
    let project = project("orchestrator-refused", "");
    project.write(
        "memgate.yaml",
        "version: 1\nsuites:\n  tracks:\n    runner: instrumentation\n    package: androidx.test.orchestrator\n",
    );
    let run = run_on(&adb, &device, &project, &["run", "--suite", "tracks"]);
    run.ends_with(2);
    assert!(run.problems().contains("`execution: orchestrator`"), "{run}");
    device.assert_clean();
}
