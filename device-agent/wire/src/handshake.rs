//! The handshake at a boundary, both halves: the meaning of the control page's words for their readers and writers.
//!
//! Data flow: a thread of the guest announces a boundary ([`announce`]) and waits, with a limit, for its answer
//! ([`meet`]). The harness waits for the boundary's word to change; it attaches ([`attach`]), answers ([`acknowledge`])
//! and detaches ([`detach`]). The caller provides words, futexes and the clock: a mapped page in the agent, reads and
//! writes of a file in the harness, a model checker in the proofs.
//!
//! - Boundaries are announced in the order of their numbers (the agent holds its session's lock).
//! - Threads may wait for different boundaries at once. An answer to a later boundary also ends the wait for an earlier
//!   one, which the harness then never sees. Orders carry the number of their boundary, so that no other thread takes
//!   them.
//! - No thread waits longer than its limit, whatever happens to the other side.

use core::time::Duration;

use crate::reply::{ClassNumbers, Reply};
use crate::spool::{offset, order};
pub use crate::words::Words;

const ORDER_BITS: u32 = 8;

/// The guest's side: words, and time.
pub trait Waiting: Words {
    /// Sleeps while the word holds `seen`, at most for `limit`; may also return earlier without a reason.
    fn wait(&self, offset: usize, seen: u32, limit: Duration);
    /// Time on a clock that never goes back.
    fn now(&self) -> Duration;
}

/// How a meeting ended.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once, never stored")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The harness answered.
    Orders(Reply),
    /// It did not answer within the limit.
    Silence,
    /// There is no harness.
    Nobody,
}

/// Tells the harness that boundary `sequence` is reached.
///
/// # Errors
/// The page is gone.
pub fn announce<W: Words>(words: &W, sequence: u32) -> Result<(), W::Error> {
    words.store(offset::BOUNDARY, sequence)?;
    words.wake(offset::BOUNDARY)
}

/// Waits for the answer to boundary `sequence`, at most `limit`. With `expected`, also waits if no harness has
/// attached yet.
///
/// # Errors
/// The page is gone.
pub fn meet<W: Waiting>(
    words: &W,
    sequence: u32,
    limit: Duration,
    expected: bool,
) -> Result<Answer, W::Error> {
    // A harness that detaches first clears its word, then looks for a boundary. So one of the two sides always sees the
    // other.
    words.barrier();
    if !expected && words.load(offset::HARNESS)? == 0 {
        return Ok(Answer::Nobody);
    }
    let began = words.now();
    loop {
        let seen = words.load(offset::ACKNOWLEDGED)?;
        if has_reached(seen, sequence) {
            return reply_for(words, sequence).map(Answer::Orders);
        }
        let left = limit.saturating_sub(words.now().saturating_sub(began));
        if left.is_zero() {
            return Ok(Answer::Silence);
        }
        words.wait(offset::ACKNOWLEDGED, seen, left);
    }
}

/// Answers boundary `sequence`, and every earlier one that was not answered.
///
/// # Errors
/// The page is gone.
pub fn acknowledge<W: Words>(words: &W, sequence: u32, reply: &Reply) -> Result<(), W::Error> {
    if let Some(classes) = &reply.classes {
        classes.store(words, sequence)?;
    }
    words.store(offset::ORDERS, sequence << ORDER_BITS | reply.bits & ((1 << ORDER_BITS) - 1))?;
    words.store(offset::ACKNOWLEDGED, sequence)?;
    words.wake(offset::ACKNOWLEDGED)
}

/// The harness attaches: from now on the guest waits at boundaries.
///
/// # Errors
/// The page is gone.
pub fn attach<W: Words>(words: &W) -> Result<(), W::Error> {
    words.store(offset::HARNESS, 1)?;
    words.wake(offset::HARNESS)
}

/// The harness detaches: waiting threads go on, and later ones do not wait.
///
/// # Errors
/// The page is gone, and so is every thread that could wait.
pub fn detach<W: Words>(words: &W) -> Result<(), W::Error> {
    words.store(offset::HARNESS, 0)?;
    words.barrier();
    acknowledge(words, words.load(offset::BOUNDARY)?, &Reply::default())?;
    words.wake(offset::HARNESS)
}

/// Is `seen` the number of this boundary or of a later one? Numbers may wrap around.
const fn has_reached(seen: u32, sequence: u32) -> bool {
    seen.wrapping_sub(sequence) < 1 << 31
}

/// The reply for a thread that waits for this boundary.
fn reply_for<W: Words>(words: &W, sequence: u32) -> Result<Reply, W::Error> {
    let mut reply = Reply::of(bits_for(sequence, words.load(offset::ORDERS)?));
    if reply.has(order::EXPLAIN) {
        reply.classes = ClassNumbers::load(words, sequence)?;
    }
    Ok(reply)
}

/// The orders, if they are for this boundary.
const fn bits_for(sequence: u32, orders: u32) -> u32 {
    if orders >> ORDER_BITS == sequence << ORDER_BITS >> ORDER_BITS {
        orders & ((1 << ORDER_BITS) - 1)
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_for_its_boundary_and_those_before() {
        for (seen, sequence, reached) in [
            (0, 1, false),
            (1, 1, true),
            (7, 5, true),
            (5, 7, false),
            (2, u32::MAX, true),
            (u32::MAX, 2, false),
        ] {
            assert_eq!(has_reached(seen, sequence), reached, "{seen} {sequence}");
        }
    }

    #[test]
    fn orders_for_another_boundary_are_none() {
        let word = 0x0300_0005_u32 << ORDER_BITS | 2;
        assert_eq!([5, 0x0300_0005, 6, 4].map(|sequence| bits_for(sequence, word)), [2, 2, 0, 0]);
    }
}
