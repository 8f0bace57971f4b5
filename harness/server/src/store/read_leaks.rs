//! Leaks of a line, and one leak on all lines.

use std::collections::{BTreeMap, BTreeSet};

use memgate_history::How;
use memgate_model::LeakKind;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::line_id::LineId;
use super::read::{KnownLeak, Shown, chain, event, leak_of, run_row, sha, state_of};
use super::{Choice, Store, StoreError, rows, statements as sql};
use crate::view::{LeakFilter, LeakOnLine, LeakRow, LeakView, Leaks, RunRow, SightingRow, State};

/// Most leaks of one list.
pub(crate) const MOST_LEAKS: usize = 200;
/// Most commits to walk back from the first one with a leak to the last one without it.
const MOST_BACK: i64 = 1001;

impl Store {
    /// Leaks of a line; `None`: there is no such line.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn leaks(
        &self,
        project: &str,
        choice: &Choice,
        filter: &LeakFilter,
    ) -> Result<Option<Leaks>, StoreError> {
        let Some(shown) = self.shown(project, choice).await? else { return Ok(None) };
        let all = self.leaks_of_line(&shown).await?;
        let owners: BTreeSet<String> = all.iter().flat_map(|leak| leak.owners.iter().cloned()).collect();
        let suites: BTreeSet<String> =
            all.iter().flat_map(|leak| &leak.tests).map(|test| suite(test).to_owned()).collect();
        let mut leaks: Vec<LeakRow> = all.into_iter().filter(|leak| fits(leak, filter)).collect();
        let of = leaks.len() as u64;
        leaks.truncate(MOST_LEAKS);
        let (owners, suites) = (owners.into_iter().collect(), suites.into_iter().collect());
        Ok(Some(Leaks { selection: shown.selection, leaks, of, owners, suites }))
    }

    /// One leak; `None`: nobody has seen it.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn leak(
        &self,
        project: &str,
        choice: &Choice,
        id: &str,
    ) -> Result<Option<LeakView>, StoreError> {
        let Some(shown) = self.shown(project, choice).await? else { return Ok(None) };
        let rows = sqlx::query(sql::LINES_OF_LEAK)
            .bind(shown.project)
            .bind(id.to_owned())
            .fetch_all(&self.pool)
            .await?;
        let Some(row) = rows.first() else { return self.leak_of_reviews(shown, id).await };
        let number: i64 = row.try_get(0)?;
        let mut tests = self.tests_of_leak(shown.project, number).await?;
        let mut lines = Vec::new();
        let mut known = None;
        let mut keys = BTreeMap::new();
        for row in rows {
            let found = leak_of(&row, 1)?;
            let (branch, environment): (i64, i64) = (row.try_get(16)?, row.try_get(17)?);
            let mut leak = leak_row(&row, &found)?;
            leak.tests = tests.remove(&(branch, environment)).unwrap_or_default();
            let is_shown = (branch, environment) == (shown.branch, shown.environment);
            keys.insert(is_shown, (leak.clone(), row.try_get::<String, _>(6)?, row.try_get::<String, _>(7)?));
            lines.push(LeakOnLine { branch: row.try_get(18)?, environment: row.try_get(19)?, leak });
            known = Some(found);
        }
        // Prefers the shown line, otherwise takes any.
        let (Some((_, (leak, first, clean))), Some(KnownLeak { leak: body, .. })) = (keys.pop_last(), known)
        else {
            return Ok(None);
        };
        let events =
            sqlx::query(sql::EVENTS_OF_LEAK).bind(shown.project).bind(number).fetch_all(&self.pool).await?;
        Ok(Some(LeakView {
            unmeasured: self.unmeasured(shown.project, &clean, &first).await?,
            sightings: self.sightings(shown.project, number).await?,
            selection: shown.selection,
            leak,
            lines,
            frames: body.frames,
            holder: body.holder,
            hold: body.hold,
            events: events.iter().map(event).collect::<Result<_, _>>()?,
        }))
    }

    /// A leak of reviews only; `None`: nobody has seen it, or the sightings of its reviews have expired.
    async fn leak_of_reviews(&self, shown: Shown, id: &str) -> Result<Option<LeakView>, StoreError> {
        let row = sqlx::query(sql::LEAK).bind(shown.project).bind(id.to_owned()).fetch_optional(&self.pool);
        let Some(row) = row.await? else { return Ok(None) };
        let number: i64 = row.try_get(0)?;
        let KnownLeak { id, leak } = leak_of(&row, 1)?;
        let sightings = self.sightings(shown.project, number).await?;
        let (Some(first), Some(last)) = (sightings.last(), sightings.first()) else { return Ok(None) };
        let newest = || sightings.iter().filter(|seen| seen.run.run == last.run.run);
        let mut tests = newest().map(|seen| seen.test.clone()).collect();
        sorted(&mut tests);
        let row = LeakRow {
            kind: leak.kind,
            title: leak.title.clone(),
            culprit: memgate_reports::who(&leak),
            place: memgate_reports::source_line(&leak),
            owners: leak.owners,
            state: State::New,
            flaky: false,
            waived: newest().all(|seen| seen.how == How::Waived.name()),
            first_sha: first.run.sha.clone(),
            last_sha: last.run.sha.clone(),
            since_us: first.run.started_us,
            window: Vec::new(),
            rate: 1.0,
            bytes: newest().map(|seen| seen.bytes).fold(0.0, f64::max),
            count: newest().map(|seen| seen.count).fold(0.0, f64::max),
            tests,
            id,
        };
        Ok(Some(LeakView {
            unmeasured: Vec::new(),
            sightings,
            selection: shown.selection,
            leak: row,
            lines: Vec::new(),
            frames: leak.frames,
            holder: leak.holder,
            hold: leak.hold,
            events: Vec::new(),
        }))
    }

    /// All leaks of a line, the worst first.
    pub(super) async fn leaks_of_line(&self, shown: &Shown) -> Result<Vec<LeakRow>, StoreError> {
        let mut tests = self.last_tests(shown.line()).await?;
        let rows = self.of_line(sql::LEAKS_OF_LINE, shown).await?;
        worst_first(&rows, |leak| tests.remove(&leak).unwrap_or_default())
    }

    /// At most `most` leaks of a line that are alive, the worst first.
    pub(super) async fn worst_of_line(&self, shown: &Shown, most: i64) -> Result<Vec<LeakRow>, StoreError> {
        let line = shown.line();
        let rows = line.query(sql::WORST_OF_LINE).bind(most).fetch_all(&self.pool).await?;
        let leaks = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
        let mut tests = by_leak(rows::last_tests(&mut *self.pool.acquire().await?, line, &leaks).await?)?;
        worst_first(&rows, |leak| tests.remove(&leak).unwrap_or_default())
    }

    /// The leaks that a test had in the last run that saw them.
    pub(super) async fn leaks_of_test(
        &self,
        shown: &Shown,
        (test, name): (i64, &str),
    ) -> Result<Vec<LeakRow>, StoreError> {
        let rows = sqlx::query(sql::LEAKS_OF_TEST)
            .bind(shown.project)
            .bind(shown.branch)
            .bind(shown.environment)
            .bind(test)
            .fetch_all(&self.pool)
            .await?;
        worst_first(&rows, |_| vec![name.to_owned()])
    }

    /// Tests that had a leak in the last run that saw it, by leak.
    async fn last_tests(&self, line: LineId) -> Result<BTreeMap<i64, Vec<String>>, StoreError> {
        by_leak(line.query(sql::LAST_TESTS).fetch_all(&self.pool).await?)
    }

    /// Tests that had one leak in the last run that saw it, by branch and environment.
    pub(super) async fn tests_of_leak(
        &self,
        project: i64,
        leak: i64,
    ) -> Result<BTreeMap<(i64, i64), Vec<String>>, StoreError> {
        let mut tests = BTreeMap::<(i64, i64), Vec<String>>::new();
        for row in sqlx::query(sql::TESTS_OF_LEAK).bind(project).bind(leak).fetch_all(&self.pool).await? {
            let (suite, name): (String, String) = (row.try_get(2)?, row.try_get(3)?);
            let line = (row.try_get(0)?, row.try_get(1)?);
            tests.entry(line).or_default().push(format!("{suite}::{name}"));
        }
        tests.values_mut().for_each(sorted);
        Ok(tests)
    }

    async fn sightings(&self, project: i64, leak: i64) -> Result<Vec<SightingRow>, StoreError> {
        let rows =
            sqlx::query(sql::SIGHTINGS_WITH_TESTS).bind(project).bind(leak).fetch_all(&self.pool).await?;
        let mut runs = BTreeMap::<i64, RunRow>::new();
        for row in sqlx::query(sql::RUNS_OF_LEAK).bind(project).bind(leak).fetch_all(&self.pool).await? {
            runs.insert(row.try_get(0)?, run_row(&row)?);
        }
        let mut sightings = Vec::with_capacity(rows.len());
        for row in rows {
            let Some(run) = runs.get(&row.try_get(0)?) else { continue };
            let (suite, name): (String, String) = (row.try_get(1)?, row.try_get(2)?);
            let how = How::of_number(row.try_get(3)?).unwrap_or(How::Counted);
            sightings.push(SightingRow {
                run: run.clone(),
                test: format!("{suite}::{name}"),
                bytes: row.try_get(4)?,
                count: row.try_get(5)?,
                how: how.name().to_owned(),
            });
        }
        Ok(sightings)
    }

    /// Commits after `clean` and before `first`, oldest first, if the chain between them is known.
    async fn unmeasured(&self, project: i64, clean: &str, first: &str) -> Result<Vec<String>, StoreError> {
        let rows =
            sqlx::query(sql::BACK).bind(project).bind(first.to_owned()).bind(MOST_BACK).fetch_all(&self.pool);
        let chain = chain(&rows.await?)?;
        Ok(chain.between(clean, first).into_iter().map(str::to_owned).collect())
    }
}

