//! Addresses of pages. Names of projects, tests and branches may hold anything.

use crate::view::Selection;

/// `/p/PROJECT` with the parts below it, each one segment, on the line that is shown.
pub(super) fn to(selection: &Selection, parts: &[&str]) -> String {
    format!("{}{}", path(&selection.project, parts), line(&selection.branch, &selection.environment))
}

/// The first page of a project.
#[must_use]
pub fn address(project: &str) -> String {
    path(project, &[])
}

/// The same without a line.
pub(super) fn path(project: &str, parts: &[&str]) -> String {
    let parts: String = parts.iter().map(|part| format!("/{}", encoded(part))).collect();
    format!("/p/{}{parts}", encoded(project))
}

/// The parameters that choose a line.
pub(super) fn line(branch: &str, environment: &str) -> String {
    format!("?branch={}&environment={}", encoded(branch), encoded(environment))
}

/// A text as one segment of a path, or one value of a query.
pub(super) fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let dots = !text.is_empty() && text.bytes().all(|byte| byte == b'.');
    text.bytes()
        .map(|byte| if plain(byte) && !dots { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
