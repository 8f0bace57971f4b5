//! A heap dump of a test that leaks, taken while the app waits behind its last repetition: the process ends with the run.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use memgate_wire::{Boundary, BoundaryKind};

use super::Suite;
use crate::device::heap_dump;
use crate::device::socket::Held;
use crate::exit::ExpectedError;
use crate::output::Console;
use crate::recorder::chain;
use crate::store::Session;

/// Folder in the session.
const FOLDER: &str = "heap-dumps";

/// A dump that is taken when its test is seen to leak.
pub(super) struct Dump {
    test: String,
    path: PathBuf,
    told: Arc<Mutex<Option<Result<u64, String>>>>,
}

impl Dump {
    /// Where it will lie.
    pub(super) fn of(session: &Session, test: &str) -> Result<Self, ExpectedError> {
        let folder = session.folder().join(FOLDER);
        fs::create_dir_all(&folder).map_err(ExpectedError::file("create", &folder))?;
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let name: String = test.chars().map(plain).take(200).collect();
        let number = fs::read_dir(&folder).map_err(ExpectedError::file("list", &folder))?.count() + 1;
        let path = folder.join(format!("{number:04}-{name}.hprof"));
        Ok(Self { test: test.to_owned(), path, told: Arc::default() })
    }

    /// What is done while the app waits: once, when `leaks`.
    pub(super) fn order(&self, suite: &mut Suite<'_>, leaks: Arc<AtomicBool>) -> Held {
        let (device, nonce) = (suite.device.clone(), suite.delivery.nonce().to_owned());
        suite.delivery.note(heap_dump::remote(&nonce));
        let (path, told, begun) = (self.path.clone(), Arc::clone(&self.told), AtomicBool::new(false));
        Arc::new(move |pid, boundary: &Boundary| -> BoxFuture<'static, ()> {
            let due = boundary.kind == BoundaryKind::TestEnd && leaks.load(Ordering::Acquire);
            if !due || begun.swap(true, Ordering::AcqRel) {
                return Box::pin(std::future::ready(()));
            }
            let (device, nonce) = (device.clone(), nonce.clone());
            let (path, told) = (path.clone(), Arc::clone(&told));
            Box::pin(async move {
                let dumped = heap_dump::dump(&device, pid, &nonce, &path).await;
                let dumped = dumped.map_err(|why| format!("failed to {}", chain(&why)));
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(dumped);
            })
        })
    }

    /// Tells what came of it.
    pub(super) fn tell(&self, console: &Console) {
        match &*self.told.lock().unwrap_or_else(PoisonError::into_inner) {
            None => {}
            Some(Ok(_bytes)) => {
                console.line(&format!("heap dump of {}: {}", self.test, self.path.display()));
            }
            Some(Err(why)) => console.warning(&format!("there is no heap dump of {}: {why}", self.test)),
        }
    }
}
