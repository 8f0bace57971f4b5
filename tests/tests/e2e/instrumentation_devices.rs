//! Several devices at once: each runs its share of the tests, and one report tells of all, device by device.

use std::collections::BTreeMap;

use memgate_e2e::stand_in::{AdbServer, adbs};
use memgate_model::{TestReport, Verdict};

use crate::instrumentation_app::{device, project};

#[test]
fn tests_are_spread_over_all_devices_and_come_together_in_one_report() {
    let Some(adb) = adbs().pop() else { return };
    let (Some((first, _app)), Some((second, _other))) = (device(34), device(34)) else { return };
    let server = AdbServer::start(&adb);
    server.connect(&first);
    server.connect(&second);
    let (project, agents) = project("instrumentation-devices", "    timeout: 300s\n");
    let arguments =
        ["run", "--suite", "tracks", "--devices", "all", "--filter", "com.example.tracks.*le*Test"];
    let mut command = project.command(&arguments);
    command.envs(server.environment()).env("MEMGATE_ANDROID_AGENT", &agents);
    let run = project.finish(&mut command);
    run.ends_with(1).says("its tests are spread over 2 devices");

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
