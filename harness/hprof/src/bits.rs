//! A set of objects.

use crate::ids::index;

/// One bit for each object.
#[derive(Debug, Clone)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    pub(crate) fn new(objects: usize) -> Self {
        Self(vec![0; objects / 64 + 1])
    }

    #[inline]
    pub(crate) fn has(&self, object: u32) -> bool {
        self.0[index(object >> 6)] >> (object & 63) & 1 == 1
    }

    /// Returns whether it was not set before.
    #[inline]
    pub(crate) fn set(&mut self, object: u32) -> bool {
        let (word, bit) = (&mut self.0[index(object >> 6)], 1_u64 << (object & 63));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    #[inline]
    pub(crate) fn clear(&mut self, object: u32) {
        self.0[index(object >> 6)] &= !(1_u64 << (object & 63));
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}
