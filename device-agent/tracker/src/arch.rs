//! Machine-specific parts of the stack walk by rules: register numbers in unwind tables, the position of a return
//! address, the packing of a rule into a word of the cache.
//!
//! Tests compile both machines, so each machine's rules are tested on the other.

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

/// A machine. A payload is the low [`Arch::PAYLOAD_BITS`] bits of a word of the rule cache.
pub trait Arch: Sized {
    /// DWARF number of the frame pointer.
    const FP: u64;
    /// DWARF number of the stack pointer.
    const SP: u64;
    /// DWARF number of the return address.
    const RA: u64;
    /// Where the return address is at the first instruction of a function.
    const CALLED: Return;
    /// Can a return address lie anywhere in the frame?
    const RA_ANYWHERE: bool;
    /// Call frame instructions of this machine that have no operand and are ignored.
    const IGNORED: &[u8];
    /// Bytes below the stack pointer that the kernel leaves alone when it delivers a signal.
    const RED_ZONE: usize;

    /// Bits of a payload.
    const PAYLOAD_BITS: u32;
    /// Position of the return address of a remembered frame.
    type Below: Below;

    /// The key of an address in a word of the cache. If the address cannot be cached, the key does not fit into the
    /// word.
    fn key(pc: usize) -> u64;
    /// Packs a common rule. `None`: the rule is not common.
    fn pack(cfa: Cfa, fp: SavedFp, ra: Return) -> Option<u64>;
    /// Packs a rule that is not common.
    fn pack_other(other: Other) -> u64;
    /// The common rule in a word. The upper bits of the word are ignored.
    fn plain(word: u64) -> Option<Plain>;
    /// The rule in a word that holds no common rule.
    fn step(word: u64) -> Step;
}

/// Bytes from a return address up to the CFA of its frame.
pub trait Below: Copy + Debug {
    /// The distance that a rule states.
    fn new(bytes: usize) -> Self;
    /// The distance.
    fn bytes(self) -> usize;
}
