//! Runs in progress. Without JavaScript the page reloads itself; with it, only the table changes.

use memgate_reports::page::Html;

use super::frame::of_project;
use super::{parts, words};
use crate::live::LiveRun;
use crate::percent::encoded;
use crate::view::Selection;

/// Script that replaces the table on each event of the server.
pub const SCRIPT: &str = include_str!("live.js");

/// The page.
#[must_use]
pub fn live(project: &str, runs: &[LiveRun]) -> String {
    let selection = Selection { project: project.to_owned(), ..Selection::default() };
    of_project(&selection, "Running now", &["live"], |html| {
        let events = format!("/api/v1/projects/{}/live/events", encoded(project));
        html.markup("<noscript><meta http-equiv=refresh content=5></noscript>");
        html.markup("<div id=live").attribute("data-events", &events).markup(">");
        table(html, runs);
        html.markup(
            "</div><p id=told role=status class=faint></p><script src=\"/static/live.js\" defer></script>",
        );
    })
}

/// The table of runs, as HTML.
#[must_use]
pub fn live_table(runs: &[LiveRun]) -> String {
    let mut html = Html::default();
    table(&mut html, runs);
    html.written().to_owned()
}

fn table(html: &mut Html, runs: &[LiveRun]) {
    if runs.is_empty() {
        html.markup("<p>Nothing runs. <code>memgate run --live</code> shows itself here.</p>");
        return;
    }
    let columns = [
        ("run", false),
        ("phase", false),
        ("tests", true),
        ("now", false),
        ("seconds", true),
        ("verdict", false),
    ];
    parts::table(html, "Runs of this project", &columns);
    for run in runs {
        html.markup("<tr><th scope=row class=code>");
        let name = match (run.branch.as_str(), words::short(&run.sha)) {
            ("", "") => "run".to_owned(),
            (branch, sha) => format!("{branch} {sha}").trim().to_owned(),
        };
        match run.page.as_str() {
            page if page.starts_with("/p/") => parts::anchor(html, page, &name),
            _ => {
                html.text(&name);
            }
        }
        html.markup("<td>").text(&run.phase);
        let of = run.of.map_or_else(String::new, |of| format!(" of {of}"));
        html.markup("<td class=n>").text(&format!("{}{of}", run.done));
        html.markup("<td class=code>").text(&run.now);
        html.markup("<td class=n>").text(&run.seconds.to_string());
        html.markup("<td>").text(if run.verdict.is_empty() { "runs" } else { &run.verdict });
    }
    parts::end_of_table(html);
}
