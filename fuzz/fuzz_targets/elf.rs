//! Both looks into an ELF file: the runner's (how it is loaded, GoogleTest) and the one before its symbols are read.
#![no_main]
#![allow(dead_code, reason = "a part of another crate, compiled alone")]

#[path = "../../harness/symbols/src/elf.rs"]
mod elf;

use libfuzzer_sys::fuzz_target;
use memgate::suite::Elf;
use memgate_fuzz::file;

fuzz_target!(|data: &[u8]| {
    let (file, path) = file(data);
    let found = Elf::read(&file).expect("a file in memory can be read");
    assert!(found.is_none() || data.starts_with(b"\x7fELF"));
    if let Ok(info) = elf::ElfInfo::read(&path) {
        assert_eq!(info.size, data.len() as u64);
        assert!(info.build_id.len() <= data.len());
        assert!(info.code.iter().all(|range| range.start <= range.end));
    }
});
