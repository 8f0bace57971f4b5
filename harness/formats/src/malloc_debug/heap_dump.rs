//! Parses native heap dumps in text form, v1.0 to v1.2: `am dumpheap -n`, malloc_debug's signal 47, its dump on exit.
//!
//! ```text
//! Android Native Heap Dump v1.2
//! (blank)
//! Build fingerprint: 'google/...'          v1.2 only, with a blank line after it
//! (blank)
//! Total memory: 450
//! Allocation records: 2
//! WARNING: mismatched backtrace sizes (…)  v1.0, rarely
//! Backtrace size: 16                       not before Android 7
//! (blank)
//! z 0  sz       50  num    1  bt a100 b200
//! z 1  sz      200  num    2  bt           a stack may be empty
//!   bt_info {"/data/x.so" a000 "f(int)" 0} …  v1.2 with backtrace_full, of the record before
//! MAPS
//! a000-b000 r-xp 00000000 fd:00 1234   /system/lib64/libc.so
//! END
//! ```
//! Program counters are padded with zeros up to v1.1. Names in `bt_info` are not escaped: they end at a quote that a
//! number and a brace follow.

use super::aggregate::{Num, TooMuch, Written, aggregate};
use super::maps::{hex, mapping};
use super::{Format, Maps, NamedFrame, Oddity, Record, Snapshot};
use crate::lines::{Lines, excerpt, text};

const TITLE: &[u8] = b"Android Native Heap Dump v";
const NOT_AVAILABLE: &[u8] = b"Native heap dump not available";

/// Why a heap dump cannot be read, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct HeapDumpError {
    /// From 1; the line after the last one if something is missing.
    pub line: u64,
    /// What is wrong.
    pub problem: HeapDumpProblem,
}

/// What is wrong with a heap dump.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeapDumpProblem {
    /// The process ran without malloc_debug.
    #[error("nothing was measured: the process ran without malloc_debug's `backtrace`")]
    NotEnabled,
    /// Another file, or a future version.
    #[error("this is no native heap dump of version 1.0, 1.1 or 1.2: `{0}`")]
    Title(String),
    /// An unexpected line.
    #[error("expected {expected}, found `{found}`")]
    Unexpected {
        /// What was expected.
        expected: &'static str,
        /// The beginning of the line that was found.
        found: String,
    },
    /// The file stops before its end.
    #[error("the dump is cut off: it has no `{0}`")]
    CutOff(&'static str),
    /// Lines are missing or too many.
    #[error("the header tells of {told} records, there are {found}")]
    Records {
        /// As the header says.
        told: u64,
        /// As counted.
        found: u64,
    },
    /// More bytes than 64 bits can count.
    #[error("the records add up to more than 2^64 bytes")]
    TooMuch,
}

use HeapDumpProblem as Problem;

/// Does this begin like a heap dump, or like the text that replaces one?
#[must_use]
pub fn is_heap_dump(bytes: &[u8]) -> bool {
    bytes.starts_with(TITLE) || bytes.starts_with(NOT_AVAILABLE)
}

/// Reads a heap dump.
///
/// # Errors
/// [`HeapDumpError`] with the line.
pub fn read_heap_dump(bytes: &[u8]) -> Result<Snapshot, HeapDumpError> {
    let mut reader = Reader { lines: Lines::of(bytes), number: 0 };
    let (written, told) = reader.dump().map_err(|problem| reader.at(problem))?;
    let found = written.records.len() as u64;
    if told != found {
        return Err(reader.at(Problem::Records { told, found }));
    }
    aggregate(written).map_err(|TooMuch| reader.at(Problem::TooMuch))
}

struct Reader<'a> {
    lines: Lines<'a>,
    number: u64,
}

/// The lines before the records.
#[derive(Default)]
struct Header {
    build_fingerprint: Option<String>,
    total: Option<u64>,
    records: Option<u64>,
    backtrace_size: Option<u64>,
    oddities: Vec<Oddity>,
}

impl<'a> Reader<'a> {
    const fn at(&self, problem: Problem) -> HeapDumpError {
        HeapDumpError { line: self.number, problem }
    }

