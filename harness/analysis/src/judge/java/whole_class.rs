//! A test class as an entry of its own: what it leaves, and none of its tests does alone.

use memgate_model::{Metric, MetricValue, Outcome, Per, TestReport, Verdict};

use super::{Screened, class_of, passed};
use crate::input::SuiteInput;
use crate::judge::context::JudgeContext;
use crate::judge::judgement::{Executions, Judgement};
use crate::judge::one_test::TestJudge;

/// The entry of a class: one that leaks though none of its tests does alone, or that
/// nobody confirmed.
pub(super) fn entry(
    context: &mut JudgeContext<'_>,
    suite: &SuiteInput,
    class: &str,
    screened: &Screened<'_>,
    runs: &[(String, Executions<'_>)],
    reports: &mut [TestReport],
) -> Option<TestReport> {
    let members: Vec<usize> =
        (0..runs.len()).filter(|i| class_of(&runs[*i].1) == Some(class) && passed(&runs[*i].1)).collect();
    if members.is_empty() {
        return None;
    }
    let alone = members.iter().any(|i| suite.confirmations.contains_key(&runs[*i].0));
    let told =
        members.iter().any(|i| reports[*i].verdict == Verdict::Fail || reports[*i].against_base.is_some());
    let mut j = Judgement::default();
    match suite.confirmations.get(class).filter(|_| !told) {
        Some(confirmation) => {
            let mut test = TestJudge::enter(context, &suite.name, class);
            test.confirmed(suite, confirmation, screened.suspect(Some(class)));
            j = test.j;
            if j.verdict() == Verdict::Pass && j.leaks.is_empty() {
                members.iter().for_each(|i| reports[*i].confirmed = true);
                return None;
            }
            let confirmed = members.iter().filter(|i| suite.confirmations.contains_key(&runs[**i].0));
            if is_left_by_its_tests(&j, &confirmed.map(|i| &reports[*i]).collect::<Vec<_>>()) {
                return None;
            }
        }
        None if alone || told => return None,
        None => {
            if let Some(suspect) = screened.suspect(Some(class)) {
                j.left = suspect.seen();
                j.unconfirmed_in_rounds(context.policy, "it was not run alone");
            } else if screened.failing.contains(class) {
                j.raise(Verdict::Warn, "not screened: it fails when it is repeated".to_owned());
            } else {
                return None;
            }
        }
    }
    j.against_base(context.policy, &suite.name, class);
    let duration_s = members.iter().map(|i| reports[*i].duration_s).sum();
    Some(TestReport { is_class: true, ..j.report(class.to_owned(), Outcome::Passed, duration_s) })
}

/// Do its tests leave alone all of what a class leaves beyond its limits? Then each of them is judged by limits of its
/// own.
fn is_left_by_its_tests(class: &Judgement, tests: &[&TestReport]) -> bool {
    let over = |value: &MetricValue| value.threshold.as_ref().is_some_and(|limit| value.value > limit.limit);
    let mut over = class.metrics.iter().filter(|(_, value)| over(value)).peekable();
    let by_tests = |metric: &Metric, per: Per| -> f64 {
        let figures = tests.iter().filter_map(|test| test.metrics.get(metric));
        figures.filter(|figure| figure.per == per).map(|figure| figure.value.max(0.0)).sum()
    };
    over.peek().is_some()
        && over.all(|(metric, value)| value.low.is_finite() && value.low <= by_tests(metric, value.per))
}
