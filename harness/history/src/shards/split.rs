//! Assigns the units of a suite to shards: by name, or so that all shards take equally long.
//!
//! By name, a unit stays in its shard, independent of filters and of other units that are added or removed. With
//! [`Timings`], the longest unit goes first, to the shard with the least work. Every shard computes the same from the
//! same files.

use std::collections::BTreeMap;

use memgate_model::{RunReport, Runner, ShardNumber};
use sha2::{Digest as _, Sha256};

/// Assumed seconds of a unit if no duration is known.
const UNKNOWN_S: f64 = 1.0;

/// How long units took in earlier runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timings {
    /// Seconds in each earlier run, by unit.
    seconds: BTreeMap<String, Vec<f64>>,
}

impl Timings {
    /// Adds durations of a run: of each of its tests, test classes and suites.
    pub fn add(&mut self, report: &RunReport) {
        let mut of_run = BTreeMap::<String, f64>::new();
        for suite in &report.suites {
            let mut whole = 0.0;
            for test in suite.tests.iter().filter(|test| !test.is_class && test.duration_s.is_finite()) {
                let seconds = test.duration_s.max(0.0);
                whole += seconds;
                *of_run.entry(test.id.clone()).or_default() += seconds;
                if let Some(class) = class_of(&test.id).filter(|_| is_java(suite.runner)) {
                    *of_run.entry(class.to_owned()).or_default() += seconds;
                }
            }
            of_run.entry(suite.name.clone()).or_insert(whole);
        }
        for (unit, seconds) in of_run {
            self.seconds.entry(unit).or_default().push(seconds);
        }
    }

    /// The third quartile of a unit's durations: a single slow or fast machine has little influence.
    fn of(&self, unit: &str) -> Option<f64> {
        let mut seconds = self.seconds.get(unit)?.clone();
        seconds.sort_by(f64::total_cmp);
        seconds.get((seconds.len() * 3).div_ceil(4).saturating_sub(1)).copied()
    }
}

fn is_java(runner: Runner) -> bool {
    matches!(runner, Runner::Junit | Runner::Instrumentation)
}

/// The outermost class of a Java test: `com.example.ATest` for `com.example.ATest$Inner.scroll(int)[2]`.
pub(super) fn class_of(test: &str) -> Option<&str> {
    let name = test.split(['(', '[', ' ']).next().unwrap_or(test);
    let (class, _method) = name.rsplit_once('.')?;
    class.split('$').next()
}

/// Assigns units, suite by suite.
#[derive(Debug, Clone)]
pub struct Split {
    number: ShardNumber,
    timings: Option<Timings>,
    /// Seconds assigned to each shard so far.
    loads: Vec<f64>,
}

impl Split {
    /// For one shard. `timings` must be the same in all shards.
    #[must_use]
    pub fn new(number: ShardNumber, timings: Option<Timings>) -> Self {
        Self { number, timings, loads: vec![0.0; number.of() as usize] }
    }

    /// The shard that it is for.
    #[must_use]
    pub const fn number(&self) -> ShardNumber {
        self.number
    }

    /// The units of a suite that belong to this shard, in their order.
    pub fn own(&mut self, suite: &str, units: &[String]) -> Vec<String> {
        let owners = match self.timings.take() {
            None => units.iter().map(|unit| by_name(suite, unit, self.number.of())).collect(),
            Some(timings) => {
                let owners = self.by_time(&timings, units);
                self.timings = Some(timings);
                owners
            }
        };
        let own = units.iter().zip(owners).filter(|(_, owner)| *owner == self.number.index());
        own.map(|(unit, _)| unit.clone()).collect()
    }

    fn by_time(&mut self, timings: &Timings, units: &[String]) -> Vec<u32> {
        let known: Vec<Option<f64>> = units.iter().map(|unit| timings.of(unit)).collect();
        let mut all: Vec<f64> = known.iter().flatten().copied().collect();
        all.sort_by(f64::total_cmp);
        let usual = all.get(all.len() / 2).copied().unwrap_or(UNKNOWN_S);
        let mut order: Vec<(usize, f64)> =
            known.iter().map(|known| known.unwrap_or(usual)).enumerate().collect();
        order.sort_by(|(a, a_s), (b, b_s)| b_s.total_cmp(a_s).then_with(|| units[*a].cmp(&units[*b])));
        let mut owners = vec![0; units.len()];
        for (unit, seconds) in order {
            let mut least = (0, f64::INFINITY);
            for (shard, load) in self.loads.iter().copied().enumerate() {
                if load < least.1 {
                    least = (shard, load);
                }
            }
            self.loads[least.0] += seconds;
            owners[unit] = u32::try_from(least.0).unwrap_or(u32::MAX) + 1;
        }
        owners
    }
}

