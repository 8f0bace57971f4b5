//! Trims Java heap dumps (`JAVA PROFILE 1.0.x`, HotSpot's and Android's): the contents of arrays of primitives
//! (texts, bitmaps, buffers) are replaced by zeros. Every record keeps its position, length and references, so that
//! readers of heap dumps find the same objects, sizes and paths; and the result compresses well. Values of single
//! fields stay, unless they are to be removed too.
//!
//! Data flow: a dump → [`trim`], a visitor of the walk that copies → the trimmed dump, piece by piece: a dump is as
//! large as its heap. [`trim_file`] keeps the contents that [`crate::Keep`] names, which an analysis reads.
//!
//! A dump that is incomplete, or has unknown records, is an error with its position.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use zstd::stream::write::Encoder;

use crate::keep::Keep;
use crate::read::{DumpFile, Odd, Progress, ReadError, Source, Stream, Told, Visit, walk};

/// Bytes that are copied at a time.
const PIECE: usize = 1 << 16;
/// Kinds of elements, as the format numbers them.
const CHARACTER: u8 = 5;
const BYTE: u8 = 8;
static ZEROS: [u8; PIECE] = [0; PIECE];

/// Why a dump cannot be trimmed. The texts fit after "failed to trim FILE: ".
#[derive(Debug, thiserror::Error)]
pub enum TrimError {
    /// It is another kind of file.
    #[error("it is no heap dump of Java")]
    NotHprof,
    /// The file or a record ends early: a length announces more bytes.
    #[error("it ends in the middle, at byte {at}")]
    Cut {
        /// Where.
        at: u64,
    },
    /// An unknown record in a heap.
    #[error("byte {at} begins a record of an unknown kind (0x{tag:02x})")]
    Unknown {
        /// Its tag.
        tag: u8,
        /// Where.
        at: u64,
    },
    /// A heap whose end is not reliable.
    #[error("byte {at}: {odd}")]
    Odd {
        /// The oddity.
        odd: Odd,
        /// Where.
        at: u64,
    },
    /// The record that ends a dump is missing, or not the last one.
    #[error("its last record is not the end of a heap dump")]
    NoEnd,
    /// A file of this machine.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It cannot be read again.
    #[error("{0}")]
    Read(#[from] ReadError),
}

/// Compresses its output.
pub struct Packed<W: Write>(Packer<W>);

enum Packer<W: Write> {
    Gzip(GzEncoder<W>),
    Zstd(Encoder<'static, W>),
}

impl<W: Write> Packed<W> {
    /// Like `gzip`, fast.
    pub fn gzip(to: W) -> Self {
        Self(Packer::Gzip(GzEncoder::new(to, Compression::fast())))
    }

    /// The same, smaller and slower.
    pub fn small_gzip(to: W) -> Self {
        Self(Packer::Gzip(GzEncoder::new(to, Compression::default())))
    }

    /// Like `zstd -9`: for a trimmed dump a tenth smaller than `gzip -9`, in a third of its time.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn zstd(to: W) -> io::Result<Self> {
        Ok(Self(Packer::Zstd(Encoder::new(to, 9)?)))
    }

    /// Writes the end.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(self) -> io::Result<W> {
        match self.0 {
            Packer::Gzip(packer) => packer.finish(),
            Packer::Zstd(packer) => packer.finish(),
        }
    }
}

impl<W: Write> Write for Packed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Packer::Gzip(packer) => packer.write(bytes),
            Packer::Zstd(packer) => packer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Packer::Gzip(packer) => packer.flush(),
            Packer::Zstd(packer) => packer.flush(),
        }
    }
}

/// Copies the dump `from` to `to` without the contents of arrays of primitives. Returns the bytes that were replaced.
///
/// # Errors
/// The input is no complete dump, or cannot be read or written.
pub fn trim(from: impl Read, to: impl Write) -> Result<u64, TrimError> {
    trimmed(Stream(from), &Keep::default(), to, &|_, _, _| ())
}

