//! The spool carrier: a file whose first page is shared live between the agent and the harness.
//!
//! The agent creates `NAME.mgf.new`, allocates its blocks, maps it, fills the first page, renames it to `NAME.mgf` (so
//! that a directory watcher sees only finished control pages) and closes the descriptor. Frames follow from
//! [`CONTROL_BYTES`] on. `committed` moves only when a frame is complete, so a process that is killed leaves a file
//! that is complete up to its last whole frame.
//!
//! Handshake at a boundary ([`crate::handshake`]): the agent stores the new `boundary` number and wakes it. If
//! `harness` is set, it waits, with a limit, until `acknowledged` has reached that number. The harness waits on
//! `boundary`, takes its sample of the process, writes `orders`, stores `acknowledged` and wakes it. All words are
//! u32 or u64, little endian, naturally aligned.

/// First bytes of a spool file. A file without them is a bare stream of frames.
pub const MAGIC: [u8; 8] = *b"MGSPOOL1";

/// Bytes of the control page; frames begin here.
pub const CONTROL_BYTES: usize = 4096;

/// Extension of a finished spool.
pub const EXTENSION: &str = "mgf";

/// Byte offsets of the words of the control page.
pub mod offset {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// u32: process id of the writer.
    pub const PID: usize = 8;
    /// u32: [`super::state`].
    pub const STATE: usize = 12;
    /// u64: offset in the file after the last whole frame.
    pub const COMMITTED: usize = 16;
    /// u32, futex: sequence of the boundary the agent has reached.
    pub const BOUNDARY: usize = 24;
    /// u32, futex: sequence of the boundary that the harness has handled.
    pub const ACKNOWLEDGED: usize = 28;
    /// u32: 1 while a harness watches; the agent waits only then.
    pub const HARNESS: usize = 32;
    /// u32: low 24 bits of their boundary, then 8 [`super::order`] bits; read by the agent after each wait.
    pub const ORDERS: usize = 36;
    /// u32: orders for followed Java objects, see [`super::follow`]; an observer writes them at any time.
    pub const FOLLOW: usize = 40;
    /// u32, futex: the last of these orders that the agent has obeyed.
    pub const FOLLOWED: usize = 44;
    /// u64: allocations, live within a few hundred events per thread, exact at boundaries.
    pub const ALLOCATIONS: usize = 64;
    /// u64: frees.
    pub const FREES: usize = 72;
    /// u64: allocated bytes.
    pub const ALLOCATED_BYTES: usize = 80;
    /// u64: freed bytes.
    pub const FREED_BYTES: usize = 88;
    /// u32: low 24 bits of the boundary of the list of classes that follows, a bit that says that there is one, its
    /// length ([`crate::reply`]); then its 48 words, up to offset 324.
    pub const CLASSES: usize = 128;
}

/// The state of the writer.
pub mod state {
    /// Recording.
    pub const RECORDING: u32 = 1;
    /// The stream ended with a goodbye.
    pub const CLOSED: u32 = 2;
    /// Recording stopped early; the last frame says why if there was room for it.
    pub const STOPPED: u32 = 3;
    /// Recording stopped because the spool could not grow: nothing after the last frame was
    /// recorded.
    pub const FULL: u32 = 4;
}

/// Orders of the harness to the agent.
pub mod order {
    /// Let late frees happen and take the boundary again: a second, equal boundary frame replaces
    /// the first.
    pub const SETTLE: u32 = 1;
    /// End the process normally (`exit(0)`): enough was measured.
    pub const STOP: u32 = 2;
    /// Find the holders of instances of the Java classes that the answer names. Only instances count that are born in
    /// the next window and alive after the window that follows it. Write them as `Holders` frames of that boundary.
    pub const EXPLAIN: u32 = 4;
    /// In rounds over Java test classes: enough is known about this class, so it need not run again.
    pub const DONE: u32 = 8;
    /// Disable the JIT, in rounds over Java test classes: a compiler resolves every literal of a method that it
    /// compiles, however late, and this looks like growth.
    pub const COMPILED: u32 = 16;
    /// Make a sleeping copy of the process, report it in a `NativeCopy` frame, and take the boundary again, as for
    /// [`SETTLE`].
    pub const COPY: u32 = 32;
}

