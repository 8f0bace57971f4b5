//! A process as seen by all threads of the recorder.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

use memgate_map::{Bell, ControlPage};
use memgate_wire::spool::{self, offset};
use memgate_wire::{Counters, OsSample, handshake};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::proc_fs;

/// Suffix of spools that the harness writes for a process without an agent.
pub(crate) const SYNTHESIZED: &str = "-spoken.mgf";

/// A process as seen by other threads.
pub(super) struct Tracked {
    pub(super) page: ControlPage,
    /// Ends the wait of the thread that follows the process.
    pub(super) bell: Bell,
    pub(super) pid: u32,
    /// Whether `/proc/PID` is this process.
    pub(super) visible: bool,
    /// `None` if the process is this one, or if the system has no pidfds or forbids them.
    pub(super) pidfd: Option<OwnedFd>,
    pub(super) died: AtomicBool,
    pub(super) stopping: AtomicBool,
    pub(super) captures: Mutex<Vec<mpsc::Sender<OsSample>>>,
}

/// Whether we write this spool for a process that cannot; it is not mapped there.
pub(super) fn is_spoken_for(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SYNTHESIZED))
}

impl Tracked {
    /// Tells the guest that a harness is present. From now on it waits for us at boundaries.
    pub(super) fn attach(page: ControlPage, path: &Path, pid: u32) -> io::Result<Self> {
        handshake::attach(&page)?;
        // The pidfd is opened before the check, so that the number cannot be reused in between.
        let handle = pid.try_into().ok().and_then(Pid::from_raw);
        let pidfd = handle.filter(|_| pid != std::process::id());
        let pidfd = pidfd.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let visible = pid != std::process::id() && (proc_fs::has_mapped(pid, path) || is_spoken_for(path));
        Ok(Self {
            page,
            bell: Bell::default(),
            pid,
            visible,
            pidfd: pidfd.filter(|_| visible),
            died: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            captures: Mutex::default(),
        })
    }

    pub(super) const fn pidfd(&self) -> Option<&OwnedFd> {
        self.pidfd.as_ref()
    }

    pub(super) fn process_died(&self) {
        self.died.store(true, Ordering::Release);
        self.ring();
    }

    pub(super) fn recorder_stops(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ring();
    }

    pub(super) fn ask(&self, answer: mpsc::Sender<OsSample>) {
        self.captures.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        self.ring();
    }

    pub(super) fn kill(&self) -> bool {
        self.pidfd.as_ref().is_some_and(|pidfd| pidfd_send_signal(pidfd, Signal::KILL).is_ok())
    }

    fn ring(&self) {
        // If the page is gone, the other thread's wait ends anyway.
        drop(self.page.ring(&self.bell, offset::BOUNDARY));
    }

    /// Whether the process is known to have ended.
    pub(super) fn is_dead(&self) -> bool {
        let by_pidfd = |pidfd| {
            let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
            matches!(poll(&mut fds, Some(&rustix::event::Timespec::default())), Ok(1..))
        };
        self.died.load(Ordering::Acquire) || self.pidfd.as_ref().is_some_and(by_pidfd)
    }

    pub(super) fn counters(&self) -> io::Result<Counters> {
        let mut page = [0; spool::CONTROL_BYTES];
        self.page.file().read_exact_at(&mut page, 0)?;
        let [allocations, frees, allocated_bytes, freed_bytes] = spool::live_counters(&page);
        Ok(Counters { allocations, frees, allocated_bytes, freed_bytes, ..Counters::default() })
    }

    /// Frees the guest permanently: it no longer waits at boundaries.
    pub(super) fn detach(&self) {
        // If the page is gone, no guest waits on it.
        drop(handshake::detach(&self.page));
    }
}
