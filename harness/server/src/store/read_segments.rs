//! The figures of a line since they last changed, for thresholds from history.

use std::collections::{BTreeMap, BTreeSet};

use memgate_history::tune::Measured;
use memgate_history::{Figure, column, level, noise};
use memgate_model::Metric;
use sqlx::Row as _;

use super::line_id::LineId;
use super::read_runs::{Roster, Rosters};
use super::{Choice, Store, StoreError, statements as sql};
use crate::view::Selection;

/// Runs used for thresholds.
const NEWEST: i64 = 300;
/// Runs that are searched for a shift after a run was added.
const NEAR: i64 = 65;

/// A figure of a test over the commits of a line, since its last shift.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its suite.
    pub suite: String,
    /// Its name; empty: the suite as a whole.
    pub name: String,
    /// The metric.
    pub metric: Metric,
    /// One per judged commit, oldest first.
    pub commits: Vec<Measured>,
}

/// A figure of a test that reached a higher level, and stayed there.
#[derive(Debug, Clone, PartialEq)]
pub struct Shifted {
    /// Its suite.
    pub suite: String,
    /// Its name; empty: the suite as a whole.
    pub name: String,
    /// The metric.
    pub metric: Metric,
    /// The level before.
    pub before: f64,
    /// The level now.
    pub after: f64,
}

/// A figure of a test over the commits of a line.
struct Figures {
    suite: String,
    name: String,
    metric: Metric,
    commits: Vec<Commit>,
}

/// A commit with its runs.
struct Commit {
    /// Its position on the line.
    at: usize,
    /// The first of its runs with this figure.
    run: i64,
    figure: Figure,
    /// `None`: not known yet.
    grows: Option<bool>,
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
    /// Every figure of a line that was above zero in any of its newest 300 runs, except noisy figures of single tests:
    /// they fail no test. `None`: there is no such line.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn series(
        &self,
        project: &str,
        choice: &Choice,
    ) -> Result<Option<(Selection, Vec<Series>)>, StoreError> {
        let Some(shown) = self.shown(project, choice).await? else { return Ok(None) };
        let of_line = self.figures_of_line(shown.line(), NEWEST).await?;
        let series = of_line.into_iter().map(|Figures { suite, name, metric, commits }| {
            let since = last_shift(column::is_noisy(metric, &name), &commits);
            let measured = |commit: Commit| Measured {
                figure: commit.figure,
                disagrees: commit.disagrees,
                is_confirmed: false,
            };
            let commits = commits.into_iter().skip(since).map(measured).collect();
            Series { suite, name, metric, commits }
        });
        Ok(Some((shown.selection, series.collect())))
    }

    /// Figures that reached a higher level and stayed there, each with the run that showed it, if that run came after
    /// `told`. A rise from zero is a leak, and is reported as one.
    pub(super) async fn shifts_since(
        &self,
        line: LineId,
        told: i64,
    ) -> Result<Vec<(i64, Shifted)>, StoreError> {
        let mut found = Vec::new();
        for Figures { suite, name, metric, commits } in self.figures_of_line(line, NEAR).await? {
            for (told_at, before, after) in shifts(column::is_noisy(metric, &name), &commits) {
                let Some(run) = commits.get(told_at).map(|commit| commit.run) else { continue };
                // What the run of an earlier commit shows, received later, a later commit may have shown before.
                let is_known = |of: &Commit| of.run <= told && of.figure.value >= after;
                let is_news = run > told && !commits.iter().skip(told_at.saturating_add(1)).any(is_known);
                if is_news && after > before && before > 0.0 {
                    let (suite, name) = (suite.clone(), name.clone());
                    found.push((run, Shifted { suite, name, metric, before, after }));
                }
            }
        }
        Ok(found)
    }

    /// Figures of the newest runs of a line, by metric, then by test.
    async fn figures_of_line(&self, line: LineId, newest: i64) -> Result<Vec<Figures>, StoreError> {
        let project = line.project;
        let of_line = |statement: &'static str| line.query(statement).bind(newest).fetch_all(&self.pool);
        let rows = of_line(sql::NEWEST_OF_LINE).await?;
        let mut rosters = Rosters::default();
        let (mut runs, mut last) = (Vec::<Run>::with_capacity(rows.len()), String::new());
        for row in rows.iter().rev() {
            let (run, key, roster): (i64, String, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            rosters.get(self, project, roster).await?;
            let at = runs.last().map_or(0, |before| before.at + usize::from(key != last));
            runs.push(Run { run, at, roster });
            last = key;
        }
        let mut columns = BTreeMap::<String, BTreeMap<i64, Vec<u8>>>::new();
        for row in of_line(sql::NEWEST_COLUMNS).await? {
            columns.entry(row.try_get(1)?).or_default().insert(row.try_get(0)?, row.try_get(2)?);
        }
        let orders: BTreeMap<i64, Vec<i64>> =
            runs.iter().filter_map(|run| Some((run.roster, order(rosters.known(run.roster)?)))).collect();
        let tests: BTreeSet<i64> = orders.values().flatten().copied().collect();
        let names = self.test_names(project, tests).await?;
        let mut found = Vec::new();
        for metric in Metric::ALL {
            // Only one metric of all tests that have it has to fit into memory at once.
            let Some(column) = columns.remove(metric.name()) else { continue };
            let is_asked = |test: &i64| match names.get(test) {
                Some((_, name)) => name.is_empty() || !column::is_rounded(metric),
                None => false,
            };
            let asked = slots(&orders, is_asked);
            let mut tests = BTreeMap::<i64, Vec<Commit>>::new();
            for Decoded { order, figures, .. } in decoded(&column, &runs, &orders, &asked, true) {
                for (slot, _) in figures? {
                    tests.entry(order[slot]).or_default();
                }
            }
            if tests.is_empty() {
                continue;
            }
            let asked = slots(&orders, |test| tests.contains_key(test));
            for Decoded { run, order, figures } in decoded(&column, &runs, &orders, &asked, false) {
                for (slot, figure) in figures? {
                    if let Some(commits) = tests.get_mut(&order[slot]) {
                        add(commits, run, figure);
                    }
                }
            }
            for (test, commits) in tests {
                let Some((suite, name)) = names.get(&test).cloned() else { continue };
                found.push(Figures { suite, name, metric, commits });
            }
        }
        Ok(found)
    }
}

