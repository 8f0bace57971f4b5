//! `memgate serve`: the history of runs in a browser.

use std::net::SocketAddr;

use memgate_server::http;
use memgate_server::store::Store;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::ServeArgs;
use crate::exit::{self, ExpectedError};
use crate::history;
use crate::output::Console;

pub(super) fn serve(request: &ServeArgs, console: &Console) -> Result<u8, ExpectedError> {
    history::block_on(listen(request, console))?
}

async fn listen(request: &ServeArgs, console: &Console) -> Result<u8, ExpectedError> {
    let address = history::address(&request.store.data, request.store.database.as_deref());
    if request.store.database.is_none() && !request.store.data.is_dir() {
        return Err(ExpectedError::Missing {
            what: format!("there is no history: {} does not exist", request.store.data.display()),
            hint: "`memgate run` makes it; or name another folder with --data".to_owned(),
        });
    }
    let store = Store::open(&address).await.map_err(|why| history::failed(&why))?;
    let listener = TcpListener::bind(request.listen).await.map_err(|why| ExpectedError::Machinery {
        what: format!("cannot listen on {}: {why}", request.listen),
        hint: "`--listen 127.0.0.1:0` takes any free port".to_owned(),
    })?;
    let at = listener.local_addr().map_err(ExpectedError::file("listen on", "the address".as_ref()))?;
    let stop = stop_signal()?;
    console.line(&format!("http://{at} shows the history in {}; Ctrl-C ends", shown(&address)));
    if !at.ip().is_loopback() {
        console.warning("whoever reaches this address can read the whole history");
    }
    let options = http::Options { public_hosts: hosts(request, at) };
    http::serve(listener, store, options, stop).await.map_err(|why| ExpectedError::Machinery {
        what: format!("failed to serve: {why}"),
        hint: String::new(),
    })?;
    Ok(exit::PASS)
}

/// Where the history lies, without a password.
fn shown(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let host = rest.rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", rest.get(host..).unwrap_or_default())
}

/// Ends with Ctrl-C, and with the signal that a service manager sends.
fn stop_signal() -> Result<impl Future<Output = ()>, ExpectedError> {
    let listen = |kind| signal(kind).map_err(ExpectedError::file("wait for", "signals".as_ref()));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
