//! `--hunt`: repeating what was never suspect, for growth that does not come with every execution.
//!
//! Data flow: screened and confirmed suites → [`Unit`]s (native tests, Java test classes), those
//! that left most first, the suites in turn → each is repeated alone for its share of the time that
//! is left ([`Clock`]) → what grew joins the confirmations of its suite and is judged like them; of
//! the rest only how often it ran is kept, in the `Hunt` of its suite.

use std::fs;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use memgate_analysis::{Candidate, HuntTime, Hunted, candidates, hunted, rarest_after};
use memgate_model::{BoundaryQuality, Hunt};

use super::board::{Board, Finished};
use super::confirm::{AllTests, Lasts, alone, keep_output, outcome};
use super::facts::{ConfirmationFacts, ProcessFacts};
use super::junit;
use super::screen::{Screened, Setting};
use super::supervise::{Stopped, Surroundings};
use crate::exit::ExpectedError;
use crate::output::Progress;
use crate::stream::os_path;

/// A test that has less time than this tells nothing that the screen did not.
const LEAST_OF_TEST: Duration = Duration::from_millis(500);
/// Nor does a test class with less: its virtual machine takes a second to start.
const LEAST_OF_CLASS: Duration = Duration::from_secs(4);
/// No hunt needs more, and a clock may not know it.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// What rises is watched for up to so many times the share of a test.
const OPEN_FACTOR: u32 = 3;
/// And for so long, where its share is short: as long as a confirmation does.
const LEAST_OF_OPEN: Duration = Duration::from_secs(6);
/// Tests that cannot be repeated are named up to this number.
const NAMED: usize = 20;

/// What is repeated.
struct Unit {
    suite: usize,
    what: What,
}

enum What {
    Test(Candidate),
    /// A Java test class.
    Class(String),
}

impl What {
    fn name(&self) -> &str {
        match self {
            Self::Test(candidate) => &candidate.test,
            Self::Class(class) => class,
        }
    }

    const fn least(&self) -> Duration {
        match self {
            Self::Test(_) => LEAST_OF_TEST,
            Self::Class(_) => LEAST_OF_CLASS,
        }
    }
}

/// What became of a unit.
pub(super) enum Ran {
    /// Nothing grew in so many executions.
    Still(u64),
    /// So many executions; it joined the confirmations.
    Grew(u64),
    /// It cannot be repeated so often.
    Unusable(String),
}

/// Hunts in all suites, and notes in each what was done.
pub(super) async fn hunt(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    suites: &mut [Screened],
) -> Result<Vec<Finished>, Stopped> {
    let Some(time) = setting.plan.hunt else { return Ok(Vec::new()) };
    let time = time.min(LONGEST);
    let clock = Clock { end: Instant::now() + time };
    let units = units(setting, suites);
    let total = units.len();
    if total > 0 {
        let what = match units.iter().filter(|unit| matches!(unit.what, What::Class(_))).count() {
            0 => format!("{total} tests"),
            classes if classes == total => format!("{total} test classes"),
            _ => format!("{total} tests and test classes"),
        };
        let time = time.as_secs_f64();
        around
            .console
            .line(&format!("hunting for {time} s in {what} that were never suspect, the worst first"));
    }
    let mut progress = Progress::of_silent_tests(around.console, "hunting", total as u64);
    let mut finished = Vec::new();
    let mut all_tests: Vec<AllTests> = suites.iter().map(|_| AllTests::default()).collect();
    for (done, Unit { suite: index, what }) in units.into_iter().enumerate() {
        let suite = &mut suites[index];
        let Some(time) = clock.share(total - done, what.least()) else {
            tally(suite).not_reached += 1;
            continue;
        };
        let mut show = |_: &Board| progress.update(done as u64, what.name());
        let ran = match &what {
            What::Test(candidate) => {
                let all_tests = &mut all_tests[index];
                test(around, setting, suite, candidate, time, all_tests, &mut finished, &mut show).await?
            }
            What::Class(class) => {
                junit::hunt(around, setting, suite, class, time, clock.end, &mut finished, &mut show).await?
            }
        };
        note(tally(suite), what.name(), ran);
    }
    drop(progress);
    Ok(finished)
}

/// A suite in which nothing is repeated.
pub(super) fn none(why: &str) -> Hunt {
    Hunt { not_hunted: Some(why.to_owned()), ..Hunt::default() }
}

fn tally(suite: &mut Screened) -> &mut Hunt {
    suite.facts.hunt.get_or_insert_with(Hunt::default)
}

/// What can be repeated, and why the rest cannot. The worst of each suite come first, in turn.
fn units(setting: Setting<'_>, suites: &mut [Screened]) -> Vec<Unit> {
    let mut ranked = Vec::new();
    for (index, suite) in suites.iter_mut().enumerate() {
        let found = match &suite.java {
            Some(java) => junit::candidates(setting, suite, java)
                .map(|classes| classes.into_iter().map(What::Class).collect::<Vec<_>>()),
            None => tests_of(setting, suite).map(|tests| tests.into_iter().map(What::Test).collect()),
        };
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                suite.facts.hunt = Some(none(&why));
                continue;
            }
        };
        let hunt = Hunt { of: found.len() as u64, classes: suite.java.is_some(), ..Hunt::default() };
        suite.facts.hunt = Some(hunt);
        ranked.extend(found.into_iter().enumerate().map(|(rank, what)| (rank, Unit { suite: index, what })));
    }
    ranked.sort_by_key(|(rank, unit)| (*rank, unit.suite));
    ranked.into_iter().map(|(_, unit)| unit).collect()
}

