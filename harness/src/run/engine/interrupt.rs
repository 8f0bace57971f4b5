//! SIGINT, SIGTERM and SIGHUP (the terminal is gone) as events to wait for. Once listened to, they no longer end
//! memgate by themselves.

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
    /// Whether the user has been told that the tests are being stopped.
    told: Arc<AtomicBool>,
    /// Never awaited. Listening to it turns a write beyond the file size limit into an error to report, instead of the
    /// end of memgate.
    _file_size: Signal,
    /// Never awaited. memgate may have been started with SIGCHLD ignored; then nobody could wait for a process.
    _child: Signal,
}

/// SIGXFSZ. Rust keeps its default action: it ends the process.
const FILE_SIZE: i32 = rustix::process::Signal::XFSZ.as_raw();

impl Interrupts {
    /// Begins to listen. Must be called inside the runtime.
    pub(in crate::run) fn listen() -> Result<Self, ExpectedError> {
        Self::telling(Arc::default())
    }

    /// For one more of several parallel runs.
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
            _child: listen(SignalKind::child())?,
        })
    }

    /// Whether this is the first of several parallel runs to tell the user.
    pub(in crate::run) fn is_first_to_tell(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    /// Waits for the next signal. May be cancelled.
    pub(in crate::run) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
