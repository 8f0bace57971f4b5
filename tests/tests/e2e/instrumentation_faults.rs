//! The device fails at random moments of a run: memgate ends with an error that says so, and never with a pass, a panic or a hang.
//!
//! `MEMGATE_E2E_LONG=1` strikes at thirty moments instead of ten.

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use memgate_e2e::say;
use memgate_e2e::stand_in::{Adb, AdbServer, Fault, What, When, adbs};

use crate::instrumentation_app::{device, project};

/// The moments are the same in every run of the test.
const SEED: u64 = 0x6d65_6d67_6174_6531;
const FAULTS: [What; 6] = [
    What::Unplug,
    What::UnplugFor(Duration::from_secs(3)),
    What::Silence,
    What::Unauthorize,
    What::TransportGarbage,
    What::ServiceGarbage,
];
/// A run that has not ended by then hangs. What memgate itself waits for is a test (10 s) and a device that may come back (30 s).
const HANG: Duration = Duration::from_secs(240);
/// Of these leaking tests one leaks: no run may end with 0.
const ARGUMENTS: [&str; 5] =
    ["run", "--suite", "tracks", "--filter", "com.example.tracks.TileCacheTest.keepsAllTiles"];
/// Runs at once: most of the time of each is waiting.
const AT_ONCE: usize = 3;

#[test]
fn a_device_that_fails_at_any_moment_gives_an_error_and_never_a_pass() {
    let Some(adb) = adbs().pop() else { return };
    let Some(messages) = healthy(&adb) else { return };
    let moments = if std::env::var_os("MEMGATE_E2E_LONG").is_some() { 30 } else { 10 };
    let mut random = SEED;
    let strikes: Vec<(usize, Fault)> = (0..moments)
        .map(|n| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (n, Fault { when: When::Messages(1 + random % messages), what: FAULTS[n % FAULTS.len()] })
        })
        .collect();
    let (waiting, wrong) = (Mutex::new(strikes), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap().pop();
                    let Some((n, fault)) = next else { return };
                    wrong.lock().unwrap().extend(strike(&adb, n, fault));
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {moments}:\n{}", wrong.len(), wrong.join("\n\n"));
}

/// How many messages a run takes in which nothing happens; `None`: the app cannot be built here.
fn healthy(adb: &Adb) -> Option<u64> {
    let (device, _app) = device(34)?;
    let server = AdbServer::start(adb);
    server.connect(&device);
    let before = device.messages();
    let (project, agents) = project("instrumentation-healthy", "    timeout: 60s\n");
    let mut command = project.command(&ARGUMENTS);
    command.envs(server.environment()).env("MEMGATE_ANDROID_AGENT", &agents);
    project.finish(&mut command).ends_with(1);
    Some(device.messages() - before)
}

/// One run with one fault; what is wrong about it.
fn strike(adb: &Adb, n: usize, fault: Fault) -> Option<String> {
    let (device, _app) = device(34)?;
    let server = AdbServer::start(adb);
    server.connect(&device);
    let (project, agents) = project(&format!("instrumentation-fault-{n}"), "    timeout: 10s\n");
    let mut command = project.command(&ARGUMENTS);
    command.envs(server.environment()).env("MEMGATE_ANDROID_AGENT", &agents);
    let told = format!("{n}: {fault:?}");
    device.inject(fault);
    let began = Instant::now();
    let Some((code, stderr)) = within(&mut command, HANG) else {
        return Some(format!("{told}: it hangs"));
    };
    say(&format!("{told}: {code:?} after {:.1} s", began.elapsed().as_secs_f64()));
    // What it did not know because of the garbage is no mistake of the stand-in's.
    drop(device.take_unknown());
    let panicked = stderr.contains("panicked") || stderr.contains("ended by a defect");
    let struck =
        stderr.contains("not measured") || stderr.contains("error:") || stderr.contains("was not removed");
    match code {
        Some(2) if !panicked && struck => None,
        // It struck when all was measured, or was overcome: then the leak is named.
        Some(1) if !panicked && stderr.contains("TileCache$Tile") => None,
        _ => Some(format!("{told}: exit code {code:?}\n{stderr}")),
    }
}

/// Exit code and stderr; `None`: it had to be killed.
fn within(command: &mut Command, limit: Duration) -> Option<(Option<i32>, String)> {
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let (sender, ended) = channel();
    // Nobody receives what comes behind the limit.
    let waiting = thread::spawn(move || drop(sender.send(child.wait_with_output().unwrap())));
    let output = ended.recv_timeout(limit);
    if output.is_err() {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    waiting.join().unwrap();
    let output = output.ok()?;
    Some((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
}
