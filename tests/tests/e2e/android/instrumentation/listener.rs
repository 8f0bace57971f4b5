//! A listener for apps that are built without memgate's: D8 turns it into a dex file, which is delivered to
//! the device with the agent and removed again. `tests/art/run` tests that a class loader of Android accepts
//! it.

use std::fs;

use memgate_e2e::Run;
use memgate_e2e::stand_in::{AdbServer, StandIn, adbs};

use crate::android::instrumentation::app::{device, on_devices, project, r8};

/// Runs a clean test of the app with `MEMGATE_D8` set to `d8`.
fn run(device: &StandIn, name: &str, d8: &std::path::Path) -> Option<(Run, String)> {
    let server = AdbServer::start(&adbs().pop()?);
    server.connect(device);
    let project = project(name, "    timeout: 300s\n");
    let mut command =
        on_devices(&project, &server, &["run", "--suite", "tracks", "--filter", "*.CleanTest.adds"]);
    let run = project.finish(command.env("MEMGATE_D8", d8));
    let made = fs::read_dir(project.session()).unwrap().map(|entry| entry.unwrap().path());
    let dex = made.map(|path| path.join("classes.dex")).find_map(|dex| fs::read(dex).ok());
    Some((run, String::from_utf8_lossy(&dex.unwrap_or_default()).into_owned()))
}

/// Commands that the device received about the file.
fn orders(device: &StandIn) -> Vec<String> {
    device.commands().into_iter().filter(|command| command.contains("memgate-listener.dex")).collect()
}

#[test]
fn a_dex_file_with_the_listener_goes_to_the_device_and_away_again() {
    let Some((d8, (device, _app))) = r8().zip(device(34)) else { return };
    let Some((run, dex)) = run(&device, "instrumentation-listener", &d8) else { return };
    run.ends_with(0);
    assert!(dex.starts_with("dex\n"), "{run}");
    for class in ["android/MemgateListener", "android/Repeat", "android/Rounds", "agent/Hooks"] {
        assert!(dex.contains(&format!("Lio/memgate/{class};")), "{class}");
    }
    let orders = orders(&device);
    let said = |what: &str| orders.iter().any(|order| order.contains(what));
    // Android 14 does not load writable code.
    assert!(said("cp ") && said("chmod 400 "), "{orders:?}");
    device.assert_clean();
}

#[test]
fn a_runtime_before_startup_agents_gets_no_dex_file() {
    let Some((d8, (device, _app))) = r8().zip(device(29)) else { return };
    let Some((run, dex)) = run(&device, "instrumentation-listener-29", &d8) else { return };
    run.ends_with(0);
    assert_eq!((dex.as_str(), orders(&device)), ("", Vec::new()));
}

#[test]
fn a_d8_that_does_not_work_is_told_and_the_listener_of_the_app_is_used() {
    let Some((device, _app)) = device(34) else { return };
    let no_jar = std::path::Path::new("/nowhere/d8.jar");
    let Some((run, _dex)) = run(&device, "instrumentation-listener-broken", no_jar) else { return };
    run.ends_with(0).says("no listener for apps that are built without memgate's").says("/nowhere/d8.jar");
    device.assert_clean();
}
