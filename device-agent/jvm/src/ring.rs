//! A queue of fixed size, from many threads that must not wait to one that writes (after D. Vyukov's bounded queue). A
//! thread takes a place by moving the tail. The count of the place says whose turn it is.

use std::sync::atomic::{AtomicU64, Ordering};

const PLACES: usize = 1 << 16;
/// Words per event.
pub(crate) const WORDS: usize = 4;

/// The queue.
pub(crate) struct Ring {
    places: Box<[Place]>,
    head: AtomicU64,
    tail: AtomicU64,
}

/// `turn` is the number of the event that may be written here, or that number plus one if the event may be read.
struct Place {
    turn: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Ring {
    pub(crate) fn new() -> Self {
        let place = |turn| Place { turn: AtomicU64::new(turn), words: Default::default() };
        Self {
            places: (0..PLACES as u64).map(place).collect(),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
        }
    }

    fn place(&self, number: u64) -> Option<&Place> {
        self.places.get(usize::try_from(number).unwrap_or(0) % PLACES)
    }

    /// Puts an event in; returns its number. `None`: the queue is full.
    pub(crate) fn push(&self, event: [u64; WORDS]) -> Option<u64> {
        let mut number = self.tail.load(Ordering::Relaxed);
        loop {
            let place = self.place(number)?;
            let turn = place.turn.load(Ordering::Acquire);
            if turn < number {
                return None;
            }
            if turn > number {
                number = self.tail.load(Ordering::Relaxed);
                continue;
            }
            match self.tail.compare_exchange_weak(
                number,
                number.wrapping_add(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    for (word, value) in place.words.iter().zip(event) {
                        word.store(value, Ordering::Relaxed);
                    }
                    place.turn.store(number.wrapping_add(1), Ordering::Release);
                    return Some(number);
                }
                Err(now) => number = now,
            }
        }
    }

    /// Takes the oldest event out. Only the thread that holds the session may call this.
    pub(crate) fn pop(&self) -> Option<[u64; WORDS]> {
        let number = self.head.load(Ordering::Relaxed);
        let place = self.place(number)?;
        if place.turn.load(Ordering::Acquire) != number.wrapping_add(1) {
            return None;
        }
        let mut event = [0; WORDS];
        for (value, word) in event.iter_mut().zip(&place.words) {
            *value = word.load(Ordering::Relaxed);
        }
        place.turn.store(number.wrapping_add(PLACES as u64), Ordering::Release);
        self.head.store(number.wrapping_add(1), Ordering::Relaxed);
        Some(event)
    }
}
