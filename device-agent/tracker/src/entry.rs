//! An entry of the live table, and its packing into the bits of a word.

use crate::sync::sized;

const STACK_BITS: u32 = sized(26, 4);
const EPOCH_BITS: u32 = sized(14, 3);
const SIZE_BITS: u32 = 24;
const NARROW_SIZE_BITS: u32 = 18;
const _: () = assert!(EPOCH_BITS + NARROW_SIZE_BITS <= u32::BITS, "a narrow word holds both");

/// Largest stack id a word can hold.
pub const MAX_STACK: u32 = (1 << STACK_BITS) - 1;
/// Largest epoch a word can hold.
pub const MAX_EPOCH: u32 = (1 << EPOCH_BITS) - 1;
/// Epoch of everything older than the current epoch count.
pub const ANCIENT: u32 = 1;
/// The first real epoch.
pub const FIRST_EPOCH: u32 = 2;

/// A live allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Requested bytes.
    pub size: u64,
    /// Id in the stack store; 0: none.
    pub stack: u32,
    /// Epoch in which it was allocated.
    pub epoch: u32,
}

impl Entry {
    /// Largest size that a narrow word holds, in bytes.
    pub(crate) const LARGEST_NARROW: u64 = (1 << NARROW_SIZE_BITS) - 1;
    /// Widths in a word, from the top down: stack, epoch, size.
    pub(crate) const BITS: (u32, u32, u32) = (STACK_BITS, EPOCH_BITS, SIZE_BITS);

    /// The bits of a word. They are never 0, because `epoch` is not. `None`: the entry does not fit.
    #[inline(always)]
    pub(crate) const fn pack(self) -> Option<u64> {
        if self.fits() { Some(self.bits()) } else { None }
    }

    /// Does it fit into a word?
    #[inline(always)]
    pub(crate) const fn fits(self) -> bool {
        self.has_epoch() && self.size >> SIZE_BITS == 0 && self.stack <= MAX_STACK
    }

    /// The bits of an entry that fits.
    #[inline(always)]
    pub(crate) const fn bits(self) -> u64 {
        ((self.stack as u64) << (EPOCH_BITS + SIZE_BITS)) | ((self.epoch as u64) << SIZE_BITS) | self.size
    }

    /// The entry in a word, if the word is not empty.
    #[inline(always)]
    pub(crate) const fn unpack(bits: u64) -> Option<Self> {
        if bits == 0 {
            return None;
        }
        Some(Self {
            size: bits & ((1 << SIZE_BITS) - 1),
            stack: (bits >> (EPOCH_BITS + SIZE_BITS)) as u32,
            epoch: (bits >> SIZE_BITS) as u32 & MAX_EPOCH,
        })
    }

    /// The bits of a narrow word, never 0. `None`: the entry does not fit, or its stack is not `no_stack`.
    #[inline(always)]
    pub(crate) const fn pack_narrow(self, no_stack: u32) -> Option<u64> {
        if self.fits_narrow() && self.stack == no_stack { Some(self.narrow_bits()) } else { None }
    }

    /// Do its epoch and its size fit into a narrow word?
    #[inline(always)]
    pub(crate) const fn fits_narrow(self) -> bool {
        self.has_epoch() && self.size <= Self::LARGEST_NARROW
    }

    /// The narrow bits of an entry that fits.
    #[inline(always)]
    pub(crate) const fn narrow_bits(self) -> u64 {
        ((self.epoch as u64) << NARROW_SIZE_BITS) | self.size
    }

    /// The entry in a narrow word, if the word is not empty.
    #[inline(always)]
    pub(crate) const fn unpack_narrow(bits: u64, stack: u32) -> Option<Self> {
        if bits == 0 {
            return None;
        }
        let size = bits & Self::LARGEST_NARROW;
        Some(Self { size, stack, epoch: (bits >> NARROW_SIZE_BITS) as u32 })
    }

    /// Does its epoch fit into a word?
    const fn has_epoch(self) -> bool {
        self.epoch != 0 && self.epoch <= MAX_EPOCH
    }
}

/// A table could get no more memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;
