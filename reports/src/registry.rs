//! The list of all reporters.

use memgate_model::RunReport;

use crate::human::{HumanOptions, human};
use crate::json::json;
use crate::junit::{Flavour, junit};

/// A reporter with what it has to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportKind {
    /// Text for people.
    Human(HumanOptions),
    /// `report.json`.
    Json,
    /// JUnit XML.
    Junit(Flavour),
}

impl ReportKind {
    /// Its name in configuration and on the command line.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Human(_) => "human",
            Self::Json => "json",
            Self::Junit(_) => "junit",
        }
    }
}

/// Renders one report. The others go on when it fails.
///
/// # Errors
/// When the format cannot hold the report.
pub fn render(report: &RunReport, kind: &ReportKind) -> Result<Vec<u8>, RenderError> {
    match kind {
        ReportKind::Human(options) => Ok(human(report, options).into_bytes()),
        ReportKind::Json => json(report).map(String::into_bytes),
        ReportKind::Junit(flavour) => junit(report, *flavour),
    }
}

/// Why a report could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// JSON could not be written.
    #[error("render json")]
    Json(#[source] serde_json::Error),
    /// JUnit XML could not be written.
    #[error("render junit")]
    Junit(#[source] junit_report::Error),
    /// JUnit XML could not be completed.
    #[error("complete junit")]
    Xml(#[source] quick_xml::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn every_reporter_renders_every_sample() {
        for (name, report) in sample::all() {
            for kind in [
                ReportKind::Human(HumanOptions::default()),
                ReportKind::Json,
                ReportKind::Junit(Flavour::Strict),
                ReportKind::Junit(Flavour::Extended),
            ] {
                let bytes = render(&report, &kind).unwrap();
                assert!(bytes.ends_with(b"\n"), "{name} as {}: ends with a newline", kind.name());
                assert!(String::from_utf8(bytes).is_ok(), "{name} as {}: UTF-8", kind.name());
            }
        }
    }
}
