//! Reads the frames of a spool or of a bare stream of any size, through a window of at most two frames.
//!
//! Bytes are read with `pread` from a file that another process may still be writing: a spool up to the committed
//! offset in its control page, a bare stream up to its end. After a session has ended, both are packed
//! ([`super::packed`]). A damaged frame ends the reading with its offset; all frames before it were delivered. Frames
//! of an unknown type or version are skipped and counted. This module does not interpret frames.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use memgate_wire::spool::{self, Extent};
use memgate_wire::{DecodeError, Decoded, ErrorCode, ErrorFrame, Frame, HEADER_BYTES, MAX_BODY_BYTES};

use super::source::Source;
use crate::exit::chain;

/// Maximum size of a frame.
const FRAME_BYTES: usize = HEADER_BYTES + MAX_BODY_BYTES;

/// Bytes requested from the file at once.
const READ_BYTES: usize = 256 << 10;

/// Suffix of the files with the harness's own samples: `NAME.os.mgf` belongs to `NAME.mgf`.
pub const OS_SUFFIX: &str = ".os.mgf";

/// Reads frames one after the other.
pub struct Reader {
    source: Source,
    path: PathBuf,
    extent: Extent,
    /// Offset after the last readable byte.
    limit: u64,
    /// End according to the control page, if the file is shorter.
    missing: Option<u64>,
    /// Offset of `window[used]`.
    position: u64,
    window: Vec<u8>,
    used: usize,
    frames: u64,
    unknown_frames: u64,
}

/// Totals of a stream, after reading it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamEnd {
    /// Frames delivered.
    pub frames: u64,
    /// Frames skipped because their type or version is unknown.
    pub unknown_frames: u64,
    /// Offset after the last complete frame.
    pub bytes: u64,
    /// [`spool::state`] of a spool, 0 for a bare stream.
    pub state: u32,
}

/// Why a stream could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The file could not be opened.
    #[error("open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file could not be read.
    #[error("read {} at byte {offset}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// A frame is damaged.
    #[error("read {}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which frame, and what is wrong with it.
        source: DecodeError,
    },
    /// The stream ends inside a frame.
    #[error("read {}: it ends inside the frame at byte {offset}", path.display())]
    Cut {
        /// The file.
        path: PathBuf,
        /// Where that frame begins.
        offset: u64,
    },
    /// The control page claims bytes that do not exist.
    #[error(
        "read {}: its control page claims frames up to byte {committed}, possible is {possible}",
        path.display()
    )]
    Committed {
        /// The file.
        path: PathBuf,
        /// The offset in the control page.
        committed: u64,
        /// The possible range.
        possible: String,
    },
}

impl Reader {
    /// Opens a spool or a bare stream.
    ///
    /// # Errors
    /// When the file cannot be read, or its control page is impossible.
    pub fn open(path: &Path) -> Result<Self, StreamError> {
        // Opening a pipe would block.
        let regular = std::fs::metadata(path).and_then(|file| match file.is_file() {
            true => File::open(path),
            false => Err(io::Error::other("it is no regular file")),
        });
        Self::new(regular.map_err(|source| StreamError::Open { path: path.into(), source })?, path)
    }

    /// Reads `file`; `path` is only used in errors.
    ///
    /// # Errors
    /// Like [`Reader::open`].
    pub fn new(file: File, path: &Path) -> Result<Self, StreamError> {
        let extent = Extent { start: 0, end: None, state: 0, pid: 0 };
        let read = |source| StreamError::Read { path: path.into(), offset: 0, source };
        let mut reader = Self {
            source: Source::new(file).map_err(read)?,
            path: path.into(),
            extent,
            limit: 0,
            missing: None,
            position: 0,
            window: Vec::new(),
            used: 0,
            frames: 0,
            unknown_frames: 0,
        };
        reader.advance()?;
        reader.position = reader.extent.start;
        Ok(reader)
    }

    /// Checks how far the writer has come: [`Reader::next_frame`] then continues where it ended.
    ///
    /// # Errors
    /// When the file cannot be read, or its control page claims fewer bytes than before. If it claims more bytes than
    /// exist, the existing ones are read first: then [`Reader::next_frame`] returns the error.
    pub fn advance(&mut self) -> Result<(), StreamError> {
        self.extent = self.source.extent().map_err(|e| self.read_error(0, e))?;
        let length = self.source.bytes().map_err(|e| self.read_error(0, e))?;
        self.missing = self.extent.end.filter(|end| *end > length);
        self.limit = match self.extent.end {
            None => length,
            Some(end) if end < self.position.max(self.extent.start) => {
                return Err(self.committed(end, format!("{} or more", self.position.max(self.extent.start))));
            }
            Some(end) => end.min(length),
        };
        Ok(())
    }

