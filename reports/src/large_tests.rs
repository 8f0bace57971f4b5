//! Size of the reports of 50,000 tests that left nothing: a line for each test.

use memgate_model::{Level, Metric, MetricValue, Per, TestReport, Threshold, ThresholdSource, Verdict};

use crate::{from_json, html, json, sample};

const TESTS: usize = 50_000;

fn figure(metric: Metric) -> (Metric, MetricValue) {
    let threshold = Threshold { limit: 0.0, level: Level::Fail, source: ThresholdSource::Default };
    (metric, MetricValue { threshold: Some(threshold), ..MetricValue::exact(0.0, metric, Per::Iteration) })
}

#[test]
fn fifty_thousand_clean_tests_take_a_line_each() {
    let metrics = [Metric::NativeLiveBytes, Metric::NativeLiveAllocations, Metric::OsThreads, Metric::OsFds]
        .map(figure);
    let test = |number: usize| TestReport {
        duration_s: f64::from(u32::try_from(number).unwrap()) * 1.37e-6,
        metrics: metrics.clone().into(),
        ..sample::test(&format!("Matrix/MultiplicationTest.agrees_with_the_reference/{number}"))
    };
    let tests = (0..TESTS).map(test).collect();
    let report = sample::run(Verdict::Pass, 0, vec![sample::suite("engine_tests", Verdict::Pass, tests)]);
    let (text, page) = (json(&report).unwrap(), html(&report).unwrap());
    let each = |size: usize| size / TESTS;
    assert!(each(text.len()) <= 400, "report.json: {} B for each test", each(text.len()));
    assert!(each(page.len()) <= 200, "report.html: {} B for each test", each(page.len()));
    assert!(text.len() + page.len() <= 20 << 20, "{} + {} B", text.len(), page.len());
    assert_eq!(from_json(text.as_bytes()).unwrap(), report, "nothing is lost");
}
