//! The little that is read of an ELF file before it is trusted: its build id, what it knows, what
//! it would cost.
//!
//! Layout (System V gABI, chapter 4): the file header names the tables of program and section
//! headers; a note is `namesz, descsz, type, name, desc`, name and desc padded to 4; a compressed
//! section begins with its type and its uncompressed size. 32 and 64 bit, little endian. Reads by
//! offset, never maps, never takes a length on trust.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What a file's headers tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ElfInfo {
    /// GNU build id; empty where there is none.
    pub(crate) build_id: Vec<u8>,
    /// Addresses at which it has code.
    pub(crate) code: Vec<Range<u64>>,
    /// Address of what the beginning of the file is mapped to.
    pub(crate) base: u64,
    /// How much it knows.
    pub(crate) knows: Knows,
    /// Its length in bytes.
    pub(crate) size: u64,
}

/// What a file can say about an address; the more, the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Knows {
    /// At most its exported functions.
    Exports,
    /// All functions.
    Functions,
    /// Files and lines too.
    Lines,
}

/// Why a file's headers cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ElfError {
    /// The system says why.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A directory, a pipe, a device: opening it may block for ever.
    #[error("not a regular file")]
    NotAFile,
    /// No ELF magic.
    #[error("not an ELF file")]
    NotElf,
    /// Big endian, or a class of the future.
    #[error("an ELF file of a kind memgate does not read")]
    Unsupported,
    /// A table or note that reaches beyond the file, or is absurdly large.
    #[error("damaged ELF file: {0}")]
    Damaged(&'static str),
}

const SHT_SYMTAB: u32 = 2;
const SHT_NOTE: u32 = 7;
const SHT_NOBITS: u32 = 8;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PF_X: u32 = 1;
const LEAST_PAGE: u64 = 4096;
const NT_GNU_BUILD_ID: u32 = 3;
const SHF_COMPRESSED: u64 = 0x800;

/// Most sections read; linked files have a few dozen.
const MAX_HEADERS: u64 = 1 << 16;
/// Longest note section read; real ones have a few hundred bytes.
const MAX_NOTES: u64 = 1 << 20;
/// Longest table of section names read.
const MAX_NAMES: u64 = 16 << 20;
/// zlib cannot compress better than 1032 : 1. A section that says so lies, and its reader would
/// allocate what it says.
const MAX_RATIO: u64 = 1032;
/// Most that all compressed sections of a file may take together.
const MAX_UNCOMPRESSED: u64 = 4 << 30;

impl ElfInfo {
    /// Reads the headers of the file at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, ElfError> {
        if !path.metadata()?.is_file() {
            return Err(ElfError::NotAFile);
        }
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Reader { file, size, wide: true }.info()
    }
}

/// A program header, the fields of interest.
#[derive(Debug, Clone, Copy)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    size: u64,
    address: u64,
    size_in_memory: u64,
}

/// A section header, the fields of interest.
#[derive(Debug, Clone, Copy)]
struct Section {
    name: u64,
    kind: u32,
    flags: u64,
    offset: u64,
    size: u64,
    link: u64,
}

struct Reader {
    file: File,
    size: u64,
    /// 64 bit?
    wide: bool,
}

impl Reader {
    fn info(mut self) -> Result<ElfInfo, ElfError> {
        let ident = self.bytes(0, 16.min(self.size))?;
        let [0x7f, b'E', b'L', b'F', class, order, ..] = ident[..] else { return Err(ElfError::NotElf) };
        self.wide = match (class, order) {
            (1, 1) => false,
            (2, 1) => true,
            _ => return Err(ElfError::Unsupported),
        };
        let header = self.bytes(0, if self.wide { 64 } else { 52 })?;
        let sections = self.sections(&header)?;
        self.check_compressed(&sections)?;
        let segments = self.segments(&header)?;
        // Sections first: in a file of split-off symbols the segments point to what is no longer
        // there.
        let notes = sections.iter().filter(|s| s.kind == SHT_NOTE).map(|s| (s.offset, s.size));
        let build_id = match self.build_id(notes)? {
            Some(id) => id,
            None => {
                let notes = segments.iter().filter(|s| s.kind == PT_NOTE).map(|s| (s.offset, s.size));
                self.build_id(notes)?.unwrap_or_default()
            }
        };
        let code = segments.iter().filter(|s| s.kind == PT_LOAD && s.flags & PF_X != 0);
        let code = code.map(|s| s.address..s.address.saturating_add(s.size_in_memory)).collect();
        let base = segments.iter().filter(|s| s.kind == PT_LOAD).map(|s| s.address).min().unwrap_or(0);
        let base = base & !(LEAST_PAGE - 1);
        Ok(ElfInfo { build_id, code, base, knows: self.knows(&header, &sections)?, size: self.size })
    }

