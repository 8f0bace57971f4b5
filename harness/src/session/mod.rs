//! The session folder: everything one run leaves, in one place that can be copied.
//!
//! `ROOT/SESSION/` contains `session.json` (what ran, where), `frames/` (the streams) and the output of reporters;
//! `ROOT/latest` is a link to the newest session. Ten sessions are kept. Names sort by time. A session in use is
//! locked, so that another memgate does not remove it; folders that are not sessions are left alone.
//!
//! The data of a run that are not in its frames are its [`facts`], with [`naming`] of suites. A run writes them;
//! [`offline`] rebuilds them from the streams alone, using the [`label`] with which each was started. After the run,
//! its streams are packed ([`packed`](crate::reading::packed)).

pub mod facts;
mod files;
mod info;
pub mod label;
pub mod naming;
pub mod offline;
pub mod unchanged;

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use memgate_model::ShardNumber;
use memgate_wire::spool::EXTENSION;

pub use files::{StoreError, write_atomically, write_where_it_leads};
pub use info::{SessionInfo, this_machine};

use crate::exit::ExpectedError;
use crate::reading::packed;
use files::at;

/// Folder of the sessions, below the project.
pub const ROOT: &str = ".memgate";

/// Name of the link to the newest session.
pub const LATEST: &str = "latest";

/// Number of kept sessions, including the newest.
pub const KEPT_SESSIONS: usize = 10;

/// File in a session with the survivors of the windows of JVM suites.
pub const WINDOWS_FILE: &str = "windows.json";

const INFO_FILE: &str = "session.json";
const FRAMES: &str = "frames";
const LOCK_FILE: &str = ".lock";

const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

/// How many other names are tried if two runs begin in the same millisecond.
const NAME_ATTEMPTS: u32 = 100;

/// A session folder.
#[derive(Debug)]
pub struct Session {
    folder: PathBuf,
    /// Held while this program writes the session.
    _lock: Option<File>,
}

impl Session {
    /// Begins a session below `root`, makes it the latest and removes the oldest.
    ///
    /// # Errors
    /// When the folder cannot be written, with the path concerned.
    pub fn create(root: &Path, info: &SessionInfo) -> Result<Self, StoreError> {
        Self::create_shard(root, info, None)
    }

    /// The same for a shard of a run. Its name contains the number: sessions of several machines may be collected in
    /// one folder. All shards may also be created in one folder, so one additional session is kept for each shard.
    ///
    /// # Errors
    /// When the folder cannot be written, with the path concerned.
    pub fn create_shard(
        root: &Path,
        info: &SessionInfo,
        number: Option<ShardNumber>,
    ) -> Result<Self, StoreError> {
        let (ending, keep) = match number {
            Some(number) => {
                (format!("-{}of{}", number.index(), number.of()), KEPT_SESSIONS + number.of() as usize)
            }
            None => (String::new(), KEPT_SESSIONS),
        };
        if root.is_symlink() {
            let why = "it is a link, which the project may have brought along: remove it";
            return Err(at("use", root)(io::Error::other(why)));
        }
        if root.is_file() {
            let why = "it is a file";
            return Err(at("use", root)(io::Error::other(why)));
        }
        if std::path::absolute(root).map_err(at("find", root))?.to_str().is_none() {
            // The agent gets the path through environment variables, which must be text.
            let why = "its whole path is no text in UTF-8: rename the folder";
            return Err(at("use", root)(io::Error::other(why)));
        }
        // Others may list the sessions in it; each session is readable only by the user.
        DirBuilder::new().recursive(true).mode(0o755).create(root).map_err(at("create", root))?;
        let ignore = root.join(".gitignore");
        if !ignore.exists() {
            write_atomically(&ignore, b"*\n")?;
        }
        let folder = create_folder(root, &ending)?;
        let lock = lock(&folder)?;
        let session = Self { folder, _lock: lock };
        session.write_info(info)?;
        let frames = session.frames();
        private_folder(&frames).map_err(at("create", &frames))?;
        session.become_latest(root)?;
        session.clear_away_oldest(root, keep)?;
        Ok(session)
    }

