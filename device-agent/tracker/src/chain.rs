//! Stack capture by frame records, used on Android.
//!
//! A frame record is two words: the caller's frame pointer and the return address. The frame pointer register points to
//! the innermost record. The walk follows the records to the root: the null that the C library puts after every
//! thread's first frame. A record is read only inside the stack, and only if it lies further out than the one before.
//! Code without frame records (compiled Java, code built with `-fomit-frame-pointer`) ends the walk; the stack is then
//! marked as cut.

use crate::bounds::Bounds;
pub use crate::context::{Context, Registers};
use crate::counters::bump;
pub use crate::stacks::TRUNCATED_PC;
use crate::stacks::{Node, extend_hash, root_hash};
use crate::sys::without_signature;
use crate::thread_counters::ThreadCounters;

/// A deeper stack keeps its innermost frames and is marked as cut.
pub const MAX_FRAMES: usize = 512;

/// Scratch memory for stacks, in the thread's state. All-zero is empty.
#[repr(C)]
pub struct Scratch {
    frames: [Frame; MAX_FRAMES + 1],
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Frame {
    pc: usize,
    hash: u64,
}

/// Takes the stack of the calling thread and returns its id; 0: no memory was left for it.
#[inline(never)]
pub fn capture(
    pc: usize,
    sp: usize,
    fp: usize,
    scratch: &mut Scratch,
    context: &Context,
    counters: &ThreadCounters,
) -> u32 {
    let at = Registers { pc, sp, fp };
    let mut bounds = Bounds::of(sp, &context.layout());
    let (depth, whole) = walk(at, &mut scratch.frames, &mut |address, from| bounds.read(address, from));
    if !whole {
        bump(&counters.truncated, 1);
    }
    intern(&mut scratch.frames, depth, context)
}

/// Fills in the return addresses, innermost first. Returns their number, and whether the last one is the root. If it is
/// not, the last one is [`TRUNCATED_PC`]. `read` gives the word at its first address if the word lies in the stack and
/// not before its second address.
fn walk(
    at: Registers,
    frames: &mut [Frame; MAX_FRAMES + 1],
    read: &mut dyn FnMut(usize, usize) -> Option<usize>,
) -> (usize, bool) {
    let mut next = Some((without_signature(at.pc), at.fp));
    let mut from = at.sp;
    let whole = frames.len();
    for (place, depth) in frames.iter_mut().zip(1..) {
        let Some((pc, record)) = next.filter(|_| depth <= MAX_FRAMES) else {
            place.pc = TRUNCATED_PC;
            return (depth, false);
        };
        place.pc = pc;
        if record == 0 {
            return (depth, true);
        }
        next = None;
        if record >= from
            && let Some(caller) = read(record, from)
            && let Some(pc) = read(record.wrapping_add(8), from)
        {
            let pc = without_signature(pc);
            if pc == 0 {
                return (depth, true);
            }
            from = record.wrapping_add(16);
            next = Some((pc, caller));
        }
    }
    (whole, false)
}

/// The id of the stack in the store. A new stack is stored first.
fn intern(frames: &mut [Frame; MAX_FRAMES + 1], depth: usize, context: &Context) -> u32 {
    let generation = context.rules.generation();
    let mut hash = root_hash(generation);
    for frame in frames.iter_mut().take(depth).rev() {
        hash = extend_hash(hash, frame.pc as u64);
        frame.hash = hash;
    }
    // Searches from the innermost frame outward for a stored one, then stores the frames further in.
    let known =
        frames.iter().take(depth).enumerate().find_map(|(i, f)| Some((i, context.store.find(f.hash)?)));
    let (new, mut parent) = known.unwrap_or((depth, 0));
    for frame in frames.iter().take(new).rev() {
        let node = Node { parent, generation, pc: frame.pc as u64 };
        match context.store.store(frame.hash, node) {
            Some(id) => parent = id,
            None => return 0,
        }
    }
    parent
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks a stack at 0x1000 whose `records` are (address, caller's record, return address).
    fn walked(records: &[(usize, usize, usize)], first: usize) -> (std::vec::Vec<usize>, bool) {
        let mut frames = [Frame { pc: 0, hash: 0 }; MAX_FRAMES + 1];
        let mut read = |address: usize, from: usize| {
            if address < from || address & 7 != 0 {
                return None;
            }
            records.iter().find_map(|&(at, caller, pc)| match address.checked_sub(at)? {
                0 => Some(caller),
                8 => Some(pc),
                _ => None,
            })
        };
        let (depth, whole) = walk(Registers { pc: 0x4000, sp: 0x1000, fp: first }, &mut frames, &mut read);
        (frames.iter().take(depth).map(|f| f.pc).collect(), whole)
    }

    #[test]
    fn records_are_followed_to_the_null_behind_the_first_frame() {
        let records = [(0x1010, 0x1040, 0x4010), (0x1040, 0x1080, 0x4020), (0x1080, 0, 0x4030)];
        assert_eq!(walked(&records, 0x1010), (std::vec![0x4000, 0x4010, 0x4020, 0x4030], true));
        // A null return address marks the root.
        assert_eq!(walked(&[(0x1010, 0x2000, 0)], 0x1010), (std::vec![0x4000], true));
        assert_eq!(walked(&[], 0), (std::vec![0x4000], true));
    }

    #[test]
    fn what_is_no_record_ends_the_walk_and_the_stack_says_so() {
        let cut = std::vec![0x4000, TRUNCATED_PC];
        // Below the stack pointer, misaligned, and outside the stack.
        for first in [0x0ff8, 0x1011, 0x9000] {
            assert_eq!(walked(&[(0x1010, 0, 0x4010)], first), (cut.clone(), false), "{first:#x}");
        }
        // A record that points to itself, or further in.
        for caller in [0x1010, 0x1008] {
            let (frames, whole) = walked(&[(0x1010, caller, 0x4010)], 0x1010);
            assert_eq!((frames, whole), (std::vec![0x4000, 0x4010, TRUNCATED_PC], false), "{caller:#x}");
        }
    }

    #[test]
    fn a_stack_that_is_too_deep_keeps_its_innermost_frames() {
        let records: std::vec::Vec<_> =
            (0..2 * MAX_FRAMES).map(|i| (0x1000 + 16 * i, 0x1010 + 16 * i, 0x5000 + i)).collect();
        let (frames, whole) = walked(&records, 0x1000);
        assert!(!whole);
        assert_eq!(frames.len(), MAX_FRAMES + 1);
        assert_eq!(&frames[..3], &[0x4000, 0x5000, 0x5001]);
        assert_eq!(frames.last(), Some(&TRUNCATED_PC));
    }
}