    fn sections(&self, header: &[u8]) -> Result<Vec<Section>, ElfError> {
        let (at, entry, count) = if self.wide {
            (word(header, 40), half(header, 58), half(header, 60))
        } else {
            (narrow(header, 32), half(header, 46), half(header, 48))
        };
        if at == 0 {
            return Ok(Vec::new());
        }
        let least = if self.wide { 64 } else { 40 };
        if entry < least {
            return Err(ElfError::Damaged("section headers too short"));
        }
        // More sections than fit into the field: their number is in the size of the first.
        let count = if count == 0 { self.section(&self.bytes(at, entry)?).size } else { count };
        let table = self.table(at, entry, count)?;
        let step = usize::try_from(entry).map_err(|_wide| ElfError::Damaged("section headers too long"))?;
        Ok(table.chunks_exact(step).map(|raw| self.section(raw)).collect())
    }

    fn section(&self, raw: &[u8]) -> Section {
        let (name, kind) = (narrow(raw, 0), narrow32(raw, 4));
        if self.wide {
            let (flags, offset, size, link) = (word(raw, 8), word(raw, 24), word(raw, 32), narrow(raw, 40));
            Section { name, kind, flags, offset, size, link }
        } else {
            let (flags, offset, size, link) =
                (narrow(raw, 8), narrow(raw, 16), narrow(raw, 20), narrow(raw, 24));
            Section { name, kind, flags, offset, size, link }
        }
    }

    fn segments(&self, header: &[u8]) -> Result<Vec<Segment>, ElfError> {
        let (at, entry, count) = if self.wide {
            (word(header, 32), half(header, 54), half(header, 56))
        } else {
            (narrow(header, 28), half(header, 42), half(header, 44))
        };
        let least = if self.wide { 56 } else { 32 };
        if at == 0 || count == 0 {
            return Ok(Vec::new());
        }
        if entry < least {
            return Err(ElfError::Damaged("program headers too short"));
        }
        let table = self.table(at, entry, count)?;
        let step = usize::try_from(entry).map_err(|_wide| ElfError::Damaged("program headers too long"))?;
        let segment = |raw: &[u8]| {
            let kind = narrow32(raw, 0);
            let [offset, address, size, size_in_memory] = if self.wide {
                [8, 16, 32, 40].map(|at| word(raw, at))
            } else {
                [4, 8, 16, 20].map(|at| narrow(raw, at))
            };
            let flags = narrow32(raw, if self.wide { 4 } else { 24 });
            Segment { kind, flags, offset, size, address, size_in_memory }
        };
        Ok(table.chunks_exact(step).map(segment).collect())
    }

    fn table(&self, at: u64, entry: u64, count: u64) -> Result<Vec<u8>, ElfError> {
        if count > MAX_HEADERS {
            return Err(ElfError::Damaged("too many headers"));
        }
        self.bytes(at, entry.saturating_mul(count))
    }

    /// The build id in the notes at the first of `parts` (offset, size) that has one.
    fn build_id(&self, mut parts: impl Iterator<Item = (u64, u64)>) -> Result<Option<Vec<u8>>, ElfError> {
        parts
            .find_map(|(offset, size)| match self.bytes(offset, size.min(MAX_NOTES)) {
                Ok(notes) => build_id_note(&notes).map(|id| Ok(id.to_vec())),
                Err(error) => Some(Err(error)),
            })
            .transpose()
    }

