//! List of leaks with its filter, and one leak.

use memgate_model::{LeakKind, format_bytes, format_number_of};
use memgate_reports::page::{Block, Html, blocks, holder_and_stack, stack_names};
use memgate_reports::{name_in_waiver, quoted};

use super::frame::{of_project, select};
use super::{link, parts, words};
use crate::view::{KINDS, LeakFilter, LeakView, Leaks, StateFilter};

/// List of leaks.
#[must_use]
pub fn leaks(view: &Leaks, filter: &LeakFilter) -> String {
    let selection = &view.selection;
    of_project(selection, "Leaks", &["leaks"], |html| {
        html.markup("<form id=tools method=get")
            .attribute("action", &link::path(&selection.project, &["leaks"]))
            .markup(">");
        for (name, value) in [("branch", &selection.branch), ("environment", &selection.environment)] {
            html.markup("<input type=hidden").attribute("name", name).value(value).markup(">");
        }
        html.markup("<label>Find <input id=q name=text type=search").value(&filter.text).markup("></label>");
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let any = |values: &[String]| {
            std::iter::once(String::new()).chain(values.iter().cloned()).collect::<Vec<_>>()
        };
        let states: Vec<_> = StateFilter::all().map(StateFilter::name).collect();
        select(html, ("State", "state"), &words(&states), filter.state.name());
        select(html, ("Kind", "kind"), &words(&KINDS), &filter.kind);
        select(html, ("Suite", "suite"), &any(&view.suites), &filter.suite);
        if !view.owners.is_empty() {
            select(html, ("Owner", "owner"), &any(&view.owners), &filter.owner);
        }
        html.markup("<button>Show</button></form>");
        html.element("p class=counts role=status", &format_number_of(view.of, "leak"));
        if !view.leaks.is_empty() {
            parts::leak_table(html, "Leaks, the worst first", selection, &view.leaks);
        }
        if (view.leaks.len() as u64) < view.of {
            html.element(
                "p class=faint",
                &format!("{} of {}: filter for the others", view.leaks.len(), view.of),
            );
        }
    })
}

/// One leak.
#[must_use]
pub fn leak(view: &LeakView) -> String {
    let LeakView { leak, selection, .. } = view;
    of_project(selection, &leak.culprit, &["leaks", &leak.id], |html| {
        html.markup("<p>");
        parts::state_badge(html, leak.state);
        parts::marks(html, leak);
        html.text(&format!("{} · {} per run · ", leak.title, words::amount(leak.bytes, &leak.title)));
        html.element("code", &leak.id);
        if !leak.owners.is_empty() {
            html.text(&format!(" · owner {}", leak.owners.join(" ")));
        }
        html.markup("</p>");
        introduced(html, view);
        html.markup("<h2>Stack</h2><div class=leak>");
        holder_and_stack(html, &view.known());
        html.markup("</div>");
        flame_graph(html, view);
        waivers(html, view);
        if !leak.tests.is_empty() {
            html.markup("<h2>Tests</h2><ul>");
            for test in &leak.tests {
                html.markup("<li class=code>");
                parts::test_link(html, selection, test);
            }
            html.markup("</ul>");
        }
        html.markup("<h2>Lines</h2>");
        if view.lines.is_empty() {
            html.markup(
                "<p>no line has it as a leak: seen as a one-time cost, in reviews, or in uncommitted changes that \
                 are gone</p>",
            );
        } else {
            lines(html, view);
            html.markup("<h2>What happened</h2>");
            parts::events(html, selection, &view.events);
        }
        html.markup("<h2>Runs that saw it</h2>");
        sightings(html, view);
    })
}

/// The command that accepts the leak. An id that names only a kind (a descriptor that nobody saw being opened, a Java
/// thread) is accepted in the tests that have it, else in all tests of the project.
fn waivers(html: &mut Html, view: &LeakView) {
    const SHOWN: usize = 3;
    let LeakView { leak, frames, .. } = view;
    // A frame of Java belongs to no library.
    let of_kind = leak.kind == LeakKind::Os && frames.iter().all(|frame| frame.module.is_empty());
    let in_tests = leak.tests.iter().filter(|_| of_kind).filter_map(|test| test.split_once("::"));
    let in_tests = in_tests.filter(|(_, test)| !test.is_empty());
    let mut only: Vec<String> =
        in_tests.map(|(suite, test)| format!(" --test {}", quoted(&name_in_waiver(suite, test)))).collect();
    if only.is_empty() {
        only.push(String::new());
    }
    let more = only.len().saturating_sub(SHOWN);
    only.truncate(SHOWN);
    html.markup("<p class=facts>to accept it for now: ");
    for (at, only) in only.iter().enumerate() {
        html.markup(if at == 0 { "<code class=command>" } else { "<br><code class=command>" });
        html.text(&format!("memgate waive {}{only} --reason \"…\" --until YYYY-MM-DD", quoted(&leak.id)));
        html.markup("</code>");
    }
    if more > 0 {
        html.text(&format!(" and so for {}", format_number_of(more, "other test")));
    }
    html.markup("</p>");
}

