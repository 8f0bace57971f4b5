//! The debug sections of a file.

use gimli::{DwarfSections, EndianSlice, LittleEndian, SectionId};
use object::{Object, ObjectSection};

/// Largest `.debug_info` that is read.
const MOST_DWARF: u64 = 512 << 20;

pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The sections with entries and their names; `None`: there are none, or they are too large.
pub(crate) fn sections<'d, R: object::ReadRef<'d>>(
    file: &object::read::elf::ElfFile64<'d, object::LittleEndian, R>,
) -> Option<DwarfSections<Vec<u8>>> {
    let debug = file.section_by_name(SectionId::DebugInfo.name()).map_or(0, |section| section.size());
    let load = |id: SectionId| -> Result<Vec<u8>, std::convert::Infallible> {
        use SectionId::{DebugAranges, DebugLoc, DebugLocLists, DebugMacinfo, DebugMacro, DebugTypes};
        let is_read =
            ![DebugAranges, DebugLoc, DebugLocLists, DebugMacinfo, DebugMacro, DebugTypes].contains(&id);
        let section = file.section_by_name(id.name()).filter(|_| is_read);
        // A section with an unknown compression is left out.
        Ok(section.and_then(|section| section.uncompressed_data().ok()).unwrap_or_default().into_owned())
    };
    (1..=MOST_DWARF)
        .contains(&debug)
        .then(|| DwarfSections::load(load).unwrap_or_else(|never| match never {}))
}

/// The sections as gimli reads them.
pub(crate) fn borrowed(sections: &DwarfSections<Vec<u8>>) -> gimli::Dwarf<Slice<'_>> {
    sections.borrow(|section| EndianSlice::new(section, LittleEndian))
}
