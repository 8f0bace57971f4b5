//! Tests that did not pass, the worst first.

use memgate_model::{Outcome, RunReport, SuiteReport, TestReport, Verdict};

/// Every test of the run that did not pass, with its suite: the worst verdict first, the largest leaks first among
/// equals.
pub(crate) fn not_passed(report: &RunReport) -> Vec<(&SuiteReport, &TestReport)> {
    let all = report.suites.iter().flat_map(|suite| suite.tests.iter().map(move |test| (suite, test)));
    let mut found: Vec<_> = all
        .filter(|(_, test)| match test.verdict {
            Verdict::Fail | Verdict::Error | Verdict::Warn => true,
            Verdict::NotJudged => !matches!(test.outcome, Outcome::Skipped | Outcome::Passed),
            Verdict::Pass => false,
        })
        .collect();
    found.sort_by(|(_, a), (_, b)| {
        b.verdict.cmp(&a.verdict).then(leaked_bytes(b).total_cmp(&leaked_bytes(a)))
    });
    found
}

/// Bytes that one more iteration of a test leaks, without waived leaks.
pub(crate) fn leaked_bytes(test: &TestReport) -> f64 {
    test.leaks.iter().filter(|leak| leak.waiver.is_none()).map(|leak| leak.bytes_per_iteration).sum()
}
