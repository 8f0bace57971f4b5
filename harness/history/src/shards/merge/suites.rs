//! Merges a suite: joins the entries of all shards that ran tests of it.

use std::collections::BTreeMap;

use memgate_model::{Hunt, RunReport, ScreenCost, SuiteReport, SuiteShard, Verdict};

use super::super::ShardReport;
use super::suite_tests::{Ranks, tests};

/// Joins suites of the same name. Their order is that of a run on one machine.
pub(super) fn suites(reports: &[(&ShardReport, &RunReport)]) -> Vec<SuiteReport> {
    let mut names = Vec::<&str>::new();
    for (_, report) in reports {
        let mut at = 0;
        for suite in &report.suites {
            match names.iter().position(|name| *name == suite.name) {
                Some(known) => at = known + 1,
                None => {
                    names.insert(at, &suite.name);
                    at += 1;
                }
            }
        }
    }
    let ranks = Ranks::of(reports);
    let of_name = |name: &str| {
        let its = reports.iter().filter_map(|(shard, report)| {
            Some((*shard, report.suites.iter().find(|suite| suite.name == name)?))
        });
        suite(&its.collect::<Vec<_>>(), &ranks)
    };
    names.into_iter().filter_map(of_name).collect()
}

fn suite(its: &[(&ShardReport, &SuiteReport)], ranks: &Ranks<'_>) -> Option<SuiteReport> {
    // A shard without tests of the suite has no information about it.
    let says = |suite: &SuiteReport| !suite.tests.is_empty() || suite.verdict > Verdict::NotJudged;
    let told: Vec<&(&ShardReport, &SuiteReport)> = its.iter().filter(|(_, suite)| says(suite)).collect();
    let told = if told.is_empty() { its.iter().collect() } else { told };
    let (_, first) = told.first()?;
    let all = || told.iter().map(|(_, suite)| *suite);
    let mut reasons = Vec::<String>::new();
    for (shard, suite) in told.iter().filter(|(_, suite)| !suite.reason.is_empty()) {
        reasons.push(format!("shard {}: {}", shard.description.number, suite.reason));
    }
    let mut metrics = BTreeMap::new();
    for (metric, value) in all().flat_map(|suite| &suite.metrics) {
        let largest = metrics.entry(*metric).or_insert_with(|| value.clone());
        if value.value > largest.value {
            *largest = value.clone();
        }
    }
    let executions = || all().filter_map(|suite| suite.screen_executions);
    Some(SuiteReport {
        verdict: all().map(|suite| suite.verdict).max().unwrap_or(Verdict::Error),
        own_verdict: all().map(|suite| suite.own_verdict()).max(),
        screened_s: all().map(|suite| suite.screened_s).sum(),
        screen_executions: executions().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))),
        native_sampling: all().filter_map(|suite| suite.native_sampling).max(),
        stacks_of_suspects: all().any(|suite| suite.stacks_of_suspects),
        selects_itself: all().any(|suite| suite.selects_itself),
        screen_cost: screen_cost(all()),
        app_memory: all()
            .filter_map(|suite| suite.app_memory.as_ref())
            .max_by_key(|memory| memory.bytes.get("total_pss"))
            .cloned(),
        hunt: all().filter_map(|suite| suite.hunt.clone()).reduce(hunted),
        reason: reasons.join("; "),
        metrics,
        curve: Vec::new(),
        test_ends: Vec::new(),
        shards: told
            .iter()
            .map(|(shard, suite)| SuiteShard {
                number: shard.description.number,
                screened_s: suite.screened_s,
                metrics: suite.metrics.clone(),
                curve: suite.curve.clone(),
                test_ends: suite.test_ends.clone(),
            })
            .collect(),
        tests: tests(&told, ranks),
        ..(*first).clone()
    })
}

fn screen_cost<'a>(suites: impl Iterator<Item = &'a SuiteReport>) -> Option<ScreenCost> {
    let mut cost = suites.filter_map(|suite| suite.screen_cost.clone()).reduce(|a, b| ScreenCost {
        alone_s: a.alone_s + b.alone_s,
        screened_s: a.screened_s + b.screened_s,
        ratio: 0.0,
    })?;
    cost.ratio = if cost.alone_s > 0.0 { cost.screened_s / cost.alone_s } else { 1.0 };
    Some(cost)
}

fn hunted(a: Hunt, b: Hunt) -> Hunt {
    // A shard that repeated nothing says nothing about the repeated tests.
    let (executions, one_in) = match (a.repeated, b.repeated) {
        (_, 0) => (a.executions, a.one_in),
        (0, _) => (b.executions, b.one_in),
        _ => {
            let executions = (a.executions.0.min(b.executions.0), a.executions.1.max(b.executions.1));
            (executions, a.one_in.min(b.one_in))
        }
    };
    Hunt {
        classes: a.classes,
        of: a.of.saturating_add(b.of),
        repeated: a.repeated.saturating_add(b.repeated),
        grew: a.grew.saturating_add(b.grew),
        executions,
        one_in,
        not_reached: a.not_reached.saturating_add(b.not_reached),
        failing: a.failing.saturating_add(b.failing),
        failures: [a.failures, b.failures].concat(),
        // Reported only if nothing was repeated in any shard.
        not_hunted: a.not_hunted.filter(|_| b.not_hunted.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_repeated_nothing_does_not_change_what_the_others_found() {
        let idle = Hunt { of: 3, not_reached: 3, ..Hunt::default() };
        let busy = Hunt { of: 5, repeated: 5, executions: (40, 90), one_in: 9, ..Hunt::default() };
        let other = Hunt { of: 2, repeated: 2, executions: (30, 50), one_in: 7, ..Hunt::default() };
        for merged in [hunted(idle.clone(), busy.clone()), hunted(busy.clone(), idle)] {
            assert_eq!((merged.executions, merged.one_in), ((40, 90), 9));
            assert_eq!((merged.of, merged.repeated, merged.not_reached), (8, 5, 3));
        }
        let merged = hunted(busy, other);
        assert_eq!((merged.executions, merged.one_in), ((30, 90), 7));
    }
}
