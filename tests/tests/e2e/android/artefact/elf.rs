//! The Android build of the agent, read as an ELF file: Android's loader is stricter than that of Linux, and
//! its refusals show only on a device.
//!
//! `ci/android/build` builds the libraries (into `target/android`, or the folder that `MEMGATE_ANDROID_AGENT`
//! names); if they are missing, the tests report that and are skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use memgate_e2e::{repository, skip_without};
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Sym};
use object::{Endianness, Object, ObjectSymbol, read::elf::ElfFile64};

/// Android's ABI names and ELF's machine numbers.
const ABIS: [(&str, u16); 2] = [("arm64-v8a", elf::EM_AARCH64), ("x86_64", elf::EM_X86_64)];
/// The first API level that attaches agents; the libraries run from there on.
const LOWEST: u32 = 26;
const MOST_BYTES: u64 = 5 << 18;
/// Devices with Android 15 may have pages of 16 KiB.
const ALIGNMENT: u64 = 16 << 10;

/// Entry points for the runtime and the loader, and memgate's own API.
const EXPORTED: &str = "\
    Agent_OnAttach Agent_OnLoad JNI_OnLoad memgate_active memgate_free_malloc_leak_info \
    memgate_get_malloc_leak_info memgate_has_gtest_listener memgate_iteration memgate_mark \
    memgate_settle memgate_test_begin memgate_test_end";

/// Functions that it replaces where it is preloaded.
const ALLOCATION: &str = "\
    aligned_alloc calloc cfree free free_aligned_sized free_sized malloc malloc_usable_size memalign \
    posix_memalign pvalloc realloc reallocarray valloc";

type Elf<'a> = ElfFile64<'a, Endianness>;

