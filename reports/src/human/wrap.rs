//! Breaks lines that are wider than the terminal between their fields.

use crate::figures::GAP;

/// Breaking lines does not help on narrower terminals.
const NARROWEST: usize = 40;
/// A continued line is indented by this many columns more than the line itself. A line that begins at the margin
/// continues as deep as the text below a headline.
const DEEPER: usize = 2;
const BELOW_A_HEADLINE: usize = 6;

/// Every line of `text` at most `columns` wide, as far as it has fields or words to break between.
/// Commands are never broken: they are copied.
pub(super) fn wrapped(text: &str, columns: usize) -> String {
    let columns = columns.max(NARROWEST);
    let mut narrow = String::with_capacity(text.len() + text.len() / 8);
    for line in text.lines() {
        if visible_width(line) <= columns || line.contains("run only this test: ") {
            narrow.push_str(line);
        } else {
            break_up(&mut narrow, line, columns);
        }
        narrow.push('\n');
    }
    narrow
}

fn break_up(text: &mut String, line: &str, columns: usize) {
    let body = line.trim_start_matches(' ');
    let indent = line.len() - body.len();
    let deeper = if indent == 0 { BELOW_A_HEADLINE } else { indent + DEEPER };
    text.push_str(&line[..indent]);
    let (mut column, mut is_begun) = (indent, false);
    let mut put = |part: &str, gap: &str| {
        let wide = visible_width(part);
        if is_begun && column + gap.len() + wide > columns {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', deeper));
            column = deeper;
        } else if is_begun {
            text.push_str(gap);
            column += gap.len();
        }
        text.push_str(part);
        column += wide;
        is_begun = true;
    };
    for field in body.split(GAP).map(str::trim).filter(|field| !field.is_empty()) {
        if deeper + visible_width(field) <= columns || field.contains("memgate ") {
            put(field, GAP);
            continue;
        }
        for (index, word) in field.split(' ').enumerate() {
            put(word, if index == 0 { GAP } else { " " });
        }
    }
}

/// Columns of a text, without the colours.
fn visible_width(text: &str) -> usize {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().map_or(0, |part| part.chars().count());
    first + parts.map(|part| part.split_once('m').map_or(0, |(_, rest)| rest.chars().count())).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_broken_between_its_fields_and_only_then_between_words() {
        for (line, broken) in [
            ("short   line", "short   line\n"),
            (
                "FAIL  A.b   grow leaks 148 B per run · a.cc:1",
                "FAIL  A.b\n      grow leaks 148 B per run · a.cc:1\n",
            ),
            (
                "      48 B per iteration   3 allocations   7 iterations",
                "      48 B per iteration   3 allocations\n        7 iterations\n",
            ),
            (
                "      one two three four five six seven eight nine",
                "      one two three four five six seven\n        eight nine\n",
            ),
            (
                "      leak n1-5f   to accept it: memgate waive n1-5f1c09a2b47d1e03 --until 2027-03-01",
                "      leak n1-5f\n        to accept it: memgate waive n1-5f1c09a2b47d1e03 --until 2027-03-01\n",
            ),
            (
                "\u{1b}[1mFAIL\u{1b}[0m  A.b   123456789 123456789 12345678",
                "\u{1b}[1mFAIL\u{1b}[0m  A.b   123456789 123456789 12345678\n",
            ),
            (
                "one two three four five six seven eight nine",
                "one two three four five six seven eight\n      nine\n",
            ),
            (
                "unbreakable_unbreakable_unbreakable_unbreakable",
                "unbreakable_unbreakable_unbreakable_unbreakable\n",
            ),
        ] {
            assert_eq!(wrapped(line, 40), broken);
        }
    }
}
