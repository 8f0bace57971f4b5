//! Checks a metric of a repeated test against its thresholds.
//!
//! Data flow: the metric at the ends of the executions, what the test itself added, and the places it consists of
//! ([`Measured`]) → their growth → verdict and reason, by the larger growth of the total and of one place.

use memgate_model::{Metric, Threshold, Verdict, format_amount, format_value};

use super::judgement::Judgement;
use super::wording::interval;
use crate::groups::Series;
use crate::growth::{Allowed, Finding, Growth, has_few_steps, judge_exact, judge_series, last_rise, steps};
use crate::screen::{ENOUGH_REPETITIONS, too_much};

/// A leak in fewer than one of this many executions is reported as rare.
const SELDOM: usize = 8;

/// One metric: its total, what the test itself added, and its groups. Growth of one group is enough.
pub(super) struct Measured<'a> {
    pub(super) metric: Metric,
    /// Values at each end.
    pub(super) total: Vec<f64>,
    /// Only changes inside the windows of the test, if known. What other tests and the set-up of the suite do in
    /// between belongs to these.
    pub(super) own: Option<Vec<f64>>,
    /// Did only this test run in the process?
    pub(super) alone: bool,
    /// The program itself marks the ends of the windows. Then growth outside the windows counts like growth inside.
    /// Otherwise a leak after the end would belong to no test.
    pub(super) ends_itself: bool,
    pub(super) groups: Vec<Group<'a>>,
    pub(super) block: f64,
    /// Only the test changes it: every step counts.
    pub(super) exact: bool,
    /// Waivers cover all growth: no threshold applies.
    pub(super) waived: bool,
}

/// Growth of one place that is not waived.
pub(super) struct Group<'a> {
    bytes: &'a [f64],
    block: f64,
    /// The screen saw blocks from this place that the test itself allocated.
    born_in_test: bool,
}

impl<'a> Group<'a> {
    pub(super) fn of(series: &'a Series, born_in_test: bool) -> Self {
        let Series { bytes, block, .. } = series;
        Self { bytes, block: *block, born_in_test }
    }
}

impl Measured<'_> {
    pub(super) fn of_os(metric: Metric, total: Vec<f64>, block: f64) -> Self {
        Self {
            metric,
            total,
            own: None,
            alone: true,
            ends_itself: false,
            groups: Vec::new(),
            block,
            exact: false,
            waived: false,
        }
    }

    /// A metric that only the test changes.
    pub(super) fn exactly(metric: Metric, total: Vec<f64>, block: f64) -> Self {
        Self { exact: true, ..Self::of_os(metric, total, block) }
    }

    /// `own` is the running sum of what the windows of the test added. Other tests ran in between.
    pub(super) fn beside_others(self, own: Vec<f64>) -> Self {
        Self { own: Some(own), alone: false, ..self }
    }

    /// Divides by the executions per window, which gives growth per execution.
    pub(super) fn shared_by(self, executions: f64) -> Self {
        let total = self.total.iter().map(|value| value / executions).collect();
        Self { total, block: self.block / executions, ..self }
    }

    fn growths(&self, allowed: Allowed) -> Growths {
        let allowed = Allowed { block: self.block, ..allowed };
        let total = self.judge(&self.total, allowed);
        Growths { total, own: self.own.as_ref().map_or(total, |own| self.judge(own, allowed)) }
    }

    fn judge(&self, values: &[f64], allowed: Allowed) -> Growth {
        if self.exact { judge_exact(values, allowed) } else { judge_series(values, allowed) }
    }

    /// The growth that decides the verdict: the lesser of the total and what the test itself added. If both are equal,
    /// it is what the test itself added if other tests ran in the process. If it ran alone, it is the total, which
    /// includes what its threads did after its end.
    pub(super) fn growth(&self, allowed: Allowed) -> Growth {
        let rank = |g: &Growth| match g.finding {
            Finding::Still => 0,
            Finding::Open => 1,
            Finding::Grows => 2,
        };
        let Growths { total, own } = self.growths(allowed);
        if rank(&own) < rank(&total) || !self.alone && rank(&own) == rank(&total) { own } else { total }
    }

    /// The series with that growth.
    pub(super) fn series(&self, allowed: Allowed) -> &[f64] {
        let growth = self.growth(allowed);
        let of_total = growth == self.growths(allowed).total;
        if of_total { &self.total } else { self.own.as_deref().unwrap_or(&self.total) }
    }
}

struct Growths {
    total: Growth,
    /// Of what the test itself added.
    own: Growth,
}

/// A metric that is checked against a threshold.
struct Against<'a> {
    measured: &'a Measured<'a>,
    threshold: &'a Threshold,
    allowed: Allowed,
    /// The growth of each group, and whether the test itself allocated blocks of it.
    groups: Vec<(Growth, bool)>,
}

