//! Selects recipients: the fixed recipients get everything, and each owner of leaking code gets their own leaks; no
//! recipient gets two mails.

use std::collections::{BTreeMap, BTreeSet};

use lettre::Message;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Attachment, Mailbox, MultiPart, SinglePart};
use memgate_config::Mail;
use memgate_model::{RunReport, Verdict};
use memgate_reports::Changes;
use memgate_reports::mail::mail;
use sha2::{Digest as _, Sha256};

use super::context::RunContext;
use super::secret::secret;
use super::smtp;
use crate::output::Console;

/// Maximum number of owners who get a mail about one run: if more are affected, the problem is not one for single
/// owners.
const OWNERS: usize = 20;

/// The result of sending the mails of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// All were sent.
    All,
    /// All were sent except those that the server permanently refused.
    NotToAll,
    /// Some were not delivered; sending may be tried again.
    No,
}

/// Builds and sends the mails to recipients that are not yet in `handed`. All failures are warnings.
pub(crate) fn send(
    report: &RunReport,
    settings: &Mail,
    context: &RunContext,
    console: &Console,
    handed: &mut BTreeSet<String>,
) -> Sent {
    let mut warnings = Vec::new();
    let sent = settings.password.as_deref().map(secret).transpose().and_then(|password| {
        let letters = letters(report, settings, context, &mut warnings)?;
        let (count, password, ca) = (letters.len(), password.as_deref(), settings.ca.as_deref());
        let refused = smtp::send(&settings.server, password, ca, settings.timeout, letters, handed)
            .map_err(|why| format!("{}: {why}", settings.server.host))?;
        Ok((count, refused))
    });
    warnings.iter().for_each(|warning| console.warning(warning));
    match &sent {
        Ok((_, refused)) if !refused.is_empty() => {
            console.warning(&format!("the mail was not sent to all: {}: {refused}", settings.server.host));
        }
        Ok((0, _)) => console.line("no mail was sent: nobody is to be told"),
        Ok((1, _)) => console.line("sent 1 mail"),
        Ok((count, _)) => console.line(&format!("sent {count} mails")),
        Err(why) => {
            let to_all = if handed.is_empty() { "" } else { " to all" };
            console.warning(&format!("the mail was not sent{to_all}: {why}"));
        }
    }
    match sent {
        Ok((_, refused)) if refused.is_empty() => Sent::All,
        Ok(_) => Sent::NotToAll,
        Err(_) => Sent::No,
    }
}

/// The mails of a run, ready to send, each with its recipients; oddities go to `warnings`.
///
/// # Errors
/// When one of them cannot be written.
pub(crate) fn letters(
    report: &RunReport,
    settings: &Mail,
    context: &RunContext,
    warnings: &mut Vec<String>,
) -> Result<Vec<Message>, String> {
    // Who names addresses of owners wants them to get mail. Without `owners`, the project's own CODEOWNERS counts.
    let owned = match settings.owners.is_some() || !settings.addresses.is_empty() {
        true => by_owner(report, settings, &context.changes, warnings),
        false => BTreeMap::new(),
    };
    let mut letters = Vec::new();
    if !settings.to.is_empty() {
        letters.push(letter(report, &settings.from, &settings.to, context, None)?);
    }
    let mut owned: Vec<_> = owned.into_iter().collect();
    owned.sort_by_key(|(_, leaks)| std::cmp::Reverse(leaks.len()));
    if owned.len() > OWNERS {
        warnings.push(format!(
            "{} owners of leaking code get no mail of their own: {OWNERS} with most leaks do",
            owned.len() - OWNERS
        ));
        owned.truncate(OWNERS);
    }
    for (owner, leaks) in &owned {
        // An owner in CODEOWNERS with an invalid form is no reason to send no mail at all.
        if let Err(why) = owner.parse::<Mailbox>() {
            warnings.push(format!("no mail for {owner}: {why}; `reports.mail.addresses` may say where to"));
            continue;
        }
        letters.push(letter(report, &settings.from, std::slice::from_ref(owner), context, Some(leaks))?);
    }
    Ok(letters)
}

