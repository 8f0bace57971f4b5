//! The holders of native blocks that leak.
//!
//! Data flow: the harness orders a copy of the process at the end of a test ([`crate::spool::order::COPY`]) → the agent
//! forks a copy that sleeps, and reports in a [`NativeCopy`] its process id and the address of its table of live blocks
//! → the harness reads and searches the memory of that process, and writes the result as [`NativeHolders`] frames into
//! its own stream next to the agent's.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// A copy of the process, made at a boundary.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeCopy {
    /// The [`crate::Boundary::sequence`] at which it was made.
    pub boundary: u32,
    /// Its process id, as the writer sees it; 0: there is none.
    pub pid: u32,
    /// Why there is none: an `errno`.
    pub error: i32,
    /// How long it took to make the copy, nanoseconds: the process was stopped for this time.
    pub took_ns: u64,
    /// Thread that made it, the only thread of the copy.
    pub thread_id: u32,
    /// Its stack pointer: everything above belongs to its stack, its registers included.
    pub stack_pointer: u64,
    /// Its thread pointer.
    pub thread_pointer: u64,
    /// Position and layout of the table of live blocks.
    pub table: TableLayout,
    /// Modules with thread-local variables.
    pub thread_local: Vec<ThreadLocalModule>,
}

/// A module with thread-local variables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadLocalModule {
    /// Path as the loader knows it; the executable's absolute path for the main program.
    pub path: String,
    /// Its number among such modules, from 1.
    pub number: u64,
    /// Bytes of its variables.
    pub bytes: u64,
}

/// The agent's table of live blocks, as it is laid out in the memory of the process.
///
/// Two levels of directories of pointers (0: empty) lead to leaves of one word per granule of the address space; a word
/// that is not 0 is a block that begins in that granule. Entries that do not fit are in the segments of the spill
/// table: cells of four words. The first word is the address (at most 1, or all ones: no block), the third the size,
/// and the fourth has the stack in its upper half.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableLayout {
    /// Address of the upper directory.
    pub top: u64,
    /// Address bits that index the upper directory, a lower directory, and a leaf.
    pub bits: (u8, u8, u8),
    /// Power of two of the bytes of a granule.
    pub granule_shift: u8,
    /// From the top of a word down: bits of the stack, of the epoch, of the size.
    pub word: (u8, u8, u8),
    /// Address of the pointers to the segments of the spill table.
    pub spill: u64,
    /// Maximum number of segments.
    pub segments: u32,
    /// Cells of the first segment; each has four times as many as the one before.
    pub first_cells: u32,
}

/// The holders of the blocks of some allocation sites.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeHolders {
    /// The [`crate::Boundary::sequence`] at which the copy was made.
    pub boundary: u32,
    /// Why the search did not run, or did not finish.
    pub not_searched: Option<String>,
    /// Threads whose registers were not seen.
    pub unseen_registers: u32,
    /// Number of live blocks that were searched.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// How long the search took, nanoseconds.
    pub took_ns: u64,
    /// The results.
    pub held: Vec<HeldBlocks>,
}

/// Blocks of one allocation site. One result for the state of most of its blocks, with their number in `blocks`. One
/// more, with 0 `blocks`, for each other state in which blocks are lost. Reachable blocks have none if most have
/// another state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBlocks {
    /// Their stack.
    pub stack: u32,
    /// How many the site has; 0: an earlier result of this stack counts them.
    pub blocks: u64,
    /// The state of most of them, or of those that are lost, …
    pub state: HeldState,
    /// … and how many blocks have this state.
    pub of_state: u64,
    /// The path to one of them from its root, or from the lost block that refers to it; without the block itself.
    pub path: Vec<HeldLink>,
}

/// Can a program still reach a block?
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HeldState {
    /// From a root, by pointers.
    Reachable,
    /// No pointer to it is left.
    Lost,
    /// All blocks that refer to it are lost too, and refer to each other in a cycle.
    LostCycle,
    /// All blocks that refer to it are lost themselves.
    IndirectlyLost,
}

/// One step of the path to a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeldLink {
    /// A static or global variable.
    Static {
        /// Path of the module.
        module: String,
        /// Address in the file's address space.
        offset: u64,
    },
    /// The stack of a thread.
    Stack {
        /// Its name.
        thread: String,
        /// A return address in the function of the frame; 0: not known.
        pc: u64,
    },
    /// Thread-local storage.
    ThreadLocal {
        /// Name of the thread.
        thread: String,
        /// Path of the module whose variable it is; empty: not known.
        module: String,
        /// Offset in the module's block of thread-local variables.
        offset: u64,
    },
    /// The C library's own data of a thread: values of `pthread_setspecific`, storage of libraries that were loaded
    /// late.
    ThreadData {
        /// Name of the thread.
        thread: String,
    },
    /// Memory that was mapped without the allocator.
    Mapped {
        /// Its name in `/proc`; empty: none.
        name: String,
    },
    /// Blocks of one allocation site; each refers to the next.
    Blocks {
        /// Their stack.
        stack: u32,
        /// Bytes of the first.
        size: u64,
        /// How many.
        count: u64,
    },
}
