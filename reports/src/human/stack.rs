//! A stack in two columns: function and location.

use memgate_model::Frame;

use crate::human::paint::Paint;
use crate::names::{self, in_module, without_template_arguments};
use crate::visible::visible;

/// Widest function column. Longer names push their location to the right.
const WIDEST_FUNCTION: usize = 96;
/// Narrowest function column, on the narrowest terminal.
const NARROWEST_FUNCTION: usize = 24;
/// Space between the columns.
const GUTTER: usize = 2;

/// One text line per frame, without indentation. `room`: columns available on the terminal; `None` for a file or a
/// pipe, where names are never cut.
pub(crate) fn stack_lines(frames: &[Frame], room: Option<usize>, paint: Paint) -> Vec<String> {
    let mut cells: Vec<_> = frames.iter().map(|frame| (names::of_frame(frame), location(frame))).collect();
    if let Some(room) = room {
        let widest_location = cells.iter().map(|(_, location)| width(location)).max().unwrap_or(0);
        let names = room.saturating_sub(widest_location + GUTTER).max(NARROWEST_FUNCTION);
        for (name, _) in &mut cells {
            *name = shorten(name, names);
        }
    }
    let column = cells
        .iter()
        .map(|(name, _)| width(name))
        .filter(|width| *width <= WIDEST_FUNCTION)
        .max()
        .unwrap_or(0);
    cells.iter().map(|(name, location)| line(name, location, column, paint)).collect()
}

/// The lines of a stack, without colours.
#[must_use]
pub fn stack(frames: &[Frame]) -> Vec<String> {
    stack_lines(frames, None, Paint::new(false))
}

fn line(name: &str, location: &str, column: usize, paint: Paint) -> String {
    if location.is_empty() {
        return name.to_owned();
    }
    let gap = column.saturating_sub(width(name)) + GUTTER;
    format!("{name}{:gap$}{}", "", paint.faint(location))
}

fn location(frame: &Frame) -> String {
    let place = match (&frame.file, frame.line, &frame.function) {
        (Some(file), Some(line), _) => format!("{}:{line}", visible(file)),
        (Some(file), None, _) => visible(file).into_owned(),
        (None, _, Some(_)) if !frame.module.is_empty() => in_module(frame),
        (None, ..) => String::new(),
    };
    if frame.inlined { format!("{place} (inlined)").trim_start().to_owned() } else { place }
}

/// `(Tile.java:31)`; empty: not known.
pub(super) fn source(frame: &Frame) -> String {
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("({}:{line})", visible(file)),
        (Some(file), None) => format!("({})", visible(file)),
        (None, _) => String::new(),
    }
}

/// Columns of a text, one for each character.
pub(crate) fn width(text: &str) -> usize {
    text.chars().count()
}

/// Cuts a name to `columns`: first its template arguments, then its end.
fn shorten(name: &str, columns: usize) -> String {
    if width(name) <= columns {
        return name.to_owned();
    }
    let short = without_template_arguments(name, "<…>").unwrap_or_else(|| name.to_owned());
    if width(&short) <= columns {
        return short;
    }
    let mut cut: String = short.chars().take(columns.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_lose_template_arguments_before_their_end() {
        for (name, columns, short) in [
            ("load(int)", 9, "load(int)"),
            ("Loader<std::map<int, Tile>>::load(int)", 30, "Loader<…>::load(int)"),
            ("Loader<std::map<int, Tile>>::load(int)", 12, "Loader<…>::…"),
            (
                "Set<A, B, C, D>::operator<(Set<A, B, C, D> const&) const",
                40,
                "Set<…>::operator<(Set<…> const&) const",
            ),
            ("operator<< <char>(std::ostream<char>&, x)", 40, "operator<< <…>(std::ostream<…>&, x)"),
            (
                "f<A, B>()::{lambda(int)#1}::operator()(int) -> B<C, D>",
                48,
                "f<…>()::{lambda(int)#1}::operator()(int) -> B<…>",
            ),
            ("unbalanced<a>>::name", 12, "unbalanced<…"),
            ("größe_寸法_größe", 6, "größe…"),
        ] {
            assert_eq!(shorten(name, columns), short, "{name}");
        }
    }
}
