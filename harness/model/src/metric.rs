//! The names of what is measured, as the user writes them in thresholds and reads them in reports.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Metric {
    /// Requested bytes of live native allocations.
    #[serde(rename = "native.live_bytes")]
    NativeLiveBytes,
    /// Live native allocations.
    #[serde(rename = "native.live_allocations")]
    NativeLiveAllocations,
    /// Bytes of live Java objects.
    #[serde(rename = "java.live_bytes")]
    JavaLiveBytes,
    /// Live Java objects.
    #[serde(rename = "java.live_objects")]
    JavaLiveObjects,
    /// Bytes of direct buffers.
    #[serde(rename = "java.direct_bytes")]
    JavaDirectBytes,
    /// Live Java threads.
    #[serde(rename = "java.threads")]
    JavaThreads,
    /// JNI global references.
    #[serde(rename = "java.jni_globals")]
    JavaJniGlobals,
    /// Loaded Java classes.
    #[serde(rename = "java.classes_loaded")]
    JavaClassesLoaded,
    /// Bytes of metaspace.
    #[serde(rename = "java.metaspace")]
    JavaMetaspace,
    /// Bytes of Java objects allocated, freed or not.
    #[serde(rename = "java.allocated_bytes")]
    JavaAllocatedBytes,
    /// Used bytes of the Java heap, garbage included. In curves only.
    #[serde(rename = "java.heap_used")]
    JavaHeapUsed,
    /// Resident set size.
    #[serde(rename = "os.rss")]
    OsRss,
    /// Proportional set size.
    #[serde(rename = "os.pss")]
    OsPss,
    /// Threads.
    #[serde(rename = "os.threads")]
    OsThreads,
    /// Open file descriptors.
    #[serde(rename = "os.fds")]
    OsFds,
}

impl Metric {
    /// Every metric that can have a threshold, in the order reports show them.
    pub const ALL: [Self; 14] = [
        Self::NativeLiveBytes,
        Self::NativeLiveAllocations,
        Self::JavaLiveBytes,
        Self::JavaLiveObjects,
        Self::JavaDirectBytes,
        Self::JavaThreads,
        Self::JavaJniGlobals,
        Self::JavaClassesLoaded,
        Self::JavaMetaspace,
        Self::JavaAllocatedBytes,
        Self::OsRss,
        Self::OsPss,
        Self::OsThreads,
        Self::OsFds,
    ];

    /// The name in configuration and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NativeLiveBytes => "native.live_bytes",
            Self::NativeLiveAllocations => "native.live_allocations",
            Self::JavaLiveBytes => "java.live_bytes",
            Self::JavaLiveObjects => "java.live_objects",
            Self::JavaDirectBytes => "java.direct_bytes",
            Self::JavaThreads => "java.threads",
            Self::JavaJniGlobals => "java.jni_globals",
            Self::JavaClassesLoaded => "java.classes_loaded",
            Self::JavaMetaspace => "java.metaspace",
            Self::JavaAllocatedBytes => "java.allocated_bytes",
            Self::JavaHeapUsed => "java.heap_used",
            Self::OsRss => "os.rss",
            Self::OsPss => "os.pss",
            Self::OsThreads => "os.threads",
            Self::OsFds => "os.fds",
        }
    }

    /// Of a Java virtual machine?
    #[must_use]
    pub const fn is_java(self) -> bool {
        matches!(
            self,
            Self::JavaLiveBytes
                | Self::JavaLiveObjects
                | Self::JavaDirectBytes
                | Self::JavaThreads
                | Self::JavaJniGlobals
                | Self::JavaClassesLoaded
                | Self::JavaMetaspace
                | Self::JavaAllocatedBytes
                | Self::JavaHeapUsed
        )
    }

    /// What it counts.
    #[must_use]
    pub const fn unit(self) -> Unit {
        match self {
            Self::NativeLiveBytes
            | Self::JavaLiveBytes
            | Self::JavaDirectBytes
            | Self::JavaMetaspace
            | Self::JavaAllocatedBytes
            | Self::JavaHeapUsed
            | Self::OsRss
            | Self::OsPss => Unit::Bytes,
            Self::NativeLiveAllocations
            | Self::JavaLiveObjects
            | Self::JavaThreads
            | Self::JavaJniGlobals
            | Self::JavaClassesLoaded
            | Self::OsThreads
            | Self::OsFds => Unit::Count,
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|m| m.name() == name).ok_or_else(|| UnknownMetric(name.to_owned()))
    }
}

/// A name that is not a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownMetric(pub String);

impl fmt::Display for UnknownMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown metric `{}`", self.0)
    }
}

impl std::error::Error for UnknownMetric {}

/// What a metric counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Things.
    Count,
}

/// What a figure or a threshold is per.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// One more iteration of the test: the slope.
    Iteration,
    /// One execution of the test.
    Test,
    /// The whole process or suite.
    Suite,
}
