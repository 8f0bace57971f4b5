//! The output of `memgate heap … --json`, and its schema (`memgate schema heap`).
//!
//! A change of existing fields increases [`VERSION`]; new fields do not.

use std::collections::BTreeMap;

use memgate_hprof::{About, Bitmap, Growing, Leak, Node, Texts, Thread};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;

use super::show::{Changed, ClassRow, Shown, Tree, all, head};
use crate::cli::HeapBy;

const VERSION: u32 = 1;

/// The answer of a command.
#[derive(Serialize, JsonSchema)]
struct Json<'a> {
    /// Version of this format: 1.
    schema_version: u32,
    #[serde(flatten)]
    answer: Answer<'a>,
}

/// The answer, by command.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum Answer<'a> {
    /// `analyze`
    Analysis {
        /// Properties of the dump.
        dump: &'a About,
        /// Bytes that all leaks together retain. Each byte counts once.
        attributed_bytes: u64,
        /// Number of objects that all leaks together retain.
        attributed_objects: u64,
        /// Leaks of the program, most attributed bytes first.
        leaks: &'a [Leak],
        /// Number of all leaks of the program, including those that are not listed.
        leaks_in_all: usize,
        /// Known leaks of libraries, most attributed bytes first.
        library_leaks: &'a [Leak],
        /// Objects that are no longer in use and that no live object holds.
        unreachable: &'a [Node],
        /// Number of all such objects, including those that are not listed.
        unreachable_in_all: u64,
        /// Number of leaking objects whose paths were not examined, because there are too many.
        not_looked_at: u64,
        /// User rules that can never match in this dump, in sentences.
        mistakes: &'a [String],
        /// The objects that retain most; `null` without `--exact`.
        largest: Option<&'a [Tree]>,
    },
    /// `analyze --leakcanary`
    LeakCanary {
        /// The analysis in the format of `shark-cli analyze`.
        text: &'a str,
    },
    /// `paths`
    Paths {
        /// Properties of the dump.
        dump: &'a About,
        /// Different paths to objects of the class, each with the number of objects to which it leads.
        paths: Vec<&'a Leak>,
        /// Number of all paths, including those that are not listed.
        paths_in_all: usize,
        /// Number of objects of the class that no live object holds.
        unreachable_in_all: u64,
        /// Number of objects whose paths were not examined, because there are too many.
        not_looked_at: u64,
    },
    /// `classes`
    Classes {
        /// Number of objects.
        count: u64,
        /// Shallow bytes of all objects.
        bytes: u64,
        /// Classes, in the requested order.
        classes: &'a [ClassRow],
        /// Number of classes that are not listed.
        more_classes: usize,
    },
    /// `dominators`
    Dominators {
        /// Number of objects that are reachable from a root.
        reachable: u64,
        /// Bytes of the reachable objects.
        bytes: u64,
        /// Number of objects that are not reachable.
        unreachable: u64,
        /// The objects that retain most, each with the objects that it dominates.
        objects: &'a [Tree],
    },
    /// `threads`
    Threads {
        /// Threads, in the order of the dump.
        threads: &'a [Thread],
    },
    /// `strings`
    Strings {
        /// All strings, and those that exist more than once.
        strings: &'a Texts,
    },
    /// `bitmaps`
    Bitmaps {
        /// Number of bitmaps.
        count: u64,
        /// Bytes of all pixels.
        bytes: u64,
        /// Bitmaps, largest first.
        bitmaps: &'a [Bitmap],
        /// Number of bitmaps that are not listed.
        more_bitmaps: usize,
    },
    /// `diff`
    Diff {
        /// Change of the number of objects; negative: fewer.
        count: i64,
        /// Change of shallow bytes; negative: fewer.
        bytes: i64,
        /// Classes, largest change first.
        classes: &'a [Changed],
        /// Number of classes that are not listed.
        more_classes: usize,
    },
    /// `diff --by path`, `diff --by container`
    Places {
        /// Change of the number of objects; negative: fewer.
        count: i64,
        /// Change of shallow bytes; negative: fewer.
        bytes: i64,
        /// Places, largest change first.
        places: &'a [Changed],
        /// Number of places that are not listed.
        more_places: usize,
    },
    /// `growth`
    Growth {
        /// Number of objects in each dump.
        objects: &'a [u64],
        /// Growing containers, by the class of the added objects.
        growth: &'a [Growing],
        /// Number of classes that are not listed.
        more_classes: usize,
    },
    /// `check`
    Check {
        /// Is the dump complete?
        whole: bool,
        /// Properties and record counts of the dump, by name.
        facts: BTreeMap<&'a str, &'a str>,
        /// Number of roots by kind.
        roots: BTreeMap<&'a str, u64>,
        /// Descriptions of oddities of the dump.
        odd: &'a [String],
    },
}

