//! The run report: the content of `report.json`, which every reporter renders.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::{AgainstBase, Base};
use crate::figure::{CurvePoint, GrowthPoint, MetricValue};
use crate::followed::Followed;
use crate::leak::Leak;
use crate::metric::Metric;
use crate::origin::Origin;
use crate::runner::Runner;
use crate::shard_number::ShardNumber;
use crate::verdict::{Level, Outcome, Verdict};

/// Version of the shape of [`RunReport`].
pub const SCHEMA_VERSION: u32 = 1;

/// How exactly the start and the end of each test of a suite are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BoundaryQuality {
    /// A hook inside the process stops the test at each boundary until it is measured.
    Exact,
    /// Exact, but per test class.
    Class,
    /// Read from the runner's output or results, asynchronously to the test.
    Observed,
    /// The whole process counts as one test.
    Process,
}

/// The report of a run: the content of `report.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunReport {
    /// Version of this format. Readers must refuse any other.
    pub schema_version: u32,
    /// Worst verdict of all suites and of the run itself. Suites that are not judged count only if tests passed and no
    /// suite was judged.
    pub verdict: Verdict,
    /// Exit code of memgate: 0, nothing failed; 1, a gate or the user's own tests failed; 2, something could not be
    /// measured.
    pub exit_code: i32,
    /// Name of the project.
    pub project: String,
    /// Name of the session folder.
    pub session: String,
    /// Start of the run, RFC 3339 with time zone.
    pub started: String,
    /// Duration of the run in seconds, including measuring, confirming and judging.
    pub duration_s: f64,
    /// Cost of measuring.
    pub agent_cost: AgentCost,
    /// All suites of the run.
    pub suites: Vec<SuiteReport>,
    /// State of every waiver.
    pub waivers: Vec<WaiverReport>,
    /// Problems outside the tests.
    pub errors: Vec<Problem>,
    /// Settings that had no effect on this run, each in one sentence with its file and line. They change no verdict.
    /// Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Java objects that were tracked from allocation to release. Absent if nothing was tracked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followed: Option<Followed>,
    /// Commit, CI job and machine of the run. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The base of a review: leaks that exist there too do not fail the review. Absent if the run is not compared with
    /// a base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// The shards of a run over several machines, in order. The report of a single shard lists only that shard. Absent
    /// if the run has no shards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<Shard>,
}

impl RunReport {
    /// A report with these suites. All other fields are empty.
    #[must_use]
    pub fn new(project: &str, session: &str, verdict: Verdict, suites: Vec<SuiteReport>) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            verdict,
            exit_code: verdict.exit_code(false),
            project: project.to_owned(),
            session: session.to_owned(),
            started: String::new(),
            duration_s: 0.0,
            agent_cost: AgentCost::default(),
            suites,
            waivers: Vec::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
            followed: None,
            origin: None,
            base: None,
            shards: Vec::new(),
        }
    }

    /// The shard that this report is about; `None`: it is a whole run.
    #[must_use]
    pub fn as_shard(&self) -> Option<&Shard> {
        match self.shards.as_slice() {
            [shard] if shard.session == self.session => Some(shard),
            _ => None,
        }
    }

    /// The tests of all suites, with the entries for whole classes and heap dumps.
    pub fn entries(&self) -> impl Iterator<Item = &TestReport> + Clone {
        self.suites.iter().flat_map(|suite| &suite.tests)
    }

    /// Restores the figures of every clean test: `report.json` stores them once per suite.
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

impl Verdict {
    /// The verdict of these suites together, without problems of the run itself.
    ///
    /// A test that is not judged does not make the verdict of the run worse: the user's own result is part of the exit
    /// code. But if tests passed and nothing was judged, the run is not a pass.
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
}

/// Cost of measuring.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentCost {
    /// CPU time of the tested processes in the screening pass, divided by the estimated CPU time without the agent.
    /// `null`: not estimated.
    pub cpu_ratio: Option<f64>,
    /// CPU time on which `cpu_ratio` is based, in seconds. Absent if 0.
    #[serde(default, skip_serializing_if = "is_no_time")]
    pub cpu_s: f64,
    /// Largest amount of memory that the agent mapped in one process, in bytes.
    pub peak_bytes: u64,
    /// Time that the agent took at process starts and at test boundaries in the screening pass, in seconds.
    pub boundary_s: f64,
    /// Number of stacks that could not be unwound to their root, over all processes except Java virtual machines.
    pub truncated_stacks: u64,
    /// Time in which tests were repeated, in seconds, without the screening pass. Processes that ran at the same time
    /// count once.
    #[serde(default)]
    pub repeated_s: f64,
}

