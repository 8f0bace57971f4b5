//! The rounds: every test class of a suite runs several times in one virtual machine, to see what grows each time. A
//! class that does not grow runs three to five times, a suspect eight times, or up to 40 times if only a few strings
//! grow. The same rounds over the tests of one class ([`over`]) show which of them grow.
//!
//! If something grew only while all classes ran, further rounds follow in which each class runs twice in a row
//! ([`grew_in_company`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use memgate_analysis::{
    GatePolicy, ProcessRecord, RoundsWatch, Unit, grew_in_company, leaves_native, screen_rounds,
};
use memgate_config::Screen;
use memgate_wire::Boundary;
use memgate_wire::reply::Reply;
use memgate_wire::spool::order;

use super::ours::{Files, Junit, WAIT, patience, silenced, whole_class, worker};
use super::windows::{self, Compared};
use crate::agent::text;
use crate::exit::failed_to;
use crate::hotspot::agentless::{Agentless, AgentlessError};
use crate::output::{Console, Progress};
use crate::run::engine::{
    Clocked, Context, Done, Finished, Job, Limit, MakeOrders, Orders, RunState, Settle, Stopped, forget,
    keep_output, supervise, test_id,
};
use crate::run::runners::framework::Suite;
use crate::run::runners::java::{classes_text, list, tests_of};
use crate::session::facts::{EndingFacts, JavaFacts, problem};
use crate::session::label::Label;
use crate::suite::junit::{self as plan, ROUNDS, Selection, Worker};

/// Compiler directives that exclude all methods from compilation.
const NOTHING: &str = "[{ match: \"*.*\", c1: { Exclude: true }, c2: { Exclude: true } }]\n";
/// The consequence of growth that no suspect explains.
const TWICE: &str = "Now each runs twice in a row: one may keep what it replaces";
/// Maximum number of excluded classes; for each, the rounds start again.
const MAX_BREAKING: usize = 3;

/// Runs the rounds of `suite` and notes the classes that grew.
pub(super) async fn rounds(
    context: &mut Context<'_>,
    suite: &mut Suite,
    junit: &mut Junit,
) -> Result<(), Stopped> {
    let Some(classes) = classes_to_run(context, suite, junit) else { return Ok(()) };
    run(context, suite, junit, (classes.clone(), 1)).await?;
    let Some(grew) = grew_in_hiding(junit) else { return Ok(()) };
    let name = &suite.facts.name;
    context.console.line(&format!("{name}: {grew} grew only as long as all test classes ran. {TWICE}"));
    let others = without_suspects(classes, suite, junit);
    run(context, suite, junit, (others, 2)).await
}

/// Rounds in which each test class that is no suspect runs twice in a row, because objects of the class `grew` came
/// from no suspect. `false`: they ran before.
pub(super) async fn twice_in_a_row(
    context: &mut Context<'_>,
    suite: &mut Suite,
    junit: &mut Junit,
    grew: &str,
) -> Result<bool, Stopped> {
    if grew_in_hiding(junit).is_some() {
        return Ok(false);
    }
    let windows = junit.rounds.iter().flat_map(|process| &process.record.windows);
    let ran: BTreeSet<&str> = windows.map(|window| window.suite.as_str()).collect();
    let classes = junit.classes.iter().filter(|(class, _)| ran.contains(class.as_str())).map(whole_class);
    let others = without_suspects(classes.collect(), suite, junit);
    if others.is_empty() {
        return Ok(false);
    }
    let name = &suite.facts.name;
    context.console.line(&format!("{name}: {grew} grew more in the rounds than alone. {TWICE}"));
    run(context, suite, junit, (others, 2)).await?;
    Ok(true)
}

