//! The frame of the page, and its top.

use memgate_model::{RunReport, SuiteReport, format_number_of, short_commit};
use sha2::{Digest as _, Sha256};

use super::write::Html;
use super::{icicle, sections, test};
use crate::culprit;
use crate::error::RenderError;
use crate::summary::{headline, reasons};
use crate::words::verdict_word;

/// The only style sheet, for the report and for the pages of a history.
pub const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Most suites named in the head.
const SUITES: usize = 10;

/// The report as a page.
///
/// # Errors
/// When a chart cannot be drawn.
pub fn html(report: &RunReport) -> Result<String, RenderError> {
    let title =
        format!("{}: {}", report.project, culprit::of_run(report).unwrap_or_else(|| headline(report)));
    let mut page = begun(&title, &format!("script-src 'sha256-{}'; ", base64(&Sha256::digest(SCRIPT))));
    top(&mut page, report);
    let sections = [
        ("problems", "Problems", sections::problems(report)),
        ("warnings", "Warnings", sections::warnings(report)),
        ("tests", "Tests", test::list(report)?),
        ("shards", "Shards", sections::shards(report)),
        ("memory", "Memory over the run", sections::memory(report)?),
        ("stacks", "Leaked bytes by stack", icicle::section(report)?),
        ("once", "One-time growth", sections::one_time(report)),
        ("followed", "Followed objects", sections::followed(report)),
        ("waivers", "Waivers", sections::waivers(report)),
        ("excluded", "What was excluded", sections::excluded(report)),
        ("cost", "What measuring cost", sections::cost(report)),
        ("how", "How verdicts are made", sections::method(report)),
    ];
    page.markup("<nav aria-label=Contents>");
    for (id, title, section) in &sections {
        if !section.0.is_empty() {
            page.markup("<a href=#").markup(id).markup(">").markup(title).markup("</a> ");
        }
    }
    page.markup("</nav>\n<main id=main>\n");
    for (.., section) in &sections {
        page.part(section);
    }
    page.markup("</main>\n<script>").markup(SCRIPT).markup("</script>\n</body>\n</html>\n");
    Ok(page.0)
}

/// A page with the same look, without a script.
#[must_use]
pub fn document(title: &str, body: &Html) -> String {
    let mut page = begun(title, "");
    page.part(body).markup("</body>\n</html>\n");
    page.0
}

/// The page up to its body. Nothing is loaded from other places. Inline, only the one style sheet and the scripts that
/// `scripts` allows may be used.
fn begun(title: &str, scripts: &str) -> Html {
    let style = base64(&Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; {scripts}base-uri 'none'; form-action 'none'"
    );
    let mut page = Html(String::with_capacity(64 << 10));
    page.markup("<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n");
    page.markup("<meta http-equiv=Content-Security-Policy").attribute("content", &policy).markup(">\n");
    page.markup("<meta name=viewport content=\"width=device-width, initial-scale=1\">\n");
    page.markup("<meta name=color-scheme content=\"light dark\">\n");
    page.element("title", title);
    page.markup("\n<style>").markup(STYLE).markup("</style>\n</head>\n<body>\n");
    page
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let block =
            chunk.iter().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let index = (block >> (18 - 6 * digit)) & 63;
            text.push(if digit > chunk.len() { '=' } else { char::from(DIGITS[index as usize]) });
        }
    }
    text
}

/// The leaking function, or the run in one line; reasons; the origin of the run.
fn top(page: &mut Html, report: &RunReport) {
    let (class, word) = verdict_word(report.verdict);
    page.markup("<a class=skip href=#main>Skip to the tests</a>\n<header>\n<p class=crumb>");
    page.text(&report.project).markup(" · session ").text(&report.session);
    page.markup("</p>\n<h1><span class=\"badge ").markup(class).markup("\">").markup(word).markup("</span> ");
    let (counts, culprit) = (headline(report), culprit::of_run(report));
    page.text(culprit.as_ref().unwrap_or(&counts)).markup("</h1>\n");
    if culprit.is_some() {
        page.element("p class=counts", &counts);
    }
    let reasons = reasons(report);
    if !reasons.is_empty() {
        page.markup("<ul class=reasons>");
        for reason in reasons {
            page.markup("<li>");
            match &reason.anchor {
                Some(anchor) => page.markup("<a").attribute("href", &format!("#{anchor}")).markup(">"),
                None => page.markup("<b>"),
            };
            page.text(&reason.name).markup(if reason.anchor.is_some() { "</a> " } else { "</b> " });
            page.text(&reason.text);
        }
        page.markup("</ul>\n");
    }
    page.markup("<dl class=origin>");
    origin(page, report);
    page.markup("</dl>\n</header>\n");
}

/// Commit, job, suites, machine, versions, as far as they are known.
fn origin(page: &mut Html, report: &RunReport) {
    let origin = report.origin.clone().unwrap_or_default();
    if let Some(commit) = &origin.commit {
        let on = [("", &commit.branch), (" into ", &commit.target)];
        let branch: String =
            on.iter().filter(|(_, name)| !name.is_empty()).map(|(to, name)| format!("{to}{name}")).collect();
        let sha = short_commit(&commit.sha);
        let known: Vec<&str> = [sha, branch.as_str()].into_iter().filter(|text| !text.is_empty()).collect();
        fact(page, "commit", &known.join(" on "));
    }
    if let Some(ci) = &origin.ci {
        let number = if ci.number.is_empty() { String::new() } else { format!("#{}", ci.number) };
        let words = [ci.provider.as_str(), ci.job.as_str(), number.as_str()];
        let text = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        page.markup("<dt>job</dt><dd>");
        // A link with any other scheme could run code.
        if ci.url.starts_with("https://") || ci.url.starts_with("http://") {
            page.markup("<a rel=\"noopener noreferrer\"")
                .attribute("href", &ci.url)
                .markup(">")
                .text(&text)
                .markup("</a>");
        } else {
            page.text(&text);
        }
        page.markup("</dd>");
    }
    let suite = |suite: &SuiteReport| {
        let tests = format_number_of(crate::words::tests_of(suite), "test");
        format!("{} ({tests}, screened in {:.1} s)", suite.name, suite.screened_s)
    };
    let shown: Vec<_> = report.suites.iter().take(SUITES).map(suite).collect();
    let more = report.suites.len().saturating_sub(SUITES);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    if !shown.is_empty() {
        fact(page, "suites", &(shown.join(", ") + &more));
    }
    page.markup("<dt>began</dt><dd><time>").text(&report.started).markup("</time>");
    page.text(&format!(", {:.1} s in all, exit code {}", report.duration_s, report.exit_code))
        .markup("</dd>");
    if let Some(machine) = &origin.machine {
        let processors = format_number_of(machine.processors, "processor");
        let words = [&machine.host, &machine.system, &machine.kernel, &machine.architecture, &processors];
        let known: Vec<&str> =
            words.into_iter().map(String::as_str).filter(|word| !word.is_empty()).collect();
        fact(page, "machine", &known.join(", "));
    }
    let versions: Vec<_> =
        origin.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    if !versions.is_empty() {
        fact(page, "versions", &versions.join(", "));
    }
}

fn fact(page: &mut Html, name: &'static str, value: &str) {
    if !value.is_empty() {
        page.element("dt", name).element("dd", value);
    }
}
