//! Earlier walks of a thread, each from an address and a stack pointer to a frame of the remembered stack.
//!
//! A program allocates in few places, but alternates between them. At each place, the stack differs from the remembered
//! stack by some frames, which a walk follows rule by rule. A shortcut keeps the words that such a walk read. If the
//! same words are in the same slots, a fresh walk from the same registers finds the same frames and arrives at the same
//! frame of the remembered stack. If that frame still has the same hash, and its own slots are unchanged, the whole
//! stack is the one whose id the shortcut has. So a shortcut is as exact as a walk, and the remembered stack does not
//! change.
//!
//! The slots are compared from the innermost outward, and only while they agree: memory is read only where a fresh walk
//! would read it.

use crate::context::Registers;
use crate::sync::sized;

/// Number of shortcuts of a thread.
const COUNT: usize = sized(128, 1);
const BITS: u32 = COUNT.trailing_zeros();
/// Maximum number of slots that a shortcut compares.
const MOST_CHECKS: usize = 10;

/// A slot that an unwinder reads, and its earlier value.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Check {
    pub(crate) address: usize,
    pub(crate) value: usize,
}

/// Where a walk met the remembered stack.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Junction {
    /// Number of frames from the root to the frame that was met.
    pub(crate) depth: usize,
    /// Stack pointer and frame pointer of that frame.
    pub(crate) sp: usize,
    pub(crate) fp: usize,
    /// Hash of all frames from the root to that frame.
    pub(crate) hash: u64,
}

/// An earlier walk. All-zero is empty, because no stack pointer is 0.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Shortcut {
    sp: usize,
    pc: usize,
    fp: usize,
    generation: u32,
    /// Id of the whole stack.
    id: u32,
    needs_fp: bool,
    length: u8,
    junction: Junction,
    checks: [Check; MOST_CHECKS],
}

/// The shortcuts of a thread, by address and stack pointer. A new shortcut replaces the one in its place.
#[repr(C)]
pub(crate) struct Shortcuts([Shortcut; COUNT]);

impl Shortcuts {
    #[inline(always)]
    fn place(at: Registers) -> usize {
        // Stack pointers differ in multiples of 8, addresses in any bit.
        let key = (at.pc as u64).wrapping_add((at.sp as u64) << 13);
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (63 - BITS) >> 1) as usize
    }

    /// The shortcut from these registers, if all of its slots still hold their values.
    #[inline(always)]
    pub(crate) fn find(&self, at: Registers, generation: u32) -> Option<(Junction, u32)> {
        // SAFETY: as many bits as there are shortcuts.
        let known = unsafe { self.0.get_unchecked(Self::place(at)) };
        let same = known.sp == at.sp
            && known.pc == at.pc
            && known.generation == generation
            && (!known.needs_fp || known.fp == at.fp);
        (same && known.holds()).then_some((known.junction, known.id))
    }

    /// Keeps a walk from these registers that read these slots, outermost first.
    #[inline(always)]
    pub(crate) fn keep(
        &mut self,
        at: Registers,
        needs_fp: bool,
        generation: u32,
        junction: Junction,
        checks: &[Check],
        id: u32,
    ) {
        if checks.len() > MOST_CHECKS {
            return;
        }
        // SAFETY: as many bits as there are shortcuts.
        let new = unsafe { self.0.get_unchecked_mut(Self::place(at)) };
        (new.sp, new.pc, new.fp) = (at.sp, at.pc, at.fp);
        (new.generation, new.id, new.needs_fp) = (generation, id, needs_fp);
        (new.length, new.junction) = (checks.len() as u8, junction);
        for (to, from) in new.checks.iter_mut().zip(checks) {
            *to = *from;
        }
    }
}

impl Shortcut {
    #[inline(always)]
    fn holds(&self) -> bool {
        let mut left = usize::from(self.length);
        while let Some(next) = left.checked_sub(1) {
            left = next;
            // SAFETY: `length` checks were written.
            let check = unsafe { self.checks.get_unchecked(left) };
            // SAFETY: the slots further in hold what they held, so a fresh walk would read this
            // one too.
            if unsafe { (check.address as *const usize).read() } != check.value {
                return false;
            }
        }
        true
    }
}
