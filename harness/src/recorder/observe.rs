//! What is reported of a process while it is recorded, and to whom.

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
    /// How long a listing of descriptors and threads may stand where their numbers are the same.
    /// Zero: they are listed at each boundary.
    pub listing_stands: Duration,
    /// Version of memgate, for the streams written here.
    pub version: String,
}

/// Takes part in everything that is recorded.
pub trait Observe: Send + Sync + 'static {
    /// A process has begun to record. Called on the thread that follows it and nothing else.
    fn started(&self, process: &Process) -> Box<dyn Follow>;
}

/// Follows one process, on a thread of its own.
pub trait Follow: Send {
    /// The next frame of the stream. The sample of a boundary comes right after the boundary.
    fn frame(&mut self, frame: Frame, t_ns: u64);

    /// The guest stands at this boundary, whose frame was just delivered: its answer.
    fn orders(&mut self, _boundary: &Boundary) -> Reply {
        Reply::default()
    }

    /// Do the names of descriptors and threads matter at this boundary, where there are as many as before? They may be
    /// others.
    fn compares_names(&self, boundary: &Boundary) -> bool {
        boundary.iteration > 0
    }

    /// A copy of the process stands still: whose holders are to be searched in it.
    fn wanted(&self) -> Wanted {
        Wanted::default()
    }

    /// No frame follows.
    fn ended(&mut self, end: &ProcessEnd);
}

/// Names a process within one recorder. Process ids are used again, keys are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessKey(pub(crate) u64);

/// A process that records.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its name here.
    pub key: ProcessKey,
    /// Its stream.
    pub file: PathBuf,
    /// Its first frame.
    pub hello: Hello,
    /// The environment it was started with, for memory only. `None` where it cannot be read.
    pub environ: Option<Vec<(OsString, OsString)>>,
    /// Whether `/proc` shows it: if not (another process namespace, already gone), there are no
    /// samples.
    pub visible: bool,
}

/// How recording a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessEnd {
    /// How.
    pub how: End,
    /// What was wrong with the stream. Everything before it was delivered.
    pub damage: Option<String>,
    /// Frames delivered from the guest's stream.
    pub frames: u64,
    /// Frames of unknown types that were passed over.
    pub unknown_frames: u64,
    /// The live counters as the guest left them.
    pub counters: Option<Counters>,
}

/// What ended the recording of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The stream ends with a goodbye.
    Closed,
    /// The agent stopped recording; its last frame may say why.
    Stopped,
    /// The spool could not grow any more.
    Full,
    /// The process is gone without a goodbye.
    Died,
    /// The recorder stopped, or gave up on a damaged stream, while the process still ran.
    Abandoned,
}

/// What a recorder did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Processes that said hello.
    pub processes: u64,
    /// What could not be recorded, each with its file.
    pub problems: Vec<String>,
}
