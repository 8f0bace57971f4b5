//! Analyses Java heap dumps: their contents, the holders of objects, and how much each object retains.
//!
//! Data flow: a file → [`read`]: one walk over its records for each pass → [`Index`]: the first pass, everything but
//! references → [`Graph`]: the second pass, references as ranks → leaks and their paths ([`Heap::analyse`]), or
//! [`Dominators`] and retained sizes. No object is kept as such: each costs 20 bytes, and no search uses recursion.
#![forbid(unsafe_code)]

mod analysis;
mod bitmaps;
mod bits;
mod contents;
mod dominators;
mod follow;
mod graph;
mod growth;
mod ids;
mod index;
mod keep;
mod leakcanary;
mod ledger;
mod looked;
mod mistakes;
mod objects;
pub mod read;
mod rename;
mod restore;
mod rules;
mod search;
pub mod text;
mod texts;
mod threads;
mod tree;
mod trim;

pub use analysis::{About, Analysis, Heap, Leak, Node, OfClass, Question, Reference, Status, root_name};
pub use bitmaps::{BITMAP, Bitmap, Pixels, Show, together};
pub use dominators::{Dominators, Grouping, Together};
pub use graph::{Graph, Kind, Layout, Slot, Watched};
pub use growth::{Container, FEWEST, Growing, Link, changes, growth};
pub use ids::{Ids, NONE};
pub use index::{Class, Counts, Frame, Index, Root, Tally, Trace};
pub use keep::Keep;
pub use leakcanary::leakcanary;
pub use ledger::{Holding, LEDGER_VERSION, Ledger, LedgerError, Place};
pub use rename::{Call, Names};
pub use restore::{Cropped, RestoreError, restore, uncrop};
pub use rules::{Rules, RulesError};
pub use texts::{Duplicate, Texts};
pub use threads::{Local, StackFrame, Thread};
pub use tree::{lonely, tree, tree_of_trimmed};
pub use trim::{Packed, TrimError, trim, trim_file};
