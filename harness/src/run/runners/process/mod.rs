//! The process is the test. Several runs repeat its work a different number of times; the slope shows the growth per
//! repetition.
//!
//! [`lengths`] serves two kinds of suites: a program with an argument that repeats its work, and the tests of a
//! GoogleTest executable without visible boundaries.

mod longer;

use std::time::Duration;

use memgate_analysis::{Mapped, ProcessRecord};
use memgate_launch::{Exit, Launch};
use memgate_wire::options::EndOfMain;

use super::framework::{Framework, Suite, Unit};
use crate::exit::ExpectedError;
use crate::output::Progress;
use crate::plan::PlannedSuite;
use crate::run::engine::{
    Budget, Clocked, Context, CopyAtMainEnd, Finished, Job, Limit, Stopped, cannot_run_again, launch,
    of_programs, options_of, silent, supervise,
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
            let mut budget = Budget::of(context.plan.confirm_budget, suite.facts.screened_s);
            let mut show = |done| progress.update(done, "");
            let runs = lengths(context, &work, &mut budget, &mut show).await?;
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

/// One run.
struct Ran {
    exit: Exit,
    took: Duration,
    /// `None`: nothing was recorded.
    process: Option<Finished>,
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

/// Runs `work` with few repetitions, and with many while time is left in `budget` if something grew.
pub(super) async fn lengths(
    context: &mut Context<'_>,
    work: &Work<'_>,
    budget: &mut Budget,
    show: &mut dyn FnMut(u64),
) -> Result<Runs, Stopped> {
    let mut runs: Vec<(u64, Finished)> = Vec::new();
    let mut times = Vec::new();
    let mut succeeds = true;
    for (done, n) in COUNTS.into_iter().enumerate() {
        let may_be_last = [ALIKE, COUNTS.len()].contains(&(done + 1));
        let copies = may_be_last && grow(&records(&runs));
        let limit = work.timeout.saturating_mul(n);
        let ran = match run(context, work, n, limit, copies, &mut || show(done as u64)).await {
            Ok(ran) => ran,
            Err(Stopped::Failed(gone @ ExpectedError::Program { .. })) => {
                return Ok(Runs { runs, broken: Some(cannot_run_again(&gone)) });
            }
            Err(stopped) => return Err(stopped),
        };
        let Some(process) = ran.process else {
            let exit = ran.exit;
            return Ok(Runs {
                runs,
                broken: Some(format!("with {n} repetitions nothing was recorded ({exit})")),
            });
        };
        let over = process.record.end.is_none();
        runs.push((u64::from(n), process));
        times.push(ran.took);
        // A broken run is reported as it is; more runs would show nothing new.
        if over || are_alike(&records(&runs)) {
            return Ok(Runs { runs, broken: None });
        }
        succeeds &= ran.exit.is_success();
    }
    if !succeeds {
        return Ok(Runs { runs, broken: None });
    }
    budget.begin();
    let done = longer::add(context, work, &mut runs, longer::Pace::of(&times), budget, show).await;
    budget.end();
    match done {
        // Its program is gone. The few repetitions decide.
        Ok(()) | Err(Stopped::Failed(ExpectedError::Program { .. })) => Ok(Runs { runs, broken: None }),
        Err(stopped) => Err(stopped),
    }
}

/// Runs `work` once, with `n` repetitions. `copies`: to search for the holders of what is left.
async fn run(
    context: &mut Context<'_>,
    work: &Work<'_>,
    n: u32,
    limit: Duration,
    copies: bool,
    show: &mut dyn FnMut(),
) -> Result<Ran, Stopped> {
    show();
    let (suite, test) = (work.suite.to_owned(), work.test.to_owned());
    let label = Label::Length { suite, test, n: u64::from(n) };
    let mut options = options_of(context, work.executable, &label);
    options.end_of_main = EndOfMain::OfTheTest;
    let job = Job::new((work.launch)(n), options, Clocked::Process, Limit::Ends(limit));
    let copies = copies && context.plan.holders;
    let job = job.with(of_programs(move |_| CopyAtMainEnd::new(copies)));
    let done = supervise(context, job, &mut |_| show()).await?;
    let process = done.finished.into_iter().find(Finished::is_main);
    Ok(Ran { exit: done.ended.exit, took: done.elapsed, process })
}

/// Whether more was alive at the end of `main` in the latest run than in the first one.
fn grow(runs: &[&ProcessRecord]) -> bool {
    let alive = |record: &ProcessRecord| Some(record.main_end.as_ref()?.counters.live_bytes());
    let [first, .., last] = runs else { return false };
    alive(first) < alive(last)
}

/// Whether the first runs ended with the same blocks, bytes, mapped memory, descriptors and threads, and none left more
/// at the end of `main`. If each run made more allocations than a shorter one, the program repeats its work. If all
/// made as many, it does not. Otherwise longer runs show it.
fn are_alike(runs: &[&ProcessRecord]) -> bool {
    let left = |record: &ProcessRecord| {
        let end = record.end.as_ref()?;
        let os = end.os.as_ref().map(|os| (os.fd_count(), os.thread_count()));
        let mapped = end.mapped.as_ref().map(Mapped::total);
        Some((end.counters.live_bytes(), end.counters.live_allocations(), mapped, os))
    };
    let ends = runs.iter().filter_map(|record| record.end.as_ref());
    let made: Vec<u64> = ends.map(|end| end.counters.allocations).collect();
    let is_clear =
        made.windows(2).all(|pair| pair[1] > pair[0]) || made.windows(2).all(|pair| pair[1] == pair[0]);
    let mut ends = runs.iter().map(|record| left(record));
    let first = ends.next().flatten();
    runs.len() >= ALIKE && is_clear && !grow(runs) && first.is_some() && ends.all(|end| end == first)
}

fn records(runs: &[(u64, Finished)]) -> Vec<&ProcessRecord> {
    runs.iter().map(|(_, process)| &process.record).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use memgate_analysis::{OsName, ProcessEnd};

    use super::*;

    /// Regression: a cache of mappings failed, because three runs decided.
    #[test]
    fn three_runs_do_not_decide_if_their_mapped_memory_differs() {
        let run = |n: u64, mapped: u64| {
            let name = OsName { name: "anonymous memory".to_owned(), stack: 0 };
            let bytes = Arc::new(vec![(name, mapped)]);
            let mapped = Some(Mapped { bytes, counts: Arc::default() });
            let mut end = ProcessEnd { mapped, ..ProcessEnd::default() };
            (end.counters.allocations, end.counters.frees) = (n, n);
            let mut record = ProcessRecord::default();
            record.end = Some(end);
            record
        };
        let alike = |mapped: [u64; 3]| {
            let runs: Vec<_> =
                COUNTS.iter().zip(mapped).map(|(n, mapped)| run(u64::from(*n), mapped)).collect();
            are_alike(&runs.iter().collect::<Vec<_>>())
        };
        assert!(alike([4096; 3]));
        assert!(!alike([4096, 8192, 12_288]));
    }
}
