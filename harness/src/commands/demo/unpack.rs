//! Writes the sources of a suite into a folder.

use std::fs;
use std::path::Path;

use crate::exit::ExpectedError;

/// `files`: names, which may contain folders, and texts.
pub(super) fn unpack(folder: &Path, files: &[(&str, &str)]) -> Result<(), ExpectedError> {
    for (name, text) in files {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(ExpectedError::file("create", parent))?;
        fs::write(&path, text).map_err(ExpectedError::file("write", &path))?;
    }
    Ok(())
}
