//! Charts as SVG: as a file, or inline in a page with the page's colours and text size.

use plotters::prelude::*;

use super::draw::{SIZE, Threshold, draw, with_font};
use super::plot::Plot;
use crate::error::RenderError;
use crate::html::escape;

/// The colours of `draw`, and the page's variables for them.
const VARIABLES: [(&str, &str); 6] = [
    ("#24292F", "var(--ink)"),
    ("#D8DEE4", "var(--grid)"),
    ("#0969DA", "var(--value)"),
    ("#8C959F", "var(--faint)"),
    ("#CF222E", "var(--slope)"),
    ("#1A7F37", "var(--allowed)"),
];

/// For a page: without size, with colours as variables, with an alternative text.
pub(crate) fn inline_svg(plot: &Plot) -> Result<String, RenderError> {
    let drawn = drawn(plot, Threshold::ByStyle)?;
    let (width, height) = SIZE;
    let mut svg = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">",
        escape(&plot.summary)
    );
    // The page's style sets most attributes once for all charts.
    let mut rest = body(&drawn);
    while let Some(at) = rest.find(['#', ' ', '\n']) {
        let (before, from) = rest.split_at(at);
        svg.push_str(before);
        rest = from;
        if let Some(after) = without_needless(rest) {
            rest = after;
        } else if let Some((colour, after)) = variable(rest) {
            svg.push_str(colour);
            rest = after;
        } else {
            svg.push_str(&rest[..1]);
            rest = &rest[1..];
        }
    }
    svg.push_str(rest);
    svg.push_str("</svg>");
    Ok(svg)
}

/// Attributes that `page.css` sets for `.chart`.
const NEEDLESS: [&str; 8] = [
    " opacity=\"1\"",
    " font-family=\"sans-serif\"",
    " font-size=\"24.193548387096776\"",
    " fill=\"none\"",
    " fill=\"#24292F\"",
    " stroke=\"none\" stroke-width=\"1\"",
    " stroke=\"#D8DEE4\" stroke-width=\"2\"",
    "\n",
];

fn without_needless(text: &str) -> Option<&str> {
    NEEDLESS.iter().find_map(|needless| text.strip_prefix(needless))
}

fn variable(text: &str) -> Option<(&'static str, &str)> {
    VARIABLES.iter().find_map(|(colour, name)| Some((*name, text.strip_prefix(colour)?)))
}

/// A file of its own, on white.
pub(crate) fn svg_file(plot: &Plot) -> Result<String, RenderError> {
    let drawn = drawn(plot, Threshold::InPieces)?;
    let (width, height) = SIZE;
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>{}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#FFFFFF\"/>\n{}</svg>\n",
        width / 2,
        height / 2,
        escape(&plot.summary),
        body(&drawn),
    ))
}

fn drawn(plot: &Plot, threshold: Threshold) -> Result<String, RenderError> {
    with_font()?;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw(&root, plot, threshold)?;
    }
    Ok(svg)
}

/// The text between the root's tags.
fn body(svg: &str) -> &str {
    let start = svg.find('>').map_or(0, |end| end + 1);
    let end = svg.rfind("</svg>").unwrap_or(svg.len());
    svg.get(start..end).unwrap_or_default().trim_start()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::plots_of;
    use crate::sample;

    #[test]
    fn a_chart_in_a_page_has_no_colour_and_no_size_of_its_own() {
        let report = sample::leak();
        for plot in plots_of(&report.suites[0].tests[1]) {
            let svg = inline_svg(&plot).unwrap();
            assert!(!svg.contains('#') && !svg.contains("style=") && svg.contains("var(--value)"), "{svg}");
            assert!(svg.contains("aria-label=\"native.live_bytes from "), "{svg}");
            assert!(svg.len() < 3_000, "{} bytes: {svg}", svg.len());
        }
    }
}
