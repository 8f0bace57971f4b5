//! Trimming a heap dump: the output equals the input except for the contents of primitive arrays, which an
//! independent reader locates. Both readers agree on whether a dump is whole, and no length in it causes a
//! large allocation.

use std::io::{self, Read, Write};
use std::ops::Range;

use memgate_hprof::{TrimError, trim};

/// Maximum bytes that one read or write may ask for.
const AT_ONCE: usize = 1 << 16;
const TIMES: [u8; 8] = [0, 0, 1, 2, 3, 4, 5, 6];

/// Returns at most this many bytes at a time.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        assert!(to.len() <= AT_ONCE, "{} bytes are asked for at a time", to.len());
        let size = to.len().min(self.1);
        self.0.read(&mut to[..size])
    }
}

/// Accepts at most this many bytes.
struct Bounded(Vec<u8>, usize);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert!(
            bytes.len() <= AT_ONCE && self.0.len() + bytes.len() <= self.1,
            "more is written than was read"
        );
        self.0.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<usize> {
    let digits = bytes.get(at..at.checked_add(length)?)?;
    Some(digits.iter().fold(0, |number, digit| number << 8 | usize::from(*digit)))
}

fn value_bytes(kind: usize, id: usize) -> Option<usize> {
    match kind {
        2 => Some(id),
        4 | 8 => Some(1),
        5 | 9 => Some(2),
        6 | 10 => Some(4),
        7 | 11 => Some(8),
        _ => None,
    }
}

/// End of the object or root at `at`, and the range of the contents if it is a primitive array.
fn object(heap: &[u8], at: usize, id: usize) -> Option<(usize, Range<usize>)> {
    let body = at + 1;
    let mut contents = 0..0;
    let end = match heap.get(at)? {
        0x01 => body + 2 * id,
        0x02 | 0x03 | 0x08 | 0x8e => body + id + 8,
        0x04 | 0x06 => body + id + 4,
        0x05 | 0x07 | 0x89 | 0x8a | 0x8b | 0x8c | 0x8d | 0x90 | 0xff => body + id,
        0x20 => class(heap, body + 7 * id + 8, id)?,
        0x21 => {
            let length = body + 2 * id + 4;
            length + 4 + number(heap, length, 4)?
        }
        0x22 => {
            let length = body + id + 4;
            length + 4 + id + number(heap, length, 4)? * id
        }
        0x23 => {
            let length = body + id + 4;
            let bytes = number(heap, length, 4)? * value_bytes(number(heap, length + 4, 1)?, id)?;
            contents = length + 5..length + 5 + bytes;
            contents.end
        }
        0xc3 => body + id + 9,
        0xfe => body + 4 + id,
        _ => return None,
    };
    (end <= heap.len()).then_some((end, contents))
}

/// End of the constants, static fields and fields.
fn class(heap: &[u8], mut at: usize, id: usize) -> Option<usize> {
    for head in [2, id] {
        let count = number(heap, at, 2)?;
        at += 2;
        for _ in 0..count {
            at += head + 1 + value_bytes(number(heap, at + head, 1)?, id)?;
        }
    }
    Some(at + 2 + number(heap, at, 2)? * (id + 1))
}

/// The contents of all primitive arrays; `None` if the dump is not whole.
fn contents(dump: &[u8]) -> Option<Vec<Range<usize>>> {
    let title = dump.iter().take(64).position(|byte| *byte == 0)?;
    let id = number(dump, title + 1, 4).filter(|id| [4, 8].contains(id))?;
    let (mut found, mut last, mut at) = (Vec::new(), 0, title + 13);
    if !dump.starts_with(b"JAVA PROFILE 1.0.") || at > dump.len() {
        return None;
    }
    while at < dump.len() {
        last = dump[at];
        let body = at + 9;
        at = body.checked_add(number(dump, at + 5, 4)?)?;
        let heap = dump.get(..at)?;
        let mut next = if [0x0c, 0x1c].contains(&last) { body } else { at };
        while next < at {
            let (end, contents) = object(heap, next, id)?;
            found.push(contents);
            next = end;
        }
    }
    [0x0c, 0x2c].contains(&last).then_some(found)
}

/// Builds a dump from the input: each record ends where the bytes end, and a heap before its first invalid
/// object.
fn repaired(how: u8, mut records: &[u8]) -> Vec<u8> {
    let id = if how & 2 == 0 { 4 } else { 8 };
    let title = format!("JAVA PROFILE 1.0.{}\0", how >> 2 & 3);
    let mut dump = [title.as_bytes(), &[0, 0, 0, id], &TIMES].concat();
    while let Some((head, rest)) = records.split_first_chunk::<9>() {
        let length = number(head, 5, 4).unwrap_or(0).min(rest.len());
        let (mut body, behind) = rest.split_at(length);
        if [0x0c, 0x1c].contains(&head[0]) {
            let mut end = 0;
            while let Some((next, _)) = object(body, end, usize::from(id)) {
                end = next;
            }
            body = &body[..end];
        }
        dump.extend(&head[..5]);
        dump.extend(u32::try_from(body.len()).unwrap_or(0).to_be_bytes());
        dump.extend(body);
        records = behind;
    }
    dump.extend([0x2c, 0, 0, 0, 0, 0, 0, 0, 0]);
    dump
}

fn trimmed(dump: &[u8], piece: usize) -> (Vec<u8>, Result<u64, TrimError>) {
    let mut to = Bounded(Vec::new(), dump.len());
    let result = trim(Pieces(dump, piece), &mut to);
    (to.0, result)
}

fn check(dump: &[u8], piece: usize) {
    let (told, result) = trimmed(dump, piece);
    let Some(contents) = contents(dump) else {
        let why = result.expect_err("it is no whole dump");
        assert!(!matches!(why, TrimError::Io(_)) && !why.to_string().is_empty(), "{why}");
        assert!(told.iter().zip(dump).all(|(told, came)| told == came || *told == 0));
        return;
    };
    let mut want = dump.to_vec();
    let bytes: usize = contents.iter().map(Range::len).sum();
    contents.into_iter().for_each(|range| want[range].fill(0));
    assert_eq!(result.expect("a whole dump"), bytes as u64);
    assert_eq!(told, want);
    let (again, result) = trimmed(&told, usize::MAX);
    assert_eq!((again, result.expect("still a whole dump")), (told, bytes as u64), "trimmed twice");
}

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    let Some((&[how, piece], dump)) = data.split_first_chunk::<2>() else { return };
    let piece = usize::from(piece) * 16 + 1;
    if how & 1 == 0 {
        check(dump, piece);
    } else {
        let dump = repaired(how, dump);
        assert!(contents(&dump).is_some());
        check(&dump, piece);
    }
}
