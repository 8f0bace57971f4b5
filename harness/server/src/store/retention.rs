//! Retention: figures of runs expire after a year, rows of reviews after two months.
//!
//! Data flow: the month in which a run is received, and whether it counts for a line → [`Ends`] → the rows' `expires`
//! (year × 12 + month − 1). A month is over when a run of a later month is a day old; the clock alone proves nothing.
//! Then PostgreSQL drops its partitions, SQLite deletes run by run, and the runs are marked (`expires` 0). Runs, leaks,
//! lives and events stay, and so do the sightings of a line: lives are folded from them.

use std::sync::atomic::Ordering;

use sqlx::{Any, AnyConnection, AssertSqlSafe, Executor as _, Row as _, Transaction};

use super::ids::Ids;
use super::transaction::Adding;
use super::{Store, StoreError, statements as sql};

/// If two programs start or create partitions at the same time, one waits for the other.
pub(super) const LOCK: &str = "SELECT pg_advisory_xact_lock(7377)";

/// Months for which figures of a line are kept.
const LINES: i64 = 12;
/// Months for which rows of reviews are kept.
const REVIEWS: i64 = 2;
/// A clock that is ahead for an hour expires nothing: a month is over when a run of a later month is this old.
const SETTLED_US: i64 = 24 * 3600 * 1_000_000;
/// A month that never comes.
const NEVER: i64 = 9_999_999;
/// Months for which partitions are created in advance.
const AHEAD: i64 = 2;
/// The tables with partitions.
pub(super) const TABLES: [&str; 3] = ["run_column", "exception", "sighting"];
const PARTITIONS: &str = "SELECT CAST(c.relname AS TEXT) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
     JOIN pg_class p ON p.oid = i.inhparent WHERE p.oid = CAST(CAST($1 AS TEXT) AS regclass)";

/// When the rows of a run expire.
pub(super) struct Ends {
    /// Its columns.
    pub(super) figures: i64,
    /// Its exceptions and sightings.
    pub(super) rest: i64,
}

impl Ends {
    pub(super) fn of(received_us: i64, on_line: bool) -> Self {
        let now = month(received_us);
        match on_line {
            true => Self { figures: now + LINES, rest: NEVER },
            false => Self { figures: now + REVIEWS, rest: now + REVIEWS },
        }
    }
}

/// The month of a time, counted from year 0.
pub(super) fn month(at_us: i64) -> i64 {
    let at = jiff::Timestamp::from_microsecond(at_us).unwrap_or_default().to_zoned(jiff::tz::TimeZone::UTC);
    i64::from(at.year()) * 12 + i64::from(at.month()) - 1
}

pub(super) fn this_month() -> i64 {
    month(jiff::Timestamp::now().as_microsecond())
}

impl Store {
    /// Removes expired rows; returns the number of runs.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn retain(&self) -> Result<u64, StoreError> {
        self.retain_at(jiff::Timestamp::now().as_microsecond()).await
    }

    /// Removes expired rows as if at that time.
    pub(super) async fn retain_at(&self, now_us: i64) -> Result<u64, StoreError> {
        let settled = self.settled_us(now_us).await?.map(month);
        if self.is_postgres {
            let mut transaction = self.change_partitions().await?;
            make_partitions(&mut transaction, month(now_us)).await?;
            transaction.commit().await?;
        }
        match settled {
            Some(month) => self.retain_from(month).await,
            None => Ok(0),
        }
    }

    /// A time that has certainly passed: when the newest run was received, not counting the last day. None: there is no
    /// such run.
    pub(super) async fn settled_us(&self, now_us: i64) -> Result<Option<i64>, StoreError> {
        let mut settled = None;
        for row in sqlx::query(sql::PROJECT_IDS).fetch_all(&self.pool).await? {
            let project: i64 = row.try_get(0)?;
            settled = settled.max(settled_us(&mut *self.pool.acquire().await?, project, now_us).await?);
        }
        Ok(settled)
    }

    /// Removes rows that expired before that month.
    pub(super) async fn retain_from(&self, month: i64) -> Result<u64, StoreError> {
        if self.is_postgres {
            let mut transaction = self.change_partitions().await?;
            drop_partitions(&mut transaction, month).await?;
            transaction.commit().await?;
            self.prepared.store(0, Ordering::Relaxed);
        }
        let mut runs = 0;
        for row in sqlx::query(sql::PROJECT_IDS).fetch_all(&self.pool).await? {
            let project: i64 = row.try_get(0)?;
            if self.is_postgres {
                let marked =
                    sqlx::query(sql::SET_EXPIRED).bind(project).bind(month).execute(&self.pool).await?;
                runs += marked.rows_affected();
                continue;
            }
            loop {
                let transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
                let mut removing = Adding { transaction, project, ids: Ids::new(0) };
                let removed = removing.remove_expired(month).await?;
                removing.transaction.commit().await?;
                if removed == 0 {
                    break;
                }
                runs += removed;
            }
        }
        if !self.is_postgres {
            sqlx::query("PRAGMA incremental_vacuum").fetch_all(&self.pool).await?;
        }
        Ok(runs)
    }

    /// Makes sure that runs of this month have partitions before one is added: after a clock change or a sleep of the
    /// machine, there may be none for the month.
    pub(super) async fn prepare(&self, month: i64) -> Result<(), StoreError> {
        if !self.is_postgres || self.prepared.load(Ordering::Relaxed) == month {
            return Ok(());
        }
        let mut transaction = self.change_partitions().await?;
        make_partitions(&mut transaction, month).await?;
        transaction.commit().await?;
        self.prepared.store(month, Ordering::Relaxed);
        Ok(())
    }

    /// A transaction that may create and drop partitions. All servers take turns.
    async fn change_partitions(&self) -> Result<Transaction<'_, Any>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        // Does not wait for another program's long read while all writers wait behind this transaction.
        transaction.execute("SET LOCAL lock_timeout = '10s'").await?;
        sqlx::query(LOCK).execute(&mut *transaction).await?;
        Ok(transaction)
    }
}