/// Without those that were repeated, too: a suspect may have brought the class after it.
fn without_suspects(classes: Vec<Selection>, suite: &Suite, junit: &Junit) -> Vec<Selection> {
    let is_known = |unit: &Selection| {
        let breaks = suite.facts.java.as_ref().is_some_and(|java| java.breaking.contains_key(&unit.class));
        let repeated = || Selection::whole(&unit.class, tests_of(&junit.classes, &unit.class)).id();
        breaks
            || suite.facts.confirmations.contains_key(&repeated())
            || junit.suspects.iter().any(|suspect| suspect.suite == unit.class)
    };
    classes.into_iter().filter(|unit| !is_known(unit)).collect()
}

/// Growth that occurred only while all test classes ran.
fn grew_in_hiding(junit: &Junit) -> Option<String> {
    let ran_out = junit.suspects.iter().any(|suspect| suspect.ran_out.is_some());
    junit.rounds.iter().filter(|_| !ran_out).find_map(|process| grew_in_company(&process.record))
}

/// Runs rounds over these classes, with `executions` executions in each window.
async fn run(
    context: &mut Context<'_>,
    suite: &mut Suite,
    junit: &mut Junit,
    (classes, executions): (Vec<Selection>, u32),
) -> Result<(), Stopped> {
    let name = suite.facts.name.clone();
    let worker = match worker(suite, junit) {
        Ok(worker) if !classes.is_empty() => worker,
        other => {
            let why = other.err().filter(|_| !classes.is_empty());
            suite.facts.problems.extend(why.map(|why| not_measured(&name, &why)));
            return Ok(());
        }
    };
    let Ran { done, spoken, output, breaking, lost, nothing_is_left } =
        until_whole(context, suite, worker, classes, executions).await?;
    let how = how_it_ended(&done);
    facts_of(suite).breaking.extend(breaking);
    facts_of(suite).broken_off_s += lost.as_secs_f64();
    let ran: Vec<Finished> = done.finished.into_iter().filter(Finished::is_main).collect();
    // Errors in the rounds are reported when the rounds are judged.
    let screened = ran.first().map(|p| screen_rounds(&p.record, &name, &context.plan.policy));
    junit.suspects.extend(screened.and_then(Result::ok).unwrap_or_default());
    junit.rounds.extend(ran);
    junit.leave_out_failed();
    facts_of(suite).rounds = junit.rounds.iter().map(Finished::facts).collect();
    if let Err(why) = &spoken {
        suite.facts.problems.push(not_measured(&name, &failed_to(why)));
    } else if let Some(how) = how.filter(|_| !nothing_is_left) {
        let why = format!("{how}; its output: {output}");
        suite.facts.problems.push(not_measured(&name, &why));
    }
    Ok(())
}

/// The classes to run in rounds; reports the excluded ones. `None`: no rounds are run.
fn classes_to_run(context: &Context<'_>, suite: &mut Suite, junit: &Junit) -> Option<Vec<Selection>> {
    let name = suite.facts.name.clone();
    let facts = suite.facts.java.get_or_insert_with(JavaFacts::default);
    if context.plan.screen == Screen::Off {
        *facts = JavaFacts::off();
        return None;
    }
    if junit.classes.is_empty() && suite.facts.problems.is_empty() {
        facts.not_screened = Some("none of its tests passed".to_owned());
        return None;
    }
    let compared = windows::compare(context, &name, junit);
    let unchanged = |class: &String| compared.as_ref().is_some_and(|c| c.unchanged.contains(class));
    let changed = junit.classes.iter().filter(|(class, _)| !unchanged(class)).map(whole_class);
    let (plain, odd): (Vec<Selection>, Vec<Selection>) = changed.partition(Selection::is_plain);
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
            return None;
        }
    }
    for class in odd {
        let what = format!("the class {:?} was not measured in rounds: a plan cannot name it", class.class);
        suite.facts.problems.push(problem(&name, what, ""));
    }
    Some(plain)
}

