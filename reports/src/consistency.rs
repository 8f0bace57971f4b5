//! A test of all reporters: every figure, time and threshold that one of them shows is in `report.json`.
//!
//! Data flow: a sample report → the text of every reporter, without markup → the figures in it (`48.0 KiB`, `148 B`) →
//! each must be a number of the JSON as [`format_bytes`] writes it, be in one of its texts, or be a sum that a report
//! is known to show.

use std::collections::BTreeSet;

use memgate_model::{
    Leak, MetricValue, RunReport, TestReport, Threshold, ThresholdSource, Verdict, format_bytes, format_value,
};
use serde_json::Value;

use crate::mail::Surroundings;
use crate::{Changes, ReportKind, render, sample};

/// Every report of one run, by name, as text.
fn texts(report: &RunReport) -> Vec<(&'static str, String)> {
    let verbose = crate::HumanOptions { verbose: true, ..Default::default() };
    let mut kinds = ReportKind::every(&crate::Checkout::default(), "charts");
    // The other reports are compared with the JSON.
    kinds.retain(|(_, kind)| *kind != ReportKind::Json);
    kinds.push(("report.txt, verbose", ReportKind::Human(verbose)));
    let rendered = |kind: &ReportKind| String::from_utf8(render(report, kind).unwrap()).unwrap();
    let mut texts: Vec<(&str, String)> =
        kinds.iter().map(|(name, kind)| (*name, plain(&rendered(kind)))).collect();
    let (changes, around) = (Changes::since(&[], report), Surroundings::default());
    let mail = crate::mail::mail(report, &changes, &around, None).unwrap();
    texts.extend([("mail", mail.text), ("mail, html", plain(&mail.html)), ("subject", mail.subject)]);
    for (name, to) in [
        ("slack", crate::chat::Chat::Slack),
        ("teams", crate::chat::Chat::Teams),
        ("lark", crate::chat::Chat::Lark),
    ] {
        texts.push((name, plain(&crate::chat::chat(report, &changes, &around, to).to_string())));
    }
    texts
}

/// Removes pictures and markup, whose numbers are no figures, and replaces entities with characters.
fn plain(text: &str) -> String {
    let mut rest = text.to_owned();
    for (begin, end) in [("<svg", "</svg>"), ("<style", "</style>"), ("<script>", "</script>")] {
        while let Some(at) = rest.find(begin) {
            let length = rest[at..].find(end).map_or(rest.len() - at, |length| length + end.len());
            rest.replace_range(at..at + length, " ");
        }
    }
    for (entity, character) in [("&#60;", "<"), ("&lt;", "<"), ("&#62;", ">"), ("&gt;", ">"), ("&amp;", "&")]
    {
        rest = rest.replace(entity, character);
    }
    rest
}

/// Finds `48.0 KiB`, `148 B`, `<0.1 B`, … in a text.
fn figures(text: &str) -> BTreeSet<String> {
    let mut figures = BTreeSet::new();
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        let mark = format!(" {unit}");
        for (at, _) in text.match_indices(&mark) {
            if text[at + mark.len()..].starts_with(|c: char| c.is_alphanumeric()) {
                continue;
            }
            let number = |c: char| c.is_ascii_digit() || c == '.';
            let before = text[..at].trim_end_matches(number);
            let amount = &text[before.len()..at];
            if amount.starts_with(|c: char| c.is_ascii_digit()) {
                figures.insert(format!("{amount} {unit}"));
            }
        }
    }
    figures
}

/// Collects every figure of the JSON, from numbers and texts.
fn of_json(value: &Value, known: &mut BTreeSet<String>) {
    match value {
        Value::Number(number) => known.extend(of_number(number.as_f64().unwrap())),
        Value::String(text) => known.extend(figures(text)),
        Value::Array(all) => all.iter().for_each(|value| of_json(value, known)),
        Value::Object(all) => all.values().for_each(|value| of_json(value, known)),
        Value::Null | Value::Bool(_) => {}
    }
}

/// The number rounded, and in full.
fn of_number(number: f64) -> impl Iterator<Item = String> {
    let full = format!("{} B", memgate_model::format_count(number.abs()));
    figures(&format_bytes(number)).into_iter().chain([full])
}

