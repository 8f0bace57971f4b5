//! The first pass: reads everything but the references.
//!
//! Data flow: one walk → a bit for each object ([`crate::ids`]), classes with their fields, roots, names, stacks, and
//! counts of everything → [`Index`], which all other passes start from. They read no byte after the last complete
//! record of this pass.

use std::collections::{HashMap, HashSet};

use memgate_model::stable_class_name;

use crate::ids::{Ids, Marks, NONE, index, number};
use crate::read::{
    ClassDump, DumpFile, Field, Header, Odd, Oddities, Packing, Progress, ReadError, Static, Told, Visit,
    value_bytes,
};
use crate::text::{array_name, class_name, modified_utf8, shortened};

/// A class.
#[derive(Debug, Clone, Default)]
pub struct Class {
    /// Id of the class object.
    pub id: u64,
    /// The superclass, as an index in [`Index::classes`].
    pub above: Option<u32>,
    /// Its loader; 0: the boot loader.
    pub loader: u64,
    pub(crate) super_id: u64,
    /// Name in source form (`java.util.Map$Entry[]`), the same in each run: `com.acme.Shop$$Lambda`.
    pub name: String,
    /// Bytes of an instance, as the virtual machine reports them.
    pub instance_bytes: u32,
    /// Bytes of its record.
    pub record_bytes: u64,
    /// Static fields in order.
    pub statics: Vec<Static>,
    /// Its own fields in order.
    pub fields: Vec<Field>,
    /// Its instances; for an array class its arrays.
    pub instances: Tally,
}

/// Objects of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub count: u64,
    /// Bytes of their fields or elements.
    pub bytes: u64,
    /// Bytes of the largest one.
    pub largest: u64,
}

impl Tally {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.largest = self.largest.max(bytes);
    }
}

/// A root: an object that is alive without a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Root {
    /// Its tag in the file.
    pub tag: u8,
    /// The object.
    pub id: u64,
    /// Serial of its thread, 0 if it has none.
    pub thread: u32,
    /// Number of its frame.
    pub frame: u32,
}

impl Root {
    /// Its position in the order of root kinds; `None`: roots of this kind do not count when leaks are searched.
    pub(crate) const fn place(&self) -> Option<u8> {
        match self.tag {
            0x08 => Some(0),
            0x06 => Some(1),
            0x05 => Some(2),
            0x04 => Some(3),
            0x07 => Some(4),
            0x8e => Some(5),
            0x02 => Some(6),
            0x01 => Some(7),
            0x03 => Some(8),
            _ => None,
        }
    }
}

/// A frame of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Ids of method, signature and source file.
    pub names: [u64; 3],
    /// Serial of its class.
    pub class: u32,
    /// Its line: positive, 0 none, -1 unknown, -2 compiled, -3 native.
    pub line: i32,
}

/// A stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Serial of its thread.
    pub thread: u32,
    /// Ids of its frames, the innermost first.
    pub frames: Vec<u64>,
}

/// Counts of the dump's contents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Texts.
    pub strings: u64,
    /// Records that give a class its name.
    pub loaded: u64,
    /// Stack frames.
    pub frames: u64,
    /// Stacks.
    pub traces: u64,
    /// Records with a heap or a part of it.
    pub segments: u64,
    /// Sub-records in them.
    pub sub_records: u64,
    /// Records that name the heap of the following objects.
    pub heap_infos: u64,
    /// Class objects.
    pub classes: u64,
    /// Instances.
    pub instances: u64,
    /// Arrays of objects.
    pub object_arrays: u64,
    /// Arrays of primitives.
    pub primitive_arrays: u64,
    /// Elements of arrays of objects.
    pub elements: u64,
}

