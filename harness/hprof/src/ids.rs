//! Converts the id of an object (its address) to its rank (the number of objects with smaller addresses), and back.
//!
//! Data flow: ids in any order → [`Marks`], one bit for each address an object can have, in pages of 1 MiB of addresses
//! → [`Ids`], the pages in order with a count every 512 bits. No id is stored and nothing is sorted: 0.8 bytes for each
//! object of a usual heap. If the ids are so far apart that pages would be mostly empty, a sorted list is used instead.

use std::collections::HashMap;

/// No object.
pub const NONE: u32 = u32::MAX;
/// Ranks are smaller than this: larger numbers have other meanings in the graph.
pub(crate) const MOST: u64 = 0xFFFF_FF00;

/// Bits of addresses in a page.
const PAGE: u32 = 20;
/// Pages may take this many bytes before they must be filled.
const FREE_BYTES: usize = 16 << 20;
/// Bytes of pages for each object.
const BYTES_PER_OBJECT: usize = 16;
/// The directory of pages is a table if it has at most this many entries per page.
const SPREAD: u64 = 64;

pub(crate) const fn index(rank: u32) -> usize {
    rank as usize
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "what is numbered is fewer than MOST, which is checked once"
)]
pub(crate) const fn number(index: usize) -> u32 {
    index as u32
}

/// Collects ids while they are read.
#[derive(Debug)]
pub(crate) struct Marks {
    /// Number of lowest bits of an id that are always 0.
    shift: u32,
    directory: HashMap<u64, u32>,
    pages: Vec<u64>,
    words: Vec<u64>,
    last: (u64, u32),
    /// Used instead of pages.
    sparse: Option<Vec<u64>>,
    count: u64,
}

impl Marks {
    pub(crate) fn new(id_bytes: usize) -> Self {
        Self {
            // HotSpot aligns objects to 8 bytes; Android's ids may lie between such addresses.
            shift: if id_bytes == 8 { 3 } else { 0 },
            directory: HashMap::new(),
            pages: Vec::new(),
            words: Vec::new(),
            last: (u64::MAX, 0),
            sparse: None,
            count: 0,
        }
    }

    const fn words_per_page(&self) -> usize {
        1 << (PAGE - self.shift - 6)
    }

    /// Returns whether the id is new, as far as this is known already.
    #[inline]
    pub(crate) fn mark(&mut self, id: u64) -> bool {
        if id & ((1 << self.shift) - 1) != 0 {
            self.refine();
        }
        let page = id >> PAGE;
        if page != self.last.0 && !self.turn(page) {
            self.count += 1;
            self.sparse.get_or_insert_default().push(id);
            return true;
        }
        let bit = (id & ((1 << PAGE) - 1)) >> self.shift;
        let word = index(self.last.1) * self.words_per_page() + index(number((bit >> 6) as usize));
        let mask = 1 << (bit & 63);
        let new = self.words[word] & mask == 0;
        self.words[word] |= mask;
        self.count += u64::from(new);
        new
    }

    /// Returns `false` if there are no pages.
    #[cold]
    fn turn(&mut self, page: u64) -> bool {
        if self.sparse.is_some() {
            return false;
        }
        let new = number(self.pages.len());
        let found = self.directory.get(&page).copied();
        if found.is_none() {
            let bytes = (self.words.len() + self.words_per_page()) * 8;
            let allowed = FREE_BYTES as u64 + self.count * BYTES_PER_OBJECT as u64;
            if bytes as u64 > allowed {
                let mut all = Vec::new();
                self.each(|id| all.push(id));
                self.sparse = Some(all);
                self.directory = HashMap::new();
                (self.pages, self.words, self.last) = (Vec::new(), Vec::new(), (u64::MAX, 0));
                return false;
            }
            self.directory.insert(page, new);
            self.pages.push(page);
            self.words.resize(self.words.len() + self.words_per_page(), 0);
        }
        self.last = (page, found.unwrap_or(new));
        true
    }

    fn each(&self, mut told: impl FnMut(u64)) {
        for (page, words) in self.pages.iter().zip(self.words.chunks(self.words_per_page())) {
            for (at, word) in words.iter().enumerate() {
                let mut left = *word;
                while left != 0 {
                    let bit = (at as u64) << 6 | u64::from(left.trailing_zeros());
                    told((page << PAGE) + (bit << self.shift));
                    left &= left - 1;
                }
            }
        }
    }

    /// An id occurred that the alignment had excluded.
    #[cold]
    fn refine(&mut self) {
        if self.sparse.is_some() {
            self.shift = 0;
            return;
        }
        let mut finer = Self::new(4);
        self.each(|id| {
            finer.mark(id);
        });
        *self = finer;
    }

    /// Returns the ids, and how many repeated ids were not recognised before; `None` if there are more ids than can be
    /// numbered.
    pub(crate) fn seal(self) -> Option<(Ids, u64)> {
        if let Some(mut all) = self.sparse {
            all.sort_unstable();
            let before = all.len() as u64;
            all.dedup();
            let count = all.len() as u64;
            let ids = Ids::Sparse(all);
            return (count <= MOST).then_some((ids, before - count));
        }
        if self.count > MOST {
            return None;
        }
        let per_page = self.words_per_page();
        let mut order: Vec<usize> = (0..self.pages.len()).collect();
        order.sort_unstable_by_key(|page| self.pages[*page]);
        let mut words = Vec::with_capacity(self.words.len());
        for page in &order {
            words.extend_from_slice(&self.words[page * per_page..(page + 1) * per_page]);
        }
        let pages: Vec<u64> = order.iter().map(|page| self.pages[*page]).collect();
        let mut ranks = Vec::with_capacity(words.len() / 8 + 1);
        let mut count = 0;
        for eight in words.chunks(8) {
            ranks.push(count);
            count += eight.iter().map(|word| word.count_ones()).sum::<u32>();
        }
        let low = pages.first().copied().unwrap_or(0);
        let span = pages.last().map_or(0, |high| high - low + 1);
        let mut table = Vec::new();
        if span <= SPREAD * pages.len() as u64 {
            table = vec![NONE; usize::try_from(span).ok()?];
            for (at, page) in pages.iter().enumerate() {
                table[usize::try_from(page - low).ok()?] = number(at);
            }
        }
        Some((Ids::Dense(Dense { shift: self.shift, low, table, pages, words, ranks, count }), 0))
    }
}

