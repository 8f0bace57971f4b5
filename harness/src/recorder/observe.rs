//! The events of a recorded process, and who receives them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use memgate_wire::reply::Reply;
use memgate_wire::{Boundary, Counters, Frame, Hello};

use super::copy::Wanted;

/// How processes are recorded.
#[derive(Debug, Clone)]
pub struct Options {
    /// Time between two samples of `/proc`, at least a millisecond.
    pub interval: Duration,
    /// How long a guest waits for us at a boundary.
    pub wait: Duration,
    /// How long a listing of descriptors and threads stays valid while their numbers do not change. Zero: they are
    /// listed at each boundary.
    pub listing_stands: Duration,
    /// Version of memgate, written into our own streams.
    pub version: String,
}

/// Observes all recorded processes.
pub trait Observe: Send + Sync + 'static {
    /// A process has begun to record. Called on the thread that follows only this process.
    fn started(&self, process: &Process) -> Box<dyn Follow>;
}

/// Follows one process, on a thread of its own.
pub trait Follow: Send {
    /// The next frame of the stream. The sample of a boundary follows the boundary directly.
    fn frame(&mut self, frame: Frame, t_ns: u64);

    /// The reply at this boundary, whose frame was just delivered: the guest waits for it.
    fn orders(&mut self, _boundary: &Boundary) -> Reply {
        Reply::default()
    }

    /// Whether the names of descriptors and threads matter at this boundary if there are as many as before: they may be
    /// different ones.
    fn compares_names(&self, boundary: &Boundary) -> bool {
        boundary.iteration > 0
    }

    /// A stopped copy of the process exists: returns the stacks whose holders to search for in it.
    fn wanted(&self) -> Wanted {
        Wanted::default()
    }

    /// The last call: no frame follows.
    fn ended(&mut self, end: &ProcessEnd);
}

/// Identifies a process within one recorder. The system reuses process ids; keys are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessKey(pub(crate) u64);

/// A recorded process.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its key.
    pub key: ProcessKey,
    /// Its stream.
    pub file: PathBuf,
    /// Its first frame.
    pub hello: Hello,
    /// The environment it was started with; kept in memory only. `None` if it cannot be read.
    pub environ: Option<Vec<(OsString, OsString)>>,
    /// Whether `/proc` shows it. If not (another process namespace, already ended), there are no samples.
    pub visible: bool,
}

/// How recording a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessEnd {
    /// The kind of end.
    pub how: End,
    /// The damage of the stream. Everything before it was delivered.
    pub damage: Option<String>,
    /// Frames delivered from the guest's stream.
    pub frames: u64,
    /// Skipped frames of unknown types.
    pub unknown_frames: u64,
    /// The last values of the guest's live counters.
    pub counters: Option<Counters>,
}

/// Why the recording of a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The stream ends with a goodbye.
    Closed,
    /// The agent stopped recording; its last frame may say why.
    Stopped,
    /// The spool could not grow.
    Full,
    /// The process ended without a goodbye.
    Died,
    /// The recorder stopped, or gave up on a damaged stream, while the process still ran.
    Abandoned,
}

/// The result of a recorder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Processes that said hello.
    pub processes: u64,
    /// Recording errors, each with its file.
    pub problems: Vec<String>,
}
