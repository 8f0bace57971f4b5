//! Values over time for the report's charts, thinned to fit a page.

use memgate_model::{Area, CurvePoint, GrowthPoint, Kind, Metric};

use crate::input::ProcessInput;
use crate::record::{CurveSample, ProcessRecord, Window};
use crate::screen::os_value;
use crate::stats::float;

/// Most points of one test, all metrics together.
const MAX_POINTS: usize = 500;
/// Most points of one metric over the iterations.
const MAX_GROWTH_POINTS: usize = 100;
/// Most points of one metric over a whole suite, and most ends of its tests.
const MAX_SUITE_POINTS: usize = 300;
const MAX_TEST_ENDS: usize = 500;

/// The values at the ends of a repeated test. Counts that never change are left out.
pub(super) fn of_iterations(record: &ProcessRecord, windows: &[&Window]) -> Vec<CurvePoint> {
    let value = |w: &Window, metric| match metric {
        Metric::NativeLiveBytes => Some(float(w.end.live_bytes())),
        Metric::NativeMappedBytes => w.mapped_end.as_ref().map(|mapped| float(mapped.total())),
        _ => w.os_end.as_ref().and_then(|os| os_value(os, metric)),
    };
    let series = Metric::in_curves_of_tests().map(|metric| {
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

/// The series from which a slope was estimated. Constant series are left out.
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
    let of_java = [Metric::JavaHeapUsed].into_iter().filter(|_| record.java.is_some());
    // Native figures of a virtual machine without a native tracker mean nothing.
    let is_told = |metric: &Metric| *metric != Metric::NativeLiveBytes || !record.is_java_only();
    of_samples(record, Metric::in_curves_of_tests().filter(is_told).chain(of_java), from_ns, u64::MAX)
}

/// The heap of a Java virtual machine while a test filled it.
pub(super) fn of_heap(record: &ProcessRecord, window: &Window) -> Vec<CurvePoint> {
    of_samples(record, [Metric::JavaHeapUsed].into_iter(), window.start_ns, window.end_ns)
}

fn of_samples(
    record: &ProcessRecord,
    metrics: impl Iterator<Item = Metric>,
    from_ns: u64,
    to_ns: u64,
) -> Vec<CurvePoint> {
    // The last sample before the test shows the level at its start.
    let begin = record.curve.partition_point(|s| s.t_ns < from_ns).saturating_sub(1);
    let end = record.curve.partition_point(|s| s.t_ns <= to_ns);
    let samples = record.curve.get(begin..end).unwrap_or_default();
    let series = metrics.map(|metric| {
        let at = |s: &CurveSample| Some((s.t_ns, float(of_sample(s, metric)?)));
        (metric, samples.iter().filter_map(at).collect())
    });
    points(record.first_ns, series)
}

fn of_sample(sample: &CurveSample, metric: Metric) -> Option<u64> {
    match metric {
        Metric::NativeLiveBytes => sample.live_bytes,
        Metric::NativeMappedBytes => sample.mapped_bytes,
        Metric::JavaHeapUsed => sample.heap_used,
        Metric::OsRss => sample.rss_bytes,
        Metric::OsThreads => sample.threads,
        Metric::OsFds => sample.fds,
        _ => None,
    }
}

/// The values of a suite over its whole run: sums over all its processes.
pub(super) fn of_suite(processes: &[ProcessInput]) -> Vec<CurvePoint> {
    let mut points = Vec::new();
    for metric in Metric::in_curves_of_suites() {
        let values = peaks(&sums(processes, metric));
        points.extend(values.into_iter().map(|(t_ns, value)| CurvePoint { t_ns, metric, value }));
    }
    points
}

/// The ends of its tests on that curve.
pub(super) fn test_ends(processes: &[ProcessInput]) -> Vec<(u64, String)> {
    let zero_ns = began(processes);
    let windows = mains(processes).flat_map(|record| &record.windows).filter(|w| !w.test.is_empty());
    let mut ends: Vec<&Window> = windows.collect();
    ends.sort_by_key(|window| window.end_ns);
    let keep = ends.len().min(MAX_TEST_ENDS);
    let at = |k: usize| ends[k * (ends.len() - 1) / (keep - 1).max(1)];
    (0..keep).map(at).map(|w| (w.end_ns.saturating_sub(zero_ns), w.id())).collect()
}

/// Without children that a test forked: these start with the memory of their parent.
fn mains(processes: &[ProcessInput]) -> impl Iterator<Item = &ProcessRecord> {
    processes.iter().map(|process| &process.record).filter(|record| record.is_main())
}

fn began(processes: &[ProcessInput]) -> u64 {
    mains(processes).map(|record| record.first_ns).min().unwrap_or(0)
}

/// The sum over all processes after each new value. A process that has ended counts as 0.
fn sums(processes: &[ProcessInput], metric: Metric) -> Vec<(u64, f64)> {
    let zero_ns = began(processes);
    let last_ns = mains(processes).map(|record| record.last_ns).max().unwrap_or(0);
    let mut told: Vec<(u64, usize, u64)> = Vec::new();
    for (number, record) in mains(processes).enumerate() {
        let before = told.len();
        match metric {
            Metric::NativeLiveBytes if record.is_java_only() => {}
            // Only what survives a collection is alive.
            Metric::JavaLiveBytes => {
                let windows: Vec<&Window> = record.windows.iter().collect();
                told.extend(crate::java::live(&windows).map(|(at_ns, value)| (at_ns, number, value)));
            }
            _ => {
                told.extend(record.curve.iter().filter_map(|s| Some((s.t_ns, number, of_sample(s, metric)?))))
            }
        }
        if told.len() > before && record.last_ns < last_ns {
            told.push((record.last_ns, number, 0));
        }
    }
    told.sort_by_key(|(at_ns, ..)| *at_ns);
    let mut now = std::collections::BTreeMap::<usize, u64>::new();
    let mut sum = 0_u64;
    let after = told.into_iter().map(|(at_ns, number, value)| {
        let was = now.insert(number, value).unwrap_or(0);
        sum = sum.saturating_sub(was).saturating_add(value);
        (at_ns.saturating_sub(zero_ns), float(sum))
    });
    after.collect()
}

/// Thins points to the maximum number that is shown: the highest of each stretch, and the first and the last of all.
fn peaks(values: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let [first, inner @ .., last] = values else { return Vec::new() };
    let stretch = inner.len().div_ceil(MAX_SUITE_POINTS - 2).max(1);
    let highest = |stretch: &[(u64, f64)]| stretch.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
    let inner = inner.chunks(stretch).filter_map(highest);
    std::iter::once(*first).chain(inner).chain([*last]).collect()
}

fn points(zero_ns: u64, series: impl Iterator<Item = (Metric, Vec<(u64, f64)>)>) -> Vec<CurvePoint> {
    let room = MAX_POINTS / Metric::in_curves_of_tests().count();
    let mut points = Vec::new();
    for (metric, values) in series {
        let is_count = metric.area() == Area::Os && metric.kind() == Kind::Held;
        if is_count && values.windows(2).all(|pair| pair[0].1 == pair[1].1) {
            continue;
        }
        let keep = values.len().min(room);
        for k in 0..keep {
            let (t_ns, value) = values[k * (values.len() - 1) / (keep - 1).max(1)];
            points.push(CurvePoint { t_ns: t_ns.saturating_sub(zero_ns), metric, value });
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(first_ns: u64, last_ns: u64, live: &[(u64, u64)]) -> ProcessInput {
        let sample = |&(t_ns, bytes)| CurveSample { t_ns, live_bytes: Some(bytes), ..CurveSample::default() };
        let curve = live.iter().map(sample).collect();
        ProcessRecord { first_ns, last_ns, curve, ..ProcessRecord::default() }.into()
    }

    #[test]
    fn processes_of_a_suite_are_added_up_and_one_that_ended_has_nothing() {
        let processes =
            [process(100, 130, &[(110, 5), (120, 7)]), process(115, 150, &[(116, 10), (140, 20)])];
        let points = of_suite(&processes);
        let values: Vec<_> = points.iter().map(|point| (point.t_ns, point.value)).collect();
        assert_eq!(values, [(10, 5.0), (16, 15.0), (20, 17.0), (30, 10.0), (40, 20.0)]);
        assert!(points.iter().all(|point| point.metric == Metric::NativeLiveBytes));
    }

    #[test]
    fn a_peak_of_a_long_suite_is_kept() {
        let mut live: Vec<(u64, u64)> = (0..100_000).map(|n| (n, 1000)).collect();
        live[54_321].1 = 9999;
        let points = of_suite(&[process(0, 100_000, &live)]);
        assert!(points.len() <= MAX_SUITE_POINTS, "{}", points.len());
        assert!(points.iter().any(|point| (point.t_ns, point.value) == (54_321, 9999.0)));
        assert_eq!((points[0].t_ns, points[points.len() - 1].t_ns), (0, 99_999));
    }

    #[test]
    fn ends_of_tests_are_on_the_same_clock() {
        let window = |test: &str, end_ns| Window { test: test.to_owned(), end_ns, ..Window::default() };
        let mut first = process(100, 130, &[]);
        first.record.windows = vec![window("a", 120), window("b", 130)];
        assert_eq!(test_ends(&[first]), [(20, "a".to_owned()), (30, "b".to_owned())]);
        let mut long = process(0, 9999, &[]);
        long.record.windows = (0..5000).map(|n| window("t", n)).collect();
        let ends = test_ends(&[long]);
        assert_eq!((ends.len(), ends[0].0, ends[499].0), (MAX_TEST_ENDS, 0, 4999));
    }
}
