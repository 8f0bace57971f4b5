//! A path in LeakCanary's layout.

use crate::analysis::{Leak, Node, Status};
use crate::objects::WINDOW_TITLE;
use crate::text::simple_name;

/// Prefix of the lines of the last object, so that they are not trimmed when displayed.
const ZERO_WIDTH: char = '\u{200b}';

/// The path of a leak, line by line.
#[must_use]
pub fn tree(leak: &Leak) -> String {
    let mut text = format!("┬───\n│ GC Root: {}\n│\n", leak.root);
    let last = leak.path.len().saturating_sub(1);
    for (at, node) in leak.path.iter().enumerate() {
        let (branch, indent) = if at == last {
            ("╰→ ", format!("{ZERO_WIDTH}     "))
        } else {
            ("├─ ", "│    ".to_owned())
        };
        line(&mut text, branch, &format!("{} {}", node.class, node.kind));
        status(&mut text, &indent, node);
        if at == last {
            let objects = match leak.objects {
                1 => "1 object".to_owned(),
                more => format!("{more} objects"),
            };
            line(&mut text, &indent, &format!("Retaining {} in {objects}", bytes(leak.attributed)));
        }
        for label in &node.labels {
            line(&mut text, &indent, label);
        }
        reference(&mut text, &indent, node);
    }
    text
}

/// The same without values that a trimmed dump lacks: keys of maps, titles of windows.
#[must_use]
pub fn tree_of_trimmed(leak: &Leak) -> String {
    let mut leak = leak.clone();
    for node in &mut leak.path {
        node.labels.retain(|label| !label.starts_with(WINDOW_TITLE));
        if let Some(reference) = node.reference.as_mut().filter(|reference| reference.is_value) {
            reference.name.clone_from(&reference.generic);
        }
    }
    tree(&leak)
}

/// An object that nothing holds.
#[must_use]
pub fn lonely(node: &Node) -> String {
    let mut text = format!("{} {}\n", node.class, node.kind);
    let indent = format!("{ZERO_WIDTH}  ");
    status(&mut text, &indent, node);
    for label in &node.labels {
        line(&mut text, &indent, label);
    }
    text
}

fn status(text: &mut String, indent: &str, node: &Node) {
    let why = if node.why.is_empty() { String::new() } else { format!(" ({})", node.why) };
    let status = match node.status {
        Status::Leaking => "YES",
        Status::NotLeaking => "NO",
        Status::Unknown => "UNKNOWN",
    };
    line(text, indent, &format!("Leaking: {status}{why}"));
}

fn reference(text: &mut String, indent: &str, node: &Node) {
    let Some(reference) = &node.reference else { return };
    let owner = simple_name(&reference.owner);
    let before = match reference.kind {
        "static" => format!("static {owner}."),
        "element" => owner.to_owned(),
        _ => format!("{owner}."),
    };
    line(text, indent, &format!("↓ {before}{}", reference.name));
    if reference.suspect {
        let space = " ".repeat(before.chars().count() + 2);
        line(text, indent, &format!("{space}{}", "~".repeat(reference.name.chars().count())));
    }
}

fn line(text: &mut String, indent: &str, rest: &str) {
    for part in [indent, rest, "\n"] {
        text.push_str(part);
    }
}

/// `160.1 kB`, as LeakCanary writes it.
fn bytes(count: u64) -> String {
    if count < 1000 {
        return format!("{count} B");
    }
    let (mut unit, mut scale) = ("kB", 1000_u64);
    for (next, larger) in [("MB", 1_000_000), ("GB", 1_000_000_000), ("TB", 1_000_000_000_000)] {
        if count >= larger {
            (unit, scale) = (next, larger);
        }
    }
    let tenths = u128::from(count) * 10 + u128::from(scale) / 2;
    let tenths = tenths / u128::from(scale);
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_rounded_as_people_read_them() {
        for (count, told) in
            [(999, "999 B"), (160_064, "160.1 kB"), (33_367, "33.4 kB"), (2_863_481, "2.9 MB")]
        {
            assert_eq!(super::bytes(count), told);
        }
    }
}
