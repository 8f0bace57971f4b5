//! GoogleTest, and whatever tells boundaries as it does: suspects run again, each alone.
//!
//! Data flow: screened suites → [`stacks`], where the screen took none → `analysis::screen` → for every
//! suspect a process of its own that repeats this one test, with `analysis::Confirmation` deciding at each
//! end whether to go on → for those that do something else alone the tests around them ([`company`]) →
//! facts of the suite.
//! [`one_by_one`] is for executables whose boundaries cannot be seen.

mod alone;
mod company;
mod hunt;
mod listing;
mod one_by_one;
mod stacks;

use std::time::Duration;

use memgate_analysis::{Confirmation, ProcessRecord, Suspect};
use memgate_wire::setup;

use self::alone::{Lasts, alone, repeat};
use self::listing::AllTests;
pub(super) use self::listing::{LIST_TIMEOUT, listing};
pub(super) use self::one_by_one::OneByOne;
use super::framework::{Framework, Ran, Share, Suite, Unit};
use crate::output::Progress;
use crate::run::engine::{Budget, Context, Done, Finished, RunState, Stopped, elapsed, keep_output, outcome};
use crate::session::facts::ConfirmationFacts;
use crate::suite::gtest;

/// What a process does beside its tests may take so many times what it took in the screen.
const SLOWER_BESIDE_TESTS: u32 = 4;

/// A suite of GoogleTest, with the tests its executables list.
#[derive(Debug, Default)]
pub(super) struct GoogleTest(AllTests);

impl Framework for GoogleTest {
    async fn confirm(
        context: &mut Context<'_>,
        suites: Vec<(&mut Suite, &mut Self)>,
    ) -> Result<Vec<Finished>, Stopped> {
        let mut finished = Vec::new();
        let mut suites = suites;
        for (suite, Self(tests)) in &mut suites {
            stacks::complete(context, suite, tests).await?;
        }
        let suspects: Vec<Vec<Suspect>> = suites.iter().map(|(suite, _)| suspects(context, suite)).collect();
        let total: usize = suspects.iter().map(Vec::len).sum();
        if total > 0 && context.plan.confirm {
            context.console.line(&format!("confirming {total}, each alone"));
        }
        let mut progress = Progress::of_silent_tests(context.console, "confirming", total as u64);
        let mut done = 0;
        for ((suite, Self(tests)), suspects) in suites.into_iter().zip(suspects) {
            let mut budget = Budget::of(context.plan.confirm_budget, suite.facts.screened_s);
            let ordered = memgate_analysis::causes_first(suspects.clone(), &suite.records());
            for (before, suspect) in ordered.into_iter().enumerate() {
                progress.update(done, &suspect.test);
                let outcome = if !context.plan.confirm {
                    ConfirmationFacts::Impossible("--no-confirm was given".to_owned())
                } else if suspect.freed_since && budget.is_over_for_freed() {
                    ConfirmationFacts::FreedSince
                } else if let Some(most) = budget.share(suspects.len() - before) {
                    let mut show = |_: &_| progress.update(done, &suspect.test);
                    let limits = (&mut budget, most);
                    confirm_one(context, suite, &suspect, limits, tests, &mut finished, &mut show).await?
                } else {
                    ConfirmationFacts::Impossible(budget.leaves_open("it was over before its turn"))
                };
                suite.facts.confirmations.insert(suspect.test, outcome);
                done += 1;
            }
            if context.plan.confirm {
                company::confirm(context, suite, tests, &suspects, &mut budget, &mut finished).await?;
            }
            let is_freed = |facts: &&ConfirmationFacts| matches!(facts, ConfirmationFacts::FreedSince);
            let freed = suite.facts.confirmations.values().filter(is_freed).count();
            if freed > 0 {
                let why = "not confirmed, to save time: later tests freed all that they left";
                context.console.line(&format!("{}: {freed} {why}", suite.facts.name));
            }
            if let Some(left_open) = budget.left_open() {
                context.console.warning(&format!("{}: {left_open}", suite.facts.name));
            }
        }
        Ok(finished)
    }

    fn candidates(&self, context: &Context<'_>, suite: &Suite) -> Result<Vec<Unit>, String> {
        hunt::candidates(context, suite)
    }

