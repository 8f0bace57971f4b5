//! Mapping files of R8 and ProGuard: the names of classes, fields and methods before renaming, and the methods that
//! were inlined into them.
//!
//! ```text
//! # {"id":"com.android.tools.r8.mapping","version":"2.2"}       comments; some hold JSON about the line before
//! com.example.Tile -> a.b:
//! # {"id":"sourceFile","fileName":"Tiles.kt"}
//!     int size -> a
//!     1:3:void com.example.Cache.put(int):40:42 -> c      inlined into the next line: the same range and name
//!     1:3:void load(int):12 -> c                          renamed file's range : signature : original's range
//! ```
//!
//! Data flow: text → [`Mapping::read`], which checks it, borrows from it and sorts by renamed class → class names,
//! fields ([`Mapping::class`], [`Mapping::fields`]) and frames ([`Mapping::frames`]), for which the members of a class
//! are parsed when they are first needed → [`Mapping::trace`] for the text of a whole stack trace. To find the mapping
//! file of a build: [`map_ids`] of its code, [`Mapping::is_of_build`].
//!
//! If several originals match (overloads that got one name, a frame without a line), all are returned. Code that R8
//! moved out of methods is reported at the line of its caller ([`Mapping::is_outline`]). Not supported: rewritten
//! frames, which stay as R8 made them; residual signatures.

mod classes;
mod frames;
mod marker;
mod outlines;
mod read;
mod trace;

pub use classes::{Field, Mapping};
pub use frames::OriginalFrame;
pub use marker::map_ids;
pub use read::MappingError;
