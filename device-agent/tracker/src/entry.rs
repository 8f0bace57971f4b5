//! What the live table knows of an allocation, and the bits of a slot that hold it.

use crate::sync::sized;

const STACK_BITS: u32 = sized(26, 4);
const EPOCH_BITS: u32 = sized(14, 3);
const SIZE_BITS: u32 = 24;

/// Largest stack id a slot can hold.
pub const MAX_STACK: u32 = (1 << STACK_BITS) - 1;
/// Largest epoch a slot can hold.
pub const MAX_EPOCH: u32 = (1 << EPOCH_BITS) - 1;
/// Epoch of everything that is older than the current count reaches back.
pub const ANCIENT: u32 = 1;
/// The first real epoch.
pub const FIRST_EPOCH: u32 = 2;

/// What is known of a live allocation.
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
    /// Bits of a slot: stack, epoch, size, from its top down.
    pub(crate) const BITS: (u32, u32, u32) = (STACK_BITS, EPOCH_BITS, SIZE_BITS);

    /// The slot's bits; never 0, because `epoch` is not.
    #[inline(always)]
    pub(crate) const fn pack(self) -> Option<u64> {
        if self.fits() { Some(self.bits()) } else { None }
    }

    /// Has a slot room for it?
    #[inline(always)]
    pub(crate) const fn fits(self) -> bool {
        self.size >> SIZE_BITS == 0 && self.stack <= MAX_STACK && self.epoch != 0 && self.epoch <= MAX_EPOCH
    }

    /// The bits of one that fits.
    #[inline(always)]
    pub(crate) const fn bits(self) -> u64 {
        ((self.stack as u64) << (EPOCH_BITS + SIZE_BITS)) | ((self.epoch as u64) << SIZE_BITS) | self.size
    }

    pub(crate) const fn unpack(bits: u64) -> Self {
        Self {
            size: bits & ((1 << SIZE_BITS) - 1),
            stack: (bits >> (EPOCH_BITS + SIZE_BITS)) as u32,
            epoch: (bits >> SIZE_BITS) as u32 & MAX_EPOCH,
        }
    }
}

/// A table could get no more memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;
