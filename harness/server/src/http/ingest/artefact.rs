//! Artefacts of a run that was just uploaded, where the server keeps them.
//!
//! Data flow: the answer to an upload has a ticket, which only its sender knows → `PUT …/artefacts/NAME?ticket=…` → a
//! file beside the store → [`Artefacts`](crate::artefacts::Artefacts) → a row. Whoever may upload to a project can give
//! no file to somebody else's run.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use serde::Deserialize;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::{Ingest, Refused};
use crate::artefacts::{
    MOST, MOST_FILES, MOST_OF_A_PACKED_PAGE, MOST_OF_A_RUN, PAGE, Spool, check_page, is_name,
};
use crate::view::ArtefactRow;

#[derive(Deserialize)]
pub(super) struct Shown {
    #[serde(default)]
    ticket: String,
}

pub(super) async fn put(
    State(ingest): State<Arc<Ingest>>,
    Path((project, run, name)): Path<(String, i64, String)>,
    Query(Shown { ticket }): Query<Shown>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match ingest.keep((&project, run, &name), &ticket, &headers, body).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(refused) => ingest.options.refused(refused),
    }
}

impl Ingest {
    async fn keep(
        &self,
        (project, run, name): (&str, i64, &str),
        ticket: &str,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(), Refused> {
        self.grants.of(project, headers).await?;
        let gone =
            || Refused::new(StatusCode::NOT_FOUND, "there is no such run, or no such ticket of it", "");
        let Some(artefacts) = self.options.artefacts.clone() else { return Err(gone()) };
        let known = self.store.ticket(project, run).await.map_err(|why| Refused::of_store(&why))?;
        if known.as_deref() != Some(ticket) {
            return Err(gone());
        }
        if !is_name(name) {
            let hint = "it has letters, digits, `.`, `_` and `-`, does not begin with `.`, and 100 characters at most";
            return Err(Refused::nonsense("that is no name of a file", hint));
        }
        let is =
            |name, value: &str| headers.get(name).is_some_and(|given| given.as_bytes() == value.as_bytes());
        let is_page = name == PAGE;
        if is_page && !(is(CONTENT_TYPE, "text/html") && is(CONTENT_ENCODING, "gzip")) {
            let error = "the page has to be text/html, packed by gzip";
            return Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error, ""));
        }
        let there = self.store.artefacts(project, run).await.map_err(|why| Refused::of_store(&why))?;
        if there.iter().any(|row| row.name == name) {
            return Ok(());
        }
        if there.len() >= MOST_FILES {
            return Err(Refused::too_large(format!("the run has {MOST_FILES} artefacts: more are not kept")));
        }
        let turn = self.arriving.try_acquire().map_err(|_full| Refused::busy())?;
        let failed = |why: &dyn std::fmt::Display| Refused::database(format!("keep {name}: {why}"));
        let spool = artefacts.spool().map_err(|why| failed(&why))?;
        let left = there.iter().fold(MOST_OF_A_RUN, |left, row| left.saturating_sub(row.bytes));
        let most = left.min(if is_page { MOST_OF_A_PACKED_PAGE } else { MOST });
        let (mut spool, bytes) = self.receive_file(spool, body, (name, most)).await?;
        let named = name.to_owned();
        let kept = tokio::task::spawn_blocking(move || {
            match if is_page { check_page(&mut spool.file) } else { Ok(()) } {
                Ok(()) => Ok(artefacts.put(run, &named, &spool)),
                Err(why) => Err(why),
            }
        });
        let kept = kept.await.map_err(|why| failed(&why))?;
        kept.map_err(|why| Refused::nonsense(format!("that is no page: {why}"), ""))?
            .map_err(|why| failed(&why))?;
        drop(turn);
        let row = ArtefactRow { name: name.to_owned(), bytes };
        let now_us = jiff::Timestamp::now().as_microsecond();
        let added = self.store.add_artefact(project, run, &row, now_us).await;
        added.map_err(|why| Refused::of_store(&why))
    }

    /// The whole body in the spool, and its length. Each piece has its time: a dump of a gigabyte takes minutes.
    async fn receive_file(
        &self,
        spool: Spool,
        body: Body,
        (name, most): (&str, u64),
    ) -> Result<(Spool, u64), Refused> {
        let failed = |why: std::io::Error| Refused::database(format!("keep {name}: {why}"));
        let mut file = tokio::fs::File::from_std(spool.file.try_clone().map_err(failed)?);
        let (mut pieces, mut bytes) = (body.into_data_stream(), 0_u64);
        let arrival = self.limits.arrival;
        while let Some(piece) =
            timeout(arrival, pieces.next()).await.map_err(|_slow| Refused::slow(arrival))?
        {
            let piece = piece.map_err(|why| Refused::nonsense(format!("{name} ends early: {why}"), ""))?;
            bytes = bytes.saturating_add(piece.len() as u64);
            if bytes > most {
                return Err(Refused::too_large(format!(
                    "{name} has more than the {} MiB that may come",
                    most >> 20
                )));
            }
            file.write_all(&piece).await.map_err(failed)?;
        }
        file.flush().await.map_err(failed)?;
        Ok((spool, bytes))
    }
}
