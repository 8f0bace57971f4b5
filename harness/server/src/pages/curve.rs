//! A curve over commits, as SVG: steps between values, gaps where nothing was judged.

use memgate_model::{Metric, format_value};
use memgate_reports::page::escape;

use crate::view::Point;

const WIDTH: f64 = 1120.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 40.0;
/// More are drawn as the line alone.
const MOST_DOTS: usize = 200;

/// The curve; without any value: an empty frame that says so.
pub(super) fn svg(metric: Metric, points: &[Point]) -> String {
    let values = || points.iter().filter_map(|point| point.value).filter(|value| value.is_finite());
    let (least, most) =
        values().fold((0.0_f64, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
    let span = if most > least { most - least } else { 1.0 };
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
    for line in lines(points) {
        let mut path = String::new();
        let mut last = None;
        for (index, value) in line {
            // A value holds until the next one: a slope between two commits would be invented.
            if let Some(last) = last {
                path += &format!("{:.1},{last:.1} ", x(index));
            }
            path += &format!("{:.1},{:.1} ", x(index), y(value));
            last = Some(y(value));
        }
        svg += &format!("<polyline points=\"{}\" stroke=\"var(--value)\" fill=\"none\"/>", path.trim_end());
    }
    if points.len() <= MOST_DOTS {
        for (index, point) in points.iter().enumerate() {
            match point.value.filter(|value| value.is_finite()) {
                Some(value) => {
                    svg += &format!(
                        "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\" fill=\"var(--value)\"/>",
                        x(index),
                        y(value)
                    );
                }
                None => {
                    let at = y(least.max(0.0));
                    svg += &format!(
                        "<circle cx=\"{:.1}\" cy=\"{at:.1}\" r=\"5\" fill=\"var(--bg)\" stroke=\"var(--faint)\"/>",
                        x(index)
                    );
                }
            }
        }
    }
    svg + "</svg>"
}

/// Stretches of judged runs.
fn lines(points: &[Point]) -> Vec<Vec<(usize, f64)>> {
    let mut lines = vec![Vec::new()];
    for (index, point) in points.iter().enumerate() {
        match (point.value.filter(|value| value.is_finite()), lines.last_mut()) {
            (Some(value), Some(line)) => line.push((index, value)),
            _ => lines.push(Vec::new()),
        }
    }
    lines.retain(|line| line.len() > 1);
    lines
}
