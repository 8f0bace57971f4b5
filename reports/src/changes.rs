//! Finds leaks that are new, larger and gone since earlier runs, by their ids, which survive rebuilds. The last
//! judgement of a test counts: a run in which the test was left out, failed or waived shows nothing about its leaks.

use std::collections::{BTreeMap, BTreeSet};

use memgate_model::{Leak, RunReport, Verdict, format_number_of};

use crate::compare::{Change, Comparison};
use crate::culprit;
use crate::suite_test::SuiteTest;
use crate::summary::headline;

/// The difference between a run and earlier ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Leaks that were not there before, with their suites.
    pub new: BTreeMap<String, String>,
    /// Leaks that were fixed, and came back.
    pub back: BTreeMap<String, String>,
    /// Leaks that were there before, and grew.
    pub grew: BTreeMap<String, String>,
    /// Leaks that are gone.
    pub gone: BTreeMap<String, Ended>,
    /// Figures that reached a higher level and stayed there, each in words.
    pub higher: Vec<String>,
    /// Was there an earlier run to compare with?
    pub compared: bool,
    /// Is there anything to report?
    pub changed: bool,
}

/// A leak that is gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// The suite it was in.
    pub suite: String,
    /// The leaking function or class, in one line.
    pub line: String,
    /// Whether a history knows that the leak's tests were judged without it. Otherwise the leak is only gone, whatever
    /// happened to its tests.
    pub fixed: bool,
    /// Its owners.
    pub owners: Vec<String>,
}

impl Changes {
    /// Compares with earlier runs, the newest first; without any, everything that is wrong is new.
    #[must_use]
    pub fn since(before: &[RunReport], now: &RunReport) -> Self {
        let last = before.first();
        let differs = match last {
            Some(before) => before.verdict != now.verdict || not_measured(before) != not_measured(now),
            None => !matches!(now.verdict, Verdict::Pass | Verdict::NotJudged),
        };
        let known = last.map(|last| as_judged_last(last, before.get(1..).unwrap_or_default()));
        let (counting, mut ended) = (leaks(now), known.as_ref().map(ended).unwrap_or_default());
        let mut new = counting.clone();
        let mut grew = BTreeMap::new();
        if let Some(known) = &known {
            let (accepted, found) = (accepted(known), Comparison::of(known, now));
            new.retain(|id, _| !ended.contains_key(id) && !accepted.contains(id.as_str()));
            let of =
                |change| found.leaks.iter().filter(move |leak| leak.change == change).map(|leak| &leak.id);
            grew =
                of(Change::Larger).filter_map(|id| Some((id.clone(), counting.get(id)?.clone()))).collect();
            let gone: BTreeSet<&String> = of(Change::Fixed).collect();
            ended.retain(|id, _| gone.contains(id));
        }
        let changed = differs || !new.is_empty() || !grew.is_empty() || !ended.is_empty();
        Self { new, grew, gone: ended, compared: last.is_some(), changed, ..Self::default() }
    }

    /// Notes leaks that a history saw before, fixed since then.
    pub fn came_back(&mut self, regressed: &BTreeSet<String>) {
        self.back.extend(self.new.extract_if(.., |id, _| regressed.contains(id)));
    }

    /// Notes leaks of a run that a history saw before, smaller.
    pub fn became_larger(&mut self, larger: &BTreeSet<String>, now: &RunReport) {
        for (id, suite) in leaks(now).into_iter().filter(|(id, _)| larger.contains(id)) {
            self.new.remove(&id);
            self.grew.insert(id, suite);
            self.changed = true;
        }
    }

