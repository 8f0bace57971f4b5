//! Reads what Android's malloc_debug reports about a process: the live allocations, and their stacks.
//!
//! Data flow: a buffer of `get_malloc_leak_info` with its out values ([`leak_info`]) or the text of a native heap
//! dump ([`heap_dump`]) → records as written → [`aggregate`] adds up those with the same flag, size and stack,
//! decides what `num` means, and notes oddities → [`Snapshot`]. [`compare`] returns how two snapshots differ.
//!
//! The rules were observed with a device's own libraries, or read in their sources:
//! - The writer merges equal records only if its sort happens to put them side by side. So **the same allocation site
//!   may have many records**, which are added up first.
//! - `num` is a count on Android 9 and later. Android 7 wrote the depth of the stack there, Android 8 always 1, one
//!   record for each allocation. Where `num` may be wrong, the stated total decides.
//! - Program counters are return addresses that the writer has **already moved back into the call**, so nothing is
//!   subtracted here.
//! - A stack may be cut at the configured depth, may end at code without unwind tables, or be
//!   empty.
//! - Five out values that are all zero mean "nothing was measured", never "nothing is live".
//! - Bit 31 of the size (also on 64-bit) marks allocations after the fork from the zygote. Sizes have 31 bits.
//! - A text dump that has no `END` is cut off, and refused.

mod aggregate;
mod compare;
mod heap_dump;
mod leak_info;
mod maps;
mod oddity;

pub use compare::{Change, compare};
pub use heap_dump::{HeapDumpError, HeapDumpProblem, is_heap_dump, read_heap_dump};
pub use leak_info::{LeakInfoError, OutValues, read_leak_info};
pub use maps::{Mapping, Maps, Place};
pub use oddity::Oddity;

/// The live allocations of one process at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The format of the input.
    pub format: Format,
    /// One per flag, size and stack; the most bytes first.
    pub records: Vec<Record>,
    /// Bytes of all records.
    pub total_bytes: u64,
    /// Allocations of all records.
    pub total_count: u64,
    /// Deepest recorded stack, if it is reported.
    pub backtrace_size: Option<u64>,
    /// The build of the system (heap dumps of Android 10 and later).
    pub build_fingerprint: Option<String>,
    /// The mappings of the process; empty for a buffer.
    pub maps: Maps,
    /// Oddities of the input, in the order of [`Oddity`].
    pub oddities: Vec<Oddity>,
}

/// The input formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A buffer of a 32-bit process.
    LeakInfo32,
    /// A buffer of a 64-bit process.
    LeakInfo64,
    /// Heap dump v1.0, up to Android 8.1.
    HeapDump10,
    /// Heap dump v1.1, Android 9.
    HeapDump11,
    /// Heap dump v1.2, Android 10 and later.
    HeapDump12,
}

impl Format {
    /// A name for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LeakInfo32 => "leak info, 32 bit",
            Self::LeakInfo64 => "leak info, 64 bit",
            Self::HeapDump10 => "heap dump v1.0",
            Self::HeapDump11 => "heap dump v1.1",
            Self::HeapDump12 => "heap dump v1.2",
        }
    }
}

/// Live allocations of one size with one stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Allocated after the fork from the zygote? Never set in a process that is not its child.
    pub zygote_child: bool,
    /// Requested size of one allocation, in bytes.
    pub size: u64,
    /// How many are live.
    pub count: u64,
    /// Program counters, innermost first, each within its call.
    pub frames: Vec<u64>,
    /// The same frames with names, if the process itself resolved them (`backtrace_full`).
    pub named: Vec<NamedFrame>,
}

impl Record {
    /// Bytes of all its allocations together.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        // Checked when the records were added up.
        self.size.saturating_mul(self.count)
    }
}

/// A frame, with names that the process resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFrame {
    /// Mapped file.
    pub map: String,
    /// Address relative to it.
    pub relative_pc: u64,
    /// Function, demangled; may be empty.
    pub function: String,
    /// Offset from its beginning, in bytes.
    pub offset: u64,
}
