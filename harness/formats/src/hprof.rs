//! Heap dumps of Java (`JAVA PROFILE 1.0.x`, HotSpot's and Android's), trimmed: what arrays of
//! primitives hold (texts, bitmaps, buffers) is replaced by zeros. Every record keeps its place,
//! length and references, so that whoever reads heap dumps finds the same objects, sizes and paths;
//! and what is left compresses well. Values of single fields stay.
//!
//! Data flow: a dump → [`trim`] → the trimmed dump, piece by piece: a dump is as large as its heap.
//! A dump that is not whole, or that holds what nobody knows, is an error with its place.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Copied at a time.
const PIECE: usize = 1 << 16;
/// `JAVA PROFILE 1.0.3` and its end.
const LONGEST_TITLE: usize = 64;

const HEAP_DUMP: u8 = 0x0c;
const HEAP_DUMP_SEGMENT: u8 = 0x1c;
const HEAP_DUMP_END: u8 = 0x2c;

/// Why a dump cannot be trimmed. The texts fit behind "failed to trim FILE: ".
#[derive(Debug, thiserror::Error)]
pub enum HprofError {
    /// Another file.
    #[error("it is no heap dump of Java")]
    NotHprof,
    /// The file ends, or a record does, before what it announces.
    #[error("it ends in the middle, at byte {at}")]
    Cut {
        /// Where.
        at: u64,
    },
    /// A record of a heap that nobody knows.
    #[error("byte {at} begins a record of an unknown kind (0x{tag:02x})")]
    Unknown {
        /// Its tag.
        tag: u8,
        /// Where.
        at: u64,
    },
    /// The record that ends a dump is not there, or not the last one.
    #[error("its last record is not the end of a heap dump")]
    NoEnd,
    /// A file of this machine.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// What is written is compressed as `gzip` does.
pub struct Packed<W: Write>(GzEncoder<W>);

impl<W: Write> Packed<W> {
    /// Nothing was written yet.
    pub fn new(to: W) -> Self {
        Self(GzEncoder::new(to, Compression::fast()))
    }

    /// Writes the end.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(self) -> io::Result<W> {
        self.0.finish()
    }
}

impl<W: Write> Write for Packed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Copies the dump `from` to `to` without what arrays of primitives hold. Gives the bytes that were
/// replaced.
///
/// # Errors
/// It is no whole dump, or cannot be read or written.
pub fn trim(from: impl Read, to: impl Write) -> Result<u64, HprofError> {
    let mut trimming =
        Trimming { from, to, at: 0, id_bytes: 0, left: u64::MAX, zeroed: 0, buffer: vec![0; PIECE] };
    trimming.header()?;
    let mut last = 0;
    while let Some(tag) = trimming.tag_or_end()? {
        last = tag;
        trimming.copy(4)?;
        let length = u64::from(trimming.u4()?);
        match tag {
            HEAP_DUMP | HEAP_DUMP_SEGMENT => trimming.heap(length)?,
            _ => trimming.copy(length)?,
        }
    }
    if last != HEAP_DUMP_END && last != HEAP_DUMP {
        return Err(HprofError::NoEnd);
    }
    trimming.to.flush()?;
    Ok(trimming.zeroed)
}

struct Trimming<R, W> {
    from: R,
    to: W,
    /// Bytes read.
    at: u64,
    id_bytes: u64,
    /// Of the record that is being read.
    left: u64,
    zeroed: u64,
    /// Of [`PIECE`] bytes, kept: most of what is copied are the few bytes of an object's head.
    buffer: Vec<u8>,
}

impl<R: Read, W: Write> Trimming<R, W> {
    fn header(&mut self) -> Result<(), HprofError> {
        let mut title = Vec::new();
        while title.last() != Some(&0) {
            let [byte] = self.bytes().map_err(|why| match why {
                HprofError::Cut { .. } => HprofError::NotHprof,
                other => other,
            })?;
            title.push(byte);
            if title.len() > LONGEST_TITLE {
                return Err(HprofError::NotHprof);
            }
        }
        if !title.starts_with(b"JAVA PROFILE 1.0.") {
            return Err(HprofError::NotHprof);
        }
        self.id_bytes = u64::from(self.u4()?);
        if self.id_bytes != 4 && self.id_bytes != 8 {
            return Err(HprofError::NotHprof);
        }
        self.copy(8)
    }

