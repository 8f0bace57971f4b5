//! `memgate mail`: sends the evaluation mail of a session now, or writes it as a file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memgate_config::{Encryption, Mail, MailServer, Reports, When};
use memgate_model::RunReport;

use super::{report, settings};
use crate::cli::MailArgs;
use crate::deliver::context::RunContext;
use crate::deliver::mail::Sent;
use crate::deliver::{self, mail};
use crate::exit::{self, ExpectedError};
use crate::output::Console;
use crate::session::write_atomically;

pub(super) fn mail(request: &MailArgs, console: &Console) -> Result<u8, ExpectedError> {
    let settings = settings::load(request.config.config.as_deref(), console)?;
    let mut reports = settings.config.reports;
    for path in reports.paths_mut() {
        *path = settings.root.join(&*path);
    }
    if reports.mail.is_none() && !request.preview {
        return Err(ExpectedError::Usage {
            what: "the configuration has no `reports.mail`".to_owned(),
            hint: "add it, or look at the mail with --preview".to_owned(),
        });
    }
    let mut worst = exit::PASS;
    for session in &request.sessions {
        worst = worst.max(of_session(session, request, &reports, console)?);
    }
    Ok(worst)
}

fn of_session(
    session: &Path,
    request: &MailArgs,
    reports: &Reports,
    console: &Console,
) -> Result<u8, ExpectedError> {
    let (mut report, file) = report::read(session)?;
    // The owners file configured for mail may differ from the run's.
    let owners = reports.mail.as_ref().and_then(|mail| mail.owners.as_deref());
    deliver::owners::assign(&mut report, owners, console);
    let folder = file.parent().unwrap_or(Path::new("."));
    let previous = reports.previous.as_deref();
    if request.preview {
        for path in preview(&report, reports.mail.as_ref().map(|mail| (mail, previous, console)), folder)? {
            console.line(&format!("wrote {}", path.display()));
        }
        return Ok(exit::PASS);
    }
    let context = RunContext::of(&report, Some(folder), previous);
    context.warnings.iter().for_each(|warning| console.warning(warning));
    let Some(settings) = &reports.mail else { return Ok(exit::PASS) };
    if request.when_due && !deliver::is_due(settings.when, &report, &context.changes) {
        console.line(&format!("no mail is due of {}: `reports.mail.when`", session.display()));
        return Ok(exit::PASS);
    }
    match deliver::mail::send(&report, settings, &context, console, &mut BTreeSet::new()) {
        Sent::All => Ok(exit::PASS),
        Sent::NotToAll | Sent::No => Ok(exit::NOT_MEASURED),
    }
}

/// Writes `mail.eml`, `mail-2.eml`, … into `folder`; without settings, as to one recipient.
pub(super) fn preview(
    report: &RunReport,
    settings: Option<(&Mail, Option<&Path>, &Console)>,
    folder: &Path,
) -> Result<Vec<PathBuf>, ExpectedError> {
    let context = RunContext::of(report, Some(folder), settings.and_then(|(_, previous, _)| previous));
    let mut warnings = context.warnings.clone();
    let letters = match settings {
        Some((mail, ..)) => mail::letters(report, mail, &context, &mut warnings),
        None => mail::letters(report, &example(), &context, &mut warnings),
    };
    if let Some((.., console)) = settings {
        warnings.iter().for_each(|warning| console.warning(warning));
    }
    let letters =
        letters.map_err(|why| ExpectedError::machinery(format!("failed to write the mail: {why}"), ""))?;
    let mut written = Vec::new();
    for (index, letter) in letters.iter().enumerate() {
        let name = if index == 0 { "mail.eml".to_owned() } else { format!("mail-{}.eml", index + 1) };
        let path = folder.join(name);
        write_atomically(&path, &letter.formatted()).map_err(|why| ExpectedError::failed(&why))?;
        written.push(path);
    }
    Ok(written)
}

/// Settings for a preview without configuration.
fn example() -> Mail {
    Mail {
        server: MailServer {
            host: "localhost".to_owned(),
            port: 25,
            encryption: Encryption::None,
            user: None,
        },
        password: None,
        from: "memgate@localhost.invalid".to_owned(),
        to: vec!["you@localhost.invalid".to_owned()],
        owners: None,
        addresses: Vec::new(),
        when: When::Always,
        timeout: Duration::from_secs(1),
        ca: None,
    }
}
