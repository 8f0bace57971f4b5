//! Follows the spools that tested processes write, while they write them.
//!
//! Data flow: a watcher thread sees a spool appear in the frames folder (inotify), maps its control
//! page, which tells the guest that somebody is there, and gives it to a thread of its own. That
//! thread waits on the guest's boundary word. At a boundary the guest stands still: the thread
//! samples `/proc`, delivers the frames up to the boundary and the sample to its [`Follow`], asks
//! it for orders, and lets the guest go on. Between boundaries it samples at the chosen interval.
//! The samples go to `NAME.os.mgf` first, so that reading the folder later gives what was delivered
//! live.
//!
//! A process's death is told by its pidfd, which the watcher polls together with the folder.
//! Nothing here judges.

mod process;
mod sampler;
mod watcher;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use memgate_wire::{Boundary, Counters, Frame, Hello, OsSample};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

pub(crate) use process::MIN_INTERVAL;
pub(crate) use sampler::{Occasion, Sampler, now_ns};

use process::Tracked;

/// What the name of a spool ends in that the harness writes for a process that holds no agent.
pub(crate) const SPOKEN: &str = "-spoken.mgf";
/// How long [`Recorder::capture`] waits for the thread that follows the process.
const CAPTURE_WAIT: Duration = Duration::from_secs(2);

/// How processes are recorded.
#[derive(Debug, Clone)]
pub struct Options {
    /// Time between two samples of `/proc`, at least a millisecond.
    pub interval: Duration,
    /// How long a guest waits for us at a boundary.
    pub wait: Duration,
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
    /// The next frame of the stream. The sample of a boundary comes right behind the boundary.
    fn frame(&mut self, frame: Frame, t_ns: u64);

    /// The guest stands at this boundary, whose frame was just delivered: bits of
    /// [`memgate_wire::spool::order`].
    fn orders(&mut self, _boundary: &Boundary) -> u32 {
        0
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

/// Why a folder could not be watched.
#[derive(Debug, thiserror::Error)]
pub enum RecorderError {
    /// The system refuses.
    #[error("watch {}", folder.display())]
    Watch {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No thread could be started.
    #[error("start the recorder's thread")]
    Thread(#[source] io::Error),
}

/// Records every process that writes a spool into one folder.
pub struct Recorder {
    shared: Arc<Shared>,
    watcher: Option<JoinHandle<()>>,
}

/// What all threads of a recorder share.
struct Shared {
    folder: PathBuf,
    options: Options,
    observe: Arc<dyn Observe>,
    /// Readable: the watcher shall end.
    stop: OwnedFd,
    tracked: Mutex<BTreeMap<ProcessKey, Arc<Tracked>>>,
    summary: Mutex<Summary>,
}

impl Recorder {
    /// Begins to watch `frames`: whatever is started after this returns is followed. Spools that
    /// are there already belong to an earlier recording and are left alone.
    ///
    /// # Errors
    /// The folder cannot be watched.
    pub fn start(frames: &Path, options: Options, observe: Arc<dyn Observe>) -> Result<Self, RecorderError> {
        let watch =
            |source: rustix::io::Errno| RecorderError::Watch { folder: frames.into(), source: source.into() };
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(watch)?;
        let shared = Arc::new(Shared {
            folder: frames.into(),
            options,
            observe,
            stop,
            tracked: Mutex::default(),
            summary: Mutex::default(),
        });
        let watcher = watcher::start(Arc::clone(&shared)).map_err(watch)?.map_err(RecorderError::Thread)?;
        Ok(Self { shared, watcher: Some(watcher) })
    }

    /// Samples a process now, with the place where each of its threads stands. The sample is also
    /// recorded as a frame.
    ///
    /// `None`: the process is gone, or `/proc` does not show it.
    #[must_use]
    pub fn capture(&self, key: ProcessKey) -> Option<OsSample> {
        let tracked = self.shared.tracked(key)?;
        let (answer, sample) = mpsc::channel();
        tracked.ask(answer);
        sample.recv_timeout(CAPTURE_WAIT).ok()
    }

    /// Kills a process. `false`: it is gone, or `/proc` does not show it.
    #[must_use]
    pub fn kill(&self, key: ProcessKey) -> bool {
        self.shared.tracked(key).is_some_and(|tracked| tracked.kill())
    }

    /// Ends the recording: what is written by now is delivered, no guest waits any more, all
    /// threads are joined.
    #[must_use]
    pub fn stop(mut self) -> Summary {
        self.end();
        std::mem::take(&mut *lock(&self.shared.summary))
    }

    fn end(&mut self) {
        let Some(watcher) = self.watcher.take() else { return };
        #[expect(clippy::let_underscore_must_use, reason = "one write to an eventfd cannot overflow it")]
        let _ = rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes());
        if watcher.join().is_err() {
            self.shared.problem("the recorder's own thread ended by a defect".to_owned());
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn problem(&self, text: String) {
        lock(&self.summary).problems.push(text);
    }

    fn tracked(&self, key: ProcessKey) -> Option<Arc<Tracked>> {
        lock(&self.tracked).get(&key).cloned()
    }
}

/// Nothing that is kept under these locks can be left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
