//! SIGINT, SIGTERM and SIGHUP (the terminal is gone), as something to wait for. From the first run on they no longer end memgate by themselves.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::ExpectedError;

/// The signals.
#[derive(Debug)]
pub(super) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Interrupts {
    /// Begins to listen. Must be called inside the runtime.
    pub(super) fn listen() -> Result<Self, ExpectedError> {
        let listen = |kind| {
            signal(kind).map_err(|why| ExpectedError::Machinery {
                what: format!("cannot listen for signals: {why}"),
                hint: String::new(),
            })
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one. May be cancelled.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
