//! Runs tests again together: for suspects that behave differently alone than among the tests they were screened with.
//!
//! Data flow: confirmation results of a suite → `analysis::company` names the tests that each such suspect needs → one
//! process for all suspects of a screened process repeats them, in their order → facts of the suite.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use memgate_analysis::{Company, GatePolicy, Next, ProcessRecord, Suspect};
use memgate_launch::Launch;
use memgate_wire::options::Detail;
use memgate_wire::reply::Reply;
use memgate_wire::spool::order;
use memgate_wire::{Boundary, Outcome, setup};

use super::listing::AllTests;
use super::patience_with_all;
use crate::run::engine::{
    Budget, Clocked, Context, Done, Finished, Job, Last, Limit, Orders, Settle, Stopped, elapsed,
    keep_output, of_programs, options_of, silent, supervise, test_id,
};
use crate::run::runners::framework::Suite;
use crate::session::facts::{ConfirmationFacts, ProcessFacts};
use crate::session::label::Label;
use crate::suite::gtest::{self, Repeat};

/// Longest filter, in bytes: the kernel limits the length of an argument to 128 KiB.
pub(super) const MOST_FILTER: usize = 100_000;

/// Tests of one screened process that are repeated together.
#[derive(Debug, Default)]
struct Group {
    /// Tests in their order, up to the last one needed.
    tests: Vec<String>,
    suspects: Vec<String>,
}

/// Repeats suspects together with the tests they need, once for every process of the screening pass.
pub(super) async fn confirm(
    context: &mut Context<'_>,
    suite: &mut Suite,
    all_tests: &AllTests,
    suspects: &[Suspect],
    budget: &mut Budget,
    finished: &mut Vec<Finished>,
) -> Result<(), Stopped> {
    let groups = groups(context, suite, suspects, finished);
    let mut open = groups.len();
    for (index, group) in groups {
        let count = group.tests.len();
        let share = budget.share(open);
        open -= 1;
        if share.is_some() {
            let names = names(&group.suspects);
            context.console.line(&format!("confirming {names}, with the {count} tests around"));
        }
        let Some(process) = suite.processes.get(index) else { continue };
        let all = all_tests.of(index, process).await;
        let together = match share.map(|share| (share, launch(process, &group, &all))) {
            None => Err(budget.leaves_open("it was over before they ran with the tests around them")),
            Some((_, Err(why))) => Err(why),
            Some((share, Ok(launch))) => {
                // A run that was started gets at least the minimum: cut short, it would show nothing.
                let most = most(suite).min(share.max(least(suite)));
                let job = job(context, suite, (&group, most), process, launch);
                let began = Instant::now();
                let done = supervise(context, job, &mut |_| ()).await?;
                let output = keep_output(context, "company", &done)?;
                let together = outcome(&context.plan.policy, done, &group, &output, finished);
                if together.is_err() {
                    suite.facts.lost_s += began.elapsed().as_secs_f64();
                }
                together
            }
        };
        for test in &group.suspects {
            let Some(ConfirmationFacts::Repeated(alone)) = suite.facts.confirmations.remove(test) else {
                continue;
            };
            let together = together.clone();
            suite.facts.confirmations.insert(test.clone(), ConfirmationFacts::InCompany { alone, together });
        }
    }
    Ok(())
}

fn names(suspects: &[String]) -> String {
    match suspects {
        [one] => one.clone(),
        many => format!("{} tests", many.len()),
    }
}

fn groups(
    context: &Context<'_>,
    suite: &Suite,
    suspects: &[Suspect],
    finished: &[Finished],
) -> BTreeMap<usize, Group> {
    let mut groups = BTreeMap::<usize, Group>::new();
    for suspect in suspects.iter().filter(|suspect| setup::suite_of(&suspect.test).is_none()) {
        let Some(ConfirmationFacts::Repeated(alone)) = suite.facts.confirmations.get(&suspect.test) else {
            continue;
        };
        let screened = suite.processes.get(suspect.record).map(|process| &process.record);
        let alone =
            finished.iter().find(|process| process.stream() == alone.stream).map(|process| &process.record);
        let (policy, name) = (&context.plan.policy, &suite.facts.name);
        let tests = screened.zip(alone).and_then(|(screened, alone)| {
            memgate_analysis::company(policy, name, &suspect.test, screened, alone)
        });
        let Some(tests) = tests else { continue };
        let group = groups.entry(suspect.record).or_default();
        group.suspects.push(suspect.test.clone());
        // Each list is a prefix of the same list.
        if tests.len() > group.tests.len() {
            group.tests = tests;
        }
    }
    groups
}

