//! The device fails at any moment of a run: memgate ends, reports why, and passes nothing that was not
//! measured. It neither panics nor hangs.
//!
//! In CI it fails at four chosen moments with the newest adb. A silent device costs a minute, so that is left
//! to `MEMGATE_E2E_LONG=1`, which takes thirty moments of the whole run with each adb. The moments are the
//! same every time.

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use memgate_e2e::stand_in::{Adb, AdbServer, Fault, What, When, adbs};
use memgate_e2e::{Project, is_long, say};
use memgate_model::{RunReport, Verdict};

use crate::android::instrumentation::app::{device, on_devices, project};

const SEED: u64 = 0x6d65_6d67_6174_6531;
const FAULTS: [What; 6] = [
    What::Unplug,
    What::UnplugFor(Duration::from_secs(3)),
    What::Silence,
    What::Unauthorize,
    What::TransportGarbage,
    What::ServiceGarbage,
];
/// A run that has not ended by then hangs: it waits for nothing longer than a test may take, but the machine
/// may be busy.
const HANG: Duration = Duration::from_secs(600);
/// How long a test may take, and a device be away. Short if many moments are tried; long if the fault must
/// occur, because the app has to start first, on any machine.
const PATIENCE: [&str; 2] = ["    timeout: 10s\n", "    timeout: 120s\n"];
/// The first test leaks: no run of it may pass. The others are clean: only a run that measured both may pass.
const LEAKING: &str = "com.example.tracks.TileCacheTest.keepsAllTiles";
const CLEAN: &str = "com.example.tracks.CleanTest";
/// Parallel runs: each mostly waits.
const AT_ONCE: usize = 3;

/// A run with one fault.
struct Moment {
    adb: Adb,
    tests: &'static str,
    fault: Fault,
    /// Is it certain that the run reaches this moment?
    must_strike: bool,
}

#[test]
fn a_device_that_fails_at_any_moment_gives_an_error_and_never_a_pass() {
    let programs = adbs();
    if device(34).is_none() {
        return;
    }
    let moments = if is_long() {
        programs.iter().flat_map(thirty).collect()
    } else {
        programs.last().map(chosen).unwrap_or_default()
    };
    let (count, wrong) = (moments.len(), Mutex::new(Vec::new()));
    let waiting = Mutex::new(moments.into_iter().enumerate());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap().next();
                    let Some((n, moment)) = next else { return };
                    wrong.lock().unwrap().extend(strike(n, &moment));
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n\n"));
}

/// Early moments: the library is delivered, the runner lists its tests, the agent connects, the tests run.
fn chosen(adb: &Adb) -> Vec<Moment> {
    let stream = |starts_with: &str, messages| When::Exchanged { starts_with: starts_with.into(), messages };
    let (files, am, agent) = ("sync:", "shell,v2,raw:am instrument", "localabstract:");
    let moments = [
        (What::Unplug, stream(files, 6), LEAKING),
        (What::Unauthorize, stream(agent, 8), LEAKING),
        (What::TransportGarbage, stream(am, 9), LEAKING),
        (What::ServiceGarbage, When::Service { starts_with: agent.into(), after_bytes: 0 }, CLEAN),
    ];
    let moment = |(what, when, tests)| Moment {
        adb: adb.clone(),
        tests,
        fault: Fault { when, what },
        must_strike: true,
    };
    moments.into_iter().map(moment).collect()
}

/// Moments spread over a whole run.
fn thirty(adb: &Adb) -> Vec<Moment> {
    let healthy = [(LEAKING, 1), (CLEAN, 0)].map(|(tests, code)| (tests, healthy(adb, tests, code)));
    let mut random = SEED;
    let mut moment = |n: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Each fault with both.
        let (tests, messages) = healthy[n / FAULTS.len() % 2];
        let fault = Fault { when: When::Messages(1 + random % messages), what: FAULTS[n % FAULTS.len()] };
        Moment { adb: adb.clone(), tests, fault, must_strike: false }
    };
    (0..30).map(&mut moment).collect()
}

/// Number of messages in a run without a fault.
fn healthy(adb: &Adb, tests: &str, code: i32) -> u64 {
    let (device, _app) = device(34).unwrap();
    let server = AdbServer::start(adb);
    server.connect(&device);
    let before = device.messages();
    let project = project("instrumentation-healthy", "    timeout: 300s\n");
    project
        .finish(&mut on_devices(&project, &server, &["run", "--suite", "tracks", "--filter", tests]))
        .ends_with(code);
    device.messages() - before
}

/// What is wrong with the run.
fn strike(n: usize, moment: &Moment) -> Option<String> {
    let Moment { adb, tests, fault, must_strike } = moment;
    let (device, _app) = device(34)?;
    let server = AdbServer::start(adb);
    server.connect(&device);
    let project = project(&format!("instrumentation-fault-{n}"), PATIENCE[usize::from(*must_strike)]);
    let mut command = on_devices(&project, &server, &["run", "--suite", "tracks", "--filter", tests]);
    let told = format!("{n}, {}, {tests}: {fault:?}", adb.name);
    device.inject(fault.clone());
    let began = Instant::now();
    let Some((code, stderr)) = within(&mut command, HANG) else {
        return Some(format!("{told}: it hangs"));
    };
    say(&format!("{told}: {code:?} after {:.1} s", began.elapsed().as_secs_f64()));
    // Unknown requests caused by the garbage are not the stand-in's fault.
    drop(device.take_unknown());
    let panicked = stderr.contains("panicked") || stderr.contains("ended by a defect");
    let says_why =
        stderr.contains("not measured") || stderr.contains("error:") || stderr.contains("was not removed");
    // The fault occurred after everything was measured, or memgate recovered.
    let measured = match code {
        Some(0) => *tests == CLEAN && both_pass(&project),
        Some(1) => *tests == LEAKING && stderr.contains("TileCache$Tile"),
        _ => false,
    };
    let right =
        !panicked && (measured || code == Some(2) && says_why) && (!must_strike || device.struck() == 1);
    (!right).then(|| format!("{told}: exit code {code:?}, struck {}\n{stderr}", device.struck()))
}

/// Were both clean tests measured?
fn both_pass(project: &Project) -> bool {
    let text = std::fs::read(project.session().join("report.json")).unwrap();
    let report: RunReport = serde_json::from_slice(&text).unwrap();
    let mut tests = report.suites.iter().flat_map(|suite| &suite.tests);
    report.errors.is_empty() && tests.clone().count() == 2 && tests.all(|test| test.verdict == Verdict::Pass)
}

/// Exit code and stderr; `None` if it had to be killed.
fn within(command: &mut Command, limit: Duration) -> Option<(Option<i32>, String)> {
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let (sender, ended) = channel();
    // After the limit, nobody receives it.
    let waiting = thread::spawn(move || drop(sender.send(child.wait_with_output().unwrap())));
    let output = ended.recv_timeout(limit);
    if output.is_err() {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    waiting.join().unwrap();
    let output = output.ok()?;
    Some((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
}
