//! Two runs beside each other: which leaks are new, grew, shrank, are gone or stayed, and what cannot
//! be compared because a test was judged in one of them alone.
//!
//! Data flow: two [`RunReport`]s → [`Comparison`] → text ([`Comparison::human`]) or JSON. Leaks are the
//! same where their ids are. A leak is gone only if one of its tests was judged and did not have it.

use std::collections::{BTreeMap, BTreeSet};

use memgate_model::{Leak, LeakKind, Metric, RunReport, TestReport, Verdict, format_bytes, format_value};
use serde::Serialize;

use crate::culprit;
use crate::visible::visible;
use crate::words::counted;

/// What became of a leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The first run did not have it.
    New,
    /// Its test leaks more: the intervals do not overlap.
    Grew,
    /// Its test leaks less.
    Shrank,
    /// The second run does not have it.
    Gone,
    /// It stayed.
    Same,
    /// None of its tests was judged in the other run.
    NotCompared,
}

/// One leak in both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeakChange {
    /// What became of it.
    pub change: Change,
    /// Its id.
    pub id: String,
    /// Who leaks, in one line; of the second run where it is there.
    pub line: String,
    /// Bytes per iteration in the first run, of the test that leaks most; `null`: not there.
    pub before: Option<f64>,
    /// The same in the second run.
    pub after: Option<f64>,
    /// Tests that have it, as `suite::test`.
    pub tests: Vec<String>,
    /// Covered by a waiver, in the last run that has it.
    pub waived: bool,
}

/// A figure of a test that has changed: the intervals do not overlap.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FigureChange {
    /// `suite::test`.
    pub test: String,
    /// Which figure.
    pub metric: Metric,
    /// In the first run.
    pub before: f64,
    /// In the second run.
    pub after: f64,
}

/// The difference between two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Session of the first run.
    pub before: String,
    /// Session of the second run.
    pub after: String,
    /// All leaks of both, what is new first, the largest first among equals.
    pub leaks: Vec<LeakChange>,
    /// Figures that changed, by test.
    pub figures: Vec<FigureChange>,
    /// Tests judged in both.
    pub judged_in_both: usize,
    /// Tests that were judged in the first run alone.
    pub only_before: Vec<String>,
    /// Tests that were judged in the second run alone.
    pub only_after: Vec<String>,
}

/// The judged tests of a run, by name.
type Tests<'a> = BTreeMap<String, &'a TestReport>;
/// A leak with the test that leaks most by it, and all that have it.
type Found<'a> = BTreeMap<&'a str, (&'a Leak, &'a TestReport, Vec<String>)>;

impl Comparison {
    /// Compares two runs.
    #[must_use]
    pub fn of(before: &RunReport, after: &RunReport) -> Self {
        let (tests_before, tests_after) = (judged(before), judged(after));
        let (found_before, found_after) = (leaks(&tests_before), leaks(&tests_after));
        let ids: BTreeSet<&str> = found_before.keys().chain(found_after.keys()).copied().collect();
        let mut leaks: Vec<LeakChange> = ids
            .into_iter()
            .filter_map(|id| {
                let (old, new) = (found_before.get(id), found_after.get(id));
                let (leak, test, tests) = new.or(old)?;
                let change = match (old, new) {
                    (None, _) if tests.iter().any(|test| tests_before.contains_key(test)) => Change::New,
                    (_, None) if tests.iter().any(|test| tests_after.contains_key(test)) => Change::Gone,
                    (None, _) | (_, None) => Change::NotCompared,
                    (Some((old, _, _)), Some((new, _, names))) => {
                        grown(old, new, names, &tests_before, &tests_after)
                    }
                };
                Some(LeakChange {
                    change,
                    id: id.to_owned(),
                    line: culprit::of_leak(leak, test),
                    before: old.map(|(leak, _, _)| leak.bytes_per_iteration),
                    after: new.map(|(leak, _, _)| leak.bytes_per_iteration),
                    tests: tests.clone(),
                    waived: leak.waiver.is_some(),
                })
            })
            .collect();
        let size = |leak: &LeakChange| leak.after.or(leak.before).unwrap_or_default();
        let moved = |leak: &&LeakChange| matches!(leak.change, Change::Grew | Change::Shrank);
        let changed = leaks.iter().filter(moved).flat_map(|leak| leak.tests.clone()).collect();
        leaks.sort_by(|a, b| a.change.cmp(&b.change).then(size(b).total_cmp(&size(a))));
        let missing = |of: &Tests<'_>, other: &Tests<'_>| -> Vec<String> {
            of.keys().filter(|name| !other.contains_key(*name)).cloned().collect()
        };
        Self {
            before: before.session.clone(),
            after: after.session.clone(),
            leaks,
            figures: figures(&tests_before, &tests_after, &changed),
            judged_in_both: tests_before.keys().filter(|name| tests_after.contains_key(*name)).count(),
            only_before: missing(&tests_before, &tests_after),
            only_after: missing(&tests_after, &tests_before),
        }
    }

