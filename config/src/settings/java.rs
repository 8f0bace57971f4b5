//! `measure.java`: what is looked at in Java virtual machines beside the heap's classes.

use crate::read::{At, Reader, choice, table};
use crate::value::number::Count;
use crate::value::size::Size;
use crate::value::text::Words;

const SAMPLING: u64 = 512 << 10;
/// A finer one costs more than the tests do.
const FINEST_SAMPLING: u64 = 4 << 10;
const COARSEST_SAMPLING: u64 = 1 << 30;

table! {
    /// What is looked at in Java virtual machines.
    JavaFile {
        /// Mean bytes between two allocations whose stack is noted; `0`: none. Confirming runs look at every allocation of one iteration.
        #[schemars(extend("default" = "512 KiB"))]
        sampling: At<Size>,
        /// Classes whose every object is followed from its allocation to its end in the build's own run: names, or beginnings with `*`
        /// behind; `!` before one leaves it out again. Costly.
        follow: Vec<At<Words>>,
        /// Bytes of the smallest object that is followed.
        follow_at_least: At<Size>,
        /// One object of so many is followed.
        #[schemars(extend("default" = 1))]
        follow_every: At<Count>,
        /// When the virtual machine writes a heap dump into the session.
        #[schemars(extend("default" = "never"))]
        heap_dump: HeapDump,
    }
}

choice! {
    /// When a heap dump is written.
    pub enum HeapDump ("a time for a heap dump") {
        /// Never.
        Never = "never",
        /// At the first `OutOfMemoryError`.
        OutOfMemory = "out_of_memory",
    }
}

/// What is looked at in Java virtual machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasureJava {
    /// Mean bytes between sampled allocations; `None`: none are sampled.
    pub sampling: Option<u32>,
    /// Classes that are followed.
    pub follow: Vec<String>,
    /// Bytes of the smallest followed object.
    pub follow_at_least: u64,
    /// One object of so many.
    pub follow_every: u32,
    /// When a heap dump is written.
    pub heap_dump: HeapDump,
}

impl Default for MeasureJava {
    fn default() -> Self {
        Self {
            sampling: u32::try_from(SAMPLING).ok(),
            follow: Vec::new(),
            follow_at_least: 0,
            follow_every: 1,
            heap_dump: HeapDump::Never,
        }
    }
}

impl MeasureJava {
    pub(crate) fn check(file: JavaFile, reader: &mut Reader<'_>) -> Self {
        let JavaFile { sampling, follow, follow_at_least, follow_every, heap_dump } = file;
        let default = Self::default();
        let sampling = sampling.map_or(default.sampling, |At { value: Size(bytes), span }| {
            if bytes != 0 && !(FINEST_SAMPLING..=COARSEST_SAMPLING).contains(&bytes) {
                reader
                    .error(&span, "the sampling interval is out of range")
                    .label("expected 4 KiB to 1 GiB, or 0");
            }
            u32::try_from(bytes).ok().filter(|&bytes| bytes != 0)
        });
        let follow = follow.unwrap_or_default();
        for At { value: Words(part), span } in &follow {
            if part.trim_start_matches('!').trim_end_matches('*').contains(['*', '!', ',', ';', ' ']) {
                reader
                    .error(span, format!("`{part}` names no classes"))
                    .label("expected a class, or the beginning of its name")
                    .hint(Some("`com.example.Tile`, `com.example.*`, `!com.example.cache.*`"));
            }
        }
        Self {
            sampling,
            follow: follow.into_iter().map(|part| part.value.0).collect(),
            follow_at_least: follow_at_least.map_or(default.follow_at_least, |size| size.value.0),
            follow_every: follow_every.map_or(default.follow_every, |At { value: Count(every), span }| {
                if every == 0 {
                    reader.error(&span, "`0` is out of range").label("expected 1 or more");
                }
                every.max(1)
            }),
            heap_dump: heap_dump.unwrap_or(default.heap_dump),
        }
    }
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
}
