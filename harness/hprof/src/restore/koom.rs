//! Restores dumps that KOOM (KwaiAppTeam/KOOM) crops while Android writes them.
//!
//! Data flow: the dump → the walk, which expects no values in arrays of primitives → the same records, with zeros for
//! the values. The lengths of segments include those values, although they are missing. Whole objects that KOOM cut
//! out of the heaps of Zygote and image are lost.

use std::io::Write;

use super::{LONGEST, RestoreError};
use crate::read::{DumpFile, Odd, Progress, ReadError, Told, Visit, walk};

const WINDOW: usize = 1 << 20;

/// The state of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cropped {
    /// Complete, with its values.
    Whole,
    /// Complete, except that the values of its arrays were cut out.
    Cropped,
    /// Neither: other bytes are missing.
    Neither,
}

impl Cropped {
    /// Reads a whole dump and determines its state.
    ///
    /// # Errors
    /// The dump cannot be read.
    pub fn of(file: &DumpFile, progress: Progress<'_>) -> Result<Self, ReadError> {
        let told = Told { step: "looking", all: Some(file.bytes()), to: progress };
        let mut plain = Looking::<false> { is_odd: false, told };
        file.walk(u64::MAX, &mut plain)?;
        if !plain.is_odd {
            return Ok(Self::Whole);
        }
        let mut cropped = Looking::<true> { is_odd: false, told };
        file.walk(u64::MAX, &mut cropped)?;
        Ok(if cropped.is_odd { Self::Neither } else { Self::Cropped })
    }
}

/// Is a dump consistent, with or without the values of its arrays?
struct Looking<'a, const CROPPED: bool> {
    is_odd: bool,
    told: Told<'a>,
}

impl<const CROPPED: bool> Visit for Looking<'_, CROPPED> {
    type Error = ReadError;
    const CROPPED: bool = CROPPED;

    fn progress(&mut self, at: u64) {
        self.told.at(at);
    }

    fn odd(&mut self, odd: Odd, _at: u64) -> Result<(), ReadError> {
        self.is_odd |= !harmless(odd);
        Ok(())
    }

    fn not_a_dump(&self) -> ReadError {
        ReadError::NotADump
    }
}

/// Does this oddity leave every byte accounted for?
const fn harmless(odd: Odd) -> bool {
    matches!(odd, Odd::UnknownRecord(_) | Odd::LongText | Odd::Wrapped | Odd::NoLength)
}

/// Writes the dump with zeros for the values that KOOM cut out. Returns the bytes that were written.
///
/// # Errors
/// The dump is not complete, or cannot be read or written.
pub fn uncrop(file: &DumpFile, to: impl Write, progress: Progress<'_>) -> Result<u64, RestoreError> {
    let told = Told { step: "restoring", all: Some(file.bytes()), to: progress };
    let mut copy = Filling { to, written: 0, told };
    walk(file.source(true)?, WINDOW, u64::MAX, &mut copy)?;
    copy.to.flush()?;
    file.is_unchanged()?;
    Ok(copy.written)
}

struct Filling<'a, W> {
    to: W,
    written: u64,
    told: Told<'a>,
}

impl<W: Write> Visit for Filling<'_, W> {
    type Error = RestoreError;
    const COPIES: bool = true;
    const CROPPED: bool = true;

    fn progress(&mut self, at: u64) {
        self.told.at(at);
    }

    fn copy(&mut self, bytes: &[u8], _content: bool) -> Result<(), RestoreError> {
        self.written = self.written.saturating_add(bytes.len() as u64);
        if self.written > LONGEST {
            return Err(RestoreError::TooLarge);
        }
        self.to.write_all(bytes)?;
        Ok(())
    }

    fn odd(&mut self, odd: Odd, at: u64) -> Result<(), RestoreError> {
        match odd {
            odd if harmless(odd) => Ok(()),
            Odd::UnknownObject(tag) => Err(RestoreError::Unknown { tag, at }),
            _ => Err(RestoreError::Cut { at }),
        }
    }
}
