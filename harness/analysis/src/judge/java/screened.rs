//! What the rounds say of a suite: which test classes are suspects, and which tests they did not screen.

use std::collections::BTreeSet;

use memgate_model::{Metric, Per, Verdict};

use super::super::context::JudgeContext;
use super::super::judgement::Executions;
use super::super::wording::listed;
use super::{class_of, passed, window_of};
use crate::input::{JavaInput, SuiteInput};
use crate::java::{self, JavaSuspect, screen_rounds};

/// Results of the rounds.
#[derive(Default)]
pub(super) struct Screened<'a> {
    pub(super) suspects: Vec<JavaSuspect>,
    /// Classes that fail as a whole, and tests of other classes that were left out.
    pub(super) failing: BTreeSet<&'a str>,
    left_out: BTreeSet<(String, String)>,
    /// Tests that did not run, and classes in which no test ran.
    skipped: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> Screened<'a> {
    /// Also tells in `notes` what the rounds did not measure.
    pub(super) fn of(
        context: &JudgeContext<'_>,
        suite: &SuiteInput,
        java: &'a JavaInput,
        runs: &[(String, Executions<'_>)],
        notes: &mut Vec<(Verdict, String)>,
    ) -> Self {
        for metric in Metric::ALL.into_iter().filter(|metric| metric.is_java()) {
            for (per, what) in [(Per::Test, "test"), (Per::Suite, "suite")] {
                let asked = |test: &str| !context.policy.limits(&suite.name, test, metric, per).is_empty();
                if asked("") || runs.iter().any(|(id, _)| asked(id)) {
                    notes.push((
                        Verdict::Error,
                        format!("{metric} per {what} is not measured: only per iteration"),
                    ));
                }
            }
        }
        let mut screened = Self::default();
        let mut seen = BTreeSet::new();
        for process in &java.rounds {
            match screen_rounds(&process.record, &suite.name, context.policy) {
                Ok(suspects) => screened.suspects.extend(suspects),
                Err(why) => notes.push((Verdict::Error, format!("the rounds were not measured: {why}"))),
            }
            screened.failing.extend(java::failing(&process.record));
            screened.left_out.extend(java::left_out(&process.record));
            screened.skipped.extend(java::skipped(&process.record));
            seen.extend(process.record.windows.iter().map(|w| w.suite.as_str()));
        }
        match &java.not_screened {
            Some(why) => {
                let verdict = if java.is_off { Verdict::NotJudged } else { Verdict::Pass };
                notes.push((verdict, format!("not screened in rounds: {why}")));
            }
            None if java.rounds.is_empty() && java.breaking.is_empty() && suite.problems.is_empty() => {
                notes.push((Verdict::Error, "not screened: no rounds were run".to_owned()));
                return screened;
            }
            None => {}
        }
        let is_told = java.rounds.is_empty() && !suite.problems.is_empty();
        let missing = missing(java, runs, &seen);
        if !(missing.is_empty() || java.is_off || is_told) {
            notes.push((Verdict::Error, format!("not in the rounds: {}", listed(missing))));
        }
        screened
    }

    pub(super) fn suspect(&self, class: Option<&str>) -> Option<&JavaSuspect> {
        let class = class?;
        self.suspects.iter().find(|suspect| suspect.suite == class)
    }

    /// Why a class was repeated: it is suspect, or the class before it did not grow alone.
    pub(super) fn repeated_for(&self, class: Option<&str>) -> Option<&JavaSuspect> {
        let behind = || self.suspects.iter().filter_map(|suspect| suspect.behind.as_deref());
        self.suspect(class).or_else(|| behind().find(|suspect| Some(suspect.suite.as_str()) == class))
    }

    /// Was this test left out of the rounds, because it failed there?
    pub(super) fn leaves_out(&self, runs: &Executions<'_>) -> bool {
        window_of(runs).is_some_and(|window| {
            self.left_out.contains(&(window.suite.clone(), java::base_of(&window.test).to_owned()))
        })
    }

    /// Did a test pass in the build, but not run in the rounds, although they did not leave it out?
    pub(super) fn skips(&self, runs: &Executions<'_>) -> bool {
        let ran = runs.ended.iter().any(|(_, w)| w.outcome == Some(memgate_wire::Outcome::Passed));
        let window = window_of(runs).filter(|_| ran && !self.leaves_out(runs));
        window.is_some_and(|w| {
            ["", &w.test].iter().any(|test| self.skipped.contains(&(w.suite.as_str(), *test)))
        })
    }

    /// Why a passed test was not checked for leaks. `None`: it was screened.
    pub(super) fn not_judged(&self, java: &JavaInput, runs: &Executions<'_>) -> Option<String> {
        if !passed(runs) {
            None
        } else if self.leaves_out(runs) {
            Some("not screened: it fails when it is repeated".to_owned())
        } else if class_of(runs).is_some_and(|class| self.failing.contains(class)) {
            Some("not screened: its class fails when it is repeated".to_owned())
        } else if let Some(what) = class_of(runs).and_then(|class| java.breaking.get(class)) {
            Some(format!("not screened: its class {what} when it is repeated"))
        } else if self.skips(runs) {
            Some("not screened: it is skipped when it is repeated".to_owned())
        } else {
            let why = java.not_screened.as_ref().filter(|_| java.is_off);
            why.map(|why| format!("not screened: {why}"))
        }
    }
}

/// Classes (or tests without a class) that are missing in the rounds.
fn missing<'a>(
    java: &JavaInput,
    runs: &'a [(String, Executions<'_>)],
    seen: &BTreeSet<&str>,
) -> BTreeSet<&'a str> {
    let ran = runs.iter().filter(|(_, runs)| passed(runs));
    let named = ran.filter_map(|(id, runs)| Some((id.as_str(), class_of(runs)?)));
    let told = |class: &str| java.unchanged.contains(class) || java.breaking.contains_key(class);
    let missing = named.filter(|(_, class)| !seen.contains(class) && !told(class));
    missing.map(|(id, class)| if class.is_empty() { id } else { class }).collect()
}
