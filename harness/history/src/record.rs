//! The stored form of a run: its head, the values of its tests by metric, and rows for everything but plain passes.
//!
//! Data flow: a `RunReport` → [`RunRecord`], within [`bounds`] → `column` and `roster` → the rows of a store.

mod bounds;
mod look;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use memgate_model::{
    Leak, Level, Metric, MetricValue, Outcome, Per, Problem, RunReport, SuiteReport, TestReport, Verdict,
};

use crate::column::Figure;
use crate::roster::MOST_TESTS;
use bounds::{MOST_LEAKS, MOST_SIGHTINGS, cut, limited, name_of, named, not_long, shortened};

pub use bounds::{LONGEST_NAME, LONGEST_TEXT, RecordError};
pub use look::Look;

/// Maximum number of reasons of a run that are kept.
const MOST_REASONS: usize = 20;

/// A run in its stored form.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// Its verdict.
    pub verdict: Verdict,
    /// Its exit code.
    pub exit_code: i32,
    /// Nothing ended early: a missing test no longer exists.
    pub is_whole: bool,
    /// How thoroughly it looked for leaks.
    pub look: Look,
    /// How long it took, milliseconds.
    pub duration_ms: i64,
    /// Its errors outside the tests, and the reasons of suites that did not simply pass.
    pub reasons: Vec<String>,
    /// Its tests, ordered by name. A suite's own figures belong to a test without a name.
    pub tests: Vec<TestRecord>,
    /// Leaks and one-time costs by their id.
    pub leaks: BTreeMap<String, Leak>,
    /// Which test had which leak.
    pub sightings: Vec<Sighting>,
}

/// A test of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct TestRecord {
    /// Its suite.
    pub suite: String,
    /// Its name. Empty: the suite as a whole.
    pub name: String,
    /// A whole test class: it has leaks and figures, but does not count as a test.
    pub is_class: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// Its verdict.
    pub verdict: Verdict,
    /// The reason in one sentence; empty for a plain pass.
    pub reason: String,
    /// How long its screening execution took, seconds.
    pub duration_s: f64,
    /// Its figures; empty if it was not judged.
    pub figures: BTreeMap<Metric, Figure>,
    /// Its finite limits above zero. A larger figure fails.
    pub limits: BTreeMap<Metric, f64>,
    /// If this test did not see a leak: does that show that the test does not have it?
    pub tells_absence: bool,
}

/// A leak of a test.
#[derive(Debug, Clone, PartialEq)]
pub struct Sighting {
    /// Id of the leak.
    pub leak: String,
    /// Position of the test in [`RunRecord::tests`].
    pub test: usize,
    /// How it counts.
    pub how: How,
    /// Bytes per iteration; the total for a one-time cost.
    pub bytes: f64,
    /// Objects per iteration; the total for a one-time cost.
    pub count: f64,
}

/// How a leak of a test counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// The leak grows, or may grow.
    Counted,
    /// A waiver covers the leak.
    Waived,
    /// The memory was allocated once and kept.
    OneTime,
}

impl How {
    /// Its name in views.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::Waived => "waived",
            Self::OneTime => "one_time",
        }
    }

    /// Its number in the database.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::Counted => 1,
            Self::Waived => 2,
            Self::OneTime => 3,
        }
    }

    /// The variant with this number.
    #[must_use]
    pub fn of_number(number: i64) -> Option<Self> {
        [Self::Counted, Self::Waived, Self::OneTime].into_iter().find(|how| how.number() == number)
    }
}

impl TestRecord {
    /// It passed, and there is nothing to report.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        matches!((self.outcome, self.verdict), (Outcome::Passed, Verdict::Pass)) && self.reason.is_empty()
    }
}

