//! `memgate baseline accept`: the figures of a session become those that relative thresholds compare with.

use std::path::Path;

use memgate_config::Baseline;

use super::{report, settings};
use crate::cli::AcceptRequest;
use crate::exit::{self, ExpectedError};
use crate::output::Console;
use crate::plan::Settings;
use crate::recorder::chain;
use crate::store::write_atomically;

pub(super) fn accept(request: &AcceptRequest, console: &Console) -> Result<u8, ExpectedError> {
    let settings = settings::load(request.config.as_deref(), console)?;
    let (report, file) = report::read(&request.session)?;
    if report.suites.is_empty() {
        return Err(ExpectedError::Session {
            path: file,
            why: "it has no suites: there is nothing to accept".to_owned(),
            hint: String::new(),
        });
    }
    let Settings { config, root, baseline, .. } = settings;
    let mut baseline = baseline.unwrap_or_default();
    baseline.accept(&report);
    let path = root.join(&config.baseline.path);
    write(&baseline, &path)?;
    let tests: usize = report.suites.iter().map(|suite| suite.tests.len()).sum();
    console.line(&format!(
        "accepted the figures of {tests} tests of session {} in {}",
        report.session,
        path.display()
    ));
    Ok(exit::PASS)
}

fn write(baseline: &Baseline, path: &Path) -> Result<(), ExpectedError> {
    let failed = |what: String| ExpectedError::Machinery { what, hint: String::new() };
    let text = baseline.to_json().map_err(|why| failed(why.to_string()))?;
    write_atomically(path, text.as_bytes()).map_err(|why| failed(format!("failed to {}", chain(&why))))
}
