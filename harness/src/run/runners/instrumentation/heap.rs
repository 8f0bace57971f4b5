//! The heap dump that a suite requests (`heap` in memgate.yaml), taken in the run of its tests as they are.
//!
//! Data flow: the app waits at a boundary (the end of the first failed test, or the mark that the agent sets after the
//! last test) → `am dumpheap`, copied into the session → after the run `run/heap.rs` reads it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use memgate_config::{HeapTime, SuiteHeap};
use memgate_model::HeapCheck;
use memgate_wire::{Boundary, BoundaryKind, END_OF_TESTS, Outcome};

use super::dump::LIMIT;
use super::on_device::OnDevice;
use crate::device::heap_dump;
use crate::device::socket::Held;
use crate::exit::{ExpectedError, chain};
use crate::run::engine::{Context, Finished, ran_tests};
use crate::run::heap::{self, Expected};
use crate::session::Session;

/// Folder in the session.
const FOLDER: &str = "heap-dumps";

/// A process, and the size of its dump or why there is none.
type Dumped = Option<(u32, Result<u64, String>)>;

/// The dump of one run.
pub(super) struct SuiteDump {
    at: HeapTime,
    path: PathBuf,
    told: Arc<Mutex<Dumped>>,
}

impl SuiteDump {
    /// Chooses its path.
    pub(super) fn of(session: &Session, suite: &str, heap: &SuiteHeap) -> Result<Self, ExpectedError> {
        let path = session.next_file(FOLDER, (suite, 200), "hprof")?;
        Ok(Self { at: heap.at, path, told: Arc::default() })
    }

    /// Called while the app waits: calls `before`, and takes the dump once it is due.
    pub(super) fn order(&self, suite: &mut OnDevice<'_>, before: Held) -> Held {
        let (device, nonce) = (suite.device.clone(), suite.delivery.nonce().to_owned());
        suite.delivery.note(heap_dump::remote(&nonce));
        let (at, path, told) = (self.at, self.path.clone(), Arc::clone(&self.told));
        Arc::new(move |pid, boundary: &Boundary| -> BoxFuture<'static, ()> {
            let asked = before(pid, boundary);
            if !is_due(at, boundary) || locked(&told).is_some() {
                return asked;
            }
            // The state until the dump exists: no second dump is taken.
            *locked(&told) = Some((pid, Err("did not come before the run ended".to_owned())));
            let (device, nonce, path, told) =
                (device.clone(), nonce.clone(), path.clone(), Arc::clone(&told));
            Box::pin(async move {
                asked.await;
                let dumped = heap_dump::dump(&device, pid, &nonce, &path, LIMIT).await;
                let dumped = dumped.map_err(|why| format!("was not written: failed to {}", chain(&why)));
                *locked(&told) = Some((pid, dumped));
            })
        })
    }

    /// Reads the dump after the run.
    pub(super) fn look(
        self,
        context: &Context<'_>,
        suite: &OnDevice<'_>,
        finished: &[Finished],
    ) -> Result<Vec<HeapCheck>, ExpectedError> {
        let Some(heap) = &suite.planned.suite.heap else { return Ok(Vec::new()) };
        let dumps = match locked(&self.told).take() {
            Some((pid, Ok(_bytes))) => vec![(pid, Ok(self.path.clone()))],
            Some((pid, Err(why))) => vec![(pid, Err((self.path.clone(), why)))],
            None => missing(heap.at, &self.path, finished),
        };
        heap::look_at(context, heap, (&suite.planned.suite.name, &suite.name), dumps).map(|check| vec![check])
    }
}

/// Expected dumps that are missing.
fn missing(at: HeapTime, path: &Path, finished: &[Finished]) -> Vec<Expected> {
    let failed =
        |process: &&Finished| process.record.windows.iter().any(|w| w.outcome == Some(Outcome::Failed));
    let why = "was not written: the app ended before its tests were over";
    finished
        .iter()
        .filter(|process| ran_tests(&process.record))
        .filter(|process| at == HeapTime::SuiteEnd || failed(process))
        .map(|process| (process.hello().pid, Err((path.to_owned(), why.to_owned()))))
        .collect()
}

fn is_due(at: HeapTime, boundary: &Boundary) -> bool {
    match at {
        HeapTime::SuiteEnd => {
            boundary.kind == BoundaryKind::Mark
                && (boundary.suite.as_str(), boundary.test.as_str()) == END_OF_TESTS
        }
        HeapTime::TestFailed => {
            boundary.kind == BoundaryKind::TestEnd && boundary.outcome == Some(Outcome::Failed)
        }
        HeapTime::OutOfMemory | HeapTime::Limit => false,
    }
}

fn locked(told: &Mutex<Dumped>) -> std::sync::MutexGuard<'_, Dumped> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}
