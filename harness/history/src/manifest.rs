//! What history has to know of a run beside its report: project, commit, CI job, environment.

use std::collections::BTreeMap;

use memgate_model::{Ci, Commit};
use serde::{Deserialize, Serialize};

/// Of which project and commit a run is, and where it ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Name of the project.
    pub project: String,
    /// Name of the session folder: with `ci`, what makes the run one of its kind.
    pub session: String,
    /// Its commit; `None`: there is no repository.
    #[serde(default)]
    pub commit: Option<Commit>,
    /// Ancestors of the commit by first parents, nearest first, 500 at most; empty: the clone does not have them.
    #[serde(default)]
    pub ancestors: Vec<String>,
    /// The tree has changes that are in no commit.
    #[serde(default)]
    pub dirty: bool,
    /// Its CI job; `None`: it ran on somebody's machine.
    #[serde(default)]
    pub ci: Option<Ci>,
    /// What must be equal for figures to be comparable.
    #[serde(default)]
    pub environment: Environment,
    /// Only part of the tests was asked for: that others are missing says nothing.
    #[serde(default)]
    pub partial: bool,
    /// Globs of the branches whose leaks have a life of their own (`main`, `release/*`).
    #[serde(default)]
    pub lines: Vec<String>,
    /// Its branch is only its own word: it changes no state, and nothing that runs share. [`Manifest::without_proof`]
    /// says so, no client does.
    #[serde(skip)]
    pub unproven: bool,
}

/// What must be equal for figures to be comparable: architecture, Java version, labels of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Environment(pub BTreeMap<String, String>);

impl Environment {
    /// For people: its values, in the order of their names.
    #[must_use]
    pub fn label(&self) -> String {
        self.0.values().map(String::as_str).collect::<Vec<_>>().join(" · ")
    }
}
