//! Artefacts of a run that was just uploaded, where the server keeps them.
//!
//! Data flow: the answer to an upload has a ticket, which only its sender knows → `PUT …/artefacts/NAME?ticket=…` with
//! all of it, or `PATCH` with one piece after the other → a file beside the store →
//! [`Artefacts`](crate::artefacts::Artefacts) → a row. Whoever may upload to a project can give no file to somebody
//! else's run. What arrived of a piece stays: the answer to a piece that does not begin where the last one ended says
//! where to go on.

use std::fs::File;
use std::io::{self, Seek as _};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use memgate_history::roster::hex;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::{Ingest, Refused};
use crate::artefacts::{
    Artefacts, LENGTH, MOST, MOST_FILES, MOST_OF_A_PACKED_PAGE, MOST_OF_A_RUN, OFFSET, PAGE, Spool,
    check_page, is_name,
};
use crate::view::ArtefactRow;

#[derive(Deserialize)]
pub(super) struct Shown {
    #[serde(default)]
    ticket: String,
    /// Of the whole file, in hex, where it comes in pieces.
    #[serde(default)]
    sha256: String,
}

type Named = Path<(String, i64, String)>;

/// A file at once.
pub(super) async fn put(
    State(ingest): State<Arc<Ingest>>,
    Path((project, run, name)): Named,
    Query(shown): Query<Shown>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match ingest.whole((&project, run, &name), &shown, &headers, body).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(refused) => ingest.options.refused(refused),
    }
}

/// The next piece of a file.
pub(super) async fn patch(
    State(ingest): State<Arc<Ingest>>,
    Path((project, run, name)): Named,
    Query(shown): Query<Shown>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match ingest.piece((&project, run, &name), &shown, &headers, body).await {
        Ok(offset) => (StatusCode::NO_CONTENT, [(OFFSET, offset.to_string())]).into_response(),
        Err(refused) => ingest.options.refused(refused),
    }
}

/// Room for an artefact.
struct Room {
    artefacts: Artefacts,
    /// Bytes that may come.
    most: u64,
}

impl Room {
    fn check(&self, name: &str, bytes: u64) -> Result<(), Refused> {
        if bytes <= self.most {
            return Ok(());
        }
        let most = memgate_model::format_bytes(self.most as f64);
        Err(Refused::too_large(format!("{name} has more than the {most} that may come")))
    }
}

