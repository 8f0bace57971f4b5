//! A module whose symbols are requested, and the reasons why it has none.

use std::path::PathBuf;

/// A module as the agent recorded it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModuleRef {
    /// Path that the loader used.
    pub path: PathBuf,
    /// GNU build id. If it is empty, only a file at the path that has no build id matches.
    pub build_id: Vec<u8>,
}

/// Why a module has no symbols. The text is for a report: "not symbolised: {error}".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSymbolised {
    /// No file at the path, and none with its build id elsewhere.
    #[error("no such file")]
    Missing,
    /// There is a file, but from another build.
    #[error("build id differs")]
    BuildIdDiffers,
    /// No file at the path; the symbol folders have one with its name, but from another build.
    #[error(
        "{} is of another build: its build id is {its}, the process had {wanted}",
        path.display()
    )]
    OtherBuild {
        /// The file.
        path: PathBuf,
        /// Its build id.
        its: String,
        /// The build id that the process reported.
        wanted: String,
    },
    /// No file at the path, and none with its build id in the symbol folders.
    #[error("no file with its build id {0} is in the folders for symbols")]
    NotInFolders(String),
    /// No file at the path, and no build id to find one in the symbol folders.
    #[error("it has no build id by which its symbols could be found: link it with -Wl,--build-id")]
    NoBuildId,
    /// The file cannot be read or is not valid.
    #[error("{0}")]
    Unreadable(String),
}
