//! The figures of a line since they last changed, for thresholds from history.

use std::collections::BTreeMap;

use memgate_history::tune::Measured;
use memgate_history::{Figure, column, level, noise};
use memgate_model::Metric;
use sqlx::Row as _;

use super::read_runs::{Roster, Rosters};
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
    /// Its position on the line.
    at: usize,
    figure: Figure,
    grows: bool,
    disagrees: bool,
}

/// A run of the line.
struct Run {
    run: i64,
    /// Position of its commit on the line.
    at: usize,
    roster: i64,
}

impl Store {
    /// Every figure of a line that was ever more than zero in its newest 300 runs, but for those of tests that differ
    /// from run to run: they fail no test. `None`: there is no such line.
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
        let (mut runs, mut last) = (Vec::<Run>::with_capacity(rows.len()), String::new());
        for row in rows.iter().rev() {
            let (run, key, roster): (i64, String, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            rosters.get(self, shown.project, roster).await?;
            let at = runs.last().map_or(0, |before| before.at + usize::from(key != last));
            runs.push(Run { run, at, roster });
            last = key;
        }
        let mut columns = BTreeMap::<String, BTreeMap<i64, Vec<u8>>>::new();
        for row in self.of_line(sql::NEWEST_COLUMNS, &shown).await? {
            columns.entry(row.try_get(1)?).or_default().insert(row.try_get(0)?, row.try_get(2)?);
        }
        // By metric, then by test: one metric of all tests that have it is what fits into memory at once.
        let mut series = Vec::new();
        for metric in Metric::ALL {
            let Some(column) = columns.remove(metric.name()) else { continue };
            let is_asked = |test: &i64| match names.get(test) {
                Some((_, name)) => name.is_empty() || !column::is_rounded(metric),
                None => false,
            };
            let mut tests = BTreeMap::<i64, Vec<Commit>>::new();
            for (_, roster, figures) in decoded(&column, &runs, &rosters) {
                let figures = figures?;
                let is_more = |slot: &usize| {
                    figures.get(*slot).is_some_and(|figure| figure.is_some_and(|figure| figure.value != 0.0))
                };
                if (0..figures.len()).any(|slot| is_more(&slot)) {
                    let more = roster.iter().filter(|(test, slot)| is_more(slot) && is_asked(test));
                    tests.extend(more.map(|(test, _)| (*test, Vec::new())));
                }
            }
            if tests.is_empty() {
                continue;
            }
            for (at, roster, figures) in decoded(&column, &runs, &rosters) {
                let figures = figures?;
                for (test, commits) in &mut tests {
                    let slot = roster.get(test).copied();
                    if let Some(figure) = slot.and_then(|slot| figures.get(slot).copied().flatten()) {
                        add(commits, at, figure);
                    }
                }
            }
            for (test, commits) in tests {
                let Some((suite, name)) = names.get(&test) else { continue };
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

type Decoded<'r> = (usize, &'r Roster, Result<Vec<Option<Figure>>, StoreError>);

/// One metric of each run that has it, in the order of the line.
fn decoded<'r>(
    column: &'r BTreeMap<i64, Vec<u8>>,
    runs: &'r [Run],
    rosters: &'r Rosters,
) -> impl Iterator<Item = Decoded<'r>> {
    runs.iter().filter_map(|run| {
        let (roster, data) = (rosters.known(run.roster)?, column.get(&run.run)?);
        Some((run.at, roster, super::read_runs::figures(data, roster.len())))
    })
}

/// Runs of one commit are one value: the largest.
fn add(commits: &mut Vec<Commit>, at: usize, figure: Figure) {
    let grows = figure.interval.map_or(figure.value, |(low, _)| low) > 0.0;
    match commits.last_mut().filter(|last| last.at == at) {
        Some(last) => {
            last.disagrees |= last.grows != grows;
            last.grows |= grows;
            if figure.value > last.figure.value {
                last.figure = figure;
            }
        }
        None => commits.push(Commit { at, figure, grows, disagrees: false }),
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
