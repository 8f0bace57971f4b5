//! What the harness asks of a test framework: [`Framework`], over the engine.

use std::time::{Duration, Instant};

use memgate_analysis::{HuntTime, ProcessRecord};

use crate::run::engine::{Context, Finished, RunState, Stopped};
use crate::session::facts::{Kind, SuiteFacts};

/// A suite after its screening pass.
#[derive(Debug)]
pub(in crate::run) struct Suite {
    pub(in crate::run) facts: SuiteFacts,
    /// Its processes, in the order of `facts.screen`.
    pub(in crate::run) processes: Vec<Finished>,
    /// Longest time of one test.
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

    /// Adds what its processes forked.
    pub(super) fn add_children(&mut self, children: Vec<Finished>) {
        self.facts.screen.extend(children.iter().map(Finished::facts));
        self.processes.extend(children);
    }

    /// What its processes wrote.
    pub(super) fn records(&self) -> Vec<&ProcessRecord> {
        self.processes.iter().map(|process| &process.record).collect()
    }
}

/// What a hunt repeats.
#[derive(Debug)]
pub(in crate::run) struct Unit {
    /// The test or test class.
    pub(in crate::run) id: String,
    /// The process of the screen in which it ran.
    pub(super) record: usize,
}

/// The time a unit has.
#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct Share {
    pub(in crate::run) time: HuntTime,
    /// The end of the whole hunt.
    pub(in crate::run) end: Instant,
}

/// What became of a unit.
#[derive(Debug)]
pub(in crate::run) enum Ran {
    /// Nothing grew in so many executions.
    Still(u64),
    /// So many executions; it joined the confirmations.
    Grew(u64),
    /// It cannot be repeated so often.
    Unusable(String),
}

/// The tests of one suite, as their framework runs them again. The screening pass makes it; what it
/// can say about boundaries is the [`Kind`] of the suite's facts.
pub(super) trait Framework: Sized {
    /// Does a hunt repeat test classes? Else single tests.
    const HUNTS_CLASSES: bool = false;

    /// Runs the suspects of these suites again; what came of each goes to the facts of its suite.
    async fn confirm(
        context: &mut Context<'_>,
        suites: Vec<(&mut Suite, &mut Self)>,
    ) -> Result<Vec<Finished>, Stopped>;

    /// What was never suspect and can be repeated, those that left most first; or why nothing can.
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
