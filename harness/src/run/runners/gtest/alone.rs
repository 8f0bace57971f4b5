//! Repeats one test of a screened process in a process of its own.

use std::num::NonZero;
use std::thread;
use std::time::{Duration, Instant};

use memgate_analysis::{Confirmation, HuntTime, Next, ProcessRecord, Window};
use memgate_launch::Launch;
use memgate_wire::options::Detail;
use memgate_wire::reply::Reply;
use memgate_wire::spool::order;
use memgate_wire::{Boundary, Outcome, setup};

use super::listing::AllTests;
use super::{longest, patience};
use crate::exit::ExpectedError;
use crate::proc_fs;
use crate::recorder::Process;
use crate::run::engine::{
    Clocked, Context, Done, Finished, Job, Last, Limit, Orders, Rest, RunState, Settle, Stopped, Waited,
    cannot_run_again, elapsed, of_programs, options_of, silent, supervise,
};
use crate::run::runners::framework::Suite;
use crate::session::facts::ConfirmationFacts;
use crate::session::label::Label;
use crate::suite::gtest::{self, Repeat};

/// At least a tenth of the repetitions' time counts, whatever was waited for.
const LEAST_COUNTED_PART: u32 = 10;

/// How long a test is repeated.
#[derive(Debug, Clone)]
pub(super) enum Lasts {
    /// Until it is known whether it leaks, but no longer than this once it ran as often as the policy asks. Tells how
    /// long it waited for a processor.
    NoLonger(Duration, Waited),
    /// For its share of a hunt.
    Hunt(HuntTime),
}

/// Runs one test of the process `record` alone, again and again. Or returns why that is impossible.
pub(super) async fn alone(
    context: &mut Context<'_>,
    suite: &Suite,
    (test, record): (&str, usize),
    all: &AllTests,
    lasts: Lasts,
    show: &mut dyn FnMut(&RunState),
) -> Result<Result<Done, ConfirmationFacts>, Stopped> {
    let Some(process) = suite.processes.get(record) else {
        return Ok(Err(ConfirmationFacts::Broken("the process it ran in is not known".to_owned())));
    };
    let Some(repeated) = to_repeat(test, &process.record) else {
        let why = "no test of its suite passed, with which it could be repeated";
        return Ok(Err(ConfirmationFacts::Impossible(why.to_owned())));
    };
    let all = all.of(record, process).await;
    let filter = match gtest::filter_for(&repeated, &all) {
        Ok(filter) => filter,
        Err(why) => return Ok(Err(ConfirmationFacts::Impossible(format!("failed to {why}")))),
    };
    repeat(context, (suite, process), (test, &filter), lasts, show).await
}

/// Repeats the tests that `filter` selects in a process, to confirm `test`. Or returns why that is impossible.
pub(super) async fn repeat(
    context: &mut Context<'_>,
    (suite, process): (&Suite, &Finished),
    (test, filter): (&str, &str),
    lasts: Lasts,
    show: &mut dyn FnMut(&RunState),
) -> Result<Result<Done, ConfirmationFacts>, Stopped> {
    let Some(environment) = process.environment() else {
        let why = "the environment it ran in cannot be read (another process namespace?)";
        return Ok(Err(ConfirmationFacts::Impossible(why.to_owned())));
    };
    let launch = silent(gtest::confirm(process.hello(), Some(environment), filter, Repeat::Forever));
    let job = job(context, (suite, process), (test, lasts), launch);
    match supervise(context, job, show).await {
        Ok(done) => Ok(Ok(done)),
        Err(Stopped::Failed(gone @ ExpectedError::Program { .. })) => {
            Ok(Err(ConfirmationFacts::Impossible(cannot_run_again(&gone))))
        }
        Err(stopped) => Err(stopped),
    }
}

/// The test to repeat: a set-up runs with any test of its suite, so the shortest is enough.
fn to_repeat(test: &str, screened: &ProcessRecord) -> Option<String> {
    let Some(suite) = setup::suite_of(test) else { return Some(test.to_owned()) };
    let is_of_all = [setup::OF_ALL, setup::BEHIND_ALL].iter().any(|name| test == format!("{suite}.{name}"));
    let passed = |w: &&Window| !w.is_setup() && w.outcome == Some(Outcome::Passed);
    let of_suite = screened.windows.iter().filter(passed).filter(|w| is_of_all || w.suite == suite);
    of_suite.min_by_key(|w| w.end_ns.saturating_sub(w.start_ns)).map(Window::id)
}

/// Time limit of one execution.
fn patience_with(timeout: Duration, screened: &ProcessRecord, test: &str) -> Duration {
    let took = |window: &Window| window.end_ns.saturating_sub(window.start_ns);
    let took = screened.windows_of(test).filter(|window| !window.is_setup()).map(took).max();
    patience(longest(timeout, took.map(Duration::from_nanos)), screened)
}

