//! The memory that the program itself maps, not through its allocator: which call mapped it, for as long as it is
//! mapped.
//!
//! Data flow: an exported function of the agent calls the C library's, then [`maps`], [`moved`] or [`breaks`] with the
//! result; before something is unmapped, [`unmaps`] forgets it. At a boundary the session asks for the changes since
//! the last one. Only calls through a dynamic symbol arrive here, so mappings that the C library and the loader make
//! for themselves do not. Left out are calls of the agent, calls of the library that `malloc` comes from, and calls
//! from within an allocation.
//!
//! `mmap` and `munmap` may be called in signal handlers and between `vfork` and `exec`. Therefore nothing here
//! locks, allocates or changes `errno`, and a child that shares this memory changes nothing.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::BTreeMap;

use memgate_ffi::{modules, process};
use memgate_tracker::capture::Registers;
use memgate_tracker::mappings::{Mappings as Table, Owner, Placed, Span};
use memgate_tracker::sys::{Errno, pause};
use memgate_tracker::thread::Inside;
use memgate_wire::{Mapped, MappedKind};

use crate::recording::TRACKER;
use crate::{handles, recording, segments};

static TABLE: Table = Table::new();

/// Addresses of a library.
struct Library {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl Library {
    const fn new() -> Self {
        Self { start: AtomicUsize::new(0), end: AtomicUsize::new(0) }
    }

    fn has(&self, address: usize) -> bool {
        (self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed)).contains(&address)
    }

    /// The loaded library that contains this address.
    fn find(&self, address: usize, loaded: &[modules::Loaded]) {
        let has = |m: &&modules::Loaded| (m.start..m.end).contains(&(address as u64));
        let Some(found) = loaded.iter().find(has) else { return };
        self.start.store(usize::try_from(found.start).unwrap_or(0), Ordering::Relaxed);
        self.end.store(usize::try_from(found.end).unwrap_or(0), Ordering::Relaxed);
    }
}

/// The agent.
static OWN: Library = Library::new();
/// The library with the `malloc` that the agent's own `malloc` calls.
static ALLOCATOR: Library = Library::new();

/// Does a system call filter forbid questions about segments?
static HIDES_SEGMENTS: AtomicBool = AtomicBool::new(false);

/// From now on the kernel cannot be asked about System V segments.
pub(crate) fn hide_segments() {
    HIDES_SEGMENTS.store(true, Ordering::Relaxed);
}

fn are_segments_hidden() -> bool {
    HIDES_SEGMENTS.load(Ordering::Relaxed) || !recording::asks_the_kernel()
}

/// The return address of `main`, which the agent wraps.
static MAIN_CALLER: AtomicUsize = AtomicUsize::new(0);

/// `main` was called from this address.
pub fn main_begins(caller: usize) {
    MAIN_CALLER.store(caller, Ordering::Relaxed);
}

/// Called in a forked child.
pub(crate) fn after_fork() {
    TABLE.after_fork();
}

/// Mappings are noted from now on. `own`, `malloc`: addresses in the agent and of the next `malloc`. Must not be
/// called in a hook, because it asks the loader.
pub fn starts(own: usize, malloc: usize) {
    let (loaded, ..) = modules::loaded();
    ALLOCATOR.find(malloc, &loaded);
    OWN.find(own, &loaded);
}

fn is_on() -> bool {
    OWN.end.load(Ordering::Relaxed) != 0
}

/// Is this a thread of this process? If this is unknown, the mappings are marked as lost.
fn is_ours() -> bool {
    let ours = handles::is_ours();
    if ours.is_none() {
        TABLE.lose();
    }
    ours == Some(true)
}

/// Does this caller map for the program itself?
fn is_the_programs(caller: usize) -> bool {
    is_on() && !OWN.has(caller) && !ALLOCATOR.has(caller) && !Inside::now() && is_ours()
}

/// A new mapping.
#[derive(Debug, Clone, Copy)]
pub struct Mapping {
    /// Where.
    pub address: usize,
    /// How large.
    pub bytes: usize,
    /// The kind of memory.
    pub kind: MappedKind,
    /// Nothing can be stored there yet (`PROT_NONE`).
    pub is_reserved: bool,
    /// Whether the kernel or the caller chose the address.
    pub placed: Placed,
}

