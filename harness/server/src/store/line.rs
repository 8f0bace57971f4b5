//! Observations of a leak in the runs of a line.
//!
//! Data flow: a run, the tests that ever had the leak, the run's sightings of it → [`Lookup::observe`] → an
//! observation. Data that many leaks need (rosters, suites, tests that were not judged) is read once.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use memgate_history::life::Observation;
use memgate_history::{How, Look};
use serde::{Deserialize, Serialize};
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::read::sha;
use super::transaction::Adding;
use super::{StoreError, rows, statements as sql};

/// One column stores whether a run is partial, how thoroughly it looked, and what selected its tests:
/// `partial + 2 × look + 6 × selection`.
const PARTS: i64 = 2;
const LOOKS: i64 = 3;
/// Largest number of a selection.
pub(super) const MOST_SELECTION: i64 = (1 << 48) - 1;
/// Tests are gone after this many consecutive commits without their suite: a job that runs one suite may be broken for
/// some time.
const WITHOUT_SUITE: usize = 3;

/// A run of the line.
#[derive(Debug, Clone)]
pub(super) struct LineRun {
    pub(super) run: i64,
    pub(super) key: String,
    /// The commit, or the one that its uncommitted changes are based on.
    pub(super) commit: String,
    pub(super) started_us: i64,
    pub(super) roster: i64,
    pub(super) is_partial: bool,
    pub(super) look: Look,
    /// The number of the build command that left out tests; 0: none did.
    pub(super) selection: i64,
}

/// The sightings of a leak in one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) tests: BTreeSet<i64>,
    waived: bool,
    bytes: f64,
    count: f64,
}

/// The new run, as far as lives need it.
pub(super) struct NewRun {
    pub(super) run: LineRun,
    /// Its sightings, by leak.
    pub(super) seen: BTreeMap<i64, Seen>,
    /// Fingerprint and body of each leak that was known and may look different now.
    pub(super) looks: BTreeMap<i64, (String, String)>,
    pub(super) branch: i64,
    pub(super) environment: i64,
    /// The run counts for the lives of leaks.
    pub(super) on_line: bool,
    /// Branches with environments in which it changes the order of runs: it is not the last one, or others moved.
    pub(super) moved: BTreeSet<(i64, i64)>,
}

#[derive(Debug)]
struct Roster {
    tests: BTreeSet<i64>,
    /// The names of its tests were read.
    is_named: bool,
    /// Read on demand.
    suites: Option<BTreeSet<String>>,
}

/// State of a leak along the line, in addition to its life.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Traces {
    /// The tests that ever had it, on this line.
    pub(super) tests: BTreeSet<i64>,
    /// The tests that had it when it was last seen, and at which commit; empty: not seen yet, or only by an older
    /// program.
    #[serde(default)]
    last: BTreeSet<i64>,
    #[serde(default)]
    last_key: String,
    /// These tests, each with the selection of the run that saw it there.
    #[serde(default)]
    seen_by: BTreeSet<(i64, i64)>,
    /// Tests that the runs of one commit judged without it, each with the selection of its run: each run may have
    /// measured only some of them.
    #[serde(default)]
    without: BTreeSet<(i64, i64)>,
    #[serde(default)]
    clean_key: String,
    /// The least thorough look that saw it.
    #[serde(default)]
    look: Option<Look>,
    /// Consecutive commits, the newest last, whose whole runs lack its suite.
    #[serde(default)]
    without_suite: Vec<String>,
}

impl Traces {
    pub(super) fn of(tests: BTreeSet<i64>) -> Self {
        Self { tests, ..Self::default() }
    }

    fn saw(&mut self, run: &LineRun, seen: &Seen) {
        if self.last_key != run.key {
            self.last.clear();
            self.seen_by.clear();
            self.last_key.clone_from(&run.key);
        }
        self.last.extend(&seen.tests);
        self.seen_by.extend(seen.tests.iter().map(|test| (*test, run.selection)));
        self.without.retain(|(test, _)| !seen.tests.contains(test));
        self.look = self.look.map_or(Some(run.look), |look| Some(look.min(run.look)));
    }

