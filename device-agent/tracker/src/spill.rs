//! Live allocations that do not fit into a slot of the table: large blocks, and pointers that are only 8-aligned.
//!
//! The segments grow in size. In each, a lookup probes a bounded number of cells. To fill a cell, a thread claims it
//! with a key that matches no pointer, writes it, then sets its key. A freed cell keeps a tombstone, so that a probe
//! continues after it. Only the owner of a pointer changes its cell. A scan uses the values it has read only if neither
//! key nor version have changed meanwhile.
#![cfg_attr(
    not(test),
    expect(clippy::arithmetic_side_effects, reason = "places in a table whose size is a power of two")
)]

use crate::entry::{ANCIENT, Entry, Full};
use crate::sync::{self, AtomicPtr, AtomicU64, Ordering, Use, Zeroed, fence, sized};

const SEGMENTS: usize = sized(12, 2);
const FIRST_CELLS: usize = sized(1 << 8, 2);
const PROBES: usize = sized(64, 2);

const FREE: u64 = 0;
const TOMBSTONE: u64 = 1;
const CLAIMED: u64 = u64::MAX;

#[repr(C)]
struct Cell {
    key: AtomicU64,
    /// Number of times the cell was claimed.
    version: AtomicU64,
    size: AtomicU64,
    /// stack 32 | epoch 32
    origin: AtomicU64,
}

/// The spill table. All-zero is empty.
pub(crate) struct Spill {
    segments: [AtomicPtr<Cell>; SEGMENTS],
}

impl Spill {
    /// Address of the array of segment pointers, its length, and the number of cells of the first segment.
    pub(crate) fn layout(&self) -> (u64, usize, usize) {
        (core::ptr::from_ref(&self.segments) as u64, SEGMENTS, FIRST_CELLS)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn insert(&self, address: usize, entry: Entry) -> Result<Option<Entry>, Full> {
        let before = self.remove(address);
        for (i, segment) in self.segments.iter().enumerate() {
            sync::get_or_map(segment, cells(i), Use::Sparse).ok_or(Full)?;
            if probe(segment, i, address).any(|cell| cell.fill(address, entry)) {
                return Ok(before);
            }
        }
        Err(Full)
    }

    pub(crate) fn remove(&self, address: usize) -> Option<Entry> {
        let cell = self.find(address)?;
        let entry = cell.entry();
        cell.key.store(TOMBSTONE, Ordering::Release);
        Some(entry)
    }

    pub(crate) fn holds(&self, address: usize) -> bool {
        self.find(address).is_some()
    }

    fn find(&self, address: usize) -> Option<&Cell> {
        for (i, segment) in self.segments.iter().enumerate() {
            if segment.load(Ordering::Acquire).is_null() {
                return None;
            }
            for cell in probe(segment, i, address) {
                let key = cell.key.load(Ordering::Acquire);
                if key == address as u64 {
                    return Some(cell);
                }
                if key == FREE {
                    break;
                }
            }
        }
        None
    }

    pub(crate) fn scan(&self, visit: &mut dyn FnMut(Entry)) {
        self.each(&mut |cell| {
            if let Some(entry) = cell.read() {
                visit(entry);
            }
        });
    }

    pub(crate) fn age(&self, keep: u32) {
        self.each(&mut |cell| {
            let mut origin = cell.origin.load(Ordering::Relaxed);
            // A thread that fills the cell at the same time writes a whole new origin. So only the origin that was read
            // may be replaced.
            while !matches!(origin as u32, epoch if epoch == ANCIENT || epoch == keep) {
                let aged = origin >> 32 << 32 | u64::from(ANCIENT);
                match cell.origin.compare_exchange(origin, aged, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => break,
                    Err(now) => origin = now,
                }
            }
        });
    }

    fn each(&self, visit: &mut dyn FnMut(&Cell)) {
        for (i, segment) in self.segments.iter().enumerate() {
            let base = segment.load(Ordering::Acquire);
            if base.is_null() {
                return;
            }
            for at in 0..cells(i) {
                // SAFETY: a published segment has that many cells and is never unmapped.
                let cell = unsafe { &*base.wrapping_add(at) };
                if is_address(cell.key.load(Ordering::Relaxed)) {
                    visit(cell);
                }
            }
        }
    }
}

const fn cells(segment: usize) -> usize {
    FIRST_CELLS << (2 * segment)
}

const fn is_address(key: u64) -> bool {
    key > TOMBSTONE && key != CLAIMED
}

fn probe(segment: &AtomicPtr<Cell>, i: usize, address: usize) -> impl Iterator<Item = &Cell> {
    let mask = cells(i) - 1;
    let first = (address >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let base = segment.load(Ordering::Acquire);
    (0..if base.is_null() { 0 } else { PROBES }).map(move |i| {
        // SAFETY: a published segment has `mask + 1` cells and is never unmapped.
        unsafe { &*base.wrapping_add((first + i) & mask) }
    })
}

impl Cell {
    /// Takes the cell for an allocation, if it is free.
    fn fill(&self, address: usize, entry: Entry) -> bool {
        let key = self.key.load(Ordering::Relaxed);
        if key > TOMBSTONE
            || self.key.compare_exchange(key, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return false;
        }
        // A thread that sees the new version sees the claim. A thread that sees the writes after the fence sees the new
        // version.
        self.version.store(self.version.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        fence(Ordering::Release);
        self.size.store(entry.size, Ordering::Relaxed);
        self.origin.store((u64::from(entry.stack) << 32) | u64::from(entry.epoch), Ordering::Relaxed);
        self.key.store(address as u64, Ordering::Release);
        true
    }

    /// Reads the cell as the owner of the pointer.
    fn entry(&self) -> Entry {
        let origin = self.origin.load(Ordering::Relaxed);
        Entry { size: self.size.load(Ordering::Relaxed), stack: (origin >> 32) as u32, epoch: origin as u32 }
    }

    /// Reads the cell as any other thread. `None`: the cell is empty, or it changed during the read.
    fn read(&self) -> Option<Entry> {
        let version = self.version.load(Ordering::Acquire);
        let key = self.key.load(Ordering::Acquire);
        let entry = self.entry();
        fence(Ordering::Acquire);
        let same = self.version.load(Ordering::Relaxed) == version && self.key.load(Ordering::Relaxed) == key;
        (is_address(key) && same).then_some(entry)
    }
}

// SAFETY: atomics; all-zero is a free cell.
unsafe impl Zeroed for Cell {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self {
            key: Zeroed::zeroed(),
            version: Zeroed::zeroed(),
            size: Zeroed::zeroed(),
            origin: Zeroed::zeroed(),
        }
    }
}

// SAFETY: all-zero is empty.
unsafe impl Zeroed for Spill {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self { segments: Zeroed::zeroed() }
    }
}
