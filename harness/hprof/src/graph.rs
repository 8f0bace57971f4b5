//! The second pass: the references between objects.
//!
//! Data flow: [`Index`] → a layout of each class that has instances (the offsets of its references, and the primitive
//! fields that rules read) → one walk over the dump, which appends the references of each object, as ranks, to one
//! long list → [`Graph`]. References keep the position of their field, null or not, so no edge stores a name; null
//! elements of arrays are left out.
//!
//! Per object: its kind, size and row (4 bytes each), and 4 bytes for each reference.

use std::collections::HashMap;

use crate::ids::{NONE, index, number};
use crate::index::Index;
use crate::read::{ClassDump, DumpFile, Odd, Oddities, Progress, ReadError, Told, Visit, value_bytes};
use crate::text::array_name;

/// Kinds from this number on are arrays of primitives, plus their type.
const PRIMITIVE: u32 = 0xF000_0000;
/// Kinds from this number on are class objects, plus the number of the class.
const CLASS: u32 = 0xE000_0000;

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An instance, or an array of objects, of this class.
    Of(u32),
    /// The class object of this class.
    Class(u32),
    /// An array of primitives of this type.
    Primitives(u8),
    /// Its class is not in the dump, or the object is not complete.
    Unknown,
}

/// A field that holds a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Id of its name.
    pub name: u64,
    /// The class that declares it.
    pub class: u32,
    /// Its offset in an instance.
    pub offset: u32,
}

/// A primitive field whose values are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Watch {
    name: u64,
    class: u32,
    offset: u32,
    bytes: u32,
    kind: u8,
}

/// How instances of a class are laid out: own fields first, then those of the superclass.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// Fields that hold references, sorted by name; of two with the same name, the one of the subclass comes first.
    pub slots: Vec<Slot>,
    /// Bytes of all fields.
    pub bytes: u32,
    watches: Vec<Watch>,
    is_array: bool,
}

/// Fields whose values are kept: class and field.
pub type Watched<'a> = &'a [(&'a str, &'a str)];

/// Objects and their references.
#[derive(Debug)]
pub struct Graph {
    kinds: Vec<u32>,
    sizes: Vec<u32>,
    /// Sizes of objects of 4 GiB or more.
    large: HashMap<u32, u64>,
    rows: Vec<u32>,
    slots: Vec<u32>,
    layouts: Vec<Layout>,
    /// Where the kept values of an object are.
    kept: Vec<(u32, u32)>,
    values: Vec<u8>,
    /// Oddities found in this pass.
    pub odd: Oddities,
}

