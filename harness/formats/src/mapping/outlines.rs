//! Outlines: code that was in several methods, and that R8 moved into a method of its own. In the source, this code is
//! at a line of its caller. The line inside the outline shows which line.

use super::classes::{Class, Mapping, Method};

impl Mapping<'_> {
    /// Is this frame an outline? An outline is not in the source: its code is at a line of its caller, which
    /// [`Mapping::line_of_outline`] returns.
    #[must_use]
    pub fn is_outline(&self, class: &str, method: &str, line: Option<u32>) -> bool {
        self.classes.get(class).is_some_and(|class| at(class, method, line).any(|method| method.outline))
    }

    /// The line of this frame, in the renamed program, that represents line `inside` of the outline that it calls.
    /// `None` if it calls no outline.
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

/// The entries of the mapping for a line of a method.
fn at<'m, 'a>(class: &'m Class<'a>, method: &str, line: Option<u32>) -> impl Iterator<Item = &'m Method<'a>> {
    class.methods().iter().filter(move |found| {
        let is_there =
            matches!((found.range, line), (Some((from, to)), Some(line)) if from <= line && line <= to);
        found.renamed == method && (is_there || found.range.is_none())
    })
}
