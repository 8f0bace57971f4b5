//! The database of runs: a SQLite file, or PostgreSQL.
//!
//! Data flow: a manifest and a report → [`add`](Store::add): one transaction writes the run with its columns,
//! exceptions and sightings, then folds the life of every leak that the run affects (`lives`). Reads (`read_*`) fill
//! the values of [`view`](crate::view). `statements` has every statement, `schema` the tables.
//!
//! Nobody sees half a run: uncommitted rows are invisible. Runs of a project are added one after the other. A run is
//! identified by its key (project, pipeline, job, attempt, session), so adding it twice adds it once.

mod accounts;
mod add;
mod artefacts;
mod backup;
mod check;
mod ids;
#[cfg(test)]
mod keys;
mod line;
mod line_id;
mod lives;
mod notices;
mod open;
mod places;
mod read;
mod read_base;
mod read_compare;
mod read_leaks;
mod read_runs;
mod read_segments;
mod retention;
mod rows;
mod schema;
mod signed;
mod statements;
#[cfg(test)]
pub(crate) mod tests;
mod tickets;
mod tokens;
mod transaction;

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

pub use accounts::{Account, Reader, SESSION_US};
pub use notices::{Change, LEASE_US, Notice};
pub use open::without_password;
pub use read_base::Wanted;
#[cfg(test)]
pub(crate) use read_leaks::MOST_LEAKS;
pub use read_segments::{Series, Shifted};
pub use signed::{Provider, SignedRule};
use sqlx::AnyPool;
pub use tokens::{Grant, Shown, Signed, TokenRow};

use self::tickets::Secret;
use crate::view::{EventRow, NO_BRANCH, RunRow};

/// A database of runs.
#[derive(Debug, Clone)]
pub struct Store {
    pool: AnyPool,
    is_postgres: bool,
    secret: Secret,
    /// The month whose runs have their partitions; 0: not checked yet.
    prepared: Arc<AtomicI64>,
}

impl Store {
    /// How many runs are added at the same time: SQLite has one writer, and pages are read meanwhile.
    pub(crate) const fn writers(&self) -> usize {
        if self.is_postgres { 8 } else { 2 }
    }
}

/// The requested line of a project; empty: the line with the newest run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// Name of the branch.
    pub branch: String,
    /// Label of the environment.
    pub environment: String,
}

impl Choice {
    /// The line of a run.
    fn of(run: &RunRow) -> Self {
        let branch = if run.branch.is_empty() { NO_BRANCH } else { &run.branch };
        Self { branch: branch.to_owned(), environment: run.environment.clone() }
    }
}

/// A run that was added.
#[derive(Debug, Clone, PartialEq)]
pub struct Added {
    /// Its number.
    pub run: i64,
    /// It had been added before.
    pub already: bool,
    /// The events that it caused.
    pub events: Vec<EventRow>,
    /// The secret with which its sender may add its artefacts.
    pub ticket: String,
}

/// Why an operation of the store failed. The text goes after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be opened.
    #[error("open the history {address}{}", hint.map_or_else(String::new, |hint| format!(": {hint}")))]
    Open {
        /// Its address, without a password.
        address: String,
        /// Advice.
        hint: Option<&'static str>,
        /// The cause.
        source: sqlx::Error,
    },
    /// There is no history.
    #[error(
        "open the history {0}: there is none\nhint: `memgate run` adds itself, unless memgate.yaml has `history: off`"
    )]
    Missing(String),
    /// Its folder or file cannot be created.
    #[error(
        "make the history {path}: {why}\nhint: this user must be able to write this file and its folder: change their owner; `history: off` in memgate.yaml keeps none"
    )]
    Make {
        /// Its path.
        path: String,
        /// The cause.
        why: String,
    },
    /// It can only be read here, and its last changes are missing.
    #[error(
        "open the history {0}: it cannot be written here, and its last changes are in {0}-wal\nhint: copy both files into a folder of your own"
    )]
    HalfWritten(String),
    /// It can only be read here, and an older program wrote it.
    #[error(
        "open the history {address}: an older memgate wrote it (version {found}, this one needs {known}), and it cannot be written here\nhint: copy it into a folder of your own"
    )]
    Older {
        /// Its address.
        address: String,
        /// Its version.
        found: usize,
        /// The version of this program.
        known: usize,
    },
    /// A newer program has changed it.
    #[error(
        "read the history: a newer memgate wrote it (version {found}, this one knows {known})\nhint: use that memgate, or another file"
    )]
    Newer {
        /// Its version.
        found: usize,
        /// The newest version that this program knows.
        known: usize,
    },
    /// Another program holds it, or it is slow.
    #[error("add the run in time\nhint: `memgate history add SESSION` adds it later")]
    TooLong,
    /// A copy needs an empty target.
    #[error("write {0}: something is there already\nhint: name a new file, or an empty database")]
    NotEmpty(String),
    /// The database belongs to another program.
    #[error("open the history {0}: it is a database with other tables\nhint: name another file, or none")]
    Foreign(String),
    /// An address that names no database.
    #[error("open {0}: it is neither `sqlite:FILE` nor `postgres://…`")]
    Address(String),
    /// A different run has this key.
    #[error(
        "add the run: another run of the same session is in the history (run {0})\nhint: sessions of several machines need their CI's variables, or different names"
    )]
    Conflict(i64),
    /// The report cannot be stored.
    #[error(transparent)]
    Record(#[from] memgate_history::record::RecordError),
    /// The database contains invalid data.
    #[error(
        "read the history: {0}\nhint: the file is damaged; move it away, and the next run makes a new one"
    )]
    Broken(String),
    /// The system gives no random bytes.
    #[error("make a token: the system gives no random bytes")]
    Random(#[from] rustix::io::Errno),
    /// A value cannot be written as JSON.
    #[error("write a leak")]
    Json(#[from] serde_json::Error),
    /// The database fails.
    #[error("use the history")]
    Database(#[from] sqlx::Error),
}

impl StoreError {
    /// May a retry succeed without any repair? A database that does not answer may be back soon; damaged data stays
    /// damaged.
    pub(crate) fn may_pass(&self) -> bool {
        use sqlx::Error::{Database, Io, PoolClosed, PoolTimedOut};
        match self {
            Self::Database(Io(_) | PoolTimedOut | PoolClosed) => true,
            // PostgreSQL (five characters): no connection, no resources, shutting down. SQLite: busy, locked; the last
            // byte of its extended codes says which.
            Self::Database(Database(why)) => why.code().is_some_and(|code| match code.len() {
                5 => ["08", "53", "57"].iter().any(|class| code.starts_with(class)),
                _ => code.parse::<u32>().is_ok_and(|code| matches!(code & 0xff, 5 | 6)),
            }),
            _ => false,
        }
    }
}
