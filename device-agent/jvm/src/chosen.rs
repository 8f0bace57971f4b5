//! The objects of some classes, in as few walks over the heap as that takes.

use jni::objects::JClass;
use memgate_jvmti::{HeapFilter, Jvmti, Visit};

use super::names::Known;

/// So many walks that see one class each cost less than one that sees all objects.
const WALKS: usize = 4;

/// Classes, with their numbers.
pub(super) struct Chosen<'a, 'l> {
    classes: Vec<&'a JClass<'l>>,
    /// By the number of a class.
    is_chosen: Vec<bool>,
}

impl<'a, 'l> Chosen<'a, 'l> {
    /// Those of these names.
    pub(super) fn new(classes: &'a [(Known, JClass<'l>)], names: &[String]) -> Self {
        let mut is_chosen = vec![false];
        is_chosen.extend(classes.iter().map(|(known, _)| names.contains(&known.name)));
        let chosen = classes.iter().filter(|(known, _)| names.contains(&known.name));
        Self { classes: chosen.map(|(_, class)| class).collect(), is_chosen }
    }

    /// Shows every object of theirs: number of its class, and its tag, which may be set. What is
    /// not shown because the virtual machine refuses is missing in the answer.
    pub(super) fn visit(&self, jvmti: Jvmti<'_>, visit: &mut dyn FnMut(i64, &mut i64)) {
        let is_chosen = |class: i64| {
            usize::try_from(class).ok().and_then(|class| self.is_chosen.get(class)).copied().unwrap_or(false)
        };
        let mut see = |class: i64, _: u64, tag: &mut i64| {
            if is_chosen(class) {
                visit(class, tag);
            }
            Visit::Beside
        };
        if self.classes.len() > WALKS {
            let _missing = jvmti.iterate(HeapFilter::None, None, &mut see);
            return;
        }
        for class in &self.classes {
            let _missing = jvmti.iterate(HeapFilter::None, Some(class), &mut see);
        }
    }
}