    /// Whether the stream is packed, and so no longer written.
    pub(crate) const fn is_packed(&self) -> bool {
        matches!(self.source, Source::Packed(_))
    }

    /// The next frame with its time; `None` when all complete frames so far were read.
    ///
    /// # Errors
    /// On damage. The damage is not skipped: the next call returns the same error.
    pub fn next_frame(&mut self) -> Result<Option<(Frame, u64)>, StreamError> {
        let mut wanted = HEADER_BYTES;
        loop {
            let input = self.window.get(self.used..).unwrap_or_default();
            if input.len() < wanted {
                let available = self.limit.saturating_sub(self.position);
                if available == 0 {
                    return match self.missing {
                        Some(end) => Err(self.committed(end, format!("{} at most", self.limit))),
                        None => Ok(None),
                    };
                }
                if available < wanted as u64 {
                    return self.cut();
                }
                self.fill(wanted)?;
                continue;
            }
            let decoded = memgate_wire::decode(input, self.position)
                .map_err(|source| StreamError::Damaged { path: self.path.clone(), source })?;
            match decoded {
                Decoded::Frame { frame, t_ns, bytes } => {
                    self.consume(bytes);
                    self.frames += 1;
                    return Ok(Some((frame, t_ns)));
                }
                Decoded::Unknown { bytes, .. } => {
                    self.consume(bytes);
                    self.unknown_frames += 1;
                    wanted = HEADER_BYTES;
                }
                Decoded::Incomplete { bytes } => wanted = bytes.max(wanted),
            }
        }
    }

    /// Totals of what was read so far.
    #[must_use]
    pub const fn end(&self) -> StreamEnd {
        StreamEnd {
            frames: self.frames,
            unknown_frames: self.unknown_frames,
            bytes: self.position,
            state: self.extent.state,
        }
    }

    /// Fills the window up to `wanted` bytes, which the limit allows.
    fn fill(&mut self, wanted: usize) -> Result<(), StreamError> {
        debug_assert!(wanted <= FRAME_BYTES, "{wanted}");
        self.window.drain(..self.used);
        self.used = 0;
        let kept = self.window.len();
        let room = self.limit.saturating_sub(self.position).min(wanted.max(READ_BYTES) as u64);
        self.window.resize(usize::try_from(room).unwrap_or(FRAME_BYTES), 0);
        let (mut end, mut failed) = (kept, None);
        while let Some(rest) = self.window.get_mut(end..).filter(|rest| !rest.is_empty()) {
            match self.source.read_at(rest, self.position + end as u64) {
                Ok(0) => break,
                Ok(got) => end += got,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    failed = Some(self.read_error(self.position + end as u64, e));
                    break;
                }
            }
        }
        self.window.truncate(end);
        if end < wanted {
            // If no read failed, the file was shortened after the limit was looked up.
            return failed.map_or_else(|| self.cut().map(|_: Option<(Frame, u64)>| ()), Err);
        }
        Ok(())
    }

    const fn consume(&mut self, bytes: usize) {
        self.used += bytes;
        self.position += bytes as u64;
    }

    fn cut<T>(&self) -> Result<Option<T>, StreamError> {
        Err(StreamError::Cut { path: self.path.clone(), offset: self.position })
    }

    fn read_error(&self, offset: u64, source: io::Error) -> StreamError {
        StreamError::Read { path: self.path.clone(), offset, source }
    }

    fn committed(&self, committed: u64, possible: String) -> StreamError {
        StreamError::Committed { path: self.path.clone(), committed, possible }
    }
}

/// Reads a whole stream.
///
/// # Errors
/// On damage; everything before it was given to `each`.
pub fn read(path: &Path, mut each: impl FnMut(Frame, u64)) -> Result<StreamEnd, StreamError> {
    let mut reader = Reader::open(path)?;
    while let Some((frame, t_ns)) = reader.next_frame()? {
        each(frame, t_ns);
    }
    Ok(reader.end())
}

