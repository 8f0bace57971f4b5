//! Parses the text into classes with their members.

use std::collections::{BTreeMap, BTreeSet};

use super::classes::{Class, Field, Mapping, Members, Method};
use crate::lines::excerpt;

/// The id of the comment that names the source file of a class.
const SOURCE_FILE: &str = "sourceFile";

/// A line of a class.
enum Member<'a> {
    Field(Field<'a>),
    Method(Method<'a>),
}

/// A line that is not valid in a mapping file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem} (`{found}`)")]
pub struct MappingError {
    /// From 1.
    pub line: u64,
    /// What is wrong.
    pub problem: &'static str,
    /// The line's beginning.
    pub found: String,
}

impl<'a> Mapping<'a> {
    /// Reads a mapping file.
    ///
    /// # Errors
    /// [`MappingError`] with the line.
    pub fn read(text: &'a str) -> Result<Self, MappingError> {
        read(text)
    }
}

fn read(text: &str) -> Result<Mapping<'_>, MappingError> {
    let mut mapping = Mapping::default();
    // The class whose lines are read: its new name, its original name, and where its lines begin.
    let mut open: Option<(&str, &str, usize)> = None;
    // Windows editors put a byte order mark before the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut next = 0_usize;
    for (number, whole) in (1_u64..).zip(text.split_inclusive('\n')) {
        let start = next;
        next = next.saturating_add(whole.len());
        let line = whole.strip_suffix('\n').map_or(whole, |line| line.strip_suffix('\r').unwrap_or(line));
        let at = |problem| MappingError { line: number, problem, found: excerpt(line.as_bytes()) };
        let trimmed = line.trim();
        if trimmed.is_empty() {
            continue;
        }
        if let Some(comment) = trimmed.strip_prefix('#') {
            note(comment, open.map(|(_, original, _)| original), &mut mapping);
        } else if line.starts_with([' ', '\t']) {
            open.ok_or_else(|| at("a member before any class"))?;
            member(trimmed).ok_or_else(|| at("no field or method"))?;
        } else {
            close(open, (text, start), &mut mapping);
            let (original, renamed) = class(trimmed).ok_or_else(|| at("no class"))?;
            if mapping.classes.contains_key(renamed) {
                return Err(at("the second class with this new name"));
            }
            open = Some((renamed, original, next));
        }
    }
    close(open, (text, text.len()), &mut mapping);
    Ok(mapping)
}

/// The lines of the class end at `end`.
fn close<'a>(
    open: Option<(&'a str, &'a str, usize)>,
    (text, end): (&'a str, usize),
    mapping: &mut Mapping<'a>,
) {
    if let Some((renamed, original, start)) = open {
        let lines = text.get(start..end).unwrap_or_default();
        mapping.classes.insert(renamed, Class::new(original, lines));
    }
}

/// `original -> renamed:`
fn class(line: &str) -> Option<(&str, &str)> {
    let (original, renamed) = line.strip_suffix(':')?.rsplit_once(" -> ")?;
    (!original.is_empty() && !renamed.is_empty()).then_some((original, renamed))
}

/// Reads a comment: before the first class about the file, else about the class with this original name.
fn note<'a>(comment: &'a str, class: Option<&'a str>, mapping: &mut Mapping<'a>) {
    let comment = comment.trim_start();
    let Some(class) = class else {
        let id = ["pg_map_id: ", "pg_map_hash: SHA-256 "].iter().find_map(|key| comment.strip_prefix(key));
        mapping.ids.extend(id.map(str::trim).filter(|id| !id.is_empty()));
        return;
    };
    // Of the comments in a class, most are about its methods.
    if !comment.starts_with('{') || !comment.contains(SOURCE_FILE) {
        return;
    }
    let Ok(json) = serde_json::from_str::<serde_json::Value>(comment) else { return };
    let text = |key: &str| json.get(key).and_then(|value| value.as_str());
    if text("id") == Some(SOURCE_FILE) {
        mapping.source_files.extend(text("fileName").map(|file| (class, file.to_owned())));
    }
}

impl<'a> Members<'a> {
    /// Parses the lines of a class, which are valid.
    pub(super) fn of(lines: &'a str) -> Self {
        let mut members = Self::default();
        for line in lines.lines().map(str::trim) {
            if let Some(comment) = line.strip_prefix('#') {
                members.note(comment.trim_start());
                continue;
            }
            match member(line) {
                Some(Member::Field(field)) => members.fields.push(field),
                Some(Member::Method(method)) => members.methods.push(method),
                // An empty line.
                None => {}
            }
        }
        // R8 writes these comments only for the first range of a method, but they apply to all ranges.
        let of = |is: fn(&Method<'_>) -> bool| -> BTreeSet<&str> {
            members.methods.iter().filter(|method| is(method)).map(|method| method.signature).collect()
        };
        let (made, outlines) = (of(|method| method.synthesized), of(|method| method.outline));
        for method in &mut members.methods {
            method.synthesized = made.contains(method.signature);
            method.outline = outlines.contains(method.signature);
        }
        members
    }

