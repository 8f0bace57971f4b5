//! One tracked process: the handshake at its boundaries, its samples, its end.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use memgate_map::Woken;
use memgate_wire::handshake;
use memgate_wire::native_holders::NativeCopy;
use memgate_wire::reply::Reply;
use memgate_wire::spool::{Extent, offset, order, state};
use memgate_wire::{Boundary, BoundaryKind, ErrorCode, ErrorFrame, Frame, OsSample};

use super::copy::{self, Copy, Prepared};
use super::observe::{End, Follow, Process, ProcessEnd, ProcessKey};
use super::sampler::{Occasion, Sampler, now_ns};
use super::shared::{Shared, lock};
use super::tracked::{Tracked, is_spoken_for};
use crate::exit::{chain, failed_to};
use crate::proc_fs::{self, MAX_ENTRIES};
use crate::reading::stream::{Reader, StreamError};

/// Minimum interval between samples.
const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// A guest that does not wait at its boundaries does not wake us: its boundaries are read at least this often, whatever
/// the sample interval.
const READ_EVERY: Duration = Duration::from_secs(1);

/// The pid in the control page of a spool; `None`: the file is not a spool.
pub(super) fn writer_of(file: &File) -> io::Result<Option<u32>> {
    let mut start = [0; 64];
    let got = file.read_at(&mut start, 0)?;
    let extent = Extent::of(start.get(..got).unwrap_or_default());
    Ok(extent.end.map(|_| extent.pid))
}

/// Frees the guest, however the thread that follows it ends.
struct Attached<'a>(&'a Tracked);

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.0.detach();
        lock(&self.0.captures).clear();
    }
}

/// The thread of one process, from its attachment to its end.
pub(super) fn follow(shared: &Shared, key: ProcessKey, tracked: &Arc<Tracked>, path: &Path) {
    let attached = Attached(tracked);
    let outcome = Following::new(shared, key, tracked, path).map(|mut following| following.run());
    drop(attached);
    lock(&shared.tracked).remove(&key);
    match outcome {
        Ok(true) => {}
        Ok(false) => shared.problem(format!("{}: it ends before its hello", path.display())),
        Err(e) => shared.problem(chain(&e)),
    }
}

struct Following<'a> {
    shared: &'a Shared,
    key: ProcessKey,
    tracked: &'a Tracked,
    path: &'a Path,
    reader: Reader,
    /// Set after the hello was read.
    guest: Option<Guest>,
    /// The last boundary read, with its time.
    boundary: Option<(Boundary, u64)>,
    /// The last boundary that got a reply.
    answered: u32,
    /// Set when a copy of the process was ordered. `told_copy`: the guest reported the copy.
    prepared: Option<Prepared>,
    told_copy: Option<NativeCopy>,
    /// The search of a copy that was made at this boundary.
    search: Option<(u32, JoinHandle<Vec<Frame>>)>,
    /// The guest reported new descriptors or threads since the last boundary at which it waited.
    handles_came: bool,
    /// Number of tests that ended since then.
    ended: u32,
    /// An error was recorded that `/proc` may not be read.
    unlisted: bool,
}

struct Guest {
    capabilities: Vec<String>,
    follow: Box<dyn Follow>,
    sampler: Option<Sampler>,
}

impl<'a> Following<'a> {
    fn new(
        shared: &'a Shared,
        key: ProcessKey,
        tracked: &'a Tracked,
        path: &'a Path,
    ) -> Result<Self, StreamError> {
        let read = |source| StreamError::Open { path: path.into(), source };
        let reader = Reader::new(tracked.page.file().try_clone().map_err(read)?, path)?;
        Ok(Self {
            shared,
            key,
            tracked,
            path,
            reader,
            guest: None,
            boundary: None,
            answered: 0,
            prepared: None,
            told_copy: None,
            search: None,
            handles_came: false,
            ended: 0,
            unlisted: false,
        })
    }

