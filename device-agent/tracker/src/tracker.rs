//! The tracker: the interface for the agent's hooks and boundaries.
#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "counters that no process lives long enough to overflow"
    )
)]

use core::sync::atomic::AtomicUsize;

use crate::bounds::StackLayout;
use crate::capture::{self, Context, Registers};
use crate::cfi::FindObject;
use crate::cost::{Reckoning, excess};
use crate::sampling::{Pages, stands_for};
use crate::stacks::Node;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, Zeroed, sized, zero_constructor};
use crate::sys::without_mark;
use crate::table::{ANCIENT, Entry, FIRST_EPOCH, Full, MAX_EPOCH, Table};
use crate::thread::{Inside, RECENT_EPOCHS, ThreadState, ThreadStates, bump};

/// An allocation that was removed from the table. It is put back if the free did not happen.
pub type Removed = Option<Entry>;

/// Why recording stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// No memory for a thread's state.
    Memory,
    /// No memory for the live table, or no room in it.
    Table,
    /// No memory for a stack, or no more ids.
    Stacks,
}

/// Sums over all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Successful allocations.
    pub allocations: u64,
    /// Frees of tracked allocations.
    pub frees: u64,
    /// Requested bytes allocated.
    pub allocated_bytes: u64,
    /// Requested bytes freed.
    pub freed_bytes: u64,
    /// Frees of unknown pointers.
    pub unknown_frees: u64,
    /// Stacks that did not reach their root.
    pub truncated_stacks: u64,
}

/// Number of events between two publications of a thread's counters, and between two timing samples, minus one.
pub(crate) const PUBLISH_MASK: u64 = sized(0xff, 1);
/// Size of an allocation that is published at once, because a curve of live memory would miss too much. Smaller sizes
/// fit into words.
pub(crate) const LARGE: u64 = Entry::LARGEST_NARROW + 1;

/// The state of the tracker. One lives in a static of the agent. The fields that every event reads are in its first
/// cache line.
#[repr(C, align(64))]
pub struct Tracker {
    /// Mean bytes between two samples; 0: all allocations are recorded.
    interval: AtomicU64,
    /// Restarts of the epoch count 18 | epoch 14: one number that only grows.
    pub(crate) epoch: AtomicU32,
    /// The stack id of all allocations while no stacks are taken. 0: stacks are taken, nothing is recorded, or only
    /// samples are.
    pub(crate) no_stack: AtomicU32,
    stopped: AtomicU32,
    pub(crate) table: Table,
    pub(crate) captures: Context,
    pub(crate) threads: ThreadStates,
    /// Pages of recorded blocks, if only samples are recorded.
    sampled: Pages,
    thread_starts: AtomicUsize,
    live_counters: AtomicPtr<AtomicPtr<AtomicU64>>,
}

impl Tracker {
    zero_constructor! {
        /// An empty tracker: all zero, so that its static takes no room in the library's file. [`Tracker::prepare`] is
        /// called before the first event.
    }

    /// Address and layout of the live table. `None`: some allocations are recorded without a stack.
    #[must_use]
    pub fn table_layout(&self) -> Option<crate::table::Layout> {
        self.table.layout()
    }

    /// Sets the positions of stacks and the lookup of unwind tables. Called before the first event.
    pub fn prepare(
        &self,
        layout: StackLayout,
        find_object: Option<FindObject>,
        wide_granule: bool,
        thread_starts: fn(),
    ) {
        self.captures.set_layout(layout);
        if let Some(find) = find_object {
            self.captures.rules.set_find_object(find);
        }
        self.table.set_granule(wide_granule);
        self.epoch.store(FIRST_EPOCH, Ordering::Relaxed);
        self.thread_starts.store(thread_starts as usize, Ordering::Relaxed);
    }

    /// Records only samples from now on: one byte in `interval` is chosen (0: all allocations are recorded). Counters
    /// and [`Totals`] are then estimates, frees of unrecorded blocks are not counted, and a block whose free was not
    /// seen may stay in the table. Called before the first event of the guest.
    pub fn sample(&self, interval: u64) {
        self.interval.store(interval, Ordering::Relaxed);
    }