impl Graph {
    /// Second pass over a dump. `watched`: primitive fields whose values are kept.
    ///
    /// # Errors
    /// The dump cannot be read any more, or has more references than can be numbered.
    pub fn read(
        file: &DumpFile,
        index: &Index,
        watched: Watched<'_>,
        progress: Progress<'_>,
    ) -> Result<Self, ReadError> {
        let told = Told { step: "references", all: Some(index.bytes), to: progress };
        let mut pass = Pass::new(index, watched, told);
        file.walk(index.whole, &mut pass)?;
        if pass.too_many {
            return Err(ReadError::TooMany);
        }
        pass.graph.kept.sort_unstable();
        Ok(pass.graph)
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Is there no object?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The kind of an object.
    #[must_use]
    #[inline]
    pub fn kind(&self, object: u32) -> Kind {
        match self.kinds[index(object)] {
            NONE => Kind::Unknown,
            kind if kind >= PRIMITIVE => Kind::Primitives((kind & 0xff).to_le_bytes()[0]),
            kind if kind >= CLASS => Kind::Class(kind - CLASS),
            class => Kind::Of(class),
        }
    }

    /// Bytes of its fields or elements; for a class, of its record.
    #[must_use]
    #[inline]
    pub fn bytes(&self, object: u32) -> u64 {
        match self.sizes[index(object)] {
            u32::MAX => self.large.get(&object).copied().unwrap_or(u64::from(u32::MAX)),
            bytes => u64::from(bytes),
        }
    }

    /// How instances of a class are laid out.
    #[must_use]
    #[inline]
    pub fn layout(&self, class: u32) -> &Layout {
        &self.layouts[index(class)]
    }

    /// Is it a class of arrays of objects?
    #[must_use]
    #[inline]
    pub fn is_array(&self, class: u32) -> bool {
        self.layouts[index(class)].is_array
    }

    /// References of an object, [`NONE`] for null. For an instance: one for each slot of its layout. For an array:
    /// those that are not null. For a class: its static ones, then its loader, its superclass, its signers and its
    /// protection domain.
    #[must_use]
    #[inline]
    pub fn references(&self, object: u32) -> &[u32] {
        let (kind, row) = (self.kinds[index(object)], index(self.rows[index(object)]));
        if kind >= PRIMITIVE || self.rows[index(object)] == NONE {
            return &[];
        }
        let (start, length) = if kind >= CLASS || self.layouts[index(kind)].is_array {
            (row + 1, index(self.slots[row]))
        } else {
            (row, self.layouts[index(kind)].slots.len())
        };
        &self.slots[start..start + length]
    }

    /// The object that field `name` of an instance holds.
    #[must_use]
    pub fn field(&self, index: &Index, object: u32, name: &str) -> Option<u32> {
        let Kind::Of(class) = self.kind(object) else { return None };
        let slot = self.slot(index, class, name)?;
        self.references(object).get(slot).copied().filter(|held| *held != NONE)
    }

    /// Index of field `name` among the slots of a class.
    #[must_use]
    pub fn slot(&self, index: &Index, class: u32, name: &str) -> Option<usize> {
        self.layout(class).slots.iter().position(|slot| index.string(slot.name) == Some(name))
    }

    /// The kept value of a primitive field, as in the dump.
    #[must_use]
    pub fn value(&self, dump: &Index, object: u32, field: &str) -> Option<&[u8]> {
        self.watched(dump, object, field).map(|(_, bytes)| bytes)
    }

    fn watched(&self, dump: &Index, object: u32, field: &str) -> Option<(&Watch, &[u8])> {
        let Kind::Of(class) = self.kind(object) else { return None };
        let at = self.kept.binary_search_by_key(&object, |kept| kept.0).ok()?;
        let mut start = index(self.kept[at].1);
        for watch in &self.layout(class).watches {
            let end = start + index(watch.bytes);
            if dump.string(watch.name) == Some(field) {
                return Some((watch, self.values.get(start..end)?));
            }
            start = end;
        }
        None
    }

    /// A kept value as a number.
    #[must_use]
    pub fn number(&self, index: &Index, object: u32, field: &str) -> Option<i64> {
        // A char is unsigned.
        let (watch, bytes) = self.watched(index, object, field)?;
        Some(if watch.kind == 5 { signed(bytes) & 0xffff } else { signed(bytes) })
    }

    /// A kept value as a boolean.
    #[must_use]
    pub fn truth(&self, index: &Index, object: u32, field: &str) -> Option<bool> {
        self.value(index, object, field).map(|bytes| bytes.iter().any(|byte| *byte != 0))
    }

    /// Objects that are instances of this class or of a subclass.
    pub fn instances<'a>(&'a self, index: &'a Index, class: &'a str) -> impl Iterator<Item = u32> + 'a {
        let wanted: Vec<bool> =
            (0..index.classes.len()).map(|number_| index.is_a(number(number_), class)).collect();
        (0..self.kinds.len()).map(number).filter(move |object| match self.kind(*object) {
            Kind::Of(class) => wanted[crate::ids::index(class)],
            _ => false,
        })
    }

    /// Name of an object's class, in source form.
    #[must_use]
    pub fn class_name<'a>(&self, index: &'a Index, object: u32) -> &'a str {
        match self.kind(object) {
            Kind::Of(class) | Kind::Class(class) => &index.classes[crate::ids::index(class)].name,
            Kind::Primitives(kind) => array_name(kind),
            Kind::Unknown => "?",
        }
    }

    /// Drops the references, but keeps kinds and sizes.
    pub(crate) fn without_references(mut self) -> Self {
        (self.rows, self.slots) = (Vec::new(), Vec::new());
        self
    }
}

/// Up to 8 bytes, big-endian, as a number with a sign.
#[must_use]
pub(crate) fn signed(bytes: &[u8]) -> i64 {
    let fill = if bytes.first().is_some_and(|byte| byte & 0x80 != 0) { -1 } else { 0 };
    bytes.iter().fold(fill, |number, byte| number << 8 | i64::from(*byte))
}

struct Pass<'a> {
    index: &'a Index,
    graph: Graph,
    told: Told<'a>,
    id_bytes: usize,
    /// The position of the count of the array that is being read.
    array: Option<usize>,
    too_many: bool,
}

