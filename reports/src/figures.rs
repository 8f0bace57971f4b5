//! A metric's value in words: `48.0 KiB per iteration (allowed 0 B)`.

use std::collections::BTreeMap;

use memgate_model::{
    Leak, LeakKind, Level, Metric, MetricValue, Per, SuiteReport, TestReport, Threshold, ThresholdSource,
    Verdict, format_amount, format_count, format_value,
};

use crate::visible::visible;

/// How clearly a value is above its threshold, the clearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Excess {
    /// The whole interval is above.
    Certain,
    /// The best estimate is above.
    Likely,
    /// Only the upper bound is above.
    Possible,
}

/// The figures of a test's headline, the most important one first; empty if nothing exceeds a threshold.
pub(crate) fn test_figures(test: &TestReport) -> Vec<String> {
    let mut figures = exceeding(&test.metrics);
    if let Some(bytes) = figures.iter_mut().find(|figure| figure.metric == Metric::NativeLiveBytes) {
        // The number of allocations is shown with their bytes, on the same line.
        bytes.count = test
            .metrics
            .get(&Metric::NativeLiveAllocations)
            .map(|count| format_amount(Metric::NativeLiveAllocations, count.value));
        figures.retain(|figure| figure.metric != Metric::NativeLiveAllocations);
    }
    let of_java = |leak: &&Leak| leak.kind == LeakKind::Java && leak.waiver.is_none();
    if figures.iter().any(|figure| figure.metric == Metric::JavaLiveBytes)
        && test.leaks.iter().any(|leak| of_java(&leak))
    {
        // The leaks below state the number of objects of each class.
        figures.retain(|figure| figure.metric != Metric::JavaLiveObjects);
    }
    figures.iter().map(Figure::text).collect()
}

/// The metric that is most important for the verdict on a test.
pub(crate) fn leading_metric(test: &TestReport) -> Option<Metric> {
    exceeding(&test.metrics).first().map(|figure| figure.metric)
}

/// Whether the verdict is a warning only because the exceeded threshold warns, or because the base has the leaks too:
/// its figure is known like that of a failure.
pub(crate) fn is_certain(test: &TestReport) -> bool {
    let over = |value: &MetricValue| {
        let warns = value.threshold.as_ref().filter(|threshold| threshold.level == Level::Warn);
        warns.is_some_and(|threshold| value.low > threshold.limit)
    };
    let beside = test.reason_beside_figures.as_deref();
    let is_told = |beside: &str| !["inconclusive", "unconfirmed"].iter().any(|doubt| beside.contains(doubt));
    test.confirmed
        && test.verdict == Verdict::Warn
        && (test.against_base.is_some() || beside.is_some_and(is_told) && test.metrics.values().any(over))
}

/// The figures of a suite as a whole that exceed their threshold, and the resulting verdict.
pub(crate) fn suite_figures(suite: &SuiteReport) -> (Vec<String>, Option<Verdict>) {
    let exceeding = exceeding(&suite.metrics);
    let verdict = Verdict::worst(exceeding.iter().map(|figure| match figure.level {
        Level::Warn => Verdict::Warn,
        Level::Fail => Verdict::Fail,
    }));
    (exceeding.iter().map(Figure::text).collect(), verdict)
}

/// Separates the parts of a headline.
pub(crate) const GAP: &str = "   ";

/// The parts of a headline about one metric.
struct Figure {
    metric: Metric,
    level: Level,
    /// `48.0 KiB per iteration (allowed 0 B)`.
    amount: String,
    /// `12 allocations`.
    count: Option<String>,
    /// `35 iterations, 99 % interval 48.0–48.0 KiB`.
    basis: Option<String>,
}

impl Figure {
    fn new(metric: Metric, value: &MetricValue, threshold: &Threshold) -> Self {
        let Threshold { limit, level, source } = threshold;
        let source = match source {
            ThresholdSource::Default => String::new(),
            ThresholdSource::File(place) => format!(", {}", visible(place)),
        };
        let (amount, limit) = (format_amount(metric, value.value), format_value(metric, *limit));
        let amount = format!("{amount} per {} (allowed {limit}{source})", per(value.per));
        Self { metric, level: *level, amount, count: None, basis: basis(metric, value) }
    }

    fn text(&self) -> String {
        let parts = [Some(&self.amount), self.count.as_ref(), self.basis.as_ref()];
        parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(GAP)
    }
}

