//! The run report: what is written to `report.json` and rendered by every reporter.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::{AgainstBase, Base};
use crate::followed::Followed;
use crate::leak::Leak;
use crate::metric::{Metric, Per, Unit};
use crate::origin::Origin;
use crate::part::Part;
use crate::runner::Runner;

/// Version of the shape of [`RunReport`].
pub const SCHEMA_VERSION: u32 = 1;

/// Judgement, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Measured and within its thresholds.
    Pass,
    /// The user's own test failed or was skipped, or nobody screened it: its leaks are not judged.
    NotJudged,
    /// Something to look at that does not fail the build.
    Warn,
    /// Could not be measured: never a pass.
    Error,
    /// Leaks more than its threshold.
    Fail,
}

impl Verdict {
    /// Its label in reports for people.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::NotJudged => "NOT JUDGED",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
            Self::Fail => "FAIL",
        }
    }

    /// The worst of several; `None` where there is none, because no data is never a pass.
    #[must_use]
    pub fn worst(verdicts: impl IntoIterator<Item = Self>) -> Option<Self> {
        verdicts.into_iter().max()
    }

    /// The verdict of these suites together, apart from what concerns the run alone.
    ///
    /// A test that is not judged is nothing against the run: the user's own result has its say in the exit code. Unless
    /// nothing was looked at: that is no pass.
    #[must_use]
    pub fn of_suites(suites: &[SuiteReport]) -> Self {
        let unjudged = |test: &TestReport| test.verdict == Self::NotJudged && test.outcome == Outcome::Passed;
        let nothing = suites.iter().all(|suite| suite.verdict == Self::NotJudged)
            && suites.iter().flat_map(|suite| &suite.tests).any(unjudged);
        let best = if nothing { Self::NotJudged } else { Self::Pass };
        suites
            .iter()
            .map(|suite| suite.verdict)
            .filter(|verdict| *verdict != Self::NotJudged)
            .fold(best, Self::max)
    }

    /// The exit code of a run: 0, nothing failed; 1, a gate or the user's own tests failed; 2, something could not be
    /// measured.
    #[must_use]
    pub const fn exit_code(self, users_failed: bool) -> i32 {
        match self {
            Self::Fail => 1,
            _ if users_failed => 1,
            Self::Error => 2,
            Self::Pass | Self::NotJudged | Self::Warn => 0,
        }
    }
}

/// How the user's own test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its assertions held.
    Passed,
    /// An assertion failed, or its process ended with a status other than 0.
    Failed,
    /// It skipped itself.
    Skipped,
    /// Its process ended in the middle of it.
    Crashed,
    /// It ran longer than its timeout.
    TimedOut,
}

/// How exactly the boundaries of a suite's tests are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BoundaryQuality {
    /// A hook inside the process blocks the test.
    Exact,
    /// Exact, per test class.
    Class,
    /// Read from the runner's output, asynchronous to the test.
    Observed,
    /// The process is the test.
    Process,
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunReport {
    /// Version of this shape; a reader refuses any other.
    pub schema_version: u32,
    /// Worst verdict of all suites, and of the run itself.
    pub verdict: Verdict,
    /// Exit code of memgate for this verdict.
    pub exit_code: i32,
    /// Name of the project.
    pub project: String,
    /// Name of the session folder.
    pub session: String,
    /// When the run began, RFC 3339 with zone.
    pub started: String,
    /// Seconds the run took, measuring, confirming and judging included.
    pub duration_s: f64,
    /// What measuring cost.
    pub agent_cost: AgentCost,
    /// The suites.
    pub suites: Vec<SuiteReport>,
    /// State of every waiver.
    pub waivers: Vec<WaiverReport>,
    /// What went wrong outside the tests themselves.
    pub errors: Vec<Problem>,
    /// Java objects that were followed from their allocation to their end, where that was asked
    /// for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followed: Option<Followed>,
    /// Commit, CI job and machine of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The base of a review whose known leaks do not fail it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// Shards of a run over several machines, in their order. A shard lists itself alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<Shard>,
}

impl RunReport {
    /// The shard that it is itself; `None`: it is a whole run.
    #[must_use]
    pub fn as_shard(&self) -> Option<&Shard> {
        match self.shards.as_slice() {
            [shard] if shard.session == self.session => Some(shard),
            _ => None,
        }
    }

