//! The mappings that the program made and has not unmapped, each with its owner word.
//!
//! Each slot is two words: a span of pages and an owner. A thread that maps or unmaps a range owns it, but two threads
//! may own two parts of one mapping. A thread that changes a slot first marks its span, then puts the remaining parts
//! into other slots, then removes the mark. So a thread that looks for another part finds the mark, or finds the part,
//! or sees that something has changed since it began, and then looks again. Nothing here allocates, and nothing waits
//! without a limit: a signal handler may run between any two steps. If the handler needs the very mapping whose change
//! it has interrupted, the mapping is lost, and this is reported.
//!
//! A slot is found by the first page of its span, in a window of neighbours. If a range is not exactly one span (a part
//! is unmapped, or several mappings at once), all slots in use are scanned, using a bitmap. Tables of growing size are
//! mapped when the previous one is full.

use crate::sync::{AtomicBool, AtomicPtr, AtomicU64, Ordering, Use, Zeroed, get_or_map, pause, sized};

/// Pages of 4 KiB.
const PAGE_BITS: u32 = 12;

/// first page 36 | changing 1 | pages 27
const COUNT_BITS: u32 = 27;
const CHANGING: u64 = 1 << COUNT_BITS;
const FIRST_AT: u32 = COUNT_BITS + 1;
const MOST_PAGES: u64 = (1 << COUNT_BITS) - 1;
const MOST_FIRST: u64 = (1 << (64 - FIRST_AT)) - 1;

/// Slots of each table. Their sum is more than the possible number of mappings (`vm.max_map_count`, 65,530).
const SLOTS: [usize; 3] = [sized(1 << 10, 64), sized(1 << 13, 128), sized(1 << 17, 256)];
/// Number of neighbours in which a slot is searched.
const WINDOW: usize = 16;
/// Slots of one word of the bitmap.
const BLOCK: usize = 64;

/// Maximum number of repeated looks: about 200 ms, with [`pause`].
const LOOKS: u32 = 1000;
/// The same limit when something is already lost: without yielding to other threads.
const SHORT_LOOKS: u32 = 64;
/// Maximum number of looks that are repeated only because something else has changed meanwhile. If threads map all the
/// time, there is always a change, but the searched part cannot have moved each time.
const RESCANS: u32 = 8;

/// Pages `first..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    first: u64,
    end: u64,
}

impl Span {
    /// Bytes of a page.
    pub const PAGE: usize = 1 << PAGE_BITS;

    /// The pages of a mapping of `bytes` bytes. `None`: no pages, or beyond every address.
    #[must_use]
    pub const fn of(address: usize, bytes: usize) -> Option<Self> {
        let Some(last) = (address as u64).checked_add(bytes as u64) else { return None };
        let Some(last) = last.checked_add((Self::PAGE as u64).wrapping_sub(1)) else { return None };
        Self::between(address as u64 >> PAGE_BITS, last >> PAGE_BITS)
    }

    const fn between(first: u64, end: u64) -> Option<Self> {
        if first < end && first <= MOST_FIRST { Some(Self { first, end }) } else { None }
    }

    /// The part of it that fits into a slot, and the remaining part.
    fn split(self) -> (Self, Option<Self>) {
        let middle = self.end.min(self.first.saturating_add(MOST_PAGES));
        (Self { end: middle, ..self }, Self::between(middle, self.end))
    }

    fn and(self, other: Self) -> Option<Self> {
        Self::between(self.first.max(other.first), self.end.min(other.end))
    }

    const fn packed(self) -> u64 {
        self.first << FIRST_AT | self.pages() & MOST_PAGES
    }

    const fn pages(self) -> u64 {
        self.end.saturating_sub(self.first)
    }

    const fn unpacked(word: u64) -> Option<Self> {
        let first = word >> FIRST_AT;
        Self::between(first, first.saturating_add(word & MOST_PAGES))
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.pages() << PAGE_BITS
    }
}

/// Owner word of a mapping: `stack 32 | kind 8 | bits`. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(u64);

impl Owner {
    const USED: u64 = 1;
    const RESERVED: u64 = 2;

