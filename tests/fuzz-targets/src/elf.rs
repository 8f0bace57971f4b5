//! Both readers of an ELF file: the runner's (how it is loaded, GoogleTest) and the one that runs before its
//! symbols are read.

use crate::file;
use memgate::suite::Elf;

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    let (file, path) = file(data);
    let found = Elf::read(&file).expect("a file in memory can be read");
    assert!(found.is_none() || data.starts_with(b"\x7fELF"));
    if let Ok(info) = memgate_symbols::elf::ElfInfo::read(&path) {
        assert_eq!(info.size, data.len() as u64);
        assert!(info.build_id.len() <= data.len());
        assert!(info.code.iter().all(|range| range.start <= range.end));
    }
}
