//! What differs between machines when a stack is walked by rules: the registers' numbers in unwind
//! tables, where a return address lies, how a rule fits into the cache's words.
//!
//! Both machines are compiled in tests, so that the rules of one are tested on the other.

#[cfg(any(test, target_arch = "aarch64"))]
pub mod aarch64;
#[cfg(any(test, target_arch = "x86_64"))]
pub mod x86_64;

use core::fmt::Debug;

#[cfg(target_arch = "aarch64")]
pub use self::aarch64::Aarch64 as Native;
#[cfg(target_arch = "x86_64")]
pub use self::x86_64::X86_64 as Native;
use crate::rule::{Cfa, Other, Plain, Return, SavedFp, Step};

/// A machine. Payloads are the low bits of a word of the rule cache, [`Arch::PAYLOAD_BITS`] of them.
pub trait Arch: Sized {
    /// Number of the frame pointer in unwind tables.
    const FP: u64;
    /// Number of the stack pointer.
    const SP: u64;
    /// Number of the return address.
    const RA: u64;
    /// Where the return address is at a function's first instruction.
    const CALLED: Return;
    /// Can a return address lie at any place of the frame?
    const RA_ANYWHERE: bool;
    /// Call frame instructions of this machine that have no operand and do not matter here.
    const IGNORED: &[u8];
    /// Bytes below the stack pointer that the kernel leaves alone when it delivers a signal.
    const RED_ZONE: usize;

    /// Bits of a payload.
    const PAYLOAD_BITS: u32;
    /// Where the return address of a remembered frame lies.
    type Below: Below;

    /// What stands for an address in the cache's words. It does not fit there where such an address
    /// cannot be kept.
    fn key(pc: usize) -> u64;
    /// Packs a common rule. `None`: this rule is not a common one.
    fn pack(cfa: Cfa, fp: SavedFp, ra: Return) -> Option<u64>;
    /// Packs another rule.
    fn pack_other(other: Other) -> u64;
    /// The common rule of a word, whose upper bits may be any.
    fn plain(word: u64) -> Option<Plain>;
    /// The rule of a word that holds no common rule.
    fn step(word: u64) -> Step;
}

/// Bytes from a return address up to the CFA of its frame.
pub trait Below: Copy + Debug {
    /// A distance that a rule tells.
    fn new(bytes: usize) -> Self;
    /// It.
    fn bytes(self) -> usize;
}
