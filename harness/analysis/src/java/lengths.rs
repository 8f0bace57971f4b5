//! A Java program that is a test as a whole: compares what is alive when its virtual machine ends, over runs that
//! repeat its work a different number of times.
//!
//! The JDK keeps more the longer a program runs (for example literals of compiled code), in uneven steps. So classes of
//! the JDK count only if each repetition adds the same.

use std::collections::BTreeMap;

use super::findings::Findings;
use super::names::{is_filler, is_own};
use super::one_class::Growing;
use super::series::{ClassSeries, Heap};
use crate::growth::{Allowed, Finding, judge_points};
use crate::record::ProcessRecord;
use crate::stats::float;

/// Allowed deviation of an even series from its line, in addition to one object: a share of what a repetition adds.
const EVEN_SHARE: f64 = 0.5;

/// The classes that grow with the length of a run. `None`: a run did not report what was alive at its end.
pub(crate) fn of_lengths(runs: &[(f64, &ProcessRecord)], confidence: f64) -> Option<Findings> {
    let mut all = BTreeMap::<String, ClassSeries>::new();
    for (at, (_, record)) in runs.iter().enumerate() {
        for (class, (instances, bytes)) in alive(record)? {
            let none = || vec![0.0; runs.len()];
            let series = all.entry(class).or_insert_with_key(|class| ClassSeries {
                class: class.clone(),
                instances: none(),
                bytes: none(),
            });
            series.instances[at] = instances;
            series.bytes[at] = bytes;
        }
    }
    let mut findings = Findings { ends: runs.len(), ..Findings::default() };
    for series in all.into_values() {
        let points = |values: &[f64]| {
            runs.iter().zip(values).map(|((n, _), value)| (*n, *value)).collect::<Vec<(f64, f64)>>()
        };
        let allowed = Allowed { limit: 0.0, block: 1.0, warm_up: 0, confidence };
        let instances = points(&series.instances);
        let growth = judge_points(&instances, allowed);
        let own = is_own(&series.class);
        match growth.finding {
            Finding::Grows if own || is_even(&instances, growth.slope.slope) => {
                let bytes = judge_points(&points(&series.bytes), allowed).slope.slope;
                findings.growing.push(Growing::counted(series, growth.slope.slope, bytes));
            }
            Finding::Open if own => findings.open.push(series.class),
            _ => {}
        }
    }
    Some(findings)
}

/// Instances and bytes by class in the last histogram.
fn alive(record: &ProcessRecord) -> Option<BTreeMap<String, (f64, f64)>> {
    let java = record.java.as_ref()?;
    let mut heap = Heap::default();
    let mut alive = BTreeMap::<u32, (f64, f64)>::new();
    for window in &record.windows {
        heap.apply(window, |class, _, now| {
            alive.insert(class, (float(now.instances), float(now.bytes)));
        });
    }
    if alive.is_empty() {
        return None;
    }
    let mut by_name = BTreeMap::<String, (f64, f64)>::new();
    for (class, (instances, bytes)) in alive {
        if let Some(name) = java.class(class).filter(|name| !is_filler(name)) {
            let sum = by_name.entry(name.to_owned()).or_default();
            *sum = (sum.0 + instances, sum.1 + bytes);
        }
    }
    Some(by_name)
}

fn is_even(points: &[(f64, f64)], slope: f64) -> bool {
    let mut rests: Vec<f64> = points.iter().map(|(n, value)| value - slope * n).collect();
    rests.sort_by(f64::total_cmp);
    let spread = rests.last().unwrap_or(&0.0) - rests.first().unwrap_or(&0.0);
    spread <= 1.0 + EVEN_SHARE * slope
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::java::dsl::Jvm;

    fn run(n: u64, noise: u64) -> ProcessRecord {
        let mut jvm = Jvm::new();
        jvm.add("java.lang.String", 9000 + noise, 24);
        jvm.add("byte[]", 9000 + 10 * n, 32);
        jvm.add("com.example.Tile", 3 * n, 16);
        jvm.add("com.example.Cache", 40.min(7 * n), 16);
        jvm.window("", "", 0, |_| ());
        jvm.end()
    }

    #[test]
    fn what_each_repetition_adds_grows_and_what_comes_unevenly_does_not() {
        let noise = [0, 7, 9, 11, 30, 31];
        let records: Vec<(f64, ProcessRecord)> =
            (1..).zip(noise).map(|(i, noise)| (float(4 * i), run(4 * i, noise))).collect();
        let runs: Vec<(f64, &ProcessRecord)> = records.iter().map(|(n, record)| (*n, record)).collect();
        let findings = of_lengths(&runs, 0.99).expect("each has a histogram");
        let growing: Vec<_> =
            findings.growing.iter().map(|g| (g.series.class.as_str(), g.count, g.bytes)).collect();
        assert_eq!(growing, [("byte[]", 10.0, 320.0), ("com.example.Tile", 3.0, 48.0)]);
        let empty = ProcessRecord::default();
        assert!(of_lengths(&[(4.0, &empty)], 0.99).is_none());
    }
}