/// Cost of screening a JVM suite: the test boundaries in the build's own run, and the screening rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScreenCost {
    /// Duration of the tests without screening, in seconds.
    pub alone_s: f64,
    /// Duration of the tests with screening, in seconds.
    pub screened_s: f64,
    /// `screened_s` divided by `alone_s`.
    pub ratio: f64,
}

/// Memory of an app while its tests ran, as Android reports it. It is not judged, because it includes memory that is
/// shared with other processes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AppMemory {
    /// The test at whose end the memory was read.
    pub test: String,
    /// Source of the figures: `dumpsys meminfo`, `/proc/PID/smaps_rollup`, `/proc/PID/status`, or `the agent` if the
    /// device gave no answer.
    pub source: String,
    /// Bytes by name: `total_pss`, `total_rss`, `private`, `swap`, `java_heap`, `native_heap`, `graphics` and others.
    pub bytes: BTreeMap<String, u64>,
    /// Object counts by name: `views`, `activities` and others. Absent if empty.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub objects: BTreeMap<String, u64>,
}

/// Result of `--hunt` for a suite: it repeats units that were never suspect. A unit is a test, or a test class if
/// `classes` is true.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hunt {
    /// Units are test classes, not single tests.
    pub classes: bool,
    /// Number of units that could be repeated.
    pub of: u64,
    /// Number of units that were repeated.
    pub repeated: u64,
    /// Number of repeated units that grew. They are judged like confirmed tests.
    pub grew: u64,
    /// Fewest and most executions of a repeated unit.
    pub executions: (u64, u64),
    /// The rarest leak that the hunt would have found: a leak in one of this many executions is missed with a
    /// probability of at most 1 %, in any repeated unit. 0: every leak could have been missed.
    pub one_in: u32,
    /// Number of units for which there was no time.
    pub not_reached: u64,
    /// Number of units that cannot be repeated that often, because they then fail or break off.
    pub failing: u64,
    /// The first of these units, each with its error: `NAME: ERROR`. Absent if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// Why nothing was repeated. Absent if the hunt took place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_hunted: Option<String>,
}

/// A suite: one executable with its normalised arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteReport {
    /// Name of the suite in the configuration, otherwise the file name of its executable.
    pub name: String,
    /// The test framework that runs the tests.
    pub runner: Runner,
    /// How exactly the start and the end of each test are known.
    pub boundary: BoundaryQuality,
    /// Worst verdict of the tests and of the suite as a whole.
    pub verdict: Verdict,
    /// Verdict of the suite as a whole, without its tests. `reason` and `metrics` explain it. Absent in reports of
    /// earlier memgate versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_verdict: Option<Verdict>,
    /// Duration of the screening pass in seconds.
    pub screened_s: f64,
    /// Fewest and most executions of a test in the screening pass. Absent if no test ran more than once there, and for
    /// JVM suites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screen_executions: Option<(u64, u64)>,
    /// Mean number of bytes between two samples of native allocations in the screening pass, whose native figures are
    /// then estimates. Absent without sampling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_sampling: Option<u64>,
    /// The screening pass recorded no call stacks. The stacks of suspects come from another run of these tests. Absent
    /// if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stacks_of_suspects: bool,
    /// The suite's command selects tests with `--gtest_filter`, which overrides memgate's `--filter`. Absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub selects_itself: bool,
    /// Cost of screening compared with the suite alone. Only for JVM suites; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screen_cost: Option<ScreenCost>,
    /// Memory of the app as Android reports it. Only for instrumented suites; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_memory: Option<AppMemory>,
    /// Result of `--hunt`. Absent without that option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hunt: Option<Hunt>,
    /// Reasons for the verdict of the suite as a whole, and remarks; empty if there are none.
    pub reason: String,
    /// Figures of the suite as a whole, by metric (thresholds with `per: suite`).
    #[schemars(extend("propertyNames" = {"$ref": "#/$defs/Metric"}))]
    pub metrics: BTreeMap<Metric, MetricValue>,
    /// Values over the whole run of the suite as `[t_ns, metric, value]`, summed over all its processes. Time 0 is the
    /// start of the first process. Absent if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<(u64, Metric, f64)>")]
    pub curve: Vec<CurvePoint>,
    /// Ends of tests on `curve` as `[t_ns, test]`, at most 500. Absent if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test_ends: Vec<(u64, String)>,
    /// Figures of every test with `clean: true`; these tests do not repeat them. Absent if empty.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = {"$ref": "#/$defs/Metric"}))]
    pub clean_metrics: BTreeMap<Metric, MetricValue>,
    /// Figures of the suite as a whole on each machine. Absent if the tests did not run on several machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<SuiteShard>,
    /// The tests, in the order in which they ran.
    pub tests: Vec<TestReport>,
}

