//! The live blocks, as noted by the agent.

use std::collections::HashMap;
use std::ops::Range;

use memgate_wire::native_holders::TableLayout;

use crate::glibc::{HALF, add_early};
use crate::maps::Mapping;
use crate::memory::{Memory, Reader, read_words};
use crate::{Limits, NotSearched};

const PAGE_BITS: u32 = 12;
/// Blocks farther apart than this are in different regions.
const GAP: u64 = 64 << 20;
/// Maximum number of pages of all regions together: 256 GiB.
const MOST_PAGES: u64 = 1 << 26;

/// Live blocks, sorted by address. Each has a number.
#[derive(Debug, Default)]
pub struct Blocks {
    starts: Vec<u64>,
    sizes: Vec<u32>,
    stacks: Vec<u32>,
    regions: Vec<Region>,
    bytes: u64,
    /// The agent's own tables with addresses of blocks.
    tables: Vec<Range<u64>>,
}

/// A part of the address space that has blocks. It has, for each page, the number of the first block that begins in
/// that page or later.
#[derive(Debug)]
struct Region {
    range: Range<u64>,
    first_page: u64,
    first_of_page: Vec<u32>,
}

impl Blocks {
    /// Reads the blocks from the agent's table. Blocks that are older than the table have no stack.
    ///
    /// # Errors
    /// There are too many blocks, or there is no such table.
    pub fn read(
        memory: &dyn Memory,
        mappings: &[Mapping],
        layout: &TableLayout,
        limits: Limits,
    ) -> Result<Self, NotSearched> {
        let mut found = Found { memory, all: Vec::new(), most: limits.blocks, tables: Vec::new() };
        if !is_sane(layout) {
            return Err(NotSearched::Table);
        }
        found.table(layout)?;
        found.spill(layout)?;
        let Found { mut all, tables, .. } = found;
        if layout.granule_shift > 4 {
            let doubtful = place_within_granules(memory, &mut all);
            add_early(memory, mappings, &mut all, &doubtful);
        }
        Ok(Self { tables, ..Self::of(all)? })
    }

    /// Makes the list from these blocks: address, size, stack.
    ///
    /// # Errors
    /// The blocks are spread too far.
    pub fn of(mut all: Vec<(u64, u64, u32)>) -> Result<Self, NotSearched> {
        all.sort_unstable();
        all.dedup_by_key(|(start, ..)| *start);
        let narrow = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
        let mut blocks = Self {
            starts: all.iter().map(|(start, ..)| *start).collect(),
            sizes: all.iter().map(|(_, size, _)| narrow(*size)).collect(),
            stacks: all.iter().map(|(.., stack)| *stack).collect(),
            regions: Vec::new(),
            tables: Vec::new(),
            bytes: all.iter().map(|(_, size, _)| *size).fold(0, u64::saturating_add),
        };
        drop(all);
        blocks.regions = blocks.find_regions()?;
        Ok(blocks)
    }

    /// The number of blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Are there no blocks?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Their bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The agent's tables with addresses of blocks. Pointers in them hold nothing.
    pub(crate) fn tables(&self) -> &[Range<u64>] {
        &self.tables
    }

    /// The addresses of a block.
    pub(crate) fn range(&self, block: usize) -> Range<u64> {
        let start = self.starts.get(block).copied().unwrap_or(0);
        start..start.saturating_add(self.size(block))
    }

    pub(crate) fn size(&self, block: usize) -> u64 {
        self.sizes.get(block).copied().unwrap_or(0).into()
    }

    pub(crate) fn stack(&self, block: usize) -> u32 {
        self.stacks.get(block).copied().unwrap_or(0)
    }

    /// The block that `pointer` points at or into. The address after its end does not count; the address of an empty
    /// block does.
    pub(crate) fn at(&self, pointer: u64) -> Option<usize> {
        let region = self.regions.iter().find(|region| region.range.contains(&pointer))?;
        let page = usize::try_from((pointer >> PAGE_BITS).checked_sub(region.first_page)?).ok()?;
        let from = *region.first_of_page.get(page)? as usize;
        let to = region.first_of_page.get(page + 1).map_or(self.starts.len(), |to| *to as usize);
        let starts = self.starts.get(from..to)?;
        let block = (from + starts.partition_point(|start| *start <= pointer)).checked_sub(1)?;
        let offset = pointer.checked_sub(*self.starts.get(block)?)?;
        (offset < self.size(block).max(1)).then_some(block)
    }

    /// The numbers of the blocks that begin in `range`.
    pub(crate) fn within(&self, range: &Range<u64>) -> Range<usize> {
        let at = |address| self.starts.partition_point(|start| *start < address);
        at(range.start)..at(range.end)
    }

