//! SIGINT, SIGTERM and SIGHUP (the terminal is gone), as something to wait for. From the first run
//! on they no longer end memgate by themselves.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::ExpectedError;

/// The signals.
#[derive(Debug)]
pub(in crate::run) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    /// Not waited for: a write beyond the limit on the size of files is an error to tell, not the
    /// end of the run.
    _file_size: Signal,
}

/// SIGXFSZ, which Rust leaves to the system: it ends the process.
const FILE_SIZE: i32 = rustix::process::Signal::XFSZ.as_raw();

impl Interrupts {
    /// Begins to listen. Must be called inside the runtime.
    pub(in crate::run) fn listen() -> Result<Self, ExpectedError> {
        let listen = |kind| {
            signal(kind)
                .map_err(|why| ExpectedError::machinery(format!("cannot listen for signals: {why}"), ""))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            _file_size: listen(SignalKind::from_raw(FILE_SIZE))?,
        })
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
