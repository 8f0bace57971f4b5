//! Uploads of runs: `POST /api/v1/projects/{project}/runs`. `GET …/token` reports what a token allows.
//!
//! Data flow: head of the request → `grants` (whose token, what it may write) → `body` (bytes, inflated and parsed as a
//! stream, within [`Limits`]) → `check` (names, places) → [`Store::add`](crate::store::Store) → 201, 200 or `refused`.
//!
//! A run is one request, and one transaction adds it: there is no queue between. So nobody sees half a run, and a
//! confirmed run is in the database. A client sends an unconfirmed run again, and it is added only once. Concurrent
//! uploads are limited: a client that finds no room is told when to retry.

mod artefact;
mod body;
mod check;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{post, put};
use serde::Serialize;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use self::body::Read;
use super::Options;
use super::counters::Counters;
use super::grants::Grants;
use super::guard::guard;
use super::refused::Refused;
use crate::live::{Board, LiveRun};
use crate::pages;
use crate::store::{Added, Grant, Signed, Store};

/// Largest summary of a live run, in bytes.
const MOST_OF_A_SUMMARY: usize = 16 << 10;

/// Artefacts received at the same time.
const MOST_ARRIVING: usize = 8;

/// Limits of one request, and of all concurrent requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Bytes of a body, as sent.
    pub(super) body: usize,
    /// Bytes of all bodies being received.
    pub(super) bodies: usize,
    /// Bytes of a body, inflated.
    pub(super) inflated: usize,
    /// Values in a body, counted by commas: small values take more memory than their text.
    pub(super) values: usize,
    /// Bytes of all bodies being read.
    pub(super) reading: usize,
    /// How long a body may take to arrive.
    pub(super) arrival: Duration,
    /// How long a run waits for earlier ones.
    pub(super) queue: Duration,
    /// How long the database may take.
    pub(super) adding: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 32 << 20,
            bodies: 128 << 20,
            inflated: 256 << 20,
            values: 8_000_000,
            reading: 320 << 20,
            arrival: Duration::from_secs(120),
            queue: Duration::from_secs(20),
            adding: Duration::from_secs(60),
        }
    }
}

/// State that requests share.
struct Ingest {
    store: Store,
    options: Arc<Options>,
    limits: Limits,
    grants: Arc<Grants>,
    counters: Arc<Counters>,
    board: Arc<Board>,
    /// Room for received bodies, in KiB.
    bodies: Semaphore,
    /// Room for parsed bodies, in the units of `body`.
    reading: Arc<Semaphore>,
    /// One permit, for a body that is not small.
    large: Arc<Semaphore>,
    /// One permit for each run that is read and added.
    adding: Semaphore,
    /// One permit for each artefact being received.
    arriving: Arc<Semaphore>,
}

/// The routes of uploads.
pub(super) fn router(
    store: Store,
    options: Arc<Options>,
    limits: Limits,
    grants: Arc<Grants>,
    (counters, board): (Arc<Counters>, Arc<Board>),
) -> Router {
    let writers = store.writers();
    let ingest = Ingest {
        store,
        options: Arc::clone(&options),
        limits,
        grants,
        counters,
        board,
        bodies: Semaphore::new(limits.bodies.div_ceil(1 << 10)),
        reading: Arc::new(Semaphore::new(limits.reading.div_ceil(body::UNIT))),
        large: Arc::new(Semaphore::new(1)),
        adding: Semaphore::new(writers),
        arriving: Arc::new(Semaphore::new(MOST_ARRIVING)),
    };
    Router::new()
        .route("/api/v1/projects/{project}/runs", post(upload))
        .route("/api/v1/projects/{project}/live", post(live))
        .route(
            "/api/v1/projects/{project}/runs/{run}/artefacts/{name}",
            put(artefact::receive).patch(artefact::receive),
        )
        .layer(from_fn_with_state(options, guard))
        .with_state(Arc::new(ingest))
}

