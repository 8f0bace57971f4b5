//! Restores dumps that Tailor (bytedance/tailor) writes.
//!
//! Data flow: its stream (in zlib, or bare) → record by record, a segment at a time → a standard dump. The parts that
//! Tailor cut out become zeros: times, serials of stacks and threads, contents of `char[]` and `byte[]`.
//!
//! ```text
//! stream   title `JAVA PROFILE 6.0.1` without NUL; ids of 4 bytes
//! 0x01     u2 length, id, text          0x02  id class, id name
//! 0x1c     sub-records, up to a tag that is none: without length, times, stack serials
//! roots    tag, id (JNI global: both ids)
//! class    of the reserved ids and the instance size only the last two bytes
//! arrays   of primitives: id, count, type, values but for `char` and `byte`
//! ```
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use std::io::{self, BufRead, Read, Write};

use flate2::bufread::ZlibDecoder;

use super::{LONGEST, RestoreError};
use crate::read::value_bytes;

const TITLE: &[u8] = b"JAVA PROFILE 6.0.1";
/// A segment ends after the object that brings it to this size. A segment is kept in memory until it is written.
const SEGMENT: usize = 1 << 20;
const ID: usize = 4;

/// Restores a dump that Tailor trimmed. Returns the bytes that were written.
///
/// # Errors
/// The input is no such dump, is not complete, or cannot be read or written.
pub fn restore(mut from: impl BufRead, to: impl Write) -> Result<u64, RestoreError> {
    match from.fill_buf().map_err(RestoreError::Io)?.first() {
        Some(b'J') => restored(from, to),
        Some(0x78) => restored(io::BufReader::with_capacity(1 << 16, ZlibDecoder::new(from)), to),
        _ => Err(RestoreError::NotTailor),
    }
}

fn restored(from: impl BufRead, to: impl Write) -> Result<u64, RestoreError> {
    let mut work = Restoring { from, to, at: 0, written: 0, body: Vec::new(), zeros: Vec::new() };
    work.file()?;
    work.to.flush().map_err(RestoreError::Io)?;
    Ok(work.written)
}

struct Restoring<R, W> {
    from: R,
    to: W,
    /// Bytes read.
    at: u64,
    written: u64,
    /// The record that is being made, and the zeros in it: position and number.
    body: Vec<u8>,
    zeros: Vec<(usize, u64)>,
}

impl<R: BufRead, W: Write> Restoring<R, W> {
    fn file(&mut self) -> Result<(), RestoreError> {
        let mut title = [0; TITLE.len()];
        let read = self.from.read_exact(&mut title);
        if read.is_err() || title != *TITLE {
            return Err(RestoreError::NotTailor);
        }
        self.at = TITLE.len() as u64;
        self.write(b"JAVA PROFILE 1.0.3\0\0\0\0\x04\0\0\0\0\0\0\0\0")?;
        let mut ended = false;
        while let Some(tag) = self.peek()? {
            let at = self.at;
            self.taken::<1>()?;
            self.body.clear();
            match tag {
                0x01 => {
                    let length = self.taken::<2>().map(u16::from_be_bytes)?;
                    self.copy(u64::from(length))?;
                }
                0x02 => {
                    // Serials of class and stack are missing.
                    self.zeros.push((0, 4));
                    self.copy(ID as u64)?;
                    self.zeros.push((ID, 4));
                    self.copy(ID as u64)?;
                }
                0x1c => {
                    while self.peek()?.is_some_and(is_object) {
                        self.object()?;
                        // A heap may consist of any number of segments.
                        if self.body.len() >= SEGMENT {
                            self.record(tag)?;
                            self.body.clear();
                        }
                    }
                }
                0x2c => ended = true,
                _ => return Err(RestoreError::Unknown { tag, at }),
            }
            // Empty segments are left out.
            if tag != 0x1c || !self.body.is_empty() {
                self.record(tag)?;
            }
        }
        if ended { Ok(()) } else { Err(RestoreError::Cut { at: self.at }) }
    }

