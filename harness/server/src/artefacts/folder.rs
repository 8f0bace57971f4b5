//! Artefacts as files of a folder.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::Spool;

#[derive(Debug, Clone)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self(folder.to_owned()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn put(&self, key: &str, spool: &Spool) -> io::Result<()> {
        spool.file.sync_all()?;
        if !spool.is_there() {
            return Err(io::Error::other("somebody removed what had arrived"));
        }
        let path = self.0.join(key);
        fs::create_dir_all(path.parent().unwrap_or(&self.0))?;
        // The rename is atomic: a reader sees the whole file or none.
        fs::rename(&spool.path, path)
    }

    pub(super) fn get(&self, key: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(self.0.join(key))?))
    }

    pub(super) fn remove(&self, key: &str) -> io::Result<()> {
        let path = self.0.join(key);
        match fs::remove_file(&path) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
            _ => {}
        }
        // The folder of a run is removed with its last file.
        match path.parent().map(fs::remove_dir) {
            Some(Err(why))
                if !matches!(why.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound) =>
            {
                Err(why)
            }
            _ => Ok(()),
        }
    }
}
