//! The body: `{"manifest": …, "report": …}`, plain or packed by gzip. It is inflated and parsed in one pass. Neither
//! its whole text nor more values than the limits allow are ever in memory.

use std::io::{self, BufReader};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use axum::http::{HeaderMap, StatusCode};
use flate2::read::GzDecoder;
use memgate_history::Manifest;
use memgate_model::{RunReport, SCHEMA_VERSION};
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::{Ingest, Limits, Refused};

/// Bytes of text per permit. They take as much memory as [`VALUES`] small values.
pub(super) const UNIT: usize = 1 << 20;
const VALUES: usize = 1 << 15;
/// Only one larger body is read at a time: two of them would each take a part of the room, and neither could finish.
/// Eight writers with this many units each leave room for the largest body.
const SMALL: usize = 8;

/// How a body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packed {
    No,
    Gzip,
}

/// A body that has arrived.
pub(super) struct Received<'a> {
    pub(super) bytes: Bytes,
    /// Its share of the room for received bodies.
    pub(super) room: SemaphorePermit<'a>,
}

/// A parsed body.
pub(super) struct Read {
    pub(super) manifest: Manifest,
    pub(super) report: RunReport,
    /// Its share of the room for parsed bodies.
    pub(super) room: Vec<OwnedSemaphorePermit>,
}

#[derive(Deserialize)]
struct Upload {
    manifest: Manifest,
    report: RunReport,
}

impl Ingest {
    /// Receives the bytes of a body. Its Content-Length says first how much room to reserve.
    pub(super) async fn receive(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(Received<'_>, Packed), Refused> {
        let unsupported = |error: &str| Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error, "");
        let text =
            |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        // No page of another site can send this type without a CORS preflight.
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

    /// Parses the body.
    pub(super) async fn read(&self, bytes: Bytes, packed: Packed) -> Result<Read, Refused> {
        let room = Room {
            all: Arc::clone(&self.reading),
            large: Arc::clone(&self.large),
            patience: self.limits.queue,
            held: Vec::new(),
            units: 0,
        };
        let limits = self.limits;
        let reading = tokio::task::spawn_blocking(move || match packed {
            Packed::No => read(bytes.as_ref(), limits, room),
            Packed::Gzip => read(GzDecoder::new(bytes.as_ref()), limits, room),
        });
        reading.await.map_err(|_panicked| Refused::database("read a body"))?
    }
}

fn read(bytes: impl io::Read, limits: Limits, room: Room) -> Result<Read, Refused> {
    let mut bounded = Bounded { bytes, limits, room, read: 0, values: 0, refused: None };
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
    Ok(Read { manifest, report: report.completed(), room: bounded.room.held })
}

/// The share of one body in the room for all parsed bodies.
struct Room {
    all: Arc<Semaphore>,
    /// Held by a body that is not small.
    large: Arc<Semaphore>,
    /// How long to wait for others.
    patience: Duration,
    held: Vec<OwnedSemaphorePermit>,
    units: usize,
}

impl Room {
    /// Takes room for so many units in total. It blocks: call it on a thread that may wait.
    fn hold(&mut self, units: usize) -> Result<(), Refused> {
        if units > SMALL && self.units <= SMALL {
            let turn = Arc::clone(&self.large).acquire_owned();
            self.held.push(self.wait(turn)?);
        }
        if let Some(missing) = units.checked_sub(self.units).filter(|missing| *missing > 0) {
            let more = Arc::clone(&self.all).acquire_many_owned(u32::try_from(missing).unwrap_or(u32::MAX));
            self.held.push(self.wait(more)?);
            self.units = units;
        }
        Ok(())
    }

    fn wait<T, E>(&self, room: impl Future<Output = Result<T, E>>) -> Result<T, Refused> {
        let waiting = async { timeout(self.patience, room).await };
        Handle::current().block_on(waiting).ok().and_then(Result::ok).ok_or_else(Refused::busy)
    }
}

/// Counts what is read, and stops at a limit.
struct Bounded<R> {
    bytes: R,
    limits: Limits,
    room: Room,
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
        let held = if self.read > inflated {
            Err(Refused::too_large(format!("the body has more than {inflated} bytes, inflated")))
        } else if self.values > values {
            Err(Refused::too_large(format!("the body has more than {values} values")))
        } else {
            self.room.hold(units)
        };
        match held {
            Ok(()) => Ok(count),
            Err(refused) => {
                self.refused = Some(refused);
                Err(io::Error::other("more than its limit"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::block_on;

    #[test]
    fn of_two_large_bodies_one_waits_for_the_other() {
        let (all, large) = (Arc::new(Semaphore::new(20)), Arc::new(Semaphore::new(1)));
        let room = |patience| Room {
            all: Arc::clone(&all),
            large: Arc::clone(&large),
            patience: Duration::from_millis(patience),
            held: Vec::new(),
            units: 0,
        };
        let (mut first, mut second, mut third) = (room(60_000), room(60_000), room(1));
        let is_busy = |held: Result<(), Refused>| held.is_err();
        block_on(async {
            let waiting = tokio::task::spawn_blocking(move || {
                first.hold(SMALL + 1).unwrap();
                assert!(is_busy(third.hold(SMALL + 1)), "for no longer than it may");
                let other = std::thread::spawn({
                    let runtime = Handle::current();
                    move || {
                        let _entered = runtime.enter();
                        second.hold(SMALL - 2).and_then(|()| second.hold(15)).is_ok()
                    }
                });
                first.hold(14).unwrap();
                assert!(!other.is_finished());
                drop(first);
                other.join().unwrap()
            });
            assert!(waiting.await.unwrap());
        });
    }
}
