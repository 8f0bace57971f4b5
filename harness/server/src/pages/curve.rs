//! A curve over commits, as SVG: steps between values, gaps where nothing was judged, a mark where something happened,
//! a broken line for what is allowed.

use std::collections::BTreeMap;

use memgate_model::{Metric, format_value};
use memgate_reports::page::escape;

use crate::view::{EventRow, Point};

const WIDTH: f64 = 1120.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 40.0;
/// More are drawn as the line alone.
const MOST_DOTS: usize = 200;

/// Limits that are so many times the largest value are not drawn: the curve would be a flat line.
const FAR_ABOVE: f64 = 4.0;

/// The curve; without any value: an empty frame that says so.
pub(super) fn svg(metric: Metric, points: &[Point], events: &[EventRow]) -> String {
    let values = || points.iter().filter_map(|point| point.value).filter(|value| value.is_finite());
    let (least, most) =
        values().fold((0.0_f64, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
    let drawn = |point: &Point| point.allowed.filter(|allowed| *allowed <= most * FAR_ABOVE);
    let top = points.iter().filter_map(drawn).fold(most, f64::max);
    let span = if top > least { top - least } else { 1.0 };
    let steps = points.len().saturating_sub(1).max(1) as f64;
    let x = |index: usize| LEFT + (WIDTH - LEFT - RIGHT) * index as f64 / steps;
    let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - (value - least) / span);
    let summary = match (
        points.iter().rev().find_map(|point| point.value.filter(|value| value.is_finite())),
        values().count(),
    ) {
        (Some(last), count) => format!(
            "{} over {} runs, {count} of them judged: the last is {}, the largest {}",
            metric.name(),
            points.len(),
            format_value(metric, last),
            format_value(metric, most)
        ),
        (None, _) => format!("{}: no run judged this test", metric.name()),
    };
    let mut svg = format!(
        "<svg class=\"chart wide\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escape(&summary)
    );
    for (value, at) in [(least, y(least)), (most, y(most))] {
        svg += &format!("<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>", WIDTH - RIGHT);
        svg += &format!(
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 10.0,
            at + 8.0,
            escape(&format_value(metric, value))
        );
        if most <= least {
            break;
        }
    }
    for (index, words) in marks(points, events) {
        let at = x(index);
        svg += &format!(
            "<path d=\"M{:.1} 4h12l-6 10z\" fill=\"var(--ink)\"><title>{}</title></path>\
             <line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"14\" y2=\"{}\"/>",
            at - 6.0,
            escape(&words),
            HEIGHT - BOTTOM
        );
    }
    for line in lines(points, drawn).into_iter().filter(|line| line.len() > 1) {
        let path = steps_of(line, x, y);
        svg += &format!("<polyline points=\"{path}\" stroke=\"var(--allowed)\" fill=\"none\"/>");
    }
    let few = points.len() <= MOST_DOTS;
    for line in lines(points, |point| point.value.filter(|value| value.is_finite())) {
        // A line of one value is nothing to see.
        if let ([(index, value)], false) = (line.as_slice(), few) {
            svg += &dot(x(*index), y(*value), "fill=\"var(--value)\"");
        }
        let path = steps_of(line, x, y);
        svg += &format!("<polyline points=\"{path}\" stroke=\"var(--value)\" fill=\"none\"/>");
    }
    if few {
        for (index, point) in points.iter().enumerate() {
            svg += &match point.value.filter(|value| value.is_finite()) {
                Some(value) => dot(x(index), y(value), "fill=\"var(--value)\""),
                // Below the axis: it is no value of zero.
                None => dot(x(index), HEIGHT - BOTTOM / 2.0, "fill=\"var(--bg)\" stroke=\"var(--faint)\""),
            };
        }
    }
    svg + "</svg>"
}

fn dot(x: f64, y: f64, style: &str) -> String {
    format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" {style}/>")
}

