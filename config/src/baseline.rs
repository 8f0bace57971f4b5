//! The baseline: figures that a team accepted, by suite, test and metric. `memgate baseline accept` writes it, and
//! relative thresholds read it. It is JSON with sorted keys, so that its diffs are readable in a merge request.

use std::collections::BTreeMap;
use std::fmt;

use memgate_model::{
    Area, Kind, Metric, MetricValue, Outcome, Per, RunReport, Runner, SuiteReport, TestReport, Verdict,
};
use serde::{Deserialize, Serialize};

mod windows;

pub use windows::WindowBaseline;

/// Version of the shape of [`Baseline`].
pub const BASELINE_VERSION: u32 = 1;

/// Accepted figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// [`BASELINE_VERSION`].
    pub schema_version: u32,
    /// Accepted figures by suite.
    pub suites: BTreeMap<String, SuiteBaseline>,
}

/// Accepted figures of a suite.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteBaseline {
    /// Figures of the suite as a whole.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<Metric, Figure>,
    /// Figures of its tests.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tests: BTreeMap<String, TestBaseline>,
    /// For a JVM suite: its windows (groups of test classes), and what each clean window left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<WindowBaseline>,
}

/// Accepted figures of a test.
pub type TestBaseline = BTreeMap<Metric, Figure>;

/// An accepted figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// In the metric's unit.
    pub value: f64,
    /// Scope that it was measured for.
    pub per: Per,
}

/// Error in a baseline file.
#[derive(Debug)]
pub enum BaselineError {
    /// The text is not JSON of the expected shape.
    Json(serde_json::Error),
    /// The file has this version, which differs from [`BASELINE_VERSION`].
    Version(u32),
}

impl fmt::Display for BaselineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "the baseline cannot be read: {error}"),
            Self::Version(found) => write!(
                f,
                "the baseline has version {found}, this memgate reads {BASELINE_VERSION}\nhint: write it anew with `memgate baseline accept`"
            ),
        }
    }
}

impl std::error::Error for BaselineError {}

impl Default for Baseline {
    fn default() -> Self {
        Self { schema_version: BASELINE_VERSION, suites: BTreeMap::new() }
    }
}

impl Baseline {
    /// Parses the text that [`Baseline::to_json`] writes.
    ///
    /// # Errors
    /// The text is not JSON of this shape and version.
    pub fn from_json(text: &str) -> Result<Self, BaselineError> {
        // The version is checked first: the shape of another version would give a confusing message.
        #[derive(Deserialize)]
        struct Head {
            schema_version: u32,
        }
        let head: Head = serde_json::from_str(text).map_err(BaselineError::Json)?;
        if head.schema_version != BASELINE_VERSION {
            return Err(BaselineError::Version(head.schema_version));
        }
        serde_json::from_str(text).map_err(BaselineError::Json)
    }

    /// The text of the file.
    ///
    /// # Errors
    /// A figure is not finite: JSON has no infinity.
    pub fn to_json(&self) -> Result<String, BaselineError> {
        serde_json::to_string_pretty(self).map(|json| json + "\n").map_err(BaselineError::Json)
    }

    /// Accepts the figures of every suite in the report. Suites that did not run keep theirs, and so do tests that were
    /// not judged or could not be measured. Tests that are covered by a class that leaks as a whole keep theirs, if
    /// they have any. After a `partial` run, tests that did not run keep their figures. Their suite keeps its figures
    /// too: a part of its tests does not measure the whole suite. Returns the number of tests whose figures were
    /// accepted.
    pub fn accept(&mut self, report: &RunReport, partial: bool) -> usize {
        let mut taken = 0;
        let covered = report.covered_by_classes();
        for suite in &report.suites {
            let accepted = self.suites.entry(suite.name.clone()).or_default();
            let ran = |id: &String| suite.tests.iter().any(|test| test.id == *id);
            if !partial || (!accepted.tests.is_empty() && accepted.tests.keys().all(ran)) {
                accepted.metrics.extend(figures(&suite.metrics));
            }
            for test in &suite.tests {
                let is_covered = covered.contains(&(suite.name.as_str(), test.id.as_str()));
                if test.is_judged() && !(is_covered && accepted.tests.contains_key(&test.id)) {
                    accepted.tests.insert(test.id.clone(), figures(&test.metrics).collect());
                    taken += 1;
                }
            }
            // If the suite was measured completely, tests that no longer exist are removed.
            if suite.verdict != Verdict::Error && !partial {
                accepted.tests.retain(|id, _| ran(id));
            }
        }
        taken
    }

