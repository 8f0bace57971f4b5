//! A leak: what grows, its allocation site, its holder.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of a leak.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeakKind {
    /// Native allocations.
    #[default]
    Native,
    /// Java objects.
    Java,
    /// Descriptors or threads.
    Os,
    /// Memory that the program itself mapped.
    Mapped,
    /// Java objects in a heap dump: what is over and still there, or too many of a class.
    Heap,
}

impl LeakKind {
    /// The kind of the leak with this id.
    #[must_use]
    pub fn of_id(id: &str) -> Option<Self> {
        Some(match id.split_once("1-")?.0 {
            "n" => Self::Native,
            "j" => Self::Java,
            "o" => Self::Os,
            "m" => Self::Mapped,
            "h" => Self::Heap,
            _ => return None,
        })
    }

    /// Objects of a Java class, with who holds them.
    #[must_use]
    pub const fn is_java(self) -> bool {
        matches!(self, Self::Java | Self::Heap)
    }

    /// The words after a leak's bytes.
    #[must_use]
    pub const fn per(self) -> &'static str {
        match self {
            Self::Heap => " in the heap dump",
            Self::Native | Self::Java | Self::Os | Self::Mapped => " per iteration",
        }
    }
}

/// Survivors with one signature.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Leak {
    /// `n1-…`, `j1-…`, `o1-…`, `m1-…` or `h1-…`: stable across rebuilds and ASLR. `h1-` has the first 16
    /// digits of LeakCanary's fingerprint.
    pub id: String,
    /// The kind of the leak.
    pub kind: LeakKind,
    /// `12 × 4096 B`, `12 × com.example.Tile`, `1 × descriptor /tmp/log`.
    pub title: String,
    /// Growth per iteration (for `one_time`: bytes in all; of a heap dump: bytes that only leaks
    /// hold).
    pub bytes_per_iteration: f64,
    /// Allocations, objects, descriptors or threads per iteration (for `one_time` and of a heap
    /// dump: in all).
    pub count_per_iteration: f64,
    /// Class, for Java.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Stack that allocated it, innermost first, without libc's, the runner's and the agent's
    /// frames.
    #[serde(default)]
    pub frames: Vec<Frame>,
    /// Who holds it, from the root on. For native leaks: without the leaking block itself; from the
    /// lost block on, where it is lost with another.
    #[serde(default)]
    pub holder: Vec<HolderStep>,
    /// Whether a program can still get at it, for native leaks of tests that were confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// The stack could not be unwound to its root.
    #[serde(default)]
    pub truncated: bool,
    /// Owner of the code that leaks, by the project's CODEOWNERS: for the first frame in its own files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// Reason of the waiver that covers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiver: Option<String>,
}

/// One frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Frame {
    /// Demangled function; `None`: no symbol.
    pub function: Option<String>,
    /// Source file, relative to the project where it is inside; else as the debug information
    /// names it.
    pub file: Option<String>,
    /// Line in it.
    pub line: Option<u32>,
    /// File name of the module.
    pub module: String,
    /// Offset in the module's file address space (virtual address without bias).
    pub offset: u64,
    /// Was it inlined into the next frame?
    pub inlined: bool,
}

/// Whether a program can still get at the blocks of a native leak.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hold {
    /// The state of most of them.
    pub reach: Reach,
    /// How many blocks have this state, and the holder of the leak.
    pub of_reach: u64,
    /// How many blocks there were at the time of the search.
    pub blocks: u64,
    /// What the search left out, or why there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// How the other blocks are held that were allocated on other lines of the same functions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherHold>,
}

/// How blocks of a native leak are held that are not held as most of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OtherHold {
    /// Their state.
    pub reach: Reach,
    /// How many they are.
    pub blocks: u64,
    /// Who holds them, from the root on, as in `holder` of the leak.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holder: Vec<HolderStep>,
}

/// Whether a program can still get at a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// By pointers from a variable, a stack or mapped memory.
    Reachable,
    /// No pointer to it is left.
    Lost,
    /// Only blocks refer to it that refer to each other.
    LostCycle,
    /// Only blocks refer to it that are lost themselves.
    IndirectlyLost,
    /// Not searched.
    NotSearched,
}

/// One step of a holder path. For native leaks `owner` is a variable or function, `name` its place
/// in the sources, and `class` an offset in the variable, or number and size of the blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HolderStep {
    /// `static`, `field`, `array`, `thread`, `jni global`, …
    pub kind: String,
    /// Class that owns the reference.
    pub owner: String,
    /// Name of the field, `[x]` for an array.
    pub name: String,
    /// Class of the object it refers to.
    pub class: String,
}
