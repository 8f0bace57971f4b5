//! Runs the suspects of screened suites again, each alone.
//!
//! Data flow: suites with their suspects → [`Batch`]: suites whose processes overlapped in the user's run form one,
//! each other suite its own → [`Turn`], one for each suspect, in [`Queue`]s of suspects that do not run at the same
//! time → spread over as many [`Lanes`] as the user's run had → facts of the suites. A test that did not pass while
//! others ran gets another turn with nothing else running.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use memgate_analysis::{Confirmation, ProcessRecord, Suspect, Window};
use memgate_wire::{Outcome, setup};

use super::alone::{Lasts, alone, repeat};
use super::lanes::{Beside, Lanes, at_once};
use super::listing::AllTests;
use super::{GoogleTest, company, itself, stacks};
use crate::output::Progress;
use crate::run::engine::{
    Budget, Context, Done, Finished, RunState, Stopped, elapsed, forget, keep_output, outcome,
};
use crate::run::runners::framework::{NOT_CONFIRMED, Suite};
use crate::session::facts::{ConfirmationFacts, EndingFacts};
use crate::suite::gtest;

/// Suites whose suspects run again at the same time.
type Batch<'a> = Vec<Open<'a>>;

/// Turns, one after the other.
type Queue = Vec<Turn>;

/// A suite with suspects.
struct Open<'a> {
    suite: &'a mut Suite,
    beside: Beside,
    tests: &'a AllTests,
    suspects: Vec<Suspect>,
    budget: RefCell<Budget>,
    /// Number of suspects whose first turn has not ended.
    waiting: Cell<usize>,
}

/// One suspect of a suite of the batch.
#[derive(Clone)]
struct Turn {
    suite: usize,
    suspect: Suspect,
}

/// The result of a turn.
struct Answer {
    turn: Turn,
    facts: ConfirmationFacts,
    finished: Vec<Finished>,
}

/// State that all turns share.
struct Pass<'a> {
    lanes: Lanes,
    progress: RefCell<Progress<'a>>,
    done: Cell<u64>,
    /// Whether the user or an error ended the pass.
    is_over: Cell<bool>,
}

/// Confirms the suspects of these suites.
pub(super) async fn suites(
    context: &mut Context<'_>,
    mut suites: Vec<(&mut Suite, &mut GoogleTest)>,
) -> Result<Vec<Finished>, Stopped> {
    let mut finished = Vec::new();
    for (suite, GoogleTest(tests)) in &mut suites {
        stacks::complete(context, suite, tests).await?;
        itself::confirm(context, suite, &mut finished).await?;
    }
    let (most, besides) = at_once(suites.iter().map(|(suite, _)| suite.records()));
    let mut batches: Vec<Batch<'_>> = vec![Batch::new()];
    let mut total = 0;
    for ((suite, GoogleTest(tests)), beside) in suites.into_iter().zip(besides) {
        let suspects = suspects(context, suite);
        total += suspects.len();
        let budget = RefCell::new(Budget::of(context.plan.confirm_budget, suite.facts.screened_s));
        let waiting = Cell::new(suspects.len());
        let open = Open { suite, beside, tests, suspects, budget, waiting };
        match batches.first_mut().filter(|_| beside > Beside::Nothing) {
            Some(together) => together.push(open),
            None => batches.push(vec![open]),
        }
    }
    if total > 0 && context.plan.confirm {
        let beside =
            if most > 1 { format!(", up to {most} at once, as in your own run") } else { String::new() };
        context.console.line(&format!("confirming {total}, each alone{beside}"));
    }
    let lanes = Lanes::new(context, most)?;
    let progress = RefCell::new(Progress::of_silent_tests(context.console, "confirming", total as u64));
    let pass = Pass { lanes, progress, done: Cell::new(0), is_over: Cell::new(false) };
    for (batch, at_once) in batches.into_iter().zip([most].into_iter().chain(std::iter::repeat(1))) {
        confirm(context, batch, at_once, &pass, &mut finished).await?;
    }
    Ok(finished)
}

