//! What is known of a run beside its report: the branch and the CI job, the checked-out project,
//! the run before.
//!
//! The one place of the reports that reads the environment and looks around in the project's
//! folders.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use memgate_model::{LeakKind, RunReport};
use memgate_reports::mail::Surroundings;
use memgate_reports::{Changes, Checkout};

/// Files looked at while Java sources are searched.
const MAX_ENTRIES: usize = 200_000;
/// Folders nobody keeps sources in.
const SKIPPED: [&str; 6] = [".git", ".memgate", "target", "build", "node_modules", ".gradle"];

/// What messages need to know.
#[derive(Debug)]
pub struct Around {
    /// Branch, revision, job.
    pub surroundings: Surroundings,
    /// The checked-out project.
    pub checkout: Checkout,
    /// What is new since the run before.
    pub changes: Changes,
    /// What is to be told.
    pub warnings: Vec<String>,
}

impl Around {
    /// Looks around. `previous` is the report to compare with; without it the session before
    /// `session` is.
    #[must_use]
    pub fn of(report: &RunReport, session: Option<&Path>, previous: Option<&Path>) -> Self {
        let mut warnings = Vec::new();
        let found = match previous {
            Some(path) => Some(path.to_owned()),
            None => session.and_then(session_before),
        };
        let before = found.and_then(|path| match read_report(&path) {
            Ok(before) => Some(before),
            Err(why) => {
                warnings.push(format!(
                    "no earlier run to compare with, everything counts as new: {}: {why}",
                    path.display()
                ));
                None
            }
        });
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let root = project_root();
        let mut surroundings = surroundings(&variable);
        if surroundings.branch.is_empty() {
            surroundings.branch = root.as_deref().and_then(branch_of).unwrap_or_default();
        }
        let checkout = checkout_at(root, report);
        Self { surroundings, checkout, changes: Changes::since(before.as_ref(), report), warnings }
    }
}

fn read_report(path: &Path) -> Result<RunReport, String> {
    let bytes = fs::read(path).map_err(|why| why.to_string())?;
    memgate_reports::from_json(&bytes).map_err(|why| format!("it {why}"))
}

/// The newest report beside this session that is older: names sort by time.
/// The report of the session before. A checkout cannot bring one along: the sessions that memgate
/// makes are the user's alone, and no version control keeps such a mode.
fn session_before(session: &Path) -> Option<PathBuf> {
    let session = fs::canonicalize(session).ok()?;
    let name = session.file_name()?;
    let entries = fs::read_dir(session.parent()?).ok()?;
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let mut older: Vec<_> =
        names.filter(|other| other.as_os_str() < name && *other != crate::store::LATEST).collect();
    older.sort();
    let ours =
        |folder: &PathBuf| folder.symlink_metadata().is_ok_and(|m| m.is_dir() && m.mode() & 0o077 == 0);
    let folders = older.into_iter().rev().map(|name| session.with_file_name(name)).filter(ours);
    let reports = folders.map(|folder| folder.join("report.json"));
    reports.into_iter().find(|report| report.symlink_metadata().is_ok_and(|m| m.is_file()))
}

/// The checked-out project, as far as this report needs it.
#[must_use]
pub fn checkout(report: &RunReport) -> Checkout {
    checkout_at(project_root(), report)
}

fn checkout_at(root: Option<PathBuf>, report: &RunReport) -> Checkout {
    let Some(root) = root else { return Checkout::default() };
    let mut leaks = report.suites.iter().flat_map(|suite| &suite.tests).flat_map(|test| &test.leaks);
    let java = leaks.any(|leak| leak.kind == LeakKind::Java);
    Checkout {
        sources: if java { java_sources(&root) } else { Vec::new() },
        root: root.to_string_lossy().into_owned(),
    }
}

/// A path as CI servers look for it: from the folder that the job has checked out, where it is
/// inside.
pub(super) fn from_the_job(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let given = ["CI_PROJECT_DIR", "WORKSPACE", "GITHUB_WORKSPACE"].into_iter().find_map(std::env::var_os);
    let job = given.map(PathBuf::from).or_else(project_root);
    let inside = job.as_deref().and_then(|job| absolute.strip_prefix(job).ok());
    inside.unwrap_or(&absolute).to_string_lossy().into_owned()
}

/// The folder with the repository above the working directory, else that itself.
fn project_root() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let root = here.ancestors().find(|folder| folder.join(".git").exists()).map(Path::to_owned);
    Some(root.unwrap_or(here))
}

fn java_sources(root: &Path) -> Vec<String> {
    let mut sources = Vec::new();
    let mut folders = vec![root.to_owned()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        // A folder that cannot be read has no source that anybody here could open.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            seen += 1;
            if seen > MAX_ENTRIES {
                return sorted(sources);
            }
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && !SKIPPED.iter().any(|skipped| name == *skipped) {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|e| e == "java" || e == "kt") {
                sources.extend(path.strip_prefix(root).ok().map(|path| path.to_string_lossy().into_owned()));
            }
        }
    }
    sorted(sources)
}

