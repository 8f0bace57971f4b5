//! The list of all reporters that make one file.

use memgate_model::RunReport;

use crate::error::RenderError;
use crate::github::annotations;
use crate::gitlab::code_quality;
use crate::html::html;
use crate::human::{HumanOptions, human};
use crate::json::json;
use crate::junit::{Flavour, JunitOptions, junit};
use crate::markdown::{COMMENT_BYTES, STEP_SUMMARY_BYTES, markdown};
use crate::metrics::metrics;
use crate::places::Checkout;
use crate::sarif::sarif;
use crate::stacks::{folded, speedscope};

/// A reporter with its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportKind {
    /// Text for people.
    Human(HumanOptions),
    /// `report.json`.
    Json,
    /// JUnit XML.
    Junit(JunitOptions),
    /// A page.
    Html,
    /// A summary of at most so many bytes.
    Markdown(usize),
    /// Commands for GitHub Actions.
    Annotations(Checkout),
    /// GitLab's code quality.
    CodeQuality(Checkout),
    /// OpenMetrics text.
    Metrics,
    /// SARIF 2.1.0.
    Sarif(Checkout),
    /// Folded stacks.
    Folded,
    /// A profile for speedscope.
    Speedscope,
}

impl ReportKind {
    /// Its name in configuration and on the command line.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Human(_) => "human",
            Self::Json => "json",
            Self::Junit(_) => "junit",
            Self::Html => "html",
            Self::Markdown(_) => "markdown",
            Self::Annotations(_) => "annotations",
            Self::CodeQuality(_) => "codequality",
            Self::Metrics => "metrics",
            Self::Sarif(_) => "sarif",
            Self::Folded => "folded",
            Self::Speedscope => "speedscope",
        }
    }
}

impl ReportKind {
    /// Every kind with the name of its file. `places` and `charts` say where the checked-out project and the charts
    /// are.
    #[must_use]
    pub fn every(places: &Checkout, charts: &str) -> Vec<(&'static str, Self)> {
        let junit = |flavour| {
            Self::Junit(JunitOptions { flavour, charts: Some(charts.to_owned()), places: places.clone() })
        };
        vec![
            ("report.json", Self::Json),
            ("report.html", Self::Html),
            ("report.txt", Self::Human(HumanOptions::default())),
            ("junit.xml", junit(Flavour::Extended)),
            ("junit-strict.xml", junit(Flavour::Strict)),
            ("summary.md", Self::Markdown(STEP_SUMMARY_BYTES)),
            ("comment.md", Self::Markdown(COMMENT_BYTES)),
            ("annotations.txt", Self::Annotations(places.clone())),
            ("memgate.sarif", Self::Sarif(places.clone())),
            ("codequality.json", Self::CodeQuality(places.clone())),
            ("metrics.txt", Self::Metrics),
            ("leaks.folded", Self::Folded),
            ("leaks.speedscope.json", Self::Speedscope),
        ]
    }
}

/// Renders one report. If it fails, the others continue.
///
/// # Errors
/// When the format cannot hold the report.
pub fn render(report: &RunReport, kind: &ReportKind) -> Result<Vec<u8>, RenderError> {
    let text = match kind {
        ReportKind::Junit(options) => return junit(report, options),
        ReportKind::Human(options) => human(report, options),
        ReportKind::Json => json(report)?,
        ReportKind::Html => html(report)?,
        ReportKind::Markdown(most) => markdown(report, *most),
        ReportKind::Annotations(checkout) => annotations(report, checkout),
        ReportKind::CodeQuality(checkout) => code_quality(report, checkout)?,
        ReportKind::Metrics => metrics(report),
        ReportKind::Sarif(checkout) => sarif(report, checkout)?,
        ReportKind::Folded => folded(report),
        ReportKind::Speedscope => speedscope(report)?,
    };
    Ok(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn every_reporter_renders_every_sample() {
        for (name, report) in sample::all() {
            for (_, kind) in ReportKind::every(&Checkout::default(), "charts") {
                let bytes = render(&report, &kind).unwrap();
                // Folded stacks are empty if no stack leaks.
                let empty = bytes.is_empty() && kind == ReportKind::Folded;
                assert!(empty || bytes.ends_with(b"\n"), "{name} as {}: ends with a newline", kind.name());
                assert!(String::from_utf8(bytes).is_ok(), "{name} as {}: UTF-8", kind.name());
            }
        }
    }
}
