//! Entries of a zip file: jars, APKs.
//!
//! Layout (PKWARE's APPNOTE): entries, then a central directory of them, then an end record of 22 bytes with the
//! directory's offset. An entry is stored (0) or deflated (8). Zip64 is not supported: neither jars of a class path
//! nor APKs need it.

use std::io::Read as _;

use flate2::read::DeflateDecoder;

pub(crate) const END: [u8; 4] = *b"PK\x05\x06";
const END_BYTES: usize = 22;
pub(crate) const DIRECTORY_ENTRY: [u8; 4] = *b"PK\x01\x02";
const DIRECTORY_BYTES: usize = 46;
pub(crate) const LOCAL_ENTRY: [u8; 4] = *b"PK\x03\x04";
const LOCAL_BYTES: usize = 30;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// What is missing or damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is missing or damaged")]
pub struct Damaged(pub &'static str);

/// An entry, as described in the directory.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    archive: &'a [u8],
    /// Its name.
    pub name: &'a [u8],
    method: u16,
    packed: usize,
    local: usize,
}

/// The entries, in the order of the directory.
///
/// # Errors
/// It is no zip file, or its directory is damaged.
pub fn entries(archive: &[u8]) -> Result<Vec<Entry<'_>>, Damaged> {
    const NO_END: Damaged = Damaged("its end record");
    const NO_DIRECTORY: Damaged = Damaged("its directory");
    let at = archive.windows(END.len()).rposition(|four| four == END).ok_or(NO_END)?;
    let end = archive.get(at..).filter(|end| end.len() >= END_BYTES).ok_or(NO_END)?;
    let count = u16_at(end, 10).ok_or(NO_DIRECTORY)?;
    let mut place = size_at(end, 16).ok_or(NO_DIRECTORY)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let (entry, length) = Entry::at(archive, place).ok_or(NO_DIRECTORY)?;
        entries.push(entry);
        place = place.saturating_add(length);
    }
    Ok(entries)
}

impl<'a> Entry<'a> {
    /// The entry whose directory entry is at `place`, and the length of that directory entry.
    fn at(archive: &'a [u8], place: usize) -> Option<(Self, usize)> {
        let entry = archive.get(place..).filter(|entry| entry.starts_with(&DIRECTORY_ENTRY))?;
        let [name, extra, comment] = [28, 30, 32].map(|at| u16_at(entry, at).map(usize::from));
        let (name_length, extra, comment) = (name?, extra?, comment?);
        let name = entry.get(DIRECTORY_BYTES..)?.get(..name_length)?;
        let length =
            [DIRECTORY_BYTES, name_length, extra, comment].into_iter().fold(0, usize::saturating_add);
        let (method, packed, local) = (u16_at(entry, 10)?, size_at(entry, 20)?, size_at(entry, 42)?);
        Some((Self { archive, name, method, packed, local }, length))
    }

    /// The position of its bytes in the archive, as packed.
    ///
    /// # Errors
    /// Its head is damaged.
    pub fn place(&self) -> Result<usize, Damaged> {
        let place = || {
            let local = self.archive.get(self.local..).filter(|head| head.starts_with(&LOCAL_ENTRY))?;
            let lengths = [26, 28].map(|at| u16_at(local, at).map(usize::from));
            let [Some(name), Some(extra)] = lengths else { return None };
            Some([self.local, LOCAL_BYTES, name, extra].into_iter().fold(0, usize::saturating_add))
        };
        place().ok_or(Damaged("an entry"))
    }

    /// Are its bytes the content itself? Android then maps them directly.
    #[must_use]
    pub const fn is_stored(&self) -> bool {
        self.method == STORED
    }

    /// Its content. At most `most` bytes are unpacked.
    ///
    /// # Errors
    /// It is damaged, longer than that, or packed by an unsupported method.
    pub fn content(&self, most: u64) -> Result<Vec<u8>, Damaged> {
        const NO_CONTENT: Damaged = Damaged("the content of an entry");
        let bytes = self.archive.get(self.place()?..).and_then(|rest| rest.get(..self.packed));
        let bytes = bytes.ok_or(NO_CONTENT)?;
        let mut content = Vec::new();
        match self.method {
            STORED => content.extend_from_slice(bytes),
            DEFLATED => {
                let unpacked =
                    DeflateDecoder::new(bytes).take(most.saturating_add(1)).read_to_end(&mut content);
                unpacked.map_err(|_damaged| NO_CONTENT)?;
            }
            _ => return Err(NO_CONTENT),
        }
        if content.len() as u64 > most { Err(NO_CONTENT) } else { Ok(content) }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|two| u16::from_le_bytes(*two))
}

fn size_at(bytes: &[u8], at: usize) -> Option<usize> {
    let four: &[u8; 4] = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*four)).ok()
}
