//! Reads and checks the headers of an ELF file, to examine a program or to read its symbols.
//!
//! `object` knows the layout. This file adds the limits: no table longer than [`MAX_HEADERS`], no unchecked length,
//! contents read by offset and never mapped. It supports 32 and 64 bit, little endian.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::elf::{self, FileHeader32, FileHeader64};
pub use object::elf::{DT_NEEDED, DT_STRTAB, PT_INTERP, PT_LOAD, SHT_STRTAB};
use object::read::elf::{CompressionHeader, Dyn, FileHeader, NoteIterator, ProgramHeader, SectionHeader};
use object::read::{ReadCache, StringTable};
use object::{LittleEndian, pod};

/// Why a file's headers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The system's error.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A directory, a pipe, a device: opening it may block forever.
    #[error("not a regular file")]
    NotAFile,
    /// No ELF magic.
    #[error("not an ELF file")]
    NotElf,
    /// Big endian, or an unknown class.
    #[error("an ELF file of a kind memgate does not read")]
    Unsupported,
    /// A table or note that extends beyond the file, or is absurdly large.
    #[error("damaged ELF file: {0}")]
    Damaged(&'static str),
}

/// Maximum number of headers of one kind; linked files have a few dozen.
const MAX_HEADERS: usize = 1 << 16;
/// Longest note section read; real ones have a few hundred bytes.
const MAX_NOTES: u64 = 1 << 20;
/// Longest table of section names read.
const MAX_NAMES: u64 = 16 << 20;
/// Longest dynamic section read.
const MAX_DYNAMIC: u64 = 1 << 20;
/// zlib cannot compress better than 1032 : 1. A section that claims more is false, and its reader would allocate the
/// claimed size.
const MAX_RATIO: u64 = 1032;
/// Maximum size of all compressed sections of a file together.
const MAX_UNCOMPRESSED: u64 = 4 << 30;
const LEAST_PAGE: u64 = 4096;

const TOO_EARLY: ElfError = ElfError::Damaged("ends too early");

/// A file with its headers.
#[derive(Debug)]
pub struct Image<'f> {
    file: &'f File,
    size: u64,
    /// 64 bit?
    pub wide: bool,
    /// `e_machine`.
    pub machine: u16,
    /// Program headers; empty if they cannot be read.
    pub segments: Vec<Segment>,
    /// Section headers; empty if they cannot be read.
    pub sections: Vec<Section>,
    /// The part that could not be read.
    damage: Option<&'static str>,
    /// Index of the section that has the names of sections.
    names: usize,
}

/// A program header, the fields of interest.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    /// `p_type`.
    pub kind: u32,
    /// May it be executed?
    pub executable: bool,
    /// Its address in memory.
    pub address: u64,
    size_in_memory: u64,
    align: u64,
    /// Its place in the file.
    pub part: Part,
}

/// A section header, the fields of interest.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    name: u32,
    /// `sh_type`.
    pub kind: u32,
    align: u64,
    /// Its uncompressed length, if it is compressed.
    unpacked: Option<u64>,
    /// Its place in the file.
    pub part: Part,
}

/// A part of the file, according to the headers: it may lie beyond the end.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Where it begins.
    pub offset: u64,
    /// Its length.
    pub size: u64,
}

impl<'f> Image<'f> {
    /// Reads the headers.
    ///
    /// # Errors
    /// It is no ELF file that can be read. Tables that are damaged are empty instead.
    pub fn read(file: &'f File) -> Result<Self, ElfError> {
        let size = file.metadata()?.len();
        let mut ident = [0; 6];
        let got = file.read_at(&mut ident, 0)?;
        if got < ident.len() || !ident.starts_with(&elf::ELFMAG) {
            return Err(ElfError::NotElf);
        }
        match (ident[4], ident[5]) {
            (1, 1) => Self::headers::<FileHeader32<LittleEndian>>(file, size),
            (2, 1) => Self::headers::<FileHeader64<LittleEndian>>(file, size),
            _ => Err(ElfError::Unsupported),
        }
    }

