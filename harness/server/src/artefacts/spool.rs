//! Files of uploads in progress, before they become artefacts.
//!
//! Each artefact of a run has one. It keeps its bytes until a sender brings the rest. One sender at a time holds its
//! lock: only that sender may write it, make it an artefact, or remove it.

use std::fs::{self, DirBuilder, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::MOST_FILES;

/// A spool that nobody continued for this long is removed.
const CONTINUED_WITHIN: Duration = Duration::from_secs(24 * 3600);
const ENDING: &str = "part";

/// The folder of uploads in progress.
#[derive(Debug, Clone)]
pub(super) struct Spools(PathBuf);

/// Why no spool was opened.
pub(crate) enum NoSpool {
    /// Another sender uploads this artefact now.
    Busy,
    /// The run has as many spools as it may have artefacts.
    TooMany,
    Failed(io::Error),
}

impl From<io::Error> for NoSpool {
    fn from(why: io::Error) -> Self {
        Self::Failed(why)
    }
}

impl Spools {
    /// Opens the folder, creating it if it is missing, with access for this user only.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let spools = Self(folder.to_owned());
        spools.make()?;
        Ok(spools)
    }

    fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)
    }

    /// Opens the spool of an artefact. Also returns the bytes in the run's other spools.
    pub(super) fn of(&self, run: i64, name: &str) -> Result<(Spool, u64), NoSpool> {
        // The folder may have been removed meanwhile.
        self.make()?;
        let path = self.0.join(format!("{run}-{name}.{ENDING}"));
        let (mut files, mut bytes) = (0, 0_u64);
        for (other, there) in self.files()? {
            let is_of_run = other
                .file_name()
                .is_some_and(|name| name.to_str().is_some_and(|name| name.starts_with(&format!("{run}-"))));
            if is_of_run && other != path {
                files += 1;
                bytes = bytes.saturating_add(there.len());
            }
        }
        if files >= MOST_FILES {
            return Err(NoSpool::TooMany);
        }
        // Other users of this machine must not read a dump.
        let open = File::options().read(true).append(true).create(true).mode(0o600).open(&path);
        let mut spool = Spool { path, file: open?, held: false };
        match spool.file.try_lock() {
            Ok(()) => spool.held = true,
            Err(TryLockError::WouldBlock) => return Err(NoSpool::Busy),
            Err(TryLockError::Error(why)) => return Err(why.into()),
        }
        // The previous holder may have made it an artefact meanwhile.
        if spool.is_there() { Ok((spool, bytes)) } else { Err(NoSpool::Busy) }
    }

    /// Removes the spools that nobody continues; returns the number of files.
    pub(super) fn remove_old(&self) -> io::Result<u64> {
        let mut removed = 0;
        for (path, there) in self.files()? {
            let age = there.modified().ok().and_then(|then| SystemTime::now().duration_since(then).ok());
            if age.is_none_or(|age| age <= CONTINUED_WITHIN) {
                continue;
            }
            let Ok(file) = File::options().append(true).open(&path) else { continue };
            let held = file.try_lock().is_ok();
            let spool = Spool { path, file, held };
            if held && spool.is_there() {
                spool.remove()?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn files(&self) -> io::Result<Vec<(PathBuf, Metadata)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            // Skips a file that was removed meanwhile.
            let Ok(there) = fs::symlink_metadata(&path) else { continue };
            if there.is_file() && path.extension().is_some_and(|ending| ending == ENDING) {
                files.push((path, there));
            }
        }
        Ok(files)
    }
}

/// The received bytes of an artefact, held by one sender.
#[derive(Debug)]
pub(crate) struct Spool {
    pub(super) path: PathBuf,
    pub(crate) file: File,
    held: bool,
}

impl Spool {
    /// Does its path still lead to this file?
    pub(super) fn is_there(&self) -> bool {
        let own = |there: Metadata| {
            self.file.metadata().is_ok_and(|own| (there.dev(), there.ino()) == (own.dev(), own.ino()))
        };
        fs::symlink_metadata(&self.path).is_ok_and(own)
    }

    /// Removes the spool: no piece follows.
    pub(crate) fn remove(self) -> io::Result<()> {
        // It may be an artefact by now, under another name.
        if self.is_there() { fs::remove_file(&self.path) } else { Ok(()) }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let is_empty = self.file.metadata().is_ok_and(|there| there.len() == 0);
        if self.held && is_empty && self.is_there() {
            // An empty spool is as good as none. If it cannot be removed now, `remove_old` does it later.
            drop(fs::remove_file(&self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::FileTimes;
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn held(spools: &Spools, run: i64, name: &str) -> Spool {
        match spools.of(run, name) {
            Ok((spool, _)) => spool,
            Err(_none) => panic!("{run} {name}"),
        }
    }

    #[test]
    fn pieces_are_found_again_one_sender_at_a_time_until_they_end_or_are_old() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::open(&folder.path().join("arriving")).unwrap();
        let path = folder.path().join("arriving/7-a.part");
        let mut first = held(&spools, 7, "a");
        first.file.write_all(b"one ").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(spools.of(7, "a"), Err(NoSpool::Busy)), "one sends at a time");
        drop(first);
        let mut second = held(&spools, 7, "a");
        second.file.write_all(b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one two");
        second.remove().unwrap();
        let mut third = held(&spools, 7, "a");
        let mut text = String::new();
        third.file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "", "what has ended is gone");

        third.file.write_all(b"three").unwrap();
        let long_ago = SystemTime::now() - CONTINUED_WITHIN - Duration::from_secs(60);
        third.file.set_times(FileTimes::new().set_modified(long_ago)).unwrap();
        fs::create_dir(folder.path().join("arriving/x.part")).unwrap();
        fs::write(folder.path().join("arriving/other"), "").unwrap();
        assert_eq!(spools.remove_old().unwrap(), 0, "somebody sends it");
        drop(third);
        assert_eq!(spools.remove_old().unwrap(), 1);
        assert!(!path.exists() && folder.path().join("arriving/other").exists());
        drop(held(&spools, 7, "a"));
        assert!(!path.exists(), "nothing is left of one that nothing came of");
    }

    #[test]
    fn a_run_has_as_many_as_it_may_have_artefacts() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::open(folder.path()).unwrap();
        for number in 0..MOST_FILES {
            held(&spools, 7, &number.to_string()).file.write_all(b"ab").unwrap();
        }
        assert!(matches!(spools.of(7, "more"), Err(NoSpool::TooMany)));
        let Ok((_, others)) = spools.of(7, "0") else { panic!("it is one of them") };
        assert_eq!(others, 2 * (MOST_FILES as u64 - 1));
        drop(held(&spools, 77, "another run"));
    }
}
