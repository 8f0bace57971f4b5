//! Adding a run: one transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};

use memgate_history::column::{self, Precision};
use memgate_history::life;
use memgate_history::place::{self, PlacedBy};
use memgate_history::record::{TestRecord, lean};
use memgate_history::{Figure, Manifest, RunRecord, identity};
use memgate_history::{hex, roster, sha256_hex};
use memgate_model::{Metric, RunReport};
use sha2::{Digest as _, Sha256};
use sqlx::Row as _;

use super::ids::Ids;
use super::line::{LineRun, MOST_SELECTION, NewRun, Seen};
use super::retention::{Ends, month};
use super::statements as sql;
use super::transaction::{Adding, number};
use super::{Added, Store, StoreError, lives, rows};

/// Number of leaks in [`sql::LEAK_IDS`].
const LEAKS_AT_ONCE: usize = 16;

/// The column of test durations, besides those of metrics.
pub(super) const DURATION: &str = "duration";

/// The column with the limits of a metric; there is none if no test has a finite limit above zero.
pub(super) fn limits_of(metric: Metric) -> String {
    format!("limit of {metric}")
}

impl Store {
    /// Adds a run, once.
    ///
    /// # Errors
    /// The database cannot be written, the report cannot be kept, or another run has this key.
    pub async fn add(&self, manifest: &Manifest, report: &RunReport) -> Result<Added, StoreError> {
        self.add_at(manifest, report, jiff::Timestamp::now().as_microsecond()).await
    }

    /// Adds a run as if at that time.
    pub(crate) async fn add_at(
        &self,
        manifest: &Manifest,
        report: &RunReport,
        now_us: i64,
    ) -> Result<Added, StoreError> {
        let record = RunRecord::of(report)?;
        // An uploaded run has the same digest as one added here.
        let digest = identity::digest(report, &record);
        self.prepare(month(now_us)).await?;
        let transaction = if self.is_postgres {
            self.pool.begin().await?
        } else {
            self.pool.begin_with("BEGIN IMMEDIATE").await?
        };
        let mut adding = Adding { transaction, project: 0, ids: Ids::new(now_us) };
        // If two runs are added at the same time, one waits here. So each sees all that was added before it.
        adding.project = adding.project(&manifest.project, now_us).await?;
        let run_key = run_key(manifest);
        if let Some(row) = adding.find(sql::RUN_BY_KEY, &run_key).await? {
            let (run, known): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
            let is_former = !known.starts_with(identity::VERSION);
            return if known == digest || (is_former && known == former_digest(report)?) {
                let ticket = self.secret.ticket((adding.project, run), &known);
                Ok(Added { run, already: true, events: Vec::new(), ticket })
            } else {
                Err(StoreError::Conflict(run))
            };
        }
        let received = Received {
            manifest,
            report,
            record: &record,
            run_key: &run_key,
            body_digest: &digest,
            at_us: now_us,
        };
        let run = adding.run(&received).await?;
        let events = lives::fold(&mut adding, &run, now_us).await?;
        let run = run.run.run;
        if !self.is_postgres {
            // A file has no maintenance job: each run also removes some expired rows.
            adding.remove_ended(now_us).await?;
        }
        let ticket = self.secret.ticket((adding.project, run), &digest);
        adding.transaction.commit().await?;
        Ok(Added { run, already: false, events, ticket })
    }
}

/// A run that is new.
struct Received<'a> {
    manifest: &'a Manifest,
    report: &'a RunReport,
    record: &'a RunRecord,
    run_key: &'a str,
    body_digest: &'a str,
    at_us: i64,
}

/// The ids of a branch and of an environment.
struct Line {
    branch: i64,
    environment: i64,
}

/// Digest of a run that was added until November 2026.
pub(super) fn former_digest(report: &RunReport) -> serde_json::Result<String> {
    let mut body = Digested(Sha256::new());
    // The writer writes its buffered bytes when it is dropped.
    serde_json::to_writer(BufWriter::new(&mut body), &*lean(report))?;
    Ok(hex(&body.0.finalize()))
}

/// Computes only the digest of the bytes it receives.
struct Digested(Sha256);