impl<'a> Pass<'a> {
    fn new(dump: &'a Index, watched: Watched<'_>, told: Told<'a>) -> Self {
        let layouts = layouts(dump, watched);
        let mut kinds = vec![NONE; dump.objects()];
        for (at, class) in dump.classes.iter().enumerate() {
            if let Some(kind) = kinds.get_mut(index(dump.ids.rank(class.id))) {
                *kind = CLASS | number(at);
            }
        }
        let id_bytes = dump.header.id_bytes;
        // Reserves room for as many references as the first pass saw, but for no more than the file can hold.
        let fields = dump.classes.iter().zip(&layouts);
        let seen = fields.fold(dump.counts.elements + dump.counts.object_arrays, |sum, (class, layout)| {
            let statics = class.statics.len() as u64 + 3;
            sum + statics
                + if layout.is_array { 0 } else { class.instances.count * layout.slots.len() as u64 }
        });
        let most = (dump.bytes / id_bytes as u64).saturating_add(dump.counts.object_arrays);
        let slots = Vec::with_capacity(usize::try_from(seen.min(most)).unwrap_or(0));
        let objects = kinds.len();
        Self {
            index: dump,
            graph: Graph {
                kinds,
                sizes: vec![0; objects],
                large: HashMap::new(),
                rows: vec![NONE; objects],
                slots,
                layouts,
                kept: Vec::new(),
                values: Vec::new(),
                odd: Oddities::default(),
            },
            told,
            id_bytes,
            array: None,
            too_many: false,
        }
    }

    /// Rank of an object that occurs for the first time, and the position of its references.
    #[inline]
    fn begin(&mut self, id: u64) -> Option<(u32, usize)> {
        let object = self.index.ids.rank(id);
        let row = self.graph.rows.get_mut(index(object)).filter(|row| **row == NONE)?;
        let at = self.graph.slots.len();
        if at as u64 >= crate::ids::MOST {
            self.too_many = true;
            return None;
        }
        *row = number(at);
        Some((object, at))
    }

    #[inline]
    fn set_size(&mut self, object: u32, bytes: u64) {
        self.graph.sizes[index(object)] = u32::try_from(bytes).unwrap_or(u32::MAX);
        if bytes >= u64::from(u32::MAX) {
            self.graph.large.insert(object, bytes);
        }
    }

    /// Stores an object without references. If a later class has the same id, it is ignored: the first object counts.
    fn set_unknown(&mut self, object: u32, bytes: u64) {
        self.graph.kinds[index(object)] = NONE;
        self.set_size(object, bytes);
    }

    #[inline]
    fn class_of(&self, id: u64) -> u32 {
        match self.graph.kinds.get(index(self.index.ids.rank(id))) {
            Some(kind) if (CLASS..PRIMITIVE).contains(kind) => kind - CLASS,
            _ => NONE,
        }
    }

    #[inline]
    fn rank_of(&self, bytes: &[u8]) -> u32 {
        let id = match *bytes {
            [a, b, c, d] => u64::from(u32::from_be_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            _ => 0,
        };
        if id == 0 { NONE } else { self.index.ids.rank(id) }
    }
}

/// Layouts of the classes with at least one instance that is as long as the layout.
fn layouts(dump: &Index, watched: Watched<'_>) -> Vec<Layout> {
    let own = dump.field_bytes();
    (0..dump.classes.len())
        .map(|at| {
            let class = &dump.classes[at];
            if class.name.ends_with("[]") {
                return Layout { is_array: true, ..Layout::default() };
            }
            if class.instances.count == 0 {
                return Layout::default();
            }
            let bytes: u64 = dump.hierarchy(number(at)).map(|class| own[index(class)]).sum();
            // A layout costs memory, so the file must have contained this many bytes.
            if bytes > class.instances.largest {
                return Layout { bytes: u32::MAX, ..Layout::default() };
            }
            layout(dump, number(at), watched)
        })
        .collect()
}

fn layout(dump: &Index, class: u32, watched: Watched<'_>) -> Layout {
    let mut layout = Layout::default();
    for declares in dump.hierarchy(class) {
        let declaring = &dump.classes[index(declares)];
        let of_object = declaring.name == "java.lang.Object";
        for field in &declaring.fields {
            let bytes = number(value_bytes(field.kind, dump.header.id_bytes).unwrap_or(0));
            let (name, offset) = (field.name, layout.bytes);
            layout.bytes = layout.bytes.saturating_add(bytes);
            if field.kind == 2 {
                // Android's pointer to the class is no field of the program.
                if !of_object {
                    layout.slots.push(Slot { name, class: declares, offset });
                }
            } else if dump.is_meant(watched, class, declares, name) {
                layout.watches.push(Watch { name, class: declares, offset, bytes, kind: field.kind });
            }
        }
    }
    layout.slots.sort_by(|a, b| dump.string(a.name).cmp(&dump.string(b.name)));
    layout
}

impl Visit for Pass<'_> {
    type Error = ReadError;
    const FIELDS: bool = true;

