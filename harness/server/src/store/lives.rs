//! The lives of the leaks that a new run affects.
//!
//! Data flow: a run that is the last one of its line: for each leak that it saw, or that is alive → the fold in the
//! leak's row → the run's observation is pushed. A run that takes an earlier place, or moves others: for all leaks of
//! the line → their sightings → all observations → a new fold. A leak that is new on the line is folded from the newest
//! runs only: a life remembers no more. Fold → the leak's row, its events.
//! Both paths give the same lives, in whatever order runs arrive.

use std::collections::{BTreeMap, BTreeSet};

use memgate_history::bits::Bits;
use memgate_history::life::{Event, Fold, Life, What};
use serde::{Deserialize, Serialize};
use sqlx::Row as _;

use super::line::{LineRun, Lookup, NewRun, Seen, Traces};
use super::line_id::LineId;
use super::read::event_row;
use super::rows::{self, Value};
use super::transaction::Adding;
use super::{StoreError, statements as sql};
use crate::view::EventRow;

/// Newest runs that are read: they nearly always have more judged commits than a life remembers.
const MOST_NEWEST: i64 = 200;

/// The state of a leak on a line, as stored in its row.
#[derive(Serialize, Deserialize)]
struct Followed {
    #[serde(flatten)]
    traces: Traces,
    fold: Fold,
}

impl Followed {
    /// Adds the next run of the line.
    async fn push(
        &mut self,
        (lookup, adding): (&mut Lookup, &mut Adding<'_>),
        run: &LineRun,
        seen: Option<&Seen>,
    ) -> Result<(), StoreError> {
        let at = (run.started_us, run.run);
        if !self.fold.is_void((&run.key, &run.commit), at, seen.is_some()) {
            let observed = lookup.observe(adding, run, &mut self.traces, seen).await?;
            self.fold.push(&observed);
        }
        Ok(())
    }
}

/// The lives of one line that change with a run.
struct Folding<'a, 't> {
    adding: &'a mut Adding<'t>,
    new: &'a NewRun,
    branch: i64,
    environment: i64,
    /// In the order of the line; read when a leak needs all runs.
    runs: Option<Vec<LineRun>>,
    /// The newest of them; read when a leak is new.
    newest: Option<Vec<LineRun>>,
    whole: Lookup,
    /// The rows of leaks, as they are now.
    rows: Vec<[Value; 19]>,
    /// How leaks look that the new run was the last to see: a run of an earlier commit may be received later.
    looks: Vec<[Value; 4]>,
    /// Current rows of events, by leak, kind and commit.
    events: BTreeMap<(i64, What, String), [Value; 10]>,
    /// New events, each with its leak.
    told: Vec<(i64, Event)>,
    /// Runs whose events have changed.
    touched: BTreeSet<i64>,
}

pub(super) async fn fold(
    adding: &mut Adding<'_>,
    new: &NewRun,
    now_us: i64,
) -> Result<Vec<EventRow>, StoreError> {
    let (mut told, mut touched) = (Vec::new(), BTreeSet::new());
    let mut lines = new.moved.clone();
    if new.on_line {
        lines.insert((new.branch, new.environment));
    }
    for (branch, environment) in lines {
        let mut folding = Folding {
            adding,
            new,
            branch,
            environment,
            runs: None,
            newest: None,
            whole: Lookup::default(),
            rows: Vec::new(),
            looks: Vec::new(),
            events: BTreeMap::new(),
            told: Vec::new(),
            touched: BTreeSet::new(),
        };
        if new.moved.contains(&(branch, environment)) {
            folding.fold_all().await?;
        } else {
            folding.push().await?;
        }
        let Folding { adding, rows, looks, events, told: of_line, touched: of_runs, .. } = folding;
        rows::add(adding.connection(), sql::SET_LEAK_LINE, rows).await?;
        rows::add(adding.connection(), sql::SET_LEAK, looks).await?;
        rows::add(adding.connection(), sql::SET_EVENT, events.into_values().collect()).await?;
        told.extend(in_words(adding, &of_line).await?);
        touched.extend(of_runs);
    }
    for run in touched {
        sqlx::query(sql::COUNT_NEW_LEAKS).bind(adding.project).bind(run).execute(adding.connection()).await?;
    }
    for event in &mut told {
        event.at_us = now_us;
    }
    Ok(told)
}

/// Adds the names of leaks to events. Reads many leaks at once, because each query is a round trip.
async fn in_words(adding: &mut Adding<'_>, events: &[(i64, Event)]) -> Result<Vec<EventRow>, StoreError> {
    let mut told = Vec::with_capacity(events.len());
    for events in events.chunks(rows::NAMED) {
        let leaks: BTreeSet<i64> = events.iter().map(|(leak, _)| *leak).collect();
        let project = adding.project;
        let known = rows::leaks(adding.connection(), project, &leaks).await?;
        for (leak, event) in events {
            let known = known
                .get(leak)
                .ok_or_else(|| StoreError::Broken(format!("the leak {leak} of an event is not there")))?;
            let at = (event.at_us, event.run);
            told.push(event_row(event.what, at, known, (&event.key, &event.before)));
        }
    }
    Ok(told)
}

impl Folding<'_, '_> {
    /// The run is the last one: the stored folds continue with it.
    async fn push(&mut self) -> Result<(), StoreError> {
        let new = self.new;
        let (run, mut seen) = (&new.run, new.seen.clone());
        let mut lookup = Lookup::default();
        lookup.judged_by(self.adding, run).await?;
        let rows = sqlx::query(sql::FOLLOWED)
            .bind(self.adding.project)
            .bind(self.branch)
            .bind(self.environment)
            .bind(run.key.clone())
            .fetch_all(self.adding.connection())
            .await?;
        for row in rows {
            let (leak, text): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
            let mut followed: Followed = serde_json::from_str(&text)
                .map_err(|why| StoreError::Broken(format!("the life of the leak {leak}: {why}")))?;
            let seen = seen.remove(&leak);
            // Another test has the leak too, so earlier runs that judged this test are evidence now.
            let is_wider = |seen: &Seen| !seen.tests.is_subset(&followed.traces.tests);
            // After a fix that uncommitted changes showed, their later runs are not followed.
            let lacks_runs =
                |_: &Seen| followed.fold.life().is_some_and(|life| life.is_fixed_without_commit());
            if seen.as_ref().is_some_and(|seen| is_wider(seen) || lacks_runs(seen)) {
                self.fold_whole(leak).await?;
                continue;
            }
            let before = followed.fold.life().map_or_else(Vec::new, |life| life.events);
            followed.push((&mut lookup, &mut *self.adding), run, seen.as_ref()).await?;
            self.write(leak, &followed, before).await?;
        }
        // Leaks that are new or came back.
        let leaks: Vec<i64> = seen.into_keys().collect();
        let line = self.line();
        let known = rows::leaks_of_line(self.adding.connection(), line, &leaks).await?;
        for leak in leaks {
            if known.contains(&leak) || !self.fold_newest(leak).await? {
                self.fold_whole(leak).await?;
            }
        }
        Ok(())
    }