    fn next(&mut self) -> Option<&'a [u8]> {
        let next = self.lines.next();
        self.number = next.map_or(self.number.saturating_add(1), |(number, _)| number);
        next.map(|(_, line)| line)
    }

    /// Reads all of it; also returns how many records the header announces.
    fn dump(&mut self) -> Result<(Written, u64), Problem> {
        let format = self.title()?;
        let (header, mut line) = self.header()?;
        let mut records = Vec::new();
        while line != b"MAPS" {
            record_line(line, &mut records)?;
            line = self.next().ok_or(Problem::CutOff("MAPS"))?;
        }
        let Header { build_fingerprint, total, records: told, backtrace_size, mut oddities } = header;
        let maps = self.maps(&mut oddities)?;
        let num = if format == Format::HeapDump10 { Num::Doubtful } else { Num::Counts };
        let told = told.ok_or(Problem::CutOff("Allocation records"))?;
        let written = Written {
            format,
            records,
            num,
            stated_total: total,
            backtrace_size,
            build_fingerprint,
            maps,
            oddities,
        };
        Ok((written, told))
    }

    fn title(&mut self) -> Result<Format, Problem> {
        let line = self.next().unwrap_or_default();
        if line.starts_with(NOT_AVAILABLE) {
            return Err(Problem::NotEnabled);
        }
        match line.strip_prefix(TITLE) {
            Some(b"1.0") => Ok(Format::HeapDump10),
            Some(b"1.1") => Ok(Format::HeapDump11),
            Some(b"1.2") => Ok(Format::HeapDump12),
            _ => Err(Problem::Title(excerpt(line))),
        }
    }

    /// The header, and the first line after it: a record, or `MAPS`.
    fn header(&mut self) -> Result<(Header, &'a [u8]), Problem> {
        let mut header = Header::default();
        loop {
            let line = self.next().ok_or(Problem::CutOff("MAPS"))?;
            if line.is_empty() {
                continue;
            }
            if line == b"MAPS" || line.starts_with(b"z ") {
                header.total.ok_or(Problem::CutOff("Total memory"))?;
                return Ok((header, line));
            }
            let shown = text(line);
            if shown.starts_with("WARNING: mismatched backtrace sizes") {
                header.oddities.push(Oddity::MismatchedBacktraceSizes);
                continue;
            }
            let unexpected =
                || Problem::Unexpected { expected: "a line of the header", found: excerpt(line) };
            let (key, value) = shown.split_once(": ").ok_or_else(unexpected)?;
            let number = || value.trim_end().parse::<u64>().ok();
            let known = match key {
                "Build fingerprint" => {
                    header.build_fingerprint = Some(value.trim_matches('\'').to_owned());
                    true
                }
                "Total memory" => set(&mut header.total, number()),
                "Allocation records" => set(&mut header.records, number()),
                "Backtrace size" => set(&mut header.backtrace_size, number()),
                _ => false,
            };
            if !known {
                return Err(unexpected());
            }
        }
    }

    fn maps(&mut self, oddities: &mut Vec<Oddity>) -> Result<Maps, Problem> {
        let mut mappings = Vec::new();
        loop {
            match self.next().ok_or(Problem::CutOff("END"))? {
                b"END" => return Ok(Maps::new(mappings)),
                b"" => {}
                line if line.starts_with(b"Could not open") => oddities.push(Oddity::NoMaps),
                line => mappings.extend(mapping(line).map_err(|()| Problem::Unexpected {
                    expected: "a mapping or END",
                    found: excerpt(line),
                })?),
            }
        }
    }
}

/// Sets a value that is not set yet. A second value contradicts the first.
fn set(slot: &mut Option<u64>, value: Option<u64>) -> bool {
    let fits = slot.is_none() && value.is_some();
    if fits {
        *slot = value;
    }
    fits
}

