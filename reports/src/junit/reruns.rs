//! The iterations of the confirming run as reruns of a test, with the amount that each had left.

use memgate_model::{GrowthPoint, Metric, TestReport};

use super::enrich::Rerun;
use super::sanitise::attribute;
use crate::figures::exact;

/// Most iterations that are shown; a test may have thousands.
const SHOWN: usize = 10;

/// Evenly chosen iterations after the warm-up, for the metric that the test fails for.
pub(super) fn of(test: &TestReport) -> Vec<Rerun> {
    let fails = |metric: &Metric| {
        test.metrics.get(metric).is_some_and(|value| {
            value.threshold.as_ref().is_some_and(|threshold| value.low > threshold.limit)
        })
    };
    let Some(metric) = Metric::ALL.into_iter().find(fails) else { return Vec::new() };
    let counted = |point: &&GrowthPoint| point.metric == metric && point.iteration > u64::from(test.warm_up);
    let points: Vec<&GrowthPoint> = test.growth.iter().filter(counted).collect();
    let shown = points.len().min(SHOWN + 1);
    let at = |k: usize| points[k * (points.len() - 1) / (shown - 1).max(1)];
    (1..shown).map(|k| rerun(metric, at(k - 1), at(k))).collect()
}

fn rerun(metric: Metric, before: &GrowthPoint, after: &GrowthPoint) -> Rerun {
    let more = after.value - before.value;
    let than = if more < 0.0 { "less" } else { "more" };
    let message = format!(
        "iteration {}: {metric} {}, {} {than} than at iteration {}",
        after.iteration,
        exact(metric, after.value),
        exact(metric, more.abs()),
        before.iteration
    );
    Rerun { message: attribute(&message) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn every_iteration_that_counts_says_what_it_added() {
        let messages = |test: &TestReport| of(test).into_iter().map(|r| r.message).collect::<Vec<_>>();
        let mut test = sample::leak().suites[0].tests[1].clone();
        assert_eq!(
            messages(&test),
            [
                "iteration 3: native.live_bytes 152.0 KiB (155648 B), 48.0 KiB (49152 B) more than at iteration 2",
                "iteration 4: native.live_bytes 200.0 KiB (204800 B), 48.0 KiB (49152 B) more than at iteration 3",
            ]
        );
        test.growth = (1..=1000)
            .map(|iteration| GrowthPoint { iteration, metric: Metric::NativeLiveBytes, value: 0.0 })
            .collect();
        assert_eq!(messages(&test).len(), SHOWN);
        test.growth.clear();
        assert!(messages(&test).is_empty());
    }
}