    fn find_regions(&self) -> Result<Vec<Region>, NotSearched> {
        let mut regions: Vec<Region> = Vec::new();
        let mut pages = 0;
        for (block, start) in self.starts.iter().copied().enumerate() {
            let number = u32::try_from(block).map_err(|_e| NotSearched::Blocks(u32::MAX as usize))?;
            let end = start.saturating_add(self.size(block).max(1));
            match regions.last_mut() {
                Some(region) if start < region.range.end.saturating_add(GAP) => {
                    region.range.end = region.range.end.max(end);
                }
                _ => regions.push(Region {
                    range: start..end,
                    first_page: start >> PAGE_BITS,
                    first_of_page: Vec::new(),
                }),
            }
            let Some(region) = regions.last_mut() else { continue };
            let page = (start >> PAGE_BITS) - region.first_page;
            let known = region.first_of_page.len() as u64;
            pages += (page + 1).saturating_sub(known);
            if pages > MOST_PAGES {
                return Err(NotSearched::Table);
            }
            while region.first_of_page.len() as u64 <= page {
                region.first_of_page.push(number);
            }
        }
        // Also fills the pages up to the end of the last block.
        let mut next = u32::try_from(self.len()).unwrap_or(u32::MAX);
        for region in regions.iter_mut().rev() {
            let first = region.first_of_page.first().copied().unwrap_or(next);
            let last = region.range.end.saturating_sub(1) >> PAGE_BITS;
            pages += last.saturating_sub(region.first_page).saturating_sub(region.first_of_page.len() as u64);
            if pages > MOST_PAGES {
                return Err(NotSearched::Table);
            }
            while region.first_of_page.len() as u64 <= last - region.first_page + 1 {
                region.first_of_page.push(next);
            }
            next = first;
        }
        Ok(regions)
    }
}

/// Can this be an agent's table?
fn is_sane(layout: &TableLayout) -> bool {
    let (top, mid, slot) = layout.bits;
    let (stack, epoch, size) = layout.word;
    let directories = [top, mid, slot].iter().all(|bits| (1..=20).contains(bits));
    let word = u32::from(stack) + u32::from(epoch) + u32::from(size) == 64;
    directories
        && word
        && (1..=32).contains(&stack)
        && (1..=40).contains(&size)
        && (3..=6).contains(&layout.granule_shift)
        && layout.segments <= 16
        && layout.first_cells <= 1 << 12
}

struct Found<'a> {
    memory: &'a dyn Memory,
    all: Vec<(u64, u64, u32)>,
    most: usize,
    tables: Vec<Range<u64>>,
}

