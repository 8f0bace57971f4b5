//! Contents of the heap dumps of a suite, as its session keeps them: the dumps may be deleted later.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::leak::HolderStep;
use crate::report::TestReport;

/// When a suite has its heap dumped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeapAt {
    /// When the last test is over.
    SuiteEnd,
    /// When the first test of a process has failed.
    TestFailed,
    /// At the first `OutOfMemoryError`.
    OutOfMemory,
    /// The first time that more of the heap is alive than its limit allows.
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
    /// Leaks of the program; `None`: no limit.
    pub leaks: Option<u64>,
    /// Bytes of the pixels of all pictures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bitmaps: Option<u64>,
    /// Objects of a class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub class: BTreeMap<String, u64>,
}

/// The dumps of a suite, and what is allowed in them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapCheck {
    /// When they were taken.
    pub at: HeapAt,
    /// Rules of the project's own applied, beside the built-in ones.
    #[serde(default)]
    pub own_rules: bool,
    /// The limits; `None`: the contents are reported, and not judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<HeapLimits>,
    /// One of each process that ran tests.
    pub dumps: Vec<HeapDump>,
}

/// The dump of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapDump {
    /// The process.
    pub process: u32,
    /// Where it was written.
    pub path: String,
    /// Where it is kept; `None`: it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// Its contents, or why they are not known.
    pub seen: Result<HeapSeen, String>,
}

/// Contents of a dump.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapSeen {
    /// Bytes of all objects, as the file tells them.
    pub bytes: u64,
    /// Was anything looked for? No rule knows a class of it otherwise.
    pub searched: bool,
    /// Leaks of the program and known ones of libraries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaks: Vec<HeapLeak>,
    /// Leaking objects whose paths were not looked at.
    #[serde(default)]
    pub not_looked_at: u64,
    /// Rules of the project that can never say anything of the dump, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<String>,
    /// Objects that are over and nothing alive holds, of a dump that has no garbage.
    #[serde(default)]
    pub held_by_nothing: u64,
    /// Why a part of the heap is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated: Option<String>,
    /// Objects and their bytes of the classes with a limit; a class that the dump does not know is
    /// not here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<String, (u64, u64)>,
    /// Bytes of the pixels of all pictures, and how many they are; `None`: it has no class of pictures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bitmaps: Option<(u64, u64)>,
    /// Objects and retained bytes of the classes that retain most: what a dump adds to leaks that the agent found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub retained: BTreeMap<String, (u64, u64)>,
    /// Of these classes: what dominates most of their objects, `class com.example.Registry`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub owners: BTreeMap<String, String>,
    /// What holds most of the heap, and which thread's locals, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub held: String,
}

/// Leaks with one fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapLeak {
    /// LeakCanary's, 40 hexadecimal digits.
    pub fingerprint: String,
    /// The name of the known leak of a library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// Class of the first leaking object.
    pub class: String,
    /// How many of the leaking objects have other classes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub of_others: u64,
    /// Why they are over.
    pub why: String,
    /// How many.
    pub objects: u64,
    /// Bytes that only leaks hold; each counts for one leak.
    pub attributed: u64,
    /// Bytes that would be free without the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained: Option<u64>,
    /// Its path from the root on.
    pub holder: Vec<HolderStep>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Start of the id of an entry for heap dumps. No test has such a name.
const ENTRY: &str = "heap dump ";

impl TestReport {
    /// The id of the entry for the heap dumps of a suite.
    #[must_use]
    pub fn heap_entry(at: HeapAt) -> String {
        format!("{ENTRY}{}", at.words())
    }

    /// Is it the entry for the heap dumps of a suite, and no test?
    #[must_use]
    pub fn is_heap_dump(&self) -> bool {
        self.is_class && self.id.starts_with(ENTRY)
    }
}