impl SuiteReport {
    /// A suite with these tests and exact boundaries. All other fields are empty.
    #[must_use]
    pub fn new(name: &str, runner: Runner, verdict: Verdict, tests: Vec<TestReport>) -> Self {
        Self {
            name: name.to_owned(),
            runner,
            boundary: BoundaryQuality::Exact,
            verdict,
            own_verdict: None,
            screened_s: 0.0,
            screen_executions: None,
            native_sampling: None,
            stacks_of_suspects: false,
            selects_itself: false,
            screen_cost: None,
            app_memory: None,
            hunt: None,
            reason: String::new(),
            metrics: BTreeMap::new(),
            curve: Vec::new(),
            test_ends: Vec::new(),
            clean_metrics: BTreeMap::new(),
            shards: Vec::new(),
            tests,
        }
    }

    /// Verdict of the suite as a whole, without its tests. In reports of earlier versions, which do not contain it:
    /// `verdict`.
    #[must_use]
    pub fn own_verdict(&self) -> Verdict {
        self.own_verdict.unwrap_or(self.verdict)
    }

    /// Was the whole suite measured, and did no test fail? A failed test may have ended before its leak.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let ended = |test: &TestReport| matches!(test.outcome, Outcome::Passed | Outcome::Skipped);
        self.verdict != Verdict::Error && self.tests.iter().all(ended)
    }
}

/// One shard of a run: the part that ran on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shard {
    /// Number of the shard, and number of shards: `3/8`.
    #[serde(rename = "part")]
    #[schemars(with = "String")]
    pub number: ShardNumber,
    /// Name of the session folder.
    pub session: String,
    /// Start of the shard, RFC 3339 with time zone. Empty if it ended before it had a report and its start is unknown.
    pub started: String,
    /// Duration of the shard in seconds; 0 if it ended before it had a report.
    pub duration_s: f64,
    /// Verdict of the shard; `error` if it ended before it had a report.
    pub verdict: Verdict,
    /// Number of units of this shard. Units are tests, test classes or whole suites, depending on how a suite is
    /// divided.
    pub units: u64,
    /// Number of units of all shards together.
    pub of_units: u64,
    /// Names of the sessions of earlier attempts, which this shard replaces. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<String>,
    /// Tests with another verdict in one of the earlier attempts, as `suite::test`. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disagree: Vec<String>,
}

/// Figures of a suite as a whole in one shard. They are judged by shard and never summed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteShard {
    /// Number of the shard, and number of shards: `3/8`.
    #[serde(rename = "part")]
    #[schemars(with = "String")]
    pub number: ShardNumber,
    /// Duration of the screening pass in this shard, in seconds.
    pub screened_s: f64,
    /// Figures of the suite as a whole in this shard, by metric.
    #[schemars(extend("propertyNames" = {"$ref": "#/$defs/Metric"}))]
    pub metrics: BTreeMap<Metric, MetricValue>,
    /// Values over the run of the suite in this shard, as `[t_ns, metric, value]`. Absent if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<(u64, Metric, f64)>")]
    pub curve: Vec<CurvePoint>,
    /// Ends of tests on `curve`, as `[t_ns, test]`. Absent if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test_ends: Vec<(u64, String)>,
}

