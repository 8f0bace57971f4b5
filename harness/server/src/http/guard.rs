//! Checks of every request, and headers of every response.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse as _, Response};

use super::Options;
use crate::pages;

/// Longest path with its query, in bytes.
const LONGEST_ADDRESS: usize = 8192;
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; \
     frame-ancestors 'none'";

/// For a page that came with a run: its scripts run in a sandbox and cannot connect to anything.
pub(super) const POLICY_OF_A_STRANGER: &str = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; \
     style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// For pages with our own script, which connects only to this server.
pub(super) const POLICY_WITH_SCRIPT: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; \
     base-uri 'none'; frame-ancestors 'none'; script-src 'self'; connect-src 'self'";

pub(super) async fn guard(State(options): State<Arc<Options>>, request: Request, next: Next) -> Response {
    let mut response = if !is_ours(&options.public_hosts, request.headers()) {
        // DNS rebinding: the name of another site may point here, and its pages could read ours.
        let text = "This name is not one of this server's: `memgate serve --public-host NAME` makes it one.";
        (StatusCode::MISDIRECTED_REQUEST, Html(pages::problem("Another host", text))).into_response()
    } else if request.uri().path_and_query().is_some_and(|whole| whole.as_str().len() > LONGEST_ADDRESS) {
        (StatusCode::URI_TOO_LONG, Html(pages::problem("Too long", "The address is too long.")))
            .into_response()
    } else if request.uri().path_and_query().is_some_and(|whole| whole.as_str().contains("%00")) {
        // PostgreSQL rejects such text: a query with it fails.
        let text = "The address has a NUL character: nothing has such a name.";
        (StatusCode::NOT_FOUND, Html(pages::problem("Nothing", text))).into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn is_ours(public: &[String], headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else { return false };
    let name = without_port(host);
    let is_loopback = name.eq_ignore_ascii_case("localhost")
        || name
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback());
    is_loopback
        || public.iter().any(|public| public.eq_ignore_ascii_case(name) || public.eq_ignore_ascii_case(host))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit())
                && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_and_named_ones_are_ours() {
        let ours = |host: &'static str| {
            let headers = [(HOST, HeaderValue::from_static(host))].into_iter().collect();
            is_ours(&["memgate.example.com".to_owned()], &headers)
        };
        for host in [
            "localhost:7377",
            "127.0.0.1:1",
            "127.0.0.1",
            "[::1]:7377",
            "LOCALHOST",
            "Memgate.example.com",
            "memgate.example.com:8443",
        ] {
            assert!(ours(host), "{host}");
        }
        for host in [
            "evil.example.com",
            "evil.example.com:7377",
            "localhost.evil.com",
            "192.168.0.1:7377",
            "",
            "[::2]",
            "127.0.0.1.evil.com",
        ] {
            assert!(!ours(host), "{host}");
        }
        assert!(!is_ours(&[], &HeaderMap::new()));
    }
}
