//! Makes text from outside harmless: characters that would move a cursor, reverse a line or hide are written as
//! escapes.

use std::borrow::Cow;

/// One line, with every control and invisible formatting character as `\n`, `\u{1b}`, ….
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    Cow::Owned(safe)
}

/// Controls, bidirectional overrides (CVE-2021-42574), line separators, zero-width characters and
/// noncharacters.
pub(crate) fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}')
        || u32::from(c) & 0xfffe == 0xfffe
}

/// Lines that are harmless in a terminal or in the log of a CI server: no control or invisible character except tabs
/// and line ends, and no command.
#[must_use]
pub fn harmless(text: &str) -> String {
    let parts = text.split_inclusive(['\n', '\t']).map(|part| {
        let text = part.trim_end_matches(['\n', '\t']);
        visible(text).into_owned() + &part[text.len()..]
    });
    without_commands(&parts.collect::<String>())
}

/// The same for text that was rendered in colours, if the renderer lets no other escape sequence through: styles stay.
#[must_use]
pub fn harmless_in_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut safe = parts.next().map(harmless).unwrap_or_default();
    for part in parts {
        let is_style = |style: &str| style.bytes().all(|b| b.is_ascii_digit() || b == b';');
        match part.split_once('m').filter(|(style, _)| is_style(style)) {
            Some((style, rest)) => safe += &format!("\u{1b}[{style}m{}", harmless(rest)),
            None => safe += &harmless(&format!("\u{1b}[{part}")),
        }
    }
    without_commands(&safe)
}

/// Escapes text that GitHub's runner, Azure Pipelines or TeamCity would read as a command: no line begins with `::`,
/// not even after blanks and colours, and no line has one of their marks.
pub(crate) fn without_commands(text: &str) -> String {
    const MARKS: [&str; 3] = ["##[", "##vso[", "##teamcity["];
    let mut safe = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let rest = without_style(line);
        safe.push_str(&line[..line.len() - rest.len()]);
        match rest.strip_prefix("::") {
            Some(rest) => safe.extend(["\\u{3a}:", rest]),
            None => safe.push_str(rest),
        }
    }
    MARKS.iter().fold(safe, |safe, mark| safe.replace(mark, &format!("\\u{{23}}{}", &mark[1..])))
}

/// The line after its leading blanks and colours.
fn without_style(line: &str) -> &str {
    let line = line.trim_start_matches(|c: char| c.is_whitespace() && c != '\n' && c != '\r');
    match line.strip_prefix("\u{1b}[").and_then(|style| style.split_once('m')) {
        Some((_, rest)) => without_style(rest),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_a_command_of_a_ci_system() {
        for (text, safe) in [
            ("::error::boo", r"\u{3a}:error::boo"),
            ("a\n  ::set-env name=x::y\nengine::A.b", "a\n  \\u{3a}:set-env name=x::y\nengine::A.b"),
            ("a\r::error::b", r"a\r::error::b"),
            ("\u{1b}[31m::error::b", r"\u{1b}[31m::error::b"),
            ("x ##[error]y ##vso[task.complete]", r"x \u{23}#[error]y \u{23}#vso[task.complete]"),
            ("## heading", "## heading"),
            ("\u{a0}\u{2003}::error::b", "\u{a0}\u{2003}\\u{3a}:error::b"),
            ("a\n\tat b\n", "a\n\tat b\n"),
            ("\t::error::b\r\n", "\t\\u{3a}:error::b\\r\n"),
        ] {
            assert_eq!(harmless(text), safe);
        }
        let rendered = "\u{1b}[1;31merror\u{1b}[0m: a\u{9b}31m\u{1b}[2J\n\u{1b}[0m::x";
        let safe = "\u{1b}[1;31merror\u{1b}[0m: a\\u{9b}31m\\u{1b}[2J\n\u{1b}[0m\\u{3a}:x";
        assert_eq!(harmless_in_colours(rendered), safe);
        let styled = "\u{1b}[1m\u{1b}[31m ::error::b";
        assert_eq!(without_commands(styled), "\u{1b}[1m\u{1b}[31m \\u{3a}:error::b");
    }

    #[test]
    fn nothing_that_acts_on_a_terminal_survives() {
        for (text, safe) in [
            ("MapCache::insert(Tile const&)", "MapCache::insert(Tile const&)"),
            ("größe 寸法 ×", "größe 寸法 ×"),
            ("a\nb\tc\r", r"a\nb\tc\r"),
            ("\u{1b}[31mred\0\u{7f}", r"\u{1b}[31mred\u{0}\u{7f}"),
            ("\u{9b}2J", r"\u{9b}2J"),
            ("\u{202e}gpj.exe", r"\u{202e}gpj.exe"),
            ("\u{fffe}\u{1ffff}\u{feff}\u{200b}", r"\u{fffe}\u{1ffff}\u{feff}\u{200b}"),
        ] {
            assert_eq!(visible(text), safe);
        }
    }
}
