//! From a run to its report: checks every test against its thresholds, then every suite, then the run.
//!
//! A test is judged by its screening windows (`one_execution`, `at_exit`) and by the result of repeating it (`test`,
//! `repeated`, `lengths`). A test that could not be measured is reported and never passes (`measured`). Suites and the
//! run get the worst verdict of their parts. JVM suites have a judge of their own (`java`).

mod against_base;
mod at_exit;
mod children;
mod company;
mod context;
mod curve;
mod heap;
mod java;
mod judgement;
mod leaks;
mod lengths;
mod metric;
#[cfg(test)]
mod missed_tests;
mod one_execution;
mod one_test;
mod other_test;
mod pools;
mod repeated;
mod series;
mod suite;
mod test;
#[cfg(test)]
pub(crate) mod tests;
mod wording;

use std::time::Duration;

use memgate_model::{
    AgentCost, Level, Outcome, Problem, RunReport, Runner, SCHEMA_VERSION, SuiteReport, Verdict,
};

use crate::input::{ConfirmationInput, ProcessInput, RunInput, SuiteInput};
use crate::policy::GatePolicy;
use crate::random_names::RandomNames;
use crate::resolve::Resolve;
use context::JudgeContext;

/// Judges a run. `resolve` is called only for stacks that the report shows or a waiver may cover.
#[must_use]
pub fn judge(input: &RunInput, policy: &GatePolicy, resolve: &mut dyn Resolve) -> RunReport {
    let names = input.suites.iter().map(|suite| {
        let screened = suite.screen.iter().map(|process| &process.record);
        RandomNames::between(screened, repeating(suite).map(|process| &process.record))
    });
    let names = names.fold(RandomNames::default(), RandomNames::and);
    let mut resolve = names.over(resolve);
    let mut context = JudgeContext::new(policy, &mut resolve);
    let judged: Vec<_> = input.suites.iter().map(|suite| suite::judge(&mut context, suite)).collect();
    // Ctrl-C also ends the processes of the tests.
    let counts = |outcome| has_failed(outcome) && !(input.ended_early && outcome == Outcome::Crashed);
    let tests_failed = judged.iter().any(|suite| {
        suite.failed_without_a_test && !input.ended_early
            || suite.report.tests.iter().any(|test| counts(test.outcome))
    });
    let command_failed = input.command_status.filter(|status| *status != 0);
    let users_failed = command_failed.is_some() || tests_failed;
    let suites: Vec<SuiteReport> = judged.into_iter().map(|suite| suite.report).collect();
    let mut errors = input.errors.clone();
    errors.extend(nothing_ran(input, &suites));
    let broken = if errors.is_empty() { Verdict::Pass } else { Verdict::Error };
    let is_whole = broken != Verdict::Error && !users_failed && suites.iter().all(SuiteReport::is_whole);
    let mut waivers = context.waivers.report(input.partial || !is_whole);
    // In a partial run, another part may still have the leak.
    if input.partial {
        waivers.iter_mut().filter_map(|waiver| waiver.fixed.as_mut()).for_each(|it| it.level = Level::Warn);
    }
    let of_waivers = waivers
        .iter()
        .filter(|_| !input.partial)
        .filter_map(|waiver| Some(waiver.fixed.as_ref()?.level.verdict()));
    let verdict = of_waivers.fold(broken.max(Verdict::of_suites(&suites)), Verdict::max);
    // No test explains why the exit code is not 0.
    let is_explained = tests_failed || is_told_by_device(input) || policy.ignore_test_failures;
    let unexplained = command_failed.filter(|_| !is_explained);
    if let Some(status) = unexplained {
        let what = format!("it ended with status {status}, though no test failed: so does this run, with 1");
        errors.push(suite::problem("command", &what, "its own output says why"));
    }
    let verdict = if unexplained.is_some() { verdict.max(Verdict::NotJudged) } else { verdict };
    RunReport {
        schema_version: SCHEMA_VERSION,
        verdict,
        exit_code: verdict.exit_code(users_failed && !policy.ignore_test_failures),
        project: input.project.clone(),
        session: input.session.clone(),
        started: input.started.clone(),
        duration_s: input.duration.as_secs_f64(),
        agent_cost: agent_cost(input),
        suites,
        waivers,
        errors,
        warnings: Vec::new(),
        origin: input.origin.clone(),
        base: policy.review.as_ref().map(|review| review.base.base.clone()),
        shards: Vec::new(),
        followed: crate::java::followed(processes(input).map(|process| &process.record), &policy.follow),
    }
}

