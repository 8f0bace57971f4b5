//! Heap dumps made for tests: what a virtual machine would write for a few objects.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::HashMap;

/// A value of a field.
#[derive(Clone, Copy)]
pub(crate) enum Value {
    /// A reference.
    Ref(u64),
    Bool(bool),
    Int(i32),
    Byte(i8),
    Double(f64),
}

impl Value {
    const fn kind(self) -> u8 {
        match self {
            Self::Ref(_) => 2,
            Self::Bool(_) => 4,
            Self::Int(_) => INT,
            Self::Byte(_) => BYTE,
            Self::Double(_) => DOUBLE,
        }
    }
}

/// A dump that is being built.
pub(crate) struct Dump {
    id_bytes: usize,
    title: &'static str,
    names: HashMap<String, u64>,
    head: Vec<u8>,
    heap: Vec<u8>,
    next: u64,
    serial: u32,
    /// Class id to name, super class and field kinds.
    classes: HashMap<u64, (u64, Vec<u8>)>,
    loader: u64,
    domain: u64,
    pub(crate) object: u64,
}

/// Types of fields.
pub(crate) const REF: u8 = 2;
pub(crate) const BOOL: u8 = 4;
pub(crate) const DOUBLE: u8 = 7;
pub(crate) const BYTE: u8 = 8;
pub(crate) const INT: u8 = 10;

impl Dump {
    /// A dump of a HotSpot machine with 64 bits.
    pub(crate) fn jvm() -> Self {
        Self::new("JAVA PROFILE 1.0.2", 8)
    }

    pub(crate) fn new(title: &'static str, id_bytes: usize) -> Self {
        let mut dump = Self {
            id_bytes,
            title,
            names: HashMap::new(),
            head: Vec::new(),
            heap: Vec::new(),
            next: 0x1000_0000,
            serial: 0,
            classes: HashMap::new(),
            loader: 0,
            domain: 0,
            object: 0,
        };
        dump.object = dump.subclass(0, "java.lang.Object", &[]);
        dump
    }

    fn id(&self, id: u64) -> Vec<u8> {
        id.to_be_bytes()[8 - self.id_bytes..].to_vec()
    }

    /// Reserves an object; returns its id.
    pub(crate) fn room(&mut self) -> u64 {
        self.next += 16;
        self.next
    }

    pub(crate) fn name(&mut self, text: &str) -> u64 {
        if let Some(id) = self.names.get(text) {
            return *id;
        }
        let id = 0x100 + self.names.len() as u64;
        self.names.insert(text.to_owned(), id);
        let body = [self.id(id), text.as_bytes().to_vec()].concat();
        record(&mut self.head, 0x01, &body);
        id
    }

    /// A class directly below `Object`.
    pub(crate) fn class(&mut self, name: &str, fields: &[(&str, u8)]) -> u64 {
        self.subclass(self.object, name, fields)
    }

    pub(crate) fn subclass(&mut self, above: u64, name: &str, fields: &[(&str, u8)]) -> u64 {
        let id = self.room();
        self.class_at(id, name, above, &[], fields);
        id
    }

    /// A class with these static fields.
    pub(crate) fn statics(&mut self, name: &str, statics: &[(&str, Value)]) -> u64 {
        let id = self.room();
        self.class_at(id, name, self.object, statics, &[]);
        id
    }

    pub(crate) fn class_at(
        &mut self,
        id: u64,
        name: &str,
        above: u64,
        statics: &[(&str, Value)],
        fields: &[(&str, u8)],
    ) {
        self.serial += 1;
        let name = self.name(name);
        let body = [self.serial.to_be_bytes().to_vec(), self.id(id), vec![0; 4], self.id(name)].concat();
        record(&mut self.head, 0x02, &body);
        let kinds: Vec<u8> = fields.iter().map(|(_, kind)| *kind).collect();
        self.classes.insert(id, (above, kinds));
        let bytes = self.instance_bytes(id);
        let mut out = [vec![0x20], self.id(id), vec![0; 4], self.id(above)].concat();
        out.extend(self.id(self.loader));
        [0, self.domain, 0, 0].iter().for_each(|held| out.extend(self.id(*held)));
        out.extend(bytes.to_be_bytes());
        out.extend([0, 0]);
        out.extend(u16::try_from(statics.len()).unwrap().to_be_bytes());
        for (name, value) in statics {
            let name = self.name(name);
            out.extend(self.id(name));
            out.push(value.kind());
            out.extend(self.value(*value));
        }
        out.extend(u16::try_from(fields.len()).unwrap().to_be_bytes());
        for (name, kind) in fields {
            let name = self.name(name);
            out.extend(self.id(name));
            out.push(*kind);
        }
        self.heap.extend(out);
    }

    /// A class with these static fields, which the boot loader holds.
    pub(crate) fn root(&mut self, name: &str, statics: &[(&str, Value)]) {
        let class = self.statics(name, statics);
        self.sticky(class);
    }

    /// The dump is of Android 4.4.
    pub(crate) fn android(&mut self) {
        self.statics("android.os.Build$VERSION", &[("SDK_INT", Value::Int(19))]);
    }

    /// The classes that follow have this loader; 0: the boot loader.
    pub(crate) const fn loaded_by(&mut self, loader: u64) {
        self.loader = loader;
    }

