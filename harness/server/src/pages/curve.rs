//! A curve over commits, as SVG: steps between values, gaps where nothing was judged, a mark for each event, a broken
//! line for the threshold.

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
/// With more points, only the line is drawn.
const MOST_DOTS: usize = 200;

/// Limits above this multiple of the largest value are not drawn, because the curve would be a flat line.
const FAR_ABOVE: f64 = 4.0;

/// Maps points to positions in the picture.
struct Scale {
    least: f64,
    most: f64,
    /// From the least value to the highest drawn line.
    span: f64,
    /// Points after the first one, at least one.
    steps: f64,
}

impl Scale {
    fn of(points: &[Point]) -> Self {
        let values = points.iter().filter_map(judged);
        let (least, most) =
            values.fold((0.0_f64, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
        let mut scale = Self { least, most, span: 1.0, steps: points.len().saturating_sub(1).max(1) as f64 };
        let top = points.iter().filter_map(|point| scale.allowed(point)).fold(most, f64::max);
        if top > least {
            scale.span = top - least;
        }
        scale
    }

    /// The threshold of a run, if it is drawn.
    fn allowed(&self, point: &Point) -> Option<f64> {
        point.allowed.filter(|allowed| *allowed <= self.most * FAR_ABOVE)
    }

    fn x(&self, index: usize) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * index as f64 / self.steps
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - (value - self.least) / self.span)
    }
}

/// The value of a run that judged the test.
fn judged(point: &Point) -> Option<f64> {
    point.value.filter(|value| value.is_finite())
}

/// The curve; without values, an empty frame with a message.
pub(super) fn svg(metric: Metric, points: &[Point], events: &[EventRow]) -> String {
    let scale = Scale::of(points);
    let mut svg = format!(
        "<svg class=\"chart wide\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escape(&summary(metric, points, scale.most))
    );
    svg += &axis(metric, &scale);
    for (index, words) in marks(points, events) {
        let at = scale.x(index);
        svg += &format!(
            "<path d=\"M{:.1} 4h12l-6 10z\" fill=\"var(--ink)\"><title>{}</title></path>\
             <line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"14\" y2=\"{}\"/>",
            at - 6.0,
            escape(&words),
            HEIGHT - BOTTOM
        );
    }
    for line in lines(points, |point| scale.allowed(point)).into_iter().filter(|line| line.len() > 1) {
        let path = steps_of(line, &scale);
        svg += &format!("<polyline points=\"{path}\" stroke=\"var(--allowed)\" fill=\"none\"/>");
    }
    svg + &values(points, &scale) + "</svg>"
}

/// Description of the picture.
fn summary(metric: Metric, points: &[Point], most: f64) -> String {
    match points.iter().rev().find_map(judged) {
        Some(last) => format!(
            "{} over {} runs, {} of them judged: the last is {}, the largest {}",
            metric.name(),
            points.len(),
            points.iter().filter_map(judged).count(),
            format_value(metric, last),
            format_value(metric, most)
        ),
        None => format!("{}: no run judged this test", metric.name()),
    }
}

/// Lines at the least and the largest value.
fn axis(metric: Metric, scale: &Scale) -> String {
    let ends: &[f64] = if scale.most > scale.least { &[scale.least, scale.most] } else { &[scale.least] };
    let line = |value: &f64| {
        let at = scale.y(*value);
        format!(
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 10.0,
            at + 8.0,
            escape(&format_value(metric, *value))
        )
    };
    ends.iter().map(line).collect()
}

/// Draws the values as lines, and also as dots if they are few.
fn values(points: &[Point], scale: &Scale) -> String {
    let mut svg = String::new();
    let few = points.len() <= MOST_DOTS;
    for line in lines(points, judged) {
        // A line of a single value is invisible.
        if let ([(index, value)], false) = (line.as_slice(), few) {
            svg += &dot(scale.x(*index), scale.y(*value), "fill=\"var(--value)\"");
        }
        let path = steps_of(line, scale);
        svg += &format!("<polyline points=\"{path}\" stroke=\"var(--value)\" fill=\"none\"/>");
    }
    if few {
        for (index, point) in points.iter().enumerate() {
            svg += &match judged(point) {
                Some(value) => dot(scale.x(index), scale.y(value), "fill=\"var(--value)\""),
                // Below the axis: it is not a value of zero.
                None => {
                    let style = "fill=\"var(--bg)\" stroke=\"var(--faint)\"";
                    dot(scale.x(index), HEIGHT - BOTTOM / 2.0, style)
                }
            };
        }
    }
    svg
}

fn dot(x: f64, y: f64, style: &str) -> String {
    format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" {style}/>")
}

/// Points with events, and the text of these; an event of a run that is not on the curve has no mark.
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
fn steps_of(line: Vec<(usize, f64)>, scale: &Scale) -> String {
    let mut path = String::new();
    let mut last = None;
    for (index, value) in line {
        let (x, y) = (scale.x(index), scale.y(value));
        if let Some(last) = last {
            path += &format!("{x:.1},{last:.1} ");
        }
        path += &format!("{x:.1},{y:.1} ");
        last = Some(y);
    }
    path.truncate(path.trim_end().len());
    path
}

/// Stretches of consecutive runs that have such a value.
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
        Point { run, place: run, value, low: value, high: value, ..Point::default() }
    }

    fn event(run: i64, kind: &str) -> EventRow {
        EventRow { kind: kind.into(), leak: "n1-a".into(), text: "a < b".into(), run, ..EventRow::default() }
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
