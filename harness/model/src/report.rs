//! The run report: what is written to `report.json` and rendered by every reporter.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metric::{Metric, Per, Unit};

/// Version of the shape of [`RunReport`].
pub const SCHEMA_VERSION: u32 = 1;

/// Judgement, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Measured and within its thresholds.
    Pass,
    /// The user's own test failed or was skipped: its leaks are not judged.
    NotJudged,
    /// Something to look at that does not fail the build.
    Warn,
    /// Could not be measured: never a pass.
    Error,
    /// Leaks more than its threshold.
    Fail,
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
    /// [`SCHEMA_VERSION`].
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
    /// What ran.
    pub suites: Vec<SuiteReport>,
    /// State of every waiver.
    pub waivers: Vec<WaiverReport>,
    /// What went wrong outside the tests themselves.
    pub errors: Vec<Problem>,
}

/// What measuring cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentCost {
    /// CPU time of the tested processes divided by an estimate of the same without the agent; `null`: not estimated.
    pub cpu_ratio: Option<f64>,
    /// Largest memory the agent mapped in one process, bytes.
    pub peak_bytes: u64,
    /// CPU time spent at boundaries, seconds.
    pub boundary_s: f64,
    /// Stacks that could not be unwound to their root, over all processes.
    pub truncated_stacks: u64,
}

/// One executable with its normalised arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteReport {
    /// Its name in the configuration, else its executable's file name.
    pub name: String,
    /// `gtest` or `command`.
    pub runner: String,
    /// How exactly the boundaries are known.
    pub boundary: BoundaryQuality,
    /// Worst verdict of its tests, and of the suite's own metrics.
    pub verdict: Verdict,
    /// Seconds the screening pass took.
    pub screened_s: f64,
    /// Why the suite as a whole is not a pass, else empty.
    pub reason: String,
    /// Metrics of the suite as a whole (thresholds `per: suite`).
    pub metrics: BTreeMap<Metric, MetricValue>,
    /// Its tests, in the order they ran.
    pub tests: Vec<TestReport>,
}

/// One test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TestReport {
    /// Name as the runner shows it, within the suite (`MapCache.scroll`).
    pub id: String,
    /// How the user's own test ended.
    pub outcome: Outcome,
    /// Judgement.
    pub verdict: Verdict,
    /// One sentence for the verdict; empty for a plain pass.
    pub reason: String,
    /// Seconds of its screening execution.
    pub duration_s: f64,
    /// Was it run again, alone?
    pub confirmed: bool,
    /// Figures with the threshold that was applied.
    pub metrics: BTreeMap<Metric, MetricValue>,
    /// What grows, largest first.
    pub leaks: Vec<Leak>,
    /// What was allocated once and stayed: reported, not failed.
    pub one_time: Vec<Leak>,
    /// Values over time.
    pub curve: Vec<CurvePoint>,
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
    /// Lower bound of the confidence interval; equal to `value` where there is none.
    pub low: f64,
    /// Upper bound.
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
    pub source: String,
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

/// What kind of thing leaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeakKind {
    /// Native allocations.
    Native,
    /// Java objects.
    Java,
    /// Descriptors or threads.
    Os,
}

/// Survivors with one signature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Leak {
    /// `n1-…`, `j1-…` or `o1-…`: stable across rebuilds and ASLR.
    pub id: String,
    /// What leaks.
    pub kind: LeakKind,
    /// `12 × 4096 B`, `12 × com.example.Tile`, `1 × descriptor /tmp/log`.
    pub title: String,
    /// Growth per iteration (for `one_time`: bytes in all).
    pub bytes_per_iteration: f64,
    /// Allocations, objects, descriptors or threads per iteration (for `one_time`: in all).
    pub count_per_iteration: f64,
    /// Class, for Java.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Stack that allocated it, innermost first, without libc's, the runner's and the agent's frames.
    #[serde(default)]
    pub frames: Vec<Frame>,
    /// Who holds it, from the root on, for Java.
    #[serde(default)]
    pub holder: Vec<HolderStep>,
    /// The stack could not be unwound to its root.
    #[serde(default)]
    pub truncated: bool,
    /// Reason of the waiver that covers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiver: Option<String>,
}

/// One frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Frame {
    /// Demangled function; `None`: no symbol.
    pub function: Option<String>,
    /// Source file as the debug information names it.
    pub file: Option<String>,
    /// Line in it.
    pub line: Option<u32>,
    /// File name of the module.
    pub module: String,
    /// Offset in the module's file address space (virtual address without bias).
    pub offset: u64,
    /// Was it inlined into the next frame?
    pub inlined: bool,
}

/// One step of a holder path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HolderStep {
    /// `static`, `field`, `array`, `thread`, `jni global`, …
    pub kind: String,
    /// Class that owns the reference.
    pub owner: String,
    /// Name of the field, `[x]` for an array.
    pub name: String,
    /// Class of the object it refers to.
    pub class: String,
}

/// A value at a moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurvePoint {
    /// Nanoseconds since the start of the process the point comes from.
    pub t_ns: u64,
    /// What.
    pub metric: Metric,
    /// Value in the metric's unit.
    pub value: f64,
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
