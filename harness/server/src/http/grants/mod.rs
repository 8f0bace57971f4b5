//! Rights of a request by its token, and whether a token is needed.

mod issuers;
mod signed;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, FORWARDED, ORIGIN, VIA};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde::Serialize;

pub use self::issuers::Fetch;
use self::issuers::Issuers;
use self::signed::is_signed;
use super::Options;
use super::guard::guard;
use super::refused::Refused;
use crate::store::{Grant, Shown, Signed, Store, StoreError};
use crate::token::Token;

/// Headers of a proxy: behind a proxy, a remote request looks like a local one.
const PROXIED: [HeaderName; 3] = [FORWARDED, VIA, HeaderName::from_static("x-forwarded-for")];

/// Rights of a token.
#[derive(Serialize)]
struct Told {
    /// Globs of the branches it may write as lines; `null`: no token is needed.
    branches: Option<Vec<String>>,
    /// When the token expires.
    expires: Option<String>,
}

/// Route that reports a token's rights to its client.
pub(super) fn router(grants: Arc<Grants>) -> Router {
    let options = Arc::clone(&grants.options);
    Router::new()
        .route("/api/v1/projects/{project}/token", get(told))
        .layer(from_fn_with_state(options, guard))
        .with_state(grants)
}

async fn told(
    State(grants): State<Arc<Grants>>,
    Path(project): Path<String>,
    headers: HeaderMap,
) -> Response {
    let told = match grants.of(&project, &headers).await {
        Ok(Grant::All) => Told { branches: None, expires: None },
        Ok(
            Grant::Token { branches, expires_us, .. } | Grant::Signed(Signed { branches, expires_us, .. }),
        ) => Told { branches: Some(branches), expires: Some(moment(expires_us)) },
        Err(refused) => return grants.options.refused(refused),
    };
    match serde_json::to_string(&told) {
        Ok(json) => ([(CONTENT_TYPE, "application/json")], json + "\n").into_response(),
        Err(_no_json) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// UTC time, to the second.
fn moment(us: i64) -> String {
    jiff::Timestamp::from_microsecond(us)
        .map_or_else(|_| "?".to_owned(), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Checks the tokens of requests.
pub(super) struct Grants {
    store: Store,
    options: Arc<Options>,
    /// Only this machine reaches the server.
    is_local: bool,
    issuers: Issuers,
}

impl Grants {
    /// `is_local`: the server listens on this machine only, and has no public name.
    pub(super) fn new(store: Store, options: Arc<Options>, is_local: bool) -> Self {
        Self { store, options, is_local, issuers: Issuers::default() }
    }

    /// Rights of this request, before its body is read.
    pub(super) async fn of(&self, project: &str, headers: &HeaderMap) -> Result<Grant, Refused> {
        if headers.contains_key(ORIGIN) {
            // A page of another site can send requests to this machine, too.
            return Err(Refused::new(StatusCode::FORBIDDEN, "a web page cannot upload runs", ""));
        }
        let failed = |why: StoreError| Refused::of_store(&why);
        let Some(value) = headers.get(AUTHORIZATION) else {
            let is_proxied = PROXIED.iter().any(|name| headers.contains_key(name));
            if self.is_local && !is_proxied && !self.store.has_tokens().await.map_err(failed)? {
                return Ok(Grant::All);
            }
            return Err(Refused::unauthorized("a token is needed: `Authorization: Bearer mgt_…`"));
        };
        let shown = value.to_str().ok().and_then(|value| value.split_once(' '));
        let shown = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        if let Some((_, text)) = shown.filter(|(_, text)| is_signed(text.trim())) {
            return self.signed(project, text.trim()).await;
        }
        let token = shown.and_then(|(_, token)| Token::parse(token.trim())).ok_or_else(|| {
            Refused::unauthorized(
                "the token is not valid: a token begins with `mgt_` and has 61 characters, the last ones a checksum; was \
                 it copied whole?",
            )
        })?;
        let id = token.id();
        let now_us = jiff::Timestamp::now().as_microsecond();
        let grant = match self.store.show_token(&token, now_us).await.map_err(failed)? {
            Shown::Holds(grant) => grant,
            Shown::Unknown => {
                return Err(Refused::unauthorized(format!("token {id} is not known here")));
            }
            Shown::Revoked => return Err(Refused::unauthorized(format!("token {id} was revoked"))),
            Shown::Expired(us) => {
                return Err(Refused::unauthorized(format!("token {id} expired at {}", moment(us))));
            }
        };
        if grant.is_for(project) {
            return Ok(grant);
        }
        let error = format!("token {id} is for another project than `{project}`");
        Err(Refused::new(StatusCode::FORBIDDEN, error, "`project` of memgate.yaml has to be the token's"))
    }
}
