//! The evaluation mail: a subject with the changes, a page with curves, and the same as plain text.
//!
//! Data flow: report, changes and surroundings → [`Mail`] (subject, text, HTML, pictures that the HTML names as
//! `cid:…`). The harness puts it into an envelope and sends it; this file knows neither servers nor recipients.

use std::collections::BTreeSet;

use memgate_model::{Leak, RunReport, TestReport, Verdict, format_number_of};

use crate::changes::{Changes, Ended};
use crate::chart::{plots_of, png};
use crate::culprit;
use crate::error::RenderError;
use crate::figures::weight_of;
use crate::html::escape;
use crate::human::{BlockStyle, accepting, leak_stack, test_block, waive_command};
use crate::suite_test::SuiteTest;
use crate::summary::{headline, in_short, statistics};
use crate::visible::visible;
use crate::worst::not_passed;

/// Most tests in a mail: it is read on a phone.
const TESTS: usize = 10;
/// Most tests with a curve.
const CURVES: usize = 5;
const LEAKS_OF_A_TEST: usize = 3;
/// Most leaks listed as fixed or gone.
const ENDED: usize = 20;
/// Most warnings of the run.
const WARNINGS: usize = 10;
const LONGEST_SUBJECT: usize = 180;

/// Origin of the run, as far as the harness knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Branch; empty: not known.
    pub branch: String,
    /// Revision; empty: not known.
    pub commit: String,
    /// Environment; empty: that of this machine.
    pub environment: String,
    /// Page of the CI job; empty: there is none.
    pub url: String,
    /// Page of the run on a history server, which reports only changes; empty: the run itself reports everything.
    pub page: String,
}

impl Surroundings {
    /// The run in one line.
    pub(crate) fn summary(&self, report: &RunReport) -> String {
        if self.page.is_empty() { headline(report) } else { "what this run changed".to_owned() }
    }

    /// ` on main`, ` on main (aarch64)`.
    pub(crate) fn on(&self) -> String {
        let branch = if self.branch.is_empty() { String::new() } else { format!(" on {}", self.branch) };
        if self.environment.is_empty() { branch } else { format!("{branch} ({})", self.environment) }
    }

    /// Text and URL of the button.
    pub(crate) fn link(&self) -> Option<(&'static str, &str)> {
        let links = [("Open the run", self.page.as_str()), ("Open the job", self.url.as_str())];
        links.into_iter().find(|(_, url)| url.starts_with("https://"))
    }
}

/// A mail without its envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// One line.
    pub subject: String,
    /// For people who read no HTML.
    pub text: String,
    /// Refers to the pictures as `cid:NAME`.
    pub html: String,
    /// PNG pictures by name.
    pub pictures: Vec<(String, Vec<u8>)>,
    /// Name of the thread: the same for all mails of one branch.
    pub thread: String,
}

/// The mail for everybody, or for the owners of some leaks (those that `only` names).
///
/// # Errors
/// When a curve cannot be drawn.
pub fn mail(
    report: &RunReport,
    changes: &Changes,
    around: &Surroundings,
    only: Option<&BTreeSet<String>>,
) -> Result<Mail, RenderError> {
    let mut tests = not_passed(report);
    let own: Vec<_>;
    if let Some(only) = only {
        own = tests.into_iter().filter_map(|at| Some((at.suite, own_of(at.test, only)?))).collect();
        tests = own.iter().map(|(suite, test)| SuiteTest { suite, test }).collect();
    }
    let words = match only {
        Some(only) => own_words(changes, only),
        None => changes.in_words(report),
    };
    let on = around.on();
    // The leaking function comes before the counts. The mail begins with the same line.
    let culprit = culprit_of(&tests, changes);
    let words = culprit.map_or_else(|| words.clone(), |culprit| format!("{culprit} · {words}"));
    let subject = one_line(&format!("[{}] {words}{on}", report.project));
    let style = BlockStyle::plain(report);
    let mut pictures = Vec::new();
    let mut lines = if only.is_none() { warnings(report) } else { Vec::new() };
    lines.extend(ended(changes, around, only));
    let shown = Shown { report, around, words: &words, tests: &tests, lines: &lines };
    let html = page(&shown, changes, &style, &mut pictures)?;
    let thread = format!("{}/{}", report.project, around.branch);
    Ok(Mail { subject, text: plain(&shown, &style), html, pictures, thread })
}

