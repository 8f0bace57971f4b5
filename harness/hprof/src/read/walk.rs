//! The layout of heap dumps: the one walk over their records, for all readers and copiers.
//!
//! Data flow: a [`Source`] → a window of its bytes, which slides forward and never back → records, sub-records of heaps
//! → a [`Visit`]or. No memory is allocated for announced bytes before they arrive. Oddities are reported to the
//! visitor, which ends the walk or lets it continue; after an invalid part of a heap it continues at the next record.
//!
//! ```text
//! file    title NUL, u4 id size, u8 milliseconds, record*
//! record  u1 tag, u4 microseconds, u4 length, body
//! heap    (0x0c, 0x1c) sub-records: u1 tag, body; no length: an unknown one ends the heap
//! ```
//! Everything is big-endian. The tables are those of `hprof_b_spec.h` (JDK), and of ART's `hprof.cc` for Android's
//! additions.

use std::io::{self, Read};

use super::odd::Odd;
use super::visit::{ClassDump, Field, Header, Static, Visit};

/// `JAVA PROFILE 1.0.3` and its end.
const LONGEST_TITLE: usize = 64;
const LONGEST_TEXT: u64 = 1 << 16;
/// Maximum bytes of an instance; the deepest hierarchy of the largest classes has fewer.
const LONGEST_INSTANCE: u32 = 64 << 20;
/// Fixed parts of sub-records are shorter.
const HEAD: usize = 96;
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
/// Bytes between two progress reports.
const PROGRESS: u64 = 4 << 20;

/// Type of a reference.
pub(crate) const REFERENCE: u8 = 2;

const STRING: u8 = 0x01;
const LOAD_CLASS: u8 = 0x02;
const FRAME: u8 = 0x04;
const TRACE: u8 = 0x05;
/// One heap in one record.
pub(crate) const HEAP_DUMP: u8 = 0x0c;
/// A part of a heap.
const HEAP_DUMP_SEGMENT: u8 = 0x1c;
/// The last record.
pub(crate) const HEAP_DUMP_END: u8 = 0x2c;

/// A source of bytes.
pub trait Source {
    /// As [`Read::read`].
    ///
    /// # Errors
    /// As [`Read::read`].
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize>;

    /// Skips bytes; returns fewer only at the end of the source. `scratch` may be overwritten.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn skip(&mut self, bytes: u64, scratch: &mut [u8]) -> io::Result<u64> {
        let mut left = bytes;
        while left > 0 {
            let size = usize::try_from(left).unwrap_or(usize::MAX).min(scratch.len());
            match self.read(scratch.get_mut(..size).unwrap_or_default()) {
                Ok(0) => break,
                Ok(got) => left = left.saturating_sub(got as u64),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        Ok(bytes.saturating_sub(left))
    }

    /// Its total number of bytes, if known.
    fn bytes(&self) -> Option<u64> {
        None
    }
}

/// A source that can only be read forwards.
#[derive(Debug)]
pub struct Stream<R>(pub R);

impl<R: Read> Source for Stream<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.0.read(to)
    }
}

/// How a walk ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Walked {
    /// Bytes that were seen.
    pub bytes: u64,
    /// The end of the last complete record or sub-record.
    pub whole: u64,
}

/// Size of a value of type `kind`; `None`: there is no such type.
#[must_use]
#[inline]
pub const fn value_bytes(kind: u8, id_bytes: usize) -> Option<usize> {
    match kind {
        REFERENCE => Some(id_bytes),
        4 | 8 => Some(1),
        5 | 9 => Some(2),
        6 | 10 => Some(4),
        7 | 11 => Some(8),
        _ => None,
    }
}

/// Walks over a dump, `window` bytes at a time, and no further than byte `limit`.
///
/// # Errors
/// The visitor's error, or the source cannot be read.
pub fn walk<S: Source, V: Visit>(
    source: S,
    window: usize,
    limit: u64,
    visit: &mut V,
) -> Result<Walked, V::Error> {
    let mut walk = Walk {
        source,
        visit,
        buffer: vec![0; window.max(HEAD)],
        at: 0,
        length: 0,
        given: 0,
        base: 0,
        limit,
        told: 0,
        whole: 0,
        missing: 0,
        id_bytes: 4,
        class: ClassDump::default(),
        frames: Vec::new(),
    };
    walk.file()?;
    walk.give()?;
    Ok(Walked { bytes: walk.position(), whole: walk.whole })
}