    /// `reserved`: the memory is not accessible yet (`PROT_NONE`).
    #[must_use]
    pub const fn new(stack: u32, kind: u8, reserved: bool) -> Self {
        let reserved = if reserved { Self::RESERVED } else { 0 };
        Self((stack as u64) << 32 | (kind as u64) << 8 | reserved | Self::USED)
    }

    /// The owner from the result of [`Owner::word`]; `None`: no owner.
    #[must_use]
    pub const fn from_word(word: u64) -> Option<Self> {
        if word & Self::USED == 0 { None } else { Some(Self(word)) }
    }

    /// The owner as a word, for a register.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The stack that mapped it.
    #[must_use]
    pub const fn stack(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The kind of mapping.
    #[must_use]
    pub const fn kind(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Is the memory not accessible yet?
    #[must_use]
    pub const fn is_reserved(self) -> bool {
        self.0 & Self::RESERVED != 0
    }

    /// The same owner with another stack.
    #[must_use]
    pub const fn with_stack(self, stack: u32) -> Self {
        Self((stack as u64) << 32 | self.0 & 0xffff_ffff)
    }

    const fn accessible(self) -> Self {
        Self(self.0 & !Self::RESERVED)
    }
}

/// One table, in one mapping.
struct Table<'a> {
    /// One bit for each slot that is in use.
    used: &'a [AtomicU64],
    /// Span (0: none yet) and owner (0: the slot is free) of each slot, alternating.
    words: &'a [AtomicU64],
}

/// All mappings of the process.
pub struct Mappings {
    tables: [AtomicPtr<AtomicU64>; SLOTS.len()],
    /// Number of changes so far.
    changes: AtomicU64,
    /// Number of slot changes that were begun, and of those that are complete.
    begun: AtomicU64,
    ended: AtomicU64,
    /// Number of reserved mappings in the tables.
    reserved: AtomicU64,
    lost: AtomicBool,
}

// SAFETY: all-zero means no mappings.
unsafe impl Zeroed for Mappings {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self {
            tables: Zeroed::zeroed(),
            changes: Zeroed::zeroed(),
            begun: Zeroed::zeroed(),
            ended: Zeroed::zeroed(),
            reserved: Zeroed::zeroed(),
            lost: Zeroed::zeroed(),
        }
    }
}

/// Who chose the address of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// The kernel chose a free address.
    ByKernel,
    /// The caller chose it: the mapping replaces everything that was there.
    ByCaller,
}

impl Mappings {
    crate::sync::zero_constructor! {
        /// No mappings.
    }

    /// Notes a mapping. It replaces older mappings at the same address: all of them if the caller chose the address,
    /// otherwise the one that began there.
    pub fn insert(&self, span: Span, owner: Owner, placed: Placed) {
        if placed == Placed::ByCaller {
            self.remove(span);
        }
        let mut rest = Some(span);
        while let Some(span) = rest {
            let (part, after) = span.split();
            if placed == Placed::ByKernel
                && let Some((_, _, old)) = self.exactly(part.first)
            {
                self.remove(old);
            }
            self.put(part, owner);
            rest = after;
        }
        self.changed();
    }

    /// Removes a range and returns the owner of something in it.
    pub fn remove(&self, range: Span) -> Option<Owner> {
        // Most ranges are one mapping, or the beginning of one.
        let mut looks = 0;
        while let Some((table, at, span)) =
            self.exactly(range.first).filter(|(.., span)| range.end <= span.end)
        {
            let rest = Span::between(range.end, span.end);
            let owner = self.change(&table, at, span, |owner| [rest.map(|rest| (rest, owner)), None, None]);
            if owner.is_some() {
                self.changed();
                return owner;
            }
            if !self.looks_again(&mut looks) {
                return None;
            }
        }
        self.cut_those(range, |_| true, |_| None)
    }

    /// The mapping whose first page is this one.
    #[must_use]
    pub fn beginning_with(&self, page: Span) -> Option<(Span, Owner)> {
        let (table, at, span) = self.exactly(page.first)?;
        Some((span, table.owner(at)?))
    }

