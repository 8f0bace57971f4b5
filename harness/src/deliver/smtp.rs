//! Hands mails to a server. All of it takes at most the time it is given: lettre's own limit covers
//! connecting only, so a server that accepts and says nothing would otherwise keep a build for
//! ever. A recipient that the server refuses keeps nobody else from getting the mail.

use std::path::Path;
use std::time::Duration;

use lettre::address::Envelope;
use lettre::transport::smtp::AsyncSmtpTransport;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{AsyncTransport as _, Message, Tokio1Executor};
use memgate_config::{Encryption, MailServer};

use super::without;
use crate::recorder::chain;

/// Sends all, in order.
///
/// # Errors
/// Who did not get one, and why, in words without a secret.
pub(super) fn send(
    server: &MailServer,
    password: Option<&str>,
    ca: Option<&Path>,
    limit: Duration,
    letters: Vec<Message>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|why| format!("no mail was sent: {why}"))?;
    let all = letters.len();
    let (mut sent, mut refused) = (0, Vec::new());
    let outcome = runtime.block_on(async {
        let work = async {
            let transport = transport(server, password, ca, limit)?;
            for letter in letters {
                let (to, not_to) = (letter.envelope().to().len(), hand_over(&transport, &letter).await?);
                sent += usize::from(not_to.len() < to);
                refused.extend(not_to);
            }
            if refused.is_empty() { Ok(()) } else { Err(refused.join("; ")) }
        };
        tokio::time::timeout(limit, work)
            .await
            .unwrap_or_else(|_| Err(format!("the server took longer than {} s", limit.as_secs_f64())))
    });
    // A name that is still being looked up is nothing to wait for.
    runtime.shutdown_background();
    outcome.map_err(|why: String| {
        let why = without(&why, &[password.unwrap_or_default()]);
        // One line, whatever the server said.
        let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("{sent} of {all} mails sent: {why}")
    })
}

/// Whom the server refuses, and why. It is asked for each recipient alone where it refuses one of
/// several: it took no mail then.
async fn hand_over(
    transport: &AsyncSmtpTransport<Tokio1Executor>,
    letter: &Message,
) -> Result<Vec<String>, String> {
    let (all, text) = (letter.envelope(), letter.formatted());
    let refusal = match transport.send_raw(all, &text).await {
        Ok(_) => return Ok(Vec::new()),
        Err(why) if why.is_permanent() => why,
        Err(why) => return Err(chain(&why)),
    };
    let mut refused = Vec::new();
    for one in all.to() {
        let envelope = Envelope::new(all.from().cloned(), vec![one.clone()]).map_err(|why| chain(&why))?;
        let why = match all.to().len() {
            1 => Some(chain(&refusal)),
            _ => match transport.send_raw(&envelope, &text).await {
                Ok(_) => None,
                Err(why) if why.is_permanent() => Some(chain(&why)),
                Err(why) => return Err(chain(&why)),
            },
        };
        refused.extend(why.map(|why| format!("not to {one}: {why}")));
    }
    Ok(refused)
}

fn transport(
    server: &MailServer,
    password: Option<&str>,
    ca: Option<&Path>,
    limit: Duration,
) -> Result<AsyncSmtpTransport<Tokio1Executor>, String> {
    let tls = || {
        let mut parameters = TlsParameters::builder(server.host.clone());
        if let Some(path) = ca {
            for certificate in certificates(path)? {
                parameters = parameters.add_root_certificate(certificate);
            }
        }
        parameters.build_rustls().map_err(|why| chain(&why))
    };
    let tls = match server.encryption {
        Encryption::Tls => Tls::Wrapper(tls()?),
        Encryption::StartTls => Tls::Required(tls()?),
        Encryption::None => Tls::None,
    };
    let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(server.host.as_str())
        .port(server.port)
        .timeout(Some(limit))
        .tls(tls);
    if let (Some(user), Some(password)) = (&server.user, password) {
        builder = builder.credentials(Credentials::new(user.clone(), password.to_owned()));
    }
    Ok(builder.build())
}

/// Every certificate of a PEM file.
fn certificates(path: &Path) -> Result<Vec<Certificate>, String> {
    const END: &str = "-----END CERTIFICATE-----";
    let wrong = |why: &str| format!("{}: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|why| wrong(&why.to_string()))?;
    let parts = text.split_inclusive(END).filter(|part| part.contains("-----BEGIN CERTIFICATE-----"));
    let parsed: Result<Vec<_>, _> = parts.map(|part| Certificate::from_pem(part.as_bytes())).collect();
    let found = parsed.map_err(|why| wrong(&chain(&why)))?;
    if found.is_empty() { Err(wrong("there is no certificate in it")) } else { Ok(found) }
}
