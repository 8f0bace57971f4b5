//! The protobuf of `am instrument -m`: pieces of one `Session` message after each other.
//!
//! ```text
//! Session       { repeated TestStatus test_status = 1; SessionStatus session_status = 2 }
//! TestStatus    { sint32 result_code = 3; ResultsBundle results = 4; string logcat = 5 }
//! SessionStatus { enum status_code = 1 (0 finished, 1 aborted); string error_text = 2; sint32 result_code = 3; ResultsBundle results = 4 }
//! ResultsBundle { repeated Entry entries = 1 }
//! Entry         { string key = 1; string value_string = 2; sint32 value_int = 3; float value_float = 4; double value_double = 5;
//!                 sint64 value_long = 6; ResultsBundle value_bundle = 7; bytes value_bytes = 8 }
//! ```
//! Zeros are not written. Unknown fields, nested bundles and bytes are skipped by their length;
//! nothing here recurses.

use super::{Bundle, Item, LARGEST_BUNDLE};
use crate::lines::excerpt;
use crate::protobuf::{Fields, Malformed, Value, zigzag};

/// Why the stream cannot be read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {problem}")]
pub struct ProtoError {
    /// Of the message in the stream.
    pub offset: u64,
    /// What is wrong there.
    pub problem: &'static str,
}

/// A reader of the stream, as far as it has come.
#[derive(Debug, Default)]
pub struct ProtoStream {
    /// The message whose end has not come yet, bounded.
    waiting: Vec<u8>,
    /// Bytes before it.
    read: u64,
}

impl ProtoStream {
    /// A reader at the beginning of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes, in pieces of any size, and hands out what they complete.
    ///
    /// # Errors
    /// When the bytes are no such stream: nothing after that can be read.
    pub fn push(&mut self, bytes: &[u8], mut item: impl FnMut(Item)) -> Result<(), ProtoError> {
        self.waiting.extend_from_slice(bytes);
        let mut fields = Fields::of(&self.waiting);
        let mut consumed = 0;
        loop {
            let at = |problem| ProtoError { offset: self.read.saturating_add(consumed as u64), problem };
            match fields.next() {
                Some(Ok((number, value))) => {
                    if let Some(found) = session_field(number, value).map_err(|Malformed(why)| at(why))? {
                        item(found);
                    }
                    consumed = fields.position();
                }
                Some(Err(Malformed(_)))
                    if fields.is_cut() && self.waiting.len().saturating_sub(consumed) <= LARGEST_BUNDLE =>
                {
                    break;
                }
                Some(Err(Malformed(why))) => return Err(at(why)),
                None => break,
            }
        }
        self.waiting.drain(..consumed.min(self.waiting.len()));
        self.read = self.read.saturating_add(consumed as u64);
        Ok(())
    }

    /// The stream has ended.
    ///
    /// # Errors
    /// When it ended within a message.
    pub fn finish(self) -> Result<(), ProtoError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        Err(ProtoError { offset: self.read, problem: "the stream ends within this message" })
    }
}

fn session_field(number: u64, value: Value<'_>) -> Result<Option<Item>, Malformed> {
    match (number, value) {
        (1, Value::Bytes(status)) => test_status(status).map(Some),
        (2, Value::Bytes(status)) => session_status(status).map(Some),
        (1 | 2, _) => Err(Malformed("a status that is no message")),
        _ => Ok(None),
    }
}

fn test_status(message: &[u8]) -> Result<Item, Malformed> {
    let (mut code, mut values) = (0, Bundle::new());
    for field in Fields::of(message) {
        match field? {
            (3, Value::Varint(raw)) => code = zigzag(raw),
            (4, Value::Bytes(bundle)) => results(bundle, &mut values)?,
            _ => {}
        }
    }
    Ok(Item::Status { code: Some(code), values })
}

fn session_status(message: &[u8]) -> Result<Item, Malformed> {
    let (mut aborted, mut error, mut code, mut values) = (false, None, 0, Bundle::new());
    for field in Fields::of(message) {
        match field? {
            (1, Value::Varint(status)) => aborted = status != 0,
            (2, Value::Bytes(text)) => error = Some(text),
            (3, Value::Varint(raw)) => code = zigzag(raw),
            (4, Value::Bytes(bundle)) => results(bundle, &mut values)?,
            _ => {}
        }
    }
    if !aborted {
        return Ok(Item::Finished { code: Some(code), values });
    }
    let error = error.unwrap_or_default();
    Ok(match error.strip_prefix(b"INSTRUMENTATION_FAILED: ") {
        Some(component) => Item::Failed(excerpt(component)),
        None => Item::Aborted(excerpt(error)),
    })
}

fn results(bundle: &[u8], values: &mut Bundle) -> Result<(), Malformed> {
    for field in Fields::of(bundle) {
        if let (1, Value::Bytes(entry)) = field? {
            values.extend(read_entry(entry)?);
        }
    }
    Ok(())
}