/// All ids.
#[derive(Debug)]
pub enum Ids {
    /// As bits.
    Dense(Dense),
    /// As a sorted list.
    Sparse(Vec<u64>),
}

/// Bits of pages.
#[derive(Debug)]
pub struct Dense {
    shift: u32,
    low: u64,
    /// Page to its position, or empty.
    table: Vec<u32>,
    pages: Vec<u64>,
    words: Vec<u64>,
    ranks: Vec<u32>,
    count: u32,
}

impl Ids {
    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Dense(dense) => index(dense.count),
            Self::Sparse(all) => all.len(),
        }
    }

    /// Is there no object?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of objects below `id`; [`NONE`]: there is no such object.
    #[must_use]
    #[inline]
    pub fn rank(&self, id: u64) -> u32 {
        match self {
            Self::Dense(dense) => dense.rank(id),
            Self::Sparse(all) => all.binary_search(&id).map_or(NONE, number),
        }
    }

    /// The id of an object.
    #[must_use]
    pub fn id(&self, rank: u32) -> u64 {
        match self {
            Self::Dense(dense) => dense.id(rank),
            Self::Sparse(all) => all.get(index(rank)).copied().unwrap_or(0),
        }
    }
}

impl Dense {
    const fn words_per_page(&self) -> usize {
        1 << (PAGE - self.shift - 6)
    }

    #[inline]
    fn rank(&self, id: u64) -> u32 {
        let page = id >> PAGE;
        let place = if self.table.is_empty() {
            self.pages.binary_search(&page).map_or(NONE, number)
        } else {
            let at = usize::try_from(page.wrapping_sub(self.low)).unwrap_or(usize::MAX);
            self.table.get(at).copied().unwrap_or(NONE)
        };
        if place == NONE || id & ((1 << self.shift) - 1) != 0 {
            return NONE;
        }
        let bit = (id & ((1 << PAGE) - 1)) >> self.shift;
        let at = index(place) * self.words_per_page() + index(number((bit >> 6) as usize));
        let word = self.words[at];
        let mask = 1 << (bit & 63);
        if word & mask == 0 {
            return NONE;
        }
        let before: u32 = self.words[at & !7..at].iter().map(|word| word.count_ones()).sum();
        self.ranks[at >> 3] + before + (word & (mask - 1)).count_ones()
    }

    fn id(&self, rank: u32) -> u64 {
        let eight = self.ranks.partition_point(|first| *first <= rank).saturating_sub(1);
        let mut left = rank - self.ranks[eight];
        for at in eight * 8..self.words.len() {
            let mut word = self.words[at];
            if left >= word.count_ones() {
                left -= word.count_ones();
                continue;
            }
            for _ in 0..left {
                word &= word - 1;
            }
            let bit = (at % self.words_per_page()) as u64 * 64 + u64::from(word.trailing_zeros());
            return (self.pages[at / self.words_per_page()] << PAGE) + (bit << self.shift);
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(id_bytes: usize, ids: &[u64]) -> Ids {
        let mut marks = Marks::new(id_bytes);
        for id in ids {
            marks.mark(*id);
        }
        let (sealed, _) = marks.seal().unwrap();
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sealed.len(), sorted.len());
        for (rank, id) in sorted.iter().enumerate() {
            assert_eq!(sealed.rank(*id), number(rank), "{id:x}");
            assert_eq!(sealed.id(number(rank)), *id);
            for near in [id.wrapping_sub(1), id.wrapping_add(1), id.wrapping_add(1 << 30)] {
                if sorted.binary_search(&near).is_err() {
                    assert_eq!(sealed.rank(near), NONE, "{near:x}");
                }
            }
        }
        sealed
    }

    #[test]
    fn ids_in_any_order_get_ranks_in_the_order_of_addresses() {
        holds(4, &[7, 3, 0x7fff_ffff, 0xffff_ffff, 8, 0x10_0000]);
        holds(8, &[0x7_0000_0008, 0x7_0000_0000, 0x7_0010_0000, 16, 8]);
        holds(8, &[]);
    }

    #[test]
    fn ids_between_aligned_addresses_are_told_apart() {
        holds(8, &[0x7_0000_0008, 0x7_0000_0010, 0x7_0000_0011, 0x7_0000_0012]);
    }

    #[test]
    fn ids_far_apart_take_no_page_each() {
        let far: Vec<u64> = (0..20_000).map(|n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) & !7).collect();
        assert!(matches!(holds(8, &far), Ids::Sparse(_)));
        let near: Vec<u64> = (0..20_000).map(|n| 0x7000_0000 + n * 24).collect();
        assert!(matches!(holds(8, &near), Ids::Dense(_)));
    }

    #[test]
    fn an_id_that_comes_twice_is_one_object() {
        let mut marks = Marks::new(8);
        assert!(marks.mark(64) && !marks.mark(64));
        assert_eq!(marks.seal().unwrap().0.len(), 1);
    }
}
