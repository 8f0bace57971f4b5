//! A test: its curve over the commits, the same as a table, and its leaks.

use memgate_model::format_value;
use memgate_reports::page::{Html, anchor};

use super::frame::{of_project, select};
use super::{curve, link, parts, words};
use crate::artefacts::PAGE;
use crate::percent::encoded;
use crate::view::{Point, TestView};

/// The column of thresholds.
const ALLOWED: &str = "allowed";
/// The column with links to the curves within the runs.
const WITHIN: &str = "within the run";

/// The page.
#[must_use]
pub fn test(view: &TestView) -> String {
    let TestView { selection, suite, name, .. } = view;
    of_project(selection, &format!("{suite}::{name}"), &["tests", suite, name], |html| {
        if view.metrics.len() > 1 {
            choose_metric(html, view);
        }
        figure(html, view);
        if !view.leaks.is_empty() {
            html.markup("<h2>Leaks of this test</h2>");
            parts::leak_table(html, "Leaks, the worst first", selection, &view.leaks);
            if view.more_leaks {
                html.markup("<p class=faint>").text(&format!("the {} worst · ", view.leaks.len()));
                let mut list = link::to(selection, &["leaks"]);
                list += &format!("&state=any&text={}", encoded(&format!("{suite}::{name}")));
                parts::anchor(html, &list, "find the others in the list of leaks");
                html.markup("</p>");
            }
        }
        if !view.events.is_empty() {
            html.markup("<h2>What happened</h2>");
            parts::events(html, selection, &view.events);
        }
        values(html, view);
    })
}

fn choose_metric(html: &mut Html, view: &TestView) {
    let TestView { selection, suite, name, metric, .. } = view;
    let address = link::path(&selection.project, &["tests", suite, name]);
    html.markup("<form id=tools method=get").attribute("action", &address).markup(">");
    for (name, value) in [("branch", &selection.branch), ("environment", &selection.environment)] {
        html.markup("<input type=hidden").attribute("name", name).attribute("value", value).markup(">");
    }
    let metrics: Vec<String> = view.metrics.iter().map(|metric| metric.name().to_owned()).collect();
    select(html, ("Figure", "metric"), &metrics, metric.name());
    html.markup("<button>Show</button></form>");
}

/// The curve, and its legend.
fn figure(html: &mut Html, view: &TestView) {
    html.markup("<figure><figcaption>").text(view.metric.name()).markup(" over the commits</figcaption>");
    html.svg(&curve::svg(view.metric, &view.points, &view.events));
    html.markup("<p class=legend>● measured · ○ not judged, or not run");
    if !curve::marks(&view.points, &view.events).is_empty() {
        html.markup(" · ▼ something happened, as told below");
    }
    if is_limited(view) {
        html.markup(" · ┄ allowed, where it is near; –: nothing, or there is no limit");
    }
    if view.rounded {
        html.markup(" · values are kept in steps of 2 %");
    }
    html.markup("</p></figure>");
}

/// Did the test have a threshold in any of the runs?
fn is_limited(view: &TestView) -> bool {
    view.points.iter().any(|point| point.allowed.is_some())
}

/// The points of the curve as a table. Optional columns without any value are left out.
fn values(html: &mut Html, view: &TestView) {
    let columns = [
        ("commit", false),
        ("when (UTC)", false),
        ("value", true),
        ("low", true),
        ("high", true),
        (ALLOWED, true),
        ("verdict", false),
        (WITHIN, false),
    ];
    let shows = Columns { allowed: is_limited(view), within: view.points.iter().any(|point| point.page) };
    let is_shown = |name: &str| match name {
        ALLOWED => shows.allowed,
        WITHIN => shows.within,
        _ => true,
    };
    html.markup("<h2>Values</h2>");
    let shown: Vec<_> = columns.into_iter().filter(|(name, _)| is_shown(name)).collect();
    parts::table(html, "Values, the newest first", &shown);
    view.points.iter().rev().for_each(|point| row(html, view, point, &shows));
    parts::end_of_table(html);
}

/// Columns that a table may lack.
struct Columns {
    allowed: bool,
    within: bool,
}

fn row(html: &mut Html, view: &TestView, point: &Point, shows: &Columns) {
    let TestView { selection, suite, name, metric, .. } = view;
    let value = |value: f64| format_value(*metric, value);
    let finite = |number: f64| number.is_finite().then(|| value(number));
    html.markup("<tr><th scope=row class=code>");
    let address = link::path(&selection.project, &["runs", &point.run.to_string()]);
    parts::anchor(html, &address, &words::run(&point.sha, point.dirty));
    html.markup("<td class=when>").text(&words::when(point.started_us));
    html.markup("<td class=n>").text(point.value.and_then(finite).as_deref().unwrap_or("not judged"));
    for bound in [point.low, point.high] {
        html.markup("<td class=n>").text(bound.and_then(finite).as_deref().unwrap_or("–"));
    }
    if shows.allowed {
        html.markup("<td class=n>").text(point.allowed.map(value).as_deref().unwrap_or("–"));
    }
    html.markup("<td>");
    match point.verdict {
        Some(verdict) => parts::badge(html, words::verdict(verdict)),
        None => {
            html.markup("did not run");
        }
    }
    if shows.within {
        html.markup("<td>");
    }
    if point.page {
        let page = link::path(&selection.project, &["runs", &point.run.to_string(), "artefacts", PAGE]);
        parts::anchor(html, &format!("{page}#{}", anchor(&format!("{suite}::{name}"))), "curve");
    }
}