    /// How many leaks changed so.
    #[must_use]
    pub fn count(&self, change: Change) -> usize {
        self.leaks.iter().filter(|leak| leak.change == change).count()
    }

    /// For people.
    #[must_use]
    pub fn human(&self) -> String {
        let mut lines = Vec::new();
        for leak in self.leaks.iter().filter(|leak| leak.change != Change::Same) {
            let amount = leak.before.zip(leak.after).map_or_else(String::new, |(before, after)| {
                format!("   {} → {}", format_bytes(before), format_bytes(after))
            });
            let waived = if leak.waived { "   (waived)" } else { "" };
            lines.push(format!("{:<13}{}{amount}{waived}", word(leak.change), leak.line));
            lines.push(format!("{:13}{}   in {}", "", visible(&leak.id), first_of(&leak.tests)));
        }
        for FigureChange { test, metric, before, after } in &self.figures {
            let (before, after) = (format_value(*metric, *before), format_value(*metric, *after));
            lines.push(format!("{:<13}{} {} {before} → {after}", "figure", visible(test), metric.name()));
        }
        for (tests, session) in [(&self.only_before, &self.before), (&self.only_after, &self.after)] {
            if !tests.is_empty() {
                let (tests, session) = (first_of(tests), visible(session));
                lines.push(format!("{:<13}{tests}: judged in {session} alone", "not compared"));
            }
        }
        if !lines.is_empty() {
            lines.push(String::new());
        }
        let counts =
            [Change::New, Change::Grew, Change::Shrank, Change::Gone, Change::Same, Change::NotCompared]
                .map(|change| format!("{} {}", word(change), self.count(change)));
        lines.push(format!(
            "{} · {} judged in both",
            counts.join(" · "),
            counted(self.judged_in_both, "test")
        ));
        lines.join("\n") + "\n"
    }
}

/// The first of some tests, and how many more there are.
fn first_of(tests: &[String]) -> String {
    let first = visible(tests.first().map_or("", String::as_str));
    match tests.len() {
        0 | 1 => first.into_owned(),
        more => format!("{first} and {}", counted(more - 1, "more test")),
    }
}

const fn word(change: Change) -> &'static str {
    match change {
        Change::New => "new",
        Change::Grew => "grew",
        Change::Shrank => "shrank",
        Change::Gone => "gone",
        Change::Same => "same",
        Change::NotCompared => "not compared",
    }
}

fn judged(report: &RunReport) -> Tests<'_> {
    let tests = report.suites.iter().flat_map(|suite| suite.tests.iter().map(move |test| (suite, test)));
    let judged =
        tests.filter(|(_, test)| matches!(test.verdict, Verdict::Pass | Verdict::Warn | Verdict::Fail));
    judged.map(|(suite, test)| (format!("{}::{}", suite.name, test.id), test)).collect()
}

fn leaks<'a>(tests: &Tests<'a>) -> Found<'a> {
    let mut found = Found::new();
    for (name, test) in tests {
        for leak in &test.leaks {
            let entry = found.entry(leak.id.as_str()).or_insert_with(|| (leak, test, Vec::new()));
            if leak.bytes_per_iteration > entry.0.bytes_per_iteration {
                (entry.0, entry.1) = (leak, test);
            }
            entry.2.push(name.clone());
        }
    }
    found
}

