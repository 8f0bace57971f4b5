//! What the runs of a line say about a leak.
//!
//! Data flow: a run, the tests that ever had the leak, what it saw of it → [`Lookup::observe`] → an
//! observation. What many leaks need (rosters, suites, who was not judged) is read once.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use memgate_history::How;
use memgate_history::life::Observation;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::transaction::Adding;
use super::{StoreError, statements as sql};

/// A run of the line.
#[derive(Debug, Clone)]
pub(super) struct LineRun {
    pub(super) run: i64,
    pub(super) key: String,
    started_us: i64,
    roster: i64,
    is_partial: bool,
}

/// The sightings of a leak in one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) tests: BTreeSet<i64>,
    waived: bool,
    bytes: f64,
    count: f64,
}

#[derive(Debug)]
struct Roster {
    tests: BTreeSet<i64>,
    /// Read when somebody asks.
    suites: Option<BTreeSet<String>>,
}

/// What is read once for all leaks.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    rosters: BTreeMap<i64, Roster>,
    /// Suites by test; empty until somebody asks.
    suites: BTreeMap<i64, String>,
    /// Runs that did not judge a test, by test.
    not_judged: BTreeMap<i64, BTreeSet<i64>>,
}

impl LineRun {
    pub(super) fn read(row: &AnyRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            run: row.try_get(0)?,
            key: row.try_get(1)?,
            started_us: row.try_get(2)?,
            roster: row.try_get(3)?,
            is_partial: row.try_get::<i64, _>(4)? != 0,
        })
    }
}

impl Seen {
    /// Adds a row of a test, how, bytes and objects, from column `at` on. What was there once only is not seen.
    pub(super) fn add(
        into: &mut BTreeMap<i64, Self>,
        of: i64,
        row: &AnyRow,
        at: usize,
    ) -> Result<(), sqlx::Error> {
        let (test, how, bytes): (i64, i64, f64) =
            (row.try_get(at)?, row.try_get(at + 1)?, row.try_get(at + 2)?);
        let how = How::of_number(how);
        if how.is_none_or(|how| how == How::OneTime) {
            return Ok(());
        }
        let is_first = !into.contains_key(&of);
        let seen = into.entry(of).or_default();
        seen.tests.insert(test);
        // Waived is what a waiver covers in all its tests.
        seen.waived = (is_first || seen.waived) && how == Some(How::Waived);
        if is_first || bytes > seen.bytes {
            (seen.bytes, seen.count) = (bytes, row.try_get(at + 3)?);
        }
        Ok(())
    }
}

impl Lookup {
    /// What a run says about the leak that these tests have, or had.
    pub(super) async fn observe(
        &mut self,
        adding: &mut Adding<'_>,
        of: &LineRun,
        tests: &BTreeSet<i64>,
        seen: Option<&Seen>,
    ) -> Result<Observation, StoreError> {
        let (mut present, mut judged) = (false, false);
        for test in tests {
            if self.roster(adding, of.roster).await?.tests.contains(test) {
                present = true;
                judged = judged || !self.not_judged(adding, *test).await?.contains(&of.run);
            }
        }
        let gone = !present && !of.is_partial && self.has_their_suite(adding, of.roster, tests).await?;
        Ok(Observation {
            key: of.key.clone(),
            run: of.run,
            at_us: of.started_us,
            seen: seen.is_some(),
            judged,
            gone,
            waived: seen.is_some_and(|seen| seen.waived),
            bytes: seen.map_or(0.0, |seen| seen.bytes),
            count: seen.map_or(0.0, |seen| seen.count),
        })
    }

    /// Only one run is asked about: then its own exceptions are all that is needed.
    pub(super) async fn judged_by(
        &mut self,
        adding: &mut Adding<'_>,
        run: &LineRun,
    ) -> Result<(), StoreError> {
        let tests = self.roster(adding, run.roster).await?.tests.clone();
        self.not_judged = tests.into_iter().map(|test| (test, BTreeSet::new())).collect();
        let rows = sqlx::query(sql::NOT_JUDGED_BY)
            .bind(adding.project)
            .bind(run.run)
            .fetch_all(adding.connection())
            .await?;
        for row in rows {
            self.not_judged.entry(row.try_get(0)?).or_default().insert(run.run);
        }
        Ok(())
    }

    async fn not_judged(&mut self, adding: &mut Adding<'_>, test: i64) -> Result<&BTreeSet<i64>, StoreError> {
        match self.not_judged.entry(test) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let rows = sqlx::query(sql::NOT_JUDGED)
                    .bind(adding.project)
                    .bind(test)
                    .fetch_all(adding.connection())
                    .await?;
                let runs: Result<_, sqlx::Error> = rows.iter().map(|row| row.try_get(0)).collect();
                Ok(new.insert(runs?))
            }
        }
    }

    async fn roster(&mut self, adding: &mut Adding<'_>, roster: i64) -> Result<&mut Roster, StoreError> {
        match self.rosters.entry(roster) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let row = sqlx::query(sql::ROSTER_MEMBERS)
                    .bind(adding.project)
                    .bind(roster)
                    .fetch_one(adding.connection())
                    .await?;
                let tests = super::read::members(&row, 0)?.into_iter().collect();
                Ok(new.insert(Roster { tests, suites: None }))
            }
        }
    }

    /// Did the run have another test of one of their suites? A suite that did not run has lost no test.
    async fn has_their_suite(
        &mut self,
        adding: &mut Adding<'_>,
        roster: i64,
        tests: &BTreeSet<i64>,
    ) -> Result<bool, StoreError> {
        if self.suites.is_empty() {
            let rows = sqlx::query(sql::TESTS).bind(adding.project).fetch_all(adding.connection()).await?;
            for row in rows {
                self.suites.insert(row.try_get(0)?, row.try_get(1)?);
            }
        }
        self.roster(adding, roster).await?;
        let Some(there) = self.rosters.get_mut(&roster) else { return Ok(false) };
        let suites = there.suites.get_or_insert_with(|| {
            there.tests.iter().filter_map(|test| self.suites.get(test)).cloned().collect()
        });
        Ok(tests.iter().filter_map(|test| self.suites.get(test)).any(|suite| suites.contains(suite)))
    }
}
