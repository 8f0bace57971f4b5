//! Confirms the suspects of the rounds: the class is repeated alone in one virtual machine, and if it grows, its tests.
//!
//! Data flow: a suspect class → repeated as a whole → if it grows: rounds over its tests, in one virtual machine
//! ([`over`]) → those that grow are each repeated alone, like the class → if the class leaves more than these, so are
//! tests whose growth the rounds may not have seen ([`NarrowedTests`]). Growth in no single test, or not in each
//! execution, is reported for the class. If a class does not grow, or some of its objects do not, the class after it
//! may be the growing one ([`JavaSuspect::behind`]). If a class grew more in the rounds than alone, another one may
//! keep what it replaces: rounds follow in which each of the others runs twice in a row. All repetitions together have
//! a time limit ([`Budget`]): classes that get no time stay unconfirmed.
//!
//! The invocations of a test mostly leak the same. So the first invocation of each test is repeated before the others.
//! If the test is then known to leak, the others get no more than the share of their class.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::ours::{Files, Junit, WAIT, patience, silenced, worker};
use super::rounds::{Rounds, over, twice_in_a_row};
use crate::exit::failed_to;
use crate::hotspot::agentless::Agentless;
use crate::output::Progress;
use crate::run::engine::{
    Budget, Clocked, Context, Done, Finished, Job, Limit, MakeOrders, RunState, Settle, Stopped, keep_output,
    outcome, supervise,
};
use crate::run::runners::framework::{NOT_CONFIRMED, Suite};
use crate::run::runners::java::{Last, Repeating, classes_text, list, tests_of};
use crate::session::facts::ConfirmationFacts;
use crate::session::label::Label;
use crate::suite::junit::{self as plan, Batch, Selection};
use memgate_analysis::{
    JavaSuspect, NarrowedTests, ProcessRecord, Unit, base_of, growing_tests, grows_beside, ran_out_of_memory,
};
use memgate_launch::Exit;
use memgate_wire::options::Detail;

/// Exit status of our launcher if it does not find the test.
const NO_SUCH_TEST: i32 = 3;
/// Up to this many tests are all confirmed if the rounds over them showed none that grows, or gave no result. Also the
/// most doubtful tests of a class to confirm.
const FEW: usize = 8;

/// Confirms the suspects of one suite.
pub(super) async fn confirm(
    context: &mut Context<'_>,
    suite: &mut Suite,
    junit: &mut Junit,
    finished: &mut Vec<Finished>,
) -> Result<(), Stopped> {
    let mut budget = Budget::of_classes(context.plan.confirm_budget, suite.facts.screened_s);
    budget.begin();
    let hidden = each(context, suite, junit, 0, (&mut budget, finished)).await?;
    let known = junit.suspects.len();
    if let Some(grew) = hidden
        && budget.share(1).is_some()
        && twice_in_a_row(context, suite, junit, &grew).await?
        && junit.suspects.len() > known
    {
        each(context, suite, junit, known, (&mut budget, finished)).await?;
    }
    if let Some(left_open) = budget.left_open() {
        context.console.warning(&format!("{}: {left_open}", suite.facts.name));
    }
    Ok(())
}