/// Results of the first pass.
#[derive(Debug)]
pub struct Index {
    /// Title, size of ids, time.
    pub header: Header,
    /// Counts of the dump's contents.
    pub counts: Counts,
    /// Classes in the order of the file.
    pub classes: Vec<Class>,
    /// Arrays of primitives, by their type.
    pub primitives: [Tally; 12],
    /// Instances and arrays whose class is not in the dump.
    pub classless: Tally,
    /// Roots in the order of the file.
    pub roots: Vec<Root>,
    /// Stacks by serial.
    pub traces: HashMap<u32, Trace>,
    /// Frames by id.
    pub frames: HashMap<u64, Frame>,
    /// Class id by serial.
    pub serials: HashMap<u32, u64>,
    /// Oddities found in this pass.
    pub odd: Oddities,
    /// Bytes, unpacked.
    pub bytes: u64,
    pub(crate) ids: Ids,
    strings: HashMap<u64, Box<str>>,
    /// Id of the name of a class, by its id.
    class_names: HashMap<u64, u64>,
    heap_names: HashSet<u64>,
    class_bytes: u64,
    /// Where the valid heap begins, and the end of the complete part.
    pub(crate) heap_at: u64,
    pub(crate) whole: u64,
}

impl Index {
    /// Reads a dump once.
    ///
    /// # Errors
    /// The file cannot be read, or is no heap dump.
    pub fn read(file: &DumpFile, progress: Progress<'_>) -> Result<Self, ReadError> {
        let all = (file.packing() == Packing::Plain).then_some(file.bytes());
        let told = Told { step: "reading", all, to: progress };
        let mut pass = Pass::new(told);
        let walked = file.walk(u64::MAX, &mut pass)?;
        pass.finish(walked.bytes, walked.whole)
    }

    /// Number of objects, class objects included.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.ids.len()
    }

    /// Is a part of the heap missing?
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.odd.truncated()
    }

    /// A text by its id.
    #[must_use]
    pub fn string(&self, id: u64) -> Option<&str> {
        self.strings.get(&id).map(|text| &**text)
    }

    /// Adds a text.
    pub(crate) fn add_string(&mut self, id: u64, text: &str) {
        self.strings.insert(id, text.into());
    }

    /// Sets another text as the name of a class.
    pub(crate) fn set_class_name(&mut self, class: u64, name: u64) {
        self.class_names.insert(class, name);
    }

    /// Name of a field or method; an id without a name is shown as a number.
    #[must_use]
    pub fn name(&self, id: u64) -> String {
        self.string(id).map_or_else(|| format!("?0x{id:x}"), str::to_owned)
    }

    /// Ids of all texts that name something in the dump.
    pub(crate) fn names(&self) -> HashSet<u64> {
        let frames = self.frames.values().flat_map(|frame| frame.names);
        let classes = self.classes.iter().flat_map(|class| {
            let statics = class.statics.iter().map(|field| field.name);
            statics.chain(class.fields.iter().map(|field| field.name))
        });
        let heaps = self.heap_names.iter().copied();
        self.class_names.values().copied().chain(frames).chain(classes).chain(heaps).collect()
    }

    /// The name of a class as in the dump, also of a class without an object there.
    #[must_use]
    pub(crate) fn class_named(&self, id: u64) -> Option<&str> {
        self.string(*self.class_names.get(&id)?)
    }

    /// The class and its superclasses, itself first. Limited in length, in case superclasses form a circle.
    pub fn hierarchy(&self, class: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(class), |class| self.classes[index(*class)].above).take(DEEPEST)
    }

    /// By class: its class object, if only its instances may keep it; [`NONE`]: it is a root itself, or is missing.
    /// No field holds it, so no reference of the dump shows it.
    pub(crate) fn kept_by_instances(&self, is_root: impl Fn(&Root) -> bool) -> Vec<u32> {
        let roots: HashSet<u64> =
            self.roots.iter().filter(|root| is_root(root)).map(|root| root.id).collect();
        let kept = self.classes.iter().map(|class| class.id);
        kept.map(|id| if roots.contains(&id) { NONE } else { self.ids.rank(id) }).collect()
    }

    /// Bytes of the fields that each class itself declares.
    pub(crate) fn field_bytes(&self) -> Vec<u64> {
        let bytes = |field: &Field| value_bytes(field.kind, self.header.id_bytes).unwrap_or(0) as u64;
        self.classes.iter().map(|class| class.fields.iter().map(bytes).sum()).collect()
    }

    /// Is `class` this class, or a subclass?
    #[must_use]
    pub fn is_a(&self, class: u32, name: &str) -> bool {
        self.hierarchy(class).any(|class| self.classes[index(class)].name == name)
    }

    /// Does one of these pairs of class and field mean a field that `declares` has in instances of `class`? Inherited
    /// fields count too, but a field with the same name in a subclass does not.
    pub(crate) fn is_meant(&self, fields: &[(&str, &str)], class: u32, declares: u32, field: u64) -> bool {
        let name = self.string(field);
        fields.iter().filter(|(_, field)| name == Some(*field)).any(|(of, _)| {
            let from = self.hierarchy(class).find(|class| self.classes[index(*class)].name == *of);
            from.is_some_and(|from| self.hierarchy(from).any(|class| class == declares))
        })
    }

    /// Bytes of an instance of `java.lang.Class`, as that class gives them.
    #[must_use]
    pub(crate) const fn class_bytes(&self) -> u64 {
        self.class_bytes
    }

    /// The rank of an object by its id.
    #[must_use]
    pub fn object(&self, id: u64) -> Option<u32> {
        Some(self.ids.rank(id)).filter(|rank| *rank != NONE)
    }

    /// The id of an object by its rank.
    #[must_use]
    pub fn id(&self, object: u32) -> u64 {
        self.ids.id(object)
    }

    /// Each kind of object with its name: instances and arrays by class, then arrays of primitives.
    ///
    /// Instances have the size that their class gives: on Android that is the true one.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, Tally)> + '_ {
        let classes = self.classes.iter().map(|class| {
            let mut tally = class.instances;
            if !class.name.ends_with("[]") {
                tally.bytes = tally.count.saturating_mul(u64::from(class.instance_bytes));
            }
            (class.name.as_str(), tally)
        });
        let primitives = (4..).zip(&self.primitives[4..]).map(|(kind, tally)| (array_name(kind), *tally));
        let unknown = std::iter::once(("?", self.classless));
        classes.chain(primitives).chain(unknown).filter(|(_, tally)| tally.count > 0)
    }
}