/// Key and value. An entry without a value has one that is empty or zero, which is not written: an
/// empty text.
fn read_entry(message: &[u8]) -> Result<Option<(String, String)>, Malformed> {
    let (mut key, mut value) = (String::new(), Some(String::new()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for field in Fields::of(message) {
        match field? {
            (1, Value::Bytes(name)) => key = text(name),
            (2, Value::Bytes(string)) => value = Some(text(string)),
            (3 | 6, Value::Varint(raw)) => value = Some(zigzag(raw).to_string()),
            (4, Value::Fixed32(bits)) => value = Some(f32::from_bits(bits).to_string()),
            (5, Value::Fixed64(bits)) => value = Some(f64::from_bits(bits).to_string()),
            (7 | 8, Value::Bytes(_)) => value = None,
            _ => {}
        }
    }
    Ok(value.map(|value| (key, value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::dsl::{bytes, double, sint, varint};

    fn items(stream: &[u8], piece: usize) -> Result<Vec<Item>, ProtoError> {
        let (mut reader, mut items) = (ProtoStream::new(), Vec::new());
        for piece in stream.chunks(piece) {
            reader.push(piece, |item| items.push(item))?;
        }
        reader.finish().map(|()| items)
    }

    fn entry(key: &str, value: &[u8]) -> Vec<u8> {
        bytes(1, &[bytes(1, key.as_bytes()), value.to_vec()].concat())
    }

    fn stream() -> Vec<u8> {
        let status = [
            entry("test", &bytes(2, b"t")),
            entry("current", &sint(3, 2)),
            entry("id", &[]),
            entry("time", &double(5, 1.5)),
            entry("nested", &bytes(7, &entry("x", &bytes(2, b"y")))),
            entry("left", &sint(6, -7)),
        ];
        let status =
            [bytes(4, &status.concat()), sint(3, -2), bytes(5, b"logcat"), bytes(99, b"later")].concat();
        let session = [sint(3, -1), bytes(4, &entry("stream", &bytes(2, b"\nOK (1 test)\n")))].concat();
        [bytes(1, &status), bytes(2, &session)].concat()
    }

    fn bundle(pairs: &[(&str, &str)]) -> Bundle {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_kind_of_value_is_read_whatever_the_pieces() {
        let values = bundle(&[("test", "t"), ("current", "2"), ("id", ""), ("time", "1.5"), ("left", "-7")]);
        let want = [
            Item::Status { code: Some(-2), values },
            Item::Finished { code: Some(-1), values: bundle(&[("stream", "\nOK (1 test)\n")]) },
        ];
        for piece in [1, 3, 1000] {
            assert_eq!(items(&stream(), piece).unwrap(), want);
        }
    }

    #[test]
    fn zeros_that_are_not_written_are_zeros() {
        assert_eq!(
            items(&[bytes(1, &[]), bytes(2, &[])].concat(), 9).unwrap(),
            [
                Item::Status { code: Some(0), values: Bundle::new() },
                Item::Finished { code: Some(0), values: Bundle::new() }
            ]
        );
    }

    #[test]
    fn an_abort_says_why() {
        let aborted = |why: &[u8]| bytes(2, &[varint(1, 1), bytes(2, why)].concat());
        let read = |why: &[u8]| items(&aborted(why), 99).unwrap().remove(0);
        assert_eq!(read(b"INSTRUMENTATION_FAILED: a.test/R"), Item::Failed("a.test/R".to_owned()));
        assert_eq!(
            read(b"INSTRUMENTATION_ABORTED: System has crashed."),
            Item::Aborted("INSTRUMENTATION_ABORTED: System has crashed.".to_owned())
        );
    }

    #[test]
    fn a_stream_that_stops_within_a_message_is_told_with_its_place() {
        let whole = stream();
        let first = bytes(1, &[]).len();
        for cut in 1..whole.len() {
            match items(&whole[..cut], 5) {
                Ok(items) => assert_eq!(items.len(), 1, "only between messages: {cut}"),
                Err(error) => assert!(error.to_string().contains("ends within this message"), "{error}"),
            }
        }
        assert_eq!(first, 2);
    }

    #[test]
    fn text_and_garbage_are_refused_at_their_place_and_nothing_waits_for_ever() {
        let error = items(b"\x0a\x00Error: unknown option -m\n", 1).unwrap_err();
        assert!(error.offset >= 2, "{error}");
        // A length that never comes.
        let mut reader = ProtoStream::new();
        let endless = [&[0x0a, 0xff, 0xff, 0xff, 0x7f][..], &vec![0; LARGEST_BUNDLE + 9]].concat();
        assert!(reader.push(&endless, |_| {}).is_err());
    }
}