fn job(
    context: &Context<'_>,
    (suite, process): (&Suite, &Finished),
    (test, lasts): (&str, Lasts),
    launch: Launch,
) -> Job {
    let longest = patience_with(suite.timeout, &process.record, test);
    let (name, test) = (suite.facts.name.clone(), test.to_owned());
    let label = Label::Confirm { suite: name.clone(), test: test.clone() };
    let mut options = options_of(context, &process.hello().executable, &label);
    options.detail = Detail::Growth;
    if setup::suite_of(&test).is_some() {
        options.setups.clone_from(&test);
    }
    let (policy, settles) = (context.plan.policy.clone(), !context.plan.settle.is_zero());
    let holders = context.plan.holders;
    let began = Instant::now();
    let orders = of_programs(move |process| {
        let confirmation =
            Confirmation::new(&policy, &name, &test).with_descriptors(proc_fs::most_descriptors());
        let confirmation = match lasts {
            Lasts::Hunt(time) => confirmation.hunting(time),
            Lasts::NoLonger(..) => confirmation,
        };
        let (test, lasts) = (test.clone(), lasts.clone());
        let (settle, last) = (Settle::new(settles), Last::new(holders));
        let (rest, starvation) = (Rest::of(process), Starvation::of(process, policy.min_run));
        Confirming { test, confirmation, lasts, began, settle, rest, starvation, last }
    });
    Job::new(launch, options, Clocked::Alone, Limit::Ends(longest)).with(orders)
}

/// Repeats a test until enough is known.
struct Confirming {
    test: String,
    confirmation: Confirmation,
    lasts: Lasts,
    /// When its process started.
    began: Instant,
    settle: Settle,
    rest: Rest,
    starvation: Starvation,
    last: Last,
}

/// Tells how long repetitions worked. A cache needs the same number of executions to fill on a busy machine, so time
/// spent waiting for a processor does not count.
struct Starvation {
    /// The process, if its /proc entry is visible.
    pid: Option<u32>,
    before: Duration,
    /// The CPU time of the process at the first end after a change.
    cpu_before_ns: Option<u64>,
    /// Until then nothing depends on the time, so nothing is read from /proc.
    counts_after: Duration,
    told: Duration,
}

impl Starvation {
    fn of(process: &Process, counts_after: Duration) -> Self {
        let pid = process.visible.then_some(process.hello.pid);
        Self { pid, before: starved(pid), cpu_before_ns: None, counts_after, told: Duration::ZERO }
    }

    /// By how much `waited`, from the beginning, exceeds what was told before.
    fn more(&mut self, waited: Duration) -> Duration {
        let more = waited.saturating_sub(self.told);
        self.told += more;
        more
    }

    fn worked(&mut self, elapsed: Duration, record: &ProcessRecord) -> Duration {
        self.cpu_before_ns = self.cpu_before_ns.or(record.cpu_ns);
        if elapsed < self.counts_after {
            return elapsed;
        }
        let cpu_ns = record.cpu_ns.zip(self.cpu_before_ns).map(|(now, before)| now.saturating_sub(before));
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let cpu = Duration::from_nanos(cpu_ns.unwrap_or_default() / processors as u64);
        worked(elapsed, starved(self.pid).saturating_sub(self.before), cpu)
    }
}

/// How long the threads of a process and those of memgate have waited for a processor.
fn starved(pid: Option<u32>) -> Duration {
    pid.map(proc_fs::starved).unwrap_or_default() + proc_fs::starved(std::process::id())
}

/// Threads of one process also wait for each other. Then it keeps the processors busy, which is work. `cpu`: its CPU
/// time divided by the number of processors.
fn worked(elapsed: Duration, starved: Duration, cpu: Duration) -> Duration {
    elapsed.saturating_sub(starved).max(cpu.min(elapsed)).max(elapsed / LEAST_COUNTED_PART)
}

impl Orders for Confirming {
    fn at_test_end(&mut self, boundary: &Boundary, record: &ProcessRecord) -> Reply {
        if self.last.is_over() {
            return self.last.reply(record);
        }
        if runs_without(&self.test, boundary, record) {
            return Reply::of(order::STOP);
        }
        let rested = self.rest.is_taken();
        if self.settle.again(boundary, record) || rested {
            return Reply::of(order::SETTLE);
        }
        let elapsed = match self.lasts {
            Lasts::Hunt(_) => self.began.elapsed(),
            Lasts::NoLonger(..) => elapsed(record),
        };
        let counted = match &self.lasts {
            // What does not change is no cache that fills, so it needs no more executions on a busy machine.
            Lasts::NoLonger(_, waited) if self.confirmation.has_changed() => {
                let counted = self.starvation.worked(elapsed, record);
                waited.add(self.starvation.more(elapsed.saturating_sub(counted)));
                counted
            }
            Lasts::NoLonger(..) | Lasts::Hunt(_) => elapsed,
        };
        let next = self.confirmation.observe(record, counted);
        let is_over = matches!(self.lasts, Lasts::NoLonger(most, _) if elapsed >= most);
        // A test that has begun may need only a few more executions for a verdict, so it first runs its minimum.
        let stops = next == Next::Stop || is_over && self.confirmation.ran_its_least() || self.rest.is_over();
        if !stops || self.rest.begins(&self.test, record) {
            return Reply::default();
        }
        self.last.reply(record)
    }
}

