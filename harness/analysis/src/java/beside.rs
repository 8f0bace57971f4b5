//! Growth of a test class that none of its tests has shown alone, as far as they were repeated.
//!
//! In rounds over the tests of a class, a test may seem not to grow: it frees as much of the test before it as it
//! keeps. So the rounds tell which tests leak only as long as these explain what the class leaves.

use std::collections::BTreeMap;

use memgate_model::Metric;

use super::findings::Findings;
use super::names::is_own;
use super::one_class::Growing;
use super::series::{histograms, values};
use crate::growth::{Finding, judge_series};
use crate::policy::GatePolicy;
use crate::record::ProcessRecord;
use crate::repetition::{RepetitionLimits, limited};

/// A smaller share of what the class leaves is ignored: alone and in its class a test may differ that much.
const SHARE: f64 = 0.1;

/// Does a class grow by more than its tests that were repeated alone, all together? Each record comes with the id of
/// the class, or of the test. Native memory is not compared.
#[must_use]
pub fn grows_beside(
    class: (&ProcessRecord, &str),
    tests: &[(&ProcessRecord, String)],
    suite: &str,
    policy: &GatePolicy,
) -> bool {
    let run = RepetitionLimits::of(policy);
    let growing =
        |record: &ProcessRecord, id: &str| Findings::of(record, id, run.warm_up, run.confidence).growing;
    let mut by_tests = BTreeMap::<String, f64>::new();
    for (record, id) in tests {
        for Growing { series, count, .. } in growing(record, id) {
            *by_tests.entry(series.class).or_default() += count;
        }
    }
    let is_left = |growing: &Growing| match by_tests.get(&growing.series.class) {
        // The virtual machine makes objects of the JDK by itself. They come irregularly.
        None => is_own(&growing.series.class) || growing.is_regular && growing.count > 0.0,
        Some(by_tests) => growing.is_regular && *by_tests < growing.count * (1.0 - SHARE),
    };
    if growing(class.0, class.1).iter().any(is_left) {
        return true;
    }
    let is_counter = |metric: Metric| {
        let is_heap = [Metric::JavaLiveBytes, Metric::JavaLiveObjects].contains(&metric);
        metric.is_java() && !is_heap || metric == Metric::OsFds
    };
    limited(policy, suite, class.1, is_counter).into_iter().any(|(metric, limit)| {
        let growth = |record: &ProcessRecord, id: &str, limit: f64| {
            let growth = judge_series(&values(&histograms(record, id), metric), run.allowed(limit, 1.0));
            if growth.finding == Finding::Grows { growth.slope.slope } else { 0.0 }
        };
        let by_tests: f64 = tests.iter().map(|(record, id)| growth(record, id, 0.0)).sum();
        by_tests < growth(class.0, class.1, limit) * (1.0 - SHARE)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::java::dsl::Jvm;

    fn repeated(class: &str, test: &str, body: impl Fn(&mut Jvm)) -> ProcessRecord {
        let mut jvm = Jvm::new();
        (0..40).for_each(|round| jvm.window(class, test, round, &body));
        jvm.end()
    }

    #[test]
    fn growth_of_a_class_is_explained_by_as_much_growth_of_its_tests() {
        let policy = GatePolicy::default();
        let class = repeated("com.example.TileTest", "", |jvm| {
            jvm.add("com.example.Tile", 2, 24);
            jvm.threads.push("pump".to_owned());
        });
        let keeps = |tiles: u64, threads: usize| {
            repeated("com.example.TileTest", "keeps", |jvm| {
                jvm.add("com.example.Tile", tiles, 24);
                jvm.threads.extend(vec!["pump".to_owned(); threads]);
            })
        };
        let is_left = |tests: &[ProcessRecord]| {
            let tests: Vec<_> =
                tests.iter().map(|record| (record, "com.example.TileTest.keeps".to_owned())).collect();
            grows_beside((&class, "com.example.TileTest"), &tests, "unit", &policy)
        };
        assert!(is_left(&[]));
        assert!(is_left(&[keeps(1, 1)]), "one of two objects");
        assert!(is_left(&[keeps(2, 0)]), "no thread");
        assert!(!is_left(&[keeps(2, 1)]));
        assert!(!is_left(&[keeps(1, 1), keeps(1, 0)]), "both together");
    }
}
