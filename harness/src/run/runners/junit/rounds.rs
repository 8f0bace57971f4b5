//! The rounds: every test class of a suite, again and again in one virtual machine, so that what
//! grows each time is seen. A class that does not grow runs three or four times, a suspect eight,
//! up to 40 where but a few strings grow. The same rounds over the tests of one class ([`over`])
//! tell which of them grow.

use std::time::Instant;

use memgate_analysis::{ProcessRecord, RoundsWatch, Unit, leaves_native};
use memgate_config::Screen;
use memgate_wire::Boundary;
use memgate_wire::reply::Reply;
use memgate_wire::spool::order;

use super::ours::{Files, Junit, WAIT, patience, silenced, whole_class, worker};
use super::windows::{self, Compared};
use crate::device::text;
use crate::exit::chain;
use crate::hotspot::agentless::Agentless;
use crate::output::{Console, Progress};
use crate::run::engine::{
    Clocked, Context, Done, Finished, Job, Limit, MakeOrders, Orders, RunState, Settle, Stopped, keep_output,
    supervise,
};
use crate::run::runners::framework::Suite;
use crate::run::runners::java::classes_text;
use crate::session::facts::{JavaFacts, problem};
use crate::session::label::Label;
use crate::suite::junit::{self as plan, ROUNDS, Selection, Worker};

/// Compiler directives: nothing is compiled.
const NOTHING: &str = "[{ match: \"*.*\", c1: { Exclude: true }, c2: { Exclude: true } }]\n";
/// Changed windows that are reported one by one.
const SHOWN: usize = 5;

/// Runs the rounds of `suite` and notes the classes that grew.
pub(super) async fn rounds(
    context: &mut Context<'_>,
    suite: &mut Suite,
    junit: &mut Junit,
) -> Result<(), Stopped> {
    let name = suite.facts.name.clone();
    let compared = windows::compare(context, &name, junit);
    let unchanged = |class: &String| compared.as_ref().is_some_and(|c| c.unchanged.contains(class));
    let (plain, odd): (Vec<Selection>, Vec<Selection>) = junit
        .classes
        .iter()
        .filter(|(class, _)| !unchanged(class))
        .map(whole_class)
        .partition(Selection::is_plain);
    let facts = suite.facts.java.get_or_insert_with(JavaFacts::default);
    if context.plan.screen == Screen::Off {
        *facts = JavaFacts::off();
        return Ok(());
    }
    if junit.classes.is_empty() && suite.facts.problems.is_empty() {
        facts.not_screened = Some("none of its tests passed".to_owned());
        return Ok(());
    }
    if let Some(compared) = &compared {
        let total = junit.classes.len();
        facts.unchanged.clone_from(&compared.unchanged);
        tell(context.console, &name, compared, total);
        let same = total.saturating_sub(plain.len() + odd.len());
        if same > 0 {
            facts.not_screened =
                Some(format!("{same} of {} left no more than the baseline says", classes_text(total)));
        }
        if same == total {
            return Ok(());
        }
    }
    for class in odd {
        let what = format!("the class {:?} was not measured in rounds: a plan cannot name it", class.class);
        suite.facts.problems.push(problem(&name, what, ""));
    }
    let worker = match worker(suite, junit) {
        Ok(worker) if !plain.is_empty() => worker,
        other => {
            let why = other.err().filter(|_| !plain.is_empty());
            suite.facts.problems.extend(why.map(|why| not_measured(&name, &why)));
            return Ok(());
        }
    };
    context.console.line(&format!(
        "{name}: up to {ROUNDS} rounds over {} in one virtual machine, and more of what grows",
        classes_text(plain.len())
    ));
    let total = plain.len() as u64 * u64::from(ROUNDS);
    let mut progress = Progress::of_silent_tests(context.console, &format!("rounds of {name}"), total);
    let mut show = |state: &RunState| progress.update(state.tests().min(total), &state.status());
    let label = Label::Rounds { suite: name.clone() };
    let of_classes = Rounds { units: &plain, unit: Unit::Class, executions: 1, until: None };
    let (done, speaker) = over(context, (suite, worker, junit.native), of_classes, &label, &mut show).await?;
    drop(progress);
    let output = keep_output(context, &format!("rounds-{name}"), &done)?;
    let exit = done.ended.exit;
    junit.rounds = done.finished.into_iter().filter(Finished::is_main).collect();
    junit.leave_out_failed();
    facts_of(suite).rounds = junit.rounds.iter().map(Finished::facts).collect();
    let spoken = silenced(speaker);
    if let Err(why) = &spoken {
        suite.facts.problems.push(not_measured(&name, &format!("failed to {}", chain(why))));
    } else if !exit.is_success() || junit.rounds.is_empty() {
        let why = format!("the launcher ended with {exit}; its output: {output}");
        suite.facts.problems.push(not_measured(&name, &why));
    }
    let screened =
        junit.rounds.first().map(|p| memgate_analysis::screen_rounds(&p.record, &name, &context.plan.policy));
    // What is wrong with the rounds is reported when they are judged.
    junit.suspects = screened.and_then(Result::ok).unwrap_or_default();
    Ok(())
}

