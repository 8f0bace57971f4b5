//! Comparison of two runs.

use memgate_model::format_value;
use memgate_reports::page::{Html, difference};
use memgate_reports::{Change, LeakChange};

use super::frame::of_project;
use super::{link, parts, words};
use crate::view::{CompareView, RunRow, Selection};

/// Most tests that are listed; the others are counted.
const MOST_TESTS: usize = 50;
const MOST_ROWS: usize = 500;

/// Page that compares two runs.
#[must_use]
pub fn compare(view: &CompareView) -> String {
    let CompareView { selection, before, after, comparison, stacks } = view;
    let title = format!("{} compared with {}", named(after), named(before));
    of_project(selection, &title, &["runs"], |html| {
        html.markup("<p class=facts>before: ");
        run(html, selection, before);
        html.markup("<br>after: ");
        run(html, selection, after);
        html.markup("</p>");
        if before.environment != after.environment {
            html.element(
                "p class=reason",
                "The environments differ: figures may differ for that reason alone.",
            );
        }
        html.markup("<p class=counts>");
        for change in
            [Change::New, Change::Larger, Change::Smaller, Change::Fixed, Change::Same, Change::NotCompared]
        {
            html.text(&format!("{} {} · ", change.word(), comparison.count(change)));
        }
        let one_sided = comparison.only_before.len() + comparison.only_after.len();
        html.text(&format!("judged in both {} · in one {one_sided}", comparison.judged_in_both))
            .markup("</p>");
        html.markup("<h2>Leaks</h2>");
        leaks(html, selection, &comparison.leaks);
        let drawn = difference(stacks);
        if !drawn.written().is_empty() {
            html.markup("<section aria-labelledby=stacks-h><h2 id=stacks-h>Leaked bytes by stack</h2>")
                .part(&drawn);
            html.markup("</section>");
        }
        figures(html, view);
        for (tests, which) in [(&comparison.only_before, "the first"), (&comparison.only_after, "the second")]
        {
            only(html, selection, tests, which);
        }
    })
}

fn named(run: &RunRow) -> String {
    if run.sha.is_empty() { words::when(run.started_us) } else { words::measured(&run.sha, run.dirty) }
}

fn run(html: &mut Html, selection: &Selection, run: &RunRow) {
    parts::badge(html, words::verdict(run.verdict));
    parts::anchor(html, &link::path(&selection.project, &["runs", &run.run.to_string()]), &named(run));
    html.text(&format!(" · {} · {} · {}", run.branch, words::when(run.started_us), run.environment));
}

fn leaks(html: &mut Html, selection: &Selection, leaks: &[LeakChange]) {
    if leaks.is_empty() {
        html.markup("<p>Neither run has any.</p>");
        return;
    }
    let columns = [
        ("change", false),
        ("who leaks", false),
        ("before", true),
        ("after", true),
        ("difference", true),
        ("tests", false),
    ];
    parts::table(html, "Leaks of both runs, per iteration", &columns);
    for leak in leaks.iter().take(MOST_ROWS) {
        html.markup("<tr><td>");
        parts::badge(html, badge(leak.change));
        if leak.waived {
            parts::badge(html, ("other", "waived"));
        }
        html.markup("<th scope=row class=code>");
        parts::anchor(html, &link::to(selection, &["leaks", &leak.id]), &leak.line);
        let bytes = |bytes: Option<f64>| bytes.map_or_else(|| "–".to_owned(), memgate_model::format_bytes);
        let (before, after) = match leak.before.zip(leak.after) {
            Some((before, after)) => memgate_model::format_bytes_change(before, after),
            None => (bytes(leak.before), bytes(leak.after)),
        };
        html.markup("<td class=n>").text(&before).markup("<td class=n>").text(&after);
        html.markup("<td class=n>").text(&signed(leak)).markup("<td>");
        parts::tests(html, selection, &leak.tests);
    }
    parts::end_of_table(html);
    rest(html, leaks.len(), MOST_ROWS, "leaks");
}

const fn badge(change: Change) -> (&'static str, &'static str) {
    let class = match change {
        Change::New | Change::Larger => "fail",
        Change::Smaller | Change::Fixed => "pass",
        Change::Same | Change::NotCompared => "other",
    };
    (class, change.word())
}

/// The difference in bytes, if the leak was compared.
fn signed(leak: &LeakChange) -> String {
    if leak.change == Change::NotCompared {
        return "not compared".to_owned();
    }
    let by = leak.after.unwrap_or_default() - leak.before.unwrap_or_default();
    let sign = if by > 0.0 {
        "+"
    } else if by < 0.0 {
        "−"
    } else {
        ""
    };
    format!("{sign}{}", memgate_model::format_bytes(by.abs()))
}

fn figures(html: &mut Html, view: &CompareView) {
    let figures = &view.comparison.figures;
    if figures.is_empty() {
        return;
    }
    html.markup("<h2>Other figures that changed</h2>");
    parts::table(
        html,
        "Figures whose intervals do not overlap",
        &[("test", false), ("figure", false), ("before", true), ("after", true)],
    );
    for change in figures.iter().take(MOST_ROWS) {
        html.markup("<tr><th scope=row class=code>");
        parts::test_link(html, &view.selection, &change.test);
        html.markup("<td>").text(change.metric.name());
        for value in [change.before, change.after] {
            html.markup("<td class=n>").text(&format_value(change.metric, value));
        }
    }
    parts::end_of_table(html);
    rest(html, figures.len(), MOST_ROWS, "figures");
}

fn only(html: &mut Html, selection: &Selection, tests: &[String], which: &str) {
    if tests.is_empty() {
        return;
    }
    html.element("h2", &format!("Judged in {which} run alone")).markup("<p>");
    for (index, test) in tests.iter().take(MOST_TESTS).enumerate() {
        if index > 0 {
            html.markup(", ");
        }
        parts::test_link(html, selection, test);
    }
    html.markup("</p>");
    rest(html, tests.len(), MOST_TESTS, "tests");
}

fn rest(html: &mut Html, of: usize, shown: usize, what: &str) {
    if of > shown {
        html.element("p class=faint", &format!("and {} more {what}", of - shown));
    }
}
