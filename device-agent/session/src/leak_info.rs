//! The contract of libc's `get_malloc_leak_info`: all live allocations as records of `size | zygote
//! << 31`, `count`, and `backtrace_size` program counters, innermost first, padded with zeros.
//!
//! Live table → counts per (stack, size) → stacks by their content, because two threads may have stored the same stack
//! → one record for each size and stack, largest first. As in bionic a program counter lies inside the call, one byte
//! before the return address, and the list is empty if nothing is recorded. There is no zygote here, so its bit is
//! never set. A block of 2 GiB or more, which bionic refuses, has its whole size.

use core::cmp::Reverse;
use core::hash::BuildHasherDefault;
use core::ops::Range;
use std::collections::HashMap;

use memgate_ffi::lock::{Lock, RawLock};
use memgate_tracker::thread::Inside;
use memgate_wire::TRUNCATED_PC;

use crate::recording::TRACKER;
use crate::snapshot::{self, Mix};

/// Maximum number of program counters in a record, as in bionic.
const MOST_FRAMES: usize = 256;

/// Buffers handed out and not yet given back.
static OUT: Lock<Vec<Vec<u64>>> = Lock::new(Vec::new());

/// A snapshot in words.
pub struct LeakInfo {
    /// The records.
    pub words: *const u64,
    /// Bytes of all records.
    pub overall_bytes: usize,
    /// Bytes of one.
    pub info_bytes: usize,
    /// Bytes that are alive.
    pub total_bytes: usize,
    /// Program counters of a record.
    pub backtrace_size: usize,
}

/// Takes a snapshot; `None`: nothing is alive, recording had to stop or notes samples only, or there is no
/// memory for the list.
pub fn take() -> Option<LeakInfo> {
    let _inside = Inside::enter();
    if TRACKER.stopped().is_some() || TRACKER.interval().is_some() {
        return None;
    }
    let records = snapshot::records(&snapshot::count(0)?)?;
    let mut frames = Frames::default();
    let mut found = Vec::new();
    found.try_reserve_exact(records.len()).ok()?;
    for record in records {
        found.push((record.size, frames.of(record.stack)?, record.count));
    }
    let order =
        |(size, stack, _): &(u64, Stack, u64)| (Reverse(*size), Reverse(stack.len()), frames.words(stack));
    found.sort_unstable_by(|a, b| order(a).cmp(&order(b)));
    found.dedup_by(|next, kept| {
        let same = order(next) == order(kept);
        kept.2 = kept.2.saturating_add(if same { next.2 } else { 0 });
        same
    });
    let depth = found.iter().map(|(_, stack, _)| stack.len()).max()?;
    let info_words = depth.saturating_add(2);
    let mut words = Vec::new();
    words.try_reserve_exact(found.len().checked_mul(info_words)?).ok()?;
    let mut total = 0_u64;
    for (size, stack, count) in &found {
        total = total.saturating_add(size.saturating_mul(*count));
        words.extend([size, count]);
        words.extend(frames.words(stack));
        words.resize(words.len().saturating_add(depth).saturating_sub(stack.len()), 0);
    }
    let info = LeakInfo {
        words: words.as_ptr(),
        overall_bytes: words.len().saturating_mul(size_of::<u64>()),
        info_bytes: info_words.saturating_mul(size_of::<u64>()),
        total_bytes: usize::try_from(total).unwrap_or(usize::MAX),
        backtrace_size: depth,
    };
    let mut out = OUT.lock();
    out.try_reserve(1).ok()?;
    out.push(words);
    Some(info)
}

/// The lock that `fork` holds, so that the child finds the list of buffers consistent. Taken before the heap's lock.
pub(crate) fn raw_lock() -> &'static RawLock {
    OUT.raw()
}

/// Gives a snapshot back; an address that is no snapshot is ignored.
pub fn give_back(words: *const u64) {
    let _inside = Inside::enter();
    OUT.lock().retain(|out| out.as_ptr() != words);
}

/// Position of a stack's frames.
type Stack = Range<usize>;

/// The program counters of every stack, each once.
#[derive(Default)]
struct Frames {
    all: Vec<u64>,
    known: HashMap<u32, Stack, BuildHasherDefault<Mix>>,
}

impl Frames {
    /// The frames of the stack with this id. `None`: no memory.
    fn of(&mut self, id: u32) -> Option<Stack> {
        if let Some(stack) = self.known.get(&id) {
            return Some(stack.clone());
        }
        let start = self.all.len();
        let mut at = id;
        while let Some(node) = TRACKER.stack_node(at) {
            if node.pc != TRUNCATED_PC && self.all.len().saturating_sub(start) < MOST_FRAMES {
                self.all.try_reserve(1).ok()?;
                self.all.push(node.pc.saturating_sub(1));
            }
            at = node.parent;
        }
        self.known.try_reserve(1).ok()?;
        self.known.insert(id, start..self.all.len());
        Some(start..self.all.len())
    }

    fn words(&self, stack: &Stack) -> &[u64] {
        self.all.get(stack.clone()).unwrap_or_default()
    }
}
