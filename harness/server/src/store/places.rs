//! The place of a new run, and the commits that its clone reports.
//!
//! Data flow: the run's commit with its ancestors → which of them are new on top of known ones ([`Adding::on_top`]) →
//! the newest runs of the branch → the place after them ([`behind`]). Nearly every run takes this path, whose cost does
//! not grow with the project. Otherwise: all commits of the project, all runs of the branch → their order → which runs
//! moved. If new commits may join others, the other lines are ordered too: the commits of a clone concern all lines.

use std::collections::{BTreeMap, BTreeSet};

use memgate_history::Manifest;
use memgate_history::place::{self, Chain, PlacedBy};
use sqlx::Row as _;

use super::read::sha;
use super::transaction::{Adding, number};
use super::{StoreError, statements as sql};

/// Number of newest runs of a branch that are read. If no more new commits than this are on top of known ones,
/// the place is found without reading all commits and runs.
const NEAR: usize = 64;

/// A run in its environment: its place, when it began, and its number.
type At = (i64, (i64, i64, i64));

/// New commits on top of known ones: they do not change the place of any other run.
struct OnTop {
    /// New commits with their first parents.
    new: Vec<(String, String)>,
    /// The commit is part of a chain: its parent or a child of it is known.
    is_chained: bool,
    /// Another run measured it, or changes to it.
    is_measured: bool,
    /// Its ancestors.
    ancestors: BTreeSet<String>,
}

/// Stored data about one commit.
#[derive(Default)]
struct Known {
    parent: Option<String>,
    has_child: bool,
    runs: usize,
}

/// A run of the branch, the newest code first.
struct Last {
    /// Its commit, or the one that its uncommitted changes are based on.
    sha: String,
    dirty: bool,
    pipeline: Option<u64>,
    started_us: i64,
    place: i64,
    by: PlacedBy,
}

