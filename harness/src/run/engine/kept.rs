//! Keeps library files open: some are gone when their symbols are needed. A library from a jar is unpacked for one
//! process and removed when the process ends, or as soon as it is loaded.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use memgate_analysis::{ProcessRecord, own_libraries};

/// Maximum number of kept files.
const MOST: usize = 256;

/// Open files by the path they were loaded from.
#[derive(Debug, Default)]
pub struct KeptFiles(Mutex<BTreeMap<PathBuf, File>>);

impl KeptFiles {
    /// Keeps the project's own libraries of a running process. A file that cannot be opened has no symbols; the symbol
    /// look-up reports that.
    pub(in crate::run) fn keep(&self, record: &ProcessRecord, pid: Option<u32>) {
        if record.is_java_only() {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for path in own_libraries(record) {
            if kept.len() < MOST && !kept.contains_key(Path::new(path)) {
                let file = open(Path::new(path)).or_else(|| open(&mapped(pid?, path)?));
                kept.extend(file.map(|file| (path.into(), file)));
            }
        }
    }

    /// Where to read the file loaded from `path`, if it is gone from there.
    pub(in crate::run) fn instead_of(&self, path: &Path) -> Option<PathBuf> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let file = kept.get(path).filter(|_| !path.exists())?;
        Some(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())))
    }
}

/// Opens regular files only: the path comes from the tested process, and opening another kind of file may block.
fn open(path: &Path) -> Option<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().is_ok_and(|found| found.is_file()).then_some(file)
}

/// The mapping of a removed file. The kernel lets privileged processes read the file there.
fn mapped(pid: u32, path: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let line = maps.lines().find(|line| line.ends_with(&format!(" {path} (deleted)")))?;
    Some(PathBuf::from(format!("/proc/{pid}/map_files/{}", line.split(' ').next()?)))
}

#[cfg(test)]
mod tests {
    use memgate_analysis::Observer;
    use memgate_wire::{Frame, Module, Modules};

    use super::*;

    #[test]
    fn a_library_is_read_after_its_file_was_removed() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libtiles.so");
        fs::write(&library, "ELF").unwrap();
        let path = library.display().to_string();
        let module = Module { start: 1, end: 2, bias: 0, path, build_id: Vec::new() };
        let mut observer = Observer::new();
        observer.push(Frame::Modules(Modules { generation: 1, modules: vec![module] }), 1);
        let kept = KeptFiles::default();
        kept.keep(observer.record(), None);
        assert_eq!(kept.instead_of(&library), None, "it is still there");
        fs::remove_file(&library).unwrap();
        assert_eq!(fs::read(kept.instead_of(&library).unwrap()).unwrap(), b"ELF");
    }
}
