//! The tracker as the agent's hooks and boundaries see it.

use core::ptr;
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::capture::{self, Context, Registers, StackLayout};
use crate::cfi::FindObject;
use crate::rules::RuleCache;
use crate::stacks::{Node, StackStore};
use crate::table::{Entry, FIRST_EPOCH, MAX_EPOCH, Table};
use crate::thread::{Inside, RECENT_EPOCHS, ThreadState, ThreadStates, bump};

/// An allocation that was taken out of the table, to be put back if the free did not happen.
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

/// Events between two publications of a thread's counters, minus one.
const PUBLISH_MASK: u64 = 0xff;

/// Everything there is. One lives in a static of the agent.
pub struct Tracker {
    table: Table,
    stacks: StackStore,
    rules: RuleCache,
    threads: ThreadStates,
    epoch: AtomicU32,
    generation: AtomicU32,
    stopped: AtomicU32,
    layout: [AtomicUsize; 3],
    thread_starts: AtomicUsize,
    live_counters: AtomicPtr<AtomicPtr<AtomicU64>>,
    epoch_base: [AtomicI64; RECENT_EPOCHS],
}

impl Tracker {
    /// A tracker that has seen nothing: all zero, so that its static takes no room in the library's file.
    /// [`Tracker::prepare`] comes before the first event.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            table: Table::new(),
            stacks: StackStore::new(),
            rules: RuleCache::new(),
            threads: ThreadStates::new(),
            epoch: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            stopped: AtomicU32::new(0),
            layout: [const { AtomicUsize::new(0) }; 3],
            thread_starts: AtomicUsize::new(0),
            live_counters: AtomicPtr::new(ptr::null_mut()),
            epoch_base: [const { AtomicI64::new(0) }; RECENT_EPOCHS],
        }
    }

    /// Tells where stacks lie and how unwind tables are found. Before the first event.
    pub fn prepare(
        &self,
        layout: StackLayout,
        find_object: Option<FindObject>,
        wide_granule: bool,
        thread_starts: fn(),
    ) {
        for (word, value) in
            self.layout.iter().zip([layout.main_thread, layout.main_top, layout.thread_bytes])
        {
            word.store(value, Ordering::Relaxed);
        }
        if let Some(find) = find_object {
            self.rules.set_find_object(find);
        }
        self.table.set_granule(wide_granule);
        self.epoch.store(FIRST_EPOCH, Ordering::Relaxed);
        self.thread_starts.store(thread_starts as usize, Ordering::Relaxed);
    }

    /// Notes that `address` with `size` requested bytes is now allocated.
    #[inline(always)]
    pub fn record_alloc(&self, address: usize, size: u64, at: Registers) {
        if Inside::now() || self.stopped.load(Ordering::Relaxed) != 0 {
            return;
        }
        let done = self.threads.with(self.first(), |state, scratch| {
            let context = Context {
                rules: &self.rules,
                store: &self.stacks,
                layout: self.layout(),
                generation: self.generation.load(Ordering::Relaxed),
                counters: &state.counters,
            };
            let stack = capture::capture(at, scratch, &context);
            if stack == 0 {
                self.stop(StopReason::Stacks);
                return;
            }
            self.enter(state, address, size, stack);
        });
        if done.is_none() {
            self.stop(StopReason::Memory);
        }
    }

    #[inline(always)]
    fn enter(&self, state: &ThreadState, address: usize, size: u64, stack: u32) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        match self.table.insert(address, Entry { size, stack, epoch }) {
            Ok(None) => {}
            Ok(Some(lost)) => self.count_free(state, lost),
            Err(_) => {
                self.stop(StopReason::Table);
                return;
            }
        }
        self.count_alloc(state, size, epoch);
    }

    /// Notes that `address` is about to be freed.
    #[inline(always)]
    pub fn record_free(&self, address: usize) -> Removed {
        let removed = self.table.remove(address);
        self.threads.with(self.first(), |state, _| match removed {
            Some(entry) => self.count_free(state, entry),
            None => {
                bump(&state.counters.unknown_frees, 1);
            }
        });
        removed
    }

    /// Takes a free back that did not happen (a failed `realloc`).
    pub fn restore(&self, address: usize, removed: Removed) {
        let Some(entry) = removed else { return };
        self.threads.with(self.first(), |state, _| {
            bump(&state.counters.frees, u64::MAX);
            bump(&state.counters.freed_bytes, entry.size.wrapping_neg());
            self.balance(state, entry.epoch, 1);
        });
        if self.table.insert(address, entry).is_err() {
            self.stop(StopReason::Table);
        }
    }

    /// A new epoch begins; allocations from now on belong to it. Only one thread at a time calls this.
    pub fn begin_epoch(&self) -> u32 {
        let mut next = self.epoch.load(Ordering::Relaxed) + 1;
        if next > MAX_EPOCH {
            next = FIRST_EPOCH;
            self.epoch.store(next, Ordering::SeqCst);
            self.table.age(next);
        }
        if let Some(base) = self.epoch_base.get(next as usize % RECENT_EPOCHS) {
            base.store(self.balance_of(next), Ordering::Relaxed);
        }
        self.epoch.store(next, Ordering::SeqCst);
        next
    }

    /// Allocations of this recent epoch that are still alive. 0 means that no scan is needed.
    #[must_use]
    pub fn alive_in(&self, epoch: u32) -> i64 {
        let base =
            self.epoch_base.get(epoch as usize % RECENT_EPOCHS).map_or(0, |b| b.load(Ordering::Relaxed));
        self.balance_of(epoch) - base
    }

    /// Allocations born since this epoch began that are still alive; `None`: it is too long ago, only a scan can tell.
    #[must_use]
    pub fn alive_since(&self, epoch: u32) -> Option<i64> {
        let now = self.epoch.load(Ordering::Relaxed);
        let known = epoch != 0 && now >= epoch && ((now - epoch) as usize) < RECENT_EPOCHS - 2;
        known.then(|| (epoch..=now).map(|e| self.alive_in(e)).sum())
    }

    /// Visits every live allocation born in `from` or later; 0: all.
    pub fn scan(&self, from: u32, visit: &mut dyn FnMut(Entry)) {
        self.table.scan(from, visit);
    }

    /// A module was unloaded: rules and remembered stacks are void, later stacks get new nodes. Returns the new generation.
    pub fn modules_changed(&self) -> u32 {
        let generation = (self.generation.load(Ordering::SeqCst) + 1) & 0xffff;
        self.generation.store(generation, Ordering::SeqCst);
        self.rules.clear();
        generation
    }

    /// The present module generation.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// A stored frame.
    #[must_use]
    pub fn stack_node(&self, id: u32) -> Option<Node> {
        self.stacks.node(id)
    }

    /// Stored frames.
    #[must_use]
    pub fn stack_nodes(&self) -> u32 {
        self.stacks.len()
    }

    /// Takes the caller's stack without recording an allocation.
    #[must_use]
    pub fn stack_of(&self, at: Registers) -> u32 {
        self.threads
            .with(self.first(), |state, scratch| {
                let context = Context {
                    rules: &self.rules,
                    store: &self.stacks,
                    layout: self.layout(),
                    generation: self.generation(),
                    counters: &state.counters,
                };
                capture::capture(at, scratch, &context)
            })
            .unwrap_or(0)
    }

    /// Sums over all threads.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        self.threads.each(|state| {
            let c = &state.counters;
            let add = |to: &mut u64, from: &AtomicU64| *to = to.wrapping_add(from.load(Ordering::Relaxed));
            add(&mut sum.allocations, &c.allocations);
            add(&mut sum.frees, &c.frees);
            add(&mut sum.allocated_bytes, &c.allocated_bytes);
            add(&mut sum.freed_bytes, &c.freed_bytes);
            add(&mut sum.unknown_frees, &c.unknown_frees);
            add(&mut sum.truncated_stacks, &c.truncated);
        });
        sum
    }

    /// The place of a pointer to four words (allocations, frees, allocated bytes, freed bytes) that every thread adds to now
    /// and then; the pointer may be null.
    ///
    /// # Safety
    /// The place must stay. The words it points at must stay mapped and writable until another pointer is there and no hook
    /// works with the old one any more.
    pub unsafe fn publish_to(&self, place: *mut AtomicPtr<AtomicU64>) {
        self.live_counters.store(place, Ordering::Release);
    }

    /// Publishes what the calling thread has not yet published.
    pub fn publish(&self) {
        self.threads.with(self.first(), |state, _| self.publish_state(state));
    }

    /// The calling thread ends for good: its state goes to another thread, what it still does is counted all the same.
    pub fn thread_ends(&self) {
        self.publish();
        self.threads.thread_ends();
    }

    /// In a forked child, before anything else.
    pub fn after_fork(&self) {
        self.threads.after_fork();
    }

    /// Why recording stopped, if it did.
    #[must_use]
    pub fn stopped(&self) -> Option<StopReason> {
        match self.stopped.load(Ordering::Relaxed) {
            1 => Some(StopReason::Memory),
            2 => Some(StopReason::Table),
            3 => Some(StopReason::Stacks),
            _ => None,
        }
    }

    /// Stops recording for good; the first reason stays.
    #[cold]
    #[inline(never)]
    pub fn stop(&self, reason: StopReason) {
        let code = match reason {
            StopReason::Memory => 1,
            StopReason::Table => 2,
            StopReason::Stacks => 3,
        };
        // A lost exchange means that another reason came first: that one stays.
        if self.stopped.load(Ordering::Relaxed) == 0 {
            self.stopped.store(code, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn count_alloc(&self, state: &ThreadState, size: u64, epoch: u32) {
        bump(&state.counters.allocated_bytes, size);
        self.balance(state, epoch, 1);
        if bump(&state.counters.allocations, 1) & PUBLISH_MASK == 0 {
            self.publish_state(state);
        }
    }

    #[inline(always)]
    fn count_free(&self, state: &ThreadState, entry: Entry) {
        bump(&state.counters.frees, 1);
        bump(&state.counters.freed_bytes, entry.size);
        let now = self.epoch.load(Ordering::Relaxed);
        // An older epoch's place in the ring belongs to a younger one by now.
        if (now.wrapping_sub(entry.epoch) as usize) < RECENT_EPOCHS - 2 {
            self.balance(state, entry.epoch, -1);
        }
    }

    #[inline(always)]
    fn balance(&self, state: &ThreadState, epoch: u32, by: i64) {
        // SAFETY: the remainder indexes an array of that length.
        let cell = unsafe { state.counters.balance.get_unchecked(epoch as usize % RECENT_EPOCHS) };
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    fn balance_of(&self, epoch: u32) -> i64 {
        let mut sum = 0;
        self.threads.each(|state| {
            sum += state
                .counters
                .balance
                .get(epoch as usize % RECENT_EPOCHS)
                .map_or(0, |b| b.load(Ordering::Relaxed));
        });
        sum
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
    fn layout(&self) -> StackLayout {
        let [main_thread, main_top, thread_bytes] = &self.layout;
        StackLayout {
            main_thread: main_thread.load(Ordering::Relaxed),
            main_top: main_top.load(Ordering::Relaxed),
            thread_bytes: thread_bytes.load(Ordering::Relaxed),
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

#[cfg(test)]
mod tests {
    use std::boxed::Box;
    use std::vec::Vec;

    use super::*;

    unsafe extern "C" {
        fn _dl_find_object(pc: *mut core::ffi::c_void, out: *mut core::ffi::c_void) -> i32;
        static __libc_stack_end: *mut core::ffi::c_void;
    }

    /// Registers as a call of `malloc` from the caller of this function would show them.
    #[inline(always)]
    fn here() -> Registers {
        let (pc, sp, rbp): (usize, usize, usize);
        // SAFETY: reads registers only; the address is that of the instruction behind it.
        unsafe {
            core::arch::asm!("lea {0}, [rip + 2f]", "mov {1}, rsp", "mov {2}, rbp", "2:", "nop", out(reg) pc, out(reg) sp, out(reg) rbp);
        }
        Registers { pc: pc + 1, sp, rbp }
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
        out.push(std::hint::black_box(t.stack_of(here())));
        if depth > 0 {
            down(t, depth - 1, out);
        }
        out.push(std::hint::black_box(t.stack_of(here())));
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
            t.record_alloc(0x10_0000 + 64 * i, 37, here());
        }
        let window = t.begin_epoch();
        for i in 0..10 {
            t.record_alloc(0x20_0000 + 64 * i, 148, here());
        }
        for i in 0..10 {
            t.record_free(0x10_0000 + 64 * i);
        }
        for i in 0..7 {
            t.record_free(0x20_0000 + 64 * i);
        }
        assert_eq!((t.alive_in(before), t.alive_in(window)), (0, 3));
        let mut sizes = Vec::new();
        t.scan(window, &mut |e| sizes.push(e.size));
        assert_eq!(sizes, [148; 3]);
        let totals = t.totals();
        assert_eq!((totals.allocations, totals.frees), (20, 17));
        assert_eq!(totals.allocated_bytes - totals.freed_bytes, 3 * 148);
    }

    #[test]
    fn a_failed_realloc_leaves_no_trace() {
        let t = tracker();
        let window = t.begin_epoch();
        t.record_alloc(0x30_0000, 1003, here());
        let totals = t.totals();
        let removed = t.record_free(0x30_0000);
        assert_eq!(t.alive_in(window), 0);
        t.restore(0x30_0000, removed);
        assert_eq!((t.alive_in(window), t.totals()), (1, totals));
        assert_eq!(t.record_free(0x30_0000), removed);
    }

    #[test]
    fn epochs_may_wrap_without_mixing_windows() {
        let t = tracker();
        t.record_alloc(0x40_0000, 1, here());
        for _ in 0..40_000 {
            let window = t.begin_epoch();
            assert_eq!(t.alive_in(window), 0);
        }
        let window = t.begin_epoch();
        t.record_alloc(0x40_0040, 2, here());
        let mut sizes = Vec::new();
        t.scan(window, &mut |e| sizes.push(e.size));
        assert_eq!((t.alive_in(window), sizes), (1, std::vec![2]));
    }
}
