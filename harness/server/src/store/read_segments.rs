//! The figures of a line since they last changed, for thresholds from history.

use std::collections::BTreeMap;

use memgate_history::tune::Measured;
use memgate_history::{Figure, column, level, noise};
use memgate_model::Metric;
use sqlx::Row as _;

use super::read_runs::Rosters;
use super::{Choice, Store, StoreError, statements as sql};
use crate::view::Selection;

/// A figure of a test over the commits of a line, since its last shift.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its suite.
    pub suite: String,
    /// Its name; empty: the suite as a whole.
    pub name: String,
    /// What is measured.
    pub metric: Metric,
    /// One per judged commit, oldest first.
    pub commits: Vec<Measured>,
}

/// A commit with its runs.
struct Commit {
    key: String,
    figure: Figure,
    grows: bool,
    disagrees: bool,
}

impl Store {
    /// Every figure of a line that was ever more than zero in its newest 300 runs; `None`: there is no such line.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn series(
        &self,
        project: &str,
        choice: &Choice,
    ) -> Result<Option<(Selection, Vec<Series>)>, StoreError> {
        let Some(shown) = self.shown(project, choice).await? else { return Ok(None) };
        let rows = self.of_line(sql::NEWEST_OF_LINE, &shown).await?;
        let names = self.test_names(shown.project).await?;
        let mut rosters = Rosters::of_line(self, &shown).await?;
        let mut columns = BTreeMap::<String, BTreeMap<i64, Vec<u8>>>::new();
        for row in self.of_line(sql::NEWEST_COLUMNS, &shown).await? {
            columns.entry(row.try_get(1)?).or_default().insert(row.try_get(0)?, row.try_get(2)?);
        }
        // By metric, then by test: one metric of all tests is what fits into memory at once.
        let mut series = Vec::new();
        for metric in Metric::ALL {
            let Some(mut column) = columns.remove(metric.name()) else { continue };
            let mut tests = BTreeMap::<i64, Vec<Commit>>::new();
            for row in rows.iter().rev() {
                let (run, key): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
                let roster = rosters.get(self, shown.project, row.try_get(2)?).await?;
                let Some(data) = column.remove(&run) else { continue };
                let figures = super::read_runs::figures(&data, roster.len())?;
                for (test, slot) in roster {
                    if let Some(figure) = figures.get(*slot).copied().flatten() {
                        add(tests.entry(*test).or_default(), &key, figure);
                    }
                }
            }
            for (test, commits) in tests {
                let Some((suite, name)) =
                    names.get(&test).filter(|_| commits.iter().any(|commit| commit.figure.value != 0.0))
                else {
                    continue;
                };
                let since = last_shift(metric, &commits);
                let measured = |commit: Commit| Measured {
                    figure: commit.figure,
                    disagrees: commit.disagrees,
                    is_confirmed: false,
                };
                let commits = commits.into_iter().skip(since).map(measured).collect();
                series.push(Series { suite: suite.clone(), name: name.clone(), metric, commits });
            }
        }
        Ok(Some((shown.selection, series)))
    }
}

/// Runs of one commit are one value: the largest.
fn add(commits: &mut Vec<Commit>, key: &str, figure: Figure) {
    let grows = figure.interval.map_or(figure.value, |(low, _)| low) > 0.0;
    match commits.last_mut().filter(|last| last.key == key) {
        Some(last) => {
            last.disagrees |= last.grows != grows;
            last.grows |= grows;
            if figure.value > last.figure.value {
                last.figure = figure;
            }
        }
        None => commits.push(Commit { key: key.to_owned(), figure, grows, disagrees: false }),
    }
}

/// Where what is comparable begins.
fn last_shift(metric: Metric, commits: &[Commit]) -> usize {
    if column::is_rounded(metric) {
        let values: Vec<f64> = commits.iter().map(|commit| commit.figure.value).collect();
        return noise::shifts(&values).last().map_or(0, |shift| shift.at);
    }
    let figures: Vec<Figure> = commits.iter().map(|commit| commit.figure).collect();
    level::fold(&figures).map_or(0, |levels| levels.since)
}