/// Reads a whole stream together with the samples that the harness took of that process (`NAME.os.mgf`), ordered by
/// time, as delivered while it ran.
///
/// # Errors
/// On damage in the stream itself. Damaged samples end with the last complete one, and an error of the process reports
/// it.
pub fn read_process(path: &Path, mut each: impl FnMut(Frame, u64)) -> Result<StreamEnd, StreamError> {
    let (mut samples, mut cut) = (Reader::open(&os_path(path)).ok(), None);
    let mut waiting = next_sample(&mut samples, &mut cut);
    let mut reader = Reader::open(path)?;
    let mut last_ns = 0;
    loop {
        let next = reader.next_frame();
        let until = next.as_ref().ok().and_then(Option::as_ref).map_or(u64::MAX, |(_, t_ns)| *t_ns);
        while let Some((sample, t_ns)) = waiting.take_if(|(_, t_ns)| *t_ns < until) {
            each(sample, t_ns);
            waiting = next_sample(&mut samples, &mut cut);
        }
        match next? {
            Some((frame, t_ns)) => {
                last_ns = t_ns;
                each(frame, t_ns);
            }
            None => {
                let error = |text| Frame::Error(ErrorFrame { code: ErrorCode::Unlisted, text });
                cut.map(error).into_iter().for_each(|frame| each(frame, last_ns));
                return Ok(reader.end());
            }
        }
    }
}

/// The streams of a frames folder in the order of their names, without the harness's own samples.
///
/// # Errors
/// When the folder cannot be read.
pub fn streams_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut streams = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if is_stream_name(&path) {
            streams.push(path);
        }
    }
    streams.sort();
    Ok(streams)
}

/// Whether it is the name of a finished stream of a tested process.
pub(crate) fn is_stream_name(path: &Path) -> bool {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    path.extension().is_some_and(|e| e == spool::EXTENSION) && !name.ends_with(OS_SUFFIX)
}

/// The file with the samples of a stream.
#[must_use]
pub fn os_path(stream: &Path) -> PathBuf {
    let mut name = stream.file_stem().unwrap_or_default().to_os_string();
    name.push(OS_SUFFIX);
    stream.with_file_name(name)
}

