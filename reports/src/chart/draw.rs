//! Draws a plot on any of plotters' backends.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Once;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::register_font;

use super::plot::{Plot, PlotKind, Role};
use crate::error::RenderError;

/// The drawing is larger than shown, because SVG coordinates are whole numbers, and thick lines of a bitmap are not
/// smoothed. The text is readable even at the width of a phone.
pub(super) const SIZE: (u32, u32) = (880, 420);
/// Height of a mark on the time axis, as a share of the chart's.
const MARK: f64 = 0.04;
/// Dash and gap of a threshold's line, in pixels.
const DASH: u32 = 16;
const GAP: u32 = 10;
/// Font size in plotters that becomes 24 px in an SVG.
const TEXT: i32 = 30;

/// DejaVu Sans, reduced to the characters that charts use.
const FONT: &[u8] = include_bytes!("font/DejaVuSans-subset.ttf");

/// Colours by meaning; `svg` replaces them with those of the page, and one of its tests keeps both in sync.
const INK: RGBColor = RGBColor(0x24, 0x29, 0x2f);
const GRID: RGBColor = RGBColor(0xd8, 0xde, 0xe4);
const VALUE: RGBColor = RGBColor(0x09, 0x69, 0xda);
const FAINT: RGBColor = RGBColor(0x8c, 0x95, 0x9f);
const SLOPE: RGBColor = RGBColor(0xcf, 0x22, 0x2e);
const ALLOWED: RGBColor = RGBColor(0x1a, 0x7f, 0x37);

type Chart<'a, DB> = ChartContext<'a, DB, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Plotters looks fonts up by name, in a global table.
pub(super) fn with_font() -> Result<(), RenderError> {
    static ONCE: Once = Once::new();
    let mut broken = false;
    ONCE.call_once(|| broken = register_font("sans-serif", FontStyle::Normal, FONT).is_err());
    if broken { Err(RenderError::Chart("the embedded font cannot be read".to_owned())) } else { Ok(()) }
}

/// How the dashed line of a threshold is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Threshold {
    /// Dash by dash: a bitmap has no dashed lines.
    InPieces,
    /// As one line, which the page's style draws dashed.
    ByStyle,
}

pub(super) fn draw<DB>(
    root: &DrawingArea<DB, Shift>,
    plot: &Plot,
    threshold: Threshold,
) -> Result<(), RenderError>
where
    DB: DrawingBackend,
    DB::ErrorType: Debug + Send + Sync + 'static,
{
    drawn(root, plot, threshold).map_err(|why| RenderError::Chart(format!("{why:?}")))
}

fn drawn<DB>(
    root: &DrawingArea<DB, Shift>,
    plot: &Plot,
    threshold: Threshold,
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>>
where
    DB: DrawingBackend,
    DB::ErrorType: Debug + Send + Sync + 'static,
{
    let (scale, _) = plot.unit();
    let ((x0, x1), (y0, y1)) = (plot.x, (plot.y.0 / scale, plot.y.1 / scale));
    let mut chart = ChartBuilder::on(root)
        .margin(14)
        .margin_right(36)
        .x_label_area_size(76)
        .y_label_area_size(140)
        .build_cartesian_2d(x0..x1, y0..y1)?;
    let text = ("sans-serif", TEXT).into_font().color(&INK);
    let x_tick = |x: &f64| match plot.kind {
        PlotKind::Curve | PlotKind::Suite => seconds(*x, x1 - x0),
        PlotKind::Growth => format!("{x:.0}"),
    };
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.stroke_width(2))
        .axis_style(FAINT.stroke_width(2))
        .x_labels(6)
        .y_labels(5)
        .set_all_tick_mark_size(6)
        .x_desc(plot.x_label)
        .label_style(text.clone())
        .axis_desc_style(text)
        .x_label_formatter(&x_tick)
        .y_label_formatter(&|y| plot.y_tick(*y))
        .draw()?;
    draw_curve(&mut chart, plot, (scale, y0..y1))?;
    draw_lines(&mut chart, plot, scale, threshold)?;
    root.present()
}

/// Draws the marks on the time axis, and the values: those that do not count, and the others.
fn draw_curve<DB: DrawingBackend>(
    chart: &mut Chart<'_, DB>,
    plot: &Plot,
    (scale, y): (f64, Range<f64>),
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
    // One line that goes up and down replaces hundreds of elements.
    let (foot, top) = (y.start, y.start + (y.end - y.start) * MARK);
    let comb: Vec<_> = plot.marks.iter().flat_map(|&x| [(x, foot), (x, top), (x, foot)]).collect();
    if !comb.is_empty() {
        chart.draw_series(LineSeries::new(comb, FAINT.stroke_width(2)))?;
    }
    let points: Vec<_> = plot.points.iter().map(|&(x, y)| (x, y / scale)).collect();
    let (warm_up, counted) = points.split_at(plot.not_counted);
    chart.draw_series(LineSeries::new(
        warm_up.iter().chain(counted.first()).copied(),
        FAINT.stroke_width(3),
    ))?;
    chart.draw_series(LineSeries::new(counted.iter().copied(), VALUE.stroke_width(4)))?;
    if plot.boundaries {
        for (points, colour) in [(warm_up, FAINT), (counted, VALUE)] {
            let dots = thinned(points).map(|point| Circle::new(point, 5, colour.filled()));
            chart.draw_series(dots)?;
        }
    }
    Ok(())
}

/// Draws slopes, their bounds, and thresholds.
fn draw_lines<DB: DrawingBackend>(
    chart: &mut Chart<'_, DB>,
    plot: &Plot,
    scale: f64,
    threshold: Threshold,
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
    for line in &plot.lines {
        let ends = [line.from, line.to].map(|(x, y)| (x, y / scale));
        let (colour, width) = match line.role {
            Role::Slope => (SLOPE, 4),
            Role::Bound => (SLOPE, 2),
            Role::Threshold if threshold == Threshold::InPieces => {
                let style = ALLOWED.stroke_width(4);
                chart.draw_series(DashedLineSeries::new(ends, DASH, GAP, style))?;
                continue;
            }
            Role::Threshold => (ALLOWED, 4),
        };
        chart.draw_series(LineSeries::new(ends, colour.stroke_width(width)))?;
    }
    Ok(())
}

/// Keeps only points that need a dot: dots on a line of many points would only make it thicker.
fn thinned(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    const MOST: usize = 40;
    let step = points.len().div_ceil(MOST).max(1);
    points.iter().copied().step_by(step)
}

fn seconds(x: f64, width: f64) -> String {
    match width {
        w if w > 20.0 => format!("{x:.0}"),
        w if w > 2.0 => format!("{x:.1}"),
        w if w > 0.2 => format!("{x:.2}"),
        w if w > 0.02 => format!("{x:.3}"),
        w if w > 0.002 => format!("{x:.4}"),
        _ => format!("{x:.5}"),
    }
}
