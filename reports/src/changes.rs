//! What is new and what is gone since another run, by the ids of leaks, which survive rebuilds.

use std::collections::{BTreeMap, BTreeSet};

use memgate_model::{RunReport, Verdict};

use crate::summary::headline;
use crate::words::counted;

/// The difference between two runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Ids of leaks that the other run did not have, with the suite each is in.
    pub new: BTreeMap<String, String>,
    /// Ids of leaks that are no more, with the suite each was in.
    pub gone: BTreeMap<String, String>,
    /// Was there another run to compare with?
    pub compared: bool,
    /// Is there anything to tell?
    pub changed: bool,
}

impl Changes {
    /// Compares with an earlier run; without one everything that is wrong is new.
    #[must_use]
    pub fn since(before: Option<&RunReport>, now: &RunReport) -> Self {
        let leaks_now = leaks(now);
        let leaks_before = before.map(leaks).unwrap_or_default();
        let without = |all: &BTreeMap<String, String>, others: &BTreeMap<String, String>| {
            let kept = all.iter().filter(|(id, _)| !others.contains_key(*id));
            kept.map(|(id, suite)| (id.clone(), suite.clone())).collect::<BTreeMap<_, _>>()
        };
        let (new, gone) = (without(&leaks_now, &leaks_before), without(&leaks_before, &leaks_now));
        let differs = match before {
            Some(before) => before.verdict != now.verdict || not_measured(before) != not_measured(now),
            None => !matches!(now.verdict, Verdict::Pass | Verdict::NotJudged),
        };
        let changed = differs || !new.is_empty() || !gone.is_empty();
        Self { new, gone, compared: before.is_some(), changed }
    }

    /// `3 new leaks in engine_tests`, `1 leak gone from engine_tests`, else the run in one line.
    #[must_use]
    pub fn in_words(&self, report: &RunReport) -> String {
        let of = |leaks: &BTreeMap<String, String>, before: &str, after: &str| {
            let suites: BTreeSet<&str> = leaks.values().map(String::as_str).collect();
            let place = match suites.iter().next() {
                Some(suite) if suites.len() == 1 => (*suite).to_owned(),
                _ => counted(suites.len(), "suite"),
            };
            (!leaks.is_empty())
                .then(|| format!("{}{after} {place}", counted(leaks.len(), &format!("{before}leak"))))
        };
        let parts: Vec<String> =
            [of(&self.new, "new ", " in"), of(&self.gone, "", " gone from")].into_iter().flatten().collect();
        if parts.is_empty() { headline(report) } else { parts.join(", ") }
    }
}

/// Leaks that count against their tests, with their suites.
fn leaks(report: &RunReport) -> BTreeMap<String, String> {
    let mut leaks = BTreeMap::new();
    for suite in &report.suites {
        for test in suite.tests.iter().filter(|test| test.verdict == Verdict::Fail) {
            for leak in test.leaks.iter().filter(|leak| leak.waiver.is_none()) {
                leaks.entry(leak.id.clone()).or_insert_with(|| suite.name.clone());
            }
        }
    }
    leaks
}

fn not_measured(report: &RunReport) -> BTreeSet<(&str, &str)> {
    let tests = report.suites.iter().flat_map(|suite| suite.tests.iter().map(move |test| (suite, test)));
    let errors = tests.filter(|(_, test)| test.verdict == Verdict::Error);
    errors.map(|(suite, test)| (suite.name.as_str(), test.id.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_subject_says_what_changed() {
        let (clean, leak, mixed) = (sample::clean(), sample::leak(), sample::mixed());
        for (before, now, changed, words) in [
            (None, &leak, true, "1 new leak in engine_tests"),
            (None, &clean, false, "no leak in 3 tests"),
            (Some(&leak), &leak, false, "1 of 2 tests leaks"),
            (Some(&clean), &leak, true, "1 new leak in engine_tests"),
            (Some(&leak), &clean, true, "1 leak gone from engine_tests"),
            (Some(&leak), &mixed, true, "3 new leaks in engine, 1 leak gone from engine_tests"),
        ] {
            let changes = Changes::since(before, now);
            assert_eq!((changes.changed, changes.in_words(now).as_str()), (changed, words));
        }
    }

    #[test]
    fn a_test_that_can_no_longer_be_measured_is_a_change() {
        let before = sample::mixed();
        let mut now = before.clone();
        now.suites[0].tests[0].verdict = Verdict::Error;
        assert!(Changes::since(Some(&before), &now).changed);
    }
}