/// Whether all tests that the program runs were repeated, but not this one. A `main` that chooses tests itself
/// overrides the filter, and would go on forever. (For a set-up, it is not known when it is reported.)
fn runs_without(test: &str, boundary: &Boundary, record: &ProcessRecord) -> bool {
    boundary.iteration > 0 && setup::suite_of(test).is_none() && record.windows_of(test).next().is_none()
}

#[cfg(test)]
mod tests {
    use memgate_wire::{AgentCost, BoundaryKind, Counters};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_repeated_test_may_take_a_hundred_times_as_long_and_no_longer_than_is_set() {
        let mut record = ProcessRecord::default();
        let window = |test: &str, ms: u64| Window {
            suite: "A".to_owned(),
            test: test.to_owned(),
            end_ns: ms * 1_000_000,
            ..Window::default()
        };
        record.windows =
            vec![window("fast", 3), window("slow", 300), window("fast", 2), window("slowest", 55_000)];
        let seconds =
            |timeout: u64, test: &str| patience_with(Duration::from_secs(timeout), &record, test).as_secs();
        assert_eq!([seconds(60, "A.fast"), seconds(60, "A.slow"), seconds(60, "A.unseen")], [10, 30, 60]);
        assert_eq!([seconds(1, "A.fast"), seconds(20, "A.slow")], [1, 20]);
        assert_eq!(seconds(60, "A.slowest"), 220, "the screen has waited for it, too");
        record.windows[0].start_ns = 5_000_000_000;
        let prepared = patience_with(Duration::from_secs(1), &record, "A.fast").as_secs();
        assert_eq!(prepared, 20, "four times what came before the first test");
    }

    /// Regression: on a machine with ten times as many processes as processors, a cache of 256 entries was a leak after
    /// 42 executions in two seconds.
    #[test]
    fn waiting_for_a_processor_is_no_time_in_which_a_test_was_repeated() {
        let counted = |starved, cpu| worked(SECOND * 20, SECOND * starved, SECOND * cpu).as_secs();
        assert_eq!(counted(0, 0), 20, "a test that sleeps");
        assert_eq!(counted(17, 1), 3);
        assert_eq!(counted(60, 1), 2, "threads that wait at the same time");
        assert_eq!(counted(280, 20), 20, "sixteen busy threads on two processors, with nothing beside them");
        assert_eq!(counted(20, 10), 10, "two threads, each with half a processor");
    }

    #[test]
    fn a_program_that_repeats_others_than_the_test_is_known_by_its_second_iteration() {
        let mut record = ProcessRecord::default();
        record.windows = vec![Window { suite: "A".to_owned(), test: "ran".to_owned(), ..Window::default() }];
        for (test, iteration, ends) in [
            ("A.ran", 1, false),
            ("B.asked", 0, false),
            ("B.asked", 1, true),
            ("B.SetUpTestSuite()", 1, false),
        ] {
            let boundary = Boundary {
                sequence: 4,
                kind: BoundaryKind::TestEnd,
                suite: "A".to_owned(),
                test: "ran".to_owned(),
                iteration,
                outcome: None,
                thread_id: 1,
                open_tests: 1,
                counters: Counters::default(),
                survivors: 0,
                snapshot_parts: 0,
                cost: AgentCost::default(),
            };
            assert_eq!(runs_without(test, &boundary, &record), ends, "{test} in {iteration}");
        }
    }

    #[test]
    fn a_set_up_runs_again_with_the_shortest_test_of_its_suite_that_passed() {
        let window = |suite: &str, test: &str, end_ns, outcome| Window {
            suite: suite.to_owned(),
            test: test.to_owned(),
            end_ns,
            outcome: Some(outcome),
            ..Window::default()
        };
        let mut record = ProcessRecord::default();
        record.windows = vec![
            window("A", "long", 9, Outcome::Passed),
            window("A", "failed", 1, Outcome::Failed),
            window("A", "short", 3, Outcome::Passed),
            window("A", "TearDownTestSuite()", 0, Outcome::Passed),
            window("B", "shortest", 2, Outcome::Passed),
        ];
        for (id, with) in [
            ("A.SetUpTestSuite()", Some("A.short")),
            ("A.TearDownTestSuite()", Some("A.short")),
            ("C.SetUpTestSuite()", None),
            ("Environment.SetUp()", Some("B.shortest")),
            ("A.failed", Some("A.failed")),
        ] {
            assert_eq!(to_repeat(id, &record).as_deref(), with, "{id}");
        }
    }
}
