//! Delivers reports: into the session, to the configured files, to the terminal, to people.
//!
//! Data flow: one report → [`files`] writes the output of the reporters; [`context`] finds data that the report lacks
//! (branch, job, checked-out project, the previous run); [`mail`] and [`webhooks`] turn the output of the reporters
//! into messages, [`smtp`] passes them to a server. Files that cannot be written are an error, reported after the
//! verdict. A message that cannot be sent is a warning with the reason and without secrets. Sending has a time limit
//! and never changes the verdict.

mod certificates;
pub(crate) mod context;
pub(crate) mod files;
pub(crate) mod mail;
pub(crate) mod notices;
pub(crate) mod owners;
pub(crate) mod secret;
mod smtp;
mod webhooks;

pub(crate) use files::rendered;

use std::collections::BTreeSet;
use std::path::Path;

use memgate_config::{Reports, When};
use memgate_model::RunReport;
use memgate_reports::Changes;

use crate::exit::ExpectedError;
use crate::output::Console;
use context::RunContext;

/// Writes and sends everything configured. A failure does not stop the others.
///
/// # Errors
/// The first file that could not be written.
pub(crate) fn deliver(
    report: &RunReport,
    session: Option<&Path>,
    wanted: &Reports,
    console: &Console,
) -> Result<(), ExpectedError> {
    let written = files::write_all(report, session, wanted, console);
    if wanted.mail.is_some() || !wanted.webhooks.is_empty() {
        let context = RunContext::of(report, session, wanted.previous.as_deref());
        context.warnings.iter().for_each(|warning| console.warning(warning));
        if let Some(settings) =
            wanted.mail.as_ref().filter(|mail| is_due(mail.when, report, &context.changes))
        {
            mail::send(report, settings, &context, console, &mut BTreeSet::new());
        }
        for webhook in wanted.webhooks.iter().filter(|webhook| is_due(webhook.when, report, &context.changes))
        {
            webhooks::post(report, webhook, &context, console);
        }
    }
    written
}

/// Whether a message with this setting must be sent.
pub(crate) fn is_due(when: When, report: &RunReport, changes: &Changes) -> bool {
    match when {
        When::Always => true,
        When::Failed => report.exit_code != 0,
        When::Changed => changes.changed,
    }
}
