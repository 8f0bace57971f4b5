//! Passes mails to a server. Sending takes at most the given time in total: lettre's own limit covers only connecting,
//! so a server that accepts and stays silent would keep a build forever. If the server refuses a recipient or asks to
//! wait, the others still get the mail. A refusal is final: a retry goes only to recipients who must wait, or for whom
//! there was no answer.
//!
//! Verifiers refuse a server that presents a certificate authority's own certificate, as the usual self-signed one is.
//! If `ca` contains exactly that certificate, it is the intended server: its name and key are still verified.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use lettre::Message;
use lettre::address::Envelope;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use memgate_config::{Encryption, MailServer};
use rustls::pki_types::CertificateDer;

use super::certificates::certificates;
use super::secret::without;
use crate::exit::chain;

/// Part of the verifier's error if the server presents a certificate authority's certificate.
const SELF_SIGNED: &str = "CaUsedAsEndEntity";
const NO_STARTTLS: &str =
    "the server offers no STARTTLS: `smtps://` is TLS from the start, `smtp+plain://` is without encryption";

/// Sends all mails, in order, to recipients who are not yet in `handed`, and adds those for whom the server accepted or
/// refused a mail. Returns the refused recipients and why; empty if none.
///
/// # Errors
/// When not all were passed on; without secrets in the text.
pub(super) fn send(
    server: &MailServer,
    password: Option<&str>,
    ca: Option<&Path>,
    limit: Duration,
    letters: Vec<Message>,
    handed: &mut BTreeSet<String>,
) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|why| format!("no mail was sent: {why}"))?;
    let all = letters.len();
    let (mut sent, mut left) = (0, Left::default());
    let outcome = runtime.block_on(async {
        let work = async {
            let trusted = ca.map(certificates).transpose()?.unwrap_or_default();
            let mut post = Post { server, password, trusted, limit, open: None };
            for letter in letters {
                let (to, before) = (letter.envelope().to().len(), left.len());
                hand_over(&mut post, &letter, handed, &mut left).await?;
                sent += usize::from(left.len() - before < to);
            }
            post.close().await;
            Ok(())
        };
        tokio::time::timeout(limit, work)
            .await
            .unwrap_or_else(|_| Err(format!("the server took longer than {} s", limit.as_secs_f64())))
    });
    // Do not wait for a pending name look-up.
    runtime.shutdown_background();
    let password = password.unwrap_or_default();
    // The form in which PLAIN sends it, with the user's name; a server may repeat its input.
    let plain = format!("\0{}\0{password}", server.user.as_deref().unwrap_or_default());
    let said = without(&left.told(outcome.as_ref().err()), &[password, &plain]);
    // Puts the text on one line, whatever the server sent.
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let told = if said.is_empty() { said } else { format!("{sent} of {all} mails sent: {said}") };
    let Left { refused, waiting } = left;
    // A server that refuses everybody may be refusing the sender, which can be fixed.
    let nobody = handed.is_empty() && !refused.is_empty();
    if !nobody {
        handed.extend(refused.into_iter().map(|(to, _)| to));
    }
    if outcome.is_err() || nobody || !waiting.is_empty() { Err(told) } else { Ok(told) }
}

/// Recipients who did not get a mail, and why.
#[derive(Default)]
struct Left {
    refused: Vec<(String, String)>,
    /// The mailbox is full, or the server wants a later retry.
    waiting: Vec<(String, String)>,
}

impl Left {
    fn len(&self) -> usize {
        self.refused.len() + self.waiting.len()
    }

    /// Who got no mail, and why sending ended early.
    fn told(&self, failure: Option<&String>) -> String {
        let refused = self.refused.iter().map(|(to, why)| format!("not to {to}: {why}"));
        let waiting = self.waiting.iter().map(|(to, why)| format!("not yet to {to}: {why}"));
        refused.chain(waiting).chain(failure.cloned()).collect::<Vec<_>>().join("; ")
    }
}

/// A server's answer for one mail.
enum Answer {
    Taken,
    Refused(String),
    /// The server may accept the mail later.
    NotYet(String),
}

