//! One more pass for the few objects whose contents are shown: texts, primitive fields, positions in arrays.

use std::collections::{HashMap, HashSet};

use crate::graph::{Graph, Kind};
use crate::index::Index;
use crate::read::{DumpFile, Progress, ReadError, Told, Visit, value_bytes};

/// Maximum bytes of one text or array; longer ones are cut.
const LONGEST: usize = 1 << 16;
/// Maximum bytes of all texts and arrays together.
const MOST: usize = 64 << 20;

/// Contents to read.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Objects whose bytes are wanted.
    bytes: HashMap<u64, u32>,
    /// Arrays of objects, and the elements whose positions are wanted.
    places: HashMap<u64, HashSet<u64>>,
}

/// Contents that were read.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    bytes: HashMap<u32, Found>,
    places: HashMap<(u64, u64), u32>,
}

#[derive(Debug)]
struct Found {
    /// Type of an array; 0 for an instance.
    kind: u8,
    bytes: Vec<u8>,
    cut: bool,
}

impl Wanted {
    /// The characters of a text.
    pub(crate) fn text(&mut self, dump: &Index, graph: &Graph, text: u32) {
        if let Some(characters) = graph.field(dump, text, "value") {
            self.bytes.insert(dump.id(text), text);
            self.bytes.insert(dump.id(characters), characters);
        }
    }

    /// The position of `element` in `array`.
    pub(crate) fn place(&mut self, dump: &Index, array: u32, element: u32) {
        self.places.entry(dump.id(array)).or_default().insert(dump.id(element));
    }
}

impl Contents {
    /// Reads a dump once more, unless nothing is wanted.
    pub(crate) fn read(
        file: &DumpFile,
        dump: &Index,
        wanted: Wanted,
        progress: Progress<'_>,
    ) -> Result<Self, ReadError> {
        let left = wanted.bytes.len() + wanted.places.len();
        if left == 0 {
            return Ok(Self::default());
        }
        let told = Told { step: "texts", all: Some(dump.bytes), to: progress };
        let mut maybe = Box::new([0_u64; FILTER / 64]);
        let mut note = |id: u64| maybe[slot(id) / 64] |= 1 << (slot(id) % 64);
        wanted.bytes.keys().for_each(|id| note(*id));
        wanted.places.keys().for_each(|id| note(*id));
        let mut pass =
            Pass { dump, wanted, maybe, left, room: MOST, found: Self::default(), reading: None, told };
        file.walk(dump.whole, &mut pass)?;
        Ok(pass.found)
    }

    /// A text, cut to the length that is shown.
    pub(crate) fn text(&self, dump: &Index, graph: &Graph, text: u32) -> Option<String> {
        let characters = graph.field(dump, text, "value")?;
        let (about, found) = (self.bytes.get(&text)?, self.bytes.get(&characters)?);
        let field = |name| field(dump, graph, text, &about.bytes, name);
        let all = match found.kind {
            5 => utf16(&found.bytes, u16::from_be_bytes),
            // The bytes have the byte order of the memory.
            8 if field("coder") == Some(1) => utf16(&found.bytes, u16::from_le_bytes),
            8 => found.bytes.iter().map(|byte| char::from(*byte)).collect(),
            _ => return None,
        };
        // In old versions a text is a window of a longer one.
        let part = match (field("offset"), field("count")) {
            (Some(offset), Some(count)) if found.kind == 5 => {
                let (skip, take) = (usize::try_from(offset).ok()?, usize::try_from(count).ok()?);
                all.chars().skip(skip).take(take).collect()
            }
            _ => all,
        };
        // A trimmed dump has zeros instead of the text.
        if !part.is_empty() && part.chars().all(|c| c == '\0') {
            return None;
        }
        Some(if found.cut { part + "…" } else { part })
    }