/// Why a part was not read to its end.
enum Stop<E> {
    /// The bytes ended.
    Cut,
    /// An unknown sub-record or type, at this byte.
    Unknown(u8, u64),
    Error(E),
}

impl<E: From<io::Error>> From<io::Error> for Stop<E> {
    fn from(why: io::Error) -> Self {
        Self::Error(why.into())
    }
}

struct Walk<'v, S, V> {
    source: S,
    visit: &'v mut V,
    buffer: Vec<u8>,
    /// The next byte in the buffer, and the end of its contents.
    at: usize,
    length: usize,
    /// Everything before this position was copied to the visitor.
    given: usize,
    /// The position of the buffer in the file.
    base: u64,
    limit: u64,
    told: u64,
    whole: u64,
    /// Bytes that are included in this heap's length but are missing.
    missing: u64,
    id_bytes: usize,
    class: ClassDump,
    frames: Vec<u64>,
}

type Step<V> = Result<(), Stop<<V as Visit>::Error>>;

impl<S: Source, V: Visit> Walk<'_, S, V> {
    fn file(&mut self) -> Result<(), V::Error> {
        self.header()?;
        let mut last = 0;
        loop {
            self.whole = self.position();
            if !self.ready(9)? {
                break;
            }
            if V::COPIES && self.leave_out_text()? {
                last = STRING;
                continue;
            }
            let tag = self.u1();
            self.take::<4>();
            let length = u64::from(self.u4());
            let at = self.whole;
            self.visit.record(tag, at);
            last = tag;
            let done = match tag {
                HEAP_DUMP | HEAP_DUMP_SEGMENT => self.heap(tag, length),
                _ => self.record(tag, length, at),
            };
            match done {
                Ok(()) => {}
                Err(Stop::Error(why)) => return Err(why),
                Err(Stop::Cut | Stop::Unknown(..)) => return self.visit.odd(Odd::Cut, self.position()),
            }
        }
        if self.left_in_window() > 0 {
            return self.visit.odd(Odd::Cut, self.whole);
        }
        if last != HEAP_DUMP_END && last != HEAP_DUMP {
            self.visit.odd(Odd::NoEnd, self.whole)?;
        }
        Ok(())
    }

    fn header(&mut self) -> Result<(), V::Error> {
        self.ready(LONGEST_TITLE.saturating_add(13))?;
        let seen = self.window(LONGEST_TITLE);
        let title = seen.iter().position(|byte| *byte == 0).and_then(|end| seen.get(..end));
        let Some(title) = title.filter(|title| title.starts_with(b"JAVA PROFILE 1.0.")) else {
            return Err(self.visit.not_a_dump());
        };
        let behind = title.len().saturating_add(1);
        let title = String::from_utf8_lossy(title).into_owned();
        if self.left_in_window() < behind.saturating_add(12) {
            return Err(self.visit.not_a_dump());
        }
        self.at = behind;
        self.id_bytes = usize::try_from(self.u4()).unwrap_or(0);
        if self.id_bytes != 4 && self.id_bytes != 8 {
            return Err(self.visit.not_a_dump());
        }
        let milliseconds = u64::from_be_bytes(self.take());
        self.visit.header(&Header { title, id_bytes: self.id_bytes, milliseconds });
        Ok(())
    }

    /// If the next record is an unwanted text, skips it without copying. Returns `false` for a wanted text, for another
    /// record, and for an incomplete one.
    fn leave_out_text(&mut self) -> Result<bool, V::Error> {
        let head = 9_usize.saturating_add(self.id_bytes);
        if self.window(1) != [STRING] || !self.ready(head)? {
            return Ok(false);
        }
        let (length, id) = self.window(head).split_at(9);
        let (length, id) = (number(length.get(5..).unwrap_or_default()), number(id));
        if length < self.id_bytes as u64 || self.visit.wants_text(id) {
            return Ok(false);
        }
        self.give()?;
        let mut left = length.saturating_add(9);
        while left > 0 {
            if !self.ready(1)? {
                self.visit.odd(Odd::Cut, self.position())?;
                break;
            }
            let here = self.left_in_window().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.at = self.at.saturating_add(here);
            self.given = self.at;
            left = left.saturating_sub(here as u64);
        }
        Ok(true)
    }

    /// A record other than a heap.
    fn record(&mut self, tag: u8, length: u64, at: u64) -> Step<V> {
        let id = self.id_bytes;
        match tag {
            STRING => {
                let text = length.min(LONGEST_TEXT);
                let here = usize::try_from(text).unwrap_or(0);
                if here < id {
                    return self.skip(length);
                }
                self.need(here)?;
                let name = self.id();
                if text < length {
                    self.visit.odd(Odd::LongText, at).map_err(Stop::Error)?;
                }
                let bytes = here.saturating_sub(id);
                self.visit.string(name, window(&self.buffer, self.at, bytes));
                self.skip(length.saturating_sub(id as u64))
            }
            LOAD_CLASS if length == (id as u64).saturating_mul(2).saturating_add(8) => {
                self.need(id.saturating_mul(2).saturating_add(8))?;
                let serial = self.u4();
                let class = self.id();
                self.take::<4>();
                let name = self.id();
                self.visit.load_class(serial, class, name);
                Ok(())
            }
            FRAME if length == (id as u64).saturating_mul(4).saturating_add(8) => {
                self.need(id.saturating_mul(4).saturating_add(8))?;
                let frame = self.id();
                let names = [self.id(), self.id(), self.id()];
                let (class, line) = (self.u4(), i32::from_be_bytes(self.take()));
                self.visit.frame(frame, names, class, line);
                Ok(())
            }
            TRACE if length >= 12 => self.trace(length),
            // The remaining tags belong to the agent of JDK 8.
            0x01..=0x07 | 0x0a..=0x0e | HEAP_DUMP_END => self.skip(length),
            _ => {
                self.visit.odd(Odd::UnknownRecord(tag), at).map_err(Stop::Error)?;
                self.skip(length)
            }
        }
    }

    fn trace(&mut self, length: u64) -> Step<V> {
        self.need(12)?;
        let (serial, thread, count) = (self.u4(), self.u4(), u64::from(self.u4()));
        let mut left = length.saturating_sub(12);
        self.frames.clear();
        let size = self.id_bytes as u64;
        for _ in 0..count {
            if left < size {
                break;
            }
            self.need(self.id_bytes)?;
            let frame = self.id();
            self.frames.push(frame);
            left = left.saturating_sub(size);
        }
        let frames = std::mem::take(&mut self.frames);
        self.visit.trace(serial, thread, &frames);
        self.frames = frames;
        self.skip(left)
    }

    /// The objects and roots of one record.
    fn heap(&mut self, tag: u8, length: u64) -> Step<V> {
        self.missing = 0;
        let start = self.position();
        let mut end = start.saturating_add(length);
        // The other passes use the limit that the first one found.
        let file = self.source.bytes().map(|bytes| bytes.min(self.limit));
        let left = file.map(|bytes| bytes.saturating_sub(start));
        if let (HEAP_DUMP, Some(left)) = (tag, left) {
            if length == 0 && left > 9 {
                self.visit.odd(Odd::NoLength, start).map_err(Stop::Error)?;
                end = start.saturating_add(left);
            } else if left.checked_sub(length).is_some_and(|more| more > 0 && more.is_multiple_of(1 << 32)) {
                self.visit.odd(Odd::Wrapped, start).map_err(Stop::Error)?;
                end = start.saturating_add(left);
            }
        }
        if !self.visit.heap(tag, start) {
            return self.skip(length);
        }
        while self.position().saturating_add(self.missing) < end {
            let at = self.position();
            match self.object(end) {
                Ok(()) => {}
                Err(Stop::Unknown(tag, place)) => {
                    self.visit.odd(Odd::UnknownObject(tag), place).map_err(Stop::Error)?;
                    return self.skip(end.saturating_sub(self.position()));
                }
                Err(other) => return Err(other),
            }
            let now = self.position();
            if now.saturating_add(self.missing) > end {
                self.visit.odd(Odd::Crosses, at).map_err(Stop::Error)?;
            }
            self.whole = now;
            if now.saturating_sub(self.told) >= PROGRESS {
                self.told = now;
                self.visit.progress(now);
            }
        }
        Ok(())
    }

    /// One sub-record of a heap that ends at `end`.
    #[inline]
    fn object(&mut self, end: u64) -> Step<V> {
        let at = self.position();
        // Most heads are complete in the window; at the end of the file fewer bytes may be enough.
        self.ready(HEAD).map_err(Stop::Error)?;
        self.need(1)?;
        let tag = self.u1();
        let id = self.id_bytes;
        match tag {
            0xff | 0x05 | 0x07 | 0x89..=0x8d | 0x90 => {
                self.need(id)?;
                let object = self.id();
                self.visit.root(tag, object, 0, 0);
            }
            0x01 => {
                self.need(id.saturating_mul(2))?;
                let object = self.id();
                self.id();
                self.visit.root(tag, object, 0, 0);
            }
            0x04 | 0x06 => {
                self.need(id.saturating_add(4))?;
                let object = self.id();
                let thread = self.u4();
                self.visit.root(tag, object, thread, 0);
            }
            0x02 | 0x03 | 0x08 | 0x8e => {
                self.need(id.saturating_add(8))?;
                let object = self.id();
                let (thread, frame) = (self.u4(), self.u4());
                self.visit.root(tag, object, thread, frame);
            }
            0xfe => {
                self.need(id.saturating_add(4))?;
                let heap = self.u4();
                let name = self.id();
                self.visit.heap_info(heap, name);
            }
            0x20 => self.class(at)?,
            0x21 => self.instance(at, end)?,
            0x22 => self.object_array(at, end)?,
            0x23 | 0xc3 => self.primitive_array(at, end, tag == 0x23)?,
            _ => return Err(Stop::Unknown(tag, at)),
        }
        Ok(())
    }

    fn class(&mut self, at: u64) -> Step<V> {
        let id = self.id_bytes;
        self.need(id.saturating_mul(7).saturating_add(10))?;
        let mut class = std::mem::take(&mut self.class);
        class.statics.clear();
        class.fields.clear();
        class.id = self.id();
        self.take::<4>();
        class.super_id = self.id();
        class.loader = self.id();
        class.signers = self.id();
        class.domain = self.id();
        for _reserved in 0..2 {
            self.id();
        }
        class.instance_bytes = self.u4();
        for _ in 0..self.u2() {
            self.need(3)?;
            self.u2();
            self.value(class.id, 0)?;
        }
        self.need(2)?;
        for _ in 0..self.u2() {
            self.need(id.saturating_add(1))?;
            let name = self.id();
            let (kind, value) = self.value(class.id, name)?;
            class.statics.push(Static { name, kind, value });
        }
        self.need(2)?;
        for _ in 0..self.u2() {
            self.need(id.saturating_add(1))?;
            let name = self.id();
            let (place, kind) = (self.position(), self.u1());
            if V::COPIES || value_bytes(kind, id).is_some() {
                class.fields.push(Field { name, kind });
            } else {
                return Err(Stop::Unknown(kind, place));
            }
        }
        class.record_bytes = self.position().saturating_sub(at).saturating_sub(1);
        self.visit.class(&class, at);
        self.class = class;
        Ok(())
    }

    /// The type and the value of a static field.
    fn value(&mut self, class: u64, name: u64) -> Result<(u8, u64), Stop<V::Error>> {
        self.need(1)?;
        let (place, kind) = (self.position(), self.u1());
        let bytes = value_bytes(kind, self.id_bytes).ok_or(Stop::Unknown(kind, place))?;
        self.need(bytes)?;
        let value = number(window(&self.buffer, self.at, bytes));
        if V::COPIES && kind != REFERENCE && self.visit.is_content(class, name) {
            self.content(bytes as u64)?;
        } else {
            self.at = self.at.saturating_add(bytes);
        }
        Ok((kind, value))
    }

    #[inline]
    fn instance(&mut self, at: u64, end: u64) -> Step<V> {
        self.need(self.id_bytes.saturating_mul(2).saturating_add(8))?;
        let object = self.id();
        self.take::<4>();
        let class = self.id();
        let length = self.u4();
        self.inside(u64::from(length), end, at)?;
        if V::COPIES {
            return self.fields(class, u64::from(length));
        }
        if V::FIELDS {
            let here = usize::try_from(length.min(LONGEST_INSTANCE)).unwrap_or(0);
            self.need(here)?;
            self.visit.instance(object, class, length, window(&self.buffer, self.at, here), at);
            return self.skip(u64::from(length));
        }
        self.skip(u64::from(length))?;
        self.visit.instance(object, class, length, &[], at);
        Ok(())
    }

    /// Copies the bytes of an instance.
    fn fields(&mut self, class: u64, length: u64) -> Step<V> {
        let mut done = 0;
        for part in self.visit.content_of(class).iter().flat_map(|parts| parts.iter()) {
            let (start, end) = (part.start.clamp(done, length), part.end.clamp(done, length));
            self.skip(start.saturating_sub(done))?;
            self.content(end.saturating_sub(start))?;
            done = end.max(start);
        }
        self.skip(length.saturating_sub(done))
    }

    #[inline]
    fn object_array(&mut self, at: u64, end: u64) -> Step<V> {
        let id = self.id_bytes;
        self.need(id.saturating_mul(2).saturating_add(8))?;
        let object = self.id();
        self.take::<4>();
        let count = self.u4();
        let class = self.id();
        let mut left = u64::from(count).saturating_mul(id as u64);
        self.inside(left, end, at)?;
        if !V::FIELDS {
            self.skip(left)?;
            self.visit.object_array(object, class, count, at);
            return Ok(());
        }
        self.visit.object_array(object, class, count, at);
        while left > 0 {
            self.need(id)?;
            let here = self.left_in_window();
            let here = here.saturating_sub(here.checked_rem(id).unwrap_or(0));
            let here = here.min(usize::try_from(left).unwrap_or(usize::MAX));
            self.visit.elements(window(&self.buffer, self.at, here));
            self.skip(here as u64)?;
            left = left.saturating_sub(here as u64);
        }
        self.visit.elements_end();
        Ok(())
    }

    #[inline]
    fn primitive_array(&mut self, at: u64, end: u64, has_values: bool) -> Step<V> {
        self.need(self.id_bytes.saturating_add(9))?;
        let object = self.id();
        self.take::<4>();
        let count = self.u4();
        let (place, kind) = (self.position(), self.u1());
        // An array without values is copied as it is, whatever its type.
        if !has_values && V::COPIES {
            return Ok(());
        }
        let bytes = value_bytes(kind, self.id_bytes).ok_or(Stop::Unknown(kind, place))?;
        let mut left = if has_values { u64::from(count).saturating_mul(bytes as u64) } else { 0 };
        self.inside(left, end, at)?;
        if V::CROPPED {
            return self.absent(left);
        }
        if V::COPIES {
            let wanted = self.visit.primitive_array(object, kind, count, at);
            return if wanted { self.skip(left) } else { self.content(left) };
        }
        if !V::FIELDS {
            self.skip(left)?;
            self.visit.primitive_array(object, kind, count, at);
            return Ok(());
        }
        if self.visit.primitive_array(object, kind, count, at) {
            while left > 0 {
                self.need(1)?;
                let here = self.left_in_window().min(usize::try_from(left).unwrap_or(usize::MAX));
                self.visit.values(window(&self.buffer, self.at, here));
                self.skip(here as u64)?;
                left = left.saturating_sub(here as u64);
            }
        }
        self.skip(left)
    }

    /// Values that are missing.
    fn absent(&mut self, bytes: u64) -> Step<V> {
        self.missing = self.missing.saturating_add(bytes);
        if V::COPIES {
            self.give().map_err(Stop::Error)?;
            let mut left = bytes;
            while left > 0 {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS.len());
                self.visit.copy(ZEROS.get(..here).unwrap_or_default(), true).map_err(Stop::Error)?;
                left = left.saturating_sub(here as u64);
            }
        }
        Ok(())
    }

    /// Does the announced length fit into its segment? Checked before any of its bytes are read or written.
    fn inside(&mut self, bytes: u64, end: u64, at: u64) -> Step<V> {
        if self.position().saturating_add(self.missing).saturating_add(bytes) > end && V::COPIES {
            self.visit.odd(Odd::Crosses, at).map_err(Stop::Error)?;
        }
        Ok(())
    }

    // ---- the window

    fn position(&self) -> u64 {
        self.base.saturating_add(self.at as u64)
    }

    const fn left_in_window(&self) -> usize {
        self.length.saturating_sub(self.at)
    }

    /// At most `bytes` from the window.
    fn window(&self, bytes: usize) -> &[u8] {
        window(&self.buffer, self.at, bytes.min(self.left_in_window()))
    }

    /// Are this many bytes in the window?
    #[inline]
    fn ready(&mut self, bytes: usize) -> Result<bool, V::Error> {
        if self.left_in_window() >= bytes { Ok(true) } else { self.fill(bytes) }
    }

    #[inline]
    fn need(&mut self, bytes: usize) -> Step<V> {
        if self.ready(bytes).map_err(Stop::Error)? { Ok(()) } else { Err(Stop::Cut) }
    }

    #[cold]
    fn fill(&mut self, bytes: usize) -> Result<bool, V::Error> {
        self.give()?;
        self.buffer.copy_within(self.at..self.length, 0);
        self.base = self.position();
        self.length = self.left_in_window();
        (self.at, self.given) = (0, 0);
        loop {
            // The announced length may be long and false, so the window grows with the bytes that arrive.
            if self.length == self.buffer.len() {
                let longer = self.buffer.len().saturating_mul(2).min(bytes.max(self.buffer.len()));
                self.buffer.resize(longer, 0);
            }
            let room = self.limit.saturating_sub(self.base.saturating_add(self.length as u64));
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            let to = self.buffer.get_mut(self.length..).unwrap_or_default();
            let to_length = to.len().min(room);
            if to_length == 0 {
                break;
            }
            match self.source.read(to.get_mut(..to_length).unwrap_or_default()) {
                Ok(0) => break,
                Ok(got) => self.length = self.length.saturating_add(got),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why.into()),
            }
            if self.length >= bytes {
                break;
            }
        }
        Ok(self.length >= bytes)
    }

    /// Gives the visitor all bytes that were passed since the last call.
    fn give(&mut self) -> Result<(), V::Error> {
        if V::COPIES && self.given < self.at {
            let passed = window(&self.buffer, self.given, self.at.saturating_sub(self.given));
            self.visit.copy(passed, false)?;
            self.given = self.at;
        }
        Ok(())
    }

    /// Passes content bytes to the visitor.
    fn content(&mut self, mut left: u64) -> Step<V> {
        self.give().map_err(Stop::Error)?;
        while left > 0 {
            self.need(1)?;
            let here = self.left_in_window().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.visit.copy(window(&self.buffer, self.at, here), true).map_err(Stop::Error)?;
            self.at = self.at.saturating_add(here);
            self.given = self.at;
            left = left.saturating_sub(here as u64);
        }
        Ok(())
    }

    #[inline]
    fn skip(&mut self, bytes: u64) -> Step<V> {
        let here = self.left_in_window();
        match usize::try_from(bytes) {
            Ok(bytes) if bytes <= here => {
                self.at = self.at.saturating_add(bytes);
                Ok(())
            }
            _ => self.skip_far(bytes),
        }
    }

    #[cold]
    fn skip_far(&mut self, bytes: u64) -> Step<V> {
        if V::COPIES {
            let mut left = bytes;
            while left > 0 {
                self.need(1)?;
                let here = self.left_in_window().min(usize::try_from(left).unwrap_or(usize::MAX));
                self.at = self.at.saturating_add(here);
                left = left.saturating_sub(here as u64);
            }
            return Ok(());
        }
        let left = bytes.saturating_sub(self.left_in_window() as u64);
        self.at = self.length;
        let room = self.limit.saturating_sub(self.position());
        let skipped = self.source.skip(left.min(room), &mut self.buffer)?;
        self.base = self.position().saturating_add(skipped);
        (self.at, self.length, self.given) = (0, 0, 0);
        if skipped < left { Err(Stop::Cut) } else { Ok(()) }
    }

    /// The next bytes; [`Walk::need`] has checked that they are available.
    #[inline]
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let bytes = self.buffer.get(self.at..).and_then(<[u8]>::first_chunk::<N>).copied();
        self.at = self.at.saturating_add(N);
        bytes.unwrap_or([0; N])
    }

    #[inline]
    fn u1(&mut self) -> u8 {
        u8::from_be_bytes(self.take())
    }

    #[inline]
    fn u2(&mut self) -> u16 {
        u16::from_be_bytes(self.take())
    }

    #[inline]
    fn u4(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    #[inline]
    fn id(&mut self) -> u64 {
        if self.id_bytes == 8 { u64::from_be_bytes(self.take()) } else { u64::from(self.u4()) }
    }
}

#[inline]
fn window(buffer: &[u8], at: usize, bytes: usize) -> &[u8] {
    buffer.get(at..at.saturating_add(bytes)).unwrap_or_default()
}

/// Up to 8 bytes as a number.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
