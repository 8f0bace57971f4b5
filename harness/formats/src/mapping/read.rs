//! Parses the text into classes with their members.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::classes::{Class, Field, Mapping, Method};
use crate::lines::excerpt;

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
    let mut open: Option<(&str, Class<'_>)> = None;
    // Windows editors put a byte order mark before the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in (1_u64..).zip(text.lines()) {
        let at = |problem| MappingError { line: number, problem, found: excerpt(line.as_bytes()) };
        let trimmed = line.trim();
        if trimmed.is_empty() {
            continue;
        }
        if let Some(comment) = trimmed.strip_prefix('#') {
            note(comment, open.as_mut().map(|(_, class)| class), &mut mapping);
        } else if line.starts_with([' ', '\t']) {
            let (_, class) = open.as_mut().ok_or_else(|| at("a member before any class"))?;
            member(trimmed, class).ok_or_else(|| at("no field or method"))?;
        } else {
            close(open.take(), &mut mapping);
            let (original, renamed) = class(trimmed).ok_or_else(|| at("no class"))?;
            if mapping.classes.contains_key(renamed) {
                return Err(at("the second class with this new name"));
            }
            open = Some((renamed, Class { original, fields: Vec::new(), methods: Vec::new() }));
        }
    }
    close(open, &mut mapping);
    Ok(mapping)
}

fn close<'a>(open: Option<(&'a str, Class<'a>)>, mapping: &mut Mapping<'a>) {
    if let Some((renamed, mut class)) = open
        && let Entry::Vacant(place) = mapping.classes.entry(renamed)
    {
        // R8 writes these comments only for the first range of a method, but they apply to all ranges.
        let of = |is: fn(&Method<'_>) -> bool| -> BTreeSet<&str> {
            class.methods.iter().filter(|method| is(method)).map(|method| method.signature).collect()
        };
        let (made, outlines) = (of(|method| method.synthesized), of(|method| method.outline));
        for method in &mut class.methods {
            method.synthesized = made.contains(method.signature);
            method.outline = outlines.contains(method.signature);
        }
        place.insert(class);
    }
}

/// `original -> renamed:`
fn class(line: &str) -> Option<(&str, &str)> {
    let (original, renamed) = line.strip_suffix(':')?.rsplit_once(" -> ")?;
    (!original.is_empty() && !renamed.is_empty()).then_some((original, renamed))
}

/// Reads a comment about the class or method before it. Most comments are not needed.
fn note<'a>(comment: &'a str, class: Option<&mut Class<'a>>, mapping: &mut Mapping<'a>) {
    let comment = comment.trim_start();
    if class.is_none() {
        let id = ["pg_map_id: ", "pg_map_hash: SHA-256 "].iter().find_map(|key| comment.strip_prefix(key));
        mapping.ids.extend(id.map(str::trim).filter(|id| !id.is_empty()));
    }
    let (Some(class), true) = (class, comment.starts_with('{')) else { return };
    let Ok(json) = serde_json::from_str::<serde_json::Value>(comment) else { return };
    match json.get("id").and_then(|id| id.as_str()) {
        Some("sourceFile") => {
            let file = json.get("fileName").and_then(|name| name.as_str());
            mapping.source_files.extend(file.map(|file| (class.original, file.to_owned())));
        }
        Some(id) => {
            let Some(method) = class.methods.last_mut() else { return };
            match id {
                "com.android.tools.r8.synthesized" => method.synthesized = true,
                "com.android.tools.r8.outline" => method.outline = true,
                "com.android.tools.r8.outlineCallsite" => method.calls_outline = positions(&json),
                _ => {}
            }
        }
        None => {}
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
fn member<'a>(line: &'a str, class: &mut Class<'a>) -> Option<()> {
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
        class.fields.push(Field { renamed, class: owner, name, kind });
        return (range.is_none() && !name.is_empty()).then_some(());
    };
    let (_arguments, lines) = behind.rsplit_once(')')?;
    let (owner, name) = qualified_name(qualified);
    let signature = original.strip_suffix(lines)?;
    let original = if lines.is_empty() { None } else { Some(trailing_range(lines)?) };
    class.methods.push(Method {
        renamed,
        range,
        class: owner,
        name,
        original,
        signature,
        synthesized: false,
        outline: false,
        calls_outline: BTreeMap::new(),
    });
    (!name.is_empty()).then_some(())
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
