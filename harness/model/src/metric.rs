//! The metrics and their names in thresholds and reports.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::LeakKind;

/// Defines [`Metric`] and the table of their properties. A metric without a row does not compile.
macro_rules! metrics {
    ($($(#[doc = $about:literal])+ $variant:ident = $name:literal, $row:expr;)+) => {
        /// A measured quantity.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum Metric {
            $($(#[doc = $about])+ #[serde(rename = $name)] $variant,)+
        }

        impl Metric {
            /// Every metric, including those that are only in curves.
            const EVERY: &[Self] = &[$(Self::$variant),+];

            /// The name in configuration and reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Description in one sentence.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self { $(Self::$variant => concat!($($about),+).trim_start(),)+ }
            }

            const fn row(self) -> Row {
                match self { $(Self::$variant => $row,)+ }
            }
        }
    };
}

/// Properties of a metric.
#[derive(Debug, Clone, Copy)]
struct Row {
    area: Area,
    kind: Kind,
    unit: Unit,
    noun: Noun,
    /// Thresholds may use the metric; otherwise it is only in curves.
    limited: bool,
    /// Without a threshold of the user, the metric may not grow at all.
    zero: bool,
    /// Whether the curves of a test, and of a suite, contain the metric.
    curves: (bool, bool),
    /// Kind of the leaks that the metric counts; `None`: the report names no leaks for it.
    leaks: Option<LeakKind>,
}

impl Row {
    const fn new(area: Area, kind: Kind, unit: Unit, noun: Noun) -> Self {
        Self { area, kind, unit, noun, limited: true, zero: false, curves: (false, false), leaks: None }
    }

    const fn zero(self) -> Self {
        Self { zero: true, ..self }
    }

    const fn curve_of_test(self) -> Self {
        Self { curves: (true, self.curves.1), ..self }
    }

    const fn curve_of_suite(self) -> Self {
        Self { curves: (self.curves.0, true), ..self }
    }

    const fn leaks(self, kind: LeakKind) -> Self {
        Self { leaks: Some(kind), ..self }
    }

    const fn curves_only(self) -> Self {
        Self { limited: false, ..self }
    }
}

/// The noun after a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Noun {
    /// No noun: `48.0 KiB`.
    Bare,
    /// The counted thing, with a plural: `1 thread`, `2 threads`.
    Things(&'static str),
    /// The same words for any figure: `2.0 KiB of metaspace`.
    Words(&'static str),
}

/// Source of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// The allocator of a process, and memory that the process itself maps.
    Native,
    /// A Java virtual machine.
    Java,
    /// The operating system.
    Os,
}

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Live allocations or objects.
    Live,
    /// Resources that a test must release: threads, descriptors, buffers, references.
    Held,
    /// Classes and their data, which a virtual machine may load at any time.
    Loaded,
    /// Everything that was ever allocated, which can only grow.
    Traffic,
    /// Memory of the process as the system counts it.
    Resident,
}

use Area::{Java, Native, Os};
use Kind::{Held, Live, Loaded, Resident, Traffic};
use Noun::{Bare, Things, Words};
use Unit::{Bytes, Count};

metrics! {
    /// Requested bytes of live native allocations.
    NativeLiveBytes = "native.live_bytes",
        Row::new(Native, Live, Bytes, Bare).zero().leaks(LeakKind::Native).curve_of_test().curve_of_suite();
    /// Live native allocations.
    NativeLiveAllocations = "native.live_allocations",
        Row::new(Native, Live, Count, Things("allocation")).leaks(LeakKind::Native);
    /// Bytes that the program itself has mapped (`mmap`, `mremap`, `shmat`, `sbrk`), past its allocator.
    NativeMappedBytes = "native.mapped_bytes",
        Row::new(Native, Held, Bytes, Words("of mapped memory")).zero().leaks(LeakKind::Mapped).curve_of_test();
    /// Bytes of live Java objects.
    JavaLiveBytes = "java.live_bytes",
        Row::new(Java, Live, Bytes, Words("of Java objects")).zero().leaks(LeakKind::Java).curve_of_suite();
    /// Live Java objects.
    JavaLiveObjects = "java.live_objects",
        Row::new(Java, Live, Count, Things("object")).zero().leaks(LeakKind::Java);
    /// Bytes of direct buffers.
    JavaDirectBytes = "java.direct_bytes", Row::new(Java, Held, Bytes, Words("of direct buffers")).zero();
    /// Live Java threads.
    JavaThreads = "java.threads", Row::new(Java, Held, Count, Things("Java thread")).zero();
    /// JNI global references.
    JavaJniGlobals = "java.jni_globals", Row::new(Java, Held, Count, Things("JNI global reference"));
    /// Loaded Java classes.
    JavaClassesLoaded = "java.classes_loaded",
        Row::new(Java, Loaded, Count, Words("more of loaded classes"));
    /// Bytes of metaspace.
    JavaMetaspace = "java.metaspace", Row::new(Java, Loaded, Bytes, Words("of metaspace"));
    /// Bytes of Java objects allocated, freed or not.
    JavaAllocatedBytes = "java.allocated_bytes", Row::new(Java, Traffic, Bytes, Words("allocated"));
    /// Used bytes of the Java heap, garbage included. In curves only.
    JavaHeapUsed = "java.heap_used",
        Row::new(Java, Resident, Bytes, Words("of used Java heap")).curves_only().curve_of_suite();
    /// Resident set size.
    OsRss = "os.rss", Row::new(Os, Resident, Bytes, Words("RSS")).curve_of_test().curve_of_suite();
    /// Proportional set size.
    OsPss = "os.pss", Row::new(Os, Resident, Bytes, Words("PSS"));
    /// Threads.
    OsThreads = "os.threads",
        Row::new(Os, Held, Count, Things("thread")).zero().leaks(LeakKind::Os).curve_of_test();
    /// Open file descriptors.
    OsFds = "os.fds",
        Row::new(Os, Held, Count, Things("descriptor")).zero().leaks(LeakKind::Os).curve_of_test();
}

impl Metric {
    /// Every metric that can have a threshold, in the order reports show them.
    pub const ALL: [Self; limited()] = {
        let mut all = [Self::NativeLiveBytes; limited()];
        let (mut from, mut to) = (0, 0);
        while from < Self::EVERY.len() {
            if Self::EVERY[from].row().limited {
                all[to] = Self::EVERY[from];
                to += 1;
            }
            from += 1;
        }
        all
    };

    /// The metrics of an area, of these kinds.
    pub fn of(area: Area, kinds: &[Kind]) -> impl Iterator<Item = Self> + Clone {
        Self::ALL.into_iter().filter(move |m| m.row().area == area && kinds.contains(&m.row().kind))
    }

    /// The metrics that may not grow at all, unless the user sets a threshold.
    pub fn zero_by_default() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|metric| metric.row().zero)
    }

    /// The metrics in the curve of a test.
    pub fn in_curves_of_tests() -> impl Iterator<Item = Self> + Clone {
        Self::EVERY.iter().copied().filter(|metric| metric.row().curves.0)
    }

    /// The metrics in the curve of a suite.
    pub fn in_curves_of_suites() -> impl Iterator<Item = Self> + Clone {
        Self::EVERY.iter().copied().filter(|metric| metric.row().curves.1)
    }

    /// Source of the metric.
    #[must_use]
    pub const fn area(self) -> Area {
        self.row().area
    }

    /// Is it a metric of a Java virtual machine?
    #[must_use]
    pub const fn is_java(self) -> bool {
        matches!(self.row().area, Java)
    }

    /// Behaviour of the metric.
    #[must_use]
    pub const fn kind(self) -> Kind {
        self.row().kind
    }

    /// Kind of the leaks that the metric counts; `None`: the report names no leaks for it.
    #[must_use]
    pub const fn leaks(self) -> Option<LeakKind> {
        self.row().leaks
    }

    /// Unit of the metric.
    #[must_use]
    pub const fn unit(self) -> Unit {
        self.row().unit
    }

    /// The noun after a figure of the metric.
    pub(crate) const fn noun(self) -> Noun {
        self.row().noun
    }
}

/// Number of metrics that can have a threshold.
const fn limited() -> usize {
    let (mut at, mut count) = (0, 0);
    while at < Metric::EVERY.len() {
        count += Metric::EVERY[at].row().limited as usize;
        at += 1;
    }
    count
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

/// Unit of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// A number of allocations, objects, threads, descriptors or others.
    Count,
}

/// The unit that a figure or a threshold is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// Growth per iteration of the test: a slope.
    Iteration,
    /// One execution of the test.
    Test,
    /// The whole process or suite.
    Suite,
}