    /// Reads one sub-record of a heap.
    fn object(&mut self) -> Result<(), RestoreError> {
        let at = self.at;
        let [tag] = self.copied()?;
        let id = ID as u64;
        match tag {
            0xff | 0x05 | 0x07 | 0x89..=0x8d | 0x90 => self.copy(id),
            0x01 => self.copy(id.saturating_mul(2)),
            0x04 | 0x06 => self.copy_and(id, 4),
            0x02 | 0x03 | 0x08 | 0x8e => self.copy_and(id, 8),
            0xfe => self.copy(id.saturating_add(4)),
            0x20 => {
                self.copy_and(id, 4)?;
                // Superclass, loader, signers, domain; the reserved ids and half of the size.
                self.copy_and(id.saturating_mul(4), 10)?;
                self.copy(2)?;
                for head in [2, id] {
                    let count = self.copied::<2>().map(u16::from_be_bytes)?;
                    for _ in 0..count {
                        self.copy(head)?;
                        let bytes = self.value_bytes()?.1;
                        self.copy(bytes)?;
                    }
                }
                let fields = self.copied::<2>().map(u16::from_be_bytes)?;
                self.copy(u64::from(fields).saturating_mul(id.saturating_add(1)))
            }
            0x21 => {
                self.copy_and(id, 4)?;
                self.copy(id)?;
                let length = self.copied::<4>().map(u32::from_be_bytes)?;
                self.copy(u64::from(length))
            }
            0x22 => {
                self.copy_and(id, 4)?;
                let count = self.copied::<4>().map(u32::from_be_bytes)?;
                self.copy(u64::from(count).saturating_add(1).saturating_mul(id))
            }
            0x23 => {
                self.copy_and(id, 4)?;
                let count = u64::from(self.copied::<4>().map(u32::from_be_bytes)?);
                let (kind, bytes) = self.value_bytes()?;
                let bytes = bytes.saturating_mul(count);
                if matches!(kind, 5 | 8) { self.copy_and(0, bytes) } else { self.copy(bytes) }
            }
            0xc3 => {
                self.copy_and(id, 4)?;
                self.copy(5)
            }
            _ => Err(RestoreError::Unknown { tag, at }),
        }
    }

    /// Copies a type; returns it with the size of its values.
    fn value_bytes(&mut self) -> Result<(u8, u64), RestoreError> {
        let at = self.at;
        let [kind] = self.copied()?;
        let bytes = value_bytes(kind, ID).ok_or(RestoreError::Unknown { tag: kind, at })?;
        Ok((kind, bytes as u64))
    }

    /// Copies bytes, and puts zeros after them.
    fn copy_and(&mut self, bytes: u64, zeros: u64) -> Result<(), RestoreError> {
        self.copy(bytes)?;
        self.zeros.push((self.body.len(), zeros));
        Ok(())
    }

    /// Copies bytes into the record.
    fn copy(&mut self, bytes: u64) -> Result<(), RestoreError> {
        let before = self.written.saturating_add(self.body.len() as u64);
        if before.saturating_add(bytes) > LONGEST {
            return Err(RestoreError::TooLarge);
        }
        let got = self.from.by_ref().take(bytes).read_to_end(&mut self.body).map_err(cut(self.at))?;
        self.at = self.at.saturating_add(got as u64);
        if (got as u64) < bytes { Err(RestoreError::Cut { at: self.at }) } else { Ok(()) }
    }

    /// Copies bytes, and returns them.
    fn copied<const N: usize>(&mut self) -> Result<[u8; N], RestoreError> {
        let bytes = self.taken()?;
        self.body.extend_from_slice(&bytes);
        Ok(bytes)
    }

    fn taken<const N: usize>(&mut self) -> Result<[u8; N], RestoreError> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(cut(self.at))?;
        self.at = self.at.saturating_add(N as u64);
        Ok(bytes)
    }

    fn peek(&mut self) -> Result<Option<u8>, RestoreError> {
        match self.from.fill_buf() {
            Ok(bytes) => Ok(bytes.first().copied()),
            Err(why) => Err(cut(self.at)(why)),
        }
    }

    /// Writes the record that was built.
    fn record(&mut self, tag: u8) -> Result<(), RestoreError> {
        let zeros = self.zeros.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        let length = zeros.saturating_add(self.body.len() as u64);
        if self.written.saturating_add(length) > LONGEST {
            return Err(RestoreError::TooLarge);
        }
        let length = u32::try_from(length).map_err(|_too_large| RestoreError::TooLarge)?;
        self.write(&[tag, 0, 0, 0, 0])?;
        self.write(&length.to_be_bytes())?;
        let (body, zeros) = (std::mem::take(&mut self.body), std::mem::take(&mut self.zeros));
        let mut from = 0;
        for (at, count) in &zeros {
            self.write(body.get(from..*at).unwrap_or_default())?;
            from = *at;
            io::copy(&mut io::repeat(0).take(*count), &mut self.to).map_err(RestoreError::Io)?;
            self.written = self.written.saturating_add(*count);
        }
        self.write(body.get(from..).unwrap_or_default())?;
        (self.body, self.zeros) = (body, zeros);
        self.zeros.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), RestoreError> {
        self.to.write_all(bytes).map_err(RestoreError::Io)?;
        self.written = self.written.saturating_add(bytes.len() as u64);
        Ok(())
    }
}

