//! Response to a refused run: the status, what is wrong, and what to do.

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use memgate_history::record::RecordError;
use serde::Serialize;

use super::Options;
use crate::artefacts::OFFSET;
use crate::pages;
use crate::store::StoreError;

/// Seconds after which a client that finds no room should retry.
const COME_AGAIN_S: u64 = 5;

/// Why a run is refused.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) error: String,
    pub(super) hint: String,
    /// Only for the log.
    pub(super) log: Option<String>,
    /// Offset at which the upload of a file continues.
    pub(super) offset: Option<u64>,
}

#[derive(Serialize)]
struct Told<'a> {
    error: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    hint: &'a str,
}

impl Refused {
    pub(super) fn new(status: StatusCode, error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { status, error: error.into(), hint: hint.into(), log: None, offset: None }
    }

    /// The token is missing or not accepted.
    pub(super) fn unauthorized(error: impl Into<String>) -> Self {
        let hint = "`memgate serve token create --project NAME --branch BRANCH` makes a token, on the server's machine; \
                    without --branch its runs are kept like reviews";
        Self::new(StatusCode::UNAUTHORIZED, error, hint)
    }

    /// It exceeds a limit of a run.
    pub(super) fn too_large(error: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, error, "split the suites over several runs")
    }

    /// It contains something that cannot be stored.
    pub(super) fn nonsense(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, error, hint)
    }

    /// A piece does not begin at the end of the received bytes.
    pub(super) fn elsewhere(offset: u64) -> Self {
        let error = format!("{offset} bytes of the file are there: the next piece begins behind them");
        Self { offset: Some(offset), ..Self::new(StatusCode::CONFLICT, error, "") }
    }

    /// A file was damaged on its way; its upload starts again.
    pub(super) fn other_digest(name: &str) -> Self {
        let error = format!("{name} arrived with another digest, and was removed");
        Self { offset: Some(0), ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, error, "send it again") }
    }

    pub(super) fn sent_by_another(name: &str) -> Self {
        let error = format!("another upload of {name} goes on");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error, "")
    }

    /// There is no room now.
    pub(super) fn busy() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "too many runs are being uploaded", "")
    }

    pub(super) fn slow(limit: Duration) -> Self {
        let error = format!("the body did not arrive within {} s", limit.as_secs_f64());
        Self::new(StatusCode::REQUEST_TIMEOUT, error, "")
    }

    /// The database does not answer: a retry may help.
    pub(super) fn database(why: impl Into<String>) -> Self {
        let error = "the history cannot be written now";
        let refused = Self::new(StatusCode::SERVICE_UNAVAILABLE, error, "the server's log says why");
        Self { log: Some(why.into()), ..refused }
    }

    /// The issuer of the token does not provide its keys: a retry may help.
    pub(super) fn away(why: String) -> Self {
        let error = "the key that signed the token cannot be found now";
        let refused = Self::new(StatusCode::SERVICE_UNAVAILABLE, error, "the server's log says why");
        Self { log: Some(why), ..refused }
    }

    /// The key of the token may be newer than the keys that were fetched: a retry may help. It is not logged, because
    /// anybody can invent a key.
    pub(super) fn newer(seconds: u64) -> Self {
        let error = "the key that signed the token cannot be found now";
        let hint = format!("the keys of its issuer, fetched {seconds} s ago, lack it");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error, hint)
    }

    /// Refusal for an error of the store.
    pub(super) fn of_store(why: &StoreError) -> Self {
        match why {
            StoreError::Conflict(run) => Self::new(
                StatusCode::CONFLICT,
                format!("another run of the same session is there (run {run})"),
                "sessions of several machines need their CI's variables, or different names",
            ),
            StoreError::Record(RecordError::TooMany { what, found, most }) => {
                Self::too_large(format!("the report has {found} {what}: {most} are the most of a run"))
            }
            StoreError::Record(RecordError::LongName { .. } | RecordError::NoName(_)) => {
                Self::nonsense(format!("failed to {why}"), "")
            }
            _ => Self::database(chain(why)),
        }
    }
}

/// An error with all its causes.
pub(super) fn chain(why: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(why.source(), |why| why.source());
    causes.fold(why.to_string(), |text, why| {
        let told = why.to_string();
        // The text of some errors, such as sqlx's, already contains their source.
        if text.ends_with(&told) { text } else { format!("{text}: {told}") }
    })
}

impl Options {
    /// Converts a refusal to a response, and logs it if it has text for the log.
    pub(super) fn refused(&self, refused: Refused) -> Response {
        if let Some(why) = &refused.log {
            (self.log)(&format!("failed to {why}"));
        }
        refused.into_response()
    }

    /// Response if the history cannot be read, as page or JSON; the log has the reason. A database that does not answer
    /// may be back soon; damaged data stays damaged.
    pub(super) fn unreadable(&self, why: &StoreError, is_page: bool) -> Response {
        (self.log)(&format!("failed to {}", chain(why)));
        unread(why.may_pass(), is_page)
    }

    /// Response if the database did not answer within this time.
    pub(super) fn slow(&self, limit: Duration, is_page: bool) -> Response {
        (self.log)(&format!("failed to read the history within {} s", limit.as_secs_f64()));
        unread(true, is_page)
    }
}

fn unread(may_pass: bool, is_page: bool) -> Response {
    let (status, now) = match may_pass {
        true => (StatusCode::SERVICE_UNAVAILABLE, " now"),
        false => (StatusCode::INTERNAL_SERVER_ERROR, ""),
    };
    let mut response = if is_page {
        let text = format!("The history cannot be read{now}; the server's log says why.");
        (status, Html(pages::problem("Something failed", &text))).into_response()
    } else {
        let body = format!("{{\"error\":\"the history cannot be read{now}\"}}\n");
        (status, [(CONTENT_TYPE, "application/json")], body).into_response()
    };
    come_again(&mut response);
    response
}

/// Adds the time of a retry, if a retry may help.
fn come_again(response: &mut Response) {
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(COME_AGAIN_S));
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let told = Told { error: &self.error, hint: &self.hint };
        let json = serde_json::to_string(&told).unwrap_or_default() + "\n";
        let mut response = (self.status, [(CONTENT_TYPE, "application/json")], json).into_response();
        come_again(&mut response);
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(offset) = self.offset {
            headers.insert(OFFSET, HeaderValue::from(offset));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_database_says_stands_once_in_the_log() {
        sqlx::any::install_default_drivers();
        let pool = sqlx::AnyPool::connect("sqlite::memory:").await.unwrap();
        let why = sqlx::query("SELECT 1 FROM nowhere").execute(&pool).await.unwrap_err();
        let told = chain(&StoreError::from(why));
        assert!(told.starts_with("use the history: ") && told.matches("nowhere").count() == 1, "{told}");
        pool.close().await;
    }
}
