//! The result of a run: metrics, leaks, verdicts, and the report that every reporter renders.
//!
//! Data flow: `analysis` fills a [`RunReport`], `reports` converts it to bytes; nothing flows back. The types define
//! the JSON of `report.json` (schema in `reports/report.schema.json`). A change of the format increases
//! [`SCHEMA_VERSION`].
#![forbid(unsafe_code)]

mod absence;
mod base;
mod class_name;
mod figure;
mod followed;
mod format;
mod heap;
mod leak;
mod metric;
mod origin;
mod report;
mod runner;
mod shard_number;
mod verdict;

pub use absence::TestNames;
pub use base::{AgainstBase, BASE_VERSION, Base, BaseLeak, BaseLeaks, Known};
pub use class_name::{is_of_language, stable_class_name, stable_field_name};
pub use figure::{CurvePoint, GrowthPoint, MetricValue, Threshold, ThresholdSource};
pub use followed::{Blamed, Followed, FollowedSite, FollowedTotal, LIFETIMES_NS};
pub use format::{
    format_amount, format_bytes, format_bytes_change, format_change, format_count, format_counted,
    format_list, format_number_of, format_value, short_commit,
};
pub use heap::{HeapAt, HeapCheck, HeapDump, HeapLeak, HeapLimits, HeapSeen};
pub use leak::{Frame, Hold, HolderStep, Leak, LeakKind, OtherHold, Reach};
pub use metric::{Area, Kind, Metric, Per, Unit, UnknownMetric};
pub use origin::{Ci, Commit, Machine, Origin};
pub use report::{
    AgentCost, AppMemory, BoundaryQuality, FixedWaiver, Hunt, Problem, RunReport, SCHEMA_VERSION, ScreenCost,
    Shard, SuiteReport, SuiteShard, TestReport, WaiverReport, WaiverState,
};
pub use runner::Runner;
pub use shard_number::{MOST_SHARDS, NoShardNumber, ShardNumber};
pub use verdict::{Level, Outcome, Verdict};
