//! Packs the streams of a session that has ended, and reads packed streams. Most of a stream repeats earlier parts.
//!
//! Data flow: a stream that its writer has closed → its committed bytes → zstd → the session, under the same name. A
//! [`super::stream::Reader`] sees from the first bytes that a stream is packed, and reads it through this module: the
//! first page any number of times, the rest once, in order.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;

use memgate_wire::spool::{CONTROL_BYTES, Extent, state};
use zstd::stream::read::Decoder;
use zstd::stream::write::Encoder;

/// First bytes of packed files.
const MAGIC: [u8; 4] = zstd::zstd_safe::MAGICNUMBER.to_le_bytes();

/// For the frames of clean tests, an eighth smaller than with the library's default, at 80 MB/s.
const LEVEL: i32 = 8;

/// Streams from this size on are packed in a quarter of the time: saving disk space must not take seconds.
const LARGE: u64 = 8 << 20;
const LEVEL_OF_LARGE: i32 = 1;

/// Maximum distance that unpacking looks back (log2 of bytes): limits the reader's memory, whatever the file asks for.
const LONGEST_WINDOW: u32 = 23;

/// Maximum head of a packed file; the head contains the size of the content.
const HEAD_BYTES: usize = 18;

/// A packed stream being read.
pub(super) struct Packed {
    /// Its first page.
    pub(super) page: Vec<u8>,
    rest: Decoder<'static, BufReader<FromStart>>,
    /// Offset of the next byte from `rest`.
    at: u64,
    /// Size of the whole stream in bytes.
    pub(super) bytes: u64,
}

impl Packed {
    /// Opens a packed file; `None`: the file is not packed.
    pub(super) fn open(file: &File) -> io::Result<Option<Self>> {
        let head = head_of(file, HEAD_BYTES)?;
        if !head.starts_with(&MAGIC) {
            return Ok(None);
        }
        let size = zstd::zstd_safe::get_frame_content_size(&head);
        let bytes =
            size.ok().flatten().ok_or_else(|| invalid("its head does not tell how long the stream is"))?;
        let mut rest = Decoder::new(FromStart::of(file)?)?;
        rest.window_log_max(LONGEST_WINDOW)?;
        let mut page = Vec::new();
        rest.by_ref().take(bytes.min(CONTROL_BYTES as u64)).read_to_end(&mut page)?;
        let at = page.len() as u64;
        Ok(Some(Self { page, rest, at, bytes }))
    }

    /// Reads the bytes at `offset`, as many as are available at once; 0: the stream ends there.
    pub(super) fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let in_page =
            usize::try_from(offset).ok().and_then(|at| self.page.get(at..)).filter(|bytes| !bytes.is_empty());
        if let Some(mut bytes) = in_page {
            return bytes.read(buffer);
        }
        if offset != self.at {
            return Err(invalid("what lies before was damaged"));
        }
        let got = self.rest.read(buffer).inspect_err(|why| {
            // Bytes read after damage would have wrong offsets.
            if why.kind() != io::ErrorKind::Interrupted {
                self.at = u64::MAX;
            }
        })?;
        self.at += got as u64;
        Ok(got)
    }
}

/// Reads a file from its start, independent of other reads.
struct FromStart {
    file: File,
    at: u64,
}

impl FromStart {
    fn of(file: &File) -> io::Result<Self> {
        Ok(Self { file: file.try_clone()?, at: 0 })
    }
}

impl Read for FromStart {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read_at(buffer, self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

/// The first bytes of a file, at most `most`.
fn head_of(file: &File, most: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    FromStart::of(file)?.take(most as u64).read_to_end(&mut head)?;
    Ok(head)
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Number of bytes of a stream that can be packed; `None`: it may still be written, is empty, or is already packed.
pub(crate) fn packable(file: &File) -> io::Result<Option<u64>> {
    let page = head_of(file, CONTROL_BYTES)?;
    let extent = Extent::of(&page);
    // A process that still runs writes to this very file. The file of a killed process looks the same.
    let is_over = extent.end.is_none() || extent.state == state::CLOSED;
    let length = file.metadata()?.len();
    let bytes = extent.end.unwrap_or(length);
    Ok((is_over && (1..=length).contains(&bytes) && !page.starts_with(&MAGIC)).then_some(bytes))
}

/// Writes the first `bytes` of a stream, packed.
pub(crate) fn pack(stream: &File, bytes: u64, to: &mut File) -> io::Result<()> {
    let mut packed = Encoder::new(to, if bytes < LARGE { LEVEL } else { LEVEL_OF_LARGE })?;
    packed.set_pledged_src_size(Some(bytes))?;
    packed.include_contentsize(true)?;
    io::copy(&mut FromStart::of(stream)?.take(bytes), &mut packed)?;
    packed.finish().map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use memgate_wire::spool;

    use super::*;

    fn file(contents: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(contents).unwrap();
        file
    }

    fn of_state(state: u32, committed: usize) -> Vec<u8> {
        let mut stream = vec![7; CONTROL_BYTES + 100];
        stream[..8].copy_from_slice(&spool::MAGIC);
        stream[spool::offset::STATE..][..4].copy_from_slice(&state.to_le_bytes());
        stream[spool::offset::COMMITTED..][..8].copy_from_slice(&(committed as u64).to_le_bytes());
        stream
    }

    #[test]
    fn what_somebody_may_still_write_is_not_packed() {
        let packable = |contents: &[u8]| packable(&file(contents)).unwrap();
        assert_eq!(packable(&of_state(state::RECORDING, 4150)), None);
        assert_eq!(packable(&of_state(state::FULL, 4150)), None);
        assert_eq!(
            packable(&of_state(state::CLOSED, 9999)),
            None,
            "more than there is: damaged, and stays so"
        );
        assert_eq!(packable(b""), None, "an empty file is told from one with nothing in it");
        assert_eq!(packable(&of_state(state::CLOSED, 4150)), Some(4150));
        assert_eq!(packable(b"bare"), Some(4));
    }
}