fn suspects(context: &Context<'_>, suite: &Suite) -> Vec<Suspect> {
    let (records, name, policy) = (suite.records(), &suite.facts.name, &context.plan.policy);
    let mut suspects = memgate_analysis::screen(&records, name, policy);
    // Tests that the user's own run repeats are judged by those executions, if these suffice; tests that we repeat are
    // confirmed alone.
    let is_known = |suspect: &Suspect| {
        // Only the program itself can repeat tests that it marks through the C API.
        let known = |record: &ProcessRecord| {
            record.tells_its_own_tests()
                || Confirmation::new(policy, name, &suspect.test).is_known_from_screen(record)
        };
        !context.plan.confirm || records.get(suspect.record).copied().is_some_and(known)
    };
    suspects.retain(|suspect| !suite.facts.confirmations.contains_key(&suspect.test));
    suspects.retain(|suspect| !suspect.repeated || context.plan.screen_repetitions > 1 || !is_known(suspect));
    memgate_analysis::causes_first(suspects, &records)
}

async fn confirm(
    context: &mut Context<'_>,
    mut batch: Batch<'_>,
    at_once: usize,
    pass: &Pass<'_>,
    finished: &mut Vec<Finished>,
) -> Result<(), Stopped> {
    let mut answers = take(context, &batch, queues(&batch), at_once, pass).await?;
    if at_once > 1 {
        let (disturbed, undisturbed): (Vec<_>, Vec<_>) = answers.into_iter().partition(Answer::is_disturbed);
        answers = undisturbed;
        if !disturbed.is_empty() {
            let count = disturbed.len();
            context
                .console
                .line(&format!("{count} did not pass beside others: once more, one after the other"));
        }
        let queue = disturbed.into_iter().map(Answer::forget).collect::<Result<_, _>>()?;
        answers.extend(take(context, &batch, vec![queue], 1, pass).await?);
    }
    for Answer { turn, facts, finished: its } in answers {
        if let Some(open) = batch.get_mut(turn.suite) {
            open.suite.facts.confirmations.insert(turn.suspect.test, facts);
        }
        finished.extend(its);
    }
    for Open { suite, tests, suspects, budget, .. } in batch {
        let mut budget = budget.into_inner();
        if context.plan.confirm {
            budget.begin();
            company::confirm(context, suite, tests, &suspects, &mut budget, finished).await?;
        }
        tell(context, suite, &budget);
    }
    Ok(())
}

