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
    pub(super) started_us: i64,
    pub(super) roster: i64,
    pub(super) is_partial: bool,
}

/// The sightings of a leak in one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) tests: BTreeSet<i64>,
    waived: bool,
    bytes: f64,
    count: f64,
}

/// The run's own row, as far as lives need it.
pub(super) struct NewRun {
    pub(super) run: LineRun,
    /// What it saw, by leak.
    pub(super) seen: BTreeMap<i64, Seen>,
    pub(super) branch: i64,
    pub(super) environment: i64,
    /// It counts for the lives of leaks.
    pub(super) on_line: bool,
    /// Branches with environments whose runs stand in another order with it: it is not the last one, or others
    /// changed places.
    pub(super) moved: BTreeSet<(i64, i64)>,
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
    /// Suite and name by test; empty until somebody asks.
    names: BTreeMap<i64, (String, String)>,
    /// The tests of what may be a test class, by its own entry.
    members: BTreeMap<i64, Vec<i64>>,
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
    /// Adds a row of a run, a test, how, bytes and objects.
    pub(super) fn read(into: &mut BTreeMap<i64, Self>, row: &AnyRow) -> Result<(), sqlx::Error> {
        if let Some(how) = How::of_number(row.try_get(2)?) {
            Self::add(into, row.try_get(0)?, (row.try_get(1)?, how, row.try_get(3)?, row.try_get(4)?));
        }
        Ok(())
    }

    /// Adds a test, how, bytes and objects. What was there once only is not seen.
    pub(super) fn add(
        into: &mut BTreeMap<i64, Self>,
        of: i64,
        (test, how, bytes, count): (i64, How, f64, f64),
    ) {
        if how == How::OneTime {
            return;
        }
        let is_first = !into.contains_key(&of);
        let seen = into.entry(of).or_default();
        seen.tests.insert(test);
        // Waived is what a waiver covers in all its tests.
        seen.waived = (is_first || seen.waived) && how == How::Waived;
        if is_first || bytes > seen.bytes {
            (seen.bytes, seen.count) = (bytes, count);
        }
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
            for test in self.stands_for(adding, of.roster, *test).await? {
                present = true;
                judged = judged || !self.not_judged(adding, test).await?.contains(&of.run);
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

    /// The tests of a roster whose verdict is that of a test: itself. A test class that leaks as a whole has an entry
    /// only where it does: else its tests stand for it.
    async fn stands_for(
        &mut self,
        adding: &mut Adding<'_>,
        roster: i64,
        test: i64,
    ) -> Result<Vec<i64>, StoreError> {
        if self.roster(adding, roster).await?.tests.contains(&test) {
            return Ok(vec![test]);
        }
        if !self.members.contains_key(&test) {
            self.read_names(adding).await?;
            let class = self.names.get(&test).map(|(suite, name)| (suite, format!("{name}.")));
            let is_of = |(suite, name): &(String, String)| {
                class.as_ref().is_some_and(|(of, class)| suite == *of && name.starts_with(class))
            };
            let members = self.names.iter().filter(|(_, named)| is_of(named)).map(|(test, _)| *test);
            let members = members.collect();
            self.members.insert(test, members);
        }
        let there = self.rosters.get(&roster).map(|roster| &roster.tests);
        let members = self.members.get(&test).into_iter().flatten().copied();
        Ok(members.filter(|member| there.is_some_and(|tests| tests.contains(member))).collect())
    }

    async fn read_names(&mut self, adding: &mut Adding<'_>) -> Result<(), StoreError> {
        if self.names.is_empty() {
            for row in sqlx::query(sql::TESTS).bind(adding.project).fetch_all(adding.connection()).await? {
                self.names.insert(row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?));
            }
        }
        Ok(())
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
        self.read_names(adding).await?;
        self.roster(adding, roster).await?;
        let Some(there) = self.rosters.get_mut(&roster) else { return Ok(false) };
        let suite_of = |test: &i64| self.names.get(test).map(|(suite, _)| suite);
        let suites =
            there.suites.get_or_insert_with(|| there.tests.iter().filter_map(suite_of).cloned().collect());
        Ok(tests.iter().filter_map(suite_of).any(|suite| suites.contains(suite)))
    }
}
