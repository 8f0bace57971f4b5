//! `memgate tune`: thresholds from the history of a line, as a patch of memgate.yaml with its evidence.
//!
//! Data flow: series of the store, with the threshold that holds today → `memgate_history::tune` → text. Nothing is written, and no
//! leak gets a threshold: it is listed, to be fixed or waived.

use std::collections::BTreeMap;

use memgate_config::{Limit as Configured, Place, Thresholds};
use memgate_history::tune::{Limit, Proposal, Segment, Tuned, tune as tuned};
use memgate_model::{Level, Per, format_value};
use memgate_server::store::Series;
use memgate_server::view::Selection;

use super::{history::Asked, settings};
use crate::cli::TuneArgs;
use crate::exit::{self, ExpectedError};
use crate::history;
use crate::output::Console;

pub(super) fn tune(request: &TuneArgs, console: &Console) -> Result<u8, ExpectedError> {
    let settings = settings::load(request.config.config.as_deref(), console)?;
    let found = history::block_on(async {
        let asked = Asked::open(&request.of).await?;
        let found =
            asked.store.series(&asked.project, &asked.choice).await.map_err(|why| history::failed(&why))?;
        found.ok_or_else(|| asked.missing("line"))
    })?;
    let (selection, series) = found?;
    console.text(&patch(&selection, &series, &settings.config.thresholds))?;
    Ok(exit::PASS)
}

/// A figure with what is proposed for it.
struct Row<'s> {
    of: &'s Series,
    tuned: Tuned,
}

/// The patch, the worst first.
fn patch(selection: &Selection, series: &[Series], thresholds: &Thresholds) -> String {
    let mut rows: Vec<Row<'_>> =
        series.iter().map(|of| Row { of, tuned: proposal(of, thresholds) }).collect();
    rows.sort_by(|a, b| a.tuned.proposal.worst_first(&b.tuned.proposal));
    let mut text =
        format!("# memgate tune: {} · {} · {}\n", selection.project, selection.branch, selection.environment);
    let comments = rows.iter().filter_map(|row| Some(format!("# {}\n", comment(row)?)));
    text.extend(comments);
    let missing = rows.iter().filter(|row| matches!(row.tuned.proposal, Proposal::Missing(_))).count();
    if missing > 0 {
        text +=
            &format!("# figures with too few commits since they last changed (10 are needed): {missing}\n");
    }
    let mut by_test = BTreeMap::<String, Vec<&Row<'_>>>::new();
    for row in rows.iter().filter(|row| !row.of.name.is_empty() && line(row).is_some()) {
        by_test.entry(format!("{}::{}", row.of.suite, row.of.name)).or_default().push(row);
    }
    if by_test.is_empty() {
        return text + "# no threshold is proposed\n";
    }
    text += "thresholds:\n  tests:\n";
    for (test, rows) in by_test {
        text += &format!("    - match: {}\n", serde_json::Value::from(literal(&test)));
        text.extend(rows.into_iter().filter_map(line));
    }
    text
}

fn proposal(of: &Series, thresholds: &Thresholds) -> Tuned {
    let is_suite = of.name.is_empty();
    let today = if is_suite {
        thresholds.for_suite().find(|threshold| threshold.metric == of.metric)
    } else {
        thresholds.for_test(&of.suite, &of.name, of.metric)
    };
    let limit = today.and_then(|threshold| match threshold.fail.as_ref().or(threshold.warn.as_ref())? {
        #[expect(clippy::cast_precision_loss, reason = "a threshold of 2^53 is none")]
        Configured::Absolute(limit) => {
            Some(Limit { limit: *limit as f64, is_explicit: threshold.place != Place::Default })
        }
        // What is relative to a baseline says nothing about the history.
        _ => None,
    });
    let per = if is_suite { Per::Suite } else { Per::Iteration };
    tuned(&Segment { metric: of.metric, per, commits: &of.commits, limit })
}

