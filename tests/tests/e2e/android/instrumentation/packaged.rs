//! The agent's library in the test APK: it needs neither `run-as` nor adb, and is the only method that test
//! farms allow.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use memgate_e2e::stand_in::{AdbServer, StandIn, adbs};
use memgate_model::Verdict;

use crate::android::instrumentation::app::{APP, RUNNER, TESTS, device_with_library, project};

const LEAKING: &str = "com.example.tracks.TileCacheTest.keepsAllTiles";

#[test]
fn a_library_that_the_test_apk_brings_is_loaded_by_the_listener_and_a_leak_leaves_its_heap_dump() {
    let Some((adb, (device, _app))) = adbs().pop().zip(device_with_library(34)) else { return };
    let server = AdbServer::start(&adb);
    server.connect(&device);
    let project =
        project("instrumentation-packaged", "    agent: packaged\n    heap_dump: leak\n    timeout: 300s\n");
    let mut command = project.command(&["run", "--suite", "tracks", "--filter", LEAKING]);
    command.envs(server.environment()).env_remove("MEMGATE_ANDROID_AGENT");
    let run = project.finish(&mut command);
    run.ends_with(1)
        .says("the agent comes by the library in the test APK")
        .says("5 × com.example.tracks.TileCache$Tile");
    let brought: Vec<String> =
        device.commands().into_iter().filter(|line| line.contains("libmemgate_agent")).collect();
    assert!(brought.is_empty(), "{brought:?}");
    let dumps: Vec<_> =
        fs::read_dir(project.session().join("heap-dumps")).unwrap().map(Result::unwrap).collect();
    assert_eq!(dumps.len(), 1, "{dumps:?}");
    assert_eq!(dumps[0].file_name(), format!("0001-{LEAKING}.hprof").as_str(), "{run}");
    let dump = fs::read(dumps[0].path()).unwrap();
    let class = b"com/example/tracks/TileCache$Tile";
    assert!(dump.starts_with(b"JAVA PROFILE 1.0."), "{} bytes", dump.len());
    assert!(dump.windows(class.len()).any(|window| window == class), "{} bytes", dump.len());
    run.says("heap dump of");
    device.assert_clean();
}

#[test]
fn without_adb_the_agent_writes_files_that_are_judged_afterwards() {
    let Some((adb, (device, _app))) = adbs().pop().zip(device_with_library(34)) else { return };
    let server = AdbServer::start(&adb);
    server.connect(&device);
    let project = project("instrumentation-files", "");
    // On a phone this is a path of the phone.
    let collected = "/data/local/tmp/memgate";
    let folder = device.host_path(collected);
    fs::create_dir_all(&folder).unwrap();
    let file = device.host_path(&StandIn::data_folder(APP)).join("code_cache/memgate.options");
    let (class, _) = LEAKING.rsplit_once('.').unwrap();
    let component = format!("{TESTS}/{RUNNER}");
    let listener = ["-e", "listener", "io.memgate.android.MemgateListener", "-e", "class", class];
    let rounds = ["-e", "runnerBuilder", "io.memgate.android.Rounds"];
    for (label, more) in [("screen", &[][..]), ("rounds", &rounds)] {
        // As docs/android.md says; written by the process that creates the app's data folder.
        let options =
            format!("dir={};java=1;target=all;windows=each;label={label}%09tracks", folder.display());
        fs::write(&file, options).unwrap();
        // The command of the test platform.
        let line = [&["shell", "am", "instrument", "-w", "-r"], &listener[..], more, &[component.as_str()]];
        let ran = server.adb(&line.concat());
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(said.contains("INSTRUMENTATION_CODE: -1"), "{said}");
    }
    // The files that the platform collects. Here the app's user is the shell's.
    for file in fs::read_dir(&folder).unwrap() {
        fs::set_permissions(file.unwrap().path(), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let here = project.folder().join("collected");
    let pulled = server.adb(&["pull", collected, here.to_str().unwrap()]);
    assert!(pulled.status.success(), "{pulled:?}");

    let mut files: Vec<_> = fs::read_dir(&here).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 2, "{files:?}");
    let run = project.memgate(&[&["gate".into(), "--format=json".into()], files.as_slice()].concat());
    // The listener reports the end of the run. Growth that was not confirmed is no failure, and any of the tests may
    // have caused it.
    run.ends_with(0);
    let suite = run.suite();
    assert_eq!(suite.verdict, Verdict::Warn, "{run}");
    let verdicts: Vec<(&str, Verdict)> =
        suite.tests.iter().map(|test| (test.id.strip_prefix(class).unwrap(), test.verdict)).collect();
    let open = Verdict::NotJudged;
    let want = [(".keepsRecentTiles", open), (".keepsAllTiles", open), ("", Verdict::Warn)];
    assert_eq!(verdicts, want, "{run}");
    assert!(run.test(class).reason.contains("in each of the last rounds"), "{run}");
}
