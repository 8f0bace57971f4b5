//! Files of bytes that arrive, before they are artefacts.
//!
//! A file that comes at once goes with whoever receives it. One that comes in pieces stays where it ended, under a name
//! that its content has alone, until somebody brings the rest.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

/// What nobody continued for so long is removed.
const CONTINUED_WITHIN: Duration = Duration::from_secs(24 * 3600);
const ENDING: &str = "part";

/// The folder of what arrives.
#[derive(Debug, Clone)]
pub(super) struct Spools {
    folder: PathBuf,
    /// Removed with the last of them.
    _own: Option<Arc<TempDir>>,
}

impl Spools {
    pub(super) fn beside(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), _own: None }
    }

    /// In a folder that nobody else can write to.
    pub(super) fn of_this_process() -> io::Result<Self> {
        let own = tempfile::Builder::new().prefix("memgate-arriving-").tempdir()?;
        Ok(Self { folder: own.path().to_owned(), _own: Some(Arc::new(own)) })
    }

    pub(super) fn whole(&self) -> io::Result<Spool> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("memgate-{}-{number}.{ENDING}", std::process::id()));
        // Nobody else on this machine reads a dump.
        let open = || File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = match open() {
            // Of a process that was killed, and had the same number.
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&path)?;
                open()
            }
            opened => opened,
        }?;
        Ok(Spool { path, file, stays: false })
    }

    /// `None`: somebody else adds a piece now.
    pub(super) fn of_pieces(&self, name: &str) -> io::Result<Option<Spool>> {
        let path = self.folder.join(format!("{name}.{ENDING}"));
        let file = File::options().read(true).append(true).create(true).mode(0o600).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(why)) => return Err(why),
        }
        // Whoever had it before may have made it an artefact meanwhile.
        let is_there = fs::metadata(&path).is_ok_and(|there| {
            file.metadata().is_ok_and(|own| (there.dev(), there.ino()) == (own.dev(), own.ino()))
        });
        Ok(is_there.then_some(Spool { path, file, stays: true }))
    }

    pub(super) fn remove_old(&self) -> io::Result<u64> {
        let mut removed = 0;
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let is_old = || {
                let age =
                    SystemTime::now().duration_since(fs::metadata(&path).ok()?.modified().ok()?).ok()?;
                Some(age > CONTINUED_WITHIN)
            };
            if path.extension().is_some_and(|ending| ending == ENDING) && is_old() == Some(true) {
                fs::remove_file(&path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// A file of bytes that arrive; it goes with this value, unless it was kept or stays for the next piece.
#[derive(Debug)]
pub(crate) struct Spool {
    pub(super) path: PathBuf,
    pub(crate) file: File,
    stays: bool,
}

impl Spool {
    /// There is no next piece.
    pub(crate) const fn ends(&mut self) {
        self.stays = false;
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        match fs::remove_file(&self.path) {
            // It was kept under its own name, or somebody tidied up.
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::FileTimes;
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn pieces_are_found_again_one_at_a_time_until_they_end_or_are_old() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::beside(folder.path());
        let pieces = |name| spools.of_pieces(name).unwrap();
        let mut first = pieces("7-a").unwrap();
        first.file.write_all(b"one ").unwrap();
        assert!(pieces("7-a").is_none(), "one writes at a time");
        drop(first);
        let mut second = pieces("7-a").unwrap();
        second.file.write_all(b"two").unwrap();
        assert_eq!(fs::read(folder.path().join("7-a.part")).unwrap(), b"one two");
        second.ends();
        drop(second);
        let mut third = pieces("7-a").unwrap();
        let mut text = String::new();
        third.file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "", "what has ended is gone");

        assert_eq!(spools.remove_old().unwrap(), 0, "somebody may continue it");
        let long_ago = SystemTime::now() - CONTINUED_WITHIN - Duration::from_secs(60);
        third.file.set_times(FileTimes::new().set_modified(long_ago)).unwrap();
        fs::write(folder.path().join("kept"), "").unwrap();
        assert_eq!(spools.remove_old().unwrap(), 1);
        assert!(folder.path().join("kept").exists());
        drop(third);
        drop(pieces("7-a").unwrap());
    }
}
