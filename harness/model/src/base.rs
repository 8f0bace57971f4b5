//! The base of a review: the measured commit that was really merged in, and its leaks.
//!
//! A server answers with [`BaseLeaks`], and `.memgate/base.json` stores it. Reports contain only its header, [`Base`].

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metric::Metric;

/// Version of the shape of [`BaseLeaks`].
pub const BASE_VERSION: u32 = 1;

/// How a review treats a leak that is alive on the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// The leak is allowed.
    Allow,
    /// The leak is a warning.
    Warn,
    /// The leak fails the review like a new one.
    Fail,
}

/// The commit that a review is compared with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Base {
    /// Target branch of the review.
    pub branch: String,
    /// The commit of the target branch that was merged in. Absent if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub merged: String,
    /// The measured commit that is used as the base. Absent if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sha: String,
    /// Number of commits from `sha` to `merged`.
    #[serde(default)]
    pub before: u32,
    /// Source of the base: the address of a server, or `history.db`. Absent if there is no base.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Age of the base in seconds, if it is from a file that was fetched earlier; otherwise absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_s: Option<u64>,
    /// Why there is no base, or why a file that was fetched earlier is used. Absent if there is nothing to explain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

impl Base {
    /// Is there no base to compare with?
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.sha.is_empty()
    }
}

/// How the leaks of a test compare with the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgainstBase {
    /// The test has a leak that the base does not have.
    New,
    /// The test has a leak that was fixed on the base.
    Regressed,
    /// The base has all its leaks, but a leak or a figure was smaller there.
    #[serde(alias = "grew")]
    Larger,
    /// The base has all its leaks, and they are as large.
    Known,
    /// The base has all its leaks, and at least one is flaky.
    Flaky,
}

/// A base with its leaks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BaseLeaks {
    /// Version of this format. Readers must refuse any other.
    pub version: u32,
    /// Name of the project.
    pub project: String,
    /// Labels of the environment. Figures are comparable only if these are equal.
    pub environment: BTreeMap<String, String>,
    /// The commit.
    pub base: Base,
    /// Leaks that the branch has or had up to this commit, by id.
    pub leaks: BTreeMap<String, BaseLeak>,
    /// Lower and upper bounds of the figures of tests with leaks, by `suite::test`. Without an interval, both are the
    /// value.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, BTreeMap<String, (f64, f64)>>")]
    pub tests: BTreeMap<String, BTreeMap<Metric, (f64, f64)>>,
    /// Time when the base was fetched, in seconds since 1970.
    #[serde(default)]
    pub fetched_s: u64,
}

/// A leak of a base.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BaseLeak {
    /// The leak exists on the base.
    pub alive: bool,
    /// The leak is flaky: it comes and goes although the code is the same.
    #[serde(default)]
    pub flaky: bool,
    /// The commit that fixed the leak, if it is not alive. Empty if its tests are gone or the commit is unknown.
    #[serde(default)]
    pub fixed: String,
    /// Bytes per iteration when it was last seen.
    pub bytes: f64,
    /// Objects per iteration when it was last seen.
    pub count: f64,
}
