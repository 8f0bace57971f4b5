//! The content of a chart, before anything is drawn.

use memgate_model::{
    CurvePoint, Metric, MetricValue, SuiteReport, TestReport, Unit, format_bytes, format_count, format_value,
};

/// A chart of one metric of a test or a suite.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plot {
    pub(crate) kind: PlotKind,
    pub(crate) metric: Metric,
    /// Alternative text: what it shows, in a sentence.
    pub(crate) summary: String,
    pub(crate) x_label: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
    /// Number of first points that belong to the warm-up and do not count.
    pub(crate) not_counted: usize,
    /// Whether every point is the end of an iteration.
    pub(crate) boundaries: bool,
    pub(crate) lines: Vec<Line>,
    /// Where tests end, in order.
    pub(crate) marks: Vec<f64>,
    pub(crate) x: (f64, f64),
    pub(crate) y: (f64, f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlotKind {
    /// Values over time.
    Curve,
    /// Values at the end of each iteration.
    Growth,
    /// Values over the time of a whole suite.
    Suite,
}

/// A straight line across the plot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) role: Role,
    pub(crate) label: String,
    pub(crate) from: (f64, f64),
    pub(crate) to: (f64, f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The estimate.
    Slope,
    /// A bound of the interval.
    Bound,
    /// The threshold.
    Threshold,
}

/// Growth comes first, because the verdict is based on it.
pub(crate) fn plots_of(test: &TestReport) -> Vec<Plot> {
    let growth = Metric::ALL.into_iter().filter_map(|metric| growth(test, metric));
    let curves = curved().filter_map(|metric| {
        curve(PlotKind::Curve, &test.curve, metric, "seconds since the process began")
            .map(|plot| Plot { boundaries: test.confirmed, ..plot })
    });
    growth.chain(curves).collect()
}

/// The run of a suite on one machine.
#[derive(Debug, Clone)]
pub(crate) struct Lane<'a> {
    /// The suite, and the shard if it ran on several machines.
    pub(crate) name: String,
    curve: &'a [CurvePoint],
    test_ends: &'a [(u64, String)],
}

/// The machines on which a suite ran: one, or several for its shards.
pub(crate) fn lanes(suite: &SuiteReport) -> Vec<Lane<'_>> {
    let whole = Lane { name: suite.name.clone(), curve: &suite.curve, test_ends: &suite.test_ends };
    let shards = suite.shards.iter().map(|shard| Lane {
        name: format!("{}, shard {}", suite.name, shard.number),
        curve: &shard.curve,
        test_ends: &shard.test_ends,
    });
    std::iter::once(whole).chain(shards).filter(|lane| !lane.curve.is_empty()).collect()
}

/// Memory over the whole run of a suite, with the ends of its tests.
pub(crate) fn plots_of_suite(suite: &Lane<'_>) -> Vec<Plot> {
    // All plots have the same time range, so that they can be compared.
    let ends =
        suite.curve.iter().map(|point| point.t_ns).chain(suite.test_ends.iter().map(|(t_ns, _)| *t_ns));
    let end = seconds(ends.max().unwrap_or(0));
    let plot = |metric| {
        let plot = curve(PlotKind::Suite, suite.curve, metric, "seconds since the suite began")?;
        let plot = Plot { x: range([0.0, end].into_iter(), 0.0), ..plot };
        let summary = format!("{}{}", plot.summary, highest_in(suite, &plot));
        Some(Plot { marks: marks(suite, plot.x), summary, ..plot })
    };
    curved().filter_map(plot).collect()
}

fn curved() -> impl Iterator<Item = Metric> {
    Metric::ALL.into_iter().chain([Metric::JavaHeapUsed])
}

