//! Badges, links and tables that pages share.

use memgate_reports::page::Html;

use super::{link, words};
use crate::view::{EventRow, LeakRow, Selection, State};

pub(super) fn badge(html: &mut Html, (class, word): (&'static str, &'static str)) {
    html.markup("<span class=\"badge ").markup(class).markup("\">").markup(word).markup("</span> ");
}

pub(super) fn state_badge(html: &mut Html, of: State) {
    badge(html, words::state(of));
}

pub(super) fn marks(html: &mut Html, leak: &LeakRow) {
    for (is, mark) in [(leak.waived, "waived"), (leak.flaky, "flaky")] {
        if is {
            badge(html, ("other", mark));
        }
    }
}

/// A link in a cell or a sentence.
pub(super) fn anchor(html: &mut Html, address: &str, text: &str) {
    html.markup("<a").attribute("href", address).markup(">").text(text).markup("</a>");
}

/// A link to the page of `suite::Test.name`.
pub(super) fn test_link(html: &mut Html, selection: &Selection, test: &str) {
    match test.split_once("::") {
        Some((suite, name)) if !name.is_empty() => {
            anchor(html, &link::to(selection, &["tests", suite, name]), test);
        }
        _ => {
            html.text(test.trim_end_matches("::"));
        }
    }
}

/// The first tests that have a leak, as links.
pub(super) fn tests(html: &mut Html, selection: &Selection, tests: &[String]) {
    const SHOWN: usize = 3;
    for (index, test) in tests.iter().take(SHOWN).enumerate() {
        if index > 0 {
            html.markup("<br>");
        }
        test_link(html, selection, test);
    }
    if tests.len() > SHOWN {
        html.element("span class=faint", &format!(" and {} more", tests.len() - SHOWN));
    }
}

/// The last judged commits as squares, and the same in words.
pub(super) fn strip(html: &mut Html, window: &[bool]) {
    const MOST: usize = 24;
    let seen = window.iter().filter(|seen| **seen).count();
    let last = window.get(window.len().saturating_sub(MOST)..).unwrap_or(window);
    let squares: String = last.iter().map(|seen| if *seen { '■' } else { '□' }).collect();
    html.markup("<span aria-hidden=true class=code>").text(&squares).markup("</span> ");
    html.element("span class=faint", &format!("{seen} of {}", window.len()));
}

/// Opens a table that scrolls if it is too wide.
pub(super) fn table(html: &mut Html, caption: &'static str, columns: &[(&'static str, bool)]) {
    html.markup("<div class=scroll tabindex=0 role=group aria-label=\"")
        .markup(caption)
        .markup("\"><table><caption>");
    html.markup(caption).markup("</caption><thead><tr>");
    for (name, is_number) in columns {
        html.markup(if *is_number { "<th scope=col class=n>" } else { "<th scope=col>" }).markup(name);
    }
    html.markup("</thead><tbody>");
}

pub(super) fn end_of_table(html: &mut Html) {
    html.markup("</tbody></table></div>");
}

/// A table of leaks.
pub(super) fn leak_table(html: &mut Html, caption: &'static str, selection: &Selection, leaks: &[LeakRow]) {
    let columns = [
        ("state", false),
        ("who leaks", false),
        ("per run", true),
        ("since", false),
        ("last commits", false),
        ("tests", false),
    ];
    table(html, caption, &columns);
    for leak in leaks {
        html.markup("<tr><td>");
        state_badge(html, leak.state);
        marks(html, leak);
        html.markup("<th scope=row class=code>");
        anchor(html, &link::to(selection, &["leaks", &leak.id]), &leak.culprit);
        if !leak.place.is_empty() {
            html.markup("<br>").element("span class=faint", &leak.place);
        }
        if !leak.owners.is_empty() {
            html.markup("<br>").element("span class=faint", &leak.owners.join(" "));
        }
        html.markup("<td class=n>").text(&words::amount(leak.bytes, &leak.title)).markup("<td>");
        html.element("code", words::short(&leak.first_sha))
            .markup("<br>")
            .element("span class=faint", &words::when(leak.since_us));
        html.markup("<td>");
        strip(html, &leak.window);
        html.markup("<td>");
        tests(html, selection, &leak.tests);
    }
    end_of_table(html);
}

/// Events, the newest first.
pub(super) fn events(html: &mut Html, selection: &Selection, events: &[EventRow]) {
    if events.is_empty() {
        return;
    }
    let columns = [
        ("when (UTC)", false),
        ("what", false),
        ("leak", false),
        ("commit", false),
        ("last measured before", false),
        ("run", false),
    ];
    table(html, "What happened", &columns);
    for event in events {
        html.markup("<tr><td class=when>").text(&words::when(event.at_us)).markup("<td>").text(&event.kind);
        if !event.branch.is_empty() && event.branch != selection.branch {
            html.element("span class=faint", &format!(" on {}", event.branch));
        }
        html.markup("<td class=code>");
        match event.leak.as_str() {
            // An event of a figure.
            "" => {
                html.text(&event.text);
            }
            leak => anchor(html, &link::to(selection, &["leaks", leak]), &event.text),
        }
        html.markup("<td>").element("code", words::short(&event.first_sha));
        html.markup("<td>").element("code", words::short(&event.clean_sha)).markup("<td>");
        anchor(html, &link::path(&selection.project, &["runs", &event.run.to_string()]), "run");
    }
    end_of_table(html);
}
