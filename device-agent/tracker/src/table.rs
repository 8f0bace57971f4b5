//! The live table: one word for each granule of the address space, with 8 bytes for an allocation with a stack and 4
//! bytes for one without.
//!
//! No lock is needed: the holder of a pointer owns its words. The hook stores after the real `malloc` and clears before
//! the real `free`. A word packs `stack 26 | epoch 14 | size 24` bits, a narrow word `epoch 14 | size 18`. Entries that
//! do not fit (16 MiB and more, pointers that are only 8-aligned) go to a small open-addressing spill table. A granule
//! has 32 bytes if the allocator's smallest block has 32 bytes (glibc), otherwise 16.
//!
//! While stacks are off, only the narrow words are touched: half the memory, and half the cache.

pub use crate::entry::{ANCIENT, Entry, FIRST_EPOCH, Full, MAX_EPOCH, MAX_STACK};
use crate::radix::{MID_BITS, Radix, SLOT_BITS, TOP_BITS};
use crate::spill::Spill;
use crate::sync::{self, AtomicPtr, AtomicU32, AtomicU64, Ordering, Use, Zeroed, zero_constructor};

const ADDRESS_BITS: u32 = 4 + SLOT_BITS + MID_BITS + TOP_BITS;

/// Address and layout of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layout {
    /// Address of the upper directory.
    pub top: u64,
    /// Address bits that select an entry in it, in a lower directory, and in a leaf.
    pub bits: [u32; 3],
    /// Size of a granule in bytes, as a power of two.
    pub granule_shift: u64,
    /// Widths in a slot, from the top down: stack, epoch, size.
    pub word: [u32; 3],
    /// Address of the array of segment pointers of the spill table.
    pub spill: u64,
    /// Maximum number of segments.
    pub segments: usize,
    /// Number of cells of the first segment. Each segment has four times as many as the one before.
    pub first_cells: usize,
}

/// The word of an entry with a stack, and of an entry without.
type Wide = AtomicU64;
type Narrow = AtomicU32;

/// The table. One lives in a static of the agent. All-zero is empty. The fields that every event reads come first.
#[repr(C)]
pub struct Table {
    granule_shift: AtomicU64,
    /// The stack of all entries in narrow words; 0: there are none.
    no_stack: AtomicU32,
    /// Null: there are no narrow words.
    narrow: AtomicPtr<Radix<Narrow>>,
    wide: Radix<Wide>,
    spill: Spill,
}

impl Table {
    zero_constructor! {
        /// An empty table. [`Table::set_granule`] is called before the first insert.
    }

    /// Address and layout of the live table, for a reader of this process's memory. `None`: some allocations are
    /// recorded without a stack.
    #[must_use]
    pub fn layout(&self) -> Option<Layout> {
        if self.no_stack().is_some() {
            return None;
        }
        let (stack_bits, epoch_bits, size_bits) = Entry::BITS;
        let spill = self.spill.layout();
        Some(Layout {
            top: self.wide.address(),
            bits: [TOP_BITS, MID_BITS, SLOT_BITS],
            granule_shift: self.granule_shift.load(Ordering::Relaxed),
            word: [stack_bits, epoch_bits, size_bits],
            spill: spill.0,
            segments: spill.1,
            first_cells: spill.2,
        })
    }

    /// Sets the granule: 32 bytes if two live pointers are always at least 32 bytes apart, otherwise 16, which is
    /// correct for every allocator.
    pub fn set_granule(&self, wide: bool) {
        self.granule_shift.store(if wide { 5 } else { 4 }, Ordering::Relaxed);
    }

    /// The stack that was set by [`Table::set_no_stack`].
    #[must_use]
    pub fn no_stack(&self) -> Option<u32> {
        Some(self.no_stack.load(Ordering::Relaxed)).filter(|stack| *stack != 0)
    }

    /// Declares this stack as the unknown stack: narrow words are enough for its allocations from now on. Called once
    /// at most, before the first of them.
    ///
    /// # Errors
    /// [`Full`] if there is no memory for narrow words. Nothing changes then.
    pub fn set_no_stack(&self, stack: u32) -> Result<(), Full> {
        sync::get_or_map(&self.narrow, 1, Use::Sparse).ok_or(Full)?;
        self.no_stack.store(stack, Ordering::Relaxed);
        Ok(())
    }