/// Whether a leak that both runs have changed: only if the figure of a test that has it did, too.
fn grown(old: &Leak, new: &Leak, tests: &[String], before: &Tests<'_>, after: &Tests<'_>) -> Change {
    let metric = match new.kind {
        LeakKind::Native => Metric::NativeLiveBytes,
        LeakKind::Java => Metric::JavaLiveBytes,
        LeakKind::Os => return Change::Same,
    };
    let moved = tests.iter().any(|test| {
        let figures = before
            .get(test)
            .zip(after.get(test))
            .map(|(b, a)| (b.metrics.get(&metric), a.metrics.get(&metric)));
        matches!(figures, Some((Some(b), Some(a))) if a.low > b.high || a.high < b.low)
    });
    match new.bytes_per_iteration.total_cmp(&old.bytes_per_iteration) {
        std::cmp::Ordering::Greater if moved => Change::Grew,
        std::cmp::Ordering::Less if moved => Change::Shrank,
        _ => Change::Same,
    }
}

/// Figures of tests in both runs, but of those whose leaks tell already.
fn figures(before: &Tests<'_>, after: &Tests<'_>, told: &BTreeSet<String>) -> Vec<FigureChange> {
    let untold = after.iter().filter(|(name, _)| !told.contains(*name));
    let pairs = untold.filter_map(|(name, now)| Some((name, *before.get(name)?, *now)));
    let changed = pairs.flat_map(|(name, was, now)| {
        now.metrics.iter().filter_map(move |(metric, a)| {
            let b = was.metrics.get(metric)?;
            let gated = a.threshold.is_some() || b.threshold.is_some();
            let apart = a.low > b.high || a.high < b.low;
            (gated && apart && a.per == b.per).then(|| FigureChange {
                test: name.clone(),
                metric: *metric,
                before: b.value,
                after: a.value,
            })
        })
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn changes(before: &RunReport, after: &RunReport) -> Vec<(Change, String)> {
        let all = Comparison::of(before, after).leaks;
        all.into_iter().map(|leak| (leak.change, leak.id)).collect()
    }

    /// The run with `MapCache.scroll` leaking `factor` times as much.
    fn scaled(factor: f64) -> RunReport {
        let mut run = sample::leak();
        let test = &mut run.suites[0].tests[1];
        for leak in &mut test.leaks {
            leak.bytes_per_iteration *= factor;
        }
        for value in test.metrics.values_mut() {
            value.value *= factor;
            value.low *= factor;
            value.high *= factor;
        }
        run
    }

    /// The run in which it no longer leaks.
    fn fixed() -> RunReport {
        let mut run = scaled(0.0);
        let test = &mut run.suites[0].tests[1];
        (test.verdict, test.leaks) = (Verdict::Pass, Vec::new());
        run
    }

    #[test]
    fn a_leak_is_new_gone_grew_or_stayed() {
        let id = "n1-5f1c09a2b47d1e03".to_owned();
        for (before, after, change) in [
            (fixed(), sample::leak(), Change::New),
            (sample::leak(), fixed(), Change::Gone),
            (sample::leak(), scaled(2.0), Change::Grew),
            (sample::leak(), scaled(0.5), Change::Shrank),
            (sample::leak(), sample::leak(), Change::Same),
        ] {
            assert_eq!(changes(&before, &after), [(change, id.clone())]);
        }
    }

    #[test]
    fn a_leak_whose_test_was_not_judged_is_neither_new_nor_gone() {
        let mut without = sample::leak();
        without.suites[0].tests[1].verdict = Verdict::Error;
        let told = Comparison::of(&sample::leak(), &without);
        assert_eq!(told.leaks[0].change, Change::NotCompared);
        assert_eq!(told.only_before, ["engine_tests::MapCache.scroll"]);
        assert_eq!(Comparison::of(&without, &sample::leak()).leaks[0].change, Change::NotCompared);
    }

    #[test]
    fn a_person_reads_who_leaks_how_it_changed_and_what_could_not_be_compared() {
        insta::assert_snapshot!(Comparison::of(&sample::leak(), &sample::mixed()).human());
        insta::assert_snapshot!(Comparison::of(&sample::leak(), &scaled(2.0)).human());
        insta::assert_snapshot!(Comparison::of(&sample::clean(), &sample::clean()).human());
    }

    #[test]
    fn a_hostile_name_acts_on_no_terminal() {
        let told = Comparison::of(&sample::clean(), &sample::hostile()).human();
        assert!(!told.contains('\u{1b}') && !told.contains('\u{202e}'), "{told:?}");
    }
}