impl Adding<'_> {
    /// Gives a run its place. Returns the lines whose order has changed, apart from the new run at the end.
    pub(super) async fn places(
        &mut self,
        manifest: &Manifest,
        branch: i64,
        new: &place::Run,
    ) -> Result<BTreeSet<(i64, i64)>, StoreError> {
        let ancestors: Vec<&str> = manifest.ancestors.iter().map(String::as_str).collect();
        if let Some(on_top) = self.on_top(&new.sha, &ancestors).await? {
            let last = self.last_of(branch).await?;
            if let Some((place, by)) = behind(&last, new, &on_top) {
                for (sha, parent) in &on_top.new {
                    self.add_revision(sha, parent).await?;
                }
                self.set_place(new.run, place, by).await?;
                return Ok(BTreeSet::new());
            }
        }
        let mut chain = self.chain().await?;
        let told = match new.sha.as_str() {
            "" => Vec::new(),
            sha => chain.add(sha, ancestors),
        };
        for (sha, parent) in &told {
            self.add_revision(sha, parent).await?;
        }
        let mut moved = self.order(&chain, branch, new.run).await?;
        if !told.is_empty() {
            for row in sqlx::query(sql::LINES).bind(self.project).fetch_all(self.connection()).await? {
                let line = row.try_get(0)?;
                if line != branch {
                    moved.append(&mut self.order(&chain, line, new.run).await?);
                }
            }
        }
        Ok(moved)
    }

    async fn add_revision(&mut self, sha: &str, parent: &str) -> Result<(), StoreError> {
        sqlx::query(sql::ADD_REVISION)
            .bind(self.project)
            .bind(sha.to_owned())
            .bind(parent.to_owned())
            .execute(self.connection())
            .await?;
        Ok(())
    }

    async fn set_place(&mut self, run: i64, place: i64, by: PlacedBy) -> Result<(), StoreError> {
        sqlx::query(sql::SET_PLACE)
            .bind(self.project)
            .bind(run)
            .bind(place)
            .bind(by.number())
            .execute(self.connection())
            .await?;
        Ok(())
    }

    /// New commits on top of known ones. `None`: they may connect commits that were not connected before.
    async fn on_top(&mut self, sha: &str, ancestors: &[&str]) -> Result<Option<OnTop>, StoreError> {
        let mut on_top = OnTop {
            new: Vec::new(),
            is_chained: false,
            is_measured: false,
            ancestors: ancestors.iter().map(|sha| (*sha).to_owned()).collect(),
        };
        if sha.is_empty() {
            return Ok(Some(on_top));
        }
        if on_top.ancestors.len() < ancestors.len()
            || ["", sha].iter().any(|odd| on_top.ancestors.contains(*odd))
        {
            return Ok(None);
        }
        let mut known = self.known(sha).await?;
        // The new run is one of these.
        on_top.is_measured = known.runs > 1;
        on_top.is_chained = known.parent.is_some() || known.has_child || !ancestors.is_empty();
        let (mut at, mut rest) = (sha, ancestors);
        while known.parent.is_none() {
            let Some((parent, older)) = rest.split_first() else {
                // The clone ends here. Its last commit must not be a measured one that joins a chain only now.
                let is_quiet = at == sha || known.has_child || known.runs == 0;
                return Ok(is_quiet.then_some(on_top));
            };
            let own = usize::from(at == sha);
            if known.has_child || known.runs > own || on_top.new.len() == NEAR {
                return Ok(None);
            }
            on_top.new.push((at.to_owned(), (*parent).to_owned()));
            (at, rest) = (parent, older);
            known = self.known(at).await?;
        }
        let rows = sqlx::query(sql::BACK)
            .bind(self.project)
            .bind(at.to_owned())
            .bind(number(rest.len()))
            .fetch_all(self.connection())
            .await?;
        let parents = rows.iter().map(|row| row.try_get(1)).collect::<Result<Vec<String>, _>>()?;
        let is_known =
            parents.len() >= rest.len() && parents.iter().zip(rest).all(|(known, told)| known == told);
        Ok(is_known.then_some(on_top))
    }

    async fn known(&mut self, sha: &str) -> Result<Known, StoreError> {
        let rows = sqlx::query(sql::COMMIT)
            .bind(self.project)
            .bind(sha.to_owned())
            .fetch_all(self.connection())
            .await?;
        let mut known = Known::default();
        for row in rows {
            match row.try_get::<i64, _>(0)? {
                1 => known.parent = Some(row.try_get(1)?),
                2 => known.has_child = true,
                _ => known.runs += 1,
            }
        }
        Ok(known)
    }

    async fn last_of(&mut self, branch: i64) -> Result<Vec<Last>, StoreError> {
        let rows = sqlx::query(sql::LAST_OF_BRANCH)
            .bind(self.project)
            .bind(branch)
            .fetch_all(self.connection())
            .await?;
        let mut last = Vec::with_capacity(rows.len());
        for row in rows {
            let (key, pipeline): (String, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
            let by: i64 = row.try_get(4)?;
            last.push(Last {
                sha: row.try_get(5)?,
                dirty: sha(&key).is_empty(),
                pipeline: pipeline.and_then(|pipeline| u64::try_from(pipeline).ok()),
                started_us: row.try_get(2)?,
                place: row.try_get(3)?,
                by: PlacedBy::of_number(by)
                    .ok_or_else(|| StoreError::Broken(format!("{by} is no way to find a place")))?,
            });
        }
        Ok(last)
    }

    /// Orders the runs of a branch by a chain. Returns its environments whose order has changed.
    pub(super) async fn order(
        &mut self,
        chain: &Chain,
        branch: i64,
        new: i64,
    ) -> Result<BTreeSet<(i64, i64)>, StoreError> {
        let rows = sqlx::query(sql::BRANCH_RUNS)
            .bind(self.project)
            .bind(branch)
            .fetch_all(self.connection())
            .await?;
        let (mut runs, mut places) = (Vec::with_capacity(rows.len()), BTreeMap::new());
        for row in rows {
            let (run, key): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
            let pipeline: Option<i64> = row.try_get(2)?;
            let pipeline = pipeline.and_then(|pipeline| u64::try_from(pipeline).ok());
            let started_us = row.try_get(3)?;
            let dirty = sha(&key).is_empty();
            runs.push(place::Run { run, sha: row.try_get(7)?, dirty, pipeline, started_us });
            let (place, by): (i64, i64) = (row.try_get(4)?, row.try_get(5)?);
            let environment: i64 = row.try_get(6)?;
            places.insert(run, (environment, (place, by), (place, started_us, run)));
        }
        let mut order = Vec::with_capacity(runs.len());
        for placed in place::order(chain, &runs) {
            let Some((environment, before, (_, started_us, run))) = places.get(&placed.run).copied() else {
                continue;
            };
            if before != (placed.place, placed.by.number()) {
                self.set_place(run, placed.place, placed.by).await?;
            }
            order.push((environment, (placed.place, started_us, run)));
        }
        let before = places.into_values().map(|(environment, _, at)| (environment, at)).collect();
        Ok(moved(before, order, new).into_iter().map(|environment| (branch, environment)).collect())
    }

    /// First parents of the commits of a project.
    pub(super) async fn chain(&mut self) -> Result<Chain, StoreError> {
        let rows = sqlx::query(sql::REVISIONS).bind(self.project).fetch_all(self.connection()).await?;
        super::read::chain(&rows)
    }
}