/// Confirms the suspects from `first` on. Returns a class whose objects grew more in the rounds than alone.
async fn each(
    context: &mut Context<'_>,
    suite: &mut Suite,
    junit: &Junit,
    first: usize,
    (budget, finished): (&mut Budget, &mut Vec<Finished>),
) -> Result<Option<String>, Stopped> {
    let mut suspects: VecDeque<&JavaSuspect> = junit.suspects.iter().skip(first).collect();
    let mut total = suspects.len();
    // Most likely leaks first, in case the time is too short for all.
    suspects.make_contiguous().sort_by_key(|suspect| !suspect.keeps_classes_of_project());
    if total > 0 && context.plan.confirm {
        let alone = if total == 1 { "" } else { ", each alone" };
        context.console.line(&format!("{}: confirming {}{alone}", suite.facts.name, classes_text(total)));
        list(
            context.console,
            suspects.iter().map(|suspect| format!("{}: {}", suspect.suite, suspect.seen())),
        );
    }
    let console = context.console;
    let mut progress = Progress::of_silent_tests(console, "confirming", total as u64);
    let (mut done, mut hidden, mut leaking) = (0, Vec::new(), BTreeSet::new());
    while let Some(suspect) = suspects.pop_front() {
        let class = &suspect.suite;
        let Some(share) = budget.share(total - done).filter(|_| context.plan.confirm) else {
            let why = match context.plan.confirm {
                true => budget.leaves_open("it was over before its turn"),
                false => NOT_CONFIRMED.to_owned(),
            };
            let id = Selection::whole(class, tests_of(&junit.classes, class)).id();
            suite.facts.confirmations.insert(id, ConfirmationFacts::Impossible(why));
            done += 1;
            continue;
        };
        let now = Instant::now();
        let how = How {
            batch: Batch::Of(1),
            // Known leaks are worth more time than waiting suspects, but not all of it.
            until: now.checked_add(share.max(budget.left() / 2)),
            share: now.checked_add(share),
            over: budget.why("it was over before this was known"),
        };
        let mut show = |id: &str| progress.update(done as u64, id);
        let before = finished.len();
        let repeater = Repeater { context, suite, junit, how, finished };
        let told = repeater.class(class, &mut show).await?;
        // The class is repeated before its tests.
        let alone = finished.get(before).map(|process| &process.record);
        if told == Told::Open {
            budget.counts_as_open();
        }
        if told != Told::Leaks || alone.is_some_and(|alone| suspect.grew_more_than(alone)) {
            suspects.extend(suspect.behind.as_deref());
        }
        if told == Told::Leaks {
            leaking.insert(class);
        }
        let grew = alone.and_then(|alone| suspect.kept_by_another(alone));
        hidden.extend(grew.map(|grew| (grew, suspect)));
        done += 1;
        total = done + suspects.len();
        progress.expect(total as u64);
    }
    // The class after it, if it leaks, explains what grew.
    let is_explained =
        |suspect: &JavaSuspect| suspect.behind.as_ref().is_some_and(|behind| leaking.contains(&behind.suite));
    Ok(hidden.into_iter().find(|(_, suspect)| !is_explained(suspect)).map(|(grew, _)| grew))
}

/// The result of repeating a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Leaks,
    Clean,
    /// There was not enough time.
    Open,
}

/// How a selection is repeated.
#[derive(Debug)]
pub(super) struct How {
    /// Executions in a window.
    pub(super) batch: Batch,
    /// The end of the time for it and its tests.
    pub(super) until: Option<Instant>,
    /// The end of its share. If it is still undecided then, and ran its minimum, it gives way to others.
    pub(super) share: Option<Instant>,
    /// The reason for the reader if the time was too short.
    pub(super) over: String,
}

impl How {
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }

    fn out_of_time(&self) -> ConfirmationFacts {
        ConfirmationFacts::Impossible(self.over.clone())
    }

    /// Is the time over for one more invocation of a test that is known to leak, or for a doubtful test?
    fn is_over_again(&self) -> bool {
        self.is_over() || self.share.is_some_and(|share| share <= Instant::now())
    }
}

/// How repeating a selection ended.
enum Repeated {
    /// There is no such class, or it is a test that cannot be selected.
    NotFound,
    /// The time was over before enough was known.
    OutOfTime,
    /// The result, and whether it was seen to leak.
    Known(ConfirmationFacts, bool),
}

impl Repeated {
    /// The facts, and whether it was seen to leak; `None`: it was not found.
    fn outcome(self, how: &How) -> Option<(ConfirmationFacts, bool)> {
        match self {
            Self::NotFound => None,
            Self::OutOfTime => Some((how.out_of_time(), false)),
            Self::Known(facts, leaks) => Some((facts, leaks)),
        }
    }
}

/// Repeats the suspects of one suite.
pub(super) struct Repeater<'r, 'c> {
    pub(super) context: &'r mut Context<'c>,
    pub(super) suite: &'r mut Suite,
    pub(super) junit: &'r Junit,
    pub(super) how: How,
    pub(super) finished: &'r mut Vec<Finished>,
}