    /// Switches stacks of allocations on or off. If there is no memory for the node of the unknown stack, stacks are
    /// taken anyway.
    pub fn take_stacks(&self, takes: bool) {
        let is_none = !takes && self.interval().is_none() && self.stopped().is_none();
        let unknown = if is_none { self.unknown_stack() } else { None };
        self.no_stack.store(unknown.unwrap_or(0), Ordering::Relaxed);
        #[cfg(not(any(target_os = "android", loom)))]
        if takes {
            self.threads
                .with(self.first(), |_, scratch| capture::look_for_unloading(scratch, &self.captures));
        }
    }

    fn unknown_stack(&self) -> Option<u32> {
        let known = self.table.no_stack();
        if known.is_none() {
            self.table.set_no_stack(self.captures.store.unknown(self.generation())?).ok()?;
        }
        self.table.no_stack()
    }

    /// Are stacks off?
    #[inline(always)]
    pub(crate) fn takes_none(&self) -> bool {
        self.no_stack.load(Ordering::Relaxed) != 0
    }

    /// Mean bytes between two samples; `None`: all allocations are recorded.
    #[inline(always)]
    pub fn interval(&self) -> Option<u64> {
        Some(self.interval.load(Ordering::Relaxed)).filter(|interval| *interval != 0)
    }

    /// Records that `address` with `size` requested bytes is now allocated.
    #[inline(always)]
    pub fn record_alloc(&self, address: usize, size: u64, at: Registers) {
        if !self.record_alloc_quickly(address, size)
            && !self.record_alloc_with_stack_quickly(address, size, at)
        {
            self.record_unusual_alloc(address, size, at);
        }
    }

    /// The full path, for every event.
    #[inline(always)]
    pub fn record_unusual_alloc(&self, address: usize, size: u64, at: Registers) {
        if Inside::now() || self.stopped.load(Ordering::Relaxed) != 0 {
            return;
        }
        let interval = self.interval();
        if interval.is_some() && self.threads.own().is_some_and(|own| own.countdown.passes(size)) {
            return;
        }
        let address = without_mark(address);
        let done = self.threads.with(self.first(), |state, scratch| {
            if interval.is_some_and(|interval| !state.countdown.chooses(size, interval)) {
                return;
            }
            let mut stack = self.no_stack.load(Ordering::Relaxed);
            if stack == 0 {
                let Registers { pc, sp, fp } = at;
                stack = capture::capture(pc, sp, fp, scratch, &self.captures, &state.counters);
                if stack == 0 {
                    self.stop(StopReason::Stacks);
                    return;
                }
                #[cfg(feature = "crosscheck")]
                crate::crosscheck::captured(&self.captures, at, stack);
            }
            self.enter(state, address, size, stack);
        });
        if done.is_none() {
            self.stop(StopReason::Memory);
        }
    }

    #[inline(always)]
    fn enter(&self, state: &ThreadState, address: usize, size: u64, stack: u32) {
        let now = self.epoch.load(Ordering::Relaxed);
        match self.insert(address, Entry { size, stack, epoch: now & MAX_EPOCH }) {
            Ok(None) => {}
            Ok(Some(lost)) => self.count_free(state, address, lost),
            Err(_) => {
                self.stop(StopReason::Table);
                return;
            }
        }
        self.count_alloc(state, address, size, now);
    }

    /// Records that `address` is about to be freed.
    #[inline(always)]
    pub fn record_free(&self, address: usize) -> Removed {
        self.record_free_quickly(address).or_else(|| self.record_unusual_free(address))
    }

    /// The full path, for every event.
    #[inline(always)]
    pub fn record_unusual_free(&self, address: usize) -> Removed {
        let address = without_mark(address);
        if self.interval().is_some() && !(self.sampled.may_hold(address) && self.table.holds(address)) {
            return None;
        }
        let known = self.threads.with(self.first(), |state, _| {
            let removed = self.remove(address);
            match removed {
                Some(entry) => self.count_free(state, address, entry),
                None => {
                    bump(&state.counters.unknown_frees, 1);
                }
            }
            removed
        });
        known.unwrap_or_else(|| self.remove_uncounted(address))
    }

