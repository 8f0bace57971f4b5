//! Comparison of two runs: which leaks are new, larger, smaller, fixed or stayed, and what cannot be compared because
//! only one of the runs judged a test.
//!
//! Data flow: two [`RunReport`]s, or two runs of the history → two [`Side`]s → [`Comparison`] → text
//! ([`Comparison::human`]), JSON or a page. Leaks with the same id are the same leak. A leak is fixed only if each of
//! its tests was judged and does not have it ([`RunReport::tests_without_other_leaks`]).

use std::collections::{BTreeMap, BTreeSet};

use memgate_model::{
    Kind, LeakKind, Metric, Per, RunReport, format_bytes_change, format_change, format_number_of,
};
use serde::Serialize;

use crate::culprit;
use crate::suite_test::SuiteTest;
use crate::visible::visible;

/// How a leak changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The first run did not have it.
    New,
    /// Its test leaks more: the intervals do not overlap.
    Larger,
    /// Its test leaks less.
    Smaller,
    /// The second run judged each of its tests, and none has it.
    Fixed,
    /// It did not change.
    Same,
    /// The other run does not show whether it has it.
    NotCompared,
}

impl Change {
    /// The word for this change.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Larger => "larger",
            Self::Smaller => "smaller",
            Self::Fixed => "fixed",
            Self::Same => "same",
            Self::NotCompared => "not compared",
        }
    }
}

/// One leak in both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeakChange {
    /// How it changed.
    pub change: Change,
    /// Its id.
    pub id: String,
    /// The leaking function or class, in one line; from the second run if that run has the leak.
    pub line: String,
    /// Bytes per iteration in the first run, of the test that leaks most; `null`: the run does not have the leak.
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
    /// The metric.
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
    /// All leaks of both runs: new ones first, and for each kind of change the largest first.
    pub leaks: Vec<LeakChange>,
    /// Figures that changed, by test.
    pub figures: Vec<FigureChange>,
    /// Tests judged in both.
    pub judged_in_both: usize,
    /// Tests that only the first run judged.
    pub only_before: Vec<String>,
    /// Tests that only the second run judged.
    pub only_after: Vec<String>,
}

/// The compared part of a run: its judged tests, by `suite::test`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Side {
    /// Its session.
    pub session: String,
    /// Its judged tests.
    pub tests: BTreeMap<String, TestSide>,
}

/// The compared part of a test.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TestSide {
    /// Its figures.
    pub figures: BTreeMap<Metric, FigureSide>,
    /// Its leaks.
    pub leaks: Vec<LeakSide>,
    /// It has no other leaks than these.
    pub has_no_others: bool,
}

/// A figure of a test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FigureSide {
    /// Best estimate.
    pub value: f64,
    /// Bounds of its interval.
    pub bounds: (f64, f64),
    /// The unit to which the value refers: iteration, test or suite.
    pub per: Per,
    /// Whether a change counts: noise does not move the figure, or a threshold judges it.
    pub counts: bool,
}

/// A leak of a test.
#[derive(Debug, Clone, PartialEq)]
pub struct LeakSide {
    /// Its id.
    pub id: String,
    /// The kind of leak.
    pub kind: LeakKind,
    /// Bytes per iteration.
    pub bytes: f64,
    /// The leaking function or class, in one line.
    pub line: String,
    /// Covered by a waiver.
    pub waived: bool,
}

impl Side {
    /// The compared part of a report.
    #[must_use]
    pub fn of(report: &RunReport) -> Self {
        let telling = report.tests_without_other_leaks();
        let sides = SuiteTest::all(report).filter(|at| at.test.is_judged()).map(|at| {
            let SuiteTest { suite, test } = at;
            let figures = test.metrics.iter().map(|(metric, figure)| {
                let counts = figure.threshold.is_some();
                let bounds = (figure.low, figure.high);
                (*metric, FigureSide { value: figure.value, bounds, per: figure.per, counts })
            });
            let leaks = test.leaks.iter().map(|leak| LeakSide {
                id: leak.id.clone(),
                kind: leak.kind,
                bytes: leak.bytes_per_iteration,
                line: culprit::of_leak(leak, test),
                waived: leak.waiver.is_some(),
            });
            let has_no_others = telling.contains(&(suite.name.as_str(), test.id.as_str()));
            let side = TestSide { figures: figures.collect(), leaks: leaks.collect(), has_no_others };
            (at.qualified(), side)
        });
        Self { session: report.session.clone(), tests: sides.collect() }
    }
}

