//! Integers in as few bytes as possible: seven bits each, the lowest first.

/// Appends a number.
pub(crate) fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while let Some(rest) = (value >> 7 != 0).then_some(value >> 7) {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value = rest;
    }
    bytes.push((value & 0x7f) as u8);
}

/// Reads a number. `None`: the bytes end too early, or the number has more than 64 bits.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(first & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        value |= bits << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Maps numbers near zero to small ones, whatever their sign.
pub(crate) const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

/// Inverse of [`zigzag`].
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_number_comes_back(value: i64) {
            let mut bytes = Vec::new();
            put(&mut bytes, zigzag(value));
            let mut rest = bytes.as_slice();
            prop_assert_eq!(take(&mut rest).map(unzigzag), Some(value));
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn any_bytes_end(bytes: Vec<u8>) {
            let mut rest = bytes.as_slice();
            while take(&mut rest).is_some() {}
        }
    }
}
