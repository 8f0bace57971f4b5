//! Figures as OpenMetrics text, for GitLab's metrics report and any store that reads Prometheus'
//! format.
//!
//! Labels contain the test and nothing that changes from run to run, so that a change shows within one series.

use std::collections::BTreeMap;

use memgate_model::{Metric, MetricValue, Per, RunReport, Unit, Verdict};

use crate::visible::visible;

/// The samples of a family by their labels.
type Samples = BTreeMap<String, f64>;

/// Every figure that has a threshold, the figures of suites, and counts of verdicts.
#[must_use]
pub fn metrics(report: &RunReport) -> String {
    let mut families: BTreeMap<String, (String, Samples)> = BTreeMap::new();
    for suite in &report.suites {
        for (metric, value) in &suite.metrics {
            add(&mut families, *metric, value, labels(&[("suite", &suite.name)]));
        }
        for test in &suite.tests {
            for (metric, value) in test.metrics.iter().filter(|(_, value)| value.threshold.is_some()) {
                add(&mut families, *metric, value, labels(&[("suite", &suite.name), ("test", &test.id)]));
            }
        }
    }
    by_verdict(report, &mut families);
    let mut text = String::new();
    for (name, (help, samples)) in families {
        text += &format!("# TYPE {name} gauge\n# HELP {name} {help}\n");
        for (labels, value) in samples {
            text += &format!("{name}{{{labels}}} {value}\n");
        }
    }
    text + "# EOF\n"
}

/// Tests, and test classes that are judged as a whole, by verdict.
fn by_verdict(report: &RunReport, families: &mut BTreeMap<String, (String, Samples)>) {
    let (tests, classes) = ("memgate_tests", "memgate_test_classes");
    families.insert(tests.to_owned(), ("Tests by verdict.".to_owned(), Samples::new()));
    if report.entries().any(|entry| entry.is_class) {
        let help = "Test classes that are judged as a whole, by verdict.";
        families.insert(classes.to_owned(), (help.to_owned(), Samples::new()));
    }
    for (verdict, name) in [
        (Verdict::Pass, "pass"),
        (Verdict::NotJudged, "not_judged"),
        (Verdict::Warn, "warn"),
        (Verdict::Error, "error"),
        (Verdict::Fail, "fail"),
    ] {
        for (family, is_class) in [(tests, false), (classes, true)] {
            let with =
                report.entries().filter(|entry| entry.verdict == verdict && entry.is_class == is_class);
            if let Some((_, samples)) = families.get_mut(family) {
                samples.insert(labels(&[("verdict", name)]), with.fold(0.0, |count, _| count + 1.0));
            }
        }
    }
}

fn add(
    families: &mut BTreeMap<String, (String, Samples)>,
    metric: Metric,
    value: &MetricValue,
    labels: String,
) {
    if !value.value.is_finite() {
        return;
    }
    let per = match value.per {
        Per::Iteration => "iteration",
        Per::Test => "test",
        Per::Suite => "suite",
    };
    let unit = match metric.unit() {
        Unit::Bytes if !metric.name().ends_with("bytes") => "_bytes",
        _ => "",
    };
    let name = format!("memgate_{}{unit}_per_{per}", metric.name().replace('.', "_"));
    let (help, samples) = families.entry(name).or_default();
    *help = format!("{metric} per {per}.");
    // Tests of one name share one sample, which has the worst value.
    samples.entry(labels).and_modify(|worst| *worst = worst.max(value.value)).or_insert(value.value);
}

fn labels(labels: &[(&str, &str)]) -> String {
    let label = |(name, value): &(&str, &str)| {
        let value = visible(value).replace('\\', "\\\\").replace('"', "\\\"");
        format!("{name}=\"{value}\"")
    };
    labels.iter().map(label).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn figures_stand_under_the_name_of_their_test() {
        insta::assert_snapshot!(metrics(&sample::leak()));
    }

    #[test]
    fn every_line_is_one_sample_whatever_tests_are_called() {
        for (name, report) in sample::all() {
            let text = metrics(&report);
            let mut seen = std::collections::BTreeSet::new();
            let lines: Vec<_> = text.lines().collect();
            assert_eq!(lines.last(), Some(&"# EOF"), "{name}");
            for line in lines.iter().filter(|line| !line.starts_with('#')) {
                let (key, value) = line.rsplit_once(' ').unwrap();
                assert!(key.ends_with('}') && value.parse::<f64>().is_ok(), "{name}: {line}");
                assert!(seen.insert(key), "{name}: {key} twice");
            }
        }
    }
}