/// Reports which suspects of a suite stay unconfirmed, and why.
fn tell(context: &Context<'_>, suite: &Suite, budget: &Budget) {
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

fn queues(batch: &Batch<'_>) -> Vec<Queue> {
    let mut queues = Vec::new();
    for (suite, open) in batch.iter().enumerate() {
        let turns = open.suspects.iter().map(|suspect| Turn { suite, suspect: suspect.clone() });
        match open.beside {
            Beside::Itself => queues.extend(turns.map(|turn| vec![turn])),
            Beside::Others | Beside::Nothing => queues.push(turns.collect()),
        }
    }
    queues
}

/// Takes turns from up to `at_once` queues at the same time.
async fn take(
    context: &Context<'_>,
    batch: &Batch<'_>,
    queues: Vec<Queue>,
    at_once: usize,
    pass: &Pass<'_>,
) -> Result<Vec<Answer>, Stopped> {
    let answers = stream::iter(queues).map(|queue| async {
        let mut answers = Vec::new();
        for turn in queue {
            // When one stops the pass, running turns are waited for: each ends its own processes.
            if !pass.is_over.get() {
                let answer = take_one(context, batch, turn, at_once, pass).await;
                pass.is_over.set(pass.is_over.get() || answer.is_err());
                answers.push(answer);
            }
        }
        answers
    });
    let answers: Vec<Vec<_>> = answers.buffer_unordered(at_once).collect().await;
    answers.into_iter().flatten().collect()
}

async fn take_one(
    context: &Context<'_>,
    batch: &Batch<'_>,
    turn: Turn,
    at_once: usize,
    pass: &Pass<'_>,
) -> Result<Answer, Stopped> {
    let mut finished = Vec::new();
    let test = &turn.suspect.test;
    let show = || pass.progress.borrow_mut().update(pass.done.get(), test);
    show();
    let open = &batch[turn.suite];
    let of_suite = if open.beside == Beside::Itself { at_once } else { 1 };
    let (most, is_over_for_freed) = {
        let mut budget = open.budget.borrow_mut();
        budget.begin();
        (budget.share(open.waiting.get().div_ceil(of_suite)), budget.is_over_for_freed())
    };
    let facts = if !context.plan.confirm {
        ConfirmationFacts::Impossible(NOT_CONFIRMED.to_owned())
    } else if turn.suspect.freed_since && is_over_for_freed {
        ConfirmationFacts::FreedSince
    } else if let Some(most) = most {
        let mut lane = pass.lanes.take()?;
        let mut context = lane.of(context);
        let mut show = |_: &_| show();
        let ran = one(&mut context, open, &turn.suspect, most, &mut finished, &mut show).await;
        drop(context);
        pass.lanes.give_back(lane, &mut finished)?;
        ran?
    } else {
        ConfirmationFacts::Impossible(open.budget.borrow_mut().leaves_open("it was over before its turn"))
    };
    open.budget.borrow_mut().end();
    open.waiting.set(open.waiting.get().saturating_sub(1));
    pass.done.set(pass.done.get() + 1);
    Ok(Answer { turn, facts, finished })
}

impl Answer {
    /// Whether its test could not be repeated, or did not pass each time.
    fn is_disturbed(&self) -> bool {
        let has_failed = |process: &Finished| {
            let failed = |window: &Window| window.outcome == Some(Outcome::Failed);
            let ended_well = matches!(process.ending, EndingFacts::Exited(0) | EndingFacts::Unknown);
            !ended_well || process.record.windows.iter().any(failed)
        };
        matches!(self.facts, ConfirmationFacts::Broken(_)) || self.finished.iter().any(has_failed)
    }

    /// Removes its recordings.
    fn forget(self) -> Result<Turn, Stopped> {
        for process in &self.finished {
            forget(&process.process.file)?;
        }
        Ok(self.turn)
    }
}

/// Repeats a suspect for at most `most`. A set-up that behaves differently with one test is repeated with all tests of
/// its suite.
async fn one(
    context: &mut Context<'_>,
    open: &Open<'_>,
    suspect: &Suspect,
    most: Duration,
    finished: &mut Vec<Finished>,
    show: &mut dyn FnMut(&RunState),
) -> Result<ConfirmationFacts, Stopped> {
    let Open { suite, tests, budget, .. } = open;
    let (suite, test): (&Suite, &str) = (suite, &suspect.test);
    let lasts = |most| Lasts::NoLonger(most, budget.borrow().waited());
    let alone = match alone(context, suite, (test, suspect.record), tests, lasts(most), show).await? {
        Ok(done) => kept(context, test, done, finished)?,
        Err(facts) => return Ok(facts),
    };
    if let Some(cut) = cut(context, open, test, (&alone, finished), most) {
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
    let filter = with.and_then(|tests| gtest::filter_for_all(&tests, &all).ok());
    // If so many tests cannot be selected, the result with one test counts.
    let Some(filter) = filter.filter(|filter| filter.len() <= company::MOST_FILTER) else { return Ok(alone) };
    let share = budget.borrow().share(1);
    let Some(share) = share else {
        let why = budget.borrow_mut().leaves_open("it was over before this ran with more of its tests");
        return Ok(ConfirmationFacts::Impossible(why));
    };
    let most = company::most(suite).min(share);
    let with_more = match repeat(context, (suite, process), (test, &filter), lasts(most), show).await? {
        Ok(done) => kept(context, test, done, finished)?,
        Err(facts) => return Ok(facts),
    };
    Ok(cut(context, open, test, (&with_more, finished), most).unwrap_or(with_more))
}

/// Replaces `facts` for the last of `finished` if its time ended before a verdict.
fn cut(
    context: &Context<'_>,
    open: &Open<'_>,
    test: &str,
    (facts, finished): (&ConfirmationFacts, &[Finished]),
    most: Duration,
) -> Option<ConfirmationFacts> {
    let again = finished.last().filter(|_| matches!(facts, ConfirmationFacts::Repeated(_)));
    let record = again.map(|process| &process.record).filter(|record| elapsed(record) >= most)?;
    let confirmation = Confirmation::new(&context.plan.policy, &open.suite.facts.name, test);
    let executions = record.windows_of(test).count();
    let why = || {
        open.budget.borrow_mut().leaves_open(&format!("its share of it ended after {executions} executions"))
    };
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
