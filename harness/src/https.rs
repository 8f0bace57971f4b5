//! HTTP requests to chats and servers: encrypted or to this machine, never redirected, with certificates checked
//! against the system's roots, through the proxy of the environment.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use memgate_server::artefacts::{Answered, Sent};
use ureq::Proxy;
use ureq::http::Uri;
use ureq::tls::{RootCerts, TlsConfig};

/// Allows only encrypted addresses, or this machine. The address is parsed by the same library that will connect to it:
/// `http://127.0.0.1:1@example.com/` belongs to example.com.
pub(crate) fn check(url: &str) -> Result<(), String> {
    let uri: Uri = url.trim().parse().map_err(|why| format!("its address is no URL: {why}"))?;
    let host = uri.host().filter(|host| !host.is_empty()).ok_or("its address names no host")?;
    match uri.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if is_loopback(host) => Ok(()),
        _ => Err("its address does not begin with https://".to_owned()),
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// An agent for requests to this address, each within `limit`. No redirects: they would carry a message or a token
/// elsewhere.
pub(crate) fn agent(url: &str, limit: Duration, roots: RootCerts) -> ureq::Agent {
    ureq::Agent::config_builder()
        .proxy(proxy(url))
        .timeout_global(Some(limit))
        .http_status_as_error(false)
        .max_redirects(0)
        .tls_config(
            TlsConfig::builder()
                .root_certs(roots)
                .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .build(),
        )
        .build()
        .into()
}

fn proxy(url: &str) -> Option<Proxy> {
    Proxy::try_from_env().filter(|proxy| is_behind(proxy, url))
}

/// Whether a request uses the proxy. A request to this machine does not: it may be unencrypted, and the proxy would
/// resolve the address to another machine.
fn is_behind(proxy: &Proxy, url: &str) -> bool {
    let uri: Option<Uri> = url.trim().parse().ok();
    uri.is_some_and(|uri| !uri.host().is_some_and(is_loopback) && !proxy.is_no_proxy(&uri))
}

/// Why there is no response from this address. A proxy is named only by its host: its address may contain a password.
pub(crate) fn why(url: &str, why: &ureq::Error) -> String {
    why_behind(proxy(url).as_ref(), why)
}

fn why_behind(proxy: Option<&Proxy>, why: &ureq::Error) -> String {
    match proxy {
        Some(proxy) => format!("{why}, through the proxy {}", proxy.host()),
        None => why.to_string(),
    }
}

/// Fetches a short response, within a short time.
///
/// # Errors
/// When the address cannot be reached, returns an error, or too much data.
pub(crate) fn fetch(url: &str) -> Result<Vec<u8>, String> {
    const LIMIT: Duration = Duration::from_secs(10);
    const MOST: u64 = 256 << 10;
    check(url)?;
    let answer = agent(url, LIMIT, RootCerts::PlatformVerifier).get(url).call();
    let mut answer = answer.map_err(|error| why(url, &error))?;
    match answer.status().as_u16() {
        200 => answer.body_mut().with_config().limit(MOST).read_to_vec().map_err(|error| why(url, &error)),
        status => Err(format!("it answered {status}")),
    }
}

/// Sends a request to an artefact store: its body may be long.
///
/// # Errors
/// When the store cannot be reached.
pub(crate) fn exchange(sent: &Sent<'_>) -> Result<Answered, String> {
    const LIMIT: Duration = Duration::from_secs(15 * 60);
    check(sent.url)?;
    let agent = agent(sent.url, LIMIT, RootCerts::PlatformVerifier);
    let answer = match (sent.method, sent.body) {
        ("PUT", Some(body)) => agent.put(sent.url).content_type("application/octet-stream").send(body),
        ("DELETE", _) => agent.delete(sent.url).call(),
        _ => agent.get(sent.url).call(),
    };
    let answer = answer.map_err(|error| why(sent.url, &error))?;
    let status = answer.status().as_u16();
    Ok(Answered { status, body: Box::new(answer.into_body().into_with_config().limit(u64::MAX).reader()) })
}

/// The beginning of a response, as part of a line.
pub(crate) fn said(text: &str) -> String {
    let line: String = text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .filter(|c| !c.is_control())
        .take(200)
        .collect();
    if line.is_empty() { line } else { format!(": {line}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_behind_no_proxy_and_a_proxy_is_named_without_its_password() {
        let proxy = Proxy::new("http://me:SECRET@proxy.example.com:3128").unwrap();
        for url in ["http://127.0.0.1:80/x", "http://[::1]:80/x", "https://localhost/x"] {
            assert!(!is_behind(&proxy, url), "{url}");
        }
        assert!(is_behind(&proxy, "https://hooks.example.com/x"));
        let refused = ureq::Error::Io(std::io::ErrorKind::ConnectionRefused.into());
        assert_eq!(
            why_behind(Some(&proxy), &refused),
            "io: connection refused, through the proxy proxy.example.com"
        );
        assert_eq!(why_behind(None, &refused), "io: connection refused");
    }

    #[test]
    fn only_encrypted_addresses_are_used() {
        for url in
            ["https://hooks.example.com/x", "http://127.0.0.1:80/x", "http://[::1]:80/x", "http://LOCALHOST/"]
        {
            assert_eq!(check(url), Ok(()), "{url}");
        }
        for url in [
            "http://hooks.example.com/x",
            "hooks.example.com",
            "",
            "http://127.0.0.1.example.com/",
            "http://127.0.0.1:1@hooks.example.com/",
            "http://localhost:80@hooks.example.com/",
            "http://[::1]:1@hooks.example.com/",
            "http://127.0.0.1:80\\@hooks.example.com/",
            "https://",
            "ftp://127.0.0.1/",
        ] {
            assert!(check(url).is_err(), "{url}");
        }
    }
}