    /// Follows the process to its end; `false`: it never said hello.
    fn run(&mut self) -> bool {
        let interval = self.shared.options.interval.max(MIN_INTERVAL);
        let mut next_tick = Instant::now() + interval;
        let (how, damage) = loop {
            match self.step(next_tick) {
                Ok(None) => {}
                Ok(Some(how)) => break (how, None),
                Err(e) => break (self.end_without_goodbye(), Some(failed_to(&e))),
            }
            if Instant::now() >= next_tick {
                if let Err(e) = self.deliver() {
                    break (self.end_without_goodbye(), Some(failed_to(&e)));
                }
                self.sample(Occasion::Interval, 0);
                next_tick = Instant::now() + interval;
            }
        };
        self.note_found();
        if self.prepared.take().is_some() {
            let why = "the process no longer waited when it was asked for a copy of itself";
            self.note(copy::not_searched(self.answered, why.to_owned()), now_ns());
        }
        let end = self.reader.end();
        let counters = self.tracked.counters().ok();
        let end =
            ProcessEnd { how, damage, frames: end.frames, unknown_frames: end.unknown_frames, counters };
        match &mut self.guest {
            Some(guest) => guest.follow.ended(&end),
            None => return false,
        }
        true
    }

    /// Handles everything that has happened so far. If there is nothing, waits for an event or the next sample.
    fn step(&mut self, next_tick: Instant) -> Result<Option<End>, StreamError> {
        // Checked first: everything written before is then read below.
        let (dead, stopping) = (self.tracked.is_dead(), self.tracked.stopping.load(Ordering::Acquire));
        let reached = self.word(offset::BOUNDARY)?;
        let recording = !matches!(self.word(offset::STATE)?, state::CLOSED | state::STOPPED | state::FULL);
        if reached != self.answered && !dead && !stopping && recording {
            self.at_boundary(reached)?;
            return Ok(None);
        }
        if dead || stopping || !recording {
            self.deliver()?;
            return Ok(Some(self.end_of(dead)));
        }
        let asked = std::mem::take(&mut *lock(&self.tracked.captures));
        if !asked.is_empty() {
            self.deliver()?;
            self.capture(&asked);
            return Ok(None);
        }
        let timeout = next_tick.saturating_duration_since(Instant::now()).min(READ_EVERY);
        let woken = self.tracked.page.wait(offset::BOUNDARY, self.answered, &self.tracked.bell, timeout);
        match woken.map_err(|e| self.page_error(e))? {
            Woken::Timeout => self.at_interval()?,
            Woken::Page | Woken::Bell => {}
        }
        Ok(None)
    }

    /// The guest waits until this returns (or until it times out).
    fn at_boundary(&mut self, reached: u32) -> Result<(), StreamError> {
        let sample = self.take(Occasion::Boundary);
        self.deliver()?;
        let at = self.boundary.clone().filter(|(boundary, _)| boundary.sequence == reached);
        // The number may be equal although the descriptors are different.
        let (came, ended) = (std::mem::take(&mut self.handles_came), std::mem::take(&mut self.ended));
        // One test may have opened a descriptor, and another test may have closed one.
        let is_end = at.as_ref().is_some_and(|(boundary, _)| boundary.kind == BoundaryKind::TestEnd);
        let others = came || ended > u32::from(is_end);
        let compared = at
            .as_ref()
            .zip(self.guest.as_ref())
            .is_some_and(|((boundary, _), guest)| guest.follow.compares_names(boundary));
        let counts_do = self.shared.options.listing_stands.is_zero() || !others && !compared;
        let sample = if counts_do { sample } else { self.take(Occasion::Changed) };
        if let Some((mut sample, t_ns)) = sample {
            // If the guest timed out and went on, the sample counts as one between boundaries.
            let waits = at.as_ref().is_some_and(|(_, since)| {
                Duration::from_nanos(t_ns.saturating_sub(*since)) < self.shared.options.wait
            });
            sample.boundary = if waits { reached } else { 0 };
            self.record(sample, t_ns);
        } else {
            self.note_unlisted();
        }
        let copy = self.open_copy();
        let reply = match (&at, &mut self.guest) {
            (Some((boundary, _)), Some(guest)) => guest.follow.orders(boundary),
            _ => Reply::default(),
        };
        let reply = self.prepare_copy(reply, reached);
        handshake::acknowledge(&self.tracked.page, reached, &reply).map_err(|e| self.page_error(e))?;
        self.answered = reached;
        if let Some(copy) = copy {
            self.search(copy);
        }
        Ok(())
    }