/// One test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TestReport {
    /// Name of the test within the suite, as the runner shows it (`MapCache.scroll`).
    pub id: String,
    /// The entry is not a test: it is a whole test class, for leaks that cannot be assigned to one of its tests, or the
    /// heap dumps of the suite. It does not count as a test. Absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_class: bool,
    /// The test passed with nothing to report. `metrics` is empty; the figures are `clean_metrics` of the suite. Absent
    /// if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clean: bool,
    /// How the user's own test ended.
    pub outcome: Outcome,
    /// Verdict of memgate.
    pub verdict: Verdict,
    /// Reason for the verdict, one sentence; empty for a plain pass.
    pub reason: String,
    /// `reason` without the parts that `metrics` and their thresholds already contain, for output that shows both.
    /// Absent if it is equal to `reason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_beside_figures: Option<String>,
    /// How the leaks compare with the base of the review. Absent if the test does not leak too much, or cannot be
    /// compared with a base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against_base: Option<AgainstBase>,
    /// Duration of the screening execution in seconds; of the longest one if there are several.
    pub duration_s: f64,
    /// Whether the test was repeated, alone, to confirm its growth.
    pub confirmed: bool,
    /// No run of this test alone shows what its verdict is based on: alone it left nothing of that, or its program
    /// reports its tests itself and only runs all of them. Absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_among_others: bool,
    /// Figures by metric, each with the threshold that was applied. Empty if `clean` is true.
    #[schemars(extend("propertyNames" = {"$ref": "#/$defs/Metric"}))]
    pub metrics: BTreeMap<Metric, MetricValue>,
    /// The leaks, sorted by `bytes_per_iteration`, largest first; at most 50. Leaks with a `waiver` do not fail the
    /// test.
    pub leaks: Vec<Leak>,
    /// Memory and resources that were allocated once and stayed, in the same order; at most 50. They do not fail the
    /// test.
    pub one_time: Vec<Leak>,
    /// Values over time as `[t_ns, metric, value]`. Time 0 is the start of the process.
    #[schemars(with = "Vec<(u64, Metric, f64)>")]
    pub curve: Vec<CurvePoint>,
    /// Values from which the slopes of the confirming run were estimated, as `[iteration, metric, value]`, without
    /// waived leaks and thinned to at most 100 per metric. For runs of different lengths, `iteration` is the length.
    /// Absent if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<(u64, Metric, f64)>")]
    pub growth: Vec<GrowthPoint>,
    /// Number of iterations at the start of the confirming run that do not count. Absent if 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warm_up: u32,
}

impl TestReport {
    /// A test that passed and has this verdict, without figures and leaks.
    #[must_use]
    pub fn new(id: &str, verdict: Verdict) -> Self {
        Self {
            id: id.to_owned(),
            is_class: false,
            clean: false,
            outcome: Outcome::Passed,
            verdict,
            reason: String::new(),
            reason_beside_figures: None,
            against_base: None,
            duration_s: 0.0,
            confirmed: false,
            only_among_others: false,
            metrics: BTreeMap::new(),
            leaks: Vec::new(),
            one_time: Vec::new(),
            curve: Vec::new(),
            growth: Vec::new(),
            warm_up: 0,
        }
    }
}

/// State of one waiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaiverReport {
    /// Pattern of the waiver: `leak n1-…`, `frame …`, `class …`, `holder …`.
    pub matches: String,
    /// State of the waiver in this run.
    pub state: WaiverState,
    /// Reason of the waiver, from the configuration.
    pub reason: String,
    /// Owner of the waiver, from the configuration; `null` if there is none.
    pub owner: Option<String>,
    /// Last day on which the waiver is valid, as ISO 8601 date, or `never` if it does not expire.
    pub until: String,
    /// Number of leaks that the waiver covered in this run.
    pub used: u32,
    /// The waiver names a leak of this run, maybe one that another waiver covers or that exceeds its `up_to`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub named: bool,
    /// Set if the leak is fixed according to the history, so the waiver must be removed. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<FixedWaiver>,
}

/// A waiver whose leak is fixed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FixedWaiver {
    /// First commit without the leak; empty if unknown.
    pub by: String,
    /// Whether the remaining waiver is a warning or a failure of the run.
    pub level: Level,
}

/// State of a waiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaiverState {
    /// Covers a leak in this run, or may cover one that this run did not measure.
    InForce,
    /// Its date has passed: it covers no leak any more.
    Expired,
    /// Matches no leak: the leak is gone, so remove the waiver.
    Unused,
}

/// A problem outside the tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The file, suite or process with the problem.
    pub r#where: String,
    /// Description of the problem.
    pub what: String,
    /// Advice on what to do; empty if there is none.
    pub hint: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_no_time(seconds: &f64) -> bool {
    *seconds <= 0.0
}