/// The leaks of each owner, without owners who get all leaks anyway.
fn by_owner(
    report: &RunReport,
    settings: &Mail,
    changes: &Changes,
    warnings: &mut Vec<String>,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut owned: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut unknown = BTreeSet::new();
    let failing = report.suites.iter().flat_map(|s| &s.tests).filter(|t| t.verdict == Verdict::Fail);
    let leaks = failing.flat_map(|test| &test.leaks).filter(|leak| leak.waiver.is_none());
    let here = leaks.map(|leak| (&leak.id, &leak.owners));
    let all: Vec<_> = here.chain(changes.gone.iter().map(|(id, ended)| (id, &ended.owners))).collect();
    if settings.owners.is_none() && !all.is_empty() && all.iter().all(|(_, owners)| owners.is_empty()) {
        let what = "no CODEOWNERS file of the project names an owner of this code: \
                    set `reports.mail.owners` to another file";
        warnings.push(format!("no mail for owners: {what}"));
    }
    for (id, owners) in all {
        for owner in owners {
            match address_of(owner, settings) {
                Some(address)
                    if settings.to.iter().any(|to| bare(to).eq_ignore_ascii_case(bare(&address))) => {}
                Some(address) => {
                    // Several owners may share a mailbox and write it differently.
                    let of = |to: &String| bare(to).eq_ignore_ascii_case(bare(&address));
                    let known = owned.keys().find(|to| of(to)).cloned();
                    owned.entry(known.unwrap_or(address)).or_default().insert(id.clone());
                }
                None => {
                    unknown.insert(owner.clone());
                }
            }
        }
    }
    if !unknown.is_empty() {
        let names = unknown.into_iter().collect::<Vec<_>>().join(", ");
        warnings.push(format!("no mail for {names}: `reports.mail.addresses` does not say where to"));
    }
    owned
}

/// The address of an owner, which is a name (`@maps`) or itself an address.
fn address_of(owner: &str, settings: &Mail) -> Option<String> {
    let bare = |name: &str| name.trim_start_matches('@').to_owned();
    let find = |is_it: &dyn Fn(&str) -> bool| settings.addresses.iter().find(|(name, _)| is_it(&bare(name)));
    // GitHub and GitLab know their names in any case.
    let known =
        find(&|name| name == bare(owner)).or_else(|| find(&|name| name.eq_ignore_ascii_case(&bare(owner))));
    known.map(|(_, address)| address.clone()).or_else(|| (!owner.starts_with('@')).then(|| owner.to_owned()))
}

fn bare(address: &str) -> &str {
    address.rsplit_once('<').map_or(address, |(_, rest)| rest.trim_end_matches('>'))
}

fn letter(
    report: &RunReport,
    from: &str,
    to: &[String],
    context: &RunContext,
    only: Option<&BTreeSet<String>>,
) -> Result<Message, String> {
    let mail = mail(report, &context.changes, &context.surroundings, only).map_err(|why| why.to_string())?;
    let mailbox = |address: &str| address.parse::<Mailbox>().map_err(|why| format!("`{address}`: {why}"));
    // A root message that was never sent: every mail of a branch replies to it, so that they form one thread.
    let thread = format!("<{}@memgate.invalid>", short_hash(&mail.thread));
    let mut builder = Message::builder()
        .from(mailbox(from)?)
        .subject(mail.subject)
        .in_reply_to(thread.clone())
        .references(thread)
        .message_id(None);
    for address in to {
        builder = builder.to(mailbox(address)?);
    }
    let png = "image/png".parse().map_err(|why| format!("{why}"))?;
    let page = MultiPart::related().singlepart(SinglePart::html(mail.html));
    let page = mail.pictures.into_iter().fold(page, |page, (name, bytes)| {
        page.singlepart(Attachment::new_inline(name).body(bytes, Clone::clone(&png)))
    });
    let body = MultiPart::alternative().singlepart(SinglePart::plain(mail.text)).multipart(page);
    let mut message = builder.multipart(body).map_err(|why| why.to_string())?;
    // Prevents vacation replies (RFC 3834).
    let name = HeaderName::new_from_ascii_str("Auto-Submitted");
    message.headers_mut().insert_raw(HeaderValue::new(name, "auto-generated".to_owned()));
    Ok(message)
}