/// Like [`trim`], for a file; keeps contents that an analysis reads; texts that name nothing are left out.
///
/// # Errors
/// The file is no complete dump, or cannot be read or written.
pub fn trim_file(
    file: &DumpFile,
    keep: &Keep,
    to: impl Write,
    progress: Progress<'_>,
) -> Result<u64, TrimError> {
    let zeroed = trimmed(file.source(false)?, keep, to, progress)?;
    file.is_unchanged()?;
    Ok(zeroed)
}

fn trimmed(
    source: impl Source,
    keep: &Keep,
    to: impl Write,
    progress: Progress<'_>,
) -> Result<u64, TrimError> {
    let told = Told { step: "trimming", all: source.bytes(), to: progress };
    let marks = keep.duplicates.then(RandomState::new);
    let mut trimming = Trimming { to, zeroed: 0, keep, told, marks, array: None, contents: Vec::new() };
    walk(source, PIECE, u64::MAX, &mut trimming)?;
    trimming.to.flush()?;
    Ok(trimming.zeroed)
}

struct Trimming<'a, W> {
    to: W,
    zeroed: u64,
    keep: &'a Keep,
    told: Told<'a>,
    /// The key of the hash that replaces contents, if equal contents stay equal.
    marks: Option<RandomState>,
    /// The array whose contents follow: bytes of an element, and of the whole array.
    array: Option<(usize, usize)>,
    contents: Vec<u8>,
}

/// Number of elements that replace the contents of an array.
const MARK: usize = 8;
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl<W: Write> Trimming<'_, W> {
    fn zeros(&mut self, count: usize) -> io::Result<()> {
        self.to.write_all(ZEROS.get(..count).unwrap_or_default())
    }

    /// Takes a piece of an array; writes the replacement after the last piece.
    fn mark(&mut self, key: &RandomState, (width, all): (usize, usize), bytes: &[u8]) -> io::Result<()> {
        self.contents.extend_from_slice(bytes);
        if self.contents.len() < all {
            return Ok(());
        }
        let hash = key.hash_one(&self.contents).to_le_bytes();
        self.contents.clear();
        self.array = None;
        for byte in hash {
            let letter = LETTERS.get(usize::from(byte % 64)).copied().unwrap_or(0);
            // A character has two bytes. The first one is 0.
            self.to.write_all([0, letter].get(2 - width..).unwrap_or_default())?;
        }
        self.zeros(all - MARK * width)
    }
}

