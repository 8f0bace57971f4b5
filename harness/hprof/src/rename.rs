//! Restores the original names of a program that R8 or ProGuard has renamed.
//!
//! Data flow: the [`Index`] of a dump, [`Names`] → the same index, whose classes and fields have their original names,
//! before rules, references or queries look anything up by name.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::index::{Frame, Index};
use crate::text::class_name;

/// The original names of classes and fields.
pub trait Names {
    /// Original name of a class (`a.b`, `a.b[]`); the same name if it was not renamed.
    fn class<'n>(&'n self, name: &'n str) -> Cow<'n, str>;
    /// Original name of a field of a renamed class; the same name if it was not renamed. `kind`: its type in a dump (2
    /// object, 4 to 11 primitive), because R8 may give fields of different types the same name.
    fn field<'n>(&'n self, class: &str, field: &'n str, kind: u8) -> Cow<'n, str>;
    /// The original of a stack frame; the same frame if it was not renamed.
    fn call(&self, call: Call) -> Call;
}

/// A frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Class of the method.
    pub class: String,
    /// The method.
    pub method: String,
    /// Source file; empty: unknown.
    pub file: String,
    /// Line; 0: unknown.
    pub line: u32,
}

impl Index {
    /// Gives classes, fields and frames their original names; returns how many classes were renamed.
    pub fn rename(&mut self, names: &dyn Names) -> usize {
        let mut texts =
            Texts { known: HashMap::new(), next: u64::MAX, serials: HashMap::new(), next_serial: u32::MAX };
        let mut renamed = 0;
        // Frames come first, while classes still have the names that frames refer to.
        self.rename_frames(names, &mut texts);
        let mut classes = std::mem::take(&mut self.classes);
        for class in &mut classes {
            let statics = class.statics.iter_mut().map(|field| (&mut field.name, field.kind));
            for (name, kind) in
                statics.chain(class.fields.iter_mut().map(|field| (&mut field.name, field.kind)))
            {
                let Some(field) = self.string(*name) else { continue };
                let original = names.field(&class.name, field, kind);
                if original != field {
                    let original = original.into_owned();
                    *name = texts.id(self, original);
                }
            }
            let original = names.class(&class.name);
            if original != class.name {
                let original = original.into_owned();
                let text = texts.id(self, original.clone());
                self.set_class_name(class.id, text);
                class.name = original;
                renamed += 1;
            }
        }
        self.classes = classes;
        renamed
    }

    fn rename_frames(&mut self, names: &dyn Names, texts: &mut Texts) {
        let mut frames: Vec<(u64, Frame)> = std::mem::take(&mut self.frames).into_iter().collect();
        frames.sort_unstable_by_key(|(id, _)| *id);
        for (_, frame) in &mut frames {
            let [method, _, file] = frame.names;
            let class = self.serials.get(&frame.class).and_then(|id| self.class_named(*id));
            let (Some(class), Some(name)) = (class, self.string(method)) else { continue };
            let called = Call {
                class: class_name(class),
                method: name.to_owned(),
                file: self.string(file).unwrap_or_default().to_owned(),
                line: u32::try_from(frame.line).unwrap_or(0),
            };
            let Call { class, method, file, line } = names.call(called.clone());
            if class != called.class {
                let id = texts.id(self, class);
                frame.class = texts.serial(self, id);
            }
            if method != called.method {
                frame.names[0] = texts.id(self, method);
            }
            if file != called.file {
                frame.names[2] = texts.id(self, file);
            }
            if line != called.line {
                frame.line = i32::try_from(line).unwrap_or(0);
            }
        }
        self.frames = frames.into_iter().collect();
    }
}

/// Texts that are not in the dump, with ids that it does not use.
struct Texts {
    known: HashMap<String, u64>,
    next: u64,
    /// Serials of classes that only frames refer to, by the id of their name.
    serials: HashMap<u64, u32>,
    next_serial: u32,
}

impl Texts {
    fn id(&mut self, dump: &mut Index, text: String) -> u64 {
        if let Some(id) = self.known.get(&text) {
            return *id;
        }
        while dump.string(self.next).is_some() {
            self.next -= 1;
        }
        dump.add_string(self.next, &text);
        self.known.insert(text, self.next);
        self.next
    }

    /// The serial of the class with this name.
    fn serial(&mut self, dump: &mut Index, name: u64) -> u32 {
        if let Some(serial) = self.serials.get(&name) {
            return *serial;
        }
        while dump.serials.contains_key(&self.next_serial) {
            self.next_serial -= 1;
        }
        dump.serials.insert(self.next_serial, name);
        // No class has the id of a text that is not in the dump.
        dump.set_class_name(name, name);
        self.serials.insert(name, self.next_serial);
        self.next_serial
    }
}