    /// The tag of the next record; `None`: the file ends.
    fn tag_or_end(&mut self) -> Result<Option<u8>, HprofError> {
        let at = self.at;
        match self.bytes::<1>() {
            Ok([tag]) => Ok(Some(tag)),
            Err(HprofError::Cut { .. }) if self.at == at => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// The objects and roots of one record.
    fn heap(&mut self, length: u64) -> Result<(), HprofError> {
        self.left = length;
        while self.left > 0 {
            self.object()?;
        }
        self.left = u64::MAX;
        Ok(())
    }

    fn object(&mut self) -> Result<(), HprofError> {
        let at = self.at;
        let [tag] = self.bytes()?;
        match tag {
            // Roots: HotSpot's, then those that Android alone writes.
            0xff | 0x05 | 0x07 | 0x89..=0x8d | 0x90 => self.ids(1, 0),
            0x01 => self.ids(2, 0),
            0x04 | 0x06 => self.ids(1, 4),
            0x02 | 0x03 | 0x08 | 0x8e => self.ids(1, 8),
            // The heap of the objects behind it.
            0xfe => self.ids(1, 4),
            0x20 => self.class(),
            0x21 => {
                self.ids(1, 4)?;
                self.ids(1, 0)?;
                let length = self.u4()?;
                self.copy(u64::from(length))
            }
            0x22 => {
                self.ids(1, 4)?;
                let count = u64::from(self.u4()?);
                self.ids(count.saturating_add(1), 0)
            }
            0x23 => {
                self.ids(1, 4)?;
                let count = u64::from(self.u4()?);
                let bytes = self.type_bytes()?;
                self.zero(count.saturating_mul(bytes))
            }
            // An array without its data.
            0xc3 => self.ids(1, 9),
            _ => Err(HprofError::Unknown { tag, at }),
        }
    }

    fn class(&mut self) -> Result<(), HprofError> {
        self.ids(1, 4)?;
        self.ids(6, 4)?;
        for _ in 0..self.u2()? {
            self.copy(2)?;
            let bytes = self.type_bytes()?;
            self.copy(bytes)?;
        }
        for _ in 0..self.u2()? {
            self.ids(1, 0)?;
            let bytes = self.type_bytes()?;
            self.copy(bytes)?;
        }
        for _ in 0..self.u2()? {
            self.ids(1, 1)?;
        }
        Ok(())
    }

    /// Reads a type and gives the size of its values.
    fn type_bytes(&mut self) -> Result<u64, HprofError> {
        let at = self.at;
        let [tag] = self.bytes()?;
        match tag {
            2 => Ok(self.id_bytes),
            4 | 8 => Ok(1),
            5 | 9 => Ok(2),
            6 | 10 => Ok(4),
            7 | 11 => Ok(8),
            _ => Err(HprofError::Unknown { tag, at }),
        }
    }

    fn u4(&mut self) -> Result<u32, HprofError> {
        self.bytes().map(u32::from_be_bytes)
    }

    fn u2(&mut self) -> Result<u16, HprofError> {
        self.bytes().map(u16::from_be_bytes)
    }

    /// Copies so many ids and bytes.
    fn ids(&mut self, ids: u64, bytes: u64) -> Result<(), HprofError> {
        self.copy(ids.saturating_mul(self.id_bytes).saturating_add(bytes))
    }

    /// Copies the next bytes, and tells them.
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], HprofError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        self.to.write_all(&bytes)?;
        Ok(bytes)
    }

    fn copy(&mut self, length: u64) -> Result<(), HprofError> {
        self.pass(length, |_| ())
    }

    fn zero(&mut self, length: u64) -> Result<(), HprofError> {
        self.pass(length, |piece| piece.fill(0))?;
        self.zeroed = self.zeroed.saturating_add(length);
        Ok(())
    }

    fn pass(&mut self, length: u64, change: impl Fn(&mut [u8])) -> Result<(), HprofError> {
        // Before anything is read: a length that leads out of its record is no reason to read on.
        if length > self.left {
            return Err(HprofError::Cut { at: self.at });
        }
        let (mut buffer, mut left) = (std::mem::take(&mut self.buffer), length);
        while left > 0 {
            let size = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let piece = buffer.get_mut(..size).unwrap_or_default();
            self.fill(piece)?;
            change(piece);
            self.to.write_all(piece)?;
            left = left.saturating_sub(size as u64);
        }
        self.buffer = buffer;
        Ok(())
    }

    fn fill(&mut self, piece: &mut [u8]) -> Result<(), HprofError> {
        let length = piece.len() as u64;
        if length > self.left {
            return Err(HprofError::Cut { at: self.at });
        }
        self.from.read_exact(piece).map_err(|why| match why.kind() {
            io::ErrorKind::UnexpectedEof => HprofError::Cut { at: self.at },
            _ => HprofError::Io(why),
        })?;
        self.at = self.at.saturating_add(length);
        if self.left != u64::MAX {
            self.left = self.left.saturating_sub(length);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[tag, 0, 0, 0, 0], length.as_slice(), body].concat()
    }

