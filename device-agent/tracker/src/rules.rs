//! The cache of unwind rules: one word per return address, shared by all threads, without a lock.
//!
//! A word is `pc 47 | kind 2 | cfa/8 11 | rbp 4`. A lost race costs a second computation, never a wrong rule: an entry is
//! written whole and carries its key. Addresses outside every loaded object are not remembered, because a library may be
//! loaded there later; everything is forgotten when a library is unloaded.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::cfi::{self, Cfa, FindObject, Rule, SavedRbp};

const BITS: u32 = 14;
const ENTRIES: usize = (1 << BITS) + 1;
const PAYLOAD_BITS: u32 = 17;

const KIND_AT_RBP: u64 = 0;
const KIND_RSP: u64 = 1;
const KIND_RBP: u64 = 2;
const KIND_OTHER: u64 = 3;
const OTHER_END: u64 = 0;
const OTHER_UNKNOWN: u64 = 1;
const OTHER_SLOW: u64 = 2;

/// The cache. One lives in a static of the agent; all-zero is empty.
pub struct RuleCache {
    entries: [AtomicU64; ENTRIES],
    find_object: AtomicUsize,
}

/// A rule as the walker uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed(u64);

/// The common rules: the CFA is a register plus an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plain {
    /// Is the register rbp (else rsp)?
    pub from_rbp: bool,
    /// Bytes from the register to the CFA.
    pub cfa: usize,
    /// The caller's rbp lies this many bytes below the CFA; 0: unchanged.
    pub rbp: usize,
}

/// The other rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// CFA = word at rbp - `below`; the caller's rbp is the word at rbp.
    AtRbp {
        /// Bytes below rbp.
        below: usize,
    },
    /// Outermost frame.
    End,
    /// No rule.
    Unknown,
    /// Ask [`RuleCache::exact`] each time.
    Slow,
}

impl RuleCache {
    /// An empty cache that knows no objects.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: [const { AtomicU64::new(0) }; ENTRIES], find_object: AtomicUsize::new(0) }
    }

    /// Sets the C library's `_dl_find_object`. Without it no address has a rule.
    pub fn set_find_object(&self, find: FindObject) {
        self.find_object.store(find as usize, Ordering::Relaxed);
    }

    /// Forgets everything.
    pub fn clear(&self) {
        for entry in &self.entries {
            entry.store(0, Ordering::Relaxed);
        }
    }

    /// The rule for a return address.
    #[inline(always)]
    pub fn step(&self, pc: usize) -> Packed {
        let slot = ((pc as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - BITS)) as usize;
        // SAFETY: 14 bits index at most 2^14 - 1.
        let first = unsafe { self.entries.get_unchecked(slot) };
        // SAFETY: there is one entry more.
        let second = unsafe { self.entries.get_unchecked(slot + 1) };
        let bits = first.load(Ordering::Relaxed);
        if bits >> PAYLOAD_BITS == pc as u64 {
            return Packed(bits);
        }
        let bits = second.load(Ordering::Relaxed);
        if bits >> PAYLOAD_BITS == pc as u64 {
            return Packed(bits);
        }
        self.miss(pc, first, second)
    }

    /// The rule for a return address, computed now.
    #[cold]
    #[inline(never)]
    pub fn exact(&self, pc: usize) -> Option<Rule> {
        let find = self.find_object.load(Ordering::Relaxed);
        if find == 0 || pc == 0 {
            return None;
        }
        // SAFETY: only `set_find_object` writes the word, and it is not 0.
        let find = unsafe { core::mem::transmute::<usize, FindObject>(find) };
        let object = cfi::find_object(find, pc - 1)?;
        Some(cfi::rule(&object, pc - 1))
    }

    #[cold]
    #[inline(never)]
    fn miss(&self, pc: usize, first: &AtomicU64, second: &AtomicU64) -> Packed {
        let Some(rule) = self.exact(pc) else { return Packed(pack_other(OTHER_UNKNOWN)) };
        let bits = ((pc as u64) << PAYLOAD_BITS) | pack(rule);
        if bits >> PAYLOAD_BITS == pc as u64 {
            let evicted = first.load(Ordering::Relaxed);
            if evicted != 0 {
                second.store(evicted, Ordering::Relaxed);
            }
            first.store(bits, Ordering::Relaxed);
        }
        Packed(bits)
    }
}

impl Default for RuleCache {
    fn default() -> Self {
        Self::new()
    }
}

