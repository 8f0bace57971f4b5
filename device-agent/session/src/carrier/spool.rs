//! The spool: a mapped file, see `memgate_wire::spool` for its layout and the handshake.
//!
//! The file is mapped in windows of growing size, one after the other; only the control page stays mapped all the time.
//! The file is opened once, at the start. A later window is made from the previous one without a descriptor, because
//! the guest's threads would notice a used descriptor number. A frame may lie across two windows. `committed` moves
//! only after whole frames, so readers never see an unfinished frame.

use core::convert::Infallible;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use core::time::Duration;
use std::io;
use std::sync::Arc;

use memgate_ffi::process;
use memgate_ffi::shared::{BriefFile, SharedMap, futex_wait, futex_wake};
use memgate_wire::handshake::{Waiting, Words};
use memgate_wire::spool::{CONTROL_BYTES, MAGIC, offset, state};

const FIRST_WINDOW: usize = 64 << 10;
/// First window of a forked child, which writes little. There may be thousands of such children.
const FIRST_WINDOW_OF_CHILD: usize = 8 << 10;
const LARGEST_WINDOW: usize = 16 << 20;
/// Blocks of a later window are allocated in steps, because allocating makes its pages resident.
const STEP: usize = 256 << 10;

/// The control page.
pub struct Control(SharedMap);

/// The file.
pub(crate) struct Spool {
    path: String,
    control: Arc<Control>,
    window: SharedMap,
    window_start: u64,
    /// Bytes of the window that have blocks, so that writing to them cannot fault.
    ready: usize,
    committed: u64,
    full: bool,
}

impl Spool {
    /// Creates `PID-NANOSECONDS.mgf` in `directory`.
    pub(crate) fn create(directory: &str, harness: bool, child: bool) -> io::Result<Self> {
        let first = if child { FIRST_WINDOW_OF_CHILD } else { FIRST_WINDOW };
        let path = format!("{directory}/{}-{}.mgf", process::pid(), process::monotonic_ns());
        let unfinished = format!("{path}.new");
        let file = BriefFile::create(&unfinished)?;
        file.allocate(0, CONTROL_BYTES.saturating_add(first) as u64)
            .inspect_err(|_| process::remove(&unfinished))?;
        let control = Control(file.map(0, CONTROL_BYTES)?);
        let window = file.map(CONTROL_BYTES as u64, first)?;
        drop(file);
        control.set(offset::PID, process::pid());
        control.set(offset::STATE, state::RECORDING);
        control.set(offset::HARNESS, u32::from(harness));
        control.set_long(offset::COMMITTED, CONTROL_BYTES as u64);
        control.0.write(offset::MAGIC, &MAGIC);
        process::rename(&unfinished, &path)?;
        Ok(Self {
            path,
            control: Arc::new(control),
            window,
            window_start: CONTROL_BYTES as u64,
            ready: first,
            committed: CONTROL_BYTES as u64,
            full: false,
        })
    }

    /// The control page.
    pub(crate) fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control)
    }

    /// The four live counters.
    pub(crate) fn live_counters(&self) -> *mut AtomicU64 {
        self.control.0.address(offset::ALLOCATIONS).cast()
    }

    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.window.len().saturating_add(CONTROL_BYTES) as u64
    }

    /// Appends whole frames.
    pub(crate) fn write(&mut self, mut frames: &[u8]) -> bool {
        if self.full {
            return false;
        }
        let mut at = self.committed;
        while !frames.is_empty() {
            let inside = usize::try_from(at.saturating_sub(self.window_start)).unwrap_or(usize::MAX);
            if inside >= self.ready {
                if self.make_ready(at).is_err() {
                    self.full = true;
                    self.control.set(offset::STATE, state::FULL);
                    return false;
                }
                continue;
            }
            let fitting = frames.len().min(self.ready.saturating_sub(inside));
            let written = self.window.write(inside, frames.get(..fitting).unwrap_or_default());
            at = at.saturating_add(written as u64);
            frames = frames.get(written..).unwrap_or_default();
        }
        self.committed = at;
        self.control.set_long(offset::COMMITTED, at);
        true
    }

    pub(crate) fn close(&mut self) {
        if !self.full {
            self.control.set(offset::STATE, state::CLOSED);
        }
    }

    /// Makes room at `at`, the end of the ready part.
    fn make_ready(&mut self, at: u64) -> io::Result<()> {
        if self.ready >= self.window.len() {
            let bytes = self.window.len().saturating_mul(4).min(LARGEST_WINDOW);
            if self.window.slide(&self.path, at, bytes).is_err() {
                let file = BriefFile::open(&self.path)?;
                file.allocate(at, bytes as u64)?;
                self.window = file.map(at, bytes)?;
                (self.window_start, self.ready) = (at, bytes);
                return Ok(());
            }
            (self.window_start, self.ready) = (at, 0);
        }
        let step = STEP.min(self.window.len().saturating_sub(self.ready));
        if self.window.populate(self.ready, step).is_err() {
            // The kernel is old, or there is no room. Allocating shows which.
            BriefFile::open(&self.path)?.allocate(at, step as u64)?;
        }
        self.ready = self.ready.saturating_add(step);
        Ok(())
    }
}

impl Control {
    fn set(&self, at: usize, value: u32) {
        if let Some(word) = self.0.word(at) {
            word.store(value, Ordering::Release);
        }
    }

    fn set_long(&self, at: usize, value: u64) {
        if let Some(word) = self.0.long(at) {
            word.store(value, Ordering::Release);
        }
    }
}

impl Words for Control {
    type Error = Infallible;

    fn load(&self, offset: usize) -> Result<u32, Infallible> {
        Ok(self.0.word(offset).map_or(0, |w| w.load(Ordering::Acquire)))
    }

    fn store(&self, offset: usize, value: u32) -> Result<(), Infallible> {
        self.set(offset, value);
        Ok(())
    }

    fn wake(&self, offset: usize) -> Result<(), Infallible> {
        if let Some(word) = self.0.word(offset) {
            futex_wake(word);
        }
        Ok(())
    }

    fn barrier(&self) {
        fence(Ordering::SeqCst);
    }
}

impl Waiting for Control {
    fn wait(&self, offset: usize, seen: u32, limit: Duration) {
        if let Some(word) = self.0.word(offset) {
            futex_wait(word, seen, Some(limit));
        }
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(process::monotonic_ns())
    }
}