    /// A root, a class, an instance, both kinds of arrays and what Android adds; `secret` lies in
    /// arrays of primitives.
    fn dump(id_bytes: u32, secret: &[u8]) -> Vec<u8> {
        let id = |id: u8| {
            let mut bytes = vec![0; id_bytes as usize];
            *bytes.last_mut().unwrap() = id;
            bytes
        };
        let (four, count) = ([0_u8; 4], u32::try_from(secret.len()).unwrap().to_be_bytes());
        let class = [
            [&[0x20][..], &id(1), &four].concat(),
            id(0).repeat(6),
            [&four[..], &[0, 1, 0, 9, 10, 1, 2, 3, 4]].concat(),
            [&[0, 1][..], &id(7), &[2], &id(8)].concat(),
            [&[0, 1][..], &id(6), &[4]].concat(),
        ];
        let heap = [
            [&[0xfe, 0, 0, 0, 0x41][..], &id(3)].concat(),
            [&[0x01][..], &id(4), &id(5)].concat(),
            [&[0x8e][..], &id(4), &four, &four].concat(),
            class.concat(),
            [&[0x21][..], &id(4), &four, &id(1), &[0, 0, 0, 1, 1]].concat(),
            [&[0x22][..], &id(9), &four, &[0, 0, 0, 2], &id(1), &id(4), &id(9)].concat(),
            [&[0x23][..], &id(8), &four, &count, &[8], secret].concat(),
        ];
        let title = [&b"JAVA PROFILE 1.0.3\0"[..], &id_bytes.to_be_bytes(), &[1; 8]].concat();
        let text = record(1, b"\0\0\0\x07value");
        [title, text, record(0x1c, &heap.concat()), record(0x2c, &[])].concat()
    }

    #[test]
    fn contents_of_arrays_go_and_everything_else_stays_where_it_was() {
        for id_bytes in [4, 8] {
            let mut trimmed = Vec::new();
            let zeroed = trim(dump(id_bytes, b"a password").as_slice(), &mut trimmed).unwrap();
            assert_eq!((zeroed, trimmed), (10, dump(id_bytes, &[0; 10])), "ids of {id_bytes} bytes");
        }
    }

    /// HotSpot's of a small program, with few of its objects left; a seed of the fuzz target, whose
    /// own two bytes stand before it.
    const HOTSPOT: &[u8] = include_bytes!("../../../fuzz/seeds/hprof/hotspot");

    #[test]
    fn a_dump_of_hotspot_loses_its_texts_and_nothing_else() {
        let dump = &HOTSPOT[2..];
        let mut trimmed = Vec::new();
        // What a reader of another language counted in its 29 arrays.
        assert_eq!(trim(dump, &mut trimmed).unwrap(), 352);
        let holds = |dump: &[u8], text: &str| dump.windows(text.len()).any(|at| at == text.as_bytes());
        assert!(holds(dump, "a secret text") && !holds(&trimmed, "a secret text"));
        for name in ["java/lang/String", "CASE_INSENSITIVE_ORDER", "LONGS"] {
            assert!(holds(&trimmed, name), "{name}");
        }
        assert_eq!(trimmed.len(), dump.len());
        let differs = dump.iter().zip(&trimmed).filter(|(before, after)| before != after);
        assert!(differs.clone().count() <= 352 && differs.clone().all(|(_, after)| *after == 0));
    }

    #[test]
    fn a_dump_of_any_length_passes_in_pieces() {
        let secret = vec![7; PIECE * 3 + 1];
        let mut trimmed = Vec::new();
        trim(dump(4, &secret).as_slice(), &mut trimmed).unwrap();
        assert_eq!(trimmed, dump(4, &vec![0; secret.len()]));
    }

    #[test]
    fn a_dump_that_is_cut_anywhere_is_an_error_and_never_a_panic() {
        let whole = dump(4, b"secret");
        for end in 0..whole.len() {
            assert!(trim(&whole[..end], io::sink()).is_err(), "cut at {end}");
        }
        assert!(matches!(trim(&b"PK\x03\x04"[..], io::sink()), Err(HprofError::NotHprof)));
        let mut odd = whole;
        let tag = odd.iter().position(|byte| *byte == 0xfe).unwrap();
        odd[tag] = 0x77;
        let why = trim(odd.as_slice(), io::sink()).unwrap_err().to_string();
        assert_eq!(why, format!("byte {tag} begins a record of an unknown kind (0x77)"));
    }

    #[test]
    fn a_length_that_leads_out_of_its_record_is_an_error() {
        let heap = [&[0x23, 0, 0, 0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 11][..], &[1; 64]].concat();
        let title = b"JAVA PROFILE 1.0.2\0\0\0\0\x04\0\0\0\0\0\0\0\0".to_vec();
        let dump = [title, record(0x0c, &heap)].concat();
        assert!(matches!(trim(dump.as_slice(), io::sink()), Err(HprofError::Cut { .. })));
    }
}