    fn headers<E: FileHeader<Endian = LittleEndian>>(file: &'f File, size: u64) -> Result<Self, ElfError> {
        let data = &ReadCache::new(file);
        let header = E::parse(data).map_err(|_short| TOO_EARLY)?;
        let mut damage = None;
        let mut or_damaged = |told| damage = Some(told);
        let segments = segments(header, data).unwrap_or_else(|| {
            or_damaged("program headers that it does not have");
            Vec::new()
        });
        let sections = sections(header, data).unwrap_or_else(|| {
            or_damaged("section headers that it does not have");
            Vec::new()
        });
        let names = header.section_strings_index(LittleEndian, data).map_or(usize::MAX, |index| index.0);
        let (wide, machine) = (header.is_type_64(), header.e_machine(LittleEndian));
        Ok(Self { file, size, wide, machine, segments, sections, damage, names })
    }

    /// The entries of the dynamic section: tag and value.
    #[must_use]
    pub fn dynamic(&self) -> Vec<(i64, u64)> {
        let Some(dynamic) = self.segments.iter().find(|s| s.kind == elf::PT_DYNAMIC) else {
            return Vec::new();
        };
        let bytes = self.some(dynamic.part, MAX_DYNAMIC);
        if self.wide {
            entries::<FileHeader64<LittleEndian>>(&bytes)
        } else {
            entries::<FileHeader32<LittleEndian>>(&bytes)
        }
    }

    /// The file offset of the byte at a virtual address.
    #[must_use]
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        self.segments.iter().filter(|s| s.kind == elf::PT_LOAD).find_map(|s| {
            let into = address.checked_sub(s.address).filter(|into| *into < s.part.size)?;
            s.part.offset.checked_add(into)
        })
    }

    /// The existing bytes of a part, up to this many.
    #[must_use]
    pub fn some(&self, part: Part, most: u64) -> Vec<u8> {
        let size = part.size.min(most).min(self.size.saturating_sub(part.offset));
        self.bytes(Part { size, ..part }).unwrap_or_default()
    }

    /// A part that the file must contain completely.
    fn bytes(&self, part: Part) -> Result<Vec<u8>, ElfError> {
        if part.offset.checked_add(part.size).is_none_or(|end| end > self.size) {
            return Err(TOO_EARLY);
        }
        let mut bytes = vec![0; usize::try_from(part.size).map_err(|_wide| TOO_EARLY)?];
        self.file.read_exact_at(&mut bytes, part.offset)?;
        Ok(bytes)
    }

    fn info(&self) -> Result<ElfInfo, ElfError> {
        if let Some(damage) = self.damage {
            return Err(ElfError::Damaged(damage));
        }
        self.check_compressed()?;
        let loaded = || self.segments.iter().filter(|s| s.kind == elf::PT_LOAD);
        let code = loaded().filter(|s| s.executable);
        let code = code.map(|s| s.address..s.address.saturating_add(s.size_in_memory)).collect();
        let base = loaded().map(|s| s.address).min().unwrap_or(0) & !(LEAST_PAGE - 1);
        Ok(ElfInfo { build_id: self.build_id()?, code, base, knows: self.knows()?, size: self.size })
    }

    /// Searches sections first, because in a file of separate symbols the segments point to removed contents.
    fn build_id(&self) -> Result<Vec<u8>, ElfError> {
        let sections = self.sections.iter().filter(|s| s.kind == elf::SHT_NOTE).map(|s| (s.part, s.align));
        let segments = self.segments.iter().filter(|s| s.kind == elf::PT_NOTE).map(|s| (s.part, s.align));
        for (part, align) in sections.chain(segments) {
            let notes = self.bytes(Part { size: part.size.min(MAX_NOTES), ..part })?;
            let found = if self.wide {
                build_id::<FileHeader64<LittleEndian>>(&notes, align)
            } else {
                build_id::<FileHeader32<LittleEndian>>(&notes, u32::try_from(align).unwrap_or(0))
            };
            if let Some(id) = found {
                return Ok(id);
            }
        }
        Ok(Vec::new())
    }

    fn check_compressed(&self) -> Result<(), ElfError> {
        let mut total = 0u64;
        for (section, unpacked) in self.sections.iter().filter_map(|s| Some((s, s.unpacked?))) {
            total = total.saturating_add(unpacked);
            if unpacked > section.part.size.saturating_mul(MAX_RATIO) || total > MAX_UNCOMPRESSED {
                return Err(ElfError::Damaged("a compressed section is larger than it can be"));
            }
        }
        Ok(())
    }

    fn knows(&self) -> Result<Knows, ElfError> {
        let names = match self.sections.get(self.names) {
            Some(Section { part, .. }) => self.bytes(Part { size: part.size.min(MAX_NAMES), ..*part })?,
            None => Vec::new(),
        };
        let names = StringTable::new(&*names, 0, names.len() as u64);
        let is_there = |s: &&Section| s.kind != elf::SHT_NOBITS && s.part.size > 0;
        let mut there = self.sections.iter().filter(is_there);
        Ok(if there.clone().any(|s| names.get(s.name).is_ok_and(|name| name == b".debug_info")) {
            Knows::Lines
        } else if there.any(|s| s.kind == elf::SHT_SYMTAB) {
            Knows::Functions
        } else {
            Knows::Exports
        })
    }
}

