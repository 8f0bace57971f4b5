//! Symbols of programs that a C++ compiler builds during the test. Without a compiler each test reports that it was
//! skipped.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use memgate_symbols::{ModuleRef, NotSymbolised, Options, Symbol, Symbolizer};
use tempfile::TempDir;

/// Prints the file address of a call in `load`, and of one in a function inlined into it.
const SOURCE: &str = r#"
#include <link.h>
#include <cstdio>

static int first(dl_phdr_info* info, size_t, void* bias) { *(size_t*)bias = info->dlpi_addr; return 1; }

__attribute__((noinline)) void tell(int) {
    size_t bias = 0;
    dl_iterate_phdr(first, &bias);
    std::printf("%zu\n", (size_t)__builtin_return_address(0) - bias - 1);
}

namespace tiles {
struct Cache {
    static inline __attribute__((always_inline)) void insert(int tile) {
        tell(tile);  // inlined call
    }
};
static __attribute__((noinline)) int load(int tile) {
    tell(tile);  // plain call
    Cache::insert(tile);  // outer call
    return tile;
}
}

int main() { return tiles::load(0); }
"#;

const ID: [u8; 8] = [0xab, 0xcd, 0xef, 1, 2, 3, 4, 5];
const ID_FLAG: &str = "-Wl,--build-id=0xabcdef0102030405";

struct Program {
    dir: TempDir,
    path: PathBuf,
    /// Addresses of the plain and of the inlined call.
    addresses: Vec<u64>,
}

