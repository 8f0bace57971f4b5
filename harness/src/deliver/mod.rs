//! Reports on their way out: into the session, to the files of the configuration, onto the
//! terminal, to people.
//!
//! Data flow: one report → [`files`] writes what reporters render; [`around`] finds out what no
//! report says (branch, job, checked-out project, the run before); [`mail`] and [`webhooks`] turn
//! what the reporters say into messages, [`smtp`] hands them to a server. Files that cannot be
//! written are an error told behind the verdict. A message that cannot be sent is a warning: in
//! bounded time, with the reason, without a secret, and the verdict stays what it is.

pub mod around;
pub mod files;
pub mod mail;
mod smtp;
mod webhooks;

pub use files::rendered;

use std::path::Path;

use memgate_config::{Reports, When};
use memgate_model::RunReport;
use memgate_reports::Changes;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::exit::ExpectedError;
use crate::output::Console;
use around::Around;

/// Writes and sends everything that is wanted. One that fails does not keep the others from being
/// delivered.
///
/// # Errors
/// The first file that could not be written.
pub fn deliver(
    report: &RunReport,
    session: Option<&Path>,
    wanted: &Reports,
    console: &Console,
) -> Result<(), ExpectedError> {
    let written = files::write_all(report, session, wanted);
    if wanted.mail.is_some() || !wanted.webhooks.is_empty() {
        let around = Around::of(report, session, wanted.previous.as_deref());
        around.warnings.iter().for_each(|warning| console.warning(warning));
        if let Some(settings) = wanted.mail.as_ref().filter(|mail| is_due(mail.when, report, &around.changes))
        {
            mail::send(report, settings, &around, console);
        }
        for webhook in wanted.webhooks.iter().filter(|webhook| is_due(webhook.when, report, &around.changes))
        {
            webhooks::post(report, webhook, &around, console);
        }
    }
    written
}

fn is_due(when: When, report: &RunReport, changes: &Changes) -> bool {
    match when {
        When::Always => true,
        When::Failed => report.exit_code != 0,
        When::Changed => changes.changed,
    }
}

/// The value of a variable that holds a secret; `Err` names the variable.
fn secret(variable: &str) -> Result<String, String> {
    let value = std::env::var(variable).ok().filter(|value| !value.is_empty());
    value.ok_or_else(|| format!("the environment has no variable `{variable}`"))
}

/// Every certificate of a PEM file.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let text = std::fs::read(path).map_err(|why| wrong(&why))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|why| wrong(&why))?;
    if found.is_empty() { Err(wrong(&"there is no certificate in it")) } else { Ok(found) }
}

/// What a peer or a library says may repeat a secret: it is taken out before anybody reads it.
fn without(text: &str, secrets: &[&str]) -> String {
    use base64::Engine as _;
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        let encoded = base64::engine::general_purpose::STANDARD.encode(secret);
        text = text.replace(*secret, "***").replace(&encoded, "***");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_a_server_says_repeats_a_secret() {
        let text = without("535 hunter2 is wrong (aHVudGVyMg==)", &["hunter2", ""]);
        assert_eq!(text, "535 *** is wrong (***)");
    }
}