/// The tests in rows of a leak, a suite and a name.
fn by_leak(rows: Vec<AnyRow>) -> Result<BTreeMap<i64, Vec<String>>, StoreError> {
    let mut tests = BTreeMap::<i64, Vec<String>>::new();
    for row in rows {
        let (suite, name): (String, String) = (row.try_get(1)?, row.try_get(2)?);
        tests.entry(row.try_get(0)?).or_default().push(format!("{suite}::{name}"));
    }
    tests.values_mut().for_each(sorted);
    Ok(tests)
}

fn sorted(tests: &mut Vec<String>) {
    tests.sort();
    tests.dedup();
}

fn leak_row(row: &AnyRow, KnownLeak { id, leak }: &KnownLeak) -> Result<LeakRow, StoreError> {
    let key = |at: usize| -> Result<String, StoreError> {
        let key: String = row.try_get(at)?;
        Ok(sha(&key).to_owned())
    };
    let recent: String = row.try_get(12)?;
    Ok(LeakRow {
        id: id.clone(),
        kind: leak.kind,
        title: leak.title.clone(),
        culprit: memgate_reports::who(leak),
        place: memgate_reports::source_line(leak),
        owners: leak.owners.clone(),
        state: state_of(row.try_get(3)?)?,
        flaky: row.try_get::<i64, _>(4)? != 0,
        waived: row.try_get::<i64, _>(5)? != 0,
        first_sha: key(6)?,
        last_sha: key(8)?,
        since_us: row.try_get(10)?,
        window: recent.bytes().map(|seen| seen == b'#').collect(),
        rate: row.try_get(13)?,
        bytes: row.try_get(14)?,
        count: row.try_get(15)?,
        tests: Vec::new(),
    })
}

