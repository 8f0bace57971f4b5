//! Who holds a native block: a conservative search in the memory of a process that stands still.
//!
//! Data flow: memory that somebody reads for us ([`Memory`]) and where the agent notes live blocks
//! ([`memgate_wire::native_holders::TableLayout`]) → [`Blocks`], sorted by address → mappings,
//! modules and threads → [`Roots`]: static data and thread-local storage, then stacks above their stack
//! pointers, then memory that was mapped past the allocator → [`search()`]: every
//! aligned word of a live block or of a root that points at or into a live block is an edge; a
//! breadth-first walk gives each block its shortest way from a root, and what no root leads to is
//! lost → for each allocation site what most of its blocks are, and the way to one of them.
//!
//! # What holds nothing
//!
//! - Free memory, and what the allocator notes for itself: of a heap live blocks alone are read, and
//!   of the C library's data not the lists of free chunks. What was allocated before the agent began to
//!   record is found in glibc's main heap by its chunks (`glibc`).
//! - The part of a stack below its stack pointer.
//!
//! A number that looks like a pointer holds a block all the same, and so does what was left behind
//! in an unused part of a live frame. So a site is told by what *most* of its blocks are: a leak has
//! many of them.
//!
//! No I/O and no clock. Bounded by [`Limits`], and by the caller, who is asked now and then.

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

/// How much is looked through at most.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Live blocks.
    pub blocks: usize,
    /// Pointers from one to another.
    pub edges: usize,
}

impl Default for Limits {
    /// Together about a gigabyte.
    fn default() -> Self {
        Self { blocks: 16 << 20, edges: 96 << 20 }
    }
}

/// Why nothing was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSearched {
    /// The caller said that it takes too long.
    Time,
    /// There are more live blocks than [`Limits::blocks`].
    Blocks(usize),
    /// There are more pointers than [`Limits::edges`].
    Edges(usize),
    /// The agent's table is not where it was told to be.
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
