//! The live table: 8 bytes of shadow per granule of address space, found by a two-level radix.
//!
//! No lock is needed: whoever holds a pointer owns its slot. The hook stores after the real `malloc` and clears before
//! the real `free`. A slot packs `stack 26 | epoch 14 | size 24` bits; what does not fit (16 MiB and more, pointers
//! that are only 8-aligned) goes to a small open-addressing spill table. Granule: 32 bytes where the allocator's smallest
//! block is 32 bytes (glibc), else 16.
//!
//! Each 512 slots (one shadow page) carry the epoch in which they were last written, so that a boundary scans only
//! what its window touched.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU64, Ordering};

use crate::sys;

const STACK_BITS: u32 = 26;
const EPOCH_BITS: u32 = 14;
const SIZE_BITS: u32 = 24;
const SLOTS: usize = 1 << 16;
const PAGE_SLOTS: usize = 512;
const PAGES: usize = SLOTS / PAGE_SLOTS;
const MID_ENTRIES: usize = 1 << 13;
const TOP_ENTRIES: usize = 1 << 14;
const ADDRESS_BITS: u32 = 47;

/// Largest stack id a slot can hold.
pub const MAX_STACK: u32 = (1 << STACK_BITS) - 1;
/// Largest epoch a slot can hold.
pub const MAX_EPOCH: u32 = (1 << EPOCH_BITS) - 1;
/// Epoch of everything that is older than the current count reaches back.
pub const ANCIENT: u32 = 1;
/// The first real epoch.
pub const FIRST_EPOCH: u32 = 2;

/// What is known of a live allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Requested bytes.
    pub size: u64,
    /// Id in the stack store; 0: none.
    pub stack: u32,
    /// Epoch in which it was allocated.
    pub epoch: u32,
}

impl Entry {
    /// The slot's bits; never 0, because `epoch` is not.
    const fn pack(self) -> Option<u64> {
        if self.size >> SIZE_BITS != 0 || self.stack > MAX_STACK || self.epoch == 0 || self.epoch > MAX_EPOCH
        {
            return None;
        }
        Some(
            ((self.stack as u64) << (EPOCH_BITS + SIZE_BITS))
                | ((self.epoch as u64) << SIZE_BITS)
                | self.size,
        )
    }

    const fn unpack(bits: u64) -> Self {
        Self {
            size: bits & ((1 << SIZE_BITS) - 1),
            stack: (bits >> (EPOCH_BITS + SIZE_BITS)) as u32,
            epoch: (bits >> SIZE_BITS) as u32 & MAX_EPOCH,
        }
    }
}

/// A table could get no more memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

#[repr(C)]
struct Leaf {
    next: *mut Leaf,
    touched: [AtomicU16; PAGES],
    slots: [AtomicU64; SLOTS],
}

#[repr(C)]
struct Mid {
    leaves: [AtomicPtr<Leaf>; MID_ENTRIES],
}

/// The table. One lives in a static of the agent; all-zero is empty.
pub struct Table {
    top: [AtomicPtr<Mid>; TOP_ENTRIES],
    leaves: AtomicPtr<Leaf>,
    granule_shift: AtomicU64,
    spill: Spill,
}

