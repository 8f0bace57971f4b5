//! `measure.java`: measurements in Java virtual machines, in addition to the classes of the heap.

use crate::read::{At, Reader, choice, table};
use crate::value::number::{Count, Share};
use crate::value::size::Size;
use crate::value::text::Words;

const SAMPLING: u64 = 512 << 10;
/// A shorter interval costs more than the tests themselves.
const FINEST_SAMPLING: u64 = 4 << 10;
const COARSEST_SAMPLING: u64 = 1 << 30;

table! {
    /// Measurements in Java virtual machines.
    JavaFile {
        /// Mean bytes between two allocations whose stack is recorded; `0`: none. Confirming runs
        /// record every allocation of one iteration.
        #[schemars(extend("default" = "512 KiB"))]
        sampling: At<Size>,
        /// Classes whose objects are tracked from allocation to collection in the build's own run.
        /// An entry is a class name, or a prefix that ends with `*`; an entry that begins with `!`
        /// excludes classes again. Expensive.
        follow: Vec<At<Words>>,
        /// Smallest size of a tracked object, in bytes.
        follow_at_least: At<Size>,
        /// Track one object of this many.
        #[schemars(extend("default" = 1))]
        follow_every: At<Count>,
        /// Largest number of tracked objects.
        #[schemars(extend("default" = 10_000_000))]
        follow_at_most: At<Count>,
        /// Number of allocation sites and allocating classes in the report.
        #[schemars(extend("default" = 100))]
        follow_sites: At<Count>,
        /// Classes that are not blamed for allocating tracked objects, written as in `follow`.
        /// Default: the classes of the JDK.
        blame_ignore: Vec<At<Words>>,
        /// The only classes that may be blamed.
        blame_target: Vec<At<Words>>,
        /// Share of the maximum heap. If live objects take more during a test, the test gets a warning with the curve
        /// of the heap.
        heap_limit: At<Share>,
        /// When the virtual machine writes a heap dump into the session.
        #[schemars(extend("default" = "never"))]
        heap_dump: At<HeapDump>,
        /// Whether memgate's agent is loaded. Without it leaks are still counted by class, but
        /// their holders are unknown, and tests and results come from the XML files of the build
        /// tool.
        #[schemars(extend("default" = "loaded"))]
        agent: JavaAgent,
        /// Whether native memory of libraries outside the JDK is judged. The agent is then
        /// preloaded into memgate's own virtual machines, never into those of the build.
        #[schemars(extend("default" = "auto"))]
        native: JavaNative,
    }
}

choice! {
    /// When native memory of a JVM suite is judged.
    pub enum JavaNative ("a time to judge native memory") {
        /// If its tests load a library from outside the JDK.
        Auto = "auto",
        /// Always.
        On = "on",
        /// Never.
        Off = "off",
    }
}

choice! {
    /// Whether memgate's agent is loaded into Java virtual machines.
    pub enum JavaAgent ("a way to measure") {
        /// Into those that run tests.
        Loaded = "loaded",
        /// Into none: memgate queries its own virtual machines from outside.
        None = "none",
    }
}

choice! {
    /// When a heap dump is written.
    pub enum HeapDump ("a time for a heap dump") {
        /// Never.
        Never = "never",
        /// At the first `OutOfMemoryError`.
        OutOfMemory = "out_of_memory",
        /// The first time that the heap is above `heap_limit`.
        HeapLimit = "heap_limit",
    }
}

/// Measurements in Java virtual machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasureJava {
    /// Mean bytes between sampled allocations; `None`: none are sampled.
    pub sampling: Option<u32>,
    /// Classes whose objects are tracked.
    pub follow: Vec<String>,
    /// Smallest size of a tracked object, in bytes.
    pub follow_at_least: u64,
    /// One object of this many is tracked.
    pub follow_every: u32,
    /// Largest number of tracked objects.
    pub follow_at_most: u32,
    /// Number of allocation sites and allocating classes in the report.
    pub follow_sites: u32,
    /// Classes that are not blamed; `None`: those of the JDK.
    pub blame_ignore: Option<Vec<String>>,
    /// The only classes that are blamed; empty: any.
    pub blame_target: Vec<String>,
    /// Percent of the maximum heap that live objects may take; `None`: all.
    pub heap_limit: Option<u32>,
    /// When a heap dump is written.
    pub heap_dump: HeapDump,
    /// Whether the agent is loaded.
    pub agent: JavaAgent,
    /// When native memory is judged.
    pub native: JavaNative,
}

impl Default for MeasureJava {
    fn default() -> Self {
        Self {
            sampling: u32::try_from(SAMPLING).ok(),
            follow: Vec::new(),
            follow_at_least: 0,
            follow_every: 1,
            follow_at_most: 10_000_000,
            follow_sites: 100,
            blame_ignore: None,
            blame_target: Vec::new(),
            heap_limit: None,
            heap_dump: HeapDump::Never,
            agent: JavaAgent::Loaded,
            native: JavaNative::Auto,
        }
    }
}

