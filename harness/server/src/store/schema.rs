//! The tables, one text for SQLite and PostgreSQL, and the migration of a database to this program's version.
//!
//! Every key begins with `project_id`: rows of a project are adjacent, and a database sharded by project needs no other
//! statement. Times are microseconds since 1970; the program creates the ids.

use std::cmp::Ordering;

use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Row as _};

use super::tickets::Secret;
use super::{StoreError, retention};

/// Text of each version, applied in this order. A released one is never changed.
pub(super) const VERSIONS: [&str; 8] = [
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    // Corrects times from clocks that were ahead.
    include_str!("schema/4.sql"),
    // Adds the secret for tickets.
    include_str!("schema/5.sql"),
    // Adds the reasons of runs that did not simply pass.
    include_str!("schema/6.sql"),
    // Finds runs with uncommitted changes by their commit. Older programs do not know the selection of a run.
    include_str!("schema/7.sql"),
    // Adds an event: a known leak is larger.
    include_str!("schema/8.sql"),
];

const CREATE: &str = "CREATE TABLE IF NOT EXISTS memgate_schema (version BIGINT NOT NULL PRIMARY KEY)";
const VERSION: &str = "SELECT MAX(version) FROM memgate_schema";
const APPLIED: &str = "INSERT INTO memgate_schema (version) VALUES ($1)";

/// Migrates a database to the version of this program.
///
/// # Errors
/// It cannot be read or written, or a newer program has changed it.
pub(super) async fn migrate(connection: &mut AnyConnection, is_postgres: bool) -> Result<(), StoreError> {
    if !is_postgres && version(connection).await.ok() == Some(VERSIONS.len()) {
        // Nothing to do: so nothing is locked.
        return Ok(());
    }
    let begin = if is_postgres { "BEGIN" } else { "BEGIN IMMEDIATE" };
    let mut transaction = connection.begin_with(begin).await?;
    if is_postgres {
        sqlx::query(retention::LOCK).execute(&mut *transaction).await?;
    }
    sqlx::query(CREATE).execute(&mut *transaction).await?;
    let done = version(&mut transaction).await?;
    if done > VERSIONS.len() {
        return Err(StoreError::Newer { found: done, known: VERSIONS.len() });
    }
    for (number, text) in VERSIONS.iter().enumerate().skip(done) {
        let text = match is_postgres {
            true => (*text).to_owned(),
            false => text.replace("BYTEA", "BLOB").replace(" PARTITION BY RANGE (expires)", ""),
        };
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *transaction).await?;
        let number = i64::try_from(number + 1).unwrap_or(i64::MAX);
        sqlx::query(APPLIED).bind(number).execute(&mut *transaction).await?;
    }
    Secret::make(&mut transaction).await?;
    if is_postgres {
        retention::make_partitions(&mut transaction, retention::this_month()).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// Checks that a read-only database has this program's version.
///
/// # Errors
/// It cannot be read, or is of another version.
pub(super) async fn check(connection: &mut AnyConnection, address: &str) -> Result<(), StoreError> {
    let (found, known) = (version(connection).await?, VERSIONS.len());
    match found.cmp(&known) {
        Ordering::Less => Err(StoreError::Older { address: address.to_owned(), found, known }),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(StoreError::Newer { found, known }),
    }
}

/// The tables of a copy in the order of their creation, each with its columns and their types. The secret is not
/// copied: a copy has its own.
pub(super) fn tables() -> Vec<(String, Vec<(String, String)>)> {
    let text = VERSIONS.concat();
    let table = |text: &str| {
        let (name, rest) = text.split_once(" (")?;
        let columns = rest.split(',').map(str::trim).map_while(|column| {
            let mut words = column.split_whitespace();
            let (name, kind) = (words.next()?, words.next()?);
            ["BIGINT", "TEXT", "DOUBLE", "BYTEA"].contains(&kind).then(|| (name.to_owned(), kind.to_owned()))
        });
        Some((name.to_owned(), columns.collect()))
    };
    text.split("CREATE TABLE ").skip(1).filter_map(table).filter(|(name, _)| name != "secret").collect()
}

async fn version(connection: &mut AnyConnection) -> Result<usize, sqlx::Error> {
    let row = sqlx::query(VERSION).fetch_one(connection).await?;
    let version: Option<i64> = row.try_get(0)?;
    Ok(version.and_then(|version| usize::try_from(version).ok()).unwrap_or(0))
}
