//! Figures: values of metrics with their bounds and thresholds, and points of curves.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::metric::{Metric, Per, Unit};
use crate::verdict::Level;

/// A figure with its confidence interval and threshold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricValue {
    /// Best estimate.
    pub value: f64,
    /// Unit of `value`, `low` and `high`.
    pub unit: Unit,
    /// What the figure is divided by.
    pub per: Per,
    /// Lower bound of the confidence interval. Equal to `value` if there is no interval. `null` in JSON: unbounded
    /// (minus infinity).
    #[serde(serialize_with = "finite_or_null", deserialize_with = "open_low")]
    #[schemars(with = "Option<f64>")]
    pub low: f64,
    /// Upper bound of the confidence interval. Equal to `value` if there is no interval. `null` in JSON: unbounded
    /// (infinity).
    #[serde(serialize_with = "finite_or_null", deserialize_with = "open_high")]
    #[schemars(with = "Option<f64>")]
    pub high: f64,
    /// Number of iterations on which the figure is based, without warm-up; 1 for the screening pass.
    pub iterations: u32,
    /// Confidence level of the interval, for example 0.99; 0 if there is no interval.
    pub confidence: f64,
    /// The threshold that was applied; `null` if there is none.
    pub threshold: Option<Threshold>,
}

impl MetricValue {
    /// A figure of one iteration, with neither interval nor threshold.
    #[must_use]
    pub const fn exact(value: f64, metric: Metric, per: Per) -> Self {
        Self {
            value,
            unit: metric.unit(),
            per,
            low: value,
            high: value,
            iterations: 1,
            confidence: 0.0,
            threshold: None,
        }
    }
}

/// A threshold that was applied to a figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Threshold {
    /// Largest allowed value, in the metric's unit.
    pub limit: f64,
    /// Whether exceeding the threshold is a warning or a failure.
    pub level: Level,
    /// Where the threshold is set: `memgate.yaml:24`, or `default`.
    #[schemars(with = "String")]
    pub source: ThresholdSource,
}

/// Where a threshold is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ThresholdSource {
    /// The built-in default.
    Default,
    /// In a file: `memgate.yaml:24`.
    File(String),
}

const DEFAULT_SOURCE: &str = "default";

impl fmt::Display for ThresholdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => DEFAULT_SOURCE,
            Self::File(place) => place,
        })
    }
}

impl From<String> for ThresholdSource {
    fn from(text: String) -> Self {
        if text == DEFAULT_SOURCE { Self::Default } else { Self::File(text) }
    }
}

impl From<&str> for ThresholdSource {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<ThresholdSource> for String {
    fn from(source: ThresholdSource) -> Self {
        source.to_string()
    }
}

/// A value at one moment: `[t_ns, metric, value]` in JSON, to save space.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "(u64, Metric, f64)", into = "(u64, Metric, f64)")]
pub struct CurvePoint {
    /// Nanoseconds since the start of the process; in the curve of a suite, of its first process.
    pub t_ns: u64,
    /// The metric.
    pub metric: Metric,
    /// Value in the metric's unit.
    pub value: f64,
}

impl From<(u64, Metric, f64)> for CurvePoint {
    fn from((t_ns, metric, value): (u64, Metric, f64)) -> Self {
        Self { t_ns, metric, value }
    }
}

impl From<CurvePoint> for (u64, Metric, f64) {
    fn from(CurvePoint { t_ns, metric, value }: CurvePoint) -> Self {
        (t_ns, metric, value)
    }
}

/// A value at the end of an iteration: `[iteration, metric, value]` in JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "(u64, Metric, f64)", into = "(u64, Metric, f64)")]
pub struct GrowthPoint {
    /// Number of the iteration, starting at 1; if runs of different lengths are compared, the length.
    pub iteration: u64,
    /// The metric.
    pub metric: Metric,
    /// Value in the metric's unit.
    pub value: f64,
}

impl From<(u64, Metric, f64)> for GrowthPoint {
    fn from((iteration, metric, value): (u64, Metric, f64)) -> Self {
        Self { iteration, metric, value }
    }
}

impl From<GrowthPoint> for (u64, Metric, f64) {
    fn from(GrowthPoint { iteration, metric, value }: GrowthPoint) -> Self {
        (iteration, metric, value)
    }
}

/// JSON has no infinity.
fn finite_or_null<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    value.is_finite().then_some(*value).serialize(serializer)
}

fn open_low<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NEG_INFINITY))
}

fn open_high<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn open_bounds_survive_json() {
        let open = MetricValue {
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
            ..MetricValue::exact(3.0, Metric::NativeLiveBytes, Per::Iteration)
        };
        let json = serde_json::to_string(&open).unwrap();
        assert!(json.contains(r#""low":null,"high":null"#), "{json}");
        assert_eq!(serde_json::from_str::<MetricValue>(&json).unwrap(), open);
    }

    #[test]
    fn metrics_are_keys_by_their_name_and_points_are_triples() {
        let metrics: BTreeMap<Metric, u32> = Metric::ALL.into_iter().zip(0..).collect();
        let json = serde_json::to_string(&metrics).unwrap();
        assert_eq!(
            json,
            concat!(
                r#"{"native.live_bytes":0,"native.live_allocations":1,"native.mapped_bytes":2,"java.live_bytes":3,"#,
                r#""java.live_objects":4,"java.direct_bytes":5,"java.threads":6,"java.jni_globals":7,"#,
                r#""java.classes_loaded":8,"java.metaspace":9,"java.allocated_bytes":10,"os.rss":11,"#,
                r#""os.pss":12,"os.threads":13,"os.fds":14}"#
            )
        );
        assert_eq!(serde_json::from_str::<BTreeMap<Metric, u32>>(&json).unwrap(), metrics);
        let point = CurvePoint { t_ns: 7, metric: Metric::OsRss, value: 4096.0 };
        let json = serde_json::to_string(&point).unwrap();
        assert_eq!(json, r#"[7,"os.rss",4096.0]"#);
        assert_eq!(serde_json::from_str::<CurvePoint>(&json).unwrap(), point);
    }
}