/// Adds figures that reports show but that are no number of the JSON: sums over leaks, and the bytes that an iteration
/// added.
fn derived(report: &RunReport, known: &mut BTreeSet<String>) {
    let mut add = |number: f64| known.extend(of_number(number));
    let bytes =
        |leaks: &mut dyn Iterator<Item = &Leak>| leaks.map(|leak| leak.bytes_per_iteration).sum::<f64>();
    let counted = |leak: &&Leak| leak.waiver.is_none();
    for test in report.entries() {
        add(bytes(&mut test.one_time.iter()));
        add(bytes(&mut test.leaks.iter().filter(counted)));
        for before in &test.growth {
            test.growth.iter().for_each(|after| add(after.value - before.value));
        }
    }
    let once: std::collections::BTreeMap<&str, f64> = report
        .entries()
        .flat_map(|t| &t.one_time)
        .map(|leak| (leak.id.as_str(), leak.bytes_per_iteration))
        .collect();
    add(once.values().sum());
    let all = || report.entries().flat_map(|test| &test.leaks).filter(counted);
    add(bytes(&mut all()));
    let names: BTreeSet<Option<&str>> =
        all().flat_map(|leak| &leak.frames).map(|frame| frame.function.as_deref()).collect();
    for name in names {
        let is_there = |leak: &&Leak| leak.frames.iter().any(|frame| frame.function.as_deref() == name);
        let is_last = |leak: &&Leak| leak.frames.first().is_some_and(|f| f.function.as_deref() == name);
        add(bytes(&mut all().filter(is_there)));
        add(bytes(&mut all().filter(is_last)));
    }
}

#[test]
fn every_figure_of_every_report_is_one_of_the_json() {
    for (name, report) in sample::all() {
        let mut known = BTreeSet::from(["0 B".to_owned()]);
        of_json(&serde_json::to_value(&report).unwrap(), &mut known);
        derived(&report, &mut known);
        for (format, text) in texts(&report) {
            let unknown: Vec<String> = figures(&text).difference(&known).cloned().collect();
            assert!(
                unknown.is_empty(),
                "{name} as {format}: {unknown:?} is nowhere in the report\n{text:.3000}"
            );
        }
    }
}

/// Machines that read a figure get all of its digits.
#[test]
fn figures_for_machines_are_the_json_s_to_the_last_digit() {
    for (name, report) in sample::all() {
        let texts = texts(&report);
        let text = |wanted: &str| &texts.iter().find(|(format, _)| *format == wanted).unwrap().1;
        for (metric, value) in report.entries().flat_map(|t| &t.metrics) {
            let full = value.value.to_string();
            assert!(
                text("report.html").contains(&format!("<data value=\"{full}\">")),
                "{name}: {metric} {full}"
            );
            assert!(text("junit.xml").contains(&format!("value=\"{full}\"")), "{name}: {metric} {full}");
            if value.threshold.is_some() {
                assert!(text("metrics.txt").contains(&format!("}} {full}\n")), "{name}: {metric} {full}");
            }
        }
    }
}

/// Every report for people shows the figure that a test fails for, its threshold, and where that is set.
#[test]
fn every_report_says_how_much_was_allowed_and_where_that_is_written() {
    let report = sample::mixed();
    let failing: Vec<&TestReport> = report.entries().filter(|t| t.verdict == Verdict::Fail).collect();
    assert!(!failing.is_empty());
    for (format, text) in texts(&report) {
        if ["metrics.txt", "leaks.folded", "leaks.speedscope.json", "subject"].contains(&format) {
            continue;
        }
        // Short reports show only the worst leak.
        let most = if ["report.html", "report.txt", "junit.xml"].contains(&format) { usize::MAX } else { 1 };
        let above = |value: &MetricValue| value.threshold.as_ref().is_some_and(|t| value.low > t.limit);
        // Formats in which `:` has a meaning write it as an entity, or escaped.
        let text = text.replace("&#58;", ":").replace("%3A", ":");
        for test in &failing {
            for (metric, value) in test.metrics.iter().filter(|(_, value)| above(value)).take(most) {
                let Threshold { limit, source, .. } = value.threshold.as_ref().unwrap();
                // Only the page names the source of a default.
                let source = match source {
                    ThresholdSource::Default if format != "report.html" => String::new(),
                    _ => source.to_string(),
                };
                for part in [&format_value(*metric, value.value), &format_value(*metric, *limit), &source] {
                    assert!(text.contains(part), "{format}: {part} of {metric}\n{text:.3000}");
                }
            }
        }
    }
}

#[test]
fn units_are_binary_and_times_carry_their_zone() {
    for (name, report) in sample::all() {
        for (format, text) in texts(&report) {
            for unit in ["KB", "kB", "MB", "GB", "Mb"] {
                let found = text.match_indices(&format!(" {unit}")).find(|(at, _)| {
                    text[..*at].ends_with(|c: char| c.is_ascii_digit())
                        && !text[at + 1 + unit.len()..].starts_with(char::is_alphanumeric)
                });
                assert!(found.is_none(), "{name} as {format}: {unit}");
            }
            for (at, _) in text.match_indices('T') {
                let Some(time) = text.get(at.saturating_sub(10)..at + 9) else { continue };
                let shape = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c });
                if shape.collect::<String>() == "0000-00-00T00:00:00" {
                    let zone = text[at + 9..].trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
                    assert!(zone.starts_with(['Z', '+', '-']), "{name} as {format}: {time}{zone:.10}");
                }
            }
        }
    }
}
