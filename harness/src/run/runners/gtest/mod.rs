//! Running suspects again, each alone: the screen chooses, this decides who leaks.
//!
//! Data flow: screened suites → `analysis::screen` → for every suspect a process of its own that
//! repeats this one test, with `analysis::Confirmation` deciding at each end whether to go on → for
//! those that do something else alone the tests around them ([`company`](super::company)) → facts
//! of the suite. Programs that are a test as a whole are run with growing numbers of repetitions
//! instead.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::time::{Duration, Instant};

use memgate_analysis::{Confirmation, HuntTime, Next, ProcessRecord, Suspect, Window};
use memgate_launch::{Launch, Stream};
use memgate_model::BoundaryQuality;
use memgate_wire::spool::order;
use memgate_wire::{Boundary, Outcome, ProcessRole, setup};

use super::board::{Clocked, Finished, Limit};
use super::budget::Budget;
use super::company;
use super::facts::{ConfirmationFacts, ProcessFacts};
use super::junit;
use super::label::Label;
use super::screen::{LIST_TIMEOUT, Screened, Setting};
use super::series;
use super::streams::no_room;
use super::supervise::{Done, Job, Stopped, Surroundings, supervise};
use super::watch::{Orders, Settle};
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
        let mut budget = Budget::of(setting.plan.confirm_budget, suite.facts.screened_s);
        let ordered = memgate_analysis::causes_first(suspects.clone(), &suite.records());
        for (before, suspect) in ordered.into_iter().enumerate() {
            progress.update(done, &suspect.test);
            let outcome = if !setting.plan.confirm {
                ConfirmationFacts::Impossible("--no-confirm was given".to_owned())
            } else if let Some(most) = budget.share(suspects.len() - before) {
                let mut show = |_: &_| progress.update(done, &suspect.test);
                let limits = (&mut budget, most);
                confirm_one(
                    around,
                    setting,
                    suite,
                    &suspect,
                    limits,
                    &mut all_tests,
                    &mut finished,
                    &mut show,
                )
                .await?
            } else {
                ConfirmationFacts::Impossible(budget.leaves_open("it was over before its turn"))
            };
            suite.facts.confirmations.insert(suspect.test, outcome);
            done += 1;
        }
        if setting.plan.confirm {
            company::confirm(around, setting, suite, &suspects, &mut budget, &mut all_tests, &mut finished)
                .await?;
        }
        if let Some(left_open) = budget.left_open() {
            around.console.warning(&format!("{}: {left_open}", suite.facts.name));
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
    /// What `process` lists and what was seen to run. A listing is text: a name with a line break
    /// in it spoils what follows, and a program may refuse to list.
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

#[expect(clippy::too_many_arguments, reason = "what a run needs, and what this one is")]
async fn confirm_one(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    suite: &Screened,
    suspect: &Suspect,
    (budget, most): (&mut Budget, Duration),
    all_tests: &mut AllTests,
    finished: &mut Vec<Finished>,
    show: &mut dyn FnMut(&super::board::Board),
) -> Result<ConfirmationFacts, Stopped> {
    let test = suspect.test.as_str();
    let lasts = Lasts::NoLonger(most);
    let alone = match alone(around, setting, suite, (test, suspect.record), lasts, all_tests, show).await? {
        Ok(done) => kept(setting, test, done, finished)?,
        Err(facts) => return Ok(facts),
    };
    if let Some(cut) = cut(setting, suite, test, (&alone, finished), most, budget) {
        return Ok(cut);
    }
    let again = finished.last().filter(|_| matches!(alone, ConfirmationFacts::Repeated(_)));
    let is_setup = setup::suite_of(test).is_some();
    let Some((process, again)) = suite.processes.get(suspect.record).zip(again).filter(|_| is_setup) else {
        return Ok(alone);
    };
    let (policy, name) = (&setting.plan.policy, &suite.facts.name);
    let with = memgate_analysis::company_of_setup(policy, name, test, &process.record, &again.record);
    let all = all_tests.of(suspect.record, process).await;
    let filter = with.and_then(|tests| gtest::filter_for_all(&tests, all).ok());
    // Where so many tests cannot be selected, what it did with one stands.
    let Some(filter) = filter.filter(|filter| filter.len() <= company::MOST_FILTER) else { return Ok(alone) };
    let Some(share) = budget.share(1) else {
        let why = budget.leaves_open("it was over before this ran with more of its tests");
        return Ok(ConfirmationFacts::Impossible(why));
    };
    let most = company::most(suite).min(share);
    let with_more = match repeat(
        around,
        setting,
        (suite, process),
        (test, &filter),
        Lasts::NoLonger(most),
        show,
    )
    .await?
    {
        Ok(done) => kept(setting, test, done, finished)?,
        Err(facts) => return Ok(facts),
    };
    Ok(cut(setting, suite, test, (&with_more, finished), most, budget).unwrap_or(with_more))
}

/// What is to be said of the last of `finished` instead of `facts`, if its time ended before it was
/// known what the test does.
fn cut(
    setting: Setting<'_>,
    suite: &Screened,
    test: &str,
    (facts, finished): (&ConfirmationFacts, &[Finished]),
    most: Duration,
    budget: &mut Budget,
) -> Option<ConfirmationFacts> {
    let again = finished.last().filter(|_| matches!(facts, ConfirmationFacts::Repeated(_)));
    let record = again.map(|process| &process.record).filter(|record| elapsed(record) >= most)?;
    let confirmation = Confirmation::new(&setting.plan.policy, &suite.facts.name, test);
    let executions = record.windows_of(test).count();
    let why = || budget.leaves_open(&format!("its share of it ended after {executions} executions"));
    (!confirmation.is_known(record, elapsed(record))).then(why).map(ConfirmationFacts::Impossible)
}

fn kept(
    setting: Setting<'_>,
    test: &str,
    done: Done,
    finished: &mut Vec<Finished>,
) -> Result<ConfirmationFacts, Stopped> {
    let output = keep_output(setting, test, &done)?;
    Ok(outcome(setting, done, test, &output, finished))
}

/// How long a test is repeated.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lasts {
    /// Until it is known whether it leaks, and no longer than this, if it ran as often as the policy
    /// asks for.
    NoLonger(Duration),
    /// For its share of a hunt.
    Hunt(HuntTime),
}

