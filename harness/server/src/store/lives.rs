//! The lives of the leaks that a new run says something about.
//!
//! Data flow: the runs of its line and environment, in order → for each leak that the run saw, or that is alive (where the run is not the
//! last one: for all): its sightings → observations → `memgate_history::life::fold` → its row and events. Whatever the order in which runs
//! arrive, the fold sees them in the order of the line.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use memgate_history::How;
use memgate_history::life::{self, Life, Observation, State};
use sqlx::Row as _;

use super::read::{event_row, leak_of};
use super::transaction::{Adding, NewRun, number};
use super::{StoreError, statements as sql};
use crate::view::EventRow;

/// A run of the line.
struct LineRun {
    run: i64,
    key: String,
    started_us: i64,
    roster: i64,
    is_partial: bool,
}

/// What is looked up once for all leaks.
struct Line {
    /// In the order of the line.
    runs: Vec<LineRun>,
    /// Tests by roster.
    rosters: BTreeMap<i64, BTreeSet<i64>>,
    /// Suites by test; empty until somebody needs it.
    suites: BTreeMap<i64, String>,
}

/// The sightings of a leak in one run.
#[derive(Default)]
struct Seen {
    waived: bool,
    bytes: f64,
    count: f64,
}

pub(super) async fn fold(
    adding: &mut Adding<'_>,
    new: &NewRun,
    now_us: i64,
) -> Result<Vec<EventRow>, StoreError> {
    let mut line = Line { runs: runs(adding, new).await?, rosters: BTreeMap::new(), suites: BTreeMap::new() };
    let is_last = line.runs.last().is_some_and(|run| run.run == new.run);
    let mut leaks = BTreeSet::<i64>::new();
    for row in sqlx::query(sql::SIGHTINGS_OF_RUN)
        .bind(adding.project)
        .bind(new.run)
        .fetch_all(adding.connection())
        .await?
    {
        leaks.insert(row.try_get(0)?);
    }
    let states = sqlx::query(sql::LINE_STATES)
        .bind(adding.project)
        .bind(new.branch)
        .bind(new.environment)
        .fetch_all(adding.connection())
        .await?;
    for row in states {
        let state = State::of_number(row.try_get(1)?);
        if !is_last || state.is_none_or(State::is_alive) {
            leaks.insert(row.try_get(0)?);
        }
    }
    let mut events = Vec::new();
    for leak in leaks {
        let observations = observations(adding, &mut line, leak).await?;
        if let Some(life) = life::fold(&observations) {
            write(adding, new, leak, &life).await?;
            events.extend(write_events(adding, new, leak, &life).await?);
        }
    }
    let new_leaks = events
        .iter()
        .filter(|event| event.run == new.run && ["new", "regressed"].contains(&event.kind.as_str()));
    let count = number(new_leaks.count());
    sqlx::query(sql::NEW_LEAKS)
        .bind(adding.project)
        .bind(new.run)
        .bind(count)
        .execute(adding.connection())
        .await?;
    for event in &mut events {
        event.at_us = now_us;
    }
    Ok(events)
}

async fn runs(adding: &mut Adding<'_>, new: &NewRun) -> Result<Vec<LineRun>, StoreError> {
    let rows = sqlx::query(sql::LINE_RUNS)
        .bind(adding.project)
        .bind(new.branch)
        .bind(new.environment)
        .fetch_all(adding.connection())
        .await?;
    let mut runs = Vec::with_capacity(rows.len());
    for row in rows {
        runs.push(LineRun {
            run: row.try_get(0)?,
            key: row.try_get(1)?,
            started_us: row.try_get(2)?,
            roster: row.try_get(3)?,
            is_partial: row.try_get::<i64, _>(4)? != 0,
        });
    }
    Ok(runs)
}

async fn observations(
    adding: &mut Adding<'_>,
    line: &mut Line,
    leak: i64,
) -> Result<Vec<Observation>, StoreError> {
    let on_line: BTreeSet<i64> = line.runs.iter().map(|run| run.run).collect();
    let (mut seen, mut tests) = (BTreeMap::<i64, Seen>::new(), BTreeSet::<i64>::new());
    let rows =
        sqlx::query(sql::SIGHTINGS).bind(adding.project).bind(leak).fetch_all(adding.connection()).await?;
    for row in rows {
        let (run, test, how): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let how = How::of_number(how);
        if how.is_none_or(|how| how == How::OneTime) || !on_line.contains(&run) {
            continue;
        }
        tests.insert(test);
        let is_first = !seen.contains_key(&run);
        let (sighting, bytes) = (seen.entry(run).or_default(), row.try_get::<f64, _>(3)?);
        // Waived is what a waiver covers in all its tests.
        sighting.waived = (is_first || sighting.waived) && how == Some(How::Waived);
        if is_first || bytes > sighting.bytes {
            (sighting.bytes, sighting.count) = (bytes, row.try_get(4)?);
        }
    }
    let mut not_judged = BTreeSet::<(i64, i64)>::new();
    for test in &tests {
        let rows = sqlx::query(sql::NOT_JUDGED)
            .bind(adding.project)
            .bind(*test)
            .fetch_all(adding.connection())
            .await?;
        for row in rows {
            not_judged.insert((row.try_get(0)?, *test));
        }
    }
    let mut observations = Vec::with_capacity(line.runs.len());
    for index in 0..line.runs.len() {
        let Some((run, roster, is_partial)) =
            line.runs.get(index).map(|run| (run.run, run.roster, run.is_partial))
        else {
            continue;
        };
        let there = tests_of(adding, line, roster).await?;
        let present: Vec<i64> = tests.intersection(there).copied().collect();
        let judged = present.iter().any(|test| !not_judged.contains(&(run, *test)));
        let gone = present.is_empty() && !is_partial && has_their_suite(adding, line, roster, &tests).await?;
        let Some(of) = line.runs.get(index) else { continue };
        let sighting = seen.get(&run);
        observations.push(Observation {
            key: of.key.clone(),
            run,
            at_us: of.started_us,
            seen: sighting.is_some(),
            judged,
            gone,
            waived: sighting.is_some_and(|seen| seen.waived),
            bytes: sighting.map_or(0.0, |seen| seen.bytes),
            count: sighting.map_or(0.0, |seen| seen.count),
        });
    }
    Ok(observations)
}

