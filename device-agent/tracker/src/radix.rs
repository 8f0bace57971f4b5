//! One word per granule of the address space, found by a two-level radix tree.
//!
//! Each group of 512 words has the epoch in which it was last written, so that a boundary scans only groups that its
//! window touched.
#![cfg_attr(
    not(test),
    expect(clippy::arithmetic_side_effects, reason = "places in tables whose sizes are powers of two")
)]

use core::ptr;

use crate::cost::ticks;
use crate::entry::Full;
use crate::sync::{self, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering, Use, Zeroed, sized};

/// Bits of a granule's number that select the word in a leaf, …
pub(crate) const SLOT_BITS: u32 = sized(16, 2);
/// … the leaf in a lower directory, …
pub(crate) const MID_BITS: u32 = sized(13, 1);
/// … and the lower directory in the upper one.
pub(crate) const TOP_BITS: u32 = sized(14, 1);
const SLOTS: usize = 1 << SLOT_BITS;
const PAGE_SLOTS: usize = sized(512, 2);
const PAGES: usize = SLOTS / PAGE_SLOTS;

/// A word of a leaf; 0: empty. Callers see 64 bits. A narrow word holds only values that fit.
pub(crate) trait Slot: Zeroed {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, word: u64, order: Ordering);
    /// Stores `new` if the word still holds `old`. Otherwise returns the word.
    fn exchange(&self, old: u64, new: u64) -> Result<(), u64>;
}

impl Slot for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }
    #[inline(always)]
    fn store(&self, word: u64, order: Ordering) {
        Self::store(self, word, order);
    }
    fn exchange(&self, old: u64, new: u64) -> Result<(), u64> {
        self.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).map(|_| ())
    }
}

impl Slot for AtomicU32 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order).into()
    }
    #[inline(always)]
    fn store(&self, word: u64, order: Ordering) {
        Self::store(self, word as u32, order);
    }
    fn exchange(&self, old: u64, new: u64) -> Result<(), u64> {
        let exchanged = self.compare_exchange(old as u32, new as u32, Ordering::Relaxed, Ordering::Relaxed);
        exchanged.map(|_| ()).map_err(u64::from)
    }
}

/// The slots come first, so that all slots of one stamp lie in one page of memory.
#[repr(C)]
pub(crate) struct Leaf<S> {
    slots: [S; SLOTS],
    /// For each page of slots, the epoch in which it was last written.
    stamps: [AtomicU16; PAGES],
}

impl<S: Slot> Leaf<S> {
    fn is_used_to_its_end(&self) -> bool {
        self.stamps.last().is_some_and(|stamp| stamp.load(Ordering::Relaxed) != 0)
    }

    /// The slot, if it is empty and its page was already written in this epoch.
    #[inline(always)]
    pub(crate) fn empty_slot(&self, granule: usize, epoch: u32) -> Option<&S> {
        let (slot, stamp) = self.at(granule);
        let is_present = u32::from(stamp.load(Ordering::Relaxed)) >= epoch;
        (is_present && slot.load(Ordering::Relaxed) == 0).then_some(slot)
    }

    /// A slot.
    #[inline(always)]
    pub(crate) fn slot(&self, granule: usize) -> &S {
        self.at(granule).0
    }

    /// Like [`Radix::holds`].
    #[inline(always)]
    fn holds(&self, granule: usize) -> bool {
        let (slot, stamp) = self.at(granule);
        stamp.load(Ordering::Relaxed) != 0 && slot.load(Ordering::Relaxed) != 0
    }

    /// A slot, and the stamp of its page.
    #[inline(always)]
    fn at(&self, granule: usize) -> (&S, &AtomicU16) {
        let slot = granule & (SLOTS - 1);
        // SAFETY: `slot` < SLOTS by its mask, so its page < PAGES.
        let stamp = unsafe { self.stamps.get_unchecked(slot / PAGE_SLOTS) };
        // SAFETY: as above.
        (unsafe { self.slots.get_unchecked(slot) }, stamp)
    }
}