fn segments<E: FileHeader<Endian = LittleEndian>>(
    header: &E,
    data: &ReadCache<&File>,
) -> Option<Vec<Segment>> {
    let e = LittleEndian;
    if header.phnum(e, data).ok()? > MAX_HEADERS {
        return None;
    }
    let segment = |s: &E::ProgramHeader| Segment {
        kind: s.p_type(e),
        executable: s.p_flags(e) & elf::PF_X != 0,
        address: s.p_vaddr(e).into(),
        size_in_memory: s.p_memsz(e).into(),
        align: s.p_align(e).into(),
        part: Part { offset: s.p_offset(e).into(), size: s.p_filesz(e).into() },
    };
    Some(header.program_headers(e, data).ok()?.iter().map(segment).collect())
}

fn sections<E: FileHeader<Endian = LittleEndian>>(
    header: &E,
    data: &ReadCache<&File>,
) -> Option<Vec<Section>> {
    let e = LittleEndian;
    if header.shnum(e, data).ok()? > MAX_HEADERS {
        return None;
    }
    let section = |s: &E::SectionHeader| {
        let kind = s.sh_type(e);
        let mut part = Part { offset: s.sh_offset(e).into(), size: s.sh_size(e).into() };
        let unpacked = match kind {
            elf::SHT_NOBITS => None,
            _ => s
                .compression(e, data)
                .unwrap_or_else(|_damaged| {
                    // The damage affects only this section. The section stays in the list, so that the others keep
                    // their numbers.
                    part.size = 0;
                    None
                })
                .map(|(header, ..)| header.ch_size(e).into()),
        };
        Some(Section { name: s.sh_name(e), kind, align: s.sh_addralign(e).into(), unpacked, part })
    };
    header.section_headers(e, data).ok()?.iter().map(section).collect()
}

fn entries<E: FileHeader<Endian = LittleEndian>>(bytes: &[u8]) -> Vec<(i64, u64)> {
    let count = bytes.len() / size_of::<E::Dyn>();
    let entries = pod::slice_from_bytes::<E::Dyn>(bytes, count).map_or(&[][..], |(entries, _)| entries);
    let entries = entries.iter().map(|entry| (entry.tag(LittleEndian), entry.val(LittleEndian)));
    entries.take_while(|(tag, _)| *tag != elf::DT_NULL).collect()
}

/// The build id among these notes.
fn build_id<E: FileHeader<Endian = LittleEndian>>(notes: &[u8], align: E::Word) -> Option<Vec<u8>> {
    let mut notes = NoteIterator::<E>::new(LittleEndian, align, notes).ok()?;
    while let Some(note) = notes.next().ok()? {
        if note.n_type(LittleEndian) == elf::NT_GNU_BUILD_ID && note.name() == elf::ELF_NOTE_GNU {
            return Some(note.desc().to_vec());
        }
    }
    None
}

/// A file's headers, as far as they concern its symbols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElfInfo {
    /// GNU build id; empty if there is none.
    pub build_id: Vec<u8>,
    /// Addresses at which it has code.
    pub code: Vec<Range<u64>>,
    /// Address that the beginning of the file is mapped to.
    pub base: u64,
    /// How much symbol information it has.
    pub knows: Knows,
    /// Its length in bytes.
    pub size: u64,
}

/// The symbol information of a file, in increasing order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knows {
    /// At most its exported functions.
    Exports,
    /// All functions.
    Functions,
    /// Files and lines too.
    Lines,
}

impl ElfInfo {
    /// Reads the headers of the file at `path`.
    ///
    /// # Errors
    /// It is no ELF file, or its symbols should not be read.
    pub fn read(path: &Path) -> Result<Self, ElfError> {
        if !path.metadata()?.is_file() {
            return Err(ElfError::NotAFile);
        }
        Image::read(&File::open(path)?)?.info()
    }
}