    /// Opens a session: its folder, its `session.json`, the `latest` link, or the root, which means
    /// the latest.
    ///
    /// # Errors
    /// When there is no session, with the searched path.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let candidates = [path.to_path_buf(), path.join(LATEST), path.parent().unwrap_or(path).to_path_buf()];
        let by_file = path.file_name().is_some_and(|name| name == INFO_FILE);
        let [itself, latest, parent] = candidates;
        let found = if by_file {
            parent
        } else if itself.join(INFO_FILE).is_file() {
            itself
        } else {
            latest
        };
        if !found.join(INFO_FILE).is_file() {
            return Err(StoreError::NoSession { path: path.into() });
        }
        let folder = fs::canonicalize(&found).map_err(at("open", &found))?;
        Ok(Self { folder, _lock: None })
    }

    /// The same session, protected from removal while this program uses it, if it can be locked.
    #[must_use]
    pub fn held(self) -> Self {
        let lock = lock(&self.folder).ok().flatten();
        Self { _lock: lock, ..self }
    }

    /// Its folder, absolute if the root was.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its name, which sorts by time.
    #[must_use]
    pub fn name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Folder of the streams.
    #[must_use]
    pub fn frames(&self) -> PathBuf {
        self.folder.join(FRAMES)
    }

    /// Packs the streams that are no longer written. A stream that cannot be packed stays as it is.
    ///
    /// # Errors
    /// For the folder, or the first stream that could not be packed.
    pub fn pack(&self) -> Result<(), StoreError> {
        let frames = self.frames();
        let entries = fs::read_dir(&frames).map_err(at("list", &frames))?;
        let mut outcome = Ok(());
        for entry in entries {
            let path = entry.map_err(at("list", &frames))?.path();
            if path.extension().is_some_and(|extension| extension == EXTENSION) {
                outcome = outcome.and(pack(&path));
            }
        }
        outcome
    }

    /// The path of a new file in one of its folders: a number, and the printable part of `name`, at most `most`
    /// characters.
    pub(crate) fn next_file(
        &self,
        folder: &str,
        (name, most): (&str, usize),
        ending: &str,
    ) -> Result<PathBuf, ExpectedError> {
        let folder = self.folder.join(folder);
        fs::create_dir_all(&folder).map_err(ExpectedError::file("create", &folder))?;
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let name: String = name.chars().map(plain).take(most).collect();
        let number = fs::read_dir(&folder).map_err(ExpectedError::file("list", &folder))?.count() + 1;
        Ok(folder.join(format!("{number:04}-{name}.{ending}")))
    }

    /// Stores the output of a run, and returns its path in the session.
    pub(crate) fn keep_output(
        &self,
        folder: &str,
        name: &str,
        ending: &str,
        bytes: &[u8],
    ) -> Result<String, ExpectedError> {
        let path = self.next_file(folder, (name, 100), ending)?;
        fs::write(&path, bytes).map_err(ExpectedError::file("write", &path))?;
        Ok(format!("{folder}/{}", path.file_name().unwrap_or_default().to_string_lossy()))
    }

    /// The content of `session.json`.
    ///
    /// # Errors
    /// When `session.json` is missing or has another format.
    pub fn info(&self) -> Result<SessionInfo, StoreError> {
        let path = self.folder.join(INFO_FILE);
        let bytes = fs::read(&path).map_err(at("read", &path))?;
        serde_json::from_slice(&bytes).map_err(|source| StoreError::Parse { path, source })
    }

    /// Replaces `session.json` when more is known.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_info(&self, info: &SessionInfo) -> Result<(), StoreError> {
        let path = self.folder.join(INFO_FILE);
        let mut text = serde_json::to_vec_pretty(info)
            .map_err(|source| StoreError::Parse { path: path.clone(), source })?;
        text.push(b'\n');
        write_atomically(&path, &text)
    }

    /// Writes a file of the session, completely or not at all, and returns its path.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, StoreError> {
        let path = self.folder.join(name);
        write_atomically(&path, bytes)?;
        Ok(path)
    }

    /// Reads a file of the session.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        let path = self.folder.join(name);
        // Reading a pipe or a device may never end.
        let regular = fs::metadata(&path).and_then(|file| match file.is_file() {
            true => fs::read(&path),
            false => Err(io::Error::other("it is no regular file")),
        });
        regular.map_err(at("read", &path))
    }

    fn become_latest(&self, root: &Path) -> Result<(), StoreError> {
        let latest = root.join(LATEST);
        if latest.symlink_metadata().is_ok_and(|m| !m.is_symlink()) {
            // It is the user's own folder.
            return Ok(());
        }
        let new = root.join(format!(".{LATEST}-{}", self.name()));
        std::os::unix::fs::symlink(self.name(), &new).map_err(at("create", &new))?;
        fs::rename(&new, &latest).map_err(at("replace", &latest))
    }

    fn clear_away_oldest(&self, root: &Path, keep: usize) -> Result<(), StoreError> {
        let mut sessions = Vec::new();
        for entry in fs::read_dir(root).map_err(at("list", root))? {
            let path = entry.map_err(at("list", root))?.path();
            if is_session(&path) {
                sessions.push(path);
            }
        }
        sessions.sort_unstable();
        let surplus = sessions.len().saturating_sub(keep);
        for old in sessions.into_iter().take(surplus).filter(|path| *path != self.folder) {
            // Another run uses it: it stays for now. Two runs may also remove the same session.
            let Ok(Some(_lock)) = lock(&old) else { continue };
            match fs::remove_dir_all(&old) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at("remove", &old)(e)),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether it is a folder of ours: its name and content are those of a session.
fn is_session(path: &Path) -> bool {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let shape = |c: char| if c.is_ascii_digit() { '0' } else { c };
    let stamped = name.get(..STAMP_SHAPE.len()).is_some_and(|s| s.chars().map(shape).eq(STAMP_SHAPE.chars()));
    let is_folder = path.symlink_metadata().is_ok_and(|m| m.is_dir());
    stamped && is_folder && path.join(INFO_FILE).is_file()
}

/// Start of a session's name, with digits as zeros.
const STAMP_SHAPE: &str = "00000000-000000-000";

fn pack(path: &Path) -> Result<(), StoreError> {
    let stream = File::open(path).map_err(at("open", path))?;
    let Some(bytes) = packed::packable(&stream).map_err(at("read", path))? else { return Ok(()) };
    files::replace(path, |file| {
        file.set_permissions(stream.metadata()?.permissions())?;
        packed::pack(&stream, bytes, file)
    })
}

/// Creates a folder in which no other user can place a link that we would follow.
fn private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

fn create_folder(root: &Path, ending: &str) -> Result<PathBuf, StoreError> {
    let stamp = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S-%3f").to_string();
    for attempt in 0..NAME_ATTEMPTS {
        let again = if attempt == 0 { String::new() } else { format!("-{attempt:02}") };
        let name = format!("{stamp}{again}{ending}");
        let folder = root.join(name);
        match private_folder(&folder) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map_err(at("create", &folder)).map(|()| folder),
        }
    }
    Err(at("create", &root.join(stamp))(io::ErrorKind::AlreadyExists.into()))
}

