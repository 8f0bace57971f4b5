//! First page of a project: leaks that are alive, events, the newest runs.

use super::frame::of_project;
use super::{link, parts, runs};
use crate::view::{NO_BRANCH, Overview, RunRow};

/// The page.
#[must_use]
pub fn overview(view: &Overview) -> String {
    let selection = &view.selection;
    of_project(selection, &selection.project, &[], |html| {
        let [new, regressed, known, fixed, gone] = view.counts;
        html.element(
            "p class=counts",
            &format!(
                "{} alive: {new} new, {regressed} regressed, {known} known · {} flaky · closed: {fixed} fixed, {} of them in the last 30 days, {gone} gone",
                new + regressed + known,
                view.flaky,
                view.fixed_lately
            ),
        );
        if view.decided > 0 {
            let others = if view.steady < view.decided { "; the others come and go" } else { "" };
            let text = format!(
                "Steady: {} of {} leaks that several commits judged{others}",
                view.steady, view.decided
            );
            html.element("p class=faint", &text);
        }
        html.markup("<h2>Leaks alive</h2>");
        if view.alive.is_empty() {
            html.markup("<p>None.</p>");
        } else {
            parts::leak_table(html, "Leaks, the worst first", selection, &view.alive);
        }
        html.markup("<p>");
        parts::anchor(html, &link::to(selection, &["leaks"]), "all leaks");
        html.markup("</p><h2>What happened</h2>");
        if view.events.is_empty() {
            html.markup("<p>Nothing yet.</p>");
        }
        parts::events(html, selection, &view.events);
        html.markup("<h2>Newest runs</h2>");
        let branch = if selection.branch == NO_BRANCH { "" } else { &selection.branch };
        let of_line = |run: &&RunRow| run.branch == branch && run.environment == selection.environment;
        if let Some(newest) = view.runs.iter().find(of_line) {
            let page = link::path(&selection.project, &["runs", &newest.run.to_string()]);
            html.markup("<p>");
            parts::anchor(html, &format!("{page}?order=slowest"), "slowest tests");
            html.markup("</p>");
        }
        runs::table(html, selection, "Runs of all branches, the newest first", &view.runs);
    })
}
