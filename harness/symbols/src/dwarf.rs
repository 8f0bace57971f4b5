//! The debug sections of a file.

use std::io::Read;

use flate2::read::ZlibDecoder;
use gimli::{DwarfSections, EndianSlice, LittleEndian, SectionId};
use object::{CompressedData, CompressionFormat, Object, ObjectSection};

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
        let Ok(packed) = section.compressed_data() else { return Ok(Vec::new()) };
        bytes = bytes.saturating_add(packed.uncompressed_size);
        if bytes > MOST_DWARF {
            return Err(TooLarge);
        }
        Ok(unpacked(&packed).unwrap_or_default())
    };
    let sections = DwarfSections::load(load).ok()?;
    Some((sections, bytes))
}

/// `None`: it is damaged, or its compression is unknown.
fn unpacked(section: &CompressedData<'_>) -> Option<Vec<u8>> {
    match section.format {
        CompressionFormat::None => Some(section.data.to_vec()),
        CompressionFormat::Zlib => {
            let mut bytes = Vec::new();
            ZlibDecoder::new(section.data).take(section.uncompressed_size).read_to_end(&mut bytes).ok()?;
            Some(bytes)
        }
        _ => None,
    }
}

/// The sections as gimli reads them.
pub(crate) fn borrowed(sections: &DwarfSections<Vec<u8>>) -> gimli::Dwarf<Slice<'_>> {
    sections.borrow(|section| EndianSlice::new(section, LittleEndian))
}
