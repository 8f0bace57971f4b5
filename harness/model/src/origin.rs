//! The origin of a run: commit, CI job, machine, versions. Unknown text is empty.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Commit, CI job, machine and versions of a run. Unknown values are absent or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Origin {
    /// The commit. Absent if there is no repository and the CI system names no commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Commit>,
    /// The CI job. Absent if no known CI system is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci: Option<Ci>,
    /// The machine on which memgate ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// Versions by program name: `memgate`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, String>,
    /// The command line of `memgate run`. Absent for other commands, and if an argument may contain a secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
}

/// A commit, from the variables of the CI system, otherwise from the repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Commit {
    /// Hash of the commit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sha: String,
    /// Branch of the commit; for a pull or merge request, the branch to be merged.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub branch: String,
    /// Target branch of a pull or merge request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target: String,
    /// The commit on the target branch with which the CI system compares a merge request. Only GitLab sets it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub base_sha: String,
    /// The CI system created the commit to merge the branch into the target. Absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_merge: bool,
}

/// A job of a CI system. Unknown values are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ci {
    /// CI system: `github`, `gitlab`, `jenkins`, `azure`, `bitbucket`, `teamcity`, `buildkite`, `circleci` or
    /// `woodpecker`.
    pub provider: String,
    /// Id of the pipeline or workflow run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pipeline: String,
    /// Number of the pipeline or build, as people see it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub number: String,
    /// Name or id of the job.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub job: String,
    /// Number of the attempt, as the CI system counts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub attempt: String,
    /// Address of the job's or pipeline's page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
}

/// Properties of a machine that may influence figures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Host name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Processor architecture, for example `x86_64`.
    pub architecture: String,
    /// Name and release of the kernel, for example `Linux 6.1.0-18-amd64`.
    pub kernel: String,
    /// Name of the operating system, for example `Debian GNU/Linux 12 (bookworm)`.
    pub system: String,
    /// Number of processors that memgate could use.
    pub processors: usize,
}