fn record_line(line: &[u8], records: &mut Vec<Record>) -> Result<(), Problem> {
    let unexpected =
        || Problem::Unexpected { expected: "an allocation record or MAPS", found: excerpt(line) };
    let shown = text(line);
    if let Some(info) = shown.trim_start().strip_prefix("bt_info") {
        let last = records.last_mut().filter(|last| last.named.is_empty()).ok_or_else(unexpected)?;
        last.named = bt_info(info).ok_or_else(unexpected)?;
        return Ok(());
    }
    records.push(record(&shown).ok_or_else(unexpected)?);
    Ok(())
}

fn record(line: &str) -> Option<Record> {
    let mut words = line.split_ascii_whitespace();
    let mut after = |name: &str| if words.next() == Some(name) { words.next() } else { None };
    let zygote_child = match after("z")? {
        "0" => false,
        "1" => true,
        _ => return None,
    };
    let (size, count) = (after("sz")?.parse().ok()?, after("num")?.parse().ok()?);
    if words.next() != Some("bt") {
        return None;
    }
    let frames = words.map(hex).collect::<Option<Vec<u64>>>()?;
    Some(Record { zygote_child, size, count, frames, named: Vec::new() })
}

/// `{"MAP" RELATIVE_PC "FUNCTION" OFFSET} …`
fn bt_info(mut rest: &str) -> Option<Vec<NamedFrame>> {
    let mut frames = Vec::new();
    loop {
        rest = rest.trim_start_matches(' ');
        if rest.is_empty() {
            return Some(frames);
        }
        let (map, relative_pc, behind) = quoted(rest.strip_prefix("{\"")?, " \"")?;
        let (function, offset, behind) = quoted(behind, "}")?;
        frames.push(NamedFrame { map: map.to_owned(), relative_pc, function: function.to_owned(), offset });
        rest = behind;
    }
}

