//! A dump on disk, packed or not. Every pass opens it again.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::bufread::GzDecoder;
use zstd::stream::read::Decoder;

use super::visit::Visit;
use super::walk::{Source, Walked, walk};
use super::{Progress, ReadError};

/// Bytes of a dump that are in memory at a time.
const WINDOW: usize = 1 << 20;

/// How a file is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Not packed.
    Plain,
    /// By `gzip`, in any number of members (HotSpot writes one for each MiB).
    Gzip,
    /// By `zstd`.
    Zstd,
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}

#[derive(Debug, Clone)]
enum Origin {
    Path(PathBuf),
    Bytes(Arc<[u8]>),
}

/// A heap dump that can be read again and again.
#[derive(Debug, Clone)]
pub struct DumpFile {
    origin: Origin,
    bytes: u64,
    packing: Packing,
}

impl DumpFile {
    /// Looks at the first bytes of a file.
    ///
    /// # Errors
    /// The file cannot be read, or is certainly no heap dump.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        // Opening a pipe would wait for its writer.
        let about = fs::metadata(path)?;
        if !about.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file").into());
        }
        Self::sniff(Origin::Path(path.to_owned()), about.len(), File::open(path)?)
    }

    /// A dump in memory.
    ///
    /// # Errors
    /// The bytes are certainly no heap dump.
    pub fn of_bytes(bytes: impl Into<Arc<[u8]>>) -> Result<Self, ReadError> {
        let bytes = bytes.into();
        Self::sniff(Origin::Bytes(Arc::clone(&bytes)), bytes.len() as u64, &*bytes)
    }

    fn sniff(origin: Origin, bytes: u64, from: impl Read) -> Result<Self, ReadError> {
        let mut head = Vec::new();
        from.take(18).read_to_end(&mut head)?;
        let packing = match head.as_slice() {
            [0x1f, 0x8b, ..] => Packing::Gzip,
            // A frame, or a skippable frame with other data (memgate's own files begin with one).
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Packing::Zstd,
            [b'J', b'A', b'V', b'A', b' ', b'P', b'R', b'O', b'F', b'I', b'L', b'E', b' ', version, ..] => {
                if *version == b'6' {
                    return Err(ReadError::Tailor);
                }
                Packing::Plain
            }
            // A zlib stream: Tailor writes one.
            [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] => return Err(ReadError::Tailor),
            _ => return Err(ReadError::NotADump),
        };
        Ok(Self { origin, bytes, packing })
    }

    /// Bytes of the file, as it is packed.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How it is packed.
    #[must_use]
    pub const fn packing(&self) -> Packing {
        self.packing
    }

    /// One pass over it, no further than byte `limit` (unpacked).
    ///
    /// # Errors
    /// The visitor's error; or the file cannot be read any more; or its size has changed.
    pub(crate) fn walk<V: Visit<Error = ReadError>>(
        &self,
        limit: u64,
        visit: &mut V,
    ) -> Result<Walked, ReadError> {
        let walked = walk(self.source(false)?, WINDOW, limit, visit)?;
        self.is_unchanged()?;
        Ok(walked)
    }

    /// Its bytes, unpacked. With `strict`, packed bytes that end in the middle are an error.
    ///
    /// # Errors
    /// The file cannot be opened any more.
    pub(crate) fn source(&self, strict: bool) -> Result<Box<dyn Source>, ReadError> {
        let unpacked = match &self.origin {
            Origin::Bytes(bytes) => self.unpacked(Memory { bytes: Arc::clone(bytes), at: 0 }, strict),
            Origin::Path(path) => {
                self.unpacked(Plain { file: File::open(path)?, at: 0, bytes: self.bytes }, strict)
            }
        };
        Ok(unpacked?)
    }

    /// Writes its bytes, unpacked.
    ///
    /// # Errors
    /// The file cannot be read, or the copy cannot be written.
    pub fn unpack(&self, mut to: impl io::Write, progress: Progress<'_>) -> Result<u64, ReadError> {
        let (mut source, mut piece, mut done) = (self.source(true)?, vec![0; WINDOW], 0_u64);
        loop {
            let got = match source.read(&mut piece) {
                Ok(0) => break,
                Ok(got) => got,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(why) => return Err(why.into()),
            };
            to.write_all(piece.get(..got).unwrap_or_default())?;
            done = done.saturating_add(got as u64);
            progress("unpacking", done, None);
        }
        to.flush()?;
        self.is_unchanged()?;
        Ok(done)
    }

    /// Checks that the file still has the size that it had when it was first opened.
    pub(crate) fn is_unchanged(&self) -> Result<(), ReadError> {
        if let Origin::Path(path) = &self.origin
            && path.metadata()?.len() != self.bytes
        {
            return Err(ReadError::Changed);
        }
        Ok(())
    }

    fn unpacked(&self, source: impl Source + 'static, strict: bool) -> io::Result<Box<dyn Source>> {
        let packed = |source| BufReader::with_capacity(1 << 16, Bytes(source));
        Ok(match self.packing {
            Packing::Plain => Box::new(source),
            Packing::Gzip => Box::new(Unpacked { from: Members::new(packed(source)), strict }),
            Packing::Zstd => Box::new(Unpacked { from: Decoder::with_buffer(packed(source))?, strict }),
        })
    }
}

