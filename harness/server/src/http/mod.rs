//! The pages, and the same values as JSON, over HTTP; `ingest` takes uploaded runs.
//!
//! Data flow: a request → `guard` (is the host one of ours, is the address short) → `reader` (who asks, may they see
//! this project) → its route → [`Store`] → a view → page or JSON, with the headers that keep a browser from running or
//! loading anything else. An internal error goes to the log; the page says only that something failed.

mod accounts;
mod counters;
mod grants;
mod guard;
mod ingest;
mod listen;
mod live;
mod reader;
mod refused;
mod routes;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::middleware::from_fn_with_state;
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};

use self::counters::Counters;
pub use self::grants::Fetch;
use self::grants::Grants;
use self::reader::Readers;
use crate::artefacts::Artefacts;
use crate::live::Board;
use crate::store::Store;

/// How long a shutdown waits for requests that have begun.
const FINISHING: Duration = Duration::from_secs(5);

/// How the pages are served.
#[derive(Clone)]
pub struct Options {
    /// Host names under which browsers reach the server, besides those of this machine.
    pub public_hosts: Vec<String>,
    /// Notified of each run that was added to a line, or changed one.
    pub added: Arc<Notify>,
    /// Where artefacts are kept; `None`: nowhere.
    pub artefacts: Option<Artefacts>,
    /// Fetches the keys of token issuers.
    pub fetch: Fetch,
    /// Logs a line for each failed request.
    pub log: Arc<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("public_hosts", &self.public_hosts).finish_non_exhaustive()
    }
}

/// Serves a store until `stop` resolves. Requests that have begun are finished, if that takes no more than five
/// seconds.
///
/// # Errors
/// The listener fails.
pub async fn serve(
    listener: TcpListener,
    store: Store,
    options: Options,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    // A public name means that others reach the server through a proxy.
    let is_local = listener.local_addr()?.ip().is_loopback() && options.public_hosts.is_empty();
    let counters = Arc::new(Counters::default());
    let limits = ingest::Limits::default();
    let board = Arc::new(Board::default());
    let options = Arc::new(options);
    let grants = Arc::new(Grants::new(store.clone(), Arc::clone(&options), is_local));
    let shared = (Arc::clone(&counters), Arc::clone(&board));
    let uploads = ingest::router(store.clone(), Arc::clone(&options), limits, Arc::clone(&grants), shared);
    let readers =
        Readers { store: store.clone(), options: Arc::clone(&options), grants: Arc::clone(&grants) };
    let router = routes::router(store.clone(), Arc::clone(&options), readers.clone(), reader::READING)
        .merge(uploads)
        .merge(grants::router(grants))
        .merge(accounts::router(store.clone(), Arc::clone(&options)))
        .merge(live::router(board, Arc::clone(&options), readers))
        .merge(counters::router(store, options, Arc::clone(&counters)))
        .layer(from_fn_with_state(counters, counters::count));
    let (stopping, stopped) = oneshot::channel::<()>();
    let stop = async move {
        stop.await;
        drop(stopping);
    };
    tokio::select! {
        served = listen::serve(listener, router, listen::Limits::default(), stop) => served,
        // Half a request would delay the shutdown without end.
        () = too_long(stopped) => Ok(()),
    }
}

/// Resolves some time after `stopped`.
async fn too_long(stopped: oneshot::Receiver<()>) {
    // The receiver resolves when the sender is dropped; nothing is sent.
    drop(stopped.await);
    tokio::time::sleep(FINISHING).await;
}