/// Share by which the bytes of one of several leaks may differ by chance.
const NEAR: f64 = 0.05;

/// The judged tests of a run, by name.
type Tests = BTreeMap<String, TestSide>;
/// A leak as in the test that leaks most of it, and all tests that have it.
type Found<'a> = BTreeMap<&'a str, (&'a LeakSide, Vec<String>)>;

impl Comparison {
    /// Compares two reports.
    #[must_use]
    pub fn of(before: &RunReport, after: &RunReport) -> Self {
        Self::between(&Side::of(before), &Side::of(after))
    }

    /// Compares two runs.
    #[must_use]
    pub fn between(before: &Side, after: &Side) -> Self {
        let (tests_before, tests_after) = (&before.tests, &after.tests);
        let (found_before, found_after) = (leaks(tests_before), leaks(tests_after));
        let ids: BTreeSet<&str> = found_before.keys().chain(found_after.keys()).copied().collect();
        let mut leaks: Vec<LeakChange> = ids
            .into_iter()
            .filter_map(|id| {
                let (old, new) = (found_before.get(id), found_after.get(id));
                let (leak, tests) = new.or(old)?;
                let change = match (old, new) {
                    (None, _) if tests.iter().any(|test| !entries(tests_before, test).is_empty()) => {
                        Change::New
                    }
                    (_, None) if tests.iter().all(|test| is_without(tests_after, test, tests_before)) => {
                        Change::Fixed
                    }
                    (None, _) | (_, None) => Change::NotCompared,
                    (Some((old, _)), Some((new, names))) => grown(old, new, names, tests_before, tests_after),
                };
                Some(LeakChange {
                    change,
                    id: id.to_owned(),
                    line: leak.line.clone(),
                    before: old.map(|(leak, _)| leak.bytes),
                    after: new.map(|(leak, _)| leak.bytes),
                    tests: tests.clone(),
                    waived: leak.waived,
                })
            })
            .collect();
        let size = |leak: &LeakChange| leak.after.or(leak.before).unwrap_or_default();
        let moved = |leak: &&LeakChange| !matches!(leak.change, Change::Same | Change::NotCompared);
        let changed = leaks.iter().filter(moved).flat_map(|leak| leak.tests.clone()).collect();
        leaks.sort_by(|a, b| a.change.cmp(&b.change).then(size(b).total_cmp(&size(a))));
        let missing = |of: &Tests, other: &Tests| -> Vec<String> {
            of.keys().filter(|name| !other.contains_key(*name)).cloned().collect()
        };
        Self {
            before: before.session.clone(),
            after: after.session.clone(),
            leaks,
            figures: figures(tests_before, tests_after, &changed),
            judged_in_both: tests_before.keys().filter(|name| tests_after.contains_key(*name)).count(),
            only_before: missing(tests_before, tests_after),
            only_after: missing(tests_after, tests_before),
        }
    }

    /// Number of leaks that changed this way.
    #[must_use]
    pub fn count(&self, change: Change) -> usize {
        self.leaks.iter().filter(|leak| leak.change == change).count()
    }

    /// Text for people.
    #[must_use]
    pub fn human(&self) -> String {
        let mut lines = Vec::new();
        for leak in self.leaks.iter().filter(|leak| leak.change != Change::Same) {
            let amount = leak.before.zip(leak.after).map_or_else(String::new, |(before, after)| {
                let (before, after) = format_bytes_change(before, after);
                format!("   {before} → {after}")
            });
            let waived = if leak.waived { "   (waived)" } else { "" };
            lines.push(format!("{:<13}{}{amount}{waived}", leak.change.word(), leak.line));
            lines.push(format!("{:13}{}   in {}", "", visible(&leak.id), first_of(&leak.tests)));
        }
        for FigureChange { test, metric, before, after } in &self.figures {
            let (before, after) = format_change(*metric, *before, *after);
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
            [Change::New, Change::Larger, Change::Smaller, Change::Fixed, Change::Same, Change::NotCompared]
                .map(|change| format!("{} {}", change.word(), self.count(change)));
        lines.push(format!(
            "{} · {} judged in both",
            counts.join(" · "),
            format_number_of(self.judged_in_both, "test")
        ));
        lines.join("\n") + "\n"
    }
}

/// The first of some tests, and how many more there are.
fn first_of(tests: &[String]) -> String {
    let first = visible(tests.first().map_or("", String::as_str));
    match tests.len() {
        0 | 1 => first.into_owned(),
        more => format!("{first} and {}", format_number_of(more - 1, "more test")),
    }
}

/// The judged entries that count for a test. A class that leaks as a whole has an entry of its own; in other runs its
/// tests count.
fn entries<'a>(tests: &'a Tests, name: &str) -> Vec<&'a TestSide> {
    if let Some(test) = tests.get(name) {
        return vec![test];
    }
    let first = format!("{name}.");
    let after = tests.range(first.clone()..);
    after.take_while(|(name, _)| name.starts_with(&first)).map(|(_, test)| test).collect()
}

