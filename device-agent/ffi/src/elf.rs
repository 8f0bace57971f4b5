//! Symbols of the running executable that the loader does not know: reads the full symbol table from its file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Maximum number of bytes of symbols, and of names, that are read.
const MOST: u64 = 1 << 30;
const SHT_SYMTAB: u32 = 2;

/// A symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol {
    /// Virtual address in the file, without the load bias.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Looks up names in the symbol table of an ELF file. The result has one entry per name. In a file without a table no
/// name is found.
///
/// # Errors
/// The file cannot be read, or is not a 64-bit little-endian ELF file with a valid table.
pub fn find_symbols(path: &str, names: &[&str]) -> io::Result<Vec<Option<Symbol>>> {
    let mut found = vec![None; names.len()];
    let file = File::open(path)?;
    let header: [u8; 64] = read(&file, 0)?;
    if !header.starts_with(&[0x7f, b'E', b'L', b'F', 2, 1]) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a 64-bit little-endian ELF file"));
    }
    let (sections, count) = (word64(&header, 40), word16(&header, 60));
    let sections = read_all(&file, sections, u64::from(count) * 64)?;
    for section in sections.chunks_exact(64).filter(|s| word32(s, 4) == SHT_SYMTAB) {
        let strings = sections.chunks_exact(64).nth(word32(section, 40) as usize).unwrap_or_default();
        let symbols = read_all(&file, word64(section, 24), word64(section, 32))?;
        let text = read_all(&file, word64(strings, 24), word64(strings, 32))?;
        for symbol in symbols.chunks_exact(24) {
            let (name, address) = (word32(symbol, 0) as usize, word64(symbol, 8));
            // All searched names are C++ names. Their first bytes exclude most symbols.
            let prefixes: [&[u8]; 2] = [b"_ZN7testing", b"_ZTVN7testing"];
            let name = text.get(name..).filter(|n| address != 0 && prefixes.iter().any(|p| n.starts_with(p)));
            let name = name.and_then(|n| n.split(|&b| b == 0).next()).unwrap_or_default();
            if let Some((_, slot)) = names.iter().zip(&mut found).find(|(n, _)| n.as_bytes() == name) {
                *slot = Some(Symbol { address, size: word64(symbol, 16) });
            }
        }
    }
    Ok(found)
}

fn read<const N: usize>(file: &File, at: u64) -> io::Result<[u8; N]> {
    let mut out = [0; N];
    file.read_exact_at(&mut out, at)?;
    Ok(out)
}

fn read_all(file: &File, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let end =
        at.checked_add(bytes).filter(|&end| bytes <= MOST && end <= file.metadata().map_or(0, |m| m.len()));
    if end.is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a section lies outside the file"));
    }
    let mut out = vec![0; usize::try_from(bytes).unwrap_or(0)];
    file.read_exact_at(&mut out, at)?;
    Ok(out)
}

fn word16(from: &[u8], at: usize) -> u16 {
    from.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u16::from_le_bytes(*b))
}

fn word32(from: &[u8], at: usize) -> u32 {
    from.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u32::from_le_bytes(*b))
}

fn word64(from: &[u8], at: usize) -> u64 {
    from.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u64::from_le_bytes(*b))
}
