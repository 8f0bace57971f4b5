//! Helpers that edit a configuration as text, so that comments and hand-written layout stay: positions in the text, and
//! the spelling of new values.

use crate::yaml::{Kind, Node};

/// The key with this name, and its value.
pub(crate) fn get<'n>(node: &'n Node, name: &str) -> Option<(&'n Node, &'n Node)> {
    let Kind::Mapping(pairs) = &node.kind else { return None };
    let found = pairs.iter().find(|(key, _)| matches!(&key.kind, Kind::Scalar(text) if text == name));
    found.map(|(key, value)| (key.as_ref(), value.as_ref()))
}

/// The spaces before the dash of a list's first item.
pub(crate) fn dash_indent(text: &str, item: usize) -> Option<&str> {
    let before = text.get(..item)?;
    let dash = before.rfind('-')?;
    let indent = before.get(before[..dash].rfind('\n').map_or(0, |at| at + 1)..dash)?;
    indent.bytes().all(|b| b == b' ').then_some(indent)
}

/// End of the line that contains `at`.
pub(crate) fn line_end(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or("");
    at + rest.find('\n').map_or(rest.len(), |end| rest[..end].trim_end_matches('\r').len())
}

/// End of the last value in a node. The span of a block collection ends later: where the next token begins.
pub(crate) fn last_byte(node: &Node) -> usize {
    match &node.kind {
        _ if node.flow => node.span.end,
        Kind::Null | Kind::Scalar(_) => node.span.end,
        Kind::Sequence(items) => items.iter().map(|item| last_byte(item)).max().unwrap_or(node.span.start),
        Kind::Mapping(pairs) => pairs
            .iter()
            .map(|(key, value)| last_byte(key).max(last_byte(value)))
            .max()
            .unwrap_or(node.span.start),
    }
}

/// Removes control characters, which a terminal would obey; line breaks stay.
pub(crate) fn printable(text: &str) -> String {
    let kept = text.chars().filter(|&c| c == '\n' || !c.is_control()).collect::<String>();
    kept.trim().to_owned()
}

/// A text as YAML: without quotes if it is unambiguous, else in double quotes. A dollar sign is doubled (`value::env`).
pub(crate) fn quote(text: &str) -> String {
    let bare = text.starts_with(|c: char| c.is_alphabetic())
        && text
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, ' ' | '_' | '-' | '.' | '/' | '(' | ')' | '+'))
        && !text.ends_with(' ')
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "null" | "true" | "false" | "yes" | "no" | "on" | "off"
        );
    if bare {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '$' => quoted.push_str("$$"),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