/// If the server refuses one of several recipients, it has accepted no mail. Each recipient is then tried alone.
async fn hand_over(
    post: &mut Post<'_>,
    letter: &Message,
    handed: &mut BTreeSet<String>,
    left: &mut Left,
) -> Result<(), String> {
    let (from, text) = (letter.envelope().from(), letter.formatted());
    let all: Vec<_> = letter.envelope().to().iter().filter(|to| !handed.contains(&to.to_string())).collect();
    let mut parts = vec![all];
    while let Some(to) = parts.pop().filter(|to| !to.is_empty()) {
        let recipients = to.iter().map(|&to| to.clone()).collect();
        let envelope = Envelope::new(from.cloned(), recipients).map_err(|why| chain(&why))?;
        match (post.hand(&envelope, &text).await?, to.as_slice()) {
            (Answer::Taken, _) => handed.extend(to.iter().map(ToString::to_string)),
            (Answer::Refused(why), [one]) => left.refused.push((one.to_string(), why)),
            (Answer::NotYet(why), [one]) => left.waiting.push((one.to_string(), why)),
            _ => parts.extend(to.into_iter().rev().map(|one| vec![one])),
        }
    }
    Ok(())
}

/// A mail server, and the connection to it while it works.
struct Post<'a> {
    server: &'a MailServer,
    password: Option<&'a str>,
    trusted: Vec<CertificateDer<'static>>,
    limit: Duration,
    open: Option<AsyncSmtpConnection>,
}

