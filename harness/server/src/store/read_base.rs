//! The base of a review: a measured commit of its target line.
//!
//! Data flow: the commit that was merged in, with its ancestors → [`place::base`] over the whole runs of the line → its
//! place → events up to there (which leaks are alive) and sightings (how large they were) → [`BaseLeaks`].
//!
//! Later runs of the line show more about a commit than its own run: a leak that shows in half of the runs may be alive
//! at a commit whose run missed it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use memgate_history::Environment;
use memgate_history::life::State;
use memgate_history::place::{self, Chain, FARTHEST_BASE};
use memgate_history::sha256_hex;
use memgate_model::{BASE_VERSION, Base, BaseLeak, BaseLeaks, Metric};
use sqlx::Row as _;

use super::line_id::LineId;
use super::read::{chain, sha, state_of};
use super::read_runs::Rosters;
use super::{Store, StoreError, statements as sql};

/// The requested base.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The line.
    pub branch: String,
    /// Must be equal for figures to be comparable.
    pub environment: Environment,
    /// The commit that was merged in, and its first parents as far as the clone has them.
    pub commits: Vec<String>,
}

/// A measured commit of a line.
struct Measured {
    run: i64,
    place: i64,
    roster: i64,
}

impl Store {
    /// The leaks of the measured commit that is nearest to the wanted one; `None`: none is near enough.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn base(&self, project: &str, wanted: &Wanted) -> Result<Option<BaseLeaks>, StoreError> {
        let Some(merged) = wanted.commits.first().filter(|sha| !sha.is_empty()) else { return Ok(None) };
        let Some(id) = self.id(sql::PROJECT, None, project).await? else { return Ok(None) };
        let Some(branch) = self.id(sql::BRANCH, Some(id), &wanted.branch).await? else { return Ok(None) };
        let digest = sha256_hex(&serde_json::to_vec(&wanted.environment)?);
        let Some(environment) = self.id(sql::ENVIRONMENT, Some(id), &digest).await? else { return Ok(None) };
        let line = LineId { project: id, branch, environment };
        let mut measured = HashMap::<String, Measured>::new();
        for row in line.query(sql::WHOLE_RUNS).fetch_all(&self.pool).await? {
            let key: String = row.try_get(1)?;
            let run = Measured { run: row.try_get(0)?, place: row.try_get(2)?, roster: row.try_get(3)? };
            measured.entry(sha(&key).to_owned()).or_insert(run);
        }
        let chain = self.chain_from(id, &wanted.commits).await?;
        let Some(found) = place::base(&chain, merged, |sha| measured.contains_key(sha)) else {
            return Ok(None);
        };
        let Some(run) = measured.get(&found.sha) else { return Ok(None) };
        let (leaks, tests) = self.leaks_at(line, run).await?;
        Ok(Some(BaseLeaks {
            version: BASE_VERSION,
            project: project.to_owned(),
            environment: wanted.environment.0.clone(),
            base: Base {
                branch: wanted.branch.clone(),
                merged: merged.clone(),
                before: u32::try_from(found.before).unwrap_or(u32::MAX),
                sha: found.sha,
                ..Base::default()
            },
            leaks,
            tests: self.figures_of(id, run, &tests).await?,
            fetched_s: 0,
        }))
    }

    pub(super) async fn id(
        &self,
        statement: &'static str,
        project: Option<i64>,
        name: &str,
    ) -> Result<Option<i64>, StoreError> {
        let query = sqlx::query(statement);
        let query = match project {
            Some(project) => query.bind(project),
            None => query,
        };
        let row = query.bind(name.to_owned()).fetch_optional(&self.pool).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// First parents from the clone; beyond its end, from other runs.
    async fn chain_from(&self, project: i64, commits: &[String]) -> Result<Chain, StoreError> {
        let mut known = match commits.len() {
            0..=FARTHEST_BASE => {
                chain(&sqlx::query(sql::REVISIONS).bind(project).fetch_all(&self.pool).await?)?
            }
            _ => Chain::default(),
        };
        if let Some((merged, before)) = commits.split_first() {
            known.add(merged, before.iter().map(String::as_str));
        }
        Ok(known)
    }

    /// Leaks of the line at a place, and the tests that had those that are alive.
    async fn leaks_at(
        &self,
        line: LineId,
        at: &Measured,
    ) -> Result<(BTreeMap<String, BaseLeak>, BTreeSet<i64>), StoreError> {
        let ask = |statement: &'static str| line.query(statement).bind(at.place);
        let (mut leaks, mut ids) = (BTreeMap::<i64, BaseLeak>::new(), BTreeMap::<i64, String>::new());
        // Leaks that come and go, from their first commit on: a run that saw nothing has fixed nothing.
        let mut flaky = BTreeSet::<i64>::new();
        // By place: the last state counts.
        for row in ask(sql::STATES_AT).fetch_all(&self.pool).await? {
            let (leak, state, key): (i64, State, String) =
                (row.try_get(0)?, state_of(row.try_get(1)?)?, row.try_get(2)?);
            let is_flaky = row.try_get::<i64, _>(4)? != 0;
            if is_flaky && key == row.try_get::<String, _>(7)? {
                flaky.insert(leak);
            }
            let comes_and_goes = state == State::Fixed && flaky.contains(&leak);
            let is_fixed = state == State::Fixed && !comes_and_goes;
            let confirmed: Option<String> = row.try_get(8)?;
            let fixed = if is_fixed { confirmed.unwrap_or(key) } else { String::new() };
            let fixed = sha(&fixed).to_owned();
            let known = BaseLeak {
                alive: state.is_alive() || comes_and_goes,
                flaky: is_flaky,
                fixed,
                bytes: row.try_get(5)?,
                count: row.try_get(6)?,
            };
            leaks.insert(leak, known);
            ids.insert(leak, row.try_get(3)?);
        }
        let farthest = i64::try_from(FARTHEST_BASE).unwrap_or(i64::MAX);
        let mut tests = BTreeSet::new();
        let mut seen = BTreeMap::<i64, i64>::new();
        for row in ask(sql::SEEN_UP_TO).bind(at.place.saturating_sub(farthest)).fetch_all(&self.pool).await? {
            let (leak, place): (i64, i64) = (row.try_get(0)?, row.try_get(4)?);
            let Some(known) = leaks.get_mut(&leak).filter(|known| known.alive) else { continue };
            tests.insert(row.try_get(1)?);
            let (bytes, count): (f64, f64) = (row.try_get(2)?, row.try_get(3)?);
            // The largest amount of a test in the newest run.
            if seen.insert(leak, place) != Some(place) || bytes > known.bytes {
                (known.bytes, known.count) = (bytes, count);
            }
        }
        let named = leaks.into_iter().filter_map(|(leak, known)| Some((ids.remove(&leak)?, known)));
        Ok((named.collect(), tests))
    }

    /// The exact figures of some tests in a run.
    async fn figures_of(
        &self,
        project: i64,
        of: &Measured,
        tests: &BTreeSet<i64>,
    ) -> Result<BTreeMap<String, BTreeMap<Metric, (f64, f64)>>, StoreError> {
        let mut found = BTreeMap::<String, BTreeMap<Metric, (f64, f64)>>::new();
        if tests.is_empty() {
            return Ok(found);
        }
        let names = self.test_names(project, tests.iter().copied()).await?;
        let mut rosters = Rosters::default();
        let roster = rosters.get(self, project, of.roster).await?;
        for (metric, figures) in self.columns(project, of.run, roster.len()).await? {
            let Ok(metric) = metric.parse::<Metric>() else { continue };
            if memgate_history::column::is_rounded(metric) {
                continue;
            }
            for test in tests {
                let figure = roster.get(test).and_then(|slot| figures.get(*slot)?.as_ref());
                let (Some(figure), Some((suite, name))) = (figure, names.get(test)) else { continue };
                let bounds = figure.interval.unwrap_or((figure.value, figure.value));
                // JSON has no infinity: an open bound cannot be compared with a figure.
                if bounds.0.is_finite() && bounds.1.is_finite() {
                    found.entry(format!("{suite}::{name}")).or_default().insert(metric, bounds);
                }
            }
        }
        Ok(found)
    }
}
