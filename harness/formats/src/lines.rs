//! Splits a text into numbered lines, for errors that give the position.

/// The lines of a text, without their ends (`\n` or `\r\n`).
#[derive(Debug, Clone)]
pub(crate) struct Lines<'a> {
    rest: &'a [u8],
    number: u64,
}

impl<'a> Lines<'a> {
    pub(crate) const fn of(text: &'a [u8]) -> Self {
        Self { rest: text, number: 0 }
    }
}

impl<'a> Iterator for Lines<'a> {
    /// Number, from 1, and text.
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let line = match self
            .rest
            .iter()
            .position(|byte| *byte == b'\n')
            .and_then(|at| self.rest.split_at_checked(at))
        {
            Some((line, rest)) => {
                self.rest = rest.get(1..).unwrap_or_default();
                line
            }
            None => std::mem::take(&mut self.rest),
        };
        self.number = self.number.saturating_add(1);
        Some((self.number, line.strip_suffix(b"\r").unwrap_or(line)))
    }
}

/// A line as text; bytes that are not UTF-8 become replacement characters.
pub(crate) fn text(line: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(line)
}

/// The beginning of a line, short enough for an error message.
pub(crate) fn excerpt(line: &[u8]) -> String {
    const LONGEST: usize = 80;
    let text = text(line.get(..LONGEST.min(line.len())).unwrap_or_default());
    let mut shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.len() > LONGEST {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_line_ends_count_and_the_last_line_needs_none() {
        let lines: Vec<_> = Lines::of(b"a\r\n\nb\r\nc").collect();
        assert_eq!(lines, [(1, &b"a"[..]), (2, b""), (3, b"b"), (4, b"c")]);
        assert_eq!(Lines::of(b"").count(), 0);
        assert_eq!(Lines::of(b"\n").count(), 1);
    }

    #[test]
    fn an_excerpt_is_short_and_printable() {
        assert_eq!(excerpt(b"a\x1bb"), "a b");
        assert_eq!(excerpt(&[b'x'; 200]).chars().count(), 81);
    }
}