impl Packed {
    /// The rule, if it is a common one.
    #[inline(always)]
    #[must_use]
    pub const fn plain(self) -> Option<Plain> {
        let kind = self.kind();
        if kind != KIND_RSP && kind != KIND_RBP {
            return None;
        }
        let rbp = match self.0 & 15 {
            0 => 0,
            n => (n as usize + 1) * 8,
        };
        Some(Plain { from_rbp: kind == KIND_RBP, cfa: self.far(), rbp })
    }

    /// The rule, if it is none of the common ones.
    #[must_use]
    pub const fn step(self) -> Step {
        match (self.kind(), self.0 & 15) {
            (KIND_AT_RBP, _) => Step::AtRbp { below: self.far() },
            (_, OTHER_END) => Step::End,
            (_, OTHER_UNKNOWN) => Step::Unknown,
            _ => Step::Slow,
        }
    }

    #[inline(always)]
    const fn kind(self) -> u64 {
        self.0 >> 15 & 3
    }

    #[inline(always)]
    const fn far(self) -> usize {
        (self.0 >> 4 & 0x7ff) as usize * 8
    }
}

const fn pack_other(what: u64) -> u64 {
    (KIND_OTHER << 15) | what
}

fn pack(rule: Rule) -> u64 {
    match rule {
        Rule::End => pack_other(OTHER_END),
        Rule::Unknown => pack_other(OTHER_UNKNOWN),
        Rule::Signal { .. } | Rule::Plt { .. } => pack_other(OTHER_SLOW),
        Rule::Frame { cfa, rbp } => pack_frame(cfa, rbp).unwrap_or(pack_other(OTHER_SLOW)),
    }
}

fn pack_frame(cfa: Cfa, rbp: SavedRbp) -> Option<u64> {
    let far = |bytes: i64| {
        u64::try_from(bytes).ok().filter(|b| b % 8 == 0 && b / 8 < 1 << 11).map(|b| (b / 8) << 4)
    };
    let saved = match rbp {
        SavedRbp::Same => Some(0),
        // 1 to 15 words below the return address, which itself lies one word below the CFA.
        SavedRbp::AtCfa(offset) => {
            u64::try_from(-offset).ok().filter(|b| b % 8 == 0 && (16..=128).contains(b)).map(|b| b / 8 - 1)
        }
        SavedRbp::AtRbp(_) => None,
    };
    match (cfa, rbp) {
        (Cfa::AtRbp(offset), SavedRbp::AtRbp(0)) => Some((KIND_AT_RBP << 15) | far(-offset)?),
        (Cfa::Rsp(offset), _) => Some((KIND_RSP << 15) | far(offset)? | saved?),
        (Cfa::Rbp(offset), _) => Some((KIND_RBP << 15) | far(offset)? | saved?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_survive_packing() {
        let plain = |from_rbp, cfa, rbp| Ok(Plain { from_rbp, cfa, rbp });
        let cases = [
            (Rule::Frame { cfa: Cfa::Rsp(8), rbp: SavedRbp::Same }, plain(false, 8, 0)),
            (Rule::Frame { cfa: Cfa::Rsp(16376), rbp: SavedRbp::AtCfa(-16) }, plain(false, 16376, 16)),
            (Rule::Frame { cfa: Cfa::Rbp(16), rbp: SavedRbp::AtCfa(-128) }, plain(true, 16, 128)),
            (Rule::Frame { cfa: Cfa::AtRbp(-8), rbp: SavedRbp::AtRbp(0) }, Err(Step::AtRbp { below: 8 })),
            (Rule::End, Err(Step::End)),
            (Rule::Unknown, Err(Step::Unknown)),
            (Rule::Frame { cfa: Cfa::Rsp(16384), rbp: SavedRbp::Same }, Err(Step::Slow)),
            (Rule::Frame { cfa: Cfa::Rsp(12), rbp: SavedRbp::Same }, Err(Step::Slow)),
            (Rule::Frame { cfa: Cfa::Rsp(-8), rbp: SavedRbp::Same }, Err(Step::Slow)),
            (Rule::Frame { cfa: Cfa::Rsp(64), rbp: SavedRbp::AtCfa(-136) }, Err(Step::Slow)),
            (Rule::Frame { cfa: Cfa::Rsp(64), rbp: SavedRbp::AtCfa(-8) }, Err(Step::Slow)),
            (Rule::Signal { rsp: 160, rbp: 120, rip: 168 }, Err(Step::Slow)),
        ];
        for (rule, want) in cases {
            let packed = Packed(pack(rule));
            assert_eq!(packed.plain().ok_or_else(|| packed.step()), want, "{rule:?}");
        }
    }
}
