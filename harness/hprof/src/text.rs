//! Texts of a dump: modified UTF-8, and class names in source form.

/// Decodes modified UTF-8 (U+0000 in two bytes, surrogates in three each); invalid bytes become U+FFFD.
#[must_use]
pub fn modified_utf8(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let mut units = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        let (unit, behind) = match rest {
            [] => break,
            [a @ 0..=0x7f, rest @ ..] => (u16::from(*a), rest),
            [a @ 0xc0..=0xdf, b @ 0x80..=0xbf, rest @ ..] => {
                (u16::from(a & 0x1f) << 6 | u16::from(b & 0x3f), rest)
            }
            [a @ 0xe0..=0xef, b @ 0x80..=0xbf, c @ 0x80..=0xbf, rest @ ..] => {
                (u16::from(a & 0x0f) << 12 | u16::from(b & 0x3f) << 6 | u16::from(c & 0x3f), rest)
            }
            [_, rest @ ..] => (0xfffd, rest),
        };
        units.push(unit);
        rest = behind;
    }
    String::from_utf16_lossy(&units)
}

/// Maximum length of a displayed name or text. Names in a hostile dump are long and occur in many places.
const LONGEST: usize = 1024;
/// Maximum number of dimensions of an array in the virtual machine.
const DEEPEST: usize = 255;

/// The beginning of a text, for display.
#[must_use]
pub(crate) fn shortened(mut text: String) -> String {
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rfind(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// `java/lang/String` and `[[I` as `java.lang.String` and `int[][]`; names that already have this form are unchanged.
#[must_use]
pub fn class_name(name: &str) -> String {
    let element = name.trim_start_matches('[');
    let depth = name.len().saturating_sub(element.len());
    if depth == 0 || depth > DEEPEST {
        return name.replace('/', ".");
    }
    let plain = match element {
        "Z" => "boolean",
        "C" => "char",
        "F" => "float",
        "D" => "double",
        "B" => "byte",
        "S" => "short",
        "I" => "int",
        "J" => "long",
        other => other.strip_prefix('L').map_or(other, |class| class.strip_suffix(';').unwrap_or(class)),
    };
    let mut name = plain.replace('/', ".");
    (0..depth).for_each(|_| name.push_str("[]"));
    name
}

/// Name of the arrays of a primitive type.
#[must_use]
pub const fn array_name(kind: u8) -> &'static str {
    match kind {
        4 => "boolean[]",
        5 => "char[]",
        6 => "float[]",
        7 => "double[]",
        8 => "byte[]",
        9 => "short[]",
        10 => "int[]",
        11 => "long[]",
        _ => "?[]",
    }
}

/// The part after the last dot.
#[must_use]
pub fn simple_name(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class)
}

/// Escapes characters that could control a terminal.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let steers = matches!(
            c,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        );
        if steers || c.is_control() {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_people_write() {
        for (name, shown) in [
            ("java/lang/String", "java.lang.String"),
            ("[I", "int[]"),
            ("[[Ljava/util/Map$Entry;", "java.util.Map$Entry[][]"),
            ("int[]", "int[]"),
            ("[", "[]"),
        ] {
            assert_eq!(class_name(name), shown);
        }
    }

    #[test]
    fn modified_utf8_is_read_and_what_is_broken_shows() {
        assert_eq!(modified_utf8(b"a\xc0\x80b"), "a\0b");
        assert_eq!(modified_utf8(b"\xed\xa0\xbd\xed\xb8\x80"), "\u{1f600}");
        assert_eq!(modified_utf8(b"\xed\xa0\xbd!"), "\u{fffd}!");
        assert_eq!(modified_utf8(b"\xff\xe2"), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_name_cannot_steer_a_terminal() {
        assert_eq!(printable("a\x1b[2Jé"), "a\\u{1b}[2Jé");
        for steers in ['\u{61c}', '\u{200f}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{feff}'] {
            assert_eq!(printable(&steers.to_string()), steers.escape_unicode().to_string());
        }
    }

    #[test]
    fn a_long_text_is_shown_by_its_beginning() {
        let long = "é".repeat(LONGEST);
        assert_eq!(shortened(long), "é".repeat(LONGEST / 2) + "…");
        assert_eq!(shortened("a".repeat(LONGEST)).len(), LONGEST);
        let deep = "[".repeat(256) + "I";
        assert_eq!(class_name(&deep), deep, "no virtual machine has such an array");
    }
}
