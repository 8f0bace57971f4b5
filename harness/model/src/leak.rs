//! A leak: its size, its allocation site, its holder.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::runner::Runner;

/// Kind of a leak.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
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
    /// Java objects in a heap dump: objects that should be gone, or too many of a class.
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

    /// Does a leak consist of Java objects with a holder?
    #[must_use]
    pub const fn is_java(self) -> bool {
        matches!(self, Self::Java | Self::Heap)
    }

    /// The text after a leak's bytes.
    #[must_use]
    pub const fn per(self) -> &'static str {
        match self {
            Self::Heap => " in the heap dump",
            Self::Native | Self::Java | Self::Os | Self::Mapped => " per iteration",
        }
    }
}

/// A leak: all leaked allocations, objects, descriptors or threads with the same signature.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Leak {
    /// Id of the leak, stable across rebuilds and ASLR. Its prefix shows the kind: `n1-` native, `j1-` Java, `o1-`
    /// descriptors and threads, `m1-` mapped memory, `h1-` heap dump. After `h1-` come the first 16 digits of
    /// LeakCanary's fingerprint, or a hash of the class if there are too many of its objects.
    pub id: String,
    /// The kind of the leak.
    pub kind: LeakKind,
    /// Title for people: `12 × 4096 B`, `12 × com.example.Tile`, `1 × descriptor /tmp/log`.
    pub title: String,
    /// Growth per iteration in bytes; 0 for descriptors and threads. For `one_time`: bytes in total. For leaks of a
    /// heap dump: bytes that only leaks hold.
    pub bytes_per_iteration: f64,
    /// Allocations, objects, descriptors or threads per iteration. For `one_time` and leaks of a heap dump: in total.
    pub count_per_iteration: f64,
    /// Java class of the leaked objects. Absent for other leaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Stack of the allocation, innermost frame first, without frames of libc, the runner and the agent.
    #[serde(default)]
    pub frames: Vec<Frame>,
    /// Reference path to the leak, beginning at the root. For native leaks, the path ends before the leaked block. If
    /// only a lost block refers to the leak, the path begins at that block.
    #[serde(default)]
    pub holder: Vec<HolderStep>,
    /// Whether the program can still reach the leak. Only for native leaks of confirmed tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// The stack could not be unwound to its root.
    #[serde(default)]
    pub truncated: bool,
    /// Owners of the leaking code according to CODEOWNERS: of the first frame in a file of the project. Absent if none
    /// is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// Reason of the waiver that covers the leak. Absent if no waiver does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiver: Option<String>,
    /// Largest amount that a waiver of the leak covers (`up_to`), if the leak exceeds it: bytes, or descriptors or
    /// threads. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waived_up_to: Option<f64>,
}

impl Leak {
    /// Does its id name only its kind? Nobody saw where the descriptor was opened or the thread started. A Java thread
    /// always has such an id.
    #[must_use]
    pub const fn is_of_kind(&self, runner: Runner) -> bool {
        let of_java = matches!(runner, Runner::Junit | Runner::Instrumentation);
        matches!(self.kind, LeakKind::Os) && (of_java || self.frames.is_empty())
    }

    /// What waivers limit: the number of descriptors or threads, otherwise bytes.
    #[must_use]
    pub const fn amount(&self) -> f64 {
        match self.kind {
            LeakKind::Os => self.count_per_iteration,
            _ => self.bytes_per_iteration,
        }
    }
}

/// One frame of a stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Frame {
    /// Demangled function name; `null`: no symbol.
    pub function: Option<String>,
    /// Source file: relative to the project if it is inside, otherwise as in the debug information; `null`: unknown.
    pub file: Option<String>,
    /// Line in `file`; `null`: unknown.
    pub line: Option<u32>,
    /// File name of the executable or library.
    pub module: String,
    /// Offset in the module's file address space (virtual address without bias).
    pub offset: u64,
    /// Was the function inlined into the next frame?
    pub inlined: bool,
}