/// The shard of a unit, from the first eight bytes of SHA-256 over `suite NUL unit`.
fn by_name(suite: &str, unit: &str, of: u32) -> u32 {
    let digest = Sha256::new().chain_update(suite).chain_update([0]).chain_update(unit).finalize();
    let first = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    u32::try_from(first % u64::from(of)).unwrap_or(0) + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn units(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("Map.t{n}")).collect()
    }

    fn all_parts(
        of: u32,
        timings: Option<&Timings>,
        suites: &[(&str, Vec<String>)],
    ) -> Vec<Vec<Vec<String>>> {
        let shard = |index| {
            let mut split = Split::new(ShardNumber::new(index, of).unwrap(), timings.cloned());
            suites.iter().map(|(suite, units)| split.own(suite, units)).collect()
        };
        (1..=of).map(shard).collect()
    }

    fn timings(seconds: impl IntoIterator<Item = (String, f64)>) -> Timings {
        Timings { seconds: seconds.into_iter().map(|(unit, seconds)| (unit, vec![seconds])).collect() }
    }

    #[test]
    fn a_unit_stays_where_it_is_by_name_whatever_else_there_is() {
        let whole = all_parts(4, None, &[("engine", units(100))]);
        let fewer = all_parts(4, None, &[("engine", units(100).into_iter().step_by(3).collect())]);
        for (whole, fewer) in whole.iter().zip(&fewer) {
            assert!(fewer[0].iter().all(|unit| whole[0].contains(unit)));
        }
        assert_eq!(by_name("engine", "MapCache.scroll", 8), 8, "it never changes");
    }

    #[test]
    fn by_time_the_shards_take_as_long_as_each_other_over_all_suites() {
        let long = || {
            timings(
                units(40).into_iter().enumerate().map(|(n, unit)| (unit, if n == 0 { 60.0 } else { 1.0 })),
            )
        };
        let suites = [("a", units(20)), ("b", units(40).split_off(20))];
        let shards = all_parts(3, Some(&long()), &suites);
        let seconds = |shard: &Vec<Vec<String>>| -> f64 {
            shard.iter().flatten().filter_map(|unit| long().of(unit)).sum()
        };
        let seconds: Vec<f64> = shards.iter().map(seconds).collect();
        assert_eq!(seconds, [60.0, 20.0, 19.0], "{shards:?}");
    }

    #[test]
    fn what_is_not_known_takes_as_long_as_others_usually_do() {
        let known = timings([("Map.t0".to_owned(), 4.0), ("Map.t1".to_owned(), 4.0)]);
        let shards = all_parts(2, Some(&known), &[("engine", units(4))]);
        assert_eq!(shards.iter().map(|shard| shard[0].len()).collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn a_class_is_what_stands_before_the_method() {
        for (test, class) in [
            ("com.example.ATest.scroll", Some("com.example.ATest")),
            ("com.example.ATest.scroll(java.lang.String)[2]", Some("com.example.ATest")),
            ("com.example.ATest$Inner.scroll", Some("com.example.ATest")),
            ("com.example.ATest.with blanks. and stops", Some("com.example.ATest")),
            ("ATest", None),
        ] {
            assert_eq!(class_of(test), class, "{test}");
        }
    }

    proptest! {
        #[test]
        fn every_unit_falls_to_one_shard(of in 1_u32..17, count in 0_usize..60, known in 0_usize..60, by_time: bool) {
            let timings = by_time.then(|| timings(units(known).into_iter().zip((0..7).cycle().map(f64::from))));
            let shards = all_parts(of, timings.as_ref(), &[("a", units(count)), ("b", units(count / 2))]);
            for (suite, count) in [(0, count), (1, count / 2)] {
                let mut all: Vec<&String> = shards.iter().flat_map(|shard| &shard[suite]).collect();
                all.sort_unstable();
                let mut wanted = units(count);
                wanted.sort_unstable();
                prop_assert_eq!(all, wanted.iter().collect::<Vec<_>>());
            }
        }
    }
}
