//! Groups the processes of a command into suites: the same executable with the same arguments is one suite.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use memgate_model::Problem;
use memgate_wire::capability;

use super::is_the_test;
use crate::output::Console;
use crate::plan::PlannedSuite;
use crate::run::engine::{Context, Done, Finished, ran_tests};
use crate::run::runners::choose::{Mode, tells_tests};
use crate::run::runners::divide::Selected;
use crate::run::runners::framework::Suite;
use crate::run::runners::gtest::{GoogleTest, OneByOne};
use crate::run::runners::process::Process;
use crate::run::runners::starts::Unseen;
use crate::run::runners::{Runner, Screened};
use crate::session::facts::{EndingFacts, Kind, problem};
use crate::session::naming;
use crate::suite::Program;
use crate::suite::gtest::SuiteId;

/// Groups processes: the same executable with the same arguments is one suite. A process that a measured process
/// started belongs to the suite of its starter, unless it runs tests of its own. A plain program may start itself for
/// each of its tests (libuv): such processes are suites, too.
pub(super) fn suites(
    context: &Context<'_>,
    (selected, program): (&Selected, &Program),
    mode: Mode,
    done: Done,
    unseen: &[Unseen],
) -> Vec<Screened> {
    let Done { finished, elapsed, .. } = done;
    let planned = &selected.planned;
    let any_tests = finished.iter().any(|process| ran_tests(&process.record));
    let measured = Measured { planned, program, mode, elapsed, any_tests };
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
    /// Whether a process reported tests.
    any_tests: bool,
}

impl Measured<'_> {
    /// Processes of one executable with the same arguments, as a suite.
    fn suite(&self, context: &Context<'_>, name: String, processes: Vec<Finished>) -> Screened {
        let Self { planned, program, mode, elapsed, any_tests } = *self;
        let tests = processes.iter().any(|process| ran_tests(&process.record));
        let hooked = processes.iter().any(has_boundaries);
        // A plain program may report boundaries of its own through the C API.
        let told = tests && !is_the_test(planned);
        let filter = &context.plan.filter;
        // Without an error, the leaks of all its tests would count as fixed. It may start itself for each test.
        let is_silent = mode == Mode::Process
            && !any_tests
            && filter.is_none()
            && tells_tests(planned, program)
            && processes.iter().all(|process| {
                let is_its = Path::new(&process.hello().executable) == program.path;
                is_its && process.ending == EndingFacts::Exited(0)
            });
        let gtest = told || is_silent || mode != Mode::Process && (tests || hooked || mode == Mode::Direct);
        let one_by_one = gtest && !tests && !hooked && program.is_gtest();
        let mut problems = Vec::new();
        // GoogleTest itself began a round and found nothing to run: all tests belong to another shard, or are filtered
        // out or disabled.
        let nothing_to_run = processes.iter().all(|process| process.record.iterations > 0);
        // Below a command, only tests are measured. The report says what the other programs are.
        let is_plain = mode == Mode::Tree
            && planned.targets.is_empty()
            && processes.iter().all(|process| process.record.asked_for_no_test());
        let none = gtest && !tests && !one_by_one && !nothing_to_run && !is_plain && filter.is_none();
        if none || is_silent {
            problems.push(no_test(&name, hooked, is_silent));
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
        let Unseen { path, why, remedy, .. } = unseen;
        let problem = problem(&name, format!("not measured: {path}: {why}; {remedy}"), "");
        let mut suite = Suite::new(Kind::Tests, name, Vec::new(), (self.elapsed, self.planned.timeout));
        suite.facts.problems.push(problem);
        Screened { suite, runner: Runner::GoogleTest(GoogleTest::default()) }
    }
}

const TESTS_IN_A_CHILD: &str = "not measured: tests began in a child that it forked; run them in the process itself, or in a program that it starts";

fn no_test(suite: &str, hooked: bool, silent: bool) -> Problem {
    let (what, hint) = if silent {
        (
            "it reports its own tests (memgate.h), and reported none",
            "look at its arguments, or use `runner: command` if its whole run is the test",
        )
    } else if hooked {
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
    problem(suite, what.to_owned(), hint)
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

pub(super) fn has_something(Screened { suite, runner }: &Screened) -> bool {
    match runner {
        Runner::GoogleTest(_) => {
            suite.processes.is_empty() || suite.processes.iter().any(|p| ran_tests(&p.record))
        }
        Runner::OneByOne(_) | Runner::Process(_) | Runner::Junit(_) | Runner::Instrumentation(_) => true,
    }
}

/// Whether it is the suite of the started program, not of one that this program started.
pub(super) fn is_of(suite: &Suite, program: &Program) -> bool {
    let executable = suite.processes.first().map(|process| Path::new(&process.hello().executable));
    executable == Some(program.path.as_path())
}
