//! The spool: a mapped file, see `memgate_wire::spool` for its layout and the handshake.
//!
//! Windows of growing size are allocated, mapped and closed again as frames need them; only the control page stays mapped all
//! the time. A frame may lie across two windows; `committed` moves only behind whole frames, so one that could not be finished is not seen.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::io;
use std::sync::Arc;

use memgate_ffi::process;
use memgate_ffi::shared::{BriefFile, SharedMap, futex_wait, store_and_wake};
use memgate_wire::spool::{CONTROL_BYTES, MAGIC, offset, state};

use super::Orders;

const FIRST_WINDOW: usize = 64 << 10;
/// A forked child says little, and there may be thousands.
const FIRST_WINDOW_OF_CHILD: usize = 8 << 10;
const LARGEST_WINDOW: usize = 16 << 20;

/// The control page.
pub(crate) struct Control(SharedMap);

/// The file.
pub(crate) struct Spool {
    path: String,
    control: Arc<Control>,
    window: SharedMap,
    window_start: u64,
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
        file.allocate(0, (CONTROL_BYTES + first) as u64)?;
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
        (self.window.len() + CONTROL_BYTES) as u64
    }

    /// Appends whole frames.
    pub(crate) fn write(&mut self, mut frames: &[u8]) -> bool {
        if self.full {
            return false;
        }
        let mut at = self.committed;
        while !frames.is_empty() {
            let inside = usize::try_from(at - self.window_start).unwrap_or(usize::MAX);
            let written = self.window.write(inside, frames);
            if written == 0 {
                if self.next_window(at).is_err() {
                    self.full = true;
                    self.control.set(offset::STATE, state::FULL);
                    return false;
                }
                continue;
            }
            at += written as u64;
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

    /// Maps the window that begins at `at`, which is where the present one ends.
    fn next_window(&mut self, at: u64) -> io::Result<()> {
        let bytes = (self.window.len() * 4).min(LARGEST_WINDOW);
        let file = BriefFile::open(&self.path)?;
        file.allocate(at, bytes as u64)?;
        self.window = file.map(at, bytes)?;
        self.window_start = at;
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

    fn get(&self, at: usize) -> u32 {
        self.0.word(at).map_or(0, |w| w.load(Ordering::Acquire))
    }

    /// See [`super::Meeting::wait`].
    pub(crate) fn wait(&self, sequence: u32, limit: Duration, expected: bool) -> Option<Orders> {
        let (Some(boundary), Some(acknowledged)) =
            (self.0.word(offset::BOUNDARY), self.0.word(offset::ACKNOWLEDGED))
        else {
            return None;
        };
        store_and_wake(boundary, sequence);
        if !expected && self.get(offset::HARNESS) == 0 {
            return None;
        }
        let end = process::monotonic_ns() + u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX >> 1);
        loop {
            let seen = acknowledged.load(Ordering::Acquire);
            if seen == sequence {
                return Some(Orders(self.get(offset::ORDERS)));
            }
            let now = process::monotonic_ns();
            if now >= end {
                return None;
            }
            futex_wait(acknowledged, seen, Some(Duration::from_nanos(end - now)));
        }
    }
}