fn short_hash(text: &str) -> String {
    Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use memgate_config::{Encryption, MailServer, When};
    use memgate_reports::Ended;
    use memgate_reports::mail::Surroundings;

    use super::*;

    #[test]
    fn owners_are_told_of_their_fixed_leaks_and_one_without_an_address_keeps_nobody_from_the_mail() {
        let report = RunReport {
            started: "2026-11-21T10:00:00Z".to_owned(),
            duration_s: 1.0,
            ..RunReport::new("tiles", "s", Verdict::Pass, Vec::new())
        };
        let ended = |owner: &str| Ended {
            line: "MapCache::insert".to_owned(),
            fixed: true,
            owners: vec![owner.to_owned()],
            ..Ended::default()
        };
        let owners =
            [("n1-a", "maps"), ("n1-b", "b@example.com"), ("n1-c", "@tiles"), ("n1-d", "B@example.com")];
        let gone = owners.into_iter().map(|(id, owner)| (id.to_owned(), ended(owner))).collect();
        let context = RunContext {
            surroundings: Surroundings::default(),
            changes: Changes { gone, compared: true, changed: true, ..Changes::default() },
            warnings: Vec::new(),
        };
        let server =
            MailServer { host: "localhost".to_owned(), port: 25, encryption: Encryption::None, user: None };
        let settings = Mail {
            server,
            password: None,
            from: "ci@example.com".to_owned(),
            to: vec!["team@example.com".to_owned()],
            owners: Some(PathBuf::new()),
            addresses: vec![("@tiles".to_owned(), "The tiles <b@example.com>".to_owned())],
            when: When::Changed,
            timeout: Duration::from_secs(1),
            ca: None,
        };
        let mut warnings = Vec::new();
        let letters = letters(&report, &settings, &context, &mut warnings).unwrap();
        let to: Vec<String> = letters.iter().map(|letter| letter.envelope().to()[0].to_string()).collect();
        assert_eq!(to, ["team@example.com", "b@example.com"], "one mail to a mailbox");
        let subject = format!("{:?}", letters[1].headers().get_raw("Subject"));
        assert!(subject.contains("3 leaks fixed in your code"), "{subject}");
        assert!(matches!(&*warnings, [one] if one.starts_with("no mail for maps: ")), "{warnings:?}");
        let without_owners = Mail { owners: None, ..settings };
        warnings.clear();
        let mut context = context;
        let count = |settings: &Mail, context: &RunContext, warnings: &mut Vec<String>| {
            super::letters(&report, settings, context, warnings).unwrap().len()
        };
        assert_eq!(count(&without_owners, &context, &mut warnings), 2, "addresses are enough");
        let in_another_case = Mail {
            addresses: vec![("Tiles".to_owned(), "t@example.com".to_owned())],
            ..without_owners.clone()
        };
        assert_eq!(count(&in_another_case, &context, &mut warnings), 3);
        let for_nobody = Mail { addresses: Vec::new(), ..without_owners.clone() };
        warnings.clear();
        assert_eq!(count(&for_nobody, &context, &mut warnings), 1);
        assert!(warnings.is_empty(), "{warnings:?}");
        context.changes.gone.values_mut().for_each(|ended| ended.owners.clear());
        assert_eq!(count(&without_owners, &context, &mut warnings), 1);
        assert!(
            matches!(&*warnings, [one] if one.contains("names an owner of this code: set")),
            "{warnings:?}"
        );
    }
}
