//! `memgate serve retention|check|backup|restore`: keep a history small, complete, and safe.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use memgate_server::artefacts::Artefacts;
use memgate_server::store::{Store, StoreError};

use crate::cli::ServeCommand;
use crate::exit::{self, ExpectedError};
use crate::history;
use crate::output::Console;

const DAY: Duration = Duration::from_secs(24 * 3600);

pub(super) async fn upkeep(command: &ServeCommand, console: &Console) -> Result<u8, ExpectedError> {
    let (ServeCommand::Retention { store: at }
    | ServeCommand::Check { store: at }
    | ServeCommand::Backup { store: at, .. }
    | ServeCommand::Restore { store: at, .. }) = command
    else {
        return Ok(exit::PASS);
    };
    let address = history::address(&at.data, at.database.as_deref());
    let is_restore = matches!(command, ServeCommand::Restore { .. });
    let made = address.strip_prefix("sqlite:").filter(|file| is_restore && !Path::new(file).exists());
    let store = match is_restore {
        true => Store::open(&address).await,
        false => Store::open_existing(&address).await,
    };
    let store = store.map_err(|why| history::store_error(&why))?;
    let done = on(&store, command, console).await;
    store.close().await;
    if done.is_err() {
        // The new history is removed: an empty one would look like a restored one.
        made.map_or(Ok(()), remove)?;
    }
    done
}

/// Removes a SQLite file with its journal files.
fn remove(file: &str) -> Result<(), ExpectedError> {
    for file in ["", "-wal", "-shm"].map(|end| PathBuf::from(format!("{file}{end}"))) {
        match fs::remove_file(&file) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => {
                return Err(ExpectedError::file("remove", &file)(why));
            }
            _ => {}
        }
    }
    Ok(())
}

async fn on(store: &Store, command: &ServeCommand, console: &Console) -> Result<u8, ExpectedError> {
    let failed = |why: StoreError| history::store_error(&why);
    match command {
        ServeCommand::Retention { .. } => {
            let runs = store.retain().await.map_err(failed)?;
            console.line(&format!("removed the figures of {runs} expired runs"));
        }
        ServeCommand::Check { .. } => {
            let faults = store.check().await.map_err(failed)?;
            if !faults.is_empty() {
                console.text(&format!("{}\n", faults.join("\n")))?;
                return Err(ExpectedError::Machinery {
                    what: format!("{} faults in the history", faults.len()),
                    hint: "restore a backup: `memgate serve restore`".to_owned(),
                });
            }
            console.line("no fault found in the history");
        }
        ServeCommand::Backup { file, .. } => {
            let rows = store.backup(file).await.map_err(failed)?;
            console.line(&format!("{rows} rows were copied into {}", file.display()));
        }
        ServeCommand::Restore { file, .. } => {
            let rows = store.restore(file).await.map_err(failed)?;
            console.line(&format!("{rows} rows were restored from {}", file.display()));
        }
        _ => {}
    }
    Ok(exit::PASS)
}

/// Removes expired data at the start, and then once a day.
pub(super) async fn every_day(
    store: Store,
    artefacts: Option<Artefacts>,
    log: Arc<dyn Fn(&str) + Send + Sync>,
) -> Infallible {
    loop {
        if let Err(why) = store.retain().await {
            log(&format!(
                "what has ended is still there, and is tried again tomorrow: {}",
                history::store_error(&why)
            ));
        }
        if let Some(artefacts) = &artefacts {
            let now_us = jiff::Timestamp::now().as_microsecond();
            for removed in [artefacts.retain(&store, now_us).await, artefacts.remove_parts()] {
                if let Err(why) = removed {
                    log(&format!(
                        "old artefacts are still there, and are tried again tomorrow: failed to {why}"
                    ));
                }
            }
        }
        tokio::time::sleep(DAY).await;
    }
}
