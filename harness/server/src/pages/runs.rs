//! List of runs, and one run.

use memgate_model::{format_bytes, format_number_of, format_value};
use memgate_reports::page::Html;

use super::frame::{of_project, select};
use super::{link, parts, words};
use crate::artefacts::PAGE;
use crate::view::{ArtefactRow, Order, RunRow, RunView, Runs, Selection, TestRow};

/// List of runs.
#[must_use]
pub fn runs(view: &Runs) -> String {
    of_project(&view.selection, "Runs", &["runs"], |html| {
        table(html, &view.selection, "Runs, the newest first", &view.runs);
        if let Some(before) = view.before {
            html.markup("<p>");
            let address = format!("{}&before={before}", link::to(&view.selection, &["runs"]));
            parts::anchor(html, &address, "older runs");
            html.markup("</p>");
        }
    })
}

pub(super) fn table(html: &mut Html, selection: &Selection, caption: &'static str, runs: &[RunRow]) {
    let columns = [
        ("verdict", false),
        ("commit", false),
        ("branch", false),
        ("when (UTC)", false),
        ("tests", true),
        ("failed", true),
        ("leaks", true),
        ("took", true),
        ("environment", false),
    ];
    parts::table(html, caption, &columns);
    for run in runs {
        html.markup("<tr><td>");
        parts::badge(html, words::verdict(run.verdict));
        html.markup("<th scope=row class=code>");
        let address = link::path(&selection.project, &["runs", &run.run.to_string()]);
        parts::anchor(html, &address, &words::run(&run.sha, run.dirty));
        html.markup("<td>").text(&run.branch);
        html.markup("<td class=when>").text(&words::when(run.started_us));
        html.markup("<td class=n>")
            .text(&run.tests.to_string())
            .markup("<td class=n>")
            .text(&run.failed.to_string());
        html.markup("<td class=n>").text(&run.leaks.to_string());
        let changes = words::changes(run);
        if !changes.is_empty() {
            html.text(&format!(" ({changes})"));
        }
        html.markup("<td class=n>")
            .text(&words::duration(run.duration_ms))
            .markup("<td>")
            .text(&run.environment);
    }
    parts::end_of_table(html);
}

/// One run.
#[must_use]
pub fn run(view: &RunView) -> String {
    let RunView { run, selection, .. } = view;
    let title = format!(
        "Run of {}",
        if run.sha.is_empty() { words::when(run.started_us) } else { words::measured(&run.sha, run.dirty) }
    );
    of_project(selection, &title, &["runs"], |html| {
        html.markup("<p>");
        parts::badge(html, words::verdict(run.verdict));
        let times = format!(
            "{} · took {} · session {}",
            words::when(run.started_us),
            words::duration(run.duration_ms),
            run.session
        );
        html.text(&times).markup("</p><p class=facts>");
        if !run.sha.is_empty() {
            html.markup("commit ").element("code", &run.sha).markup(" ");
            if run.dirty {
                html.markup("with changes that are in no commit ");
            }
        }
        if view.ci_url.starts_with("https://") || view.ci_url.starts_with("http://") {
            parts::anchor(html, &view.ci_url, "CI job");
        }
        for ArtefactRow { name, bytes } in &view.artefacts {
            html.markup(" · ");
            let address = link::path(&selection.project, &["runs", &run.run.to_string(), "artefacts", name]);
            match name.as_str() {
                PAGE => parts::anchor(html, &address, "full report"),
                name => parts::anchor(html, &address, &format!("{name} ({})", format_bytes(*bytes as f64))),
            }
        }
        if let Some(previous) = view.previous {
            html.markup(" · ");
            parts::anchor(
                html,
                &link::path(&selection.project, &["runs", &previous.to_string()]),
                "the run before",
            );
            html.markup(" · ");
            let pair = format!("{previous}...{}", run.run);
            parts::anchor(html, &link::path(&selection.project, &["compare", &pair]), "compare with it");
        }
        html.markup("</p>");
        if view.expired {
            html.markup("<p>The figures of this run have ended: they are kept for a year, those of reviews for two months.</p>");
        }
        if !view.reasons.is_empty() {
            html.markup("<h2>Reasons</h2><ul>");
            for reason in &view.reasons {
                html.markup("<li>").text(reason);
            }
            html.markup("</ul>");
        }
        html.markup("<h2>Leaks</h2>");
        leaks(html, view);
        html.markup("<h2>Tests</h2>");
        tests(html, view);
    })
}