    /// Reads a comment about the method before it. Most comments are not needed.
    fn note(&mut self, comment: &str) {
        let Some(method) = self.methods.last_mut().filter(|_| comment.starts_with('{')) else { return };
        let Ok(json) = serde_json::from_str::<serde_json::Value>(comment) else { return };
        match json.get("id").and_then(|id| id.as_str()) {
            Some("com.android.tools.r8.synthesized") => method.synthesized = true,
            Some("com.android.tools.r8.outline") => method.outline = true,
            Some("com.android.tools.r8.outlineCallsite") => method.calls_outline = positions(&json),
            _ => {}
        }
    }
}

/// `"positions":{"1":10,"2":11}`: line of the outline, line of its caller.
fn positions(json: &serde_json::Value) -> BTreeMap<u32, u32> {
    let pair = |(outline, caller): (&String, &serde_json::Value)| {
        Some((outline.parse().ok()?, u32::try_from(caller.as_u64()?).ok()?))
    };
    let positions = json.get("positions").and_then(|positions| positions.as_object());
    positions.into_iter().flatten().filter_map(pair).collect()
}

/// `[from:to:]type [class.]name[(arguments)[:from[:to]]] -> renamed`
fn member(line: &str) -> Option<Member<'_>> {
    let (original, renamed) = line.rsplit_once(" -> ")?;
    let (range, original) = match leading_range(original) {
        Some((range, behind)) => (Some(range), behind),
        None => (None, original),
    };
    let (kind, signature) = original.split_once(' ')?;
    if kind.is_empty() || signature.is_empty() || renamed.is_empty() {
        return None;
    }
    let Some((qualified, behind)) = signature.split_once('(') else {
        let (owner, name) = qualified_name(signature);
        let field = Field { renamed, class: owner, name, kind };
        return (range.is_none() && !name.is_empty()).then_some(Member::Field(field));
    };
    let (_arguments, lines) = behind.rsplit_once(')')?;
    let (owner, name) = qualified_name(qualified);
    let signature = original.strip_suffix(lines)?;
    let original = if lines.is_empty() { None } else { Some(trailing_range(lines)?) };
    let method = Method {
        renamed,
        range,
        class: owner,
        name,
        original,
        signature,
        synthesized: false,
        outline: false,
        calls_outline: BTreeMap::new(),
    };
    (!name.is_empty()).then_some(Member::Method(method))
}

fn qualified_name(text: &str) -> (Option<&str>, &str) {
    text.rsplit_once('.').map_or((None, text), |(class, name)| (Some(class), name))
}

/// Parses `1:3:`; also returns the text after it.
fn leading_range(text: &str) -> Option<((u32, u32), &str)> {
    let (from, rest) = text.split_once(':')?;
    let (to, rest) = rest.split_once(':')?;
    Some(((from.parse().ok()?, to.parse().ok()?), rest))
}

/// `:10` or `:10:12`.
fn trailing_range(text: &str) -> Option<(u32, u32)> {
    let text = text.strip_prefix(':')?;
    let (from, to) = text.split_once(':').unwrap_or((text, text));
    Some((from.parse().ok()?, to.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_mapping_is_told_with_its_line() {
        for (text, line, problem) in [
            ("    int a -> b\n", 1, "a member before any class"),
            ("a -> b:\n\nc -> d\n", 3, "no class"),
            ("a -> b:\n    int x\n", 2, "no field or method"),
            ("a -> b:\n    x -> y\n", 2, "no field or method"),
            ("a -> b:\n    1:2:int x -> y\n", 2, "no field or method"),
            ("a -> b:\n    void f(:1 -> y\n", 2, "no field or method"),
            ("a -> b:\n    void f():x -> y\n", 2, "no field or method"),
            ("a -> b:\n    void f():1:99999999999 -> y\n", 2, "no field or method"),
            ("a -> b:\nc -> b:\n", 2, "the second class with this new name"),
            ("<html>\n", 1, "no class"),
        ] {
            let error = Mapping::read(text).unwrap_err();
            assert_eq!((error.line, error.problem), (line, problem), "{text:?}");
        }
    }

    #[test]
    fn comments_blank_lines_and_both_line_ends_are_fine() {
        let text = "# compiler: R8\n# {\"id\":\"com.android.tools.r8.mapping\",\"version\":\"2.2\"}\n\na.B -> x:\n# {not json\n    int f -> a\n# {\"id\":\"sourceFile\"}\n";
        for text in [text.to_owned(), text.replace('\n', "\r\n")] {
            assert_eq!(Mapping::read(&text).unwrap().class("x"), "a.B");
        }
        assert!(Mapping::read("").unwrap().is_empty());
    }
}
