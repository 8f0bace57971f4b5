//! A test: its curve over the commits, the same as a table, its leaks.

use memgate_model::format_value;
use memgate_reports::page::anchor;

use super::frame::{of_project, select};
use super::{curve, link, words};
use crate::artefacts::PAGE;
use crate::view::TestView;

/// The column with links to the curves within the runs.
const WITHIN: &str = "within the run";

/// The page.
#[must_use]
pub fn test(view: &TestView) -> String {
    let TestView { selection, suite, name, metric, .. } = view;
    of_project(selection, &format!("{suite}::{name}"), &["tests", suite, name], |html| {
        if view.metrics.len() > 1 {
            let address = link::path(&selection.project, &["tests", suite, name]);
            html.markup("<form id=tools method=get").attribute("action", &address).markup(">");
            for (name, value) in [("branch", &selection.branch), ("environment", &selection.environment)] {
                html.markup("<input type=hidden")
                    .attribute("name", name)
                    .attribute("value", value)
                    .markup(">");
            }
            let metrics: Vec<String> = view.metrics.iter().map(|metric| metric.name().to_owned()).collect();
            select(html, ("Figure", "metric"), &metrics, metric.name());
            html.markup("<button>Show</button></form>");
        }
        html.markup("<figure><figcaption>").text(metric.name()).markup(" over the commits</figcaption>");
        html.svg(&curve::svg(*metric, &view.points, &view.events));
        html.markup("<p class=legend>● measured · ○ not judged, or not run");
        if !curve::marks(&view.points, &view.events).is_empty() {
            html.markup(" · ▼ something happened, as told below");
        }
        let is_limited = view.points.iter().any(|point| point.allowed.is_some());
        if is_limited {
            html.markup(" · ┄ allowed, where it is near");
        }
        if view.rounded {
            html.markup(" · values are kept in steps of 2 %");
        }
        html.markup("</p></figure>");
        if !view.leaks.is_empty() {
            html.markup("<h2>Leaks of this test</h2>");
            words::leak_table(html, "Leaks, the worst first", selection, &view.leaks);
        }
        if !view.events.is_empty() {
            html.markup("<h2>What happened</h2>");
            words::events(html, selection, &view.events);
        }
        html.markup("<h2>Values</h2>");
        let columns = [
            ("commit", false),
            ("when (UTC)", false),
            ("value", true),
            ("low", true),
            ("high", true),
            ("allowed", true),
            ("verdict", false),
            (WITHIN, false),
        ];
        let has_pages = view.points.iter().any(|point| point.page);
        let is_shown = |name: &str| match name {
            "allowed" => is_limited,
            WITHIN => has_pages,
            _ => true,
        };
        let shown = columns.into_iter().filter(|(name, _)| is_shown(name));
        words::table(html, "Values, the newest first", &shown.collect::<Vec<_>>());
        for point in view.points.iter().rev() {
            html.markup("<tr><th scope=row class=code>");
            let address = link::path(&selection.project, &["runs", &point.run.to_string()]);
            words::anchor(
                html,
                &address,
                if point.sha.is_empty() { "run" } else { words::short(&point.sha) },
            );
            html.markup("<td class=when>").text(&words::when(point.started_us));
            let open = |value: f64| value.is_finite().then(|| format_value(*metric, value));
            html.markup("<td class=n>").text(point.value.and_then(open).as_deref().unwrap_or("not judged"));
            for bound in [point.low, point.high] {
                html.markup("<td class=n>").text(bound.and_then(open).as_deref().unwrap_or("–"));
            }
            if is_limited {
                let allowed = point.allowed.map(|allowed| format_value(*metric, allowed));
                html.markup("<td class=n>").text(allowed.as_deref().unwrap_or("–"));
            }
            html.markup("<td>");
            match point.verdict {
                Some(verdict) => words::badge(html, words::verdict(verdict)),
                None => {
                    html.markup("did not run");
                }
            }
            if has_pages {
                html.markup("<td>");
            }
            if point.page {
                let parts = ["runs", &point.run.to_string(), "artefacts", PAGE];
                let at = anchor(&format!("{suite}::{name}"));
                words::anchor(html, &format!("{}#{at}", link::path(&selection.project, &parts)), "curve");
            }
        }
        words::end_of_table(html);
    })
}