/// Progress of a pass, reported by a visitor.
#[derive(Clone, Copy)]
pub(crate) struct Told<'a> {
    pub(crate) step: &'static str,
    pub(crate) all: Option<u64>,
    pub(crate) to: Progress<'a>,
}

impl Told<'_> {
    pub(crate) fn at(&self, at: u64) {
        (self.to)(self.step, at, self.all);
    }
}

impl Source for Box<dyn Source> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        (**self).read(to)
    }

    fn skip(&mut self, bytes: u64, scratch: &mut [u8]) -> io::Result<u64> {
        (**self).skip(bytes, scratch)
    }

    fn bytes(&self) -> Option<u64> {
        (**self).bytes()
    }
}

struct Memory {
    bytes: Arc<[u8]>,
    at: usize,
}

impl Source for Memory {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let got = self.bytes.get(self.at..).unwrap_or_default().read(to)?;
        self.at = self.at.saturating_add(got);
        Ok(got)
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }
}

struct Plain {
    file: File,
    at: u64,
    /// Size when it was first opened.
    bytes: u64,
}

impl Source for Plain {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read(to)?;
        self.at = self.at.saturating_add(got as u64);
        Ok(got)
    }

    fn skip(&mut self, bytes: u64, _scratch: &mut [u8]) -> io::Result<u64> {
        let bytes = bytes.min(self.bytes.saturating_sub(self.at));
        self.at = self.at.saturating_add(bytes);
        self.file.seek(SeekFrom::Start(self.at))?;
        Ok(bytes)
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.bytes)
    }
}

/// A source as a standard reader.
struct Bytes<S>(S);

impl<S: Source> Read for Bytes<S> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.0.read(to)
    }
}

/// The members of a `gzip` file. Zeros may follow them, as `gzip` itself allows: tapes and block devices are padded.
struct Members<R> {
    /// `None`: all members were read.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Members<R> {
    fn new(from: R) -> Self {
        Self { member: Some(GzDecoder::new(from)) }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = self.member.as_mut() {
            let got = member.read(to)?;
            if got > 0 || to.is_empty() {
                return Ok(got);
            }
            let Some(mut rest) = self.member.take().map(GzDecoder::into_inner) else { break };
            if !skips_zeros(&mut rest)? {
                self.member = Some(GzDecoder::new(rest));
            }
        }
        Ok(0)
    }
}

/// Skips zeros; returns whether nothing else follows.
fn skips_zeros(from: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = match from.fill_buf() {
            Ok(bytes) => bytes,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            Err(why) => return Err(why),
        };
        let (zeros, all) = (bytes.iter().take_while(|byte| **byte == 0).count(), bytes.len());
        from.consume(zeros);
        if all == 0 || zeros < all {
            return Ok(all == 0);
        }
    }
}

/// Packed bytes that end in the middle count as a dump that ends there, unless `strict`.
struct Unpacked<R> {
    from: R,
    strict: bool,
}

impl<R: Read> Source for Unpacked<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self.from.read(to) {
            Err(why) if why.kind() == io::ErrorKind::UnexpectedEof && !self.strict => Ok(0),
            other => other,
        }
    }
}
