//! Text from outside, made harmless: what would move a cursor, reverse a line or hide is written as
//! its escape.

use std::borrow::Cow;

/// One line with every control and invisible formatting character as `\n`, `\u{1b}`, ….
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

#[cfg(test)]
mod tests {
    use super::*;

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
