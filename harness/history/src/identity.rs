//! Identifies a run: distinguishes it from another one that claims to be the same.
//!
//! Data flow: the head of a report and its [`RunRecord`] → SHA-256 of named fields. So a report that is read and
//! written again keeps its digest, even with a newer memgate. The digest covers more of the report than the pages show:
//! it cannot be computed without the report.

use memgate_model::{Outcome, RunReport, Verdict};
use sha2::{Digest as _, Sha256};

use crate::column::Figure;
use crate::digest::hex;
use crate::record::{RunRecord, TestRecord};

/// Prefix of digests. Digests of runs stored until November 2026 do not have it.
pub const VERSION: &str = "2:";

/// Most bytes that wait to be hashed.
const MOST_WAITING: usize = 16 << 10;

/// The digest of a report.
#[must_use]
pub fn digest(report: &RunReport, record: &RunRecord) -> String {
    let mut digest = Fields::default();
    digest.words(&[&report.project, &report.session, &report.started, verdict(record.verdict)]);
    let cost = &report.agent_cost;
    digest.numbers(&[
        report.duration_s.to_bits(),
        cost.cpu_ratio.unwrap_or_default().to_bits(),
        cost.boundary_s.to_bits(),
        cost.peak_bytes,
        u64::from(record.exit_code.cast_unsigned()),
        u64::from(record.is_whole),
        report.errors.len() as u64,
        report.suites.len() as u64,
        record.tests.len() as u64,
        record.leaks.len() as u64,
        record.sightings.len() as u64,
    ]);
    for error in &report.errors {
        digest.words(&[&error.what]);
    }
    for suite in &report.suites {
        digest.words(&[&suite.name, &suite.reason, verdict(suite.verdict)]);
        digest.numbers(&[suite.screened_s.to_bits()]);
    }
    for test in &record.tests {
        digest.test(test);
    }
    // The id already identifies the stack.
    for (id, leak) in &record.leaks {
        digest.words(&[id, &leak.title]);
    }
    for sighting in &record.sightings {
        digest.words(&[&sighting.leak, sighting.how.name()]);
        digest.numbers(&[sighting.test as u64, sighting.bytes.to_bits(), sighting.count.to_bits()]);
    }
    format!("{VERSION}{}", hex(&digest.all.chain_update(&digest.last).finalize()))
}

const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::NotJudged => "not_judged",
        Verdict::Warn => "warn",
        Verdict::Error => "error",
        Verdict::Fail => "fail",
    }
}

const fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed => "failed",
        Outcome::Skipped => "skipped",
        Outcome::Crashed => "crashed",
        Outcome::TimedOut => "timed_out",
    }
}

/// Fields in sequence, each with its length if that is not fixed. So two different records never look the same.
#[derive(Default)]
struct Fields {
    all: Sha256,
    /// Bytes that are not hashed yet: many small updates are slower.
    last: Vec<u8>,
}

impl Fields {
    fn test(&mut self, test: &TestRecord) {
        self.words(&[&test.suite, &test.name, &test.reason, outcome(test.outcome), verdict(test.verdict)]);
        self.numbers(&[
            u64::from(test.is_class),
            test.duration_s.to_bits(),
            test.figures.len() as u64,
            test.limits.len() as u64,
        ]);
        for (metric, Figure { value, interval }) in &test.figures {
            let (low, high) = interval.unwrap_or((f64::NAN, f64::NAN));
            self.words(&[metric.name()]);
            self.numbers(&[value, &low, &high].map(|figure| figure.to_bits()));
        }
        for (metric, limit) in &test.limits {
            self.words(&[metric.name()]);
            self.numbers(&[limit.to_bits()]);
        }
    }

    fn words(&mut self, words: &[&str]) {
        for word in words {
            self.numbers(&[word.len() as u64]);
            self.last.extend(word.as_bytes());
        }
    }

