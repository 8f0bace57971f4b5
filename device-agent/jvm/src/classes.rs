//! Numbers of classes whose objects are sampled. The tag of a class is its number, so that each event needs only one
//! call to the virtual machine.
//!
//! The name of a class is read only when it is first seen. Classes of one name (from several loaders) share a number,
//! so that short-lived loaders do not make the table grow. If the table is full, further names get no number, and
//! nothing is reported about them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use jni::objects::JObject;
use memgate_ffi::lock::Lock;
use memgate_jvmti::Jvmti;

use super::names::name_of;

const MAX_CLASSES: usize = 1 << 16;

/// A class's number, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassNumber(pub(crate) u16);

/// Names by number, and which of them are chosen.
pub(crate) struct SampledClasses {
    names: Lock<Names>,
    chosen: Box<[AtomicU64]>,
    /// Decides about a class when it is first seen.
    choice: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

#[derive(Default)]
struct Names {
    numbers: BTreeMap<String, u16>,
    all: Vec<String>,
}

impl SampledClasses {
    pub(crate) fn new(choice: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self {
            names: Lock::new(Names::default()),
            chosen: (0..MAX_CLASSES / 64).map(|_| AtomicU64::new(0)).collect(),
            choice: Box::new(choice),
        }
    }

    /// The number of a class. `None` if there are too many classes, or for `java.lang.Class`, whose objects have these
    /// numbers as tags.
    pub(crate) fn number(&self, jvmti: Jvmti<'_>, class: &JObject<'_>) -> Option<ClassNumber> {
        let tag = jvmti.tag(class).unwrap_or(0);
        if let Some(number) = u16::try_from(tag).ok().filter(|&number| number != 0) {
            return Some(ClassNumber(number));
        }
        let name = name_of(jvmti, class);
        if name == "java.lang.Class" {
            return None;
        }
        let number = self.number_of(&name)?;
        // If the tag cannot be set, the number is found by name again.
        let _slower = jvmti.set_tag(class, number.0.into());
        Some(number)
    }

    fn number_of(&self, name: &str) -> Option<ClassNumber> {
        let mut names = self.names.lock();
        if let Some(&number) = names.numbers.get(name) {
            return Some(ClassNumber(number));
        }
        let number = u16::try_from(names.all.len().saturating_add(1)).ok()?;
        names.numbers.insert(name.to_owned(), number);
        names.all.push(name.to_owned());
        drop(names);
        let number = ClassNumber(number);
        self.choose(number, (self.choice)(name));
        Some(number)
    }

    /// Chooses exactly the classes with these names.
    pub(crate) fn choose_only(&self, names: &[String]) {
        self.chosen.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        names.iter().filter_map(|name| self.number_of(name)).for_each(|number| self.choose(number, true));
    }

    fn choose(&self, ClassNumber(number): ClassNumber, chosen: bool) {
        if let Some(word) = self.chosen.get(usize::from(number) / 64).filter(|_| chosen) {
            word.fetch_or(1 << (number % 64), Ordering::Relaxed);
        }
    }

    pub(crate) fn is_chosen(&self, ClassNumber(number): ClassNumber) -> bool {
        let word = self.chosen.get(usize::from(number) / 64);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (number % 64) & 1 == 1)
    }

    pub(crate) fn name(&self, ClassNumber(number): ClassNumber) -> Option<String> {
        self.names.lock().all.get(usize::from(number).checked_sub(1)?).cloned()
    }
}