    /// `3 new leaks in engine_tests`, `1 leak gone from engine_tests`, else the run in one line.
    #[must_use]
    pub fn in_words(&self, report: &RunReport) -> String {
        let of = |suites: Vec<&String>, (before, after): (&str, &str)| {
            let distinct: BTreeSet<&String> = suites.iter().copied().collect();
            let place = match distinct.iter().next() {
                Some(suite) if distinct.len() == 1 => (*suite).to_owned(),
                _ => format_number_of(distinct.len(), "suite"),
            };
            let leaks = format_number_of(suites.len(), &format!("{before}leak"));
            (!suites.is_empty()).then(|| format!("{leaks}{after} {place}"))
        };
        let ended = |fixed: bool| {
            self.gone.values().filter(move |ended| ended.fixed == fixed).map(|ended| &ended.suite).collect()
        };
        let parts = [
            of(self.new.values().collect(), ("new ", " in")),
            of(self.back.values().collect(), ("regressed ", " in")),
            of(self.grew.values().collect(), ("larger ", " in")),
            of(ended(true), ("", " fixed in")),
            of(ended(false), ("", " gone from")),
            match self.higher.as_slice() {
                [] => None,
                [one] => Some(one.clone()),
                more => Some(format!("{} at a higher level", format_number_of(more.len(), "figure"))),
            },
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { headline(report) } else { parts.join(", ") }
    }

    /// The change of a leak of this run, in words; `None`: it did not change.
    #[must_use]
    pub fn word(&self, id: &str) -> Option<&'static str> {
        let words = [(&self.new, "new"), (&self.back, "regressed"), (&self.grew, "larger")];
        words.into_iter().find(|(leaks, _)| leaks.contains_key(id)).map(|(_, word)| word)
    }
}

/// The last run, in which each test that it did not judge is taken from an earlier run.
fn as_judged_last(last: &RunReport, earlier: &[RunReport]) -> RunReport {
    let mut known = last.clone();
    for suite in earlier.iter().flat_map(|report| &report.suites) {
        let Some(same) = known.suites.iter_mut().find(|same| same.name == suite.name) else {
            known.suites.push(suite.clone());
            continue;
        };
        let places: BTreeMap<String, usize> =
            same.tests.iter().enumerate().map(|(place, test)| (test.id.clone(), place)).collect();
        for test in suite.tests.iter().filter(|test| test.is_judged()) {
            match places.get(&test.id).and_then(|place| same.tests.get_mut(*place)) {
                Some(same) if same.is_judged() => {}
                Some(same) => same.clone_from(test),
                None => same.tests.push(test.clone()),
            }
        }
    }
    known
}

/// Did this run judge tests that none of these runs judged? Older runs may have judged them.
#[must_use]
pub fn has_unknown(before: &[RunReport], now: &RunReport) -> bool {
    let judged = |report: &RunReport| -> BTreeSet<(String, String)> {
        let judged = SuiteTest::all(report).filter(|at| at.test.is_judged());
        judged.map(|at| (at.suite.name.clone(), at.test.id.clone())).collect()
    };
    let known: BTreeSet<_> = before.iter().flat_map(judged).collect();
    !judged(now).is_subset(&known)
}

/// Leaks that count against their tests.
fn counting(report: &RunReport) -> impl Iterator<Item = (SuiteTest<'_>, &Leak)> {
    SuiteTest::all(report).filter(|at| at.test.verdict == Verdict::Fail).flat_map(|at| {
        let leaks = at.test.leaks.iter().filter(|leak| leak.waiver.is_none());
        leaks.map(move |leak| (at, leak))
    })
}

fn leaks(report: &RunReport) -> BTreeMap<String, String> {
    let mut leaks = BTreeMap::new();
    for (at, leak) in counting(report) {
        leaks.entry(leak.id.clone()).or_insert_with(|| at.suite.name.clone());
    }
    leaks
}

/// The data to report about each leak when it is gone.
fn ended(report: &RunReport) -> BTreeMap<String, Ended> {
    let mut leaks = BTreeMap::new();
    for (at, leak) in counting(report) {
        leaks.entry(leak.id.clone()).or_insert_with(|| Ended {
            suite: at.suite.name.clone(),
            line: culprit::of_leak(leak, at.test),
            fixed: false,
            owners: leak.owners.clone(),
        });
    }
    leaks
}