    /// Marks this range as accessible.
    pub fn becomes_accessible(&self, range: Span) {
        self.cut_those(range, Owner::is_reserved, |owner| Some(owner.accessible()));
    }

    /// For each slot that fits (`fit`): gives its part in this range to the owner that `becomes` returns, or removes
    /// the part.
    #[inline(never)]
    fn cut_those(
        &self,
        range: Span,
        fit: impl Fn(Owner) -> bool,
        becomes: impl Fn(Owner) -> Option<Owner>,
    ) -> Option<Owner> {
        let (mut first, mut left, mut looks, mut rescans) = (None, range.pages(), 0, 0);
        loop {
            let mut ended = self.ended.load(Ordering::Acquire);
            let mut missed = false;
            self.each_slot(|table, at| {
                let Some((span, part)) = table.span(at).and_then(|span| Some((span, span.and(range)?)))
                else {
                    return;
                };
                if !table.owner(at).is_some_and(&fit) {
                    return;
                }
                let before = Span::between(span.first, part.first);
                let after = Span::between(part.end, span.end);
                let parts = |owner| match fit(owner) {
                    true => [(before, Some(owner)), (Some(part), becomes(owner)), (after, Some(owner))]
                        .map(|(span, owner)| span.zip(owner)),
                    false => [Some((span, owner)), None, None],
                };
                match self.change(table, at, span, parts) {
                    Some(owner) => {
                        ended = ended.wrapping_add(1);
                        if fit(owner) {
                            first.get_or_insert(owner);
                            left = left.saturating_sub(part.pages());
                        }
                    }
                    None => missed = true,
                }
            });
            let goes_on = left > 0
                && if missed { self.looks_again(&mut looks) } else { self.has_moved(ended, &mut rescans) };
            if !goes_on {
                break;
            }
        }
        if first.is_some() {
            self.changed();
        }
        first
    }

    /// Is any part of this range recorded?
    #[must_use]
    pub fn is_noted(&self, range: Span) -> bool {
        let mut rescans = 0;
        loop {
            let ended = self.ended.load(Ordering::Acquire);
            let mut noted = self.exactly(range.first).is_some();
            if !noted {
                self.each_slot(|table, at| {
                    noted |= table.span(at).is_some_and(|span| span.and(range).is_some())
                });
            }
            if noted || !self.has_moved(ended, &mut rescans) {
                return noted;
            }
        }
    }

    /// The owner of the mapping that contains this page.
    #[must_use]
    pub fn owner_of(&self, page: Span) -> Option<Owner> {
        let mut found = None;
        self.each_slot(|table, at| {
            if table.span(at).is_some_and(|span| span.and(page).is_some()) {
                found = table.owner(at);
            }
        });
        found
    }

    /// Has another thread made a change since `ended`? It may have put a part of a range into a slot that this thread
    /// had already checked.
    fn has_moved(&self, ended: u64, rescans: &mut u32) -> bool {
        *rescans = rescans.wrapping_add(1);
        *rescans <= RESCANS && self.ended.load(Ordering::Acquire) != ended
    }

    /// Waits before the next look. Returns false if it took so long that another thread must be stuck in the middle of
    /// a change.
    #[cold]
    #[inline(never)]
    fn looks_again(&self, looks: &mut u32) -> bool {
        *looks = looks.wrapping_add(1);
        let is_patient = *looks < if self.is_lost() { SHORT_LOOKS } else { LOOKS };
        if is_patient {
            pause(*looks >= SHORT_LOOKS);
        } else {
            self.lose();
        }
        is_patient
    }

    /// Is any mapping reserved?
    #[must_use]
    pub fn has_reserved(&self) -> bool {
        self.reserved.load(Ordering::Relaxed) > 0
    }