    /// Records a kept block that has an owner again, without an allocation. Returns false if nothing is recorded,
    /// because the block was already recorded, or because only samples are recorded.
    pub fn note_kept(&self, address: usize, size: u64, stack: u32) -> bool {
        let stopped = self.stopped.load(Ordering::Relaxed) != 0;
        if Inside::now() || stopped || self.interval().is_some() || self.table.holds(address) {
            return false;
        }
        let no_stack = self.no_stack.load(Ordering::Relaxed);
        let stack = if no_stack == 0 { stack } else { no_stack };
        let done = self.threads.with(self.first(), |state, _| self.enter(state, address, size, stack));
        if done.is_none() {
            self.stop(StopReason::Memory);
        }
        done.is_some()
    }

    /// Counts this block as freed, if it was recorded, because its owner will not free it. Returns its entry.
    pub fn forget(&self, address: usize) -> Removed {
        if self.table.holds(address) { self.record_free(address) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn remove_uncounted(&self, address: usize) -> Removed {
        self.remove(address)
    }

    #[inline(always)]
    fn insert(&self, address: usize, entry: Entry) -> Result<Removed, Full> {
        let lost = self.table.insert(address, entry)?;
        if self.interval().is_some() && lost.is_none() {
            self.sampled.add(address);
        }
        Ok(lost)
    }

    #[inline(always)]
    fn remove(&self, address: usize) -> Removed {
        let removed = self.table.remove(address);
        if self.interval().is_some() && removed.is_some() {
            self.sampled.remove(address);
        }
        removed
    }

    /// Undoes a free that did not happen (a failed `realloc`).
    pub fn restore(&self, address: usize, removed: Removed) {
        let Some(entry) = removed else { return };
        let address = without_mark(address);
        self.threads.with(self.first(), |state, _| {
            let (count, bytes) = self.counts_as(address, entry.size);
            bump(&state.counters.frees, count.wrapping_neg());
            bump(&state.counters.freed_bytes, bytes.wrapping_neg());
            if let Some(epoch) = self.recent(entry) {
                state.counters.recent.add_born(epoch);
            }
        });
        match self.insert(address, entry) {
            Ok(None) => {}
            // The block was recorded again meanwhile, so it counts once.
            Ok(Some(again)) => {
                self.threads.with(self.first(), |state, _| self.count_free(state, address, again));
            }
            Err(_) => self.stop(StopReason::Table),
        }
    }

    /// Begins a new epoch for later allocations. Only one thread at a time calls this.
    pub fn begin_epoch(&self) -> u32 {
        let now = self.epoch.load(Ordering::Relaxed);
        if now & MAX_EPOCH != MAX_EPOCH {
            self.epoch.store(now + 1, Ordering::SeqCst);
            return (now + 1) & MAX_EPOCH;
        }
        self.epoch.store(now.wrapping_add(1 + FIRST_EPOCH), Ordering::SeqCst);
        self.table.age(FIRST_EPOCH);
        FIRST_EPOCH
    }

    /// Does the epoch count restart with the next epoch? All older epochs then become ancient.
    #[must_use]
    pub fn starts_again_next(&self) -> bool {
        self.epoch.load(Ordering::Relaxed) & MAX_EPOCH == MAX_EPOCH
    }

    /// Visits every live allocation that is older than the current epoch count, or belongs to its first epoch.
    pub fn scan_ancient(&self, visit: &mut dyn FnMut(Entry)) {
        self.table.scan(ANCIENT, FIRST_EPOCH, visit);
    }

    /// Number of live allocations that were born since this epoch began. `None`: the epoch is too old, and only a scan
    /// can tell. Zero means that a scan would find nothing. Concurrent events of other threads may make the number too
    /// large, never too small.
    #[must_use]
    pub fn alive_since(&self, epoch: u32) -> Option<u64> {
        let now = self.epoch.load(Ordering::Relaxed);
        let from = self.recent_at(now, epoch).filter(|_| epoch != 0)?;
        let (mut died, mut born) = (0, 0_u64);
        // Frees are counted first. A thread that sees a free also sees the allocation before it, so a block that moves
        // from thread to thread meanwhile does not hide another one.
        self.threads.each(|state| died += state.counters.recent.died(from, now));
        self.threads.each(|state| born += state.counters.recent.born(from, now));
        Some(born.saturating_sub(died))
    }

    /// Visits every live allocation born in `from` or later; 0: all allocations.
    pub fn scan(&self, from: u32, visit: &mut dyn FnMut(Entry)) {
        self.table.scan(from, self.epoch.load(Ordering::Relaxed) & MAX_EPOCH, visit);
    }

    /// A module was unloaded: invalidates rules and remembered stacks. Later stacks get new nodes. Returns the new
    /// generation.
    pub fn modules_changed(&self) -> u32 {
        self.captures.rules.next_generation()
    }

    /// The current module generation.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.captures.rules.generation()
    }

    /// A stored frame.
    #[must_use]
    pub fn stack_node(&self, id: u32) -> Option<Node> {
        self.captures.store.node(id)
    }

    /// Number of stored frames.
    #[must_use]
    pub fn stack_nodes(&self) -> u32 {
        self.captures.store.len()
    }

    /// Takes the caller's stack without recording an allocation.
    #[must_use]
    pub fn stack_of(&self, at: Registers) -> u32 {
        self.threads
            .with(self.first(), |state, scratch| {
                #[cfg(not(any(target_os = "android", loom)))]
                if self.takes_none() {
                    capture::look_for_unloading(scratch, &self.captures);
                }
                let Registers { pc, sp, fp } = at;
                capture::capture(pc, sp, fp, scratch, &self.captures, &state.counters)
            })
            .unwrap_or(0)
    }

    /// Sums over all threads.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        let add = |to: &mut u64, from: &AtomicU64| *to = to.wrapping_add(from.load(Ordering::Acquire));
        // Frees first, so that no free is counted without its allocation.
        self.threads.each(|state| {
            add(&mut sum.frees, &state.counters.frees);
            add(&mut sum.freed_bytes, &state.counters.freed_bytes);
        });
        self.threads.each(|state| {
            let c = &state.counters;
            add(&mut sum.allocations, &c.allocations);
            add(&mut sum.allocated_bytes, &c.allocated_bytes);
            add(&mut sum.unknown_frees, &c.unknown_frees);
            add(&mut sum.truncated_stacks, &c.truncated);
        });
        sum
    }

