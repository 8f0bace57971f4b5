//! Finds tests that passed with nothing to report. Reports give each a line, and state once what they have in common.

use std::collections::BTreeMap;

use memgate_model::{Metric, MetricValue, Outcome, SuiteReport, TestReport, Verdict};

/// Figures by metric.
pub(crate) type Figures = BTreeMap<Metric, MetricValue>;

/// The most frequent figures among the tests of a suite that passed with nothing to report; tests with these figures
/// are its clean ones.
pub(crate) fn figures(suite: &SuiteReport) -> Option<&Figures> {
    // There are only a few different sets of figures, not one for each test.
    const KINDS: usize = 16;
    let mut kinds: Vec<(&Figures, usize)> = Vec::new();
    for test in suite.tests.iter().filter(|test| has_nothing_to_tell(test)) {
        if let Some((_, count)) = kinds.iter_mut().find(|(figures, _)| **figures == test.metrics) {
            *count += 1;
        } else if kinds.len() < KINDS {
            kinds.push((&test.metrics, 1));
        }
    }
    kinds.into_iter().rev().max_by_key(|(_, count)| *count).map(|(figures, _)| figures)
}

/// Is it one of the clean tests of a suite with these figures?
pub(crate) fn is_clean(test: &TestReport, figures: Option<&Figures>) -> bool {
    figures == Some(&test.metrics) && has_nothing_to_tell(test)
}

fn has_nothing_to_tell(test: &TestReport) -> bool {
    test.verdict == Verdict::Pass
        && test.outcome == Outcome::Passed
        && test.reason.is_empty()
        && !test.confirmed
        && !test.is_class
        && test.leaks.is_empty()
        && test.one_time.is_empty()
        && test.curve.is_empty()
        && test.growth.is_empty()
}
