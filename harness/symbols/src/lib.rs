//! Resolves addresses to functions, files and lines, by build id.
//!
//! Data flow: a module as named in a frame stream (path and GNU build id) → [`find`] searches for a file with exactly
//! this build id (the path itself, the folders of [`Options`], the system's debug folders) and takes the one with most
//! symbol information → blazesym reads its DWARF or its symbol tables → [`demangle`] makes names that are equal in two
//! builds, and [`inlined`] adds the namespaces of inlined functions. If only the name of a library is known
//! ([`Symbolizer::builds`]), the caller compares the position of its code with the mapping. A file of another build is
//! refused: wrong symbols are worse than none.
//!
//! The files come from outside. [`elf`] checks their headers first and refuses files that would make the reader run
//! out of memory. A panic of that reader is caught at one place and becomes an error value.

#![forbid(unsafe_code)]

mod demangle;
mod dwarf;
pub mod elf;
mod find;
mod inlined;
mod module;
mod symbolizer;
mod variables;

pub use module::{ModuleRef, NotSymbolised};
pub use symbolizer::{Build, Options, Symbol, Symbolizer};
pub use variables::Variable;
