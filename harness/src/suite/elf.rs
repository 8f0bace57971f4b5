//! Looks into an ELF file: how it is loaded, and whether GoogleTest is in it.
//!
//! | read | where | for |
//! |---|---|---|
//! | class, byte order, machine | file header | can the agent be loaded at all |
//! | `PT_INTERP` | program headers | static, glibc or musl |
//! | `DT_NEEDED` | `PT_DYNAMIC`, its string table found through `PT_LOAD` | a shared GoogleTest |
//! | symbol names | string tables (`SHT_STRTAB`), as text | a linked GoogleTest |
//! | the name of its flag | what is loaded and not executable, as text | a linked GoogleTest without symbols |
//!
//! The file may be hostile: every offset and count is checked or bounded, contents pass through a
//! small window, and whatever does not fit means "not found", never a failure. Little-endian only,
//! as the agent.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What an ELF file tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elf {
    /// How it is known that GoogleTest is in it.
    pub gtest: Option<Evidence>,
    /// How it is loaded.
    pub linkage: Linkage,
    /// Whether its class, byte order and machine are those of this build.
    pub native: bool,
}

/// How GoogleTest was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// It needs a shared `libgtest`.
    SharedLibrary,
    /// It has a symbol of GoogleTest.
    Symbol,
    /// Only its text shows it: the symbols were stripped, and a boundary needs the header of the C
    /// API.
    OnlyText,
}

/// How a binary is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Linkage {
    /// By the kernel alone: nothing can be preloaded.
    Static,
    /// By glibc's dynamic linker.
    Glibc,
    /// By musl's.
    Musl,
    /// By another.
    OtherInterpreter(String),
}

const SYMBOL: &[u8] = b"_ZN7testing8UnitTest11GetInstanceEv\0";
/// The help text of GoogleTest names its flags; the variants that only parse them do not.
const FLAG_IN_TEXT: &[u8] = b"gtest_list_tests";
const SHARED_LIBRARY: &[u8] = b"libgtest";

const HEADER_BYTES: u64 = 64;
/// More headers than this are not looked at.
const MAX_HEADERS: u64 = 4096;
/// More entries of the dynamic section than this are not looked at.
const MAX_DYNAMIC: u64 = 65_536;
const MAX_NAME_BYTES: usize = 4096;
const WINDOW_BYTES: usize = 64 << 10;

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const PF_X: u64 = 1;
const SHT_STRTAB: u64 = 3;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// A part of the file.
#[derive(Debug, Clone, Copy)]
struct Range {
    offset: u64,
    bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    kind: u64,
    executable: bool,
    address: u64,
    range: Range,
}

/// A file of one of the two classes.
struct Image<'a> {
    file: &'a File,
    length: u64,
    /// 64-bit.
    wide: bool,
}

impl Elf {
    /// Reads a file; `None`: it is no ELF file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(file: &File) -> io::Result<Option<Self>> {
        let mut start = [0; 20];
        if file.read_at(&mut start, 0)? < start.len() || !start.starts_with(b"\x7fELF") {
            return Ok(None);
        }
        let [_, _, _, _, class, order, ..] = start;
        let machine = u16::from_le_bytes([start[18], start[19]]);
        if order != 1 || !matches!(class, 1 | 2) {
            let linkage = Linkage::OtherInterpreter(String::new());
            return Ok(Some(Self { gtest: None, linkage, native: false }));
        }
        let image = Image { file, length: file.metadata()?.len(), wide: class == 2 };
        let segments = image.segments()?;
        let native = image.wide == cfg!(target_pointer_width = "64") && machine == native_machine();
        Ok(Some(Self { gtest: image.gtest(&segments)?, linkage: image.linkage(&segments)?, native }))
    }
}