/// Runs one test of the process `record`, alone and again and again. Or why it cannot be.
pub(super) async fn alone(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    suite: &Screened,
    (test, record): (&str, usize),
    lasts: Lasts,
    all_tests: &mut AllTests,
    show: &mut dyn FnMut(&super::board::Board),
) -> Result<Result<Done, ConfirmationFacts>, Stopped> {
    let Some(process) = suite.processes.get(record) else {
        return Ok(Err(ConfirmationFacts::Broken("the process it ran in is not known".to_owned())));
    };
    let Some(repeated) = to_repeat(test, &process.record) else {
        let why = "no test of its suite passed, with which it could be repeated";
        return Ok(Err(ConfirmationFacts::Impossible(why.to_owned())));
    };
    let all = all_tests.of(record, process).await;
    let filter = match gtest::filter_for(&repeated, all) {
        Ok(filter) => filter,
        Err(why) => return Ok(Err(ConfirmationFacts::Impossible(format!("failed to {why}")))),
    };
    repeat(around, setting, (suite, process), (test, &filter), lasts, show).await
}

/// Repeats what `filter` selects of a process, for the sake of `test`. Or why it cannot be.
async fn repeat(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    (suite, process): (&Screened, &Finished),
    (test, filter): (&str, &str),
    lasts: Lasts,
    show: &mut dyn FnMut(&super::board::Board),
) -> Result<Result<Done, ConfirmationFacts>, Stopped> {
    let Some(environment) = process.environment() else {
        let why = "the environment it ran in cannot be read (another process namespace?)";
        return Ok(Err(ConfirmationFacts::Impossible(why.to_owned())));
    };
    let launch = silent(gtest::confirm(process.hello(), Some(environment), filter, Repeat::Forever));
    let job = job(setting, suite, (test, lasts), &process.hello().executable, launch);
    match supervise(around, job, show).await {
        Ok(done) => Ok(Ok(done)),
        Err(Stopped::Failed(gone @ ExpectedError::Program { .. })) => {
            Ok(Err(ConfirmationFacts::Impossible(cannot_run_again(&gone))))
        }
        Err(stopped) => Err(stopped),
    }
}

