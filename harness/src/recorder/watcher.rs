//! The thread that notices new spools and dead processes.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use memgate_map::ControlPage;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::inotify;
use rustix::io::Errno;

use super::observe::ProcessKey;
use super::process;
use super::shared::{Shared, lock};
use super::tracked::Tracked;
use crate::exit::chain;
use crate::reading::stream::{is_stream_name, streams_in};

struct Watcher {
    shared: Arc<Shared>,
    folder: OwnedFd,
    /// Known names: after an overflow of the event queue, the folder is listed again.
    seen: BTreeSet<OsString>,
    threads: Vec<JoinHandle<()>>,
    /// Processes not known to be dead.
    alive: Vec<Arc<Tracked>>,
}

/// Starts the thread. When this returns, the folder is watched and its existing files are known.
pub(super) fn start(shared: Arc<Shared>) -> Result<io::Result<JoinHandle<()>>, Errno> {
    let folder = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    inotify::add_watch(
        &folder,
        &shared.folder,
        inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::ONLYDIR,
    )?;
    let mut watcher =
        Watcher { shared, folder, seen: BTreeSet::new(), threads: Vec::new(), alive: Vec::new() };
    // These are of an earlier recording. No process of ours may start between this line and our return.
    watcher.seen.extend(watcher.names());
    Ok(thread::Builder::new().name("memgate-watch".into()).spawn(move || watcher.run()))
}

impl Watcher {
    fn run(&mut self) {
        while !self.wait() {
            self.read_events();
            self.join_finished();
        }
        // A spool may have appeared since: nothing written so far may be lost.
        self.read_events();
        self.list_folder();
        for tracked in lock(&self.shared.tracked).values() {
            tracked.recorder_stops();
        }
        for thread in std::mem::take(&mut self.threads) {
            self.join(thread);
        }
    }

    /// Waits for an event; `true`: the recorder must stop.
    fn wait(&mut self) -> bool {
        let mut fds =
            vec![PollFd::new(&self.shared.stop, PollFlags::IN), PollFd::new(&self.folder, PollFlags::IN)];
        fds.extend(self.alive.iter().filter_map(|t| Some(PollFd::new(t.pidfd()?, PollFlags::IN))));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => {
                self.shared.problem(format!("{}: watch it: {e}", self.shared.folder.display()));
                return true;
            }
        }
        let happened: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut died = happened.iter().skip(2);
        self.alive.retain(|tracked| {
            let died = died.next().is_some_and(|died| *died);
            if died {
                tracked.process_died();
            }
            !died
        });
        happened.first() == Some(&true)
    }

    fn read_events(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut names = Vec::new();
        let mut overflow = false;
        let mut reader = inotify::Reader::new(self.folder.as_fd(), &mut buffer);
        while let Ok(event) = reader.next() {
            overflow |= event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW);
            names.extend(event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_os_string()));
        }
        for name in names {
            self.appeared(&name);
        }
        if overflow {
            self.list_folder();
        }
    }

    fn list_folder(&mut self) {
        for name in self.names() {
            self.appeared(&name);
        }
    }

    fn names(&self) -> Vec<OsString> {
        let streams = streams_in(&self.shared.folder).unwrap_or_else(|e| {
            self.shared.problem(format!("{}: list it: {e}", self.shared.folder.display()));
            Vec::new()
        });
        streams.iter().filter_map(|path| Some(path.file_name()?.to_os_string())).collect()
    }

    fn appeared(&mut self, name: &OsStr) {
        if !is_stream_name(Path::new(name)) || self.seen.contains(name) {
            return;
        }
        let key = ProcessKey(self.seen.len() as u64);
        self.seen.insert(name.to_os_string());
        let path = self.shared.folder.join(name);
        if let Err(text) = self.follow(key, &path) {
            self.shared.problem(format!("{}: {text}", path.display()));
        }
    }

    fn follow(&mut self, key: ProcessKey, path: &Path) -> Result<(), String> {
        let file = File::options().read(true).write(true).open(path).map_err(|e| chain(&e))?;
        let Some(pid) = process::writer_of(&file).map_err(|e| chain(&e))? else {
            // A bare stream that another program wrote: there is no process to follow.
            return Ok(());
        };
        let page = ControlPage::map(file).map_err(|e| chain(&e))?;
        let tracked = Arc::new(Tracked::attach(page, path, pid).map_err(|e| chain(&e))?);
        if tracked.pidfd().is_some() {
            self.alive.push(Arc::clone(&tracked));
        }
        lock(&self.shared.tracked).insert(key, Arc::clone(&tracked));
        let shared = Arc::clone(&self.shared);
        let path = path.to_path_buf();
        let thread = thread::Builder::new()
            .name(format!("memgate-{pid}"))
            .spawn(move || process::follow(&shared, key, &tracked, &path))
            .map_err(|e| chain(&e))?;
        self.threads.push(thread);
        Ok(())
    }

    fn join_finished(&mut self) {
        let (finished, running) =
            std::mem::take(&mut self.threads).into_iter().partition(JoinHandle::is_finished);
        self.threads = running;
        let finished: Vec<_> = finished;
        for thread in finished {
            self.join(thread);
        }
    }

    fn join(&self, thread: JoinHandle<()>) {
        let name = thread.thread().name().unwrap_or_default().to_owned();
        if thread.join().is_err() {
            self.shared.problem(format!("{name}: the thread that followed this process ended by a defect"));
        }
    }
}
