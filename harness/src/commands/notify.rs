//! `memgate serve --notify`: notifies people about changes that runs make on lines.
//!
//! Data flow: a run is added (here, or by another server with the same database) → changes without a notice are
//! claimed, channel by channel → sent → marked as sent. A notice that could not be sent is retried after its claim has
//! expired.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use memgate_server::pages;
use memgate_server::store::{Store, StoreError};
use tokio::sync::Notify;

use super::settings;
use crate::cli::ColorChoice;
use crate::deliver::notices::Channel;
use crate::exit::ExpectedError;
use crate::history;
use crate::output::Console;

/// How often to look: another server, or `memgate run` itself, may have added runs without notifying this server.
const LOOK: Duration = Duration::from_secs(60);

/// The channels for notices.
#[derive(Clone)]
pub(super) struct Notices {
    channels: Vec<Channel>,
    /// `https://memgate.example.com`
    pages: String,
}

impl Notices {
    /// The channels of `reports.mail` and `reports.webhooks` of a configuration file.
    ///
    /// # Errors
    /// When it cannot be read, configures no channel, or names a variable that is not set.
    pub(super) fn read(file: &Path, pages: String, console: &Console) -> Result<Self, ExpectedError> {
        let config = settings::load(Some(file), console)?.config;
        // Checked here: otherwise the first change would reveal the missing secret, and be lost.
        let missing = settings::missing_secrets(&config);
        if !missing.is_empty() {
            return Err(ExpectedError::usage(
                format!("{}: {}", file.display(), missing.join("; ")),
                "set it in the environment of the server",
            ));
        }
        let channels = Channel::all(config.reports);
        if channels.is_empty() {
            return Err(ExpectedError::usage(
                format!("{} names nobody to tell", file.display()),
                "it needs `reports.mail` or `reports.webhooks`, as in memgate.yaml",
            ));
        }
        Ok(Self { channels, pages })
    }

    /// Sends notices until the server ends.
    pub(super) async fn tell(
        self,
        store: Store,
        added: Arc<Notify>,
        log: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Infallible {
        loop {
            for channel in &self.channels {
                if let Err(why) = self.tell_by(channel, &store).await {
                    log(&format!("people are told later what has changed: {}", history::store_error(&why)));
                }
            }
            // Whichever comes first; the other is no error.
            let _either = tokio::time::timeout(LOOK, added.notified()).await;
        }
    }

    async fn tell_by(&self, channel: &Channel, store: &Store) -> Result<(), StoreError> {
        let now = || jiff::Timestamp::now().as_microsecond();
        for notice in store.claim_notices(&channel.name(), now()).await? {
            // The messages before this one took too long. It is claimed again when its claim has expired.
            if !notice.is_held(now()) {
                continue;
            }
            let page = format!("{}{}/runs/{}", self.pages, pages::address(&notice.project), notice.run.run);
            let (channel, told) = (channel.clone(), notice.clone());
            // A mail server may be slow: requests are served meanwhile.
            let tell = move || channel.tell(&told, page, &Console::new(ColorChoice::Auto));
            if tokio::task::spawn_blocking(tell).await.unwrap_or(false) {
                store.told(&notice, now()).await?;
            }
        }
        Ok(())
    }
}
