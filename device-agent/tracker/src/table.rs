//! The live table: 8 bytes of shadow per granule of address space, found by a two-level radix.
//!
//! No lock is needed: whoever holds a pointer owns its slot. The hook stores after the real
//! `malloc` and clears before the real `free`. A slot packs `stack 26 | epoch 14 | size 24` bits;
//! what does not fit (16 MiB and more, pointers that are only 8-aligned) goes to a small
//! open-addressing spill table. Granule: 32 bytes where the allocator's smallest block is 32 bytes
//! (glibc), else 16.
//!
//! Each 512 slots (one shadow page) carry the epoch in which they were last written, so that a
//! boundary scans only what its window touched.
#![cfg_attr(
    not(test),
    expect(clippy::arithmetic_side_effects, reason = "places in tables whose sizes are powers of two")
)]

use crate::cost::ticks;
pub use crate::entry::{ANCIENT, Entry, FIRST_EPOCH, Full, MAX_EPOCH, MAX_STACK};
use crate::spill::Spill;
use crate::sync::{self, AtomicPtr, AtomicU16, AtomicU64, Ordering, Zeroed, sized, zero_constructor};

const SLOT_BITS: u32 = sized(16, 2);
const MID_BITS: u32 = sized(13, 1);
const TOP_BITS: u32 = sized(14, 1);
const SLOTS: usize = 1 << SLOT_BITS;
const PAGE_SLOTS: usize = sized(512, 2);
const PAGES: usize = SLOTS / PAGE_SLOTS;
const ADDRESS_BITS: u32 = 4 + SLOT_BITS + MID_BITS + TOP_BITS;

/// Where a table lies, and how it is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Address of the upper directory.
    pub top: u64,
    /// Address bits that choose in it, in a lower directory, and in a leaf.
    pub bits: [u32; 3],
    /// A granule has this power of two of bytes.
    pub granule_shift: u64,
    /// From the top of a slot down: bits of the stack, of the epoch, of the size.
    pub word: [u32; 3],
    /// Address of the pointers to the segments of the spill table.
    pub spill: u64,
    /// How many there are at most.
    pub segments: usize,
    /// Cells of the first; each has four times as many as the one before.
    pub first_cells: usize,
}

/// The slots come first, so that the 512 of one stamp are one page of memory.
#[repr(C)]
struct Leaf {
    slots: [AtomicU64; SLOTS],
    touched: [AtomicU16; PAGES],
}

impl Leaf {
    fn is_used_to_its_end(&self) -> bool {
        self.touched.last().is_some_and(|stamp| stamp.load(Ordering::Relaxed) != 0)
    }
}

type Mid = Directory<Leaf, { 1 << MID_BITS }>;

/// The table. One lives in a static of the agent; all-zero is empty.
pub struct Table {
    top: Directory<Mid, { 1 << TOP_BITS }>,
    granule_shift: AtomicU64,
    /// Time-stamp ticks that whole leaves took: too seldom for samples.
    leaf_ticks: AtomicU64,
    spill: Spill,
}

impl Table {
    zero_constructor! {
        /// An empty table. [`Table::set_granule`] comes before the first insert.
    }

    /// Where and how the live allocations are noted, for whoever reads this process's memory.
    #[must_use]
    pub fn layout(&self) -> Layout {
        let (stack_bits, epoch_bits, size_bits) = Entry::BITS;
        let spill = self.spill.layout();
        Layout {
            top: core::ptr::from_ref(&self.top) as u64,
            bits: [TOP_BITS, MID_BITS, SLOT_BITS],
            granule_shift: self.granule_shift.load(Ordering::Relaxed),
            word: [stack_bits, epoch_bits, size_bits],
            spill: spill.0,
            segments: spill.1,
            first_cells: spill.2,
        }
    }

    /// Sets the granule: 32 bytes where no two live pointers can share as many, else 16, which is
    /// right for every allocator.
    pub fn set_granule(&self, wide: bool) {
        self.granule_shift.store(if wide { 5 } else { 4 }, Ordering::Relaxed);
    }

