//! Visits the objects of some classes in as few heap walks as possible.

use jni::objects::JClass;
use memgate_jvmti::{HeapFilter, Jvmti, Visit};

use super::names::Known;

/// Up to this number, separate walks over each class cost less than one walk over all objects.
const WALKS: usize = 4;

/// Classes, with their numbers.
pub(super) struct Chosen<'a, 'l> {
    classes: Vec<&'a JClass<'l>>,
    /// Indexed by class number.
    is_chosen: Vec<bool>,
}

impl<'a, 'l> Chosen<'a, 'l> {
    /// The classes with these names.
    pub(super) fn new(classes: &'a [(Known, JClass<'l>)], names: &[String]) -> Self {
        let mut is_chosen = vec![false];
        is_chosen.extend(classes.iter().map(|(known, _)| names.contains(&known.name)));
        let chosen = classes.iter().filter(|(known, _)| names.contains(&known.name));
        Self { classes: chosen.map(|(_, class)| class).collect(), is_chosen }
    }

    /// Visits every object of these classes with its class number and its tag, which may be set. Objects that the
    /// virtual machine refuses to show are left out.
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