    fn numbers(&mut self, numbers: &[u64]) {
        if self.last.len() > MOST_WAITING {
            self.all.update(&self.last);
            self.last.clear();
        }
        for number in numbers {
            self.last.extend(number.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use memgate_model::{AgentCost, Leak, Metric, Problem, Runner, SuiteReport};

    use super::*;
    use crate::record::{How, Look, Sighting};

    struct Run {
        report: RunReport,
        record: RunRecord,
    }

    fn run() -> Run {
        let suite = SuiteReport {
            screened_s: 1.0,
            ..SuiteReport::new("engine", Runner::Gtest, Verdict::Fail, Vec::new())
        };
        let report = RunReport {
            started: "2026-11-27T12:00:00Z".into(),
            duration_s: 1.5,
            agent_cost: AgentCost {
                cpu_ratio: Some(1.25),
                peak_bytes: 7,
                boundary_s: 0.5,
                ..AgentCost::default()
            },
            errors: vec![Problem {
                r#where: "engine".into(),
                what: "it crashed".into(),
                hint: String::new(),
            }],
            ..RunReport::new("tiles", "s1", Verdict::Fail, vec![suite])
        };
        let leak = Leak {
            id: "n1".into(),
            title: "1 × 61 B".into(),
            bytes_per_iteration: 61.0,
            count_per_iteration: 1.0,
            ..Leak::default()
        };
        let test = TestRecord {
            suite: "engine".into(),
            name: "Cache.grows".into(),
            is_class: false,
            outcome: Outcome::Passed,
            verdict: Verdict::Fail,
            reason: "leaks".into(),
            duration_s: 0.25,
            figures: [(Metric::NativeLiveBytes, Figure { value: 61.0, interval: Some((60.0, 62.0)) })].into(),
            limits: [].into(),
            tells_absence: true,
        };
        let how = How::Counted;
        let record = RunRecord {
            verdict: Verdict::Fail,
            exit_code: 1,
            is_whole: true,
            look: Look::Plain,
            duration_ms: 1500,
            reasons: Vec::new(),
            tests: vec![test],
            leaks: [("n1".to_owned(), leak)].into(),
            sightings: vec![Sighting { leak: "n1".into(), test: 0, how, bytes: 61.0, count: 1.0 }],
        };
        Run { report, record }
    }

    fn of(run: &Run) -> String {
        digest(&run.report, &run.record)
    }

    #[test]
    fn a_digest_that_is_stored_is_found_again() {
        // Do not change: stored runs have such digests.
        assert_eq!(of(&run()), "2:57c3d373379242646f52298229c73e34316c85fa83398c1433aa8e4cdf51e442");
    }

    #[test]
    fn what_differs_in_anything_that_is_stored_is_another_run() {
        let change = |change: fn(&mut Run)| {
            let mut changed = run();
            change(&mut changed);
            of(&changed)
        };
        let all = [
            of(&run()),
            change(|run| run.report.errors[0].what.clear()),
            change(|run| run.record.leaks.get_mut("n1").unwrap().title.clear()),
            change(|run| run.report.session.push('1')),
            change(|run| run.report.started.clear()),
            change(|run| run.report.duration_s = 1.25),
            change(|run| run.report.agent_cost.peak_bytes = 8),
            change(|run| run.report.suites[0].screened_s = 1.125),
            change(|run| run.record.exit_code = 2),
            change(|run| run.record.is_whole = false),
            change(|run| run.record.verdict = Verdict::Warn),
            change(|run| run.record.tests[0].suite.push('C')),
            // The same letters, divided differently.
            change(|run| {
                let test = &mut run.record.tests[0];
                (test.suite, test.name) = ("engineC".into(), "ache.grows".into());
            }),
            change(|run| run.record.tests[0].outcome = Outcome::Failed),
            change(|run| run.record.tests[0].verdict = Verdict::Pass),
            change(|run| run.record.tests[0].reason.clear()),
            change(|run| run.record.tests[0].is_class = true),
            change(|run| run.record.tests[0].duration_s = 0.5),
            change(|run| run.record.tests[0].figures.clear()),
            change(|run| {
                let plain = Figure { value: 61.0, interval: None };
                run.record.tests[0].figures.insert(Metric::NativeLiveBytes, plain);
            }),
            change(|run| {
                run.record.tests[0].limits.insert(Metric::NativeLiveBytes, 61.0);
            }),
            change(|run| run.record.sightings[0].how = How::Waived),
            change(|run| run.record.sightings[0].bytes = 62.0),
            change(|run| run.record.sightings.clear()),
        ];
        let different: BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }
}
