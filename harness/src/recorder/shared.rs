//! State that all threads of a recorder share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fd::OwnedFd;

use super::observe::{Observe, Options, ProcessKey, Summary};
use super::tracked::Tracked;

/// State that all threads of a recorder share.
pub(super) struct Shared {
    pub(super) folder: PathBuf,
    pub(super) options: Options,
    pub(super) observe: Arc<dyn Observe>,
    /// Readable when the watcher must end.
    pub(super) stop: OwnedFd,
    pub(super) tracked: Mutex<BTreeMap<ProcessKey, Arc<Tracked>>>,
    pub(super) summary: Mutex<Summary>,
}

impl Shared {
    pub(super) fn problem(&self, text: String) {
        lock(&self.summary).problems.push(text);
    }

    pub(super) fn tracked(&self, key: ProcessKey) -> Option<Arc<Tracked>> {
        lock(&self.tracked).get(&key).cloned()
    }
}

/// Ignores poisoning: data under these locks are never left incomplete.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
