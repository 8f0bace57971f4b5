//! Checks of a run before it is stored: every name within its limit, no text that a database cannot store.

use memgate_history::Manifest;
use memgate_history::record::{LONGEST_NAME, LONGEST_TEXT};
use memgate_model::{Ci, Commit, RunReport};

use super::Refused;

/// Most ancestors of a commit.
const MOST_ANCESTORS: usize = 500;
/// Most labels of an environment, and most patterns of lines.
const MOST_LABELS: usize = 100;

/// Refuses values that cannot be stored, and names them.
pub(super) fn check(project: &str, manifest: &Manifest, report: &RunReport) -> Result<(), Refused> {
    check_identity(project, manifest)?;
    check_names(manifest)?;
    check_report(report)
}

/// Whether the run says which one it is, and of which project.
fn check_identity(project: &str, manifest: &Manifest) -> Result<(), Refused> {
    if manifest.project != project {
        let error =
            format!("the run is of project `{}`, the address names `{project}`", cut(&manifest.project));
        return Err(Refused::nonsense(error, "upload it to /api/v1/projects/NAME/runs of its own project"));
    }
    if manifest.session.is_empty() {
        return Err(Refused::nonsense("`manifest.session` is empty: it tells runs apart", ""));
    }
    if matches!(project, "" | "." | "..") {
        let hint = "name it in memgate.yaml: `project: NAME`";
        return Err(Refused::nonsense(
            format!("`manifest.project` is {project:?}: no page has such an address"),
            hint,
        ));
    }
    Ok(())
}

fn check_names(manifest: &Manifest) -> Result<(), Refused> {
    let (no_commit, no_ci) = (Commit::default(), Ci::default());
    let commit = manifest.commit.as_ref().unwrap_or(&no_commit);
    let ci = manifest.ci.as_ref().unwrap_or(&no_ci);
    for (what, text) in [
        ("project", &manifest.project),
        ("session", &manifest.session),
        ("commit.sha", &commit.sha),
        ("commit.branch", &commit.branch),
        ("commit.target", &commit.target),
        ("commit.base_sha", &commit.base_sha),
        ("ci.provider", &ci.provider),
        ("ci.pipeline", &ci.pipeline),
        ("ci.number", &ci.number),
        ("ci.job", &ci.job),
        ("ci.attempt", &ci.attempt),
    ] {
        name(what, text)?;
    }
    text("ci.url", &ci.url, LONGEST_TEXT)?;
    for (label, value) in &manifest.environment.0 {
        name("environment", label)?;
        name("environment", value)?;
    }
    for sha in &manifest.ancestors {
        name("ancestors", sha)?;
    }
    for line in &manifest.lines {
        name("lines", line)?;
    }
    for (what, found, most) in [
        ("ancestors", manifest.ancestors.len(), MOST_ANCESTORS),
        ("labels of the environment", manifest.environment.0.len(), MOST_LABELS),
        ("patterns of lines", manifest.lines.len(), MOST_LABELS),
    ] {
        if found > most {
            return Err(Refused::nonsense(format!("the run has {found} {what}: {most} are the most"), ""));
        }
    }
    Ok(())
}

/// The record limits the lengths in test results: it cuts long reasons and test names, and refuses other long names.
fn check_report(report: &RunReport) -> Result<(), Refused> {
    if report.started.parse::<jiff::Timestamp>().is_err() {
        let error = format!("`report.started` is no time: `{}`", cut(&report.started));
        return Err(Refused::nonsense(error, "write it as RFC 3339: 2026-11-15T08:00:00+01:00"));
    }
    for suite in &report.suites {
        nul("the name of a suite", &suite.name)?;
        for test in &suite.tests {
            nul("the name of a test", &test.id)?;
            nul("the reason of a test", &test.reason)?;
            for leak in test.leaks.iter().chain(&test.one_time) {
                nul("the id of a leak", &leak.id)?;
            }
        }
    }
    Ok(())
}

fn name(what: &str, value: &str) -> Result<(), Refused> {
    text(what, value, LONGEST_NAME)
}

fn text(what: &str, value: &str, most: usize) -> Result<(), Refused> {
    if value.len() > most {
        let error = format!("`manifest.{what}` has {} bytes: {most} are the most", value.len());
        return Err(Refused::nonsense(error, ""));
    }
    nul(&format!("`manifest.{what}`"), value)
}

/// PostgreSQL cannot store text with this character.
fn nul(what: &str, value: &str) -> Result<(), Refused> {
    if value.contains('\0') {
        Err(Refused::nonsense(format!("{what} has a NUL character"), ""))
    } else {
        Ok(())
    }
}

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}