/// Does a run show that a test, or each test of a class that ran `before`, does not have a leak, which the run does not
/// name?
fn is_without(tests: &Tests, name: &str, before: &Tests) -> bool {
    let first = format!("{name}.");
    let of_class =
        before.keys().skip_while(|test| **test < first).take_while(|test| test.starts_with(&first));
    let ran = tests.contains_key(name) || of_class.into_iter().all(|test| tests.contains_key(test));
    let entries = entries(tests, name);
    ran && !entries.is_empty() && entries.iter().all(|test| test.has_no_others)
}

fn leaks(tests: &Tests) -> Found<'_> {
    let mut found = Found::new();
    for (name, test) in tests {
        for leak in &test.leaks {
            let entry = found.entry(leak.id.as_str()).or_insert_with(|| (leak, Vec::new()));
            if leak.bytes > entry.0.bytes {
                entry.0 = leak;
            }
            entry.1.push(name.clone());
        }
    }
    found
}

/// Did a leak of both runs grow or shrink? It did only if it did so in a test that was judged in both.
fn grown(old: &LeakSide, new: &LeakSide, tests: &[String], before: &Tests, after: &Tests) -> Change {
    let metric = match new.kind {
        LeakKind::Native => Metric::NativeLiveBytes,
        LeakKind::Java => Metric::JavaLiveBytes,
        LeakKind::Mapped => Metric::NativeMappedBytes,
        LeakKind::Os | LeakKind::Heap => return Change::Same,
    };
    let moved = |is_up: bool| {
        let mut both = tests.iter().filter_map(|test| Some((before.get(test)?, after.get(test)?)));
        both.any(|(was, now)| moved_in(new, metric, was, now) == Some(is_up))
    };
    match new.bytes.total_cmp(&old.bytes) {
        std::cmp::Ordering::Greater if moved(true) => Change::Larger,
        std::cmp::Ordering::Less if moved(false) => Change::Smaller,
        _ => Change::Same,
    }
}

