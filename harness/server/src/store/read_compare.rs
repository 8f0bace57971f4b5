//! Comparison of two runs.
//!
//! Data flow: the columns, exceptions and sightings of each run → a [`Side`] → [`Comparison`], as for two reports.

use std::collections::{BTreeMap, BTreeSet};

use memgate_history::record::How;
use memgate_history::{Figure, column};
use memgate_model::{Leak, Metric, Per, Verdict};
use memgate_reports::page::StackChange;
use memgate_reports::{Comparison, FigureSide, LeakSide, Side, TestSide};
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::read::{leak_of, run_row, word};
use super::read_runs::{figures, roster_of};
use super::{Choice, Store, StoreError, statements as sql};
use crate::view::{CompareView, RunRow};

/// A run with the values to compare.
struct Seen {
    row: RunRow,
    side: Side,
    /// Leaks by their ids, for their stacks.
    leaks: BTreeMap<String, Leak>,
}

impl Store {
    /// Compares two runs of a project; `None`: one of them does not exist.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn compare(
        &self,
        project: &str,
        before: i64,
        after: i64,
    ) -> Result<Option<CompareView>, StoreError> {
        let Some(id) = self.project(project).await? else { return Ok(None) };
        let both = Both::read(self, id, (before, after)).await?;
        let rosters = both.runs.iter().map(roster_of).collect::<Result<Vec<_>, _>>()?;
        let names = self.test_names(id, rosters.iter().flat_map(|roster| roster.keys().copied())).await?;
        let Some(before) = both.seen(before, &names)? else { return Ok(None) };
        let Some(after) = both.seen(after, &names)? else { return Ok(None) };
        let choice = Choice::of(&after.row);
        let Some(shown) = self.shown_of((id, project), &choice).await? else { return Ok(None) };
        let comparison = Comparison::between(&before.side, &after.side);
        let stacks = comparison
            .leaks
            .iter()
            .filter_map(|change| {
                let leak = after.leaks.get(&change.id).or_else(|| before.leaks.get(&change.id))?;
                let bytes = |bytes: Option<f64>| bytes.unwrap_or_default();
                Some(StackChange::of(leak, bytes(change.before), bytes(change.after)))
            })
            .collect();
        Ok(Some(CompareView {
            selection: shown.selection,
            before: before.row,
            after: after.row,
            comparison,
            stacks,
        }))
    }
}

/// Rows of both runs.
struct Both {
    runs: Vec<AnyRow>,
    verdicts: Vec<AnyRow>,
    columns: Vec<AnyRow>,
    sightings: Vec<AnyRow>,
}

impl Both {
    async fn read(store: &Store, project: i64, (before, after): (i64, i64)) -> Result<Self, StoreError> {
        let rows = async |statement: &'static str| {
            sqlx::query(statement).bind(project).bind(before).bind(after).fetch_all(&store.pool).await
        };
        Ok(Self {
            runs: rows(sql::TWO_RUNS).await?,
            verdicts: rows(sql::VERDICTS_OF_TWO).await?,
            columns: rows(sql::COLUMNS_OF_TWO).await?,
            sightings: rows(sql::SIGHTINGS_OF_TWO).await?,
        })
    }

    /// The compared values of one run; `None`: it does not exist.
    fn seen(&self, run: i64, names: &BTreeMap<i64, (String, String)>) -> Result<Option<Seen>, StoreError> {
        let of_run = |rows: &'_ [AnyRow]| -> Result<Vec<usize>, sqlx::Error> {
            let runs: Result<Vec<i64>, _> = rows.iter().map(|row| row.try_get(0)).collect();
            Ok(runs?.into_iter().enumerate().filter(|(_, of)| *of == run).map(|(at, _)| at).collect())
        };
        let Some(row) = of_run(&self.runs)?.first().map(|at| &self.runs[*at]) else { return Ok(None) };
        let head = run_row(row)?;
        let (mut not_judged, mut open) = (BTreeSet::new(), BTreeSet::new());
        for at in of_run(&self.verdicts)? {
            let verdict: Verdict = word(&self.verdicts[at].try_get::<String, _>(2)?)?;
            if self.verdicts[at].try_get::<i64, _>(3)? == 0 {
                open.insert(self.verdicts[at].try_get::<i64, _>(1)?);
            }
            if !matches!(verdict, Verdict::Pass | Verdict::Warn | Verdict::Fail) {
                not_judged.insert(self.verdicts[at].try_get::<i64, _>(1)?);
            }
        }
        let roster = roster_of(row)?;
        let mut columns: Vec<(Metric, Vec<Option<Figure>>)> = Vec::new();
        for at in of_run(&self.columns)? {
            let (metric, data): (String, Vec<u8>) =
                (self.columns[at].try_get(1)?, self.columns[at].try_get(2)?);
            // A metric unknown to this version comes from another one.
            let Ok(metric) = metric.parse() else { continue };
            columns.push((metric, figures(&data, roster.len())?));
        }
        let mut side = Side { session: head.session.clone(), tests: BTreeMap::new() };
        for (test, slot) in roster.iter().filter(|(test, _)| !not_judged.contains(*test)) {
            let Some((suite, name)) = names.get(test) else { continue };
            // A suite's own figures are the sums of these.
            if name.is_empty() {
                continue;
            }
            let figure = |(metric, figures): &(Metric, Vec<Option<Figure>>)| {
                let figure = figures.get(*slot)?.as_ref()?;
                let bounds = figure.interval.unwrap_or((figure.value, figure.value));
                // Noisy figures of two runs always differ.
                let counts = !column::is_rounded(*metric);
                Some((*metric, FigureSide { value: figure.value, bounds, per: Per::Iteration, counts }))
            };
            let figures = columns.iter().filter_map(figure).collect();
            let has_no_others = !open.contains(test);
            let of_test = TestSide { figures, leaks: Vec::new(), has_no_others };
            side.tests.insert(format!("{suite}::{name}"), of_test);
        }
        let mut leaks = BTreeMap::new();
        for at in of_run(&self.sightings)? {
            let row = &self.sightings[at];
            let known = leak_of(row, 1)?;
            let (suite, name): (String, String) = (row.try_get(3)?, row.try_get(4)?);
            let how = How::of_number(row.try_get(5)?).unwrap_or(How::Counted);
            let Some(test) = side.tests.get_mut(&format!("{suite}::{name}")) else { continue };
            if how == How::OneTime {
                continue;
            }
            test.leaks.push(LeakSide {
                id: known.id.clone(),
                kind: known.leak.kind,
                bytes: row.try_get(6)?,
                line: memgate_reports::who(&known.leak),
                waived: how == How::Waived,
            });
            leaks.insert(known.id, known.leak);
        }
        Ok(Some(Seen { row: head, side, leaks }))
    }
}