impl<W: Write> Visit for Trimming<'_, W> {
    type Error = TrimError;
    const COPIES: bool = true;

    fn progress(&mut self, at: u64) {
        self.told.at(at);
    }

    fn wants_text(&mut self, id: u64) -> bool {
        self.keep.names.as_ref().is_none_or(|names| names.contains(&id))
    }

    fn primitive_array(&mut self, id: u64, kind: u8, count: u32, _at: u64) -> bool {
        let (width, count) = (if kind == CHARACTER { 2 } else { 1 }, count as usize);
        let is_text = [BYTE, CHARACTER].contains(&kind) && (MARK..=PIECE / 2).contains(&count);
        self.array = (is_text && self.marks.is_some()).then_some((width, width * count));
        self.keep.arrays.contains(&id)
    }

    fn content_of(&mut self, class: u64) -> Option<Arc<[Range<u64>]>> {
        self.keep.values.as_ref().map(|values| values.to_cut(class))
    }

    fn is_content(&mut self, class: u64, field: u64) -> bool {
        self.keep.values.as_ref().is_some_and(|values| !values.statics.contains(&(class, field)))
    }

    fn copy(&mut self, bytes: &[u8], content: bool) -> Result<(), TrimError> {
        if content {
            self.zeroed = self.zeroed.saturating_add(bytes.len() as u64);
            match (self.array, self.marks.clone()) {
                (Some(array), Some(key)) => self.mark(&key, array, bytes)?,
                _ => self.zeros(bytes.len())?,
            }
        } else {
            self.to.write_all(bytes)?;
        }
        Ok(())
    }

    fn odd(&mut self, odd: Odd, at: u64) -> Result<(), TrimError> {
        match odd {
            Odd::UnknownObject(tag) => Err(TrimError::Unknown { tag, at }),
            Odd::NoEnd => Err(TrimError::NoEnd),
            Odd::UnknownRecord(_) | Odd::LongText | Odd::Wrapped => Ok(()),
            Odd::Cut => Err(TrimError::Cut { at }),
            odd => Err(TrimError::Odd { odd, at }),
        }
    }

    fn not_a_dump(&self) -> TrimError {
        TrimError::NotHprof
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[tag, 0, 0, 0, 0], length.as_slice(), body].concat()
    }

    /// A root, a class, an instance, both kinds of arrays and Android's additions; `secret` is in arrays of
    /// primitives.
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

    /// A HotSpot dump of a small program, with few of its objects left; a seed of the fuzz target, preceded by the
    /// target's own two bytes.
    const HOTSPOT: &[u8] = include_bytes!("../../../fuzz/seeds/hprof/hotspot");

    #[test]
    fn a_dump_of_hotspot_loses_its_texts_and_nothing_else() {
        let dump = &HOTSPOT[2..];
        let mut trimmed = Vec::new();
        // A reader in another language counted the same number of bytes in its 29 arrays.
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

    /// The displayed title may be longer than the title itself: the bytes count.
    #[test]
    fn a_title_that_is_no_text_is_as_long_as_its_bytes() {
        let mut odd = dump(4, b"secret");
        odd[17] = 0xff;
        let mut trimmed = Vec::new();
        assert_eq!(trim(odd.as_slice(), &mut trimmed).unwrap(), 6);
        assert_eq!(trimmed[..31], odd[..31]);
    }

    #[test]
    fn a_dump_of_any_length_passes_in_pieces() {
        let secret = vec![7; PIECE * 3 + 1];
        let mut trimmed = Vec::new();
        trim(dump(4, &secret).as_slice(), &mut trimmed).unwrap();
        assert_eq!(trimmed, dump(4, &vec![0; secret.len()]));
    }

    #[test]
    fn equal_contents_stay_equal_and_cannot_be_read() {
        let keep = Keep::default().with_duplicates(true);
        let trimmed = |secret: &[u8]| {
            let mut out = Vec::new();
            trimmed(Stream(dump(4, secret).as_slice()), &keep, &mut out, &|_, _, _| ()).unwrap();
            // Before the final record of the dump.
            let end = out.len() - 9;
            out[end - secret.len()..end].to_vec()
        };
        for (secret, is_marked) in
            [(&b"a password"[..], true), (b"eight by", true), (b"short", false), (&[7; PIECE], false)]
        {
            let mark = trimmed(secret);
            assert_eq!(
                mark[..8.min(mark.len())].iter().all(|byte| LETTERS.contains(byte)),
                is_marked,
                "{mark:?}"
            );
            assert!(mark.iter().skip(8).all(|byte| *byte == 0) && mark != secret);
            // Each copy has its own key.
            assert_eq!(trimmed(secret) != mark, is_marked);
        }
    }

    #[test]
    fn a_dump_that_is_cut_anywhere_is_an_error_and_never_a_panic() {
        let whole = dump(4, b"secret");
        for end in 0..whole.len() {
            assert!(trim(&whole[..end], io::sink()).is_err(), "cut at {end}");
        }
        assert!(matches!(trim(&b"PK\x03\x04"[..], io::sink()), Err(TrimError::NotHprof)));
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
        let why = trim(dump.as_slice(), io::sink()).unwrap_err().to_string();
        assert_eq!(why, "byte 40: an object that reaches out of its segment");
    }
}