    /// Accepts the windows of a suite. A window with findings keeps only its classes, so it is screened again every
    /// time. The accepted windows stay if the suite was not measured completely, or if a `partial` run lacks one of
    /// their classes.
    pub fn accept_windows(
        &mut self,
        report: &RunReport,
        suite: &str,
        windows: Vec<WindowBaseline>,
        partial: bool,
    ) {
        let Some(judged) = report.suites.iter().find(|judged| judged.name == suite) else { return };
        let ran = |class: &String| windows.iter().any(|window| window.classes.contains(class));
        let mut accepted = self.suites.get(suite).into_iter().flat_map(|suite| &suite.windows);
        if judged.verdict == Verdict::Error
            || (partial && !accepted.all(|window| window.classes.iter().all(ran)))
        {
            return;
        }
        let found = |class: &str| {
            judged.tests.iter().any(|test| {
                let of_class =
                    test.id.strip_prefix(class).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
                let bad = matches!(test.verdict, Verdict::Fail | Verdict::Warn | Verdict::Error);
                of_class && (bad || test.outcome == Outcome::Failed || !test.leaks.is_empty())
            })
        };
        let accepted = windows.into_iter().map(|mut window| {
            if window.classes.iter().any(|class| found(class)) {
                window.left = None;
            }
            window
        });
        self.suites.entry(suite.to_owned()).or_default().windows = accepted.collect();
    }

    /// Accepts zeros for tests of JVM suites, which have a figure only where something grew. A test that passed without
    /// a figure left nothing. Zero is accepted where a threshold is relative to it (`is_asked`: suite, test, metric).
    pub fn accept_nothing(&mut self, report: &RunReport, is_asked: impl Fn(&str, &str, Metric) -> bool) {
        let judged = |suite: &&SuiteReport| suite.runner == Runner::Junit && suite.verdict != Verdict::Error;
        for suite in report.suites.iter().filter(judged) {
            let of_class = |class: &TestReport, id: &str| {
                class.is_class && id.strip_prefix(&class.id).is_some_and(|rest| rest.starts_with('.'))
            };
            let told = |id: &str| suite.tests.iter().any(|entry| of_class(entry, id));
            let passed =
                |test: &&TestReport| !test.is_class && test.verdict == Verdict::Pass && !told(&test.id);
            let Some(accepted) = self.suites.get_mut(&suite.name) else { continue };
            for test in suite.tests.iter().filter(passed) {
                let Some(figures) = accepted.tests.get_mut(&test.id) else { continue };
                let kept = Metric::of(Area::Java, &[Kind::Live, Kind::Held]).chain([Metric::OsFds]);
                for metric in kept.filter(|metric| is_asked(&suite.name, &test.id, *metric)) {
                    figures.entry(metric).or_insert(Figure { value: 0.0, per: Per::Iteration });
                }
            }
        }
    }

    /// The accepted figure of a test, if it was measured for the same scope.
    #[must_use]
    pub fn test_figure(&self, suite: &str, test: &str, metric: Metric, per: Per) -> Option<f64> {
        figure(self.suites.get(suite)?.tests.get(test)?, metric, per)
    }

    /// The accepted figure of a suite.
    #[must_use]
    pub fn suite_figure(&self, suite: &str, metric: Metric) -> Option<f64> {
        figure(&self.suites.get(suite)?.metrics, metric, Per::Suite)
    }
}

