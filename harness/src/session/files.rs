//! Writes files so that nobody ever reads an incomplete one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Why something could not be kept or found.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file or folder could not be used.
    #[error("{action} {}", path.display())]
    Path {
        /// What was attempted.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file has unexpected content.
    #[error("read {}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// Nothing was recorded there.
    #[error("open {}: there is no session (no session.json in it)", path.display())]
    NoSession {
        /// The named path.
        path: PathBuf,
    },
}

/// Gives an I/O error its path.
pub(super) fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Path { action, path: path.into(), source }
}

/// Writes a file completely or not at all: into a new file next to it, which is then renamed. Missing folders are
/// created.
///
/// # Errors
/// When it cannot be written, with its path.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    replace(path, |file| file.write_all(bytes))
}

/// The same for the content that `write` writes.
pub(super) fn replace(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), StoreError> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(at("create", folder))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let new = folder.join(format!(".{name}.{}-{number}.new", std::process::id()));
    let written = File::create_new(&new).and_then(|mut file| write(&mut file));
    let outcome = written.and_then(|()| fs::rename(&new, path));
    if outcome.is_err() {
        // The file may never have been created.
        drop(fs::remove_file(&new));
    }
    outcome.map_err(at("write", path))
}

/// Replaces a file that people keep, perhaps for several projects. If it is a link, its target is replaced, not the
/// link.
///
/// # Errors
/// When it cannot be written, or its link leads nowhere.
pub fn write_where_it_leads(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    if !path.is_symlink() {
        return write_atomically(path, bytes);
    }
    write_atomically(&fs::canonicalize(path).map_err(at("follow", path))?, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_and_what_it_leads_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (path, target) = (folder.path().join("waivers.yaml"), folder.path().join("shared/waivers.yaml"));
        std::os::unix::fs::symlink("shared/waivers.yaml", &path).unwrap();
        let nowhere = write_where_it_leads(&path, b"new").unwrap_err().to_string();
        assert_eq!(nowhere, format!("follow {}", path.display()));
        write_atomically(&target, b"old").unwrap();
        write_where_it_leads(&path, b"new").unwrap();
        assert!(path.is_symlink() && fs::read(&target).unwrap() == b"new");
    }

    #[test]
    fn a_file_is_replaced_and_nothing_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/deep/report.json");
        write_atomically(&path, b"old").unwrap();
        write_atomically(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_failure_names_the_file_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("taken")).unwrap();
        let error = write_atomically(&folder.path().join("taken"), b"x").unwrap_err();
        assert_eq!(error.to_string(), format!("write {}", folder.path().join("taken").display()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
