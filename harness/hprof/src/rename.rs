//! Original names of a program that R8 or ProGuard has renamed.
//!
//! Data flow: the [`Index`] of a dump, [`Names`] → the same index, whose classes and fields have their original
//! names, before anything is looked up by name: rules, references, what is asked for.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::index::Index;

/// What classes and fields were called before.
pub trait Names {
    /// Original name of a class (`a.b`, `a.b[]`); the same where it was not renamed.
    fn class<'n>(&'n self, name: &'n str) -> Cow<'n, str>;
    /// Original name of a field of a renamed class; the same where it was not renamed, or more than one was called so.
    fn field<'n>(&'n self, class: &str, field: &'n str) -> &'n str;
}

impl Index {
    /// Gives classes and fields their original names; gives how many classes had another one.
    pub fn rename(&mut self, names: &dyn Names) -> usize {
        let mut texts = Texts { known: HashMap::new(), next: u64::MAX };
        let mut renamed = 0;
        let mut classes = std::mem::take(&mut self.classes);
        for class in &mut classes {
            let statics = class.statics.iter_mut().map(|field| &mut field.name);
            for name in statics.chain(class.fields.iter_mut().map(|field| &mut field.name)) {
                let Some(field) = self.string(*name) else { continue };
                let original = names.field(&class.name, field);
                if original != field {
                    let original = original.to_owned();
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
}

/// Texts that the dump does not have, by ids that it does not use.
struct Texts {
    known: HashMap<String, u64>,
    next: u64,
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
}
