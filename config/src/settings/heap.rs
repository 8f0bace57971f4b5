//! `heap` of a suite: when its heap is dumped, and the limits for the dump.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::read::{At, Named, Reader, choice, table};
use crate::settings::java::{JavaAgent, MeasureJava};
use crate::source::Span;
use crate::value::number::Count;
use crate::value::size::Size;
use crate::value::text::Words;

table! {
    /// The heap dump of a suite, and the limits for it.
    HeapFile {
        /// When the heap is dumped.
        #[schemars(required)]
        at: At<HeapTime>,
        /// Files with rules that find objects no longer in use (`memgate docs heap`), relative to the working directory
        /// of memgate. The built-in rules always apply.
        rules: Vec<At<Words>>,
        /// Limits for the dump. More than a limit fails the run.
        fail: HeapFailFile,
        /// Whether the session keeps the dump. A kept dump is trimmed: it is compressed, and lacks the contents of
        /// strings and other arrays of primitives.
        #[schemars(extend("default" = "over"))]
        keep: At<HeapKeep>,
    }
}

table! {
    /// Limits for a heap dump. More than a limit fails the run.
    HeapFailFile {
        /// Largest allowed number of leaks of the program: objects that are no longer in use, but still held. Objects
        /// that are held in the same way count as one leak. Known leaks of libraries are warnings.
        #[schemars(extend("default" = 0))]
        leaks: At<Count>,
        /// Largest allowed size of the pixels of all bitmaps (Android's `Bitmap`), in the heap and in native memory.
        bitmaps: At<Size>,
        /// Largest allowed number of objects of a class, by its full name.
        class: Named<Count>,
    }
}

choice! {
    /// When the heap is dumped.
    pub enum HeapTime ("a time for a heap dump") {
        /// After the last test of a process, without garbage.
        SuiteEnd = "suite_end",
        /// After the first failed test of a process, without garbage.
        TestFailed = "test_failed",
        /// At the first `OutOfMemoryError`.
        OutOfMemory = "out_of_memory",
        /// The first time that the heap is above `measure.java.heap_limit`.
        Limit = "limit",
    }
}

choice! {
    /// Whether a heap dump is kept.
    pub enum HeapKeep ("whether a heap dump is kept") {
        /// Never: the report contains the findings.
        Never = "never",
        /// If it exceeds a limit, or could not be read.
        Over = "over",
        /// Always.
        Always = "always",
    }
}

/// The heap dump of a suite, and the limits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuiteHeap {
    /// When the heap is dumped.
    pub at: HeapTime,
    /// Files with rules.
    pub rules: Vec<PathBuf>,
    /// Largest number of leaks; `None`: only classes or bitmaps are limited.
    pub leaks: Option<u64>,
    /// Largest number of bytes of bitmaps.
    pub bitmaps: Option<u64>,
    /// Largest number of objects, by class.
    pub class: BTreeMap<String, u64>,
    /// Whether the dump is kept.
    pub keep: HeapKeep,
    /// Position of `at`.
    pub(crate) at_span: Span,
}

impl SuiteHeap {
    /// Checks the table. `None`: it has mistakes.
    pub(crate) fn check(At { value: file, span }: At<HeapFile>, reader: &mut Reader<'_>) -> Option<Self> {
        let HeapFile { at, rules, fail, keep } = file;
        let Some(At { value: at, span: at_span }) = at else {
            if !reader.has_error_below(&span) {
                reader
                    .error(&span, "it is not known when the heap is dumped")
                    .label("needs `at`")
                    .hint(Some("add `at: suite_end`"));
            }
            return None;
        };
        let HeapFailFile { leaks, bitmaps, class } = fail.unwrap_or_default();
        let bitmaps = bitmaps.map(|At { value: Size(bytes), .. }| bytes);
        let class = class.unwrap_or_default().0;
        for (name, _) in &class {
            let plain = |c: char| !c.is_whitespace() && !"*?,;/".contains(c);
            if name.value.is_empty() || !name.value.chars().all(plain) {
                reader
                    .error(&name.span, format!("`{}` names no class", name.value.escape_debug()))
                    .label("expected the full name of a class")
                    .hint(Some("`com.example.Session`, `com.example.Outer$Inner`"));
            }
        }
        let rules: Vec<PathBuf> =
            rules.unwrap_or_default().into_iter().map(|path| PathBuf::from(path.value.0)).collect();
        // Leaks are not searched if only classes or bitmaps are limited and no rules are named.
        let limits_others = bitmaps.is_some() || !class.is_empty();
        let looks = leaks.is_some() || !rules.is_empty() || !limits_others;
        Some(Self {
            at,
            rules,
            leaks: looks.then(|| leaks.map_or(0, |leaks| u64::from(leaks.value.0))),
            bitmaps,
            class: class.into_iter().map(|(name, Count(most))| (name.value, u64::from(most))).collect(),
            keep: keep.map_or(HeapKeep::Over, |keep| keep.value),
            at_span,
        })
    }