    fn check_compressed(&self, sections: &[Section]) -> Result<(), ElfError> {
        let mut total = 0u64;
        for section in sections.iter().filter(|s| s.flags & SHF_COMPRESSED != 0 && s.kind != SHT_NOBITS) {
            let header = self.bytes(section.offset, section.size.min(if self.wide { 24 } else { 12 }))?;
            let size = if self.wide { word(&header, 8) } else { narrow(&header, 4) };
            total = total.saturating_add(size);
            if size > section.size.saturating_mul(MAX_RATIO) || total > MAX_UNCOMPRESSED {
                return Err(ElfError::Damaged("a compressed section is larger than it can be"));
            }
        }
        Ok(())
    }

    fn knows(&self, header: &[u8], sections: &[Section]) -> Result<Knows, ElfError> {
        let names_at = half(header, if self.wide { 62 } else { 50 });
        // As with their number: an index that does not fit is in the first section.
        let names_at = if names_at == 0xffff { sections.first().map_or(0, |s| s.link) } else { names_at };
        let names = usize::try_from(names_at).ok().and_then(|index| sections.get(index));
        let names = match names {
            Some(part) => self.bytes(part.offset, part.size.min(MAX_NAMES))?,
            None => Vec::new(),
        };
        let has = |wanted: &[u8]| {
            sections.iter().any(|section| {
                let at = usize::try_from(section.name).ok();
                let name = at.and_then(|at| names.get(at..)).unwrap_or_default();
                section.kind != SHT_NOBITS
                    && section.size > 0
                    && name.strip_prefix(wanted).is_some_and(|n| n.first() == Some(&0))
            })
        };
        Ok(if has(b".debug_info") {
            Knows::Lines
        } else if sections.iter().any(|s| s.kind == SHT_SYMTAB && s.size > 0) {
            Knows::Functions
        } else {
            Knows::Exports
        })
    }

    /// `length` bytes at `offset`, all of which the file must have.
    fn bytes(&self, offset: u64, length: u64) -> Result<Vec<u8>, ElfError> {
        const BEYOND: ElfError = ElfError::Damaged("ends too early");
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            return Err(BEYOND);
        }
        let length = usize::try_from(length).map_err(|_wide| BEYOND)?;
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

/// The build id among `notes`.
fn build_id_note(mut notes: &[u8]) -> Option<&[u8]> {
    loop {
        let (header, rest) = notes.split_first_chunk::<12>()?;
        let (name_size, size) = (narrow(header, 0), narrow(header, 4));
        let (name, rest) = padded(rest, name_size)?;
        if narrow32(header, 8) == NT_GNU_BUILD_ID && name == b"GNU\0" {
            return rest.get(..usize::try_from(size).ok()?);
        }
        notes = padded(rest, size)?.1;
    }
}

/// Splits off `length` bytes and what pads them to a multiple of 4; the last padding may be
/// missing.
fn padded(bytes: &[u8], length: u64) -> Option<(&[u8], &[u8])> {
    let length = usize::try_from(length).ok()?;
    let taken = bytes.get(..length)?;
    let next = length.checked_next_multiple_of(4)?.min(bytes.len());
    Some((taken, bytes.get(next..)?))
}

fn half(bytes: &[u8], at: usize) -> u64 {
    field(bytes, at).map_or(0, |raw| u64::from(u16::from_le_bytes(raw)))
}

fn narrow32(bytes: &[u8], at: usize) -> u32 {
    field(bytes, at).map_or(0, u32::from_le_bytes)
}

fn narrow(bytes: &[u8], at: usize) -> u64 {
    u64::from(narrow32(bytes, at))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    field(bytes, at).map_or(0, u64::from_le_bytes)
}

/// `N` bytes at `at`; headers were checked to be long enough, a short one reads as zeroes.
fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
