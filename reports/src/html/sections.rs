//! Sections about the whole run: problems, one-time growth, waivers, exclusions, the cost of measuring, the method.

use memgate_model::{
    BoundaryQuality, Outcome, RunReport, Verdict, WaiverReport, WaiverState, format_bytes, format_count,
    format_list, format_number_of,
};

use super::figure::figure;
use super::leak;
use super::write::Html;
use crate::chart::{Lane, lanes, plots_of_suite};
use crate::dates::days_until;
use crate::error::RenderError;
use crate::human::{app_memory, hunted, lifetimes, one_time_groups, sampled, times, told_of_shard};
use crate::suite_test::SuiteTest;
use crate::summary::unused;

/// Waivers that end within this many days are marked.
const SOON_DAYS: i64 = 14;
/// Most groups and names that are listed; the others are counted.
const LISTED: usize = 100;
/// Most suites with a curve.
const SUITES: usize = 20;

pub(super) fn problems(report: &RunReport) -> Html {
    let mut html = Html::default();
    if report.errors.is_empty() {
        return html;
    }
    html.markup("<section id=problems aria-labelledby=problems-h><h2 id=problems-h>Problems</h2><ul>");
    for problem in &report.errors {
        html.markup("<li><b>").text(&problem.r#where).markup("</b>: ").text(&problem.what);
        if !problem.hint.is_empty() {
            html.markup(" <span class=faint>").text(&problem.hint).markup("</span>");
        }
    }
    html.markup("</ul></section>\n");
    html
}

/// Settings without effect.
pub(super) fn warnings(report: &RunReport) -> Html {
    let mut html = Html::default();
    if report.warnings.is_empty() {
        return html;
    }
    html.markup("<section id=warnings aria-labelledby=warnings-h><h2 id=warnings-h>Warnings</h2><ul>");
    for warning in &report.warnings {
        html.element("li", warning);
    }
    html.markup("</ul></section>\n");
    html
}

/// The machines on which the tests ran.
pub(super) fn shards(report: &RunReport) -> Html {
    let mut html = Html::default();
    if report.shards.is_empty() {
        return html;
    }
    html.markup("<section id=shards aria-labelledby=shards-h><h2 id=shards-h>Shards</h2><ul>");
    for shard in &report.shards {
        html.element("li", &told_of_shard(shard));
    }
    html.markup("</ul></section>\n");
    html
}

/// Memory over the whole run of each suite.
pub(super) fn memory(report: &RunReport) -> Result<Html, RenderError> {
    let mut html = Html::default();
    let of = |lane: Lane<'_>| (lane.name.clone(), plots_of_suite(&lane));
    let suites: Vec<_> =
        report.suites.iter().flat_map(lanes).map(of).filter(|(_, plots)| !plots.is_empty()).collect();
    if suites.is_empty() {
        return Ok(html);
    }
    html.markup("<section id=memory aria-labelledby=memory-h><h2 id=memory-h>Memory over the run</h2>");
    for (name, plots) in suites.iter().take(SUITES) {
        html.markup("<h3>").text(name).markup("</h3><div class=charts>");
        plots.iter().try_for_each(|plot| figure(&mut html, plot))?;
        html.markup("</div>");
    }
    if suites.len() > SUITES {
        html.element("p class=faint", &format!("and {} more suites", suites.len() - SUITES));
    }
    html.markup("</section>\n");
    Ok(html)
}

pub(super) fn one_time(report: &RunReport) -> Html {
    let mut html = Html::default();
    let mut groups: Vec<_> = one_time_groups(report).into_values().collect();
    if groups.is_empty() {
        return html;
    }
    groups.sort_by(|(a, _), (b, _)| b.bytes_per_iteration.total_cmp(&a.bytes_per_iteration));
    let bytes: f64 = groups.iter().map(|(leak, _)| leak.bytes_per_iteration).sum();
    html.markup("<section id=once aria-labelledby=once-h><h2 id=once-h>One-time growth</h2><p>");
    html.text(&format!(
        "{} allocated once and kept, in {}. That is no leak.",
        format_bytes(bytes),
        format_number_of(groups.len(), "place")
    ));
    html.markup("</p><details class=more><summary>where</summary>");
    for (leak, tests) in groups.iter().take(LISTED) {
        leak::group(&mut html, leak, None);
        html.element("p class=facts", &format!("seen in {}", format_list(tests, 5)));
    }
    if groups.len() > LISTED {
        html.element("p", &format!("and {} more", groups.len() - LISTED));
    }
    html.markup("</details></section>\n");
    html
}

/// Java objects that were followed to their end.
pub(super) fn followed(report: &RunReport) -> Html {
    let mut html = Html::default();
    let Some(followed) = &report.followed else { return html };
    html.markup("<section id=followed aria-labelledby=followed-h><h2 id=followed-h>Followed objects</h2>");
    html.markup("<div class=scroll tabindex=0 role=group aria-label=\"Followed objects\"><table><thead><tr><th scope=col>class<th scope=col>allocated at<th scope=col class=n>objects<th scope=col class=n>bytes<th scope=col class=n>left at the end<th scope=col class=n>bytes left<th scope=col>the others</thead><tbody>");
    for site in followed.sites.iter().take(LISTED) {
        html.markup("<tr><th scope=row class=code>").text(&site.class).markup("<td class=code>");
        html.text(&site.frames.first().map(crate::names::of_frame).unwrap_or_default());
        amounts(&mut html, [site.allocations, site.bytes, site.live, site.live_bytes]);
        html.markup("<td>").text(&lifetimes(&site.lifetimes));
    }
    html.markup("</tbody></table></div>");
    if !followed.blame.is_empty() {
        html.markup("<h3>Allocating classes</h3><div class=scroll tabindex=0 role=group aria-label=\"Allocating classes\"><table><thead><tr><th scope=col>class<th scope=col class=n>objects<th scope=col class=n>bytes<th scope=col class=n>left at the end<th scope=col class=n>bytes left</thead><tbody>");
        for by in followed.blame.iter().take(LISTED) {
            html.markup("<tr><th scope=row class=code>").text(&by.class);
            amounts(&mut html, [by.allocations, by.bytes, by.live, by.live_bytes]);
        }
        html.markup("</tbody></table></div>");
    }
    let more = followed.left_out.saturating_add(followed.sites.len().saturating_sub(LISTED) as u64);
    for (count, what) in [(more, "more sites"), (followed.lost, "allocations and ends there was no room for")]
    {
        if count > 0 {
            html.element("p class=faint", &format!("{count} {what}"));
        }
    }
    if followed.pauses > 0 {
        let times = times(followed.pauses);
        html.element("p class=faint", &format!("paused {times}: what was allocated then is missing"));
    }
    html.markup("</section>\n");
    html
}

/// Cells of a table: objects, their bytes, remaining objects, and their bytes.
fn amounts(html: &mut Html, [objects, bytes, live, live_bytes]: [u64; 4]) {
    for (value, is_bytes) in [(objects, false), (bytes, true), (live, false), (live_bytes, true)] {
        #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
        let amount = if is_bytes { format_bytes(value as f64) } else { value.to_string() };
        html.markup("<td class=n><data").attribute("value", &value.to_string()).markup(">");
        html.text(&amount).markup("</data>");
    }
}

pub(super) fn waivers(report: &RunReport) -> Html {
    let mut html = Html::default();
    html.markup("<section id=waivers aria-labelledby=waivers-h><h2 id=waivers-h>Waivers</h2>");
    if report.waivers.is_empty() {
        html.markup("<p>none</p></section>\n");
        return html;
    }
    html.markup("<div class=scroll tabindex=0 role=group aria-label=Waivers><table><thead><tr><th scope=col>state<th scope=col>what<th scope=col>until<th scope=col class=n>leaks<th scope=col>reason<th scope=col>owner</thead><tbody>");
    for waiver in &report.waivers {
        let (class, state) = state(waiver, report);
        html.markup("<tr><td><span class=\"badge ")
            .markup(class)
            .markup("\">")
            .text(&state)
            .markup("</span><td class=code>");
        html.text(&waiver.matches)
            .markup("<td>")
            .text(&waiver.until)
            .markup("<td class=n>")
            .text(&waiver.used.to_string());
        html.markup("<td>").text(&waiver.reason).markup("<td>").text(waiver.owner.as_deref().unwrap_or(""));
    }
    html.markup("</tbody></table></div></section>\n");
    html
}

fn state(waiver: &WaiverReport, report: &RunReport) -> (&'static str, String) {
    if let Some((verdict, fixed)) = crate::base::fixed(waiver) {
        return (if verdict == Verdict::Fail { "fail" } else { "warn" }, fixed);
    }
    match waiver.state {
        WaiverState::Expired => ("fail", "expired".to_owned()),
        WaiverState::Unused => ("warn", unused(waiver, report)),
        WaiverState::InForce => match days_until(&report.started, &waiver.until) {
            Some(days) if days <= SOON_DAYS => {
                let days = usize::try_from(days).unwrap_or(0);
                ("warn", format!("in force, ends in {}", format_number_of(days, "day")))
            }
            _ => ("pass", "in force".to_owned()),
        },
    }
}

pub(super) fn excluded(report: &RunReport) -> Html {
    let mut html = Html::default();
    let mut failed = Vec::new();
    let mut skipped = Vec::new();
    let mut unscreened = Vec::new();
    for suite in &report.suites {
        for test in suite.tests.iter().filter(|test| test.verdict == Verdict::NotJudged) {
            let list = match test.outcome {
                Outcome::Skipped => &mut skipped,
                Outcome::Passed => &mut unscreened,
                Outcome::Failed | Outcome::Crashed | Outcome::TimedOut => &mut failed,
            };
            list.push(SuiteTest { suite, test }.qualified());
        }
    }
    html.markup(
        "<section id=excluded aria-labelledby=excluded-h><h2 id=excluded-h>What was excluded</h2><ul>",
    );
    html.markup("<li>The agent's own memory, threads and descriptors: counted apart, below.");
    html.markup("<li>Frames of the C library, the test runner and the agent: left out of stacks and of the ids of leaks.");
    for (names, what) in [
        (failed, "not judged for leaks, failed otherwise"),
        (skipped, "skipped"),
        (unscreened, "passed, and not judged for leaks"),
    ] {
        if !names.is_empty() {
            html.element(
                "li",
                &format!("{} {what}: {}", format_number_of(names.len(), "test"), format_list(&names, LISTED)),
            );
        }
    }
    let waived = report.entries().flat_map(|test| &test.leaks);
    let waived = waived.filter(|leak| leak.waiver.is_some()).count();
    if waived > 0 {
        html.element(
            "li",
            &format!(
                "{} in force: listed with their tests, in no sum",
                format_number_of(waived, "waived leak")
            ),
        );
    }
    html.markup("</ul></section>\n");
    html
}

pub(super) fn cost(report: &RunReport) -> Html {
    let cost = &report.agent_cost;
    let mut html = Html::default();
    html.markup("<section id=cost aria-labelledby=cost-h><h2 id=cost-h>What measuring cost</h2><dl>");
    let cpu = cost.cpu_ratio.map_or_else(
        || "not estimated".to_owned(),
        |ratio| format!("{:.0} % more than without it", 100.0 * (ratio - 1.0)),
    );
    // The sum of no floats is -0.
    let screened = report.suites.iter().map(|suite| suite.screened_s).sum::<f64>().abs();
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    let peak = format_bytes(cost.peak_bytes as f64);
    for (what, value) in [
        ("the agent: CPU time of the tests, each once", cpu),
        ("the agent: memory, at most in one process", peak),
        ("the agent: time at starts and boundaries", format!("{:.2} s", cost.boundary_s)),
        ("the tests, each once", format!("{screened:.1} s")),
        ("repeating tests", format!("{:.1} s of {:.1} s in all", cost.repeated_s, report.duration_s)),
        ("stacks not unwound to their root", cost.truncated_stacks.to_string()),
    ] {
        html.element("dt", what).element("dd", &value);
    }
    for suite in &report.suites {
        if let Some(screen) = &suite.screen_cost {
            html.markup("<dt>rounds of ").text(&suite.name).markup("</dt>");
            let (alone, all) = (screen.alone_s, screen.screened_s);
            html.element("dd", &format!("{all:.1} s, {:.1} × the tests alone ({alone:.1} s)", screen.ratio));
        }
    }
    html.markup("</dl></section>\n");
    let told: Vec<_> =
        report.suites.iter().filter_map(|suite| Some((&suite.name, suite.app_memory.as_ref()?))).collect();
    if !told.is_empty() {
        html.markup(
            "<section id=app aria-labelledby=app-h><h2 id=app-h>Memory of the app, as Android tells it</h2><dl>",
        );
        for (name, memory) in told {
            html.element("dt", name).element("dd", &format!("behind {}", app_memory(memory)));
        }
        html.markup("</dl></section>\n");
    }
    html
}

pub(super) fn method(report: &RunReport) -> Html {
    let mut html = Html::default();
    html.markup("<section id=how aria-labelledby=how-h><h2 id=how-h>How verdicts are made</h2><ol>");
    html.markup("<li><b>Screen.</b> Every test runs once. What was allocated in its window and is alive at its end is held against the threshold; most tests pass here.");
    html.markup("<li><b>Confirm.</b> Only a suspect runs again, alone, after a warm-up, in iterations. The values at the end of each give a Theil–Sen slope with its confidence interval.");
    html.markup("<li><b>Judge.</b> FAIL: the lower bound is above the threshold and growth has not come to rest. PASS: the upper bound is not above it, or growth came to rest. Else WARN. What could not be measured is an ERROR, never a pass.</ol>");
    html.markup("<ul>");
    for (suite, interval) in report.suites.iter().filter_map(|suite| Some((suite, suite.native_sampling?))) {
        html.element("li", &format!("{}: {}", suite.name, sampled(interval)));
    }
    for (suite, hunt) in report.suites.iter().filter_map(|suite| Some((suite, suite.hunt.as_ref()?))) {
        html.element("li", &format!("{}: {}", suite.name, hunted(hunt)));
    }
    for suite in &report.suites {
        let boundary = match suite.boundary {
            BoundaryQuality::Exact => "exact boundaries, from inside the process",
            BoundaryQuality::Class => "exact boundaries, of test classes",
            BoundaryQuality::Observed => "boundaries observed from outside",
            BoundaryQuality::Process => "the process is the test",
        };
        let stacks = if suite.stacks_of_suspects { ", call stacks of suspects alone" } else { "" };
        html.element("li", &format!("{}: runner {}, {boundary}{stacks}", suite.name, suite.runner));
    }
    let confidence = report.entries().flat_map(|t| t.metrics.values()).map(|v| v.confidence);
    let confidence = confidence.fold(0.0, f64::max);
    if confidence > 0.0 {
        html.element("li", &format!("confidence of the intervals: {} %", format_count(confidence * 100.0)));
    }
    html.markup("</ul></section>\n");
    html
}
