//! Values over time for the report's charts, few enough for a page.

use memgate_model::{CurvePoint, GrowthPoint, Metric};

use crate::groups::float;
use crate::record::{CurveSample, ProcessRecord, Window};
use crate::screen::os_value;

/// Points of one test, all metrics together.
const MAX_POINTS: usize = 500;
/// Points of one metric over the iterations.
const MAX_GROWTH_POINTS: usize = 100;
const METRICS: [Metric; 4] = [Metric::NativeLiveBytes, Metric::OsRss, Metric::OsThreads, Metric::OsFds];

/// The values at the ends of a repeated test. Counts that never change say nothing.
pub(super) fn of_iterations(record: &ProcessRecord, windows: &[&Window]) -> Vec<CurvePoint> {
    let value = |w: &Window, metric| match metric {
        Metric::NativeLiveBytes => Some(float(w.end.live_bytes())),
        _ => w.os_end.as_ref().and_then(|os| os_value(os, metric)),
    };
    let series = METRICS.into_iter().map(|metric| {
        let at = |w: &&Window| Some((w.end_ns, value(w, metric)?));
        (metric, windows.iter().filter_map(at).collect())
    });
    points(record.first_ns, series)
}

/// The heap of a Java virtual machine at the ends of a repeated test.
pub(super) fn of_java(record: &ProcessRecord, windows: &[&Window]) -> Vec<CurvePoint> {
    let heaps = crate::java::values(windows, Metric::JavaLiveBytes);
    let points_of = if heaps.len() == windows.len() { windows } else { &[] };
    let heap = points_of.iter().map(|w| w.end_ns).zip(heaps).collect();
    points(record.first_ns, std::iter::once((Metric::JavaLiveBytes, heap)))
}

/// The series a slope was estimated from; what never changes says nothing.
pub(super) fn of_growth(metric: Metric, values: &[(f64, f64)]) -> Vec<GrowthPoint> {
    if values.windows(2).all(|pair| pair[0].1 == pair[1].1) {
        return Vec::new();
    }
    let keep = values.len().min(MAX_GROWTH_POINTS);
    let at = |k: usize| values[k * (values.len() - 1) / (keep - 1).max(1)];
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of iterations")]
    let point = |(x, value): (f64, f64)| GrowthPoint { iteration: x as u64, metric, value };
    (0..keep).map(at).map(point).collect()
}

/// The last known values before a process broke off.
pub(super) fn of_the_end(record: &ProcessRecord, from_ns: u64) -> Vec<CurvePoint> {
    let value = |s: &CurveSample, metric| match metric {
        Metric::NativeLiveBytes => s.live_bytes,
        Metric::OsRss => s.rss_bytes,
        Metric::OsThreads => s.threads,
        Metric::OsFds => s.fds,
        _ => None,
    };
    // The last sample before the test is the level it began from.
    let begin = record.curve.partition_point(|s| s.t_ns < from_ns).saturating_sub(1);
    let samples = record.curve.get(begin..).unwrap_or_default();
    let series = METRICS.into_iter().map(|metric| {
        let at = |s: &CurveSample| Some((s.t_ns, float(value(s, metric)?)));
        (metric, samples.iter().filter_map(at).collect())
    });
    points(record.first_ns, series)
}

fn points(zero_ns: u64, series: impl Iterator<Item = (Metric, Vec<(u64, f64)>)>) -> Vec<CurvePoint> {
    let mut points = Vec::new();
    for (metric, values) in series {
        let is_count = matches!(metric, Metric::OsThreads | Metric::OsFds);
        if is_count && values.windows(2).all(|pair| pair[0].1 == pair[1].1) {
            continue;
        }
        let room = MAX_POINTS / METRICS.len();
        let keep = values.len().min(room);
        for k in 0..keep {
            let (t_ns, value) = values[k * (values.len() - 1) / (keep - 1).max(1)];
            points.push(CurvePoint { t_ns: t_ns.saturating_sub(zero_ns), metric, value });
        }
    }
    points
}