/// Orders for followed Java objects: one bit, eight bits that count resets, and the number of the order. The agent
/// obeys at the next allocation of the guest; by then it has written all earlier events.
pub mod follow {
    /// No more objects are taken until this bit is cleared; allocations are not sampled for their sites either.
    pub const PAUSED: u32 = 1;
    /// Name of the event that reports the order that was obeyed.
    pub const EVENT: &str = "follow";
    /// Its detail: objects are followed from here on.
    pub const BEGINS: &str = "begins";
    /// Objects followed before are forgotten.
    pub const RESET: &str = "reset";
    /// See [`PAUSED`].
    pub const PAUSES: &str = "paused";
    /// See [`PAUSED`].
    pub const RESUMES: &str = "resumed";

    const RESETS: u32 = 0xff << 1;
    const NUMBER: u32 = 1 << 9;

    /// The order after `last`: write everything and, if requested, forget the followed objects or pause.
    #[must_use]
    pub const fn next(last: u32, reset: bool, paused: bool) -> u32 {
        let resets = if reset { last.wrapping_add(2) & RESETS } else { last & RESETS };
        let number = last.wrapping_add(NUMBER) & !(NUMBER - 1);
        number | resets | if paused { PAUSED } else { 0 }
    }

    /// Was there a reset between two orders?
    #[must_use]
    pub const fn is_reset(before: u32, now: u32) -> bool {
        before & RESETS != now & RESETS
    }
}

/// The position of the frames in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the first frame.
    pub start: u64,
    /// Offset after the last whole frame; `None`: up to the end of the file.
    pub end: Option<u64>,
    /// [`state`] of a spool, 0 for a bare stream.
    pub state: u32,
    /// Process id in the control page, 0 for a bare stream.
    pub pid: u32,
}

impl Extent {
    /// Reads the first bytes of a file (all of it, or at least [`CONTROL_BYTES`]).
    #[must_use]
    pub fn of(first_bytes: &[u8]) -> Self {
        if !first_bytes.starts_with(&MAGIC) {
            return Self { start: 0, end: None, state: 0, pid: 0 };
        }
        Self {
            start: CONTROL_BYTES as u64,
            end: Some(word64(first_bytes, offset::COMMITTED)),
            state: word32(first_bytes, offset::STATE),
            pid: word32(first_bytes, offset::PID),
        }
    }
}

/// The live counters of a control page, in the order allocations, frees, allocated bytes, freed
/// bytes.
#[must_use]
pub fn live_counters(page: &[u8]) -> [u64; 4] {
    [offset::ALLOCATIONS, offset::FREES, offset::ALLOCATED_BYTES, offset::FREED_BYTES]
        .map(|at| word64(page, at))
}

fn word32(page: &[u8], at: usize) -> u32 {
    page.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u32::from_le_bytes(*b))
}

fn word64(page: &[u8], at: usize) -> u64 {
    page.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u64::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn a_bare_stream_begins_at_zero() {
        assert_eq!(Extent::of(b"no magic"), Extent { start: 0, end: None, state: 0, pid: 0 });
    }

    #[test]
    fn each_order_differs_from_the_one_before() {
        let order = follow::next(0, false, true);
        assert!(order != 0 && order & follow::PAUSED != 0 && !follow::is_reset(0, order));
        let reset = follow::next(order, true, false);
        assert!(follow::is_reset(order, reset) && reset & follow::PAUSED == 0);
        let mut last = reset;
        for _ in 0..1000 {
            let next = follow::next(last, true, true);
            assert!(next != last && follow::is_reset(last, next));
            last = next;
        }
        assert_ne!(follow::next(u32::MAX, false, true), u32::MAX);
    }

    #[test]
    fn a_spool_tells_how_much_of_it_is_whole() {
        let mut page = vec![0; CONTROL_BYTES];
        page[..8].copy_from_slice(&MAGIC);
        page[offset::PID] = 42;
        page[offset::STATE] = 2;
        page[offset::COMMITTED..offset::COMMITTED + 8].copy_from_slice(&5000_u64.to_le_bytes());
        let want = Extent { start: 4096, end: Some(5000), state: state::CLOSED, pid: 42 };
        assert_eq!(Extent::of(&page), want);
        assert_eq!(Extent::of(&page[..20]).end, Some(0), "a cut control page holds no frame");
    }
}
