//! The contract of libc's `get_malloc_leak_info`: all live allocations as records of `size | zygote << 31`, `count`, and
//! `backtrace_size` return addresses, innermost first, padded with zeros.

use std::sync::Arc;

use memgate_ffi::lock::Lock;
use memgate_tracker::thread::Inside;
use memgate_wire::TRUNCATED_PC;

use super::hooks::TRACKER;
use super::snapshot;

/// Most return addresses of a record, as in bionic.
const MOST_FRAMES: usize = 256;

/// Buffers handed out and not yet given back.
static OUT: Lock<Vec<Arc<[u64]>>> = Lock::new(Vec::new());

/// A snapshot in words.
pub(crate) struct LeakInfo {
    pub(crate) words: *const u64,
    pub(crate) overall_bytes: usize,
    pub(crate) info_bytes: usize,
    pub(crate) total_bytes: usize,
    pub(crate) backtrace_size: usize,
}

/// Takes a snapshot; `None`: nothing is alive.
pub(crate) fn take() -> Option<LeakInfo> {
    let _inside = Inside::enter();
    let records = snapshot::records(&snapshot::count(0));
    let stacks: Vec<Vec<u64>> = records.iter().map(|r| frames(r.stack)).collect();
    let depth = stacks.iter().map(Vec::len).max().filter(|_| !records.is_empty())?;
    let info_words = 2 + depth;
    let mut words = Vec::with_capacity(records.len() * info_words);
    let mut total = 0_u64;
    for (record, stack) in records.iter().zip(&stacks) {
        total = total.saturating_add(record.size.saturating_mul(record.count));
        words.extend([record.size, record.count]);
        words.extend(stack);
        words.resize(words.len() + depth - stack.len(), 0);
    }
    let words: Arc<[u64]> = words.into();
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

/// Gives a snapshot back; an address that is none is ignored.
pub(crate) fn give_back(words: *const u64) {
    let _inside = Inside::enter();
    OUT.lock().retain(|out| out.as_ptr() != words);
}

fn frames(mut id: u32) -> Vec<u64> {
    let mut out = Vec::new();
    while let Some(node) = TRACKER.stack_node(id) {
        if node.pc != TRUNCATED_PC && out.len() < MOST_FRAMES {
            out.push(node.pc);
        }
        id = node.parent;
    }
    out
}
