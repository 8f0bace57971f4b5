//! The report page of a run that was just uploaded, where the server keeps such pages.
//!
//! Data flow: the answer to an upload has a ticket, which only its sender knows → `PUT …/report.html?ticket=…` →
//! [`Artefacts`](crate::artefacts::Artefacts). Whoever may upload to a project can give no page to somebody else's run.

use std::io::ErrorKind;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use tokio::time::timeout;

use super::{Ingest, Refused};
use crate::artefacts::MOST_PACKED_KIB;

#[derive(Deserialize)]
pub(super) struct Shown {
    #[serde(default)]
    ticket: String,
}

pub(super) async fn put(
    State(ingest): State<Arc<Ingest>>,
    Path((project, run)): Path<(String, i64)>,
    Query(Shown { ticket }): Query<Shown>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match ingest.keep((&project, run), &ticket, &headers, body).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(refused) => ingest.options.refused(refused),
    }
}

impl Ingest {
    async fn keep(
        &self,
        (project, run): (&str, i64),
        ticket: &str,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(), Refused> {
        self.grants.of(project, headers).await?;
        let gone =
            || Refused::new(StatusCode::NOT_FOUND, "there is no such run, or no such ticket of it", "");
        let Some(pages) = self.options.artefacts.clone() else { return Err(gone()) };
        let known = self.store.ticket(project, run).await.map_err(|why| Refused::of_store(&why))?;
        if known.as_deref() != Some(ticket) {
            return Err(gone());
        }
        let is =
            |name, value: &str| headers.get(name).is_some_and(|given| given.as_bytes() == value.as_bytes());
        if !is(CONTENT_TYPE, "text/html") || !is(CONTENT_ENCODING, "gzip") {
            let error = "the page has to be text/html, packed by gzip";
            return Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error, ""));
        }
        let room = self.bodies.try_acquire_many(MOST_PACKED_KIB).map_err(|_full| Refused::busy())?;
        let bytes = timeout(self.limits.arrival, to_bytes(body, (MOST_PACKED_KIB as usize) << 10)).await;
        let bytes = bytes.map_err(|_slow| Refused::slow(self.limits.arrival))?;
        let bytes =
            bytes.map_err(|_long| Refused::too_large("the page has more than 16 MiB, or ends early"))?;
        let kept = tokio::task::spawn_blocking(move || pages.add(run, &bytes)).await;
        drop(room);
        kept.map_err(|_panicked| Refused::database("keep a page"))?.map_err(|why| match why.kind() {
            ErrorKind::InvalidData => Refused::nonsense(format!("that is no page: {why}"), ""),
            _ => Refused::database(format!("keep a page: {why}")),
        })
    }
}
