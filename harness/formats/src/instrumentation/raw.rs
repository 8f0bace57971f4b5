//! Parses the text of `am instrument -r`.
//!
//! ```text
//! INSTRUMENTATION_STATUS: KEY=VALUE      value: to the end of the line and of all following lines without a prefix
//! INSTRUMENTATION_STATUS_CODE: INT       closes a status
//! INSTRUMENTATION_RESULT: KEY=VALUE
//! INSTRUMENTATION_CODE: INT              closes the run
//! INSTRUMENTATION_FAILED: COMPONENT
//! INSTRUMENTATION_ABORTED: System has crashed.
//! onError: commandError=BOOL message=TEXT
//! ```
//! Keys come in any order, each once in a bundle; lines end in `\n` or `\r\n`. Values are not escaped: a line of a
//! value that begins with one of the prefixes looks like a line of the protocol. `am` prints a bundle and its code at
//! once. So what cannot follow within a bundle belongs to the open value, for example in the stack trace of a test that
//! quotes such output.

use super::run::says_crash;
use super::{Bundle, Item, LARGEST_BUNDLE};
use crate::lines::{excerpt, text};

const STATUS: &[u8] = b"INSTRUMENTATION_STATUS: ";
const STATUS_CODE: &[u8] = b"INSTRUMENTATION_STATUS_CODE: ";
const RESULT: &[u8] = b"INSTRUMENTATION_RESULT: ";
const CODE: &[u8] = b"INSTRUMENTATION_CODE: ";
const FAILED: &[u8] = b"INSTRUMENTATION_FAILED: ";
const ABORTED: &[u8] = b"INSTRUMENTATION_ABORTED: ";
const ON_ERROR: &[u8] = b"onError: ";

/// The values in which a runner reports a failure.
const REASONS: [&str; 2] = ["stack", "stream"];

/// Bytes that an entry of a bundle takes in addition to its text.
const ENTRY_BYTES: usize = 100;

/// An incremental reader of the stream.
#[derive(Debug, Default)]
pub struct RawStream {
    /// The unfinished line; its size is limited.
    line: Vec<u8>,
    status: Bundle,
    result: Bundle,
    /// The bundle and key that a continued line belongs to.
    open: Option<(Which, String)>,
    /// Bytes in both bundles.
    kept: usize,
    /// The test that has begun and not ended: the next result is its own.
    begun: Option<String>,
    /// The runner numbers its tests.
    numbers: bool,
}

/// The code of a status that begins a test, and of one about a test that goes on.
const BEGINS: i64 = 1;
const GOES_ON: i64 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Status,
    Result,
}

