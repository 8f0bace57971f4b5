//! Runs of a line, one run, the curve of a test, and all values of a line.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use memgate_history::{Figure, How, column, level, noise};
use memgate_model::{Metric, Outcome, Verdict, format_change};
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::add::{DURATION, limits_of};
use super::read::{Shown, event, leak_of, members, run_row, state_of, word};
use super::{Choice, Store, StoreError, rows, statements as sql};
use crate::view::{EventRow, Order, Point, RunRow, RunView, Runs, SightingOf, TestRow, TestView};

const MOST_RUNS: usize = 100;
const MOST_TESTS: usize = 500;
/// Most leaks of one run or test. The list of the line's leaks has a filter.
const MOST_LEAKS: usize = 200;

/// The tests of a roster, with the slot of each in columns.
pub(super) type Roster = BTreeMap<i64, usize>;

impl Store {
    /// Runs of a line, the newest first, optionally those before `before`; `None`: there is no such line.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn runs(
        &self,
        project: &str,
        choice: &Choice,
        before: Option<i64>,
    ) -> Result<Option<Runs>, StoreError> {
        let Some(shown) = self.shown(project, choice).await? else { return Ok(None) };
        let (mut place, mut run) = (i64::MAX, i64::MAX);
        if let Some(before) = before {
            let row =
                sqlx::query(sql::RUN).bind(shown.project).bind(before).fetch_optional(&self.pool).await?;
            let Some(row) = row else { return Ok(None) };
            (place, run) = (row.try_get(17)?, before);
        }
        let rows = shown.line().query(sql::RUNS_OF_LINE).bind(place).bind(run).fetch_all(&self.pool).await?;
        let mut runs = rows.iter().map(run_row).collect::<Result<Vec<_>, _>>()?;
        let has_more = runs.len() > MOST_RUNS;
        runs.truncate(MOST_RUNS);
        let before = runs.last().map(|run| run.run).filter(|_| has_more);
        Ok(Some(Runs { selection: shown.selection, runs, before }))
    }

    /// One run; `None`: there is no such run.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn run(
        &self,
        project: &str,
        run: i64,
        order: Order,
        find: &str,
    ) -> Result<Option<RunView>, StoreError> {
        let Some(id) = self.project(project).await? else { return Ok(None) };
        let row = sqlx::query(sql::RUN).bind(id).bind(run).fetch_optional(&self.pool).await?;
        let Some(row) = row else { return Ok(None) };
        let head = run_row(&row)?;
        let choice = Choice::of(&head);
        let Some(shown) = self.shown_of((id, project), &choice).await? else { return Ok(None) };
        let previous: Option<i64> = row.try_get(21)?;
        let (tests, of) = self.tests_of_run((shown.project, run), &roster_of(&row)?, order, find).await?;
        let mut leaks = self.leaks_of_run(&shown, &head).await?;
        let more_leaks = leaks.len() > MOST_LEAKS;
        leaks.truncate(MOST_LEAKS);
        let artefacts = self.artefacts_of(id, run).await?;
        let reasons: Option<String> = row.try_get(22)?;
        let ci_url = row.try_get(13)?;
        let expired = row.try_get::<i64, _>(18)? == 0;
        Ok(Some(RunView {
            selection: shown.selection,
            run: head,
            reasons: reasons.iter().flat_map(|reasons| reasons.lines()).map(str::to_owned).collect(),
            ci_url,
            leaks,
            more_leaks,
            tests,
            of,
            order,
            find: find.to_owned(),
            previous,
            expired,
            artefacts,
        }))
    }

    /// The figures of a test over the runs of a line; `None`: there is no such test or line. Without a metric: one of
    /// the last run, if possible one that is not zero.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn test(
        &self,
        project: &str,
        choice: &Choice,
        suite: &str,
        name: &str,
        metric: Option<Metric>,
    ) -> Result<Option<TestView>, StoreError> {
        let Some(shown) = self.shown(project, choice).await? else { return Ok(None) };
        let runs = shown
            .line()
            .query(sql::CURVE_RUNS)
            .bind(suite.to_owned())
            .bind(name.to_owned())
            .fetch_all(&self.pool)
            .await?;
        let Some(test) = runs.first().map(|run| run.try_get(20)).transpose()? else { return Ok(None) };
        let mut rosters = Rosters::of_line(self, &shown).await?;
        let metrics = self.metrics_of(&shown, test, &runs, &mut rosters).await?;
        // Prefers a metric that grows, otherwise any that is judged. Noisy figures are shown only on request.
        let exact = || metrics.iter().filter(|(metric, _)| !column::is_rounded(*metric));
        let leading =
            exact().find(|(_, value)| *value != 0.0).or_else(|| exact().next()).map(|(metric, _)| *metric);
        let metric = metric.or(leading).unwrap_or(Metric::NativeLiveBytes);
        let points = self.points(&shown, test, metric, &runs, &mut rosters).await?;
        let full = format!("{suite}::{name}");
        let mut leaks = self.leaks_of_test(&shown, (test, &full)).await?;
        let more_leaks = leaks.len() > MOST_LEAKS;
        leaks.truncate(MOST_LEAKS);
        let rows = shown.line().query(sql::EVENTS_OF_TEST).bind(test).fetch_all(&self.pool).await?;
        let mut events = rows.iter().map(event).collect::<Result<Vec<_>, _>>()?;
        events.extend(shifts((&full, name), metric, &points));
        // A run of an old commit is newer than runs of later ones: the place counts.
        let places: BTreeMap<i64, i64> = points.iter().map(|point| (point.run, point.place)).collect();
        events.sort_by_key(|event| std::cmp::Reverse((places.get(&event.run).copied(), event.at_us)));
        Ok(Some(TestView {
            selection: shown.selection,
            suite: suite.to_owned(),
            name: name.to_owned(),
            metric,
            metrics: metrics.into_iter().map(|(metric, _)| metric).collect(),
            rounded: column::is_rounded(metric),
            points,
            leaks,
            more_leaks,
            events,
        }))
    }

    /// All values of a line as CSV, a line at a time; `false`: there is no such line.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn export(
        &self,
        project: &str,
        choice: &Choice,
        line: &mut dyn FnMut(&str),
    ) -> Result<bool, StoreError> {
        let Some(shown) = self.shown(project, choice).await? else { return Ok(false) };
        let runs = self.of_line(sql::ALL_RUNS, &shown).await?;
        let names = self.all_test_names(shown.project).await?;
        let mut rosters = Rosters::default();
        line("run,started,commit,suite,test,metric,value,low,high\n");
        for row in &runs {
            let run = run_row(row)?;
            let started = jiff::Timestamp::from_microsecond(run.started_us)
                .map(|at| at.to_string())
                .unwrap_or_default();
            let roster = rosters.get(self, shown.project, row.try_get(14)?).await?;
            for (metric, figures) in self.columns(shown.project, run.run, roster.len()).await? {
                let slots = roster
                    .iter()
                    .filter_map(|(test, slot)| Some((names.get(test)?, figures.get(*slot)?.as_ref()?)));
                for ((suite, name), figure) in slots {
                    let bound = |bound: Option<f64>| {
                        bound.filter(|bound| bound.is_finite()).map_or_else(String::new, |b| b.to_string())
                    };
                    let (low, high) =
                        (figure.interval.map(|(low, _)| low), figure.interval.map(|(_, high)| high));
                    line(&format!(
                        "{},{started},{},{},{},{metric},{},{},{}\n",
                        run.run,
                        quoted(&run.sha),
                        quoted(suite),
                        quoted(name),
                        figure.value,
                        bound(low),
                        bound(high)
                    ));
                }
            }
        }
        Ok(true)
    }

    async fn tests_of_run(
        &self,
        (project, run): (i64, i64),
        roster: &Roster,
        order: Order,
        find: &str,
    ) -> Result<(Vec<TestRow>, u64), StoreError> {
        let mut exceptions = BTreeMap::<i64, (Outcome, Verdict, String)>::new();
        for row in sqlx::query(sql::EXCEPTIONS).bind(project).bind(run).fetch_all(&self.pool).await? {
            let (outcome, verdict): (String, String) = (row.try_get(1)?, row.try_get(2)?);
            exceptions.insert(row.try_get(0)?, (word(&outcome)?, word(&verdict)?, row.try_get(3)?));
        }
        let columns = self.columns(project, run, roster.len()).await?;
        let durations = columns.iter().find(|(metric, _)| metric == DURATION).map(|(_, durations)| durations);
        let names = self.test_names(project, roster.keys().copied()).await?;
        let mut tests = Vec::with_capacity(roster.len());
        for (test, slot) in roster {
            let Some((suite, name)) = names.get(test) else { continue };
            let (outcome, verdict, reason) =
                exceptions.remove(test).unwrap_or((Outcome::Passed, Verdict::Pass, String::new()));
            let value = |(metric, figures): &(String, Vec<Option<Figure>>)| {
                let value = figures.get(*slot)?.as_ref()?.value;
                Some((metric.parse::<Metric>().ok()?, value)).filter(|_| value != 0.0)
            };
            let values = columns.iter().filter_map(value).collect();
            tests.push(TestRow {
                suite: suite.clone(),
                name: name.clone(),
                outcome,
                verdict,
                reason,
                duration_ms: durations.and_then(|all| milliseconds(all.get(*slot)?.as_ref()?.value)),
                values,
            });
        }
        tests.sort_by(|a, b| {
            b.verdict.cmp(&a.verdict).then_with(|| (&a.suite, &a.name).cmp(&(&b.suite, &b.name)))
        });
        if !find.is_empty() {
            let find = find.to_lowercase();
            tests.retain(|test| format!("{}::{}", test.suite, test.name).to_lowercase().contains(&find));
        }
        if order == Order::Slowest {
            // The entry of a whole suite would always be among the slowest.
            tests.retain(|test| !test.name.is_empty());
            tests.sort_by_key(|test| std::cmp::Reverse(test.duration_ms));
        }
        let of = tests.iter().filter(|test| !test.name.is_empty()).count() as u64;
        tests.truncate(MOST_TESTS);
        Ok((tests, of))
    }

    /// The largest leaks of a run, with their states on its line; for a review, on its target.
    async fn leaks_of_run(&self, shown: &Shown, run: &RunRow) -> Result<Vec<SightingOf>, StoreError> {
        let line = match run.target.as_str() {
            "" => None,
            target => self.id(sql::BRANCH, Some(shown.project), target).await?,
        };
        let rows = sqlx::query(sql::SIGHTINGS_WITH_STATES)
            .bind(shown.project)
            .bind(run.run)
            .bind(line.unwrap_or(shown.branch))
            .bind(shown.environment)
            .fetch_all(&self.pool)
            .await?;
        let mut leaks = Vec::with_capacity(rows.len());
        for row in rows {
            let known = leak_of(&row, 1)?;
            let (suite, name): (String, String) = (row.try_get(3)?, row.try_get(4)?);
            let how = How::of_number(row.try_get(5)?).unwrap_or(How::Counted);
            let state: Option<i64> = row.try_get(8)?;
            leaks.push(SightingOf {
                id: known.id,
                culprit: memgate_reports::who(&known.leak),
                title: known.leak.title,
                state: state.map(state_of).transpose()?,
                test: format!("{suite}::{name}"),
                bytes: row.try_get(6)?,
                count: row.try_get(7)?,
                how: how.name().to_owned(),
            });
        }
        Ok(leaks)
    }

    /// Suite and name of tests, by their ids.
    pub(super) async fn test_names(
        &self,
        project: i64,
        tests: impl IntoIterator<Item = i64>,
    ) -> Result<BTreeMap<i64, (String, String)>, StoreError> {
        let tests: Vec<i64> = tests.into_iter().collect();
        let mut connection = self.pool.acquire().await?;
        Ok(rows::test_names(&mut connection, project, &tests).await?)
    }

    /// All tests of a project, as `suite::name`.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn tests(&self, project: &str) -> Result<Vec<String>, StoreError> {
        let Some(project) = self.project(project).await? else { return Ok(Vec::new()) };
        let names = self.all_test_names(project).await?.into_values();
        let of_tests = names.filter(|(_, name)| !name.is_empty());
        Ok(of_tests.map(|(suite, name)| format!("{suite}::{name}")).collect())
    }

    /// Suite and name of all tests that the project ever had.
    async fn all_test_names(&self, project: i64) -> Result<BTreeMap<i64, (String, String)>, StoreError> {
        let mut names = BTreeMap::new();
        for row in sqlx::query(sql::TESTS).bind(project).fetch_all(&self.pool).await? {
            names.insert(row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?));
        }
        Ok(names)
    }

    /// The columns of a run, by metric; the durations are one of them.
    pub(super) async fn columns(
        &self,
        project: i64,
        run: i64,
        tests: usize,
    ) -> Result<Vec<(String, Vec<Option<Figure>>)>, StoreError> {
        let rows = sqlx::query(sql::COLUMNS).bind(project).bind(run).fetch_all(&self.pool).await?;
        let mut columns = Vec::with_capacity(rows.len());
        for row in rows {
            let (metric, data): (String, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
            columns.push((metric, figures(&data, tests)?));
        }
        columns.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(columns)
    }

    /// The metrics of the last run that had the test.
    async fn metrics_of(
        &self,
        shown: &Shown,
        test: i64,
        runs: &[AnyRow],
        rosters: &mut Rosters,
    ) -> Result<Vec<(Metric, f64)>, StoreError> {
        for row in runs {
            let roster = rosters.get(self, shown.project, row.try_get(14)?).await?;
            let Some(slot) = roster.get(&test).copied() else { continue };
            let columns = self.columns(shown.project, row.try_get(0)?, roster.len()).await?;
            let mut metrics: Vec<(Metric, f64)> = columns
                .iter()
                .filter_map(|(metric, figures)| {
                    Some((metric.parse().ok()?, figures.get(slot)?.as_ref()?.value))
                })
                .collect();
            if !metrics.is_empty() {
                metrics.sort_by_key(|(metric, _)| *metric);
                return Ok(metrics);
            }
        }
        Ok(Vec::new())
    }

    async fn points(
        &self,
        shown: &Shown,
        test: i64,
        metric: Metric,
        runs: &[AnyRow],
        rosters: &mut Rosters,
    ) -> Result<Vec<Point>, StoreError> {
        let mut data = BTreeMap::<(i64, bool), Vec<u8>>::new();
        let limits = limits_of(metric);
        let rows = shown
            .line()
            .query(sql::CURVE_COLUMNS)
            .bind(metric.name())
            .bind(limits.clone())
            .fetch_all(&self.pool)
            .await?;
        for row in rows {
            let is_limit = row.try_get::<String, _>(1)? == limits;
            data.insert((row.try_get(0)?, is_limit), row.try_get(2)?);
        }
        let mut points = Vec::with_capacity(runs.len());
        for row in runs.iter().rev() {
            let run = run_row(row)?;
            let roster = rosters.get(self, shown.project, row.try_get(14)?).await?;
            let slot = roster.get(&test).copied();
            let odd: Option<String> = row.try_get(19)?;
            let verdict = odd.map_or(Ok(Verdict::Pass), |odd| word(&odd))?;
            let of_test = |is_limit| match (slot, data.get(&(run.run, is_limit))) {
                (Some(slot), Some(data)) => {
                    let found = column::decode_where(data, roster.len(), |at, _| at == slot);
                    let mut found = found.map_err(|why| StoreError::Broken(why.to_string()))?;
                    Ok(found.pop().map(|(_, figure)| figure))
                }
                _ => Ok::<_, StoreError>(None),
            };
            let (figure, allowed) = (of_test(false)?, of_test(true)?);
            points.push(Point {
                run: run.run,
                sha: run.sha,
                dirty: run.dirty,
                place: row.try_get(17)?,
                started_us: run.started_us,
                value: figure.map(|figure| figure.value),
                low: figure.and_then(|figure| figure.interval).map(|(low, _)| low),
                high: figure.and_then(|figure| figure.interval).map(|(_, high)| high),
                allowed: allowed.map(|allowed| allowed.value),
                verdict: slot.map(|_| verdict),
                page: slot.is_some() && row.try_get::<Option<String>, _>(21)?.is_some(),
            });
        }
        Ok(points)
    }
}

