//! What single executions of a test left: figures of the screen, thresholds per execution, and growth that nothing
//! confirmed.

use std::collections::BTreeMap;

use memgate_model::{Metric, MetricValue, Per, Verdict};

use super::judgement::{Executions, applied};
use super::leaks::{self, os_left};
use super::one_test::TestJudge;
use crate::groups::{Places, held};
use crate::input::ProcessInput;
use crate::range::Range;
use crate::record::Window;
use crate::screen::{left, left_between, too_much, undecided};

impl TestJudge<'_, '_> {
    /// Only one execution is known: a warning, or a failure by policy, unless waivers cover it.
    pub(super) fn unconfirmed(&mut self, process: &ProcessInput, window: &Window, why: &str) {
        let unwaived = self.left_by_group(process, window);
        let more_than_allowed = |of: fn(Range) -> f64| {
            Metric::ALL.into_iter().any(|metric| {
                self.smallest_limit(metric)
                    .zip(unwaived.get(&metric))
                    .is_some_and(|(limit, range)| of(*range) > limit)
            })
        };
        if more_than_allowed(|range| range.low) {
            self.judgement.unconfirmed(self.context.policy, why);
        } else if more_than_allowed(|range| range.high) {
            self.judgement.raise(
                Verdict::Warn,
                format!("not decided by samples: left {} in one execution; {why}", self.judgement.left),
            );
        } else if self.judgement.leaks.iter().any(|l| l.waiver.is_some()) {
            self.judgement.raise(Verdict::Pass, format!("left {}, waived", self.judgement.left));
        }
    }

    /// Lists what a window left by group. Returns the amount of each metric that no waiver covers.
    fn left_by_group(&mut self, process: &ProcessInput, window: &Window) -> BTreeMap<Metric, Range> {
        let confidence = self.context.policy.confidence;
        let range = |metric| Some((metric, left_between(window, metric, confidence)?));
        let mut unwaived: BTreeMap<Metric, Range> = Metric::ALL.into_iter().filter_map(range).collect();
        let mut waived = |metric, waived: f64| {
            unwaived.entry(metric).and_modify(|Range { value, low, high }| {
                *value -= waived;
                *low -= waived;
                // If everything is waived, nothing unwaived can exceed it.
                *high = if *value > 0.5 { *high - waived } else { 0.0 };
            });
        };
        let groups = held(&window.survivors, &mut Places::new(&process.record, self.context.resolve));
        for group in &groups {
            if self.list_once(leaks::in_all(group), &group.place.names) {
                waived(Metric::NativeLiveBytes, group.bytes);
                waived(Metric::NativeLiveAllocations, group.count);
            }
        }
        for group in os_left(&process.record, window, self.context) {
            if self.list_once(group.leak(), group.frame_names()) {
                waived(group.kind.metric(), group.count);
            }
        }
        unwaived
    }

    /// Figures of the screen, for a test that needs no others.
    pub(super) fn screened_figures(&mut self, runs: &Executions<'_>) {
        let policy = self.context.policy;
        for metric in Metric::ALL {
            let values = runs.ended.iter().filter_map(|(_, w)| Some((left(w, metric)?, *w)));
            let worst = values.max_by(|a, b| a.0.total_cmp(&b.0));
            let range = worst.and_then(|(_, window)| left_between(window, metric, policy.confidence));
            let Some(range) = range else { continue };
            let mut per = Per::Iteration;
            let mut limits = self.thresholds(metric, per);
            if limits.is_empty() {
                per = Per::Test;
                limits = self.thresholds(metric, per);
            }
            let figure = range.figure(metric, per, policy.confidence);
            let threshold = applied(&limits, range.low);
            self.judgement.metrics.insert(metric, MetricValue { threshold, ..figure });
        }
    }

    /// Thresholds per execution, which need no repetition.
    pub(super) fn per_test(&mut self, runs: &Executions<'_>) {
        let mut unwaived = BTreeMap::<*const Window, BTreeMap<Metric, Range>>::new();
        for metric in Metric::ALL {
            for threshold in self.thresholds(metric, Per::Test) {
                let worst = runs.ended.iter().filter_map(|(p, w)| Some((p, w, left(w, metric)?)));
                let Some((process, window, _)) = worst.max_by(|a, b| a.2.total_cmp(&b.2)) else {
                    continue;
                };
                let Some(left) = left_between(window, metric, self.context.policy.confidence) else {
                    continue;
                };
                if left.high <= threshold.limit {
                    continue;
                }
                let known = unwaived
                    .entry(std::ptr::from_ref(*window))
                    .or_insert_with(|| self.left_by_group(process, window));
                let unwaived = known.get(&metric).copied().unwrap_or(left);
                if unwaived.low > threshold.limit {
                    let reason = too_much(metric, unwaived.value, "left by one execution", threshold.limit);
                    self.judgement.raise_figure(threshold.level.verdict(), reason, String::new());
                } else if unwaived.high > threshold.limit {
                    let reason = undecided(metric, unwaived, "left by one execution", threshold.limit);
                    self.judgement.raise(Verdict::Warn, reason);
                }
            }
        }
    }
}
