//! Thresholds that a history supports, with evidence: `memgate tune` and its page.
//!
//! Data flow: series of the store, with today's threshold → `memgate_history::tune` → [`Row`]s, worst first → a patch
//! of memgate.yaml as text ([`patch`]), or the threshold of each of its lines ([`Row::threshold`]). A leak gets no
//! threshold: it is listed, to be fixed or waived.

use std::collections::{BTreeMap, BTreeSet};

use memgate_config::{Limit as Configured, NewThreshold, Place, Thresholds};
use memgate_history::tune::{Limit, Proposal, Segment, Tuned, tune as tuned};
use memgate_model::{LeakKind, Level, Per, format_amount, format_value};

use crate::store::Series;
use crate::text::heading;
use crate::view::Selection;

/// A figure with its proposal.
#[derive(Debug)]
pub struct Row<'s> {
    of: &'s Series,
    /// The proposal and its evidence.
    pub tuned: Tuned,
}

/// The proposal for each series, worst first.
#[must_use]
pub fn rows<'s>(series: &'s [Series], thresholds: &Thresholds) -> Vec<Row<'s>> {
    let mut rows: Vec<Row<'_>> =
        series.iter().map(|of| Row { of, tuned: proposal(of, thresholds) }).collect();
    let leaking: BTreeSet<_> = rows.iter().filter(|row| row.leaks()).filter_map(Row::memory).collect();
    // The number of allocations or objects counts the same leak as their bytes.
    let is_proposed = |row: &Row<'_>| matches!(row.tuned.proposal, Proposal::Largest { .. });
    rows.retain(|row| !is_proposed(row) || row.memory().is_none_or(|memory| !leaking.contains(&memory)));
    rows.sort_by(|a, b| a.tuned.proposal.worst_first(&b.tuned.proposal));
    rows
}

impl<'s> Row<'s> {
    const fn leaks(&self) -> bool {
        matches!(self.tuned.proposal, Proposal::Leaks { .. })
    }

    /// The test, and the memory that the figure counts; `None`: it counts something else.
    fn memory(&self) -> Option<(&'s str, &'s str, LeakKind)> {
        let kind = self.of.metric.leaks().filter(|kind| matches!(kind, LeakKind::Native | LeakKind::Java))?;
        Some((&self.of.suite, &self.of.name, kind))
    }

    /// The threshold of a test for memgate.yaml; `None`: none is proposed.
    #[must_use]
    pub fn threshold(&self) -> Option<NewThreshold> {
        let Self { of, tuned } = self;
        let level = match tuned.proposal {
            Proposal::Largest { level, .. } => level,
            Proposal::Zero { .. } => Level::Fail,
            _ => return None,
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "no figure is negative or above 2^64"
        )]
        let limit = tuned.proposal.limit()?.ceil() as u64;
        let (suite, test, metric) = (of.suite.clone(), of.name.clone(), of.metric);
        let evidence = evidence(of, tuned)?;
        (!test.is_empty()).then_some(NewThreshold { suite, test, metric, level, limit, evidence })
    }
}

/// The patch, worst first.
#[must_use]
pub fn patch(selection: &Selection, rows: &[Row<'_>]) -> String {
    let mut text = format!("# memgate tune: {}", heading(selection));
    text.extend(rows.iter().filter_map(|row| Some(format!("# {}\n", comment(row)?))));
    let usual: String = rows.iter().filter_map(|row| Some(format!("#   {}\n", usual_need(row)?))).collect();
    if !usual.is_empty() {
        text += "# what suites usually need as a whole, for a limit with `per: suite`:\n";
        text += &usual;
    }
    let missing = rows.iter().filter(|row| matches!(row.tuned.proposal, Proposal::Missing(_))).count();
    if missing > 0 {
        text +=
            &format!("# figures with too few commits since they last changed (10 are needed): {missing}\n");
    }
    let mut by_test = BTreeMap::<String, String>::new();
    for new in rows.iter().filter_map(Row::threshold) {
        let line = format!("      {}: {}   # {}\n", new.metric.name(), new.value(), new.evidence);
        by_test.entry(new.pattern()).or_default().push_str(&line);
    }
    if by_test.is_empty() {
        return text + "# no threshold of a test is proposed\n";
    }
    text += "thresholds:\n  tests:\n";
    for (pattern, lines) in by_test {
        text += &format!("    - match: {}\n{lines}", serde_json::Value::from(pattern));
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
        // A threshold relative to a baseline cannot be compared with the history.
        _ => None,
    });
    let per = if is_suite { Per::Suite } else { Per::Iteration };
    tuned(&Segment { metric: of.metric, per, commits: &of.commits, limit })
}