/// When the newest run of the project was received, not counting the last day; none: there is no such run.
async fn settled_us(
    connection: &mut AnyConnection,
    project: i64,
    now_us: i64,
) -> Result<Option<i64>, StoreError> {
    let query = sqlx::query(sql::NEWEST_BEFORE).bind(project).bind(Ids::least(now_us - SETTLED_US));
    let newest: Option<i64> = query.fetch_one(connection).await?.try_get(0)?;
    Ok(newest.map(Ids::given_us))
}

impl Adding<'_> {
    /// Removes some expired rows of the project when a run is added.
    pub(super) async fn remove_ended(&mut self, now_us: i64) -> Result<(), StoreError> {
        let project = self.project;
        if let Some(settled) = settled_us(self.connection(), project, now_us).await? {
            self.remove_expired(month(settled)).await?;
        }
        Ok(())
    }

    /// Removes some expired rows of the project: a limited number, so that nobody waits long.
    async fn remove_expired(&mut self, month: i64) -> Result<u64, StoreError> {
        let project = self.project;
        let rows = sqlx::query(sql::EXPIRED).bind(project).bind(month).fetch_all(self.connection()).await?;
        let mut removed = 0;
        for row in rows {
            let run: i64 = row.try_get(0)?;
            for statement in [sql::REMOVE_COLUMNS, sql::REMOVE_EXCEPTIONS, sql::REMOVE_SIGHTINGS] {
                sqlx::query(statement).bind(project).bind(run).bind(month).execute(self.connection()).await?;
            }
            sqlx::query(sql::SET_RUN_EXPIRED).bind(project).bind(run).execute(self.connection()).await?;
            removed += 1;
        }
        Ok(removed)
    }
}

/// Creates the partitions of the months in which runs of this and the next ones expire.
pub(super) async fn make_partitions(connection: &mut AnyConnection, month: i64) -> Result<(), StoreError> {
    make_partitions_of(connection, (month..=month + LINES + AHEAD).chain([NEVER])).await
}

pub(super) async fn make_partitions_of(
    connection: &mut AnyConnection,
    months: impl IntoIterator<Item = i64> + Clone,
) -> Result<(), StoreError> {
    for table in TABLES {
        let known = partitions(connection, table).await?;
        for month in months.clone() {
            if !known.contains(&month) {
                let text = format!(
                    "CREATE TABLE {table}_{month} PARTITION OF {table} FOR VALUES FROM ({month}) TO ({})",
                    month + 1
                );
                sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *connection).await?;
            }
        }
    }
    Ok(())
}

async fn drop_partitions(connection: &mut AnyConnection, before: i64) -> Result<(), StoreError> {
    for table in TABLES {
        for month in partitions(connection, table).await? {
            if month < before {
                sqlx::raw_sql(AssertSqlSafe(format!("DROP TABLE {table}_{month}")))
                    .execute(&mut *connection)
                    .await?;
            }
        }
    }
    Ok(())
}

/// The months that have a partition.
async fn partitions(connection: &mut AnyConnection, table: &'static str) -> Result<Vec<i64>, StoreError> {
    let rows = sqlx::query(PARTITIONS).bind(table).fetch_all(connection).await?;
    let month = |name: &str| name.strip_prefix(table)?.strip_prefix('_')?.parse().ok();
    let names = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
    Ok(names.iter().filter_map(|name| month(name)).collect())
}