impl Write for Digested {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A word as the database stores it.
fn text(value: serde_json::Result<serde_json::Value>) -> serde_json::Result<String> {
    value.map(|value| value.as_str().unwrap_or_default().to_owned())
}

/// Key that identifies a run.
pub(super) fn run_key(manifest: &Manifest) -> String {
    let none = memgate_model::Ci::default();
    let ci = manifest.ci.as_ref().unwrap_or(&none);
    let parts = [&manifest.project, &ci.provider, &ci.pipeline, &ci.job, &ci.attempt, &manifest.session];
    let mut key = Sha256::new();
    // A run that may not write a line must not take the place of a run on it either.
    if manifest.unproven {
        key.update("unproven\0");
    }
    for part in parts {
        key.update(part.as_bytes());
        key.update([0]);
    }
    hex(&key.finalize())
}

impl Adding<'_> {
    /// Locks the project, and creates it if it is new.
    async fn project(&mut self, name: &str, now_us: i64) -> Result<i64, StoreError> {
        let hold = || sqlx::query(sql::HOLD_PROJECT).bind(name.to_owned());
        if let Some(row) = hold().fetch_optional(self.connection()).await? {
            return Ok(row.try_get(0)?);
        }
        let id = self.ids.next();
        sqlx::query(sql::ADD_PROJECT)
            .bind(id)
            .bind(name.to_owned())
            .bind(now_us)
            .execute(self.connection())
            .await?;
        // Another transaction may have been first.
        Ok(hold().fetch_one(self.connection()).await?.try_get(0)?)
    }

    /// The branch and the environment of a run, created if they are new. Nobody else creates any meanwhile, because the
    /// project is locked.
    async fn line(&mut self, manifest: &Manifest) -> Result<Line, StoreError> {
        // A review from a branch called `main` is not on the project's `main`: it has a branch of its own.
        let target = manifest.commit.as_ref().map_or("", |commit| &commit.target);
        let name = match target {
            "" => manifest.branch().to_owned(),
            target => format!("{} → {target}", manifest.branch()),
        };
        let is_line = i64::from(manifest.is_on_a_line());
        let known = self.find(sql::BRANCH, &name).await?;
        let (branch, is_known): (i64, bool) = match known {
            Some(row) => (row.try_get(0)?, row.try_get::<i64, _>(1)? == is_line),
            None => (self.ids.next(), false),
        };
        if !is_known {
            sqlx::query(sql::ADD_BRANCH)
                .bind(self.project)
                .bind(branch)
                .bind(name)
                .bind(is_line)
                .execute(&mut *self.transaction)
                .await?;
        }
        let environment = serde_json::to_vec(&manifest.environment)?;
        let digest = sha256_hex(&environment);
        let environment = match self.find(sql::ENVIRONMENT, &digest).await? {
            Some(row) => row.try_get(0)?,
            None => {
                let id = self.ids.next();
                sqlx::query(sql::ADD_ENVIRONMENT)
                    .bind(self.project)
                    .bind(id)
                    .bind(digest)
                    .bind(manifest.environment.label())
                    .execute(&mut *self.transaction)
                    .await?;
                id
            }
        };
        Ok(Line { branch, environment })
    }

    async fn run(&mut self, received: &Received<'_>) -> Result<NewRun, StoreError> {
        let &Received { manifest, report, record, at_us: now_us, .. } = received;
        let line = self.line(manifest).await?;
        let started = report.started.parse::<jiff::Timestamp>().map(jiff::Timestamp::as_microsecond);
        // With a clock that is ahead, the run would stay the newest one for that time.
        let started_us = started.map_or(now_us, |started| started.min(now_us));
        let run = self.ids.next();
        let (roster, tests) = self.roster(&record.tests).await?;
        let key = manifest.measured_commit().map_or_else(|| life::key_of_run(run), str::to_owned);
        let on_line = manifest.is_on_a_line();
        let selection = manifest.selection.clamp(0, MOST_SELECTION);
        let is_partial = manifest.partial || selection != 0 || !record.is_whole;
        let commit = manifest.commit.as_ref().map_or_else(String::new, |commit| commit.sha.clone());
        let look = record.look;
        let of_line =
            LineRun { run, key, commit: commit.clone(), started_us, roster, is_partial, look, selection };
        let ends = Ends::of(now_us, on_line);
        self.insert_run(received, &of_line, &line, ends.figures).await?;
        let Line { branch, environment } = line;
        self.columns(run, &record.tests, ends.figures).await?;
        self.insert_exceptions((run, ends.rest), &record.tests, &tests).await?;
        let (seen, looks) = self.leaks((run, ends.rest), record, &tests, manifest.unproven).await?;
        sqlx::query(sql::ADD_LINE)
            .bind(self.project)
            .bind(branch)
            .bind(environment)
            .bind(i64::from(on_line))
            .bind(started_us)
            .execute(&mut *self.transaction)
            .await?;
        let at = place::Run {
            run,
            sha: commit,
            dirty: manifest.dirty,
            pipeline: manifest.pipeline_number(),
            started_us,
        };
        let moved = self.places(manifest, branch, &at).await?;
        Ok(NewRun { run: of_line, seen, looks, branch, environment, on_line, moved })
    }

