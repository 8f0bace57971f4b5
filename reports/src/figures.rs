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
    figures(test).iter().map(Figure::text).collect()
}

/// Is a leak within the thresholds of its test, or does it exceed only those that warn? Not if no figure counts it.
#[must_use]
pub fn is_within(leak: &Leak, test: &TestReport) -> bool {
    let of_leak = test.metrics.iter().filter(|(metric, _)| counts(**metric, leak));
    let thresholds = of_leak.filter_map(|(_, value)| Some((value.high, value.threshold.as_ref()?)));
    let mut allowed = thresholds
        .map(|(high, threshold)| high <= threshold.limit || threshold.level == Level::Warn)
        .peekable();
    allowed.peek().is_some() && allowed.all(|is_allowed| is_allowed)
}

/// The figure that counts a leak of the test; `None` if it does not exceed its threshold.
pub(crate) fn figure_of(leak: &Leak, test: &TestReport) -> Option<String> {
    figures(test).iter().find(|figure| counts(figure.metric, leak)).map(Figure::text)
}

fn figures(test: &TestReport) -> Vec<Figure> {
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
    figures
}

/// Is the leak one of those that the metric counts? Classes, references and the like are told by the objects.
pub(crate) fn counts(metric: Metric, leak: &Leak) -> bool {
    let is = |noun: &str| {
        let what = leak.title.split_once(" × ").map_or("", |(_, what)| what);
        leak.kind == LeakKind::Os && what.starts_with(noun)
    };
    match metric {
        Metric::OsThreads | Metric::JavaThreads => is("thread"),
        Metric::OsFds => is("descriptor"),
        Metric::JavaDirectBytes => is_direct_buffer(leak),
        _ if metric.is_java() => leak.kind == LeakKind::Java,
        _ => metric.leaks() == Some(leak.kind),
    }
}

/// Bytes outside of the Java heap that the leaked buffers keep, if the test has no other leak of them.
pub(crate) fn direct_bytes(leak: &Leak, test: &TestReport) -> Option<f64> {
    let is_alone = is_direct_buffer(leak) && test.leaks.iter().filter(|l| is_direct_buffer(l)).count() == 1;
    let figure = test.metrics.get(&Metric::JavaDirectBytes).filter(|_| is_alone)?;
    let limit = figure.threshold.as_ref()?.limit;
    excess(figure, limit).map(|_| figure.value)
}

fn is_direct_buffer(leak: &Leak) -> bool {
    leak.class.as_deref() == Some("java.nio.DirectByteBuffer")
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
pub(crate) struct Figure {
    pub(crate) metric: Metric,
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

/// Figures that exceed their threshold as clearly as the clearest one, the heaviest first, otherwise in the order of
/// [`Metric::ALL`].
pub(crate) fn exceeding(metrics: &BTreeMap<Metric, MetricValue>) -> Vec<Figure> {
    let found = metrics.iter().filter_map(|(metric, value)| {
        let threshold = value.threshold.as_ref()?;
        Some((excess(value, threshold.limit)?, Figure::new(*metric, value, threshold)))
    });
    let found: Vec<_> = found.collect();
    let clearest = found.iter().map(|(excess, _)| *excess).min();
    let clear = found.into_iter().filter(|(excess, _)| Some(*excess) == clearest);
    let mut figures: Vec<Figure> = clear.map(|(_, figure)| figure).collect();
    // Java code opens a descriptor through an object, whose stack is known.
    let by_object = figures.iter().any(|figure| figure.metric == Metric::JavaLiveBytes);
    let weight = |figure: &Figure| match figure.metric {
        Metric::OsFds if by_object => 0.0,
        metric => weight(metric) * metrics[&metric].value,
    };
    figures.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    figures
}

/// Bytes that one unit of a leak stands for when leaks are compared; 0 for figures of which no leaks are known. For a
/// thread it is the kernel's stack of it, for a descriptor about what the kernel keeps for an open file.
fn weight(metric: Metric) -> f64 {
    match metric {
        Metric::NativeLiveBytes
        | Metric::NativeMappedBytes
        | Metric::JavaLiveBytes
        | Metric::JavaDirectBytes => 1.0,
        Metric::OsThreads | Metric::JavaThreads => 16_384.0,
        Metric::OsFds => 1024.0,
        _ => 0.0,
    }
}

/// How much of a leak of the test one more iteration leaves, in bytes of [`weight`].
pub(crate) fn weight_of(leak: &Leak, test: &TestReport) -> f64 {
    let held = [Metric::OsThreads, Metric::OsFds].into_iter().find(|metric| counts(*metric, leak));
    let bytes = || direct_bytes(leak, test).unwrap_or(leak.bytes_per_iteration);
    held.map_or_else(bytes, |metric| weight(metric) * leak.count_per_iteration)
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

/// `48.0 KiB (49152 B)`: a rounded value is also shown in full.
pub(crate) fn exact(metric: Metric, value: f64) -> String {
    let shown = format_value(metric, value);
    if shown.ends_with("iB") { format!("{shown} ({} B)", format_count(value)) } else { shown }
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
    fn the_heaviest_figure_leads() {
        use Metric::{
            JavaDirectBytes, JavaLiveBytes, JavaLiveObjects, JavaThreads, NativeLiveBytes, OsFds, OsThreads,
        };
        let figure = |value: f64, metric: Metric| MetricValue {
            threshold: Some(Threshold { limit: 0.0, level: Level::Fail, source: ThresholdSource::Default }),
            ..MetricValue::exact(value, metric, Per::Iteration)
        };
        for order in [
            // A native block may only be a handle of Java objects.
            &[(JavaLiveBytes, 136.0), (NativeLiveBytes, 9.6), (JavaLiveObjects, 2.0)][..],
            &[(NativeLiveBytes, 4096.0), (JavaLiveBytes, 136.0), (JavaLiveObjects, 2.0)],
            &[(JavaDirectBytes, 8192.0), (JavaLiveBytes, 136.0), (JavaLiveObjects, 3.0)],
            &[(JavaThreads, 1.0), (JavaLiveBytes, 2920.0)],
            &[(OsThreads, 1.0), (NativeLiveBytes, 16.0)],
            &[(OsFds, 1.0), (NativeLiveBytes, 40.0)],
            &[(NativeLiveBytes, 49152.0), (OsThreads, 1.0), (OsFds, 2.0)],
            // The object has a stack, its descriptor has none.
            &[(JavaLiveBytes, 144.0), (OsFds, 1.0)],
        ] {
            let metrics = order.iter().map(|(metric, value)| (*metric, figure(*value, *metric))).collect();
            let found: Vec<_> = exceeding(&metrics).into_iter().map(|figure| figure.metric).collect();
            assert_eq!(found, order.iter().map(|(metric, _)| *metric).collect::<Vec<_>>());
        }
    }
}