impl Table {
    /// An empty table. [`Table::set_granule`] comes before the first insert.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            top: [const { AtomicPtr::new(ptr::null_mut()) }; TOP_ENTRIES],
            leaves: AtomicPtr::new(ptr::null_mut()),
            granule_shift: AtomicU64::new(0),
            spill: Spill::new(),
        }
    }

    /// Sets the granule: 32 bytes where no two live pointers can share as many, else 16, which is right for every allocator.
    pub fn set_granule(&self, wide: bool) {
        self.granule_shift.store(if wide { 5 } else { 4 }, Ordering::Relaxed);
    }

    /// Notes a live allocation; returns what the table held for this pointer before (a free that was not seen).
    ///
    /// # Errors
    /// [`Full`] when no memory could be mapped; nothing is recorded then.
    #[inline(always)]
    pub fn insert(&self, address: usize, entry: Entry) -> Result<Option<Entry>, Full> {
        let Some(bits) = entry.pack().filter(|_| address & 15 == 0 && address >> ADDRESS_BITS == 0) else {
            return self.spill.insert(address, entry);
        };
        let (leaf, slot) = match self.slot(address) {
            Some(found) => found,
            None => self.make_slot(address)?,
        };
        let page = slot / PAGE_SLOTS;
        // SAFETY: `slot` < SLOTS, so `page` < PAGES.
        let touched = unsafe { leaf.touched.get_unchecked(page) };
        let epoch = entry.epoch as u16;
        // A thread that still works with the previous epoch must not lower the stamp of the present one.
        if touched.load(Ordering::Relaxed) < epoch {
            touched.fetch_max(epoch, Ordering::Relaxed);
        }
        // SAFETY: `slot` < SLOTS by its mask.
        let cell = unsafe { leaf.slots.get_unchecked(slot) };
        let before = cell.load(Ordering::Relaxed);
        cell.store(bits, Ordering::Relaxed);
        if before == 0 { Ok(None) } else { Ok(Some(Entry::unpack(before))) }
    }

    /// Forgets an allocation; `None`: it was not in the table.
    #[inline(always)]
    pub fn remove(&self, address: usize) -> Option<Entry> {
        let fits = address & 15 == 0 && address >> ADDRESS_BITS == 0;
        if let (true, Some((leaf, slot))) = (fits, self.slot(address)) {
            // SAFETY: `slot` < SLOTS by its mask.
            let cell = unsafe { leaf.slots.get_unchecked(slot) };
            let before = cell.load(Ordering::Relaxed);
            if before != 0 {
                cell.store(0, Ordering::Relaxed);
                return Some(Entry::unpack(before));
            }
        }
        self.spill.remove(address)
    }

    /// Calls `visit` with every live allocation whose epoch is `from` or later (`from` 0: all).
    pub fn scan(&self, from: u32, visit: &mut dyn FnMut(Entry)) {
        let mut at = self.leaves.load(Ordering::Acquire);
        // SAFETY: leaves are mapped once and never given back.
        while let Some(leaf) = unsafe { at.as_ref() } {
            for (page, touched) in leaf.touched.iter().enumerate() {
                let stamp = u32::from(touched.load(Ordering::Relaxed));
                if stamp == 0 || stamp < from {
                    continue;
                }
                for slot in leaf.slots.iter().skip(page * PAGE_SLOTS).take(PAGE_SLOTS) {
                    let bits = slot.load(Ordering::Relaxed);
                    if bits != 0 {
                        let entry = Entry::unpack(bits);
                        if entry.epoch >= from {
                            visit(entry);
                        }
                    }
                }
            }
            at = leaf.next;
        }
        self.spill.scan(from, visit);
    }

    /// Makes every entry ancient, before the epoch count starts again. Runs while no new epoch can begin.
    pub fn age(&self, keep: u32) {
        let mut at = self.leaves.load(Ordering::Acquire);
        // SAFETY: leaves are mapped once and never given back.
        while let Some(leaf) = unsafe { at.as_ref() } {
            for touched in &leaf.touched {
                if touched.load(Ordering::Relaxed) != 0 {
                    touched.store(keep as u16, Ordering::Relaxed);
                }
            }
            for slot in &leaf.slots {
                let mut bits = slot.load(Ordering::Relaxed);
                while bits != 0 && !matches!(Entry::unpack(bits).epoch, e if e == ANCIENT || e == keep) {
                    let old = Entry { epoch: ANCIENT, ..Entry::unpack(bits) };
                    let Some(aged) = old.pack() else { break };
                    match slot.compare_exchange(bits, aged, Ordering::Relaxed, Ordering::Relaxed) {
                        Ok(_) => break,
                        Err(now) => bits = now,
                    }
                }
            }
            at = leaf.next;
        }
        self.spill.age(keep);
    }

    #[inline(always)]
    fn indices(&self, address: usize) -> (usize, usize, usize) {
        let granule = address >> self.granule_shift.load(Ordering::Relaxed);
        (granule >> 29 & (TOP_ENTRIES - 1), granule >> 16 & (MID_ENTRIES - 1), granule & (SLOTS - 1))
    }

    #[inline(always)]
    fn slot(&self, address: usize) -> Option<(&Leaf, usize)> {
        let (top, mid, slot) = self.indices(address);
        // SAFETY: masked below TOP_ENTRIES.
        let mids = unsafe { self.top.get_unchecked(top) }.load(Ordering::Acquire);
        // SAFETY: mids are mapped once and never given back.
        let mids = unsafe { mids.as_ref() }?;
        // SAFETY: masked below MID_ENTRIES.
        let leaf = unsafe { mids.leaves.get_unchecked(mid) }.load(Ordering::Acquire);
        // SAFETY: leaves are mapped once and never given back.
        let leaf = unsafe { leaf.as_ref() }?;
        Some((leaf, slot))
    }

    #[cold]
    #[inline(never)]
    fn make_slot(&self, address: usize) -> Result<(&Leaf, usize), Full> {
        let (top, mid, slot) = self.indices(address);
        // SAFETY: masked below TOP_ENTRIES.
        let top = unsafe { self.top.get_unchecked(top) };
        // SAFETY: all-zero is an empty Mid; the value is never dropped.
        let mids = unsafe { get_or_map(top, |_| {}) }.ok_or(Full)?;
        // SAFETY: masked below MID_ENTRIES.
        let cell = unsafe { mids.leaves.get_unchecked(mid) };
        // SAFETY: all-zero is an empty Leaf; the value is never dropped.
        let leaf = unsafe { get_or_map(cell, |new| self.link(new)) }.ok_or(Full)?;
        Ok((leaf, slot))
    }

    /// Puts a leaf that just won its place into the list of all leaves.
    fn link(&self, leaf: NonNull<Leaf>) {
        let mut head = self.leaves.load(Ordering::Relaxed);
        loop {
            // SAFETY: only this thread links this leaf, and readers reach it only after the exchange below.
            unsafe { (*leaf.as_ptr()).next = head };
            match self.leaves.compare_exchange_weak(head, leaf.as_ptr(), Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

/// Loads the pointer, or maps a zeroed `T` and publishes it; `won` runs for the mapping that was published.
///
/// # Safety
/// All-zero must be a valid `T`, and nobody may ever unmap what the pointer holds.
unsafe fn get_or_map<T>(cell: &AtomicPtr<T>, won: impl FnOnce(NonNull<T>)) -> Option<&T> {
    let mut at = cell.load(Ordering::Acquire);
    if at.is_null() {
        // SAFETY: promised by the caller.
        let new = unsafe { sys::map_zeroed::<T>() }?;
        match cell.compare_exchange(ptr::null_mut(), new.as_ptr(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                won(new);
                at = new.as_ptr();
            }
            Err(other) => {
                // SAFETY: this mapping was never published.
                unsafe { sys::unmap(new.cast(), size_of::<T>()) };
                at = other;
            }
        }
    }
    // SAFETY: published pointers stay mapped.
    unsafe { at.as_ref() }
}

const SPILL_SEGMENTS: usize = 12;
const SPILL_FIRST: usize = 1 << 8;
const SPILL_PROBES: usize = 64;
const TOMBSTONE: usize = 1;

#[repr(C)]
struct SpillCell {
    key: AtomicU64,
    size: AtomicU64,
    /// stack 32 | epoch 32
    origin: AtomicU64,
}

/// Entries that do not fit into a slot: segments of growing size, each probed a bounded number of cells.
struct Spill {
    segments: [AtomicPtr<SpillCell>; SPILL_SEGMENTS],
}

impl Spill {
    const fn new() -> Self {
        Self { segments: [const { AtomicPtr::new(ptr::null_mut()) }; SPILL_SEGMENTS] }
    }

    const fn cells(segment: usize) -> usize {
        SPILL_FIRST << (2 * segment)
    }

    fn probe(&self, segment: usize, address: usize) -> impl Iterator<Item = &SpillCell> {
        let mask = Self::cells(segment) - 1;
        let first = (address >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        let base = self.segments.get(segment).map_or(ptr::null_mut(), |s| s.load(Ordering::Acquire));
        (0..if base.is_null() { 0 } else { SPILL_PROBES }).map(move |i| {
            // SAFETY: a published segment has `mask + 1` zeroed cells and is never unmapped.
            unsafe { &*base.wrapping_add((first + i) & mask) }
        })
    }

    #[cold]
    #[inline(never)]
    fn insert(&self, address: usize, entry: Entry) -> Result<Option<Entry>, Full> {
        let before = self.remove(address);
        for segment in 0..SPILL_SEGMENTS {
            let Some(cell) = self.segments.get(segment) else { break };
            if cell.load(Ordering::Acquire).is_null() {
                let bytes = Self::cells(segment) * size_of::<SpillCell>();
                let new = sys::map(bytes).ok_or(Full)?;
                if cell
                    .compare_exchange(
                        ptr::null_mut(),
                        new.as_ptr().cast(),
                        Ordering::AcqRel,
                        Ordering::Acquire,
                    )
                    .is_err()
                {
                    // SAFETY: this mapping was never published.
                    unsafe { sys::unmap(new, bytes) };
                }
            }
            for cell in self.probe(segment, address) {
                let key = cell.key.load(Ordering::Relaxed);
                if key > TOMBSTONE as u64 {
                    continue;
                }
                // Claim the cell with a key that matches no pointer, fill it, then publish.
                if cell.key.compare_exchange(key, u64::MAX, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    cell.size.store(entry.size, Ordering::Relaxed);
                    cell.origin
                        .store((u64::from(entry.stack) << 32) | u64::from(entry.epoch), Ordering::Relaxed);
                    cell.key.store(address as u64, Ordering::Release);
                    return Ok(before);
                }
            }
        }
        Err(Full)
    }

    fn remove(&self, address: usize) -> Option<Entry> {
        for segment in 0..SPILL_SEGMENTS {
            if self.segments.get(segment)?.load(Ordering::Acquire).is_null() {
                return None;
            }
            for cell in self.probe(segment, address) {
                let key = cell.key.load(Ordering::Acquire);
                if key == address as u64 {
                    let entry = cell.entry();
                    cell.key.store(TOMBSTONE as u64, Ordering::Release);
                    return Some(entry);
                }
                if key == 0 {
                    break;
                }
            }
        }
        None
    }

    fn each(&self, visit: &mut dyn FnMut(&SpillCell)) {
        for (segment, base) in self.segments.iter().enumerate() {
            let base = base.load(Ordering::Acquire);
            if base.is_null() {
                return;
            }
            for i in 0..Self::cells(segment) {
                // SAFETY: a published segment has that many cells and is never unmapped.
                let cell = unsafe { &*base.wrapping_add(i) };
                let key = cell.key.load(Ordering::Acquire);
                if key > TOMBSTONE as u64 && key != u64::MAX {
                    visit(cell);
                }
            }
        }
    }

    fn scan(&self, from: u32, visit: &mut dyn FnMut(Entry)) {
        self.each(&mut |cell| {
            let entry = cell.entry();
            if entry.epoch >= from {
                visit(entry);
            }
        });
    }

    fn age(&self, keep: u32) {
        self.each(&mut |cell| {
            let origin = cell.origin.load(Ordering::Relaxed);
            if origin & 0xffff_ffff != u64::from(keep) {
                cell.origin.store(origin >> 32 << 32 | u64::from(ANCIENT), Ordering::Relaxed);
            }
        });
    }
}

impl SpillCell {
    fn entry(&self) -> Entry {
        let origin = self.origin.load(Ordering::Relaxed);
        Entry { size: self.size.load(Ordering::Relaxed), stack: (origin >> 32) as u32, epoch: origin as u32 }
    }
}

#[cfg(test)]
mod tests {
    use std::boxed::Box;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    use super::*;

    fn table(wide: bool) -> &'static Table {
        let t: &Table = Box::leak(Box::new(Table::new()));
        t.set_granule(wide);
        t
    }

    fn entry(size: u64, stack: u32, epoch: u32) -> Entry {
        Entry { size, stack, epoch }
    }

    fn live(table: &Table, from: u32) -> Vec<Entry> {
        let mut all = Vec::new();
        table.scan(from, &mut |e| all.push(e));
        all.sort_by_key(|e| (e.epoch, e.size));
        all
    }

    #[test]
    fn what_is_inserted_is_removed_once() {
        let t = table(false);
        for (address, size) in [
            (0x7f00_1234_5670, 0),
            (0x1000, 37),
            (0x7f00_0000_0008, 8),
            (0x20_0000, 1 << 24),
            (0x20_0010, u64::MAX),
        ] {
            let e = entry(size, 7, 3);
            assert_eq!(t.insert(address, e), Ok(None), "{address:x}");
            assert_eq!(t.remove(address), Some(e), "{address:x}");
            assert_eq!(t.remove(address), None, "{address:x}");
        }
    }

    #[test]
    fn a_block_that_comes_again_without_a_free_replaces_the_old_one() {
        let t = table(false);
        assert_eq!(t.insert(0x4000, entry(10, 1, 2)), Ok(None));
        assert_eq!(t.insert(0x4000, entry(11, 2, 2)), Ok(Some(entry(10, 1, 2))));
        assert_eq!(live(t, 0), [entry(11, 2, 2)]);
    }

    #[test]
    fn neighbours_of_eight_and_sixteen_bytes_do_not_disturb_each_other() {
        let t = table(false);
        for i in 0..64_usize {
            t.insert(0x9000 + 8 * i, entry(i as u64, 1, 2)).unwrap();
        }
        assert_eq!(live(t, 0).len(), 64);
        for i in 0..64_usize {
            assert_eq!(t.remove(0x9000 + 8 * i), Some(entry(i as u64, 1, 2)));
        }
    }

    #[test]
    fn a_scan_gives_only_what_was_born_since() {
        let t = table(true);
        for i in 0..3000_u32 {
            t.insert(0x10_0000 + 32 * i as usize, entry(u64::from(i), 1, 2 + i % 3)).unwrap();
        }
        assert_eq!(live(t, 4).len(), 1000);
        assert_eq!(live(t, 0).len(), 3000);
        t.age(3);
        assert_eq!(live(t, 2).len(), 1000, "only the kept epoch is still told apart");
        assert_eq!(live(t, ANCIENT).len(), 3000);
    }

    #[test]
    fn many_threads_keep_exact_books() {
        let t = table(false);
        let ledgers: Vec<BTreeMap<usize, u64>> = std::thread::scope(|s| {
            let workers: Vec<_> = (0..4_usize)
                .map(|w| {
                    s.spawn(move || {
                        let (mut mine, mut x) = (BTreeMap::new(), w as u64 + 1);
                        for _ in 0..50_000 {
                            x = x
                                .wrapping_mul(6_364_136_223_846_793_005)
                                .wrapping_add(1_442_695_040_888_963_407);
                            // Every thread owns every fourth 8-byte cell, so slots, pages and spill chains are shared.
                            let address = 0x7f00_0000_0000 + 8 * (4 * (x >> 40 & 0xfff) as usize + w);
                            let size = x >> 33 & 0x1ff_ffff;
                            if mine.remove(&address).is_some() {
                                assert!(t.remove(address).is_some());
                            } else {
                                assert_eq!(t.insert(address, entry(size, 1, 2)), Ok(None));
                                mine.insert(address, size);
                            }
                        }
                        mine
                    })
                })
                .collect();
            workers.into_iter().map(|w| w.join().unwrap()).collect()
        });
        let mut want: Vec<u64> = ledgers.iter().flat_map(|l| l.values().copied()).collect();
        let mut got: Vec<u64> = live(t, 0).iter().map(|e| e.size).collect();
        want.sort_unstable();
        got.sort_unstable();
        assert_eq!(got, want);
    }
}
