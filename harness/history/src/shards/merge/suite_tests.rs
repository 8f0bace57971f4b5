//! The tests of one suite, from all shards.

use std::collections::BTreeMap;

use memgate_model::{Outcome, RunReport, ShardNumber, SuiteReport, TestReport, Verdict};

use super::super::ShardReport;
use super::super::split::class_of;

/// Positions of units in the inventory.
pub(super) struct Ranks<'a>(BTreeMap<&'a str, usize>);

impl<'a> Ranks<'a> {
    pub(super) fn of(reports: &[(&'a ShardReport, &'a RunReport)]) -> Self {
        let mut ranks = BTreeMap::new();
        for unit in
            reports.iter().flat_map(|(shard, _)| &shard.description.suites).flat_map(|suite| &suite.units)
        {
            let next = ranks.len();
            ranks.entry(unit.as_str()).or_insert(next);
        }
        Self(ranks)
    }

    fn rank(&self, test: &str) -> Option<usize> {
        self.0.get(test).or_else(|| self.0.get(class_of(test)?)).copied()
    }
}

/// Tests of all shards, in the order of the inventory. A test that ran in several shards (for example a fixture) is
/// listed once, with its worst result.
pub(super) fn tests(its: &[&(&ShardReport, &SuiteReport)], ranks: &Ranks<'_>) -> Vec<TestReport> {
    let owners = one_time_owners(its);
    let mut places = BTreeMap::<&str, usize>::new();
    let mut tests = Vec::<(usize, TestReport)>::new();
    for (shard, suite) in its {
        let mut rank = 0;
        for test in &suite.tests {
            rank = ranks.rank(&test.id).unwrap_or(rank);
            let mut told = test.clone();
            told.one_time.retain(|leak| {
                owners.get(leak.id.as_str()).is_none_or(|number| *number == shard.description.number)
            });
            if let Some(place) = places.get(test.id.as_str()) {
                let (known_rank, known) = &mut tests[*place];
                *known_rank = rank.max(*known_rank);
                join(known, told);
            } else {
                places.insert(&test.id, tests.len());
                tests.push((rank, told));
            }
        }
    }
    // Something that is no unit, for example a fixture, comes after the last of its neighbours.
    tests.sort_by_key(|(rank, test)| (*rank, ranks.rank(&test.id).is_none()));
    tests.into_iter().map(|(_, test)| test).collect()
}

/// Gives `known` the worse result of both, and the leaks of both.
fn join(known: &mut TestReport, mut other: TestReport) {
    if badness(&other) > badness(known) {
        std::mem::swap(known, &mut other);
    }
    if severity(other.outcome) > severity(known.outcome) {
        known.outcome = other.outcome;
    }
    for (known, more) in [(&mut known.leaks, other.leaks), (&mut known.one_time, other.one_time)] {
        for leak in more {
            if !known.iter().any(|it| it.id == leak.id) {
                known.push(leak);
            }
        }
    }
}

const fn severity(outcome: Outcome) -> u32 {
    match outcome {
        Outcome::Skipped => 0,
        Outcome::Passed => 1,
        Outcome::Failed => 2,
        Outcome::TimedOut => 3,
        Outcome::Crashed => 4,
    }
}

fn badness(test: &TestReport) -> (Verdict, bool, u64) {
    let bytes: f64 = test.leaks.iter().map(|leak| leak.bytes_per_iteration).sum();
    // Non-negative floats sort like their bits.
    (test.verdict, test.confirmed, bytes.max(0.0).to_bits())
}

/// The shard that reports a one-time allocation, by the id of the leak. If a library initialises once in each shard, it
/// is the shard with the most bytes. If each test has a process of its own, all tests report it, as on one machine.
fn one_time_owners<'a>(its: &[&(&'a ShardReport, &'a SuiteReport)]) -> BTreeMap<&'a str, ShardNumber> {
    let mut told = BTreeMap::<&str, BTreeMap<ShardNumber, (u32, f64)>>::new();
    for (shard, suite) in its {
        for leak in suite.tests.iter().flat_map(|test| &test.one_time) {
            let (tests, bytes) =
                told.entry(&leak.id).or_default().entry(shard.description.number).or_default();
            *tests += 1;
            *bytes += leak.bytes_per_iteration;
        }
    }
    let most = |shards: BTreeMap<ShardNumber, (u32, f64)>| {
        let once = shards.values().all(|(tests, _)| *tests == 1);
        let most = shards
            .into_iter()
            .max_by(|(a, (_, a_bytes)), (b, (_, b_bytes))| a_bytes.total_cmp(b_bytes).then(b.cmp(a)));
        most.map(|(number, _)| number).filter(|_| once)
    };
    told.into_iter().filter_map(|(id, shards)| Some((id, most(shards)?))).collect()
}
