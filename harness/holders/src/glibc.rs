//! glibc's main heap: its lists of free chunks, and the chunks in use that the agent does not know, because they were
//! allocated before it began to record.
//!
//! A chunk is its size with three flags, followed by the program's bytes. The first flag says whether the chunk before
//! it is in use. Chunks on the lists of a thread's cache and on fast lists are free, although their flags do not say
//! so. Since version 2.32 links of both kinds are masked by their own addresses. Anything that does not match this
//! layout ends the walk, without a result.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::maps::Mapping;
use crate::memory::{Memory, Reader, WORD};

/// Half a granule of 32 bytes: two chunks are at least a whole one apart.
pub(crate) const HALF: u64 = 16;
/// Bins of an arena, two words each.
const BINS: u64 = 254 * WORD;
/// Distances from the bins of an arena back to its fast lists, and to its topmost chunk.
const TO_FAST: u64 = 0x60;
const TO_TOP: u64 = 0x10;
const FAST_LISTS: u64 = 10;
/// Bytes to include before and after the bins.
const BEFORE: u64 = 0x80;
const BEHIND: u64 = 0x80;
/// A thread's cache is a chunk of this size: 64 counts of two bytes, 64 lists.
const CACHE_CHUNK: u64 = 0x290;
const CACHE_LISTS: u64 = 64;
const LONGEST_LIST: usize = 1 << 20;
const MOST_CHUNKS: usize = 16 << 20;
/// Previous size, then size and flags: these words come before a chunk's bytes.
const HEAD: u64 = 2 * WORD;

/// The lists of free chunks in the C library's data. The address of a free chunk points into the last bytes of the
/// block before it, so each link would seem to hold that block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FreeLists {
    /// Their addresses, and a little more.
    pub(crate) range: Range<u64>,
    /// The first empty list.
    first_empty: u64,
}

/// Finds the lists: empty ones, which are the majority, point slightly before themselves.
pub(crate) fn free_lists(memory: &dyn Memory, range: Range<u64>) -> Option<FreeLists> {
    /// Fewer than this are no free lists.
    const LEAST: usize = 64;
    let mut empty = Vec::new();
    let mut reader = Reader::new(memory);
    reader.words(range, &mut || true, |at, value| {
        if value == at.wrapping_sub(2 * WORD) || value == at.wrapping_sub(3 * WORD) {
            empty.push(at);
        }
    });
    let (first, last) = (*empty.first()?, *empty.last()?);
    let start = first.min(last.saturating_sub(BINS)).saturating_sub(BEFORE);
    let range = start..last.max(first.saturating_add(BINS)).saturating_add(BEHIND);
    (empty.len() >= LEAST).then_some(FreeLists { range, first_empty: first })
}

/// Adds the used chunks of the main heap that were allocated before the agent began to record, as blocks without a
/// stack. Also tells where `doubtful` blocks begin: at their address, or half a granule behind it.
pub(crate) fn add_early(
    memory: &dyn Memory,
    mappings: &[Mapping],
    blocks: &mut Vec<(u64, u64, u32)>,
    doubtful: &HashMap<u64, usize>,
) {
    let Some(heap) = mappings.iter().find(|m| m.name == "[heap]").map(|m| m.range.clone()) else { return };
    let data = mappings.iter().filter(|m| m.writable && !m.shared && is_libc(&m.name));
    let lists = data.filter_map(|m| free_lists(memory, m.range.clone()));
    let arena = lists.into_iter().find_map(|lists| Arena::of(memory, &lists, &heap));
    let Some(arena) = arena else { return };
    let mut known: Vec<u64> =
        blocks.iter().map(|(start, ..)| *start).filter(|it| heap.contains(it)).collect();
    known.sort_unstable();
    let Some(Walked { early, placed }) = arena.walk(memory, &heap, &known, doubtful) else { return };
    for (block, at) in placed {
        if let Some((start, size, _)) = blocks.get_mut(block) {
            *start = at;
            *size = size.saturating_sub(HALF);
        }
    }
    blocks.extend(early.into_iter().map(|(start, size)| (start, size, 0)));
}

