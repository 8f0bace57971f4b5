//! The frame of the page, and what stands on top of it.

use memgate_model::{RunReport, Verdict};
use sha2::{Digest as _, Sha256};

use super::write::Html;
use super::{icicle, sections, test};
use crate::registry::RenderError;
use crate::summary::{headline, reasons};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The report as a page.
///
/// # Errors
/// When a chart cannot be drawn.
pub fn html(report: &RunReport) -> Result<String, RenderError> {
    let mut page = Html(String::with_capacity(64 << 10));
    page.markup("<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n");
    page.markup("<meta http-equiv=Content-Security-Policy").attribute("content", &policy()).markup(">\n");
    page.markup("<meta name=viewport content=\"width=device-width, initial-scale=1\">\n");
    page.markup("<meta name=color-scheme content=\"light dark\">\n");
    page.element("title", &format!("{}: {}", report.project, headline(report)));
    page.markup("\n<style>").markup(STYLE).markup("</style>\n</head>\n<body>\n");
    top(&mut page, report);
    page.markup("<main id=main>\n");
    page.part(&sections::problems(report));
    page.part(&test::list(report)?);
    page.part(&sections::memory(report)?);
    page.part(&icicle::section(report)?);
    page.part(&sections::one_time(report));
    page.part(&sections::followed(report));
    page.part(&sections::waivers(report));
    page.part(&sections::excluded(report));
    page.part(&sections::cost(report));
    page.part(&sections::method(report));
    page.markup("</main>\n<script>").markup(SCRIPT).markup("</script>\n</body>\n</html>\n");
    Ok(page.0)
}

/// Nothing from elsewhere; of this page only the one style and the one script.
fn policy() -> String {
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        base64(&Sha256::digest(STYLE)),
        base64(&Sha256::digest(SCRIPT)),
    )
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

/// Verdict, reasons, and where everything is.
fn top(page: &mut Html, report: &RunReport) {
    let (class, word) = verdict_word(report.verdict);
    page.markup("<a class=skip href=#main>Skip to the tests</a>\n<header>\n<p class=crumb>");
    page.text(&report.project)
        .markup(" · session ")
        .text(&report.session)
        .markup("</p>\n<h1><span class=\"badge ");
    page.markup(class)
        .markup("\">")
        .markup(word)
        .markup("</span> ")
        .text(&headline(report))
        .markup("</h1>\n");
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
    let mut facts = String::new();
    for suite in &report.suites {
        facts += &format!(
            "{} ({} tests, screened in {:.1} s) · ",
            suite.name,
            crate::human::tests_of(suite),
            suite.screened_s
        );
    }
    facts += &format!("{:.1} s in all", report.duration_s);
    page.markup("<p class=facts>began <time>").text(&report.started).markup("</time> · ").text(&facts);
    page.text(&format!(" · exit code {}", report.exit_code)).markup("</p>\n</header>\n");
}

/// Class and word of a verdict.
pub(super) const fn verdict_word(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Fail => ("fail", "FAIL"),
        Verdict::Error => ("error", "ERROR"),
        Verdict::Warn => ("warn", "WARN"),
        Verdict::NotJudged => ("not_judged", "NOT JUDGED"),
        Verdict::Pass => ("pass", "PASS"),
    }
}