/// `, in MapCache.scroll`: the first test that ended after the peak.
fn highest_in(suite: &Lane<'_>, plot: &Plot) -> String {
    /// With this many ends or more, some may be missing.
    const ALL_KNOWN: usize = 500;
    let peak = plot.points.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let ends = suite.test_ends.iter().filter(|_| suite.test_ends.len() < ALL_KNOWN);
    let next = peak.and_then(|(x, _)| ends.into_iter().find(|(t_ns, _)| seconds(*t_ns) >= *x));
    next.map_or_else(String::new, |(_, test)| format!(", in {test}"))
}

/// Marks that are far enough apart to be distinguished.
fn marks(suite: &Lane<'_>, (from, to): (f64, f64)) -> Vec<f64> {
    const MOST: f64 = 350.0;
    let mut marks: Vec<f64> = Vec::new();
    for x in suite.test_ends.iter().map(|(t_ns, _)| seconds(*t_ns)).filter(|x| (from..=to).contains(x)) {
        if marks.last().is_none_or(|last| x - last >= (to - from) / MOST) {
            marks.push(x);
        }
    }
    marks
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a run are far below 2^52")]
fn seconds(t_ns: u64) -> f64 {
    t_ns as f64 / 1e9
}

impl Plot {
    /// `growth.native.live_bytes`, `suite.os.rss`
    pub(crate) fn name(&self) -> String {
        let kind = match self.kind {
            PlotKind::Curve => "curve",
            PlotKind::Growth => "growth",
            PlotKind::Suite => "suite",
        };
        format!("{kind}.{}", self.metric)
    }

    /// Title above the chart.
    pub(crate) fn title(&self) -> String {
        match self.kind {
            PlotKind::Curve => format!("{} over time", self.metric),
            PlotKind::Suite => format!("{} over the whole suite", self.metric),
            PlotKind::Growth => format!("{} at the end of each iteration", self.metric),
        }
    }

    /// The unit of the vertical axis, suitable for its largest value, and its size in the metric's unit. Ticks are
    /// round in this unit: a thousand bytes is not a round number of KiB.
    pub(crate) fn unit(&self) -> (f64, &'static str) {
        if self.metric.unit() == Unit::Count {
            return (1.0, "");
        }
        let largest = self.y.0.abs().max(self.y.1.abs());
        match format_bytes(largest).rsplit_once(' ') {
            Some((_, "KiB")) => (1024.0, "KiB"),
            Some((_, "MiB")) => (1024.0 * 1024.0, "MiB"),
            Some((_, "GiB" | "TiB")) => (1024.0 * 1024.0 * 1024.0, "GiB"),
            _ => (1.0, "B"),
        }
    }

    /// A tick of the vertical axis, in [`Self::unit`].
    pub(crate) fn y_tick(&self, value: f64) -> String {
        let (divisor, unit) = self.unit();
        if unit.is_empty() {
            return format_count(value);
        }
        // With too few decimals, all ticks would read the same.
        let decimals = match (self.y.1 - self.y.0) / divisor {
            range if unit == "B" => usize::from(range <= 4.0),
            range if range > 20.0 => 0,
            range if range > 2.0 => 1,
            range if range > 0.2 => 2,
            _ => 3,
        };
        let text = format!("{value:.decimals$}");
        let is_zero = text.chars().all(|digit| "-0.".contains(digit));
        format!("{} {unit}", if is_zero { text.trim_start_matches('-') } else { &text })
    }
}

fn curve(kind: PlotKind, curve: &[CurvePoint], metric: Metric, x_label: &'static str) -> Option<Plot> {
    let of_metric = curve.iter().filter(|point| point.metric == metric && point.value.is_finite());
    let points: Vec<_> = of_metric.map(|point| (seconds(point.t_ns), point.value)).collect();
    let ((first, last), peak) = ends(&points)?;
    let summary = format!(
        "{metric} from {} to {} in {}, at most {}",
        format_value(metric, first.1),
        format_value(metric, last.1),
        lasted(last.0 - first.0),
        format_value(metric, peak),
    );
    let (x, y) = (range(points.iter().map(|p| p.0), 0.0), range(points.iter().map(|p| p.1), 0.06));
    Some(Plot {
        kind,
        metric,
        summary,
        x_label,
        points,
        not_counted: 0,
        boundaries: false,
        lines: Vec::new(),
        marks: Vec::new(),
        x,
        y,
    })
}

fn lasted(seconds: f64) -> String {
    if seconds < 0.1 { format!("{:.1} ms", seconds * 1000.0) } else { format!("{seconds:.2} s") }
}

fn growth(test: &TestReport, metric: Metric) -> Option<Plot> {
    let of_metric = test.growth.iter().filter(|point| point.metric == metric && point.value.is_finite());
    #[expect(clippy::cast_precision_loss, reason = "iterations are far below 2^52")]
    let points: Vec<_> = of_metric.map(|point| (point.iteration as f64, point.value)).collect();
    let ((first, last), _) = ends(&points)?;
    let not_counted = points.iter().take_while(|(x, _)| *x <= f64::from(test.warm_up)).count();
    let counted = points.get(not_counted..).filter(|counted| counted.len() > 1).unwrap_or(&points);
    let figure = test.metrics.get(&metric);
    let lines = figure.map_or_else(Vec::new, |figure| lines(metric, figure, counted));
    let summary = format!(
        "{metric} from {} to {} over {} iterations{}",
        format_value(metric, first.1),
        format_value(metric, last.1),
        format_count(last.0),
        lines.iter().map(|line| format!("; {}", line.label)).collect::<String>(),
    );
    let ends_of_lines = lines.iter().filter(|line| line.role != Role::Bound).flat_map(|l| [l.from.1, l.to.1]);
    let y = range(points.iter().map(|p| p.1).chain(ends_of_lines), 0.06);
    let x = range(points.iter().map(|p| p.0), 0.0);
    let within = |(_, to): &(f64, f64)| (y.0..=y.1).contains(to);
    let lines = lines.into_iter().filter(|line| within(&line.from) || within(&line.to)).collect();
    Some(Plot {
        kind: PlotKind::Growth,
        metric,
        summary,
        x_label: "iteration",
        points,
        not_counted,
        boundaries: true,
        lines,
        marks: Vec::new(),
        x,
        y,
    })
}

/// Slope, interval and threshold, as lines through the middle of the points that count.
fn lines(metric: Metric, figure: &MetricValue, counted: &[(f64, f64)]) -> Vec<Line> {
    let (Some(from), Some(to)) = (counted.first(), counted.last()) else { return Vec::new() };
    // The Theil–Sen line goes through the medians.
    let mut offsets: Vec<f64> = counted.iter().map(|(x, y)| y - figure.value * x).collect();
    offsets.sort_by(f64::total_cmp);
    let offset = offsets[offsets.len() / 2];
    let middle = (f64::midpoint(from.0, to.0), offset + figure.value * f64::midpoint(from.0, to.0));
    let through = |anchor: (f64, f64), slope: f64, role, label| {
        let at = |x: f64| (x, anchor.1 + slope * (x - anchor.0));
        Line { role, label, from: at(from.0), to: at(to.0) }
    };
    let per = |value: f64| format!("{} per iteration", format_value(metric, value));
    let mut lines = Vec::new();
    for bound in [figure.low, figure.high] {
        // An interval without width equals the slope.
        if bound.is_finite() && (bound - figure.value).abs() > f64::EPSILON * figure.value.abs() {
            lines.push(through(middle, bound, Role::Bound, format!("bound of the interval {}", per(bound))));
        }
    }
    if figure.value.is_finite() {
        lines.push(through(middle, figure.value, Role::Slope, format!("slope {}", per(figure.value))));
    }
    if let Some(threshold) = &figure.threshold {
        let start = (from.0, offset + figure.value * from.0);
        let label = format!("threshold {}", per(threshold.limit));
        lines.push(through(start, threshold.limit, Role::Threshold, label));
    }
    lines
}

type Point = (f64, f64);

/// First, last, and the largest value.
fn ends(points: &[Point]) -> Option<((Point, Point), f64)> {
    let peak = points.iter().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
    Some(((*points.first()?, *points.last()?), peak)).filter(|_| points.len() > 1)
}

/// Smallest and largest value with a margin; never empty, because an empty range cannot be drawn.
fn range(values: impl Iterator<Item = f64>, air: f64) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    let width = high - low;
    if !width.is_finite() || width <= low.abs() * 1e-12 {
        let middle = if low.is_finite() { low } else { 0.0 };
        let half = (middle.abs() * 0.05).max(1.0);
        return (middle - half, middle + half);
    }
    (low - width * air, high + width * air)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn the_growth_plot_says_slope_interval_and_threshold() {
        let report = sample::leak();
        let plot = &plots_of(&report.suites[0].tests[1])[0];
        assert_eq!(plot.name(), "growth.native.live_bytes");
        assert_eq!((plot.points.len(), plot.not_counted), (4, 1));
        assert_eq!(
            plot.summary,
            "native.live_bytes from 56.0 KiB to 200.0 KiB over 4 iterations; slope 48.0 KiB per iteration; \
             threshold 0 B per iteration"
        );
        let threshold = plot.lines.iter().find(|line| line.role == Role::Threshold).unwrap();
        assert_eq!(threshold.from.1, threshold.to.1, "nothing is allowed: the line is level");
    }

    #[test]
    fn an_interval_is_drawn_as_its_two_bounds() {
        let report = sample::leak();
        let mut test = report.suites[0].tests[1].clone();
        let figure = test.metrics.get_mut(&Metric::NativeLiveBytes).unwrap();
        (figure.low, figure.high) = (40000.0, f64::INFINITY);
        let plot = &plots_of(&test)[0];
        assert_eq!(
            plot.lines.iter().filter(|line| line.role == Role::Bound).count(),
            1,
            "an open one is not"
        );
    }

    #[test]
    fn a_suite_says_in_which_test_its_memory_was_highest() {
        let plots = plots_of_suite(&lanes(&sample::mixed().suites[0])[0]);
        let names: Vec<_> = plots.iter().map(Plot::name).collect();
        assert_eq!(names, ["suite.native.live_bytes", "suite.os.rss"]);
        assert_eq!(
            plots[0].summary,
            "native.live_bytes from 8.0 KiB to 16.2 KiB in 3.70 s, at most 512.0 KiB, in Tiles/Loader.loads/3"
        );
        assert_eq!(plots[0].marks, [0.5, 1.25, 2.5]);
    }

    #[test]
    fn marks_are_as_far_apart_as_can_be_seen() {
        let mut suite = sample::mixed().suites[0].clone();
        suite.test_ends = (0..400_000_u64).map(|n| (n * 10_000, format!("t{n}"))).collect();
        let marks = &plots_of_suite(&lanes(&suite)[0])[0].marks;
        assert!((300..=351).contains(&marks.len()), "{}", marks.len());
    }

    #[test]
    fn ticks_share_a_unit_and_differ() {
        let mut plot = plots_of(&sample::leak().suites[0].tests[1]).remove(0);
        assert_eq!((plot.unit().1, plot.y_tick(100.0).as_str()), ("KiB", "100 KiB"));
        plot.y = (1_048_576.0, 1_049_600.0);
        assert_eq!(plot.y_tick(1.0004), "1.000 MiB");
        plot.y = (-1.0, 1.0);
        assert_eq!([-1.0, -0.5, -0.01].map(|y| plot.y_tick(y)), ["-1.0 B", "-0.5 B", "0.0 B"]);
        plot.metric = Metric::OsFds;
        assert_eq!(plot.y_tick(3.0), "3");
    }

    #[test]
    fn what_stays_the_same_has_a_range_too() {
        assert_eq!(range([5.0, 5.0].into_iter(), 0.1), (4.0, 6.0));
        assert_eq!(range(std::iter::empty(), 0.1), (-1.0, 1.0));
        assert_eq!(range([0.0, 10.0].into_iter(), 0.1), (-1.0, 11.0));
    }
}