/// Size of the cache of recent tallies.
const LATELY: usize = 256;
/// Maximum number of superclasses.
const DEEPEST: usize = 1000;

struct Pass<'a> {
    told: Told<'a>,
    header: Header,
    counts: Counts,
    marks: Marks,
    classes: Vec<Class>,
    by_id: HashMap<u64, u32>,
    names: HashMap<u64, u64>,
    serials: HashMap<u32, u64>,
    tallies: Vec<Tally>,
    /// Class id to its tally, and the recently used ones, by some bits of the id.
    tally_of: HashMap<u64, u32>,
    lately: Box<[(u64, u32); LATELY]>,
    primitives: [Tally; 12],
    roots: Vec<Root>,
    strings: HashMap<u64, Box<str>>,
    traces: HashMap<u32, Trace>,
    frames: HashMap<u64, Frame>,
    odd: Oddities,
    heap_at: u64,
    one_heap: bool,
    heap_names: HashSet<u64>,
}

impl<'a> Pass<'a> {
    fn new(told: Told<'a>) -> Self {
        Self {
            told,
            header: Header::default(),
            counts: Counts::default(),
            marks: Marks::new(4),
            classes: Vec::new(),
            by_id: HashMap::new(),
            names: HashMap::new(),
            serials: HashMap::new(),
            tallies: Vec::new(),
            tally_of: HashMap::new(),
            lately: Box::new([(0, NONE); LATELY]),
            primitives: [Tally::default(); 12],
            roots: Vec::new(),
            strings: HashMap::new(),
            traces: HashMap::new(),
            frames: HashMap::new(),
            odd: Oddities::default(),
            heap_at: 0,
            one_heap: false,
            heap_names: HashSet::new(),
        }
    }

