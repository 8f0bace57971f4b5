//! The debug sections of a file.

use gimli::{DwarfSections, EndianSlice, LittleEndian, SectionId};
use object::{Object, ObjectSection};

/// Most bytes of debug sections that are read of a file.
const MOST_DWARF: u64 = 768 << 20;

pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The file has more than [`MOST_DWARF`].
struct TooLarge;

/// The sections with entries and their names, and their bytes; `None`: there are none, or they are too large.
pub(crate) fn sections<'d, R: object::ReadRef<'d>>(
    file: &object::read::elf::ElfFile64<'d, object::LittleEndian, R>,
) -> Option<(DwarfSections<Vec<u8>>, u64)> {
    file.section_by_name(SectionId::DebugInfo.name())?;
    let mut bytes = 0_u64;
    let load = |id: SectionId| -> Result<Vec<u8>, TooLarge> {
        use SectionId::{DebugAranges, DebugLoc, DebugLocLists, DebugMacinfo, DebugMacro, DebugTypes};
        let is_read =
            ![DebugAranges, DebugLoc, DebugLocLists, DebugMacinfo, DebugMacro, DebugTypes].contains(&id);
        let Some(section) = file.section_by_name(id.name()).filter(|_| is_read) else {
            return Ok(Vec::new());
        };
        // A section with an unknown compression is left out.
        let Ok(range) = section.compressed_file_range() else { return Ok(Vec::new()) };
        bytes = bytes.saturating_add(range.uncompressed_size);
        if bytes > MOST_DWARF {
            return Err(TooLarge);
        }
        Ok(section.uncompressed_data().unwrap_or_default().into_owned())
    };
    let sections = DwarfSections::load(load).ok()?;
    Some((sections, bytes))
}

/// The sections as gimli reads them.
pub(crate) fn borrowed(sections: &DwarfSections<Vec<u8>>) -> gimli::Dwarf<Slice<'_>> {
    sections.borrow(|section| EndianSlice::new(section, LittleEndian))
}