/// Response to a run that is stored.
#[derive(Debug, Serialize)]
struct Answer {
    run: i64,
    /// Path of its page.
    page: String,
    /// Do its leaks count for its branch?
    on_line: bool,
    /// Changes of leaks that it caused: `new`, `known`, `regressed`, `larger`, `fixed`, `gone`.
    events: Vec<String>,
    /// Artefacts can be uploaded below this path, once each; `None`: they are not kept here.
    #[serde(skip_serializing_if = "Option::is_none")]
    artefacts: Option<String>,
    /// The secret for these uploads.
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket: Option<String>,
}

async fn upload(
    State(ingest): State<Arc<Ingest>>,
    Path(project): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match ingest.take(&project, &headers, body).await {
        Ok((added, on_line)) => {
            let status = if added.already { StatusCode::OK } else { StatusCode::CREATED };
            if !added.already {
                ingest.counters.added();
            }
            // A review changes lines only by the order of commits that its clone reports.
            if !added.already && (on_line || !added.events.is_empty()) {
                ingest.options.added.notify_one();
            }
            let answer = Answer {
                run: added.run,
                page: format!("{}/runs/{}", pages::address(&project), added.run),
                on_line,
                events: added.events.into_iter().map(|event| event.kind).collect(),
                artefacts: ingest.options.artefacts.as_ref().map(|_| {
                    let project = pages::address(&project).split_off("/p/".len());
                    format!("/api/v1/projects/{project}/runs/{}/artefacts", added.run)
                }),
                ticket: ingest.options.artefacts.as_ref().map(|_| added.ticket),
            };
            match serde_json::to_string(&answer) {
                Ok(json) => (status, [(CONTENT_TYPE, "application/json")], json + "\n").into_response(),
                Err(_no_json) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            }
        }
        Err(refused) => ingest.options.refused(refused),
    }
}

/// Takes a summary of a run in progress.
async fn live(
    State(ingest): State<Arc<Ingest>>,
    Path(project): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if let Err(refused) = ingest.grants.of(&project, &headers).await {
        return ingest.options.refused(refused);
    }
    let body = timeout(ingest.limits.arrival, axum::body::to_bytes(body, MOST_OF_A_SUMMARY)).await;
    let run = body.ok().and_then(Result::ok).and_then(|body| serde_json::from_slice::<LiveRun>(&body).ok());
    let Some(run) = run.filter(|run| !run.id.is_empty()) else {
        return ingest.options.refused(Refused::nonsense("that is no summary of a run", ""));
    };
    if ingest.board.tell(&project, run) {
        StatusCode::NO_CONTENT.into_response()
    } else {
        ingest.options.refused(Refused::busy())
    }
}

impl Ingest {
    /// Adds a run. Also returns whether it counts for its branch.
    async fn take(&self, project: &str, headers: &HeaderMap, body: Body) -> Result<(Added, bool), Refused> {
        let grant = self.grants.of(project, headers).await?;
        let Limits { arrival, queue, adding, .. } = self.limits;
        let (bytes, packed) =
            timeout(arrival, self.receive(headers, body)).await.map_err(|_slow| Refused::slow(arrival))??;
        // A client without a turn in this time should retry, not wait with its body in memory.
        let turn = timeout(queue, self.adding.acquire()).await.map_err(|_long| Refused::busy())?;
        let turn: SemaphorePermit<'_> = turn.map_err(|_closed| Refused::busy())?;
        let Read { manifest, report, room } = self.read(bytes.bytes, packed).await?;
        drop(bytes.room);
        check::check(project, &manifest, &report)?;
        let manifest = if grant.allows(&manifest) { manifest } else { manifest.without_proof() };
        if let Grant::Signed(Signed { issuer, jti, expires_us, .. }) = &grant {
            let is_first = self.store.use_signed((issuer, jti), &manifest, *expires_us).await;
            if !is_first.map_err(|why| Refused::of_store(&why))? {
                return Err(Refused::unauthorized("the signed token was used for another run"));
            }
        }
        let added = timeout(adding, self.store.add(&manifest, &report));
        let added = added.await.map_err(|_slow| Refused::database("add a run: the database is too slow"))?;
        drop((turn, room));
        Ok((added.map_err(|why| Refused::of_store(&why))?, manifest.is_on_a_line()))
    }
}