impl Repeater<'_, '_> {
    /// Confirms a class, and if it grows its tests, until the time is over.
    pub(super) async fn class(mut self, class: &str, show: &mut dyn FnMut(&str)) -> Result<Told, Stopped> {
        let tests = tests_of(&self.junit.classes, class);
        let mut whole = Selection::whole(class, tests);
        let before = self.finished.len();
        let mut repeated = self.one(&whole, &mut |_| show(&whole.id())).await?;
        if matches!(repeated, Repeated::NotFound) && !whole.test.is_empty() {
            whole = Selection::class(class, tests);
            repeated = self.one(&whole, &mut |_| show(&whole.id())).await?;
        }
        let is_open = matches!(repeated, Repeated::OutOfTime);
        let no_class = || (ConfirmationFacts::Broken("its class is not found".to_owned()), false);
        let (outcome, leaks) = repeated.outcome(&self.how).unwrap_or_else(no_class);
        self.suite.facts.confirmations.insert(whole.id(), outcome);
        if is_open {
            return Ok(Told::Open);
        }
        if !leaks {
            return Ok(Told::Clean);
        }
        if tests.len() < 2 || self.how.is_over() {
            return Ok(Told::Leaks);
        }
        let units: Vec<Selection> = tests.iter().map(|test| Selection::one(class, test)).collect();
        let mut of_all = |_: &_| show(&format!("the tests of {class}"));
        let narrowed = self.growing(&units, &mut of_all).await?;
        let chosen = Chosen::of(&units, narrowed.as_ref());
        self.each_alone((before, class), chosen, show).await
    }

    /// Repeats tests of a class that leaks, each alone.
    async fn each_alone(
        &mut self,
        (before, class): (usize, &str),
        Chosen { growing: mut asked, mut doubtful }: Chosen<'_>,
        show: &mut dyn FnMut(&str),
    ) -> Result<Told, Stopped> {
        let mut told = Told::Leaks;
        let mut none_is_known = true;
        let mut leaking = BTreeSet::new();
        let mut alone = Vec::new();
        let mut is_doubtful = false;
        loop {
            let Some(test) = asked.pop_front() else {
                let more = std::mem::take(&mut doubtful);
                if more.is_empty() || !self.grows_beside((before, class), &alone) {
                    break;
                }
                asked.extend(more);
                is_doubtful = true;
                continue;
            };
            // Their class is judged without them.
            if is_doubtful && self.how.is_over_again() {
                break;
            }
            if self.how.is_over() || leaking.contains(base_of(&test.test)) && self.how.is_over_again() {
                // The class fails instead of its tests: if only one test failed, the others would look clean.
                if none_is_known {
                    break;
                }
                self.suite.facts.confirmations.insert(test.id(), self.how.out_of_time());
                told = Told::Open;
                continue;
            }
            let mut of_test = |_: &_| show(&test.id());
            let at = self.finished.len();
            let repeated = self.one(test, &mut of_test).await?;
            if at < self.finished.len() {
                alone.push((at, test.id()));
            }
            // Otherwise it is judged with its class.
            let Some((outcome, leaks)) =
                repeated.outcome(&self.how).filter(|(_, leaks)| *leaks || !is_doubtful)
            else {
                continue;
            };
            // The class has a verdict; this test got none.
            if none_is_known && self.how.is_over() && !leaks {
                break;
            }
            none_is_known &= !leaks;
            if leaks {
                leaking.insert(base_of(&test.test));
            }
            self.suite.facts.confirmations.insert(test.id(), outcome);
        }
        Ok(told)
    }

    /// Does the class grow by more than its tests that ran alone? Each comes with its process in `finished`.
    fn grows_beside(&self, (at, class): (usize, &str), tests: &[(usize, String)]) -> bool {
        let record = |at: usize| self.finished.get(at).map(|process| &process.record);
        let tests: Vec<_> =
            tests.iter().filter_map(|(at, test)| Some((record(*at)?, test.clone()))).collect();
        let (suite, policy) = (&self.suite.facts.name, &self.context.plan.policy);
        record(at).is_some_and(|of_class| grows_beside((of_class, class), &tests, suite, policy))
    }

