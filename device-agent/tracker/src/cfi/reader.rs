//! Reads numbers and pointers of unwind tables, and never reads beyond its record.

/// Reads inside the mapped memory of one object.
#[derive(Clone, Copy)]
pub(super) struct Reader {
    pub(super) at: usize,
    pub(super) end: usize,
}

impl Reader {
    pub(super) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let next = self.at.checked_add(N).filter(|&n| n <= self.end)?;
        // SAFETY: [at, next) lies in the mapped object the reader was made for.
        let value = unsafe { (self.at as *const [u8; N]).read_unaligned() };
        self.at = next;
        Some(value)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|[b]| b)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    pub(super) fn uleb(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0_u64, 0_u32);
        loop {
            let byte = self.u8()?;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    }

    #[expect(clippy::cast_possible_wrap, reason = "two's complement is what LEB128 encodes")]
    pub(super) fn sleb(&mut self) -> Option<i64> {
        let (mut value, mut shift) = (0_u64, 0_u32);
        loop {
            let byte = self.u8()?;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            shift += 7;
            if byte & 0x80 == 0 {
                if shift < 64 && byte & 0x40 != 0 {
                    value |= u64::MAX << shift;
                }
                return Some(value as i64);
            }
        }
    }

    /// A pointer in a `DW_EH_PE` encoding. Indirect pointers are not followed (only personality routines use them).
    #[expect(clippy::cast_sign_loss, reason = "signed offsets are added modulo 2^64")]
    pub(super) fn pointer(&mut self, encoding: u8, data_base: usize) -> Option<u64> {
        if encoding == 0xff {
            return Some(0);
        }
        let here = self.at as u64;
        let value = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.u64()?,
            0x01 => self.uleb()?,
            0x09 => self.sleb()? as u64,
            0x02 => u64::from(self.u16()?),
            0x0a => self.u16()?.cast_signed() as i64 as u64,
            0x03 => u64::from(self.u32()?),
            0x0b => self.u32()?.cast_signed() as i64 as u64,
            _ => return None,
        };
        Some(match encoding & 0x70 {
            0x00 => value,
            0x10 => value.wrapping_add(here),
            0x30 => value.wrapping_add(data_base as u64),
            _ => return None,
        })
    }

    /// A reader of only the next bytes. This reader continues after them.
    pub(super) fn skip(&mut self, bytes: u64) -> Option<Self> {
        let end = self.at.checked_add(usize::try_from(bytes).ok()?).filter(|&n| n <= self.end)?;
        let skipped = Self { at: self.at, end };
        self.at = end;
        Some(skipped)
    }
}
