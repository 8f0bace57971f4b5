//! Data about a run that its report lacks: the branch and the CI job, the checked-out project, the previous run.
//!
//! Searches the project's folders; `origin` reads the environment.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use memgate_model::{Commit, Origin, RunReport, Runner, Verdict};
use memgate_reports::mail::Surroundings;
use memgate_reports::{Changes, Checkout, has_unknown};

use crate::bounded;
use crate::origin::{self, project_root};

/// Maximum number of earlier reports that are read: for a test that the last run left out, an older report counts.
const EARLIER: usize = 10;
/// Maximum number of files and folders visited while Java sources are searched.
const MAX_ENTRIES: usize = 200_000;
/// Folders without sources.
const SKIPPED: [&str; 6] = [".git", ".memgate", "target", "build", "node_modules", ".gradle"];

/// Data that messages need.
#[derive(Debug)]
pub(crate) struct RunContext {
    /// Branch, revision, job.
    pub surroundings: Surroundings,
    /// Changes since the previous run.
    pub changes: Changes,
    /// Warnings to print.
    pub warnings: Vec<String>,
}

impl RunContext {
    /// Collects the data. `previous` is the report to compare with; without it, the session before `session` is used.
    #[must_use]
    pub(crate) fn of(report: &RunReport, session: Option<&Path>, previous: Option<&Path>) -> Self {
        let mut warnings = Vec::new();
        let before = earlier(report, session, previous, &mut warnings);
        let root = project_root();
        let surroundings = surroundings(report, &origin::here(root.as_deref()));
        Self { surroundings, changes: Changes::since(&before, report), warnings }
    }
}

/// The reports to compare with, the newest first: the previous run, and older ones if tests need them.
fn earlier(
    report: &RunReport,
    session: Option<&Path>,
    previous: Option<&Path>,
    warnings: &mut Vec<String>,
) -> Vec<RunReport> {
    let found = match previous {
        Some(path) => vec![path.to_owned()],
        None => session.map(sessions_before).unwrap_or_default(),
    };
    let mut before = Vec::new();
    for path in found.into_iter().take(EARLIER) {
        if !before.is_empty() && !has_unknown(&before, report) {
            break;
        }
        match read_report(&path) {
            Ok(earlier) => before.push(earlier),
            Err(why) => {
                let none = if before.is_empty() {
                    "no earlier run to compare with, everything"
                } else {
                    "what older runs knew"
                };
                warnings.push(format!("{none} counts as new: {}: {why}", path.display()));
                break;
            }
        }
    }
    before
}

/// This job's own data come first: a report may be from elsewhere.
fn surroundings(report: &RunReport, here: &Origin) -> Surroundings {
    let known = [Some(here), report.origin.as_ref()];
    let commit = |of: fn(&Commit) -> &String| {
        let commits = known.iter().flatten().filter_map(|origin| origin.commit.as_ref());
        commits.map(of).find(|text| !text.is_empty()).cloned().unwrap_or_default()
    };
    let mut jobs = known.iter().flatten().filter_map(|origin| Some(&origin.ci.as_ref()?.url));
    Surroundings {
        branch: commit(|commit| &commit.branch),
        commit: commit(|commit| &commit.sha),
        url: jobs.find(|url| !url.is_empty()).cloned().unwrap_or_default(),
        ..Surroundings::default()
    }
}

fn read_report(path: &Path) -> Result<RunReport, String> {
    let bytes = bounded::read(path, bounded::LONGEST_REPORT).map_err(|why| why.to_string())?;
    memgate_reports::from_json(&bytes).map_err(|why| format!("it {why}"))
}

/// The older reports next to this session, the newest first: names sort by time. A checkout cannot contain one:
/// sessions that memgate creates are readable only by the user, and no version control keeps such a mode.
fn sessions_before(session: &Path) -> Vec<PathBuf> {
    let Ok(session) = fs::canonicalize(session) else { return Vec::new() };
    let (Some(name), Some(Ok(entries))) = (session.file_name(), session.parent().map(fs::read_dir)) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let mut older: Vec<_> =
        names.filter(|other| other.as_os_str() < name && *other != crate::session::LATEST).collect();
    older.sort();
    let ours =
        |folder: &PathBuf| folder.symlink_metadata().is_ok_and(|m| m.is_dir() && m.mode() & 0o077 == 0);
    let folders = older.into_iter().rev().map(|name| session.with_file_name(name)).filter(ours);
    let reports = folders.map(|folder| folder.join("report.json"));
    reports.filter(|report| report.symlink_metadata().is_ok_and(|m| m.is_file())).collect()
}

/// The checked-out project, with the parts that this report needs.
#[must_use]
pub(crate) fn checkout(report: &RunReport) -> Checkout {
    let Some(root) = project_root() else { return Checkout::default() };
    let java = report.suites.iter().any(|suite| {
        let runs_java = matches!(suite.runner, Runner::Junit | Runner::Instrumentation);
        suite.tests.iter().any(|test| {
            runs_java && test.verdict != Verdict::Pass || test.leaks.iter().any(|leak| leak.kind.is_java())
        })
    });
    Checkout {
        sources: if java { java_sources(&root) } else { Vec::new() },
        root: root.to_string_lossy().into_owned(),
    }
}

/// A path in the form that CI servers expect: relative to the job's checkout, if it is inside.
pub(super) fn from_the_job(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let given = ["CI_PROJECT_DIR", "WORKSPACE", "GITHUB_WORKSPACE"].into_iter().find_map(std::env::var_os);
    let job = given.map(PathBuf::from).or_else(project_root);
    let inside = job.as_deref().and_then(|job| absolute.strip_prefix(job).ok());
    inside.unwrap_or(&absolute).to_string_lossy().into_owned()
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

#[cfg(test)]
mod tests {
    use std::fs::DirBuilder;
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};

    use super::*;

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
    fn the_sessions_before_are_the_older_ones_with_a_report_the_newest_first() {
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
        let before = sessions_before(&now);
        assert_eq!(before.len(), 2);
        assert!(before[0].ends_with("20260102/report.json"), "{before:?}");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path().join("20260102"), mode).unwrap();
        let before = sessions_before(&now);
        assert!(before[0].ends_with("20260101/report.json"), "as checked out: {before:?}");
    }
}