    /// Discards the heap read so far: it is not the valid one.
    fn forget_heap(&mut self) {
        let kept = self.counts;
        self.counts = Counts { strings: kept.strings, loaded: kept.loaded, ..Counts::default() };
        (self.counts.frames, self.counts.traces) = (kept.frames, kept.traces);
        self.marks = Marks::new(self.header.id_bytes);
        self.classes.clear();
        self.by_id.clear();
        self.tallies.clear();
        self.tally_of.clear();
        self.lately.fill((0, NONE));
        self.primitives = [Tally::default(); 12];
        self.roots.clear();
    }

    fn mark(&mut self, id: u64, at: u64) -> bool {
        let new = self.marks.mark(id);
        if !new {
            self.odd.add(Odd::SameId, at);
        }
        new
    }

    #[inline]
    fn tally(&mut self, class: u64, bytes: u64) {
        let place = usize::from((class >> 3 ^ class >> 11).to_le_bytes()[0]);
        let (id, at) = self.lately[place];
        let at = if id == class && at != NONE { at } else { self.find_tally(class, place) };
        self.tallies[index(at)].add(bytes);
    }

    #[cold]
    fn find_tally(&mut self, class: u64, place: usize) -> u32 {
        let new = number(self.tallies.len());
        let at = *self.tally_of.entry(class).or_insert(new);
        if at == new {
            self.tallies.push(Tally::default());
        }
        self.lately[place] = (class, at);
        at
    }

    fn finish(mut self, bytes: u64, whole: u64) -> Result<Index, ReadError> {
        let (ids, again) =
            std::mem::replace(&mut self.marks, Marks::new(4)).seal().ok_or(ReadError::TooMany)?;
        if again > 0 {
            self.odd.add_found_later(Odd::SameId, again);
        }
        for class in &mut self.classes {
            class.above = self.by_id.get(&class.super_id).copied().filter(|_| class.super_id != 0);
            let name = self.names.get(&class.id).and_then(|name| self.strings.get(name));
            class.name = name.map_or_else(|| format!("?0x{:x}", class.id), |name| class_name(name));
            // Names of hidden and generated classes differ in each run. Android's names stay as they are:
            // LeakCanary's fingerprints are made of them.
            if !self.header.title.ends_with("1.0.3") {
                class.name = stable_class_name(&class.name);
            }
            let tally = self.tally_of.remove(&class.id);
            class.instances = tally.map(|at| self.tallies[index(at)]).unwrap_or_default();
        }
        let mut classless = Tally::default();
        for at in self.tally_of.into_values() {
            let tally = self.tallies[index(at)];
            classless.count += tally.count;
            classless.bytes = classless.bytes.saturating_add(tally.bytes);
            classless.largest = classless.largest.max(tally.largest);
        }
        if classless.count > 0 {
            self.odd.add_found_later(Odd::NoClass, classless.count);
        }
        let class = self.classes.iter().find(|class| class.name == "java.lang.Class");
        let class_bytes = class.map_or(0, |class| u64::from(class.instance_bytes));
        let mut index = Index {
            class_bytes,
            header: self.header,
            counts: self.counts,
            classes: self.classes,
            primitives: self.primitives,
            classless,
            roots: self.roots,
            traces: self.traces,
            frames: self.frames,
            serials: self.serials,
            odd: self.odd,
            bytes,
            ids,
            strings: self.strings,
            class_names: self.names,
            heap_names: self.heap_names,
            heap_at: self.heap_at,
            whole,
        };
        index.cut_hierarchies();
        Ok(index)
    }
}

impl Index {
    /// Makes sure that no class is its own superclass, or has more than a thousand superclasses.
    fn cut_hierarchies(&mut self) {
        // Depth of each class, found without recursion; 0 means not yet known.
        let mut depths = vec![0_usize; self.classes.len()];
        let mut way = Vec::new();
        for start in 0..self.classes.len() {
            let mut at = start;
            way.clear();
            while depths[at] == 0 {
                // A node of this path that occurs again closes a circle.
                depths[at] = usize::MAX;
                way.push(at);
                match self.classes[at].above {
                    Some(above) => at = index(above),
                    None => break,
                }
            }
            for child in way.iter().rev() {
                let above = self.classes[*child].above.map(|above| depths[index(above)]);
                depths[*child] = match above {
                    Some(depth) if depth < DEEPEST => depth + 1,
                    Some(_) => {
                        self.classes[*child].above = None;
                        self.odd.add_found_later(Odd::Hierarchy, 1);
                        1
                    }
                    None => 1,
                };
            }
        }
    }
}

