//! `reports.mail`: which server, to whom, when.

use std::path::PathBuf;
use std::time::Duration;

use crate::read::{At, Named, Reader, table};
use crate::settings::when::When;
use crate::value::duration::Time;
use crate::value::text::Words;
use crate::value::variable::Variable;

const TIMEOUT: Duration = Duration::from_secs(30);

table! {
    /// Mail to teams and code owners.
    MailFile {
        /// Mail server: `smtps://user@host` (TLS, port 465), `smtp://user@host` (STARTTLS is
        /// required, port 587) or `smtp+plain://host` (no encryption, no password, port 25). A port
        /// may follow.
        #[schemars(required)]
        server: At<Words>,
        /// Environment variable with the password.
        password: At<Variable>,
        /// Sender address. Default: the user of the server.
        from: At<Words>,
        /// Addresses that get every mail.
        to: Vec<At<Words>>,
        /// CODEOWNERS file. The owners of a file that leaks get a mail about it. Default with
        /// `addresses`: the project's own (`.github/CODEOWNERS`, `CODEOWNERS`, `docs/CODEOWNERS`,
        /// `.gitlab/CODEOWNERS`).
        owners: Words,
        /// Mail addresses of owners as CODEOWNERS names them: `"@maps": maps@example.com`. An owner
        /// that is an address itself needs none.
        addresses: Named<At<Words>>,
        /// When to send it.
        #[schemars(extend("default" = "changed"))]
        when: When,
        /// Longest time for sending. A slower server causes a warning.
        #[schemars(extend("default" = "30s"))]
        timeout: At<Time>,
        /// File of certificates (PEM) to trust, in addition to those of the system.
        ca: Words,
    }
}

/// Mail to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// The mail server.
    pub server: MailServer,
    /// Environment variable with the password.
    pub password: Option<String>,
    /// Sender.
    pub from: String,
    /// Addresses that get every mail.
    pub to: Vec<String>,
    /// CODEOWNERS file.
    pub owners: Option<PathBuf>,
    /// Addresses of owners by name.
    pub addresses: Vec<(String, String)>,
    /// When to send it.
    pub when: When,
    /// Longest time for sending.
    pub timeout: Duration,
    /// Certificates to trust, in addition to those of the system.
    pub ca: Option<PathBuf>,
}

/// A mail server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailServer {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// How the connection is protected.
    pub encryption: Encryption,
    /// User to log in as.
    pub user: Option<String>,
}

/// How a connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// TLS from the start.
    Tls,
    /// STARTTLS, which is required.
    StartTls,
    /// No encryption.
    None,
}

impl Mail {
    pub(crate) fn check(file: At<MailFile>, reader: &mut Reader<'_>) -> Option<Self> {
        let At { value: MailFile { server, password, from, to, owners, addresses, when, timeout, ca }, span } =
            file;
        let Some(server) = server else {
            if !reader.has_error_below(&span) {
                reader
                    .error(&span, "the mail has no `server`")
                    .label("who is to send it?")
                    .hint(Some("add `server: smtps://user@mail.example.com`"));
            }
            return None;
        };
        let given = server;
        let server = check_server(&given, reader)?;
        if let Some(password) = &password {
            check_password(password, &server, reader);
        }
        let from = match from {
            Some(from) => address(&from, reader)?,
            None => match &server.user {
                Some(user) if user.contains('@') => user.clone(),
                Some(user) => format!("{user}@{}", server.host),
                None => format!("memgate@{}", server.host),
            },
        };
        let has_addresses = addresses.as_ref().is_some_and(|Named(all)| !all.is_empty());
        let to: Vec<String> = to.unwrap_or_default().iter().filter_map(|to| address(to, reader)).collect();
        if to.is_empty() && owners.is_none() && !has_addresses && !reader.has_error_below(&span) {
            reader
                .error(&span, "the mail has no recipient")
                .label("neither `to` nor `owners` nor `addresses`")
                .hint(Some("add `to: [team@example.com]`"));
        }
        let addresses = addresses.map(|Named(addresses)| addresses).unwrap_or_default();
        let addresses = addresses
            .iter()
            .filter_map(|(name, to)| Some((name.value.clone(), address(to, reader)?)))
            .collect();
        let timeout = timeout.map_or(TIMEOUT, |At { value: Time(value), span }| {
            if value.is_zero() {
                reader.error(&span, "no mail is sent in no time").label("expected more than 0");
            }
            value
        });
        Some(Self {
            server,
            password: password.map(|At { value: Variable(name), .. }| name),
            from,
            to,
            owners: owners.map(|Words(path)| path.into()),
            addresses,
            when: when.unwrap_or(When::Changed),
            timeout,
            ca: ca.map(|Words(path)| path.into()),
        })
    }
}

