//! `memgate report`: renders the report of a session again.

use std::path::{Path, PathBuf};

use memgate_model::RunReport;

use crate::bounded;
use crate::cli::ReportArgs;
use crate::deliver;
use crate::exit::{self, ExpectedError};
use crate::output::Console;
use crate::session::Session;
use crate::session::facts::Facts;

pub(super) fn report(request: &ReportArgs, console: &Console) -> Result<u8, ExpectedError> {
    let (report, file) = read(&request.session)?;
    if let Some(folder) = &request.all {
        deliver::files::write_everything(&report, folder)?;
        console.line(&format!("every format is in {}", folder.display()));
        return Ok(exit::PASS);
    }
    let screen = console.stdout_screen(request.verbose);
    console.result(&deliver::rendered(&report, request.format, Some(&full(file)), screen)?)?;
    Ok(exit::PASS)
}

/// The page that a run names, if it is beside the report.
fn full(report: PathBuf) -> PathBuf {
    let page = report.with_file_name("report.html");
    if report.ends_with("report.json") && page.is_file() { page } else { report }
}

/// The report of a session folder, or a report file itself, and where it is.
pub(super) fn read(session: &Path) -> Result<(RunReport, PathBuf), ExpectedError> {
    let file = if session.is_dir() { session.join("report.json") } else { session.to_owned() };
    let wrong = |why: String, hint: &str| ExpectedError::session(file.clone(), why, hint);
    let bytes = bounded::read(&file, bounded::LONGEST_REPORT).map_err(|why| {
        wrong(
            why.to_string(),
            "`memgate run` records a session; `memgate gate` judges one that was interrupted",
        )
    })?;
    let report = memgate_reports::from_json(&bytes).map_err(|why| wrong(format!("it {why}"), ""))?;
    Ok((report, file))
}

/// The session that a report is in.
pub(super) fn session_of(report: &Path) -> Option<Session> {
    Session::open(report.parent().unwrap_or(Path::new(""))).ok()
}

/// Whether only a part of the tests ran. A report without its session does not show this: then it may be.
pub(super) fn is_partial(session: Option<&Session>) -> Result<bool, ExpectedError> {
    let Some(session) = session else { return Ok(true) };
    if let Some(facts) = Facts::load(session)? {
        return Ok(facts.partial);
    }
    // A session merged from shards has no facts of its own.
    let info = session.info().map_err(|why| ExpectedError::failed(&why))?;
    Ok(info.history.is_none_or(|manifest| manifest.partial))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_page_of_the_run_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let [report, page, other] =
            ["report.json", "report.html", "a.json"].map(|name| folder.path().join(name));
        assert_eq!(full(report.clone()), report, "there is no page");
        fs::write(&page, "").unwrap();
        assert_eq!((full(report), full(other.clone())), (page, other));
    }

    #[test]
    fn what_is_no_report_is_told_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let error = read(folder.path()).unwrap_err();
        assert!(error.hint().unwrap().contains("memgate run"), "an empty session says how to get a report");
        fs::write(folder.path().join("report.json"), "{\"schema_version\": 99}").unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().contains("schema version 99"));
    }
}