    /// The position of an element in an array.
    pub(crate) fn place(&self, dump: &Index, array: u32, element: u32) -> Option<u32> {
        self.places.get(&(dump.id(array), dump.id(element))).copied()
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
    String::from_utf16_lossy(&units)
}

/// A primitive field in the bytes of an instance.
fn field(dump: &Index, graph: &Graph, object: u32, bytes: &[u8], name: &str) -> Option<i64> {
    let Kind::Of(class) = graph.kind(object) else { return None };
    let mut at = 0;
    for class in dump.hierarchy(class) {
        for field in &dump.classes[crate::ids::index(class)].fields {
            let length = value_bytes(field.kind, dump.header.id_bytes)?;
            if field.kind != 2 && dump.string(field.name) == Some(name) {
                return bytes.get(at..at + length).map(crate::graph::signed);
            }
            at += length;
        }
    }
    None
}

/// Bits of a filter that rejects most objects that are not wanted.
const FILTER: usize = 1 << 16;

const fn slot(id: u64) -> usize {
    let [a, b, ..] = (id >> 2 ^ id >> 18).to_le_bytes();
    a as usize | (b as usize) << 8
}

struct Pass<'a> {
    dump: &'a Index,
    wanted: Wanted,
    maybe: Box<[u64; FILTER / 64]>,
    left: usize,
    room: usize,
    found: Contents,
    reading: Option<Reading>,
    told: Told<'a>,
}

enum Reading {
    Values(u32),
    Elements { array: u64, elements: HashSet<u64>, at: u32 },
}

impl Pass<'_> {
    #[inline]
    fn maybe(&self, id: u64) -> bool {
        let slot = slot(id);
        self.maybe[slot / 64] >> (slot % 64) & 1 == 1
    }

    fn add(&mut self, object: u32, kind: u8, bytes: &[u8]) {
        let room = self.room;
        let found =
            self.found.bytes.entry(object).or_insert_with(|| Found { kind, bytes: Vec::new(), cut: false });
        let take = bytes.len().min(LONGEST.saturating_sub(found.bytes.len())).min(room);
        found.bytes.extend_from_slice(&bytes[..take]);
        found.cut |= take < bytes.len();
        self.room -= take;
    }
}

impl Visit for Pass<'_> {
    type Error = ReadError;
    const FIELDS: bool = true;

    fn progress(&mut self, at: u64) {
        self.told.at(at);
    }

    fn heap(&mut self, _tag: u8, at: u64) -> bool {
        at >= self.dump.heap_at && self.left > 0
    }

    #[inline]
    fn instance(&mut self, id: u64, _class: u64, _length: u32, bytes: &[u8], _at: u64) {
        if self.maybe(id)
            && let Some(object) = self.wanted.bytes.remove(&id)
        {
            self.left -= 1;
            self.add(object, 0, bytes);
        }
    }

    #[inline]
    fn object_array(&mut self, id: u64, _class: u64, _count: u32, _at: u64) {
        self.reading = None;
        if self.maybe(id)
            && let Some(elements) = self.wanted.places.remove(&id)
        {
            self.left -= 1;
            self.reading = Some(Reading::Elements { array: id, elements, at: 0 });
        }
    }

    fn elements(&mut self, ids: &[u8]) {
        let Some(Reading::Elements { array, elements, at }) = &mut self.reading else { return };
        for id in ids.chunks_exact(self.dump.header.id_bytes) {
            let id = crate::read::number(id);
            if elements.contains(&id) {
                self.found.places.entry((*array, id)).or_insert(*at);
            }
            *at = at.saturating_add(1);
        }
    }

    #[inline]
    fn primitive_array(&mut self, id: u64, kind: u8, _count: u32, _at: u64) -> bool {
        if self.maybe(id)
            && let Some(object) = self.wanted.bytes.remove(&id)
        {
            self.left -= 1;
            self.add(object, kind, &[]);
            self.reading = Some(Reading::Values(object));
            return true;
        }
        false
    }

    fn values(&mut self, bytes: &[u8]) {
        if let Some(Reading::Values(object)) = self.reading {
            self.add(object, 0, bytes);
        }
    }
}