    /// Does a run that does not see the leak prove its absence? Only if each test that had it last was judged: any of
    /// them may still have it. `judged`: its tests in the run, and whether each was judged.
    fn tells_absence(&mut self, run: &LineRun, judged: &BTreeMap<i64, bool>) -> bool {
        if self.clean_key != run.key {
            self.without.clear();
            self.clean_key.clone_from(&run.key);
        }
        self.without
            .extend(judged.iter().filter(|(_, judged)| **judged).map(|(test, _)| (*test, run.selection)));
        // A partial run lacks tests that still exist.
        let is_there = |test: &&i64| run.is_partial || judged.contains_key(test);
        let mut asked: Vec<&i64> = self.last.iter().filter(is_there).collect();
        if asked.is_empty() {
            asked.extend(judged.keys());
        }
        let is_close = self.look.is_none_or(|look| run.look >= look);
        // A build that selects tests may have left out the run of the program that leaks.
        let has_its_runs = |test: &i64| {
            let mut saw_it = self.seen_by.iter().filter(|(of, _)| of == test).peekable();
            self.without.contains(&(*test, 0))
                || saw_it.peek().is_some() && saw_it.all(|run| self.without.contains(run))
        };
        is_close && !asked.is_empty() && asked.into_iter().all(has_its_runs)
    }

    /// Notes that a whole run of this commit lacks the leak's suite. Returns whether enough commits lack it.
    fn lacks_suite(&mut self, commit: &str) -> bool {
        if self.without_suite.len() < WITHOUT_SUITE
            && self.without_suite.last().is_none_or(|last| last != commit)
        {
            self.without_suite.push(commit.to_owned());
        }
        self.without_suite.len() >= WITHOUT_SUITE
    }
}

/// Data that is read once for all leaks.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    rosters: BTreeMap<i64, Roster>,
    /// Suite and name by test, as far as they were needed.
    names: BTreeMap<i64, (String, String)>,
    /// The reverse map: the tests of a class are adjacent.
    tests: BTreeMap<(String, String), i64>,
    /// Runs that did not judge a test, by test.
    not_judged: BTreeMap<i64, BTreeSet<i64>>,
}

impl LineRun {
    pub(super) fn read(row: &AnyRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            run: row.try_get(0)?,
            key: row.try_get(1)?,
            commit: row.try_get(5)?,
            started_us: row.try_get(2)?,
            roster: row.try_get(3)?,
            is_partial: row.try_get::<i64, _>(4)? % PARTS != 0,
            look: look(row.try_get::<i64, _>(4)? / PARTS % LOOKS)?,
            selection: row.try_get::<i64, _>(4)? / PARTS / LOOKS,
        })
    }

    /// Value for its row: whether it is partial, how thoroughly it looked, and what selected its tests.
    pub(super) fn measured(&self) -> i64 {
        i64::from(self.is_partial) + PARTS * (self.look.number() + LOOKS * self.selection)
    }
}

fn look(number: i64) -> Result<Look, sqlx::Error> {
    let unknown = || sqlx::Error::Decode(format!("{number} is no way to look for leaks").into());
    Look::of_number(number).ok_or_else(unknown)
}

impl Seen {
    /// Adds a row: a run, a test, how, bytes and objects.
    pub(super) fn read(into: &mut BTreeMap<i64, Self>, row: &AnyRow) -> Result<(), sqlx::Error> {
        if let Some(how) = How::of_number(row.try_get(2)?) {
            Self::add(into, row.try_get(0)?, (row.try_get(1)?, how, row.try_get(3)?, row.try_get(4)?));
        }
        Ok(())
    }

    /// Adds a test, how, bytes and objects. A one-time cost is not a sighting.
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
        // A leak is waived if a waiver covers it in all its tests.
        seen.waived = (is_first || seen.waived) && how == How::Waived;
        if is_first || (bytes, count) > (seen.bytes, seen.count) {
            (seen.bytes, seen.count) = (bytes, count);
        }
    }
}