impl Ingest {
    async fn whole(
        &self,
        of: (&str, i64, &str),
        shown: &Shown,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(), Refused> {
        let (_, _, name) = of;
        let Some(room) = self.room(of, shown, headers).await? else { return Ok(()) };
        let turn = self.arriving.try_acquire().map_err(|_full| Refused::busy())?;
        let spool = room.artefacts.spool().map_err(|why| unkept(name, &why))?;
        let bytes = self.receive_file(&spool, body, name, &room).await?;
        self.keep(of, room, (spool, bytes), None).await?;
        drop(turn);
        Ok(())
    }

    /// Where the next piece begins; that is the length of the file once it is kept.
    async fn piece(
        &self,
        of: (&str, i64, &str),
        shown: &Shown,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<u64, Refused> {
        let (_, run, name) = of;
        let number = |header| {
            let text = headers.get(header)?.to_str().ok()?;
            text.parse::<u64>().ok()
        };
        let (Some(offset), Some(length)) = (number(OFFSET), number(LENGTH)) else {
            let hint =
                "`Upload-Offset` and `Upload-Length` are the bytes before this piece and those of the file";
            return Err(Refused::nonsense("a piece says where it begins and how long the file is", hint));
        };
        let sha256 = &shown.sha256;
        if sha256.len() != 64 || !sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(Refused::nonsense("`sha256` is not the digest of a file in lower-case hex", ""));
        }
        let Some(room) = self.room(of, shown, headers).await? else { return Ok(length) };
        room.check(name, length)?;
        let turn = self.arriving.try_acquire().map_err(|_full| Refused::busy())?;
        let spool = room.artefacts.spool_of_pieces(run, name, sha256).map_err(|why| unkept(name, &why))?;
        let Some(mut spool) = spool else { return Err(Refused::busy()) };
        let there = spool.file.metadata().map_err(|why| unkept(name, &why))?.len();
        if there > length {
            spool.ends();
            return Err(Refused::nonsense(format!("{there} bytes of {name} are there: it is longer"), ""));
        }
        if there != offset {
            return Err(Refused::elsewhere(there));
        }
        let rest = Room { most: length - there, ..room };
        let end = there + self.receive_file(&spool, body, name, &rest).await?;
        if end == length {
            self.keep(of, rest, (spool, length), Some(sha256)).await?;
        }
        drop(turn);
        Ok(end)
    }

    /// `None`: it is there.
    async fn room(
        &self,
        (project, run, name): (&str, i64, &str),
        shown: &Shown,
        headers: &HeaderMap,
    ) -> Result<Option<Room>, Refused> {
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
        if there.iter().any(|row| row.name == name) {
            return Ok(None);
        }
        if there.len() >= MOST_FILES {
            return Err(Refused::too_large(format!("the run has {MOST_FILES} artefacts: more are not kept")));
        }
        let left = there.iter().fold(MOST_OF_A_RUN, |left, row| left.saturating_sub(row.bytes));
        let most = left.min(if is_page { MOST_OF_A_PACKED_PAGE } else { MOST });
        Ok(Some(Room { artefacts, most }))
    }

    /// Keeps a file that is whole, and has this digest.
    async fn keep(
        &self,
        (project, run, name): (&str, i64, &str),
        room: Room,
        (mut spool, bytes): (Spool, u64),
        sha256: Option<&str>,
    ) -> Result<(), Refused> {
        let (named, sha256) = (name.to_owned(), sha256.map(str::to_owned));
        let kept = tokio::task::spawn_blocking(move || {
            if let Err(refused) = check(&mut spool.file, &named, sha256.as_deref()) {
                spool.ends();
                return Err(refused);
            }
            // Where that fails, whoever sent it asks again, with no byte to send.
            room.artefacts.put(run, &named, &spool).map_err(|why| unkept(&named, &why))?;
            spool.ends();
            Ok(())
        });
        kept.await.map_err(|why| unkept(name, &why))??;
        let row = ArtefactRow { name: name.to_owned(), bytes };
        let now_us = jiff::Timestamp::now().as_microsecond();
        let added = self.store.add_artefact(project, run, &row, now_us).await;
        added.map_err(|why| Refused::of_store(&why))
    }

    /// The whole body at the end of the spool, and its length. Each chunk has its time: a dump of a gigabyte takes
    /// minutes.
    async fn receive_file(&self, spool: &Spool, body: Body, name: &str, room: &Room) -> Result<u64, Refused> {
        let mut file = tokio::fs::File::from_std(spool.file.try_clone().map_err(|why| unkept(name, &why))?);
        let (mut chunks, mut bytes) = (body.into_data_stream(), 0_u64);
        let arrival = self.limits.arrival;
        let received = loop {
            let chunk = match timeout(arrival, chunks.next()).await {
                Err(_slow) => break Err(Refused::slow(arrival)),
                Ok(None) => break Ok(bytes),
                Ok(Some(Err(why))) => break Err(Refused::nonsense(format!("{name} ends early: {why}"), "")),
                Ok(Some(Ok(chunk))) => chunk,
            };
            let longer = bytes.saturating_add(chunk.len() as u64);
            if let Err(refused) = room.check(name, longer) {
                break Err(refused);
            }
            if let Err(why) = file.write_all(&chunk).await {
                break Err(unkept(name, &why));
            }
            bytes = longer;
        };
        // What arrived is there for the next piece, however this one ended.
        file.flush().await.map_err(|why| unkept(name, &why))?;
        received
    }
}

fn unkept(name: &str, why: &dyn std::fmt::Display) -> Refused {
    Refused::database(format!("keep {name}: {why}"))
}

/// Is a file what it is said to be?
fn check(file: &mut File, name: &str, sha256: Option<&str>) -> Result<(), Refused> {
    if let Some(told) = sha256 {
        let mut digest = Sha256::new();
        let read = file.rewind().and_then(|()| io::copy(file, &mut digest));
        read.map_err(|why| unkept(name, &why))?;
        if hex(&digest.finalize()) != told {
            let error = format!("{name} arrived with another digest, and was removed");
            return Err(Refused::nonsense(error, "send it again"));
        }
    }
    let checked = if name == PAGE { check_page(file) } else { Ok(()) };
    checked.map_err(|why| Refused::nonsense(format!("that is no page: {why}"), ""))
}
