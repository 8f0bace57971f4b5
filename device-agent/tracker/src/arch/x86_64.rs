//! x86-64, System V: a call pushes the return address, so it always lies directly below the CFA.
//!
//! A payload is `kind 2 | cfa/8 11 | fp 4`.
#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "fields of a word and sizes of frames, filtered before"
    )
)]

use super::{Arch, Below};
use crate::rule::{Cfa, Other, Plain, Return, SavedFp, Step};

/// The machine.
#[derive(Debug, Clone, Copy)]
pub struct X86_64;

const KIND_AT_FP: u64 = 0;
const KIND_SP: u64 = 1;
const KIND_FP: u64 = 2;
const KIND_OTHER: u64 = 3;

const fn kind(word: u64) -> u64 {
    word >> 15 & 3
}

const fn far(word: u64) -> usize {
    (word >> 4 & 0x7ff) as usize * 8
}

impl Arch for X86_64 {
    const FP: u64 = 6;
    const SP: u64 = 7;
    const RA: u64 = 16;
    const CALLED: Return = Return::AtCfa(-8);
    const RA_ANYWHERE: bool = false;
    const IGNORED: &[u8] = &[];
    // psABI §3.2.2
    const RED_ZONE: usize = 128;
    const PAYLOAD_BITS: u32 = 17;
    type Below = Always;

    #[inline(always)]
    fn key(pc: usize) -> u64 {
        pc as u64
    }

    fn pack(cfa: Cfa, fp: SavedFp, ra: Return) -> Option<u64> {
        let far = |bytes: i64| {
            u64::try_from(bytes).ok().filter(|b| b % 8 == 0 && b / 8 < 1 << 11).map(|b| (b / 8) << 4)
        };
        let saved = match fp {
            SavedFp::Same => Some(0),
            // 1 to 15 words below the return address, which itself lies one word below the CFA.
            SavedFp::AtCfa(offset) => u64::try_from(-offset)
                .ok()
                .filter(|b| b % 8 == 0 && (16..=128).contains(b))
                .map(|b| b / 8 - 1),
            SavedFp::AtFp(_) => None,
        };
        match (cfa, fp) {
            _ if ra != Self::CALLED => None,
            (Cfa::AtFp(offset), SavedFp::AtFp(0)) => Some((KIND_AT_FP << 15) | far(-offset)?),
            (Cfa::Sp(offset), _) => Some((KIND_SP << 15) | far(offset)? | saved?),
            (Cfa::Fp(offset), _) => Some((KIND_FP << 15) | far(offset)? | saved?),
            _ => None,
        }
    }

    fn pack_other(other: Other) -> u64 {
        (KIND_OTHER << 15) | other as u64
    }

    #[inline(always)]
    fn plain(word: u64) -> Option<Plain> {
        let kind = kind(word);
        if kind != KIND_SP && kind != KIND_FP {
            return None;
        }
        let fp = match word & 15 {
            0 => 0,
            n => (n as usize + 1) * 8,
        };
        Some(Plain { from_fp: kind == KIND_FP, cfa: far(word), fp, ra: 8 })
    }

    fn step(word: u64) -> Step {
        match kind(word) {
            KIND_AT_FP => Step::AtFp { below: far(word) },
            _ => Other::of(word & 15).into(),
        }
    }
}

/// The return address lies one word below the CFA.
#[derive(Debug, Clone, Copy)]
pub struct Always;

impl Below for Always {
    #[inline(always)]
    fn new(_: usize) -> Self {
        Self
    }
    #[inline(always)]
    fn bytes(self) -> usize {
        8
    }
}
