//! Makes text from outside fit for XML 1.0. junit-report writes its input unchanged: a NUL in a test's name or a `]]>`
//! in its output would make the whole file unreadable, so every string passes through here.

use crate::visible::is_unsafe;

/// For an attribute: one line, no control character.
pub(super) fn attribute(text: &str) -> String {
    clean(text).replace(['\n', '\t'], " ")
}

/// For a CDATA section as junit-report writes it: lines are kept, `]]>` is split over two sections.
pub(super) fn cdata(text: &str) -> String {
    clean(text).replace("]]>", "]]]]><![CDATA[>")
}

/// Removes terminal sequences; escapes characters that XML forbids or that no viewer shows.
fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(length) = ansi_sequence(rest) {
            rest = &rest[length..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match c {
            '\n' | '\t' => out.push(c),
            // A parser would turn both into a single line feed.
            '\r' if rest.starts_with('\n') => {}
            '\r' => out.push('\n'),
            c if is_unsafe(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// Length of the terminal sequence at the start of `text` (ECMA-48). `None` for a sequence without an end, so that a
/// single ESC never removes the text after it.
fn ansi_sequence(text: &str) -> Option<usize> {
    let (introducer, body) = if let Some(body) = text.strip_prefix('\u{9b}') {
        ('[', body)
    } else {
        let after = text.strip_prefix('\u{1b}')?;
        let introducer = after.chars().next()?;
        (introducer, &after[introducer.len_utf8()..])
    };
    let start = text.len() - body.len();
    match introducer {
        '[' => {
            let end = body.find(|c: char| !(' '..='?').contains(&c))?;
            ('@'..='~').contains(&body[end..].chars().next()?).then_some(start + end + 1)
        }
        // Title, device control and the like, up to BEL or ST; they are short.
        ']' | 'P' | 'X' | '^' | '_' => {
            let end = body
                .char_indices()
                .take(STRING_SEQUENCE)
                .find(|(_, c)| matches!(c, '\u{7}' | '\u{1b}' | '\u{9c}'));
            let (end, c) = end?;
            match c {
                '\u{1b}' => body[end + 1..].starts_with('\\').then_some(start + end + 2),
                c => Some(start + end + c.len_utf8()),
            }
        }
        ' '..='/' => {
            let end = body.find(|c: char| !(' '..='/').contains(&c))?;
            ('0'..='~').contains(&body[end..].chars().next()?).then_some(start + end + 1)
        }
        '0'..='~' => Some(start),
        _ => None,
    }
}

/// Longest string sequence, such as a window title.
const STRING_SEQUENCE: usize = 4096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terminal_sequences_vanish_and_forbidden_characters_are_shown() {
        for (text, clean_text) in [
            ("plain ünïcode <&>\"'", "plain ünïcode <&>\"'"),
            ("\u{1b}[1;31mred\u{1b}[0m", "red"),
            ("\u{9b}2Jgone", "gone"),
            ("\u{1b}]0;title\u{7}text", "text"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}(Btext\u{1b}7", "text"),
            ("\u{1b}]0;no end", "\\u{1b}]0;no end"),
            ("\u{1b}[31", "\\u{1b}[31"),
            ("\u{1b}", "\\u{1b}"),
            ("\u{1b}ü", "\\u{1b}ü"),
            ("a\0b\u{8}\u{fffe}\u{ffff}\u{7f}\u{85}", "a\\u{0}b\\u{8}\\u{fffe}\\u{ffff}\\u{7f}\\u{85}"),
            ("a\r\nb\rc\td", "a\nb\nc\td"),
        ] {
            assert_eq!(clean(text), clean_text, "{text:?}");
        }
        assert_eq!(attribute("a\r\n\tb]]>"), "a  b]]>");
        assert_eq!(cdata("a]]>b]]]>"), "a]]]]><![CDATA[>b]]]]]><![CDATA[>");
    }

    #[test]
    fn a_megabyte_of_broken_sequences_takes_linear_time() {
        let text = "\u{1b}]".repeat(1 << 19);
        assert_eq!(clean(&text).len(), (1 << 19) * "\\u{1b}]".len());
    }

    /// `Char` of XML 1.0, section 2.2.
    fn is_xml_char(c: char) -> bool {
        matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
    }

    proptest! {
        #[test]
        fn only_xml_characters_come_out(text in any::<String>()) {
            let clean_text = clean(&text);
            let xml = clean_text.chars().all(is_xml_char);
            prop_assert!(xml, "{:?}", clean_text);
            prop_assert_eq!(clean(&clean_text), clean_text, "cleaning twice changes nothing");
        }
    }
}
