//! A Java program that is a test as a whole: `java … Main {n}`, run with growing numbers of repetitions.
//!
//! Data flow: the command with one repetition, as the user would run it → the same with other numbers, without output →
//! each virtual machine counts its heap at its end ([`Windows::End`]) → facts of the suite, judged by the growth per
//! repetition.

use memgate_wire::options::{Target, Windows};

use super::ours::{Files, with_agent};
use crate::output::Progress;
use crate::plan::PlannedSuite;
use crate::run::engine::{
    Clocked, Context, Done, Finished, Job, Limit, Stopped, silent, status, supervise, typed,
};
use crate::run::runners::framework::Suite;
use crate::run::runners::process::{Process, repeating};
use crate::session::facts::{ConfirmationFacts, Facts, Kind, problem};
use crate::session::label::Label;
use crate::suite::command::COUNTS;

/// Runs the program with each number of repetitions.
pub(in crate::run::runners) async fn screen(
    context: &mut Context<'_>,
    planned: &PlannedSuite,
    facts: &mut Facts,
) -> Result<Vec<(Suite, Process)>, Stopped> {
    let name = planned.name.clone().unwrap_or_else(|| typed(planned));
    let mut done = run(context, planned, &name, None).await?;
    facts.command_ended(status(done.ended.exit));
    facts.errors.extend(done.problems.drain(..).map(|what| problem("recorder", what, "")));
    let Some(first) = done.finished.into_iter().find(Finished::is_main) else {
        let what = format!("not measured: the agent did not report from `{name}` ({})", done.ended.exit);
        facts.errors.push(problem(&name, what, "HotSpot 17 or later is needed"));
        return Ok(Vec::new());
    };
    let mut lengths = Vec::new();
    let mut processes = vec![first];
    let mut broken = None;
    let mut progress =
        Progress::of_silent_tests(context.console, &format!("repeating {name}"), COUNTS.len() as u64);
    for (at, n) in COUNTS.into_iter().enumerate() {
        progress.update(at as u64, "");
        let done = run(context, planned, &name, Some(n)).await?;
        let Some(process) = done.finished.into_iter().find(Finished::is_main) else {
            broken = Some(format!("with {n} repetitions nothing was recorded ({})", done.ended.exit));
            break;
        };
        lengths.push((u64::from(n), process.facts()));
        processes.push(process);
    }
    drop(progress);
    let confirmation = broken.map_or(ConfirmationFacts::Lengths(lengths), ConfirmationFacts::Broken);
    let times = (done.elapsed, planned.timeout);
    let mut suite = Suite::new(Kind::Program, name.clone(), processes, times);
    suite.facts.screen.truncate(1);
    suite.facts.confirmations.insert(name, confirmation);
    Ok(vec![(suite, Process { repeating: None })])
}

/// One run: as it is, or without output and with `n` repetitions.
async fn run(
    context: &mut Context<'_>,
    planned: &PlannedSuite,
    name: &str,
    n: Option<u32>,
) -> Result<Done, Stopped> {
    let (suite, test) = (name.to_owned(), name.to_owned());
    let label = match n {
        None => Label::Screen { suite },
        Some(n) => Label::Length { suite, test, n: u64::from(n) },
    };
    let files = Files::new(context)?;
    let (options, our_option) = files.options(context, &label, |options| {
        options.windows = Windows::End;
        options.targets = vec![Target::All];
    })?;
    let planned_now = n.map_or_else(|| planned.clone(), |n| repeating(planned, n));
    let launch = with_agent(&files, planned_now, &our_option)?;
    let (launch, limit) = match n {
        None => (launch, Limit::Tells(planned.timeout)),
        Some(n) => (silent(launch), Limit::Ends(planned.timeout.saturating_mul(n))),
    };
    let job = Job::new(launch, options, Clocked::Process, limit).loaded();
    supervise(context, job, &mut |_| ()).await
}