/// Refuses a password that could not be used, or would be sent without encryption.
fn check_password(password: &At<Variable>, server: &MailServer, reader: &mut Reader<'_>) {
    let (title, hint) = match (&server.user, server.encryption) {
        (None, _) => ("a password without a user", "name the user: `smtps://user@host`"),
        (_, Encryption::None) => ("a password needs encryption", "write `smtps://` or `smtp://`"),
        _ => return,
    };
    reader.error(&password.span, title).label("it would be of no use, or be read by others").hint(Some(hint));
}

/// Checks that text is on both sides of the `@`, and that a name before the address follows RFC 5322. The mail server
/// checks the rest.
fn address(given: &At<Words>, reader: &mut Reader<'_>) -> Option<String> {
    let At { value: Words(text), span } = given;
    let (name, bare) = text.trim().rsplit_once('<').unwrap_or(("", text.trim()));
    let (name, bare) = (name.trim(), bare.trim_end_matches('>'));
    let is_quoted = name.len() > 1 && name.starts_with('"') && name.ends_with('"');
    let is_odd = |part: &str| part.contains(['(', ')', ',', ':', ';', '<', '>', '@', '[', ']', '\\']);
    if !is_quoted && (name.matches('"').count() % 2 == 1 || name.split('"').step_by(2).any(is_odd)) {
        reader
            .error(span, "this is no mail address")
            .label("the name before it has a sign that needs quotes")
            .hint(Some("write `'\"Doe, Jane\" <jane@example.com>'`"));
        return None;
    }
    let good = bare.rsplit_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty())
        && !bare.contains([' ', '\t', '\n', ',', ';', '<', '>']);
    if good {
        return Some(text.trim().to_owned());
    }
    reader
        .error(span, "this is no mail address")
        .label("expected `name@example.com`")
        .hint(Some("names of teams get theirs in `addresses`"));
    None
}

fn check_server(given: &At<Words>, reader: &mut Reader<'_>) -> Option<MailServer> {
    let At { value: Words(text), span } = given;
    let mut wrong = |title: &str, label: &str| {
        let hint = "write `smtps://user@host`, `smtp://user@host:587` or `smtp+plain://host:25`";
        // The text may contain a password: the message does not repeat it.
        reader.error(span, title).label(label).hint(Some(hint));
    };
    let schemes = [
        ("smtps://", Encryption::Tls, 465),
        ("smtp://", Encryption::StartTls, 587),
        ("smtp+plain://", Encryption::None, 25),
    ];
    let Some((rest, encryption, port)) = schemes
        .into_iter()
        .find_map(|(scheme, encryption, port)| Some((text.strip_prefix(scheme)?, encryption, port)))
    else {
        wrong("this is no mail server", "expected `smtps://`, `smtp://` or `smtp+plain://` first");
        return None;
    };
    let (user, place) = match rest.trim_end_matches('/').rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, rest.trim_end_matches('/')),
    };
    if user.is_some_and(|user| user.contains(':')) {
        wrong("a password does not belong into the file", "a user only");
        return None;
    }
    let (host, given_port) = match place.rsplit_once(':') {
        Some((host, given)) if !place.ends_with(']') => (host, Some(given)),
        _ => (place, None),
    };
    let port = match given_port.map(str::parse) {
        None => port,
        Some(Ok(given)) if given > 0 => given,
        Some(_) => {
            wrong("this is no mail server", "its port is no number from 1 to 65535");
            return None;
        }
    };
    if host.is_empty() || host.contains(['/', '?', '#', ' ']) {
        wrong("this is no mail server", "no name of a host");
        return None;
    }
    // The user may be a mail address, with `%40` for its `@`.
    let user = user.map(|user| user.replace("%40", "@")).filter(|user| !user.is_empty());
    Some(MailServer { host: host.trim_matches(['[', ']']).to_owned(), port, encryption, user })
}