impl RawStream {
    /// A reader at the beginning of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes, in pieces of any size, and passes on the items that they complete.
    pub fn push(&mut self, bytes: &[u8], mut item: impl FnMut(Item)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (part, ended) = piece.strip_suffix(b"\n").map_or((piece, false), |part| (part, true));
            let room = LARGEST_BUNDLE.saturating_sub(self.line.len());
            self.line.extend_from_slice(part.get(..room).unwrap_or(part));
            if ended {
                self.end_line(&mut item);
            }
        }
    }

    /// The stream has ended: a last line without a line end counts, a status without its code does not.
    pub fn finish(mut self, mut item: impl FnMut(Item)) {
        if !self.line.is_empty() {
            self.end_line(&mut item);
        }
    }

    fn end_line(&mut self, item: &mut impl FnMut(Item)) {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        if self.is_quoted(line) {
            self.go_on(line);
        } else if let Some(pair) = line.strip_prefix(STATUS) {
            self.set(Which::Status, pair);
        } else if let Some(pair) = line.strip_prefix(RESULT) {
            self.set(Which::Result, pair);
        } else if let Some(code) = line.strip_prefix(STATUS_CODE) {
            let values = self.take(Which::Status);
            let code = integer(code);
            self.numbers |= values.contains_key("current");
            match code {
                Some(BEGINS) => self.begun = values.get("test").map(|test| first_line(test).to_owned()),
                Some(GOES_ON) => {}
                _ => self.begun = None,
            }
            item(Item::Status { code, values });
        } else if let Some(code) = line.strip_prefix(CODE) {
            let values = self.take(Which::Result);
            item(Item::Finished { code: integer(code), values });
        } else if let Some(component) = line.strip_prefix(FAILED) {
            self.open = None;
            item(Item::Failed(excerpt(component)));
        } else if let Some(why) = line.strip_prefix(ABORTED) {
            self.open = None;
            item(Item::Aborted(excerpt(why)));
        } else if let Some(error) = line.strip_prefix(ON_ERROR) {
            // This line may come in the middle of a value, which continues after it.
            item(Item::OnError(excerpt(error)));
        } else if !self.go_on(line) && !line.is_empty() {
            item(Item::Other(excerpt(line)));
        }
    }

    /// Whether a line looks like one of the protocol, but cannot stand here: a value quotes it.
    fn is_quoted(&self, line: &[u8]) -> bool {
        let starts_with = |prefix| line.starts_with(prefix);
        match &self.open {
            // After the runner's summary the system reports neither a test nor a crash.
            Some((Which::Result, key)) if key == "stream" => {
                starts_with(STATUS) || starts_with(STATUS_CODE) || is_crash(line)
            }
            Some((Which::Result, _)) | None => false,
            Some((Which::Status, _)) if starts_with(STATUS_CODE) => {
                let begins = line.strip_prefix(STATUS_CODE).and_then(integer) == Some(BEGINS);
                self.lacks_its_test() || !begins && self.is_of_another()
            }
            Some((Which::Status, key)) => match line.strip_prefix(STATUS) {
                // Android 9 and earlier print the class after one of these values, later versions only the test.
                Some(pair) if REASONS.contains(&key.as_str()) => {
                    let pair = text(pair);
                    let (key, value) = pair.split_once('=').unwrap_or((&pair, ""));
                    let is_another = || self.begun.as_deref().is_some_and(|begun| begun != value);
                    match key {
                        "test" => self.status.contains_key("stack") && is_another(),
                        key => self.status.contains_key(key),
                    }
                }
                Some(_) => false,
                None => starts_with(RESULT) || starts_with(CODE),
            },
        }
    }

    /// Whether the status is of a test that it does not name yet. Only that of a crash before the first names none.
    fn lacks_its_test(&self) -> bool {
        let has = |key| self.status.contains_key(key);
        let is_crash = self.status.get("stream").is_some_and(|stream| says_crash(stream));
        let is_named = ["class", "test"].into_iter().all(has) && (has("current") || !self.numbers);
        self.is_whole() && has("numtests") && REASONS.into_iter().any(has) && !is_named && !is_crash
    }

    /// Whether the result, so far, is of another test than the one that has begun: its name is quoted.
    fn is_of_another(&self) -> bool {
        let is_result = REASONS.into_iter().any(|key| self.status.contains_key(key));
        let other = |begun: &String| self.status.get("test").is_some_and(|test| first_line(test) != begun);
        self.is_whole() && is_result && self.begun.as_ref().is_some_and(other)
    }

    /// Whether nothing was left out of the bundle: its last keys may name the test.
    const fn is_whole(&self) -> bool {
        self.kept <= LARGEST_BUNDLE
    }

    fn set(&mut self, which: Which, pair: &[u8]) {
        let pair = text(pair);
        let (key, value) = pair.split_once('=').unwrap_or((&pair, ""));
        self.open = Some((which, key.to_owned()));
        if self.has_room(pair.len().saturating_add(ENTRY_BYTES)) {
            self.bundle(which).insert(key.to_owned(), value.to_owned());
        }
    }

    /// Appends a line to the open value; false if none is open.
    fn go_on(&mut self, line: &[u8]) -> bool {
        let Some((which, key)) = self.open.take() else { return false };
        if self.has_room(line.len().saturating_add(1))
            && let Some(value) = self.bundle(which).get_mut(&key)
        {
            value.push('\n');
            value.push_str(&text(line));
        }
        self.open = Some((which, key));
        true
    }

    /// Counts bytes to keep; bytes beyond the limit are left out.
    const fn has_room(&mut self, bytes: usize) -> bool {
        self.kept = self.kept.saturating_add(bytes);
        self.is_whole()
    }

    fn bundle(&mut self, which: Which) -> &mut Bundle {
        match which {
            Which::Status => &mut self.status,
            Which::Result => &mut self.result,
        }
    }

    fn take(&mut self, which: Which) -> Bundle {
        (self.open, self.kept) = (None, 0);
        std::mem::take(self.bundle(which))
    }
}

