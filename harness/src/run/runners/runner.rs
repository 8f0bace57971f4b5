//! The frameworks there are: whoever has a [`Screened`] suite asks it, and does not know which.

use super::framework::{Framework, Ran, Share, Suite, Unit};
use super::gtest::{GoogleTest, OneByOne};
use super::instrumentation::Instrumentation;
use super::junit::Junit;
use super::process::Process;
use crate::run::engine::{Context, Finished, RunState, Stopped};

/// Who runs the tests of a suite again.
#[derive(Debug)]
pub(super) enum Runner {
    GoogleTest(GoogleTest),
    OneByOne(OneByOne),
    Process(Process),
    Junit(Junit),
    Instrumentation(Instrumentation),
}

/// Asks the framework of a runner.
macro_rules! ask {
    ($runner:expr, $framework:ident => $what:expr) => {
        match $runner {
            Runner::GoogleTest($framework) => $what,
            Runner::OneByOne($framework) => $what,
            Runner::Process($framework) => $what,
            Runner::Junit($framework) => $what,
            Runner::Instrumentation($framework) => $what,
        }
    };
}

/// A suite after its screening pass, and how its tests run again.
#[derive(Debug)]
pub(in crate::run) struct Screened {
    pub(in crate::run) suite: Suite,
    pub(super) runner: Runner,
}

impl Screened {
    /// Does a hunt repeat its test classes? Else its tests.
    pub(in crate::run) fn hunts_classes(&self) -> bool {
        fn of<F: Framework>(_: &F) -> bool {
            F::HUNTS_CLASSES
        }
        ask!(&self.runner, framework => of(framework))
    }

    /// What was never suspect and can be repeated, those that left most first; or why nothing can.
    pub(in crate::run) fn candidates(&self, context: &Context<'_>) -> Result<Vec<Unit>, String> {
        ask!(&self.runner, framework => framework.candidates(context, &self.suite))
    }

    /// Repeats one candidate for its time.
    pub(in crate::run) async fn hunt(
        &mut self,
        context: &mut Context<'_>,
        unit: &Unit,
        share: Share,
        finished: &mut Vec<Finished>,
        show: &mut dyn FnMut(&RunState),
    ) -> Result<Ran, Stopped> {
        let Self { suite, runner } = self;
        ask!(runner, framework => framework.hunt(context, suite, unit, share, finished, show).await)
    }
}
