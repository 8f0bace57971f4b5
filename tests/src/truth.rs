//! `tests/samples/native/truth.json`: what each sample leaks, and the comparison with a report.

use std::fs;

use memgate_model::{LeakKind, Metric, TestReport, Verdict};
use serde_json::Value;

use crate::samples::sources;

/// Expected result of one test of a sample.
#[derive(Debug, Clone)]
pub struct Expected {
    /// Test id as the runner shows it.
    pub id: String,
    /// `pass`, `fail`, `not_judged`, `error` or `not_run`.
    pub verdict: String,
    /// Minimum and maximum bytes per iteration.
    pub bytes: Option<(f64, f64)>,
    /// Allocations per iteration; 0 if growth is not in whole allocations.
    pub count: f64,
    /// Metric name, and descriptors or threads per iteration.
    pub os: Option<(String, f64)>,
    /// What a leaked descriptor refers to.
    pub target: Option<String>,
    /// The culprit, if there is one.
    pub culprit: Option<Culprit>,
}

/// Where a leak or a crash is.
#[derive(Debug, Clone)]
pub struct Culprit {
    /// Qualified name without parameters.
    pub function: String,
    /// File name.
    pub file: String,
    /// Line of the marker.
    pub line: u32,
}

/// The tests of a sample suite.
#[must_use]
pub fn of(suite: &str) -> Vec<Expected> {
    let path = sources().join("truth.json");
    let truth: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let tests = truth["suites"][suite]["tests"].as_object().unwrap();
    tests.iter().map(|(id, test)| expected(id, test)).collect()
}

/// One test of a sample suite.
#[must_use]
pub fn of_test(suite: &str, id: &str) -> Expected {
    of(suite).into_iter().find(|expected| expected.id == id).unwrap()
}

impl Expected {
    /// Differences between truth and report, as readable lines; empty if there are none.
    #[must_use]
    pub fn differences(&self, test: &TestReport) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut check = |holds: bool, what: String| {
            if !holds {
                wrong.push(format!("{}: {what}", self.id));
            }
        };
        check(name(test.verdict) == self.verdict, format!("{} ({})", name(test.verdict), test.reason));
        if test.verdict != Verdict::Fail {
            return wrong;
        }
        let (low, high) = self.bytes.unwrap_or_default();
        let value = |metric: &str| {
            test.metrics
                .iter()
                .find(|(known, _)| metric_name(**known) == metric)
                .map(|(_, value)| value.value)
        };
        let within = |bytes: f64| bytes >= low * 0.99 && bytes <= high * 1.01;
        let bytes = value("native.live_bytes");
        check(
            bytes.is_some_and(within) || high == 0.0 && bytes.is_none(),
            format!("{bytes:?} bytes, {low} to {high} are right"),
        );
        let native = || test.leaks.iter().filter(|leak| leak.kind == LeakKind::Native);
        let sum: f64 = native().map(|leak| leak.bytes_per_iteration).sum();
        check(within(sum), format!("its leaks sum up to {sum} bytes"));
        let count: f64 = native().map(|leak| leak.count_per_iteration).sum();
        check(self.count == 0.0 || (count / self.count - 1.0).abs() < 0.01, format!("{count} allocations"));
        if let Some((metric, per_iteration)) = &self.os {
            check(value(metric) == Some(*per_iteration), format!("{:?} {metric}", value(metric)));
            let leak = test.leaks.iter().find(|leak| leak.kind == LeakKind::Os);
            let title = leak.map(|leak| leak.title.clone()).unwrap_or_default();
            check(
                title.contains(self.target.as_deref().unwrap_or("")) && leak.is_some(),
                format!("title `{title}`"),
            );
        }
        let named =
            native().all(|leak| self.culprit.as_ref().is_none_or(|culprit| culprit.is_in(&leak.frames)));
        check(
            named,
            format!(
                "the culprit is not in every stack: {:#?}",
                native().map(|leak| &leak.frames).collect::<Vec<_>>()
            ),
        );
        wrong
    }
}

impl Culprit {
    /// Is the culprit one of these frames?
    #[must_use]
    pub fn is_in(&self, frames: &[memgate_model::Frame]) -> bool {
        frames.iter().any(|frame| {
            let function = frame.function.as_deref().unwrap_or_default();
            let rest = function.strip_prefix(&self.function);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('('))
                && frame.line == Some(self.line)
                && frame.file.as_deref().is_some_and(|file| file.ends_with(&self.file))
        })
    }
}

fn expected(id: &str, test: &Value) -> Expected {
    let text = |key: &str| test[key].as_str().map(str::to_owned);
    let bytes = match &test["bytes_per_iteration"] {
        Value::Array(range) => Some((range[0].as_f64().unwrap(), range[1].as_f64().unwrap())),
        one => one.as_f64().map(|bytes| (bytes, bytes)),
    };
    let os = ["fds", "threads"].into_iter().find_map(|what| {
        test[format!("{what}_per_iteration")].as_f64().map(|value| (format!("os.{what}"), value))
    });
    let culprit = text("function").map(|function| {
        let (file, marker) = (text("file").unwrap(), text("marker").unwrap());
        Culprit { function, line: line(&file, &marker), file }
    });
    Expected {
        id: id.to_owned(),
        verdict: text("verdict").unwrap(),
        bytes,
        count: test["count_per_iteration"].as_f64().unwrap_or(0.0),
        os,
        target: text("target"),
        culprit,
    }
}

fn line(file: &str, marker: &str) -> u32 {
    let source = fs::read_to_string(sources().join(file)).unwrap();
    let ends = [format!("// {marker}"), format!("/* {marker} */")];
    let index = source.lines().position(|line| ends.iter().any(|end| line.ends_with(end))).unwrap();
    u32::try_from(index + 1).unwrap()
}

/// The verdict as written in the report.
#[must_use]
pub fn name(verdict: Verdict) -> String {
    serde_json::to_value(verdict).unwrap().as_str().unwrap().to_owned()
}

/// The metric as written in configuration and report.
#[must_use]
pub fn metric_name(metric: Metric) -> String {
    serde_json::to_value(metric).unwrap().as_str().unwrap().to_owned()
}