    /// Notes a live allocation; returns what the table held for this pointer before (a free that
    /// was not seen).
    ///
    /// # Errors
    /// [`Full`] when no memory could be mapped; nothing is recorded then.
    #[inline(always)]
    pub fn insert(&self, address: usize, entry: Entry) -> Result<Option<Entry>, Full> {
        let Some(bits) = entry.pack().filter(|_| Self::fits(address)) else {
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
        // A thread that still works with the previous epoch must not lower the stamp of the present
        // one.
        let stamp = touched.load(Ordering::Relaxed);
        // SAFETY: `slot` < SLOTS by its mask.
        let cell = unsafe { leaf.slots.get_unchecked(slot) };
        if stamp < epoch && touched.fetch_max(epoch, Ordering::Relaxed) == 0 {
            // Nothing was ever written to this page: reading first would cost a page fault of its
            // own.
            cell.store(bits, Ordering::Release);
            return Ok(None);
        }
        let before = cell.load(Ordering::Relaxed);
        // Whoever scans and finds the id of a stack finds the stack.
        cell.store(bits, Ordering::Release);
        if before == 0 { Ok(None) } else { Ok(Some(Entry::unpack(before))) }
    }

    /// The slot of a pointer, if it is empty, and written to in this epoch before.
    #[inline(always)]
    pub(crate) fn empty_slot(&self, address: usize, epoch: u32) -> Option<&AtomicU64> {
        let (leaf, slot) = self.slot(address).filter(|_| Self::fits(address))?;
        // SAFETY: `slot` < SLOTS, so its page < PAGES.
        let touched = unsafe { leaf.touched.get_unchecked(slot / PAGE_SLOTS) }.load(Ordering::Relaxed);
        // SAFETY: `slot` < SLOTS by its mask.
        let cell = unsafe { leaf.slots.get_unchecked(slot) };
        (u32::from(touched) >= epoch && cell.load(Ordering::Relaxed) == 0).then_some(cell)
    }

    /// The slot of a pointer, if it is filled, with what it holds.
    #[inline(always)]
    pub(crate) fn filled_slot(&self, address: usize) -> Option<(&AtomicU64, Entry)> {
        let (leaf, slot) = self.slot(address).filter(|_| Self::fits(address))?;
        // SAFETY: `slot` < SLOTS by its mask.
        let cell = unsafe { leaf.slots.get_unchecked(slot) };
        let bits = cell.load(Ordering::Relaxed);
        (bits != 0).then(|| (cell, Entry::unpack(bits)))
    }

    /// Is it a pointer that a slot may hold?
    #[inline(always)]
    const fn fits(address: usize) -> bool {
        address & 15 == 0 && address >> ADDRESS_BITS == 0
    }

    /// Forgets an allocation; `None`: it was not in the table.
    #[inline(always)]
    pub fn remove(&self, address: usize) -> Option<Entry> {
        if let (true, Some((leaf, slot))) = (Self::fits(address), self.slot(address)) {
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

    /// Is it in the table? Memory that nothing was written to is not touched: asked where most pointers are in
    /// no table.
    #[inline(always)]
    pub fn holds(&self, address: usize) -> bool {
        if let (true, Some((leaf, slot))) = (Self::fits(address), self.slot(address)) {
            let is_written = |page: &AtomicU16| page.load(Ordering::Relaxed) != 0;
            let is_filled = |cell: &AtomicU64| cell.load(Ordering::Relaxed) != 0;
            if leaf.touched.get(slot / PAGE_SLOTS).is_some_and(is_written)
                && leaf.slots.get(slot).is_some_and(is_filled)
            {
                return true;
            }
        }
        self.spill.holds(address)
    }

    /// Calls `visit` with every live allocation born in the epochs `from` to `to` (`from` 0: all).
    pub fn scan(&self, from: u32, to: u32, visit: &mut dyn FnMut(Entry)) {
        let mut choose = |entry: Entry| {
            // Later than `to`: born before the count started again, by a thread that had not
            // noticed yet.
            if from == 0 || (from..=to).contains(&entry.epoch) {
                visit(entry);
            }
        };
        self.each_leaf(&mut |leaf| {
            for (page, touched) in leaf.touched.iter().enumerate() {
                let stamp = u32::from(touched.load(Ordering::Relaxed));
                if stamp == 0 || stamp < from {
                    continue;
                }
                for slot in leaf.slots.iter().skip(page * PAGE_SLOTS).take(PAGE_SLOTS) {
                    let bits = slot.load(Ordering::Acquire);
                    if bits != 0 {
                        choose(Entry::unpack(bits));
                    }
                }
            }
        });
        self.spill.scan(&mut choose);
    }

    /// Makes every entry ancient, before the epoch count starts again. Runs while no new epoch can
    /// begin.
    pub fn age(&self, keep: u32) {
        self.each_leaf(&mut |leaf| {
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
        });
        self.spill.age(keep);
    }

    /// Ticks that whole leaves took, all of them.
    pub(crate) fn leaf_ticks(&self) -> u64 {
        self.leaf_ticks.load(Ordering::Relaxed)
    }

    fn each_leaf(&self, visit: &mut dyn FnMut(&Leaf)) {
        self.top.each(&mut |mid| mid.each(visit));
    }

    #[inline(always)]
    fn indices(&self, address: usize) -> (usize, usize, usize) {
        let granule = address >> self.granule_shift.load(Ordering::Relaxed);
        (granule >> (SLOT_BITS + MID_BITS), granule >> SLOT_BITS, granule & (SLOTS - 1))
    }

    #[inline(always)]
    fn slot(&self, address: usize) -> Option<(&Leaf, usize)> {
        let (top, mid, slot) = self.indices(address);
        Some((self.top.get(top)?.get(mid)?, slot))
    }

    #[cold]
    #[inline(never)]
    fn make_slot(&self, address: usize) -> Result<(&Leaf, usize), Full> {
        let (top, mid, slot) = self.indices(address);
        let mid_level = self.top.get_or_map(top, false).ok_or(Full)?;
        // A heap that has filled the two leaves below grows on into this one: all pages at once are
        // cheaper than a page fault for each. After one leaf that is not known yet: the small heaps
        // of many threads would each pay for half a leaf they never use.
        let soon = mid_level.is_used_below(mid, 1) && mid_level.is_used_below(mid, 2);
        let began = ticks();
        let leaf = mid_level.get_or_map(mid, soon).ok_or(Full)?;
        if soon {
            self.leaf_ticks.fetch_add(ticks().saturating_sub(began), Ordering::Relaxed);
        }
        Ok((leaf, slot))
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

/// Pointers to mappings that are made when they are needed and never given back.
#[repr(C)]
struct Directory<T, const N: usize> {
    entries: [AtomicPtr<T>; N],
    /// Of 64 groups of neighbours, those that may hold something. Marked before anything is there,
    /// so that whoever was given an entry finds it when it scans.
    groups: AtomicU64,
}

impl<const N: usize> Directory<Leaf, N> {
    /// Was the leaf that lies `distance` before the one at `index` used to its end?
    fn is_used_below(&self, index: usize, distance: usize) -> bool {
        let below = (index & (N - 1)).checked_sub(distance);
        below.and_then(|at| self.get(at)).is_some_and(Leaf::is_used_to_its_end)
    }
}

impl<T: Zeroed, const N: usize> Directory<T, N> {
    const GROUP: usize = N.div_ceil(64);

    /// The entry at `index`, of which the low bits count.
    #[inline(always)]
    fn get(&self, index: usize) -> Option<&T> {
        // SAFETY: N is a power of two, as its users have it.
        let entry = unsafe { self.entries.get_unchecked(index & (N - 1)) };
        // SAFETY: what is published stays mapped.
        unsafe { entry.load(Ordering::Acquire).as_ref() }
    }

    fn get_or_map(&self, index: usize, soon: bool) -> Option<&T> {
        let index = index & (N - 1);
        self.groups.fetch_or(1 << (index / Self::GROUP), Ordering::Relaxed);
        let at = sync::get_or_map(self.entries.get(index)?, 1, soon)?;
        // SAFETY: what is published stays mapped.
        unsafe { at.as_ref() }
    }

    fn each(&self, visit: &mut dyn FnMut(&T)) {
        let groups = self.groups.load(Ordering::Relaxed);
        for (i, group) in self.entries.chunks(Self::GROUP).enumerate() {
            if groups >> i & 1 == 0 {
                continue;
            }
            for entry in group {
                // SAFETY: what is published stays mapped.
                if let Some(value) = unsafe { entry.load(Ordering::Acquire).as_ref() } {
                    visit(value);
                }
            }
        }
    }
}

// SAFETY: atomics; all-zero is an empty leaf.
unsafe impl Zeroed for Leaf {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self { slots: Zeroed::zeroed(), touched: Zeroed::zeroed() }
    }
}

// SAFETY: all-zero is an empty directory.
unsafe impl<T, const N: usize> Zeroed for Directory<T, N> {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self { entries: Zeroed::zeroed(), groups: Zeroed::zeroed() }
    }
}

// SAFETY: all-zero is an empty table.
unsafe impl Zeroed for Table {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self {
            top: Zeroed::zeroed(),
            granule_shift: Zeroed::zeroed(),
            leaf_ticks: Zeroed::zeroed(),
            spill: Zeroed::zeroed(),
        }
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
        table.scan(from, MAX_EPOCH, &mut |e| all.push(e));
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
                            // Every thread owns every fourth 8-byte cell, so slots, pages and spill
                            // chains are shared.
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
