//! Reads the records of a dump file.
//!
//! Data flow: a file ([`file`]: plain, gzip of any number of members, zstd) → pieces of its bytes → [`walk`], the
//! only place that knows the layout of records → a [`Visit`]or. Each pass over a dump is one such walk; nothing is
//! mapped into memory, and there is no random access.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod file;
mod odd;
mod visit;
mod walk;

pub(crate) use file::Told;
pub use file::{DumpFile, Packing};
pub use odd::{Odd, Oddities};
pub use visit::{ClassDump, Field, Header, Static, Visit};
pub(crate) use walk::{HEAP_DUMP, REFERENCE, number};
pub use walk::{Source, Stream, Walked, value_bytes, walk};

/// Called while a dump is read: the pass, bytes done, and all bytes if they are known.
pub type Progress<'a> = &'a dyn Fn(&'static str, u64, Option<u64>);

/// Why a dump cannot be read. The texts fit after "cannot use FILE: ".
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is another kind of file.
    #[error("it is no heap dump of Java")]
    NotADump,
    /// Tailor's output is no heap dump before it is restored.
    #[error("it was trimmed by Tailor: its objects have no sizes before it is restored")]
    Tailor,
    /// It has more objects or references than 32-bit ranks can number.
    #[error("it has more objects or references than memgate can number (4,294,967,040)")]
    TooMany,
    /// It grew or shrank between two passes.
    #[error("it changed while it was read; wait until it is whole")]
    Changed,
    /// A file of this machine, or packed bytes that are damaged.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}
