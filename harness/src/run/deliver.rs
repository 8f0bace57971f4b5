//! Reports on their way out: into the session, to the files of the configuration, onto the terminal.

use std::path::Path;

use memgate_config::{JunitFlavour, Reports};
use memgate_model::RunReport;
use memgate_reports::{Flavour, HumanOptions, ReportKind, render};

use crate::cli::Format;
use crate::exit::ExpectedError;
use crate::recorder::chain;
use crate::store::write_atomically;

/// How a report is shown to a person.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// With colours?
    pub colour: bool,
    /// Columns of the terminal; `None`: it is none.
    pub width: Option<usize>,
    /// Everything?
    pub verbose: bool,
}

/// Renders `report` as it is printed. `full` is where all of it is.
///
/// # Errors
/// When the format cannot hold it.
pub fn rendered(
    report: &RunReport,
    format: Format,
    full: Option<&Path>,
    screen: Screen,
) -> Result<Vec<u8>, ExpectedError> {
    let kind = match format {
        Format::Human => ReportKind::Human(HumanOptions {
            colour: screen.colour,
            width: screen.width,
            verbose: screen.verbose,
            report_path: full.map(|path| path.display().to_string()),
        }),
        Format::Json => ReportKind::Json,
        Format::Junit => ReportKind::Junit(Flavour::Extended),
    };
    bytes(report, &kind)
}

/// Writes `report.json` into the session folder, and what the configuration asks for. One that fails does not keep the
/// others from being written.
///
/// # Errors
/// The first that failed.
pub fn deliver(report: &RunReport, session: Option<&Path>, wanted: &Reports) -> Result<(), ExpectedError> {
    let mut files = Vec::new();
    files.extend(session.map(|folder| (folder.join("report.json"), ReportKind::Json)));
    files.extend(wanted.json.as_ref().map(|path| (path.clone(), ReportKind::Json)));
    files.extend(wanted.junit.as_ref().map(|junit| {
        let flavour = match junit.flavour {
            JunitFlavour::Extended => Flavour::Extended,
            JunitFlavour::Strict => Flavour::Strict,
        };
        (junit.path.clone(), ReportKind::Junit(flavour))
    }));
    let written: Vec<_> = files.iter().map(|(path, kind)| write(report, path, kind)).collect();
    written.into_iter().collect()
}

fn write(report: &RunReport, path: &Path, kind: &ReportKind) -> Result<(), ExpectedError> {
    write_atomically(path, &bytes(report, kind)?).map_err(|why| failed(&why))
}

fn bytes(report: &RunReport, kind: &ReportKind) -> Result<Vec<u8>, ExpectedError> {
    render(report, kind).map_err(|why| failed(&why))
}

fn failed(why: &dyn std::error::Error) -> ExpectedError {
    ExpectedError::Machinery { what: format!("failed to {}", chain(why)), hint: String::new() }
}

#[cfg(test)]
mod tests {
    use memgate_config::JunitReport;
    use memgate_model::Verdict;

    use super::*;

    fn report() -> RunReport {
        RunReport {
            schema_version: memgate_model::SCHEMA_VERSION,
            verdict: Verdict::Pass,
            exit_code: 0,
            project: "tiles".into(),
            session: "s".into(),
            started: "2026-11-21T10:00:00Z".into(),
            duration_s: 1.0,
            agent_cost: memgate_model::AgentCost::default(),
            suites: Vec::new(),
            waivers: Vec::new(),
            errors: Vec::new(),
        }
    }

    #[test]
    fn one_report_that_fails_does_not_keep_the_others_from_being_written() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let wanted = Reports {
            json: Some(folder.path().join("file/inside.json")),
            junit: Some(JunitReport {
                path: folder.path().join("new/junit.xml"),
                flavour: JunitFlavour::Strict,
            }),
        };
        let error = deliver(&report(), Some(folder.path()), &wanted).unwrap_err();
        assert!(error.to_string().contains("file"), "{error}");
        assert!(folder.path().join("report.json").is_file() && folder.path().join("new/junit.xml").is_file());
    }

    #[test]
    fn every_format_can_be_printed() {
        let screen = Screen { colour: false, width: None, verbose: false };
        for (format, part) in [
            (Format::Human, "no test ran"),
            (Format::Json, "\"verdict\": \"pass\""),
            (Format::Junit, "<testsuites"),
        ] {
            let text = String::from_utf8(rendered(&report(), format, None, screen).unwrap()).unwrap();
            assert!(text.contains(part), "{format:?}: {text}");
        }
    }
}