    fn odd(&mut self, odd: Odd, at: u64) -> Result<(), ReadError> {
        // The first pass has reported the others.
        if matches!(odd, Odd::Short) {
            self.graph.odd.add(odd, at);
        }
        Ok(())
    }

    fn progress(&mut self, at: u64) {
        self.told.at(at);
    }

    fn heap(&mut self, _tag: u8, at: u64) -> bool {
        at >= self.index.heap_at
    }

    fn class(&mut self, class: &ClassDump, _at: u64) {
        let Some((object, _)) = self.begin(class.id) else { return };
        self.set_size(object, class.record_bytes);
        let head = self.graph.slots.len();
        self.graph.slots.push(0);
        for field in class.statics.iter().filter(|field| field.kind == 2) {
            let held = if field.value == 0 { NONE } else { self.index.ids.rank(field.value) };
            self.graph.slots.push(held);
        }
        for id in [class.loader, class.super_id, class.signers, class.domain] {
            let held = if id == 0 { NONE } else { self.index.ids.rank(id) };
            self.graph.slots.push(held);
        }
        self.graph.slots[head] = number(self.graph.slots.len() - head - 1);
    }

    #[inline]
    fn instance(&mut self, id: u64, class: u64, length: u32, bytes: &[u8], at: u64) {
        let Some((object, _)) = self.begin(id) else { return };
        let class = self.class_of(class);
        if class == NONE {
            return self.set_unknown(object, u64::from(length));
        }
        let layout = &self.graph.layouts[index(class)];
        if layout.is_array || bytes.len() < index(layout.bytes) {
            self.graph.odd.add(Odd::Short, at);
            return self.set_unknown(object, u64::from(length));
        }
        self.graph.kinds[index(object)] = class;
        let width = self.id_bytes;
        for slot in &layout.slots {
            let from = index(slot.offset);
            let held = self.rank_of(&bytes[from..from + width]);
            self.graph.slots.push(held);
        }
        if !layout.watches.is_empty() {
            self.graph.kept.push((object, number(self.graph.values.len())));
            for watch in &layout.watches {
                let from = index(watch.offset);
                self.graph.values.extend_from_slice(&bytes[from..from + index(watch.bytes)]);
            }
        }
        let bytes = u64::from(self.index.classes[index(class)].instance_bytes);
        self.set_size(object, bytes);
    }

    #[inline]
    fn object_array(&mut self, id: u64, class: u64, count: u32, _at: u64) {
        self.array = None;
        let Some((object, at)) = self.begin(id) else { return };
        let bytes = u64::from(count) * self.id_bytes as u64;
        let class = self.class_of(class);
        if class == NONE || !self.graph.layouts[index(class)].is_array {
            return self.set_unknown(object, bytes);
        }
        self.set_size(object, bytes);
        self.graph.kinds[index(object)] = class;
        self.graph.slots.push(0);
        self.array = Some(at);
    }

    fn elements(&mut self, ids: &[u8]) {
        if self.array.is_none() {
            return;
        }
        for id in ids.chunks_exact(self.id_bytes) {
            let held = self.rank_of(id);
            if held != NONE {
                self.graph.slots.push(held);
            }
        }
    }

    fn elements_end(&mut self) {
        if let Some(at) = self.array.take() {
            self.graph.slots[at] = number(self.graph.slots.len() - at - 1);
            self.too_many |= self.graph.slots.len() as u64 >= crate::ids::MOST;
        }
    }

    #[inline]
    fn primitive_array(&mut self, id: u64, kind: u8, count: u32, _at: u64) -> bool {
        let Some((object, _)) = self.begin(id) else { return false };
        self.graph.kinds[index(object)] = PRIMITIVE | u32::from(kind);
        let bytes = value_bytes(kind, self.id_bytes).unwrap_or(0) as u64;
        self.set_size(object, u64::from(count) * bytes);
        false
    }
}
