//! `memgate serve`: shows the history of runs in a browser.

use std::sync::Arc;

use memgate_server::artefacts::{ARRIVING, Artefacts, Exchange};
use memgate_server::http;
use memgate_server::store::{Store, StoreError, without_password};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use super::notify::Notices;
use super::{accounts, tokens, upkeep};
use crate::cli::{ColorChoice, ServeArgs, ServeCommand};
use crate::exit::{self, ExpectedError};
use crate::history;
use crate::https;
use crate::output::Console;

pub(super) fn serve(request: &ServeArgs, console: &Console) -> Result<u8, ExpectedError> {
    match &request.command {
        None => history::block_on(listen(request, console))?,
        Some(ServeCommand::Oidc(command)) => history::block_on(tokens::rules(command, console))?,
        Some(ServeCommand::MembersOnly(command)) => {
            history::block_on(accounts::members_only(command, console))?
        }
        Some(ServeCommand::User(command)) => history::block_on(accounts::users(command, console))?,
        Some(ServeCommand::Token(command)) => history::block_on(tokens::tokens(command, console))?,
        Some(command) => history::block_on(upkeep::upkeep(command, console))?,
    }
}

async fn listen(request: &ServeArgs, console: &Console) -> Result<u8, ExpectedError> {
    let address = history::address(&request.store.data, request.store.database.as_deref());
    let store = Store::open_existing(&address).await.map_err(|why| match why {
        StoreError::Missing(file) => ExpectedError::machinery(
            format!("there is no history {file}"),
            "`memgate run` begins one in the folder in which you run it; for the server of a team, `memgate serve token create --project NAME` does, with the same `--data`",
        ),
        why => history::store_error(&why),
    })?;
    let listener = TcpListener::bind(request.listen).await.map_err(|why| ExpectedError::Machinery {
        what: format!("cannot listen on {}: {why}", request.listen),
        hint: "`--listen 127.0.0.1:0` takes any free port".to_owned(),
    })?;
    let at = listener.local_addr().map_err(ExpectedError::file("listen on", "the address".as_ref()))?;
    let pages =
        request.public_host.first().map_or_else(|| format!("http://{at}"), |host| format!("https://{host}"));
    let notices = request.notify.as_deref().map(|file| Notices::read(file, pages, console)).transpose()?;
    let stop = stop_signal()?;
    console.line(&format!("http://{at} shows the history in {}; Ctrl-C ends", without_password(&address)));
    if !at.ip().is_loopback() {
        console.warning("whoever reaches this address can read every project that is not members-only");
    }
    let log: Arc<dyn Fn(&str) + Send + Sync> =
        Arc::new(|text: &str| Console::new(ColorChoice::Auto).warning(text));
    let exchange: Exchange = Arc::new(https::exchange);
    let variable = |name: &str| std::env::var(name).ok();
    let open = |place: &String| {
        let opened = Artefacts::open(place, &request.store.data.join(ARRIVING), variable, &exchange);
        opened.map_err(|why| {
            ExpectedError::usage(
                format!("failed to {why}"),
                "`--artefacts DIR`, or `--artefacts s3://BUCKET/PREFIX`",
            )
        })
    };
    let artefacts = request.artefacts.as_ref().map(open).transpose()?;
    let added = Arc::new(Notify::new());
    let options = http::Options {
        public_hosts: request.public_host.clone(),
        added: Arc::clone(&added),
        artefacts: artefacts.clone(),
        fetch: Arc::new(https::fetch),
        log: Arc::clone(&log),
    };
    let telling = async {
        match notices {
            Some(notices) => notices.tell(store.clone(), added, Arc::clone(&log)).await,
            None => std::future::pending().await,
        }
    };
    let failed = |why| ExpectedError::machinery(format!("failed to serve: {why}"), "");
    tokio::select! {
        served = http::serve(listener, store.clone(), options, stop) => served.map_err(failed)?,
        never = upkeep::every_day(store.clone(), artefacts, Arc::clone(&log)) => match never {},
        never = telling => match never {},
    }
    Ok(exit::PASS)
}

/// Waits for Ctrl-C, or for the signal that a service manager sends.
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
