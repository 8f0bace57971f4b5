//! A JVM suite: the build's own run shows its tests, the launcher's rounds find suspects, and repeating these alone
//! gives the verdicts.
//!
//! The build's own run shows only which tests there are and how they ended, because a first execution always grows. A
//! leak that was confirmed for a whole test class, and is not one of its single tests, gets an entry named by the
//! class.

pub(super) mod cost;
#[cfg(test)]
mod figure_tests;
#[cfg(test)]
mod leak_tests;
mod lengths;
mod native;
mod repeated;
mod screened;
#[cfg(test)]
mod tests;
mod whole_class;

use std::collections::BTreeSet;

use memgate_model::{Outcome, TestReport, Verdict, format_number_of};

use super::context::JudgeContext;
use super::judgement::{Executions, Judgement};
use super::one_test::TestJudge;
use super::test::judge_unmeasured_run;
use super::wording::listed;
use crate::input::{JavaInput, SuiteInput};
use crate::record::Window;
use screened::Screened;

/// Why a passed test was not judged, in singular and plural.
const FAIL_AGAIN: [&str; 2] = ["for it fails when it is repeated", "for they fail when they are repeated"];
const SKIPPED_AGAIN: [&str; 2] =
    ["for it is skipped when it is repeated", "for they are skipped when they are repeated"];

/// Judges the tests of a JVM suite. Findings about the whole suite go to `notes`.
pub(super) fn tests(
    context: &mut JudgeContext<'_>,
    suite: &SuiteInput,
    java: &JavaInput,
    runs: &[(String, Executions<'_>)],
    notes: &mut Vec<(Verdict, String)>,
) -> Vec<TestReport> {
    let warnings: BTreeSet<&String> =
        suite.screen.iter().chain(&java.rounds).flat_map(|process| &process.record.warnings).collect();
    // Limitations of the agent: details of a leak may be missing, but leaks are still found.
    notes.extend(warnings.into_iter().map(|warning| (Verdict::Pass, warning.clone())));
    notes.extend(java.limits.iter().map(|limits| (Verdict::Pass, limits.clone())));
    notes.extend(java.failures.iter().map(|failure| (Verdict::NotJudged, failure.clone())));
    notes.extend(native::untracked(suite, java));
    let screened = Screened::of(context, suite, java, runs, notes);
    let not_judged = |why: [&str; 2], of: &dyn Fn(&Executions<'_>) -> bool| {
        let ids = runs.iter().filter(|(_, runs)| passed(runs) && of(runs)).map(|(id, _)| id.as_str());
        let ids: Vec<&str> = ids.collect();
        let tests = format_number_of(ids.len(), "test");
        let why = why[usize::from(ids.len() > 1)];
        (!ids.is_empty()).then(|| (Verdict::Warn, format!("{tests} not judged, {why}: {}", listed(ids))))
    };
    notes.extend(not_judged(FAIL_AGAIN, &|runs| screened.leaves_out(runs)));
    notes.extend(not_judged(SKIPPED_AGAIN, &|runs| screened.skips(runs)));
    let mut reports: Vec<TestReport> = Vec::new();
    for (id, runs) in runs {
        let mut test = TestJudge::enter(context, &suite.name, id);
        match suite.confirmations.get(id).filter(|_| passed(runs)) {
            Some(confirmation) => test.confirmed(suite, confirmation, screened.repeated_for(class_of(runs))),
            None => {
                if let Some(why) = screened.not_judged(java, runs) {
                    test.judgement.raise(Verdict::NotJudged, why);
                }
            }
        }
        reports.push(judge_unmeasured_run(id, runs, test.judgement));
    }
    let classes: BTreeSet<&str> = runs.iter().filter_map(|(_, runs)| class_of(runs)).collect();
    for class in classes {
        if let Some(entry) = whole_class::entry(context, suite, class, &screened, runs, &mut reports) {
            reports.push(entry);
        }
    }
    reports.extend(without_their_run(context, suite, runs, &screened));
    reports
}

/// Entries of test classes that are missing in the build's own run: results of repeating them, and suspects that were
/// not repeated.
fn without_their_run(
    context: &mut JudgeContext<'_>,
    suite: &SuiteInput,
    runs: &[(String, Executions<'_>)],
    screened: &Screened<'_>,
) -> Vec<TestReport> {
    let ran: BTreeSet<&str> =
        runs.iter().flat_map(|(id, runs)| [Some(id.as_str()), class_of(runs)]).flatten().collect();
    let mut reports = Vec::new();
    for (id, confirmation) in suite.confirmations.iter().filter(|(id, _)| !ran.contains(id.as_str())) {
        let mut test = TestJudge::enter(context, &suite.name, id);
        test.confirmed(suite, confirmation, screened.repeated_for(Some(id)));
        let mut judgement = test.judgement;
        judgement.against_base(context.policy, &suite.name, id);
        reports.push(judgement.report(id.clone(), Outcome::Passed, 0.0));
    }
    for suspect in screened.suspects.iter().filter(|suspect| !ran.contains(suspect.suite.as_str())) {
        let class = suspect.suite.as_str();
        let is_of = |id: &str| id.strip_prefix(class).is_some_and(|rest| rest.starts_with('.'));
        let told = |test: &TestReport| test.id == class || is_of(&test.id) && test.verdict >= Verdict::Warn;
        if !reports.iter().any(told) {
            let mut judgement = Judgement::default();
            judgement.left = suspect.seen();
            judgement.unconfirmed_in_rounds(context.policy, "it was not run alone");
            reports.push(TestReport {
                is_class: true,
                ..judgement.report(class.to_owned(), Outcome::Passed, 0.0)
            });
        }
    }
    reports
}

fn passed(runs: &Executions<'_>) -> bool {
    let failed = |w: &Window| w.outcome == Some(memgate_wire::Outcome::Failed);
    runs.broken_off.is_empty() && !runs.ended.iter().any(|(_, w)| failed(w))
}

fn window_of<'a>(runs: &Executions<'a>) -> Option<&'a Window> {
    let ended = runs.ended.iter().map(|(_, window)| *window);
    let open = runs.broken_off.iter().map(|(_, open)| &open.window);
    ended.chain(open).next()
}

fn class_of<'a>(runs: &Executions<'a>) -> Option<&'a str> {
    window_of(runs).map(|window| window.suite.as_str())
}
