//! Where a run comes from: commit, CI job, machine, versions. Text that is not known is empty.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Commit, CI job and machine of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Origin {
    /// The commit; `null`: there is no repository, and CI names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Commit>,
    /// The CI job; `null`: none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci: Option<Ci>,
    /// The machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// Versions by name: `memgate`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, String>,
    /// The command line of `memgate run`; empty: it was another command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
}

/// A commit, as CI names it, else as the repository does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Commit {
    /// Its hash.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sha: String,
    /// The branch it is on; of a pull or merge request, the branch that is to be merged.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub branch: String,
    /// The branch that a pull or merge request is to be merged into.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target: String,
    /// The commit on that branch it is compared with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub base_sha: String,
    /// CI made it: it merges the branch into the target.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_merge: bool,
}

/// A CI job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ci {
    /// `github`, `gitlab`, `jenkins`, `azure`, `bitbucket`, `teamcity`, `buildkite`, `circleci`, `woodpecker`.
    pub provider: String,
    /// Id of the pipeline or workflow run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pipeline: String,
    /// Number people know it by.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub number: String,
    /// Name or id of the job.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub job: String,
    /// Which attempt at it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub attempt: String,
    /// Its page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
}

/// A machine, as far as it matters to figures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// For example `x86_64`.
    pub architecture: String,
    /// For example `Linux 6.1.0-18-amd64`.
    pub kernel: String,
    /// For example `Debian GNU/Linux 12 (bookworm)`.
    pub system: String,
    /// Processors memgate could use.
    pub processors: usize,
}