fn leaks(html: &mut Html, view: &RunView) {
    if view.leaks.is_empty() {
        html.markup("<p>None.</p>");
        return;
    }
    let target = &view.run.target;
    let state = if target.is_empty() { "state" } else { "state on the target" };
    let columns =
        [(state, false), ("who leaks", false), ("what", false), ("bytes per run", true), ("test", false)];
    parts::table(html, "Leaks, the largest first", &columns);
    for leak in &view.leaks {
        html.markup("<tr><td>");
        match leak.state {
            _ if leak.how == "one_time" => parts::badge(html, ("other", "once")),
            Some(state) => parts::state_badge(html, state),
            None => {
                let words = if target.is_empty() { "not followed" } else { "not there" };
                html.element("span class=faint", words).markup(" ");
            }
        }
        if leak.how == "waived" {
            parts::badge(html, ("other", "waived"));
        }
        html.markup("<th scope=row class=code>");
        parts::anchor(html, &link::to(&view.selection, &["leaks", &leak.id]), &leak.culprit);
        html.markup("<td>").text(&leak.title);
        html.markup("<td class=n>").text(&words::amount(leak.bytes, "–")).markup("<td>");
        parts::test_link(html, &view.selection, &leak.test);
    }
    parts::end_of_table(html);
    if view.more_leaks {
        html.markup("<p class=faint>").text(&format!("the {} largest · ", view.leaks.len()));
        parts::anchor(html, &link::to(&view.selection, &["leaks"]), "all leaks of the line");
        html.markup("</p>");
    }
}

fn tests(html: &mut Html, view: &RunView) {
    let (caption, order) = match view.order {
        Order::Worst => ("Tests, the worst first", "worst"),
        Order::Slowest => ("Tests, the slowest first", "slowest"),
    };
    let page = link::path(&view.selection.project, &["runs", &view.run.run.to_string()]);
    // The table of leaks comes first: the browser scrolls past it to the tests that were found.
    html.markup("<form id=tools method=get").attribute("action", &format!("{page}#tools")).markup(">");
    html.markup("<label>Find <input id=q name=text type=search").value(&view.find).markup("></label>");
    let orders = ["worst", "slowest"].map(str::to_owned);
    select(html, ("Order", "order"), &orders, order);
    html.markup("<button>Show</button></form>");
    if !view.find.is_empty() {
        html.element("p class=counts role=status", &format_number_of(view.of, "test"));
    }
    let columns = [
        ("verdict", false),
        ("test", false),
        ("took", true),
        ("figures other than 0", false),
        ("why", false),
    ];
    parts::table(html, caption, &columns);
    for TestRow { suite, name, verdict, reason, values, duration_ms, .. } in &view.tests {
        html.markup("<tr><td>");
        parts::badge(html, words::verdict(*verdict));
        html.markup("<th scope=row class=code>");
        parts::test_link(html, &view.selection, &format!("{suite}::{name}"));
        let took = duration_ms.map(words::duration).unwrap_or_default();
        html.markup("<td class=n>").text(&took).markup("<td>");
        let values: Vec<String> = values
            .iter()
            .map(|(metric, value)| format!("{} {}", metric.name(), format_value(*metric, *value)))
            .collect();
        html.text(&values.join(", ")).markup("<td>").text(reason);
    }
    parts::end_of_table(html);
    if (view.tests.len() as u64) < view.of {
        html.element(
            "p class=faint",
            &format!("{} of {} tests: find the others by name", view.tests.len(), view.of),
        );
    }
}

#[cfg(test)]
mod tests {
    use memgate_model::Verdict;

    use super::*;
    use crate::view::SightingOf;

    #[test]
    fn a_run_with_thousands_of_leaks_is_a_page_that_can_be_read() {
        let named = |number: usize| SightingOf {
            id: format!("n1-{number}"),
            culprit: "MapCache::insert".to_owned(),
            title: "48.0 KiB".to_owned(),
            test: "engine::MapCache.scroll".to_owned(),
            ..SightingOf::default()
        };
        let selection =
            Selection { project: "tiles".to_owned(), branch: "main".to_owned(), ..Selection::default() };
        let run = RunRow {
            run: 7,
            session: "s".to_owned(),
            branch: "fix → main".to_owned(),
            environment: String::new(),
            sha: String::new(),
            dirty: false,
            started_us: 0,
            duration_ms: 0,
            verdict: Verdict::Fail,
            tests: 1,
            failed: 1,
            leaks: 3000,
            new_leaks: 0,
            regressed_leaks: 0,
            larger_leaks: 0,
            fixed_leaks: 0,
            target: "main".to_owned(),
        };
        let view = RunView {
            selection,
            run,
            reasons: Vec::new(),
            ci_url: String::new(),
            leaks: (0..200).map(named).collect(),
            more_leaks: true,
            tests: Vec::new(),
            of: 0,
            order: Order::Worst,
            find: String::new(),
            previous: None,
            expired: false,
            artefacts: Vec::new(),
        };
        let page = super::run(&view);
        assert!(page.contains("the 200 largest · ") && page.contains("all leaks of the line"), "{page}");
        assert!(page.contains("not there") && page.contains("state on the target"), "{page}");
        assert!(page.len() < 300_000, "{} bytes", page.len());
    }
}