    /// Searches a copy in another thread: the guest may soon reach its next boundary, and does not wait there as long
    /// as a search may take. (A process makes one copy; a second one would wait here for the first.)
    fn search(&mut self, copy: Copy) {
        self.note_found();
        let Some(wanted) = self.guest.as_ref().map(|guest| guest.follow.wanted()) else { return };
        let boundary = copy.boundary();
        let thread = thread::Builder::new().name("memgate-search".into());
        match thread.spawn(move || copy.search(&wanted)) {
            Ok(search) => self.search = Some((boundary, search)),
            Err(why) => {
                let why = format!("no thread could be started to search: {why}");
                self.note(copy::not_searched(boundary, why), now_ns());
            }
        }
    }

    /// Waits for the end of the search, if there is one, and records what it found.
    fn note_found(&mut self) {
        let Some((boundary, search)) = self.search.take() else { return };
        let found = search.join().unwrap_or_else(|_panic| {
            vec![copy::not_searched(boundary, "memgate itself failed while it searched".to_owned())]
        });
        for frame in found {
            self.note(frame, now_ns());
        }
    }

    /// If the reply orders a copy and a copy is possible, returns that order alone. If none is possible, returns the
    /// reply without that order.
    fn prepare_copy(&mut self, reply: Reply, boundary: u32) -> Reply {
        if !reply.has(order::COPY) {
            return reply;
        }
        let capabilities = self.guest.as_ref().map_or(&[][..], |guest| &guest.capabilities);
        match copy::prepare(self.tracked.pid, self.tracked.visible, capabilities) {
            Ok(prepared) => {
                self.prepared = Some(prepared);
                Reply::of(order::COPY)
            }
            Err(why) => {
                self.note(copy::not_searched(boundary, why), now_ns());
                Reply { bits: reply.bits & !order::COPY, ..reply }
            }
        }
    }

    /// Opens the copy that the guest reported, if any.
    fn open_copy(&mut self) -> Option<Copy> {
        let told = self.told_copy.take()?;
        let boundary = told.boundary;
        let opened = self.prepared.take().map(|prepared| Copy::open(&prepared, told))?;
        match opened {
            Ok(copy) => Some(copy),
            Err(why) => {
                self.note(copy::not_searched(boundary, why), now_ns());
                None
            }
        }
    }

    fn at_interval(&mut self) -> Result<(), StreamError> {
        if self.tracked.visible
            && self.tracked.pidfd.is_none()
            && !is_spoken_for(self.path)
            && !proc_fs::has_mapped(self.tracked.pid, self.path)
        {
            // Only reached if the system has no pidfds.
            self.tracked.died.store(true, Ordering::Release);
        }
        self.deliver()
    }

    /// Delivers every frame that is complete so far.
    fn deliver(&mut self) -> Result<(), StreamError> {
        self.reader.advance()?;
        while let Some((frame, t_ns)) = self.reader.next_frame()? {
            match &frame {
                Frame::Boundary(boundary) => {
                    let ended = boundary.kind == BoundaryKind::TestEnd;
                    self.ended = self.ended.saturating_add(ended.into());
                    self.boundary = Some((boundary.clone(), t_ns));
                }
                Frame::NativeCopy(copy) => self.told_copy = Some(copy.clone()),
                _ => {}
            }
            self.handles_came |= matches!(frame, Frame::Handles(_));
            if self.guest.is_none() {
                let Frame::Hello(hello) = &frame else { continue };
                self.guest = Some(self.introduce(hello.clone()));
            }
            if let Some(guest) = &mut self.guest {
                guest.follow.frame(frame, t_ns);
            }
        }
        Ok(())
    }

