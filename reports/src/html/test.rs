//! The tests: for each a row with the main facts, and a body with curves, leaks and the steps to the verdict.

use std::collections::BTreeSet;

use memgate_model::{
    MetricValue, Outcome, RunReport, Runner, SuiteReport, TestReport, ThresholdSource, Verdict, format_bytes,
    format_count, format_number_of, format_value,
};

use super::figure::figure;
use super::leak;
use super::write::Html;
use crate::chart::plots_of;
use crate::error::RenderError;
use crate::figures::{exact, per, wide};
use crate::suite_test::SuiteTest;
use crate::summary::{Anchors, in_short, statistics};
use crate::words::{own_outcome, verdict_word, waive_until};
use crate::worst::{leaked_bytes, not_passed};
use crate::{clean, rerun};

/// Number of bodies that are part of the page. All others are lines of text until they are opened, in the order of
/// their rows.
const OPEN_BODIES: usize = 50;

const MANY: usize = 300;

pub(super) fn list(report: &RunReport) -> Result<Html, RenderError> {
    let mut html = Html::default();
    let total: usize = report.suites.iter().map(crate::words::tests_of).sum();
    if total == 0 {
        return Ok(html);
    }
    html.markup("<section id=tests aria-labelledby=tests-h><h2 id=tests-h>Tests</h2>\n");
    toolbar(&mut html, report, total);
    // If there are far more rows than a screen holds, only visible ones are drawn.
    html.markup(if total > MANY { "<div id=list class=many>\n" } else { "<div id=list>\n" });
    let anchors = Anchors::new(report);
    let first = not_passed(report);
    let seen: BTreeSet<_> = first.iter().map(|at| std::ptr::from_ref(at.test)).collect();
    let mut clean = Clean::default();
    let mut rest = Vec::new();
    for (number, suite) in report.suites.iter().enumerate() {
        let figures = clean::figures(suite);
        clean.suite(suite, figures);
        for test in suite.tests.iter().filter(|test| !seen.contains(&std::ptr::from_ref(*test))) {
            if clean::is_clean(test, figures) {
                clean.test(number, test, &anchors);
            } else {
                rest.push(SuiteTest { suite, test });
            }
        }
    }
    // All of them share one element: five thousand more elements would take a third of the time in which a browser
    // opens the page.
    let mut closed = Html::default();
    for (index, at) in first.iter().copied().chain(rest).enumerate() {
        let parsed = index < OPEN_BODIES && index < first.len();
        let anchor = anchors.of(at.test);
        row(&mut html, at, &anchor, index == 0 && parsed);
        let body = body(report, at, &anchor)?;
        if parsed {
            html.markup("<div class=body>").part(&body).markup("</div>");
        } else {
            closed.line(&body);
        }
        html.markup("</details>\n");
    }
    html.markup("</div><button type=button id=more hidden></button><script type=\"text/plain\" id=bodies>")
        .part(&closed);
    html.markup("</script><script type=\"text/plain\" id=clean-suites>").part(&clean.suites);
    html.markup("</script><script type=\"text/plain\" id=clean>").part(&clean.tests).markup("</script><noscript><p>Tests that passed can only be opened with scripts allowed.</p></noscript></section>\n");
    Ok(html)
}

/// Tests that left nothing, a line each: suite, milliseconds, name, and the anchor if the name does not determine it.
/// The script of the page makes rows of the visible ones.
#[derive(Default)]
struct Clean {
    /// For each suite its name, and a body without the parts that differ between its tests.
    suites: Html,
    tests: Html,
}

impl Clean {
    fn suite(&mut self, suite: &SuiteReport, clean: Option<&clean::Figures>) {
        self.suites.text(&suite.name).markup("\t");
        if let Some(figures) = clean {
            let steps = how_unconfirmed(Verdict::Pass, suite.runner);
            let mut body = Html::default();
            self::figures(&mut body, figures);
            method(&mut body, &[steps]);
            self.suites.part(&body);
        }
        self.suites.markup("\n");
    }

    fn test(&mut self, number: usize, test: &TestReport, anchors: &Anchors) {
        let milliseconds = format!("{:.1}", test.duration_s * 1000.0);
        self.tests.text(&number.to_string()).markup("\t").text(&milliseconds).markup("\t").text(&test.id);
        let anchor = anchors.of(test);
        // Only a second test of the same name has an anchor of its own.
        if anchor.contains('~') {
            self.tests.markup("\t").text(&anchor);
        }
        self.tests.markup("\n");
    }
}

