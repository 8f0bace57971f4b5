//! A run on a device that goes wrong at any moment: it ends, says why, and does not pass what was not measured.
//!
//! `MEMGATE_E2E_LONG=1` tries thirty moments with each adb, else it is one for each kind of fault with the newest.

use std::time::{Duration, Instant};

use memgate_e2e::Run;
use memgate_e2e::stand_in::{Adb, AdbServer, Fault, StandIn, What, When, adbs};
use memgate_model::Verdict;

use crate::instrumentation_app::{device, project};

const KINDS: [What; 5] =
    [What::Unplug, What::Silence, What::Unauthorize, What::TransportGarbage, What::ServiceGarbage];
/// A test may take 20 s here, and every question to the device as long; what a run does after that is not much.
const LONGEST: Duration = Duration::from_secs(240);

/// `memgate run` of the clean tests, which passes on a device without faults.
fn run(adb: &Adb, phone: &StandIn, name: &str) -> Run {
    let server = AdbServer::start(adb);
    server.connect(phone);
    let (project, agents) = project(name, "    timeout: 20s\n");
    let mut command = project.command(&["run", "--suite", "tracks", "--filter", "*.CleanTest"]);
    command.envs(server.environment()).env("MEMGATE_ANDROID_AGENT", &agents);
    let begun = Instant::now();
    let run = project.finish(&mut command);
    assert!(begun.elapsed() < LONGEST, "{:?}\n{run}", begun.elapsed());
    run
}

/// Every test of the run was measured and is clean.
fn is_whole(run: &Run) -> bool {
    let Some(report) = &run.report else { return false };
    let mut tests = report.suites.iter().flat_map(|suite| &suite.tests);
    report.errors.is_empty() && tests.clone().count() == 2 && tests.all(|test| test.verdict == Verdict::Pass)
}

#[test]
fn a_run_does_not_pass_whatever_happens_to_its_device() {
    let long = std::env::var_os("MEMGATE_E2E_LONG").is_some();
    let mut programs = adbs();
    programs.drain(..programs.len().saturating_sub(if long { usize::MAX } else { 1 }));
    for adb in programs {
        let Some((phone, _app)) = device(34) else { return };
        let clean = run(&adb, &phone, "adb-run-clean");
        clean.ends_with(0);
        assert!(is_whole(&clean), "{clean}");
        phone.assert_clean();
        let messages = phone.messages();
        let moments = if long { 30 } else { KINDS.len() as u64 };
        for moment in 0..moments {
            let what = KINDS[usize::try_from(moment).unwrap() % KINDS.len()];
            let Some((phone, _app)) = device(34) else { return };
            // Spread over the run, and never at the same distance.
            let at = (moment * 2 + 1) * messages / (moments * 2) + moment * 7 % 11;
            phone.inject(Fault { when: When::Messages(at), what });
            let run = run(&adb, &phone, "adb-run-trouble");
            let about = format!("{what:?} at message {at} of {messages}, {}:\n{run}", adb.name);
            assert!(!run.stderr.contains("panicked"), "{about}");
            let comes_back = matches!(what, What::TransportGarbage | What::ServiceGarbage);
            match run.code {
                // A fault that hits a question which is asked again does no harm.
                Some(0) => assert!(is_whole(&run) && (comes_back || phone.struck() == 0), "{about}"),
                Some(2) => {
                    assert!(run.stderr.contains("not measured") || run.stderr.contains("error"), "{about}")
                }
                _ => panic!("{about}"),
            }
            if comes_back {
                phone.assert_clean();
            }
        }
    }
}
