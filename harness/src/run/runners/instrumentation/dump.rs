//! A heap dump of a test that leaks, taken while the app waits after its last repetition: the process ends with the
//! run. After the app has ended, the dump is trimmed if requested. The untrimmed dump is then removed, even after a
//! failure.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use memgate_hprof::{Packed, TrimError};
use memgate_wire::{Boundary, BoundaryKind};

use super::on_device::{OnDevice, WAIT_FOR_ORDERS};
use crate::device::heap_dump;
use crate::device::socket::Held;
use crate::exit::{ExpectedError, failed_to};
use crate::output::Console;
use crate::run::runners::java::Last;
use crate::session::Session;

/// Folder in the session.
const FOLDER: &str = "heap-dumps";
/// The app needs the reply while it still waits. Otherwise it goes on without orders.
pub(super) const LIMIT: Duration = WAIT_FOR_ORDERS.saturating_sub(Duration::from_secs(5));

/// A dump that is taken when its test is seen to leak.
pub(super) struct Dump {
    test: String,
    /// The dump as the device wrote it.
    path: PathBuf,
    trimmed: bool,
    told: Arc<Mutex<Option<Result<u64, String>>>>,
}

impl Dump {
    /// Chooses its path.
    pub(super) fn of(session: &Session, test: &str, trimmed: bool) -> Result<Self, ExpectedError> {
        let path = session.next_file(FOLDER, (test, 200), "hprof")?;
        Ok(Self { test: test.to_owned(), path, trimmed, told: Arc::default() })
    }

    /// Takes the dump while the app waits: once, when the test leaks.
    pub(super) fn order(&self, suite: &mut OnDevice<'_>, last: Arc<Last>) -> Held {
        let (device, nonce) = (suite.device.clone(), suite.delivery.nonce().to_owned());
        suite.delivery.note(heap_dump::remote(&nonce));
        let (path, told, begun) = (self.path.clone(), Arc::clone(&self.told), AtomicBool::new(false));
        Arc::new(move |pid, boundary: &Boundary| -> BoxFuture<'static, ()> {
            let due = boundary.kind == BoundaryKind::TestEnd && last.leaks.load(Ordering::Acquire);
            if !due || begun.swap(true, Ordering::AcqRel) {
                return Box::pin(std::future::ready(()));
            }
            let (device, nonce) = (device.clone(), nonce.clone());
            let (path, told) = (path.clone(), Arc::clone(&told));
            Box::pin(async move {
                let dumped = heap_dump::dump(&device, pid, &nonce, &path, LIMIT).await;
                let dumped = dumped.map_err(|why| failed_to(&why));
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(dumped);
            })
        })
    }

    /// Trims the dump if requested, and reports the result.
    pub(super) async fn finish(self, console: &Console) {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).take();
        let kept = match told {
            None => return,
            Some(Ok(_bytes)) if self.trimmed => {
                let (raw, trimmed) = (self.path.clone(), self.path.with_extension("hprof.gz"));
                let work = tokio::task::spawn_blocking(move || trim(&raw, &trimmed).map(|()| trimmed));
                work.await.unwrap_or_else(|_| Err("failed to trim it: a defect of memgate's".to_owned()))
            }
            Some(Ok(_bytes)) => Ok(self.path.clone()),
            Some(Err(why)) => Err(why),
        };
        match kept {
            Ok(path) => console.line(&format!("heap dump of {}: {}", self.test, path.display())),
            Err(why) => console.warning(&format!("there is no heap dump of {}: {why}", self.test)),
        }
    }
}

impl Drop for Dump {
    /// Removes the untrimmed dump, also if the run stops before the dump is trimmed.
    fn drop(&mut self) {
        if self.trimmed {
            // The file may never have existed.
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Trims the dump `raw` into the compressed file `to`. An incomplete file is removed.
fn trim(raw: &Path, to: &Path) -> Result<(), String> {
    let trimmed = || -> Result<u64, TrimError> {
        let from = BufReader::new(File::open(raw)?);
        let mut packed = Packed::gzip(BufWriter::new(File::create(to)?));
        let zeroed = memgate_hprof::trim(from, &mut packed)?;
        packed.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(zeroed)
    };
    trimmed().map(drop).map_err(|why| {
        let left = match fs::remove_file(to) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => format!("; {} stays: {why}", to.display()),
            _ => String::new(),
        };
        format!("failed to trim {}: {why}{left}", raw.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_trimmed_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (raw, to) = (folder.path().join("a.hprof"), folder.path().join("a.hprof.gz"));
        fs::write(&raw, "JAVA PROFILE 1.0.3\0 and no more").unwrap();
        let why = trim(&raw, &to).unwrap_err();
        assert!(why.starts_with("failed to trim /") && !to.exists(), "{why}");
    }
}
