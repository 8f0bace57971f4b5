//! Processes as tests: runs that repeat their work a different number of times each, so that a
//! slope can be seen.
//!
//! Two kinds of suites need it: a program with an argument that repeats its work, and a GoogleTest
//! executable whose boundaries cannot be seen (stripped and static), where each test runs in a
//! process of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use memgate_analysis::ProcessRecord;
use memgate_launch::Launch;
use memgate_model::BoundaryQuality;

use super::board::{Clocked, Finished, Limit};
use super::confirm::{cannot_run_again, silent};
use super::facts::{ConfirmationFacts, ProcessFacts};
use super::label::Label;
use super::problem;
use super::screen::{self, LIST_TIMEOUT, Screened, Setting};
use super::supervise::{Job, Stopped, Surroundings, supervise};
use super::watch::Settle;
use crate::device::{AgentOptions, Target};
use crate::exit::{ExpectedError, chain};
use crate::output::Progress;
use crate::plan::PlannedSuite;
use crate::suite::command::{COUNTS, with_count};
use crate::suite::gtest::{self, Repeat};

/// After so many lengths that end alike there is nothing more to see.
const ALIKE: usize = 3;

/// Runs the program of `suite` with growing numbers of repetitions.
pub(super) async fn repeat_program(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    suite: &mut Screened,
) -> Result<Vec<Finished>, Stopped> {
    let Some(planned) = suite.repeating.clone() else { return Ok(Vec::new()) };
    let Some(process) = suite.processes.first() else { return Ok(Vec::new()) };
    let executable = process.hello().executable.clone();
    let name = suite.facts.name.clone();
    let mut progress =
        Progress::of_silent_tests(around.console, &format!("repeating {name}"), COUNTS.len() as u64);
    let work = Work {
        suite: &name,
        test: &name,
        executable: &executable,
        end_of_main: true,
        timeout: suite.timeout,
        launch: &|n| silent(screen::launch(&repeating(&planned, n), None)),
    };
    let runs = lengths(around, setting, &work, &mut |done| progress.update(done, "")).await?;
    drop(progress);
    let (outcome, finished) = runs.into_facts();
    suite.facts.confirmations.insert(name, outcome);
    Ok(finished)
}

/// The command of `planned` with so many repetitions.
pub(super) fn repeating(planned: &PlannedSuite, n: u32) -> PlannedSuite {
    let command = with_count(planned.repeating.as_deref().unwrap_or_default(), n);
    PlannedSuite { command: command.into_iter().map(Into::into).collect(), ..planned.clone() }
}

/// Gives every test of a suite without boundaries processes of its own. Its first processes, in
/// which the whole suite ran, told nothing of single tests: they are replaced.
pub(super) async fn one_by_one(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    suite: &mut Screened,
) -> Result<Vec<Finished>, Stopped> {
    let Some(process) = suite.processes.first() else { return Ok(Vec::new()) };
    let name = suite.facts.name.clone();
    let all = match gtest::list_tests(screen::listing(process), LIST_TIMEOUT).await {
        Ok(all) => all,
        Err(why) => {
            let what = format!(
                "its boundaries cannot be seen, and one process per test is not possible: failed to {}",
                chain(&why)
            );
            suite.facts.problems.push(problem(&name, what, ""));
            return Ok(Vec::new());
        }
    };
    let tests: Vec<&String> = all.iter().filter(|test| !screen::is_disabled(test)).collect();
    around.console.line(&format!(
        "{name}: its boundaries cannot be seen, so each of {} tests gets processes of its own",
        tests.len()
    ));
    let mut progress = Progress::of_silent_tests(around.console, &name, tests.len() as u64);
    let (mut screened, mut finished, mut confirmations) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (done, test) in tests.iter().enumerate() {
        let filter = match gtest::filter_for(test, &all) {
            Ok(filter) => filter,
            Err(why) => {
                suite.facts.problems.push(problem(
                    &name,
                    format!("{test} is not measured: failed to {why}"),
                    "",
                ));
                continue;
            }
        };
        let environment = process.environment().map(Vec::as_slice);
        let work = Work {
            suite: &name,
            test,
            executable: &process.hello().executable,
            end_of_main: false,
            timeout: suite.timeout,
            launch: &|n| silent(gtest::confirm(process.hello(), environment, &filter, Repeat::Times(n))),
        };
        let runs = lengths(around, setting, &work, &mut |_| progress.update(done as u64, test)).await?;
        screened.extend(runs.runs.first().map(|(_, first)| ProcessFacts {
            stream: first.stream(),
            ending: first.ending,
            as_test: Some((*test).clone()),
        }));
        let (outcome, processes) = runs.into_facts();
        confirmations.insert((*test).clone(), outcome);
        finished.extend(processes);
    }
    drop(progress);
    suite.facts.boundary = BoundaryQuality::Observed;
    suite.facts.screen = screened;
    suite.facts.confirmations = confirmations;
    suite.processes.clear();
    Ok(finished)
}

