//! Waits, with a limit, for the harness and for other threads.
//!
//! Data flow: a boundary was written, and [`Waiting::of`] announces it under the session's lock, if it waits →
//! [`Waiting::wait`] waits without the lock, and notes whether the harness answered.

use core::time::Duration;

use memgate_ffi::process;
use memgate_wire::handshake::Answer;
use memgate_wire::options::{Detail, Options};
use memgate_wire::reply::Reply;
use memgate_wire::{BoundaryKind, ProcessRole};

use super::SESSION;
use crate::carrier::Meeting;
use crate::recording::TRACKER;
use crate::stream::Session;

const SETTLE_STEPS: u32 = 50;
/// After this many unanswered boundaries in a row, stop waiting.
const MOST_SILENCES: u8 = 3;

/// A boundary that waits for the harness.
pub(super) struct Waiting {
    meeting: Meeting,
    kind: BoundaryKind,
    sequence: u32,
    limit: Duration,
    expected: bool,
}

impl Waiting {
    /// `None`: this boundary does not wait.
    pub(super) fn of(session: &mut Session, kind: BoundaryKind) -> Option<Self> {
        if session.role == ProcessRole::ForkChild || session.options.wait.is_zero() {
            return None;
        }
        let passes = match kind {
            BoundaryKind::IterationStart => true,
            BoundaryKind::TestStart => session.begins_as_seen(),
            BoundaryKind::TestEnd => session.ends_unseen(),
            BoundaryKind::ProcessStart | BoundaryKind::ProcessEnd | BoundaryKind::Mark => false,
        };
        if passes {
            return None;
        }
        // The boundary is not announced either, because a harness that looks later would see later changes.
        if session.silences >= MOST_SILENCES && !is_repeating(&session.options) {
            return None;
        }
        let first = kind == BoundaryKind::ProcessStart && session.options.harness;
        let meeting = session.carrier.meeting();
        meeting.announce(session.sequence);
        let limit = session.options.wait;
        Some(Self { meeting, kind, sequence: session.sequence, limit, expected: first })
    }

    /// The answer; `None`: there was none.
    pub(super) fn wait(&self) -> Option<Reply> {
        let answer = self.meeting.wait(self.sequence, self.limit, self.expected);
        if let Some(session) = SESSION.lock().as_mut() {
            match answer {
                Answer::Orders(_) => session.silences = 0,
                Answer::Silence => session.was_not_answered(),
                Answer::Nobody => {}
            }
            // A thread that a test began and joined may still exist at its end.
            let settled = matches!(answer, Answer::Orders(_))
                && matches!(self.kind, BoundaryKind::TestStart | BoundaryKind::TestEnd)
                && session.handles_came != self.sequence;
            session.looks.happened(self.sequence, settled);
        }
        match answer {
            Answer::Orders(reply) => Some(reply),
            Answer::Silence | Answer::Nobody => None,
        }
    }
}

/// Is this a confirming run without a harness that answers or watches? Such a run would repeat its test forever.
pub(super) fn is_abandoned() -> bool {
    SESSION.lock().as_ref().is_some_and(|session| {
        is_repeating(&session.options) && (session.silences == 0 || session.silences >= MOST_SILENCES)
    })
}

/// Is this a confirming run? It repeats a test until the harness stops it.
#[must_use]
pub fn is_repeating(options: &Options) -> bool {
    options.detail == Detail::Growth && options.harness
}

/// Waits, for a limited time, until other threads have stopped freeing and allocating.
pub(super) fn wait_until_quiet() {
    let (mut last, mut quiet) = (TRACKER.totals(), 0_u32);
    for _ in 0..SETTLE_STEPS {
        // No event shows that a background thread is done. Only unchanged counters show it.
        process::pause(Duration::from_millis(1));
        let now = TRACKER.totals();
        quiet = if now == last { quiet.saturating_add(1) } else { 0 };
        last = now;
        if quiet == 5 {
            return;
        }
    }
}
