//! `memgate compare`: compares two runs.

use memgate_reports::Comparison;

use super::report;
use crate::cli::CompareArgs;
use crate::exit::{self, ExpectedError};
use crate::output::Console;

pub(super) fn compare(request: &CompareArgs, console: &Console) -> Result<u8, ExpectedError> {
    let (before, _) = report::read(&request.before)?;
    let (after, _) = report::read(&request.after)?;
    let comparison = Comparison::of(&before, &after);
    if request.json {
        let json = serde_json::to_string_pretty(&comparison)
            .map_err(|why| ExpectedError::machinery(format!("failed to write JSON: {why}"), ""))?;
        console.text(&format!("{json}\n"))?;
    } else {
        console.text(&comparison.human())?;
    }
    Ok(exit::PASS)
}
