//! How often a test is repeated alone, at least and at most. Native tests, Java tests and the libraries below Java
//! tests read the policy here.

use std::time::Duration;

use memgate_model::{Metric, Per};

use crate::growth::Allowed;
use crate::policy::{GatePolicy, smallest_limit};
use crate::rare;

/// Growth that has paused is watched for up to this many times the usual limits: that shows a cache that has just
/// filled up.
const PAUSED_FACTOR: u32 = 3;

/// Limits for one test.
#[derive(Debug)]
pub(crate) struct RepetitionLimits {
    pub(crate) warm_up: usize,
    pub(crate) confidence: f64,
    /// Fewest executions, including the warm-up.
    pub(crate) fewest: usize,
    /// Most executions while something is undecided.
    pub(crate) most: usize,
    /// Upper bound in any case.
    pub(crate) cap: usize,
    /// After this many executions without a change, a rare leak would have shown.
    pub(crate) unchanged: usize,
    pub(crate) min_run: Duration,
}

impl RepetitionLimits {
    pub(crate) fn of(policy: &GatePolicy) -> Self {
        let warm_up = policy.warm_up as usize;
        let fewest = warm_up + policy.iterations.max(2) as usize;
        Self {
            warm_up,
            confidence: policy.confidence,
            fewest,
            most: (warm_up + policy.max_iterations as usize).max(fewest),
            cap: (policy.iteration_cap as usize).max(fewest),
            unchanged: rare::executions_for(policy.rarest_leak),
            min_run: policy.min_run,
        }
    }

    /// For `judge_exact` and `judge_series`.
    pub(crate) const fn allowed(&self, limit: f64, block: f64) -> Allowed {
        Allowed { limit, block, warm_up: self.warm_up, confidence: self.confidence }
    }

    /// The same as [`Self::cap`] for growth that has paused.
    pub(crate) fn patient_cap(&self) -> usize {
        self.cap.saturating_mul(PAUSED_FACTOR as usize)
    }

    /// How long growth that has paused is watched.
    pub(crate) fn patience(&self) -> Duration {
        self.min_run * PAUSED_FACTOR
    }
}

/// The number of ends at which the series are judged again. The cost of judging grows with the number of ends.
pub(crate) fn next_look(ends: usize) -> usize {
    ends + (ends / 8).max(1)
}

/// Limits on growth per iteration of a test, for each limited metric.
pub(crate) fn limited(
    policy: &GatePolicy,
    suite: &str,
    test: &str,
    of: impl Fn(Metric) -> bool,
) -> Vec<(Metric, f64)> {
    let limit = |metric| Some((metric, smallest_limit(policy, suite, test, metric, Per::Iteration)?));
    Metric::ALL.into_iter().filter(|metric| of(*metric)).filter_map(limit).collect()
}
