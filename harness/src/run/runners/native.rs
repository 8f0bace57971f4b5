//! The screening pass of native programs: one command, run as the user would run it, with the agent inside. Only
//! afterwards is it known which programs have GoogleTest tests and which are a test as a whole.
//!
//! Data flow: planned suite and [`Choice`] → `supervise` → its processes, grouped into [`Screened`] suites. A program
//! that could not be measured becomes a problem of its suite, with advice: it is never left out.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use memgate_analysis::must_be_screened_again;
use memgate_launch::Environment;
use memgate_model::{BoundaryQuality, Problem};
use memgate_wire::options::StackMode;
use memgate_wire::{capability, setup};

use super::choose::{self, Choice, Mode};
use super::divide::Selected;
use super::framework::Suite;
use super::gtest::{GoogleTest, LIST_TIMEOUT, OneByOne};
use super::missing;
use super::process::Process;
use super::starts::{Listed, Starts, Unseen};
use super::{Runner, Screened};
use crate::agent::{of_tests, text};
use crate::output::{Console, Progress};
use crate::plan::PlannedSuite;
use crate::run::engine::{
    Clocked, Context, Done, Finished, Job, Limit, MakeOrders, Settle, Stopped, forget, launch, no_room,
    ran_tests, status, supervise, typed,
};
use crate::session::facts::{Facts, Kind, SuiteFacts, problem};
use crate::session::label::Label;
use crate::session::naming;
use crate::suite::gtest::{self, SuiteId};
use crate::suite::{Program, ctest};

/// How long a look at descriptors and threads stays valid for tests that leave nothing.
const LOOK_LASTS: Duration = Duration::from_millis(5);
/// Maximum number of programs that a warning names.
const MOST_NAMED: usize = 5;

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
    let unseen = with_a_test(unseen, context.plan.filter.as_deref()).await;
    let is_test = |process: &Finished| !is_tree || !process.record.asked_for_no_test();
    if !done.finished.iter().any(is_test) && unseen.is_empty() {
        // The part of a tree in this shard may be only scripts: only all shards together show that nothing is measured.
        let is_clear = !selected.starts_tests
            && program.blind().is_none()
            && no_room(&context.session.frames()).is_none();
        if context.this_shard.is_some() && choice.mode == Mode::Tree && is_clear {
            return Ok(Vec::new());
        }
        let no_room = no_room(&context.session.frames());
        not_measured(planned, (program, choice), &done, no_room, facts);
        return Ok(Vec::new());
    }
    let mut suites = suites(context, (selected, program), choice.mode, done, &unseen);
    for suite in &mut suites {
        missing::broken_off(&mut suite.suite).await;
        if is_of(&suite.suite, program) {
            missing::selected(&mut suite.suite, &selected.tests);
        }
        missing::repetitions(context, &suite.suite);
    }
    // A filter may leave some executables of a tree without a test. This is no error.
    if let Some(filter) = &context.plan.filter {
        // A shard of a test program has an argument of ours, which respects the filter.
        let is_ours = context.this_shard.is_some() && choice.mode == Mode::Direct;
        let mut processes = suites.iter().flat_map(|screened| &screened.suite.processes);
        if !is_ours && processes.any(|process| process.record.selects_tests()) {
            context.console.warning(&filter_is_not_heard(planned, filter));
        }
        suites.retain(has_something);
        if suites.is_empty() && context.this_shard.is_none() {
            let what =
                format!("the filter {filter:?} selects no test of what ran below `{}`", typed(planned));
            facts.errors.push(problem(&typed(planned), what, "look at --filter"));
        }
    }
    Ok(suites)
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

