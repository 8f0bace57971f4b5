//! The process is the test. Several runs repeat its work a different number of times; the slope shows the growth per
//! repetition.
//!
//! [`lengths`] serves two kinds of suites: a program with an argument that repeats its work, and the tests of a
//! GoogleTest executable without visible boundaries.

use std::time::Duration;

use memgate_analysis::ProcessRecord;
use memgate_launch::Launch;

use super::framework::{Framework, Suite, Unit};
use crate::exit::ExpectedError;
use crate::output::Progress;
use crate::plan::PlannedSuite;
use crate::run::engine::{
    Clocked, Context, CopyAtMainEnd, Finished, Job, Limit, Stopped, cannot_run_again, launch, of_programs,
    options_of, silent, supervise,
};
use crate::session::facts::ConfirmationFacts;
use crate::session::label::Label;
use crate::suite::command::{COUNTS, with_count};

/// After this many lengths with the same result, further runs show nothing new.
const ALIKE: usize = 3;

/// A program, with the argument that repeats its work if it has one.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) repeating: Option<PlannedSuite>,
}

impl Framework for Process {
    /// With growing numbers of repetitions.
    async fn confirm(
        context: &mut Context<'_>,
        suites: Vec<(&mut Suite, &mut Self)>,
    ) -> Result<Vec<Finished>, Stopped> {
        let mut finished = Vec::new();
        for (suite, program) in suites.into_iter().filter(|_| context.plan.confirm) {
            let Some(planned) = &program.repeating else { continue };
            let Some(process) = suite.processes.first() else { continue };
            let executable = process.hello().executable.clone();
            let name = suite.facts.name.clone();
            let mut progress =
                Progress::of_silent_tests(context.console, &format!("repeating {name}"), COUNTS.len() as u64);
            let work = Work {
                suite: &name,
                test: &name,
                executable: &executable,
                timeout: suite.timeout,
                launch: &|n| silent(launch(&repeating(planned, n), None)),
            };
            let runs = lengths(context, &work, &mut |done| progress.update(done, "")).await?;
            drop(progress);
            let (outcome, processes) = runs.into_facts();
            finished.extend(processes);
            suite.facts.confirmations.insert(name, outcome);
        }
        Ok(finished)
    }

    fn candidates(&self, _: &Context<'_>, _: &Suite) -> Result<Vec<Unit>, String> {
        Err("the process is the test".to_owned())
    }
}

/// The command of `planned` with `n` repetitions.
pub(super) fn repeating(planned: &PlannedSuite, n: u32) -> PlannedSuite {
    let command = with_count(planned.repeating.as_deref().unwrap_or_default(), n);
    PlannedSuite { command: command.into_iter().map(Into::into).collect(), ..planned.clone() }
}

/// The repeated work.
pub(super) struct Work<'a> {
    pub(super) suite: &'a str,
    pub(super) test: &'a str,
    pub(super) executable: &'a str,
    /// Time limit of one repetition.
    pub(super) timeout: Duration,
    pub(super) launch: &'a (dyn Fn(u32) -> Launch + Sync),
}

/// The runs of one piece of work.
pub(super) struct Runs {
    pub(super) runs: Vec<(u64, Finished)>,
    broken: Option<String>,
}

impl Runs {
    /// Why there is no result, if not even the first run was recorded.
    pub(super) fn nothing(&self) -> Option<&str> {
        self.broken.as_deref().filter(|_| self.runs.is_empty())
    }

    pub(super) fn into_facts(self) -> (ConfirmationFacts, Vec<Finished>) {
        if let Some(why) = self.broken {
            return (
                ConfirmationFacts::Broken(why),
                self.runs.into_iter().map(|(_, process)| process).collect(),
            );
        }
        let facts = self.runs.iter().map(|(n, process)| (*n, process.facts())).collect();
        (ConfirmationFacts::Lengths(facts), self.runs.into_iter().map(|(_, process)| process).collect())
    }
}

pub(super) async fn lengths(
    context: &mut Context<'_>,
    work: &Work<'_>,
    show: &mut dyn FnMut(u64),
) -> Result<Runs, Stopped> {
    let mut runs: Vec<(u64, Finished)> = Vec::new();
    for (done, n) in COUNTS.into_iter().enumerate() {
        show(done as u64);
        let may_be_last = [ALIKE, COUNTS.len()].contains(&(done + 1));
        let job = match may_be_last && context.plan.holders && grow(&runs) {
            true => job(context, work, n).with(of_programs(|_| CopyAtMainEnd::default())),
            false => job(context, work, n),
        };
        let ended = match supervise(context, job, &mut |_| show(done as u64)).await {
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
        // A broken run is reported as it is; more runs would show nothing new.
        if over || are_alike(&runs) {
            break;
        }
    }
    Ok(Runs { runs, broken: None })
}

fn job(context: &Context<'_>, work: &Work<'_>, n: u32) -> Job {
    let (suite, test) = (work.suite.to_owned(), work.test.to_owned());
    let label = Label::Length { suite, test, n: u64::from(n) };
    let mut options = options_of(context, work.executable, &label);
    options.end_of_main = true;
    Job::new((work.launch)(n), options, Clocked::Process, Limit::Ends(work.timeout.saturating_mul(n)))
}

/// Whether more was alive at the end of `main` in the latest run than in the first one.
fn grow(runs: &[(u64, Finished)]) -> bool {
    let alive = |run: &(u64, Finished)| Some(run.1.record.main_end.as_ref()?.counters.live_bytes());
    let [first, .., last] = runs else { return false };
    alive(first) < alive(last)
}

/// Whether the first runs ended with the same blocks, bytes, descriptors and threads. If each run made more allocations
/// than a shorter one, the program repeats its work. If all made as many, it does not. Otherwise longer runs show it.
fn are_alike(runs: &[(u64, Finished)]) -> bool {
    let left = |record: &ProcessRecord| {
        let end = record.end.as_ref()?;
        let os = end.os.as_ref().map(|os| (os.fd_count(), os.thread_count()));
        Some((end.counters.live_bytes(), end.counters.live_allocations(), os))
    };
    let ends = runs.iter().filter_map(|(_, process)| process.record.end.as_ref());
    let made: Vec<u64> = ends.map(|end| end.counters.allocations).collect();
    let is_clear =
        made.windows(2).all(|pair| pair[1] > pair[0]) || made.windows(2).all(|pair| pair[1] == pair[0]);
    let mut ends = runs.iter().map(|(_, process)| left(&process.record));
    let first = ends.next().flatten();
    runs.len() >= ALIKE && is_clear && first.is_some() && ends.all(|end| end == first)
}
