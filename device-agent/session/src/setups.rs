//! What GoogleTest runs around tests, as windows of their own: set-up and tear-down of a suite, and
//! of the environments.
//!
//! Data flow: the listener says where each part begins, which gets epochs of its own → where all is
//! torn down, what was born in the set-up and in the tear-down and is alive then is told
//! ([`memgate_wire::setup`]): what a set-up keeps for its tests is freed by then. The screen hears
//! only of what left something, a confirming run only of the one it asked for, in each iteration.

#![cfg_attr(target_os = "android", expect(dead_code, reason = "GoogleTest is not listened to there"))]

use std::sync::Arc;

use memgate_wire::BoundaryKind;
use memgate_wire::options::Detail;
use memgate_wire::setup::{BEHIND_ALL, BEHIND_SUITE, ENVIRONMENT, OF_ALL, OF_SUITE};

use super::stream::{Session, Window};
use crate::native::hooks::TRACKER;
use crate::native::snapshot::{self, Born};

/// Around what?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Around {
    /// The tests of a suite.
    Suite,
    /// All tests.
    Environments,
}

/// Of the suite that runs, and of the environments.
#[derive(Debug, Default)]
pub(super) struct SetUps {
    suite: Option<Parts>,
    environments: Option<Parts>,
}

/// One set-up and its tear-down.
#[derive(Debug, Default)]
struct Parts {
    /// Empty: no test has told it yet.
    suite: String,
    /// Epochs in which the set-up began and ended, and the tear-down begins; 0: not yet.
    began: u32,
    ended: u32,
    down: u32,
    /// Something of the set-up's was alive at its end.
    left: bool,
    /// It failed or was skipped: it is no wonder if it leaves something.
    failed: bool,
    /// What of the set-up was alive when the count of epochs started again.
    kept: Option<Arc<Vec<u32>>>,
}

/// What is to be told.
pub(super) struct Told {
    pub(super) suite: String,
    pub(super) name: &'static str,
    born: Born,
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

    /// A test begins, in this new epoch: what came before it was the set-up of its suite.
    pub(super) fn test_begins(&mut self, suite: &str, epoch: u32) {
        for parts in self.all() {
            parts.set_up_ends(epoch);
        }
        if let Some(parts) = self.suite.as_mut().filter(|parts| parts.suite.is_empty()) {
            suite.clone_into(&mut parts.suite);
        }
    }

    /// A test has ended; if it was the last one of its suite, what comes now is the tear-down.
    pub(super) fn test_ended(&mut self, epoch: u32) {
        if let Some(parts) = &mut self.suite {
            parts.down = epoch;
        }
    }

    /// An assertion failed outside of tests.
    pub(super) fn fails(&mut self) {
        if let Some(parts) = self.suite.as_mut().or(self.environments.as_mut()) {
            parts.failed = true;
        }
    }
}

impl Parts {
    fn set_up_ends(&mut self, epoch: u32) {
        if self.ended == 0 {
            self.ended = epoch;
            self.left = TRACKER.alive_since(self.began) != Some(0);
        }
    }

    /// Of its set-up.
    fn born(&self) -> Born {
        match &self.kept {
            Some(stacks) => Born::Before(Arc::clone(stacks)),
            None if self.ended == 0 => Born::Between(self.began, u32::MAX),
            None => Born::Between(self.began, self.ended),
        }
    }
}

impl Session {
    /// The count of epochs is about to start again: what set-ups have left is known by its stacks
    /// from then on.
    pub(super) fn remember_setups(&mut self) {
        let mut enough = true;
        for parts in self.setups.all().filter(|parts| parts.kept.is_none()) {
            let stacks = snapshot::count_born(&parts.born()).as_ref().and_then(snapshot::stacks);
            parts.kept = stacks.map(Arc::new);
            enough &= parts.kept.is_some();
        }
        if !enough {
            self.gives_up();
        }
    }

    pub(super) fn set_up_begins(&mut self, around: Around) {
        if self.options.setups.is_empty() {
            return;
        }
        let epoch = self.next_epoch();
        self.set_up_ends(Around::Environments, epoch);
        *self.setups.of(around) = Some(Parts { began: epoch, ..Parts::default() });
    }

    pub(super) fn set_up_ends(&mut self, around: Around, epoch: u32) {
        if let Some(parts) = self.setups.of(around) {
            parts.set_up_ends(epoch);
        }
    }

    pub(super) fn tear_down_begins(&mut self, around: Around) {
        if self.setups.of(around).is_some() {
            let epoch = self.next_epoch();
            self.set_up_ends(around, epoch);
            if let Some(parts) = self.setups.of(around) {
                parts.down = epoch;
            }
        }
    }

    /// All is torn down: what is to be told of it.
    pub(super) fn torn_down(&mut self, around: Around) -> Vec<Told> {
        // Environments may last for all iterations, and are torn down after the last.
        let is_over = |parts: &mut Parts| around == Around::Suite || parts.down != 0;
        let Some(parts) = self.setups.of(around).take_if(is_over).filter(|parts| parts.down != 0) else {
            return Vec::new();
        };
        let (suite, names) = match around {
            Around::Suite => (parts.suite.as_str(), [OF_SUITE, BEHIND_SUITE]),
            Around::Environments => (ENVIRONMENT, [OF_ALL, BEHIND_ALL]),
        };
        let down_left = TRACKER.alive_since(parts.down) != Some(0);
        let windows = [(parts.born(), parts.left), (Born::Between(parts.down, u32::MAX), down_left)];
        let mut told = Vec::new();
        for (name, (born, left)) in names.into_iter().zip(windows) {
            let is_told = match self.options.detail {
                Detail::Growth => self.options.setups == format!("{suite}.{name}"),
                Detail::Survivors => {
                    let is_empty = || snapshot::count_born(&born).is_some_and(|counts| counts.is_empty());
                    !parts.failed && left && !is_empty()
                }
            };
            if is_told {
                told.push(Told { suite: suite.to_owned(), name, born });
            }
        }
        told
    }

    /// Opens the window of a set-up that was torn down; its end follows.
    pub(super) fn begin_told(&mut self, told: &Told) {
        let Told { suite, name, born } = told;
        self.windows.push(Window::around_tests(suite, name, born.clone()));
        self.append_boundary(BoundaryKind::TestStart, (suite, name), None, (0, 0));
        self.flush();
    }
}
