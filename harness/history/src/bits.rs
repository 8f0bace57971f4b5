//! The last judged commits of a leak in one number: seen or not.

use serde::{Deserialize, Serialize};

/// Up to 63 bits, the newest lowest. A one before the oldest bit marks the length.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Bits(u64);

impl Default for Bits {
    fn default() -> Self {
        Self(1)
    }
}

impl Bits {
    /// Maximum number of bits.
    pub const MOST: usize = 63;

    /// Adds a bit. Drops the oldest if there are too many.
    pub const fn push(&mut self, bit: bool) {
        let full = self.0 >> 63;
        self.0 = self.0 << 1 | bit as u64 | full << 63;
    }

    /// Adds the bits of another.
    pub fn append(&mut self, other: Self) {
        for bit in other.iter() {
            self.push(bit);
        }
    }

    /// Number of bits.
    #[must_use]
    pub const fn len(self) -> usize {
        63 - self.0.leading_zeros() as usize
    }

    /// True if there are no bits.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 1
    }

    /// The bits, oldest first.
    pub fn iter(self) -> impl Iterator<Item = bool> {
        (0..self.len()).rev().map(move |at| self.0 >> at & 1 == 1)
    }

    /// Number of newest bits in a row that equal `bit`.
    #[must_use]
    pub fn trailing(self, bit: bool) -> usize {
        let same = if bit { self.0.trailing_ones() } else { self.0.trailing_zeros() };
        self.len().min(same as usize)
    }

    /// The bits before the newest ones that equal `bit`.
    #[must_use]
    pub fn before_trailing(self, bit: bool) -> Self {
        Self(self.0 >> self.trailing(bit))
    }

    /// Share of ones; 1 if there are no bits.
    #[must_use]
    pub fn share(self) -> f64 {
        let ones = self.0.count_ones() - 1;
        u32::try_from(self.len())
            .ok()
            .filter(|len| *len > 0)
            .map_or(1.0, |len| f64::from(ones) / f64::from(len))
    }
}

impl TryFrom<u64> for Bits {
    type Error = &'static str;

    fn try_from(bits: u64) -> Result<Self, Self::Error> {
        if bits == 0 { Err("no bits begin with a zero") } else { Ok(Self(bits)) }
    }
}

impl From<Bits> for u64 {
    fn from(bits: Bits) -> Self {
        bits.0
    }
}

/// `#` seen, `.` not seen.
impl std::fmt::Display for Bits {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.iter().try_for_each(|bit| to.write_str(if bit { "#" } else { "." }))
    }
}

impl std::fmt::Debug for Bits {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, to)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_a_list_that_forgets_its_oldest(pushed in proptest::collection::vec(any::<bool>(), 0..200)) {
            let mut bits = Bits::default();
            for bit in &pushed {
                bits.push(*bit);
            }
            let kept = &pushed[pushed.len().saturating_sub(Bits::MOST)..];
            prop_assert_eq!(bits.iter().collect::<Vec<_>>(), kept);
            prop_assert_eq!((bits.len(), bits.is_empty()), (kept.len(), kept.is_empty()));
            for same in [true, false] {
                let trailing = kept.iter().rev().take_while(|bit| **bit == same).count();
                prop_assert_eq!(bits.trailing(same), trailing);
                let before = bits.before_trailing(same).iter().collect::<Vec<_>>();
                prop_assert_eq!(before, &kept[..kept.len() - trailing]);
            }
            let ones = kept.iter().filter(|bit| **bit).count();
            let share = if kept.is_empty() { 1.0 } else { ones as f64 / kept.len() as f64 };
            prop_assert!((bits.share() - share).abs() < 1e-12);
            let kept = serde_json::to_string(&bits).unwrap();
            prop_assert_eq!(serde_json::from_str::<Bits>(&kept).unwrap(), bits);
        }
    }

    #[test]
    fn what_was_never_written_is_refused() {
        assert!(serde_json::from_str::<Bits>("0").is_err());
    }
}
