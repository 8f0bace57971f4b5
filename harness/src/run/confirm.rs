//! Running suspects again, each alone: the screen chooses, this decides who leaks.
//!
//! Data flow: screened suites → `analysis::screen` → for every suspect a process of its own that repeats this one test, with
//! `analysis::Confirmation` deciding at each end whether to go on → for those that do something else alone the tests around them
//! ([`company`](super::company)) → facts of the suite. Programs that are a test as a whole are run with growing numbers of
//! repetitions instead.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use memgate_analysis::{Confirmation, Next, ProcessRecord, Suspect, Window};
use memgate_model::BoundaryQuality;
use memgate_wire::spool::order;
use memgate_wire::{Boundary, Outcome, ProcessRole, setup};

use super::board::{Clocked, Finished, Limit};
use super::company;
use super::facts::{ConfirmationFacts, ProcessFacts};
use super::junit;
use super::label::Label;
use super::screen::{LIST_TIMEOUT, Screened, Setting};
use super::series;
use super::supervise::{Done, Job, Stopped, Surroundings, supervise};
use super::watch::{Orders, Settle};
use crate::device::local::{Launch, Stream};
use crate::device::{AgentOptions, Detail, Target};
use crate::exit::ExpectedError;
use crate::output::Progress;
use crate::suite::gtest::{self, Repeat};

/// Output of a confirming run that is kept.
pub(super) const OUTPUT_BYTES: usize = 1 << 20;
/// Folder of that output in the session.
const FOLDER: &str = "confirm";

/// Confirms everything that needs it.
pub(super) async fn confirm(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    suites: &mut [Screened],
) -> Result<Vec<Finished>, Stopped> {
    let mut finished = Vec::new();
    let suspects: Vec<Vec<Suspect>> = suites.iter().map(|suite| suspects(setting, suite)).collect();
    let total: usize = suspects.iter().map(Vec::len).sum();
    if total > 0 && setting.plan.confirm {
        around.console.line(&format!("confirming {total}, each alone"));
    }
    let mut progress = Progress::of_silent_tests(around.console, "confirming", total as u64);
    let mut done = 0;
    for (suite, suspects) in suites.iter_mut().zip(suspects) {
        let mut all_tests = AllTests::default();
        let of_suite = suspects.clone();
        for suspect in suspects {
            progress.update(done, &suspect.test);
            let outcome = if setting.plan.confirm {
                let mut show = |_: &_| progress.update(done, &suspect.test);
                confirm_one(around, setting, suite, &suspect, &mut all_tests, &mut finished, &mut show)
                    .await?
            } else {
                ConfirmationFacts::Impossible("--no-confirm was given".to_owned())
            };
            suite.facts.confirmations.insert(suspect.test, outcome);
            done += 1;
        }
        if setting.plan.confirm {
            company::confirm(around, setting, suite, &of_suite, &mut all_tests, &mut finished).await?;
        }
    }
    drop(progress);
    for suite in suites.iter_mut().filter(|suite| suite.java.is_some()) {
        finished.extend(junit::confirm(around, setting, suite).await?);
    }
    for suite in suites.iter_mut().filter(|suite| suite.one_by_one) {
        finished.extend(series::one_by_one(around, setting, suite).await?);
    }
    for suite in suites.iter_mut().filter(|suite| suite.repeating.is_some() && setting.plan.confirm) {
        finished.extend(series::repeat_program(around, setting, suite).await?);
    }
    Ok(finished)
}

fn suspects(setting: Setting<'_>, suite: &Screened) -> Vec<Suspect> {
    if suite.facts.boundary == BoundaryQuality::Process || suite.one_by_one || suite.java.is_some() {
        return Vec::new();
    }
    let mut suspects = memgate_analysis::screen(&suite.records(), &suite.facts.name, &setting.plan.policy);
    suspects.retain(|suspect| !suspect.repeated);
    suspects
}

/// The tests of the executables of one suite, listed when the first is needed.
#[derive(Debug, Default)]
pub(super) struct AllTests(BTreeMap<usize, Vec<String>>);

impl AllTests {
    /// What `process` lists and what was seen to run. A listing is text: a name with a line break in it spoils what
    /// follows, and a program may refuse to list.
    pub(super) async fn of(&mut self, index: usize, process: &Finished) -> &[String] {
        if let Entry::Vacant(entry) = self.0.entry(index) {
            let listing = gtest::list(process.hello(), process.environment().map(Vec::as_slice));
            let mut all = gtest::list_tests(listing, LIST_TIMEOUT).await.unwrap_or_default();
            for test in process.record.windows.iter().filter(|w| !w.is_setup()).map(Window::id) {
                if !all.contains(&test) {
                    all.push(test);
                }
            }
            entry.insert(all);
        }
        &self.0[&index]
    }
}

