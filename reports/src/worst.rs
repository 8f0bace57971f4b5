//! Tests that did not pass, the worst first.

use memgate_model::{Outcome, RunReport, TestReport, Verdict};

use crate::suite_test::SuiteTest;

/// Every test of the run that did not pass: the worst verdict first, the largest leaks first among equals.
pub(crate) fn not_passed(report: &RunReport) -> Vec<SuiteTest<'_>> {
    let mut found: Vec<_> = SuiteTest::all(report)
        .filter(|SuiteTest { test, .. }| match test.verdict {
            Verdict::Fail | Verdict::Error | Verdict::Warn => true,
            Verdict::NotJudged => !matches!(test.outcome, Outcome::Skipped | Outcome::Passed),
            Verdict::Pass => false,
        })
        .collect();
    found.sort_by(|SuiteTest { test: a, .. }, SuiteTest { test: b, .. }| {
        b.verdict.cmp(&a.verdict).then(leaked_bytes(b).total_cmp(&leaked_bytes(a)))
    });
    found
}

/// Bytes that one more iteration of a test leaks, without waived leaks.
pub(crate) fn leaked_bytes(test: &TestReport) -> f64 {
    test.leaks.iter().filter(|leak| leak.waiver.is_none()).map(|leak| leak.bytes_per_iteration).sum()
}
