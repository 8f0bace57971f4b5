//! Code that stood in several methods, and that R8 moved into one of its own (an outline). Whoever wrote it knows it by
//! the line of its caller: the outline's line says which that is.

use super::classes::{Class, Mapping, Method};

impl Mapping<'_> {
    /// Is this frame an outline? Nobody wrote it: what it does is at a line of its caller, which
    /// [`Mapping::line_of_outline`] tells.
    #[must_use]
    pub fn is_outline(&self, class: &str, method: &str, line: Option<u32>) -> bool {
        self.classes.get(class).is_some_and(|class| at(class, method, line).any(|method| method.outline))
    }

    /// The line of this frame, as it ran, that stands for line `inside` of the outline that it calls. `None`: it calls
    /// none.
    #[must_use]
    pub fn line_of_outline(
        &self,
        class: &str,
        method: &str,
        line: Option<u32>,
        inside: Option<u32>,
    ) -> Option<u32> {
        let inside = inside?;
        at(self.classes.get(class)?, method, line)
            .find_map(|method| method.calls_outline.get(&inside).copied())
    }

    /// Does this frame call an outline?
    #[must_use]
    pub fn calls_outline(&self, class: &str, method: &str, line: Option<u32>) -> bool {
        let class = self.classes.get(class);
        class.is_some_and(|class| at(class, method, line).any(|method| !method.calls_outline.is_empty()))
    }
}

/// What the mapping says of a line of a method.
fn at<'m, 'a>(class: &'m Class<'a>, method: &str, line: Option<u32>) -> impl Iterator<Item = &'m Method<'a>> {
    class.methods.iter().filter(move |found| {
        let is_there =
            matches!((found.range, line), (Some((from, to)), Some(line)) if from <= line && line <= to);
        found.renamed == method && (is_there || found.range.is_none())
    })
}