/// Whether the program can still reach the blocks of a native leak.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hold {
    /// State of most blocks.
    pub reach: Reach,
    /// Number of blocks with this state and with the leak's `holder`.
    pub of_reach: u64,
    /// Number of blocks of the leak at the time of the search.
    pub blocks: u64,
    /// What the search could not see, or why there was no search. Absent if there is nothing to add.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// How other blocks of the leak are held: those of other lines of the same functions, and blocks that a program
    /// which ran once has lost. Absent if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherHold>,
}

/// Blocks of a native leak that are held in another way than most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OtherHold {
    /// State of these blocks.
    pub reach: Reach,
    /// Number of these blocks.
    pub blocks: u64,
    /// Reference path to these blocks, as in `holder` of the leak. Absent if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holder: Vec<HolderStep>,
}

/// Whether the program can still reach a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// Reachable by pointers from a variable, a stack or mapped memory.
    Reachable,
    /// No pointer to it is left.
    Lost,
    /// Only blocks of a reference cycle refer to it.
    LostCycle,
    /// Only blocks that are lost themselves refer to it.
    IndirectlyLost,
    /// Not searched.
    NotSearched,
}

/// One step of a reference path. For native leaks, `owner` is a variable or function, `name` its place in the sources,
/// and `class` the thread, the offset in the variable, or number and size of the blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HolderStep {
    /// Kind of the reference: `static`, `field`, `array`, `thread`, `jni global` and others.
    pub kind: String,
    /// Class that owns the reference.
    pub owner: String,
    /// Name of the field; `[x]` for an array.
    pub name: String,
    /// Class of the object it refers to.
    pub class: String,
}

impl HolderStep {
    /// How a waiver may name this step: a Java reference as `com.example.Registry.cache`, a native variable or function
    /// by its own name. As in reports, the package may be missing, and the kind may come first (`thread pool-1`).
    #[must_use]
    pub fn names(&self, leak: LeakKind) -> Vec<String> {
        let Self { kind, owner, name, .. } = self;
        let mut names = vec![owner.clone()];
        if leak.is_java() {
            // The name of a thread has no package.
            let simple = owner.rsplit('.').next().filter(|simple| simple != owner && kind != "thread");
            let full = |owner: &str| match name.as_str() {
                "" => [owner.to_owned(), format!("{owner}.")],
                name => [format!("{owner}.{name}"), format!("{owner}.{}", name.trim_end_matches("[x]"))],
            };
            names = [Some(owner.as_str()), simple].into_iter().flatten().flat_map(full).collect();
        }
        let with_kind: Vec<String> = names.iter().map(|name| format!("{kind} {name}")).collect();
        names.extend(with_kind);
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_the_names_that_reports_show() {
        let step = |kind: &str, owner: &str, name: &str| HolderStep {
            kind: kind.to_owned(),
            owner: owner.to_owned(),
            name: name.to_owned(),
            ..HolderStep::default()
        };
        let field = step("static", "com.example.EventBus", "LISTENERS").names(LeakKind::Java);
        for name in ["com.example.EventBus.LISTENERS", "EventBus.LISTENERS", "static EventBus.LISTENERS"] {
            assert!(field.iter().any(|of| of == name), "{name}: {field:?}");
        }
        let array = step("array", "java.util.HashMap", "table[x]").names(LeakKind::Java);
        assert!(array.iter().any(|of| of == "java.util.HashMap.table"), "{array:?}");
        let thread = step("thread", "http.pool-1", "").names(LeakKind::Java);
        assert!(thread.iter().any(|of| of == "thread http.pool-1"), "{thread:?}");
        assert!(thread.iter().all(|of| of != "pool-1"), "the name of a thread has no package: {thread:?}");
        let variable = step("static", "Registry::cache", "registry.cc:12").names(LeakKind::Native);
        assert_eq!(variable, ["Registry::cache", "static Registry::cache"]);
    }
}
