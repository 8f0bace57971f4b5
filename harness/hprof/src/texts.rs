//! Strings that exist more than once.
//!
//! Data flow: strings → their arrays of characters → one pass over the contents of these arrays, a hash of each →
//! contents that exist more than once, most wasted bytes first → one more pass for their text.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher as _};

use schemars::JsonSchema;
use serde::Serialize;

use crate::analysis::Heap;
use crate::bits::Bits;
use crate::contents::{Contents, Wanted};
use crate::ids::NONE;
use crate::read::{Progress, ReadError, Told, Visit, value_bytes};
use crate::text::printable;

/// Number of characters that are shown.
const SHOWN: usize = 100;

/// A string that exists more than once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Duplicate {
    /// Beginning of the string, at most 100 characters.
    pub text: String,
    /// Number of copies.
    pub copies: u64,
    /// Bytes of the characters of one copy.
    pub bytes: u64,
    /// Bytes of all copies but one.
    pub wasted: u64,
}

/// All strings of a dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Texts {
    /// Number of strings.
    pub texts: u64,
    /// Number of character arrays of these strings. Several strings may share one.
    pub arrays: u64,
    /// Bytes of all arrays with contents other than zeros.
    pub bytes: u64,
    /// Bytes of arrays that are copies of another array.
    pub wasted: u64,
    /// Strings that exist more than once, most wasted bytes first.
    pub duplicates: Vec<Duplicate>,
    /// Number of arrays with only zeros, as after trimming. They are not compared.
    pub trimmed: u64,
    /// Number of strings that exist more than once and are not listed.
    pub more: u64,
}

impl Heap {
    /// Strings that exist more than once; `top` of them are reported.
    ///
    /// # Errors
    /// The dump cannot be read any more.
    pub fn texts(&self, top: usize, progress: Progress<'_>) -> Result<Texts, ReadError> {
        let Self { file, dump, graph } = self;
        let value = |text| graph.field(dump, text, "value");
        let (mut texts, mut arrays) = (0, Bits::new(graph.len()));
        for text in graph.instances(dump, "java.lang.String") {
            texts += 1;
            if let Some(array) = value(text) {
                arrays.set(array);
            }
        }
        let told = Told { step: "texts", all: Some(dump.bytes), to: progress };
        let mut pass = Pass {
            heap: self,
            arrays: &arrays,
            told,
            reading: None,
            is_zero: true,
            zeros: 0,
            found: HashMap::new(),
        };
        file.walk(dump.whole, &mut pass)?;
        let found = pass.found.into_iter().map(|((_, length), (copies, first))| (length, copies, first));
        let mut all: Vec<(u64, u64, u32)> = found.collect();
        let sum = |of: fn(u64) -> u64| {
            let each = all.iter().map(|(length, copies, _)| length.saturating_mul(of(*copies)));
            each.fold(0, u64::saturating_add)
        };
        let (bytes, wasted) = (sum(|copies| copies), sum(|copies| copies - 1));
        all.retain(|(_, copies, _)| *copies > 1);
        all.sort_unstable_by_key(|(length, copies, first)| {
            (std::cmp::Reverse(length.saturating_mul(copies - 1)), *first)
        });
        let more = all.len().saturating_sub(top) as u64;
        all.truncate(top);
        let mut text_of: HashMap<u32, u32> = all.iter().map(|(_, _, array)| (*array, NONE)).collect();
        for text in graph.instances(dump, "java.lang.String") {
            if let Some(of) = value(text).and_then(|array| text_of.get_mut(&array)) {
                *of = text;
            }
        }
        let mut wanted = Wanted::default();
        all.iter().for_each(|(_, _, array)| wanted.text(dump, graph, text_of[array]));
        let contents = Contents::read(file, dump, wanted, progress)?;
        let duplicates = all.into_iter().map(|(bytes, copies, array)| {
            let text = contents.text(dump, graph, text_of[&array]).unwrap_or_default();
            // Trimming writes eight letters of a hash and then zeros.
            let shown: String = text.trim_end_matches('\0').chars().take(SHOWN).collect();
            let text = printable(&shown) + if shown.len() < text.len() { "…" } else { "" };
            Duplicate { text, copies, bytes, wasted: bytes.saturating_mul(copies - 1) }
        });
        let duplicates = duplicates.collect();
        Ok(Texts { texts, arrays: arrays.count(), bytes, wasted, duplicates, trimmed: pass.zeros, more })
    }
}

struct Pass<'a> {
    heap: &'a Heap,
    arrays: &'a Bits,
    told: Told<'a>,
    /// The array that is being read, its bytes, the bytes still to read, and the hash.
    reading: Option<(u32, u64, u64, DefaultHasher)>,
    is_zero: bool,
    zeros: u64,
    /// Hash and bytes → copies, and the first array.
    found: HashMap<(u64, u64), (u64, u32)>,
}

impl Visit for Pass<'_> {
    type Error = ReadError;
    const FIELDS: bool = true;

    fn progress(&mut self, at: u64) {
        self.told.at(at);
    }

    fn heap(&mut self, _tag: u8, at: u64) -> bool {
        at >= self.heap.dump.heap_at
    }

    fn primitive_array(&mut self, id: u64, kind: u8, count: u32, _at: u64) -> bool {
        let Some(array) = self.heap.dump.object(id).filter(|array| self.arrays.has(*array)) else {
            return false;
        };
        let bytes = u64::from(count) * value_bytes(kind, self.heap.dump.header.id_bytes).unwrap_or(0) as u64;
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(kind);
        self.reading = Some((array, bytes, bytes, hasher));
        self.is_zero = true;
        // Empty arrays waste nothing.
        bytes > 0
    }

    fn values(&mut self, bytes: &[u8]) {
        let Some((array, all, left, hasher)) = &mut self.reading else { return };
        hasher.write(bytes);
        self.is_zero &= bytes.iter().all(|byte| *byte == 0);
        *left = left.saturating_sub(bytes.len() as u64);
        if *left == 0 {
            if self.is_zero {
                self.zeros += 1;
            } else {
                self.found.entry((hasher.finish(), *all)).or_insert((0, *array)).0 += 1;
            }
            self.reading = None;
        }
    }
}
