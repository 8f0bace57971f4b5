//! Unwind rules as values: in the form of unwind tables ([`Rule`]), and in the form of the cache ([`Plain`], [`Step`]).

/// How to get from a frame to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The canonical frame address (CFA) is a register plus an offset, or the word it points at.
    Frame {
        /// Where the CFA comes from.
        cfa: Cfa,
        /// Where the caller's fp was saved.
        fp: SavedFp,
        /// Where the return address is.
        ra: Return,
    },
    /// A frame the kernel built for a signal handler: the registers lie at these offsets from sp.
    Signal {
        /// Offset of the interrupted sp.
        sp: i64,
        /// Offset of the interrupted fp.
        fp: i64,
        /// Offset of the interrupted instruction pointer.
        ra: i64,
    },
    /// The PLT's rule: sp + 8, and 8 more from the given byte of its 16-byte entry on.
    Plt {
        /// First byte within the entry at which one more word is on the stack.
        from: u8,
    },
    /// The outermost frame.
    End,
    /// No rule, or one this tracker does not follow.
    Unknown,
}

/// Where the CFA comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cfa {
    /// sp + offset
    Sp(i64),
    /// fp + offset
    Fp(i64),
    /// The word at fp + offset (functions that realign their stack).
    AtFp(i64),
}

/// Where the caller's fp is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SavedFp {
    /// Still in fp.
    Same,
    /// At CFA + offset.
    AtCfa(i64),
    /// At fp + offset.
    AtFp(i64),
}

/// Where the return address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// At CFA + offset.
    AtCfa(i64),
    /// Still in the link register: the function has made no call yet.
    InLink,
}

/// Rules that are not common, as numbers in payloads.
#[derive(Debug, Clone, Copy)]
pub enum Other {
    /// [`Step::End`]
    End = 0,
    /// [`Step::Unknown`]
    Unknown = 1,
    /// [`Step::Slow`]
    Slow = 2,
    /// [`Step::Loader`]
    Loader = 3,
}

/// The common rules: the CFA is a register plus an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plain {
    /// Is the register fp (else sp)?
    pub from_fp: bool,
    /// Bytes from the register to the CFA.
    pub cfa: usize,
    /// The caller's fp lies this many bytes below the CFA; 0: unchanged.
    pub fp: usize,
    /// The return address lies this many bytes below the CFA.
    pub ra: usize,
}

/// The other rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// CFA = word at fp - `below`; the caller's fp is the word at fp.
    AtFp {
        /// Bytes below fp.
        below: usize,
    },
    /// Outermost frame.
    End,
    /// No rule.
    Unknown,
    /// Call [`crate::rules::RuleCache::exact`] each time.
    Slow,
    /// An address in the loader: like `Slow`, but if the loader itself allocates, call
    /// [`crate::rules::RuleCache::objects_gone`] first.
    Loader,
}

impl Other {
    pub(crate) const fn of(number: u64) -> Self {
        match number {
            0 => Self::End,
            1 => Self::Unknown,
            3 => Self::Loader,
            _ => Self::Slow,
        }
    }
}

impl From<Other> for Step {
    fn from(other: Other) -> Self {
        match other {
            Other::End => Self::End,
            Other::Unknown => Self::Unknown,
            Other::Slow => Self::Slow,
            Other::Loader => Self::Loader,
        }
    }
}
