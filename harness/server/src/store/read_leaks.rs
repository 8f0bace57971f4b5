//! Leaks of a line, and one leak on all lines.
//!
//! A line may have 20,000 leaks, whose bodies take seconds to read. A list reads the heads of all leaks, those bodies
//! that its filter needs, and the whole leaks that it shows.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use futures_util::TryStreamExt as _;
use memgate_history::How;
use memgate_model::Leak;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::line_id::LineId;
use super::read::{KnownLeak, Shown, chain, event, leak_of, run_row, sha, state_of};
use super::{Choice, Store, StoreError, rows, statements as sql};
use crate::view::{
    Came, EventRow, LeakFilter, LeakOnLine, LeakRow, LeakView, Leaks, RunRow, SightingRow, State,
};

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
        let line = shown.line();
        let mut tests = self.last_tests(line).await?;
        let suites: BTreeSet<String> = tests.values().flatten().map(|test| suite(test).to_owned()).collect();
        let in_suite =
            |leak: i64| tests.get(&leak).into_iter().flatten().any(|test| suite(test) == filter.suite);
        let mut heads: Vec<Head> = Vec::new();
        for row in self.of_line(sql::LEAK_HEADS_OF_LINE, &shown).await? {
            let head = Head::of(&row)?;
            if filter.state.shows(head.state) && (filter.suite.is_empty() || in_suite(head.leak)) {
                heads.push(head);
            }
        }
        let owned = self.owners_of_line(&shown).await?;
        if !filter.owner.is_empty() {
            heads.retain(|head| owned.get(&head.leak).is_some_and(|owners| owners.contains(&filter.owner)));
        }
        if !(filter.kind.is_empty() && filter.text.is_empty()) {
            let fits = self.fitting(line, filter, &heads, &tests).await?;
            heads.retain(|head| fits.contains(&head.leak));
        }
        let of = heads.len() as u64;
        heads.sort_by(Head::worst_first);
        heads.truncate(MOST_LEAKS);
        let shown_leaks: Vec<i64> = heads.iter().map(|head| head.leak).collect();
        let rows = rows::leaks_on_line(&mut *self.pool.acquire().await?, line, &shown_leaks).await?;
        let leaks = worst_first(&rows, |leak| tests.remove(&leak).unwrap_or_default())?;
        let owners: BTreeSet<String> = owned.into_values().flatten().collect();
        let (owners, suites) = (owners.into_iter().collect(), suites.into_iter().collect());
        Ok(Some(Leaks { selection: shown.selection, leaks, of, owners, suites }))
    }

    /// The leaks among `heads` that are of the filter's kind and have its text. A body is read as a whole only if
    /// neither the id of the leak nor one of its tests has the text.
    async fn fitting(
        &self,
        line: LineId,
        filter: &LeakFilter,
        heads: &[Head],
        tests: &BTreeMap<i64, Vec<String>>,
    ) -> Result<BTreeSet<i64>, StoreError> {
        let wanted: BTreeMap<i64, &Head> = heads.iter().map(|head| (head.leak, head)).collect();
        let text = filter.text.to_lowercase();
        let has = |have: &str| have.to_lowercase().contains(&text);
        let mut fitting = BTreeSet::new();
        let mut rows = line.query(sql::BODIES_OF_LINE).fetch(&self.pool);
        while let Some(row) = rows.try_next().await? {
            let leak = row.try_get(0)?;
            let Some(head) = wanted.get(&leak) else { continue };
            if !filter.kind.is_empty() && kind_in(row.try_get(2)?) != Some(filter.kind.as_str()) {
                continue;
            }
            let of_leak = || std::iter::once(&head.id).chain(tests.get(&leak).into_iter().flatten());
            if of_leak().any(|name| has(name)) || text_of(&leak_of(&row, 1)?.leak).iter().any(|of| has(of)) {
                fitting.insert(leak);
            }
        }
        Ok(fitting)
    }

    /// Owners of the leaks of a line that have any, by leak.
    async fn owners_of_line(&self, shown: &Shown) -> Result<BTreeMap<i64, Vec<String>>, StoreError> {
        let mut rows = shown.line().query(sql::OWNED_OF_LINE).fetch(&self.pool);
        let mut owned = BTreeMap::new();
        while let Some(row) = rows.try_next().await? {
            owned.insert(row.try_get(0)?, owners_in(row.try_get(2)?));
        }
        Ok(owned)
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
            keys.insert(is_shown, (leak.clone(), LineId { project: shown.project, branch, environment }));
            lines.push(LeakOnLine { branch: row.try_get(18)?, environment: row.try_get(19)?, leak });
            known = Some(found);
        }
        // Prefers the shown line, otherwise takes any.
        let (Some((_, (leak, line))), Some(KnownLeak { leak: body, .. })) = (keys.pop_last(), known) else {
            return Ok(None);
        };
        let rows = line.query(sql::EVENTS_OF_LEAK).bind(number).fetch_all(&self.pool).await?;
        let events = rows.iter().map(event).collect::<Result<Vec<_>, _>>()?;
        let of_line = rows.iter().take_while(|row| {
            let at = (row.try_get::<i64, _>(8), row.try_get::<i64, _>(9));
            matches!(at, (Ok(branch), Ok(environment)) if (branch, environment) == (line.branch, line.environment))
        });
        let of_line = events.get(..of_line.count()).unwrap_or_default();
        Ok(Some(LeakView {
            came: self.came((line, number), of_line, &leak).await?,
            sightings: self.sightings(shown.project, number).await?,
            selection: shown.selection,
            leak,
            lines,
            frames: body.frames,
            holder: body.holder,
            hold: body.hold,
            events,
        }))
    }

    /// A leak that no line has: seen only in reviews, or in uncommitted changes that no longer count. `None`: nobody
    /// has seen it, or its sightings have expired.
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
            came: None,
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

    /// At most `most` leaks of a line that are alive, the worst first.
    pub(super) async fn worst_of_line(&self, shown: &Shown, most: i64) -> Result<Vec<LeakRow>, StoreError> {
        let line = shown.line();
        let rows = line.query(sql::WORST_OF_LINE).bind(most).fetch_all(&self.pool).await?;
        let leaks = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
        let mut tests = by_leak(rows::last_tests(&mut *self.pool.acquire().await?, line, &leaks).await?)?;
        worst_first(&rows, |leak| tests.remove(&leak).unwrap_or_default())
    }

    /// The worst leaks that a test had in the last run that saw them: one more than are shown, if there are more.
    pub(super) async fn leaks_of_test(
        &self,
        shown: &Shown,
        (test, name): (i64, &str),
    ) -> Result<Vec<LeakRow>, StoreError> {
        let most = i64::try_from(MOST_LEAKS + 1).unwrap_or(i64::MAX);
        let query = shown.line().query(sql::LEAKS_OF_TEST).bind(test).bind(most);
        worst_first(&query.fetch_all(&self.pool).await?, |_| vec![name.to_owned()])
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

    /// How a leak came to a line, by its events there, the newest first.
    async fn came(
        &self,
        (line, number): (LineId, i64),
        events: &[EventRow],
        leak: &LeakRow,
    ) -> Result<Option<Came>, StoreError> {
        let came = |event: &&EventRow| matches!(event.kind.as_str(), "new" | "regressed");
        let Some(event) = events.iter().find(came) else { return Ok(None) };
        let mut first = event.first_sha.clone();
        if first.is_empty() {
            // Runs with uncommitted changes were the first to see it.
            let row = line.query(sql::FIRST_COMMIT_WITH).bind(number).bind(event.run);
            let row = row.fetch_optional(&self.pool).await?;
            first = row.map(|row| row.try_get(0)).transpose()?.unwrap_or_else(|| leak.last_sha.clone());
        }
        let clean = event.clean_sha.clone();
        let rows = sqlx::query(sql::BACK)
            .bind(line.project)
            .bind(first.clone())
            .bind(MOST_BACK)
            .fetch_all(&self.pool);
        let chain = chain(&rows.await?)?;
        let between = chain.between(&clean, &first).filter(|_| !clean.is_empty());
        let unmeasured = between.map(|shas| shas.into_iter().map(str::to_owned).collect());
        Ok(Some(Came { branch: event.branch.clone(), clean_sha: clean, first_sha: first, unmeasured }))
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

/// The owners in a body. Reading the whole body takes a hundred times as long. No text contains this key: there the
/// quotes would be escaped.
fn owners_in(body: &str) -> Vec<String> {
    let list = body.split_once("\"owners\":").map_or("[]", |(_, list)| list);
    let mut lists = serde_json::Deserializer::from_str(list).into_iter();
    lists.next().and_then(Result::ok).unwrap_or_default()
}

/// The kind in a body, as it is written there: `native`. The kind of a holder comes later.
fn kind_in(body: &str) -> Option<&str> {
    let (_, kind) = body.split_once("\"kind\":\"")?;
    kind.split('"').next()
}

/// The texts of a leak that lists show.
fn text_of(leak: &Leak) -> [String; 3] {
    [leak.title.clone(), memgate_reports::who(leak), memgate_reports::source_line(leak)]
}

/// What lists of leaks are ordered and filtered by, without the body.
struct Head {
    leak: i64,
    id: String,
    state: State,
    waived: bool,
    bytes: f64,
}

impl Head {
    fn of(row: &AnyRow) -> Result<Self, StoreError> {
        Ok(Self {
            leak: row.try_get(0)?,
            id: row.try_get(1)?,
            state: state_of(row.try_get(2)?)?,
            waived: row.try_get::<i64, _>(3)? != 0,
            bytes: row.try_get(4)?,
        })
    }

    fn worst_first(&self, other: &Self) -> Ordering {
        let key = |head: &Self| (head.waived, head.state);
        key(self).cmp(&key(other)).then(other.bytes.total_cmp(&self.bytes)).then(self.id.cmp(&other.id))
    }
}

#[cfg(test)]
mod tests {
    use memgate_history::life::StateFilter;
    use memgate_model::{Commit, Frame, LeakKind, RunReport, Runner, SuiteReport, TestReport, Verdict};

    use super::super::tests::{block_on, manifest, sqlite};
    use super::*;
    use crate::view::Order;

    /// Adds runs of main, each with a random part of the leaks.
    async fn fill(store: &Store, count: u64, runs: u64) {
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let kinds = [LeakKind::Native, LeakKind::Java, LeakKind::Os, LeakKind::Mapped, LeakKind::Heap];
        let leaks: Vec<Leak> = (0..count)
            .map(|number| Leak {
                id: format!("x1-{number}"),
                kind: kinds[usize::try_from(next(5)).unwrap()],
                title: format!("{number} × 7 B"),
                bytes_per_iteration: next(40) as f64,
                count_per_iteration: 1.0,
                owners: (0..next(3)).map(|_| format!("@team{}", next(4))).collect(),
                frames: (0..8)
                    .map(|at| Frame {
                        function: Some(format!("tiles::Load{}(int)", next(9))),
                        file: Some(format!("src/T{at}.cc")),
                        line: Some(7),
                        module: "tiles".to_owned(),
                        offset: at,
                        inlined: false,
                    })
                    .collect(),
                ..Leak::default()
            })
            .collect();
        for run in 0..runs {
            let mut tests: Vec<TestReport> = Vec::new();
            for at in 0..20 {
                let mut leaks_of_test = Vec::new();
                for (number, leak) in leaks.iter().enumerate() {
                    if (number % 20 == at && next(4) > 0) || next(60) == 0 {
                        let waiver = (next(9) == 0).then(|| "w".to_owned());
                        leaks_of_test.push(Leak { waiver, ..leak.clone() });
                    }
                }
                tests.push(TestReport {
                    confirmed: true,
                    leaks: leaks_of_test,
                    ..TestReport::new(&format!("Map.t{at}"), Verdict::Fail)
                });
            }
            let second = tests.split_off(10);
            let suites = [("engine", tests), ("app", second)]
                .map(|(name, tests)| SuiteReport::new(name, Runner::Gtest, Verdict::Fail, tests));
            add_run(store, run, suites.into()).await;
        }
    }

    /// Adds run number `run` of the branch `main`.
    async fn add_run(store: &Store, run: u64, suites: Vec<SuiteReport>) {
        let session = format!("s{run}");
        let commit = Commit { sha: session.clone(), branch: "main".to_owned(), ..Commit::default() };
        let manifest = manifest(&session, Some(commit), Vec::new());
        let report = RunReport {
            started: format!("2026-11-21T10:{run:02}:00Z"),
            duration_s: 1.0,
            ..RunReport::new("tiles", &session, Verdict::Fail, suites)
        };
        store.add(&manifest, &report).await.unwrap();
    }

    fn row_fits(leak: &LeakRow, filter: &LeakFilter) -> bool {
        let text = filter.text.to_lowercase();
        let mut texts = [&leak.id, &leak.title, &leak.culprit, &leak.place].into_iter().chain(&leak.tests);
        filter.state.shows(leak.state)
            && (filter.kind.is_empty() || serde_json::to_value(leak.kind).unwrap() == filter.kind)
            && (filter.owner.is_empty() || leak.owners.contains(&filter.owner))
            && (filter.suite.is_empty() || leak.tests.iter().any(|test| suite(test) == filter.suite))
            && texts.any(|have| have.to_lowercase().contains(&text))
    }

    fn filters() -> Vec<LeakFilter> {
        let mut filters = Vec::new();
        for state in StateFilter::all() {
            for (kind, owner, suite, text) in [
                ("", "", "", ""),
                ("java", "", "", ""),
                ("", "@team1", "", ""),
                ("heap", "@team2", "app", ""),
                ("", "", "engine", "LOAD3"),
                ("", "@nobody", "", ""),
                ("os", "", "", "t7"),
                ("", "@team0", "", "src/t0.CC"),
            ] {
                let [kind, owner, suite, text] = [kind, owner, suite, text].map(str::to_owned);
                filters.push(LeakFilter { owner, suite, kind, state, text });
            }
        }
        filters
    }

    /// Regression: the page read the body of each leak once for each of its tests.
    #[test]
    fn a_run_shows_its_largest_leaks_and_says_that_there_are_more() {
        let folder = tempfile::tempdir().unwrap();
        block_on(async {
            for (count, is_more) in [(40, false), (400, true)] {
                let store = sqlite(&folder, &format!("{count}.db")).await;
                fill(&store, count, 1).await;
                let choice = Choice { branch: "main".into(), ..Choice::default() };
                let only = store.runs("tiles", &choice, None).await.unwrap().unwrap().runs[0].run;
                let run = store.run("tiles", only, Order::Worst, "").await.unwrap().unwrap();
                assert_eq!((run.more_leaks, run.leaks.len() == 200), (is_more, is_more), "{count}");
                assert!(run.leaks.is_sorted_by(|a, b| a.bytes >= b.bytes));
                store.close().await;
            }
        });
    }

    /// Regression: the page of a test with 20,000 leaks had 8.9 MB, and the newest 20 events of the whole line hid
    /// others.
    #[test]
    fn a_test_shows_its_worst_leaks_and_all_their_events() {
        let folder = tempfile::tempdir().unwrap();
        block_on(async {
            let store = sqlite(&folder, "h.db").await;
            let leak = |number: usize| Leak {
                id: format!("x1-{number}"),
                title: format!("1 × {number} B"),
                bytes_per_iteration: number as f64,
                count_per_iteration: 1.0,
                ..Leak::default()
            };
            let test = |name: &str, leaks: std::ops::Range<usize>| TestReport {
                confirmed: true,
                leaks: leaks.map(leak).collect(),
                ..TestReport::new(name, Verdict::Fail)
            };
            let tests = [vec![test("A", 0..1)], vec![test("A", 0..1), test("B", 1..202)]];
            for (run, tests) in (0..).zip(tests) {
                add_run(&store, run, vec![SuiteReport::new("engine", Runner::Gtest, Verdict::Fail, tests)])
                    .await;
            }
            let choice = Choice { branch: "main".into(), ..Choice::default() };
            let shown =
                async |name| store.test("tiles", &choice, "engine", name, None).await.unwrap().unwrap();
            let (few, many) = (shown("A").await, shown("B").await);
            assert_eq!((few.leaks.len(), few.more_leaks), (1, false));
            assert!(few.events.iter().any(|event| event.leak == "x1-0"), "{:?}", few.events);
            assert_eq!((many.leaks.len(), many.more_leaks), (200, true));
            assert_eq!((many.leaks[0].bytes, many.leaks[199].bytes), (201.0, 2.0), "the worst");
            store.close().await;
        });
    }

    #[test]
    fn a_filtered_list_is_the_part_of_the_whole_list_that_fits() {
        let folder = tempfile::tempdir().unwrap();
        block_on(async {
            let store = sqlite(&folder, "h.db").await;
            fill(&store, 180, 5).await;
            let choice = Choice { branch: "main".into(), ..Choice::default() };
            let of =
                async |filter: &LeakFilter| store.leaks("tiles", &choice, filter).await.unwrap().unwrap();
            let all = of(&LeakFilter { state: StateFilter::Any, ..LeakFilter::default() }).await;
            assert!((100..=180).contains(&all.of) && all.of == all.leaks.len() as u64, "{}", all.of);
            assert_eq!((all.owners.len(), all.suites.len()), (4, 2));
            let worst = |leak: &LeakRow| (leak.waived, leak.state, -leak.bytes);
            assert!(all.leaks.is_sorted_by(|a, b| worst(a) <= worst(b)));
            for filter in filters() {
                let wanted: Vec<_> =
                    all.leaks.iter().filter(|leak| row_fits(leak, &filter)).cloned().collect();
                let found = of(&filter).await;
                assert_eq!((found.of, found.leaks), (wanted.len() as u64, wanted), "{filter:?}");
                assert_eq!((found.owners, found.suites), (all.owners.clone(), all.suites.clone()));
            }
            store.close().await;
        });
    }
}