/// The test that is repeated: a set-up runs with any of its suite, so that the shortest will do.
fn to_repeat(test: &str, screened: &ProcessRecord) -> Option<String> {
    let Some(suite) = setup::suite_of(test) else { return Some(test.to_owned()) };
    let is_of_all = [setup::OF_ALL, setup::BEHIND_ALL].iter().any(|name| test == format!("{suite}.{name}"));
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
    (test, lasts): (&str, Lasts),
    executable: &str,
    launch: Launch,
) -> Job {
    let mut options = AgentOptions::new(setting.session.frames());
    options.targets = vec![Target::Executable(executable.into())];
    options.detail = Detail::Growth;
    options.setup = setup::suite_of(test).is_some().then(|| test.to_owned());
    options.label = Label::Confirm { suite: suite.facts.name.clone(), test: test.to_owned() }.to_text();
    let policy = setting.plan.policy.clone();
    let (name, test) = (suite.facts.name.clone(), test.to_owned());
    let began = Instant::now();
    let settles = !setting.plan.settle.is_zero();
    Job {
        launch,
        options,
        preload: true,
        orders: Box::new(move |process| match process.hello.role {
            ProcessRole::Main => {
                let confirmation = Confirmation::new(&policy, &name, &test);
                let confirmation = match lasts {
                    Lasts::Hunt(time) => confirmation.hunting(time),
                    Lasts::NoLonger(_) => confirmation,
                };
                Box::new(Confirming { confirmation, lasts, began, settle: Settle::new(settles) })
            }
            ProcessRole::ForkChild => Box::new(Settle::new(false)),
        }),
        clocked: Clocked::Alone,
        limit: Limit::Ends(suite.timeout),
    }
}

/// Goes on until enough is known.
struct Confirming {
    confirmation: Confirmation,
    lasts: Lasts,
    /// When its process was started.
    began: Instant,
    settle: Settle,
}

impl Orders for Confirming {
    fn at_test_end(&mut self, boundary: &Boundary, record: &ProcessRecord) -> u32 {
        if self.settle.again(boundary, record) {
            return order::SETTLE;
        }
        let elapsed = match self.lasts {
            Lasts::Hunt(_) => self.began.elapsed(),
            Lasts::NoLonger(_) => elapsed(record),
        };
        let next = self.confirmation.observe(record, elapsed);
        let is_over = matches!(self.lasts, Lasts::NoLonger(most) if elapsed >= most);
        match next {
            // What has begun is not left without an answer that a few executions more would give.
            _ if is_over && self.confirmation.ran_its_least() => order::STOP,
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
    setting: Setting<'_>,
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
    let recorded = done.finished.iter().any(Finished::is_main);
    let Some(process) = done.finished.into_iter().find(|process| process.is_main() && ran(process)) else {
        let why = match no_room(&setting.session.frames()) {
            Some(why) if !recorded => why,
            _ if recorded && exit.is_success() => {
                "alone, the test did not run, though its program did: it chooses its tests itself, or has \
                 others the second time"
                    .to_owned()
            }
            _ => format!("alone, the test did not run ({exit})"),
        };
        return ConfirmationFacts::Broken(format!("{why}; its output: {output}"));
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