impl RunRecord {
    /// The stored form of a report.
    ///
    /// # Errors
    /// It has too many tests or leaks, or invalid names.
    pub fn of(report: &RunReport) -> Result<Self, RecordError> {
        let mut found = BTreeMap::<(&str, Cow<'_, str>), Found<'_>>::new();
        let telling = report.tests_without_other_leaks();
        for suite in &report.suites {
            if !suite.metrics.is_empty() {
                found.entry((&suite.name, Cow::Borrowed(""))).or_default().tell(of_suite(suite));
            }
            named("suite", &suite.name)?;
            for test in &suite.tests {
                named("test", &test.id)?;
                let found = found.entry((&suite.name, name_of(test))).or_default();
                found.tell(of_test(suite, test, telling.contains(&(&suite.name, &test.id))));
                found.leaks.extend(test.leaks.iter().map(|leak| (leak, how(leak))));
                found.leaks.extend(test.one_time.iter().map(|leak| (leak, How::OneTime)));
            }
        }
        limited("tests", found.len(), MOST_TESTS)?;
        let mut record = Self {
            verdict: report.verdict,
            exit_code: report.exit_code,
            is_whole: is_whole(report),
            look: Look::of(report),
            duration_ms: milliseconds(report.duration_s),
            reasons: reasons(report),
            tests: Vec::with_capacity(found.len()),
            leaks: BTreeMap::new(),
            sightings: Vec::new(),
        };
        let mut all = Vec::new();
        for (test, leaks) in found.into_values().filter_map(|found| Some((found.told?, found.leaks))) {
            let ids = leaks.iter().map(|(leak, _)| &leak.id);
            ids.clone().try_for_each(|id| named("leak", id))?;
            // The names of tests were shortened.
            let mut names = std::iter::once(("suite", &test.suite)).chain(ids.map(|id| ("leak", id)));
            names.try_for_each(|(what, name)| not_long(what, name))?;
            record.saw(&leaks);
            record.tests.push(test);
            all.extend(leaks);
        }
        // The amount and the holder of a one-time cost are not those of the leak.
        all.sort_by_key(|(_, how)| *how == How::OneTime);
        for (leak, _) in all {
            record.leaks.entry(leak.id.clone()).or_insert_with(|| shortened(leak));
        }
        limited("leaks", record.leaks.len(), MOST_LEAKS)?;
        limited("leaks of tests", record.sightings.len(), MOST_SIGHTINGS)?;
        Ok(record)
    }

    /// Adds the leaks of the next test, in the order of the report.
    fn saw(&mut self, leaks: &[(&Leak, How)]) {
        let test = self.tests.len();
        let mut known = BTreeMap::<(&str, How), usize>::new();
        for (leak, how) in leaks {
            let next = self.sightings.len();
            let at = *known.entry((&leak.id, *how)).or_insert(next);
            if at == next {
                let sighting = Sighting { leak: leak.id.clone(), test, how: *how, bytes: 0.0, count: 0.0 };
                self.sightings.push(sighting);
            }
            if let Some(sighting) = self.sightings.get_mut(at) {
                sighting.bytes += leak.bytes_per_iteration;
                sighting.count += leak.count_per_iteration;
            }
        }
    }

    /// The ids of its leaks. A one-time cost is none.
    #[must_use]
    pub fn leaking(&self) -> BTreeSet<&str> {
        let leaks = self.sightings.iter().filter(|sighting| sighting.how != How::OneTime);
        leaks.map(|sighting| sighting.leak.as_str()).collect()
    }

    /// Tests, without classes and the suites' own figures.
    #[must_use]
    pub fn count(&self) -> usize {
        self.counted().count()
    }

    /// Tests that exceeded their threshold.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.counted().filter(|test| test.verdict == Verdict::Fail).count()
    }

    fn counted(&self) -> impl Iterator<Item = &TestRecord> {
        self.tests.iter().filter(|test| !test.name.is_empty() && !test.is_class)
    }
}

/// A test that crashed or timed out may have prevented other tests from running.
fn is_whole(report: &RunReport) -> bool {
    let ended = |test: &TestReport| !matches!(test.outcome, Outcome::Crashed | Outcome::TimedOut);
    let whole = |suite: &SuiteReport| suite.verdict != Verdict::Error && suite.tests.iter().all(ended);
    report.errors.is_empty() && report.suites.iter().all(whole)
}

