//! [`Framework`]: what the harness requires of a test framework, on top of the engine.

use std::time::{Duration, Instant};

use memgate_analysis::{HuntTime, ProcessRecord};

use crate::run::engine::{Context, Finished, RunState, Stopped};
use crate::session::facts::{Kind, SuiteFacts};

/// Why no suspect is repeated.
pub(super) const NOT_CONFIRMED: &str = "--no-confirm was given";

/// A suite after its screening pass.
#[derive(Debug)]
pub(in crate::run) struct Suite {
    pub(in crate::run) facts: SuiteFacts,
    /// Its processes, in the order of `facts.screen`.
    pub(in crate::run) processes: Vec<Finished>,
    /// Time limit of one test.
    pub(super) timeout: Duration,
}

impl Suite {
    /// A suite of processes that were screened together.
    pub(super) fn new(
        kind: Kind,
        name: String,
        processes: Vec<Finished>,
        (elapsed, timeout): (Duration, Duration),
    ) -> Self {
        let screen = processes.iter().map(Finished::facts).collect();
        let facts = SuiteFacts { screened_s: elapsed.as_secs_f64(), ..SuiteFacts::new(name, kind, screen) };
        Self { facts, processes, timeout }
    }

    /// Adds the forked children of its processes.
    pub(super) fn add_children(&mut self, children: Vec<Finished>) {
        self.facts.screen.extend(children.iter().map(Finished::facts));
        self.processes.extend(children);
    }

    /// The records of its processes.
    pub(super) fn records(&self) -> Vec<&ProcessRecord> {
        self.processes.iter().map(|process| &process.record).collect()
    }
}

/// A unit that a hunt repeats.
#[derive(Debug)]
pub(in crate::run) struct Unit {
    /// The name of the test or test class.
    pub(in crate::run) id: String,
    /// The process of the screening pass in which it ran.
    pub(super) record: usize,
}

/// The time of a unit.
#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct Share {
    pub(in crate::run) time: HuntTime,
    /// The end of the whole hunt.
    pub(in crate::run) end: Instant,
}

/// The result of repeating a unit.
#[derive(Debug)]
pub(in crate::run) enum Ran {
    /// Nothing grew in this number of executions.
    Still(u64),
    /// It grew within this number of executions, and joined the confirmations.
    Grew(u64),
    /// It cannot be repeated so often; the reason.
    Unusable(String),
}

/// The tests of one suite, as their framework runs them again. The screening pass creates it; the [`Kind`] of the
/// suite's facts says what it knows about boundaries.
pub(super) trait Framework: Sized {
    /// Whether a hunt repeats test classes instead of single tests.
    const HUNTS_CLASSES: bool = false;

    /// Runs the suspects of these suites again; each result goes to the facts of its suite.
    async fn confirm(
        context: &mut Context<'_>,
        suites: Vec<(&mut Suite, &mut Self)>,
    ) -> Result<Vec<Finished>, Stopped>;

    /// Units that were never suspect and can be repeated, those with most survivors first; or why none can.
    fn candidates(&self, context: &Context<'_>, suite: &Suite) -> Result<Vec<Unit>, String>;

    /// Repeats one candidate for its time.
    async fn hunt(
        &mut self,
        _context: &mut Context<'_>,
        _suite: &mut Suite,
        _unit: &Unit,
        _share: Share,
        _finished: &mut Vec<Finished>,
        _show: &mut dyn FnMut(&RunState),
    ) -> Result<Ran, Stopped> {
        Ok(Ran::Unusable("it cannot be repeated".to_owned()))
    }
}
