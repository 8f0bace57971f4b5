//! AArch64, AAPCS64: a call puts the return address into x30. The called function saves it anywhere, mostly as a pair
//! with x29. It may sign the address (pointer authentication). A slot then holds a valid address only after the
//! signature is removed.
//!
//! A payload is `common 1 | from fp 1 | fp saved 1 | from base 1 | place 4 | cfa/16 10`. `place` is the position of the
//! return address in words: down from the CFA, or up from the register (from base). A saved frame pointer lies directly
//! below the return address.
#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "fields of a word and sizes of frames, filtered before"
    )
)]

use super::{Arch, Below};
use crate::rule::{Cfa, Other, Plain, Return, SavedFp, Step};
#[cfg(all(target_arch = "aarch64", not(target_os = "android")))]
use crate::sys;

/// The machine.
#[derive(Debug, Clone, Copy)]
pub struct Aarch64;

const COMMON: u64 = 1 << 17;
const FROM_FP: u64 = 1 << 16;
const SAVED: u64 = 1 << 15;
const FROM_BASE: u64 = 1 << 14;
const PLACE_BITS: u32 = 4;
const CFA_BITS: u32 = 10;

const fn bits(word: u64, from: u32, count: u32) -> usize {
    (word >> from) as usize & ((1 << count) - 1)
}

impl Arch for Aarch64 {
    const FP: u64 = 29;
    const SP: u64 = 31;
    const RA: u64 = 30;
    const CALLED: Return = Return::InLink;
    const RA_ANYWHERE: bool = true;
    // DW_CFA_AARCH64_negate_ra_state, also _with_pc: signatures are always removed, whether there are any or not.
    const IGNORED: &[u8] = &[0x2d, 0x2c];
    const RED_ZONE: usize = 0;
    const PAYLOAD_BITS: u32 = 18;
    type Below = Told;

    /// Addresses have 48 bits and are multiples of 4. An address that is not a multiple of 4 (one after an interrupted
    /// instruction) gets its low bits at the top.
    #[inline(always)]
    fn key(pc: usize) -> u64 {
        (pc as u64).rotate_right(2)
    }

    fn pack(cfa: Cfa, fp: SavedFp, ra: Return) -> Option<u64> {
        let (from_fp, size) = match cfa {
            Cfa::Sp(offset) => (0, offset),
            Cfa::Fp(offset) => (FROM_FP, offset),
            Cfa::AtFp(_) => return None,
        };
        let Return::AtCfa(ra) = ra else { return None };
        let saved = match fp {
            SavedFp::Same => 0,
            SavedFp::AtCfa(offset) if offset == ra - 8 => SAVED,
            _ => return None,
        };
        let size = u64::try_from(size).ok().filter(|s| s % 16 == 0 && s / 16 < 1 << CFA_BITS)?;
        let below = u64::try_from(-ra).ok().filter(|b| b % 8 == 0 && (8..=size).contains(b))?;
        let place = [(0, below / 8), (FROM_BASE, (size - below) / 8)];
        let (base, place) = place.into_iter().find(|(_, words)| *words < 1 << PLACE_BITS)?;
        Some(COMMON | from_fp | saved | base | (place << CFA_BITS) | (size / 16))
    }

    fn pack_other(other: Other) -> u64 {
        other as u64
    }

    #[inline(always)]
    fn plain(word: u64) -> Option<Plain> {
        if word & COMMON == 0 {
            return None;
        }
        let (cfa, place) = (bits(word, 0, CFA_BITS) * 16, bits(word, CFA_BITS, PLACE_BITS) * 8);
        let ra = if word & FROM_BASE == 0 { place } else { cfa - place };
        let fp = if word & SAVED == 0 { 0 } else { ra + 8 };
        Some(Plain { from_fp: word & FROM_FP != 0, cfa, fp, ra })
    }

    fn step(word: u64) -> Step {
        Other::of(word & 15).into()
    }
}

/// Position of the return address, as the rule states it.
#[derive(Debug, Clone, Copy)]
pub struct Told(u32);

impl Below for Told {
    #[inline(always)]
    fn new(bytes: usize) -> Self {
        Self(bytes as u32)
    }
    #[inline(always)]
    fn bytes(self) -> usize {
        self.0 as usize
    }
}

/// Offsets from the stack pointer in the frame that the kernel builds for a signal handler (`rt_sigframe`): x29, x30,
/// sp and pc.
#[cfg(all(target_arch = "aarch64", not(target_os = "android")))]
pub(crate) const SIGNAL_FRAME: [usize; 4] = [544, 552, 560, 568];

/// Is this the return address of a signal handler? The kernel's trampoline has no unwind rules that lead to the
/// interrupted instruction (removed in Linux 5.8), so unwinders look for its two instructions.
#[cfg(all(target_arch = "aarch64", not(target_os = "android")))]
#[cold]
#[inline(never)]
pub(crate) fn is_signal_return(pc: usize) -> bool {
    // mov x8, #__NR_rt_sigreturn; svc #0
    const CODE: [u32; 2] = [0xd280_1168, 0xd400_0001];
    pc & 3 == 0
        && CODE.into_iter().enumerate().all(|(i, instruction)| {
            let at = pc.wrapping_add(i * 4);
            // SAFETY: a word of code that can be read.
            sys::readable(at) && unsafe { (at as *const u32).read() } == instruction
        })
}
