//! A summary in Markdown, for the step summaries and comments of CI systems: the most important part first, and never
//! longer than the CI system allows.
//!
//! Text from outside is inside `<code>` or `<pre>` tags, or has its punctuation as entities: it cannot format, link or
//! notify anybody.

use memgate_model::{Leak, LeakKind, RunReport, Verdict, WaiverState, format_bytes, format_number_of};

use crate::html::escape;
use crate::human::{BlockStyle, accepting, hunted, leak_stack, waive_command};
use crate::suite_test::SuiteTest;
use crate::summary::{headline, in_short, statistics, unused};
use crate::visible::visible;
use crate::words::symbol;
use crate::worst::not_passed;

/// Limit of a GitHub step summary: 1 MiB.
pub const STEP_SUMMARY_BYTES: usize = 1 << 20;
/// Limit of a GitHub comment: 65,536 characters; a text never has fewer bytes.
pub const COMMENT_BYTES: usize = 65_536;

/// Most rows of the table; the details below show no more tests either.
const ROWS: usize = 50;
const LEAKS_OF_A_TEST: usize = 5;
/// Bytes reserved for the line about parts that did not fit.
const RESERVE: usize = 120;

/// The report in Markdown, at most `most` bytes.
#[must_use]
pub fn markdown(report: &RunReport, most: usize) -> String {
    let mut text = Text { text: String::new(), most: most.saturating_sub(RESERVE), left_out: 0 };
    text.push(&format!("## {} memgate: {}\n\n", symbol(report.verdict), inline(&headline(report))));
    let tests = not_passed(report);
    for problem in &report.errors {
        text.push(&format!("- **{}**: {}\n", inline(&problem.r#where), inline(&problem.what)));
    }
    for warning in &report.warnings {
        text.push(&format!("- warning: {}\n", inline(warning)));
    }
    for suite in report.suites.iter().filter(|suite| !suite.reason.is_empty()) {
        text.push(&format!("- **{}** (suite): {}\n", inline(&suite.name), inline(&suite.reason)));
    }
    for (suite, hunt) in report.suites.iter().filter_map(|suite| Some((suite, suite.hunt.as_ref()?))) {
        text.push(&format!("- **{}** (suite): {}\n", inline(&suite.name), inline(&hunted(hunt))));
    }
    text.push(&table(&tests));
    let style = BlockStyle::plain(report);
    for at in tests.iter().take(ROWS).filter(|at| !at.test.leaks.is_empty()) {
        text.push(&details(*at, &style));
    }
    text.push(&waivers(report));
    text.push(&format!(
        "\n<sub>{}, began {}, {:.1} s, session {}</sub>\n",
        inline(&report.project),
        inline(&report.started),
        report.duration_s,
        inline(&report.session)
    ));
    text.finish()
}

/// Text with a size limit; counts the parts that do not fit.
struct Text {
    text: String,
    most: usize,
    left_out: usize,
}

impl Text {
    fn push(&mut self, part: &str) {
        if self.text.len() + part.len() <= self.most {
            self.text.push_str(part);
        } else {
            self.left_out += 1;
        }
    }

    fn finish(mut self) -> String {
        if self.left_out > 0 {
            self.text += &format!(
                "\n*{} did not fit; the HTML report has all.*\n",
                format_number_of(self.left_out, "part")
            );
        }
        self.text
    }
}

fn table(tests: &[SuiteTest<'_>]) -> String {
    if tests.is_empty() {
        return String::new();
    }
    let mut table = "\n| | who | test |\n|---|---|---|\n".to_owned();
    for at in tests.iter().take(ROWS) {
        let (name, short) = (code(&at.qualified()), inline(&shortened(&in_short(at.test))));
        table += &format!("| {} | {short} | {name} |\n", word(at.test.verdict));
    }
    if tests.len() > ROWS {
        table += &format!("| | and {} more | |\n", tests.len() - ROWS);
    }
    table
}

fn shortened(text: &str) -> String {
    const LONGEST: usize = 300;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn details(at: SuiteTest<'_>, style: &BlockStyle) -> String {
    let test = at.test;
    let mut text = format!("\n<details><summary>{}</summary>\n\n", code(&at.qualified()));
    for figure in statistics(test) {
        text += &format!("{}\n\n", inline(&figure));
    }
    for leak in test.leaks.iter().take(LEAKS_OF_A_TEST) {
        text += &leak_block(leak, at, style);
    }
    if test.leaks.len() > LEAKS_OF_A_TEST {
        text += &format!("and {} smaller groups\n\n", test.leaks.len() - LEAKS_OF_A_TEST);
    }
    text + "</details>\n"
}

fn leak_block(leak: &Leak, at: SuiteTest<'_>, style: &BlockStyle) -> String {
    let stack = leak_stack(leak, style);
    // Each line already has only visible characters; only the markup has to be escaped.
    let lines: Vec<_> = stack.lines().map(escape).collect();
    let waiver = match &leak.waiver {
        Some(reason) => format!("waived: {}", inline(reason)),
        None => format!("{}: {}", accepting(leak), code(&waive_command(leak, at, &style.until))),
    };
    // Descriptors and threads have no bytes; their title has their number.
    let bytes = match leak.kind {
        LeakKind::Os => String::new(),
        kind => format!(" · {}{}", format_bytes(leak.bytes_per_iteration), kind.per()),
    };
    let owner = match leak.owners.as_slice() {
        [] => String::new(),
        owners => format!(" · owner {}", inline(&owners.join(" "))),
    };
    format!("<pre>\n{}\n</pre>\n\n{}{bytes}{owner} · {waiver}\n\n", lines.join("\n"), code(&leak.id))
}

fn waivers(report: &RunReport) -> String {
    let mut text = String::new();
    for waiver in report.waivers.iter().filter(|waiver| waiver.state != WaiverState::InForce) {
        let state = match waiver.state {
            WaiverState::Expired => format!("ended {} and covers nothing any more", inline(&waiver.until)),
            _ => inline(&unused(waiver, report)),
        };
        text += &format!("- waiver {}: {state}\n", code(&waiver.matches));
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fail => "**FAIL**",
        Verdict::Error => "**ERROR**",
        Verdict::Warn => "WARN",
        Verdict::NotJudged => "not judged",
        Verdict::Pass => "pass",
    }
}

fn code(text: &str) -> String {
    format!("<code>{}</code>", inline(text))
}

/// Plain words: punctuation that could have a meaning is written as an entity.
fn inline(text: &str) -> String {
    let mut safe = String::new();
    for c in visible(text).chars() {
        match c {
            '.' | ',' | '-' | '/' | '(' | ')' | '%' | ' ' => safe.push(c),
            // GitHub searches for these characters after rendering, where an entity is the character itself.
            '@' | '#' => {
                safe += &format!("&#{};&#8203;", u32::from(c));
            }
            c if c.is_ascii_punctuation() => {
                safe += &format!("&#{};", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use memgate_model::TestReport;
    use pulldown_cmark::{Event, Options, Parser, Tag, html::push_html};

    use super::*;
    use crate::sample;

    fn rendered(text: &str) -> String {
        let mut html = String::new();
        push_html(&mut html, Parser::new_ext(text, Options::ENABLE_TABLES));
        html
    }

    #[test]
    fn a_summary_begins_with_the_verdict_and_names_each_failure() {
        insta::assert_snapshot!(markdown(&sample::leak(), STEP_SUMMARY_BYTES));
        let html = rendered(&markdown(&sample::mixed(), STEP_SUMMARY_BYTES));
        assert!(html.starts_with("<h2>❌ memgate: 1 of "), "{html}");
        assert!(html.find("FAIL").unwrap() < html.find("ERROR").unwrap(), "{html}");
        assert!(html.contains("<table>") && html.contains("memgate waive n1-"), "{html}");
    }

    #[test]
    fn text_from_outside_formats_nothing() {
        let mut report = sample::hostile();
        report.project = "**bold** [x](http://y) ![i](http://z) <b>".to_owned();
        report.suites[0].tests[0].id = "a|b`c*d_e <img src=x> @team #12".to_owned();
        let text = markdown(&report, STEP_SUMMARY_BYTES);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        for event in Parser::new_ext(&text, Options::ENABLE_TABLES) {
            if let Event::Start(tag) = &event {
                assert!(!matches!(tag, Tag::Link { .. } | Tag::Image { .. }), "{tag:?}");
            }
            if let Event::Html(html) | Event::InlineHtml(html) = &event {
                for markup in html.split('<').skip(1) {
                    let known = [
                        "code>",
                        "/code>",
                        "pre>",
                        "/pre>",
                        "details>",
                        "/details>",
                        "summary>",
                        "/summary>",
                        "sub>",
                        "/sub>",
                    ];
                    assert!(known.iter().any(|tag| markup.starts_with(tag)), "{markup}");
                }
            }
        }
    }

    #[test]
    fn it_never_gets_too_long_and_says_what_is_missing() {
        let mut report = sample::mixed();
        let test = report.suites[0].tests[1].clone();
        report.suites[0].tests =
            (0..5000).map(|n| TestReport { id: format!("Many.n{n}"), ..test.clone() }).collect();
        for most in [STEP_SUMMARY_BYTES, COMMENT_BYTES, 2000, 0] {
            let text = markdown(&report, most);
            assert!(text.len() <= most.max(RESERVE), "{} of {most}", text.len());
            if most == 2000 {
                assert!(text.starts_with("## ❌ memgate: 5000 of 5001 tests leak"), "{text}");
                assert!(text.contains("did not fit"), "{text}");
            }
        }
    }

    #[test]
    fn a_descriptor_has_its_own_figure_and_no_bytes_and_each_leak_its_owner() {
        let html = rendered(&markdown(&sample::mixed(), STEP_SUMMARY_BYTES));
        assert!(html.contains("<p>1 descriptor per iteration (allowed 0), 12 iterations</p>"), "{html}");
        assert!(html.contains("<code>o1-1b2e09a2b47d1e03</code> · to accept it for now"), "{html}");
        assert!(
            html.contains("256 B per iteration · owner @\u{200b}maps anna@\u{200b}example.com"),
            "{html}"
        );
    }
}