/// The caller with these registers has mapped memory.
pub fn maps(new: Mapping, at: Registers) {
    let Some(span) = Span::of(new.address, new.bytes) else { return };
    if is_the_programs(at.pc) {
        let errno = Errno::save();
        let owner = Owner::new(TRACKER.stack_of(at), new.kind.number(), new.is_reserved);
        TABLE.insert(span, owner, new.placed);
        errno.restore();
    }
}

/// A System V segment was attached. `shmat` gets no size, so it is read from the kernel.
pub fn attaches(address: usize, segment: c_int, placed: Placed, at: Registers) {
    if !is_the_programs(at.pc) {
        return;
    }
    let errno = Errno::save();
    let told = if are_segments_hidden() { None } else { process::segment(segment) };
    match told.and_then(|told| Span::of(address, told.bytes)) {
        Some(span) => {
            let owner = Owner::new(TRACKER.stack_of(at), MappedKind::Segment.number(), false);
            TABLE.insert(span, owner, placed);
        }
        None => TABLE.lose(),
    }
    errno.restore();
}

/// `shmget` returned a System V segment, new or not.
pub fn gives(segment: c_int, at: Registers) {
    if segment >= 0 && is_the_programs(at.pc) {
        let errno = Errno::save();
        if !segments::given(segment, TRACKER.stack_of(at)) {
            TABLE.lose();
        }
        errno.restore();
    }
}

/// The segment that is attached here is about to be detached. Called before the detach, like [`unmaps`]. Returns
/// whether the segment was noted.
pub fn detaches(address: usize) -> bool {
    let page = Span::of(address, 1).filter(|_| address.is_multiple_of(Span::PAGE));
    let is_segment = |(_, owner): &(Span, Owner)| owner.kind() == MappedKind::Segment.number();
    let found = page.and_then(|page| TABLE.beginning_with(page)).filter(is_segment);
    found.is_some_and(|(span, _)| is_ours() && TABLE.remove(span).is_some())
}

/// A range is about to be unmapped. Called before the unmapping, because afterwards the range may be another thread's
/// new mapping. Returns whether any part of it was noted.
pub fn unmaps(address: usize, bytes: usize) -> bool {
    // The kernel refuses an address that is not at a page boundary.
    address.is_multiple_of(Span::PAGE) && takes(address, bytes).is_some()
}

/// The range was not unmapped, although its owner is already forgotten.
pub fn stays() {
    TABLE.lose();
}

/// A range is about to move; returns its owner.
pub fn takes(address: usize, bytes: usize) -> Option<Owner> {
    let span = Span::of(address, bytes)?;
    if !TABLE.is_noted(span) || !is_ours() {
        return None;
    }
    TABLE.remove(span)
}

/// A range that [`takes`] took has not moved, or is still there.
pub fn stays_where_it_was(address: usize, bytes: usize, owner: Owner) {
    if let Some(span) = Span::of(address, bytes) {
        TABLE.insert(span, owner, Placed::ByCaller);
    }
}

/// A range that [`takes`] took is at this address now. If it `grew` by a call of the program itself, it gets the stack
/// of this call.
pub fn moved(address: usize, bytes: usize, owner: Owner, grew: bool, at: Registers) {
    let Some(span) = Span::of(address, bytes) else { return };
    let errno = Errno::save();
    let grew = grew && is_the_programs(at.pc);
    TABLE.insert(span, if grew { owner.with_stack(TRACKER.stack_of(at)) } else { owner }, Placed::ByCaller);
    errno.restore();
}

/// The shared mapping that begins at `old` is now also mapped at this address: it was moved, but the old mapping stays.
pub fn duplicated(old: usize, address: usize, bytes: usize, at: Registers) {
    let Some((page, span)) = Span::of(old, 1).zip(Span::of(address, bytes)) else { return };
    if is_the_programs(at.pc) {
        let errno = Errno::save();
        let owner = TABLE.owner_of(page).unwrap_or(Owner::new(0, MappedKind::Shared.number(), false));
        TABLE.insert(span, owner.with_stack(TRACKER.stack_of(at)), Placed::ByCaller);
        errno.restore();
    }
}

/// The range becomes accessible, so that data can be stored in it.
pub fn becomes_accessible(address: usize, bytes: usize) {
    let Some(span) = Span::of(address, bytes) else { return };
    if TABLE.has_reserved() && is_ours() {
        TABLE.becomes_accessible(span);
    }
}