    /// Visits the accessible parts of all mappings. Returns false if something changed meanwhile, so that parts may
    /// have been missed or visited twice.
    pub fn each(&self, mut visit: impl FnMut(Span, Owner)) -> bool {
        let begun = self.begun.load(Ordering::Acquire);
        let mut is_whole = self.ended.load(Ordering::Acquire) == begun;
        self.each_slot(|table, at| {
            let word = table.word(at);
            let owner = table.owner(at);
            // Read twice, because the slot may have been reused in between.
            is_whole &= table.word(at) == word && word & CHANGING == 0;
            if let Some((span, owner)) =
                Span::unpacked(word).zip(owner).filter(|(_, owner)| !owner.is_reserved())
            {
                visit(span, owner);
            }
        });
        is_whole && self.begun.load(Ordering::Acquire) == begun
    }

    /// In a forked child: parts that another thread was moving may be in no slot.
    pub fn after_fork(&self) {
        let begun = self.begun.load(Ordering::Relaxed);
        if self.ended.swap(begun, Ordering::Relaxed) != begun {
            self.lose();
        }
    }

    /// Number of changes so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Has any mapping been lost?
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Records that a mapping has been lost.
    pub fn lose(&self) {
        if !self.lost.swap(true, Ordering::Relaxed) {
            self.changed();
        }
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Puts a mapping into a free slot. If there is no room, the mapping is lost.
    fn put(&self, span: Span, owner: Owner) {
        for (number, cell) in self.tables.iter().enumerate() {
            let Some(slots) = SLOTS.get(number).copied() else { break };
            let table = get_or_map(cell, words(slots), Use::Sparse).and_then(|at| table(at, slots));
            let Some(table) = table else { break };
            if window(span.first, slots).any(|at| table.fill(at, span, owner)) {
                self.reserved.fetch_add(u64::from(owner.is_reserved()), Ordering::Relaxed);
                return;
            }
        }
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Puts one of these parts into the slot that holds this span, and the others into other slots. Returns the owner;
    /// `None`: another thread is changing the slot, or has changed it.
    fn change(
        &self,
        table: &Table<'_>,
        at: usize,
        span: Span,
        parts: impl FnOnce(Owner) -> [Option<(Span, Owner)>; 3],
    ) -> Option<Owner> {
        if table.word(at) & CHANGING != 0 {
            return None;
        }
        self.begun.fetch_add(1, Ordering::AcqRel);
        let owner =
            if table.replace(at, span.packed(), span.packed() | CHANGING) { table.owner(at) } else { None };
        let mut kept = None;
        for part in owner.map_or([None; 3], parts).into_iter().flatten() {
            // This part keeps its slot, because the slot is found by the first page.
            if part.0.first == span.first {
                kept = Some(part);
            } else {
                self.put(part.0, part.1);
            }
        }
        self.ended.fetch_add(1, Ordering::AcqRel);
        if let Some(owner) = owner {
            let stays_reserved = kept.is_some_and(|(_, owner)| owner.is_reserved());
            let less = u64::from(owner.is_reserved() && !stays_reserved);
            match kept {
                Some((span, owner)) => table.set(at, span, owner),
                None => table.empty(at),
            }
            self.reserved.fetch_sub(less, Ordering::Relaxed);
        }
        owner
    }

    /// The slot of the span whose first page is `first`.
    fn exactly(&self, first: u64) -> Option<(Table<'_>, usize, Span)> {
        self.existing().find_map(|table| {
            let begins = |at| table.span(at).filter(|span| span.first == first).map(|span| (at, span));
            let (at, span) = window(first, table.words.len() / 2).find_map(begins)?;
            Some((table, at, span))
        })
    }

    fn each_slot(&self, mut visit: impl FnMut(&Table<'_>, usize)) {
        for table in self.existing() {
            for (block, used) in table.used.iter().enumerate() {
                let mut bits = used.load(Ordering::Acquire);
                while bits != 0 {
                    let at = block.wrapping_mul(BLOCK).wrapping_add(bits.trailing_zeros() as usize);
                    bits &= bits.wrapping_sub(1);
                    visit(&table, at);
                }
            }
        }
    }

    fn existing(&self) -> impl Iterator<Item = Table<'_>> {
        self.tables.iter().zip(SLOTS).filter_map(|(cell, slots)| table(cell.load(Ordering::Acquire), slots))
    }
}

impl Default for Mappings {
    fn default() -> Self {
        Self::new()
    }
}

impl Table<'_> {
    fn span_word(&self, at: usize) -> Option<&AtomicU64> {
        self.words.get(at.wrapping_mul(2))
    }

    fn owner_word(&self, at: usize) -> Option<&AtomicU64> {
        self.words.get(at.wrapping_mul(2).wrapping_add(1))
    }

    fn word(&self, at: usize) -> u64 {
        self.span_word(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn span(&self, at: usize) -> Option<Span> {
        Span::unpacked(self.word(at))
    }

    fn owner(&self, at: usize) -> Option<Owner> {
        Owner::from_word(self.owner_word(at)?.load(Ordering::Acquire))
    }

    /// Fills a free slot. Returns false if the slot is in use.
    fn fill(&self, at: usize, span: Span, owner: Owner) -> bool {
        let words = self.span_word(at).zip(self.owner_word(at)).zip(self.used.get(at / BLOCK));
        let Some(((span_word, owner_word), used)) = words else { return false };
        let is_free = owner_word.load(Ordering::Relaxed) == 0
            && owner_word.compare_exchange(0, owner.0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_free {
            used.fetch_or(1 << (at % BLOCK), Ordering::AcqRel);
            span_word.store(span.packed(), Ordering::Release);
        }
        is_free
    }

    fn replace(&self, at: usize, old: u64, new: u64) -> bool {
        self.span_word(at)
            .is_some_and(|word| word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok())
    }

    /// Called only by the thread that has marked the slot.
    fn set(&self, at: usize, span: Span, owner: Owner) {
        if let Some((span_word, owner_word)) = self.span_word(at).zip(self.owner_word(at)) {
            owner_word.store(owner.0, Ordering::Release);
            span_word.store(span.packed(), Ordering::Release);
        }
    }

    /// Called only by the thread that has marked the slot.
    fn empty(&self, at: usize) {
        if let Some(((span_word, owner_word), used)) =
            self.span_word(at).zip(self.owner_word(at)).zip(self.used.get(at / BLOCK))
        {
            span_word.store(0, Ordering::Release);
            used.fetch_and(!(1 << (at % BLOCK)), Ordering::AcqRel);
            owner_word.store(0, Ordering::Release);
        }
    }
}

/// Number of words of a table with `slots` slots.
const fn words(slots: usize) -> usize {
    (slots / BLOCK).saturating_add(slots.saturating_mul(2))
}

/// The table that was mapped at this address.
fn table<'a>(at: *mut AtomicU64, slots: usize) -> Option<Table<'a>> {
    if at.is_null() {
        return None;
    }
    // SAFETY: `put` mapped this number of words, and tables are never unmapped.
    let all = unsafe { core::slice::from_raw_parts(at, words(slots)) };
    let (used, words) = all.split_at_checked(slots / BLOCK)?;
    Some(Table { used, words })
}

/// Possible slots of a span whose first page is `first`.
fn window(first: u64, slots: usize) -> impl Iterator<Item = usize> {
    let hash = first.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let mask = slots.wrapping_sub(1);
    // Aligned to cache lines.
    let start = hash as usize & mask & !3;
    (0..WINDOW).map(move |i| start.wrapping_add(i) & mask)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::boxed::Box;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    use super::Placed::{ByCaller, ByKernel};
    use super::*;

    fn mappings() -> &'static Mappings {
        Box::leak(Box::new(Mappings::new()))
    }

    fn pages(first: u64, count: u64) -> Span {
        Span::between(first, first + count).expect("a span")
    }

    const fn by(stack: u32) -> Owner {
        Owner::new(stack, 0, false)
    }

    /// First page, number of pages and stack of all mappings, in order.
    fn held(mappings: &Mappings) -> Vec<(u64, u64, u32)> {
        let mut held = Vec::new();
        mappings.each(|span, owner| held.push((span.first, span.end - span.first, owner.stack())));
        held.sort_unstable();
        held
    }

    #[test]
    fn a_part_that_is_unmapped_leaves_the_rest() {
        let m = mappings();
        m.insert(pages(100, 10), by(7), ByKernel);
        assert_eq!(m.remove(pages(104, 2)), Some(by(7)));
        assert_eq!(held(m), [(100, 4, 7), (106, 4, 7)]);
        m.remove(pages(100, 1));
        m.remove(pages(109, 1));
        assert_eq!(held(m), [(101, 3, 7), (106, 3, 7)]);
        m.insert(pages(200, 1), by(8), ByKernel);
        // A range that covers holes, and more.
        assert!(m.remove(pages(90, 1000)).is_some());
        assert_eq!((held(m), m.remove(pages(90, 1000))), (Vec::new(), None));
    }

    #[test]
    fn what_is_mapped_over_another_mapping_takes_its_place() {
        let m = mappings();
        m.insert(pages(100, 10), by(1), ByKernel);
        m.insert(pages(102, 3), by(2), ByCaller);
        assert_eq!(held(m), [(100, 2, 1), (102, 3, 2), (105, 5, 1)]);
        // Unmapped without a hook, and mapped again.
        m.insert(pages(105, 2), by(3), ByKernel);
        assert_eq!(held(m), [(100, 2, 1), (102, 3, 2), (105, 2, 3)]);
    }

    #[test]
    fn a_mapping_is_found_by_its_first_page() {
        let m = mappings();
        m.insert(pages(100, 10), by(1), ByKernel);
        let found = |page| m.beginning_with(pages(page, 1));
        assert_eq!([99, 101, 100].map(found), [None, None, Some((pages(100, 10), by(1)))]);
        m.remove(pages(100, 4));
        assert_eq!([100, 104].map(found), [None, Some((pages(104, 6), by(1)))]);
    }

    #[test]
    fn a_reservation_counts_from_when_it_can_be_used() {
        let m = mappings();
        m.insert(pages(100, 100), Owner::new(1, 0, true), ByKernel);
        m.insert(pages(300, 5), by(2), ByKernel);
        assert_eq!(held(m), [(300, 5, 2)]);
        m.becomes_accessible(pages(110, 4));
        m.becomes_accessible(pages(112, 4));
        m.becomes_accessible(pages(300, 5));
        assert_eq!(held(m), [(110, 4, 1), (114, 2, 1), (300, 5, 2)]);
        m.remove(pages(100, 100));
        assert_eq!(m.reserved.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_mapping_of_terabytes_is_several_slots() {
        let m = mappings();
        let all = pages(1 << 20, 5 << COUNT_BITS >> 1);
        m.insert(all, by(1), ByKernel);
        let sum = |m: &Mappings| held(m).iter().map(|(_, count, _)| count).sum::<u64>();
        assert_eq!((held(m).len(), sum(m)), (3, 5 << COUNT_BITS >> 1));
        m.remove(all);
        assert_eq!(held(m), []);
    }

    #[test]
    fn where_there_is_no_room_something_is_lost() {
        let m = mappings();
        let mut noted = 0;
        while !m.is_lost() {
            m.insert(pages(1000 + noted * 2, 1), by(1), ByKernel);
            noted += 1;
        }
        assert!(noted > 65_530, "{noted}: fewer than there can be mappings");
        assert!(held(m).len() as u64 >= noted - 1);
    }

    /// Regression: a part whose mapping another thread had just cut was lost, or stayed for ever.
    #[test]
    fn threads_that_change_parts_of_one_mapping_lose_nothing() {
        const THREADS: u64 = 3;
        const PARTS: u64 = 900;
        for (is_reserved, call) in [
            (false, Mappings::remove as fn(&Mappings, Span) -> Option<Owner>),
            (true, |m, span| {
                m.becomes_accessible(span);
                None
            }),
        ] {
            let m = mappings();
            m.insert(pages(1000, 2 * PARTS), Owner::new(7, 0, is_reserved), ByKernel);
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    scope.spawn(move || {
                        for part in (thread..PARTS).step_by(THREADS as usize) {
                            assert!(m.is_noted(pages(1000 + part * 2, 1)), "the part is there");
                            call(m, pages(1000 + part * 2, 1));
                        }
                    });
                }
            });
            let kept = if is_reserved { 0 } else { 1 };
            let want: Vec<_> = (0..PARTS).map(|part| (1000 + part * 2 + kept, 1, 7)).collect();
            assert_eq!((held(m), m.is_lost()), (want, false));
            m.remove(pages(1000, 2 * PARTS));
            assert_eq!((held(m), m.reserved.load(Ordering::Relaxed)), (Vec::new(), 0));
        }
    }

    /// A signal handler needs the mapping whose change it has interrupted, or a fork happened during the change.
    #[test]
    fn what_nobody_goes_on_to_change_is_lost_and_waited_for_no_more() {
        for ends in [|m: &Mappings| _ = m.remove(pages(104, 2)), Mappings::after_fork] {
            let m = mappings();
            m.insert(pages(100, 10), by(1), ByKernel);
            let (table, at, span) = m.exactly(100).expect("a slot");
            m.begun.fetch_add(1, Ordering::Relaxed);
            assert!(table.replace(at, span.packed(), span.packed() | CHANGING));
            assert!(!m.each(|_, _| {}) && !m.is_lost());
            ends(m);
            assert!(m.is_lost());
        }
    }

    #[test]
    fn threads_that_map_at_the_same_time_lose_nothing() {
        let m = mappings();
        std::thread::scope(|scope| {
            for thread in 0..4_u32 {
                scope.spawn(move || {
                    let own = u64::from(thread) << 20;
                    for round in 0..300 {
                        for i in 0..20 {
                            m.insert(pages(own + 1000 + i * 10, 10), by(thread), ByKernel);
                        }
                        m.remove(pages(own + 1005, 100));
                        m.insert(pages(own + 1000, 8), by(thread), ByCaller);
                        if round < 299 {
                            m.remove(pages(own + 1000, 200));
                        }
                    }
                });
            }
        });
        let want: Vec<_> = (0..4_u32)
            .flat_map(|thread| {
                let own = u64::from(thread) << 20;
                let rest = (11..20).map(move |i| (own + 1000 + i * 10, 10, thread));
                [(own + 1000, 8, thread), (own + 1105, 5, thread)].into_iter().chain(rest)
            })
            .collect();
        assert_eq!(held(m), want);
        assert!(!m.is_lost());
    }

    /// A reference model: a map of single pages.
    #[derive(Default)]
    struct Ledger(BTreeMap<u64, (u32, bool)>);

    proptest::proptest! {
        #[test]
        fn any_order_of_calls_leaves_what_a_ledger_says(
            calls in proptest::collection::vec((0..5_u8, 1..60_u64, 1..20_u64, 1..4_u32), 0..80)
        ) {
            let m = mappings();
            let mut ledger = Ledger::default();
            for (call, first, count, stack) in calls {
                let (span, all) = (pages(first, count), first..first + count);
                match call {
                    0 | 1 => {
                        m.insert(span, Owner::new(stack, 0, call == 1), ByCaller);
                        ledger.0.extend(all.map(|page| (page, (stack, call == 1))));
                    }
                    2 => {
                        m.becomes_accessible(span);
                        ledger.0.range_mut(all).for_each(|(_, (_, reserved))| *reserved = false);
                    }
                    _ => {
                        let had = ledger.0.range(all.clone()).next().is_some();
                        proptest::prop_assert_eq!(m.remove(span).is_some(), had);
                        ledger.0.retain(|page, _| !all.contains(page));
                    }
                }
            }
            let mut by_page = Vec::new();
            m.each(|span, owner| by_page.extend((span.first..span.end).map(|page| (page, owner.stack()))));
            by_page.sort_unstable();
            let usable = ledger.0.iter().filter(|(_, (_, reserved))| !reserved);
            let want: Vec<_> = usable.map(|(page, (stack, _))| (*page, *stack)).collect();
            proptest::prop_assert_eq!(by_page, want);
            proptest::prop_assert!(!m.is_lost());
        }
    }
}
