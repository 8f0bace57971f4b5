//! The base of a review: the measured commit that was really merged in, and its leaks.
//!
//! [`BaseLeaks`] is what a server answers and `.memgate/base.json` keeps; [`Base`], its head, is what a report tells.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metric::Metric;

/// Version of the shape of [`BaseLeaks`].
pub const BASE_VERSION: u32 = 1;

/// Verdict of a review for a leak that is alive on the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// Nothing.
    Allow,
    /// A warning.
    Warn,
    /// The same as a new leak.
    Fail,
}

/// The commit that a review is compared with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Base {
    /// The branch that the review is to be merged into.
    pub branch: String,
    /// The commit of that branch that was merged in; empty: not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub merged: String,
    /// The measured commit that is used for it; empty: none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sha: String,
    /// How many commits it is before the one that was merged in.
    #[serde(default)]
    pub before: u32,
    /// Where it comes from: the address of a server, `history.db`, a file that was fetched earlier.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Age in seconds of a file that was fetched earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_s: Option<u64>,
    /// Why there is no base, or why it is an old one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

impl Base {
    /// Was there anything to compare with?
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.sha.is_empty()
    }
}

/// How a test with leaks stands to the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgainstBase {
    /// It has a leak that the base does not have.
    New,
    /// It has a leak that was fixed on the base.
    Regressed,
    /// The base has its leaks, and they were smaller.
    Grew,
    /// The base has its leaks.
    Known,
    /// The base has its leaks, one of which comes and goes.
    Flaky,
}

/// A base with its leaks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BaseLeaks {
    /// Version of this shape; a reader refuses any other.
    pub version: u32,
    /// Name of the project.
    pub project: String,
    /// Labels of the environment: figures are comparable only where these are equal.
    pub environment: BTreeMap<String, String>,
    /// Which commit.
    pub base: Base,
    /// Leaks that its line knows at this commit, by id.
    pub leaks: BTreeMap<String, BaseLeak>,
    /// Bounds of the figures of tests with leaks, by `suite::test`: the interval, or the value twice.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, BTreeMap<String, (f64, f64)>>")]
    pub tests: BTreeMap<String, BTreeMap<Metric, (f64, f64)>>,
    /// When it was fetched, seconds since 1970.
    #[serde(default)]
    pub fetched_s: u64,
}

/// A leak of a base.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BaseLeak {
    /// Alive there.
    pub alive: bool,
    /// It comes and goes on the same code.
    #[serde(default)]
    pub flaky: bool,
    /// Where it is not alive: the commit that fixed it; empty: its tests are gone, or nobody knows.
    #[serde(default)]
    pub fixed: String,
    /// Bytes per iteration when it was last seen.
    pub bytes: f64,
    /// Objects per iteration when it was last seen.
    pub count: f64,
}
