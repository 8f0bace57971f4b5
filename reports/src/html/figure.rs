//! A chart with its title and legend.

use super::write::Html;
use crate::chart::{Plot, Role, inline_svg};
use crate::error::RenderError;

pub(super) fn figure(html: &mut Html, plot: &Plot) -> Result<(), RenderError> {
    html.markup("<figure><figcaption>").text(&plot.title()).markup("</figcaption>").svg(&inline_svg(plot)?);
    html.markup("<p class=legend>");
    if !plot.lines.is_empty() {
        html.markup("<span class=entry><span class=\"key value\"></span>measured</span> ");
    }
    for line in &plot.lines {
        html.markup(match line.role {
            Role::Slope => "<span class=entry><span class=\"key slope\"></span>",
            Role::Bound => "<span class=entry><span class=\"key bound\"></span>",
            Role::Threshold => "<span class=entry><span class=\"key allowed\"></span>",
        });
        html.text(&line.label).markup("</span> ");
    }
    if plot.not_counted > 0 {
        html.markup("<span class=entry><span class=\"key warm\"></span>warm-up, not counted</span>");
    }
    if plot.boundaries && plot.lines.is_empty() {
        html.markup("dots: boundaries, the ends of iterations");
    }
    if !plot.marks.is_empty() {
        html.text(&plot.summary).markup("; marks below: ends of tests");
    }
    html.markup("</p></figure>");
    Ok(())
}
