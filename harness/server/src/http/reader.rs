//! Identifies the sender of a request, and checks whether they may see this project.
//!
//! Data flow: the cookie of a session, or a token of the project → [`Reader`] → the route; or a response that does
//! not reveal whether the project exists.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawPathParams, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse as _, Response};
use memgate_history::sha256_hex;
use tokio::time::timeout;

use super::Options;
use super::grants::Grants;
use super::refused::Refused;
use crate::pages::{self, Own};
use crate::store::{Reader, Store};

/// Name of the session cookie. The browser keeps the cookie for this host only, hides it from scripts, and sends it
/// only over TLS or to this machine.
pub(super) const SESSION: &str = "__Host-memgate";
/// Paths that list projects.
const LISTS: [&str; 2] = ["/", "/api/v1/projects"];

/// How long a page, or its JSON, waits for the database. The pool of connections would wait for a minute, longer than
/// most proxies do, and a statement without end.
pub(super) const READING: Duration = Duration::from_secs(30);
/// The same for a file of a run: a bucket may take 15 minutes to provide it.
const FETCHING: Duration = Duration::from_secs(16 * 60);

#[derive(Clone)]
pub(super) struct Readers {
    pub(super) store: Store,
    pub(super) options: Arc<Options>,
    pub(super) grants: Arc<Grants>,
}

/// The sender of a request.
#[derive(Clone, Default)]
pub(super) struct SignedIn {
    pub(super) reader: Reader,
    /// The secret of the session.
    secret: Option<String>,
}

impl SignedIn {
    /// The part of the session that pages show.
    pub(super) fn own(&self) -> Own {
        match (&self.reader.account, &self.secret) {
            (Some(name), Some(secret)) => Own::SignedIn { name: name.clone(), form: form_of(secret) },
            _ if self.reader.has_members_only => Own::Nobody,
            _ => Own::Everybody,
        }
    }
}

/// Value that a form has to send back. Only the session's own pages know it, so no other page can send the form.
pub(super) fn form_of(secret: &str) -> String {
    sha256_hex(format!("form\0{secret}").as_bytes())
}

/// The session secret in the cookies of a request.
pub(super) fn secret_of(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == SESSION).map(|(_, value)| value)
}

/// Ends a request that takes too long.
pub(super) async fn in_time(
    State((options, limit)): State<(Arc<Options>, Duration)>,
    params: RawPathParams,
    request: Request,
    next: Next,
) -> Response {
    let is_page = !request.uri().path().starts_with("/api/");
    let is_file = params.iter().any(|(name, _)| name == "name");
    let limit = if is_file { limit.max(FETCHING) } else { limit };
    match timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_slow) => options.slow(limit, is_page),
    }
}

pub(super) async fn read(
    State(readers): State<Readers>,
    params: RawPathParams,
    mut request: Request,
    next: Next,
) -> Response {
    let project = params.iter().find(|(name, _)| *name == "project").map(|(_, value)| value.to_owned());
    let path = request.uri().path().to_owned();
    if project.is_none() && !LISTS.contains(&path.as_str()) {
        return next.run(request).await;
    }
    let is_page = !path.starts_with("/api/");
    let secret = secret_of(request.headers()).map(str::to_owned);
    let now_us = jiff::Timestamp::now().as_microsecond();
    let reader = match readers.store.reader(secret.as_deref(), now_us).await {
        Ok(reader) => reader,
        Err(why) => return readers.options.unreadable(&why, is_page),
    };
    let may = match &project {
        Some(project) if !reader.may_read(project) => match readers.token(project, request.headers()).await {
            Ok(may) => may,
            Err(refused) => return readers.options.refused(refused),
        },
        _ => true,
    };
    let wanted = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    let params: Vec<(String, String)> =
        params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let invite = is_page && reader.account.is_none() && reader.has_members_only;
    if may {
        request.extensions_mut().insert(SignedIn { reader, secret });
        let response = next.run(request).await;
        if response.status() != StatusCode::NOT_FOUND {
            return response;
        }
    }
    let is_there = match &project {
        Some(project) if may => match readers.store.project(project).await {
            Ok(found) => found.is_some(),
            Err(why) => return readers.options.unreadable(&why, is_page),
        },
        _ => false,
    };
    let why = missing(&params, &query, is_there);
    if is_page {
        let next = invite.then_some(wanted.as_str());
        (StatusCode::NOT_FOUND, Html(pages::not_found(&why, next))).into_response()
    } else {
        let or_not_visible =
            if is_there { "" } else { ", or it is for members, and needs a token of its project" };
        let body = serde_json::json!({ "error": format!("{why}{or_not_visible}") });
        (StatusCode::NOT_FOUND, [(CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
    }
}

/// What does not exist. A project that this reader may not see looks as if it did not exist.
fn missing(params: &[(String, String)], query: &str, is_there: bool) -> String {
    let param =
        |wanted: &str| params.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let project = param("project").unwrap_or_default();
    if !is_there {
        return format!("there is no project `{project}`");
    }
    let what =
        match (param("run"), param("name"), param("pair"), param("leak"), param("suite"), param("test")) {
            (Some(run), Some(file), ..) => format!("file `{file}` of run `{run}`, or it has expired"),
            (Some(run), ..) => format!("run `{run}`"),
            (_, _, Some(pair), ..) => format!("two runs `{pair}` (BEFORE...AFTER, their numbers)"),
            (_, _, _, Some(leak), ..) => format!("leak `{leak}`"),
            (.., Some(suite), Some(test)) => format!("test `{suite}::{test}`"),
            _ => "such page".to_owned(),
        };
    let asked = if query.is_empty() { String::new() } else { format!(" with `{query}`") };
    format!("the project `{project}` has no {what}{asked}")
}

impl Readers {
    /// May the sender of these headers read a project now?
    pub(super) async fn may(&self, project: &str, headers: &HeaderMap) -> Result<bool, Refused> {
        let now_us = jiff::Timestamp::now().as_microsecond();
        let reader = self.store.reader(secret_of(headers), now_us).await;
        match reader.map_err(|why| Refused::of_store(&why))?.may_read(project) {
            true => Ok(true),
            false => self.token(project, headers).await,
        }
    }

    /// A sender that may upload to a project may also read it: reviews ask for their base.
    async fn token(&self, project: &str, headers: &HeaderMap) -> Result<bool, Refused> {
        if !headers.contains_key(AUTHORIZATION) {
            return Ok(false);
        }
        match self.grants.of(project, headers).await {
            Ok(_) => Ok(true),
            Err(refused) if refused.status == StatusCode::SERVICE_UNAVAILABLE => Err(refused),
            Err(_no_right) => Ok(false),
        }
    }
}