impl Visit for Pass<'_> {
    type Error = ReadError;

    fn odd(&mut self, odd: Odd, at: u64) -> Result<(), ReadError> {
        self.odd.add(odd, at);
        Ok(())
    }

    fn not_a_dump(&self) -> ReadError {
        ReadError::NotADump
    }

    fn progress(&mut self, at: u64) {
        self.told.at(at);
    }

    fn header(&mut self, header: &Header) {
        self.header = header.clone();
        self.marks = Marks::new(header.id_bytes);
    }

    fn heap(&mut self, tag: u8, at: u64) -> bool {
        if tag == crate::read::HEAP_DUMP && std::mem::replace(&mut self.one_heap, true) {
            self.odd.add(Odd::ManyHeaps, at);
            self.forget_heap();
            self.heap_at = at;
        }
        self.counts.segments += 1;
        true
    }

    fn string(&mut self, id: u64, text: &[u8]) {
        self.counts.strings += 1;
        self.strings.insert(id, shortened(modified_utf8(text)).into_boxed_str());
    }

    fn load_class(&mut self, serial: u32, id: u64, name: u64) {
        self.counts.loaded += 1;
        self.names.insert(id, name);
        self.serials.insert(serial, id);
    }

    fn frame(&mut self, id: u64, names: [u64; 3], class: u32, line: i32) {
        self.counts.frames += 1;
        self.frames.insert(id, Frame { names, class, line });
    }

    fn trace(&mut self, serial: u32, thread: u32, frames: &[u64]) {
        self.counts.traces += 1;
        self.traces.insert(serial, Trace { thread, frames: frames.to_vec() });
    }

    fn heap_info(&mut self, _heap: u32, name: u64) {
        self.heap_names.insert(name);
        self.counts.sub_records += 1;
        self.counts.heap_infos += 1;
    }

    fn root(&mut self, tag: u8, id: u64, thread: u32, frame: u32) {
        self.counts.sub_records += 1;
        self.roots.push(Root { tag, id, thread, frame });
    }

    fn class(&mut self, class: &ClassDump, at: u64) {
        self.counts.sub_records += 1;
        self.counts.classes += 1;
        if !self.mark(class.id, at) || self.by_id.contains_key(&class.id) {
            return;
        }
        self.by_id.insert(class.id, number(self.classes.len()));
        self.classes.push(Class {
            id: class.id,
            loader: class.loader,
            super_id: class.super_id,
            instance_bytes: class.instance_bytes,
            record_bytes: class.record_bytes,
            statics: class.statics.clone(),
            fields: class.fields.clone(),
            ..Class::default()
        });
    }

    #[inline]
    fn instance(&mut self, id: u64, class: u64, length: u32, _bytes: &[u8], at: u64) {
        self.counts.sub_records += 1;
        self.counts.instances += 1;
        self.mark(id, at);
        self.tally(class, u64::from(length));
    }

    #[inline]
    fn object_array(&mut self, id: u64, class: u64, count: u32, at: u64) {
        self.counts.sub_records += 1;
        self.counts.object_arrays += 1;
        self.counts.elements += u64::from(count);
        self.mark(id, at);
        self.tally(class, u64::from(count) * self.header.id_bytes as u64);
    }

    #[inline]
    fn primitive_array(&mut self, id: u64, kind: u8, count: u32, at: u64) -> bool {
        self.counts.sub_records += 1;
        self.counts.primitive_arrays += 1;
        self.mark(id, at);
        let bytes = value_bytes(kind, self.header.id_bytes).unwrap_or(0) as u64;
        if let Some(tally) = self.primitives.get_mut(usize::from(kind)) {
            tally.add(u64::from(count) * bytes);
        }
        false
    }
}