type Mid<S> = Directory<Leaf<S>, { 1 << MID_BITS }>;

/// The radix tree. All-zero is empty.
#[repr(C)]
pub(crate) struct Radix<S> {
    top: Directory<Mid<S>, { 1 << TOP_BITS }>,
    /// Time-stamp ticks for mapping whole leaves, which is too rare for timing samples.
    leaf_ticks: AtomicU64,
}

impl<S: Slot> Radix<S> {
    /// The address of the tree: a reader of this process's memory starts here.
    pub(crate) fn address(&self) -> u64 {
        ptr::from_ref(&self.top) as u64
    }

    /// Total ticks for mapping whole leaves.
    pub(crate) fn leaf_ticks(&self) -> u64 {
        self.leaf_ticks.load(Ordering::Relaxed)
    }

    /// Writes a word and returns the previous one.
    ///
    /// # Errors
    /// [`Full`] when no memory could be mapped; nothing is written then.
    #[inline(always)]
    pub(crate) fn replace(&self, granule: usize, word: u64, epoch: u32) -> Result<u64, Full> {
        let leaf = match self.leaf(granule) {
            Some(found) => found,
            None => self.make_leaf(granule)?,
        };
        let (slot, stamp) = leaf.at(granule);
        let epoch = epoch as u16;
        // A thread that still uses the previous epoch must not lower the stamp of the present one.
        if stamp.load(Ordering::Relaxed) < epoch && stamp.fetch_max(epoch, Ordering::Relaxed) == 0 {
            // Nothing was ever written to this page, so it is not read: a read would cost another page fault.
            slot.store(word, Ordering::Release);
            return Ok(0);
        }
        let before = slot.load(Ordering::Relaxed);
        // Release: a scan that finds a stack id also finds the stack.
        slot.store(word, Ordering::Release);
        Ok(before)
    }

    /// Empties a slot and returns its word. Touches no unwritten memory, like [`Radix::holds`].
    #[inline(always)]
    pub(crate) fn take(&self, granule: usize) -> u64 {
        let Some(leaf) = self.leaf(granule).filter(|leaf| leaf.holds(granule)) else { return 0 };
        let slot = leaf.slot(granule);
        let before = slot.load(Ordering::Relaxed);
        slot.store(0, Ordering::Relaxed);
        before
    }

    /// Is the word filled? Unwritten memory is not touched, because most granules are empty when this is called.
    #[inline(always)]
    pub(crate) fn holds(&self, granule: usize) -> bool {
        self.leaf(granule).is_some_and(|leaf| leaf.holds(granule))
    }

    /// Calls `visit` with every word that is not empty, in pages written in epoch `from` or later (0: all).
    pub(crate) fn scan(&self, from: u32, visit: &mut dyn FnMut(u64)) {
        self.each_leaf(&mut |leaf| {
            for (page, stamp) in leaf.stamps.iter().enumerate() {
                let stamp = u32::from(stamp.load(Ordering::Relaxed));
                if stamp == 0 || stamp < from {
                    continue;
                }
                for slot in leaf.slots.iter().skip(page * PAGE_SLOTS).take(PAGE_SLOTS) {
                    let word = slot.load(Ordering::Acquire);
                    if word != 0 {
                        visit(word);
                    }
                }
            }
        });
    }

    /// Replaces every word by the result of `aged` (`None`: unchanged), and every stamp by `epoch`.
    pub(crate) fn age(&self, epoch: u32, aged: &dyn Fn(u64) -> Option<u64>) {
        self.each_leaf(&mut |leaf| {
            for stamp in &leaf.stamps {
                if stamp.load(Ordering::Relaxed) != 0 {
                    stamp.store(epoch as u16, Ordering::Relaxed);
                }
            }
            for slot in &leaf.slots {
                let mut word = slot.load(Ordering::Relaxed);
                while word != 0
                    && let Some(old) = aged(word)
                    && let Err(now) = slot.exchange(word, old)
                {
                    word = now;
                }
            }
        });
    }

    fn each_leaf(&self, visit: &mut dyn FnMut(&Leaf<S>)) {
        self.top.each(&mut |mid| mid.each(visit));
    }