fn next_sample(samples: &mut Option<Reader>, cut: &mut Option<String>) -> Option<(Frame, u64)> {
    let reader = samples.as_mut()?;
    loop {
        match reader.next_frame() {
            // Error frames report what the harness could not see: without them, it would look like nothing was there.
            Ok(Some((frame @ (Frame::OsSample(_) | Frame::NativeHolders(_) | Frame::Error(_)), t_ns))) => {
                return Some((frame, t_ns));
            }
            Ok(Some(_)) => {}
            Ok(None) => {
                *samples = None;
                return None;
            }
            Err(why) => {
                *samples = None;
                *cut =
                    Some(format!("its descriptors and threads are not recorded to the end: {}", chain(&why)));
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use memgate_wire::spool::offset;
    use memgate_wire::{Log, LogLevel, encode};

    use memgate_wire::OsSample;

    use super::*;

    /// CRC-32C of the header in [`unknown_frames_are_skipped_and_counted`], computed independently of this program.
    const CRC_OF_EMPTY_999: u32 = 0xf7e1c83a;

    fn log(text: &str) -> Frame {
        Frame::Log(Log { level: LogLevel::Info, text: text.into() })
    }

    fn bytes(frames: &[(&str, u64)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (text, t_ns) in frames {
            encode(&log(text), *t_ns, &mut out);
        }
        out
    }

    fn spool(committed: u64, frames: &[u8]) -> Vec<u8> {
        let mut file = vec![0; spool::CONTROL_BYTES];
        file[..8].copy_from_slice(&spool::MAGIC);
        file[offset::STATE] = 1;
        file[offset::COMMITTED..offset::COMMITTED + 8].copy_from_slice(&committed.to_le_bytes());
        file.extend_from_slice(frames);
        file
    }

    fn file(contents: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(contents).unwrap();
        file
    }

    fn packed(stream: &[u8]) -> Vec<u8> {
        let mut to = tempfile::NamedTempFile::new().unwrap();
        let from = file(stream);
        super::super::packed::pack(from.as_file(), stream.len() as u64, to.as_file_mut()).unwrap();
        std::fs::read(to.path()).unwrap()
    }

    fn texts(path: &Path) -> (Vec<String>, Result<StreamEnd, StreamError>) {
        let mut texts = Vec::new();
        let end = read(path, |frame, t_ns| {
            let Frame::Log(line) = frame else { panic!("{frame:?}") };
            texts.push(format!("{} {t_ns}", line.text));
        });
        (texts, end)
    }

    #[test]
    fn a_bare_stream_and_a_spool_give_the_same_frames_packed_or_not() {
        let frames = bytes(&[("a", 1), ("b", 2)]);
        let mut behind = frames.clone();
        behind.extend_from_slice(&[0xff; 999]);
        let committed = spool::CONTROL_BYTES + frames.len();
        let spool = spool(committed as u64, &behind);
        for (contents, state) in
            [(packed(&frames), 0), (packed(&spool[..committed]), 1), (frames, 0), (spool, 1)]
        {
            let file = file(&contents);
            let (texts, end) = texts(file.path());
            assert_eq!(texts, ["a 1", "b 2"]);
            let end = end.unwrap();
            assert_eq!((end.frames, end.unknown_frames, end.state), (2, 0, state));
        }
    }

    #[test]
    fn damage_is_an_error_with_its_offset_and_what_precedes_it_is_delivered() {
        let mut contents = bytes(&[("good", 1), ("bad", 2)]);
        let at = bytes(&[("good", 1)]).len();
        contents[at + 16] ^= 1;
        let file = file(&contents);
        let (texts, end) = texts(file.path());
        assert_eq!(texts, ["good 1"]);
        let error = end.unwrap_err();
        assert_eq!(error.to_string(), format!("read {}", file.path().display()));
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(source, format!("damaged frame at byte {at}: its checksum does not fit"));
    }

    #[test]
    fn damage_in_a_packed_stream_is_an_error_and_never_another_frame() {
        let lines: Vec<String> = (0..2000).map(|n| format!("line {n} of many")).collect();
        let frames: Vec<_> = lines.iter().map(|line| (line.as_str(), 1)).collect();
        let whole = packed(&bytes(&frames));
        let said: Vec<String> = lines.iter().map(|line| format!("{line} 1")).collect();
        for at in (0..whole.len()).step_by(97) {
            let (cut, mut changed) = (whole[..at].to_vec(), whole.clone());
            changed[at] ^= 0x55;
            for contents in [cut, changed] {
                let file = file(&contents);
                let (texts, outcome) = texts(file.path());
                // An empty file is an empty stream.
                assert!(outcome.is_err() || contents.is_empty() || texts == said, "{at}");
                assert!(said.starts_with(&texts), "{at}");
            }
        }
    }

    #[test]
    fn a_stream_that_ends_inside_a_frame_says_where_that_frame_began() {
        let whole = bytes(&[("first", 1), ("second", 2)]);
        let at = bytes(&[("first", 1)]).len();
        for end in at + 1..whole.len() {
            let file = file(&whole[..end]);
            let (texts, outcome) = texts(file.path());
            assert_eq!(texts, ["first 1"], "{end}");
            assert!(matches!(outcome, Err(StreamError::Cut { offset, .. }) if offset == at as u64), "{end}");
        }
    }

    #[test]
    fn a_control_page_that_claims_the_impossible_is_an_error_behind_what_is_there() {
        let frames = bytes(&[("a", 1)]);
        for committed in [0, 4095, 4096 + frames.len() as u64 + 1, 1 << 40, u64::MAX] {
            let file = file(&spool(committed, &frames));
            let (texts, outcome) = texts(file.path());
            assert_eq!(texts.len(), usize::from(committed > 4096), "{committed}");
            let claimed = outcome.unwrap_err();
            assert!(matches!(claimed, StreamError::Committed { .. }), "{committed}: {claimed}");
        }
        let cut_page = file(&spool(4096, &[])[..100]);
        assert!(texts(cut_page.path()).1.is_err());
    }

    #[test]
    fn committed_inside_a_frame_is_an_error() {
        let frames = bytes(&[("a", 1)]);
        let file = file(&spool(4096 + frames.len() as u64 - 1, &frames));
        assert!(matches!(texts(file.path()).1, Err(StreamError::Cut { offset: 4096, .. })));
    }

    #[test]
    fn unknown_frames_are_skipped_and_counted() {
        let mut contents = bytes(&[("a", 1)]);
        // An empty frame of type 999 with its true checksum.
        let mut head = [0_u8; 16];
        head[4..6].copy_from_slice(&999_u16.to_le_bytes());
        contents.extend_from_slice(&head);
        contents.extend_from_slice(&CRC_OF_EMPTY_999.to_le_bytes());
        contents.extend_from_slice(&bytes(&[("b", 2)]));
        let file = file(&contents);
        let (texts, end) = texts(file.path());
        assert_eq!(texts, ["a 1", "b 2"]);
        assert_eq!(end.unwrap().unknown_frames, 1);
    }

    #[test]
    fn a_large_stream_passes_through_a_small_window() {
        let text = "x".repeat(1_000_000);
        let one = bytes(&[(&text, 1)]);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for _ in 0..40 {
            file.write_all(&one).unwrap();
        }
        let mut reader = Reader::open(file.path()).unwrap();
        let mut frames = 0;
        while reader.next_frame().unwrap().is_some() {
            frames += 1;
            assert!(reader.window.capacity() <= 2 << 20, "{}", reader.window.capacity());
        }
        assert_eq!((frames, reader.end().bytes), (40, 40 * one.len() as u64));
    }

    #[test]
    fn a_spool_of_gigabytes_of_nothing_is_damage_at_its_first_frame() {
        let file = file(&spool(8 << 30, &[]));
        file.as_file().set_len(8 << 30).unwrap();
        let (texts, outcome) = texts(file.path());
        assert!(texts.is_empty());
        assert!(matches!(outcome, Err(StreamError::Damaged { source, .. }) if source.offset == 4096));
    }

    #[test]
    fn a_growing_spool_goes_on_where_it_ended() {
        let (first, second) = (bytes(&[("a", 1)]), bytes(&[("b", 2)]));
        let all = [first.clone(), second].concat();
        let file = file(&spool(4096 + first.len() as u64, &all));
        let mut reader = Reader::open(file.path()).unwrap();
        assert_eq!(reader.next_frame().unwrap(), Some((log("a"), 1)));
        assert_eq!(reader.next_frame().unwrap(), None);
        let committed = (4096 + all.len() as u64).to_le_bytes();
        file.as_file().write_all_at(&committed, offset::COMMITTED as u64).unwrap();
        assert_eq!(reader.next_frame().unwrap(), None, "not before it was asked to look");
        reader.advance().unwrap();
        assert_eq!(reader.next_frame().unwrap(), Some((log("b"), 2)));
        file.as_file().write_all_at(&4096_u64.to_le_bytes(), offset::COMMITTED as u64).unwrap();
        assert!(matches!(reader.advance(), Err(StreamError::Committed { .. })), "it cannot go back");
    }

    #[test]
    fn samples_are_merged_by_time() {
        let folder = tempfile::tempdir().unwrap();
        let stream = folder.path().join("7-1.mgf");
        std::fs::write(&stream, bytes(&[("a", 10), ("b", 20)])).unwrap();
        let mut samples = Vec::new();
        for (t_ns, boundary) in [(5, 0), (11, 1), (30, 0)] {
            encode(&Frame::OsSample(OsSample { boundary, ..OsSample::default() }), t_ns, &mut samples);
        }
        std::fs::write(os_path(&stream), &samples).unwrap();
        let mut times = Vec::new();
        let end = read_process(&stream, |_, t_ns| times.push(t_ns)).unwrap();
        assert_eq!(times, [5, 10, 11, 20, 30]);
        assert_eq!(end.frames, 2);
        // Both are errors: data that could not be seen, and samples that are cut off.
        let unseen = ErrorFrame { code: ErrorCode::Unlisted, text: "unseen".to_owned() };
        encode(&Frame::Error(unseen), 31, &mut samples);
        encode(&log("cut"), 32, &mut samples);
        samples.pop();
        std::fs::write(os_path(&stream), &samples).unwrap();
        let mut errors = Vec::new();
        read_process(&stream, |frame, _| {
            if let Frame::Error(error) = frame {
                errors.push(error.text)
            }
        })
        .unwrap();
        let [unseen, cut] = errors.as_slice() else { panic!("{errors:?}") };
        assert!(unseen == "unseen" && cut.contains("not recorded to the end"), "{errors:?}");
        assert_eq!(streams_in(folder.path()).unwrap(), [stream]);
    }
}
