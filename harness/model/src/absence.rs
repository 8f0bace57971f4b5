//! What a report proves about leaks that it does not name.
//!
//! Data flow: the entries of a test, and of the classes around it → whether the test may have a leak without a name.
//! The history, comparisons and the baseline ask here, so that they never tell a different story about one run.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Level, Metric, MetricValue, Per, RunReport, SuiteReport, TestReport, Verdict};

/// Tests as suite and name.
pub type TestNames<'r> = BTreeSet<(&'r str, &'r str)>;

impl RunReport {
    /// The judged tests of which the report names every leak: a leak that it does not name is not there. It may be
    /// there if a test left something within its limits, if growth has no leak, or if only its class was looked at
    /// ([`Self::covered_by_classes`]).
    #[must_use]
    pub fn tests_without_other_leaks(&self) -> TestNames<'_> {
        // Several processes may have run one test: the worst entry counts.
        let mut worst = BTreeMap::<(&str, &str), (&SuiteReport, &TestReport)>::new();
        let mut open = self.covered_by_classes();
        for suite in &self.suites {
            for test in &suite.tests {
                let name = (suite.name.as_str(), test.id.as_str());
                if test.may_have_other_leaks() {
                    open.insert(name);
                }
                let known = worst.entry(name).or_insert((suite, test));
                if known.1.verdict < test.verdict {
                    *known = (suite, test);
                }
            }
        }
        let tells = |suite: &SuiteReport, test: &TestReport| {
            let metrics = if test.clean { &suite.clean_metrics } else { &test.metrics };
            test.is_judged() && !metrics.iter().any(|(metric, value)| is_within_limit(*metric, value))
        };
        let told =
            worst.into_iter().filter(|(name, (suite, test))| !open.contains(name) && tells(suite, test));
        told.map(|(name, _)| name).collect()
    }

    /// Tests that did not run alone, in a class that leaks as a whole or may do so. Their leaks are unknown: a leak of
    /// such a test may have another id in its class.
    #[must_use]
    pub fn covered_by_classes(&self) -> TestNames<'_> {
        let entries = || {
            self.suites.iter().flat_map(|suite| suite.tests.iter().map(|test| (suite.name.as_str(), test)))
        };
        let grows = |test: &TestReport| {
            test.is_class && (test.may_have_other_leaks() || test.verdict >= Verdict::Warn)
        };
        let classes: TestNames<'_> = entries()
            .filter(|(_, test)| grows(test))
            .map(|(suite, test)| (suite, test.id.as_str()))
            .collect();
        if classes.is_empty() {
            return classes;
        }
        let is_covered = |(suite, test): &(&str, &str)| {
            test.match_indices('.').any(|(end, _)| classes.contains(&(*suite, &test[..end])))
        };
        let mut covered: TestNames<'_> =
            entries().map(|(suite, test)| (suite, test.id.as_str())).filter(is_covered).collect();
        for (suite, test) in entries().filter(|(_, test)| test.confirmed) {
            covered.remove(&(suite, test.id.as_str()));
        }
        covered
    }
}

impl TestReport {
    /// Was it judged?
    #[must_use]
    pub const fn is_judged(&self) -> bool {
        matches!(self.verdict, Verdict::Pass | Verdict::Warn | Verdict::Fail)
    }

    /// May it have a leak that its report does not name? A single execution may miss leaks that do not occur in each,
    /// unless its limit is that of one execution. Not if only figures that count no leaks exceed their limits (total
    /// allocations, memory of the process), and all figures that count leaks are within their limits.
    #[must_use]
    pub fn may_have_other_leaks(&self) -> bool {
        let over = |value: &MetricValue| value.threshold.as_ref().is_some_and(|it| value.high > it.limit);
        let (may_leak, others): (Vec<_>, Vec<_>) =
            self.metrics.iter().partition(|(metric, _)| metric.leaks().is_some());
        let exceeded: Vec<_> = may_leak.into_iter().filter(|(_, value)| over(value)).collect();
        let is_explained =
            self.confirmed && exceeded.is_empty() && others.into_iter().any(|(_, value)| over(value));
        let of_one_execution = exceeded.iter().all(|(_, value)| value.per == Per::Test);
        let is_enough = self.confirmed || !exceeded.is_empty() && of_one_execution;
        self.verdict > Verdict::NotJudged
            && (!is_enough || self.leaks.iter().all(|leak| leak.waiver.is_some()))
            && !is_explained
    }
}

/// Does it leave something that its limit allows?
fn is_within_limit(metric: Metric, value: &MetricValue) -> bool {
    let least = if value.per == Per::Iteration && value.confidence > 0.0 { value.low } else { value.value };
    let limit = value.threshold.as_ref().filter(|limit| limit.level == Level::Fail);
    metric.leaks().is_some()
        && value.value.is_finite()
        && limit.is_some_and(|it| it.limit.is_finite() && least > 0.0 && least <= it.limit)
}
