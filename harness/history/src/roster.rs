//! The tests of a run by number, in ascending order. Columns hold values in this order.

use crate::varint::{put, take};

/// Maximum number of tests in a run.
pub const MOST_TESTS: usize = 100_000;

/// The bytes of a roster: differences between ascending numbers.
#[must_use]
pub fn encode(tests: &[i64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut last = 0;
    for test in tests {
        put(&mut bytes, test.wrapping_sub(last).cast_unsigned());
        last = *test;
    }
    bytes
}

/// Inverse of [`encode`]. `None`: not a roster of this many tests.
#[must_use]
pub fn decode(mut bytes: &[u8], tests: usize) -> Option<Vec<i64>> {
    // Each number takes at least one byte, so a length from the file never allocates unchecked.
    if tests > bytes.len() {
        return None;
    }
    let mut last = 0_i64;
    let mut roster = Vec::with_capacity(tests);
    for _ in 0..tests {
        last = last.wrapping_add(take(&mut bytes)?.cast_signed());
        roster.push(last);
    }
    bytes.is_empty().then_some(roster)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_roster_comes_back(tests: Vec<i64>) {
            prop_assert_eq!(decode(&encode(&tests), tests.len()), Some(tests));
        }

        #[test]
        fn any_bytes_are_refused_or_a_roster(bytes: Vec<u8>, tests in 0_usize..1000) {
            drop(decode(&bytes, tests));
        }
    }

    #[test]
    fn a_roster_of_another_length_is_refused() {
        let bytes = encode(&[1, 5, 9]);
        assert_eq!((decode(&bytes, 2), decode(&bytes, 4), decode(&bytes, usize::MAX)), (None, None, None));
    }
}
