//! `reports`: what is written where.

use std::path::PathBuf;

use crate::config::{Later, LaterKind};
use crate::read::{Anything, At, Reader, choice, table};
use crate::value::text::Words;

table! {
    /// Files to write besides the session's own `report.json`.
    ReportsFile {
        /// JUnit XML, for CI servers.
        junit: At<JunitFile>,
        /// The report as JSON.
        json: At<JsonFile>,
        /// A page with charts and stacks (a later version).
        html: At<Anything>,
        /// A summary for a merge request (a later version).
        markdown: At<Anything>,
        /// Findings for code scanning (a later version).
        sarif: At<Anything>,
        /// Figures for a metrics store (a later version).
        metrics: At<Anything>,
        /// Curves as pictures (a later version).
        charts: At<Anything>,
        /// Mail to teams and code owners (a later version).
        mail: At<Anything>,
        /// Messages to a chat (a later version).
        webhook: At<Anything>,
    }
}

table! {
    /// JUnit XML.
    JunitFile {
        /// File to write.
        #[schemars(required)]
        path: Words,
        /// How much the file says.
        #[schemars(extend("default" = "extended"))]
        flavour: JunitFlavour,
    }
}

table! {
    /// The report as JSON.
    JsonFile {
        /// File to write.
        #[schemars(required)]
        path: Words,
    }
}

choice! {
    /// How much a JUnit file says.
    pub enum JunitFlavour ("a flavour of JUnit XML") {
        /// With properties and totals.
        Extended = "extended",
        /// What Jenkins' xUnit schema allows.
        Strict = "strict",
    }
}

/// What is written where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reports {
    /// JUnit XML.
    pub junit: Option<JunitReport>,
    /// Copy of `report.json`.
    pub json: Option<PathBuf>,
}

/// A JUnit file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JunitReport {
    /// File to write.
    pub path: PathBuf,
    /// How much it says.
    pub flavour: JunitFlavour,
}

impl Reports {
    pub(crate) fn check(file: ReportsFile, later: &mut Vec<Later>, reader: &mut Reader<'_>) -> Self {
        let ReportsFile { junit, json, html, markdown, sarif, metrics, charts, mail, webhook } = file;
        let of_later = [
            ("html", html),
            ("markdown", markdown),
            ("sarif", sarif),
            ("metrics", metrics),
            ("charts", charts),
            ("mail", mail),
            ("webhook", webhook),
        ];
        for (name, given) in of_later {
            if let Some(given) = given {
                let place = reader.place(&given.span);
                later.push(Later { kind: LaterKind::Report, name: name.to_owned(), detail: "", place });
            }
        }
        let junit = junit.and_then(|At { value: JunitFile { path, flavour }, span }| {
            let path = check_path("junit", "junit.xml", path, &span, reader)?;
            Some(JunitReport { path, flavour: flavour.unwrap_or(JunitFlavour::Extended) })
        });
        let json = json.and_then(|At { value: JsonFile { path }, span }| {
            check_path("json", "report.json", path, &span, reader)
        });
        Self { junit, json }
    }
}

fn check_path(
    report: &str,
    usual: &str,
    path: Option<Words>,
    span: &crate::source::Span,
    reader: &mut Reader<'_>,
) -> Option<PathBuf> {
    if path.is_none() && !reader.has_error_below(span) {
        reader
            .error(span, format!("the report `{report}` has no `path`"))
            .label("where is it written to?")
            .hint(Some(format!("add `path: target/memgate/{usual}`")));
    }
    path.map(|Words(path)| PathBuf::from(path))
}