/// The program break has moved. Only whole pages count.
pub fn breaks(before: usize, after: usize, at: Registers) {
    let page = |address: usize| address.next_multiple_of(Span::PAGE);
    let (before, after) = (page(before), page(after));
    if let Some(added) = after.checked_sub(before).filter(|bytes| *bytes > 0) {
        let Some(span) = Span::of(before, added) else { return };
        if is_the_programs(at.pc) {
            let errno = Errno::save();
            TABLE.insert(
                span,
                Owner::new(TRACKER.stack_of(at), MappedKind::Break.number(), false),
                Placed::ByCaller,
            );
            errno.restore();
        }
    } else if before > after {
        takes(after, before.wrapping_sub(after));
    }
}

/// Stack and kind.
type Group = (u32, u8);

/// Number of ranges, and bytes, of each group.
type Groups = BTreeMap<Group, (u64, u64)>;

/// Adds one range of `more` bytes.
fn add(groups: &mut Groups, group: Group, more: u64) {
    let (count, bytes) = groups.entry(group).or_default();
    *count = count.saturating_add(1);
    *bytes = bytes.saturating_add(more);
}

fn add_segments(groups: &mut Groups) {
    let in_pages = |bytes: usize| bytes.next_multiple_of(Span::PAGE) as u64;
    segments::each(|stack, bytes| add(groups, (stack, MappedKind::Unremoved.number()), in_pages(bytes)));
}

/// The mappings that were last reported. No hash maps: the standard hasher asks the system for random bytes and keeps
/// them in thread-local storage.
#[derive(Default)]
pub(crate) struct ReportedMappings {
    /// The table's count of changes; `None`: nothing was reported yet.
    changes: Option<u64>,
    groups: Groups,
    /// Whether a stack leads through the agent, and so through an allocation.
    is_inner: BTreeMap<u32, bool>,
}

/// The changes to report.
pub(crate) struct Changes {
    pub(crate) mapped: Vec<Mapped>,
    pub(crate) lost: bool,
}

impl ReportedMappings {
    /// Maximum number of groups to report; `None`: nothing has changed.
    pub(crate) fn most(&self) -> Option<usize> {
        // Another process may have removed a segment.
        if !is_on() || self.changes == Some(TABLE.changes()) && segments::most() == 0 {
            return None;
        }
        let mut count = self.groups.len();
        TABLE.each(|_, _| count = count.saturating_add(1));
        Some(count.saturating_add(segments::most()))
    }

    /// The groups that differ from the last report.
    pub(crate) fn changes(&mut self) -> Changes {
        let changes = TABLE.changes();
        let mut now = self.settled();
        if segments::most() > 0 && are_segments_hidden() {
            TABLE.lose();
        } else {
            add_segments(&mut now);
        }
        let lost = TABLE.is_lost();
        let gone = self.groups.keys().filter(|group| !now.contains_key(*group)).map(|group| (*group, (0, 0)));
        let changed = now.iter().filter(|(group, held)| self.groups.get(*group) != Some(*held));
        let changed = changed.map(|(group, held)| (*group, *held)).chain(gone);
        let told = |((stack, kind), (count, bytes))| Mapped { stack, kind, count, bytes };
        let mapped = changed.map(told).collect();
        self.groups = now;
        self.changes = Some(changes);
        Changes { mapped, lost }
    }

    /// The current mappings. If other threads map meanwhile, it reads them again, a few times.
    fn settled(&mut self) -> Groups {
        const LOOKS: u32 = 20;
        let mut looks = 0_u32;
        loop {
            let mut now = Groups::new();
            let is_whole = TABLE.each(|span, owner| {
                if !self.is_inner(owner.stack()) {
                    add(&mut now, (owner.stack(), owner.kind()), span.bytes());
                }
            });
            looks = looks.saturating_add(1);
            if is_whole || looks == LOOKS || TABLE.is_lost() {
                return now;
            }
            pause();
        }
    }

    fn is_inner(&mut self, stack: u32) -> bool {
        *self.is_inner.entry(stack).or_insert_with(|| {
            let main_caller = MAIN_CALLER.load(Ordering::Relaxed) as u64;
            let node = |id: u32| (id != 0).then(|| TRACKER.stack_node(id)).flatten();
            let outwards = core::iter::successors(node(stack), |inner| node(inner.parent));
            // The wrapper of `main` and its callers are not part of an allocation.
            outwards
                .take_while(|inner| inner.pc != main_caller)
                .filter(|inner| usize::try_from(inner.pc).is_ok_and(|pc| OWN.has(pc)))
                .any(|own| node(own.parent).is_none_or(|caller| caller.pc != main_caller))
        })
    }
}
