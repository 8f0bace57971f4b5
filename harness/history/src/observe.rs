//! The line and the commit of a run, which the lives of leaks depend on.

use globset::{GlobBuilder, GlobMatcher};

use crate::manifest::Manifest;

/// The branches that are lines.
#[derive(Debug, Clone, Default)]
pub struct Lines(Vec<GlobMatcher>);

impl Lines {
    /// From the patterns of a manifest. An invalid pattern matches nothing.
    #[must_use]
    pub fn of(patterns: &[String]) -> Self {
        let matcher = |pattern: &String| Some(GlobBuilder::new(pattern).build().ok()?.compile_matcher());
        Self(patterns.iter().filter_map(matcher).collect())
    }

    /// Is this branch a line? A run without a branch belongs to the only line.
    #[must_use]
    pub fn has(&self, branch: &str) -> bool {
        branch.is_empty() || self.0.iter().any(|line| line.is_match(branch))
    }
}

impl Manifest {
    /// Its branch. Empty: there is no repository, or no branch is checked out.
    #[must_use]
    pub fn branch(&self) -> &str {
        self.commit.as_ref().map_or("", |commit| &commit.branch)
    }

    /// The commit it measured. `None`: there is none, or the tree has uncommitted changes.
    #[must_use]
    pub fn measured_commit(&self) -> Option<&str> {
        let commit = self.commit.as_ref().filter(|commit| !commit.sha.is_empty() && !self.dirty)?;
        Some(&commit.sha)
    }

    /// A run of a pull or merge request: it changes no state.
    #[must_use]
    pub fn is_review(&self) -> bool {
        self.commit.as_ref().is_some_and(|commit| !commit.target.is_empty())
    }

    /// The manifest of a run whose sender has no write access to the branch that it names. The run gets a branch of its
    /// own (names of git branches contain no blank), and does not affect the order of commits: a wrong parent would
    /// move the runs of others.
    #[must_use]
    pub fn without_proof(mut self) -> Self {
        self.unproven = true;
        self.ancestors.clear();
        let commit = self.commit.get_or_insert_default();
        if commit.target.is_empty() {
            commit.branch = format!("{} (review)", commit.branch).trim_start().to_owned();
        }
        self
    }

    /// Do the leaks of its branch have a life of their own? On a developer's machine, those of every branch do.
    #[must_use]
    pub fn is_on_a_line(&self) -> bool {
        !self.unproven
            && !self.is_review()
            && (self.ci.is_none() || Lines::of(&self.lines).has(self.branch()))
    }
}

#[cfg(test)]
mod tests {
    use memgate_model::{Ci, Commit};

    use super::*;

    fn manifest(branch: &str, target: &str, dirty: bool) -> Manifest {
        let commit =
            Commit { sha: "a".into(), branch: branch.into(), target: target.into(), ..Commit::default() };
        Manifest {
            commit: Some(commit),
            dirty,
            ci: Some(Ci::default()),
            lines: vec!["main".into(), "release/*".into(), "[".into()],
            ..Manifest::default()
        }
    }

    #[test]
    fn lines_are_named_by_patterns_and_reviews_are_on_none() {
        for (branch, target, on_a_line) in [
            ("main", "", true),
            ("release/2.1", "", true),
            ("maintenance", "", false),
            ("feature/x", "main", false),
            ("main", "main", false),
            ("", "", true),
        ] {
            assert_eq!(manifest(branch, target, false).is_on_a_line(), on_a_line, "{branch} → {target}");
        }
        assert!(Manifest::default().is_on_a_line(), "no repository at all");
        assert!(
            Manifest { ci: None, ..manifest("feature/x", "", false) }.is_on_a_line(),
            "somebody's own machine"
        );
    }

    #[test]
    fn who_may_not_write_a_branch_is_on_no_line_and_moves_nobody() {
        for (before, branch) in [
            (manifest("main", "", false), "main (review)"),
            (manifest("", "", false), "(review)"),
            (Manifest::default(), "(review)"),
            (manifest("fix", "main", false), "fix"),
            (Manifest { ci: None, ..manifest("main", "", false) }, "main (review)"),
        ] {
            let after = Manifest { ancestors: vec!["b".into()], ..before }.without_proof();
            assert!(!after.is_on_a_line() && after.ancestors.is_empty(), "{branch}");
            assert_eq!(after.branch(), branch);
            let sent = serde_json::to_string(&after).unwrap();
            assert!(!serde_json::from_str::<Manifest>(&sent).unwrap().unproven, "no client says it");
        }
    }

    #[test]
    fn changes_that_are_in_no_commit_are_not_taken_for_the_commit() {
        assert_eq!(manifest("main", "", false).measured_commit(), Some("a"));
        assert_eq!(manifest("main", "", true).measured_commit(), None);
        assert_eq!(Manifest::default().measured_commit(), None);
    }
}