impl Found<'_> {
    fn push(&mut self, block: (u64, u64, u32)) -> Result<(), NotSearched> {
        if self.all.len() >= self.most {
            return Err(NotSearched::Blocks(self.most));
        }
        self.all.push(block);
        Ok(())
    }

    fn table(&mut self, layout: &TableLayout) -> Result<(), NotSearched> {
        let (top_bits, mid_bits, slot_bits) = layout.bits;
        let (stack_bits, _, size_bits) = layout.word;
        let stack_shift = 64 - u32::from(stack_bits);
        let size_mask = (1_u64 << size_bits) - 1;
        let there = |words: Vec<u64>| words.into_iter().enumerate().filter(|(_, word)| *word != 0);
        let top = read_words(self.memory, layout.top, 1 << top_bits).ok_or(NotSearched::Table)?;
        for (i, mid) in there(top) {
            let mid = read_words(self.memory, mid, 1 << mid_bits).ok_or(NotSearched::Table)?;
            for (j, leaf) in there(mid) {
                let leaf = read_words(self.memory, leaf, 1 << slot_bits).ok_or(NotSearched::Table)?;
                let first = (((i << mid_bits) | j) as u64) << slot_bits;
                for (slot, word) in there(leaf) {
                    let address = (first | slot as u64) << layout.granule_shift;
                    let stack = u32::try_from(word >> stack_shift).unwrap_or(0);
                    self.push((address, word & size_mask, stack))?;
                }
            }
        }
        Ok(())
    }

    fn spill(&mut self, layout: &TableLayout) -> Result<(), NotSearched> {
        let segments = read_words(self.memory, layout.spill, layout.segments as usize);
        for (i, segment) in segments.ok_or(NotSearched::Table)?.into_iter().enumerate() {
            if segment == 0 {
                return Ok(());
            }
            let cells = (layout.first_cells as usize) << (2 * i);
            self.tables.push(segment..segment.saturating_add(cells as u64 * 32));
            // The cells are read in pieces, because the last segments are large.
            const CELLS: usize = 1 << 12;
            for from in (0..cells).step_by(CELLS) {
                let at = segment.wrapping_add(from as u64 * 32);
                let words =
                    read_words(self.memory, at, 4 * CELLS.min(cells - from)).ok_or(NotSearched::Table)?;
                for cell in words.as_chunks::<4>().0 {
                    let [address, _, size, origin] = *cell;
                    if address > 1 && address != u64::MAX {
                        self.push((address, size, u32::try_from(origin >> 32).unwrap_or(0)))?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// In a table with granules of 32 bytes, a block begins at the start of its granule or in the middle: the size that the
/// C library stores before the block shows which. The contents of freed memory may show both. Blocks that are shown at
/// both places, or at none, cover both. Returns their addresses and numbers.
fn place_within_granules(memory: &dyn Memory, all: &mut [(u64, u64, u32)]) -> HashMap<u64, usize> {
    let mut reader = Reader::new(memory);
    let mut doubtful = HashMap::new();
    for (block, (start, size, _)) in all.iter_mut().enumerate().filter(|(_, (at, ..))| at.is_multiple_of(32))
    {
        let mut fits =
            |at: u64| reader.word(at.saturating_sub(8)).is_some_and(|noted| is_chunk_of(noted, *size));
        match (fits(*start), fits(*start + HALF)) {
            (true, false) => {}
            (false, true) => *start += HALF,
            (true, true) | (false, false) => {
                *size = size.saturating_add(HALF);
                doubtful.insert(*start, block);
            }
        }
    }
    doubtful
}

/// Can glibc store this word before a block of this many bytes? The word is the chunk's size and three flags; the
/// second flag says that the chunk has its own mapping.
fn is_chunk_of(noted: u64, size: u64) -> bool {
    let chunk = noted & !7;
    let least = size.saturating_add(8).next_multiple_of(16).max(32);
    if noted & 2 != 0 {
        chunk >= least && chunk - least < 3 << 12
    } else {
        chunk == least || chunk == least + 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::tests::Image;

    #[test]
    fn a_pointer_finds_the_block_it_points_at_or_into() {
        let far = 0x7f00_0000_0000;
        let blocks = Blocks::of(vec![
            (0x10010, 24, 1),
            (0x10030, 0, 2),
            (0x10040, 3 << 12, 3),
            (far, 16, 4),
            (far + 0x2000, 1 << 20, 5),
        ]);
        let blocks = blocks.unwrap();
        for (pointer, stack) in [
            (0x1000f, None),
            (0x10010, Some(1)),
            (0x10027, Some(1)),
            (0x10028, None),
            (0x10030, Some(2)),
            (0x10031, None),
            (0x10040, Some(3)),
            (0x12000, Some(3)),
            (0x1303f, Some(3)),
            (0x13040, None),
            (far - 1, None),
            (far + 15, Some(4)),
            (far + 16, None),
            (far + 0x2000, Some(5)),
            (far + 0x10_1fff, Some(5)),
            (far + 0x10_2000, None),
            (0, None),
            (u64::MAX, None),
        ] {
            assert_eq!(blocks.at(pointer).map(|block| blocks.stack(block)), stack, "{pointer:x}");
        }
        assert_eq!((blocks.len(), blocks.within(&(0x10030..0x10041))), (5, 1..3));
    }

    #[test]
    fn blocks_come_from_the_table_and_its_spill() {
        let mut image = Image::default();
        // 4 bits each, 16 bytes a granule: the block at 0x120 is in leaf 1, slot 2.
        let layout = TableLayout {
            top: 0x1000,
            bits: (4, 4, 4),
            granule_shift: 4,
            word: (26, 14, 24),
            spill: 0x4000,
            segments: 2,
            first_cells: 4,
        };
        image.put(0x1000, &[0x2000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        image.put(0x2000, &[0, 0x3000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        image.put(0x3000, &[0, 0, 7 << 38 | 2 << 24 | 40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        image.put(0x4000, &[0x5000, 0]);
        image.put(0x5000, &[0, 0, 0, 0, 1, 0, 9, 9, 0x9008, 1, 1 << 30, 8 << 32, u64::MAX, 0, 0, 0]);
        let blocks = Blocks::read(&image, &[], &layout, Limits::default()).unwrap();
        assert_eq!((blocks.starts.as_slice(), blocks.stacks.as_slice()), (&[0x120, 0x9008][..], &[7, 8][..]));
        assert_eq!(blocks.bytes(), 40 + (1 << 30));
        let few = Limits { blocks: 1, ..Limits::default() };
        assert_eq!(Blocks::read(&image, &[], &layout, few).unwrap_err(), NotSearched::Blocks(1));
        for wrong in [
            TableLayout { top: 0xdead_0000, ..layout },
            TableLayout { bits: (60, 4, 4), ..layout },
            TableLayout { word: (0, 0, 64), ..layout },
            TableLayout::default(),
        ] {
            assert_eq!(Blocks::read(&image, &[], &wrong, Limits::default()).unwrap_err(), NotSearched::Table);
        }
    }

    /// Regression: the third block was placed where freed memory shows an old size. A pointer to it led nowhere, and it
    /// counted as lost.
    #[test]
    fn a_block_in_the_second_half_of_its_granule_is_told_by_what_the_allocator_noted() {
        let mut image = Image::default();
        image.put(0x1000, &[0, 0x31, 0, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0, 0, 0, 0x21, 0, 0x21]);
        let mut all = vec![(0x1000, 40, 1), (0x1040, 24, 2), (0x1080, 16, 3), (0x9000, 24, 4)];
        let doubtful = place_within_granules(&image, &mut all);
        assert_eq!(all, [(0x1010, 40, 1), (0x1040, 24, 2), (0x1080, 32, 3), (0x9000, 40, 4)]);
        assert_eq!(doubtful, HashMap::from([(0x1080, 2), (0x9000, 3)]));
        let blocks = Blocks::of(all).unwrap();
        assert_eq!(blocks.at(0x1090).map(|block| blocks.stack(block)), Some(3));
    }
}