/// Figures that exceed their threshold as clearly as the clearest one, in the order of [`Metric::ALL`]. If native bytes
/// of JNI code and bytes of Java objects are both among them, the larger figure comes first, because a native block may
/// only be a handle of the objects.
fn exceeding(metrics: &BTreeMap<Metric, MetricValue>) -> Vec<Figure> {
    let found = metrics.iter().filter_map(|(metric, value)| {
        let threshold = value.threshold.as_ref()?;
        Some((excess(value, threshold.limit)?, Figure::new(*metric, value, threshold)))
    });
    let found: Vec<_> = found.collect();
    let clearest = found.iter().map(|(excess, _)| *excess).min();
    let clear = found.into_iter().filter(|(excess, _)| Some(*excess) == clearest);
    let mut figures: Vec<Figure> = clear.map(|(_, figure)| figure).collect();
    let at = |of: Metric| figures.iter().position(|figure| figure.metric == of);
    if let Some((native, java)) = at(Metric::NativeLiveBytes).zip(at(Metric::JavaLiveBytes))
        && metrics[&Metric::JavaLiveBytes].value > metrics[&Metric::NativeLiveBytes].value
    {
        figures[native..=java].rotate_right(1);
    }
    figures
}

fn excess(value: &MetricValue, limit: f64) -> Option<Excess> {
    if value.low > limit {
        Some(Excess::Certain)
    } else if value.value > limit {
        Some(Excess::Likely)
    } else {
        (value.high > limit).then_some(Excess::Possible)
    }
}

/// The basis of the figure; `None` for a single execution.
fn basis(metric: Metric, value: &MetricValue) -> Option<String> {
    let MetricValue { iterations, confidence, .. } = *value;
    (iterations > 1).then(|| {
        let percent = format_count(confidence * 100.0);
        let interval =
            wide(metric, value).map_or_else(String::new, |i| format!(", {percent} % interval {i}"));
        format!("{iterations} iterations{interval}")
    })
}

/// The interval of a figure; `None` if there is none, or if it adds nothing to the figure.
pub(crate) fn wide(metric: Metric, figure: &MetricValue) -> Option<String> {
    let [from, best, to] = [figure.low, figure.value, figure.high].map(|value| format_value(metric, value));
    (figure.confidence > 0.0 && (from != best || to != best))
        .then(|| interval(metric, figure.low, figure.high))
}

fn interval(metric: Metric, low: f64, high: f64) -> String {
    let (from, to) = (format_value(metric, low), format_value(metric, high));
    match (low.is_finite(), high.is_finite()) {
        (false, false) => "open".to_owned(),
        (false, true) => format!("up to {to}"),
        (true, false) => format!("from {from}"),
        (true, true) => {
            let same_unit = from.split_once(' ').zip(to.split_once(' ')).filter(|((_, a), (_, b))| a == b);
            let from = same_unit.map_or(from.as_str(), |((from, _), _)| from);
            // A dash next to a minus sign is hard to read.
            let dash = if low < 0.0 { " to " } else { "–" };
            format!("{from}{dash}{to}")
        }
    }
}

pub(crate) const fn per(per: Per) -> &'static str {
    match per {
        Per::Iteration => "iteration",
        Per::Test => "test",
        Per::Suite => "suite",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_share_their_unit() {
        for (low, high, text) in [
            (49152.0, 49152.0, "48.0–48.0 KiB"),
            (0.0, 256.0, "0–256 B"),
            (512.0, 2048.0, "512 B–2.0 KiB"),
            (-16.0, 16.0, "-16 to 16 B"),
            (f64::NEG_INFINITY, 16.0, "up to 16 B"),
            (16.0, f64::INFINITY, "from 16 B"),
            (f64::NEG_INFINITY, f64::INFINITY, "open"),
        ] {
            assert_eq!(interval(Metric::NativeLiveBytes, low, high), text);
        }
        assert_eq!(interval(Metric::OsFds, 1.0, 2.0), "1–2");
    }

    #[test]
    fn a_native_handle_of_java_objects_does_not_lead() {
        let figure = |value: f64| MetricValue {
            value,
            unit: Metric::JavaLiveBytes.unit(),
            per: Per::Iteration,
            low: value,
            high: value,
            iterations: 30,
            confidence: 0.99,
            threshold: Some(Threshold { limit: 0.0, level: Level::Fail, source: ThresholdSource::Default }),
        };
        for (native, java, order) in [
            (9.6, 136.0, [Metric::JavaLiveBytes, Metric::NativeLiveBytes, Metric::JavaLiveObjects]),
            (4096.0, 136.0, [Metric::NativeLiveBytes, Metric::JavaLiveBytes, Metric::JavaLiveObjects]),
        ] {
            let metrics = [
                (Metric::NativeLiveBytes, figure(native)),
                (Metric::JavaLiveBytes, figure(java)),
                (Metric::JavaLiveObjects, figure(2.0)),
            ];
            let metrics = exceeding(&metrics.into()).into_iter().map(|figure| figure.metric);
            assert_eq!(metrics.collect::<Vec<_>>(), order, "{native} and {java}");
        }
    }
}
