//! Follows the spools of tested processes while they are written.
//!
//! Data flow: a watcher thread sees a spool appear in the frames folder (inotify) and maps its control page, which
//! tells the guest that a harness is present. A thread of its own then follows the spool and waits on the guest's
//! boundary word. At a boundary the guest stops: the thread samples `/proc`, delivers the frames up to the boundary and
//! the sample to its [`Follow`], asks it for orders, and lets the guest go on. Between boundaries it samples at the
//! configured interval. The samples are first written to `NAME.os.mgf`, so that reading the folder later gives the same
//! frames.
//!
//! If asked, the thread also searches a sleeping copy of the process for what holds its blocks ([`copy`]), and writes
//! the holders next to the stream.
//!
//! A process's death is reported by its pidfd, which the watcher polls together with the folder. This module judges
//! nothing.

mod copy;
mod observe;
mod process;
mod sampler;
mod shared;
mod tracked;
mod watcher;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use memgate_wire::OsSample;
use rustix::event::{EventfdFlags, eventfd};

pub use copy::Wanted;
pub use observe::{End, Follow, Observe, Options, Process, ProcessEnd, ProcessKey, Summary};
pub(crate) use sampler::now_ns;
use shared::Shared;
pub(crate) use shared::lock;
pub(crate) use tracked::SYNTHESIZED;

/// How long [`Recorder::capture`] waits for the thread that follows the process.
const CAPTURE_WAIT: Duration = Duration::from_secs(2);

/// Why a folder could not be watched.
#[derive(Debug, thiserror::Error)]
pub enum RecorderError {
    /// The system refused.
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

impl Recorder {
    /// Begins to watch `frames`: processes started after this returns are followed. Existing spools belong to an
    /// earlier recording and are left alone.
    ///
    /// # Errors
    /// When the folder cannot be watched.
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

    /// Samples a process now, with the position of each of its threads. The sample is also recorded as a frame.
    ///
    /// `None`: the process has ended, or `/proc` does not show it.
    #[must_use]
    pub fn capture(&self, key: ProcessKey) -> Option<OsSample> {
        let tracked = self.shared.tracked(key)?;
        let (answer, sample) = mpsc::channel();
        tracked.ask(answer);
        sample.recv_timeout(CAPTURE_WAIT).ok()
    }

    /// Kills a process. `false`: it has ended, or `/proc` does not show it.
    #[must_use]
    pub fn kill(&self, key: ProcessKey) -> bool {
        self.shared.tracked(key).is_some_and(|tracked| tracked.kill())
    }

    /// Ends the recording: everything written so far is delivered, no guest waits any more, all threads are joined.
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

#[cfg(test)]
mod tests;