    async fn insert_run(
        &mut self,
        received: &Received<'_>,
        of_line: &LineRun,
        line: &Line,
        expires_month: i64,
    ) -> Result<(), StoreError> {
        let &Received { manifest, record, run_key, body_digest, at_us, .. } = received;
        let commit = manifest.commit.clone().unwrap_or_default();
        sqlx::query(sql::ADD_RUN)
            .bind(self.project)
            .bind(of_line.run)
            .bind(run_key.to_owned())
            .bind(body_digest.to_owned())
            .bind(line.branch)
            .bind(line.environment)
            .bind(of_line.roster)
            .bind(commit.sha)
            .bind(commit.target)
            .bind(of_line.key.clone())
            .bind(manifest.pipeline_number().and_then(|number| i64::try_from(number).ok()))
            .bind(-1_i64)
            .bind(PlacedBy::Time.number())
            .bind(i64::from(manifest.is_on_a_line()))
            .bind(of_line.measured())
            .bind(manifest.session.clone())
            .bind(manifest.ci.as_ref().map_or_else(String::new, |ci| ci.url.clone()))
            .bind(of_line.started_us)
            .bind(at_us)
            .bind(record.duration_ms)
            .bind(text(serde_json::to_value(record.verdict))?)
            .bind(i64::from(record.exit_code))
            .bind(number(record.count()))
            .bind(number(record.failed()))
            .bind(number(record.leaking().len()))
            .bind(expires_month)
            .execute(&mut *self.transaction)
            .await?;
        if !record.reasons.is_empty() {
            sqlx::query(sql::ADD_REASONS)
                .bind(self.project)
                .bind(of_line.run)
                .bind(record.reasons.join("\n"))
                .execute(&mut *self.transaction)
                .await?;
        }
        Ok(())
    }

    /// Adds an exception for each test that did not simply pass.
    async fn insert_exceptions(
        &mut self,
        (run, expires): (i64, i64),
        tests: &[TestRecord],
        ids: &[i64],
    ) -> Result<(), StoreError> {
        let mut exceptions = Vec::new();
        let tells = |(test, _): &(&TestRecord, &i64)| !test.is_plain() || !test.tells_absence;
        for (test, id) in tests.iter().zip(ids).filter(tells) {
            exceptions.push([
                self.project.into(),
                run.into(),
                (*id).into(),
                text(serde_json::to_value(test.outcome))?.into(),
                text(serde_json::to_value(test.verdict))?.into(),
                i64::from(test.tells_absence).into(),
                test.reason.clone().into(),
                expires.into(),
            ]);
        }
        rows::add(self.connection(), sql::ADD_EXCEPTION, exceptions).await?;
        Ok(())
    }

    async fn columns(&mut self, run: i64, tests: &[TestRecord], expires: i64) -> Result<(), StoreError> {
        let mut columns: Vec<(String, Vec<u8>)> = Vec::new();
        // Only metrics that a test has: most have no values.
        let measured: BTreeSet<Metric> = tests.iter().flat_map(|test| test.figures.keys()).copied().collect();
        for metric in measured {
            let figures: Vec<_> = tests.iter().map(|test| test.figures.get(&metric).copied()).collect();
            let packed = column::encode(&figures, Precision::of(metric));
            columns.push((metric.name().to_owned(), packed));
        }
        let limited: BTreeSet<Metric> = tests.iter().flat_map(|test| test.limits.keys()).copied().collect();
        for metric in limited {
            let limit = |test: &TestRecord| {
                test.limits.get(&metric).map(|limit| Figure { value: *limit, interval: None })
            };
            let limits: Vec<_> = tests.iter().map(limit).collect();
            columns.push((limits_of(metric), column::encode(&limits, Precision::Exact)));
        }
        let durations: Vec<_> =
            tests.iter().map(|test| Some(Figure { value: test.duration_s * 1e3, interval: None })).collect();
        columns.push((DURATION.to_owned(), column::encode(&durations, Precision::Rounded)));
        let project = self.project;
        let rows = columns
            .into_iter()
            .map(|(metric, data)| [project.into(), run.into(), metric.into(), data.into(), expires.into()]);
        Ok(rows::add(self.connection(), sql::ADD_COLUMN, rows.collect()).await?)
    }