    /// Time-stamp ticks of all events, estimated from the timed ones. With sampling: ticks of the samples only.
    #[must_use]
    pub fn recording_ticks(&self) -> u64 {
        let mut reckoning = Reckoning::default();
        self.threads.each(|state| reckoning.add(&state.counters.timed));
        if self.interval().is_some() {
            return reckoning.timed(excess()).saturating_add(self.table.leaf_ticks());
        }
        let totals = self.totals();
        let others = totals.frees.wrapping_add(totals.unknown_frees);
        reckoning.total(totals.allocations, others, excess()).saturating_add(self.table.leaf_ticks())
    }

    /// Sets the location of a pointer to four words (allocations, frees, allocated bytes, freed bytes). Every thread
    /// adds to them from time to time. The pointer may be null.
    ///
    /// # Safety
    /// The location must stay valid. The words it points at must stay mapped and writable until another pointer is
    /// there and no hook uses the old one any more.
    pub unsafe fn publish_to(&self, place: *mut AtomicPtr<AtomicU64>) {
        self.live_counters.store(place, Ordering::Release);
    }

    /// Publishes the calling thread's unpublished counts.
    pub fn publish(&self) {
        self.threads.with(self.first(), |state, _| self.publish_state(state));
    }

    /// The calling thread ends: its state goes to another thread. Its remaining events are still counted.
    pub fn thread_ends(&self) {
        self.publish();
        self.threads.thread_ends();
    }

    /// Called in a forked child, before anything else.
    pub fn after_fork(&self) {
        self.threads.after_fork();
        self.captures.store.after_fork();
        #[cfg(feature = "crosscheck")]
        crate::crosscheck::after_fork();
    }

    /// The reason why recording stopped, if it did.
    #[must_use]
    pub fn stopped(&self) -> Option<StopReason> {
        match self.stopped.load(Ordering::Relaxed) {
            1 => Some(StopReason::Memory),
            2 => Some(StopReason::Table),
            3 => Some(StopReason::Stacks),
            _ => None,
        }
    }

