//! Uploads of artefacts for a run that was just uploaded, if the server keeps artefacts.
//!
//! Data flow: the response to an upload has a ticket, which only its sender knows → `PUT …/artefacts/NAME?ticket=…`
//! with the whole file, or `PATCH` with one piece after the other → a [`Spool`], held by one sender → checked and kept
//! in [`Artefacts`], even if the sender no longer waits → a row. Without the ticket, another uploader of the project
//! cannot add a file to the run. The received part of a piece is kept. An empty piece asks where to continue.

use std::fs::File;
use std::io::{self, Seek as _};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use memgate_history::hex;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::{Ingest, Refused};
use crate::artefacts::{
    Artefacts, LENGTH, MOST, MOST_FILES, MOST_OF_A_PACKED_PAGE, MOST_OF_A_RUN, NoSpool, OFFSET, PAGE, Spool,
    check_page, is_name,
};
use crate::store::Store;
use crate::view::ArtefactRow;

/// A sender that is silent for this long loses the file: it may have opened another connection.
const BETWEEN_CHUNKS: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
pub(super) struct Shown {
    #[serde(default)]
    ticket: String,
    /// SHA-256 of the whole file in hex, if the file comes in pieces.
    #[serde(default)]
    sha256: String,
}

/// Receives a whole file (`PUT`), or its next piece (`PATCH`).
pub(super) async fn receive(
    State(ingest): State<Arc<Ingest>>,
    Path((project, run, name)): Path<(String, i64, String)>,
    Query(shown): Query<Shown>,
    method: Method,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let of = (project.as_str(), run, name.as_str());
    let received = if method == Method::PATCH {
        ingest.piece(of, &shown, &headers, body).await.map(Some)
    } else {
        ingest.whole(of, &shown, &headers, body).await.map(|()| None)
    };
    match received {
        Ok(None) => StatusCode::NO_CONTENT.into_response(),
        Ok(Some(offset)) => (StatusCode::NO_CONTENT, [(OFFSET, offset.to_string())]).into_response(),
        Err(refused) => ingest.options.refused(refused),
    }
}

/// An artefact that is not stored yet.
struct Wanted {
    artefacts: Artefacts,
    project: String,
    run: i64,
    name: String,
    /// Most bytes that may come.
    most: u64,
    turn: OwnedSemaphorePermit,
}

