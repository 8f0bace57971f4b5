//! Parts of every page: head, navigation, the choice of a line.

use memgate_reports::page::Html;

use super::{link, parts};
use crate::view::Selection;

pub use memgate_reports::page::STYLE;

/// Icon on the browser tab.
pub const ICON: &str = include_str!("icon.svg");

/// A page with its own content.
pub(super) fn page(title: &str, own: impl FnOnce(&mut Html)) -> String {
    let mut html = Html::default();
    html.markup("<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n");
    html.markup("<meta name=viewport content=\"width=device-width, initial-scale=1\">\n");
    html.markup("<meta name=color-scheme content=\"light dark\">\n");
    html.element("title", &format!("{title} · memgate"));
    html.markup("\n<link rel=stylesheet href=\"/static/page.css\">\n<link rel=icon href=\"/static/icon.svg\">\n</head>\n<body>\n");
    html.markup("<a class=skip href=#main>Skip to the content</a>\n");
    own(&mut html);
    html.markup("</body>\n</html>\n");
    html.written().to_owned()
}

/// A page of a project: navigation, heading, and the choice of a line for the page at `parts`.
pub(super) fn of_project(
    selection: &Selection,
    title: &str,
    parts: &[&str],
    own: impl FnOnce(&mut Html),
) -> String {
    page(&format!("{title} · {}", selection.project), |html| {
        html.markup("<nav aria-label=Pages>");
        parts::anchor(html, "/", "projects");
        html.markup(" ");
        parts::anchor(html, &link::to(selection, &[]), &selection.project);
        for name in ["leaks", "runs", "live", "tune"] {
            html.markup(" ");
            parts::anchor(html, &link::to(selection, &[name]), name);
        }
        html.markup("</nav>\n<header>\n<h1>").text(title).markup("</h1>\n");
        choice(html, selection, parts);
        html.markup("</header>\n<main id=main>\n");
        own(html);
        html.markup("</main>\n");
    })
}

/// Shows branch and environment; a form if there is a choice.
fn choice(html: &mut Html, selection: &Selection, parts: &[&str]) {
    let Selection { branch, environment, branches, environments, project } = selection;
    if branches.len() < 2 && environments.len() < 2 {
        let named: Vec<&str> =
            [branch, environment].into_iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
        html.element("p class=crumb", &named.join(" · "));
        return;
    }
    html.markup("<form id=tools method=get").attribute("action", &link::path(project, parts)).markup(">");
    select(html, ("Branch", "branch"), branches, branch);
    select(html, ("Environment", "environment"), environments, environment);
    html.markup("<button>Show</button></form>\n");
}

/// A labelled list to choose from; an empty value is shown as `–`.
pub(super) fn select(
    html: &mut Html,
    (label, name): (&'static str, &'static str),
    all: &[String],
    chosen: &str,
) {
    html.markup("<label>").markup(label).markup(" <select name=").markup(name).markup(">");
    for value in all {
        html.markup("<option").value(value);
        if value == chosen {
            html.markup(" selected");
        }
        html.markup(">").text(if value.is_empty() { "–" } else { value });
    }
    html.markup("</select></label>");
}

/// A page that shows an error.
#[must_use]
pub fn problem(title: &str, text: &str) -> String {
    page(title, |html| {
        html.markup("<header><h1>").text(title).markup("</h1></header>\n<main id=main>\n").element("p", text);
        html.markup("<p>");
        parts::anchor(html, "/", "projects");
        html.markup("</p></main>\n");
    })
}