/// The error of a run without a test.
fn nothing_ran(input: &RunInput, suites: &[SuiteReport]) -> Option<Problem> {
    // A suite with an error gives its own reason.
    let has_no_test = |suite: &SuiteReport| suite.tests.is_empty() && suite.verdict != Verdict::Error;
    if input.may_be_empty || !input.errors.is_empty() || !suites.iter().all(has_no_test) {
        return None;
    }
    let (what, hint) = match suites {
        [] => ("no tests were seen", "is the program one that memgate can look into? `memgate doctor` says"),
        _ => (
            "no test ran: nothing was measured",
            "look at the filter of the command, at GTEST_FILTER, and at tests named DISABLED_",
        ),
    };
    Some(suite::problem("run", what, hint))
}

/// On a device there is no command: its suite says how it ended.
fn is_told_by_device(input: &RunInput) -> bool {
    let failures = |suite: &SuiteInput| suite.java.iter().any(|java| !java.failures.is_empty());
    let tells = |suite: &SuiteInput| !suite.problems.is_empty() || failures(suite);
    input.suites.iter().all(|suite| suite.runner == Runner::Instrumentation) && input.suites.iter().any(tells)
}

fn has_failed(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Failed | Outcome::Crashed | Outcome::TimedOut)
}

/// Every process of a run, including those that repeated tests.
fn processes(input: &RunInput) -> impl Iterator<Item = &ProcessInput> {
    screened(input).chain(input.suites.iter().flat_map(repeating))
}

/// The processes of the screening pass, in which each test ran as without memgate.
fn screened(input: &RunInput) -> impl Iterator<Item = &ProcessInput> {
    input.suites.iter().flat_map(|suite| suite.screen.iter())
}

/// The processes that repeated tests of a suite.
fn repeating(suite: &SuiteInput) -> impl Iterator<Item = &ProcessInput> {
    let confirming = suite.confirmations.values().flat_map(|c| -> Vec<&ProcessInput> {
        match c {
            ConfirmationInput::Repeated(process) => vec![process],
            ConfirmationInput::InCompany { alone, together } => {
                std::iter::once(&**alone).chain(together.as_deref().ok()).collect()
            }
            ConfirmationInput::Lengths(runs) => runs.iter().map(|run| &run.process).collect(),
            ConfirmationInput::FreedSince
            | ConfirmationInput::Impossible(_)
            | ConfirmationInput::Broken(_)
            | ConfirmationInput::Unscreened(_) => Vec::new(),
        }
    });
    let rounds = suite.java.iter().flat_map(|java| &java.rounds);
    suite.stacks.iter().chain(rounds).chain(confirming)
}

/// How long tests were repeated. Processes that run at the same time count once.
fn repeated_s(input: &RunInput) -> f64 {
    let mut spans: Vec<_> = input
        .suites
        .iter()
        .flat_map(repeating)
        .map(|process| (process.record.first_ns, process.record.last_ns))
        .collect();
    spans.sort_unstable();
    let (mut lasted, mut seen) = (Duration::ZERO, 0);
    for (first, last) in spans {
        lasted += Duration::from_nanos(last.saturating_sub(first.max(seen)));
        seen = seen.max(last);
    }
    let java = input.suites.iter().filter_map(|suite| suite.java.as_ref());
    let lost: Duration = input.suites.iter().map(|suite| suite.lost).sum();
    (lasted + lost + java.map(|java| java.broken_off).sum::<Duration>()).as_secs_f64()
}

/// The ratio uses the costs that agents report, if the CPU time of the process is known. It covers only the screen: a
/// test that is repeated hundreds of times consists almost only of boundaries.
fn agent_cost(input: &RunInput) -> AgentCost {
    let mut cost = AgentCost::default();
    let (mut with_agent_ns, mut agent_ns) = (0_u64, 0_u64);
    for process in processes(input) {
        let told = &process.record.cost;
        cost.peak_bytes = cost.peak_bytes.max(told.mapped_bytes);
        // Stacks of a virtual machine lead into generated code, which cannot be unwound.
        if process.record.java.is_none() {
            cost.truncated_stacks = cost.truncated_stacks.saturating_add(told.truncated_stacks);
        }
    }
    for process in screened(input) {
        let told = &process.record.cost;
        cost.boundary_s += Duration::from_nanos(told.boundary_ns).as_secs_f64();
        if let Some(cpu_ns) = process.record.cpu_ns {
            with_agent_ns = with_agent_ns.saturating_add(cpu_ns);
            agent_ns = agent_ns.saturating_add(told.boundary_ns).saturating_add(told.recording_ns);
        }
    }
    let without_ns = with_agent_ns.saturating_sub(agent_ns);
    let float = crate::stats::float;
    cost.repeated_s = repeated_s(input);
    cost.cpu_s = Duration::from_nanos(with_agent_ns).as_secs_f64();
    // The time at boundaries is wall time, which includes waiting for a processor. If it exceeds the processor time of
    // the tests, the machine was busy.
    cost.cpu_ratio =
        (without_ns > 0 && agent_ns <= without_ns).then(|| float(with_agent_ns) / float(without_ns));
    cost
}
