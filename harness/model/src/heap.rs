//! Contents of the heap dumps of a suite, as its session stores them, because the dumps may be deleted later.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::leak::HolderStep;
use crate::report::TestReport;

/// When the heap of a suite is dumped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeapAt {
    /// After the last test.
    SuiteEnd,
    /// After the first failed test of a process.
    TestFailed,
    /// At the first `OutOfMemoryError`.
    OutOfMemory,
    /// When the live heap exceeds its limit for the first time.
    Limit,
}

impl HeapAt {
    /// `at the end of the suite`.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::SuiteEnd => "at the end of the suite",
            Self::TestFailed => "at the first failed test",
            Self::OutOfMemory => "at an OutOfMemoryError",
            Self::Limit => "above the heap limit",
        }
    }
}

/// Limits of each dump.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapLimits {
    /// Number of leaks of the program; `None`: no limit.
    pub leaks: Option<u64>,
    /// Pixel bytes of all bitmaps together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bitmaps: Option<u64>,
    /// Number of objects, by class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub class: BTreeMap<String, u64>,
}

/// The dumps of a suite, and their limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapCheck {
    /// When they were taken.
    pub at: HeapAt,
    /// Rules of the project were applied in addition to the built-in ones.
    #[serde(default)]
    pub own_rules: bool,
    /// The limits; `None`: the contents are reported but not judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<HeapLimits>,
    /// One dump per process that ran tests.
    pub dumps: Vec<HeapDump>,
}

/// The dump of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapDump {
    /// Process id.
    pub process: u32,
    /// Where it was written.
    pub path: String,
    /// Where the dump is kept; `None`: it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// Contents of the dump, or why they are unknown.
    pub seen: Result<HeapSeen, String>,
}

/// Contents of a dump.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapSeen {
    /// Bytes of all objects, according to the file.
    pub bytes: u64,
    /// Was the dump searched for leaks? If not, no rule names a class that it contains.
    pub searched: bool,
    /// Leaks of the program, and known leaks of libraries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaks: Vec<HeapLeak>,
    /// Number of leaking objects whose paths were not searched.
    #[serde(default)]
    pub not_looked_at: u64,
    /// Descriptions of rules of the project that can never match in this dump.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<String>,
    /// Number of objects that should be gone and are not reachable, although the dump contains no garbage.
    #[serde(default)]
    pub held_by_nothing: u64,
    /// Why a part of the heap is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated: Option<String>,
    /// Number of objects and their bytes, for each class with a limit that the dump contains.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<String, (u64, u64)>,
    /// Pixel bytes and number of all bitmaps; `None`: the dump has no bitmap class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bitmaps: Option<(u64, u64)>,
    /// Number of objects and their retained bytes, for the classes that retain most. Added to leaks that the agent
    /// found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub retained: BTreeMap<String, (u64, u64)>,
    /// For classes in `retained`: what dominates most of their objects, for example `class com.example.Registry`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub owners: BTreeMap<String, String>,
    /// Description of the largest holder of the heap, and of the thread that ran out of memory.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub held: String,
}

/// Leaks with one fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapLeak {
    /// LeakCanary's fingerprint, 40 hexadecimal digits.
    pub fingerprint: String,
    /// Name of the known leak, if it is one of a library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// Class of the first leaking object.
    pub class: String,
    /// Number of leaking objects of other classes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub of_others: u64,
    /// Why the objects should be gone.
    pub why: String,
    /// Number of leaking objects.
    pub objects: u64,
    /// Bytes that only leaks hold. Each byte counts for one leak.
    pub attributed: u64,
    /// Retained bytes of the first leaking object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained: Option<u64>,
    /// Reference path, beginning at its last static field, otherwise at the root.
    pub holder: Vec<HolderStep>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Prefix of the id of an entry for heap dumps. No test has such a name.
const ENTRY: &str = "heap dump ";

impl TestReport {
    /// The id of the entry for the heap dumps of a suite.
    #[must_use]
    pub fn heap_entry(at: HeapAt) -> String {
        format!("{ENTRY}{}", at.words())
    }

    /// Is it the entry for the heap dumps of a suite, not a test?
    #[must_use]
    pub fn is_heap_dump(&self) -> bool {
        self.is_class && self.id.starts_with(ENTRY)
    }
}