    /// Finds which of these tests of a class grow, by rounds over them in one virtual machine; `None`: the rounds gave
    /// no result.
    async fn growing(
        &mut self,
        tests: &[Selection],
        show: &mut dyn FnMut(&RunState),
    ) -> Result<Option<NarrowedTests>, Stopped> {
        let plain: Vec<Selection> = tests.iter().filter(|test| test.is_plain()).cloned().collect();
        let Some((class, worker)) =
            plain.first().map(|test| &test.class).zip(worker(self.suite, self.junit).ok())
        else {
            return Ok(None);
        };
        let name = &self.suite.facts.name;
        let label = Label::Narrow { suite: name.clone(), class: class.clone() };
        let (executions, until) = (executions(self.how.batch), self.how.until);
        let units = Rounds { units: &plain, unit: Unit::Test, executions, until };
        let (mut done, speaker) = over(self.context, self.suite, worker, units, &label, show).await?;
        keep_output(self.context, &format!("tests-of-{class}"), &done)?;
        let Some(at) = done.finished.iter().position(Finished::is_main) else { return Ok(None) };
        let process = done.finished.swap_remove(at);
        let grew = growing_tests(&process.record, name, &self.context.plan.policy);
        self.finished.push(process);
        Ok(grew.ok().filter(|_| silenced(speaker).is_ok()))
    }

    /// Repeats one selection.
    async fn one(
        &mut self,
        selection: &Selection,
        show: &mut dyn FnMut(&RunState),
    ) -> Result<Repeated, Stopped> {
        let impossible =
            |why: &str| Ok(Repeated::Known(ConfirmationFacts::Impossible(why.to_owned()), false));
        if !self.context.plan.confirm {
            return impossible(NOT_CONFIRMED);
        }
        if !selection.is_plain() {
            return impossible("its name holds a line break, which a plan cannot");
        }
        let (name, id) = (self.suite.facts.name.clone(), selection.id());
        let label = Label::Confirm { suite: name.clone(), test: id.clone() };
        let last = Arc::new(Last::default());
        let policy = self.context.plan.policy.clone();
        let (test, said, kept) = (id.clone(), Arc::clone(&last), Arc::clone(&self.context.kept));
        let How { batch, until, share, .. } = self.how;
        let orders: MakeOrders = Box::new(move |process| {
            let mut repeating = Repeating::new(&policy, (&name, &test), took, &said);
            repeating.settle = Settle::new(true);
            repeating.kept = Some(Arc::clone(&kept));
            repeating.pid = Some(process.hello.pid).filter(|_| process.visible);
            repeating.until = until;
            repeating.share = share;
            Box::new(repeating)
        });
        let (done, speaker) =
            match again(self.context, self.suite, self.junit, selection, (label, batch), orders, show).await?
            {
                Ok(ended) => ended,
                Err(why) => return impossible(&why),
            };
        let output = keep_output(self.context, &id, &done)?;
        if let Err(why) = silenced(speaker) {
            let why = failed_to(&why);
            return Ok(Repeated::Known(ConfirmationFacts::Broken(why), false));
        }
        if is_unknown(&done) {
            return Ok(Repeated::NotFound);
        }
        let ended_well = done.ended.exit.is_success();
        let outcome = match outcome(self.context, done, &id, &output, self.finished) {
            // It was not ordered to stop, so it did not wait for our reply.
            ConfirmationFacts::Repeated(_) if ended_well && !last.was_told.load(Ordering::Acquire) => {
                ConfirmationFacts::Broken(
                    "it ended before enough was known: memgate answered too late".to_owned(),
                )
            }
            outcome => outcome,
        };
        let filled_the_heap = matches!(outcome, ConfirmationFacts::Repeated(_))
            && self.finished.last().is_some_and(|process| ran_out_of_memory(&process.record, &id));
        let leaks = filled_the_heap || last.leaks.load(Ordering::Acquire);
        if last.out_of_time.load(Ordering::Acquire) && !leaks {
            return Ok(Repeated::OutOfTime);
        }
        Ok(Repeated::Known(outcome, leaks))
    }
}

/// The tests of a leaking class that are repeated alone.
#[derive(Default)]
struct Chosen<'t> {
    growing: VecDeque<&'t Selection>,
    /// Repeated if the class leaves more than the others.
    doubtful: Vec<&'t Selection>,
}

impl<'t> Chosen<'t> {
    /// `narrowed`: what the rounds over all tests of the class (`units`) showed.
    fn of(units: &'t [Selection], narrowed: Option<&NarrowedTests>) -> Self {
        let are_few = units.len() <= FEW;
        let named = |ids: &[String]| -> Vec<&'t Selection> {
            invocations_last(units.iter().filter(|unit| ids.contains(&unit.id()))).collect()
        };
        match narrowed {
            Some(NarrowedTests { growing, doubtful }) if !growing.is_empty() || !are_few => {
                let doubtful = named(doubtful).into_iter().take(FEW).collect();
                Self { growing: named(growing).into(), doubtful }
            }
            _ if are_few => Self { growing: invocations_last(units.iter()).collect(), ..Self::default() },
            _ => Self::default(),
        }
    }
}