/// What is repeated.
struct Work<'a> {
    suite: &'a str,
    test: &'a str,
    executable: &'a str,
    /// The program's own state at the end of `main` counts; GoogleTest's would, too.
    end_of_main: bool,
    /// For one repetition.
    timeout: Duration,
    launch: &'a (dyn Fn(u32) -> Launch + Sync),
}

/// The runs of one piece of work.
struct Runs {
    runs: Vec<(u64, Finished)>,
    broken: Option<String>,
}

impl Runs {
    fn into_facts(self) -> (ConfirmationFacts, Vec<Finished>) {
        if let Some(why) = self.broken {
            return (
                ConfirmationFacts::Broken(why),
                self.runs.into_iter().map(|(_, process)| process).collect(),
            );
        }
        let facts = self.runs.iter().map(|(n, process)| (*n, ProcessFacts::of(process))).collect();
        (ConfirmationFacts::Lengths(facts), self.runs.into_iter().map(|(_, process)| process).collect())
    }
}

async fn lengths(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    work: &Work<'_>,
    show: &mut dyn FnMut(u64),
) -> Result<Runs, Stopped> {
    let mut runs: Vec<(u64, Finished)> = Vec::new();
    for (done, n) in COUNTS.into_iter().enumerate() {
        show(done as u64);
        let ended = match supervise(around, job(setting, work, n), &mut |_| show(done as u64)).await {
            Ok(ended) => ended,
            Err(Stopped::Failed(gone @ ExpectedError::Program { .. })) => {
                return Ok(Runs { runs, broken: Some(cannot_run_again(&gone)) });
            }
            Err(stopped) => return Err(stopped),
        };
        let exit = ended.ended.exit;
        let Some(process) = ended.finished.into_iter().find(Finished::is_main) else {
            return Ok(Runs {
                runs,
                broken: Some(format!("with {n} repetitions nothing was recorded ({exit})")),
            });
        };
        let over = process.record.end.is_none();
        runs.push((u64::from(n), process));
        // A run that broke is told as it is; more of them would not say more.
        if over || are_alike(&runs) {
            break;
        }
    }
    Ok(Runs { runs, broken: None })
}

fn job(setting: Setting<'_>, work: &Work<'_>, n: u32) -> Job {
    let mut options = AgentOptions::new(setting.session.frames());
    options.targets = vec![Target::Executable(work.executable.into())];
    options.end_of_main = work.end_of_main;
    options.label =
        Label::Length { suite: work.suite.to_owned(), test: work.test.to_owned(), n: u64::from(n) }.to_text();
    Job {
        launch: (work.launch)(n),
        options,
        preload: true,
        orders: Box::new(|_| Box::new(Settle::new(false))),
        clocked: Clocked::Process,
        limit: Limit::Ends(work.timeout.saturating_mul(n)),
    }
}

/// The first runs ended with the same blocks, bytes, descriptors and threads.
fn are_alike(runs: &[(u64, Finished)]) -> bool {
    let left = |record: &ProcessRecord| {
        let end = record.end.as_ref()?;
        let os = end.os.as_ref().map(|os| (os.fd_count(), os.thread_count()));
        Some((end.counters.live_bytes(), end.counters.live_allocations(), os))
    };
    let mut ends = runs.iter().map(|(_, process)| left(&process.record));
    let first = ends.next().flatten();
    runs.len() >= ALIKE && first.is_some() && ends.all(|end| end == first)
}