    fn line(&self) -> LineId {
        LineId { project: self.adding.project, branch: self.branch, environment: self.environment }
    }

    /// Folds a leak that is new on the line, from its newest runs. `false`: these runs are too few.
    async fn fold_newest(&mut self, leak: i64) -> Result<bool, StoreError> {
        if self.newest.is_none() {
            let rows = self.line().query(sql::NEWEST_LINE_RUNS);
            let rows = rows.bind(MOST_NEWEST).fetch_all(self.adding.connection()).await?;
            self.newest = Some(rows.iter().rev().map(LineRun::read).collect::<Result<Vec<_>, _>>()?);
        }
        let runs = self.newest.take().unwrap_or_default();
        let followed = self.followed(leak, &runs).await?;
        let is_all = i64::try_from(runs.len()).is_ok_and(|runs| runs < MOST_NEWEST)
            || followed.fold.life().is_some_and(|life| life.window.len() == Bits::MOST);
        self.newest = Some(runs);
        if is_all {
            self.write(leak, &followed, Vec::new()).await?;
        }
        Ok(is_all)
    }

    /// The order of the runs of the line has changed.
    async fn fold_all(&mut self) -> Result<(), StoreError> {
        let new = self.new;
        let is_its_line = (self.branch, self.environment) == (new.branch, new.environment);
        let mut leaks = BTreeSet::new();
        if is_its_line && new.on_line {
            leaks.extend(new.seen.keys());
        }
        for row in self.line().query(sql::LINE_STATES).fetch_all(self.adding.connection()).await? {
            leaks.insert(row.try_get(0)?);
        }
        for leak in leaks {
            self.fold_whole(leak).await?;
        }
        Ok(())
    }

    /// Folds all observations of a leak, from the first on.
    async fn fold_whole(&mut self, leak: i64) -> Result<(), StoreError> {
        let line = self.line();
        let runs = match self.runs.take() {
            Some(runs) => runs,
            None => {
                let rows = line.query(sql::LINE_RUNS).fetch_all(self.adding.connection()).await?;
                rows.iter().map(LineRun::read).collect::<Result<Vec<_>, _>>()?
            }
        };
        let followed = self.followed(leak, &runs).await?;
        self.runs = Some(runs);
        let rows = line.query(sql::EVENTS).bind(leak).fetch_all(self.adding.connection()).await?;
        let mut before = Vec::with_capacity(rows.len());
        for row in rows {
            before.push(Event {
                what: super::read::what_of(row.try_get(0)?)?,
                key: row.try_get(1)?,
                before: row.try_get(2)?,
                run: row.try_get(3)?,
                at_us: row.try_get(4)?,
            });
        }
        self.write(leak, &followed, before).await
    }

