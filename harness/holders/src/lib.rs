//! Finds what holds a native block: a conservative search in the memory of a stopped process.
//!
//! Data flow: memory that the caller reads for us ([`Memory`]) and the layout of the agent's table of live blocks
//! ([`memgate_wire::native_holders::TableLayout`]) → [`Blocks`], sorted by address → mappings, modules and threads →
//! [`Roots`]: static data and thread-local storage, then stacks above their stack pointers, then memory that was
//! mapped without the allocator → [`search()`]: every aligned word of a live block or of a root that points at or
//! into a live block is an edge; a breadth-first walk gives each block its shortest path from a root, and blocks
//! without a path are lost → for each allocation site the state of most of its blocks, and the path to one of them.
//!
//! # What holds nothing
//!
//! - Free memory, and the allocator's own data: only live blocks of a heap are read, and the lists of free chunks in
//!   the C library's data are left out. Blocks that were allocated before the agent began to record are found in
//!   glibc's main heap by their chunks (`glibc`).
//! - The part of a stack below its stack pointer, and the stacks of ended threads, which glibc keeps for later ones.
//!   (They are not known on aarch64, nor where a stack has no mapping of its own as a guard.)
//!
//! A number that looks like a pointer still holds a block, and so does a value that was left in an unused part of a
//! live frame. So a site gets the state of *most* of its blocks: a leak has many of them.
//!
//! No I/O and no clock. Bounded by [`Limits`], and by the caller, which is asked from time to time whether to go on.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod blocks;
mod glibc;
mod maps;
mod memory;
mod roots;
mod search;
mod stacks;

pub use blocks::Blocks;
pub use maps::{Mapping, parse_maps};
pub use memory::Memory;
pub use roots::{Process, Root, RootKind, Roots, Thread, Turn};
pub use search::{Site, Step, search};
pub use stacks::function_at;

/// Maximum amounts to search.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Live blocks.
    pub blocks: usize,
    /// Pointers from one to another.
    pub edges: usize,
}

impl Default for Limits {
    /// The limits, which together allow about a gigabyte.
    fn default() -> Self {
        Self { blocks: 16 << 20, edges: 96 << 20 }
    }
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSearched {
    /// The caller ended the search because it takes too long.
    Time,
    /// There are more live blocks than [`Limits::blocks`].
    Blocks(usize),
    /// There are more pointers than [`Limits::edges`].
    Edges(usize),
    /// The agent's table is not at the reported address.
    Table,
}

impl std::fmt::Display for NotSearched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Time => f.write_str("it took too long"),
            Self::Blocks(most) => write!(f, "there are more than {most} live blocks"),
            Self::Edges(most) => write!(f, "there are more than {most} pointers between live blocks"),
            Self::Table => f.write_str("the agent's table of live blocks cannot be read"),
        }
    }
}

impl std::error::Error for NotSearched {}
