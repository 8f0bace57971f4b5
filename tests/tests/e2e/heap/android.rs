//! Heap dumps of an app's process: a complete dump is fetched, and one that never completes leaves nothing.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use memgate::device::heap_dump::dump;
use memgate_adb::AdbError;
use memgate_e2e::stand_in::{Adb, Instrument, Instrumentation, StandIn, Terminal, adbs};
use memgate_e2e::{Project, Run};
use memgate_model::Verdict;

use crate::android::adb::client::{LONG, block_on, client, with_device};
use crate::android::instrumentation::app::{device, project, run_on};

const BEGINNING: &[u8] = b"JAVA PROFILE 1.0.3\0 and much more";
/// The record that ends a dump.
const END: [u8; 9] = [0x2c, 0, 0, 0, 1, 0, 0, 0, 0];

/// Writes a dump as Android before 10 did, when `am` did not wait for it. The end follows once the beginning
/// has been copied to this file, or never.
struct Slow(Option<PathBuf>);

impl Instrument for Slow {
    fn instrument(&self, _: &StandIn, _: &Instrumentation, _: &mut Terminal) -> u8 {
        1
    }

    fn dump_heap(&self, device: &StandIn, _: &str, _: bool, _: bool, path: &Path) -> Result<(), String> {
        fs::write(path, BEGINNING).unwrap();
        if let Some(copy) = self.0.clone() {
            let (device, path) = (device.clone(), path.to_owned());
            thread::spawn(move || {
                device.wait_until("its beginning is copied", |_| copy.exists());
                let mut file = OpenOptions::new().append(true).open(path).unwrap();
                file.write_all(&END).unwrap();
            });
        }
        Ok(())
    }
}

#[test]
fn a_dump_is_brought_when_it_is_whole_and_one_that_never_is_leaves_nothing() {
    let Some(adb) = adbs().pop() else { return };
    for (ends, limit) in [(true, LONG), (false, Duration::from_secs(2))] {
        let here = tempfile::tempdir().unwrap();
        let to = here.path().join("a.hprof");
        let app = Slow(ends.then(|| to.clone()));
        let (server, phone) = with_device(&adb, StandIn::builder().instrument(app));
        let brought = block_on(async {
            let device = client(&server).choose(None).await.unwrap();
            dump(&device, 71, "00", &to, limit).await
        });
        if ends {
            let whole = [BEGINNING, &END].concat();
            assert_eq!(brought.unwrap(), whole.len() as u64);
            assert_eq!(fs::read(&to).unwrap(), whole);
        } else {
            assert!(matches!(brought, Err(AdbError::Timeout { .. })), "{brought:?}");
            assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0);
        }
        phone.assert_clean();
    }
}

/// Destroyed activities that are still held are found in the app's dump at the end of its tests. Leaks of the
/// same paths have ids that begin like LeakCanary's fingerprints.
#[test]
fn activities_that_an_app_keeps_are_found_in_its_dump_as_leakcanary_finds_them() {
    let Some((adb, (device, _app))) = adbs().pop().zip(device(34)) else { return };
    let leaking = "com.example.tracks.ScreensTest.historyIsKeptByAStatic";
    let chosen = ["--suite", "tracks", "--filter", leaking];
    let (project, run) = with_heap(&adb, &device, "{ at: suite_end, keep: always }", &chosen);
    run.ends_with(1);
    let found = run.test("heap dump at the end of the suite");
    assert_eq!((found.verdict, found.leaks.len()), (Verdict::Fail, 1), "{}\n{run}", found.reason);
    // SHA-1 of `com.example.tracks.HistoryActivitySHOWNjava.util.ArrayList[x]`.
    let history = &found.leaks[0];
    assert_eq!(history.id, HISTORY, "{history:#?}");
    assert!(history.title.contains("com.example.tracks.HistoryActivity (Activity#mDestroyed is true)"));
    assert_eq!((history.holder[0].owner.as_str(), history.holder[0].name.as_str()), (OWNER, "SHOWN"));
    // The agent, which repeated the test, agrees, and the dump adds the retained size.
    let test = run.test(leaking);
    let held = &test.leaks[0].holder[0];
    assert_eq!((held.owner.as_str(), held.name.as_str()), (OWNER, "SHOWN"), "{test:#?}");
    let retain = format!("heap dump at the end of the suite: 1 × {OWNER} retain ");
    assert!(test.reason.contains(&retain), "{}", test.reason);
    let owner = format!(", dominated by class {OWNER}");
    assert!(test.reason.contains(&owner), "{}", test.reason);
    let dump = project.session().join("heap-dumps/0001-tracks.hprof.gz");
    let told = project.memgate(&["heap", "analyze", dump.to_str().unwrap()]);
    told.ends_with(1);
    assert!(told.stdout.contains("static HistoryActivity.SHOWN"), "{told}");
    device.assert_clean();
}

#[test]
fn the_first_failed_test_of_an_app_is_dumped() {
    let Some((adb, (device, _app))) = adbs().pop().zip(device(34)) else { return };
    let heap =
        "{ at: test_failed, fail: { bitmaps: 1 GiB, class: { 'com.example.tracks.TileCache$Tile': 100 } } }";
    let (project, run) = with_heap(&adb, &device, heap, &["--suite", "failing"]);
    run.ends_with(1);
    let found = run.test("heap dump at the first failed test");
    assert_eq!(found.verdict, Verdict::Warn, "no tile was ever loaded: {}\n{run}", found.reason);
    let dumps = fs::read_dir(project.session().join("heap-dumps")).unwrap().count();
    assert_eq!(dumps, 0, "nothing is over its limit");
    device.assert_clean();
}

const HISTORY: &str = "h1-5ef15b6d14c22227";
const OWNER: &str = "com.example.tracks.HistoryActivity";

fn with_heap(adb: &Adb, device: &StandIn, heap: &str, chosen: &[&str]) -> (Project, Run) {
    let settings = format!("    timeout: 300s\n    heap: {heap}\n");
    let project = project(&format!("instrumentation-heap-{}", chosen[1]), &settings);
    let run = run_on(adb, device, &project, &[&["run"], chosen].concat());
    (project, run)
}
