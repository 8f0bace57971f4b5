//! The device's files, in a temporary folder of this machine, and the access rights to them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::Package;

/// Who accesses a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Who {
    /// The shell, uid 2000.
    Shell,
    /// An app, by `run-as`.
    App(String),
}

pub(super) struct Files {
    root: TempDir,
    /// The files at the start, with their hashes.
    before: BTreeMap<String, Vec<u8>>,
}

/// Folders of the shell.
const SHELLS: [&str; 2] = ["/data/local/tmp", "/storage/emulated/0"];
const APPS: &str = "/data/user/0/";

impl Files {
    pub(super) fn new(packages: &[Package]) -> Self {
        let root = tempfile::Builder::new().prefix("memgate-stand-in-").tempdir().unwrap();
        let mut files = Self { root, before: BTreeMap::new() };
        for folder in SHELLS {
            fs::create_dir_all(files.host_path(folder)).unwrap();
        }
        for package in packages {
            for folder in ["cache", "code_cache", "files"] {
                fs::create_dir_all(files.host_path(&format!("{APPS}{}/{folder}", package.name))).unwrap();
            }
        }
        files.before = files.all();
        files
    }

    pub(super) fn root(&self) -> &Path {
        self.root.path()
    }

    /// Host path of an absolute device path. `..` cannot leave the device's root.
    pub(super) fn host_path(&self, path: &str) -> PathBuf {
        self.root.path().join(canonical("/", path).trim_start_matches('/'))
    }

    /// All files with their hashes; folders end with `/`.
    fn all(&self) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.root.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok) {
                let path = entry.path();
                let shown = format!("/{}", path.strip_prefix(self.root.path()).unwrap().display());
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    found.insert(format!("{shown}/"), Vec::new());
                    folders.push(path);
                } else {
                    // A file that vanishes meanwhile counts as empty.
                    let hash = Sha256::digest(fs::read(&path).unwrap_or_default());
                    found.insert(shown, hash.to_vec());
                }
            }
        }
        found
    }

    /// Changes since the start.
    pub(super) fn changes(&self) -> Vec<String> {
        let now = self.all();
        let new = now.iter().filter_map(|(path, hash)| match self.before.get(path) {
            None => Some(format!("file {path}")),
            Some(before) if before != hash => Some(format!("file {path} has changed")),
            Some(_) => None,
        });
        let gone = self
            .before
            .keys()
            .filter(|path| !now.contains_key(*path))
            .map(|path| format!("file {path} is gone"));
        new.chain(gone).collect()
    }

    /// Host path of `path`, if `who` may read it.
    pub(super) fn readable(&self, who: &Who, path: &str) -> io::Result<PathBuf> {
        let host = self.host_path(path);
        let allowed = match who {
            _ if self.owns(who, path) => true,
            Who::Shell => !path.starts_with(APPS),
            // Files of the shell, if world-readable.
            Who::App(_) if in_shells(path) => {
                fs::metadata(&host).map_or(true, |about| about.permissions().mode() & 0o004 != 0)
            }
            Who::App(_) => !path.starts_with(APPS),
        };
        if allowed { Ok(host) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }

    /// Host path of `path`, if `who` may write it.
    pub(super) fn writable(&self, who: &Who, path: &str) -> io::Result<PathBuf> {
        if self.owns(who, path) {
            Ok(self.host_path(path))
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }

    fn owns(&self, who: &Who, path: &str) -> bool {
        match who {
            Who::Shell => in_shells(path),
            Who::App(package) => path
                .strip_prefix(APPS)
                .and_then(|rest| rest.strip_prefix(package.as_str()))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        }
    }
}

fn in_shells(path: &str) -> bool {
    SHELLS.iter().any(|folder| path == *folder || path.starts_with(&format!("{folder}/")))
}

/// The absolute form of a path, with `..` and the links of every Android resolved.
pub(super) fn canonical(folder: &str, path: &str) -> String {
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{folder}/{path}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let parts = match parts.as_slice() {
        ["data", "data", rest @ ..] => [&["data", "user", "0"], rest].concat(),
        ["sdcard", rest @ ..] | ["mnt", "sdcard", rest @ ..] => {
            [&["storage", "emulated", "0"], rest].concat()
        }
        parts => parts.to_vec(),
    };
    format!("/{}", parts.join("/"))
}

/// The device's message for an error.
pub(super) fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "No such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "Permission denied".to_owned(),
        io::ErrorKind::AlreadyExists => "File exists".to_owned(),
        io::ErrorKind::IsADirectory => "Is a directory".to_owned(),
        io::ErrorKind::NotADirectory => "Not a directory".to_owned(),
        io::ErrorKind::DirectoryNotEmpty => "Directory not empty".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_out_of_the_device() {
        let files = Files::new(&[Package::app("com.x")]);
        for (path, below) in [
            ("/../../etc/passwd", "etc/passwd"),
            ("/data/data/com.x/cache", "data/user/0/com.x/cache"),
            ("/sdcard/a//./b", "storage/emulated/0/a/b"),
        ] {
            assert_eq!(files.host_path(path), files.root().join(below));
        }
    }

    #[test]
    fn everybody_keeps_to_their_own_folders() {
        let files = Files::new(&[Package::app("com.x")]);
        let (shell, app) = (Who::Shell, Who::App("com.x".to_owned()));
        let shared = files.host_path("/data/local/tmp/a");
        fs::write(&shared, "").unwrap();
        for (mode, read) in [(0o600, false), (0o644, true)] {
            fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(files.readable(&app, "/data/local/tmp/a").is_ok(), read);
        }
        for (who, path, read, write) in [
            (&shell, "/data/user/0/com.x/files", false, false),
            (&app, "/data/user/0/com.x/files", true, true),
            (&app, "/data/user/0/com.xy/files", false, false),
            (&app, "/data/local/tmp/b", true, false),
            (&shell, "/data/local/tmp/b", true, true),
            (&shell, "/system/lib64", true, false),
        ] {
            assert_eq!(
                (files.readable(who, path).is_ok(), files.writable(who, path).is_ok()),
                (read, write),
                "{who:?} {path}"
            );
        }
        assert_eq!(files.changes(), ["file /data/local/tmp/a"]);
    }
}