    /// Folds the observations of a leak in these runs.
    async fn followed(&mut self, leak: i64, runs: &[LineRun]) -> Result<Followed, StoreError> {
        let (project, branch, environment) = (self.adding.project, self.branch, self.environment);
        let mut seen = BTreeMap::<i64, Seen>::new();
        let rows = sqlx::query(sql::SIGHTINGS_OF_LINE)
            .bind(project)
            .bind(leak)
            .bind(branch)
            .bind(environment)
            .fetch_all(self.adding.connection())
            .await?;
        for row in rows {
            Seen::read(&mut seen, &row)?;
        }
        let tests: BTreeSet<i64> = seen.values().flat_map(|seen| seen.tests.iter().copied()).collect();
        let mut followed = Followed { traces: Traces::of(tests), fold: Fold::default() };
        for run in runs {
            let seen = seen.get(&run.run);
            followed.push((&mut self.whole, &mut *self.adding), run, seen).await?;
        }
        Ok(followed)
    }

    async fn write(&mut self, leak: i64, followed: &Followed, before: Vec<Event>) -> Result<(), StoreError> {
        let Some(life) = followed.fold.life() else { return self.remove(leak, before).await };
        if let Some((fingerprint, body)) =
            self.new.looks.get(&leak).filter(|_| life.last_run == self.new.run.run)
        {
            // The id is not taken: the leak is there, under its own.
            let (project, id) = (self.adding.project, self.adding.ids.next());
            self.looks.push([project.into(), id.into(), fingerprint.clone().into(), body.clone().into()]);
        }
        self.rows.push([
            self.adding.project.into(),
            self.branch.into(),
            self.environment.into(),
            leak.into(),
            life.state.number().into(),
            i64::from(life.flaky).into(),
            i64::from(life.waived).into(),
            life.first.clone().into(),
            life.clean.clone().into(),
            life.last.clone().into(),
            life.fixed.clone().into(),
            life.since_us.into(),
            life.last_run.into(),
            life.window.to_string().into(),
            life.rate.into(),
            life.bytes.into(),
            life.count.into(),
            followed.fold.key().unwrap_or_default().to_owned().into(),
            serde_json::to_string(followed)?.into(),
        ]);
        self.write_events(leak, &life, before).await
    }

    /// Only uncommitted changes had the leak, and their commit was measured later without it.
    async fn remove(&mut self, leak: i64, events: Vec<Event>) -> Result<(), StoreError> {
        for event in events {
            self.remove_event(leak, event).await?;
        }
        self.line().query(sql::REMOVE_LEAK_LINE).bind(leak).execute(self.adding.connection()).await?;
        Ok(())
    }

    async fn remove_event(&mut self, leak: i64, event: Event) -> Result<(), StoreError> {
        self.touched.insert(event.run);
        self.line()
            .query(sql::REMOVE_EVENT)
            .bind(leak)
            .bind(event.what.number())
            .bind(event.key)
            .execute(self.adding.connection())
            .await?;
        Ok(())
    }

    /// Adds and reports new events; removes those that a run has disproved.
    async fn write_events(&mut self, leak: i64, life: &Life, before: Vec<Event>) -> Result<(), StoreError> {
        let id = |event: &Event| (event.what, event.key.clone());
        let mut stale: BTreeMap<(What, String), Event> =
            before.into_iter().map(|event| (id(&event), event)).collect();
        let mut new = Vec::new();
        for event in &life.events {
            let known = stale.remove(&id(event));
            if known.as_ref() == Some(event) {
                continue;
            }
            self.touched.insert(event.run);
            self.touched.extend(known.as_ref().map(|known| known.run));
            let row = [
                self.adding.project.into(),
                self.adding.ids.next().into(),
                self.branch.into(),
                self.environment.into(),
                leak.into(),
                event.what.number().into(),
                event.key.clone().into(),
                event.before.clone().into(),
                event.run.into(),
                event.at_us.into(),
            ];
            self.events.insert((leak, event.what, event.key.clone()), row);
            if known.is_none() {
                // A run of an earlier commit with less of a leak makes a later run show more: that is no news.
                if event.what != What::Larger || event.run == self.new.run.run {
                    self.told.push((leak, event.clone()));
                }
                new.push(event);
            }
        }
        for event in stale.into_values() {
            // A run of an earlier commit, received later, shows the same change.
            if let Some(same) = new.iter().position(|new| new.what == event.what) {
                sqlx::query(sql::MOVE_NOTICES)
                    .bind(self.adding.project)
                    .bind(self.branch)
                    .bind(leak)
                    .bind(event.what.number())
                    .bind(event.key.clone())
                    .bind(new.remove(same).key.clone())
                    .execute(self.adding.connection())
                    .await?;
            }
            self.remove_event(leak, event).await?;
        }
        Ok(())
    }
}