/// Did a leak of a test grow, `true`, or shrink, `false`? The figure of the test shows that only if it is of this leak
/// alone. Otherwise another leak, or a waiver, may have moved it: then the leak's own bytes count.
fn moved_in(of: &LeakSide, metric: Metric, was: &TestSide, now: &TestSide) -> Option<bool> {
    let (b, a) = (was.figures.get(&metric)?, now.figures.get(&metric)?);
    let is_alone = |side: &TestSide| {
        side.leaks.iter().filter(|leak| leak.kind == of.kind).all(|leak| leak.id == of.id && !leak.waived)
    };
    if is_alone(was) && is_alone(now) {
        return apart(b, a).then_some(a.value > b.value);
    }
    let bytes = |side: &TestSide| -> f64 {
        side.leaks.iter().filter(|leak| leak.id == of.id).map(|leak| leak.bytes).sum()
    };
    let half = |figure: &FigureSide| (figure.bounds.1 - figure.bounds.0).max(0.0) / 2.0;
    let (from, to) = (bytes(was), bytes(now));
    let chance = NEAR * from.max(to) + half(b) + half(a);
    (from > 0.0 && to > 0.0 && (to - from).abs() > chance).then_some(to > from)
}

/// Do the intervals not overlap?
fn apart(before: &FigureSide, after: &FigureSide) -> bool {
    after.bounds.0 > before.bounds.1 || after.bounds.1 < before.bounds.0
}