/// Native tests that were never suspect.
fn tests_of(setting: Setting<'_>, suite: &Screened) -> Result<Vec<Candidate>, String> {
    let why = if suite.one_by_one {
        "its tests have no boundaries"
    } else if suite.facts.boundary == BoundaryQuality::Process {
        "the process is the test"
    } else if suite.processes.is_empty() {
        "it was not measured"
    } else {
        let mut tests = candidates(&suite.records(), &suite.facts.name, &setting.plan.policy);
        tests.retain(|candidate| !suite.facts.confirmations.contains_key(&candidate.test));
        return Ok(tests);
    };
    Err(why.to_owned())
}

/// The time of the hunt.
#[derive(Clone, Copy)]
struct Clock {
    end: Instant,
}

impl Clock {
    fn left(self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// What one of so many units may take, `least` at least; `None`: it would be too little to tell
    /// anything.
    fn share(self, units: usize, least: Duration) -> Option<HuntTime> {
        let left = self.left();
        let share = (left / u32::try_from(units.max(1)).unwrap_or(u32::MAX)).max(least);
        let most = share.saturating_mul(OPEN_FACTOR).max(LEAST_OF_OPEN).min(left);
        (left >= least).then_some(HuntTime { share: share.min(left), most })
    }
}

fn note(hunt: &mut Hunt, name: &str, ran: Ran) {
    let executions = match ran {
        Ran::Still(executions) => executions,
        Ran::Grew(executions) => {
            hunt.grew += 1;
            executions
        }
        Ran::Unusable(why) => {
            hunt.failing += 1;
            if hunt.failures.len() < NAMED {
                hunt.failures.push(format!("{name}: {why}"));
            }
            return;
        }
    };
    let (least, most) = hunt.executions;
    let least = if hunt.repeated == 0 { executions } else { least.min(executions) };
    hunt.repeated += 1;
    hunt.executions = (least, most.max(executions));
    hunt.one_in = rarest_after(least);
}

/// Repeats one native test.
#[expect(clippy::too_many_arguments, reason = "what a run needs, and what this one is")]
async fn test(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    suite: &mut Screened,
    Candidate { test, record }: &Candidate,
    time: HuntTime,
    all_tests: &mut AllTests,
    finished: &mut Vec<Finished>,
    show: &mut dyn FnMut(&Board),
) -> Result<Ran, Stopped> {
    let done =
        match alone(around, setting, suite, (test, *record), Lasts::Hunt(time), all_tests, show).await? {
            Ok(done) => done,
            Err(ConfirmationFacts::Impossible(why) | ConfirmationFacts::Broken(why)) => {
                return Ok(Ran::Unusable(why));
            }
            Err(_) => return Ok(Ran::Unusable("it cannot be repeated".to_owned())),
        };
    let mut processes = Vec::new();
    let streams: Vec<_> = done.finished.iter().map(|process| process.process.file.clone()).collect();
    let output = done.ended.exit.is_success().then(String::new);
    let output = output.map_or_else(|| keep_output(setting, test, &done), Ok)?;
    let facts = outcome(setting, done, test, &output, &mut processes);
    let (ConfirmationFacts::Repeated(facts), Some(process)) = (facts, processes.first_mut()) else {
        return Ok(Ran::Unusable("alone it did not run".to_owned()));
    };
    let seen = look(process, &facts, &suite.facts.name, test, setting);
    let ran = match seen {
        Hunted::MayGrow(executions) => {
            suite.facts.confirmations.insert(test.clone(), ConfirmationFacts::Repeated(facts));
            finished.append(&mut processes);
            return Ok(Ran::Grew(executions));
        }
        Hunted::Still(executions) => Ran::Still(executions),
        Hunted::Unusable(why) => Ran::Unusable(why),
    };
    for stream in &streams {
        forget(stream)?;
    }
    Ok(ran)
}

fn look(
    process: &mut Finished,
    facts: &ProcessFacts,
    suite: &str,
    test: &str,
    setting: Setting<'_>,
) -> Hunted {
    let input = facts.input(&mut |_| std::mem::take(&mut process.record));
    let seen = hunted(&input, suite, test, &setting.plan.policy);
    process.record = input.record;
    seen
}

/// What was recorded of a test in which nothing grew is not kept: a session would hold some MiB for
/// each.
pub(super) fn forget(stream: &std::path::Path) -> Result<(), ExpectedError> {
    for path in [stream.to_owned(), os_path(stream)] {
        match fs::remove_file(&path) {
            Err(why) if why.kind() != ErrorKind::NotFound => {
                return Err(ExpectedError::file("remove", &path)(why));
            }
            _ => {}
        }
    }
    Ok(())
}