async fn tests_of<'l>(
    adding: &mut Adding<'_>,
    line: &'l mut Line,
    roster: i64,
) -> Result<&'l BTreeSet<i64>, StoreError> {
    match line.rosters.entry(roster) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(new) => {
            let row = sqlx::query(sql::ROSTER_MEMBERS)
                .bind(adding.project)
                .bind(roster)
                .fetch_one(adding.connection())
                .await?;
            Ok(new.insert(super::read::members(&row, 0)?.into_iter().collect()))
        }
    }
}

/// Did the run have another test of one of their suites? A suite that did not run has lost no test.
async fn has_their_suite(
    adding: &mut Adding<'_>,
    line: &mut Line,
    roster: i64,
    tests: &BTreeSet<i64>,
) -> Result<bool, StoreError> {
    if line.suites.is_empty() {
        for row in sqlx::query(sql::TESTS).bind(adding.project).fetch_all(adding.connection()).await? {
            line.suites.insert(row.try_get(0)?, row.try_get(1)?);
        }
    }
    let theirs: BTreeSet<&String> = tests.iter().filter_map(|test| line.suites.get(test)).collect();
    let there = line.rosters.get(&roster).into_iter().flatten();
    Ok(there.filter_map(|test| line.suites.get(test)).any(|suite| theirs.contains(suite)))
}

async fn write(adding: &mut Adding<'_>, new: &NewRun, leak: i64, life: &Life) -> Result<(), StoreError> {
    let recent: String = life.window.iter().map(|seen| if *seen { '#' } else { '.' }).collect();
    sqlx::query(sql::SET_LEAK_LINE)
        .bind(adding.project)
        .bind(new.branch)
        .bind(new.environment)
        .bind(leak)
        .bind(life.state.number())
        .bind(i64::from(life.flaky))
        .bind(i64::from(life.waived))
        .bind(life.first.clone())
        .bind(life.clean.clone())
        .bind(life.last.clone())
        .bind(life.fixed.clone())
        .bind(life.since_us)
        .bind(life.last_run)
        .bind(recent)
        .bind(life.rate)
        .bind(life.bytes)
        .bind(life.count)
        .execute(adding.connection())
        .await?;
    Ok(())
}

/// Events that are not there yet are added; those that an older run has made untrue go. What was added is told.
async fn write_events(
    adding: &mut Adding<'_>,
    new: &NewRun,
    leak: i64,
    life: &Life,
) -> Result<Vec<EventRow>, StoreError> {
    let rows = sqlx::query(sql::EVENTS)
        .bind(adding.project)
        .bind(new.branch)
        .bind(new.environment)
        .bind(leak)
        .fetch_all(adding.connection())
        .await?;
    let mut stale = BTreeMap::<(i64, String), i64>::new();
    for row in rows {
        stale.insert((row.try_get(1)?, row.try_get(2)?), row.try_get(0)?);
    }
    let mut added = Vec::new();
    for event in &life.events {
        if stale.remove(&(event.state.number(), event.key.clone())).is_none() {
            added.push(event);
        }
    }
    for id in stale.into_values() {
        sqlx::query(sql::REMOVE_EVENT).bind(adding.project).bind(id).execute(adding.connection()).await?;
    }
    let mut told = Vec::with_capacity(added.len());
    for event in added {
        let id = adding.ids.next();
        sqlx::query(sql::ADD_EVENT)
            .bind(adding.project)
            .bind(id)
            .bind(new.branch)
            .bind(new.environment)
            .bind(leak)
            .bind(event.state.number())
            .bind(event.key.clone())
            .bind(event.before.clone())
            .bind(event.run)
            .bind(event.at_us)
            .execute(adding.connection())
            .await?;
        let row = sqlx::query(sql::LEAK_BODY)
            .bind(adding.project)
            .bind(leak)
            .fetch_one(adding.connection())
            .await?;
        let known = leak_of(&row, 0)?;
        told.push(event_row(event.state, (event.at_us, event.run), &known, (&event.key, &event.before)));
    }
    Ok(told)
}