impl MeasureJava {
    pub(crate) fn check(file: JavaFile, reader: &mut Reader<'_>) -> Self {
        let JavaFile {
            sampling,
            follow,
            follow_at_least,
            follow_every,
            follow_at_most,
            follow_sites,
            blame_ignore,
            blame_target,
            heap_limit,
            heap_dump,
            agent,
            native,
        } = file;
        let default = Self::default();
        let sampling = sampling.map_or(default.sampling, |At { value: Size(bytes), span }| {
            if bytes != 0 && !(FINEST_SAMPLING..=COARSEST_SAMPLING).contains(&bytes) {
                reader
                    .error(&span, "the sampling interval is out of range")
                    .label("expected 4 KiB to 1 GiB, or 0");
            }
            u32::try_from(bytes).ok().filter(|&bytes| bytes != 0)
        });
        let heap_limit = heap_limit.map(|At { value: Share(share), span }| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 100")]
            let percent = (share * 100.0).round() as u32;
            if !(1..=99).contains(&percent) {
                reader.error(&span, "the limit is out of range").label("expected 1% to 99%");
            }
            percent
        });
        let heap_dump = heap_dump.map_or(default.heap_dump, |At { value: when, span }| {
            if when == HeapDump::HeapLimit && heap_limit.is_none() {
                reader
                    .error(&span, "there is no limit at which it could be written")
                    .label("needs `heap_limit`")
                    .hint(Some("add `heap_limit: 80%`"));
            }
            when
        });
        Self {
            sampling,
            follow: classes(follow.unwrap_or_default(), reader),
            follow_at_least: follow_at_least.map_or(default.follow_at_least, |size| size.value.0),
            follow_every: follow_every.map_or(default.follow_every, |At { value: Count(every), span }| {
                if every == 0 {
                    reader.error(&span, "`0` is out of range").label("expected 1 or more");
                }
                every.max(1)
            }),
            follow_at_most: follow_at_most.map_or(default.follow_at_most, |most| most.value.0),
            follow_sites: follow_sites.map_or(default.follow_sites, |most| most.value.0),
            blame_ignore: blame_ignore.map(|parts| classes(parts, reader)),
            blame_target: classes(blame_target.unwrap_or_default(), reader),
            heap_limit,
            heap_dump,
            agent: agent.unwrap_or(default.agent),
            native: native.unwrap_or(default.native),
        }
    }
}

/// Checks names and prefixes of classes.
fn classes(parts: Vec<At<Words>>, reader: &mut Reader<'_>) -> Vec<String> {
    for At { value: Words(part), span } in &parts {
        if part.trim_start_matches('!').trim_end_matches('*').contains(['*', '!', ',', ';', ' ']) {
            reader
                .error(span, format!("`{part}` names no classes"))
                .label("expected a class, or the beginning of its name")
                .hint(Some("`com.example.Tile`, `com.example.*`, `!com.example.cache.*`"));
        }
    }
    parts.into_iter().map(|part| part.value.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn what_is_written_is_taken_and_the_rest_has_its_default() {
        let text = "version: 1\nmeasure:\n  java: { sampling: 64 KiB, follow: [a.B, 'c.*', '!c.d.*'] }\n";
        let config = Config::parse(text, "memgate.yaml", &|_| None, None).unwrap();
        let want = MeasureJava {
            sampling: Some(64 << 10),
            follow: ["a.B", "c.*", "!c.d.*"].map(str::to_owned).to_vec(),
            ..MeasureJava::default()
        };
        assert_eq!(config.measure.java, want);
    }

    #[test]
    fn no_interval_is_no_sampling() {
        let text = "version: 1\nmeasure:\n  java: { sampling: 0, heap_dump: out_of_memory }\n";
        let java = Config::parse(text, "memgate.yaml", &|_| None, None).unwrap().measure.java;
        assert_eq!((java.sampling, java.heap_dump), (None, HeapDump::OutOfMemory));
    }

    #[test]
    fn a_limit_of_the_heap_is_a_share_of_it() {
        let text =
            "version: 1\nmeasure:\n  java: { heap_limit: 80%, heap_dump: heap_limit, blame_ignore: [] }\n";
        let java = Config::parse(text, "memgate.yaml", &|_| None, None).unwrap().measure.java;
        assert_eq!((java.heap_limit, java.heap_dump), (Some(80), HeapDump::HeapLimit));
        assert_eq!(java.blame_ignore, Some(Vec::new()));
        for wrong in ["heap_limit: 0", "heap_dump: heap_limit"] {
            let text = format!("version: 1\nmeasure:\n  java: {{ {wrong} }}\n");
            assert!(Config::parse(&text, "memgate.yaml", &|_| None, None).is_err(), "{wrong}");
        }
    }
}
