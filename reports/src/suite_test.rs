//! A test of a report, with its suite.

use memgate_model::{RunReport, SuiteReport, TestReport};

/// A test has no unique name without its suite.
#[derive(Clone, Copy)]
pub(crate) struct SuiteTest<'r> {
    pub(crate) suite: &'r SuiteReport,
    pub(crate) test: &'r TestReport,
}

impl<'r> SuiteTest<'r> {
    /// Every test of the run.
    pub(crate) fn all(report: &'r RunReport) -> impl Iterator<Item = Self> {
        report.suites.iter().flat_map(|suite| suite.tests.iter().map(move |test| Self { suite, test }))
    }

    /// `engine::MapCache.scroll`, as thresholds name it.
    pub(crate) fn qualified(self) -> String {
        format!("{}::{}", self.suite.name, self.test.id)
    }
}