impl Program {
    /// `None`, with a message, if there is no compiler.
    fn build(flags: &[&str]) -> Option<Self> {
        if Command::new("c++").arg("--version").output().is_err() {
            // Written to the handle, because the output of the macro is not shown for a passing test.
            std::io::stderr().write_all(b"skipped: there is no c++ here\n").unwrap();
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        fs::write(dir.path().join("tiles.cc"), SOURCE).unwrap();
        run(dir.path(), &[&["c++", "-std=c++17", "-O1", "tiles.cc", "-o", "program"], flags].concat());
        let printed = Command::new(&path).output().unwrap().stdout;
        let addresses: Vec<u64> =
            String::from_utf8(printed).unwrap().lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(addresses.len(), 2);
        Some(Self { dir, path, addresses })
    }

    fn module(&self) -> ModuleRef {
        ModuleRef { path: self.path.clone(), build_id: ID.to_vec() }
    }

    fn resolve(&self, symbol_dirs: &[PathBuf]) -> Result<Vec<Vec<Symbol>>, NotSymbolised> {
        Symbolizer::new(Options { symbol_dirs: symbol_dirs.to_vec() })
            .resolve(&self.module(), &self.addresses)
    }
}

fn run(dir: &Path, command: &[&str]) {
    let done = Command::new(command[0]).args(&command[1..]).current_dir(dir).output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn line_of(marker: &str) -> u32 {
    let at = SOURCE.lines().position(|line| line.ends_with(&format!("// {marker}"))).unwrap();
    u32::try_from(at + 1).unwrap()
}

/// Function, line and inlined of each frame of one address.
fn frames(symbols: &[Symbol]) -> Vec<(&str, Option<u32>, bool)> {
    symbols.iter().map(|s| (s.function.as_str(), s.line, s.inlined)).collect()
}

fn assert_lines(resolved: &[Vec<Symbol>]) {
    assert_eq!(frames(&resolved[0]), [("tiles::load(int)", Some(line_of("plain call")), false)]);
    assert_eq!(
        frames(&resolved[1]),
        [
            ("tiles::Cache::insert(int)", Some(line_of("inlined call")), true),
            ("tiles::load(int)", Some(line_of("outer call")), false)
        ]
    );
    for symbol in resolved.iter().flatten() {
        assert!(symbol.file.as_ref().unwrap().ends_with("tiles.cc"), "{symbol:?}");
    }
}

#[test]
fn functions_lines_and_inlined_frames_whatever_the_kind_of_binary() {
    for flags in [
        &["-g", "-pie", "-fPIE"][..],
        &["-g", "-no-pie"],
        &["-g", "-gz"],
        &["-g", "-gdwarf-4"],
        &["-g", "-static"],
    ] {
        let Some(program) = Program::build(&[flags, &[ID_FLAG]].concat()) else { return };
        assert_lines(&program.resolve(&[]).unwrap());
    }
}

#[test]
fn without_debug_information_there_are_functions_without_lines() {
    let Some(program) = Program::build(&[ID_FLAG]) else { return };
    let resolved = program.resolve(&[]).unwrap();
    assert_eq!(frames(&resolved[0]), [("tiles::load(int)", None, false)]);
    assert_eq!(frames(&resolved[1]), [("tiles::load(int)", None, false)]);
}

#[test]
fn a_stripped_function_has_no_name_rather_than_its_neighbours() {
    let Some(program) = Program::build(&["-g", "-s", ID_FLAG]) else { return };
    assert_eq!(program.resolve(&[]).unwrap(), [vec![], vec![]]);
}

#[test]
fn symbols_split_off_are_found_by_build_id_anywhere_below_a_symbol_folder() {
    let Some(program) = Program::build(&["-g", ID_FLAG]) else { return };
    let symbols = program.dir.path().join("symbols");
    fs::create_dir_all(symbols.join("some/where")).unwrap();
    run(
        program.dir.path(),
        &["objcopy", "--only-keep-debug", "program", "symbols/some/where/name-of-its-own"],
    );
    run(program.dir.path(), &["strip", "program"]);
    assert_lines(&program.resolve(std::slice::from_ref(&symbols)).unwrap());

    // The module itself may be missing, as on a machine that has only the session.
    fs::remove_file(&program.path).unwrap();
    assert_lines(&program.resolve(&[symbols]).unwrap());
    assert_eq!(program.resolve(&[]), Err(NotSymbolised::Missing));
}

#[test]
fn a_debug_link_is_followed_and_one_to_another_build_is_not() {
    let Some(program) = Program::build(&["-g", ID_FLAG]) else { return };
    run(program.dir.path(), &["objcopy", "--only-keep-debug", "program", "program.debug"]);
    run(program.dir.path(), &["strip", "--strip-debug", "program"]);
    run(program.dir.path(), &["objcopy", "--add-gnu-debuglink=program.debug", "program"]);
    assert_lines(&program.resolve(&[]).unwrap());

    let mut other = fs::read(program.dir.path().join("program.debug")).unwrap();
    other.push(0);
    fs::write(program.dir.path().join("program.debug"), other).unwrap();
    let resolved = program.resolve(&[]).unwrap();
    assert_eq!(frames(&resolved[1]), [("tiles::load(int)", None, false)], "its own table is still good");
}

#[test]
fn a_file_of_another_build_is_refused() {
    let Some(program) = Program::build(&["-g", ID_FLAG]) else { return };
    let kept = program.dir.path().join("kept");
    fs::create_dir(&kept).unwrap();
    fs::copy(&program.path, kept.join("program-of-monday")).unwrap();
    run(program.dir.path(), &["c++", "-g", "tiles.cc", "-o", "program", "-Wl,--build-id=0x1111111111111111"]);
    let error = program.resolve(&[]).unwrap_err();
    assert_eq!(error, NotSymbolised::BuildIdDiffers);
    assert_eq!(error.to_string(), "build id differs");
    assert_lines(&program.resolve(&[kept]).unwrap());
}

#[test]
fn a_build_id_on_one_side_only_is_another_build() {
    let Some(program) = Program::build(&["-g", "-Wl,--build-id=none"]) else { return };
    assert_eq!(program.resolve(&[]), Err(NotSymbolised::BuildIdDiffers));
    let module = ModuleRef { path: program.path.clone(), build_id: Vec::new() };
    let mut symbolizer = Symbolizer::new(Options::default());
    assert_lines(&symbolizer.resolve(&module, &program.addresses).unwrap());
}

#[test]
fn addresses_of_nothing_have_no_functions() {
    let Some(program) = Program::build(&["-g", ID_FLAG]) else { return };
    let mut symbolizer = Symbolizer::new(Options::default());
    let resolved = symbolizer.resolve(&program.module(), &[0, u64::MAX, 1 << 40]).unwrap();
    assert_eq!(resolved, [vec![], vec![], vec![]]);
    assert_lines(&symbolizer.resolve(&program.module(), &program.addresses).unwrap());
}

#[test]
fn what_is_no_elf_file_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut symbolizer = Symbolizer::new(Options { symbol_dirs: vec![dir.path().join("not there")] });
    let mut resolve = |name: &str| {
        let module = ModuleRef { path: dir.path().join(name), build_id: ID.to_vec() };
        symbolizer.resolve(&module, &[1]).unwrap_err().to_string()
    };
    fs::write(dir.path().join("text"), "#!/bin/sh\n").unwrap();
    fs::write(dir.path().join("empty"), "").unwrap();
    fs::write(dir.path().join("magic"), b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0").unwrap();
    fs::write(dir.path().join("big-endian"), b"\x7fELF\x02\x02\x01\0\0\0\0\0\0\0\0\0").unwrap();
    run(dir.path(), &["mkfifo", "pipe"]);
    let id: String = ID.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(resolve("gone"), format!("no file with its build id {id} is in the folders for symbols"));
    assert_eq!(resolve("text"), "not an ELF file");
    assert_eq!(resolve("empty"), "not an ELF file");
    assert_eq!(resolve("magic"), "damaged ELF file: ends too early");
    assert_eq!(resolve("big-endian"), "an ELF file of a kind memgate does not read");
    assert_eq!(resolve("pipe"), "not a regular file", "opening it would wait for a writer");
    assert_eq!(resolve("."), "not a regular file");
}

/// A reader that trusts the size would request 2^62 bytes.
#[test]
fn a_compressed_section_that_lies_about_its_size_is_refused() {
    let Some(program) = Program::build(&["-g", "-gz", ID_FLAG]) else { return };
    let mut bytes = fs::read(&program.path).unwrap();
    let word = |bytes: &[u8], at: usize| {
        usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap()
    };
    let headers = word(&bytes, 40);
    let compressed =
        (headers..bytes.len() - 63).step_by(64).find(|at| word(&bytes, at + 8) & 0x800 != 0).unwrap();
    let section = word(&bytes, compressed + 24);
    bytes[section + 8..section + 16].copy_from_slice(&(1u64 << 62).to_le_bytes());
    fs::write(&program.path, bytes).unwrap();
    let error = program.resolve(&[]).unwrap_err();
    assert_eq!(error.to_string(), "damaged ELF file: a compressed section is larger than it can be");
}

#[test]
fn damaged_files_give_an_answer_or_an_error_and_never_a_panic() {
    let Some(program) = Program::build(&["-g", ID_FLAG]) else { return };
    let whole = fs::read(&program.path).unwrap();
    let try_with = |bytes: &[u8]| {
        fs::write(&program.path, bytes).unwrap();
        program.resolve(&[]).map_or(2, |resolved| resolved.len())
    };
    for part in 0..100 {
        assert_eq!(try_with(&whole[..whole.len() * part / 100]), 2, "cut to {part} %");
    }
    // Steps without a common factor with the sizes of tables, over every byte of the headers and some other bytes.
    for at in (0..64).chain((64..whole.len()).step_by(whole.len() / 300)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        assert_eq!(try_with(&bytes), 2, "byte {at} inverted");
    }
}

/// Regression: an inlined function with internal linkage had no namespace, so the id of its leak changed when the
/// compiler no longer inlined it.
#[test]
fn a_function_has_the_same_name_whether_it_is_inlined_or_not() {
    const FUNCTIONS: &str = r#"
namespace tiles {
static HOW int scratch(int tile) { tell(tile); return tile; }
namespace { HOW int hidden(int tile) { tell(tile); return tile; } }
namespace other { static HOW int scratch(int tile) { tell(tile); return tile; } }
__attribute__((noinline)) int each(int tile) {
    auto visit = [](int tile) HOW { tell(tile); return tile; };
    return scratch(tile) + hidden(tile) + other::scratch(tile) + visit(tile);
}
}
int main() { return tiles::each(0); }
"#;
    let names = |how: &str, debug: &str| -> Option<Vec<String>> {
        let program = Program::build(&["-g", ID_FLAG])?;
        let source = SOURCE.split("namespace tiles").next().unwrap().to_owned() + FUNCTIONS;
        fs::write(program.dir.path().join("tiles.cc"), source).unwrap();
        let how = format!("-DHOW=__attribute__(({how}))");
        run(
            program.dir.path(),
            &["c++", "-std=c++17", "-O1", "-g", debug, &how, "tiles.cc", "-o", "program", ID_FLAG],
        );
        let printed = Command::new(&program.path).output().unwrap().stdout;
        let addresses = String::from_utf8(printed).unwrap();
        let addresses: Vec<u64> = addresses.lines().map(|line| line.parse().unwrap()).collect();
        let resolved = Symbolizer::new(Options::default()).resolve(&program.module(), &addresses).unwrap();
        assert!(
            resolved.iter().all(|symbols| symbols[0].inlined == (how.contains("always"))),
            "{resolved:?}"
        );
        let name = |symbols: &Vec<Symbol>| symbols[0].function.replace("(int)", "").replace(" const", "");
        Some(resolved.iter().map(name).collect())
    };
    for (how, debug) in
        [("always_inline", "-gz=none"), ("always_inline", "-gz=zlib"), ("noinline", "-gz=none")]
    {
        let Some(names) = names(how, debug) else { return };
        let plain = ["tiles::scratch", "tiles::(anonymous namespace)::hidden", "tiles::other::scratch"];
        assert_eq!(names[..3], plain, "{how} {debug}");
        let lambda = &names[3];
        assert!(lambda.starts_with("tiles::each::") && lambda.ends_with("::operator()"), "{lambda}");
    }
}