/// Points at which something happened, with what it was; an event of a run that is not on the curve has no mark.
pub(super) fn marks(points: &[Point], events: &[EventRow]) -> BTreeMap<usize, String> {
    let at: BTreeMap<i64, usize> =
        points.iter().enumerate().map(|(index, point)| (point.run, index)).collect();
    let mut marks: BTreeMap<usize, String> = BTreeMap::new();
    for event in events {
        if let Some(index) = at.get(&event.run) {
            let words = marks.entry(*index).or_default();
            if !words.is_empty() {
                words.push_str("; ");
            }
            words.push_str(&format!("{}: {}", event.kind, event.text));
        }
    }
    marks
}

/// A value holds until the next one: a slope between two commits would be invented.
fn steps_of(line: Vec<(usize, f64)>, x: impl Fn(usize) -> f64, y: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    let mut last = None;
    for (index, value) in line {
        if let Some(last) = last {
            path += &format!("{:.1},{last:.1} ", x(index));
        }
        path += &format!("{:.1},{:.1} ", x(index), y(value));
        last = Some(y(value));
    }
    path.truncate(path.trim_end().len());
    path
}

/// Stretches of runs that have such a value.
fn lines(points: &[Point], of: impl Fn(&Point) -> Option<f64>) -> Vec<Vec<(usize, f64)>> {
    let mut lines = vec![Vec::new()];
    for (index, point) in points.iter().enumerate() {
        match (of(point), lines.last_mut()) {
            (Some(value), Some(line)) => line.push((index, value)),
            _ => lines.push(Vec::new()),
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(run: i64, value: Option<f64>) -> Point {
        Point {
            page: false,
            run,
            sha: String::new(),
            place: run,
            started_us: 0,
            value,
            low: value,
            high: value,
            allowed: None,
            verdict: None,
        }
    }

    fn event(run: i64, kind: &str) -> EventRow {
        EventRow {
            at_us: 0,
            kind: kind.into(),
            branch: "main".into(),
            leak: "n1-a".into(),
            test: String::new(),
            text: "a < b".into(),
            clean_sha: String::new(),
            first_sha: String::new(),
            run,
        }
    }

    #[test]
    fn what_is_allowed_is_drawn_where_it_is_near() {
        let allowed = |allowed| {
            let points = [1, 2, 3].map(|run| Point { allowed: Some(allowed), ..point(run, Some(48.0)) });
            svg(Metric::NativeLiveBytes, &points, &[])
        };
        let near = allowed(96.0);
        let line = near.split("<polyline ").find(|line| line.contains("--allowed")).unwrap();
        assert!(line.contains("\"150.0,20.0 "), "at the top, twice as high as the value: {near}");
        assert!(!allowed(1e6).contains("--allowed"), "the curve would be flat");
    }

    #[test]
    fn values_between_runs_that_did_not_judge_are_seen_and_those_runs_are_no_zeros() {
        for runs in [4, 250] {
            let every_second = |run: i64| point(run, (run % 2 == 0).then_some(48.0));
            let points: Vec<Point> = (0..runs).map(every_second).collect();
            let drawn = svg(Metric::NativeLiveBytes, &points, &[]);
            let dots = drawn.matches("fill=\"var(--value)\"").count();
            assert_eq!(i64::try_from(dots), Ok(runs / 2), "{drawn}");
            assert_eq!(drawn.contains("cy=\"320.0\" r=\"5\" fill=\"var(--bg)\""), runs == 4, "{drawn}");
            assert!(!drawn.contains("cy=\"300.0\""), "nothing lies on the axis: {drawn}");
        }
    }

    #[test]
    fn events_mark_the_run_that_showed_them_and_no_other() {
        let points = [point(3, Some(0.0)), point(5, Some(48.0)), point(9, None)];
        let events = [event(5, "new"), event(5, "shift_up"), event(9, "gone"), event(4, "fixed")];
        let found = marks(&points, &events);
        let expected = [(1, "new: a < b; shift_up: a < b"), (2, "gone: a < b")];
        assert_eq!(found, expected.map(|(at, words)| (at, words.to_owned())).into());
        let drawn = svg(Metric::NativeLiveBytes, &points, &events);
        assert!(!drawn.contains("--allowed"), "nothing is allowed");
        assert_eq!(drawn.matches("<title>").count(), 2);
        assert!(drawn.contains("<title>new: a &lt; b; shift_up: a &lt; b</title>"), "{drawn}");
    }
}
