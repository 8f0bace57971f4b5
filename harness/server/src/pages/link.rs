//! URLs of pages. Names of projects, tests and branches may contain any character.

use crate::percent::encoded;
use crate::view::Selection;

/// `/p/PROJECT` with `parts` as path segments, and the query of the shown line.
pub(super) fn to(selection: &Selection, parts: &[&str]) -> String {
    format!("{}{}", path(&selection.project, parts), line(&selection.branch, &selection.environment))
}

/// The first page of a project.
#[must_use]
pub fn address(project: &str) -> String {
    path(project, &[])
}

/// `/p/PROJECT` with `parts` as path segments, without a line.
pub(super) fn path(project: &str, parts: &[&str]) -> String {
    let parts: String = parts.iter().map(|part| format!("/{}", encoded(part))).collect();
    format!("/p/{}{parts}", encoded(project))
}

/// The query parameters that choose a line.
pub(super) fn line(branch: &str, environment: &str) -> String {
    format!("?branch={}&environment={}", encoded(branch), encoded(environment))
}
