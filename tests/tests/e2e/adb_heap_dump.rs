//! Heap dumps of an app's process: brought when they are whole, and nothing is left of those that
//! never are.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use memgate::device::heap_dump::dump;
use memgate_adb::AdbError;
use memgate_e2e::stand_in::{Instrument, Instrumentation, StandIn, Terminal, adbs};

use crate::adb::{LONG, block_on, client, with_device};

const BEGINNING: &[u8] = b"JAVA PROFILE 1.0.3\0 and much more";
/// The record that ends a dump.
const END: [u8; 9] = [0x2c, 0, 0, 0, 1, 0, 0, 0, 0];

/// Writes a dump as Android did before 10, when `am` did not wait for it: its end comes when what
/// there is was copied to this file. Or never.
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