    /// Gives every clean test its figures again, as before the report was written.
    #[must_use]
    pub fn completed(mut self) -> Self {
        for suite in &mut self.suites {
            let figures = std::mem::take(&mut suite.clean_metrics);
            for test in &mut suite.tests {
                if std::mem::take(&mut test.clean) {
                    test.metrics.clone_from(&figures);
                }
            }
        }
        self
    }
}

/// What measuring cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentCost {
    /// CPU time of the tested processes in the screening pass divided by an estimate of the same without the agent;
    /// `null`: not estimated.
    pub cpu_ratio: Option<f64>,
    /// CPU time of the tested processes that the ratio rests on, seconds.
    #[serde(default, skip_serializing_if = "is_no_time")]
    pub cpu_s: f64,
    /// Largest memory the agent mapped in one process, bytes.
    pub peak_bytes: u64,
    /// Time spent at the start of processes and at boundaries in the screening pass, seconds.
    pub boundary_s: f64,
    /// Stacks that could not be unwound to their root, over all processes.
    pub truncated_stacks: u64,
    /// How long the processes ran that repeated tests, seconds; the screening pass is not in it.
    #[serde(default)]
    pub repeated_s: f64,
}

/// What screening a JVM suite cost, its boundaries in the build's own run and its rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScreenCost {
    /// Seconds its tests take alone.
    pub alone_s: f64,
    /// Seconds with everything that screening adds.
    pub screened_s: f64,
    /// The second as a multiple of the first.
    pub ratio: f64,
}

/// Memory of an app while its tests ran, as Android reports it. It is not judged: it includes
/// what other processes share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AppMemory {
    /// The test that had just ended.
    pub test: String,
    /// Source: `dumpsys meminfo`, `/proc/PID/smaps_rollup`, or `the agent`, where the device
    /// told nothing.
    pub source: String,
    /// Bytes by name: `total_pss`, `total_rss`, `private`, `swap`, `java_heap`, `native_heap`,
    /// `graphics`…
    pub bytes: BTreeMap<String, u64>,
    /// Numbers of objects by name: `views`, `activities`…
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub objects: BTreeMap<String, u64>,
}

/// What `--hunt` repeated of a suite: tests, or test classes, that were never suspect.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hunt {
    /// Test classes were repeated, not single tests.
    pub classes: bool,
    /// How many there were to repeat.
    pub of: u64,
    /// How many of them were repeated.
    pub repeated: u64,
    /// How many of these grew. They are judged like confirmed tests.
    pub grew: u64,
    /// The fewest executions that one of them had, and the most.
    pub executions: (u64, u64),
    /// A leak in one of so many executions would have been missed in any of them with 1 % at most;
    /// 0: any would.
    pub one_in: u32,
    /// How many there was no time for.
    pub not_reached: u64,
    /// How many cannot be repeated so often, because they fail or break off then.
    pub failing: u64,
    /// The first of them, with what happened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// Why nothing was repeated at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_hunted: Option<String>,
}