/// Leaks that a waiver covers, and that are therefore known.
fn accepted(report: &RunReport) -> BTreeSet<&str> {
    let tests = report.entries();
    let waived = tests.flat_map(|test| &test.leaks).filter(|leak| leak.waiver.is_some());
    waived.map(|leak| leak.id.as_str()).collect()
}

fn not_measured(report: &RunReport) -> BTreeSet<(&str, &str)> {
    let errors = SuiteTest::all(report).filter(|at| at.test.verdict == Verdict::Error);
    errors.map(|at| (at.suite.name.as_str(), at.test.id.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use memgate_model::TestReport;

    use super::*;
    use crate::sample;

    #[test]
    fn a_subject_says_what_changed() {
        let (clean, leak, mixed) = (sample::clean(), sample::leak(), sample::mixed());
        let mut fixed = leak.clone();
        fixed.verdict = Verdict::Pass;
        for test in &mut fixed.suites[0].tests {
            test.verdict = Verdict::Pass;
            test.leaks.clear();
        }
        for (before, now, changed, words) in [
            (None, &leak, true, "1 new leak in engine_tests"),
            (None, &clean, false, "no leak in 3 tests"),
            (Some(&leak), &leak, false, "1 of 2 tests leaks"),
            (Some(&clean), &leak, true, "1 new leak in engine_tests"),
            (Some(&leak), &fixed, true, "1 leak gone from engine_tests"),
            // The leak's test is not in this run, so its leaks are unknown.
            (Some(&leak), &clean, true, "no leak in 3 tests"),
            // It is unknown whether the leak of another suite still exists.
            (Some(&leak), &mixed, true, "3 new leaks in engine"),
        ] {
            let changes = Changes::since(before.map(std::slice::from_ref).unwrap_or_default(), now);
            assert_eq!((changes.changed, changes.in_words(now).as_str()), (changed, words));
        }
    }

    #[test]
    fn a_test_that_can_no_longer_be_measured_is_a_change() {
        let before = sample::mixed();
        let mut now = before.clone();
        now.suites[0].tests[0].verdict = Verdict::Error;
        assert!(Changes::since(&[before], &now).changed);
    }

    #[test]
    fn a_test_that_was_left_out_failed_or_waived_is_no_news_and_a_leak_that_grew_is() {
        let leak = sample::leak();
        let changed = |change: fn(&mut TestReport)| {
            let mut report = leak.clone();
            let leaking = report.suites[0].tests.iter_mut().filter(|test| !test.leaks.is_empty());
            leaking.for_each(change);
            report
        };
        let mut filtered = leak.clone();
        filtered.suites[0].tests.retain(|test| test.leaks.is_empty());
        let failed = changed(|test| {
            test.verdict = Verdict::NotJudged;
            test.leaks.clear();
        });
        let waived = changed(|test| {
            test.verdict = Verdict::Pass;
            test.leaks.iter_mut().for_each(|leak| leak.waiver = Some("known".to_owned()));
        });
        let ids = |changes: &Changes| (changes.new.len(), changes.grew.len(), changes.gone.len());
        for other in [&filtered, &failed, &waived] {
            assert_eq!(ids(&Changes::since(std::slice::from_ref(&leak), other)), (0, 0, 0));
            assert_eq!(ids(&Changes::since(&[other.clone(), leak.clone()], &leak)), (0, 0, 0));
        }
        let larger = changed(|test| {
            test.leaks.iter_mut().for_each(|leak| leak.bytes_per_iteration *= 100.0);
            for figure in test.metrics.values_mut() {
                for value in [&mut figure.value, &mut figure.low, &mut figure.high] {
                    *value *= 100.0;
                }
            }
        });
        let changes = Changes::since(std::slice::from_ref(&leak), &larger);
        assert!(changes.changed);
        assert_eq!(changes.in_words(&larger), "1 larger leak in engine_tests");
    }
}