/// Rounds that have ended.
struct Ran {
    done: Done,
    /// Error of the speaker, if the launcher has no agent.
    spoken: Result<(), AgentlessError>,
    /// File of its output.
    output: String,
    /// Classes that were excluded because they break the rounds, and how they do it.
    breaking: BTreeMap<String, String>,
    /// How long the rounds took that such classes ended.
    lost: Duration,
    /// Whether all classes were excluded.
    nothing_is_left: bool,
}

/// Runs these classes in rounds, and again without a class that ends them.
async fn until_whole(
    context: &mut Context<'_>,
    suite: &Suite,
    worker: Worker<'_>,
    mut classes: Vec<Selection>,
    executions: u32,
) -> Result<Ran, Stopped> {
    let name = &suite.facts.name;
    context.console.line(&format!(
        "{name}: up to {ROUNDS} rounds over {} in one virtual machine, and more of what grows",
        classes_text(classes.len())
    ));
    let total = classes.len() as u64 * u64::from(ROUNDS);
    let mut progress = Progress::of_rounds(context.console, &format!("rounds of {name}"), total);
    let mut show = |state: &RunState| progress.update(state.tests().min(total), &state.status());
    let label = Label::Rounds { suite: name.clone() };
    let (mut breaking, mut lost) = (BTreeMap::new(), Duration::ZERO);
    loop {
        let began = Instant::now();
        let of_classes = Rounds { units: &classes, unit: Unit::Class, executions, until: None };
        let (mut done, speaker) = over(context, suite, worker, of_classes, &label, &mut show).await?;
        let output = keep_output(context, &format!("rounds-{name}"), &done)?;
        let spoken = silenced(speaker);
        let broke = broken_off(&done, name, &context.plan.policy);
        let again = spoken.is_ok() && breaking.len() < MAX_BREAKING;
        let Some((class, what)) = broke.filter(|_| again) else {
            return Ok(Ran { done, spoken, output, breaking, lost, nothing_is_left: false });
        };
        context.console.warning(&format!(
            "{class} {what} when it is repeated: it is not judged, and the rounds begin again without it ({output})"
        ));
        classes.retain(|unit| unit.class != class);
        breaking.insert(class, what.to_owned());
        lost += began.elapsed();
        for process in done.finished.drain(..) {
            forget(&process.process.file)?;
        }
        if classes.is_empty() {
            return Ok(Ran { done, spoken, output, breaking, lost, nothing_is_left: true });
        }
    }
}

/// The class in whose window the launcher ended too early, and how that class breaks the rounds.
fn broken_off(done: &Done, suite: &str, policy: &GatePolicy) -> Option<(String, &'static str)> {
    let process = done.finished.iter().find(|process| process.is_main())?;
    let class = open_class(process)?;
    // If memory ran out, the rounds report it.
    if process.record.damaged.is_some() || screen_rounds(&process.record, suite, policy).is_ok() {
        return None;
    }
    let hangs = matches!(process.ending, EndingFacts::TimedOut(_));
    Some((class.to_owned(), if hangs { "hangs" } else { "ends the virtual machine" }))
}

fn open_class(process: &Finished) -> Option<&str> {
    process.record.open.iter().map(|open| open.window.suite.as_str()).find(|class| !class.is_empty())
}

/// How a launcher failed.
fn how_it_ended(done: &Done) -> Option<String> {
    let process = done.finished.iter().find(|process| process.is_main());
    match process {
        Some(Finished { ending: EndingFacts::TimedOut(seconds), .. }) => {
            let place = process.and_then(open_class).map(|class| format!(" in {class}"));
            Some(format!("memgate ended the launcher after {seconds} s{}", place.unwrap_or_default()))
        }
        Some(_) if done.ended.exit.is_success() => None,
        _ => Some(format!("the launcher ended with {}", done.ended.exit)),
    }
}

/// The units of rounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rounds<'a> {
    pub(super) units: &'a [Selection],
    pub(super) unit: Unit,
    /// Executions in a window.
    pub(super) executions: u32,
    /// The end of the time for them.
    pub(super) until: Option<Instant>,
}

