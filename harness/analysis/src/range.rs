//! A figure with the bounds of its true value.

use memgate_model::{Metric, MetricValue, Per};

/// An amount and its bounds. They differ only with sampling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Range {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Range {
    /// A value that is known exactly.
    pub(crate) const fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// The figure of a metric, without its threshold; `confidence`: of bounds that differ.
    pub(crate) fn figure(self, metric: Metric, per: Per, confidence: f64) -> MetricValue {
        let Self { value, low, high } = self;
        let confidence = if low < high { confidence } else { 0.0 };
        MetricValue { low, high, confidence, ..MetricValue::exact(value, metric, per) }
    }
}
