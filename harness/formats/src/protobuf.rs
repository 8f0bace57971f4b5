//! The wire format of Protocol Buffers, as far as reading known messages needs it: a sequence of fields.

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

const CUT: Malformed = Malformed("the message is cut off");

/// A value on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// The fields of a message. After an error there are no more.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    failed: bool,
}

impl<'a> Fields<'a> {
    pub(crate) const fn of(message: &'a [u8]) -> Self {
        Self { rest: message, failed: false }
    }

    fn field(&self) -> Result<(u64, Value<'a>, &'a [u8]), Malformed> {
        let (tag, rest) = varint(self.rest)?;
        let number = tag >> 3;
        if number == 0 || number > 0x1fff_ffff {
            return Err(Malformed("no field has this number"));
        }
        let (value, rest) = match tag & 7 {
            0 => varint(rest).map(|(value, rest)| (Value::Varint(value), rest))?,
            1 => rest
                .split_first_chunk()
                .map(|(bytes, rest)| (Value::Fixed64(u64::from_le_bytes(*bytes)), rest))
                .ok_or(CUT)?,
            2 => {
                let (length, rest) = varint(rest)?;
                let length =
                    usize::try_from(length).map_err(|_too_large| Malformed("a length beyond all memory"))?;
                rest.split_at_checked(length).map(|(bytes, rest)| (Value::Bytes(bytes), rest)).ok_or(CUT)?
            }
            5 => rest
                .split_first_chunk()
                .map(|(bytes, rest)| (Value::Fixed32(u32::from_le_bytes(*bytes)), rest))
                .ok_or(CUT)?,
            _ => return Err(Malformed("no field has this type")),
        };
        Ok((number, value, rest))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() || self.failed {
            return None;
        }
        match self.field() {
            Ok((number, value, rest)) => {
                self.rest = rest;
                Some(Ok((number, value)))
            }
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}

fn varint(bytes: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        let shift = u32::try_from(index).unwrap_or(u32::MAX).saturating_mul(7);
        if index == 9 && bits > 1 {
            return Err(Malformed("a number of more than 64 bits"));
        }
        value |= bits.checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok((value, bytes.get(index.saturating_add(1)..).unwrap_or_default()));
        }
    }
    Err(if bytes.len() < 10 { CUT } else { Malformed("a number of more than 64 bits") })
}

/// Writes messages, for tests.
#[cfg(test)]
pub(crate) mod dsl {
    fn raw(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        bytes.push(value.to_le_bytes()[0]);
        bytes
    }

    pub(crate) fn varint(number: u64, value: u64) -> Vec<u8> {
        [raw(number << 3), raw(value)].concat()
    }

    pub(crate) fn double(number: u64, value: f64) -> Vec<u8> {
        [raw(number << 3 | 1), value.to_le_bytes().to_vec()].concat()
    }

    pub(crate) fn bytes(number: u64, bytes: &[u8]) -> Vec<u8> {
        [raw(number << 3 | 2), raw(bytes.len() as u64), bytes.to_vec()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_read() {
        let message = [
            dsl::varint(1, u64::MAX),
            dsl::double(2, 0.5),
            vec![3 << 3 | 5, 1, 0, 0, 0],
            dsl::bytes(200, b"x"),
        ]
        .concat();
        let fields: Vec<_> = Fields::of(&message).collect::<Result<_, _>>().unwrap();
        assert_eq!(
            fields,
            [
                (1, Value::Varint(u64::MAX)),
                (2, Value::Fixed64(0.5_f64.to_bits())),
                (3, Value::Fixed32(1)),
                (200, Value::Bytes(b"x"))
            ]
        );
    }

    #[test]
    fn damage_is_told_from_an_early_end() {
        for (message, cut) in [
            (&[0x08][..], true),
            (&[0x08, 0xff], true),
            (&[0x0a, 5, 1], true),
            (&[0x0d, 1], true),
            (&[0x00, 1], false),
            (&[0x0b, 1], false),
            (&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], false),
            (&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 1], false),
        ] {
            let mut fields = Fields::of(message);
            let error = fields.next().unwrap().unwrap_err();
            assert_eq!(error == CUT, cut, "{message:x?}");
            assert!(fields.next().is_none());
        }
    }
}