/// Comment on a test that gets no threshold.
fn comment(Row { of, tuned }: &Row<'_>) -> Option<String> {
    let name = if of.name.is_empty() { of.suite.clone() } else { format!("{}::{}", of.suite, of.name) };
    let (metric, commits, growing) = (of.metric.name(), tuned.commits, tuned.growing);
    let range = |least: f64, most: f64| {
        let most_of_it = format_amount(of.metric, most);
        match least == most {
            true => most_of_it,
            false => format!("{} to {most_of_it}", format_value(of.metric, least)),
        }
    };
    Some(match tuned.proposal {
        Proposal::Leaks { least, most } => {
            let (range, on) =
                (range(least, most), if growing == commits { "each" } else { &growing.to_string() });
            format!(
                "{name} leaks {range} per iteration ({metric}) on {on} of the last {commits} commits: fix it, or `memgate waive` it"
            )
        }
        Proposal::Once { least, most } => {
            format!(
                "{name} leaves {} ({metric}) on each of the last {commits} commits, but was not repeated: it may be left only once",
                range(least, most)
            )
        }
        Proposal::Flaky(rate) => {
            format!(
                "{name}: {metric} grows on {:.0} % of {commits} commits, and runs of one commit disagree: it is flaky",
                100.0 * rate
            )
        }
        Proposal::Missing(_)
        | Proposal::Noisy
        | Proposal::Usual { .. }
        | Proposal::Largest { .. }
        | Proposal::Zero { .. } => return None,
    })
}

/// What a suite usually needs; `None`: it is no suite, or has no usual need.
fn usual_need(Row { of, tuned }: &Row<'_>) -> Option<String> {
    let Proposal::Usual { limit } = tuned.proposal else { return None };
    let (suite, metric, commits) = (&of.suite, of.metric.name(), tuned.commits);
    Some(format!("{suite}: {metric} {} covers {commits} commits", format_value(of.metric, limit)))
}

/// Evidence for a threshold, and its effect on past commits; `None`: none is proposed.
fn evidence(of: &Series, tuned: &Tuned) -> Option<String> {
    let commits = tuned.commits;
    let rests = match tuned.proposal {
        Proposal::Largest { covers: None, .. } => {
            format!("the largest of {commits} commits: too few commits to fail a build")
        }
        Proposal::Largest { covers: Some(covers), .. } => format!(
            "the largest of {commits} commits: covers {} % of commits with a confidence of {} %",
            100.0 * covers.share,
            100.0 * covers.confidence
        ),
        Proposal::Zero { removes: Some(old) } => {
            format!("{} is never needed in {commits} commits", format_value(of.metric, old))
        }
        _ => return None,
    };
    let lets_through = match tuned.lets_through {
        0 => String::new(),
        through => format!("; LETS THROUGH {through} that fail today"),
    };
    let (fails, today) = (tuned.proposed.fails, tuned.today.fails);
    Some(format!("{rests}; fails {fails} of {commits} commits, today {today}{lets_through}"))
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
            figure: Figure { value: *value, interval: (!name.is_empty()).then_some((*value, *value)) },
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
        let mut once = series("Style.opens", Metric::NativeLiveBytes, &[78.0; 12]);
        once.commits.iter_mut().for_each(|commit| commit.figure.interval = None);
        let series = [
            series("Cache.warm[x]", Metric::NativeLiveBytes, &seldom),
            series("Map.leaks", Metric::NativeLiveBytes, &[48.0; 12]),
            series("Map.leaks", Metric::NativeLiveAllocations, &seldom),
            once,
            series("Map.few", Metric::NativeLiveBytes, &[48.0; 3]),
            series("Files.open", Metric::OsFds, &[0.0; 12]),
            series("", Metric::OsRss, &[1e6; 20]),
        ];
        let text = "version: 1\nthresholds: { tests: [{ match: \"engine::Files.*\", os.fds: 4 }] }\n";
        let config = Config::parse(text, "memgate.yaml", &|_| None, None).unwrap();
        let selection = Selection { project: "tiles".into(), branch: "main".into(), ..Selection::default() };
        let patch = patch(&selection, &rows(&series, &config.thresholds));
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