async fn confirm_one(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    suite: &Screened,
    suspect: &Suspect,
    all_tests: &mut AllTests,
    finished: &mut Vec<Finished>,
    show: &mut dyn FnMut(&super::board::Board),
) -> Result<ConfirmationFacts, Stopped> {
    let Some(process) = suite.processes.get(suspect.record) else {
        return Ok(ConfirmationFacts::Broken("the process it ran in is not known".to_owned()));
    };
    let Some(environment) = process.environment() else {
        let why = "the environment it ran in cannot be read (another process namespace?)";
        return Ok(ConfirmationFacts::Impossible(why.to_owned()));
    };
    let Some(test) = to_repeat(suspect, &process.record) else {
        let why = "no test of its suite passed, with which it could be repeated";
        return Ok(ConfirmationFacts::Impossible(why.to_owned()));
    };
    let all = all_tests.of(suspect.record, process).await;
    let filter = match gtest::filter_for(&test, all) {
        Ok(filter) => filter,
        Err(why) => return Ok(ConfirmationFacts::Impossible(format!("failed to {why}"))),
    };
    let again = Again { suite, suspect, process, environment };
    let alone = repeat(around, setting, &again, &filter, None, finished, show).await?;
    let record = finished.last().map(|process| &process.record).filter(|_| is_repeated(&alone));
    let (policy, name) = (&setting.plan.policy, &suite.facts.name);
    let with = record.filter(|_| setup::suite_of(&suspect.test).is_some()).and_then(|record| {
        memgate_analysis::company_of_setup(policy, name, &suspect.test, &process.record, record)
    });
    let filter = with.and_then(|tests| gtest::filter_for_all(&tests, all).ok());
    // Where so many tests cannot be selected, what it did with one stands.
    let Some(filter) = filter.filter(|filter| filter.len() <= company::MOST_FILTER) else { return Ok(alone) };
    repeat(around, setting, &again, &filter, Some(company::most(suite)), finished, show).await
}

fn is_repeated(outcome: &ConfirmationFacts) -> bool {
    matches!(outcome, ConfirmationFacts::Repeated(_))
}

/// A suspect that runs again, and the process it was screened in.
struct Again<'a> {
    suite: &'a Screened,
    suspect: &'a Suspect,
    process: &'a Finished,
    environment: &'a [(OsString, OsString)],
}

/// Repeats what `filter` selects, no longer than `most`.
async fn repeat(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    again: &Again<'_>,
    filter: &str,
    most: Option<Duration>,
    finished: &mut Vec<Finished>,
    show: &mut dyn FnMut(&super::board::Board),
) -> Result<ConfirmationFacts, Stopped> {
    let Again { suite, suspect, process, environment } = again;
    let launch = silent(gtest::confirm(process.hello(), Some(environment), filter, Repeat::Forever));
    let job = job(setting, suite, suspect, &process.hello().executable, launch, most);
    let done = match supervise(around, job, show).await {
        Ok(done) => done,
        Err(Stopped::Failed(gone @ ExpectedError::Program { .. })) => {
            return Ok(ConfirmationFacts::Impossible(cannot_run_again(&gone)));
        }
        Err(stopped) => return Err(stopped),
    };
    let output = keep_output(setting, &suspect.test, &done)?;
    Ok(outcome(done, &suspect.test, &output, finished))
}

/// The test that is repeated: a set-up runs with any of its suite, so that the shortest will do.
fn to_repeat(suspect: &Suspect, screened: &ProcessRecord) -> Option<String> {
    let Some(suite) = setup::suite_of(&suspect.test) else { return Some(suspect.test.clone()) };
    let is_of_all =
        [setup::OF_ALL, setup::BEHIND_ALL].iter().any(|name| suspect.test == format!("{suite}.{name}"));
    let passed = |w: &&Window| !w.is_setup() && w.outcome == Some(Outcome::Passed);
    let of_suite = screened.windows.iter().filter(passed).filter(|w| is_of_all || w.suite == suite);
    of_suite.min_by_key(|w| w.end_ns.saturating_sub(w.start_ns)).map(Window::id)
}

/// A command may make its tests in a folder that it removes behind them.
pub(super) fn cannot_run_again(why: &ExpectedError) -> String {
    format!("it cannot be started again, its program or the folder it ran in may be gone: {why}")
}

/// What it prints is kept in the session: on the terminal it would only confuse.
pub(super) fn silent(launch: Launch) -> Launch {
    let capture = Stream::Capture { limit: OUTPUT_BYTES };
    Launch { stdin: Stream::Null, stdout: capture, stderr: capture, ..launch }
}