impl Measured<'_> {
    /// Checks it against a threshold. `allowed`: everything but the limit.
    pub(super) fn hold_against(&self, threshold: &Threshold, allowed: Allowed, judgement: &mut Judgement) {
        let allowed = Allowed { limit: threshold.limit, ..allowed };
        let judged = |group: &Group<'_>| {
            (self.judge(group.bytes, Allowed { block: group.block, ..allowed }), group.born_in_test)
        };
        let groups = self.groups.iter().map(judged).collect();
        let against = Against { measured: self, threshold, allowed, groups };
        let Growths { total, own } = self.growths(allowed);
        if self.alone && grows(&total) && own.slope.high <= threshold.limit {
            against.raise_of_outside(&total, &own, judgement);
        } else {
            against.raise_of_total(judgement);
        }
    }
}

impl Against<'_> {
    /// The largest growth of a group that fits `of`.
    fn largest(&self, of: impl Fn(bool) -> bool) -> Option<&Growth> {
        let groups = self.groups.iter().filter(|(growth, born_in_test)| grows(growth) && of(*born_in_test));
        groups.map(|(growth, _)| growth).max_by(|a, b| a.slope.slope.total_cmp(&b.slope.slope))
    }

    /// It grows, but not by what its windows added.
    fn raise_of_outside(&self, total: &Growth, inside: &Growth, judgement: &mut Judgement) {
        let Self { measured, threshold, allowed, .. } = self;
        let (metric, level) = (measured.metric, threshold.level.verdict());
        // The windows may add as much as is allowed.
        let outside = if inside.slope.slope > 0.0 { ", in part outside of" } else { " outside of" };
        // The test may free as much memory of its set-up as it leaks.
        let own = self.largest(|born_in_test| born_in_test).filter(|growth| !is_few(growth, *allowed));
        let (verdict, slope, place) = match own {
            Some(growth) => (level, growth.slope.slope, " in one place".to_owned()),
            None if measured.ends_itself => {
                let place = format!("{outside} the windows that the program gives the test");
                (level, total.slope.slope, place)
            }
            None => {
                let place =
                    format!("{outside} the test itself, in the set-up of its suite or in another thread");
                (Verdict::Warn, total.slope.slope, place)
            }
        };
        judgement.raise(verdict, too_much(metric, slope, &format!("per iteration{place}"), threshold.limit));
    }

    fn raise_of_total(&self, judgement: &mut Judgement) {
        let Self { measured, threshold, allowed, .. } = self;
        let (metric, level) = (measured.metric, threshold.level.verdict());
        let series = measured.series(*allowed);
        let total = measured.growth(*allowed);
        let over = |slope: f64, place: &str| {
            too_much(metric, slope, &format!("per iteration{place}"), threshold.limit)
        };
        let undecided = |why: &str| self.undecided(&total, why);
        let still = total.slope.high <= threshold.limit;
        match (total.finding, self.largest(|_| true)) {
            (Finding::Grows, _) | (_, Some(_)) if is_few(&total, *allowed) => {
                judgement.raise(Verdict::Warn, undecided(", too few to call it a leak"));
            }
            (Finding::Grows, _) => {
                let rarely = match measured.exact {
                    true => now_and_then(series, allowed.warm_up),
                    false => String::new(),
                };
                judgement.raise_figure(level, over(total.slope.slope, ""), rarely);
            }
            // One place takes over what another frees, as in a ring buffer that was filled before.
            (_, Some(_)) if still => {
                judgement
                    .raise(Verdict::Warn, undecided(", one place grows while another shrinks by as much"));
            }
            (_, Some(group)) => judgement.raise(level, over(group.slope.slope, " in one place")),
            (Finding::Open, None) if still || has_few_steps(series, allowed.warm_up) => {
                judgement.raise(Verdict::Warn, self.too_late(series));
            }
            (Finding::Open, None) => judgement.raise(Verdict::Warn, undecided("")),
            (Finding::Still, None)
                if !still && self.groups.iter().any(|(growth, _)| growth.finding == Finding::Open) =>
            {
                judgement.raise(Verdict::Warn, undecided(" in one place"));
            }
            (Finding::Still, None) => {}
        }
    }

    fn undecided(&self, total: &Growth, why: &str) -> String {
        let metric = self.measured.metric;
        format!(
            "inconclusive: {} per iteration after {} iterations{why} (allowed {})",
            interval(metric, total.slope.low, total.slope.high),
            total.iterations,
            format_value(metric, self.threshold.limit)
        )
    }

    fn too_late(&self, series: &[f64]) -> String {
        let metric = self.measured.metric;
        let rise = last_rise(series, self.allowed.warm_up);
        format!(
            "inconclusive: {} more, the last of it in iteration {} of {}: a rare leak, or over (allowed {})",
            format_amount(metric, rise.by),
            rise.iteration,
            series.len(),
            format_value(metric, self.threshold.limit)
        )
    }
}

fn grows(growth: &Growth) -> bool {
    growth.finding == Finding::Grows
}

fn is_few(growth: &Growth, allowed: Allowed) -> bool {
    growth.iterations + allowed.warm_up < ENOUGH_REPETITIONS
}

/// `in 8 of 2000 executions`, if most of them add nothing. Otherwise empty.
fn now_and_then(values: &[f64], warm_up: usize) -> String {
    let (steps, executions) = (steps(values, warm_up), values.len().saturating_sub(warm_up));
    if steps * SELDOM > executions {
        return String::new();
    }
    format!("in {steps} of {executions} executions")
}
