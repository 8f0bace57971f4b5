//! A GoogleTest executable whose boundaries cannot be seen (stripped and static): each test runs in
//! processes of its own.

use std::collections::BTreeMap;

use memgate_history::shards::is_disabled;
use memgate_model::BoundaryQuality;

use super::listing::{LIST_TIMEOUT, listing};
use crate::exit::chain;
use crate::output::Progress;
use crate::run::engine::{Budget, Context, Finished, Stopped, silent};
use crate::run::runners::framework::{Framework, Suite, Unit};
use crate::run::runners::process::{Runs, Work, lengths};
use crate::session::facts::{ProcessFacts, problem};
use crate::suite::gtest::{self, Repeat};

/// Tests without boundaries, in an executable that can run each in a process of its own.
#[derive(Debug)]
pub(in crate::run::runners) struct OneByOne;

impl Framework for OneByOne {
    async fn confirm(
        context: &mut Context<'_>,
        suites: Vec<(&mut Suite, &mut Self)>,
    ) -> Result<Vec<Finished>, Stopped> {
        let mut finished = Vec::new();
        for (suite, _) in suites {
            each(context, suite, &mut finished).await?;
        }
        Ok(finished)
    }

    fn candidates(&self, _: &Context<'_>, _: &Suite) -> Result<Vec<Unit>, String> {
        Err("its tests have no boundaries".to_owned())
    }
}

/// Gives every test processes of its own. They replace the suite's first processes, which ran all tests and say nothing
/// about single tests.
async fn each(
    context: &mut Context<'_>,
    suite: &mut Suite,
    finished: &mut Vec<Finished>,
) -> Result<(), Stopped> {
    let Some(process) = suite.processes.first() else { return Ok(()) };
    let name = suite.facts.name.clone();
    let all = match gtest::list_tests(listing(process), LIST_TIMEOUT).await {
        Ok(all) => all,
        Err(why) => {
            let what = format!(
                "its boundaries cannot be seen, and one process per test is not possible: failed to {}",
                chain(&why)
            );
            suite.facts.problems.push(problem(&name, what, ""));
            return Ok(());
        }
    };
    let tests: Vec<&String> = all.iter().filter(|test| !is_disabled(test)).collect();
    context.console.line(&format!(
        "{name}: its boundaries cannot be seen, so each of {} tests gets processes of its own",
        tests.len()
    ));
    let mut progress = Progress::of_silent_tests(context.console, &name, tests.len() as u64);
    let (mut screened, mut confirmations, mut problems) = (Vec::new(), BTreeMap::new(), Vec::new());
    let mut budget = Budget::of(context.plan.confirm_budget, suite.facts.screened_s);
    for (done, test) in tests.into_iter().enumerate() {
        let mut show = |_| progress.update(done as u64, test);
        let runs = match one(context, suite, process, (test, &all), &mut budget, &mut show).await? {
            Ok(runs) => runs,
            Err(why) => {
                problems.push(problem(&name, format!("{test} is not measured: {why}"), ""));
                continue;
            }
        };
        screened.extend(
            runs.runs.first().map(|(_, first)| ProcessFacts { as_test: Some(test.clone()), ..first.facts() }),
        );
        let (outcome, processes) = runs.into_facts();
        confirmations.insert(test.clone(), outcome);
        finished.extend(processes);
    }
    drop(progress);
    suite.facts.boundary = BoundaryQuality::Observed;
    suite.facts.problems.extend(problems);
    suite.facts.screen = screened;
    suite.facts.confirmations = confirmations;
    suite.processes.clear();
    Ok(())
}

/// Runs one test in processes of its own. Or returns why it could not be measured.
async fn one(
    context: &mut Context<'_>,
    suite: &Suite,
    process: &Finished,
    (test, all): (&str, &[String]),
    budget: &mut Budget,
    show: &mut dyn FnMut(u64),
) -> Result<Result<Runs, String>, Stopped> {
    let filter = match gtest::filter_for(test, all) {
        Ok(filter) => filter,
        Err(why) => return Ok(Err(format!("failed to {why}"))),
    };
    let environment = process.environment().map(Vec::as_slice);
    let work = Work {
        suite: &suite.facts.name,
        test,
        executable: &process.hello().executable,
        timeout: suite.timeout,
        launch: &|n| silent(gtest::confirm(process.hello(), environment, &filter, Repeat::Times(n))),
    };
    let runs = lengths(context, &work, budget, show).await?;
    Ok(match runs.nothing() {
        Some(why) => Err(why.to_owned()),
        None => Ok(runs),
    })
}
