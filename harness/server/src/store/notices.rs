//! What people are still to be told: changes of leaks on lines and figures at a higher level, each once for each
//! channel.
//!
//! Data flow: events of the last day that nobody has claimed for a channel → a claim for each, which one server of
//! several gets → [`Notice`]s, one for each run → the caller sends them → [`Store::told`]. A claim that ends in
//! nothing (the server was killed, the mail server was away) is free again after [`LEASE_US`]. A line with new runs →
//! its newest runs → figures that a run showed at a higher level since this channel was told last.

use std::collections::BTreeMap;

use memgate_model::Leak;
use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, Row as _};

use super::ids::Ids;
use super::read::{leak_of, run_row, stage};
use super::read_leaks::shown_state;
use super::{Shifted, Store, StoreError, statements as sql};
use crate::view::{RunRow, State};

/// Nobody wants to be told of what is older: a history that was copied here would be told as a whole.
const NEWS_US: i64 = 24 * 3600 * 1_000_000;
/// How long a claim holds.
pub const LEASE_US: i64 = 10 * 60 * 1_000_000;

/// What a run changed, and nobody was told of yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    /// The project.
    pub project: String,
    /// The run that showed it.
    pub run: RunRow,
    /// The leaks it changed.
    pub changes: Vec<Change>,
    /// The figures that it showed at a higher level.
    pub shifts: Vec<Shifted>,
    keys: Vec<Key>,
    line: Option<Line>,
}

/// A leak whose state has changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Its state now: new, regressed, fixed or gone.
    pub state: State,
    /// The leak.
    pub leak: Leak,
    /// The tests that had it last, as `suite::Test.name`.
    pub tests: Vec<String>,
}

/// Project, channel, branch, environment, and the run up to which shifts were looked for.
type Line = (i64, String, i64, i64, i64);

/// Project, channel, branch, leak, state, commit.
type Key = (i64, String, i64, i64, i64, String);

impl Store {
    /// Claims for a channel what nobody was told of; `now_us` is the time now.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn claim_notices(&self, channel: &str, now_us: i64) -> Result<Vec<Notice>, StoreError> {
        let mut notices = Vec::new();
        for name in self.projects().await? {
            if let Some(project) = self.project(&name).await? {
                notices.extend(self.claim_of((project, &name), channel, now_us).await?);
                notices.extend(self.claim_shifts((project, &name), channel, now_us).await?);
            }
        }
        Ok(notices)
    }

    async fn claim_of(
        &self,
        (project, name): (i64, &str),
        channel: &str,
        now_us: i64,
    ) -> Result<Vec<Notice>, StoreError> {
        let rows = sqlx::query(sql::DUE_NOTICES)
            .bind(project)
            .bind(channel.to_owned())
            .bind(Ids::least(now_us - NEWS_US))
            .bind(now_us - LEASE_US)
            .fetch_all(&self.pool)
            .await?;
        let mut runs = BTreeMap::<i64, (Vec<Change>, Vec<Key>)>::new();
        for row in rows {
            let (branch, leak, state): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let key = (project, channel.to_owned(), branch, leak, state, row.try_get::<String, _>(3)?);
            if !self.claim(&key, now_us).await? {
                continue;
            }
            let (changes, keys) = runs.entry(row.try_get(4)?).or_default();
            let tests = self.tests_of_leak(project, leak).await?.into_iter();
            let mut tests: Vec<String> =
                tests.filter(|((of, _), _)| *of == branch).flat_map(|(_, tests)| tests).collect();
            tests.sort();
            tests.dedup();
            changes.push(Change { state: shown_state(stage(state)?), leak: leak_of(&row, 5)?.leak, tests });
            keys.push(key);
        }
        let mut notices = Vec::with_capacity(runs.len());
        for (run, (changes, keys)) in runs {
            let row = sqlx::query(sql::RUN).bind(project).bind(run).fetch_one(&self.pool).await?;
            let run = run_row(&row)?;
            notices.push(Notice {
                project: name.to_owned(),
                run,
                changes,
                shifts: Vec::new(),
                keys,
                line: None,
            });
        }
        Ok(notices)
    }

    /// Figures that came to a higher level since a channel was told last, one notice for each line.
    async fn claim_shifts(
        &self,
        (project, name): (i64, &str),
        channel: &str,
        now_us: i64,
    ) -> Result<Vec<Notice>, StoreError> {
        let mut notices = Vec::new();
        let lines = sqlx::query(sql::LAST_OF_LINES).bind(project).bind(now_us - NEWS_US);
        for row in lines.fetch_all(&self.pool).await? {
            let (branch, environment): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            let Some(last) = row.try_get::<Option<i64>, _>(2)? else { continue };
            let key = |statement: &'static str| {
                sqlx::query(statement).bind(project).bind(channel.to_owned()).bind(branch).bind(environment)
            };
            key(sql::BEGIN_SHIFTS).bind(last).execute(&self.pool).await?;
            let told: i64 = key(sql::TOLD_SHIFTS).fetch_one(&self.pool).await?.try_get(0)?;
            if told >= last {
                continue;
            }
            let found = self.shifts_since((project, branch, environment), told).await?;
            let line = (project, channel.to_owned(), branch, environment, last);
            let Some(run) = found.iter().map(|(run, _)| *run).max() else {
                self.told_line(&line).await?;
                continue;
            };
            let claim = key(sql::CLAIM_SHIFTS).bind(told).bind(now_us).bind(now_us - LEASE_US);
            if claim.execute(&self.pool).await?.rows_affected() != 1 {
                continue;
            }
            let row = sqlx::query(sql::RUN).bind(project).bind(run).fetch_one(&self.pool).await?;
            notices.push(Notice {
                project: name.to_owned(),
                run: run_row(&row)?,
                changes: Vec::new(),
                shifts: found.into_iter().map(|(_, shifted)| shifted).collect(),
                keys: Vec::new(),
                line: Some(line),
            });
        }
        Ok(notices)
    }

    async fn told_line(
        &self,
        (project, channel, branch, environment, last): &Line,
    ) -> Result<(), StoreError> {
        let query = sqlx::query(sql::SET_TOLD_SHIFTS).bind(*project).bind(channel.clone()).bind(*branch);
        query.bind(*environment).bind(*last).execute(&self.pool).await?;
        Ok(())
    }

    /// Is it ours? Of two servers that ask, one gets it.
    async fn claim(&self, key: &Key, now_us: i64) -> Result<bool, StoreError> {
        let claimed =
            keyed(sql::CLAIM_NOTICE, key).bind(now_us).bind(now_us - LEASE_US).execute(&self.pool).await?;
        Ok(claimed.rows_affected() == 1)
    }

    /// A notice has been sent: nobody is told of it again.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn told(&self, notice: &Notice, now_us: i64) -> Result<(), StoreError> {
        for key in &notice.keys {
            keyed(sql::TOLD_NOTICE, key).bind(now_us).execute(&self.pool).await?;
        }
        if let Some(line) = &notice.line {
            self.told_line(line).await?;
        }
        Ok(())
    }
}

/// A statement whose first values are a key.
fn keyed(statement: &'static str, key: &Key) -> Query<'static, Any, AnyArguments> {
    let (project, channel, branch, leak, state, commit) = key.clone();
    sqlx::query(statement).bind(project).bind(channel).bind(branch).bind(leak).bind(state).bind(commit)
}