/// A report without its curves, which are never stored.
#[must_use]
pub fn lean(report: &RunReport) -> Cow<'_, RunReport> {
    let has_curves = |suite: &SuiteReport| {
        let of_test = |test: &TestReport| !test.curve.is_empty() || !test.growth.is_empty();
        !suite.curve.is_empty() || !suite.test_ends.is_empty() || suite.tests.iter().any(of_test)
    };
    if !report.suites.iter().any(has_curves) {
        // Uploaded reports are already lean.
        return Cow::Borrowed(report);
    }
    let mut lean = report.clone();
    for suite in &mut lean.suites {
        suite.curve.clear();
        suite.test_ends.clear();
        for test in &mut suite.tests {
            test.curve.clear();
            test.growth.clear();
        }
    }
    Cow::Owned(lean)
}

/// Entries of one test in a report: several if several processes ran it.
#[derive(Default)]
struct Found<'r> {
    /// The worst entry.
    told: Option<TestRecord>,
    /// The leaks of all entries.
    leaks: Vec<(&'r Leak, How)>,
}

impl Found<'_> {
    fn tell(&mut self, entry: TestRecord) {
        if self.told.as_ref().is_none_or(|told| told.verdict < entry.verdict) {
            self.told = Some(entry);
        }
    }
}

const fn how(leak: &Leak) -> How {
    if leak.waiver.is_some() { How::Waived } else { How::Counted }
}

/// Why a run is no plain pass, besides its tests.
fn reasons(report: &RunReport) -> Vec<String> {
    let errors = report.errors.iter().map(|Problem { r#where: place, what, hint }| match hint.as_str() {
        "" => format!("{place}: {what}"),
        hint => format!("{place}: {what}; {hint}"),
    });
    let told = |suite: &&SuiteReport| suite.verdict != Verdict::Pass && !suite.reason.is_empty();
    let suites = report.suites.iter().filter(told);
    let suites = suites.map(|suite| format!("{} (suite): {}", suite.name, suite.reason));
    let mut reasons: Vec<String> = errors.chain(suites).collect();
    let more = reasons.len().saturating_sub(MOST_REASONS);
    reasons.truncate(MOST_REASONS);
    // The database cannot store NUL, and a reason is one line there.
    let mut reasons: Vec<String> =
        reasons.iter().map(|reason| cut(&reason.replace(['\n', '\0'], " "))).collect();
    if more > 0 {
        reasons.push(format!("and {more} more"));
    }
    reasons
}

fn of_suite(suite: &SuiteReport) -> TestRecord {
    TestRecord {
        suite: suite.name.clone(),
        name: String::new(),
        is_class: false,
        outcome: Outcome::Passed,
        verdict: suite.verdict,
        reason: String::new(),
        duration_s: suite.screened_s,
        figures: figures(&suite.metrics),
        limits: limits(&suite.metrics),
        tells_absence: true,
    }
}

fn of_test(suite: &SuiteReport, test: &TestReport, tells_absence: bool) -> TestRecord {
    let record = TestRecord {
        suite: suite.name.clone(),
        name: name_of(test).into_owned(),
        is_class: test.is_class,
        outcome: test.outcome,
        verdict: test.verdict,
        reason: cut(&test.reason),
        duration_s: test.duration_s,
        figures: BTreeMap::new(),
        limits: BTreeMap::new(),
        tells_absence,
    };
    if !test.is_judged() {
        return record;
    }
    let metrics = if test.clean { &suite.clean_metrics } else { &test.metrics };
    TestRecord { figures: figures(metrics), limits: limits(metrics), ..record }
}

fn figures(metrics: &BTreeMap<Metric, MetricValue>) -> BTreeMap<Metric, Figure> {
    let figure = |value: &MetricValue| {
        let is_open = value.per == Per::Iteration && value.confidence > 0.0;
        Figure { value: value.value, interval: is_open.then_some((value.low, value.high)) }
    };
    let finite = metrics.iter().filter(|(_, value)| value.value.is_finite());
    finite.map(|(metric, value)| (*metric, figure(value))).collect()
}