/// An answer as JSON.
pub(super) fn json(shown: &Shown) -> serde_json::Result<String> {
    let json = Json { schema_version: VERSION, answer: Answer::of(shown) };
    let mut text = serde_json::to_string_pretty(&json)?;
    text.push('\n');
    Ok(text)
}

impl<'a> Answer<'a> {
    fn of(shown: &'a Shown) -> Self {
        match shown {
            Shown::Analysis { analysis, largest, top, exact, .. } => Self::Analysis {
                dump: &analysis.about,
                attributed_bytes: analysis.attributed_bytes,
                attributed_objects: analysis.attributed_objects,
                leaks: head(&analysis.leaks, *top),
                leaks_in_all: analysis.leaks.len(),
                library_leaks: head(&analysis.library_leaks, *top),
                unreachable: head(&analysis.unreachable, *top),
                unreachable_in_all: analysis.unreachable.len() as u64 + analysis.unreachable_more,
                not_looked_at: analysis.not_looked_at,
                mistakes: &analysis.mistakes,
                largest: exact.then_some(largest.as_slice()),
            },
            Shown::LeakCanary(text) => Self::LeakCanary { text },
            Shown::Paths { analysis, top } => {
                let mut paths = all(analysis);
                let paths_in_all = paths.len();
                paths.truncate(*top);
                Self::Paths {
                    dump: &analysis.about,
                    paths,
                    paths_in_all,
                    unreachable_in_all: analysis.unreachable.len() as u64 + analysis.unreachable_more,
                    not_looked_at: analysis.not_looked_at,
                }
            }
            Shown::Classes { rows, hidden, count, bytes } => {
                Self::Classes { count: *count, bytes: *bytes, classes: rows, more_classes: *hidden }
            }
            Shown::Dominators { reachable, bytes, unreachable, trees } => Self::Dominators {
                reachable: *reachable,
                bytes: *bytes,
                unreachable: *unreachable,
                objects: trees,
            },
            Shown::Threads { threads } => Self::Threads { threads },
            Shown::Strings { texts } => Self::Strings { strings: texts },
            Shown::Bitmaps { bitmaps, hidden, count, bytes } => {
                Self::Bitmaps { count: *count, bytes: *bytes, bitmaps, more_bitmaps: *hidden }
            }
            Shown::Diff { by: HeapBy::Class, changes, hidden, count, bytes } => {
                Self::Diff { count: *count, bytes: *bytes, classes: changes, more_classes: *hidden }
            }
            Shown::Diff { changes, hidden, count, bytes, .. } => {
                Self::Places { count: *count, bytes: *bytes, places: changes, more_places: *hidden }
            }
            Shown::Growth { dumps, growing, hidden } => {
                Self::Growth { objects: dumps, growth: growing, more_classes: *hidden }
            }
            Shown::Check { facts, roots, odd, whole } => Self::Check {
                whole: *whole,
                facts: facts.iter().map(|(name, value)| (*name, value.as_str())).collect(),
                roots: roots.iter().map(|(name, count)| (name.as_str(), *count)).collect(),
                odd,
            },
        }
    }
}

/// The JSON Schema of the commands' output, as committed in `docs/heap.schema.json`.
pub(crate) fn schema() -> String {
    // The schema describes the output, where a field may be missing.
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<Json<'static>>();
    format!("{:#}\n", schema.as_value())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_schema_is_the_one_of_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/heap.schema.json");
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(path, schema()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(
            committed,
            schema(),
            "{path} is out of date: UPDATE_SCHEMA=1 cargo test -p memgate schema"
        );
    }
}
