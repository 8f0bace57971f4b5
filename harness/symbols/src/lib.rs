//! Addresses to functions, files and lines, matched by build id.
//!
//! Data flow: a module as a frame stream names it (path and GNU build id) → [`find`] looks for a
//! file with exactly this build id (the path itself, the folders of [`Options`], the system's debug
//! folders) and takes the one that knows most → blazesym reads its DWARF or its symbol tables →
//! [`demangle`] makes names that are equal in two builds. Who knows a library by its name alone
//! ([`Symbolizer::builds`]) compares the place of its code with what was mapped. A file of another
//! build is refused: wrong symbols are worse than none.
//!
//! The files come from outside. [`elf`] looks at their headers first and refuses what would make
//! the reader behind it run out of memory; a panic of that reader is caught at one place and
//! becomes an error value.

#![forbid(unsafe_code)]

mod demangle;
pub mod elf;
mod find;
mod module;
mod symbolizer;
mod variables;

pub use module::{ModuleRef, NotSymbolised};
pub use symbolizer::{Build, Options, Symbol, Symbolizer};
pub use variables::Variable;