fn limits(metrics: &BTreeMap<Metric, MetricValue>) -> BTreeMap<Metric, f64> {
    let limit = |value: &MetricValue| {
        let threshold = value.threshold.as_ref().filter(|threshold| threshold.level == Level::Fail)?;
        Some(threshold.limit).filter(|limit| limit.is_finite() && *limit > 0.0)
    };
    metrics.iter().filter_map(|(metric, value)| Some((*metric, limit(value)?))).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
fn milliseconds(seconds: f64) -> i64 {
    (seconds * 1000.0).round() as i64
}

#[cfg(test)]
mod tests {
    use memgate_model::Runner;

    use super::bounds::{MOST_FRAMES, MOST_OTHERS};
    use super::*;

    fn report(tests: &serde_json::Value) -> RunReport {
        let tests = serde_json::from_value(tests.clone()).unwrap();
        let suite = SuiteReport {
            clean_metrics: [(Metric::OsFds, serde_json::from_value(figure(0.0)).unwrap())].into(),
            ..SuiteReport::new("engine", Runner::Gtest, Verdict::Fail, tests)
        };
        RunReport { duration_s: 1.5, ..RunReport::new("tiles", "s", Verdict::Fail, vec![suite]) }
    }

    fn figure(value: f64) -> serde_json::Value {
        serde_json::json!({
            "value": value, "unit": "count", "per": "iteration", "low": value - 1.0, "high": null, "iterations": 9,
            "confidence": 0.99, "threshold": null,
        })
    }

    fn test(id: &str, verdict: &str, leaks: &[(&str, Option<&str>)]) -> serde_json::Value {
        let leak = |(id, waiver): &(&str, Option<&str>)| {
            serde_json::json!({
                "id": id, "kind": "native", "title": "1 × 7 B", "bytes_per_iteration": 7.0, "count_per_iteration": 1.0,
                "frames": [], "holder": [], "waiver": waiver,
            })
        };
        serde_json::json!({
            "id": id, "outcome": "passed", "verdict": verdict, "reason": "", "duration_s": 0.1, "confirmed": true,
            "metrics": { "os.fds": figure(3.0) }, "leaks": leaks.iter().map(leak).collect::<Vec<_>>(), "one_time": [],
            "curve": [],
        })
    }

    #[test]
    fn tests_have_their_figures_and_who_was_not_judged_has_none() {
        let mut clean = test("C.c", "pass", &[]);
        clean["clean"] = true.into();
        let report =
            report(&serde_json::json!([test("B.b", "not_judged", &[]), clean, test("A.a", "fail", &[])]));
        let record = RunRecord::of(&report).unwrap();
        let told: Vec<_> = record
            .tests
            .iter()
            .map(|test| (test.name.as_str(), test.figures.get(&Metric::OsFds).map(|figure| figure.value)))
            .collect();
        assert_eq!(told, [("A.a", Some(3.0)), ("B.b", None), ("C.c", Some(0.0))]);
        assert_eq!(record.tests[0].figures[&Metric::OsFds].interval, Some((2.0, f64::INFINITY)));
        assert_eq!((record.count(), record.failed(), record.duration_ms), (3, 1, 1500));
    }

    #[test]
    fn a_leak_is_kept_once_with_every_test_that_has_it() {
        let leaks = [("n1-a", None), ("n1-a", None), ("n1-b", Some("known"))];
        let tests = serde_json::json!([test("A.a", "fail", &leaks), test("B.b", "fail", &leaks[..1])]);
        let record = RunRecord::of(&report(&tests)).unwrap();
        let told: Vec<_> = record
            .sightings
            .iter()
            .map(|sighting| (sighting.leak.as_str(), sighting.test, sighting.how.name(), sighting.bytes))
            .collect();
        assert_eq!(
            told,
            [("n1-a", 0, "counted", 14.0), ("n1-b", 0, "waived", 7.0), ("n1-a", 1, "counted", 7.0)]
        );
        assert!(record.leaks.len() == 2 && record.leaks.values().all(|leak| leak.waiver.is_none()));
    }

    #[test]
    fn what_is_too_long_is_cut_and_what_is_too_much_is_refused() {
        let mut long = test("A.a", "fail", &[]);
        long["reason"] = "ä".repeat(5000).into();
        let record = RunRecord::of(&report(&serde_json::json!([long]))).unwrap();
        assert!(record.tests[0].reason.len() <= LONGEST_TEXT && record.tests[0].reason.ends_with('…'));
        let refused =
            RunRecord::of(&report(&serde_json::json!([test("A", "fail", &[(&"x".repeat(2000), None)])])));
        assert_eq!(
            refused.unwrap_err().to_string(),
            format!("keep the leak `{}…`: its name has 2000 bytes, 1024 are the most", "x".repeat(60))
        );
    }

    #[test]
    fn long_names_that_differ_at_their_end_stay_apart() {
        let names = ["a", "b"].map(|end| "ä".repeat(900) + end);
        let tests = names.each_ref().map(|name| test(name, "pass", &[]));
        let kept = || RunRecord::of(&report(&serde_json::json!(tests))).unwrap().tests;
        let [first, second] = kept().try_into().unwrap();
        assert!(first.name.len() <= LONGEST_NAME && second.name.len() <= LONGEST_NAME);
        assert_ne!(first.name, second.name);
        assert_eq!(kept()[0].name, first.name, "the same in each run");
    }

    /// Regression: the test that kept the memory once came first, and its title became that of the leak.
    #[test]
    fn a_leak_looks_as_where_it_leaks_and_a_one_time_cost_is_no_leak() {
        let mut once = test("A.a", "pass", &[]);
        let mut leaks = test("B.b", "fail", &[("n1-a", None)]);
        once["one_time"] = leaks["leaks"].clone();
        let mut other = leaks["leaks"][0].clone();
        other["id"] = "n1-b".into();
        once["one_time"].as_array_mut().unwrap().push(other);
        leaks["leaks"][0]["title"] = "3 × 7 B".into();
        let record = RunRecord::of(&report(&serde_json::json!([once, leaks]))).unwrap();
        assert_eq!(record.leaks["n1-a"].title, "3 × 7 B");
        assert_eq!((record.leaking(), record.leaks.len()), (BTreeSet::from(["n1-a"]), 2));
    }

    #[test]
    fn a_class_keeps_its_leaks_and_is_no_test() {
        let mut class = test("A", "fail", &[("j1-a", None)]);
        class["is_class"] = true.into();
        let tests = serde_json::json!([class, test("A.a", "pass", &[])]);
        let record = RunRecord::of(&report(&tests)).unwrap();
        assert_eq!((record.tests.len(), record.sightings.len()), (2, 1));
        assert_eq!((record.count(), record.failed()), (1, 0));
    }

    #[test]
    fn why_a_run_is_no_pass_is_kept() {
        let mut run = report(&serde_json::json!([]));
        run.suites[0].reason = "not measured: it is linked statically".to_owned();
        let problem = |number: usize| Problem {
            r#where: format!("shard {number}"),
            what: "it is\nmissing\0".to_owned(),
            hint: if number == 0 { "run it".to_owned() } else { String::new() },
        };
        run.errors = (0..2).map(problem).collect();
        let reasons = |run: &RunReport| RunRecord::of(run).unwrap().reasons;
        let suite = "engine (suite): not measured: it is linked statically";
        assert_eq!(reasons(&run), ["shard 0: it is missing ; run it", "shard 1: it is missing ", suite]);
        run.errors = (0..30).map(problem).collect();
        assert_eq!((reasons(&run).len(), reasons(&run)[20].as_str()), (21, "and 11 more"));
        run.errors.clear();
        run.suites[0].verdict = Verdict::Pass;
        assert_eq!(reasons(&run), [""; 0], "a remark");
    }

    #[test]
    fn what_ended_early_is_not_whole() {
        let of = |edit: &dyn Fn(&mut RunReport)| {
            let mut whole = report(&serde_json::json!([test("A.a", "pass", &[])]));
            edit(&mut whole);
            RunRecord::of(&whole).unwrap().is_whole
        };
        assert!(of(&|_| ()) && of(&|run| run.suites[0].tests[0].outcome = Outcome::Failed));
        assert!(!of(&|run| run.suites[0].tests[0].outcome = Outcome::Crashed));
        assert!(!of(&|run| run.suites[0].tests[0].outcome = Outcome::TimedOut));
        assert!(!of(&|run| run.suites[0].verdict = Verdict::Error));
        let problem = || memgate_model::Problem {
            r#where: "a device".to_owned(),
            what: "it went away".to_owned(),
            hint: String::new(),
        };
        assert!(!of(&|run| run.errors.push(problem())));
    }

    #[test]
    fn a_test_that_leaves_what_it_is_allowed_does_not_say_that_a_leak_is_away() {
        for (limit, value, tells) in
            [(0.0, 0.0, true), (0.0, 4.0, true), (9.0, 0.0, true), (9.0, 4.0, false), (2.0, 4.0, true)]
        {
            let mut allowed = test("A.a", "pass", &[]);
            // The lower bound of the interval is the value minus one.
            allowed["metrics"]["os.fds"] = figure(value);
            allowed["metrics"]["os.fds"]["threshold"] =
                serde_json::json!({ "limit": limit, "level": "fail", "source": "memgate.yaml:3" });
            let record = RunRecord::of(&report(&serde_json::json!([allowed]))).unwrap();
            assert_eq!(record.tests[0].tells_absence, tells, "{value} of {limit}");
        }
        let unjudged = RunRecord::of(&report(&serde_json::json!([test("A.a", "not_judged", &[])]))).unwrap();
        assert!(!unjudged.tests[0].tells_absence);
    }

    #[test]
    fn growth_that_is_unconfirmed_does_not_say_that_a_leak_is_away() {
        let told = |of_class: serde_json::Value| {
            let alone = test("A.alone", "pass", &[]);
            let mut beside = test("A.beside", "pass", &[]);
            beside["confirmed"] = false.into();
            let mut other = beside.clone();
            other["id"] = "A$B.b".into();
            let record =
                RunRecord::of(&report(&serde_json::json!([of_class, alone, beside, other]))).unwrap();
            let known = record.tests.iter().filter(|test| test.tells_absence);
            known.map(|test| test.name.clone()).collect::<Vec<_>>()
        };
        let class = |verdict: &str, leaks: &[(&str, Option<&str>)]| {
            let mut class = test("A", verdict, leaks);
            class["is_class"] = true.into();
            class
        };
        for verdict in ["warn", "error", "fail"] {
            assert_eq!(told(class(verdict, &[])), ["A$B.b", "A.alone"], "{verdict}");
        }
        let leaks = told(class("fail", &[("j1-a", None)]));
        assert_eq!(leaks, ["A", "A$B.b", "A.alone"], "a leak of A.beside may have this id in its class");
        let warned = told(class("warn", &[("j1-a", None)]));
        assert_eq!(warned, leaks, "a limit that only warns");
        let waived = told(class("pass", &[("j1-a", Some("w"))]));
        assert_eq!(waived, ["A", "A$B.b", "A.alone", "A.beside"]);
        assert_eq!(told(test("B.b", "warn", &[])), ["A$B.b", "A.alone", "A.beside"], "a test by itself");
        let waived = told(test("B.b", "warn", &[("n1-b", Some("w"))]));
        assert_eq!(waived, ["A$B.b", "A.alone", "A.beside"], "it may have another leak than the waived one");
        let over = |metric: &str, high: f64| {
            let value = serde_json::json!({ "value": 9.0, "unit": "bytes", "per": "iteration", "low": 8.0, "high": high,
                "iterations": 9, "confidence": 0.99, "threshold": { "limit": 5.0, "level": "warn", "source": "default" } });
            let mut busy = test("B.b", "warn", &[]);
            busy["metrics"] = serde_json::json!({ metric: value });
            told(busy).contains(&"B.b".to_owned())
        };
        assert!(over("java.allocated_bytes", 9.5), "what it allocates in all is no leak");
        assert!(!over("native.live_bytes", 9.5), "growth without a name");
    }

    #[test]
    fn a_run_says_how_closely_it_looked() {
        let look = |edit: &dyn Fn(&mut SuiteReport)| {
            let mut run = report(&serde_json::json!([test("A.a", "pass", &[])]));
            edit(&mut run.suites[0]);
            RunRecord::of(&run).unwrap().look
        };
        assert_eq!(look(&|_| ()), Look::Plain);
        assert_eq!(look(&|suite| suite.native_sampling = Some(512 << 10)), Look::Sampled);
        assert_eq!(look(&|suite| suite.hunt = Some(memgate_model::Hunt::default())), Look::Hunted);
        let why = Some("no time".to_owned());
        let no_hunt = memgate_model::Hunt { not_hunted: why, ..memgate_model::Hunt::default() };
        assert_eq!(look(&|suite| suite.hunt = Some(no_hunt.clone())), Look::Plain);
        assert!(Look::Sampled < Look::Plain && Look::Plain < Look::Hunted);
    }

    #[test]
    fn a_stack_that_is_cut_says_so() {
        let frame = serde_json::json!({
            "function": "f", "file": null, "line": null, "module": "m", "offset": 0, "inlined": false,
        });
        let stack = |frames: usize| {
            let mut deep = test("A.a", "fail", &[("n1-a", None)]);
            deep["leaks"][0]["frames"] = vec![frame.clone(); frames].into();
            let record = RunRecord::of(&report(&serde_json::json!([deep]))).unwrap();
            (record.leaks["n1-a"].frames.len(), record.leaks["n1-a"].truncated)
        };
        assert_eq!(stack(MOST_FRAMES), (MOST_FRAMES, false));
        assert_eq!(stack(MOST_FRAMES + 1), (MOST_FRAMES, true));
    }

    #[test]
    fn holders_of_other_lines_are_kept_in_short() {
        let step =
            serde_json::json!({ "kind": "static", "owner": "o".repeat(9000), "name": "", "class": "" });
        let other = serde_json::json!({ "reach": "reachable", "blocks": 1, "holder": vec![step; 5] });
        let mut leaks = test("A.a", "fail", &[("n1-a", None)]);
        leaks["leaks"][0]["hold"] = serde_json::json!({
            "reach": "lost", "of_reach": 1, "blocks": 101, "note": "n".repeat(9000), "others": vec![other; 100],
        });
        let record = RunRecord::of(&report(&serde_json::json!([leaks]))).unwrap();
        let hold = record.leaks["n1-a"].hold.clone().unwrap();
        assert_eq!((hold.others.len(), hold.others[0].holder.len()), (MOST_OTHERS, 1));
        let texts = [hold.note.unwrap(), hold.others[0].holder[0].owner.clone()];
        assert!(texts.iter().all(|text| text.len() <= LONGEST_TEXT && text.ends_with('…')));
    }

    #[test]
    fn more_leaks_than_a_run_can_have_are_refused_at_once() {
        let ids: Vec<String> = (0..=MOST_LEAKS).map(|n| format!("n1-{n}")).collect();
        let leaks: Vec<_> = ids.iter().map(|id| (id.as_str(), None)).collect();
        let refused = RunRecord::of(&report(&serde_json::json!([test("A.a", "fail", &leaks)]))).unwrap_err();
        assert_eq!(refused.to_string(), "keep 20001 leaks: 20000 are the most of a run");
        let most = serde_json::json!([test("A.a", "fail", &leaks[..MOST_LEAKS])]);
        assert_eq!(RunRecord::of(&report(&most)).unwrap().leaks.len(), MOST_LEAKS);
    }

    #[test]
    fn the_leaks_of_every_process_that_ran_a_test_are_kept() {
        let tests = serde_json::json!([
            test("A.a", "fail", &[("n1-a", None)]),
            test("A.a", "fail", &[("n1-b", None)])
        ]);
        let record = RunRecord::of(&report(&tests)).unwrap();
        let told: Vec<_> = record.sightings.iter().map(|seen| (seen.leak.as_str(), seen.test)).collect();
        assert_eq!(told, [("n1-a", 0), ("n1-b", 0)]);
    }

    #[test]
    fn the_same_test_of_two_processes_is_told_by_the_worse_one() {
        let tests =
            serde_json::json!([test("A.a", "pass", &[]), test("A.a", "fail", &[]), test("A.a", "warn", &[])]);
        let record = RunRecord::of(&report(&tests)).unwrap();
        assert_eq!((record.tests.len(), record.tests[0].verdict), (1, Verdict::Fail));
    }
}