    /// Records a live allocation. Returns the previous entry of this pointer (its free was not seen).
    ///
    /// # Errors
    /// [`Full`] when no memory could be mapped; nothing is recorded then.
    #[inline(always)]
    pub fn insert(&self, address: usize, entry: Entry) -> Result<Option<Entry>, Full> {
        let Some(granule) = self.granule(address) else { return self.spill.insert(address, entry) };
        if let Some(word) = entry.pack_narrow(self.no_stack.load(Ordering::Relaxed))
            && let Some(narrow) = self.narrow()
        {
            let before = narrow.replace(granule, word, entry.epoch)?;
            return Ok(self.narrow_entry(before).or_else(|| self.take_wide(granule)));
        }
        let Some(word) = entry.pack() else { return self.spill.insert(address, entry) };
        let before = self.wide.replace(granule, word, entry.epoch)?;
        Ok(Entry::unpack(before).or_else(|| self.take_narrow(granule)))
    }

    /// The word for an entry without a stack, if nothing is recorded for the pointer and the word's page was already
    /// written in this epoch.
    #[inline(always)]
    pub(crate) fn narrow_place(&self, address: usize, epoch: u32) -> Option<&Narrow> {
        let granule = self.granule(address)?;
        self.narrow()?.leaf(granule)?.empty_slot(granule, epoch).filter(|_| !self.wide.holds(granule))
    }

    /// The same for an entry with a stack.
    #[inline(always)]
    pub(crate) fn wide_place(&self, address: usize, epoch: u32) -> Option<&Wide> {
        let granule = self.granule(address)?;
        self.wide.leaf(granule)?.empty_slot(granule, epoch).filter(|_| !self.holds_narrow(granule))
    }

    /// The narrow word of a pointer and its entry, if it is filled.
    #[inline(always)]
    pub(crate) fn filled_narrow(&self, address: usize) -> Option<(&Narrow, Entry)> {
        let granule = self.granule(address)?;
        let slot = self.narrow()?.leaf(granule)?.slot(granule);
        Some((slot, self.narrow_entry(slot.load(Ordering::Relaxed).into())?))
    }

    /// The same for a wide word.
    #[inline(always)]
    pub(crate) fn filled_wide(&self, address: usize) -> Option<(&Wide, Entry)> {
        let granule = self.granule(address)?;
        let slot = self.wide.leaf(granule)?.slot(granule);
        Some((slot, Entry::unpack(slot.load(Ordering::Relaxed))?))
    }

    /// Removes an allocation; `None`: it was not in the table.
    #[inline(always)]
    pub fn remove(&self, address: usize) -> Option<Entry> {
        let wide = |granule| self.take_wide(granule);
        let narrow = |granule| self.take_narrow(granule);
        let granule = self.granule(address);
        granule
            .and_then(|granule| wide(granule).or_else(|| narrow(granule)))
            .or_else(|| self.spill.remove(address))
    }

    /// Is the pointer in the table? Unwritten memory is not touched, because most pointers are in no table when this is
    /// called.
    #[inline(always)]
    pub fn holds(&self, address: usize) -> bool {
        let in_words = |granule| self.wide.holds(granule) || self.holds_narrow(granule);
        self.granule(address).is_some_and(in_words) || self.spill.holds(address)
    }

    /// Calls `visit` with every live allocation born in the epochs `from` to `to` (`from` 0: all).
    pub fn scan(&self, from: u32, to: u32, visit: &mut dyn FnMut(Entry)) {
        let mut choose = |entry: Entry| {
            // An entry with an epoch later than `to` was born before the count restarted, in a thread that had not
            // noticed the restart.
            if from == 0 || (from..=to).contains(&entry.epoch) {
                visit(entry);
            }
        };
        self.wide.scan(from, &mut |word| {
            if let Some(entry) = Entry::unpack(word) {
                choose(entry);
            }
        });
        if let Some(narrow) = self.narrow() {
            narrow.scan(from, &mut |word| {
                if let Some(entry) = self.narrow_entry(word) {
                    choose(entry);
                }
            });
        }
        self.spill.scan(&mut choose);
    }

