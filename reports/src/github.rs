//! Annotations for GitHub Actions: `::error file=…,line=…,title=…::text`, one line each, the worst
//! first.
//!
//! GitHub shows ten of each kind per step. Text from outside can end neither its property nor its line, so it cannot
//! inject commands.

use memgate_model::{RunReport, Verdict, format_number_of};

use crate::culprit::worst_first;
use crate::places::{Checkout, Place};
use crate::summary::{headline, in_short, statistics};
use crate::visible::visible;
use crate::worst::not_passed;

/// Annotations that GitHub shows per kind and step.
const SHOWN: usize = 10;
/// Most warnings of the run itself, so that its tests find room.
const OF_RUN: usize = 5;
/// Most leaks of a test that its annotation names; its first line counts the others.
const LEAKS: usize = 5;

/// One line for each warning of the run and each test that did not pass, as many as GitHub shows, and one for the run.
#[must_use]
pub fn annotations(report: &RunReport, checkout: &Checkout) -> String {
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    for problem in &report.errors {
        errors.push(line("error", None, &problem.r#where, &format!("{} {}", problem.what, problem.hint)));
    }
    for warning in report.warnings.iter().take(OF_RUN) {
        warnings.push(line("warning", None, "memgate", warning));
    }
    let more = report.warnings.len().saturating_sub(OF_RUN);
    if more > 0 {
        let more = format!("and {} of the run", format_number_of(more, "more warning"));
        warnings.push(line("warning", None, "memgate", &more));
    }
    for at in not_passed(report) {
        let test = at.test;
        let leaks = worst_first(test);
        let place = leaks.iter().find_map(|leak| checkout.place(leak));
        let mut text = in_short(test);
        for figure in statistics(test) {
            text += &format!("\n{figure}");
        }
        for leak in leaks.iter().take(LEAKS) {
            text += &format!("\n{} ({})", leak.title, leak.id);
        }
        let (kind, list) = match test.verdict {
            Verdict::Fail | Verdict::Error => ("error", &mut errors),
            _ => ("warning", &mut warnings),
        };
        list.push(line(kind, place.as_ref(), &at.qualified(), &text));
    }
    let kind = if report.exit_code == 0 { "notice" } else { "error" };
    let run = line(kind, None, "memgate", &headline(report));
    // The line of the run is one of the errors, and says that there are more.
    errors.truncate(SHOWN - 1);
    warnings.truncate(SHOWN);
    std::iter::once(run).chain(errors).chain(warnings).collect()
}

fn line(kind: &str, place: Option<&Place>, title: &str, text: &str) -> String {
    let place = place.map_or_else(String::new, |Place { file, line }| {
        let line = line.map_or_else(String::new, |line| format!("line={line},"));
        format!("file={},{line}", property(file))
    });
    format!("::{kind} {place}title={}::{}\n", property(title), message(text.trim()))
}

fn message(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(|line| visible(line).replace('%', "%25")).collect();
    lines.join("%0A")
}

fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_leak_is_annotated_where_it_was_allocated() {
        let text = annotations(&sample::leak(), &Checkout::default());
        assert_eq!(
            text,
            "::error title=memgate::1 of 2 tests leaks\n\
             ::error file=src/map_cache.cpp,line=88,title=engine_tests%3A%3AMapCache.scroll::MapCache::insert leaks 48.0 KiB per run · src/map_cache.cpp:88%0A48.0 KiB per iteration (allowed 0 B), \
             12 allocations, 35 iterations%0A12 × 4096 B (n1-5f1c09a2b47d1e03)\n"
        );
    }

    #[test]
    fn text_from_outside_gives_no_command() {
        let mut report = sample::hostile();
        report.suites[0].name = "x\n::stop-commands::y".to_owned();
        report.errors[0].what = "::set-output name=a::b\r\n::error::c".to_owned();
        report.suites[0].tests[0].leaks[0].frames[0].file = Some("a,line=1::b\n::error::".to_owned());
        let text = annotations(&report, &Checkout::default());
        for line in text.lines() {
            assert!(line.starts_with("::error ") || line.starts_with("::warning "), "{line}");
            let properties = line.split_once(' ').unwrap().1.split_once("::").unwrap().0;
            for property in properties.split(',') {
                let name = property.split_once('=').unwrap().0;
                assert!(["file", "line", "title"].contains(&name), "{line}");
            }
        }
        assert!(text.lines().count() <= 21);
    }

    /// Regression: thresholds that match no test were a step without a word.
    #[test]
    fn warnings_of_the_run_leave_room_for_those_of_tests() {
        let mut report = sample::mixed();
        report.warnings.clear();
        let of_tests = annotations(&report, &Checkout::default());
        report.warnings = (0..9).map(|number| format!("no test matches {number}\n::error::x")).collect();
        let text = annotations(&report, &Checkout::default());
        let of_run = |line: &&str| line.starts_with("::warning title=memgate::no test matches ");
        assert_eq!(text.lines().filter(of_run).count(), 5, "{text}");
        let more = "::warning title=memgate::and 4 more warnings of the run";
        assert_eq!(text.lines().filter(|line| *line == more).count(), 1, "{text}");
        let rest: Vec<_> = text.lines().filter(|line| !of_run(line) && *line != more).collect();
        assert_eq!(rest, of_tests.lines().collect::<Vec<_>>());
    }

    #[test]
    fn every_leak_of_a_test_is_named_with_its_figure() {
        let text = annotations(&sample::mixed(), &Checkout::default());
        let line = text.lines().find(|line| line.contains("o1-1b2e09a2b47d1e03")).unwrap_or(&text);
        for part in [
            "%0A1 descriptor per iteration (allowed 0), 12 iterations%0A",
            "%0A2 × 128 B (n1-00000000000000aa)%0A1 × descriptor /tmp/tiles.log (o1-1b2e09a2b47d1e03)",
        ] {
            assert!(line.contains(part), "{line}");
        }
    }
}
