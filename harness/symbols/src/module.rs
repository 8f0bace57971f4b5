//! A module whose symbols are asked for, and why it has none.

use std::path::PathBuf;

/// A module as the agent recorded it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModuleRef {
    /// Path as the loader knew it.
    pub path: PathBuf,
    /// GNU build id; empty where there is none: then only a file at the path without one fits.
    pub build_id: Vec<u8>,
}

/// Why a module has no symbols. The text is for a report: "not symbolised: {error}".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSymbolised {
    /// No file at the path, and none with its build id elsewhere.
    #[error("no such file")]
    Missing,
    /// There is a file, but of another build.
    #[error("build id differs")]
    BuildIdDiffers,
    /// No file at the path, and in the symbol folders one of its name, but of another build.
    #[error(
        "{} is of another build: its build id is {its}, the process had {wanted}",
        path.display()
    )]
    OtherBuild {
        /// The file.
        path: PathBuf,
        /// Its build id.
        its: String,
        /// The build id that the process told.
        wanted: String,
    },
    /// No file at the path, and none with its build id in the symbol folders.
    #[error("no file with its build id {0} is in the folders for symbols")]
    NotInFolders(String),
    /// No file at the path, and no build id by which one of the symbol folders could be known.
    #[error("it has no build id by which its symbols could be found: link it with -Wl,--build-id")]
    NoBuildId,
    /// The file cannot be read or makes no sense.
    #[error("{0}")]
    Unreadable(String),
}