fn job(
    setting: Setting<'_>,
    suite: &Screened,
    suspect: &Suspect,
    executable: &str,
    launch: Launch,
    most: Option<Duration>,
) -> Job {
    let mut options = AgentOptions::new(setting.session.frames());
    options.targets = vec![Target::Executable(executable.into())];
    options.detail = Detail::Growth;
    options.setup = setup::suite_of(&suspect.test).is_some().then(|| suspect.test.clone());
    options.label = Label::Confirm { suite: suite.facts.name.clone(), test: suspect.test.clone() }.to_text();
    let policy = setting.plan.policy.clone();
    let (name, test) = (suite.facts.name.clone(), suspect.test.clone());
    let settles = !setting.plan.settle.is_zero();
    Job {
        launch,
        options,
        preload: true,
        orders: Box::new(move |process| match process.hello.role {
            ProcessRole::Main => Box::new(Confirming {
                confirmation: Confirmation::new(&policy, &name, &test),
                settle: Settle::new(settles),
                most,
            }),
            ProcessRole::ForkChild => Box::new(Settle::new(false)),
        }),
        clocked: Clocked::Alone,
        limit: Limit::Ends(suite.timeout),
    }
}

/// Goes on until enough is known.
struct Confirming {
    confirmation: Confirmation,
    settle: Settle,
    most: Option<Duration>,
}

impl Orders for Confirming {
    fn at_test_end(&mut self, boundary: &Boundary, record: &ProcessRecord) -> u32 {
        if self.settle.again(boundary, record) {
            return order::SETTLE;
        }
        let elapsed = elapsed(record);
        match self.confirmation.observe(record, elapsed) {
            _ if self.most.is_some_and(|most| elapsed >= most) => order::STOP,
            Next::Continue | Next::Explain => 0,
            Next::Stop => order::STOP,
        }
    }
}

/// Since the first iteration began.
pub(super) fn elapsed(record: &ProcessRecord) -> Duration {
    let begin = record.windows.first().map_or(0, |window| window.start_ns);
    let end = record.windows.last().map_or(0, |window| window.end_ns);
    Duration::from_nanos(end.saturating_sub(begin))
}

/// Writes what a confirming run printed, and tells where.
pub(super) fn keep_output(setting: Setting<'_>, test: &str, done: &Done) -> Result<String, ExpectedError> {
    let folder = setting.session.folder().join(FOLDER);
    fs::create_dir_all(&folder).map_err(ExpectedError::file("create", &folder))?;
    let printable: String = test
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' })
        .take(100)
        .collect();
    let number = fs::read_dir(&folder).map_err(ExpectedError::file("list", &folder))?.count() + 1;
    let name = format!("{number:04}-{printable}.log");
    let path = folder.join(&name);
    let bytes = [done.ended.stdout.as_slice(), &done.ended.stderr].concat();
    fs::write(&path, bytes).map_err(ExpectedError::file("write", &path))?;
    Ok(format!("{FOLDER}/{name}"))
}

pub(super) fn outcome(
    done: Done,
    test: &str,
    output: &str,
    finished: &mut Vec<Finished>,
) -> ConfirmationFacts {
    let exit = done.ended.exit;
    let ran = |process: &Finished| {
        process.record.windows.iter().any(|w| w.is(test))
            || process.record.open.iter().any(|open| open.id == test)
    };
    let Some(process) = done.finished.into_iter().find(|process| process.is_main() && ran(process)) else {
        return ConfirmationFacts::Broken(format!(
            "alone, the test did not run ({exit}; its output: {output})"
        ));
    };
    let facts = ProcessFacts::of(&process);
    finished.push(process);
    ConfirmationFacts::Repeated(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_from_the_first_iteration_on() {
        let window = |start_ns, end_ns| Window { start_ns, end_ns, ..Window::default() };
        let mut record = ProcessRecord::default();
        record.windows = vec![window(100, 200), window(300, 1100)];
        assert_eq!(elapsed(&record), Duration::from_nanos(1000));
        assert_eq!(elapsed(&ProcessRecord::default()), Duration::ZERO);
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
        let suspect =
            |test: &str| Suspect { test: test.to_owned(), why: String::new(), repeated: false, record: 0 };
        for (id, with) in [
            ("A.SetUpTestSuite()", Some("A.short")),
            ("A.TearDownTestSuite()", Some("A.short")),
            ("C.SetUpTestSuite()", None),
            ("Environment.SetUp()", Some("B.shortest")),
            ("A.failed", Some("A.failed")),
        ] {
            assert_eq!(to_repeat(&suspect(id), &record).as_deref(), with, "{id}");
        }
    }
}
