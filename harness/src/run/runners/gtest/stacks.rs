//! Takes stacks for a screening pass without stacks (`measure.native.stacks: suspects`).
//!
//! Data flow: a screened suite → `analysis::wanting` names the tests with survivors → they run once more, together,
//! with stacks → `analysis::complete` copies the stacks of the allocations that match into the record of the screening
//! pass. If some do not match, the whole process runs once more: both runs together also show which sizes are random.
//! Both streams join the facts of the suite, so that later judging of the session gives the same result.

use memgate_analysis::ProcessRecord;
use memgate_launch::Launch;
use memgate_model::format_number_of;
use memgate_wire::setup;

use super::company::MOST_FILTER;
use super::listing::AllTests;
use super::patience_with_all;
use crate::exit::ExpectedError;
use crate::output::Progress;
use crate::run::engine::{
    Clocked, Context, Finished, Job, Limit, MakeOrders, Settle, Stopped, cannot_run_again, keep_output,
    options_of, silent, supervise,
};
use crate::run::runners::framework::Suite;
use crate::session::label::Label;
use crate::suite::gtest::{self, Repeat};

/// The tests that a screened process runs again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Suspects,
    All,
}

/// Takes the missing stacks of a suite's survivors.
pub(super) async fn complete(
    context: &mut Context<'_>,
    suite: &mut Suite,
    all: &AllTests,
) -> Result<(), Stopped> {
    for index in 0..suite.processes.len() {
        let mut runs = Vec::new();
        for what in [What::Suspects, What::All] {
            let wanting = wanting(context, suite, index);
            if !wanting.is_empty() {
                take(context, suite, all, (index, what), &wanting, &mut runs).await?;
            }
        }
        let left = wanting(context, suite, index).len();
        if left > 0 {
            let can_start = suite.processes.get(index).is_some_and(|process| process.environment().is_some());
            let why = if can_start { "left something else when run again" } else { "cannot run again" };
            let (name, tests) = (&suite.facts.name, format_number_of(left, "test"));
            context.console.warning(&format!(
                "{name}: {tests} {why}: the call stacks of what the screen saw are not known; \
                 `measure: {{ native: {{ stacks: always }} }}` takes them there"
            ));
        }
    }
    Ok(())
}

fn wanting(context: &Context<'_>, suite: &Suite, index: usize) -> Vec<String> {
    let record = suite.processes.get(index).map(|process| &process.record);
    record.map_or_else(Vec::new, |record| {
        memgate_analysis::wanting(record, &suite.facts.name, &context.plan.policy)
    })
}

/// Runs tests of a screened process once more, and adds the record to `runs`.
async fn take(
    context: &mut Context<'_>,
    suite: &mut Suite,
    all: &AllTests,
    (index, what): (usize, What),
    tests: &[String],
    runs: &mut Vec<ProcessRecord>,
) -> Result<(), Stopped> {
    let Some(process) = suite.processes.get(index) else { return Ok(()) };
    let Some(launch) = launch(process, &all.of(index, process).await, what, tests) else { return Ok(()) };
    let name = suite.facts.name.clone();
    let (count, of) = match what {
        What::Suspects => (tests.len(), format_number_of(tests.len(), "test")),
        What::All => (process.record.windows.len(), "all tests".to_owned()),
    };
    context.console.line(&format!("{name}: {of} once more, for the call stacks"));
    let mut options = options_of(context, &process.hello().executable, &Label::Stacks { suite: name });
    options.setups = setup::EACH.to_owned();
    let settles = !context.plan.settle.is_zero();
    let orders: MakeOrders = Box::new(move |_| Box::new(Settle::new(settles)));
    // The time before the first test is limited too: it might wait for something that its first execution left.
    let limit = Limit::Ends(patience_with_all(suite.timeout, &process.record));
    let job = Job::new(silent(launch), options, Clocked::Alone, limit).with(orders);
    let mut progress = Progress::of_silent_tests(context.console, "taking stacks", count as u64);
    let done = supervise(context, job, &mut |state| progress.update(state.tests(), &state.status())).await;
    drop(progress);
    let done = match done {
        Ok(done) => done,
        Err(Stopped::Failed(gone @ ExpectedError::Program { .. })) => {
            context.console.warning(&format!("{}: {}", suite.facts.name, cannot_run_again(&gone)));
            return Ok(());
        }
        Err(stopped) => return Err(stopped),
    };
    keep_output(context, "stacks", &done)?;
    for again in done.finished.into_iter().filter(Finished::is_main) {
        suite.facts.stacks.push(again.facts());
        runs.push(again.record);
        if let Some(process) = suite.processes.get_mut(index) {
            memgate_analysis::complete(&mut process.record, &runs.iter().collect::<Vec<_>>());
        }
    }
    Ok(())
}

/// `None`: the process cannot be started again, or the tests cannot be selected.
fn launch(process: &Finished, all: &[String], what: What, tests: &[String]) -> Option<Launch> {
    let environment = process.environment().map(Vec::as_slice)?;
    match what {
        What::Suspects => {
            let filter = gtest::filter_for_all(tests, all).ok()?;
            let once = Repeat::Times(1);
            (filter.len() <= MOST_FILTER)
                .then(|| gtest::confirm(process.hello(), Some(environment), &filter, once))
        }
        What::All => Some(gtest::once_more(process.hello(), environment)),
    }
}