/// Parses `NAME" HEX`; also returns the text after `end`. The name may contain quotes itself.
fn quoted<'a>(text: &'a str, end: &str) -> Option<(&'a str, u64, &'a str)> {
    text.match_indices("\" ").find_map(|(at, quote)| {
        let (name, behind) = (text.get(..at)?, text.get(at.checked_add(quote.len())?..)?);
        let digits = behind.bytes().take(17).take_while(u8::is_ascii_hexdigit).count();
        let number = hex(behind.get(..digits)?)?;
        Some((name, number, behind.get(digits..)?.strip_prefix(end)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V12: &str = "Android Native Heap Dump v1.2\n\nBuild fingerprint: 'google/x/y:14/Z/1:userdebug/dev-keys'\n\n\
        Total memory: 650\nAllocation records: 4\nBacktrace size: 16\n\n\
        z 0  sz       50  num    1  bt a100 b200\n\
        z 1  sz      200  num    1  bt 500 600\n  bt_info {\"/data/fake so\" a000 \"operator\"\" _x(a, b{})\" 0} {\"\" b000 \"\" a}\n\
        z 1  sz      200  num    1  bt 500 600\n\
        z 1  sz      200  num    1  bt 7a3f24b1c8\n\
        MAPS\n7a3f200000-7a3f280000 r-xp 00001000 fd:00 1234   /system/lib64/libc.so\nEND\n";

    fn read(text: &str) -> Result<Snapshot, String> {
        read_heap_dump(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn version_1_2_with_names_and_duplicates() {
        for text in [V12.to_owned(), V12.replace('\n', "\r\n"), V12.trim_end().to_owned()] {
            let read = read(&text).unwrap();
            assert_eq!(read.format, Format::HeapDump12);
            assert_eq!(read.build_fingerprint.as_deref(), Some("google/x/y:14/Z/1:userdebug/dev-keys"));
            assert_eq!((read.total_bytes, read.total_count, read.backtrace_size), (650, 4, Some(16)));
            let counts: Vec<_> = read.records.iter().map(|r| (r.zygote_child, r.size, r.count)).collect();
            assert_eq!(counts, [(true, 200, 2), (true, 200, 1), (false, 50, 1)]);
            let named = &read.records[0].named;
            assert_eq!(
                (named[0].map.as_str(), named[0].function.as_str()),
                ("/data/fake so", "operator\"\" _x(a, b{})")
            );
            assert_eq!((named[1].relative_pc, named[1].function.as_str(), named[1].offset), (0xb000, "", 10));
            let place = read.maps.place(read.records[1].frames[0]).unwrap();
            assert_eq!((place.name, place.offset), ("/system/lib64/libc.so", 0x4b1c8 + 0x1000));
            assert_eq!(
                read.oddities.iter().map(Oddity::kind).collect::<Vec<_>>(),
                ["duplicates", "anonymous_frames"]
            );
        }
    }

    #[test]
    fn version_1_0_of_android_6_has_no_backtrace_size_and_of_android_7_no_count() {
        let dump = |num, total, size: &str| {
            format!(
                "Android Native Heap Dump v1.0\n\nTotal memory: {total}\nAllocation records: 2\n{size}\n\
                 z 0  sz      100  num    {num}  bt 0000a100 0000b200\nz 0  sz      100  num    {num}  bt 0000a100 0000b200\nMAPS\nEND\n"
            )
        };
        let old = read(&dump(3, 600, "")).unwrap();
        assert_eq!(
            (old.records[0].count, old.backtrace_size),
            (6, None),
            "counts that fit the total are believed"
        );
        let depth = read(&dump(2, 200, "Backtrace size: 16\n")).unwrap();
        assert_eq!(depth.records[0].count, 2, "two records of one allocation each");
        assert!(depth.oddities.contains(&Oddity::NumIsNoCount));
        let limit =
            read(&dump(16, 7, "WARNING: mismatched backtrace sizes (4 vs. 16)\nBacktrace size: 16\n"))
                .unwrap();
        let kinds: Vec<_> = limit.oddities.iter().map(Oddity::kind).collect();
        assert_eq!(kinds, ["mismatched_backtrace_sizes", "num_is_no_count", "duplicates", "total_differs"]);
    }

    #[test]
    fn a_dump_that_is_cut_anywhere_is_refused() {
        let end = V12.find("END").unwrap() + 3;
        for cut in 0..end {
            assert!(read(&V12[..cut]).is_err(), "cut at {cut}: {}", &V12[..cut]);
        }
        assert_eq!(read(&V12[..end - 3]).unwrap_err(), "line 16: the dump is cut off: it has no `END`");
    }

    #[test]
    fn what_stands_in_for_a_dump_is_no_empty_heap() {
        let error = read(
            "Native heap dump not available. To enable, run these commands (requires root):\n# adb shell stop\n",
        );
        assert!(error.unwrap_err().contains("nothing was measured"));
        assert!(is_heap_dump(b"Native heap dump not available. To"));
        assert!(
            read("Android Native Heap Dump v2.0\n")
                .unwrap_err()
                .contains("no native heap dump of version 1.0")
        );
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (from, to, want) in [
            ("Allocation records: 4", "Allocation records: 5", "tells of 5 records, there are 4"),
            (
                "Total memory: 650",
                "Total memory: x",
                "line 5: expected a line of the header, found `Total memory: x`",
            ),
            (
                "Total memory: 650",
                "Total memory: 1\nTotal memory: 2",
                "line 6: expected a line of the header",
            ),
            ("Total memory: 650\n", "", "it has no `Total memory`"),
            ("Allocation records: 4\n", "", "it has no `Allocation records`"),
            ("z 0  sz       50", "z 2  sz       50", "line 9: expected an allocation record or MAPS"),
            ("bt a100 b200", "bt a100 b20g", "line 9: "),
            ("sz       50", "sz 18446744073709551616", "line 9: "),
            ("sz       50  num    1", "sz 18446744073709551615  num 2", "more than 2^64"),
            ("\" a}", "\" a", "line 11: "),
            ("MAPS\n", "MAPS\nnonsense\n", "line 15: expected a mapping or END, found `nonsense`"),
        ] {
            let error = read(&V12.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(want), "{to:?}: {error}");
        }
    }

    #[test]
    fn a_process_that_cannot_read_its_maps_says_so() {
        let text = V12.replace(
            "7a3f200000-7a3f280000 r-xp 00001000 fd:00 1234   /system/lib64/libc.so",
            "Could not open /proc/self/maps",
        );
        assert!(read(&text).unwrap().oddities.contains(&Oddity::NoMaps));
    }
}
