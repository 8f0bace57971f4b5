//! Ids for new rows: 41 bits of milliseconds, then 22 bits that begin at a random number and ascend. The database needs
//! no counter.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

const LOW_BITS: u32 = 22;

/// Creates ids that nobody else creates.
#[derive(Debug)]
pub(super) struct Ids {
    high: i64,
    low: i64,
}

impl Ids {
    pub(super) fn new(now_us: i64) -> Self {
        let random = RandomState::new().build_hasher().finish();
        Self { high: now_us / 1000, low: i64::try_from(random >> (64 - LOW_BITS)).unwrap_or_default() }
    }

    /// Smaller than every id that is created from that time on.
    pub(super) const fn least(now_us: i64) -> i64 {
        (now_us / 1000) << LOW_BITS & i64::MAX
    }

    /// The time at which an id was created, to the millisecond.
    pub(super) const fn given_us(id: i64) -> i64 {
        (id >> LOW_BITS) * 1000
    }

    pub(super) const fn next(&mut self) -> i64 {
        self.low += 1;
        if self.low >> LOW_BITS != 0 {
            self.low = 0;
            self.high += 1;
        }
        (self.high << LOW_BITS | self.low) & i64::MAX
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_ascend_and_none_comes_twice() {
        let mut ids = Ids::new(1_800_000_000_000_000);
        let numbers: BTreeSet<i64> = (0..5_000_000).map(|_| ids.next()).collect();
        assert!(numbers.len() == 5_000_000 && numbers.first().is_some_and(|first| *first > 0));
    }
}
