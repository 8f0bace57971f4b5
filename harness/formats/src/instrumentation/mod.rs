//! Parses and interprets the output of a test run of `am instrument -r`.
//!
//! Data flow: bytes as they arrive → [`RawStream`], which accepts any split of the stream and keeps only unfinished
//! parts → [`Item`]s → [`InstrumentationRun`], which follows the tests → at the end of the stream, [`Ending`] says
//! how the run ended, and each test has its [`Status`].
//!
//! The exit status of `am` and of adb is not used: it is 0 even after a crash, or after the cable was pulled. A run
//! counts only if all of this holds: the system reported its end (`INSTRUMENTATION_CODE: -1`), the runner reported no
//! fatal error, every announced test began and ended, and there was at least one. Every other result is a separate
//! [`Ending`], and none of these is a pass.

mod raw;
mod run;

use std::collections::BTreeMap;

pub use raw::RawStream;
pub use run::{Ending, InstrumentationRun, Status, TestResult};

/// Values of a status or result, by key; the last value counts if a key is repeated.
pub type Bundle = BTreeMap<String, String>;

/// Maximum size of one bundle: a message to the system cannot be larger than 1 MB.
pub const LARGEST_BUNDLE: usize = 4 << 20;

/// One reported item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A test began or ended, or the runner reports something about it.
    Status {
        /// 1 start, 2 in progress, 0 passed, -1 error, -2 failure, -3 ignored, -4 assumption failed. `None`: not
        /// readable, because other output was printed into the line.
        code: Option<i64>,
        /// The reported values.
        values: Bundle,
    },
    /// The system reports that the instrumentation finished.
    Finished {
        /// -1: the runner reached its end. 0: it crashed. `None`: not readable.
        code: Option<i64>,
        /// Results of the run.
        values: Bundle,
    },
    /// The run could not be started (`INSTRUMENTATION_FAILED`).
    Failed(String),
    /// The system itself crashed (`INSTRUMENTATION_ABORTED`), or gave up the run.
    Aborted(String),
    /// The error that `am` itself reports (`onError`).
    OnError(String),
    /// A line outside the protocol: usage text, warnings of the shell.
    Other(String),
}
