//! Who holds native blocks that leak.
//!
//! Data flow: the harness orders a copy of the process at the end of a test
//! ([`crate::spool::order::COPY`]) → the agent forks one that stands still, and tells in a
//! [`NativeCopy`] which process it is and where its table of live blocks lies → the harness reads
//! that process's memory, searches it, and writes what it found as [`NativeHolders`] frames into
//! its own stream beside the agent's.

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
    /// How long making it took, nanoseconds: so long the process stood still.
    pub took_ns: u64,
    /// Thread that made it, the only one that the copy has.
    pub thread_id: u32,
    /// Its stack pointer: everything above belongs to its stack, its registers included.
    pub stack_pointer: u64,
    /// Its thread pointer.
    pub thread_pointer: u64,
    /// Where the live blocks are noted.
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

/// The agent's table of live blocks, as it lies in the memory of the process.
///
/// Two levels of directories of pointers (0: nothing there) lead to leaves of one word per granule
/// of the address space; a word that is not 0 is a block that begins in that granule. What does not
/// fit is in the segments of the spill table: cells of four words, of which the first is the
/// address (at most 1, or all ones: no block), the third the size, and the fourth has the stack in
/// its upper half.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableLayout {
    /// Address of the upper directory.
    pub top: u64,
    /// Address bits that choose in it, in a lower directory, and in a leaf.
    pub bits: (u8, u8, u8),
    /// A granule has this power of two of bytes.
    pub granule_shift: u8,
    /// From the top of a word down: bits of the stack, of the epoch, of the size.
    pub word: (u8, u8, u8),
    /// Address of the pointers to the segments of the spill table.
    pub spill: u64,
    /// How many there are at most.
    pub segments: u32,
    /// Cells of the first; each has four times as many as the one before.
    pub first_cells: u32,
}

/// Who holds the blocks of some allocation sites.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeHolders {
    /// The [`crate::Boundary::sequence`] at which the copy was made.
    pub boundary: u32,
    /// Why nobody looked, or not to the end.
    pub not_searched: Option<String>,
    /// Threads whose registers were not seen.
    pub unseen_registers: u32,
    /// Live blocks that were looked through, and their bytes.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// How long that took, nanoseconds.
    pub took_ns: u64,
    /// What was found.
    pub held: Vec<HeldBlocks>,
}

/// The blocks of one allocation site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBlocks {
    /// Their stack.
    pub stack: u32,
    /// How many there are.
    pub blocks: u64,
    /// What most of them are, …
    pub state: HeldState,
    /// … and how many.
    pub of_state: u64,
    /// The way to one of them from its root, or from the lost block that refers to it; without the
    /// block itself.
    pub path: Vec<HeldLink>,
}

/// Can a program still get at a block?
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HeldState {
    /// From a root, by pointers.
    Reachable,
    /// No pointer to it is left.
    Lost,
    /// Only blocks refer to it that refer to each other.
    LostCycle,
    /// Only blocks refer to it that are lost themselves.
    IndirectlyLost,
}

/// One step of the way to a block.
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
        /// A return address into the function whose frame it is; 0: not known.
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
    /// The C library's own data of a thread: values of `pthread_setspecific`, storage of libraries
    /// that were loaded late.
    ThreadData {
        /// Name of the thread.
        thread: String,
    },
    /// Memory that was mapped past the allocator.
    Mapped {
        /// What `/proc` calls it; empty: nothing.
        name: String,
    },
    /// Blocks of one allocation site, each of which refers to the next.
    Blocks {
        /// Their stack.
        stack: u32,
        /// Bytes of the first.
        size: u64,
        /// How many.
        count: u64,
    },
}
