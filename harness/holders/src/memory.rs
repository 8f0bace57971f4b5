//! Memory, read in pieces.

use std::ops::Range;

/// The memory of a stopped process.
pub trait Memory {
    /// Reads from `at` up to the first unreadable byte; returns the number of bytes.
    fn read(&self, at: u64, into: &mut [u8]) -> usize;

    /// The first address of `range` that may hold something; its end if all of it was never written to.
    fn written(&self, range: Range<u64>) -> u64 {
        range.start
    }
}

/// Bytes of a word.
pub(crate) const WORD: u64 = 8;
const PIECE: usize = 64 << 10;

/// Reads neighbouring words together: for reading in the order of addresses.
pub(crate) struct Reader<'a> {
    memory: &'a dyn Memory,
    start: u64,
    bytes: Vec<u8>,
    length: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(memory: &'a dyn Memory) -> Self {
        Self { memory, start: 0, bytes: vec![0; PIECE], length: 0 }
    }

    /// The word at `at`; `None`: it cannot be read.
    pub(crate) fn word(&mut self, at: u64) -> Option<u64> {
        let mut bytes = self.known(at);
        if bytes.len() < 8 {
            self.fill(at);
            bytes = self.known(at);
        }
        bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// Calls `visit` with every aligned word of `range` and its address. Unreadable words are skipped, and so is memory
    /// that nobody wrote to: most of the stack of a thread. `go_on` is called for each piece. Returns `false` if it
    /// ended the walk.
    pub(crate) fn words(
        &mut self,
        range: Range<u64>,
        go_on: &mut dyn FnMut() -> bool,
        mut visit: impl FnMut(u64, u64),
    ) -> bool {
        let mut at = range.start.next_multiple_of(WORD);
        // Only after a piece of zeros, because it takes a system call.
        let mut was_empty = false;
        while at.saturating_add(WORD) <= range.end {
            if self.known(at).len() < 8 {
                if !go_on() {
                    return false;
                }
                let written = if was_empty { self.memory.written(at..range.end) } else { at };
                was_empty = true;
                if written > at {
                    at = written.next_multiple_of(WORD);
                    continue;
                }
                self.fill(at);
            }
            let here = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            let known = self.known(at);
            let known = known.get(..here.min(known.len())).unwrap_or_default();
            let (words, _) = known.as_chunks::<8>();
            if words.is_empty() {
                // Continue at the next page, which may be readable.
                at = (at | 0xfff) + 1;
                continue;
            }
            for word in words {
                let value = u64::from_le_bytes(*word);
                was_empty &= value == 0;
                if value > 0xffff {
                    visit(at, value);
                }
                at += WORD;
            }
        }
        true
    }

    fn known(&self, at: u64) -> &[u8] {
        let offset = at.checked_sub(self.start).and_then(|offset| usize::try_from(offset).ok());
        let known = self.bytes.get(..self.length).unwrap_or_default();
        offset.and_then(|offset| known.get(offset..)).unwrap_or_default()
    }

    fn fill(&mut self, at: u64) {
        self.start = at;
        self.length = self.memory.read(at, &mut self.bytes).min(self.bytes.len());
    }
}

/// `count` words from `at` on; `None`: not all of them can be read.
pub(crate) fn read_words(memory: &dyn Memory, at: u64, count: usize) -> Option<Vec<u64>> {
    let mut bytes = vec![0; count.checked_mul(8)?];
    if memory.read(at, &mut bytes) < bytes.len() {
        return None;
    }
    let (words, _) = bytes.as_chunks::<8>();
    Some(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A gigabyte of zeros with one word at its end. Only the first and the last page were written to.
    struct Stack {
        read: Cell<usize>,
    }

    const END: u64 = 1 << 30;

    impl Memory for Stack {
        fn read(&self, at: u64, into: &mut [u8]) -> usize {
            self.read.set(self.read.get() + into.len());
            for (byte, at) in into.iter_mut().zip(at..) {
                *byte = u8::from((END - WORD..END).contains(&at));
            }
            into.len()
        }

        fn written(&self, range: Range<u64>) -> u64 {
            range.start.max(END - 4096).min(range.end)
        }
    }

    #[test]
    fn memory_that_nobody_wrote_to_is_not_read() {
        let memory = Stack { read: Cell::new(0) };
        let mut found = Vec::new();
        let all = Reader::new(&memory).words(4096..END, &mut || true, |at, _| found.push(at));
        assert!(all && found == [END - WORD], "{found:x?}");
        assert_eq!(memory.read.get(), 2 * PIECE);
    }
}