fn sorted(mut sources: Vec<String>) -> Vec<String> {
    sources.sort();
    sources
}

/// As GitHub, GitLab, Jenkins, Buildkite and CircleCI name them.
fn surroundings(variable: &dyn Fn(&str) -> Option<String>) -> Surroundings {
    let first = |names: &[&str]| names.iter().find_map(|name| variable(name)).unwrap_or_default();
    let branch = first(&[
        "GITHUB_HEAD_REF",
        "GITHUB_REF_NAME",
        "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME",
        "CI_COMMIT_REF_NAME",
        "CHANGE_BRANCH",
        "BRANCH_NAME",
        "GIT_BRANCH",
        "BUILDKITE_BRANCH",
        "CIRCLE_BRANCH",
    ]);
    let commit = first(&["GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT", "BUILDKITE_COMMIT", "CIRCLE_SHA1"]);
    let github = || {
        let (server, repository) = (variable("GITHUB_SERVER_URL")?, variable("GITHUB_REPOSITORY")?);
        Some(format!("{server}/{repository}/actions/runs/{}", variable("GITHUB_RUN_ID")?))
    };
    let url = github()
        .unwrap_or_else(|| first(&["CI_JOB_URL", "BUILD_URL", "BUILDKITE_BUILD_URL", "CIRCLE_BUILD_URL"]));
    let branch = branch.strip_prefix("origin/").unwrap_or(&branch).to_owned();
    Surroundings { branch, commit, url }
}

/// `main`, of `.git/HEAD`, also in a worktree.
fn branch_of(root: &Path) -> Option<String> {
    let git = root.join(".git");
    let folder = if git.is_file() {
        let link = fs::read_to_string(&git).ok()?;
        root.join(link.trim().strip_prefix("gitdir: ")?)
    } else {
        git
    };
    let head = fs::read_to_string(folder.join("HEAD")).ok()?;
    head.trim().strip_prefix("ref: refs/heads/").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fs::DirBuilder;
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn the_branch_and_the_job_are_those_of_the_ci_system() {
        let of = |variables: &'static [(&'static str, &'static str)]| {
            surroundings(&move |name: &str| {
                variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
            })
        };
        let github = of(&[
            ("GITHUB_REF_NAME", "12/merge"),
            ("GITHUB_HEAD_REF", "fix"),
            ("GITHUB_SERVER_URL", "https://github.com"),
            ("GITHUB_REPOSITORY", "a/b"),
            ("GITHUB_RUN_ID", "7"),
        ]);
        assert_eq!(
            (github.branch.as_str(), github.url.as_str()),
            ("fix", "https://github.com/a/b/actions/runs/7")
        );
        assert_eq!(of(&[("CI_COMMIT_REF_NAME", "main"), ("CI_COMMIT_SHA", "abc")]).commit, "abc");
        assert_eq!(of(&[("GIT_BRANCH", "origin/main")]).branch, "main");
        assert_eq!(of(&[]), Surroundings::default());
    }

    #[test]
    fn the_branch_is_read_from_the_repository_and_from_a_worktree() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(branch_of(root), None);
        fs::create_dir_all(root.join(".git/worktrees/w")).unwrap();
        fs::write(root.join(".git/HEAD"), "ref: refs/heads/feature/x\n").unwrap();
        assert_eq!(branch_of(root).as_deref(), Some("feature/x"));
        fs::create_dir(root.join("w")).unwrap();
        fs::write(root.join("w/.git"), "gitdir: ../.git/worktrees/w\n").unwrap();
        fs::write(root.join(".git/worktrees/w/HEAD"), "ref: refs/heads/y\n").unwrap();
        assert_eq!(branch_of(&root.join("w")).as_deref(), Some("y"));
        fs::write(root.join(".git/HEAD"), "0123456789abcdef\n").unwrap();
        assert_eq!(branch_of(root), None, "no branch is checked out");
    }

    #[test]
    fn java_sources_are_found_and_what_was_built_is_not() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["core/src/A.java", "core/target/B.java", "app/C.kt", "app/d.txt"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        assert_eq!(java_sources(folder.path()), ["app/C.kt", "core/src/A.java"]);
    }

    #[test]
    fn the_session_before_is_the_newest_older_one_with_a_report() {
        let folder = tempfile::tempdir().unwrap();
        for (name, has_report) in
            [("20260101", true), ("20260102", true), ("20260103", false), ("20260105", true)]
        {
            DirBuilder::new().mode(0o700).create(folder.path().join(name)).unwrap();
            if has_report {
                fs::write(folder.path().join(name).join("report.json"), "{}").unwrap();
            }
        }
        let now = folder.path().join("20260104");
        fs::create_dir(&now).unwrap();
        let before = session_before(&now).unwrap();
        assert!(before.ends_with("20260102/report.json"), "{}", before.display());
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path().join("20260102"), mode).unwrap();
        let before = session_before(&now).unwrap();
        assert!(before.ends_with("20260101/report.json"), "as checked out: {}", before.display());
    }
}
