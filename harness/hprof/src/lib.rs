//! Heap dumps of Java: what is in them, what holds it, how much each holds.
//!
//! Data flow: a file → [`read`]: one walk over its records for each pass → [`Index`]: the first
//! pass, everything but references.
#![forbid(unsafe_code)]

mod ids;
mod index;
pub mod read;
pub mod text;
mod trim;

pub use ids::{Ids, NONE};
pub use index::{Class, Counts, Frame, Index, Root, Tally, Trace};
pub use trim::{Packed, TrimError, trim};
