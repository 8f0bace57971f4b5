//! Reads files that users name, up to a maximum length. A device file has no end, and its length is unknown before it
//! is read.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

/// A report.json of 50,000 tests without leaks has 11 MB. Leaks and their curves take a hundred times as much.
pub(crate) const LONGEST_REPORT: u64 = 1 << 30;

/// Reads a whole file of at most `longest` bytes.
pub(crate) fn read(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(longest + 1).read_to_end(&mut bytes)? as u64;
    if read > longest {
        let most = memgate_config::format_size(longest);
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is longer than {most}")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_read_up_to_the_limit() {
        let why = read(Path::new("/dev/zero"), 4096).unwrap_err().to_string();
        assert!(why.starts_with("it is longer than 4"), "{why}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, [7; 4096]).unwrap();
        assert_eq!(read(&file, 4096).unwrap().len(), 4096);
    }
}