/// Runs these units in rounds, in one virtual machine, until enough was seen of each.
pub(super) async fn over(
    context: &mut Context<'_>,
    suite: &Suite,
    worker: Worker<'_>,
    rounds: Rounds<'_>,
    label: &Label,
    show: &mut dyn FnMut(&RunState),
) -> Result<(Done, Option<Agentless>), Stopped> {
    let Rounds { units, unit, executions, until } = rounds;
    let files = Files::new(context)?;
    let directives = files.write("directives", NOTHING)?;
    // Rounds of tests look closer at a class that is already suspect.
    let native_sampling = if matches!(unit, Unit::Class) { context.plan.native_sampling } else { 0 };
    let (options, option) = files.options(context, label, |options| {
        options.wait = WAIT;
        options.native_sampling = native_sampling;
        options.directives = text(&directives);
    })?;
    let ours = files.launcher(context, worker, (&options, &option), &plan::rounds(units, executions))?;
    let (policy, name) = (context.plan.policy.clone(), suite.facts.name.clone());
    // A window is a whole unit.
    let most_tests = units.iter().map(|unit| unit.only.len()).max().unwrap_or_default();
    let limit = |tests: usize| patience(suite, tests.max(1)).saturating_mul(executions);
    let limits = units.iter().map(|unit| (unit.id(), limit(unit.only.len()))).collect();
    let limit = Limit::Ends(limit(most_tests));
    let orders: MakeOrders = Box::new(move |_| {
        let watch = RoundsWatch::new(&policy, &name, unit);
        Box::new(Suspects { watch, done: BTreeSet::new(), settle: Settle::new(true), until })
    });
    let job = Job::new(ours.launch, options, Clocked::Alone, limit).with_limits(limits).loaded().with(orders);
    Ok((supervise(context, job, show).await?, ours.speaker))
}

/// Ends the rounds of a unit when enough is known about it. A test still runs, but is no longer measured.
struct Suspects {
    watch: RoundsWatch,
    /// Ids of units about which enough is known.
    done: BTreeSet<String>,
    /// Waits for native memory, if it is tracked: finalizers and cleaners may be about to free it.
    settle: Settle,
    until: Option<Instant>,
}

impl Orders for Suspects {
    fn at_test_end(&mut self, boundary: &Boundary, record: &ProcessRecord) -> Reply {
        let Self { watch, done, settle, until } = self;
        watch.observe(record);
        let Boundary { suite, test, .. } = boundary;
        let leaves = watch.is_warm() && leaves_native(record);
        if leaves && settle.again(boundary, record) {
            return Reply::of(order::SETTLE);
        }
        let warm = if watch.is_warm() { order::COMPILED } else { 0 };
        let is_done = watch.is_done(suite, test) && (!leaves || watch.ran_like_a_suspect(suite, test));
        if is_done {
            done.insert(test_id(boundary));
        }
        let out_of_time = until.is_some_and(|until| until <= Instant::now());
        let stop = watch.is_exhausted() || watch.is_over(done) || out_of_time;
        let done = if is_done { order::DONE } else { 0 };
        let stop = if stop { order::STOP } else { 0 };
        Reply::of(warm | done | stop)
    }
}

/// Prints which test classes must be screened despite the baseline.
fn tell(console: &Console, suite: &str, compared: &Compared, total: usize) {
    let same = compared.unchanged.len();
    console.line(&format!("{suite}: {same} of {} left no more than the baseline says", classes_text(total)));
    list(console, compared.changed.iter());
}

fn facts_of(suite: &mut Suite) -> &mut JavaFacts {
    suite.facts.java.get_or_insert_with(JavaFacts::default)
}

fn not_measured(suite: &str, why: &str) -> memgate_model::Problem {
    problem(suite, format!("the rounds were not measured: {why}"), "")
}
