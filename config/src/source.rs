//! A file's text with its line numbers, and positions in it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use memgate_model::ThresholdSource;

/// Byte range of a mistake or a setting in the source.
pub(crate) type Span = Range<usize>;

/// A named text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) name: Arc<str>,
    pub(crate) text: String,
    line_starts: Vec<usize>,
}

impl Source {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let line_starts =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect::<Vec<_>>();
        Self { name: name.into(), text: text.to_owned(), line_starts }
    }

    /// Line of a byte, from 1.
    pub(crate) fn line(&self, at: usize) -> usize {
        self.line_starts.partition_point(|&start| start <= at)
    }

    /// Column of a byte in characters, from 1.
    pub(crate) fn column(&self, at: usize) -> usize {
        let start = self.line_range(at).start;
        self.text.get(start..at).map_or(1, |before| before.chars().count() + 1)
    }

    /// The line that contains a byte, without its line break.
    pub(crate) fn line_range(&self, at: usize) -> Span {
        let line = self.line(at);
        let start = self.line_starts.get(line - 1).copied().unwrap_or(0);
        let end = self.line_starts.get(line).map_or(self.text.len(), |next| next - 1);
        let text = self.text.get(start..end).unwrap_or("");
        start..start + text.trim_end_matches('\r').len()
    }

    pub(crate) fn place(&self, span: &Span) -> Place {
        Place::File { file: self.name.clone(), line: self.line(span.start) }
    }
}

/// Position of a setting, for reports: `memgate.yaml:24`, or `default`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Built in: it is not from a file.
    #[default]
    Default,
    /// A line of a file.
    File {
        /// Name of the file, as it was given to the parser.
        file: Arc<str>,
        /// Line, from 1.
        line: usize,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { file, line } => write!(f, "{file}:{line}"),
        }
    }
}

impl From<&Place> for ThresholdSource {
    fn from(place: &Place) -> Self {
        match place {
            Place::Default => Self::Default,
            Place::File { .. } => Self::File(place.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one_and_in_characters() {
        let source = Source::new("memgate.yaml", "a\r\nöö: x\n");
        assert_eq!((source.line(0), source.column(0)), (1, 1));
        let x = source.text.find('x').unwrap();
        assert_eq!((source.line(x), source.column(x)), (2, 5));
        assert_eq!(&source.text[source.line_range(0)], "a", "the carriage return is no part of the line");
        assert_eq!(source.line(source.text.len()), 3);
        assert_eq!(source.place(&(x..x + 1)).to_string(), "memgate.yaml:2");
    }
}