fn toolbar(html: &mut Html, report: &RunReport, total: usize) {
    html.markup("<form id=tools role=search><label>Search <input type=search id=q autocomplete=off placeholder=\"test, function, class, leak\"></label>");
    html.markup("<label>Show <select id=verdict><option value=\"\">all verdicts");
    for verdict in [Verdict::Fail, Verdict::Error, Verdict::Warn, Verdict::NotJudged, Verdict::Pass] {
        let count = report.entries().filter(|t| t.verdict == verdict).count();
        if count > 0 {
            let (class, word) = verdict_word(verdict);
            html.markup("<option value=").markup(class).markup(">").text(&format!("{word} ({count})"));
        }
    }
    html.markup("</select></label>");
    if report.suites.len() > 1 {
        html.markup("<label>Suite <select id=suite><option value=\"\">all suites");
        for suite in &report.suites {
            html.markup("<option").attribute("value", &suite.name).markup(">").text(&suite.name);
        }
        html.markup("</select></label>");
    }
    html.markup("<label>Sort <select id=sort><option value=worst>worst first<option value=bytes>leaked bytes<option value=time>duration<option value=name>name</select></label>");
    html.markup("<output id=count aria-live=polite>")
        .text(&format_number_of(total, "test"))
        .markup("</output></form>\n");
}

/// A test without its body, which follows.
fn row(html: &mut Html, at: SuiteTest<'_>, anchor: &str, open: bool) {
    let SuiteTest { suite, test } = at;
    let (class, word) = verdict_word(test.verdict);
    let leaked = leaked_bytes(test);
    html.markup("<details class=test").attribute("id", anchor).markup(" data-v=").markup(class);
    html.attribute("data-suite", &suite.name);
    html.attribute("data-b", &leaked.to_string()).attribute("data-t", &test.duration_s.to_string());
    let found_by = found_by(test);
    if !found_by.is_empty() {
        html.attribute("data-q", &found_by);
    }
    html.markup(if open { " open" } else { "" })
        .markup("><summary><span class=\"badge ")
        .markup(class)
        .markup("\">");
    html.markup(word)
        .markup("</span> <span class=name>")
        .text(&at.qualified())
        .markup("</span> <span class=short>");
    let short =
        if test.verdict == Verdict::Pass && test.reason.is_empty() { String::new() } else { in_short(test) };
    html.text(&short).markup("</span></summary>");
}

/// Search words for a test in addition to its name: its leaks, with their classes, functions and files.
fn found_by(test: &TestReport) -> String {
    const MOST: usize = 2000;
    let mut words = Vec::new();
    for leak in test.leaks.iter().chain(&test.one_time) {
        words.push(leak.id.as_str());
        words.extend(leak.class.as_deref());
        words.extend(leak.frames.iter().filter_map(|frame| frame.function.as_deref()));
        words.extend(leak.frames.first().and_then(|frame| frame.file.as_deref()));
    }
    let mut text = words.join(" ").to_lowercase();
    if let Some((end, _)) = text.char_indices().nth(MOST) {
        text.truncate(end);
    }
    text
}

fn body(report: &RunReport, at: SuiteTest<'_>, anchor: &str) -> Result<Html, RenderError> {
    let test = at.test;
    let mut html = Html::default();
    html.markup("<p class=facts>").text(own_outcome(test.outcome));
    html.text(&format!(" in {} · ", seconds(test.duration_s)));
    html.markup("<a").attribute("href", &format!("#{anchor}")).markup(">link to this test</a></p>");
    let judged = matches!(test.verdict, Verdict::Fail | Verdict::Warn);
    let basis = if judged { statistics(test) } else { Vec::new() };
    // A basis begins with the shortest reason, which is not shown twice.
    if !test.reason.is_empty() && !basis.iter().any(|basis| basis.starts_with(&test.reason)) {
        html.element("p class=reason", &test.reason);
    }
    for basis in basis {
        html.element("p", &basis);
    }
    let until = waive_until(&report.started);
    for leak in &test.leaks {
        leak::group(&mut html, leak, Some((at, &until)));
    }
    if let Some(again) = rerun::command(report, at).filter(|_| !test.leaks.is_empty()) {
        html.markup("<p class=facts>run only this test: ");
        leak::command(&mut html, &again);
        html.markup("</p>");
    }
    html.markup("<div class=charts>");
    for plot in plots_of(test) {
        figure(&mut html, &plot)?;
    }
    html.markup("</div>");
    if !test.one_time.is_empty() {
        html.markup("<details class=more><summary>allocated once and kept, not a leak: ");
        let bytes: f64 = test.one_time.iter().map(|leak| leak.bytes_per_iteration).sum();
        html.text(&format_bytes(bytes)).markup("</summary>");
        for leak in &test.one_time {
            leak::group(&mut html, leak, None);
        }
        html.markup("</details>");
    }
    figures(&mut html, &test.metrics);
    method(&mut html, &how(at));
    Ok(html)
}