/// One executable with its normalised arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteReport {
    /// Its name in the configuration, else its executable's file name.
    pub name: String,
    /// The runner, which tells its tests apart.
    pub runner: Runner,
    /// How exactly the boundaries are known.
    pub boundary: BoundaryQuality,
    /// Worst verdict of its tests, and of the suite itself.
    pub verdict: Verdict,
    /// Verdict of the suite itself, its tests left out: what `reason` and `metrics` say. Absent in reports of earlier
    /// builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_verdict: Option<Verdict>,
    /// Seconds the screening pass took.
    pub screened_s: f64,
    /// Fewest and most executions of one of its tests in the screen, where it repeated them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screen_executions: Option<(u64, u64)>,
    /// Mean bytes between two samples, where native allocations were sampled in the screen. Its figures of them are
    /// estimates then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_sampling: Option<u64>,
    /// The screen took no stacks of what its tests allocated: those of the suspects come from another run of these.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stacks_of_suspects: bool,
    /// Its command chooses the tests by an argument of their program (`--gtest_filter`), which overrides `--filter`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub selects_itself: bool,
    /// What screening cost compared with the suite alone, for JVM suites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screen_cost: Option<ScreenCost>,
    /// What Android said of the app's memory, for instrumented suites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_memory: Option<AppMemory>,
    /// What `--hunt` repeated, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hunt: Option<Hunt>,
    /// Why the suite as a whole is not a pass, else empty.
    pub reason: String,
    /// Metrics of the suite as a whole (thresholds `per: suite`).
    #[schemars(extend("propertyNames" = {"$ref": "#/$defs/Metric"}))]
    pub metrics: BTreeMap<Metric, MetricValue>,
    /// Values over its whole run, all its processes together, as `[t_ns, metric, value]`; time 0 is
    /// the start of the first one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<(u64, Metric, f64)>")]
    pub curve: Vec<CurvePoint>,
    /// Where its tests ended on that curve, 500 of them at most, as `[t_ns, test]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test_ends: Vec<(u64, String)>,
    /// Figures that its tests with `clean` have in common; they do not repeat them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = {"$ref": "#/$defs/Metric"}))]
    pub clean_metrics: BTreeMap<Metric, MetricValue>,
    /// What each shard says of it as a whole, where its tests were spread over several machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<SuiteShard>,
    /// Its tests, in the order they ran.
    pub tests: Vec<TestReport>,
}

impl SuiteReport {
    /// Verdict of the suite itself, its tests left out; where an earlier build did not tell, that of both.
    #[must_use]
    pub fn own_verdict(&self) -> Verdict {
        self.own_verdict.unwrap_or(self.verdict)
    }

    /// Was all of it measured, and did no test of it fail? What failed may have ended before it leaked.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let ended = |test: &TestReport| matches!(test.outcome, Outcome::Passed | Outcome::Skipped);
        self.verdict != Verdict::Error && self.tests.iter().all(ended)
    }
}

/// One shard of a run: what ran of it on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shard {
    /// Which part it is: `3/8`.
    #[schemars(with = "String")]
    pub part: Part,
    /// Name of its session.
    pub session: String,
    /// When it began, RFC 3339 with zone.
    pub started: String,
    /// Seconds it took.
    pub duration_s: f64,
    /// Its own verdict.
    pub verdict: Verdict,
    /// How many tests, test classes or suites, whatever its suites are divided into, fell to it.
    pub units: u64,
    /// Of how many.
    pub of_units: u64,
    /// Sessions of earlier attempts, which it replaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<String>,
    /// Tests with another verdict in one of those.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disagree: Vec<String>,
}

/// What one shard of a run says of a suite as a whole. Such figures are judged by shard and never added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteShard {
    /// Which part of the run it is: `3/8`.
    #[schemars(with = "String")]
    pub part: Part,
    /// Seconds its screening pass took.
    pub screened_s: f64,
    /// Metrics of the suite as a whole there.
    #[schemars(extend("propertyNames" = {"$ref": "#/$defs/Metric"}))]
    pub metrics: BTreeMap<Metric, MetricValue>,
    /// Values over its run there, as `[t_ns, metric, value]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<(u64, Metric, f64)>")]
    pub curve: Vec<CurvePoint>,
    /// Where its tests ended on that curve, as `[t_ns, test]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test_ends: Vec<(u64, String)>,
}

/// One test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TestReport {
    /// Name as the runner shows it, within the suite (`MapCache.scroll`).
    pub id: String,
    /// No test but a test class as a whole: what it leaves cannot be told from its tests. It does
    /// not count as a test.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_class: bool,
    /// Nothing to tell: it passed, and its figures are `clean_metrics` of its suite.
    #[serde(default, skip_serializing_if = "is_false")]
    pub clean: bool,
    /// How the user's own test ended.
    pub outcome: Outcome,
    /// Judgement.
    pub verdict: Verdict,
    /// One sentence for the verdict; empty for a plain pass.
    pub reason: String,
    /// What of that sentence its figures with their thresholds do not say, for text that shows them; `null`: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_beside_figures: Option<String>,
    /// How its leaks stand to the base of the review; `null`: it does not leak too much, or there was no base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against_base: Option<AgainstBase>,
    /// Seconds of its screening execution.
    pub duration_s: f64,
    /// Was it run again, alone?
    pub confirmed: bool,
    /// Alone it left nothing of what it is judged by: that comes, if it does, with the tests around it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub only_among_others: bool,
    /// Figures with the threshold that was applied.
    #[schemars(extend("propertyNames" = {"$ref": "#/$defs/Metric"}))]
    pub metrics: BTreeMap<Metric, MetricValue>,
    /// What grows, largest first.
    pub leaks: Vec<Leak>,
    /// What was allocated once and stayed: reported, not failed.
    pub one_time: Vec<Leak>,
    /// Values over time, as `[t_ns, metric, value]`.
    #[schemars(with = "Vec<(u64, Metric, f64)>")]
    pub curve: Vec<CurvePoint>,
    /// What the slopes of the confirming run were estimated from, thinned, as `[iteration, metric,
    /// value]`; waived groups are taken out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<(u64, Metric, f64)>")]
    pub growth: Vec<GrowthPoint>,
    /// Iterations of the confirming run before the first that counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warm_up: u32,
}

