//! Opens a store by its address.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::any::{AnyPoolOptions, install_default_drivers};
use sqlx::{AnyConnection, Connection as _, Executor as _};

use super::tickets::Secret;
use super::{Store, StoreError, schema};
use crate::percent::encoded_path;

/// How long to wait for the write of another program.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the database may take to answer at all.
const CONNECTING: Duration = Duration::from_secs(15);
/// Finds a table in the database of another program: such a file is not changed.
const FOREIGN: &str = "SELECT name FROM sqlite_master WHERE type = 'table' \
     AND NOT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'memgate_schema') LIMIT 1";
const SQLITE: &str = "PRAGMA busy_timeout = 60000; PRAGMA trusted_schema = OFF; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL";
/// For a file that does not change while it is read.
const SQLITE_TO_READ: &str = "PRAGMA trusted_schema = OFF; PRAGMA query_only = ON";
const SQLITE_CONNECTIONS: u32 = 4;
/// Errors of SQLite if the file, or its folder, cannot be written.
const REFUSED: [&str; 2] = ["readonly database", "unable to open database file"];
/// Advice for errors of the database.
const HINTS: [(&str, &str); 7] = [
    ("not a database", "it is no history; move it away, and the next run makes a new one"),
    (
        "malformed",
        "the file is damaged: move it away; then `memgate serve restore` a backup, or the next run makes a new one",
    ),
    ("disk is full", "make room, then `memgate history add SESSION` adds the run"),
    // The index of the log (`history.db-shm`) finds no room.
    ("disk I/O error", "if the disk is full, make room; then `memgate history add SESSION` adds the run"),
    ("is locked", "another program has it open and writes to it: try again when that has ended"),
    (
        REFUSED[0],
        "this user cannot write it or its folder: run as their owner, or change the owner; `memgate history` reads it as it is",
    ),
    (
        REFUSED[1],
        "this user cannot open it, or cannot write its folder: run as their owner, or change the owner",
    ),
];
const POSTGRES_CONNECTIONS: u32 = 16;

impl Store {
    /// Opens `sqlite:FILE` or `postgres://…`, and creates what is missing.
    ///
    /// # Errors
    /// It cannot be opened, or belongs to another program.
    pub async fn open(address: &str) -> Result<Self, StoreError> {
        if let Some(path) = address.strip_prefix("sqlite:") {
            make_file(Path::new(path))?;
        }
        connect(address, Access::Full).await
    }

    /// Opens an existing store.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    pub async fn open_existing(address: &str) -> Result<Self, StoreError> {
        match address.strip_prefix("sqlite:") {
            Some(path) if !Path::new(path).is_file() => Err(StoreError::Missing(path.to_owned())),
            _ => connect(address, Access::Full).await,
        }
    }

    /// Opens an existing store to read it. The file may be read-only here, such as a CI artefact.
    ///
    /// # Errors
    /// There is none, it cannot be opened, or its last changes are still in the `-wal` file of its writer.
    pub async fn open_to_read(address: &str) -> Result<Self, StoreError> {
        match Self::open_existing(address).await {
            Err(StoreError::Open { source, .. }) if is_refused(&source) => {
                connect(address, Access::ReadOnly).await
            }
            opened => opened,
        }
    }

    /// Opens a backup without changing it.
    pub(super) async fn open_backup(file: &Path) -> Result<Self, StoreError> {
        let address = format!("sqlite:{}", file.display());
        if Path::new(&format!("{}-wal", file.display())).exists() || !file.is_file() {
            // Somebody has it open: it is no backup, but a history.
            return Self::open_existing(&address).await;
        }
        connect(&address, Access::ReadOnly).await
    }

    /// Closes all connections; added runs stay.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// How a file may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Full,
    /// Nobody writes to it while it is read.
    ReadOnly,
}

async fn connect(address: &str, access: Access) -> Result<Store, StoreError> {
    install_default_drivers();
    let is_read_only = access == Access::ReadOnly;
    let is_postgres = is_postgres(address);
    let url = match address.strip_prefix("sqlite:") {
        Some(path) if is_read_only => {
            whole(path)?;
            format!("sqlite:{}?mode=ro&immutable=true", encoded_path(path))
        }
        Some(path) => format!("sqlite:{}?mode=rw", encoded_path(path)),
        None if is_postgres => address.to_owned(),
        None => return Err(StoreError::Address(without_password(address))),
    };
    let most = if is_postgres { POSTGRES_CONNECTIONS } else { SQLITE_CONNECTIONS };
    let options = AnyPoolOptions::new().max_connections(most).acquire_timeout(PATIENCE);
    // On a full disk SQLite ends the transaction itself. sqlx 0.9 assumes that it is still open, and begins no other.
    let options = options.before_acquire(|connection, _| {
        let is_free = !connection.is_in_transaction();
        Box::pin(async move { Ok(is_free) })
    });
    let options = options.after_connect(move |connection: &mut AnyConnection, _| {
        Box::pin(async move {
            if !is_postgres {
                connection.execute(if is_read_only { SQLITE_TO_READ } else { SQLITE }).await?;
            }
            Ok(())
        })
    });
    // A pool retries until its timeout, and then reports the timeout instead of the cause.
    let mut first = first_connection(&url, CONNECTING).await.map_err(failed(address))?;
    let secret = prepare(&mut first, address, access).await?;
    first.close().await.map_err(failed(address))?;
    let pool = options.connect(&url).await.map_err(failed(address))?;
    Ok(Store { pool, is_postgres, secret, prepared: Arc::default() })
}