impl Ingest {
    async fn whole(
        &self,
        of: (&str, i64, &str),
        shown: &Shown,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(), Refused> {
        let Some(wanted) = self.wanted(of, shown, headers, None).await? else { return Ok(()) };
        let (spool, wanted) = wanted.spool()?;
        let name = wanted.name.as_str();
        spool.file.set_len(0).map_err(|why| unkept(name, &why))?;
        match arrive(&spool, body, (name, wanted.most), self.limits.arrival).await {
            Ok(bytes) => self.keep(wanted, (spool, bytes), None).await,
            Err(refused) => {
                spool.remove().map_err(|why| unkept(name, &why))?;
                Err(refused)
            }
        }
    }

    /// Receives a piece. Returns the offset of the next piece; once the file is kept, that is its length.
    async fn piece(
        &self,
        of: (&str, i64, &str),
        shown: &Shown,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<u64, Refused> {
        let number = |header| headers.get(header)?.to_str().ok()?.parse::<u64>().ok();
        let (Some(offset), Some(length)) = (number(OFFSET), number(LENGTH)) else {
            let hint =
                "`Upload-Offset` and `Upload-Length` are the bytes before this piece and those of the file";
            return Err(Refused::nonsense("a piece says where it begins and how long the file is", hint));
        };
        let sha256 = &shown.sha256;
        if sha256.len() != 64 || !sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(Refused::nonsense("`sha256` is not the digest of a file in lower-case hex", ""));
        }
        let Some(wanted) = self.wanted(of, shown, headers, Some(length)).await? else { return Ok(length) };
        let (spool, wanted) = wanted.spool()?;
        let name = wanted.name.as_str();
        fits(name, length, wanted.most)?;
        let there = spool.file.metadata().map_err(|why| unkept(name, &why))?.len();
        if there > length {
            // The received bytes belong to another file: start again.
            spool.file.set_len(0).map_err(|why| unkept(name, &why))?;
            return Err(Refused::elsewhere(0));
        }
        if there != offset {
            return Err(Refused::elsewhere(there));
        }
        let arrival = self.limits.arrival.min(BETWEEN_CHUNKS);
        let end = there + arrive(&spool, body, (name, length - there), arrival).await?;
        if end == length {
            self.keep(wanted, (spool, length), Some(sha256.clone())).await?;
        }
        Ok(end)
    }

    /// Checks the request. `None`: the artefact is already stored. `length`: the length that it must have then.
    async fn wanted(
        &self,
        (project, run, name): (&str, i64, &str),
        shown: &Shown,
        headers: &HeaderMap,
        length: Option<u64>,
    ) -> Result<Option<Wanted>, Refused> {
        self.grants.of(project, headers).await?;
        let gone =
            || Refused::new(StatusCode::NOT_FOUND, "there is no such run, or no such ticket of it", "");
        let Some(artefacts) = self.options.artefacts.clone() else { return Err(gone()) };
        let known = self.store.ticket(project, run).await.map_err(|why| Refused::of_store(&why))?;
        if known.as_deref() != Some(shown.ticket.as_str()) {
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
        if let Some(row) = there.iter().find(|row| row.name == name) {
            return if length.is_none_or(|length| length == row.bytes) {
                Ok(None)
            } else {
                Err(another(name))
            };
        }
        if there.len() >= MOST_FILES {
            return Err(too_many());
        }
        let turn = Arc::clone(&self.arriving).try_acquire_owned().map_err(|_full| Refused::busy())?;
        let left = there.iter().fold(MOST_OF_A_RUN, |left, row| left.saturating_sub(row.bytes));
        let most = left.min(if is_page { MOST_OF_A_PACKED_PAGE } else { MOST });
        let (project, name) = (project.to_owned(), name.to_owned());
        Ok(Some(Wanted { artefacts, project, run, name, most, turn }))
    }

    /// Keeps a complete file that has this digest. Continues if the sender disconnects: a bucket takes minutes.
    async fn keep(
        &self,
        wanted: Wanted,
        arrived: (Spool, u64),
        sha256: Option<String>,
    ) -> Result<(), Refused> {
        let (store, name) = (self.store.clone(), wanted.name.clone());
        let kept = tokio::spawn(wanted.keep(store, arrived, sha256));
        kept.await.map_err(|why| unkept(&name, &why))?
    }
}

impl Wanted {
    /// Opens the spool. Other uploads of the run lower the limit.
    fn spool(self) -> Result<(Spool, Self), Refused> {
        match self.artefacts.spool(self.run, &self.name) {
            Ok((spool, others)) => {
                let most = self.most.min(MOST_OF_A_RUN.saturating_sub(others));
                Ok((spool, Self { most, ..self }))
            }
            Err(NoSpool::Busy) => Err(Refused::sent_by_another(&self.name)),
            Err(NoSpool::TooMany) => Err(too_many()),
            Err(NoSpool::Failed(why)) => Err(unkept(&self.name, &why)),
        }
    }

    async fn keep(
        self,
        store: Store,
        (mut spool, bytes): (Spool, u64),
        sha256: Option<String>,
    ) -> Result<(), Refused> {
        let Self { artefacts, project, run, name, turn, .. } = self;
        let there = store.artefacts(&project, run).await.map_err(|why| Refused::of_store(&why))?;
        if let Some(row) = there.iter().find(|row| row.name == name) {
            spool.remove().map_err(|why| unkept(&name, &why))?;
            return if row.bytes == bytes { Ok(()) } else { Err(another(&name)) };
        }
        let named = name.clone();
        let kept = tokio::task::spawn_blocking(move || {
            let failed = |why: io::Error| unkept(&named, &why);
            if let Some(refused) = wrong(&mut spool.file, &named, sha256.as_deref()).map_err(failed)? {
                spool.remove().map_err(failed)?;
                return Err(refused);
            }
            // If this fails, the sender asks again, with no byte left to send.
            artefacts.put(run, &named, &spool).map_err(failed)?;
            Ok(spool)
        });
        let spool = kept.await.map_err(|why| unkept(&name, &why))??;
        let row = ArtefactRow { name: name.clone(), bytes };
        let now_us = jiff::Timestamp::now().as_microsecond();
        store.add_artefact(&project, run, &row, now_us).await.map_err(|why| Refused::of_store(&why))?;
        drop(turn);
        spool.remove().map_err(|why| unkept(&name, &why))
    }
}

/// Appends a body to the spool; returns the number of its bytes. The timeout is per chunk: a dump of a gigabyte takes
/// minutes.
async fn arrive(
    spool: &Spool,
    body: Body,
    (name, most): (&str, u64),
    arrival: Duration,
) -> Result<u64, Refused> {
    let mut file = tokio::fs::File::from_std(spool.file.try_clone().map_err(|why| unkept(name, &why))?);
    let (mut chunks, mut bytes) = (body.into_data_stream(), 0_u64);
    let received = loop {
        let chunk = match timeout(arrival, chunks.next()).await {
            Err(_slow) => break Err(Refused::slow(arrival)),
            Ok(None) => break Ok(bytes),
            Ok(Some(Err(why))) => break Err(Refused::nonsense(format!("{name} ends early: {why}"), "")),
            Ok(Some(Ok(chunk))) => chunk,
        };
        let longer = bytes.saturating_add(chunk.len() as u64);
        if let Err(refused) = fits(name, longer, most) {
            break Err(refused);
        }
        if let Err(why) = file.write_all(&chunk).await {
            break Err(unkept(name, &why));
        }
        bytes = longer;
    };
    // The received bytes are kept for the next piece, however this one ended.
    file.flush().await.map_err(|why| unkept(name, &why))?;
    received
}

fn fits(name: &str, bytes: u64, most: u64) -> Result<(), Refused> {
    if bytes <= most {
        return Ok(());
    }
    let most = memgate_model::format_bytes(most as f64);
    Err(Refused::too_large(format!("{name} has more than the {most} that may come")))
}

fn too_many() -> Refused {
    Refused::too_large(format!("the run has {MOST_FILES} artefacts: more are not kept"))
}

fn another(name: &str) -> Refused {
    Refused::new(StatusCode::CONFLICT, format!("another file is kept as {name}"), "")
}

fn unkept(name: &str, why: &dyn std::fmt::Display) -> Refused {
    Refused::database(format!("keep {name}: {why}"))
}

/// Checks the digest of a file, and that a page is valid; returns what is wrong.
fn wrong(file: &mut File, name: &str, sha256: Option<&str>) -> io::Result<Option<Refused>> {
    if let Some(told) = sha256 {
        let mut digest = Sha256::new();
        file.rewind()?;
        io::copy(file, &mut digest)?;
        if hex(&digest.finalize()) != told {
            return Ok(Some(Refused::other_digest(name)));
        }
    }
    let checked = if name == PAGE { check_page(file) } else { Ok(()) };
    Ok(checked.err().map(|why| Refused::nonsense(format!("that is no page: {why}"), "")))
}
