//! The screening pass of native programs: one command, run as the user would run it, with the agent inside. Only
//! afterwards is it known which programs have GoogleTest tests and which are a test as a whole.
//!
//! Data flow: planned suite and [`Choice`] → `supervise` → its processes, grouped into [`Screened`] suites
//! (`suites`). A program that could not be measured becomes a problem of its suite, with advice (`unmeasured`): it is
//! never left out.

mod suites;
mod unmeasured;

use std::collections::BTreeSet;
use std::time::Duration;

use memgate_analysis::{Window, must_be_screened_again};
use memgate_launch::Environment;
use memgate_wire::options::{EndOfMain, StackMode};
use memgate_wire::setup;

use super::choose::{Choice, Mode, is_the_test};
use super::divide::Selected;
use super::starts::{Listed, Starts};
use super::{Screened, missing};
use crate::agent::{of_tests, text};
use crate::output::Progress;
use crate::plan::PlannedSuite;
use crate::run::engine::{
    Clocked, Context, CopyAtMainEnd, Done, Finished, Job, Limit, MakeOrders, Screening, Settle, Stopped,
    forget, launch, no_room, status, supervise, typed,
};
use crate::session::facts::{Facts, problem};
use crate::session::label::Label;
use crate::suite::{Program, gtest};
use suites::{has_something, is_of, suites};
use unmeasured::{
    filter_is_not_heard, gone, left_out, meant, not_measured, selects_nothing, unseen, with_a_test,
};

/// How long a look at descriptors and threads stays valid for tests that leave nothing.
const LOOK_LASTS: Duration = Duration::from_millis(5);

/// Runs one command of the plan.
pub(super) async fn screen(
    context: &mut Context<'_>,
    selected: &Selected,
    (program, choice): (&Program, &Choice),
    facts: &mut Facts,
) -> Result<Vec<Screened>, Stopped> {
    let planned = &selected.planned;
    if is_the_test(planned) && planned.repeating.is_none() && planned.targets.is_empty() && program.is_gtest()
    {
        context.console.warning(&format!(
            "{}: it contains GoogleTest; without `runner: command` each of its tests is judged",
            typed(planned)
        ));
    }
    let (mut done, listed) = execute(context, planned, choice, facts).await?;
    let unseen = match listed {
        Some(listed) => {
            gone(context.console, &listed, &done);
            left_out(context, planned, &listed, &done);
            unseen(&listed, planned, choice.mode, &done, facts)
        }
        None => Vec::new(),
    };
    let is_tree = choice.mode == Mode::Tree && planned.targets.is_empty();
    facts.command_ended(status(done.ended.exit));
    facts.errors.extend(done.problems.drain(..).map(|what| problem("recorder", what, "")));
    let is_test = |process: &Finished| !is_tree || !process.record.asked_for_no_test();
    let measured = done.finished.iter().any(is_test);
    let unseen = with_a_test(unseen, context.plan.filter.as_deref(), measured).await;
    if !measured && unseen.is_empty() {
        let no_room = no_room(&context.session.frames());
        // The part of a tree in this shard may be only scripts: only all shards together show that nothing is measured.
        let is_clear = !selected.starts_tests && program.blind().is_none() && no_room.is_none();
        if !(context.this_shard.is_some() && choice.mode == Mode::Tree && is_clear) {
            not_measured(planned, (program, choice), &done, no_room, facts);
        }
        return Ok(Vec::new());
    }
    let mut suites = suites(context, (selected, program), choice.mode, done, &unseen);
    let may_be_empty =
        context.plan.filter.is_some() || context.plan.may_be_empty || context.this_shard.is_some();
    if choice.mode == Mode::Direct && planned.name.is_some() && !may_be_empty {
        let empty = |screened: &&mut Screened| !has_something(screened) && is_of(&screened.suite, program);
        suites.iter_mut().filter(empty).for_each(|screened| selects_nothing(planned, &mut screened.suite));
    }
    for suite in &mut suites {
        missing::broken_off(&mut suite.suite).await;
        if is_of(&suite.suite, program) {
            missing::selected(&mut suite.suite, &selected.tests);
        }
        missing::repetitions(context, &suite.suite);
    }
    if let Some(filter) = &context.plan.filter {
        filtered(context, planned, (choice.mode, filter), &mut suites, facts).await;
    }
    Ok(suites)
}

/// Keeps the suites with tests that the filter selects: it may leave some executables of a tree without a test.
async fn filtered(
    context: &Context<'_>,
    planned: &PlannedSuite,
    (mode, filter): (Mode, &str),
    suites: &mut Vec<Screened>,
    facts: &mut Facts,
) {
    // A shard of a test program has an argument of ours, which respects the filter.
    let is_ours = context.this_shard.is_some() && mode == Mode::Direct;
    let mut processes = suites.iter().flat_map(|screened| &screened.suite.processes);
    let executables: BTreeSet<String> =
        processes.clone().map(|process| process.hello().executable.clone()).collect();
    let is_other = |window: &Window| {
        !window.is_setup() && !gtest::selects(filter, &format!("{}.{}", window.suite, window.test))
    };
    let ran_others =
        |process: &Finished| process.record.selects_tests() && process.record.windows.iter().any(is_other);
    if !is_ours && processes.any(ran_others) {
        context.console.warning(&filter_is_not_heard(planned, filter));
    }
    suites.retain(has_something);
    if suites.is_empty() && context.this_shard.is_none() {
        let what = format!("the filter {filter:?} selects no test of what ran below `{}`", typed(planned));
        facts.errors.push(problem(&typed(planned), what, &meant(&executables, filter).await));
    }
}