/// What the chunks of the main heap tell.
struct Walked {
    /// Address and bytes of each chunk in use that the agent does not know.
    early: Vec<(u64, u64)>,
    /// Numbers of doubtful blocks, and where they begin.
    placed: Vec<(usize, u64)>,
}

struct Arena {
    top: u64,
    fast: u64,
}

impl Arena {
    /// The arena whose topmost chunk ends with the heap. Its first bins may have entries.
    fn of(memory: &dyn Memory, lists: &FreeLists, heap: &Range<u64>) -> Option<Self> {
        let mut reader = Reader::new(memory);
        let mut is_top = |top: u64| {
            let size = reader.word(top.wrapping_add(WORD)).map(|size| size & !7);
            heap.contains(&top)
                && size.is_some_and(|size| size >= 32 && top.checked_add(size) == Some(heap.end))
        };
        let mut other = Reader::new(memory);
        (0..BINS / HEAD).find_map(|bin| {
            let bins = lists.first_empty.checked_sub(bin * HEAD)?;
            let top = other.word(bins.checked_sub(TO_TOP)?)?;
            is_top(top).then(|| Self { top, fast: bins.wrapping_sub(TO_FAST) })
        })
    }

    /// `None`: the heap does not have this layout.
    fn walk(
        &self,
        memory: &dyn Memory,
        heap: &Range<u64>,
        known: &[u64],
        doubtful: &HashMap<u64, usize>,
    ) -> Option<Walked> {
        let mut reader = Reader::new(memory);
        let mut placed = Vec::new();
        let (mut in_use, mut caches) = (Vec::new(), Vec::new());
        let mut known = known.iter().copied().peekable();
        let mut at = heap.start;
        for _ in 0..MOST_CHUNKS {
            if at >= self.top {
                break;
            }
            let size = reader.word(at.checked_add(WORD)?)? & !7;
            let next = at.checked_add(size).filter(|_| size >= 32 && size.is_multiple_of(16))?;
            let is_in_use = reader.word(next.checked_add(WORD)?)? & 1 != 0;
            let start = at + HEAD;
            while known.next_if(|known| *known < start).is_some() {}
            // Chunks are at least a granule apart, so no other block begins half a granule before this one.
            if let Some(block) = [start, start - HALF].into_iter().find_map(|at| doubtful.get(&at)) {
                placed.push((*block, start));
            } else if is_in_use && known.peek() != Some(&start) {
                if size == CACHE_CHUNK && is_cache(memory, start) {
                    caches.push(start);
                } else {
                    in_use.push((start, size - WORD));
                }
            }
            at = next;
        }
        if at != self.top {
            return None;
        }
        let mut free = HashSet::new();
        for cache in caches {
            for list in 0..CACHE_LISTS {
                let first = reader.word(cache + 2 * CACHE_LISTS + WORD * list)?;
                follow(memory, first, 0, &mut free);
            }
        }
        for list in 0..FAST_LISTS {
            let first = reader.word(self.fast + WORD * list)?;
            follow(memory, first, HEAD, &mut free);
        }
        in_use.retain(|(start, _)| !free.contains(start));
        Some(Walked { early: in_use, placed })
    }
}

/// Is it a thread's cache, and no other block of this size? The lists with a count, and no others, have a first chunk.
fn is_cache(memory: &dyn Memory, start: u64) -> bool {
    let mut counts = [0; 128];
    if memory.read(start, &mut counts) < counts.len() {
        return false;
    }
    let lists = start + 2 * CACHE_LISTS;
    let mut reader = Reader::new(memory);
    let (counts, _) = counts.as_chunks::<2>();
    (0..).zip(counts).all(|(list, count)| {
        let first = reader.word(lists + WORD * list);
        first.is_some_and(|first| (first == 0) == (*count == [0; 2]))
    })
}

/// Is it the C library? Only its data has lists of free chunks.
pub(crate) fn is_libc(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_version = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    name.starts_with("libc.so") || name.strip_prefix("libc-").is_some_and(is_version)
}