/// The place of a run after all others of its branch, by the rules of [`place::order`]; `None`: the newest runs are not
/// enough to find it.
fn behind(last: &[Last], new: &place::Run, on_top: &OnTop) -> Option<(i64, PlacedBy)> {
    let single = |pipeline: Option<u64>| if pipeline.is_some() { PlacedBy::Pipeline } else { PlacedBy::Time };
    let Some(newest) = last.first() else {
        let by = if on_top.is_chained { PlacedBy::Chain } else { single(new.pipeline) };
        return Some((0, by));
    };
    // The last commit may have more runs than were read.
    if last.len() == NEAR && last.last().is_some_and(|oldest| oldest.place == newest.place) {
        return None;
    }
    let is_same = !new.sha.is_empty() && newest.sha == new.sha;
    let counts_up = |run: &Last| match (run.pipeline, new.pipeline) {
        (None, None) => true,
        (Some(old), Some(new)) => old < new || (is_same && old == new),
        _ => false,
    };
    let is_later = |run: &Last| run.started_us < new.started_us && counts_up(run);
    let of_newest = || last.iter().take_while(|run| run.place == newest.place);
    if !of_newest().all(is_later) {
        return None;
    }
    if is_same {
        // Changes come after their commit, each with a place of its own.
        let is_last = on_top.new.is_empty() && (new.dirty || !newest.dirty);
        return is_last.then_some((newest.place + i64::from(new.dirty), newest.by));
    }
    if on_top.is_measured {
        return None;
    }
    let place = newest.place + 1;
    if on_top.is_chained {
        let at = last.iter().position(|run| run.by == PlacedBy::Chain)?;
        let is_next = last.iter().take(at + 1).all(is_later)
            && last.get(at).is_some_and(|run| on_top.ancestors.contains(&run.sha));
        return is_next.then_some((place, PlacedBy::Chain));
    }
    match (newest.by, new.pipeline) {
        (PlacedBy::Chain | PlacedBy::Pipeline, Some(_)) => Some((place, PlacedBy::Pipeline)),
        _ => Some((place, PlacedBy::Time)),
    }
}

/// The environments in which more has changed than `new` as the last run.
fn moved(mut before: Vec<At>, mut now: Vec<At>, new: i64) -> BTreeSet<i64> {
    before.retain(|(_, (.., run))| *run != new);
    before.sort_unstable();
    now.sort_unstable();
    let environments: BTreeSet<i64> = now.iter().map(|(environment, _)| *environment).collect();
    let runs = |of: &[At], environment: i64| -> Vec<i64> {
        of.iter().filter(|(at, _)| *at == environment).map(|(_, (.., run))| *run).collect()
    };
    let is_moved = |environment: &i64| {
        let (before, mut now) = (runs(&before, *environment), runs(&now, *environment));
        now.pop_if(|last| *last == new);
        before != now
    };
    environments.into_iter().filter(is_moved).collect()
}