/// Runs the command. Runs it again if one look for several tests was not enough.
async fn execute(
    context: &mut Context<'_>,
    planned: &PlannedSuite,
    choice: &Choice,
    facts: &mut Facts,
) -> Result<(Done, Option<Listed>), Stopped> {
    // A user's command does more than run tests: only a test program is run again.
    let now_and_then = choice.mode == Mode::Direct
        && context.plan.confirm
        && context.plan.screen_repetitions == 1
        && context.plan.policy.allows_looks_now_and_then();
    let look_lasts = if now_and_then { LOOK_LASTS } else { Duration::ZERO };
    let stacks = stacks(context, planned, choice.mode);
    let (first, listed) = execute_once(context, planned, choice, (look_lasts, stacks)).await?;
    if !first.finished.iter().any(|process| must_be_screened_again(&process.record)) {
        return Ok((first, listed));
    }
    context.console.line(&format!(
        "{}: one of several tests opened a descriptor or started a thread: screened again, with a look at each",
        typed(planned)
    ));
    first.finished.iter().try_for_each(|process| forget(&process.process.file))?;
    // A failed test of the first run counts.
    facts.command_ended(status(first.ended.exit));
    let (mut again, listed) = execute_once(context, planned, choice, (Duration::ZERO, stacks)).await?;
    again.problems.extend(first.problems);
    if first.ended.exit.is_success() != again.ended.exit.is_success() {
        context.console.warning(&format!(
            "{}: its first execution ended with {}, its second one with {}",
            typed(planned),
            first.ended.exit,
            again.ended.exit
        ));
    }
    Ok((again, listed))
}

/// Whether the screening pass takes the stacks of allocations, or a second run takes those of suspects. A second run
/// gives the same result if memgate itself runs the same tests in the same order.
fn stacks(context: &Context<'_>, planned: &PlannedSuite, mode: Mode) -> StackMode {
    let is_other_order = |text: &str| text.contains("gtest_shuffle") || text.contains("gtest_repeat");
    let typed = planned.command.iter().any(|argument| is_other_order(&argument.to_string_lossy()));
    let set = |name: &str| {
        planned.environment.iter().any(|(known, _)| known == name) || std::env::var_os(name).is_some()
    };
    let always = context.plan.stacks_always
        || mode != Mode::Direct
        || !context.plan.confirm
        || context.plan.screen_repetitions > 1
        || context.plan.native_sampling > 0
        || typed
        || set("GTEST_SHUFFLE")
        || set("GTEST_REPEAT");
    if always { StackMode::Always } else { StackMode::Later }
}

/// `look_lasts`: how long a look at descriptors and threads stays valid for tests that leave nothing; `stacks`: which
/// call stacks are taken.
async fn execute_once(
    context: &mut Context<'_>,
    planned: &PlannedSuite,
    choice: &Choice,
    (look_lasts, stacks): (Duration, StackMode),
) -> Result<(Done, Option<Listed>), Stopped> {
    let mut progress = Progress::beside_tests(context.console, "screening", None);
    let mut job = job(context, planned, choice);
    job.options.look_lasts = look_lasts;
    job.options.stacks = stacks;
    // A program that is itself the suite is measured, or is known to be blind.
    let looks_below = choice.mode == Mode::Tree || !planned.targets.is_empty();
    let starts = if looks_below { Some(Starts::begin(context.session)?) } else { None };
    job.options.starts = starts.as_ref().map(|starts| text(starts.path())).unwrap_or_default();
    let done = supervise(context, job, &mut |state| progress.update(state.tests(), &state.status())).await;
    drop(progress);
    // Removes the list of starts, whether the command succeeded or not.
    let listed = starts.map(Starts::end).transpose();
    Ok((done?, listed?))
}

/// Whether the blocks of a program without tests are searched for lost ones: one that `{n}` repeats shows what grows.
fn searches_lost(context: &Context<'_>, planned: &PlannedSuite) -> bool {
    context.plan.holders && context.plan.native_sampling == 0 && planned.repeating.is_none()
}

fn job(context: &Context<'_>, planned: &PlannedSuite, choice: &Choice) -> Job {
    let mut options = of_tests(&context.session.frames());
    options.targets.clone_from(&choice.targets);
    let searches = searches_lost(context, planned);
    options.end_of_main = match choice.mode {
        Mode::Process if is_the_test(planned) => EndOfMain::OfTheTest,
        Mode::Process | Mode::Tree if searches => EndOfMain::WithoutTests,
        _ => EndOfMain::Unreported,
    };
    if options.end_of_main != EndOfMain::OfTheTest {
        options.setups = setup::EACH.to_owned();
    }
    options.native_sampling = context.plan.native_sampling;
    options.label = Label::Screen { suite: planned.name.clone().unwrap_or_default() }.to_text();
    let settles = !context.plan.settle.is_zero();
    let mut launch = launch(planned, context.plan.filter.as_deref());
    let repetitions = context.plan.screen_repetitions;
    if let Environment::Inherit { set, .. } = &mut launch.environment
        && repetitions > 1
        && choice.mode != Mode::Process
    {
        set.push(("GTEST_REPEAT".into(), repetitions.to_string().into()));
    }
    let clocked = if choice.mode == Mode::Process { Clocked::Process } else { Clocked::Test };
    let orders: MakeOrders = Box::new(move |_| {
        Box::new(Screening { settle: Settle::new(settles), copy: CopyAtMainEnd::new(searches) })
    });
    Job::new(launch, options, clocked, Limit::Tells(planned.timeout))
        .with(orders)
        .listing_where_numbers_change()
}