/// Lasting level shifts of a figure, as events.
fn shifts((test, name): (&str, &str), metric: Metric, points: &[Point]) -> Vec<EventRow> {
    let judged: Vec<(&Point, f64)> = points
        .iter()
        .filter_map(|point| Some((point, point.value.filter(|value| value.is_finite())?)))
        .collect();
    // Positions of the first value off the old level and of the one that showed it, the values before and after.
    let found: Vec<(usize, usize, f64, f64)> = if column::is_noisy(metric, name) {
        let values: Vec<f64> = judged.iter().map(|(_, value)| *value).collect();
        let found = noise::shifts(&values).into_iter();
        found.map(|shift| (shift.at, shift.told_at, shift.before, shift.after)).collect()
    } else {
        let figure =
            |(point, value): &(&Point, f64)| Figure { value: *value, interval: point.low.zip(point.high) };
        let figures: Vec<Figure> = judged.iter().map(figure).collect();
        let found = level::fold(&figures).map_or_else(Vec::new, |levels| levels.shifts).into_iter();
        found
            .filter(|shift| !shift.is_transient)
            .map(|shift| (shift.at, shift.told_at, shift.before, shift.after))
            .collect()
    };
    let event = |(at, told_at, before, after): (usize, usize, f64, f64)| {
        let (first, _) = judged.get(at)?;
        let (told, _) = judged.get(told_at)?;
        let clean = at.checked_sub(1).and_then(|before| judged.get(before));
        let (from, to) = format_change(metric, before, after);
        Some(EventRow {
            at_us: told.started_us,
            kind: if after > before { "shift up" } else { "shift down" }.to_owned(),
            branch: String::new(),
            leak: String::new(),
            test: test.to_owned(),
            text: format!("{metric}: {from} → {to}"),
            clean_sha: clean.map_or_else(String::new, |(point, _)| point.sha.clone()),
            first_sha: first.sha.clone(),
            run: told.run,
        })
    };
    found.into_iter().filter_map(event).collect()
}