fn worst_first(
    rows: &[AnyRow],
    mut tests: impl FnMut(i64) -> Vec<String>,
) -> Result<Vec<LeakRow>, StoreError> {
    let mut leaks = Vec::with_capacity(rows.len());
    for row in rows {
        let leak = leak_row(row, &leak_of(row, 1)?)?;
        leaks.push(LeakRow { tests: tests(row.try_get(0)?), ..leak });
    }
    leaks.sort_by(|a, b| {
        (a.waived, a.state).cmp(&(b.waived, b.state)).then(b.bytes.total_cmp(&a.bytes)).then(a.id.cmp(&b.id))
    });
    Ok(leaks)
}

/// The suite of `suite::Test.name`.
fn suite(test: &str) -> &str {
    test.split("::").next().unwrap_or_default()
}

fn fits(leak: &LeakRow, filter: &LeakFilter) -> bool {
    let kind = match leak.kind {
        LeakKind::Native => "native",
        LeakKind::Java => "java",
        LeakKind::Os => "os",
        LeakKind::Mapped => "mapped",
        LeakKind::Heap => "heap",
    };
    let text = filter.text.to_lowercase();
    let mut texts = [&leak.id, &leak.title, &leak.culprit, &leak.place].into_iter().chain(&leak.tests);
    filter.state.shows(leak.state)
        && (filter.kind.is_empty() || filter.kind == kind)
        && (filter.owner.is_empty() || leak.owners.contains(&filter.owner))
        && (filter.suite.is_empty() || leak.tests.iter().any(|test| suite(test) == filter.suite))
        && (text.is_empty() || texts.any(|have| have.to_lowercase().contains(&text)))
}
