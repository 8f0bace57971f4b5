//! `/proc/PID/maps`.

use std::ops::Range;

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub range: Range<u64>,
    /// Can it be read and written?
    pub writable: bool,
    /// Can it be executed?
    pub executable: bool,
    /// Is it shared with others?
    pub shared: bool,
    /// File, or the kernel's name; empty: neither.
    pub name: String,
    /// Is it mapped from a file?
    pub of_file: bool,
}

/// Parses the text of such a file. Invalid lines are skipped.
#[must_use]
pub fn parse_maps(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let rights = fields.next()?.as_bytes();
    let (_offset, _device, inode) = (fields.next()?, fields.next()?, fields.next()?);
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        range: address(start)?..address(end)?,
        writable: rights.starts_with(b"rw"),
        executable: rights.get(2) == Some(&b'x'),
        shared: rights.get(3) == Some(&b's'),
        name: fields.next().unwrap_or_default().trim_start().to_owned(),
        of_file: inode != "0",
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::memory::Memory;

    /// Memory of single words, with gaps between them.
    #[derive(Default)]
    pub(crate) struct Image(BTreeMap<u64, u64>);

    impl Image {
        pub(crate) fn put(&mut self, at: u64, words: &[u64]) {
            self.0.extend(words.iter().enumerate().map(|(i, word)| (at + 8 * i as u64, *word)));
        }
    }

    impl Memory for Image {
        fn read(&self, at: u64, into: &mut [u8]) -> usize {
            let mut read = 0;
            for (i, byte) in into.iter_mut().enumerate() {
                let address = at + i as u64;
                let Some(word) = self.0.get(&(address & !7)) else { break };
                *byte = word.to_le_bytes()[(address & 7) as usize];
                read += 1;
            }
            read
        }
    }

    #[test]
    fn mappings_have_rights_and_names_with_spaces() {
        let text = "55d0c0-55d0c8 rw-p 00002000 fe:01 42                         /tmp/a b (deleted)\n\
                    7f0000-7f1000 rw-s 00000000 00:00 0\n\
                    nonsense\n\
                    7ffc00-7ffd00 r-xp 00000000 00:00 0                          [vdso]\n";
        let maps = parse_maps(text);
        let told: Vec<_> =
            maps.iter().map(|m| (m.name.as_str(), m.writable, m.executable, m.shared, m.of_file)).collect();
        assert_eq!(
            told,
            [
                ("/tmp/a b (deleted)", true, false, false, true),
                ("", true, false, true, false),
                ("[vdso]", false, true, false, false)
            ]
        );
        assert_eq!(maps[0].range, 0x55_d0c0..0x55_d0c8);
    }
}
