//! `/proc/PID/maps` in a heap dump: which file contains an address.

use crate::lines::text;

/// One mapping of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Offset of `start` in the file.
    pub offset: u64,
    /// The file, or a name in brackets.
    pub name: String,
}

/// The named mappings of a process, by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Maps(Vec<Mapping>);

/// An address within a mapped file. It is the same in two processes even if the address is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place<'a> {
    /// The file.
    pub name: &'a str,
    /// Offset in the file: computed per mapping, so that it is correct for a library in several pieces.
    pub offset: u64,
}

impl Maps {
    pub(super) fn new(mut mappings: Vec<Mapping>) -> Self {
        mappings.sort_by_key(|mapping| mapping.start);
        Self(mappings)
    }

    /// The mapping that contains an address.
    #[must_use]
    pub fn mapping(&self, pc: u64) -> Option<&Mapping> {
        let behind = self.0.partition_point(|mapping| mapping.start <= pc);
        self.0.get(behind.checked_sub(1)?).filter(|mapping| pc < mapping.end)
    }

    /// The place of an address.
    #[must_use]
    pub fn place(&self, pc: u64) -> Option<Place<'_>> {
        let mapping = self.mapping(pc)?;
        Some(Place {
            name: &mapping.name,
            offset: pc.checked_sub(mapping.start)?.checked_add(mapping.offset)?,
        })
    }

    /// Are there no mappings?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by address.
    pub fn iter(&self) -> impl Iterator<Item = &Mapping> {
        self.0.iter()
    }
}

/// Parses one line; `Ok(None)` for memory without a name.
pub(super) fn mapping(line: &[u8]) -> Result<Option<Mapping>, ()> {
    let line = text(line);
    let (range, rest) = line.split_once(' ').ok_or(())?;
    let (start, end) = range.split_once('-').ok_or(())?;
    let number = |digits: &str| hex(digits).ok_or(());
    let mut rest = rest;
    let mut field = || -> Result<&str, ()> {
        let (field, behind) =
            rest.trim_start_matches(' ').split_once(' ').unwrap_or((rest.trim_start_matches(' '), ""));
        rest = behind;
        if field.is_empty() { Err(()) } else { Ok(field) }
    };
    let (_permissions, offset) = (field()?, field()?);
    let (_device, _inode) = (field()?, field()?);
    let (start, end, offset) = (number(start)?, number(end)?, number(offset)?);
    if start > end {
        return Err(());
    }
    let name = rest.trim_matches(' ');
    Ok((!name.is_empty()).then(|| Mapping { start, end, offset, name: name.to_owned() }))
}

/// Only hexadecimal digits: no sign, no prefix.
pub(super) fn hex(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps(lines: &[&str]) -> Maps {
        Maps::new(lines.iter().filter_map(|line| mapping(line.as_bytes()).unwrap()).collect())
    }

    #[test]
    fn the_offset_of_the_mapping_counts_and_nameless_memory_is_none() {
        let maps = maps(&[
            "b000-f000 r-xp 0000b000 00:00 0           /lib/b.so",
            "a000-b000 r--p 00000000 fd:00 7                          /data/a b.so (deleted)",
            "f000-10000 rw-p 00000000 00:00 0 ",
        ]);
        assert_eq!(maps.place(0xb010), Some(Place { name: "/lib/b.so", offset: 0xb010 }));
        assert_eq!(maps.place(0xaff0), Some(Place { name: "/data/a b.so (deleted)", offset: 0xff0 }));
        for nowhere in [0, 0x9fff, 0xf000, u64::MAX] {
            assert_eq!(maps.place(nowhere), None, "{nowhere:x}");
        }
    }

    #[test]
    fn a_line_that_is_none_is_refused() {
        for line in [
            "",
            "a000",
            "a000-b000",
            "a000-b000 r--p",
            "b000-a000 r--p 0 0 0 x",
            "a-+b r--p 0 0:0 0 x",
            "zz-zz r 0 0 0",
        ] {
            assert_eq!(mapping(line.as_bytes()), Err(()), "{line:?}");
        }
    }
}