/// Locks a session; `None`: another process has it.
fn lock(folder: &Path) -> Result<Option<File>, StoreError> {
    let path = folder.join(LOCK_FILE);
    // An old session may have been planted by somebody else: a link in it is not followed.
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(NO_FOLLOW);
    let file = options.open(&path).map_err(at("create", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => Err(at("lock", &path)(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> SessionInfo {
        SessionInfo::now(vec!["memgate".into(), "run".into()], "1.2.3")
    }

    fn names(root: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(root).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_session_has_its_folder_its_link_and_is_kept_out_of_the_repository() {
        let project = tempfile::tempdir().unwrap();
        let root = project.path().join(ROOT);
        let session = Session::create(&root, &info()).unwrap();
        assert_eq!(names(&root), [".gitignore", &session.name(), LATEST]);
        assert_eq!(fs::read_to_string(root.join(".gitignore")).unwrap(), "*\n");
        assert_eq!(fs::read_link(root.join(LATEST)).unwrap(), Path::new(&session.name()));
        assert!(session.frames().is_dir());
        assert_eq!(session.info().unwrap().command, ["memgate", "run"]);
        session.write("report.json", b"{}").unwrap();
        assert_eq!(session.read("report.json").unwrap(), b"{}");
    }

    #[test]
    fn a_folder_whose_name_is_no_text_is_refused_with_what_to_do() {
        use std::os::unix::ffi::OsStrExt as _;
        let project = tempfile::tempdir().unwrap();
        let root = project.path().join(std::ffi::OsStr::from_bytes(b"nu\xff")).join(ROOT);
        let StoreError::Path { source, .. } = Session::create(&root, &info()).unwrap_err() else {
            panic!("it is no path")
        };
        assert!(source.to_string().contains("no text in UTF-8: rename the folder"), "{source}");
        assert!(!root.exists());
    }

    #[test]
    fn what_never_ends_is_not_read() {
        let root = tempfile::tempdir().unwrap();
        let session = Session::create(root.path(), &info()).unwrap();
        let pipe = session.folder().join("report.json");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::os::unix::fs::symlink("/dev/zero", session.folder().join("facts.json")).unwrap();
        for name in ["report.json", "facts.json"] {
            let StoreError::Path { source, .. } = session.read(name).unwrap_err() else {
                panic!("it is no path")
            };
            assert_eq!(source.to_string(), "it is no regular file");
        }
    }

    #[test]
    fn links_that_others_laid_are_not_followed() {
        let project = tempfile::tempdir().unwrap();
        let (root, theirs) = (project.path().join(ROOT), project.path().join("theirs"));
        fs::write(&theirs, "precious").unwrap();
        std::os::unix::fs::symlink(project.path(), &root).unwrap();
        assert!(Session::create(&root, &info()).unwrap_err().to_string().starts_with("use "));
        fs::remove_file(&root).unwrap();
        let why = Session::create(&theirs, &info()).unwrap_err();
        let why = crate::exit::chain(&why);
        assert!(why.ends_with("theirs: it is a file"), "{why}");

        let planted = root.join("20200101-000000-000");
        fs::create_dir_all(&planted).unwrap();
        fs::write(planted.join("session.json"), "{}").unwrap();
        std::os::unix::fs::symlink(&theirs, planted.join(LOCK_FILE)).unwrap();
        for _ in 0..=KEPT_SESSIONS {
            Session::create(&root, &info()).unwrap();
        }
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "precious");
    }

    #[test]
    fn a_session_is_found_by_root_link_folder_and_file() {
        let root = tempfile::tempdir().unwrap();
        let first = Session::create(root.path(), &info()).unwrap();
        let second = Session::create(root.path(), &info()).unwrap();
        assert!(first.name() < second.name());
        let folder = first.folder().to_path_buf();
        for (path, want) in [
            (root.path().to_path_buf(), second.name()),
            (root.path().join(LATEST), second.name()),
            (folder.clone(), first.name()),
            (folder.join("session.json"), first.name()),
        ] {
            assert_eq!(Session::open(&path).unwrap().name(), want, "{}", path.display());
        }
    }

    #[test]
    fn a_folder_without_a_session_is_an_error_that_names_it() {
        let empty = tempfile::tempdir().unwrap();
        let error = Session::open(empty.path()).unwrap_err().to_string();
        let want = format!("open {}: there is no session (no session.json in it)", empty.path().display());
        assert_eq!(error, want);
    }

    #[test]
    fn the_last_ten_are_kept_and_nothing_of_others_is_touched() {
        let root = tempfile::tempdir().unwrap();
        let foreign = ["20200101-000000-000", "notes"];
        for name in foreign {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        let in_use = Session::create(root.path(), &info()).unwrap();
        let created: Vec<_> =
            (0..KEPT_SESSIONS + 2).map(|_| Session::create(root.path(), &info()).unwrap().name()).collect();
        let mut want: Vec<_> = created[created.len() - KEPT_SESSIONS..].to_vec();
        want.push(in_use.name());
        want.extend([".gitignore", LATEST].map(str::to_owned));
        want.extend(foreign.map(str::to_owned));
        want.sort();
        assert_eq!(names(root.path()), want, "the one in use stays as well");
    }

    #[test]
    fn an_unreadable_session_file_is_an_error_with_its_path() {
        let root = tempfile::tempdir().unwrap();
        let session = Session::create(root.path(), &info()).unwrap();
        session.write("session.json", b"{").unwrap();
        let error = session.info().unwrap_err().to_string();
        assert_eq!(error, format!("read {}", session.folder().join("session.json").display()));
    }
}