/// Collects the starts of the chunks on a list. Links point at chunks, or, with `to_link` 0, after their heads.
fn follow(memory: &dyn Memory, first: u64, to_link: u64, free: &mut HashSet<u64>) {
    let mut reader = Reader::new(memory);
    let mut at = first;
    for _ in 0..LONGEST_LIST {
        let start = at.wrapping_add(to_link);
        if at == 0 || !free.insert(start) {
            return;
        }
        let Some(link) = reader.word(start) else { return };
        at = link ^ (start >> 12);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::parse_maps;
    use crate::maps::tests::Image;

    fn data(lists: u64) -> Image {
        let mut image = Image::default();
        for at in (0x2_1000..0x2_4000_u64).step_by(8) {
            image.put(at, &[0]);
        }
        for list in 0..127 {
            let at = lists + 16 * list;
            image.put(at, &[at - 16, at - 16]);
        }
        image
    }

    #[test]
    fn lists_of_free_chunks_are_found() {
        let none = data(0x9_0000);
        assert_eq!(free_lists(&none, 0x2_1000..0x2_4000), None);
        let lists = 0x2_2000;
        let mut image = data(lists);
        image.put(lists, &[0x9_9990, 0x9_9990]);
        let found = free_lists(&image, 0x2_1000..0x2_4000).unwrap().range;
        assert!(found.start <= lists - 0x70 && found.end >= lists + 254 * 8, "{found:x?}");
        assert!(found.start > 0x2_1e00 && found.end < 0x2_2a00, "{found:x?}");
    }

    /// A heap at 0x50000: a thread's cache with one free chunk on a list of two, a chunk that the agent knows, an
    /// early one, a free one, one on a fast list, an early one, an early one as large as a cache, the top.
    #[test]
    fn chunks_in_use_that_the_agent_does_not_know_are_blocks() {
        let maps = parse_maps("21000-24000 rw-p 0 0:0 7 /lib/libc.so.6\n50000-51000 rw-p 0 0:0 0 [heap]\n");
        let lists = 0x2_2000;
        let mut image = data(lists);
        for at in (0x5_0000..0x5_1000_u64).step_by(8) {
            image.put(at, &[0]);
        }
        let mut at = 0x5_0000;
        let mut starts = Vec::new();
        for (size, before_in_use) in [
            (0x290, 1),
            (0x20, 1),
            (0x30, 1),
            (0x40, 1),
            (0x50, 1),
            (0x20, 0),
            (0x20, 1),
            (0x60, 1),
            (0x290, 1),
        ] {
            image.put(at + 8, &[size | before_in_use]);
            starts.push(at + 16);
            at += size;
        }
        image.put(at + 8, &[(0x5_1000 - at) | 1]);
        let [cache, known, early, cached, _free, fast, first_cached, last, large] = starts[..] else {
            panic!()
        };
        image.put(cache, &[2]);
        image.put(cache + 128, &[first_cached]);
        image.put(large, &[0x7_0000, 0x7_0010]);
        image.put(first_cached, &[cached ^ (first_cached >> 12)]);
        image.put(cached, &[cached >> 12]);
        image.put(lists - 0x60, &[fast - 16]);
        image.put(fast, &[fast >> 12]);
        image.put(lists - 0x10, &[at]);
        let mut blocks = vec![(known, 20, 7)];
        add_early(&image, &maps, &mut blocks, &HashMap::new());
        assert_eq!(blocks, [(known, 20, 7), (early, 0x28, 0), (last, 0x58, 0), (large, 0x288, 0)]);
        // Of two blocks it is not known in which half of their granules they begin.
        let mut blocks = vec![(early - HALF, 40 + HALF, 8), (known, 20 + HALF, 7)];
        let doubtful = HashMap::from([(early - HALF, 0), (known, 1)]);
        add_early(&image, &maps, &mut blocks, &doubtful);
        assert_eq!(blocks, [(early, 40, 8), (known, 20, 7), (last, 0x58, 0), (large, 0x288, 0)]);
        // With one invalid size, nothing is trusted.
        image.put(early - 8, &[0x31_0001]);
        let mut blocks = Vec::new();
        add_early(&image, &maps, &mut blocks, &HashMap::new());
        assert_eq!(blocks, []);
    }
}
