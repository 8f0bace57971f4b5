//! Data that the history needs about a run in addition to its report: project, commit, CI job, environment.

use std::collections::BTreeMap;

use memgate_model::{Ci, Commit};
use serde::{Deserialize, Serialize};

use crate::digest::sha256_hex;

/// The project and commit of a run, and where it ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Name of the project.
    pub project: String,
    /// Name of the session folder. Together with `ci`, it identifies the run.
    pub session: String,
    /// Its commit; `None` without a repository.
    #[serde(default)]
    pub commit: Option<Commit>,
    /// Ancestors of the commit by first parents, nearest first, 500 at most. Empty: missing in the clone.
    #[serde(default)]
    pub ancestors: Vec<String>,
    /// The tree has uncommitted changes.
    #[serde(default)]
    pub dirty: bool,
    /// Its CI job. `None`: it ran on a developer's machine.
    #[serde(default)]
    pub ci: Option<Ci>,
    /// Labels that must be equal for figures to be comparable.
    #[serde(default)]
    pub environment: Environment,
    /// Only some of the tests were requested. So a missing test proves nothing.
    #[serde(default)]
    pub partial: bool,
    /// The number of the build command that selected them ([`number_of_selection`]); 0: no such command did.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub selection: i64,
    /// Globs of the branches whose leaks have a life of their own (`main`, `release/*`).
    #[serde(default)]
    pub lines: Vec<String>,
    /// The branch is only a claim of the sender. Such a run changes no state and no data that runs share. Only
    /// [`Manifest::without_proof`] sets this, no client can.
    #[serde(skip)]
    pub unproven: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The number of a command, from 1 to 2⁴⁸ - 1. Equal commands have equal numbers; others nearly always differ.
#[must_use]
pub fn number_of_selection(command: &[String]) -> i64 {
    let digest = sha256_hex(command.join("\0").as_bytes());
    digest.get(..12).and_then(|bits| i64::from_str_radix(bits, 16).ok()).unwrap_or_default().max(1)
}

/// Labels that must be equal for figures to be comparable: architecture, Java version, labels of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Environment(pub BTreeMap<String, String>);

impl Environment {
    /// Its values for display, in the order of their names.
    #[must_use]
    pub fn label(&self) -> String {
        self.0.values().map(String::as_str).collect::<Vec<_>>().join(" · ")
    }
}