    async fn leaks(
        &mut self,
        (run, expires): (i64, i64),
        record: &RunRecord,
        tests: &[i64],
        unproven: bool,
    ) -> Result<(BTreeMap<i64, Seen>, BTreeMap<i64, (String, String)>), StoreError> {
        // An unproven run must not change how a leak looks, nor may what is kept once, for example after its fix.
        let leaking = if unproven { BTreeSet::new() } else { record.leaking() };
        let mut ids = self.leak_ids(&record.leaks.keys().collect::<Vec<_>>()).await?;
        let (mut new, mut looks) = (Vec::new(), BTreeMap::new());
        for (fingerprint, leak) in &record.leaks {
            match ids.get(fingerprint) {
                None => {
                    let (id, body) = (self.ids.next(), serde_json::to_string(leak)?);
                    new.push([self.project.into(), id.into(), fingerprint.clone().into(), body.into()]);
                    ids.insert(fingerprint.clone(), id);
                }
                Some(id) if leaking.contains(fingerprint.as_str()) => {
                    looks.insert(*id, (fingerprint.clone(), serde_json::to_string(leak)?));
                }
                Some(_) => {}
            }
        }
        rows::add(self.connection(), sql::ADD_LEAK, new).await?;
        let (mut sightings, mut seen) = (Vec::new(), BTreeMap::new());
        for sighting in &record.sightings {
            let (Some(leak), Some(test)) = (ids.get(&sighting.leak), tests.get(sighting.test)) else {
                continue;
            };
            Seen::add(&mut seen, *leak, (*test, sighting.how, sighting.bytes, sighting.count));
            sightings.push([
                self.project.into(),
                (*leak).into(),
                run.into(),
                (*test).into(),
                sighting.how.number().into(),
                sighting.bytes.into(),
                sighting.count.into(),
                expires.into(),
            ]);
        }
        rows::add(self.connection(), sql::ADD_SIGHTING, sightings).await?;
        Ok((seen, looks))
    }

    /// The ids of the known ones. Nobody else adds a leak meanwhile: runs of a project are added one after the other.
    async fn leak_ids(&mut self, fingerprints: &[&String]) -> Result<BTreeMap<String, i64>, StoreError> {
        let mut ids = BTreeMap::new();
        for names in fingerprints.chunks(LEAKS_AT_ONCE) {
            let mut query = sqlx::query(sql::LEAK_IDS).bind(self.project);
            for at in 0..LEAKS_AT_ONCE {
                query = query.bind(names[at.min(names.len() - 1)].clone());
            }
            for row in query.fetch_all(self.connection()).await? {
                ids.insert(row.try_get(1)?, row.try_get(0)?);
            }
        }
        Ok(ids)
    }

    /// The roster of these tests, and their ids in this order.
    async fn roster(&mut self, tests: &[TestRecord]) -> Result<(i64, Vec<i64>), StoreError> {
        let mut digest = Sha256::new();
        for test in tests {
            digest.update(test.suite.as_bytes());
            digest.update([0]);
            digest.update(test.name.as_bytes());
            digest.update([0]);
        }
        let digest = hex(&digest.finalize());
        if let Some(row) = self.find(sql::ROSTER, &digest).await? {
            let members: Vec<u8> = row.try_get(2)?;
            let ids = roster::decode(&members, tests.len());
            let ids =
                ids.ok_or_else(|| StoreError::Broken("a roster has another number of tests".to_owned()))?;
            return Ok((row.try_get(0)?, ids));
        }
        let mut names = BTreeMap::<&str, Vec<&str>>::new();
        for test in tests {
            names.entry(&test.suite).or_default().push(&test.name);
        }
        let mut known = BTreeMap::<&str, BTreeMap<String, i64>>::new();
        let project = self.project;
        for (suite, names) in names {
            known.insert(suite, rows::test_ids(self.connection(), project, suite, &names).await?);
        }
        let (mut ids, mut new) = (Vec::with_capacity(tests.len()), Vec::new());
        for test in tests {
            let known = known.get(test.suite.as_str()).and_then(|suite| suite.get(&test.name));
            let id = known.copied().unwrap_or_else(|| self.ids.next());
            if known.is_none() {
                new.push([
                    self.project.into(),
                    id.into(),
                    test.suite.clone().into(),
                    test.name.clone().into(),
                ]);
            }
            ids.push(id);
        }
        rows::add(self.connection(), sql::ADD_TEST, new).await?;
        let roster = self.ids.next();
        sqlx::query(sql::ADD_ROSTER)
            .bind(self.project)
            .bind(roster)
            .bind(digest)
            .bind(number(ids.len()))
            .bind(roster::encode(&ids))
            .execute(&mut *self.transaction)
            .await?;
        Ok((roster, ids))
    }
}
