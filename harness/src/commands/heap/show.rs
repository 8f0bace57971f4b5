//! Answers of `memgate heap`. [`text`] has them in words; their rows are also the JSON.

mod text;

use memgate_hprof::read::DumpFile;
use memgate_hprof::{Analysis, Bitmap, Container, Dominators, Growing, Index, Link, Texts, Thread, Together};
use schemars::JsonSchema;
use serde::Serialize;

pub(super) use self::text::{all, classes_of, drawn, exact_bytes, head, head_of, number, plural};
pub(super) use memgate_hprof::text::printable;

use crate::cli::HeapBy;

/// An answer.
pub(super) enum Shown {
    Analysis { head: Vec<String>, analysis: Box<Analysis>, largest: Vec<Tree>, top: usize, exact: bool },
    LeakCanary(String),
    Paths { analysis: Box<Analysis>, top: usize },
    Classes { rows: Vec<ClassRow>, hidden: usize, count: u64, bytes: u64 },
    Dominators { reachable: u64, bytes: u64, unreachable: u64, trees: Vec<Tree> },
    Threads { threads: Vec<Thread> },
    Strings { texts: Texts },
    Bitmaps { bitmaps: Vec<Bitmap>, hidden: usize, count: u64, bytes: u64 },
    Diff { by: HeapBy, changes: Vec<Changed>, hidden: usize, count: i64, bytes: i64 },
    Growth { dumps: Vec<u64>, growing: Vec<Growing>, hidden: usize },
    Check { facts: Vec<(&'static str, String)>, roots: Vec<(String, u64)>, odd: Vec<String>, whole: bool },
}

/// A class and its objects.
#[derive(Serialize, JsonSchema)]
pub(super) struct ClassRow {
    /// Name of the class.
    pub(super) class: String,
    /// Number of objects.
    pub(super) count: u64,
    /// Shallow bytes of these objects.
    pub(super) bytes: u64,
    /// Bytes that all these objects together retain. Absent if not computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retained: Option<u64>,
    /// Bytes that the object with the largest retained size retains. Absent if not computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    largest: Option<u64>,
}

impl From<Together> for ClassRow {
    fn from(of: Together) -> Self {
        let Together { name, count, bytes, retained, largest } = of;
        Self { class: name, count, bytes, retained: Some(retained), largest: Some(largest) }
    }
}

impl From<(String, (u64, u64))> for ClassRow {
    fn from((class, (count, bytes)): (String, (u64, u64))) -> Self {
        Self { class, count, bytes, retained: None, largest: None }
    }
}

/// The change of a class between two dumps, in total or at one place.
#[derive(Serialize, JsonSchema)]
pub(super) struct Changed {
    /// Name of the class.
    class: String,
    /// Change of the number of objects; negative: fewer.
    pub(super) count: i64,
    /// Change of shallow bytes; negative: fewer.
    pub(super) bytes: i64,
    /// Number of objects in the second dump.
    count_after: u64,
    /// Shallow bytes of the objects in the second dump.
    bytes_after: u64,
    /// References that hold the objects, starting at the root. Absent in a diff by class.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    path: Vec<Link>,
    #[serde(skip)]
    held_by: String,
}

impl Changed {
    pub(super) fn new(class: String, before: (u64, u64), after: (u64, u64)) -> Self {
        Self {
            class,
            count: change(before.0, after.0),
            bytes: change(before.1, after.1),
            count_after: after.0,
            bytes_after: after.1,
            path: Vec::new(),
            held_by: String::new(),
        }
    }

    /// Objects of a class at one place.
    pub(super) fn at(class: String, at: Container) -> Self {
        let of = |which: fn(&[u64]) -> Option<&u64>| {
            (which(&at.counts).copied().unwrap_or(0), which(&at.bytes).copied().unwrap_or(0))
        };
        let (before, after) = (of(<[u64]>::first), of(<[u64]>::last));
        Self { held_by: at.way(), path: at.path, ..Self::new(class, before, after) }
    }
}

fn change(before: u64, after: u64) -> i64 {
    let size = i64::try_from(before.abs_diff(after)).unwrap_or(i64::MAX);
    if after < before { -size } else { size }
}

/// An object, and the objects that it dominates.
#[derive(Serialize, JsonSchema)]
pub(super) struct Tree {
    /// Object id in hexadecimal: `0x…`.
    pub(super) id: String,
    /// Class of the object; `class X` for a class object.
    pub(super) class: String,
    /// Own bytes of the object.
    pub(super) shallow: u64,
    /// Bytes that would be freed with the object, including its own.
    pub(super) retained: u64,
    /// Number of objects that the object dominates directly.
    pub(super) dominates: u64,
    /// The objects among these that retain most. Absent if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) below: Vec<Tree>,
}

/// The largest objects of `from`, or below the roots: `depth` levels with `top` objects each.
pub(super) fn trees(
    dump: &Index,
    dominators: &Dominators,
    from: Option<&[u32]>,
    depth: u32,
    top: usize,
) -> Vec<Tree> {
    let first = match from {
        None => dominators.below(None, top).0,
        Some(objects) => {
            let mut objects = objects.to_vec();
            objects.retain(|object| dominators.retained(*object).is_some());
            objects.sort_by_key(|object| std::cmp::Reverse(dominators.retained(*object)));
            objects.truncate(top);
            objects
        }
    };
    // Each shown object costs one look at the objects that it dominates directly.
    first.into_iter().map(|object| branch(dump, dominators, object, depth, top)).collect()
}

/// `depth` is at most 100: this does not recurse over the heap.
fn branch(dump: &Index, dominators: &Dominators, object: u32, depth: u32, top: usize) -> Tree {
    let most = if depth > 1 { top } else { 0 };
    let (below, dominates) = dominators.below(Some(object), most);
    let kind = match dominators.graph.kind(object) {
        memgate_hprof::Kind::Class(_) => "class ",
        _ => "",
    };
    Tree {
        id: format!("0x{:x}", dump.id(object)),
        class: format!("{kind}{}", printable(dominators.graph.class_name(dump, object))),
        shallow: dominators.own(dump, object),
        retained: dominators.retained(object).unwrap_or(0),
        dominates,
        below: below.into_iter().map(|object| branch(dump, dominators, object, depth - 1, top)).collect(),
    }
}

impl Shown {
    pub(super) fn analysis(
        head: Vec<String>,
        analysis: Analysis,
        largest: Vec<Tree>,
        top: usize,
        exact: bool,
    ) -> Self {
        Self::Analysis { head, analysis: Box::new(analysis), largest, top, exact }
    }

    pub(super) fn paths(analysis: Analysis, top: usize) -> Self {
        Self::Paths { analysis: Box::new(analysis), top }
    }

    pub(super) fn classes(mut rows: Vec<ClassRow>, top: usize) -> Self {
        let (count, bytes) =
            rows.iter().fold((0, 0_u64), |sum, row| (sum.0 + row.count, sum.1.saturating_add(row.bytes)));
        let hidden = rows.len().saturating_sub(top);
        rows.truncate(top);
        Self::Classes { rows, hidden, count, bytes }
    }

    pub(super) fn bitmaps(mut bitmaps: Vec<Bitmap>, top: usize) -> Self {
        let (bytes, count) = memgate_hprof::together(&bitmaps);
        let hidden = bitmaps.len().saturating_sub(top);
        bitmaps.truncate(top);
        Self::Bitmaps { bitmaps, hidden, count, bytes }
    }

    pub(super) fn dominators(dump: &Index, dominators: &Dominators, trees: Vec<Tree>) -> Self {
        let reachable = dominators.reachable() as u64;
        let unreachable = (dump.objects() as u64).saturating_sub(reachable);
        Self::Dominators { reachable, bytes: dominators.bytes(), unreachable, trees }
    }

    pub(super) fn diff(by: HeapBy, mut changes: Vec<Changed>, top: usize) -> Self {
        let (count, bytes) = changes.iter().fold((0, 0), |sum: (i64, i64), change| {
            (sum.0.saturating_add(change.count), sum.1.saturating_add(change.bytes))
        });
        let hidden = changes.len().saturating_sub(top);
        changes.truncate(top);
        Self::Diff { by, changes, hidden, count, bytes }
    }

    pub(super) fn check(file: &DumpFile, dump: &Index) -> Self {
        let counts = &dump.counts;
        let facts = vec![
            (
                "format",
                format!("{}, ids of {} bytes, {}", dump.header.title, dump.header.id_bytes, file.packing()),
            ),
            ("written", text::when(dump.header.milliseconds).unwrap_or_else(|| "it does not say".to_owned())),
            ("bytes", number(dump.bytes)),
            ("strings", number(counts.strings)),
            ("loaded classes", number(counts.loaded)),
            ("stack frames", number(counts.frames)),
            ("stack traces", number(counts.traces)),
            ("heap segments", number(counts.segments)),
            ("heap records", number(counts.sub_records)),
            ("heap infos", number(counts.heap_infos)),
            ("classes", number(counts.classes)),
            ("instances", number(counts.instances)),
            ("object arrays", number(counts.object_arrays)),
            ("primitive arrays", number(counts.primitive_arrays)),
        ];
        let mut roots: Vec<(u8, u64)> = Vec::new();
        for root in &dump.roots {
            match roots.iter_mut().find(|(tag, _)| *tag == root.tag) {
                Some((_, count)) => *count += 1,
                None => roots.push((root.tag, 1)),
            }
        }
        roots.sort_unstable();
        let roots = roots.into_iter().map(|(tag, count)| {
            (format!("0x{tag:02x} {}", memgate_hprof::root_name(tag).to_lowercase()), count)
        });
        let odd = dump.odd.sentences().collect();
        Self::Check { facts, roots: roots.collect(), odd, whole: !dump.truncated() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_is_gone_has_lost_its_bytes() {
        let changed = Changed::new("a.B".to_owned(), (3, 72), (0, 0));
        assert_eq!((changed.count, changed.bytes), (-3, -72));
    }
}