/// Runs `check` with each library that was built.
fn each(check: impl Fn(&str, &Elf<'_>, &[u8])) {
    for (abi, bytes) in built() {
        let file = Elf::parse(&*bytes).unwrap_or_else(|e| panic!("{abi}: {e}"));
        check(abi, &file, &bytes);
    }
}

fn built() -> Vec<(&'static str, Vec<u8>)> {
    let named = std::env::var_os("MEMGATE_ANDROID_AGENT").map(PathBuf::from);
    let folder = named.clone().unwrap_or_else(|| repository().join("target/android"));
    let library = |abi: &str| folder.join(abi).join("libmemgate_agent.so");
    if named.is_none() && !ABIS.iter().any(|(abi, _)| library(abi).exists()) {
        skip_without(&format!("agent for Android in {} (ci/android/build)", folder.display()));
        return Vec::new();
    }
    ABIS.iter().map(|(abi, _)| (*abi, read(&library(abi)))).collect()
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Symbols that the platform's libraries define: symbol → (library, API level). See `ci/android/symbols.txt`.
fn platform() -> BTreeMap<String, (String, u32)> {
    let text = fs::read_to_string(repository().join("ci/android/symbols.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let entry = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [level, library, symbol] = words[..] else { panic!("{line}: API level, library, symbol") };
        (symbol.to_owned(), (library.to_owned(), level.parse().unwrap()))
    };
    lines.map(entry).collect()
}

/// Required imports. A weak symbol may be missing: the standard library checks before it calls one.
fn imports(file: &Elf<'_>) -> Vec<String> {
    file.dynamic_symbols()
        .filter(|s| s.is_undefined() && s.elf_symbol().st_bind() != elf::STB_WEAK)
        .filter_map(|s| Some(s.name().ok()?.to_owned()))
        .filter(|name| !name.is_empty())
        .collect()
}

fn program_headers(file: &Elf<'_>) -> Vec<(u32, u32, u64, u64)> {
    let endian = file.endian();
    let headers = file.elf_program_headers().iter();
    headers.map(|h| (h.p_type(endian), h.p_flags(endian), h.p_align(endian), h.p_memsz(endian))).collect()
}

/// The entries of the dynamic section, with strings for those that have one.
fn dynamic(file: &Elf<'_>, data: &[u8]) -> Vec<(i64, u64, String)> {
    let endian = file.endian();
    let header = FileHeader64::<Endianness>::parse(data).unwrap();
    let sections = header.sections(endian, data).unwrap();
    let (entries, link) = sections.dynamic(endian, data).unwrap().unwrap();
    let texts = sections.strings(endian, data, link).unwrap();
    let entry = |d: &elf::Dyn64<Endianness>| {
        let text = d.string(endian, texts).unwrap_or_default();
        (d.d_tag(endian), d.d_val(endian), String::from_utf8_lossy(text).into_owned())
    };
    entries.iter().map(entry).collect()
}

#[test]
fn each_processor_has_its_library() {
    for (abi, bytes) in built() {
        let header = FileHeader64::<Endianness>::parse(&*bytes).unwrap();
        let endian = header.endian().unwrap();
        let machine = ABIS.iter().find(|(name, _)| *name == abi).unwrap().1;
        assert_eq!(header.e_machine(endian), machine, "{abi}");
        assert_eq!(header.e_type(endian), elf::ET_DYN, "{abi}");
        assert!(bytes.len() as u64 <= MOST_BYTES, "{abi}: {} bytes", bytes.len());
    }
}

/// Android 8 and 9 refuse a library that has its own thread-local storage ("unsupported ELF TLS symbol").
#[test]
fn it_has_no_thread_local_storage() {
    each(|abi, file, _| {
        assert!(program_headers(file).iter().all(|(kind, ..)| *kind != elf::PT_TLS), "{abi}");
        let symbols = file.dynamic_symbols();
        let emulated: Vec<_> = symbols
            .filter_map(|s| s.name().ok())
            .filter(|n| n.contains("tls") || n.contains("emutls"))
            .collect();
        assert!(emulated.is_empty(), "{abi}: {emulated:?}");
    });
}

#[test]
fn it_needs_nothing_that_its_lowest_api_level_does_not_have() {
    let platform = platform();
    each(|abi, file, data| {
        let needed: BTreeSet<String> =
            dynamic(file, data).into_iter().filter(|d| d.0 == elf::DT_NEEDED).map(|d| d.2).collect();
        let allowed = BTreeSet::from(["libc.so".to_owned(), "libdl.so".to_owned()]);
        assert!(needed.contains("libc.so") && needed.is_subset(&allowed), "{abi}: {needed:?}");
        let imported = imports(file);
        assert!(imported.len() > 20, "{abi}: {imported:?}");
        let missing: Vec<_> = imported
            .iter()
            .filter(|name| {
                !platform
                    .get(*name)
                    .is_some_and(|(library, level)| *level <= LOWEST && needed.contains(library))
            })
            .collect();
        assert!(missing.is_empty(), "{abi}: not in {needed:?} of API {LOWEST}: {missing:?}");
    });
}

/// The list must stay minimal: the agent needs each entry.
#[test]
fn what_is_allowed_is_needed_by_one_of_them() {
    let built = built();
    if built.is_empty() {
        return;
    }
    let mut imported = BTreeSet::new();
    for (_, bytes) in &built {
        let file = Elf::parse(&**bytes).unwrap();
        imported.extend(imports(&file));
    }
    let idle: Vec<String> = platform().into_keys().filter(|symbol| !imported.contains(symbol)).collect();
    assert!(idle.is_empty(), "ci/android/symbols.txt names what nobody needs: {idle:?}");
}

#[test]
fn its_segments_fit_pages_of_16_kib_and_none_is_both_writable_and_code() {
    each(|abi, file, data| {
        let headers = program_headers(file);
        let loads: Vec<_> = headers.iter().filter(|(kind, ..)| *kind == elf::PT_LOAD).collect();
        assert!(loads.len() >= 2, "{abi}");
        for (_, flags, align, _) in loads {
            assert_eq!(align % ALIGNMENT, 0, "{abi}: {align}");
            assert_ne!(flags & (elf::PF_W | elf::PF_X), elf::PF_W | elf::PF_X, "{abi}");
        }
        let stack = headers.iter().find(|(kind, ..)| *kind == elf::PT_GNU_STACK);
        assert!(stack.is_some_and(|(_, flags, ..)| flags & elf::PF_X == 0), "{abi}: executable stack");
        let tags: Vec<i64> = dynamic(file, data).iter().map(|d| d.0).collect();
        // Text relocations are refused since API 23, and a hook must leave no work to the loader.
        assert!(!tags.contains(&elf::DT_TEXTREL), "{abi}");
        assert!(
            dynamic(file, data).iter().any(|d| d.0 == elf::DT_FLAGS_1 && d.1 & u64::from(elf::DF_1_NOW) != 0),
            "{abi}"
        );
        let name = dynamic(file, data).into_iter().find(|d| d.0 == elf::DT_SONAME).map(|d| d.2);
        assert_eq!(
            name.as_deref(),
            Some("libmemgate_agent.so"),
            "{abi}: one library for the loader, from whatever path"
        );
        // bionic supports both hash tables; one of them must be there.
        assert!(tags.contains(&elf::DT_GNU_HASH) || tags.contains(&elf::DT_HASH), "{abi}");
    });
}

#[test]
fn it_exports_its_entries_and_what_it_stands_in_for() {
    each(|abi, file, _| {
        let endian = file.endian();
        let exported: BTreeSet<&str> = file
            .dynamic_symbols()
            .filter(|s| !s.is_undefined() && s.elf_symbol().st_bind() != elf::STB_LOCAL)
            .inspect(|s| assert_ne!(s.elf_symbol().st_shndx(endian), elf::SHN_UNDEF))
            .filter_map(|s| s.name().ok())
            .collect();
        let want: BTreeSet<&str> =
            [EXPORTED, ALLOCATION].into_iter().flat_map(str::split_whitespace).collect();
        assert_eq!(exported, want, "{abi}");
    });
}

/// The harness names frames by build id.
#[test]
fn it_has_a_build_id() {
    each(|abi, file, _| {
        assert!(file.build_id().unwrap().is_some_and(|id| id.len() >= 8), "{abi}");
    });
}
