//! Measures code that a test framework runs around tests, as separate windows: set-up and tear-down of a suite, and
//! of the environments.
//!
//! Data flow: the listener reports where each part begins, and each part gets its own epochs → after the tear-down,
//! blocks that were born in the set-up and in the tear-down and are still alive are reported ([`memgate_wire::setup`]).
//! Blocks that a set-up keeps for its tests are freed by then. The screening pass gets only parts that left something.
//! A confirming run gets only the requested part, in each iteration.

use std::sync::Arc;

use memgate_wire::options::Detail;
use memgate_wire::setup::{BEHIND_ALL, BEHIND_SUITE, ENVIRONMENT, OF_ALL, OF_SUITE};

use crate::recording::TRACKER;
use crate::snapshot::{self, Born, Counts};

/// The tests around which the code runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Around {
    /// The tests of a suite.
    Suite,
    /// All tests.
    Environments,
}

/// The open set-ups: of the current suite, and of the environments.
#[derive(Debug, Default)]
pub(crate) struct SetUps {
    suite: Option<Parts>,
    environments: Option<Parts>,
}

/// One set-up and its tear-down.
#[derive(Debug, Default)]
struct Parts {
    /// Empty until a test has named it.
    suite: String,
    /// Epochs in which the set-up began and ended, and the tear-down begins; 0: not yet.
    began: u32,
    ended: u32,
    down: u32,
    /// Whether something that the set-up allocated was alive at its end.
    left: bool,
    /// Whether it failed or was skipped, so that leftovers are expected.
    failed: bool,
    /// The stacks of the blocks that the set-up left before the epochs restarted.
    kept: Option<Arc<Vec<u32>>>,
}

/// The report on a set-up or a tear-down.
pub(crate) struct SetUpReport {
    pub(crate) suite: String,
    pub(crate) name: &'static str,
    pub(crate) born: Born,
}

impl SetUps {
    fn of(&mut self, around: Around) -> &mut Option<Parts> {
        match around {
            Around::Suite => &mut self.suite,
            Around::Environments => &mut self.environments,
        }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Parts> {
        self.suite.iter_mut().chain(&mut self.environments)
    }

    /// A test begins, in this new epoch. The code before it was the set-up of its suite.
    pub(crate) fn test_begins(&mut self, suite: &str, epoch: u32) {
        self.set_ups_end(epoch);
        if let Some(parts) = self.suite.as_mut().filter(|parts| parts.suite.is_empty()) {
            suite.clone_into(&mut parts.suite);
        }
    }

    pub(crate) fn is_in_set_up(&self) -> bool {
        self.suite.iter().chain(&self.environments).any(|parts| parts.ended == 0)
    }

    /// From this new epoch on, tests run.
    pub(crate) fn set_ups_end(&mut self, epoch: u32) {
        for parts in self.all() {
            parts.set_up_ends(epoch);
        }
    }

    /// Is something alive that was allocated after the last test?
    pub(crate) fn has_since_test(&self) -> bool {
        self.suite.as_ref().is_some_and(|parts| TRACKER.alive_since(parts.down) != Some(0))
    }

    /// A test has ended. If it was the last of its suite, the tear-down comes now.
    pub(crate) fn test_ended(&mut self, epoch: u32) {
        if let Some(parts) = &mut self.suite {
            parts.down = epoch;
        }
    }

    /// An assertion failed outside of tests.
    pub(crate) fn fails(&mut self) {
        if let Some(parts) = self.suite.as_mut().or(self.environments.as_mut()) {
            parts.failed = true;
        }
    }

    /// The epochs are about to restart. From then on, the blocks that set-ups left are identified by their stacks.
    /// Returns false if there is no memory for that.
    pub(crate) fn remember(&mut self, count: impl Fn(&Born) -> Option<Counts>) -> bool {
        let mut enough = true;
        for parts in self.all().filter(|parts| parts.kept.is_none()) {
            let stacks = count(&parts.born()).as_ref().and_then(snapshot::stacks);
            parts.kept = stacks.map(Arc::new);
            enough &= parts.kept.is_some();
        }
        enough
    }

    pub(crate) fn begins(&mut self, around: Around, epoch: u32) {
        self.ends(Around::Environments, epoch);
        *self.of(around) = Some(Parts { began: epoch, ..Parts::default() });
    }

    pub(crate) fn ends(&mut self, around: Around, epoch: u32) {
        if let Some(parts) = self.of(around) {
            parts.set_up_ends(epoch);
        }
    }

    pub(crate) fn is_open(&mut self, around: Around) -> bool {
        self.of(around).is_some()
    }

    pub(crate) fn tear_down_begins(&mut self, around: Around, epoch: u32) {
        if let Some(parts) = self.of(around) {
            parts.set_up_ends(epoch);
            parts.down = epoch;
        }
    }

    /// After the tear-down: the windows to report; in a confirming run the one with the id `wanted`.
    pub(crate) fn torn_down(
        &mut self,
        around: Around,
        (detail, wanted): (Detail, &str),
        count: impl Fn(&Born) -> Option<Counts>,
    ) -> Vec<SetUpReport> {
        // Environments may last for all iterations. They are then torn down after the last one.
        let is_over = |parts: &mut Parts| around == Around::Suite || parts.down != 0;
        let Some(parts) = self.of(around).take_if(is_over).filter(|parts| parts.down != 0) else {
            return Vec::new();
        };
        let (suite, names) = match around {
            Around::Suite => (parts.suite.as_str(), [OF_SUITE, BEHIND_SUITE]),
            Around::Environments => (ENVIRONMENT, [OF_ALL, BEHIND_ALL]),
        };
        let down_left = TRACKER.alive_since(parts.down) != Some(0);
        let windows = [(parts.born(), parts.left), (Born::Between(parts.down, u32::MAX), down_left)];
        let is_told = |name: &str, born: &Born, left: bool| match detail {
            Detail::Growth => wanted == format!("{suite}.{name}"),
            Detail::Survivors => {
                let is_empty = || count(born).is_some_and(|counts| counts.is_empty());
                !parts.failed && left && !is_empty()
            }
        };
        let told = names.into_iter().zip(windows).filter(|(name, (born, left))| is_told(name, born, *left));
        told.map(|(name, (born, _))| SetUpReport { suite: suite.to_owned(), name, born }).collect()
    }
}

impl Parts {
    fn set_up_ends(&mut self, epoch: u32) {
        if self.ended == 0 {
            self.ended = epoch;
            self.left = TRACKER.alive_since(self.began) != Some(0);
        }
    }

    /// The blocks that its set-up left.
    fn born(&self) -> Born {
        match &self.kept {
            Some(stacks) => Born::Before(Arc::clone(stacks)),
            None if self.ended == 0 => Born::Between(self.began, u32::MAX),
            None => Born::Between(self.began, self.ended),
        }
    }
}