/// Time for repeating tests of a suite together.
pub(super) fn most(suite: &Suite) -> Duration {
    executions(suite, 20)
}

/// Minimum of that time, even if the share is smaller: fewer executions show nothing.
fn least(suite: &Suite) -> Duration {
    executions(suite, 8)
}

fn executions(suite: &Suite, times: u32) -> Duration {
    Duration::from_secs(60).max(Duration::from_secs_f64(suite.facts.screened_s.max(0.0)) * times)
}

fn launch(process: &Finished, group: &Group, all: &[String]) -> Result<Launch, String> {
    let environment = process.environment().map(Vec::as_slice);
    let filter = gtest::filter_for_all(&group.tests, all).map_err(|why| format!("failed to {why}"))?;
    if filter.len() > MOST_FILTER {
        return Err(format!("{} tests before it are too many to be selected together", group.tests.len()));
    }
    Ok(silent(gtest::confirm(process.hello(), environment, &filter, Repeat::Forever)))
}

fn job(
    context: &Context<'_>,
    suite: &Suite,
    (group, most): (&Group, Duration),
    process: &Finished,
    launch: Launch,
) -> Job {
    let label = Label::Company { suite: suite.facts.name.clone() };
    let mut options = options_of(context, &process.hello().executable, &label);
    options.detail = Detail::Growth;
    let (policy, suspects) = (context.plan.policy.clone(), group.suspects.clone());
    let settles = !context.plan.settle.is_zero();
    let holders = context.plan.holders;
    let orders = of_programs(move |_| Together {
        company: Company::new(&policy, &suspects, most),
        settle: Settle::new(settles),
        last: Last::new(holders),
    });
    let limit = Limit::Ends(patience_with_all(suite.timeout, &process.record));
    Job::new(launch, options, Clocked::Alone, limit).with(orders).listing_where_numbers_change()
}

/// Repeats the tests until enough is known of each suspect.
struct Together {
    company: Company,
    settle: Settle,
    last: Last,
}

impl Orders for Together {
    fn compares_names(&self, boundary: &Boundary) -> bool {
        self.company.is_suspect(&test_id(boundary))
    }

    fn at_test_end(&mut self, boundary: &Boundary, record: &ProcessRecord) -> Reply {
        if self.last.is_over() {
            return self.last.reply(record);
        }
        if self.settle.again(boundary, record) {
            return Reply::of(order::SETTLE);
        }
        match self.company.observe(record, elapsed(record)) {
            Next::Continue | Next::Explain => Reply::default(),
            Next::Stop => self.last.reply(record),
        }
    }
}

fn outcome(
    policy: &GatePolicy,
    done: Done,
    group: &Group,
    output: &str,
    finished: &mut Vec<Finished>,
) -> Result<ProcessFacts, String> {
    let exit = done.ended.exit;
    let ran = |process: &Finished| {
        group.suspects.iter().any(|test| process.record.windows_of(test).next().is_some())
    };
    let Some(process) = done.finished.into_iter().find(|process| process.is_main() && ran(process)) else {
        return Err(format!("with the tests around it, it did not run ({exit}; its output: {output})"));
    };
    let facts = process.facts();
    let least = policy.warm_up.saturating_add(policy.iterations) as usize;
    let failed = |test: &&String| {
        process.record.windows_of(test).any(|window| window.outcome == Some(Outcome::Failed))
    };
    // How often a failing test ran does not matter.
    let judged = group.suspects.iter().filter(|test| !failed(test));
    let ran = judged.map(|test| process.record.windows_of(test).count()).min().unwrap_or(least);
    finished.push(process);
    if ran < least {
        return Err(format!("with the tests around it, it ran {ran} times only, {least} are needed"));
    }
    Ok(facts)
}