impl Image<'_> {
    fn linkage(&self, segments: &[Segment]) -> io::Result<Linkage> {
        let Some(interpreter) = segments.iter().find(|s| s.kind == PT_INTERP) else {
            return Ok(Linkage::Static);
        };
        let path = self.text(interpreter.range.offset)?;
        let name = path.rsplit('/').next().unwrap_or_default();
        Ok(if name.starts_with("ld-linux") || name.starts_with("ld64.so") || name == "ld.so.1" {
            Linkage::Glibc
        } else if name.starts_with("ld-musl") {
            Linkage::Musl
        } else {
            Linkage::OtherInterpreter(path)
        })
    }

    fn gtest(&self, segments: &[Segment]) -> io::Result<Option<Evidence>> {
        if self.needs_shared_gtest(segments)? {
            return Ok(Some(Evidence::SharedLibrary));
        }
        for table in self.string_tables()? {
            if self.contains(table, SYMBOL)? {
                return Ok(Some(Evidence::Symbol));
            }
        }
        for segment in segments.iter().filter(|s| s.kind == PT_LOAD && !s.executable) {
            if self.contains(segment.range, FLAG_IN_TEXT)? {
                return Ok(Some(Evidence::OnlyText));
            }
        }
        Ok(None)
    }

    fn needs_shared_gtest(&self, segments: &[Segment]) -> io::Result<bool> {
        let Some(dynamic) = segments.iter().find(|s| s.kind == PT_DYNAMIC) else { return Ok(false) };
        let word = if self.wide { 8 } else { 4 };
        let entries = (dynamic.range.bytes / (2 * word)).min(MAX_DYNAMIC);
        let (mut needed, mut strings) = (Vec::new(), None);
        for i in 0..entries {
            let at = dynamic.range.offset.saturating_add(i * 2 * word);
            let (Some(tag), Some(value)) = (self.word(at)?, self.word(at.saturating_add(word))?) else {
                break;
            };
            match tag {
                DT_NULL => break,
                DT_NEEDED => needed.push(value),
                DT_STRTAB => strings = Some(value),
                _ => {}
            }
        }
        let Some(strings) = strings.and_then(|address| offset_of(segments, address)) else {
            return Ok(false);
        };
        for name in needed {
            if self.bytes(strings.saturating_add(name), SHARED_LIBRARY.len())? == SHARED_LIBRARY {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn segments(&self) -> io::Result<Vec<Segment>> {
        let (table, entry, count) = if self.wide { (32, 54, 56) } else { (28, 42, 44) };
        let mut segments = Vec::new();
        for at in self.entries(table, entry, count)? {
            let fields = if self.wide { [4, 8, 16, 32] } else { [24, 4, 8, 16] };
            let [flags, offset, address, bytes] = fields.map(|field| at.saturating_add(field));
            segments.push(Segment {
                kind: self.half_word(at)?,
                executable: self.half_word(flags)? & PF_X != 0,
                address: self.word(address)?.unwrap_or(0),
                range: self.range(offset, bytes)?,
            });
        }
        Ok(segments)
    }

    fn string_tables(&self) -> io::Result<Vec<Range>> {
        let (table, entry, count) = if self.wide { (40, 58, 60) } else { (32, 46, 48) };
        let mut tables = Vec::new();
        for at in self.entries(table, entry, count)? {
            if self.half_word(at.saturating_add(4))? == SHT_STRTAB {
                let (offset, bytes) = if self.wide { (24, 32) } else { (16, 20) };
                tables.push(self.range(at.saturating_add(offset), at.saturating_add(bytes))?);
            }
        }
        Ok(tables)
    }

    /// Offsets of the entries of a header table, from the fields of the file header that describe
    /// it.
    fn entries(&self, table: u64, entry_bytes: u64, count: u64) -> io::Result<Vec<u64>> {
        let table = self.word(table)?.unwrap_or(0);
        let (entry_bytes, count) = (self.short(entry_bytes)?, self.short(count)?);
        if table == 0 || entry_bytes == 0 {
            return Ok(Vec::new());
        }
        let inside = self.length.saturating_sub(table) / entry_bytes;
        Ok((0..count.min(inside).min(MAX_HEADERS)).map(|i| table + i * entry_bytes).collect())
    }

    /// The range whose offset and size are at these places, clipped to the file.
    fn range(&self, offset: u64, bytes: u64) -> io::Result<Range> {
        let offset = self.word(offset)?.unwrap_or(u64::MAX);
        let bytes = self.word(bytes)?.unwrap_or(0).min(self.length.saturating_sub(offset));
        Ok(Range { offset, bytes })
    }

    /// Whether `needle` is in the range, read through a small window.
    fn contains(&self, range: Range, needle: &[u8]) -> io::Result<bool> {
        let mut window = vec![0; WINDOW_BYTES];
        let end = range.offset.saturating_add(range.bytes);
        let (mut at, mut kept) = (range.offset, 0);
        while at < end {
            let room = usize::try_from(end - at).unwrap_or(usize::MAX).min(WINDOW_BYTES - kept);
            let got = self.file.read_at(window.get_mut(kept..kept + room).unwrap_or_default(), at)?;
            if got == 0 {
                return Ok(false);
            }
            let filled = kept + got;
            if holds(window.get(..filled).unwrap_or_default(), needle) {
                return Ok(true);
            }
            // A needle may lie across two windows.
            let keep = filled.min(needle.len().saturating_sub(1));
            window.copy_within(filled - keep..filled, 0);
            (at, kept) = (at + got as u64, keep);
        }
        Ok(false)
    }

    /// The text at `offset`, up to its NUL.
    fn text(&self, offset: u64) -> io::Result<String> {
        let bytes = self.bytes(offset, MAX_NAME_BYTES)?;
        let text = bytes.split(|b| *b == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// A word of the file's class.
    fn word(&self, offset: u64) -> io::Result<Option<u64>> {
        let bytes = self.bytes(offset, if self.wide { 8 } else { 4 })?;
        Ok(match *bytes.as_slice() {
            [a, b, c, d] => Some(u64::from(u32::from_le_bytes([a, b, c, d]))),
            [a, b, c, d, e, f, g, h] => Some(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            _ => None,
        })
    }

    fn half_word(&self, offset: u64) -> io::Result<u64> {
        let bytes = self.bytes(offset, 4)?;
        Ok(bytes.first_chunk().map_or(0, |b| u64::from(u32::from_le_bytes(*b))))
    }

    fn short(&self, offset: u64) -> io::Result<u64> {
        let bytes = self.bytes(offset, 2)?;
        Ok(bytes.first_chunk().map_or(0, |b| u64::from(u16::from_le_bytes(*b))))
    }

    /// Up to `count` bytes at `offset`: fewer at the end of the file, none behind it.
    fn bytes(&self, offset: u64, count: usize) -> io::Result<Vec<u8>> {
        if offset > self.length.max(HEADER_BYTES) {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; count];
        let got = self.file.read_at(&mut bytes, offset)?;
        bytes.truncate(got);
        Ok(bytes)
    }
}

fn holds(haystack: &[u8], needle: &[u8]) -> bool {
    let Some((first, rest)) = needle.split_first() else { return true };
    let mut at = haystack;
    while let Some(found) = at.iter().position(|b| b == first) {
        let Some(behind) = at.get(found + 1..) else { return false };
        if behind.starts_with(rest) {
            return true;
        }
        at = behind;
    }
    false
}

/// Where in the file the byte at a virtual address is.
fn offset_of(segments: &[Segment], address: u64) -> Option<u64> {
    segments.iter().filter(|s| s.kind == PT_LOAD).find_map(|s| {
        let into = address.checked_sub(s.address).filter(|into| *into < s.range.bytes)?;
        s.range.offset.checked_add(into)
    })
}

/// `e_machine` of this build.
const fn native_machine() -> u16 {
    if cfg!(target_arch = "x86_64") {
        62
    } else if cfg!(target_arch = "aarch64") {
        183
    } else if cfg!(target_arch = "x86") {
        3
    } else if cfg!(target_arch = "arm") {
        40
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(contents: &[u8]) -> Option<Elf> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(contents).unwrap();
        Elf::read(&file).unwrap()
    }

    fn put(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
        file.resize(file.len().max(at + bytes.len()), 0);
        file[at..at + bytes.len()].copy_from_slice(bytes);
    }

    struct Header {
        kind: u32,
        flags: u32,
        offset: usize,
        address: u64,
        bytes: usize,
    }

    /// A 64-bit file with these segments, contents at 4096 and above, and string tables as
    /// sections.
    fn elf(segments: &[Header], tables: &[(usize, usize)], contents: &[(usize, &[u8])]) -> Vec<u8> {
        let mut file = Vec::new();
        put(&mut file, 0, b"\x7fELF\x02\x01\x01");
        put(&mut file, 18, &native_machine().to_le_bytes());
        put(&mut file, 32, &64_u64.to_le_bytes());
        put(&mut file, 40, &2048_u64.to_le_bytes());
        put(&mut file, 54, &56_u16.to_le_bytes());
        put(&mut file, 56, &u16::try_from(segments.len()).unwrap().to_le_bytes());
        put(&mut file, 58, &64_u16.to_le_bytes());
        put(&mut file, 60, &u16::try_from(tables.len()).unwrap().to_le_bytes());
        for (i, s) in segments.iter().enumerate() {
            let at = 64 + i * 56;
            put(&mut file, at, &s.kind.to_le_bytes());
            put(&mut file, at + 4, &s.flags.to_le_bytes());
            put(&mut file, at + 8, &(s.offset as u64).to_le_bytes());
            put(&mut file, at + 16, &s.address.to_le_bytes());
            put(&mut file, at + 32, &(s.bytes as u64).to_le_bytes());
        }
        for (i, (offset, bytes)) in tables.iter().enumerate() {
            let at = 2048 + i * 64;
            put(&mut file, at + 4, &3_u32.to_le_bytes());
            put(&mut file, at + 24, &(*offset as u64).to_le_bytes());
            put(&mut file, at + 32, &(*bytes as u64).to_le_bytes());
        }
        for (at, bytes) in contents {
            put(&mut file, *at, bytes);
        }
        file
    }

    fn interpreter(path: &[u8]) -> (Header, (usize, &[u8])) {
        (Header { kind: 3, flags: 4, offset: 4096, address: 0, bytes: path.len() }, (4096, path))
    }

    #[test]
    fn the_interpreter_tells_how_it_is_loaded() {
        for (path, want) in [
            (b"/lib64/ld-linux-x86-64.so.2\0".as_slice(), Linkage::Glibc),
            (b"/lib/ld-musl-x86_64.so.1\0", Linkage::Musl),
            (b"/system/bin/linker64\0", Linkage::OtherInterpreter("/system/bin/linker64".into())),
        ] {
            let (header, contents) = interpreter(path);
            assert_eq!(read(&elf(&[header], &[], &[contents])).unwrap().linkage, want);
        }
        assert_eq!(read(&elf(&[], &[], &[])).unwrap().linkage, Linkage::Static);
    }

    #[test]
    fn googletest_is_found_by_library_by_symbol_and_by_text() {
        let dynamic: Vec<u8> =
            [1_u64, 1, 5, 0x9100, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
        let shared = elf(
            &[
                Header { kind: 2, flags: 6, offset: 4096, address: 0x9000, bytes: dynamic.len() },
                Header { kind: 1, flags: 4, offset: 4096, address: 0x9000, bytes: 4096 },
            ],
            &[],
            &[(4096, &dynamic), (4096 + 0x100, b"\0libgtest.so.1.12.1\0"), (8192, b"")],
        );
        assert_eq!(read(&shared).unwrap().gtest, Some(Evidence::SharedLibrary));

        let names = [b"\0main\0".as_slice(), SYMBOL].concat();
        let symbol = elf(&[], &[(4096, names.len())], &[(4096, &names)]);
        assert_eq!(read(&symbol).unwrap().gtest, Some(Evidence::Symbol));

        // Across the border of two windows.
        let at = 4096 + WINDOW_BYTES - 5;
        let load = |flags| Header { kind: 1, flags, offset: 4096, address: 0, bytes: 2 * WINDOW_BYTES };
        let text = |flags| elf(&[load(flags)], &[], &[(at, FLAG_IN_TEXT), (4096 + 2 * WINDOW_BYTES, b"")]);
        assert_eq!(read(&text(4)).unwrap().gtest, Some(Evidence::OnlyText));
        assert_eq!(read(&text(5)).unwrap().gtest, None, "code is not looked at");
    }

    #[test]
    fn another_machine_or_byte_order_is_not_native() {
        let mut other = elf(&[], &[], &[]);
        other[18] = 0xf3;
        assert!(!read(&other).unwrap().native);
        other[5] = 2;
        assert!(!read(&other).unwrap().native);
        other[4] = 1;
        other[5] = 1;
        assert!(!read(&other).unwrap().native);
    }

    #[test]
    fn hostile_headers_find_nothing_and_end() {
        let (header, contents) = interpreter(b"/lib64/ld-linux-x86-64.so.2\0");
        let sane = elf(&[header], &[(4096, 10)], &[contents]);
        for (at, bytes) in [(32, 8), (40, 8), (54, 2), (56, 2), (58, 2), (60, 2), (64 + 8, 8), (64 + 32, 8)] {
            for value in [u64::MAX, u64::MAX / 2, 1 << 40, sane.len() as u64 - 1, 1] {
                let mut hostile = sane.clone();
                hostile[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
                let found = read(&hostile).unwrap();
                assert_eq!(found.gtest, None, "{value:#x} at {at}");
            }
        }
        for end in 0..sane.len() {
            assert!(read(&sane[..end]).is_none_or(|elf| elf.gtest.is_none()), "{end}");
        }
    }
}