/// A name with line breaks is compared by its first line.
fn first_line(name: &str) -> &str {
    name.lines().next().unwrap_or_default()
}

/// A result of a process that the system saw end.
fn is_crash(line: &[u8]) -> bool {
    line.strip_prefix(RESULT)
        .is_some_and(|pair| pair.starts_with(b"shortMsg=") || pair.starts_with(b"longMsg="))
}

/// The number on a line, if the line is a complete number.
fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(stream: &str, piece: usize) -> Vec<Item> {
        let (mut reader, mut items) = (RawStream::new(), Vec::new());
        stream.as_bytes().chunks(piece).for_each(|piece| reader.push(piece, |item| items.push(item)));
        reader.finish(|item| items.push(item));
        items
    }

    fn bundle(pairs: &[(&str, &str)]) -> Bundle {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    const STREAM: &str = "WARNING: linker\nINSTRUMENTATION_STATUS: stack=a\n\tat b\n\nINSTRUMENTATION_STATUS: test=t=1\n\
        INSTRUMENTATION_STATUS_CODE: -2\nINSTRUMENTATION_RESULT: stream=\n\nTime: 1\n\n\nINSTRUMENTATION_CODE: -1\n";

    #[test]
    fn values_go_on_over_lines_whatever_the_pieces_and_line_ends() {
        let want = [
            Item::Other("WARNING: linker".to_owned()),
            Item::Status { code: Some(-2), values: bundle(&[("stack", "a\n\tat b\n"), ("test", "t=1")]) },
            Item::Finished { code: Some(-1), values: bundle(&[("stream", "\n\nTime: 1\n\n")]) },
        ];
        for piece in [1, 2, 7, 1000] {
            assert_eq!(items(STREAM, piece), want, "{piece}");
            assert_eq!(items(&STREAM.replace('\n', "\r\n"), piece), want, "{piece}");
        }
        assert_eq!(items(STREAM.trim_end(), 1000), want, "a last line without an end");
    }

    #[test]
    fn an_error_in_the_middle_of_a_value_does_not_belong_to_it() {
        let stream = "INSTRUMENTATION_STATUS: class=a.B\nonError: commandError=false message=INSTRUMENTATION_ABORTED: System has crashed.\n\
            INSTRUMENTATION_STATUS: test=t\nINSTRUMENTATION_ABORTED: System has crashed.\nINSTRUMENTATION_STATUS_CODE: 1\n";
        assert_eq!(
            items(stream, 1000),
            [
                Item::OnError(
                    "commandError=false message=INSTRUMENTATION_ABORTED: System has crashed.".to_owned()
                ),
                Item::Aborted("System has crashed.".to_owned()),
                Item::Status { code: Some(1), values: bundle(&[("class", "a.B"), ("test", "t")]) },
            ]
        );
    }

    #[test]
    fn a_code_with_something_printed_into_it_is_not_guessed() {
        let stream = "INSTRUMENTATION_STATUS_CODE: -1at com.android.commands.am.Instrument.run\n";
        assert_eq!(items(stream, 1000), [Item::Status { code: None, values: Bundle::new() }]);
    }

    #[test]
    fn what_is_kept_of_a_value_is_bounded() {
        let (mut reader, mut ended) = (RawStream::new(), 0);
        reader.push(b"INSTRUMENTATION_STATUS: stack=", |_| ended += 1);
        let line = [&[b'x'; 1 << 16][..], b"\n"].concat();
        for _ in 0..200 {
            reader.push(&line, |_| ended += 1);
        }
        assert!((1 << 20..LARGEST_BUNDLE).contains(&reader.status["stack"].len()));
        // A line without an end.
        for _ in 0..200 {
            reader.push(&line[..line.len() - 1], |_| ended += 1);
        }
        assert!(reader.line.len() <= LARGEST_BUNDLE);
        assert_eq!(ended, 0);
        // Many keys count as well.
        let mut many = RawStream::new();
        for n in 0..60_000 {
            many.push(format!("INSTRUMENTATION_STATUS: key{n}=v\n").as_bytes(), |_| ended += 1);
        }
        assert!(many.status.len() < 50_000, "{}", many.status.len());
    }
}
