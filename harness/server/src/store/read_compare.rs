//! Two runs beside each other.
//!
//! Data flow: the columns, exceptions and sightings of each run → a [`Side`] → [`Comparison`], as of two reports.

use std::collections::{BTreeMap, BTreeSet};

use memgate_history::record::How;
use memgate_history::{Figure, column};
use memgate_model::{Leak, Metric, Per, Verdict};
use memgate_reports::page::StackChange;
use memgate_reports::{Comparison, FigureSide, LeakSide, Side, TestSide};
use sqlx::Row as _;

use super::read::{leak_of, run_row, word};
use super::read_runs::roster_of;
use super::{Choice, Store, StoreError, statements as sql};
use crate::view::{CompareView, RunRow};

/// A run with what is compared of it.
struct Seen {
    row: RunRow,
    side: Side,
    /// Leaks by their ids, for their stacks.
    leaks: BTreeMap<String, Leak>,
}

impl Store {
    /// Two runs of a project; `None`: one of them does not exist.
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
        let names = self.test_names(id).await?;
        let Some(before) = self.seen(id, before, &names).await? else { return Ok(None) };
        let Some(after) = self.seen(id, after, &names).await? else { return Ok(None) };
        let choice = Choice { branch: after.row.branch.clone(), environment: after.row.environment.clone() };
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

    async fn seen(
        &self,
        project: i64,
        run: i64,
        names: &BTreeMap<i64, (String, String)>,
    ) -> Result<Option<Seen>, StoreError> {
        let row = sqlx::query(sql::RUN).bind(project).bind(run).fetch_optional(&self.pool).await?;
        let Some(row) = row else { return Ok(None) };
        let head = run_row(&row)?;
        let mut not_judged = BTreeSet::new();
        for row in sqlx::query(sql::EXCEPTIONS).bind(project).bind(run).fetch_all(&self.pool).await? {
            let verdict: Verdict = word(&row.try_get::<String, _>(2)?)?;
            if !matches!(verdict, Verdict::Pass | Verdict::Warn | Verdict::Fail) {
                not_judged.insert(row.try_get::<i64, _>(0)?);
            }
        }
        let roster = roster_of(&row)?;
        let columns = self.columns(project, run, roster.len()).await?;
        let mut side = Side { session: head.session.clone(), tests: BTreeMap::new() };
        for (test, slot) in roster.iter().filter(|(test, _)| !not_judged.contains(*test)) {
            let Some((suite, name)) = names.get(test) else { continue };
            // A suite's own figures are the sums of these.
            if name.is_empty() {
                continue;
            }
            let figure = |(metric, figures): &(String, Vec<Option<Figure>>)| {
                let metric = metric.parse::<Metric>().ok()?;
                let figure = figures.get(*slot)?.as_ref()?;
                let bounds = figure.interval.unwrap_or((figure.value, figure.value));
                // Noisy figures of two runs always differ.
                let counts = !column::is_rounded(metric);
                Some((metric, FigureSide { value: figure.value, bounds, per: Per::Iteration, counts }))
            };
            let figures = columns.iter().filter_map(figure).collect();
            side.tests.insert(format!("{suite}::{name}"), TestSide { figures, leaks: Vec::new() });
        }
        let mut leaks = BTreeMap::new();
        for row in sqlx::query(sql::SIGHTINGS_OF_RUN).bind(project).bind(run).fetch_all(&self.pool).await? {
            let known = leak_of(&row, 1)?;
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
