//! The body: `{"manifest": …, "report": …}`, as it is or packed by gzip. It is inflated and read in one pass; neither its text nor
//! more of its values than the limits allow are ever in memory.

use std::io::{self, BufReader};
use std::sync::Arc;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use axum::http::{HeaderMap, StatusCode};
use flate2::read::GzDecoder;
use memgate_history::Manifest;
use memgate_model::{RunReport, SCHEMA_VERSION};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::{Ingest, Limits, Refused};

/// Bytes of text that take one permit, and as much memory as [`VALUES`] small values.
pub(super) const UNIT: usize = 1 << 20;
const VALUES: usize = 1 << 15;

/// How a body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packed {
    No,
    Gzip,
}

/// A body that has arrived.
pub(super) struct Received<'a> {
    pub(super) bytes: Bytes,
    /// Its part of what all bodies may take.
    pub(super) room: SemaphorePermit<'a>,
}

/// What a body says.
pub(super) struct Read {
    pub(super) manifest: Manifest,
    pub(super) report: RunReport,
    /// Its part of what all that were read may take.
    pub(super) room: Vec<OwnedSemaphorePermit>,
}

#[derive(Deserialize)]
struct Upload {
    manifest: Manifest,
    report: RunReport,
}

impl Ingest {
    /// The bytes of a body; it says before how many these are, so that there is room for them.
    pub(super) async fn receive(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(Received<'_>, Packed), Refused> {
        let unsupported = |error: &str| Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error, "");
        let text =
            |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        // No page of another site can send this type without asking first.
        if text(CONTENT_TYPE).split(';').next().map(str::trim) != Some("application/json") {
            return Err(unsupported("the body has to be application/json"));
        }
        let packed = match text(CONTENT_ENCODING) {
            "" | "identity" => Packed::No,
            "gzip" => Packed::Gzip,
            _ => return Err(unsupported("the body has to be packed by gzip, or not at all")),
        };
        let length: usize = text(CONTENT_LENGTH).parse().map_err(|_none| {
            Refused::new(StatusCode::LENGTH_REQUIRED, "the request has no Content-Length", "")
        })?;
        if length > self.limits.body {
            return Err(Refused::too_large(format!(
                "the body has {length} bytes: {} are the most",
                self.limits.body
            )));
        }
        let kib = u32::try_from(length.div_ceil(1 << 10)).map_err(|_many| Refused::busy())?;
        let room = self.bodies.try_acquire_many(kib).map_err(|_full| Refused::busy())?;
        let bytes = to_bytes(body, length).await.map_err(|_broken| {
            Refused::new(StatusCode::BAD_REQUEST, "the body ends before its Content-Length", "")
        })?;
        Ok((Received { bytes, room }, packed))
    }

    /// What the body says.
    pub(super) async fn read(&self, bytes: Bytes, packed: Packed) -> Result<Read, Refused> {
        let (limits, room) = (self.limits, Arc::clone(&self.reading));
        let reading = tokio::task::spawn_blocking(move || match packed {
            Packed::No => read(bytes.as_ref(), limits, room),
            Packed::Gzip => read(GzDecoder::new(bytes.as_ref()), limits, room),
        });
        reading.await.map_err(|_panicked| Refused::database("read a body"))?
    }
}

fn read(bytes: impl io::Read, limits: Limits, room: Arc<Semaphore>) -> Result<Read, Refused> {
    let mut bounded = Bounded { bytes, limits, room, held: Vec::new(), read: 0, values: 0, refused: None };
    let found = serde_json::from_reader(BufReader::with_capacity(1 << 16, &mut bounded));
    if let Some(refused) = bounded.refused {
        return Err(refused);
    }
    let Upload { manifest, report } = found.map_err(|why: serde_json::Error| {
        let what = if why.is_io() { "the body cannot be unpacked" } else { "the body is no run" };
        Refused::nonsense(format!("{what}: {why}"), "is it of another version of memgate?")
    })?;
    if report.schema_version != SCHEMA_VERSION {
        let found = report.schema_version;
        return Err(Refused::nonsense(
            format!("the report has schema version {found}, this server reads version {SCHEMA_VERSION}"),
            "use the same memgate on both sides",
        ));
    }
    Ok(Read { manifest, report: report.completed(), room: bounded.held })
}

/// Counts what is read, and ends where it is too much.
struct Bounded<R> {
    bytes: R,
    limits: Limits,
    /// What may be read by all at the same time.
    room: Arc<Semaphore>,
    held: Vec<OwnedSemaphorePermit>,
    read: usize,
    values: usize,
    refused: Option<Refused>,
}

impl<R: io::Read> io::Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read(buffer)?;
        self.read += count;
        self.values += buffer.iter().take(count).filter(|byte| **byte == b',').count();
        let Limits { inflated, values, .. } = self.limits;
        let units = self.read.div_ceil(UNIT).max(self.values.div_ceil(VALUES));
        let refused = if self.read > inflated {
            Some(Refused::too_large(format!("the body has more than {inflated} bytes, inflated")))
        } else if self.values > values {
            Some(Refused::too_large(format!("the body has more than {values} values")))
        } else {
            let missing = u32::try_from(units.saturating_sub(self.held.len())).unwrap_or(u32::MAX);
            let room = (0..missing).map(|_| Arc::clone(&self.room).try_acquire_owned());
            match room.collect::<Result<Vec<_>, _>>() {
                Ok(more) => {
                    self.held.extend(more);
                    None
                }
                Err(_full) => Some(Refused::busy()),
            }
        };
        match refused {
            None => Ok(count),
            Some(refused) => {
                self.refused = Some(refused);
                Err(io::Error::other("more than its limit"))
            }
        }
    }
}
