//! Turns dumps that other tools trimmed into heap dumps again.

mod koom;
mod tailor;

pub use koom::{Cropped, uncrop};
pub use tailor::restore;

/// Limit for restored values, so that they do not fill a disk. No heap of Android is this large.
const LONGEST: u64 = 4 << 30;

/// Why a dump cannot be restored. The texts fit after "cannot use FILE: ".
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// It is another kind of file.
    #[error("it is no dump that Tailor trimmed")]
    NotTailor,
    /// The file ends early: a length announces more bytes.
    #[error("it ends in the middle, at byte {at} of the unpacked stream")]
    Cut {
        /// Where.
        at: u64,
    },
    /// An unknown record.
    #[error("byte {at} of the unpacked stream begins a record of an unknown kind (0x{tag:02x})")]
    Unknown {
        /// Its tag.
        tag: u8,
        /// Where.
        at: u64,
    },
    /// No heap is this large.
    #[error("it would be larger than 4 GiB")]
    TooLarge,
    /// It changed between two passes.
    #[error("{0}")]
    Read(#[from] crate::read::ReadError),
    /// A file of this machine, or packed bytes that are damaged.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}