    /// Makes every entry ancient, before the epoch count restarts. Runs while no new epoch can begin.
    pub fn age(&self, keep: u32) {
        let aged = |entry: Entry| {
            let is_old = entry.epoch != ANCIENT && entry.epoch != keep;
            is_old.then_some(Entry { epoch: ANCIENT, ..entry })
        };
        self.wide.age(keep, &|word| Entry::unpack(word).and_then(aged)?.pack());
        if let Some(narrow) = self.narrow() {
            let no_stack = self.no_stack.load(Ordering::Relaxed);
            narrow.age(keep, &|word| self.narrow_entry(word).and_then(aged)?.pack_narrow(no_stack));
        }
        self.spill.age(keep);
    }

    /// Total ticks for mapping whole leaves.
    pub(crate) fn leaf_ticks(&self) -> u64 {
        self.wide.leaf_ticks().saturating_add(self.narrow().map_or(0, Radix::leaf_ticks))
    }

    #[inline(always)]
    fn narrow(&self) -> Option<&Radix<Narrow>> {
        // SAFETY: published memory stays mapped.
        unsafe { self.narrow.load(Ordering::Acquire).as_ref() }
    }

    #[inline(always)]
    fn holds_narrow(&self, granule: usize) -> bool {
        self.narrow().is_some_and(|narrow| narrow.holds(granule))
    }

    /// The granule of a pointer, if a word can hold it.
    #[inline(always)]
    fn granule(&self, address: usize) -> Option<usize> {
        let fits = address & 15 == 0 && address >> ADDRESS_BITS == 0;
        fits.then(|| address >> self.granule_shift.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn narrow_entry(&self, word: u64) -> Option<Entry> {
        Entry::unpack_narrow(word, self.no_stack.load(Ordering::Relaxed))
    }

    /// Empties a wide word.
    #[inline(always)]
    fn take_wide(&self, granule: usize) -> Option<Entry> {
        Entry::unpack(self.wide.take(granule))
    }

    /// Empties a narrow word.
    #[inline(always)]
    fn take_narrow(&self, granule: usize) -> Option<Entry> {
        self.narrow_entry(self.narrow()?.take(granule))
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: all-zero is an empty table.
unsafe impl Zeroed for Table {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self {
            granule_shift: Zeroed::zeroed(),
            no_stack: Zeroed::zeroed(),
            narrow: Zeroed::zeroed(),
            wide: Zeroed::zeroed(),
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
    fn what_has_no_stack_takes_a_narrow_word_if_it_fits_and_no_other_place_is_left_filled() {
        const NONE: u32 = 9;
        let t = table(true);
        t.set_no_stack(NONE).unwrap();
        let sizes = [0, 37, (1 << 18) - 1, 1 << 18, (1 << 24) - 1, 1 << 24];
        for (i, size) in sizes.into_iter().enumerate() {
            for (before, now) in [(NONE, 5), (5, NONE), (NONE, NONE)] {
                let (address, old, new) = (0x8000 + 64 * i, entry(37, before, 3), entry(size, now, 4));
                // The free of the first allocation is not seen.
                assert_eq!(t.insert(address, old), Ok(None));
                if size < 1 << 24 {
                    assert_eq!(t.insert(address, new), Ok(Some(old)), "{size}");
                    assert_eq!(live(t, 0), [new]);
                }
                assert!(t.holds(address));
                let left = t.remove(address);
                assert_eq!(left, Some(if size < 1 << 24 { new } else { old }));
                assert!(!t.holds(address) && live(t, 0).is_empty(), "{size}");
            }
        }
        assert_eq!(t.layout(), None, "who reads the memory finds no such words");
    }

    #[test]
    fn a_scan_gives_only_what_was_born_since() {
        let t = table(true);
        t.set_no_stack(7).unwrap();
        for i in 0..3000_u32 {
            t.insert(0x10_0000 + 32 * i as usize, entry(u64::from(i), [1, 7][i as usize / 4 % 2], 2 + i % 3))
                .unwrap();
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