impl Post<'_> {
    /// Passes one mail on. `Err`: the connection ended, and other mails would fail too.
    async fn hand(&mut self, envelope: &Envelope, text: &[u8]) -> Result<Answer, String> {
        let mut connection = match self.open.take() {
            Some(open) => open,
            None => self.connect().await?,
        };
        match connection.send(envelope, text).await {
            Ok(_) => {
                self.open = Some(connection);
                Ok(Answer::Taken)
            }
            // After a mail that was not accepted, the connection ends.
            Err(why) if why.is_transient() => Ok(Answer::NotYet(chain(&why))),
            // The client itself refuses: the server does not support a character in an address.
            Err(why) if why.is_permanent() || why.is_client() => Ok(Answer::Refused(chain(&why))),
            Err(why) => Err(chain(&why)),
        }
    }

    /// Quits. All mails were passed on, so the reply does not matter.
    async fn close(&mut self) {
        if let Some(mut open) = self.open.take() {
            drop(open.quit().await);
        }
    }

    async fn connect(&self) -> Result<AsyncSmtpConnection, String> {
        let mut connection = match self.encrypted(false).await {
            Err(why) if why.contains(SELF_SIGNED) => {
                let open = self.encrypted(true).await?;
                let presented = open.peer_certificate().map_err(|why| chain(&why))?;
                if !self.trusted.iter().any(|trusted| trusted.as_ref() == presented) {
                    return Err(format!(
                        "{why}: its certificate is a certificate authority's, and not in `ca`"
                    ));
                }
                open
            }
            other => other?,
        };
        if let (Some(user), Some(password)) = (&self.server.user, self.password) {
            let credentials = Credentials::new(user.clone(), password.to_owned());
            connection.auth(DEFAULT_MECHANISMS, &credentials).await.map_err(|why| chain(&why))?;
        }
        Ok(connection)
    }

    /// `unverified`: accepts any certificate, but still verifies the signature with its key.
    async fn encrypted(&self, unverified: bool) -> Result<AsyncSmtpConnection, String> {
        let MailServer { host, port, encryption, .. } = self.server;
        let tls = || {
            let mut parameters =
                TlsParameters::builder(host.clone()).dangerous_accept_invalid_certs(unverified);
            for certificate in &self.trusted {
                parameters = parameters.add_root_certificate(Certificate::from_der(certificate.to_vec())?);
            }
            parameters.build_rustls()
        };
        let open = async {
            let me = ClientId::default();
            let wrapped = (*encryption == Encryption::Tls).then(tls).transpose()?;
            let at = (host.as_str(), *port);
            let mut open =
                AsyncSmtpConnection::connect_tokio1(at, Some(self.limit), &me, wrapped, None).await?;
            if *encryption == Encryption::StartTls {
                if !open.can_starttls() {
                    return Ok(None);
                }
                open.starttls(tls()?, &me).await?;
            }
            Ok(Some(open))
        };
        let open = open.await.map_err(|why: lettre::transport::smtp::Error| chain(&why))?;
        open.ok_or_else(|| NO_STARTTLS.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::{Arc, Mutex};

    use super::*;

    type Taken = Arc<Mutex<Vec<String>>>;

    /// Accepts mails for all except `gone`, who is unknown, and `later`, whose mailbox is full at first.
    fn converse(stream: &TcpStream, taken: &Taken, has_room: bool) -> std::io::Result<()> {
        let (mut out, mut to) = (stream, Vec::new());
        out.write_all(b"220 here\r\n")?;
        let mut in_data = false;
        for line in BufReader::new(stream).lines() {
            let line = line?;
            let answer = match line.split(' ').next().unwrap_or_default() {
                "." => {
                    in_data = false;
                    taken.lock().unwrap().append(&mut to);
                    "250 taken"
                }
                _ if in_data => continue,
                "RCPT" if line.contains("gone@") => "550 no such user",
                "RCPT" if line.contains("later@") && !has_room => "451 no room",
                "RCPT" => {
                    to.push(line.trim_start_matches("RCPT TO:").to_owned());
                    "250 good"
                }
                "DATA" => {
                    in_data = true;
                    "354 go on"
                }
                _ => {
                    to.clear();
                    "250 good"
                }
            };
            out.write_all(format!("{answer}\r\n").as_bytes())?;
        }
        Ok(())
    }

    #[test]
    fn a_server_without_starttls_is_refused_with_the_settings_for_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept()?;
            converse(&stream, &Taken::default(), true)
        });
        let server =
            MailServer { host: "127.0.0.1".into(), port, encryption: Encryption::StartTls, user: None };
        let letter = Message::builder().from("ci@example.com".parse().unwrap());
        let letter = letter.to("team@example.com".parse().unwrap()).body("text".to_owned()).unwrap();
        let limit = Duration::from_secs(20);
        let why = send(&server, None, None, limit, vec![letter], &mut BTreeSet::new()).unwrap_err();
        assert!(why.contains(NO_STARTTLS) && why.contains("`smtps://`"), "{why}");
    }

    #[test]
    fn nobody_gets_a_mail_twice_a_refusal_is_final_and_a_full_mailbox_delays_nobody_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (taken, room) = (Taken::default(), Arc::new(Mutex::new(false)));
        let (of_server, has_room) = (Arc::clone(&taken), Arc::clone(&room));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (taken, has_room) = (Arc::clone(&of_server), *has_room.lock().unwrap());
                // An ended connection has sent everything.
                std::thread::spawn(move || converse(&stream, &taken, has_room).ok());
            }
        });
        let server = MailServer { host: "127.0.0.1".into(), port, encryption: Encryption::None, user: None };
        let letter = |to: &[&str]| {
            let letter = Message::builder().from("ci@example.com".parse().unwrap()).subject("leaks");
            let letter = to.iter().fold(letter, |letter, to| letter.to(to.parse().unwrap()));
            letter.body("text".to_owned()).unwrap()
        };
        let mut handed = BTreeSet::new();
        let mut send = || {
            let letters = vec![
                letter(&["later@example.com", "team@example.com", "gone@example.com"]),
                letter(&["owner@example.com"]),
            ];
            super::send(&server, None, None, Duration::from_secs(20), letters, &mut handed)
        };
        let first = send().unwrap_err();
        assert!(first.starts_with("2 of 2 mails sent: not to gone@example.com"), "{first}");
        assert!(first.contains("not yet to later@example.com") && first.contains("no room"), "{first}");
        assert_eq!(*taken.lock().unwrap(), ["<team@example.com>", "<owner@example.com>"]);
        *room.lock().unwrap() = true;
        assert_eq!(send(), Ok(String::new()), "nobody is left whom it refuses");
        assert_eq!(
            *taken.lock().unwrap(),
            ["<team@example.com>", "<owner@example.com>", "<later@example.com>"]
        );
    }
}
