//! A verdict that is being formed.

use std::collections::{BTreeMap, BTreeSet};

use memgate_model::{
    AgainstBase, CurvePoint, GrowthPoint, Known, Leak, Level, Metric, MetricValue, Outcome, Per, TestReport,
    Threshold, Verdict, format_count,
};
use memgate_wire::Outcome::{Failed, Passed};

use super::{against_base, leaks};
use crate::groups::OsKind;
use crate::growth::Growth;
use crate::input::ProcessInput;
use crate::policy::GatePolicy;
use crate::record::{OpenTest, Window};

/// All executions of one test in the screening pass.
#[derive(Default)]
pub(super) struct Executions<'a> {
    pub(super) ended: Vec<(&'a ProcessInput, &'a Window)>,
    pub(super) broken_off: Vec<(&'a ProcessInput, &'a OpenTest)>,
}

impl Executions<'_> {
    /// Removes failures before a last execution that passed: a build may repeat a flaky test.
    pub(super) fn leave_out_retried(&mut self) {
        let last = self.ended.iter().max_by_key(|(_, window)| window.end_ns);
        if last.is_some_and(|(_, window)| window.outcome == Some(Passed)) {
            self.ended.retain(|(_, window)| window.outcome != Some(Failed));
        }
    }
}

/// A reason for a verdict.
struct Reason {
    verdict: Verdict,
    text: String,
    /// The text without what a figure and its threshold already show.
    beside_figures: String,
}

/// A verdict that is being formed.
#[derive(Default)]
pub(super) struct Judgement {
    reasons: Vec<Reason>,
    /// What one execution left, as text: `48.0 KiB in 12 allocations`.
    pub(super) left: String,
    pub(super) confirmed: bool,
    pub(super) only_among_others: bool,
    pub(super) metrics: BTreeMap<Metric, MetricValue>,
    pub(super) leaks: Vec<Leak>,
    /// Ids of leaks that are no reason for the verdict: only the screen saw them, or they are held. In the report they
    /// follow the others.
    pub(super) behind: BTreeSet<String>,
    pub(super) one_time: Vec<Leak>,
    /// Ids of places that are part of a leak of several places.
    pub(super) of_several: BTreeSet<String>,
    pub(super) curve: Vec<CurvePoint>,
    pub(super) growth: Vec<GrowthPoint>,
    pub(super) warm_up: u32,
    /// Longest run of executions, when it was repeated, that left nothing.
    pub(super) quiet: Option<usize>,
    /// Executions between two of its ends, if more than one.
    pub(super) batch: Option<f64>,
    /// Ids of what it hands to later tests, which free or close it.
    pub(super) handed: BTreeSet<String>,
    /// Descriptors and threads that grew for a while and then stopped, and why that may be no pool.
    pub(super) doubted: Vec<(OsKind, String)>,
    /// Bytes that set-ups and tear-downs around it left, by id. These are judged separately.
    pub(super) of_set_ups: BTreeMap<String, f64>,
    /// How its leaks compare with the base of the review.
    against_base: Option<AgainstBase>,
}

impl Judgement {
    /// Number of executions between two of its ends.
    pub(super) fn executions(&self) -> f64 {
        self.batch.unwrap_or(1.0)
    }

    /// Unit of its figures: `per iteration`, `in 750 executions`.
    pub(super) fn per(&self) -> String {
        self.batch.map_or_else(
            || "per iteration".to_owned(),
            |executions| format!("in {} executions", format_count(executions)),
        )
    }

    /// Restarts: removes all reasons and returns its leaks and figures.
    pub(super) fn begin_again(&mut self) -> (Vec<Leak>, BTreeMap<Metric, MetricValue>) {
        self.reasons.clear();
        self.growth.clear();
        (std::mem::take(&mut self.leaks), std::mem::take(&mut self.metrics))
    }

    /// Lists a leak that only one execution showed, under the id that it has in this test.
    pub(super) fn list_seen_once(&mut self, leak: Leak) {
        if self.leaks.iter().all(|known| known.id != leak.id) {
            self.behind.insert(leak.id.clone());
        }
        self.leaks.push(leak);
    }

    /// Adds a reason for a verdict.
    pub(super) fn raise(&mut self, verdict: Verdict, text: String) {
        self.reasons.push(Reason { verdict, beside_figures: text.clone(), text });
    }

    /// Adds a text that does not change the verdict.
    pub(super) fn remark(&mut self, text: String) {
        self.raise(self.verdict(), text);
    }

    /// Adds a figure above its threshold as the reason. `beside` is an additional text, which may be empty.
    pub(super) fn raise_figure(&mut self, verdict: Verdict, figure: String, beside: String) {
        let text = if beside.is_empty() { figure } else { format!("{figure}, {beside}") };
        self.reasons.push(Reason { verdict, text, beside_figures: beside });
    }