/// Flame graph of the newest run that saw the leak: each test as wide as the bytes it leaks, with the stack below it.
fn flame_graph(html: &mut Html, view: &LeakView) {
    let Some(newest) = view.sightings.first() else { return };
    // Deeper frames are in the list above.
    let frames: Vec<String> = stack_names(&view.known()).into_iter().take(64).collect();
    let seen = view.sightings.iter().filter(|seen| seen.run.run == newest.run.run && seen.bytes > 0.0);
    let mut tests: Vec<Block> = seen.map(|seen| column(&seen.test, &frames, seen.bytes)).collect();
    tests.sort_by(|a, b| b.size.total_cmp(&a.size));
    let all = tests.iter().map(|test| test.size).sum();
    if !frames.is_empty() {
        html.part(&blocks("Leaked bytes by test and stack in the newest run", all, &tests));
    }
}

/// A test, and below it the calls down to the allocation.
fn column(test: &str, frames: &[String], size: f64) -> Block {
    let block = |name: &str, inside: Vec<Block>| {
        let title = format!("{name}: {}", format_bytes(size));
        Block { name: name.to_owned(), title, size, inside }
    };
    let below = frames.iter().rev().fold(Vec::new(), |inside, frame| vec![block(frame, inside)]);
    block(test, below)
}

/// The commit that introduced the leak.
fn introduced(html: &mut Html, view: &LeakView) {
    let LeakView { leak, came, .. } = view;
    if leak.first_sha.is_empty() {
        return;
    }
    html.markup("<p>first seen in <code>").text(&leak.first_sha).markup("</code>");
    let Some(came) = came.as_ref().filter(|came| !came.clean_sha.is_empty() && !came.first_sha.is_empty())
    else {
        html.markup("</p>");
        return;
    };
    if came.first_sha != leak.first_sha {
        html.markup("; it came back by <code>").text(words::short(&came.first_sha)).markup("</code>");
    }
    html.markup(", not in <code>").text(words::short(&came.clean_sha)).markup("</code>; ");
    html.text(&words::unmeasured(came)).markup("</p>");
    if came.unmeasured.as_ref().is_some_and(Vec::is_empty) {
        return;
    }
    html.markup("<p class=facts>to find the commit: <code class=command>");
    html.text(&format!("memgate bisect {}", quoted(&leak.id))).markup("</code></p>");
    let Some(unmeasured) = &came.unmeasured else { return };
    html.markup("<details><summary>the commits between</summary><ul>");
    for sha in unmeasured {
        html.markup("<li>").element("code", sha);
    }
    html.markup("</ul></details>");
}

fn lines(html: &mut Html, view: &LeakView) {
    let columns = [
        ("line", false),
        ("environment", false),
        ("state", false),
        ("since", false),
        ("last seen", false),
        ("last commits", false),
    ];
    parts::table(html, "Where it stands on each line", &columns);
    for line in &view.lines {
        html.markup("<tr><th scope=row>").text(if line.branch.is_empty() { "–" } else { &line.branch });
        html.markup("<td>").text(&line.environment).markup("<td>");
        parts::state_badge(html, line.leak.state);
        parts::marks(html, &line.leak);
        html.markup("<td>").element("code", words::short(&line.leak.first_sha));
        html.element("span class=faint", &format!(" {}", words::when(line.leak.since_us)));
        html.markup("<td>").element("code", words::short(&line.leak.last_sha)).markup("<td>");
        parts::strip(html, &line.leak.window);
    }
    parts::end_of_table(html);
}

fn sightings(html: &mut Html, view: &LeakView) {
    let columns = [
        ("run", false),
        ("branch", false),
        ("when (UTC)", false),
        ("test", false),
        ("bytes per run", true),
        ("objects", true),
        ("counts as", false),
    ];
    parts::table(html, "Runs, the newest first", &columns);
    for sighting in &view.sightings {
        let run = &sighting.run;
        html.markup("<tr><th scope=row class=code>");
        let address = link::path(&view.selection.project, &["runs", &run.run.to_string()]);
        parts::anchor(html, &address, &words::run(&run.sha, run.dirty));
        html.markup("<td>")
            .text(&run.branch)
            .markup("<td>")
            .text(&words::when(run.started_us))
            .markup("<td>");
        parts::test_link(html, &view.selection, &sighting.test);
        let bytes = if view.leak.kind == LeakKind::Os {
            "–".to_owned()
        } else {
            words::amount(sighting.bytes, "0 B")
        };
        html.markup("<td class=n>")
            .text(&bytes)
            .markup("<td class=n>")
            .text(&format!("{:.0}", sighting.count));
        html.markup("<td>").text(match sighting.how.as_str() {
            "one_time" => "one-time cost",
            "waived" => "waived",
            _ => "leak",
        });
    }
    parts::end_of_table(html);
}