/// The leak that a title names: the largest of those that changed, else the first of the worst test.
pub(crate) fn culprit_of(tests: &[SuiteTest<'_>], changes: &Changes) -> Option<String> {
    let failed = || tests.iter().map(|at| at.test).filter(|test| test.verdict == Verdict::Fail);
    let leaks = || failed().flat_map(|test| test.leaks.iter().map(move |leak| (leak, test)));
    let counted = || leaks().filter(|(leak, _)| leak.waiver.is_none());
    let changed = counted().filter(|(leak, _)| changes.word(&leak.id).is_some());
    let weight = |(leak, test): &(&Leak, &TestReport)| weight_of(leak, test);
    let largest = changed.min_by(|a, b| weight(b).total_cmp(&weight(a)));
    let largest = largest.map(|(leak, test)| (culprit::holding(leak, test), test));
    let first = || failed().find_map(|test| Some((*culprit::worst_first(test).first()?, test)));
    let (leak, test) = largest.or_else(first)?;
    Some(culprit::of_holder(leak, test))
}

/// The test with only these leaks; `None` if it has none of them.
fn own_of(test: &TestReport, only: &BTreeSet<String>) -> Option<TestReport> {
    let mut test = test.clone();
    test.leaks.retain(|leak| only.contains(&leak.id));
    (!test.leaks.is_empty()).then_some(test)
}

fn own_words(changes: &Changes, only: &BTreeSet<String>) -> String {
    let count = |word: &str| only.iter().filter(|id| changes.word(id) == Some(word)).count();
    let (new, regressed, larger) = (count("new"), count("regressed"), count("larger"));
    let ended: Vec<&Ended> = only.iter().filter_map(|id| changes.gone.get(id)).collect();
    let fixed = ended.iter().filter(|ended| ended.fixed).count();
    let stays = |id: &&String| changes.word(id).is_none() && !changes.gone.contains_key(*id);
    let (stay, gone) = (only.iter().filter(stays).count(), ended.len() - fixed);
    let parts = [
        (new, "new leak", ""),
        (regressed, "regressed leak", ""),
        (larger, "larger leak", ""),
        (stay, "known leak", ""),
        (fixed, "leak", " fixed"),
        (gone, "leak", " gone"),
    ];
    let parts = parts.into_iter().filter(|(count, ..)| *count > 0);
    let parts: Vec<String> =
        parts.map(|(count, what, after)| format!("{}{after}", format_number_of(count, what))).collect();
    format!("{} in your code", parts.join(", "))
}

/// A header is one line of visible characters.
fn one_line(text: &str) -> String {
    let text = visible(text);
    match text.char_indices().nth(LONGEST_SUBJECT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

fn facts(report: &RunReport, around: &Surroundings) -> Vec<(&'static str, String)> {
    let mut facts = vec![("project", report.project.clone())];
    for (name, value) in [
        ("branch", &around.branch),
        ("environment", &around.environment),
        ("revision", &around.commit),
        ("job", &around.url),
        ("run", &around.page),
    ] {
        if !value.is_empty() {
            facts.push((name, value.clone()));
        }
    }
    facts.push(("began", report.started.clone()));
    facts.push(("session", report.session.clone()));
    facts
}

/// The warnings of the run, a line each.
fn warnings(report: &RunReport) -> Vec<String> {
    let mut lines: Vec<String> =
        report.warnings.iter().take(WARNINGS).map(|warning| format!("warning: {warning}")).collect();
    if report.warnings.len() > WARNINGS {
        lines.push(format!("and {}", format_number_of(report.warnings.len() - WARNINGS, "more warning")));
    }
    lines
}

/// The leaks that are gone, a line each.
fn ended(changes: &Changes, around: &Surroundings, only: Option<&BTreeSet<String>>) -> Vec<String> {
    let wanted = |id: &String| only.is_none_or(|only| only.contains(id));
    let all: Vec<_> = changes.gone.iter().filter(|(id, _)| wanted(id)).collect();
    let by = if around.commit.is_empty() { String::new() } else { format!(" by {}", around.commit) };
    let line = |(id, ended): &(&String, &Ended)| {
        let state = if ended.fixed { format!("fixed{by}") } else { "gone".to_owned() };
        format!("{state}: {} (leak {id} in {})", ended.line, ended.suite)
    };
    let mut lines: Vec<String> = all.iter().take(ENDED).map(line).collect();
    if all.len() > ENDED {
        lines.push(format!("and {} more leaks fixed or gone", all.len() - ENDED));
    }
    lines
}

/// The contents of the page and of the plain text.
struct Shown<'a> {
    report: &'a RunReport,
    around: &'a Surroundings,
    words: &'a str,
    tests: &'a [SuiteTest<'a>],
    /// The warnings of the run, then the leaks that are gone.
    lines: &'a [String],
}

fn plain(&Shown { report, around, words, tests, lines }: &Shown<'_>, style: &BlockStyle) -> String {
    let mut text = format!("{}\n", visible(words));
    let summary = around.summary(report);
    if summary != words {
        text += &format!("{}\n", visible(&summary));
    }
    text.push('\n');
    for at in tests.iter().take(TESTS) {
        text += &test_block(*at, &visible(&at.qualified()), None, style);
        text.push('\n');
    }
    if tests.len() > TESTS {
        text += &format!("and {} more tests\n\n", tests.len() - TESTS);
    }
    for problem in &report.errors {
        text += &format!(
            "{}: {} {}\n",
            visible(&problem.r#where),
            visible(&problem.what),
            visible(&problem.hint)
        );
    }
    for line in lines {
        text += &format!("{}\n", visible(line));
    }
    if !lines.is_empty() {
        text.push('\n');
    }
    for (name, value) in facts(report, around) {
        text += &format!("{name}: {}\n", visible(&value));
    }
    text
}

/// Mail programs support little: tables, a few inline styles, embedded pictures.
fn page(
    &Shown { report, around, words, tests, lines }: &Shown<'_>,
    changes: &Changes,
    style: &BlockStyle,
    pictures: &mut Vec<(String, Vec<u8>)>,
) -> Result<String, RenderError> {
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{0}</title></head>\n<body style=\"font-family:sans-serif;font-size:15px;line-height:1.4\">\n<h1 style=\"font-size:20px\">{0}</h1>\n",
        escape(words),
    );
    let summary = around.summary(report);
    if summary != words {
        html += &format!("<p>{}</p>\n", escape(&summary));
    }
    for at in tests.iter().take(TESTS) {
        html += &test_section(*at, changes, style, pictures)?;
    }
    if tests.len() > TESTS {
        html += &format!("<p>and {} more tests</p>\n", tests.len() - TESTS);
    }
    for problem in &report.errors {
        html += &format!(
            "<p><b>{}</b>: {} {}</p>\n",
            escape(&problem.r#where),
            escape(&problem.what),
            escape(&problem.hint)
        );
    }
    for line in lines {
        html += &format!("<p>{}</p>\n", escape(line));
    }
    Ok(html + &facts_table(report, around) + "</body></html>\n")
}

/// The origin of the run.
fn facts_table(report: &RunReport, around: &Surroundings) -> String {
    let mut html = "<table style=\"color:#57606a;font-size:13px\">\n".to_owned();
    for (name, value) in facts(report, around) {
        let value = escape(&value);
        let shown = if name == "job" && value.starts_with("https://") {
            format!("<a href=\"{value}\">{value}</a>")
        } else {
            value
        };
        html += &format!("<tr><td>{name}</td><td>{shown}</td></tr>\n");
    }
    html + "</table>\n"
}

/// Verdict and name of a test, its curve, its leaks.
fn test_section(
    at: SuiteTest<'_>,
    changes: &Changes,
    style: &BlockStyle,
    pictures: &mut Vec<(String, Vec<u8>)>,
) -> Result<String, RenderError> {
    let test = at.test;
    let word = test.verdict.label();
    let colour = match test.verdict {
        Verdict::Fail | Verdict::Error => "#a40e26",
        Verdict::Warn => "#7d4e00",
        Verdict::NotJudged => "#57606a",
        Verdict::Pass => "#116329",
    };
    let mut html = format!(
        "<h2 style=\"font-size:16px;margin-bottom:4px\"><span style=\"color:{colour}\">{word}</span> {}</h2>\n<p>{}</p>\n",
        escape(&at.qualified()),
        escape(&in_short(test)),
    );
    if let Some(plot) = plots_of(test).into_iter().next().filter(|_| pictures.len() < CURVES) {
        let name = format!("curve{}", pictures.len() + 1);
        html += &format!(
            "<p><img src=\"cid:{name}\" width=\"640\" alt=\"{}\" style=\"max-width:100%;height:auto\"></p>\n",
            escape(&plot.summary)
        );
        pictures.push((name, png(&plot)?));
    }
    for leak in test.leaks.iter().take(LEAKS_OF_A_TEST) {
        html += &leak_block(leak, at, changes, style);
    }
    for figure in statistics(test) {
        html += &format!("<p style=\"font-size:13px\">{}</p>\n", escape(&figure));
    }
    Ok(html)
}

fn leak_block(leak: &Leak, at: SuiteTest<'_>, changes: &Changes, style: &BlockStyle) -> String {
    let lines: Vec<_> = leak_stack(leak, style)
        .lines()
        .map(|line| escape(line.strip_prefix("      ").unwrap_or(line)))
        .collect();
    let word = changes.word(&leak.id).filter(|_| changes.compared);
    let word = word.map_or_else(String::new, |word| format!(" <b>{word}</b>"));
    let waived = match &leak.waiver {
        Some(reason) => format!(", waived: {}", escape(reason)),
        None => {
            let command = escape(&waive_command(leak, at, &style.until));
            format!("<br>{}: <code>{command}</code>", accepting(leak))
        }
    };
    format!(
        "<pre style=\"white-space:pre-wrap;background:#f6f8fa;padding:8px;font-size:12px\">{}\n</pre><p style=\"font-size:13px\">leak {}{word}{waived}</p>\n",
        lines.join("\n"),
        escape(&leak.id),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sample;

    fn around() -> Surroundings {
        Surroundings {
            branch: "main".to_owned(),
            url: "https://ci.example.com/7".to_owned(),
            ..Surroundings::default()
        }
    }

    fn of(report: &RunReport, only: Option<&BTreeSet<String>>) -> Mail {
        mail(report, &Changes::since(&[], report), &around(), only).unwrap()
    }

    #[test]
    fn the_subject_says_what_changed_and_where() {
        assert_eq!(
            of(&sample::leak(), None).subject,
            "[tiles] MapCache::insert leaks 48.0 KiB per run · src/map_cache.cpp:88 · 1 new leak in engine_tests on main"
        );
        let clean = of(&sample::clean(), None);
        assert_eq!(clean.subject, "[tiles] no leak in 3 tests on main");
        assert_eq!(clean.text.matches("no leak in 3 tests").count(), 1, "{}", clean.text);
        assert_eq!(
            clean.html.matches(">no leak in 3 tests<").count(),
            2,
            "title and heading: {}",
            clean.html
        );
    }

    #[test]
    fn plain_text_says_the_same_as_the_page() {
        let mail = of(&sample::leak(), None);
        insta::assert_snapshot!(mail.text);
        for part in [
            "engine_tests::MapCache.scroll",
            "src/map_cache.cpp:88",
            "memgate waive n1-5f1c09a2b47d1e03 --reason",
            "cid:curve1",
        ] {
            assert!(mail.html.contains(part), "{part}");
        }
        assert_eq!(mail.pictures.len(), 1);
        assert!(mail.pictures[0].1.starts_with(b"\x89PNG"));
        assert_eq!(mail.thread, "tiles/main");
    }

    #[test]
    fn everybody_reads_the_warnings_of_the_run_and_owners_do_not() {
        let mut report = sample::leak();
        report.warnings = (0..12).map(|number| format!("no baseline <{number}>")).collect();
        let mail = of(&report, None);
        assert!(mail.text.contains("\nwarning: no baseline <9>\nand 2 more warnings\n"), "{}", mail.text);
        assert!(mail.html.contains("<p>warning: no baseline &lt;9&gt;</p>"), "{}", mail.html);
        let own =
            report.suites[0].tests.iter().flat_map(|test| &test.leaks).map(|leak| leak.id.clone()).collect();
        assert!(!of(&report, Some(&own)).text.contains("no baseline"));
    }

    #[test]
    fn an_owner_gets_only_what_is_theirs() {
        let mut report = sample::mixed();
        let only = BTreeSet::from(["n1-00000000000000aa".to_owned()]);
        let is_theirs = |test: &&mut TestReport| test.leaks.iter().any(|leak| only.contains(&leak.id));
        let test = report.suites.iter_mut().flat_map(|suite| &mut suite.tests).find(is_theirs).unwrap();
        test.leaks.push(Leak { id: "n1-00000000000000dd".to_owned(), ..test.leaks[0].clone() });
        let mail = of(&report, Some(&only));
        assert!(mail.subject.ends_with(" · 1 new leak in your code on main"), "{}", mail.subject);
        let changed = |changes| super::mail(&report, &changes, &around(), Some(&only)).unwrap().subject;
        let theirs: BTreeMap<_, _> = only.iter().map(|id| (id.clone(), "engine".to_owned())).collect();
        let larger = changed(Changes { grew: theirs.clone(), ..Changes::default() });
        assert!(larger.ends_with(" · 1 larger leak in your code on main"), "{larger}");
        let mut regressed = Changes { new: theirs.clone(), ..Changes::default() };
        regressed.came_back(&only);
        assert_eq!(regressed.in_words(&report), "1 regressed leak in engine");
        let regressed = changed(regressed);
        assert!(regressed.ends_with(" · 1 regressed leak in your code on main"), "{regressed}");
        // Regression: a leak that grew and was fixed since the last message made a number below zero.
        let gone = only.iter().map(|id| (id.clone(), Ended { fixed: true, ..Ended::default() })).collect();
        let both = changed(Changes { grew: theirs, gone, ..Changes::default() });
        assert!(both.ends_with(" · 1 larger leak, 1 leak fixed in your code on main"), "{both}");
        for text in [&mail.html, &mail.text] {
            assert!(text.contains("n1-00000000000000aa"), "{text}");
            assert!(!text.contains("n1-00000000000000cc") && !text.contains("n1-00000000000000dd"), "{text}");
        }
    }

    #[test]
    fn leaks_that_are_no_more_are_named_for_everybody_and_their_owners() {
        let now = sample::clean();
        let ended = Ended {
            suite: "engine_tests".to_owned(),
            line: "MapCache::insert · src/map_cache.cpp:88".to_owned(),
            fixed: true,
            owners: Vec::new(),
        };
        let gone = [("n1-5f1c09a2b47d1e03".to_owned(), ended)].into();
        let changes = Changes { gone, compared: true, changed: true, ..Changes::default() };
        let around =
            Surroundings { commit: "8d21e07c55".to_owned(), environment: "aarch64".to_owned(), ..around() };
        let only = changes.gone.keys().cloned().collect();
        for (only, words) in
            [(None, "1 leak fixed in engine_tests"), (Some(&only), "1 leak fixed in your code")]
        {
            let mail = mail(&now, &changes, &around, only).unwrap();
            assert_eq!(mail.subject, format!("[tiles] {words} on main (aarch64)"));
            for text in [&mail.text, &mail.html] {
                for part in
                    ["fixed by 8d21e07c55: MapCache::insert · src/map_cache.cpp:88", "n1-5f1c09a2b47d1e03"]
                {
                    assert!(text.contains(part), "{part}: {text}");
                }
            }
        }
    }

    #[test]
    fn names_made_to_break_out_stay_text() {
        let mail = of(&sample::hostile(), None);
        assert!(!mail.subject.chars().any(char::is_control), "{}", mail.subject);
        assert!(mail.subject.chars().count() <= LONGEST_SUBJECT + 1);
        assert!(mail.html.chars().chain(mail.text.chars()).all(|c| c == '\n' || !c.is_control()));
        assert!(!mail.html.contains("<&"));
    }

    #[test]
    fn thousands_of_failures_are_one_short_mail() {
        let mut report = sample::leak();
        let test = report.suites[0].tests[1].clone();
        report.suites[0].tests = vec![test; 3000];
        let mail = of(&report, None);
        assert!(
            mail.html.len() < 40_000 && mail.text.len() < 40_000,
            "{} {}",
            mail.html.len(),
            mail.text.len()
        );
        assert_eq!(mail.pictures.len(), CURVES);
        assert!(mail.html.contains("and 2990 more tests"));
    }
}
