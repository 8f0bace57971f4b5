//! What an app does when its tests run. A test of memgate defines it, with or without a real JVM.

use std::path::Path;

use super::{StandIn, Terminal};

/// Arguments of an `am instrument` call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Instrumentation {
    /// `-r`
    pub raw: bool,
    /// `-m`
    pub proto: bool,
    /// `-w`
    pub wait: bool,
    /// `--no-restart`
    pub no_restart: bool,
    /// `--user`
    pub user: Option<String>,
    /// `-e`, in order.
    pub arguments: Vec<(String, String)>,
    /// The app that contains the tests.
    pub package: String,
    /// The class that runs them.
    pub runner: String,
}

/// The apps of a device.
pub trait Instrument: Send + Sync + 'static {
    /// `am instrument`: writes its stream to the terminal and returns the exit status of `am`. As on a
    /// device, the app continues when the client leaves, until [`Instrument::force_stop`]. The implementation
    /// registers the app's process with [`StandIn::process`].
    fn instrument(&self, device: &StandIn, call: &Instrumentation, terminal: &mut Terminal) -> u8;

    /// `am attach-agent`. As on a device, success does not mean that the agent was loaded.
    ///
    /// # Errors
    /// What `am` prints.
    fn attach_agent(&self, _: &StandIn, process: &str, _path: &str, _options: &str) -> Result<(), String> {
        Err(format!("java.lang.IllegalArgumentException: Unknown process: {process}"))
    }

    /// `am force-stop`; `pm clear` calls it too.
    fn force_stop(&self, _: &StandIn, _package: &str) {}

    /// `am dumpheap`, into a file on this machine.
    ///
    /// # Errors
    /// What `am` prints.
    fn dump_heap(
        &self,
        _: &StandIn,
        process: &str,
        _native: bool,
        _collect: bool,
        _path: &Path,
    ) -> Result<(), String> {
        Err(format!("java.lang.IllegalArgumentException: Unknown process: {process}"))
    }

    /// A command that the device itself does not know; `None` if unknown here too.
    fn command(&self, _: &StandIn, _words: &[String], _: &mut Terminal) -> Option<u8> {
        None
    }
}

/// An app without tests.
#[derive(Debug, Clone, Copy)]
pub struct NoTests;

impl Instrument for NoTests {
    fn instrument(&self, _: &StandIn, call: &Instrumentation, terminal: &mut Terminal) -> u8 {
        let stream =
            "INSTRUMENTATION_RESULT: stream=\n\nTime: 0.001\n\nOK (0 tests)\n\n\nINSTRUMENTATION_CODE: -1\n";
        // A client that has left reads nothing.
        if call.raw && terminal.out(stream.as_bytes()).is_err() { 1 } else { 0 }
    }
}