/// Tests by their slots.
fn order(roster: &Roster) -> Vec<i64> {
    let mut order = vec![0; roster.len()];
    for (test, slot) in roster {
        if let Some(place) = order.get_mut(*slot) {
            *place = *test;
        }
    }
    order
}

/// The requested slots of each roster.
fn slots(orders: &BTreeMap<i64, Vec<i64>>, is_asked: impl Fn(&i64) -> bool) -> BTreeMap<i64, Vec<bool>> {
    orders.iter().map(|(roster, order)| (*roster, order.iter().map(&is_asked).collect())).collect()
}

/// One metric of a run: the tests of its roster, and the requested figures by their slots.
struct Decoded<'r> {
    run: &'r Run,
    order: &'r [i64],
    figures: Result<Vec<(usize, Figure)>, StoreError>,
}

/// One metric of each run that has it, in the order of the line; with `only_more` only figures that are not zero.
fn decoded<'r>(
    column: &'r BTreeMap<i64, Vec<u8>>,
    runs: &'r [Run],
    orders: &'r BTreeMap<i64, Vec<i64>>,
    asked: &'r BTreeMap<i64, Vec<bool>>,
    only_more: bool,
) -> impl Iterator<Item = Decoded<'r>> {
    runs.iter().filter_map(move |run| {
        let (order, asked) = (orders.get(&run.roster)?, asked.get(&run.roster)?);
        if !asked.contains(&true) {
            return None;
        }
        let wanted = |slot: usize, is_zero: bool| asked[slot] && !(only_more && is_zero);
        let figures = column::decode_where(column.get(&run.run)?, order.len(), wanted);
        Some(Decoded { run, order, figures: figures.map_err(|why| StoreError::Broken(why.to_string())) })
    })
}

/// Runs of one commit count as one value: the largest.
fn add(commits: &mut Vec<Commit>, of: &Run, figure: Figure) {
    let grows = grows(figure);
    match commits.last_mut().filter(|last| last.at == of.at) {
        Some(last) => {
            last.disagrees |= last.grows.zip(grows).is_some_and(|(last, this)| last != this);
            last.grows = last.grows.or(grows);
            if figure.value > last.figure.value {
                (last.figure, last.run) = (figure, of.run);
            }
        }
        None => commits.push(Commit { at: of.at, run: of.run, figure, grows, disagrees: false }),
    }
}

/// Does a figure grow? `None`: one execution left it, and none was repeated.
fn grows(figure: Figure) -> Option<bool> {
    match figure.interval {
        Some((low, _)) => Some(low > 0.0),
        None if figure.value > 0.0 => None,
        None => Some(false),
    }
}

/// Position from which on values are comparable.
fn last_shift(is_noisy: bool, commits: &[Commit]) -> usize {
    if is_noisy {
        return noise::shifts(&values(commits)).last().map_or(0, |shift| shift.at);
    }
    level::fold(&figures(commits)).map_or(0, |levels| levels.since)
}

/// The position that showed each shift, and the values before and after.
fn shifts(is_noisy: bool, commits: &[Commit]) -> Vec<(usize, f64, f64)> {
    if is_noisy {
        let found = noise::shifts(&values(commits)).into_iter();
        return found.map(|shift| (shift.told_at, shift.before, shift.after)).collect();
    }
    let found = level::fold(&figures(commits)).map_or_else(Vec::new, |levels| levels.shifts);
    let stayed = found.into_iter().filter(|shift| !shift.is_transient);
    stayed.map(|shift| (shift.told_at, shift.before, shift.after)).collect()
}

fn values(commits: &[Commit]) -> Vec<f64> {
    commits.iter().map(|commit| commit.figure.value).collect()
}

fn figures(commits: &[Commit]) -> Vec<Figure> {
    commits.iter().map(|commit| commit.figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Before, a lazy static was flaky on a commit on which one run had a threshold that allows it.
    #[test]
    fn runs_disagree_only_if_both_know_whether_a_figure_grows() {
        let once = |value| Figure { value, interval: None };
        let repeated = |value| Figure { value, interval: Some((value, value)) };
        for (runs, disagree) in [
            ([once(78.0), repeated(0.0)], false),
            ([once(78.0), repeated(78.0)], false),
            ([once(0.0), repeated(78.0)], true),
            ([repeated(78.0), repeated(0.0)], true),
            ([repeated(78.0), repeated(78.0)], false),
        ] {
            let mut commits = Vec::new();
            for figure in runs {
                add(&mut commits, &Run { run: 1, at: 0, roster: 1 }, figure);
            }
            assert_eq!((commits.len(), commits[0].disagrees), (1, disagree), "{runs:?}");
        }
    }
}