    /// Checks that a suite on a device can dump its heap this way.
    pub(crate) fn fits_device(&self, process_per_test: bool, reader: &mut Reader<'_>) {
        if matches!(self.at, HeapTime::OutOfMemory | HeapTime::Limit) {
            reader
                .error(&self.at_span, "the heap of an app is dumped while it waits for memgate")
                .label("expected `suite_end` or `test_failed`")
                .hint(Some("`at: test_failed` dumps it after the first test that failed, also one that ran out of memory"));
        } else if process_per_test {
            reader
                .error(&self.at_span, "there is no process in which all tests run")
                .label("`execution` is `orchestrator`")
                .hint(Some("remove `heap`, or `execution: orchestrator`"));
        }
    }

    /// Checks that `measure.java` allows this dump.
    pub(crate) fn fits(&self, java: &MeasureJava, reader: &mut Reader<'_>) {
        if self.at == HeapTime::Limit && java.heap_limit.is_none() {
            reader
                .error(&self.at_span, "there is no limit at which the heap could be dumped")
                .label("needs `measure.java.heap_limit`")
                .hint(Some("add `measure: { java: { heap_limit: 80% } }`"));
        }
        if java.agent == JavaAgent::None {
            reader
                .error(&self.at_span, "only the agent dumps the heap")
                .label("`measure.java.agent` is `none`")
                .hint(Some("remove `heap`, or `agent: none`"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn read(heap: &str, more: &str) -> Result<SuiteHeap, String> {
        let text = format!(
            "version: 1\nsuites:\n  unit: {{ run: [mvn, test], runner: junit, heap: {heap} }}\n{more}"
        );
        let config = Config::parse(&text, "memgate.yaml", &|_| None, None).map_err(|why| why.to_string())?;
        Ok(config.suites[0].heap.clone().unwrap())
    }

    #[test]
    fn leaks_are_looked_for_unless_only_classes_are_limited() {
        let heap = read("{ at: suite_end }", "").unwrap();
        assert_eq!((heap.at, heap.leaks, heap.keep), (HeapTime::SuiteEnd, Some(0), HeapKeep::Over));
        let heap = read("{ at: suite_end, fail: { class: { com.acme.Session: 10 } } }", "").unwrap();
        assert_eq!((heap.leaks, heap.class.get("com.acme.Session")), (None, Some(&10)));
        let heap = read("{ at: suite_end, rules: [r.toml], fail: { class: { a.B: 1 } } }", "").unwrap();
        assert_eq!((heap.leaks, heap.rules), (Some(0), vec![PathBuf::from("r.toml")]));
    }

    #[test]
    fn what_cannot_be_is_told_with_its_place() {
        for (heap, more, want) in [
            ("{ rules: [r.toml] }", "", "it is not known when the heap is dumped"),
            ("{ at: sometimes }", "", "sometimes"),
            ("{ at: suite_end, fail: { class: { 'a.*': 1 } } }", "", "`a.*` names no class"),
            ("{ at: limit }", "", "there is no limit at which the heap could be dumped"),
            ("{ at: suite_end }", "measure: { java: { agent: none } }\n", "only the agent dumps the heap"),
            ("{ at: limit }", "measure: { java: { heap_limit: 50%, heap_dump: out_of_memory } }\n", ""),
        ] {
            match read(heap, more) {
                Ok(_) => assert_eq!(want, "", "{heap}"),
                Err(why) => assert!(!want.is_empty() && why.contains(want), "{heap}: {why}"),
            }
        }
        let native = "version: 1\nsuites:\n  n: { run: [./tests], runner: gtest, heap: { at: suite_end } }\n";
        let why = Config::parse(native, "memgate.yaml", &|_| None, None).unwrap_err().to_string();
        assert!(why.contains("`heap` is for suites of Java"), "{why}");
    }
}