    /// The leaf of this granule, if any word of the leaf was written.
    #[inline(always)]
    pub(crate) fn leaf(&self, granule: usize) -> Option<&Leaf<S>> {
        self.top.get(granule >> (SLOT_BITS + MID_BITS))?.get(granule >> SLOT_BITS)
    }

    #[cold]
    #[inline(never)]
    fn make_leaf(&self, granule: usize) -> Result<&Leaf<S>, Full> {
        let (top, mid) = (granule >> (SLOT_BITS + MID_BITS), granule >> SLOT_BITS);
        let lower = self.top.get_or_map(top, Use::Sparse).ok_or(Full)?;
        // A heap that has filled the two leaves below continues into this one. One full leaf is not enough evidence:
        // the small heaps of many threads would each pay for half a leaf that they never use.
        let is_used = |distance| lower.below(mid, distance).is_some_and(Leaf::is_used_to_its_end);
        let is_whole = is_used(1) && is_used(2);
        let began = ticks();
        let leaf = lower.get_or_map(mid, if is_whole { Use::Whole } else { Use::Sparse }).ok_or(Full)?;
        if is_whole {
            self.leaf_ticks.fetch_add(ticks().saturating_sub(began), Ordering::Relaxed);
        }
        Ok(leaf)
    }
}

/// Pointers to mappings that are made on demand and never unmapped.
#[repr(C)]
struct Directory<T, const N: usize> {
    entries: [AtomicPtr<T>; N],
    /// One bit for each of 64 groups of neighbours that may hold something. A group is marked before its entry exists,
    /// so that a thread that got an entry finds it when it scans.
    groups: AtomicU64,
}

impl<T: Zeroed, const N: usize> Directory<T, N> {
    const GROUP: usize = N.div_ceil(64);

    /// The entry at `index`. Only the low bits of the index count.
    #[inline(always)]
    fn get(&self, index: usize) -> Option<&T> {
        // SAFETY: N is a power of two in all uses.
        let entry = unsafe { self.entries.get_unchecked(index & (N - 1)) };
        // SAFETY: published memory stays mapped.
        unsafe { entry.load(Ordering::Acquire).as_ref() }
    }

    /// The entry that lies `distance` before the one at `index`.
    fn below(&self, index: usize, distance: usize) -> Option<&T> {
        self.get((index & (N - 1)).checked_sub(distance)?)
    }

    /// The entry at `index`. It is mapped if it does not exist.
    fn get_or_map(&self, index: usize, used: Use) -> Option<&T> {
        let index = index & (N - 1);
        self.groups.fetch_or(1 << (index / Self::GROUP), Ordering::Relaxed);
        let at = sync::get_or_map(self.entries.get(index)?, 1, used)?;
        // SAFETY: published memory stays mapped.
        unsafe { at.as_ref() }
    }

    fn each(&self, visit: &mut dyn FnMut(&T)) {
        let groups = self.groups.load(Ordering::Relaxed);
        for (i, group) in self.entries.chunks(Self::GROUP).enumerate() {
            if groups >> i & 1 == 0 {
                continue;
            }
            for entry in group {
                // SAFETY: published memory stays mapped.
                if let Some(value) = unsafe { entry.load(Ordering::Acquire).as_ref() } {
                    visit(value);
                }
            }
        }
    }
}

// SAFETY: atomics; all-zero is an empty leaf.
unsafe impl<S: Zeroed> Zeroed for Leaf<S> {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self { slots: Zeroed::zeroed(), stamps: Zeroed::zeroed() }
    }
}

// SAFETY: all-zero is an empty directory.
unsafe impl<T, const N: usize> Zeroed for Directory<T, N> {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self { entries: Zeroed::zeroed(), groups: Zeroed::zeroed() }
    }
}

// SAFETY: all-zero is empty.
unsafe impl<S: Zeroed> Zeroed for Radix<S> {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self { top: Zeroed::zeroed(), leaf_ticks: Zeroed::zeroed() }
    }
}