fn figures(metrics: &BTreeMap<Metric, MetricValue>) -> impl Iterator<Item = (Metric, Figure)> + '_ {
    let finite = metrics.iter().filter(|(_, value)| value.value.is_finite());
    finite.map(|(metric, value)| (*metric, Figure { value: value.value, per: value.per }))
}

fn figure(figures: &BTreeMap<Metric, Figure>, metric: Metric, per: Per) -> Option<f64> {
    figures.get(&metric).filter(|figure| figure.per == per).map(|figure| figure.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(tests: &[(&str, Verdict, f64)]) -> RunReport {
        let metrics = |value, metric, per| [(metric, MetricValue::exact(value, metric, per))].into();
        let tests = tests.iter().map(|(id, verdict, bytes)| TestReport {
            metrics: metrics(*bytes, Metric::NativeLiveBytes, Per::Iteration),
            ..TestReport::new(id, *verdict)
        });
        let suite = SuiteReport {
            metrics: metrics(4096.0, Metric::OsRss, Per::Suite),
            ..SuiteReport::new("engine", Runner::Gtest, Verdict::Pass, tests.collect())
        };
        RunReport {
            started: "2026-11-21T10:00:00Z".to_owned(),
            ..RunReport::new("tiles", "s", Verdict::Pass, vec![suite])
        }
    }

    /// Regression: the class has the growth, so its tests were accepted with nothing, and failed when they had it
    /// again.
    #[test]
    fn tests_of_a_class_that_leaks_as_a_whole_keep_what_was_accepted() {
        let mut baseline = Baseline::default();
        assert_eq!(baseline.accept(&run(&[("a.TileTest.scroll", Verdict::Fail, 61.0)]), false), 1);
        let mut covered =
            run(&[("a.TileTest.scroll", Verdict::Pass, 0.0), ("a.TileTest", Verdict::Fail, 61.0)]);
        covered.suites[0].tests[1].is_class = true;
        let kept = |baseline: &Baseline| {
            baseline.test_figure("engine", "a.TileTest.scroll", Metric::NativeLiveBytes, Per::Iteration)
        };
        assert_eq!((baseline.accept(&covered, false), kept(&baseline)), (1, Some(61.0)));
        covered.suites[0].tests[0].confirmed = true;
        assert_eq!((baseline.accept(&covered, false), kept(&baseline)), (2, Some(0.0)), "it ran alone");
    }

    /// Regression: such a test had no figure, so its leak stayed a warning forever.
    #[test]
    fn a_java_test_that_left_nothing_is_accepted_with_nothing_where_a_threshold_is_relative() {
        let bytes = Metric::JavaLiveBytes;
        let accepted = |runner: Runner, verdict: Verdict, of_class: Option<Verdict>| {
            let mut report =
                run(&[("a.TileTest.scroll", Verdict::Pass, 0.0), ("a.TileTest", Verdict::Pass, 0.0)]);
            report.suites[0].runner = runner;
            let tests = &mut report.suites[0].tests;
            tests[0].metrics.clear();
            tests[0].verdict = verdict;
            tests[1].is_class = true;
            tests[1].verdict = of_class.unwrap_or(Verdict::Pass);
            tests.truncate(if of_class.is_some() { 2 } else { 1 });
            let mut baseline = Baseline::default();
            baseline.accept(&report, false);
            baseline.accept_nothing(&report, |suite, test, metric| {
                (suite, test, metric) == ("engine", "a.TileTest.scroll", bytes)
            });
            let figure = |metric| baseline.test_figure("engine", "a.TileTest.scroll", metric, Per::Iteration);
            assert_eq!(figure(Metric::JavaThreads), None, "nobody asks for it");
            figure(bytes)
        };
        assert_eq!(accepted(Runner::Junit, Verdict::Pass, None), Some(0.0));
        assert_eq!(accepted(Runner::Junit, Verdict::Warn, None), None, "unconfirmed");
        assert_eq!(accepted(Runner::Junit, Verdict::NotJudged, None), None);
        assert_eq!(
            accepted(Runner::Junit, Verdict::Pass, Some(Verdict::Warn)),
            None,
            "its class left something"
        );
        assert_eq!(accepted(Runner::Gtest, Verdict::Pass, None), None, "a screen gives figures of all tests");
    }

    #[test]
    fn accepted_figures_survive_the_file() {
        let mut baseline = Baseline::default();
        baseline.accept(&run(&[("MapCache.scroll", Verdict::Fail, 49_152.0)]), false);
        let json = baseline.to_json().unwrap();
        insta::assert_snapshot!(json, @r#"
        {
          "schema_version": 1,
          "suites": {
            "engine": {
              "metrics": {
                "os.rss": {
                  "value": 4096.0,
                  "per": "suite"
                }
              },
              "tests": {
                "MapCache.scroll": {
                  "native.live_bytes": {
                    "value": 49152.0,
                    "per": "iteration"
                  }
                }
              }
            }
          }
        }
        "#);
        let read = Baseline::from_json(&json).unwrap();
        assert_eq!(read, baseline);
        let bytes = Metric::NativeLiveBytes;
        assert_eq!(read.test_figure("engine", "MapCache.scroll", bytes, Per::Iteration), Some(49_152.0));
        assert_eq!(
            read.test_figure("engine", "MapCache.scroll", bytes, Per::Test),
            None,
            "measured per something else"
        );
        assert_eq!(read.suite_figure("engine", Metric::OsRss), Some(4096.0));
        assert_eq!(read.suite_figure("loaders", Metric::OsRss), None);
    }

    #[test]
    fn what_was_not_measured_keeps_its_accepted_figures_and_what_is_gone_goes() {
        let mut baseline = Baseline::default();
        baseline.accept(&run(&[("A.a", Verdict::Pass, 1.0), ("B.b", Verdict::Pass, 2.0)]), false);
        assert_eq!(baseline.accept(&run(&[("A.a", Verdict::NotJudged, 100.0)]), false), 0);
        let figure = |test| baseline.test_figure("engine", test, Metric::NativeLiveBytes, Per::Iteration);
        assert_eq!(figure("A.a"), Some(1.0));
        assert_eq!(figure("B.b"), None);
    }

    #[test]
    fn a_partial_run_changes_the_figures_of_its_own_tests_alone() {
        let mut baseline = Baseline::default();
        baseline.accept(&run(&[("A.a", Verdict::Pass, 1.0), ("B.b", Verdict::Pass, 2.0)]), false);
        let mut part = run(&[("A.a", Verdict::Pass, 3.0)]);
        part.suites[0].metrics.values_mut().for_each(|figure| figure.value = 1.0);
        baseline.accept(&part, true);
        let json = |classes: &str| serde_json::json!([{ "classes": classes, "left": "" }]);
        let windows = |classes: &str| serde_json::from_value(json(classes)).unwrap();
        baseline.accept_windows(&part, "engine", windows("A B"), true);
        baseline.accept_windows(&part, "engine", windows("A"), true);
        assert_eq!(baseline.suites["engine"].windows[0].classes, ["A", "B"], "B did not run");
        let figure = |test| baseline.test_figure("engine", test, Metric::NativeLiveBytes, Per::Iteration);
        assert_eq!((figure("A.a"), figure("B.b")), (Some(3.0), Some(2.0)));
        assert_eq!(baseline.suite_figure("engine", Metric::OsRss), Some(4096.0));
    }

    #[test]
    fn a_broken_baseline_says_why() {
        for (text, expected) in [
            ("", "the baseline cannot be read: EOF while parsing a value at line 1 column 0"),
            ("{", "the baseline cannot be read: EOF while parsing an object at line 1 column 1"),
            (
                r#"{"schema_version": 7}"#,
                "the baseline has version 7, this memgate reads 1\nhint: write it anew with `memgate baseline accept`",
            ),
            (
                r#"{"schema_version": 1}"#,
                "the baseline cannot be read: missing field `suites` at line 1 column 21",
            ),
        ] {
            assert_eq!(Baseline::from_json(text).unwrap_err().to_string(), expected, "{text}");
        }
    }
}