    /// Something is left, and it is unknown whether it grows.
    pub(super) fn unconfirmed(&mut self, policy: &GatePolicy, why: &str) {
        let reason = format!("unconfirmed: left {} in one execution; {why}", self.left);
        // Memory and descriptors may be unconfirmed for the same reason: it is added once.
        if self.reasons.iter().all(|known| known.text != reason) {
            self.raise(policy.unconfirmed.verdict(), reason);
        }
    }

    /// The same for growth in the rounds of a JVM suite.
    pub(super) fn unconfirmed_in_rounds(&mut self, policy: &GatePolicy, why: &str) {
        let reason = format!("unconfirmed: {}; {why}", self.left);
        self.raise(policy.unconfirmed.verdict(), reason);
    }

    /// Adds a figure with its threshold: the worst one that it exceeds, otherwise the strictest.
    pub(super) fn figure(
        &mut self,
        metric: Metric,
        per: Per,
        growth: &Growth,
        confidence: f64,
        limits: &[Threshold],
    ) {
        let iterations = u32::try_from(growth.iterations).unwrap_or(u32::MAX);
        let value = MetricValue {
            low: growth.slope.low,
            high: growth.slope.high,
            iterations,
            confidence,
            threshold: applied(limits, growth.slope.low),
            ..MetricValue::exact(growth.slope.slope, metric, per)
        };
        self.metrics.insert(metric, value);
    }

    /// Compares a failure with the base of the review, which may already have the leak.
    pub(super) fn against_base(&mut self, policy: &GatePolicy, suite: &str, id: &str) {
        let Some(review) = policy.review.as_ref().filter(|_| self.verdict() == Verdict::Fail) else { return };
        let test = format!("{suite}::{id}");
        let Some((stands, text)) = against_base::stands(&review.base, &test, &self.leaks, &self.metrics)
        else {
            return;
        };
        let level = match (stands, review.known) {
            (AgainstBase::New | AgainstBase::Regressed | AgainstBase::Larger, _) | (_, Known::Fail) => {
                Verdict::Fail
            }
            (AgainstBase::Known, Known::Allow) => Verdict::Pass,
            (AgainstBase::Known | AgainstBase::Flaky, _) => Verdict::Warn,
        };
        for reason in self.reasons.iter_mut().filter(|reason| reason.verdict == Verdict::Fail) {
            reason.verdict = level;
        }
        self.raise(level, text);
        self.against_base = Some(stands);
    }

    /// The worst verdict of all reasons.
    pub(super) fn verdict(&self) -> Verdict {
        self.reasons.iter().map(|reason| reason.verdict).max().unwrap_or(Verdict::Pass)
    }

    /// All reasons with the final verdict.
    fn leading(&self) -> impl Iterator<Item = &Reason> {
        let verdict = self.verdict();
        self.reasons.iter().filter(move |reason| reason.verdict == verdict)
    }

    pub(super) fn report(self, id: String, outcome: Outcome, duration_s: f64) -> TestReport {
        // Bytes and descriptors of one leak have the same words beside their figures.
        let joined = |of: fn(&Reason) -> &str| {
            let mut texts: Vec<&str> = Vec::new();
            for text in self.leading().map(of).filter(|text| !text.is_empty()) {
                if !texts.contains(&text) {
                    texts.push(text);
                }
            }
            texts.join("; ")
        };
        let (reason, beside) = (joined(|reason| &reason.text), joined(|reason| &reason.beside_figures));
        let reason_beside_figures = (beside != reason).then_some(beside);
        let verdict = self.verdict();
        // The first leak heads the test.
        let leaks = leaks::sorted(self.leaks, &self.behind);
        TestReport {
            id,
            is_class: false,
            clean: false,
            outcome,
            verdict,
            reason,
            reason_beside_figures,
            against_base: self.against_base,
            duration_s,
            confirmed: self.confirmed,
            only_among_others: self.only_among_others,
            metrics: self.metrics,
            leaks,
            one_time: leaks::sorted(self.one_time, &BTreeSet::new()),
            curve: self.curve,
            growth: self.growth,
            warm_up: self.warm_up,
        }
    }
}

/// The threshold to show with a value: the worst one that it exceeds, otherwise the strictest.
pub(super) fn applied(limits: &[Threshold], value: f64) -> Option<Threshold> {
    let exceeded = limits.iter().filter(|t| value > t.limit).max_by_key(|t| t.level == Level::Fail);
    exceeded.or_else(|| limits.iter().min_by(|a, b| a.limit.total_cmp(&b.limit))).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_holds_for_memory_and_descriptors_is_told_once() {
        let mut judgement = Judgement { left: "8 B".to_owned(), ..Judgement::default() };
        let policy = GatePolicy::default();
        (0..2).for_each(|_| judgement.unconfirmed(&policy, "alone nothing of it"));
        let told = judgement.report("t".to_owned(), Outcome::Passed, 0.0);
        assert_eq!(told.reason, "unconfirmed: left 8 B in one execution; alone nothing of it");
    }
}