fn job(context: &Context<'_>, planned: &PlannedSuite, choice: &Choice) -> Job {
    let mut options = of_tests(&context.session.frames());
    options.targets.clone_from(&choice.targets);
    options.end_of_main = choice.mode == Mode::Process && is_the_test(planned);
    if !options.end_of_main {
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
    let orders: MakeOrders = Box::new(move |_| Box::new(Settle::new(settles)));
    Job::new(launch, options, clocked, Limit::Tells(planned.timeout))
        .with(orders)
        .listing_where_numbers_change()
}

/// Is the whole plain program one test, even if it reports tests of its own?
fn is_the_test(planned: &PlannedSuite) -> bool {
    planned.runner == memgate_config::Runner::Command || planned.repeating.is_some()
}

/// Test programs that ran below the command without the agent.
fn unseen(
    listed: &Listed,
    planned: &PlannedSuite,
    mode: Mode,
    done: &Done,
    facts: &mut Facts,
) -> Vec<Unseen> {
    if listed.lost > 0 {
        let what =
            format!("{} more programs were started than can be noted: they were not looked at", listed.lost);
        facts.errors.push(problem(&typed(planned), what, "run fewer of them in one command"));
    }
    listed.unseen(mode == Mode::Tree, &planned.targets, &said_hello(done))
}

/// Whether the process neither reports tests nor is a virtual machine.
fn is_plain(process: &Finished) -> bool {
    let is_native = process.hello().runtime == memgate_wire::Runtime::Native;
    is_native && !has_boundaries(process) && !ran_tests(&process.record)
}

/// Whether the agent sees where GoogleTest's tests begin and end.
fn has_boundaries(process: &Finished) -> bool {
    process.hello().offers(capability::GTEST)
}

/// Warns about removed programs: it is no longer known whether they were tests.
fn gone(console: &Console, listed: &Listed, done: &Done) {
    let gone = listed.gone(&said_hello(done));
    if let Some(first) = gone.first() {
        let more = if gone.len() > 1 { format!(" and {} more", gone.len() - 1) } else { String::new() };
        console.warning(&format!(
            "{first}{more}: removed before memgate looked at it; if it is a test, it was not measured"
        ));
    }
}

/// Warns about test programs of ctest that contain no GoogleTest, and about targets that no program matches. Below
/// other commands most programs are tools.
fn left_out(context: &Context<'_>, planned: &PlannedSuite, listed: &Listed, done: &Done) {
    let said_hello = said_hello(done);
    let here = planned.directory.as_deref().unwrap_or(Path::new("."));
    if let Ok(here) = here.canonicalize()
        && ctest::is_ctest(&planned.command)
        && !said_hello.is_empty()
    {
        let plain = listed.plain(&here, &planned.targets, &said_hello);
        let named: Vec<String> =
            plain.iter().take(MOST_NAMED).map(|path| path.display().to_string()).collect();
        let more = plain.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        if !plain.is_empty() {
            context.console.warning(&format!(
                "{}: not measured, because they contain no GoogleTest: {}{more}; --target GLOB measures such a program as \
                 one test",
                typed(planned),
                named.join(", ")
            ));
        }
    }
    if context.this_shard.is_none() {
        for glob in listed.without_program(&planned.targets, &said_hello) {
            context
                .console
                .warning(&format!("{}: no program that ran matches the target `{glob}`", typed(planned)));
        }
    }
}

/// Executables that were measured.
fn said_hello(done: &Done) -> BTreeSet<&str> {
    done.finished.iter().map(|process| process.hello().executable.as_str()).collect()
}

/// Programs in which the filter selects a test, and those whose tests cannot be listed.
async fn with_a_test(unseen: Vec<Unseen>, filter: Option<&str>) -> Vec<Unseen> {
    let Some(filter) = filter else { return unseen };
    let mut selected = Vec::new();
    for unseen in unseen {
        let listing = gtest::list_of(&unseen.path, filter);
        if gtest::list_tests(listing, LIST_TIMEOUT).await.map_or(true, |tests| !tests.is_empty()) {
            selected.push(unseen);
        }
    }
    selected
}

fn filter_is_not_heard(planned: &PlannedSuite, filter: &str) -> String {
    let command = typed(planned);
    let instead =
        if ctest::is_ctest(&planned.command) { "choose its tests by -R" } else { "change that one" };
    format!(
        "{command}: its --gtest_filter goes before --filter {filter:?}, which has no effect there; {instead}"
    )
}

/// Reports a command below which no process said hello.
fn not_measured(
    planned: &PlannedSuite,
    (program, choice): (&Program, &Choice),
    done: &Done,
    no_room: Option<String>,
    facts: &mut Facts,
) {
    let name = planned.name.clone().unwrap_or_else(|| file_name(&program.path));
    let (what, hint) = match (program.blind(), choice.mode) {
        (Some(why), _) => (format!("not measured: {why}"), choose::remedy(program).to_owned()),
        (None, Mode::Tree) => {
            let hint = if done.ended.exit.is_success() {
                "measure other executables with --target GLOB; ones that are linked statically cannot be measured"
            } else {
                "does the command work without memgate? It may have ended before its first test; other executables: --target GLOB"
            };
            (
                format!("not measured: no GoogleTest executable ran below `{}`", typed(planned)),
                hint.to_owned(),
            )
        }
        (None, Mode::Direct | Mode::Process | Mode::Jvm | Mode::JvmProcess) => match no_room {
            Some(why) => (
                format!("not measured: {why}"),
                "make room, or name another folder with --output-dir".to_owned(),
            ),
            None => (
                format!("not measured: the agent did not report from it ({})", done.ended.exit),
                "`memgate doctor` says whether the agent can work here; a wrapper script needs --target GLOB"
                    .to_owned(),
            ),
        },
    };
    if choice.mode == Mode::Tree {
        // The program may be a link: `cargo` to `rustup`.
        let called = planned.name.clone().unwrap_or_else(|| file_name(Path::new(&typed(planned))));
        facts.errors.push(problem(&called, what, &hint));
        return;
    }
    // A suite's problem has one line in the report.
    let problem = problem(&name, format!("{what}; {hint}"), "");
    let kind = if choice.mode == Mode::Direct { Kind::Tests } else { Kind::Program };
    facts.suites.push(SuiteFacts {
        boundary: BoundaryQuality::Process,
        screened_s: done.elapsed.as_secs_f64(),
        problems: vec![problem],
        ..SuiteFacts::new(name, kind, Vec::new())
    });
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn has_something(Screened { suite, runner }: &Screened) -> bool {
    match runner {
        Runner::GoogleTest(_) => {
            suite.processes.is_empty() || suite.processes.iter().any(|p| ran_tests(&p.record))
        }
        Runner::OneByOne(_) | Runner::Process(_) | Runner::Junit(_) | Runner::Instrumentation(_) => true,
    }
}

/// Groups processes: the same executable with the same arguments is one suite. A process that a measured process
/// started belongs to the suite of its starter, unless it runs tests of its own. A plain program may start itself for
/// each of its tests (libuv): such processes are suites, too.
fn suites(
    context: &Context<'_>,
    (selected, program): (&Selected, &Program),
    mode: Mode,
    done: Done,
    unseen: &[Unseen],
) -> Vec<Screened> {
    let Done { finished, elapsed, .. } = done;
    let planned = &selected.planned;
    let measured = Measured { planned, program, mode, elapsed };
    let pids: BTreeSet<u32> = finished.iter().map(|process| process.hello().pid).collect();
    let of_tests: BTreeSet<u32> =
        finished.iter().filter(|process| !is_plain(process)).map(|process| process.hello().pid).collect();
    let is_suite = |process: &Finished| {
        let belongs_to_its_parent = pids.contains(&process.hello().parent_pid);
        process.is_main() && (!belongs_to_its_parent || ran_tests(&process.record))
    };
    let is_plains = |process: &Finished| is_plain(process) && !of_tests.contains(&process.hello().parent_pid);
    let with_children: BTreeSet<SuiteId> = finished
        .iter()
        .filter(|process| process.record.began_tests_in_a_child())
        .map(|process| SuiteId::of(process.hello()))
        .collect();
    let (of_suites, others): (Vec<_>, Vec<_>) = finished.into_iter().partition(is_suite);
    let with_id = |process: Finished| (SuiteId::of(process.hello()), process);
    let groups = naming::grouped(of_suites.into_iter().map(with_id));
    let (forked, started): (Vec<_>, Vec<_>) = others.into_iter().partition(|process| !process.is_main());
    let started = ended_in_order(context.console, started.into_iter().filter(is_plains));
    let mut forked = naming::grouped(forked.into_iter().map(with_id));
    // This argument gives it a name of its own, even if the executable was also measured.
    let not_measured = |unseen: &Unseen| SuiteId {
        executable: unseen.path.clone(),
        arguments: vec!["(not measured)".to_owned()],
    };
    let mut ids: Vec<SuiteId> =
        groups.iter().map(|(id, _)| id.clone()).chain(unseen.iter().map(not_measured)).collect();
    // Programs of other shards affect the names of these.
    let here: BTreeSet<SuiteId> = ids.iter().cloned().collect();
    let elsewhere = selected.known.programs.difference(&here).cloned();
    ids.extend(elsewhere);
    let names = naming::suite_names(planned.name.as_deref(), &ids);
    let mut taken: BTreeSet<String> = names.iter().cloned().collect();
    let mut names = names.into_iter();
    let mut screened: Vec<Screened> = groups
        .into_iter()
        .zip(names.by_ref())
        .map(|((id, processes), name)| {
            let mut screened = measured.suite(context, name, processes);
            if with_children.contains(&id) {
                let suite = &mut screened.suite.facts;
                suite.problems.insert(0, problem(&suite.name, TESTS_IN_A_CHILD.to_owned(), ""));
            }
            // Processes that a GoogleTest test forks (a death test) do not count.
            let forked =
                forked.iter_mut().filter(|(known, _)| *known == id).map(|(_, all)| std::mem::take(all));
            if matches!(screened.runner, Runner::Process(_)) {
                forked.for_each(|children| screened.suite.add_children(children));
            }
            screened
        })
        .collect();
    screened.extend(unseen.iter().zip(names).map(|(unseen, name)| measured.unseen(name, unseen)));
    screened.extend(naming::grouped(started.into_iter().map(with_id)).into_iter().map(|(id, processes)| {
        let name = naming::name_of_started(planned.name.as_deref(), &id, &mut taken);
        let mut screened = measured.suite(context, name, processes);
        // `{n}` repeats the command, not the programs that it starts.
        screened.runner = Runner::Process(Process { repeating: None });
        screened
    }));
    screened
}

/// Processes that reached their end. A plain program may use a signal to end a process that it started (a server for
/// its tests). What such a process leaves is unknown.
fn ended_in_order(console: &Console, started: impl Iterator<Item = Finished>) -> Vec<Finished> {
    let is_over = |process: &Finished| process.record.end.is_some() && process.record.goodbye.is_some();
    let (over, broken_off): (Vec<_>, Vec<_>) = started.partition(is_over);
    if let Some(first) = broken_off.first() {
        let more =
            if broken_off.len() > 1 { format!(" and {} more", broken_off.len() - 1) } else { String::new() };
        let command = first.hello().arguments.join(" ");
        console.warning(&format!(
            "{command}{more}: started by the measured program, and ended without exit (by a signal?): not measured"
        ));
    }
    over
}

/// A command that ran, and how it was measured.
struct Measured<'a> {
    planned: &'a PlannedSuite,
    program: &'a Program,
    mode: Mode,
    elapsed: Duration,
}

impl Measured<'_> {
    /// Processes of one executable with the same arguments, as a suite.
    fn suite(&self, context: &Context<'_>, name: String, processes: Vec<Finished>) -> Screened {
        let Self { planned, program, mode, elapsed } = *self;
        let tests = processes.iter().any(|process| ran_tests(&process.record));
        let hooked = processes.iter().any(has_boundaries);
        // A plain program may report boundaries of its own through the C API.
        let told = tests && !is_the_test(planned);
        let gtest = told || mode != Mode::Process && (tests || hooked || mode == Mode::Direct);
        let one_by_one = gtest && !tests && !hooked && program.is_gtest();
        let mut problems = Vec::new();
        // GoogleTest itself began a round and found nothing to run: all tests belong to another shard, or are filtered
        // out or disabled.
        let nothing_to_run = processes.iter().all(|process| process.record.iterations > 0);
        // Below a command, only tests are measured. The report says what the other programs are.
        let is_plain = mode == Mode::Tree
            && planned.targets.is_empty()
            && processes.iter().all(|process| process.record.asked_for_no_test());
        if gtest && !tests && !one_by_one && !nothing_to_run && !is_plain && context.plan.filter.is_none() {
            problems.push(no_test(&name, hooked));
        }
        if processes.iter().any(|process| process.environment().is_none()) {
            // A suite's problem has one line in the report.
            let what = "descriptors and threads were not measured: /proc does not show its process here (a pid namespace of its own?); \
                        run memgate inside of it";
            problems.push(problem(&name, what.to_owned(), ""));
        }
        let (kind, runner) = match (gtest, one_by_one) {
            (true, true) => (Kind::Tests, Runner::OneByOne(OneByOne)),
            (true, false) => (Kind::Tests, Runner::GoogleTest(GoogleTest::default())),
            (false, _) => {
                let repeating = planned.repeating.is_some().then(|| planned.clone());
                (Kind::Program, Runner::Process(Process { repeating }))
            }
        };
        let mut suite = Suite::new(kind, name, processes, (elapsed, planned.timeout));
        suite.facts.problems = problems;
        Screened { suite, runner }
    }

    /// A test program that was not measured, as a suite.
    fn unseen(&self, name: String, unseen: &Unseen) -> Screened {
        let Unseen { path, why, remedy } = unseen;
        let problem = problem(&name, format!("not measured: {path}: {why}; {remedy}"), "");
        let mut suite = Suite::new(Kind::Tests, name, Vec::new(), (self.elapsed, self.planned.timeout));
        suite.facts.problems.push(problem);
        Screened { suite, runner: Runner::GoogleTest(GoogleTest::default()) }
    }
}

const TESTS_IN_A_CHILD: &str = "not measured: tests began in a child that it forked; run them in the process itself, or in a program that it starts";

fn no_test(suite: &str, hooked: bool) -> Problem {
    let (what, hint) = if hooked {
        (
            "it ended without running a test of GoogleTest",
            "look at its arguments, or use `runner: command` if its whole run is the test",
        )
    } else {
        (
            "it ran no test whose boundaries could be seen",
            "use `runner: command`, or report its tests with memgate.h (`memgate native-kit`)",
        )
    };
    problem(suite, format!("{what}; {hint}"), "")
}

/// Whether it is the suite of the started program, not of one that this program started.
fn is_of(suite: &Suite, program: &Program) -> bool {
    let executable = suite.processes.first().map(|process| Path::new(&process.hello().executable));
    executable == Some(program.path.as_path())
}