/// The first invocation of each test, then all the others.
fn invocations_last<'t>(tests: impl Iterator<Item = &'t Selection>) -> impl Iterator<Item = &'t Selection> {
    let mut known = BTreeSet::new();
    let (first, others): (Vec<_>, Vec<_>) = tests.partition(|test| known.insert(base_of(&test.test)));
    first.into_iter().chain(others)
}

/// Executions in a window.
fn executions(batch: Batch) -> u32 {
    match batch {
        Batch::Of(executions) => executions,
        Batch::Lasting(_) => 1,
    }
}

/// Whether our launcher did not find the test. Some engines know their tests only when their class runs.
fn is_unknown(done: &Done) -> bool {
    let mut began = done.finished.iter().map(|process| &process.record);
    done.ended.exit == Exit::Code(NO_SUCH_TEST)
        && began.all(|record| record.windows.is_empty() && record.open.is_empty())
}

/// Repeats one selection in our own virtual machine; or returns why that is impossible.
pub(super) async fn again(
    context: &mut Context<'_>,
    suite: &Suite,
    junit: &Junit,
    selection: &Selection,
    (label, batch): (Label, Batch),
    orders: MakeOrders,
    show: &mut dyn FnMut(&RunState),
) -> Result<Result<(Done, Option<Agentless>), String>, Stopped> {
    let worker = match worker(suite, junit) {
        Ok(worker) => worker,
        Err(why) => return Ok(Err(why)),
    };
    let files = Files::new(context)?;
    let (options, option) = files.options(context, &label, |options| {
        options.detail = Detail::Growth;
        options.wait = WAIT;
    })?;
    let plan = plan::repeat(selection, batch);
    let ours = files.launcher(context, worker, (&options, &option), &plan)?;
    let tests =
        if selection.test.is_empty() { tests_of(&junit.classes, &selection.class).len().max(1) } else { 1 };
    let limit = Limit::Ends(patience(suite, tests).saturating_mul(executions(batch)));
    let job = Job::new(ours.launch, options, Clocked::Alone, limit).loaded().with(orders);
    let done = supervise(context, job, show).await?;
    Ok(Ok((done, ours.speaker)))
}

/// The time of all iterations, without the harness's own time between them.
fn took(record: &ProcessRecord) -> Duration {
    Duration::from_nanos(record.windows.iter().map(|w| w.end_ns.saturating_sub(w.start_ns)).sum())
}

#[cfg(test)]
mod tests {
    use memgate_analysis::Window;

    use super::*;

    #[test]
    fn what_lies_between_the_iterations_does_not_count() {
        let window = |start_ns, end_ns| Window { start_ns, end_ns, ..Window::default() };
        let mut record = ProcessRecord::default();
        record.windows = vec![window(100, 200), window(5000, 5800)];
        assert_eq!(took(&record), Duration::from_nanos(900));
    }

    #[test]
    fn each_test_comes_before_the_other_invocations_of_one() {
        let names = ["a()[1]", "a()[2]", "b()", "[x]/c[x]", "a()[3]", "[y]/c[y]"];
        let tests: Vec<Selection> =
            names.iter().map(|test| Selection::one("com.example.ATest", test)).collect();
        let order: Vec<&str> = invocations_last(tests.iter()).map(|test| test.test.as_str()).collect();
        assert_eq!(order, ["a()[1]", "b()", "[x]/c[x]", "a()[2]", "a()[3]", "[y]/c[y]"]);
    }

    #[test]
    fn one_more_invocation_of_a_leaking_test_gets_no_more_than_the_share() {
        let now = Instant::now();
        let how = |share: Option<Instant>, until: Option<Instant>| {
            let how = How { batch: Batch::Of(1), until, share, over: String::new() };
            (how.is_over(), how.is_over_again())
        };
        let later = now.checked_add(Duration::from_secs(3600));
        assert_eq!(how(later, later), (false, false));
        assert_eq!(how(Some(now), later), (false, true));
        assert_eq!(how(Some(now), Some(now)), (true, true));
        assert_eq!(how(None, None), (false, false));
    }
}
