//! The harness's answer to a boundary, and the classes it may name.
//!
//! Data flow: the harness decides a [`Reply`] → the words of the control page
//! ([`crate::handshake::acknowledge`]) or an [`Order`](crate::Order) frame → the thread that waits
//! at the boundary reads it ([`crate::handshake::meet`]).
//!
//! The list of classes has a word before it, `tag`: its boundary and its length. A writer of a new list clears the tag
//! first. A reader checks the tag before and after reading, so a list that was replaced in between does not count.

use core::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::spool::{offset, order};
use crate::words::Words;

/// Maximum number of classes in one answer.
pub const MOST_CLASSES: usize = 48;
/// Bytes of a word.
const WORD: usize = 4;
/// There is a list, maybe an empty one. The lower bits are its length, the upper bits its boundary.
const IS_LIST: u32 = 0x80;
const LENGTH: u32 = IS_LIST - 1;
const LENGTH_BITS: u32 = 8;

/// The answer to a boundary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reply {
    /// Bits of [`order`].
    pub bits: u32,
    /// The classes for [`order::EXPLAIN`]; `None`: the writer is older than version 3 of the stream.
    pub classes: Option<ClassNumbers>,
}

impl Reply {
    /// A reply with these orders and no classes.
    #[must_use]
    pub const fn of(bits: u32) -> Self {
        Self { bits, classes: None }
    }

    /// The order to find out who holds the instances of these classes.
    #[must_use]
    pub const fn explain(classes: ClassNumbers) -> Self {
        Self { bits: order::EXPLAIN, classes: Some(classes) }
    }

    /// Is this order among them?
    #[must_use]
    pub const fn has(&self, order: u32) -> bool {
        self.bits & order != 0
    }
}

/// Classes by their numbers in a stream ([`crate::java::ClassName::id`]), without a heap: a guest
/// that reads them may be out of memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClassNumbers {
    length: usize,
    numbers: [u32; MOST_CLASSES],
}

impl Default for ClassNumbers {
    fn default() -> Self {
        Self::NONE
    }
}

impl ClassNumbers {
    const NONE: Self = Self { length: 0, numbers: [0; MOST_CLASSES] };

    /// The numbers, in the order they were named.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        self.numbers.get(..self.length).unwrap_or_default()
    }

    /// Adds a number. Returns false if there is no room for it.
    fn push(&mut self, number: u32) -> bool {
        let Some(room) = self.numbers.get_mut(self.length) else { return false };
        *room = number;
        self.length = self.length.saturating_add(1);
        true
    }

    /// Writes the numbers for boundary `sequence`.
    pub(crate) fn store<W: Words>(&self, words: &W, sequence: u32) -> Result<(), W::Error> {
        words.store(offset::CLASSES, 0)?;
        for (at, number) in places().zip(self.as_slice()) {
            words.store(at, *number)?;
        }
        let length = u32::try_from(self.length).unwrap_or(0);
        words.store(offset::CLASSES, sequence << LENGTH_BITS | IS_LIST | length)
    }

    /// Reads the numbers for boundary `sequence`; `None`: there are none for it.
    pub(crate) fn load<W: Words>(words: &W, sequence: u32) -> Result<Option<Self>, W::Error> {
        let tag = words.load(offset::CLASSES)?;
        if tag & !LENGTH != sequence << LENGTH_BITS | IS_LIST {
            return Ok(None);
        }
        let length = usize::try_from(tag & LENGTH).unwrap_or(usize::MAX);
        let mut classes = Self::NONE;
        for at in places().take(length) {
            classes.push(words.load(at)?);
        }
        let is_whole = words.load(offset::CLASSES)? == tag && classes.length == length;
        Ok(is_whole.then_some(classes))
    }
}

/// Offsets of the numbers, after the tag.
fn places() -> impl Iterator<Item = usize> {
    (offset::CLASSES..).step_by(WORD).skip(1).take(MOST_CLASSES)
}

/// The first [`MOST_CLASSES`] of the numbers.
impl FromIterator<u32> for ClassNumbers {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut classes = Self::NONE;
        for number in numbers.into_iter().take(MOST_CLASSES) {
            classes.push(number);
        }
        classes
    }
}

impl fmt::Debug for ClassNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl Serialize for ClassNumbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.as_slice())
    }
}

impl<'de> Deserialize<'de> for ClassNumbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Numbers;
        impl<'de> Visitor<'de> for Numbers {
            type Value = ClassNumbers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {MOST_CLASSES} numbers of classes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut told: A) -> Result<ClassNumbers, A::Error> {
                let mut classes = ClassNumbers::NONE;
                while let Some(number) = told.next_element()? {
                    if !classes.push(number) {
                        return Err(A::Error::invalid_length(MOST_CLASSES.saturating_add(1), &self));
                    }
                }
                Ok(classes)
            }
        }
        deserializer.deserialize_seq(Numbers)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use core::cell::Cell;
    use core::convert::Infallible;

    use super::*;
    use crate::spool::CONTROL_BYTES;

    /// A page of one thread.
    struct Page([Cell<u32>; CONTROL_BYTES / WORD]);

    impl Words for Page {
        type Error = Infallible;

        fn load(&self, offset: usize) -> Result<u32, Infallible> {
            Ok(self.0[offset / WORD].get())
        }

        fn store(&self, offset: usize, value: u32) -> Result<(), Infallible> {
            self.0[offset / WORD].set(value);
            Ok(())
        }

        fn wake(&self, _: usize) -> Result<(), Infallible> {
            Ok(())
        }

        fn barrier(&self) {}
    }

    fn page() -> Page {
        Page([const { Cell::new(0) }; CONTROL_BYTES / WORD])
    }

    #[test]
    fn classes_come_back_for_their_boundary_alone() {
        for named in [vec![], vec![7], (1..=48).collect(), vec![u32::MAX; 48]] {
            let (page, classes) = (page(), named.iter().copied().collect::<ClassNumbers>());
            let Ok(()) = classes.store(&page, 0x0300_0005);
            let Ok(read) = ClassNumbers::load(&page, 0x0300_0005);
            assert_eq!(read.expect("a list").as_slice(), named);
            assert_eq!(ClassNumbers::load(&page, 6), Ok(None));
        }
        assert_eq!(ClassNumbers::load(&page(), 0), Ok(None), "nobody wrote one");
        assert_eq!((0..100).collect::<ClassNumbers>().as_slice().len(), MOST_CLASSES);
    }

    #[test]
    fn the_list_takes_the_words_from_128_to_324() {
        assert_eq!((offset::CLASSES, places().last()), (128, Some(324 - WORD)));
    }

    /// A harness that writes arbitrary values.
    #[test]
    fn a_length_that_no_list_has_is_none() {
        let page = page();
        let Ok(()) = page.store(offset::CLASSES, 1 << LENGTH_BITS | IS_LIST | 49);
        assert_eq!(ClassNumbers::load(&page, 1), Ok(None));
    }
}