/// A figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricValue {
    /// Best estimate.
    pub value: f64,
    /// What it counts.
    pub unit: Unit,
    /// Per what.
    pub per: Per,
    /// Lower bound of the confidence interval; equal to `value` where there is none; minus
    /// infinity, `null` in JSON, where it is open.
    #[serde(serialize_with = "finite_or_null", deserialize_with = "open_low")]
    #[schemars(with = "Option<f64>")]
    pub low: f64,
    /// Upper bound; infinity, `null` in JSON, where it is open.
    #[serde(serialize_with = "finite_or_null", deserialize_with = "open_high")]
    #[schemars(with = "Option<f64>")]
    pub high: f64,
    /// Iterations it rests on, after warm-up; 1 for a screen.
    pub iterations: u32,
    /// Confidence of the interval, 0 where there is none.
    pub confidence: f64,
    /// The threshold that was applied; `null`: none.
    pub threshold: Option<Threshold>,
}

/// A threshold as applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Threshold {
    /// Largest allowed value, in the metric's unit.
    pub limit: f64,
    /// What exceeding it means.
    pub level: Level,
    /// Where it stands: `memgate.yaml:24`, or `default`.
    #[schemars(with = "String")]
    pub source: ThresholdSource,
}

/// Where a threshold stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ThresholdSource {
    /// Nowhere: it holds where nothing else is said.
    Default,
    /// In a file: `memgate.yaml:24`.
    File(String),
}

const DEFAULT_SOURCE: &str = "default";

impl fmt::Display for ThresholdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => DEFAULT_SOURCE,
            Self::File(place) => place,
        })
    }
}

impl From<String> for ThresholdSource {
    fn from(text: String) -> Self {
        if text == DEFAULT_SOURCE { Self::Default } else { Self::File(text) }
    }
}

impl From<&str> for ThresholdSource {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<ThresholdSource> for String {
    fn from(source: ThresholdSource) -> Self {
        source.to_string()
    }
}

/// What exceeding a threshold means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// A warning.
    Warn,
    /// A failure.
    Fail,
}

impl Level {
    /// The verdict of what exceeds such a threshold.
    #[must_use]
    pub const fn verdict(self) -> Verdict {
        match self {
            Self::Warn => Verdict::Warn,
            Self::Fail => Verdict::Fail,
        }
    }
}

/// A value at a moment: `[t_ns, metric, value]` in JSON, as there are many.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "(u64, Metric, f64)", into = "(u64, Metric, f64)")]
pub struct CurvePoint {
    /// Nanoseconds since the start of the process the point comes from, or of the suite's first
    /// one.
    pub t_ns: u64,
    /// What.
    pub metric: Metric,
    /// Value in the metric's unit.
    pub value: f64,
}

impl From<(u64, Metric, f64)> for CurvePoint {
    fn from((t_ns, metric, value): (u64, Metric, f64)) -> Self {
        Self { t_ns, metric, value }
    }
}

impl From<CurvePoint> for (u64, Metric, f64) {
    fn from(CurvePoint { t_ns, metric, value }: CurvePoint) -> Self {
        (t_ns, metric, value)
    }
}

