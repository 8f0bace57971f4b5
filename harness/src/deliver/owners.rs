//! Finds the owners of leaking code in the CODEOWNERS file of the checked-out project, for reports, mail and the
//! history.
//!
//! Data flow: a judged report and the checked-out project → the first frame of each leak in the project's own files →
//! its owners in CODEOWNERS → [`Leak::owners`](memgate_model::Leak::owners).

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use memgate_model::RunReport;
use memgate_reports::owners::{Owners, Syntax};

use super::context::checkout;
use crate::origin::project_root;
use crate::output::Console;

/// Where GitHub and GitLab look for the file, in this order.
const PLACES: [&str; 4] = [".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS"];
/// Maximum number of owners kept for a leak. With more owners, none is really responsible.
const MOST: usize = 100;

/// Adds the owners of leaking code to a report. `configured` is the file configured for mail; without it, the project's
/// own file is used, if it has one.
pub(crate) fn assign(report: &mut RunReport, configured: Option<&Path>, console: &Console) {
    let mut leaks = report.suites.iter().flat_map(|suite| &suite.tests).flat_map(|test| &test.leaks);
    let Some(file) = configured.map(Path::to_owned).or_else(found).filter(|_| leaks.next().is_some()) else {
        return;
    };
    let owners = match read(&file, console) {
        Ok(owners) => owners,
        Err(why) => return console.warning(&format!("no owner of code is known: {why}")),
    };
    let checkout = checkout(report);
    for suite in &mut report.suites {
        for leak in suite.tests.iter_mut().flat_map(|test| test.leaks.iter_mut().chain(&mut test.one_time)) {
            let Some(place) = checkout.place(leak) else { continue };
            leak.owners = owners.of(&place.file).into_iter().take(MOST).map(str::to_owned).collect();
        }
    }
}

fn found() -> Option<PathBuf> {
    let root = project_root()?;
    PLACES.iter().map(|place| root.join(place)).find(|file| file.is_file())
}

fn read(file: &Path, console: &Console) -> Result<Owners, String> {
    let text = fs::read_to_string(file).map_err(|why| match why.kind() {
        ErrorKind::NotFound => format!("there is no {}", file.display()),
        _ => format!("cannot read {}: {why}", file.display()),
    })?;
    let owners = Owners::parse(&text, Syntax::of(&file.to_string_lossy(), &text));
    for (line, why) in &owners.ignored {
        console.warning(&format!("{}:{line} is ignored: {why}", file.display()));
    }
    Ok(owners)
}
