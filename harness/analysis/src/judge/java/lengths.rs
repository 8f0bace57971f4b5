//! A Java virtual machine as the test: the slope over runs that repeat their work a different number of times.

use std::collections::BTreeSet;

use memgate_model::{Area, Kind, Metric, Per, Verdict, format_value};

use super::super::curve;
use super::super::one_test::TestJudge;
use super::super::wording::interval;
use crate::growth::{Allowed, Finding, judge_points};
use crate::java::{self, of_lengths};
use crate::record::ProcessRecord;
use crate::screen::too_much;
use crate::stats::add;

impl TestJudge<'_, '_> {
    /// Judges what one more repetition adds to the live objects at the end of the virtual machine. `runs` are ordered
    /// by length.
    pub(in crate::judge) fn judge_java_lengths(&mut self, runs: &[(f64, &ProcessRecord)]) {
        let Some(findings) = of_lengths(runs, self.context.policy.confidence) else {
            let warnings: BTreeSet<&str> =
                runs.iter().flat_map(|(_, record)| &record.warnings).map(String::as_str).collect();
            let parts =
                ["a virtual machine did not tell what was alive at its end"].into_iter().chain(warnings);
            return self.judgement.raise(Verdict::Error, parts.collect::<Vec<_>>().join("; "));
        };
        let Some((_, last)) = runs.last() else { return };
        let lengths: Vec<f64> = runs.iter().map(|(n, _)| *n).collect();
        let (mut bytes, mut objects) = (vec![0.0; lengths.len()], vec![0.0; lengths.len()]);
        for leak in java::leaks(last, self.id, &findings) {
            if self.list_java(&leak).is_none() {
                add(&mut bytes, &leak.live_bytes);
                add(&mut objects, &leak.instances);
            }
        }
        let mut measured = vec![(Metric::JavaLiveBytes, bytes), (Metric::JavaLiveObjects, objects)];
        measured.extend(Metric::of(Area::Java, &[Kind::Held]).map(|metric| {
            let at_end = |(_, record): &(f64, &ProcessRecord)| {
                java::values(&record.windows.last().into_iter().collect::<Vec<_>>(), metric)
            };
            (metric, runs.iter().flat_map(at_end).collect())
        }));
        for (metric, values) in measured {
            let points: Vec<(f64, f64)> = lengths.iter().copied().zip(values).collect();
            if points.len() == lengths.len() {
                self.hold_java_lengths(metric, &points);
            }
        }
        if !findings.open.is_empty() && self.judgement.leaks.is_empty() {
            let classes = findings.open.join(", ");
            self.judgement.raise(
                Verdict::Warn,
                format!("inconclusive: {classes} may grow with the number of repetitions"),
            );
        }
    }

    fn hold_java_lengths(&mut self, metric: Metric, points: &[(f64, f64)]) {
        let confidence = self.context.policy.confidence;
        let slope = |limit| judge_points(points, Allowed { limit, block: 1.0, warm_up: 0, confidence });
        let limits = self.thresholds(metric, Per::Iteration);
        for threshold in &limits {
            let growth = slope(threshold.limit);
            match growth.finding {
                Finding::Still => {}
                Finding::Grows => {
                    let reason = too_much(metric, growth.slope.slope, "per repetition", threshold.limit);
                    self.judgement.raise_figure(threshold.level.verdict(), reason, String::new());
                }
                Finding::Open => {
                    let between = interval(metric, growth.slope.low, growth.slope.high);
                    let allowed = format_value(metric, threshold.limit);
                    self.judgement.raise(
                        Verdict::Warn,
                        format!("inconclusive: {between} per repetition (allowed {allowed})"),
                    );
                }
            }
        }
        self.judgement.figure(metric, Per::Iteration, &slope(0.0), confidence, &limits);
        if !limits.is_empty() {
            self.judgement.growth.extend(curve::of_growth(metric, points));
        }
    }
}