/// Is this the tag of a sub-record?
const fn is_object(tag: u8) -> bool {
    matches!(
        tag,
        0x01..=0x08 | 0x20..=0x23 | 0x89..=0x8e | 0x90 | 0xc3 | 0xfe | 0xff
    )
}

fn cut(at: u64) -> impl Fn(io::Error) -> RestoreError {
    move |why| match why.kind() {
        io::ErrorKind::UnexpectedEof => RestoreError::Cut { at },
        _ => RestoreError::Io(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"JAVA PROFILE 6.0.1\
        \x01\x00\x06\x00\x00\x00\x09ab\
        \x02\x00\x00\x00\x10\x00\x00\x00\x09\
        \x1c\x05\x00\x00\x00\x10\x08\x00\x00\x00\x10\
        \x21\x00\x00\x00\x20\x00\x00\x00\x10\x00\x00\x00\x01\x07\
        \x23\x00\x00\x00\x30\x00\x00\x00\x02\x08\
        \x23\x00\x00\x00\x40\x00\x00\x00\x01\x0a\x01\x02\x03\x04\
        \x2c";

    fn whole() -> Vec<u8> {
        let mut out = Vec::new();
        assert_eq!(restore(STREAM, &mut out).unwrap(), out.len() as u64);
        out
    }

    #[test]
    fn what_was_cut_out_is_zeros() {
        let heap = b"\x05\x00\x00\x00\x10\
            \x08\x00\x00\x00\x10\0\0\0\0\0\0\0\0\
            \x21\x00\x00\x00\x20\0\0\0\0\x00\x00\x00\x10\x00\x00\x00\x01\x07\
            \x23\x00\x00\x00\x30\0\0\0\0\x00\x00\x00\x02\x08\0\0\
            \x23\x00\x00\x00\x40\0\0\0\0\x00\x00\x00\x01\x0a\x01\x02\x03\x04";
        let length = u32::try_from(heap.len()).unwrap().to_be_bytes();
        let want = [
            b"JAVA PROFILE 1.0.3\0\0\0\0\x04\0\0\0\0\0\0\0\0".as_slice(),
            b"\x01\0\0\0\0\0\0\0\x06\x00\x00\x00\x09ab",
            b"\x02\0\0\0\0\0\0\0\x10\0\0\0\0\x00\x00\x00\x10\0\0\0\0\x00\x00\x00\x09",
            b"\x1c\0\0\0\0",
            &length,
            heap,
            b"\x2c\0\0\0\0\0\0\0\0",
        ];
        assert_eq!(whole(), want.concat());
    }

    #[test]
    fn a_stream_that_is_cut_is_an_error_wherever_it_is_cut() {
        for end in 0..STREAM.len() {
            assert!(restore(&STREAM[..end], io::sink()).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn arrays_that_were_cut_out_fill_no_disk() {
        let arrays = b"\x23\x00\x00\x00\x30\xff\xff\xff\xff\x08".repeat(3);
        let bomb = [b"JAVA PROFILE 6.0.1\x1c".as_slice(), &arrays, b"\x2c"].concat();
        assert!(matches!(restore(bomb.as_slice(), io::sink()), Err(RestoreError::TooLarge)));
    }

    /// A stream of zeros that never ends, like an unpacked zlib bomb.
    #[test]
    fn an_array_that_is_there_fills_no_memory() {
        let head = b"JAVA PROFILE 6.0.1\x1c\x22\x00\x00\x00\x30\xff\xff\xff\xff".as_slice();
        let mut bomb = head.chain(io::repeat(0)).take(32 << 20);
        let restored = restore(io::BufReader::new(&mut bomb), io::sink());
        assert!(matches!(restored, Err(RestoreError::TooLarge)), "{restored:?}");
        assert!(bomb.limit() > 31 << 20, "its bytes were not read");
    }

    #[test]
    fn a_long_heap_is_written_in_segments() {
        let array = [b"\x23\x00\x00\x00\x30\x00\x0c\x00\x00\x04".as_slice(), &[1; 0xc_0000]].concat();
        let stream = [b"JAVA PROFILE 6.0.1\x1c".as_slice(), &array.repeat(3), b"\x2c"].concat();
        let mut out = Vec::new();
        restore(stream.as_slice(), &mut out).unwrap();
        let file = crate::read::DumpFile::of_bytes(out).unwrap();
        let index = crate::Index::read(&file, &|_, _, _| ()).unwrap();
        assert_eq!((index.counts.segments, index.counts.primitive_arrays), (2, 3));
        assert!(!index.truncated());
    }

    #[test]
    fn another_file_is_none() {
        for other in [&b""[..], b"PK", b"JAVA PROFILE 1.0.3\0"] {
            assert!(matches!(restore(other, io::sink()), Err(RestoreError::NotTailor)), "{other:?}");
        }
    }
}
