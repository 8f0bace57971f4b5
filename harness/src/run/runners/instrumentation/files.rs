//! What a run on a device printed, in the session.

use std::fs;
use std::path::PathBuf;

use crate::exit::ExpectedError;
use crate::session::Session;

/// Folder in the session.
const FOLDER: &str = "instrumentation";

/// Numbers what is kept.
#[derive(Debug)]
pub(super) struct Files(PathBuf);

impl Files {
    pub(super) fn new(session: &Session) -> Result<Self, ExpectedError> {
        let folder = session.folder().join(FOLDER);
        fs::create_dir_all(&folder).map_err(ExpectedError::file("create", &folder))?;
        Ok(Self(folder))
    }

    /// Keeps what `am` printed, and tells where.
    pub(super) fn keep(&self, name: &str, output: &[u8]) -> Result<String, ExpectedError> {
        let printable: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' })
            .take(100)
            .collect();
        let number = fs::read_dir(&self.0).map_err(ExpectedError::file("list", &self.0))?.count() + 1;
        let name = format!("{number:04}-{printable}.txt");
        let path = self.0.join(&name);
        fs::write(&path, output).map_err(ExpectedError::file("write", &path))?;
        Ok(format!("{FOLDER}/{name}"))
    }
}