impl Lookup {
    /// The observation of a leak in a run.
    pub(super) async fn observe(
        &mut self,
        adding: &mut Adding<'_>,
        of: &LineRun,
        traces: &mut Traces,
        seen: Option<&Seen>,
    ) -> Result<Observation, StoreError> {
        // The leak's tests in the run: was each of them judged?
        let mut judged = BTreeMap::<i64, bool>::new();
        for test in &traces.tests {
            for member in self.stands_for(adding, of.roster, *test).await? {
                let is_judged = !self.not_judged(adding, member).await?.contains(&of.run);
                *judged.entry(*test).or_default() |= is_judged;
            }
        }
        let has_suite = !judged.is_empty() || self.has_their_suite(adding, of.roster, &traces.tests).await?;
        if has_suite {
            traces.without_suite.clear();
        }
        let gone = judged.is_empty() && has_suite && !of.is_partial;
        // Whoever tries a change may run one program after the other, each by itself.
        let is_of_commit = !sha(&of.key).is_empty();
        let suite_gone = !has_suite && !of.is_partial && is_of_commit && traces.lacks_suite(&of.key);
        let listed = !judged.is_empty();
        let judged = traces.tells_absence(of, &judged);
        if let Some(seen) = seen {
            traces.saw(of, seen);
        }
        Ok(Observation {
            key: of.key.clone(),
            commit: of.commit.clone(),
            run: of.run,
            at_us: of.started_us,
            seen: seen.is_some(),
            judged,
            gone,
            suite_gone,
            listed,
            has_suite,
            waived: seen.is_some_and(|seen| seen.waived),
            bytes: seen.map_or(0.0, |seen| seen.bytes),
            count: seen.map_or(0.0, |seen| seen.count),
        })
    }

    /// The tests of a roster whose verdicts count for a test: normally the test itself. A test class that leaks as a
    /// whole has an entry only in runs where it leaks. In other runs, the verdicts of its tests count.
    async fn stands_for(
        &mut self,
        adding: &mut Adding<'_>,
        roster: i64,
        test: i64,
    ) -> Result<Vec<i64>, StoreError> {
        if self.roster(adding, roster).await?.tests.contains(&test) {
            return Ok(vec![test]);
        }
        self.read_names(adding, roster, [test]).await?;
        let Some((suite, name)) = self.names.get(&test) else { return Ok(Vec::new()) };
        let class = (suite.clone(), format!("{name}."));
        let members = self.tests.range(class.clone()..);
        let members =
            members.take_while(|((suite, name), _)| *suite == class.0 && name.starts_with(&class.1));
        let there = self.rosters.get(&roster).map(|roster| &roster.tests);
        let is_there = |test: &i64| there.is_some_and(|tests| tests.contains(test));
        Ok(members.map(|(_, test)| *test).filter(is_there).collect())
    }

    /// Reads the names of a roster's tests and of some others, unless they are known.
    async fn read_names(
        &mut self,
        adding: &mut Adding<'_>,
        roster: i64,
        others: impl IntoIterator<Item = i64>,
    ) -> Result<(), StoreError> {
        let mut unknown: Vec<i64> =
            others.into_iter().filter(|test| !self.names.contains_key(test)).collect();
        let roster = self.roster(adding, roster).await?;
        if !std::mem::replace(&mut roster.is_named, true) {
            let tests = roster.tests.clone();
            unknown.extend(tests.into_iter().filter(|test| !self.names.contains_key(test)));
        }
        let project = adding.project;
        for (test, named) in rows::test_names(adding.connection(), project, &unknown).await? {
            self.tests.insert(named.clone(), test);
            self.names.insert(test, named);
        }
        Ok(())
    }

    /// Prepares for a single run: its own exceptions are sufficient.
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
                Ok(new.insert(Roster { tests, is_named: false, suites: None }))
            }
        }
    }

    /// Did the run have another test of one of their suites? If a suite did not run, its tests are not gone.
    async fn has_their_suite(
        &mut self,
        adding: &mut Adding<'_>,
        roster: i64,
        tests: &BTreeSet<i64>,
    ) -> Result<bool, StoreError> {
        self.read_names(adding, roster, tests.iter().copied()).await?;
        let Some(there) = self.rosters.get_mut(&roster) else { return Ok(false) };
        let suite_of = |test: &i64| self.names.get(test).map(|(suite, _)| suite);
        let suites =
            there.suites.get_or_insert_with(|| there.tests.iter().filter_map(suite_of).cloned().collect());
        Ok(tests.iter().filter_map(suite_of).any(|suite| suites.contains(suite)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_tests_with_a_leak_the_one_with_most_of_it_counts_also_if_it_has_no_bytes() {
        for rows in [[(0.0, 1.0), (0.0, 3.0)], [(0.0, 3.0), (0.0, 1.0)], [(8.0, 9.0), (16.0, 2.0)]] {
            let mut seen = BTreeMap::new();
            for (test, (bytes, count)) in (0..).zip(rows) {
                Seen::add(&mut seen, 7, (test, How::Counted, bytes, count));
            }
            let most = if rows[1].0 > 0.0 { (16.0, 2.0) } else { (0.0, 3.0) };
            assert_eq!((seen[&7].bytes, seen[&7].count), most, "{rows:?}");
        }
    }
}