/// A value at the end of an iteration: `[iteration, metric, value]` in JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "(u64, Metric, f64)", into = "(u64, Metric, f64)")]
pub struct GrowthPoint {
    /// Which iteration, the first one 1; where runs of different length are compared: the length.
    pub iteration: u64,
    /// What.
    pub metric: Metric,
    /// Value in the metric's unit.
    pub value: f64,
}

impl From<(u64, Metric, f64)> for GrowthPoint {
    fn from((iteration, metric, value): (u64, Metric, f64)) -> Self {
        Self { iteration, metric, value }
    }
}

impl From<GrowthPoint> for (u64, Metric, f64) {
    fn from(GrowthPoint { iteration, metric, value }: GrowthPoint) -> Self {
        (iteration, metric, value)
    }
}

/// State of one waiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaiverReport {
    /// What it names: `leak n1-…`, `frame …`, `class …`, `holder …`.
    pub matches: String,
    /// Its state in this run.
    pub state: WaiverState,
    /// Why it was given.
    pub reason: String,
    /// Who answers for it.
    pub owner: Option<String>,
    /// Last day it holds, ISO 8601, or `never`.
    pub until: String,
    /// Leaks it covered in this run.
    pub used: u32,
    /// The history says that its leak is fixed: it has to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<FixedWaiver>,
}

/// A waiver whose leak is fixed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FixedWaiver {
    /// The first commit without the leak; empty: it is not known.
    pub by: String,
    /// What that means for the run.
    pub level: Level,
}

/// State of a waiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaiverState {
    /// Covers at least one leak.
    InForce,
    /// Its date has passed: it covers nothing any more.
    Expired,
    /// Matches nothing: the leak is gone, remove it.
    Unused,
}

/// Something that went wrong outside the tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// File, suite or process concerned.
    pub r#where: String,
    /// What is wrong.
    pub what: String,
    /// What to do, else empty.
    pub hint: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_no_time(seconds: &f64) -> bool {
    *seconds <= 0.0
}

/// JSON knows no infinity.
fn finite_or_null<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    value.is_finite().then_some(*value).serialize(serializer)
}

fn open_low<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NEG_INFINITY))
}

fn open_high<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_verdict_of_nothing_is_not_a_pass() {
        assert_eq!(Verdict::worst([]), None);
        assert_eq!(Verdict::worst([Verdict::Error, Verdict::Fail, Verdict::Warn]), Some(Verdict::Fail));
        assert_eq!(Verdict::worst([Verdict::Warn, Verdict::Error]), Some(Verdict::Error));
        assert_eq!(Verdict::worst([Verdict::Pass, Verdict::NotJudged]), Some(Verdict::NotJudged));
    }

    #[test]
    fn open_bounds_survive_json() {
        let open = MetricValue {
            value: 3.0,
            unit: Unit::Bytes,
            per: Per::Iteration,
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
            iterations: 2,
            confidence: 0.99,
            threshold: None,
        };
        let json = serde_json::to_string(&open).unwrap();
        assert!(json.contains(r#""low":null,"high":null"#), "{json}");
        assert_eq!(serde_json::from_str::<MetricValue>(&json).unwrap(), open);
    }

    #[test]
    fn metrics_are_keys_by_their_name_and_points_are_triples() {
        let metrics: BTreeMap<Metric, u32> = Metric::ALL.into_iter().zip(0..).collect();
        let json = serde_json::to_string(&metrics).unwrap();
        assert_eq!(
            json,
            concat!(
                r#"{"native.live_bytes":0,"native.live_allocations":1,"native.mapped_bytes":2,"java.live_bytes":3,"#,
                r#""java.live_objects":4,"java.direct_bytes":5,"java.threads":6,"java.jni_globals":7,"#,
                r#""java.classes_loaded":8,"java.metaspace":9,"java.allocated_bytes":10,"os.rss":11,"#,
                r#""os.pss":12,"os.threads":13,"os.fds":14}"#
            )
        );
        assert_eq!(serde_json::from_str::<BTreeMap<Metric, u32>>(&json).unwrap(), metrics);
        let point = CurvePoint { t_ns: 7, metric: Metric::OsRss, value: 4096.0 };
        let json = serde_json::to_string(&point).unwrap();
        assert_eq!(json, r#"[7,"os.rss",4096.0]"#);
        assert_eq!(serde_json::from_str::<CurvePoint>(&json).unwrap(), point);
    }
}
