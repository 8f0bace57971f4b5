//! Reads from an ELF file how it is loaded, and whether it contains GoogleTest.
//!
//! | read | where | for |
//! |---|---|---|
//! | class, byte order, machine | file header | can the agent be loaded at all |
//! | `PT_INTERP` | program headers | static, glibc or musl |
//! | `DT_NEEDED` | `PT_DYNAMIC`, its string table found through `PT_LOAD` | a shared GoogleTest |
//! | symbol names | string tables (`SHT_STRTAB`), as text | a linked GoogleTest |
//! | symbol names | string tables (`SHT_STRTAB`), as text | tests that it reports itself |
//! | the name of its flag | what is loaded and not executable, as text | a linked GoogleTest without symbols |
//!
//! The file may be hostile: [`memgate_symbols::elf`] reads its headers, contents pass through a small window, and
//! anything invalid means "not found", never a failure. Little-endian only, like the agent.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use memgate_symbols::elf::{DT_NEEDED, DT_STRTAB, ElfError, Image, PT_INTERP, PT_LOAD, Part, SHT_STRTAB};

/// The relevant facts of an ELF file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elf {
    /// How GoogleTest was found in it.
    pub gtest: Option<Evidence>,
    /// Whether it reports its own tests (`memgate.h`).
    pub tells_tests: bool,
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
    /// Only its text shows it: the symbols were stripped, so boundaries need the header of the C API.
    OnlyText,
}

/// How a binary is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Linkage {
    /// By the kernel alone: preloading is impossible.
    Static,
    /// By glibc's dynamic linker.
    Glibc,
    /// By musl's dynamic linker.
    Musl,
    /// By another interpreter.
    OtherInterpreter(String),
}

const SYMBOL: &[u8] = b"_ZN7testing8UnitTest11GetInstanceEv\0";
/// A program that never calls `MemgateTestBegin` does not have it: the function of `memgate.h` is inline.
const OWN_TEST: &[u8] = b"\0memgate_test_begin\0";
/// The help text of GoogleTest names its flags; the variants that only parse them do not.
const FLAG_IN_TEXT: &[u8] = b"gtest_list_tests";
const SHARED_LIBRARY: &[u8] = b"libgtest";

const MAX_NAME_BYTES: u64 = 4096;
const WINDOW_BYTES: usize = 64 << 10;

impl Elf {
    /// Reads a file; `None`: it is not an ELF file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(file: &File) -> io::Result<Option<Self>> {
        let image = match Image::read(file) {
            Ok(image) => image,
            Err(ElfError::NotElf) => return Ok(None),
            Err(ElfError::Io(error)) => return Err(error),
            Err(_) => {
                let linkage = Linkage::OtherInterpreter(String::new());
                return Ok(Some(Self { gtest: None, tells_tests: false, linkage, native: false }));
            }
        };
        let native = image.wide == cfg!(target_pointer_width = "64") && image.machine == native_machine();
        let gtest = gtest(file, &image)?;
        let tells_tests = gtest.is_none() && has_name(file, &image, OWN_TEST)?;
        Ok(Some(Self { gtest, tells_tests, linkage: linkage(&image), native }))
    }
}

fn linkage(image: &Image<'_>) -> Linkage {
    let Some(interpreter) = image.segments.iter().find(|s| s.kind == PT_INTERP) else {
        return Linkage::Static;
    };
    let path = image.some(interpreter.part, MAX_NAME_BYTES);
    let path = String::from_utf8_lossy(path.split(|b| *b == 0).next().unwrap_or_default()).into_owned();
    let name = path.rsplit('/').next().unwrap_or_default();
    if name.starts_with("ld-linux") || name.starts_with("ld64.so") || name == "ld.so.1" {
        Linkage::Glibc
    } else if name.starts_with("ld-musl") {
        Linkage::Musl
    } else {
        Linkage::OtherInterpreter(path)
    }
}

fn gtest(file: &File, image: &Image<'_>) -> io::Result<Option<Evidence>> {
    if needs_shared_gtest(image) {
        return Ok(Some(Evidence::SharedLibrary));
    }
    if has_name(file, image, SYMBOL)? {
        return Ok(Some(Evidence::Symbol));
    }
    for segment in image.segments.iter().filter(|s| s.kind == PT_LOAD && !s.executable) {
        if contains(file, segment.part, FLAG_IN_TEXT)? {
            return Ok(Some(Evidence::OnlyText));
        }
    }
    Ok(None)
}

fn has_name(file: &File, image: &Image<'_>, name: &[u8]) -> io::Result<bool> {
    for table in image.sections.iter().filter(|s| s.kind == SHT_STRTAB) {
        if contains(file, table.part, name)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn needs_shared_gtest(image: &Image<'_>) -> bool {
    let dynamic = image.dynamic();
    let strings = dynamic.iter().rev().find(|(tag, _)| *tag == DT_STRTAB);
    let Some(strings) = strings.and_then(|(_, address)| image.offset_of(*address)) else { return false };
    let size = SHARED_LIBRARY.len() as u64;
    let named = |name: u64| image.some(Part { offset: strings.saturating_add(name), size }, size);
    dynamic.iter().any(|(tag, name)| *tag == DT_NEEDED && named(*name) == SHARED_LIBRARY)
}

/// Whether `needle` is in a part of the file, read through a small window.
fn contains(file: &File, part: Part, needle: &[u8]) -> io::Result<bool> {
    let mut window = vec![0; WINDOW_BYTES];
    let end = part.offset.saturating_add(part.size);
    let (mut at, mut kept) = (part.offset, 0);
    while at < end {
        let room = usize::try_from(end - at).unwrap_or(usize::MAX).min(WINDOW_BYTES - kept);
        let got = match i64::try_from(at) {
            Ok(_) => file.read_at(window.get_mut(kept..kept + room).unwrap_or_default(), at)?,
            Err(_beyond) => 0,
        };
        if got == 0 {
            return Ok(false);
        }
        let filled = kept + got;
        if holds(window.get(..filled).unwrap_or_default(), needle) {
            return Ok(true);
        }
        // A match may cross two windows.
        let keep = filled.min(needle.len().saturating_sub(1));
        window.copy_within(filled - keep..filled, 0);
        (at, kept) = (at + got as u64, keep);
    }
    Ok(false)
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
        put(&mut file, 62, &[0; 2]);
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
    fn a_program_that_reports_its_own_tests_names_the_function() {
        let with = |names: &[u8]| read(&elf(&[], &[(4096, names.len())], &[(4096, names)])).unwrap();
        assert!(with(b"\0main\0memgate_test_begin\0").tells_tests);
        assert!(!with(b"\0main\0memgate_mark\0").tells_tests);
        assert!(!with(b"\0main\0my_memgate_test_begin\0").tells_tests);
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