/// Connects to a database that answers within `limit`. sqlx itself waits for ever.
async fn first_connection(url: &str, limit: Duration) -> Result<AnyConnection, sqlx::Error> {
    let silent = || sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "it does not answer"));
    tokio::time::timeout(limit, AnyConnection::connect(url)).await.unwrap_or_else(|_| Err(silent()))
}

/// Checks that the database is ours, and makes or checks its tables.
async fn prepare(first: &mut AnyConnection, address: &str, access: Access) -> Result<Secret, StoreError> {
    let is_postgres = is_postgres(address);
    if !is_postgres {
        if first.fetch_optional(FOREIGN).await.map_err(failed(address))?.is_some() {
            return Err(StoreError::Foreign(without_password(address)));
        }
        if access == Access::Full {
            // Must be set before the first table is created: it frees the space of removed rows.
            first.execute("PRAGMA auto_vacuum = INCREMENTAL").await.map_err(failed(address))?;
            first.execute(SQLITE).await.map_err(failed(address))?;
        }
    }
    let migrated = match access {
        Access::ReadOnly => schema::check(first, address).await,
        Access::Full => schema::migrate(first, is_postgres).await,
    };
    let secret = match migrated {
        Ok(()) => Secret::read(first).await,
        Err(why) => Err(why),
    };
    secret.map_err(|why| match why {
        StoreError::Database(source) => failed(address)(source),
        why => why,
    })
}

fn is_postgres(address: &str) -> bool {
    address.starts_with("postgres://") || address.starts_with("postgresql://")
}

/// An error while the database is opened, with advice.
fn failed(address: &str) -> impl Fn(sqlx::Error) -> StoreError {
    move |source| {
        let text = source.to_string();
        let hint = HINTS.iter().find(|(part, _)| text.contains(part)).map(|(_, hint)| *hint);
        StoreError::Open { address: without_password(address), hint, source }
    }
}

fn is_refused(why: &sqlx::Error) -> bool {
    let text = why.to_string();
    REFUSED.iter().any(|refused| text.contains(refused))
}

/// The last changes may still be in the `-wal` file, which only a writer can read.
fn whole(path: &str) -> Result<(), StoreError> {
    let beside = format!("{path}-wal");
    match std::fs::metadata(&beside) {
        Ok(about) if about.len() > 0 => Err(StoreError::HalfWritten(path.to_owned())),
        _ => Ok(()),
    }
}

/// Creates the file for its user only, like sessions.
fn make_file(path: &Path) -> Result<(), StoreError> {
    let failed =
        |why: std::io::Error| StoreError::Make { path: path.display().to_string(), why: why.to_string() };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(failed)?;
    }
    if path.is_symlink() {
        // A checkout may contain a symlink to somebody's other database.
        return Err(failed(std::io::Error::other("it is a link: remove it")));
    }
    File::options().append(true).create(true).mode(0o600).open(path).map(drop).map_err(failed)
}

/// An address that may be shown: without user, password and parameters.
///
/// If an `@` follows the host, the password cannot be found: then only the scheme is shown.
#[must_use]
pub fn without_password(address: &str) -> String {
    if address.starts_with("sqlite:") || !address.contains(['@', '?']) {
        return address.to_owned();
    }
    let Some((scheme, rest)) = address.split_once("://") else { return "an address".to_owned() };
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if path.contains('@') {
        return format!("{scheme}://…");
    }
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{}", path.split('?').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_user_password_and_parameters() {
        for (address, shown) in [
            (
                "postgres://u:p%40@db.example.com:5432/memgate?sslpassword=x",
                "postgres://db.example.com:5432/memgate",
            ),
            ("postgres:///memgate?host=/run&password=x", "postgres:///memgate"),
            ("postgres://u:se/cret@db/memgate", "postgres://…"),
            ("postgres://u:se?cret@db/memgate", "postgres://…"),
            ("postgres:///memgate?password=x@y", "postgres://…"),
            ("postgres:u:secret@db/memgate", "an address"),
            ("history.db", "history.db"),
            ("sqlite:.memgate/a@b.db", "sqlite:.memgate/a@b.db"),
        ] {
            assert_eq!(without_password(address), shown);
        }
    }

    /// Regression: every command waited for ever.
    #[test]
    fn a_database_that_accepts_and_says_nothing_is_an_error() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("postgres://memgate@{}/memgate", silent.local_addr().unwrap());
        install_default_drivers();
        let connected = super::super::tests::block_on(first_connection(&url, Duration::from_millis(50)));
        assert!(connected.unwrap_err().to_string().contains("it does not answer"));
    }

    #[test]
    fn a_history_that_cannot_be_written_is_named_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        std::fs::create_dir(&path).unwrap();
        let told = make_file(&path).unwrap_err().to_string();
        assert!(
            told.contains(path.to_str().unwrap()) && told.contains("hint: this user must be able"),
            "{told}"
        );
    }
}