/// What is said and not proposed.
fn comment(Row { of, tuned }: &Row<'_>) -> Option<String> {
    let name = if of.name.is_empty() { of.suite.clone() } else { format!("{}::{}", of.suite, of.name) };
    let value = |value: f64| format_value(of.metric, value);
    let (metric, commits) = (of.metric.name(), tuned.commits);
    Some(match tuned.proposal {
        Proposal::Leaks { least, most } => {
            let range =
                if least == most { value(most) } else { format!("{} to {}", value(least), value(most)) };
            format!(
                "{name}: {metric} grows by {range} on each of the last {commits} commits: fix it, or `memgate waive` it"
            )
        }
        Proposal::Flaky(rate) => {
            format!(
                "{name}: {metric} grows on {:.0} % of {commits} commits, and runs of one commit disagree: it is flaky",
                100.0 * rate
            )
        }
        Proposal::Usual { limit } => {
            format!(
                "{name}: {metric} as a whole: {} covers what it usually needs in {commits} commits",
                value(limit)
            )
        }
        Proposal::Missing(_) | Proposal::Noisy | Proposal::Largest { .. } | Proposal::Zero { .. } => {
            return None;
        }
    })
}

/// A line of the patch with its evidence.
fn line(Row { of, tuned }: &Row<'_>) -> Option<String> {
    let limit = written(tuned.proposal.limit()?);
    let (metric, commits) = (of.metric.name(), tuned.commits);
    let tested = format!(
        "fails {} of {commits} commits, today {}{}",
        tuned.proposed.fails,
        tuned.today.fails,
        if tuned.lets_through > 0 {
            format!("; LETS THROUGH {} that fail today", tuned.lets_through)
        } else {
            String::new()
        }
    );
    match tuned.proposal {
        Proposal::Largest { level, covers, .. } => {
            let key = match level {
                Level::Fail => "fail",
                Level::Warn => "warn",
            };
            let covers = covers.map_or_else(
                || "too few commits to fail a build".to_owned(),
                |covers| {
                    format!(
                        "covers {} % of commits with a confidence of {} %",
                        100.0 * covers.share,
                        100.0 * covers.confidence
                    )
                },
            );
            Some(format!(
                "      {metric}: {{ {key}: {limit} }}   # the largest of {commits} commits: {covers}; {tested}\n"
            ))
        }
        Proposal::Zero { removes: Some(old) } => Some(format!(
            "      {metric}: 0   # {} is never needed in {commits} commits; {tested}\n",
            written(old)
        )),
        _ => None,
    }
}

/// A figure as memgate.yaml reads it.
fn written(value: f64) -> String {
    format!("{:.0}", value.ceil())
}

/// A name in which nothing is a pattern.
fn literal(name: &str) -> String {
    let special = |c: char| "*?[]{}\\".contains(c);
    name.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use memgate_config::Config;
    use memgate_history::Figure;
    use memgate_history::tune::Measured;
    use memgate_model::Metric;

    use super::*;

    fn series(name: &str, metric: Metric, values: &[f64]) -> Series {
        let measured = |value: &f64| Measured {
            figure: Figure { value: *value, interval: None },
            disagrees: false,
            is_confirmed: false,
        };
        Series {
            suite: "engine".into(),
            name: name.into(),
            metric,
            commits: values.iter().map(measured).collect(),
        }
    }

    #[test]
    fn a_patch_lists_leaks_and_proposes_thresholds_with_their_evidence() {
        let mut seldom = vec![0.0; 70];
        seldom[3] = 96.0;
        let series = [
            series("Cache.warm[x]", Metric::NativeLiveBytes, &seldom),
            series("Map.leaks", Metric::NativeLiveBytes, &[48.0; 12]),
            series("Map.few", Metric::NativeLiveBytes, &[48.0; 3]),
            series("Files.open", Metric::OsFds, &[0.0; 12]),
            series("", Metric::OsRss, &[1e6; 20]),
        ];
        let text = "version: 1\nthresholds: { tests: [{ match: \"engine::Files.*\", os.fds: 4 }] }\n";
        let config = Config::parse(text, "memgate.yaml", &|_| None, None).unwrap();
        let selection = Selection { project: "tiles".into(), branch: "main".into(), ..Selection::default() };
        let patch = patch(&selection, &series, &config.thresholds);
        insta::assert_snapshot!(patch);
        let patched =
            Config::parse(&format!("version: 1\n{patch}"), "memgate.yaml", &|_| None, None).unwrap();
        let limit = |test: &str, metric| patched.thresholds.for_test("engine", test, metric).unwrap().fail;
        assert_eq!(limit("Cache.warm[x]", Metric::NativeLiveBytes), Some(Configured::Absolute(96)));
        assert_eq!(
            limit("Map.leaks", Metric::NativeLiveBytes),
            Some(Configured::Absolute(0)),
            "a leak keeps its threshold"
        );
    }
}