    /// The classes that follow have this protection domain; 0: none.
    pub(crate) const fn protected_by(&mut self, domain: u64) {
        self.domain = domain;
    }

    fn instance_bytes(&self, class: u64) -> u32 {
        let (mut bytes, mut at) = (0, class);
        while let Some((above, kinds)) = self.classes.get(&at) {
            bytes += kinds
                .iter()
                .map(|kind| match *kind {
                    REF => self.id_bytes,
                    BOOL | BYTE => 1,
                    DOUBLE => 8,
                    _ => 4,
                })
                .sum::<usize>();
            at = *above;
        }
        u32::try_from(bytes).unwrap()
    }

    fn value(&self, value: Value) -> Vec<u8> {
        match value {
            Value::Ref(id) => self.id(id),
            Value::Bool(truth) => vec![u8::from(truth)],
            Value::Int(number) => number.to_be_bytes().to_vec(),
            Value::Byte(number) => number.to_be_bytes().to_vec(),
            Value::Double(number) => number.to_be_bytes().to_vec(),
        }
    }

    /// Values of own fields come first, then those of the superclass.
    pub(crate) fn instance(&mut self, class: u64, values: &[Value]) -> u64 {
        let id = self.room();
        self.instance_at(id, class, values);
        id
    }

    pub(crate) fn instance_at(&mut self, id: u64, class: u64, values: &[Value]) {
        let values: Vec<u8> = values.iter().flat_map(|value| self.value(*value)).collect();
        let length = u32::try_from(values.len()).unwrap().to_be_bytes();
        let out = [vec![0x21], self.id(id), vec![0; 4], self.id(class), length.to_vec(), values].concat();
        self.heap.extend(out);
    }

    pub(crate) fn array(&mut self, class: u64, elements: &[u64]) -> u64 {
        let id = self.room();
        let count = u32::try_from(elements.len()).unwrap().to_be_bytes();
        let mut out = [vec![0x22], self.id(id), vec![0; 4], count.to_vec(), self.id(class)].concat();
        elements.iter().for_each(|element| out.extend(self.id(*element)));
        self.heap.extend(out);
        id
    }

    /// An `Object[]` with these elements, and its class.
    pub(crate) fn objects(&mut self, elements: &[u64]) -> u64 {
        let class = self.class("java.lang.Object[]", &[]);
        self.array(class, elements)
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> u64 {
        let id = self.room();
        let count = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        let out = [vec![0x23], self.id(id), vec![0; 4], count.to_vec(), vec![8], bytes.to_vec()].concat();
        self.heap.extend(out);
        id
    }

    /// A `String` of OpenJDK: its class, and its characters in Latin-1.
    pub(crate) fn text(&mut self, string: u64, text: &[u8]) -> u64 {
        let characters = self.bytes(text);
        self.instance(string, &[Value::Ref(characters)])
    }

    /// An `ArrayList` with these elements, and its classes.
    pub(crate) fn list(&mut self, elements: &[u64]) -> u64 {
        let elements = self.objects(elements);
        let list = self.class("java.util.ArrayList", &[("elementData", REF)]);
        self.instance(list, &[Value::Ref(elements)])
    }

    /// Adds a root that holds a class, as the boot loader does.
    pub(crate) fn sticky(&mut self, id: u64) {
        let out = [vec![0x05], self.id(id)].concat();
        self.heap.extend(out);
    }

    pub(crate) fn thread(&mut self, id: u64, serial: u32) {
        let out = [vec![0x08], self.id(id), serial.to_be_bytes().to_vec(), vec![0; 4]].concat();
        self.heap.extend(out);
    }

    /// The stack of a thread.
    pub(crate) fn trace(&mut self, thread: u32, frames: &[u64]) {
        let count = u32::try_from(frames.len()).unwrap();
        let head = [thread, thread, count].map(u32::to_be_bytes).concat();
        let frames: Vec<u8> = frames.iter().flat_map(|frame| self.id(*frame)).collect();
        record(&mut self.head, 0x05, &[head, frames].concat());
    }

    /// A frame of the class that was added last.
    pub(crate) fn frame(&mut self, frame: u64, method: &str) {
        let names = [frame, self.name(method), self.name("()V"), 0].map(|id| self.id(id)).concat();
        record(&mut self.head, 0x04, &[names, self.serial.to_be_bytes().to_vec(), vec![0; 4]].concat());
    }

    pub(crate) fn local(&mut self, id: u64, serial: u32, frame: u32) {
        let serial = serial.to_be_bytes().to_vec();
        let out = [vec![0x03], self.id(id), serial, frame.to_be_bytes().to_vec()].concat();
        self.heap.extend(out);
    }

    /// The complete file, with the heap in one segment.
    pub(crate) fn finish(&self) -> Vec<u8> {
        let id_bytes = u32::try_from(self.id_bytes).unwrap().to_be_bytes();
        let mut out = [self.title.as_bytes(), &[0], &id_bytes, &1_500_000_000_000_u64.to_be_bytes()].concat();
        out.extend(&self.head);
        record(&mut out, 0x1c, &self.heap);
        record(&mut out, 0x2c, &[]);
        out
    }
}

pub(crate) fn record(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    out.extend([tag, 0, 0, 0, 0]);
    out.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    out.extend(body);
}
