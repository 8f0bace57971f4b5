//! What `am instrument -r` prints of a test run, and what it means.
//!
//! Data flow: bytes as they arrive → [`RawStream`], which takes any cut of the stream and keeps only
//! what is not finished → [`Item`]s → [`InstrumentationRun`], which follows the tests → at the end
//! of the stream, [`Ending`] says how the run ended, and each test its [`Status`].
//!
//! The exit status of `am` and of adb says nothing (0 after a crash, 0 when the cable was pulled),
//! so nobody asks for it here. A run counts only when the system reported its end
//! (`INSTRUMENTATION_CODE: -1`), no fatal error of the runner hides behind that, every test that
//! was announced began and ended, and there was one at all. Anything else is an [`Ending`] of its
//! own, none of which is a pass.

mod raw;
mod run;

use std::collections::BTreeMap;

pub use raw::RawStream;
pub use run::{Ending, InstrumentationRun, Status, TestResult};

/// Values of a status or result, by key; of a key that came twice the last one.
pub type Bundle = BTreeMap<String, String>;

/// The most that is kept of one bundle: a message to the system cannot be larger than 1 MB.
pub const LARGEST_BUNDLE: usize = 4 << 20;

/// One thing that was reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A test began or ended, or something is reported of it.
    Status {
        /// 1 start, 2 in progress, 0 passed, -1 error, -2 failure, -3 ignored, -4 assumption
        /// failed. `None`: not readable, since something else was printed into the line.
        code: Option<i64>,
        /// What is reported.
        values: Bundle,
    },
    /// The system says that the instrumentation finished.
    Finished {
        /// -1: the runner reached its end. 0: it crashed. `None`: not readable.
        code: Option<i64>,
        /// Results of the run.
        values: Bundle,
    },
    /// It could not be started (`INSTRUMENTATION_FAILED`).
    Failed(String),
    /// The system itself went down (`INSTRUMENTATION_ABORTED`), or gave it up.
    Aborted(String),
    /// What `am` says of its own failure (`onError`).
    OnError(String),
    /// A line that belongs to nothing: usage text, warnings of the shell.
    Other(String),
}