    /// Stops recording permanently. The first reason is kept.
    #[cold]
    #[inline(never)]
    pub fn stop(&self, reason: StopReason) {
        let code = match reason {
            StopReason::Memory => 1,
            StopReason::Table => 2,
            StopReason::Stacks => 3,
        };
        self.no_stack.store(0, Ordering::Relaxed);
        // Keeps the first reason.
        if self.stopped.load(Ordering::Relaxed) == 0 {
            self.stopped.store(code, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn count_alloc(&self, state: &ThreadState, address: usize, size: u64, now: u32) {
        let (count, bytes) = self.counts_as(address, size);
        bump(&state.counters.allocated_bytes, bytes);
        state.counters.recent.add_born(now);
        let count = bump(&state.counters.allocations, count);
        if self.interval().is_some() {
            // Samples are few, so all of them are timed.
            state.time_next();
            self.publish_state(state);
        } else if count & PUBLISH_MASK == 0 || size >= LARGE {
            if count & PUBLISH_MASK == 0 {
                state.draw(count);
            }
            self.publish_state(state);
        }
    }

    #[inline(always)]
    fn count_free(&self, state: &ThreadState, address: usize, entry: Entry) {
        let (count, bytes) = self.counts_as(address, entry.size);
        let count = bump(&state.counters.frees, count);
        bump(&state.counters.freed_bytes, bytes);
        if self.interval().is_some() {
            state.time_next();
            self.publish_state(state);
        } else if count & PUBLISH_MASK == 0 {
            state.draw(count);
        }
        if let Some(epoch) = self.recent(entry) {
            state.counters.recent.add_died(epoch);
        }
    }

    /// Blocks and bytes that a block counts as: its own, or those it stands for as a sample.
    #[inline(always)]
    fn counts_as(&self, address: usize, size: u64) -> (u64, u64) {
        self.interval().map_or((1, size), |interval| stands_for(address, size, interval))
    }

    /// The epoch under which an allocation is counted, if it is recent.
    #[inline(always)]
    pub(crate) fn recent(&self, entry: Entry) -> Option<u32> {
        self.recent_at(self.epoch.load(Ordering::Relaxed), entry.epoch)
    }

    #[inline(always)]
    fn recent_at(&self, now: u32, epoch: u32) -> Option<u32> {
        let age = (now & MAX_EPOCH).wrapping_sub(epoch);
        ((age as usize) < RECENT_EPOCHS - 2).then(|| now.wrapping_sub(age))
    }

    #[cold]
    #[inline(never)]
    fn publish_state(&self, state: &ThreadState) {
        // SAFETY: `publish_to` was promised a place that stays.
        let Some(place) = (unsafe { self.live_counters.load(Ordering::Acquire).as_ref() }) else { return };
        let words = place.load(Ordering::Acquire);
        if words.is_null() {
            return;
        }
        let c = &state.counters;
        for (i, (now, published)) in [&c.allocations, &c.frees, &c.allocated_bytes, &c.freed_bytes]
            .into_iter()
            .zip(&c.published)
            .enumerate()
        {
            let now = now.load(Ordering::Relaxed);
            let delta = now.wrapping_sub(published.load(Ordering::Relaxed));
            published.store(now, Ordering::Relaxed);
            // SAFETY: `publish_to` was promised four words.
            unsafe { &*words.wrapping_add(i) }.fetch_add(delta, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn first(&self) -> fn() {
        let word = self.thread_starts.load(Ordering::Relaxed);
        if word == 0 {
            return || {};
        }
        // SAFETY: only `prepare` writes the word, with a `fn()`.
        unsafe { core::mem::transmute::<usize, fn()>(word) }
    }
}

impl Default for Tracker {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: all-zero is an empty tracker.
unsafe impl Zeroed for Tracker {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self {
            table: Zeroed::zeroed(),
            captures: Zeroed::zeroed(),
            threads: Zeroed::zeroed(),
            epoch: Zeroed::zeroed(),
            stopped: Zeroed::zeroed(),
            interval: AtomicU64::new(0),
            no_stack: Zeroed::zeroed(),
            sampled: Zeroed::zeroed(),
            thread_starts: AtomicUsize::new(0),
            live_counters: Zeroed::zeroed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::boxed::Box;
    use std::vec::Vec;

    use super::*;

    unsafe extern "C" {
        fn _dl_find_object(pc: *mut core::ffi::c_void, out: *mut core::ffi::c_void) -> i32;
        static __libc_stack_end: *mut core::ffi::c_void;
    }

    fn tracker() -> &'static Tracker {
        let t: &Tracker = Box::leak(Box::new(Tracker::new()));
        let layout = StackLayout {
            main_thread: 0,
            // SAFETY: a word the loader wrote before main.
            main_top: unsafe { __libc_stack_end } as usize,
            thread_bytes: 8 << 20,
        };
        t.prepare(layout, Some(_dl_find_object), true, || {});
        t
    }

    #[test]
    fn when_the_numbers_for_stacks_run_out_recording_stops_and_what_was_recorded_stays_exact() {
        let t = tracker();
        t.record_alloc(0x10_0000, 11, Registers::here());
        t.captures.store.leave(0);
        // Called from another line, so it has another stack.
        t.record_alloc(0x20_0000, 13, Registers::here());
        assert_eq!(t.stopped(), Some(StopReason::Stacks));
        t.record_alloc(0x30_0000, 17, Registers::here());
        assert_eq!(t.record_free(0x10_0000).map(|entry| entry.size), Some(11));
        assert_eq!(t.record_free(0x30_0000), None);
        let totals = t.totals();
        assert_eq!((totals.allocations, totals.frees, totals.unknown_frees), (1, 1, 1));
    }

    fn pcs(t: &Tracker, mut id: u32) -> Vec<u64> {
        let mut out = Vec::new();
        while let Some(n) = t.stack_node(id) {
            out.push(n.pc);
            id = n.parent;
        }
        out
    }

    #[inline(never)]
    fn down(t: &Tracker, depth: usize, out: &mut Vec<u32>) {
        out.push(std::hint::black_box(t.stack_of(Registers::here())));
        if depth > 0 {
            down(t, depth - 1, out);
        }
        out.push(std::hint::black_box(t.stack_of(Registers::here())));
    }

    #[test]
    fn every_stack_reaches_the_root_and_depth_shows() {
        let t = tracker();
        let mut ids = Vec::new();
        down(t, 40, &mut ids);
        let depths: Vec<usize> = ids.iter().map(|&id| pcs(t, id).len()).collect();
        let base = depths[0];
        for i in 0..=40 {
            assert_eq!(depths[i], base + i);
            assert_eq!(depths[81 - i], base + i);
        }
        assert_eq!(t.totals().truncated_stacks, 0, "{:x?}", pcs(t, ids[0]));
    }

    #[test]
    fn a_stack_beyond_the_limit_is_cut_the_same_way_each_time() {
        let t = tracker();
        let mut first = Vec::new();
        down(t, 700, &mut first);
        let mut second = Vec::new();
        down(t, 700, &mut second);
        assert_eq!(pcs(t, first[700]).len(), capture::MAX_FRAMES + 1);
        assert_eq!(pcs(t, first[700]).last(), Some(&(capture::TRUNCATED_PC as u64)));
        assert_eq!(first[650], second[650]);
        assert!(t.totals().truncated_stacks > 0);
    }

    #[test]
    fn survivors_belong_to_their_epoch() {
        let t = tracker();
        let before = t.begin_epoch();
        for i in 0..10 {
            t.record_alloc(0x10_0000 + 64 * i, 37, Registers::here());
        }
        let window = t.begin_epoch();
        for i in 0..10 {
            t.record_alloc(0x20_0000 + 64 * i, 148, Registers::here());
        }
        for i in 0..10 {
            t.record_free(0x10_0000 + 64 * i);
        }
        for i in 0..7 {
            t.record_free(0x20_0000 + 64 * i);
        }
        assert_eq!((t.alive_since(before), t.alive_since(window)), (Some(3), Some(3)));
        let mut sizes = Vec::new();
        t.scan(window, &mut |e| sizes.push(e.size));
        assert_eq!(sizes, [148; 3]);
        let totals = t.totals();
        assert_eq!((totals.allocations, totals.frees), (20, 17));
        assert_eq!(totals.allocated_bytes - totals.freed_bytes, 3 * 148);
    }

    #[test]
    fn of_samples_the_totals_are_estimates_and_what_was_freed_is_gone() {
        let t = tracker();
        t.sample(4096);
        let window = t.begin_epoch();
        let blocks = 100_000;
        let address = |i: usize| 0x100_0000 + 64 * i;
        (0..blocks).for_each(|i| t.record_alloc(address(i), 40, Registers::here()));
        let totals = t.totals();
        let near = |value: u64, expected: u64| (value as f64 / expected as f64 - 1.0).abs() < 0.2;
        assert!(near(totals.allocations, 100_000) && near(totals.allocated_bytes, 4_000_000), "{totals:?}");
        let mut noted = 0;
        t.scan(window, &mut |_| noted += 1);
        assert!((700..1300).contains(&noted), "{noted}");
        assert_eq!(t.alive_since(window), Some(noted));
        (0..blocks).for_each(|i| {
            t.record_free(address(i));
        });
        let totals = t.totals();
        assert_eq!(t.alive_since(window), Some(0));
        assert_eq!((totals.frees, totals.freed_bytes), (totals.allocations, totals.allocated_bytes));
        assert_eq!(totals.unknown_frees, 0);
        assert!((0..blocks).all(|i| !t.sampled.may_hold(address(i))), "nothing is left of them");
    }

    /// The results of some thousand events, and the number of events that took the quick path without a stack.
    fn events(goes_short: bool, takes_stacks: bool) -> (Totals, Vec<(u64, u32)>, Option<u64>, u64) {
        let t = tracker();
        t.take_stacks(takes_stacks);
        let (mut random, mut quick) = (1_u64, 0);
        for _ in 0..30_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let dice = (random >> 33) as usize;
            // Some addresses and sizes fit into no slot, and the free of some allocations is not seen.
            let address = 0x50_0000 + (dice >> 4) % 2000 * 32 + if dice.is_multiple_of(97) { 8 } else { 0 };
            let size = if dice.is_multiple_of(89) { 1 << 24 } else { (dice >> 7) as u64 % 500 };
            match dice % 16 {
                0 if dice.is_multiple_of(640) => {
                    t.begin_epoch();
                }
                0..8 if goes_short && t.record_alloc_quickly(address, size) => quick += 1,
                0..8 if goes_short => t.record_alloc(address, size, Registers::here()),
                0..8 => t.record_unusual_alloc(address, size, Registers::here()),
                _ => {
                    let removed =
                        if goes_short { t.record_free(address) } else { t.record_unusual_free(address) };
                    assert!(removed.is_none_or(|entry| entry.size == 1 << 24 || entry.size < 500));
                }
            }
        }
        let mut all = Vec::new();
        t.scan(0, &mut |entry| all.push((entry.size, entry.epoch)));
        all.sort_unstable();
        let epoch = t.begin_epoch();
        (t.totals(), all, t.alive_since(epoch - 2), quick)
    }

    #[test]
    fn the_short_way_tells_what_the_long_one_does() {
        for takes_stacks in [true, false] {
            // Each in its own thread, because a thread has one state.
            let run =
                |goes_short| std::thread::spawn(move || events(goes_short, takes_stacks)).join().unwrap();
            let (mut short, long) = (run(true), run(false));
            assert_eq!(short.3 > 1000, !takes_stacks, "{}", short.3);
            short.3 = 0;
            assert!(long.1.len() > 100 && long.2 > Some(10), "{:?} of {}", long.2, long.1.len());
            assert_eq!(short, long);
        }
    }

    #[test]
    fn a_failed_realloc_leaves_no_trace() {
        let t = tracker();
        let window = t.begin_epoch();
        t.record_alloc(0x30_0000, 1003, Registers::here());
        let totals = t.totals();
        let removed = t.record_free(0x30_0000);
        assert_eq!(t.alive_since(window), Some(0));
        t.restore(0x30_0000, removed);
        assert_eq!((t.alive_since(window), t.totals()), (Some(1), totals));
        assert_eq!(t.record_free(0x30_0000), removed);
    }

    #[test]
    fn epochs_may_wrap_without_mixing_windows() {
        let t = tracker();
        t.record_alloc(0x40_0000, 1, Registers::here());
        for _ in 0..40_000 {
            let window = t.begin_epoch();
            assert_eq!(t.alive_since(window), Some(0));
        }
        let window = t.begin_epoch();
        t.record_alloc(0x40_0040, 2, Registers::here());
        let mut sizes = Vec::new();
        t.scan(window, &mut |e| sizes.push(e.size));
        assert_eq!((t.alive_since(window), sizes), (Some(1), std::vec![2]));
        let mut ancient = Vec::new();
        t.scan_ancient(&mut |e| ancient.push(e.size));
        assert_eq!(ancient, [1], "what is older than the count is known to be that");
        let left = (0..20_000).take_while(|_| !t.starts_again_next() && t.begin_epoch() > 0).count();
        assert!(left < 16_384 && t.begin_epoch() == FIRST_EPOCH);
    }
}
