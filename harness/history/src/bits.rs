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

    /// Between the first and the last one, are the zeros in fewer blocks than chance explains? Whatever the share of
    /// ones is, all arrangements of them are equally likely: `most` is the largest probability of so few blocks.
    #[must_use]
    pub fn is_in_blocks(self, most: f64) -> bool {
        let inner: Vec<bool> = self.before_trailing(false).iter().skip_while(|bit| !bit).collect();
        let zeros = inner.iter().filter(|bit| !**bit).count();
        let blocks = inner.windows(2).filter(|two| two[0] && !two[1]).count();
        // An arrangement is a way to cut the zeros into blocks, and to choose the gaps between ones that have a block.
        let gaps = (inner.len() - zeros).saturating_sub(1);
        let as_few: f64 = (1..=blocks).map(|blocks| ways(zeros - 1, blocks - 1) * ways(gaps, blocks)).sum();
        blocks > 0 && as_few <= most * ways(inner.len() - 2, zeros)
    }
}

/// Number of ways to choose `some` of `all`.
fn ways(all: usize, some: usize) -> f64 {
    (0..some).map(|taken| all.saturating_sub(taken) as f64 / (taken + 1) as f64).product()
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

impl FromIterator<bool> for Bits {
    fn from_iter<I: IntoIterator<Item = bool>>(bits: I) -> Self {
        let mut all = Self::default();
        bits.into_iter().for_each(|bit| all.push(bit));
        all
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
    fn zeros_in_a_block_are_told_from_chance_as_counting_all_arrangements_tells() {
        let blocks = |bits: Bits| bits.to_string().split('#').filter(|zeros| !zeros.is_empty()).count();
        for (len, all) in [(8, 1_u64 << 8), (11, 1 << 11)] {
            let ends = |bits: &Bits| bits.0 & 1 == 1 && bits.0 >> (len - 1) & 1 == 1;
            let every: Vec<Bits> = (0..all).map(|at| Bits(all | at)).filter(ends).collect();
            for bits in &every {
                let like = |other: &&Bits| other.0.count_ones() == bits.0.count_ones();
                let (same, few): (Vec<_>, Vec<_>) = (
                    every.iter().filter(like).collect(),
                    every.iter().filter(like).filter(|other| blocks(**other) <= blocks(*bits)).collect(),
                );
                let chance = few.len() as f64 / same.len() as f64;
                for (most, is) in [(chance * 1.01, blocks(*bits) > 0), (chance * 0.99, false)] {
                    assert_eq!(bits.is_in_blocks(most), is, "{bits} {chance}");
                }
            }
        }
        assert!(!Bits::default().is_in_blocks(1.0));
    }

    #[test]
    fn what_was_never_written_is_refused() {
        assert!(serde_json::from_str::<Bits>("0").is_err());
    }
}