fn method(html: &mut Html, steps: &[String]) {
    html.element("h3", "How the verdict was made");
    html.markup("<ul>");
    for step in steps {
        html.element("li", step);
    }
    html.markup("</ul>");
}

fn figures(html: &mut Html, figures: &clean::Figures) {
    if figures.is_empty() {
        return;
    }
    html.markup("<div class=scroll tabindex=0 role=group aria-label=Figures><table><caption>Figures</caption><thead><tr><th scope=col>metric<th scope=col class=n>value<th scope=col>per<th scope=col class=n>interval<th scope=col class=n>allowed<th scope=col>which threshold</thead><tbody>");
    for (metric, value) in figures {
        html.markup("<tr><th scope=row>")
            .text(metric.name())
            .markup("<td class=n><data")
            .attribute("value", &value.value.to_string());
        html.markup(">").text(&exact(*metric, value.value)).markup("</data><td>");
        html.text(per(value.per)).markup("<td class=n>");
        if let Some(interval) = wide(*metric, value) {
            html.text(&interval);
        }
        html.markup("<td class=n>");
        if let Some(threshold) = &value.threshold {
            html.text(&format_value(*metric, threshold.limit))
                .markup("<td>")
                .text(&threshold.source.to_string());
        } else {
            html.markup("<td class=faint>none");
        }
    }
    html.markup("</tbody></table></div>");
}

fn seconds(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.1} ms", seconds * 1000.0) } else { format!("{seconds:.2} s") }
}

/// The steps from the first execution to the verdict, with their figures.
fn how(SuiteTest { suite, test }: SuiteTest<'_>) -> Vec<String> {
    if test.verdict == Verdict::NotJudged {
        return vec![match test.outcome {
            Outcome::Skipped => "The test skipped itself: there is nothing to judge.".to_owned(),
            Outcome::Passed => format!("What the test leaves behind is unknown: {}.", test.reason),
            _ => "The test failed by itself: what a failing test leaves behind is not judged.".to_owned(),
        }];
    }
    let mut steps = Vec::new();
    if !test.confirmed {
        steps.push(how_unconfirmed(test.verdict, suite.runner));
    } else {
        let warm_up = if test.warm_up > 0 {
            format!(", {} of warm-up before those that count", test.warm_up)
        } else {
            String::new()
        };
        steps.push(format!("Something stayed behind, so it ran again, alone, in iterations{warm_up}."));
    }
    for (metric, value) in &test.metrics {
        if let (Some(threshold), true) = (&value.threshold, value.iterations > 1) {
            steps.push(against(*metric, value, threshold.limit, &threshold.source));
        }
    }
    if !test.reason.is_empty() {
        steps.push(format!("Verdict {}: {}.", verdict_word(test.verdict).1, test.reason));
    }
    steps
}

/// The step of a test that was not run alone.
fn how_unconfirmed(verdict: Verdict, runner: Runner) -> String {
    match (verdict, runner) {
        (Verdict::Pass, Runner::Junit) => "It was not run alone: its class did not grow in the last rounds of the suite, or is judged as a whole.",
        (Verdict::Pass, _) => "It ran once, and what it left behind is within the thresholds or not judged, so it was not run again.",
        _ => "It was not confirmed by running it alone.",
    }
    .to_owned()
}

fn against(
    metric: memgate_model::Metric,
    value: &MetricValue,
    limit: f64,
    source: &ThresholdSource,
) -> String {
    let judged = if value.low > limit {
        "the whole interval is above"
    } else if value.high <= limit {
        "the interval is not above"
    } else {
        "the interval lies across"
    };
    let interval = wide(metric, value).map_or_else(String::new, |interval| {
        format!(", {} % interval {interval}", format_count(value.confidence * 100.0))
    });
    format!(
        "{metric}: {} per {} over {} iterations{interval}; allowed {} ({source}): {judged}.",
        format_value(metric, value.value),
        per(value.per),
        value.iterations,
        format_value(metric, limit),
    )
}
