//! SIGINT, SIGTERM and SIGHUP (the terminal is gone), as something to wait for. From the first run
//! on they no longer end memgate by themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::ExpectedError;

/// The signals.
#[derive(Debug)]
pub(in crate::run) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    /// Was the user told that the tests are being stopped?
    told: Arc<AtomicBool>,
    /// Not waited for: a write beyond the limit on the size of files is an error to tell, not the
    /// end of the run.
    _file_size: Signal,
}

/// SIGXFSZ, which Rust leaves to the system: it ends the process.
const FILE_SIZE: i32 = rustix::process::Signal::XFSZ.as_raw();

impl Interrupts {
    /// Begins to listen. Must be called inside the runtime.
    pub(in crate::run) fn listen() -> Result<Self, ExpectedError> {
        Self::telling(Arc::default())
    }

    /// For one more of several runs at once.
    pub(in crate::run) fn listen_too(&self) -> Result<Self, ExpectedError> {
        Self::telling(Arc::clone(&self.told))
    }

    fn telling(told: Arc<AtomicBool>) -> Result<Self, ExpectedError> {
        let listen = |kind| {
            signal(kind)
                .map_err(|why| ExpectedError::machinery(format!("cannot listen for signals: {why}"), ""))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            told,
            _file_size: listen(SignalKind::from_raw(FILE_SIZE))?,
        })
    }

    /// Is it the first of several runs at once that tells the user?
    pub(in crate::run) fn is_first_to_tell(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    /// Waits for the next one. May be cancelled.
    pub(in crate::run) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