    fn introduce(&self, hello: memgate_wire::Hello) -> Guest {
        let Tracked { pid, visible, .. } = *self.tracked;
        lock(&self.shared.summary).processes += 1;
        let sampler = visible.then(|| Sampler::create(self.path, pid, &hello, &self.shared.options.version));
        let sampler = match sampler.transpose() {
            Ok(sampler) => sampler.map(|s| s.listing_stands(self.shared.options.listing_stands)),
            Err(e) => {
                self.shared.problem(format!("{}: write its samples: {e}", self.path.display()));
                None
            }
        };
        let environ = if visible { proc_fs::environ(pid) } else { None };
        let process = Process { key: self.key, file: self.path.into(), hello, environ, visible };
        let capabilities = process.hello.capabilities.clone();
        Guest { capabilities, follow: self.shared.observe.started(&process), sampler }
    }

    fn take(&mut self, occasion: Occasion) -> Option<(OsSample, u64)> {
        let (mut sample, t_ns) = match &mut self.guest {
            Some(guest) => guest.sampler.as_mut()?.take(occasion)?,
            // The first boundary comes before its hello is read.
            None if self.tracked.visible => {
                let depth = proc_fs::Depth { proportional: false, waits: false };
                (proc_fs::os_sample(self.tracked.pid, depth)?, now_ns())
            }
            None => return None,
        };
        sample.counters = self.tracked.counters().ok();
        Some((sample, t_ns))
    }

    fn sample(&mut self, occasion: Occasion, boundary: u32) -> Option<OsSample> {
        let (mut sample, t_ns) = self.take(occasion)?;
        sample.boundary = boundary;
        self.record(sample.clone(), t_ns);
        Some(sample)
    }

    fn record(&mut self, sample: OsSample, t_ns: u64) {
        self.note(Frame::OsSample(sample), t_ns);
    }

    /// The guest waits, but `/proc` cannot be read: its open descriptors must not look like none.
    fn note_unlisted(&mut self) {
        let has_sampler = self.guest.as_ref().is_some_and(|guest| guest.sampler.is_some());
        if has_sampler && self.tracked.visible && !self.unlisted && !self.tracked.is_dead() {
            self.unlisted = true;
            let text = format!(
                "its descriptors and threads could not be listed: memgate may not read its /proc, or there are more \
                 than {MAX_ENTRIES}"
            );
            self.note(Frame::Error(ErrorFrame { code: ErrorCode::Unlisted, text }), now_ns());
        }
    }

    /// Writes our own frame to the folder, then delivers it.
    fn note(&mut self, frame: Frame, t_ns: u64) {
        let Some(guest) = &mut self.guest else { return };
        if let Some(sampler) = &mut guest.sampler
            && let Err(e) = sampler.write(&frame, t_ns)
        {
            guest.sampler = None;
            self.shared.problem(format!("{}: write its samples: {e}", self.path.display()));
        }
        guest.follow.frame(frame, t_ns);
    }

    fn capture(&mut self, asked: &[mpsc::Sender<OsSample>]) {
        let Some(sample) = self.sample(Occasion::Request, 0) else { return };
        for answer in asked {
            // The asker may have stopped waiting.
            drop(answer.send(sample.clone()));
        }
    }

    fn end_of(&self, dead: bool) -> End {
        match self.tracked.page.load_u32(offset::STATE) {
            Ok(state::CLOSED) => End::Closed,
            Ok(state::STOPPED) => End::Stopped,
            Ok(state::FULL) => End::Full,
            _ if dead => End::Died,
            _ => self.end_without_goodbye(),
        }
    }

    /// A process that `/proc` never showed, and that did not say goodbye until the end of the recording, counts as
    /// dead.
    fn end_without_goodbye(&self) -> End {
        if self.tracked.is_dead() || !self.tracked.visible { End::Died } else { End::Abandoned }
    }

    fn word(&self, at: usize) -> Result<u32, StreamError> {
        self.tracked.page.load_u32(at).map_err(|e| self.page_error(e))
    }

    fn page_error(&self, source: io::Error) -> StreamError {
        StreamError::Read { path: self.path.into(), offset: 0, source }
    }
}
