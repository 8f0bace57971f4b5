//! A copy of all rows as a SQLite file, and the way back, from and into either database.
//!
//! Data flow: one transaction that sees a single moment → each table, row by row → a file beside the one that was named
//! → its name. Back: a file → an empty database, in one transaction. Runs are added meanwhile as always.

use std::fs;
use std::path::Path;

use futures_util::TryStreamExt as _;
use sqlx::{AnyConnection, AssertSqlSafe, Executor as _, Row as _};

use super::{Store, StoreError, retention, schema};

/// Nothing but a new database is written into.
const ANY: [&str; 3] = [
    "SELECT project_id FROM project LIMIT 1",
    "SELECT created_us FROM token LIMIT 1",
    "SELECT created_us FROM oidc_rule LIMIT 1",
];

impl Store {
    /// Copies everything into a new SQLite file; how many rows that are.
    ///
    /// # Errors
    /// The file exists, or cannot be written; the database cannot be read.
    pub async fn backup(&self, file: &Path) -> Result<u64, StoreError> {
        let named = file.display().to_string();
        if file.exists() {
            return Err(StoreError::NotEmpty(named));
        }
        let part = format!("{named}.part");
        let failed = |why: std::io::Error| StoreError::Make { path: named.clone(), why: why.to_string() };
        if Path::new(&part).exists() {
            fs::remove_file(&part).map_err(failed)?;
        }
        let target = Self::open(&format!("sqlite:{part}")).await?;
        let copied = self.copy_into(&target).await;
        target.close().await;
        if copied.is_err() {
            fs::remove_file(&part).map_err(failed)?;
        }
        let rows = copied?;
        fs::File::open(&part).and_then(|file| file.sync_all()).map_err(failed)?;
        fs::rename(&part, file).map_err(failed)?;
        Ok(rows)
    }

    /// Copies everything of a backup into this store, which has to be empty; how many rows that are.
    ///
    /// # Errors
    /// The store has projects or tokens; the file is no backup, or the database cannot be written.
    pub async fn restore(&self, file: &Path) -> Result<u64, StoreError> {
        let source = Self::open_existing(&format!("sqlite:{}", file.display())).await?;
        let copied = source.copy_into(self).await;
        source.close().await;
        copied
    }

    async fn copy_into(&self, target: &Self) -> Result<u64, StoreError> {
        let begin =
            if self.is_postgres { "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" } else { "BEGIN" };
        let mut from = self.pool.begin_with(begin).await?;
        let begin = if target.is_postgres { "BEGIN" } else { "BEGIN IMMEDIATE" };
        let mut to = target.pool.begin_with(begin).await?;
        for statement in ANY {
            if to.fetch_optional(statement).await?.is_some() {
                return Err(StoreError::NotEmpty("the history".to_owned()));
            }
        }
        if target.is_postgres {
            let mut months = Vec::new();
            for table in retention::TABLES {
                let text = format!("SELECT DISTINCT expires FROM {table}");
                for row in sqlx::query(AssertSqlSafe(text)).fetch_all(&mut *from).await? {
                    months.push(row.try_get(0)?);
                }
            }
            retention::make_partitions_of(&mut to, months).await?;
        }
        let mut rows = 0;
        for (table, columns) in schema::tables() {
            rows += copy(&mut from, &mut to, &table, &columns).await?;
        }
        to.commit().await?;
        Ok(rows)
    }
}

async fn copy(
    from: &mut AnyConnection,
    to: &mut AnyConnection,
    table: &str,
    columns: &[(String, String)],
) -> Result<u64, StoreError> {
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(", ");
    let values: Vec<String> = (1..=columns.len()).map(|number| format!("${number}")).collect();
    let add = format!("INSERT INTO {table} ({names}) VALUES ({})", values.join(", "));
    let mut rows = sqlx::query(AssertSqlSafe(format!("SELECT {names} FROM {table}"))).fetch(from);
    let mut copied = 0;
    while let Some(row) = rows.try_next().await? {
        let mut query = sqlx::query(AssertSqlSafe(add.clone()));
        for (at, (_, kind)) in columns.iter().enumerate() {
            query = match kind.as_str() {
                "BIGINT" => query.bind(row.try_get::<Option<i64>, _>(at)?),
                "DOUBLE" => query.bind(row.try_get::<Option<f64>, _>(at)?),
                "BYTEA" => query.bind(row.try_get::<Option<Vec<u8>>, _>(at)?),
                _ => query.bind(row.try_get::<Option<String>, _>(at)?),
            };
        }
        query.execute(&mut *to).await?;
        copied += 1;
    }
    Ok(copied)
}
