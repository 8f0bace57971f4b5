//! Source of a stream's bytes: a file that may still be written, or a packed one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use memgate_wire::spool::{CONTROL_BYTES, Extent};

use super::packed::Packed;

/// Maximum number of reads of a control page that may disagree before the last one is used.
const AGREEMENT_ATTEMPTS: usize = 16;

/// Source of a stream's bytes.
pub(super) enum Source {
    File(File),
    Packed(Packed),
}

impl Source {
    pub(super) fn new(file: File) -> io::Result<Self> {
        Ok(Packed::open(&file)?.map_or(Self::File(file), Self::Packed))
    }

    pub(super) fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read_at(buffer, offset),
            Self::Packed(packed) => packed.read_at(buffer, offset),
        }
    }

    pub(super) fn extent(&self) -> io::Result<Extent> {
        match self {
            Self::File(file) => extent_of(file),
            Self::Packed(packed) => Ok(Extent::of(&packed.page)),
        }
    }

    pub(super) fn bytes(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => file.metadata().map(|about| about.len()),
            Self::Packed(packed) => Ok(packed.bytes),
        }
    }
}

/// A guest may change `committed` while it is copied: two consecutive reads must agree.
fn extent_of(file: &File) -> io::Result<Extent> {
    let mut before = None;
    for _ in 0..AGREEMENT_ATTEMPTS {
        let mut page = [0_u8; CONTROL_BYTES];
        let got = read_up_to(file, &mut page, 0)?;
        let extent = Extent::of(page.get(..got).unwrap_or_default());
        if extent.end.is_none() || before.replace(extent) == Some(extent) {
            return Ok(extent);
        }
    }
    before.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Fills `buffer` from `offset` on, up to the end of the file.
fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut got = 0;
    while let Some(rest) = buffer.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}
