//! Backup of all rows into a SQLite file, and restore, from and into either database.
//!
//! Data flow: one transaction with a consistent snapshot → each table, row by row → a file beside the named one →
//! renamed. Restore: a file → an empty database, in one transaction. Runs can be added during a backup.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use futures_util::TryStreamExt as _;
use sqlx::{AnyConnection, AssertSqlSafe, Executor as _, Row as _};

use super::{Store, StoreError, retention, schema};

/// Finds existing rows: only a new database is written into.
const ANY: [&str; 3] = [
    "SELECT project_id FROM project LIMIT 1",
    "SELECT created_us FROM token LIMIT 1",
    "SELECT created_us FROM oidc_rule LIMIT 1",
];

impl Store {
    /// Copies everything into a new SQLite file; returns the number of rows.
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

    /// Copies a backup into this store, which has to be empty; returns the number of rows. The backup is not changed.
    ///
    /// # Errors
    /// The store has projects or tokens; the file is no backup, or the database cannot be written.
    pub async fn restore(&self, file: &Path) -> Result<u64, StoreError> {
        let source = match Self::open_backup(file).await {
            Err(StoreError::Older { .. }) => return self.restore_older(file).await,
            opened => opened?,
        };
        self.take_all(source).await
    }

    /// Restores from a migrated copy: the older program can still use the backup.
    async fn restore_older(&self, file: &Path) -> Result<u64, StoreError> {
        let part = format!("{}.part", file.display());
        let failed = |why: std::io::Error| StoreError::Make { path: part.clone(), why: why.to_string() };
        if Path::new(&part).exists() {
            fs::remove_file(&part).map_err(failed)?;
        }
        let copy = File::options().write(true).create_new(true).mode(0o600).open(&part);
        let copied = copy.and_then(|mut copy| io::copy(&mut File::open(file)?, &mut copy));
        let restored = match copied.map_err(failed) {
            Ok(_) => match Self::open_existing(&format!("sqlite:{part}")).await {
                Ok(source) => self.take_all(source).await,
                Err(why) => Err(why),
            },
            Err(why) => Err(why),
        };
        fs::remove_file(&part).map_err(failed)?;
        restored
    }

    async fn take_all(&self, source: Self) -> Result<u64, StoreError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{add_one, block_on, sqlite};

    #[test]
    fn a_backup_stays_as_it_is_also_one_of_an_older_program() {
        let folder = tempfile::tempdir().unwrap();
        block_on(async {
            let store = sqlite(&folder, "history.db").await;
            add_one(&store).await;
            let file = folder.path().join("backup.db");
            let rows = store.backup(&file).await.unwrap();
            for (name, older) in [("same.db", false), ("older.db", true)] {
                if older {
                    let backup = sqlite(&folder, "backup.db").await;
                    for text in [
                        "DROP TABLE secret",
                        "DROP TABLE run_reason",
                        "DELETE FROM memgate_schema WHERE version > 4",
                    ] {
                        backup.pool.execute(text).await.unwrap();
                    }
                    backup.close().await;
                    let read = Store::open_backup(&file).await.unwrap_err().to_string();
                    assert!(
                        read.contains("an older memgate wrote it (version 4, this one needs 8)"),
                        "{read}"
                    );
                }
                let before = fs::read(&file).unwrap();
                let restored = sqlite(&folder, name).await;
                assert_eq!(restored.restore(&file).await.unwrap(), rows);
                restored.close().await;
                assert!(before == fs::read(&file).unwrap(), "{name}");
            }
            store.close().await;
        });
        let left = fs::read_dir(folder.path()).unwrap().flatten().map(|file| file.file_name());
        assert_eq!(left.filter(|name| name.to_string_lossy().contains(".part")).count(), 0);
    }
}