/// What rounds run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rounds<'a> {
    pub(super) units: &'a [Selection],
    pub(super) unit: Unit,
    /// Executions in a window.
    pub(super) executions: u32,
    /// The end of the time there is for them.
    pub(super) until: Option<Instant>,
}

/// Runs these units in rounds, in one virtual machine, until enough was seen of each. `native`:
/// with the native tracker.
pub(super) async fn over(
    context: &mut Context<'_>,
    (suite, worker, native): (&Suite, Worker<'_>, bool),
    rounds: Rounds<'_>,
    label: &Label,
    show: &mut dyn FnMut(&RunState),
) -> Result<(Done, Option<Agentless>), Stopped> {
    let Rounds { units, unit, executions, until } = rounds;
    let files = Files::new(context)?;
    let directives = files.write("directives", NOTHING)?;
    // Rounds of tests look closer at a class that is a suspect already.
    let native_sampling = if matches!(unit, Unit::Class) { context.plan.native_sampling } else { 0 };
    let (options, option) = files.options(context, label, |options| {
        options.wait = WAIT;
        options.native_sampling = native_sampling;
        options.directives = text(&directives);
    })?;
    let ours =
        files.launcher(context, (worker, native), (&options, &option), &plan::rounds(units, executions))?;
    let (policy, name) = (context.plan.policy.clone(), suite.facts.name.clone());
    // A window is a whole unit.
    let most_tests = units.iter().map(|unit| unit.only.len()).max().unwrap_or_default().max(1);
    let limit = Limit::Ends(patience(suite, most_tests).saturating_mul(executions));
    let orders: MakeOrders = Box::new(move |_| {
        let watch = RoundsWatch::new(&policy, &name, unit);
        Box::new(Suspects { watch, settle: Settle::new(true), until })
    });
    let job = Job::new(ours.launch, options, Clocked::Alone, limit).loaded().with(orders);
    Ok((supervise(context, job, show).await?, ours.speaker))
}

/// Ends the rounds of a unit of which enough was seen.
struct Suspects {
    watch: RoundsWatch,
    /// Waits for native memory, if it is tracked: finalizers and cleaners may be about to free it.
    settle: Settle,
    until: Option<Instant>,
}

impl Orders for Suspects {
    fn at_test_end(&mut self, boundary: &Boundary, record: &ProcessRecord) -> Reply {
        let Self { watch, settle, until } = self;
        watch.observe(record);
        let Boundary { suite, test, .. } = boundary;
        let leaves = watch.is_warm() && leaves_native(record);
        if leaves && settle.again(boundary, record) {
            return Reply::of(order::SETTLE);
        }
        let warm = if watch.is_warm() { order::COMPILED } else { 0 };
        let done = watch.is_done(suite, test) && (!leaves || watch.ran_like_a_suspect(suite, test));
        let done = if done { order::DONE } else { 0 };
        let out_of_time = until.is_some_and(|until| until <= Instant::now());
        let stop = watch.is_exhausted() || watch.is_over() || out_of_time;
        let stop = if stop { order::STOP } else { 0 };
        Reply::of(warm | done | stop)
    }
}

/// Which test classes have to be screened in spite of the baseline.
fn tell(console: &Console, suite: &str, compared: &Compared, total: usize) {
    let same = compared.unchanged.len();
    console.line(&format!("{suite}: {same} of {} left no more than the baseline says", classes_text(total)));
    for changed in compared.changed.iter().take(SHOWN) {
        console.line(&format!("  {changed}"));
    }
    if compared.changed.len() > SHOWN {
        console.line(&format!("  and {} more", compared.changed.len() - SHOWN));
    }
}

fn facts_of(suite: &mut Suite) -> &mut JavaFacts {
    suite.facts.java.get_or_insert_with(JavaFacts::default)
}

fn not_measured(suite: &str, why: &str) -> memgate_model::Problem {
    problem(suite, format!("the rounds were not measured: {why}"), "")
}
