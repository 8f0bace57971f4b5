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
use memgate_server::view::{EventRow, State, What};

use crate::output::Console;
use context::RunContext;

/// Sends every configured message that is due. A failure is a warning and does not stop the others. `events`: what the
/// history says of the run.
pub(crate) fn send(
    report: &RunReport,
    session: Option<&Path>,
    wanted: &Reports,
    events: &[EventRow],
    console: &Console,
) {
    if wanted.mail.is_none() && wanted.webhooks.is_empty() {
        return;
    }
    let mut context = RunContext::of(report, session, wanted.previous.as_deref());
    as_in_the_history(&mut context.changes, report, events);
    context.warnings.iter().for_each(|warning| console.warning(warning));
    if let Some(settings) = wanted.mail.as_ref().filter(|mail| is_due(mail.when, report, &context.changes)) {
        mail::send(report, settings, &context, console, &mut BTreeSet::new());
    }
    for webhook in wanted.webhooks.iter().filter(|webhook| is_due(webhook.when, report, &context.changes)) {
        webhooks::post(report, webhook, &context, console);
    }
}

/// Gives the changes since the last run the words of the history, which knows more runs.
fn as_in_the_history(changes: &mut Changes, report: &RunReport, events: &[EventRow]) {
    let those = |what: What| -> BTreeSet<String> {
        let events = events.iter().filter(|event| event.kind == what.name());
        events.map(|event| event.leak.clone()).collect()
    };
    changes.came_back(&those(What::To(State::Regressed)));
    changes.became_larger(&those(What::Larger), report);
    let fixed = those(What::To(State::Fixed));
    for (leak, ended) in &mut changes.gone {
        ended.fixed |= fixed.contains(leak);
    }
}

/// Whether a message with this setting must be sent.
pub(crate) fn is_due(when: When, report: &RunReport, changes: &Changes) -> bool {
    match when {
        When::Always => true,
        When::Failed => report.exit_code != 0,
        When::Changed => changes.changed,
    }
}

#[cfg(test)]
mod tests {
    use memgate_model::{Leak, Runner, SuiteReport, TestReport, Verdict};
    use memgate_reports::Ended;

    use super::*;

    /// Regression: a mail said "new" and "gone" where the history said "regressed" and "fixed" of the same run.
    #[test]
    fn a_message_has_the_words_of_the_history() {
        let ids = ["n1-a", "n1-b"].map(str::to_owned);
        let of = |kind: &str, leak: &str| EventRow {
            kind: kind.to_owned(),
            leak: leak.to_owned(),
            ..EventRow::default()
        };
        let mut changes = Changes {
            new: ids.clone().map(|id| (id, "engine".to_owned())).into(),
            gone: ["n1-c", "n1-d"].map(|id| (id.to_owned(), Ended::default())).into(),
            ..Changes::default()
        };
        let events = [
            of("regressed", "n1-a"),
            of("fixed", "n1-c"),
            of("new", "n1-b"),
            of("larger", "n1-e"),
            of("larger", "n1-w"),
        ];
        let leak = |id: &str, waiver: Option<&str>| Leak {
            id: id.to_owned(),
            waiver: waiver.map(str::to_owned),
            ..Leak::default()
        };
        let leaks = vec![leak("n1-e", None), leak("n1-w", Some("known"))];
        let test = TestReport { leaks, ..TestReport::new("A.a", Verdict::Fail) };
        let suite = SuiteReport::new("engine", Runner::Gtest, Verdict::Fail, vec![test]);
        let report = RunReport::new("tiles", "s", Verdict::Fail, vec![suite]);
        as_in_the_history(&mut changes, &report, &events);
        let word = |id: &str| changes.word(id);
        assert_eq!(["n1-a", "n1-b", "n1-e"].map(word), [Some("regressed"), Some("new"), Some("larger")]);
        assert_eq!((word("n1-w"), changes.changed), (None, true), "what is waived is no news");
        assert_eq!((changes.gone["n1-c"].fixed, changes.gone["n1-d"].fixed), (true, false));
    }
}