/// Rosters that were read: few runs have one of their own.
#[derive(Default)]
pub(super) struct Rosters(BTreeMap<i64, Roster>);

impl Rosters {
    /// Rosters of the newest runs of a line.
    pub(super) async fn of_line(store: &Store, shown: &Shown) -> Result<Self, StoreError> {
        let mut rosters = Self::default();
        for row in store.of_line(sql::ROSTERS_OF_LINE, shown).await? {
            rosters.0.insert(row.try_get(0)?, numbered(members(&row, 1)?));
        }
        Ok(rosters)
    }

    /// A roster that was read before.
    pub(super) fn known(&self, roster: i64) -> Option<&Roster> {
        self.0.get(&roster)
    }

    pub(super) async fn get(
        &mut self,
        store: &Store,
        project: i64,
        roster: i64,
    ) -> Result<&Roster, StoreError> {
        match self.0.entry(roster) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let row = sqlx::query(sql::ROSTER_MEMBERS)
                    .bind(project)
                    .bind(roster)
                    .fetch_one(&store.pool)
                    .await?;
                Ok(new.insert(numbered(members(&row, 0)?)))
            }
        }
    }
}

fn numbered(members: Vec<i64>) -> Roster {
    members.into_iter().zip(0..).collect()
}

/// The roster in a row of [`sql::RUN`].
pub(super) fn roster_of(run: &AnyRow) -> Result<Roster, StoreError> {
    members(run, 19).map(numbered)
}

/// `None`: the value is not a valid time.
fn milliseconds(value: f64) -> Option<i64> {
    let time = std::time::Duration::try_from_secs_f64(value / 1e3).ok()?;
    i64::try_from(time.as_millis()).ok()
}

pub(super) fn figures(data: &[u8], tests: usize) -> Result<Vec<Option<Figure>>, StoreError> {
    column::decode(data, tests).map_err(|why| StoreError::Broken(why.to_string()))
}

/// A field of CSV.
fn quoted(text: &str) -> String {
    let text = memgate_reports::harmless(text);
    // A spreadsheet would take it for a formula.
    let mark = if text.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    format!("\"{mark}{}\"", text.replace('"', "\"\""))
}