    async fn hunt(
        &mut self,
        context: &mut Context<'_>,
        suite: &mut Suite,
        unit: &Unit,
        Share { time, .. }: Share,
        finished: &mut Vec<Finished>,
        show: &mut dyn FnMut(&RunState),
    ) -> Result<Ran, Stopped> {
        let process = (unit.id.as_str(), unit.record);
        let ran = alone(context, suite, process, &mut self.0, Lasts::Hunt(time), show).await?;
        hunt::seen(context, suite, &unit.id, ran, finished)
    }
}

/// How long a process that runs again may take from one event to the next: `of_test`, and longer where it prepared
/// longer in the screen (before its first test, between two of them).
fn patience(of_test: Duration, screened: &ProcessRecord) -> Duration {
    of_test.max(screened.longest_beside_tests() * SLOWER_BESIDE_TESTS)
}

fn suspects(context: &Context<'_>, suite: &Suite) -> Vec<Suspect> {
    let mut suspects = memgate_analysis::screen(&suite.records(), &suite.facts.name, &context.plan.policy);
    // What the user repeats is judged by those executions; what we repeat is confirmed alone.
    suspects.retain(|suspect| !suspect.repeated || context.plan.screen_repetitions > 1);
    suspects
}

async fn confirm_one(
    context: &mut Context<'_>,
    suite: &Suite,
    suspect: &Suspect,
    (budget, most): (&mut Budget, Duration),
    tests: &mut AllTests,
    finished: &mut Vec<Finished>,
    show: &mut dyn FnMut(&RunState),
) -> Result<ConfirmationFacts, Stopped> {
    let test = suspect.test.as_str();
    let lasts = Lasts::NoLonger(most);
    let alone = match alone(context, suite, (test, suspect.record), tests, lasts, show).await? {
        Ok(done) => kept(context, test, done, finished)?,
        Err(facts) => return Ok(facts),
    };
    if let Some(cut) = cut(context, suite, test, (&alone, finished), most, budget) {
        return Ok(cut);
    }
    let again = finished.last().filter(|_| matches!(alone, ConfirmationFacts::Repeated(_)));
    let is_setup = setup::suite_of(test).is_some();
    let Some((process, again)) = suite.processes.get(suspect.record).zip(again).filter(|_| is_setup) else {
        return Ok(alone);
    };
    let (policy, name) = (&context.plan.policy, &suite.facts.name);
    let with = memgate_analysis::company_of_setup(policy, name, test, &process.record, &again.record);
    let all = tests.of(suspect.record, process).await;
    let filter = with.and_then(|tests| gtest::filter_for_all(&tests, all).ok());
    // Where so many tests cannot be selected, what it did with one stands.
    let Some(filter) = filter.filter(|filter| filter.len() <= company::MOST_FILTER) else { return Ok(alone) };
    let Some(share) = budget.share(1) else {
        let why = budget.leaves_open("it was over before this ran with more of its tests");
        return Ok(ConfirmationFacts::Impossible(why));
    };
    let most = company::most(suite).min(share);
    let with_more =
        match repeat(context, (suite, process), (test, &filter), Lasts::NoLonger(most), show).await? {
            Ok(done) => kept(context, test, done, finished)?,
            Err(facts) => return Ok(facts),
        };
    Ok(cut(context, suite, test, (&with_more, finished), most, budget).unwrap_or(with_more))
}

/// What is to be said of the last of `finished` instead of `facts`, if its time ended before it was
/// known what the test does.
fn cut(
    context: &Context<'_>,
    suite: &Suite,
    test: &str,
    (facts, finished): (&ConfirmationFacts, &[Finished]),
    most: Duration,
    budget: &mut Budget,
) -> Option<ConfirmationFacts> {
    let again = finished.last().filter(|_| matches!(facts, ConfirmationFacts::Repeated(_)));
    let record = again.map(|process| &process.record).filter(|record| elapsed(record) >= most)?;
    let confirmation = Confirmation::new(&context.plan.policy, &suite.facts.name, test);
    let executions = record.windows_of(test).count();
    let why = || budget.leaves_open(&format!("its share of it ended after {executions} executions"));
    (!confirmation.is_known(record, elapsed(record))).then(why).map(ConfirmationFacts::Impossible)
}

fn kept(
    context: &Context<'_>,
    test: &str,
    done: Done,
    finished: &mut Vec<Finished>,
) -> Result<ConfirmationFacts, Stopped> {
    let output = keep_output(context, test, &done)?;
    Ok(outcome(context, done, test, &output, finished))
}
