//! The contract of libc's `get_malloc_leak_info`: all live allocations as records of `size | zygote << 31`, `count`, and
//! `backtrace_size` program counters, innermost first, padded with zeros.
//!
//! Live table → counts per (stack, size) → stacks by their content, because two threads may have stored the same one → one
//! record for each size and stack, largest first. As in bionic a program counter lies inside the call, one byte before
//! the return address, and the list is empty where nothing is recorded. There is no zygote here, so that bit is never set; a
//! block of 2 GiB or more, which bionic refuses, stands with its whole size.

use core::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

use memgate_ffi::lock::{Lock, RawLock};
use memgate_tracker::thread::Inside;
use memgate_wire::TRUNCATED_PC;

use super::hooks::TRACKER;
use super::snapshot;

/// Most program counters of a record, as in bionic.
const MOST_FRAMES: usize = 256;

/// Buffers handed out and not yet given back.
static OUT: Lock<Vec<Vec<u64>>> = Lock::new(Vec::new());

/// A snapshot in words.
pub(crate) struct LeakInfo {
    pub(crate) words: *const u64,
    pub(crate) overall_bytes: usize,
    pub(crate) info_bytes: usize,
    pub(crate) total_bytes: usize,
    pub(crate) backtrace_size: usize,
}

/// Takes a snapshot; `None`: nothing is alive, recording had to stop, or there is no memory for the list.
pub(crate) fn take() -> Option<LeakInfo> {
    let _inside = Inside::enter();
    if TRACKER.stopped().is_some() {
        return None;
    }
    let mut stacks = BTreeMap::new();
    let mut records = BTreeMap::new();
    for record in snapshot::records(&snapshot::count(0)?)? {
        let frames = stacks.entry(record.stack).or_insert_with(|| Rc::new(frames(record.stack)));
        let key = (Reverse(record.size), Reverse(frames.len()), Rc::clone(frames));
        *records.entry(key).or_insert(0_u64) += record.count;
    }
    let depth = records.keys().map(|(_, Reverse(depth), _)| *depth).max()?;
    let info_words = 2 + depth;
    let mut words = Vec::new();
    words.try_reserve_exact(records.len().checked_mul(info_words)?).ok()?;
    let mut total = 0_u64;
    for ((Reverse(size), _, frames), count) in &records {
        total = total.saturating_add(size.saturating_mul(*count));
        words.extend([size, count]);
        words.extend(frames.iter());
        words.resize(words.len() + depth - frames.len(), 0);
    }
    let info = LeakInfo {
        words: words.as_ptr(),
        overall_bytes: words.len() * size_of::<u64>(),
        info_bytes: info_words * size_of::<u64>(),
        total_bytes: usize::try_from(total).unwrap_or(usize::MAX),
        backtrace_size: depth,
    };
    OUT.lock().push(words);
    Some(info)
}

/// The lock that `fork` holds, so that the child finds the list of buffers whole. Taken before the heap's.
pub(crate) fn raw_lock() -> &'static RawLock {
    OUT.raw()
}

/// Gives a snapshot back; an address that is none is ignored.
pub(crate) fn give_back(words: *const u64) {
    let _inside = Inside::enter();
    OUT.lock().retain(|out| out.as_ptr() != words);
}

fn frames(mut id: u32) -> Vec<u64> {
    let mut out = Vec::new();
    while let Some(node) = TRACKER.stack_node(id) {
        if node.pc != TRUNCATED_PC && out.len() < MOST_FRAMES {
            out.push(node.pc.saturating_sub(1));
        }
        id = node.parent;
    }
    out
}