/// Changed figures of tests in both runs, except tests whose changed leaks are listed already, and figures that changed
/// because a waiver came or went: they are without waived leaks.
fn figures(before: &Tests, after: &Tests, told: &BTreeSet<String>) -> Vec<FigureChange> {
    let untold = after.iter().filter(|(name, _)| !told.contains(*name));
    let pairs = untold.filter_map(|(name, now)| Some((name, before.get(name)?, now)));
    let waived = |test: &TestSide| -> BTreeSet<String> {
        test.leaks.iter().filter(|leak| leak.waived).map(|leak| leak.id.clone()).collect()
    };
    let changed = pairs.flat_map(move |(name, was, now)| {
        let is_same = waived(was) == waived(now);
        let compares = move |metric: Metric| is_same || metric.kind() == Kind::Resident;
        now.figures.iter().filter(move |(metric, _)| compares(**metric)).filter_map(move |(metric, a)| {
            let b = was.figures.get(metric)?;
            (((a.counts || b.counts) && apart(b, a)) && a.per == b.per).then(|| FigureChange {
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
    use memgate_model::{TestReport, Verdict};

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
    fn a_leak_is_new_fixed_grew_or_stayed() {
        let id = "n1-5f1c09a2b47d1e03".to_owned();
        for (before, after, change) in [
            (fixed(), sample::leak(), Change::New),
            (sample::leak(), fixed(), Change::Fixed),
            (sample::leak(), scaled(2.0), Change::Larger),
            (sample::leak(), scaled(0.5), Change::Smaller),
            (sample::leak(), sample::leak(), Change::Same),
        ] {
            assert_eq!(changes(&before, &after), [(change, id.clone())]);
        }
    }

    /// Regression: a waived leak never grew, and a leak beside one that was fixed or waived grew by a rounding error.
    #[test]
    fn a_leak_grows_by_its_own_bytes_whatever_moves_the_figure_of_its_test() {
        let id = "n1-5f1c09a2b47d1e03";
        let run = |factor: f64, waived: bool, others: &[f64]| {
            let mut run = sample::leak();
            let test = &mut run.suites[0].tests[1];
            let mut leak = test.leaks[0].clone();
            leak.bytes_per_iteration *= factor;
            leak.waiver = waived.then(|| "known".to_owned());
            let all = others.iter().zip(0..).map(|(bytes, number)| memgate_model::Leak {
                id: format!("n1-{number}"),
                bytes_per_iteration: *bytes,
                ..leak.clone()
            });
            test.leaks = all.chain([leak.clone()]).collect();
            let counted = test.leaks.iter().filter(|leak| leak.waiver.is_none());
            let bytes: f64 = counted.map(|leak| leak.bytes_per_iteration).sum();
            let figure = test.metrics.get_mut(&Metric::NativeLiveBytes).unwrap();
            (figure.value, figure.low, figure.high) = (bytes, bytes, bytes);
            run
        };
        let change = |before: &RunReport, after: &RunReport| {
            let leaks = Comparison::of(before, after).leaks;
            leaks.iter().find(|leak| leak.id == id).unwrap().change
        };
        for (before, after, expected) in [
            (run(1.0, false, &[]), run(1.001, false, &[]), Change::Larger),
            (run(1.0, false, &[]), run(1.001, true, &[]), Change::Same),
            (run(1.0, true, &[]), run(2.0, true, &[]), Change::Larger),
            (run(1.0, true, &[]), run(0.5, false, &[]), Change::Smaller),
            (run(1.0, false, &[7.0]), run(1.001, false, &[]), Change::Same),
            (run(1.0, false, &[]), run(1.001, false, &[7.0]), Change::Same),
            (run(1.0, false, &[1e6]), run(2.0, false, &[]), Change::Larger),
        ] {
            assert_eq!(change(&before, &after), expected);
        }
    }

    #[test]
    fn a_new_waiver_is_no_change_of_the_figure_that_is_now_without_its_leak() {
        let mut waived = scaled(1.0);
        let test = &mut waived.suites[0].tests[1];
        test.leaks[0].waiver = Some("known".to_owned());
        let figure = test.metrics.get_mut(&Metric::NativeLiveBytes).unwrap();
        (figure.value, figure.low, figure.high) = (0.0, 0.0, 0.0);
        let told = Comparison::of(&sample::leak(), &waived);
        assert_eq!((told.figures, told.leaks[0].change), (Vec::new(), Change::Same));
        waived.suites[0].tests[1].leaks[0].waiver = None;
        assert_eq!(Comparison::of(&sample::leak(), &waived).figures.len(), 1);
    }

    #[test]
    fn a_leak_whose_test_was_not_judged_is_neither_new_nor_fixed() {
        let mut without = sample::leak();
        without.suites[0].tests[1].verdict = Verdict::Error;
        let told = Comparison::of(&sample::leak(), &without);
        assert_eq!(told.leaks[0].change, Change::NotCompared);
        assert_eq!(told.only_before, ["engine_tests::MapCache.scroll"]);
        assert_eq!(Comparison::of(&without, &sample::leak()).leaks[0].change, Change::NotCompared);
    }

    #[test]
    fn a_leak_is_not_fixed_while_its_class_leaks_as_a_whole_or_one_of_its_tests_was_left_out() {
        let of = |report: &RunReport| Comparison::of(&sample::leak(), report).leaks;
        let mut covered = fixed();
        let tests = &mut covered.suites[0].tests;
        let mut class = sample::leak().suites[0].tests[1].clone();
        (class.id, class.is_class) = ("MapCache".to_owned(), true);
        class.leaks[0].id = "n1-of-the-class".to_owned();
        tests[1].confirmed = false;
        tests.push(class);
        let change =
            |leaks: Vec<LeakChange>, id: &str| leaks.into_iter().find(|it| it.id == id).unwrap().change;
        let id = "n1-5f1c09a2b47d1e03";
        assert_eq!(change(of(&covered), id), Change::NotCompared);
        assert_eq!(change(of(&covered), "n1-of-the-class"), Change::New, "its tests were judged without it");
        let ended = Comparison::of(&covered, &fixed()).leaks;
        assert_eq!(
            change(ended, "n1-of-the-class"),
            Change::Fixed,
            "a class has an entry only while it leaks"
        );
        covered.suites[0].tests[1].confirmed = true;
        assert_eq!(change(of(&covered), id), Change::Fixed, "its test ran alone");

        let mut both = sample::leak();
        let second = TestReport { id: "MapCache.zoom".to_owned(), ..both.suites[0].tests[1].clone() };
        both.suites[0].tests.push(second);
        assert_eq!(Comparison::of(&both, &fixed()).leaks[0].change, Change::NotCompared, "zoom may have it");
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
