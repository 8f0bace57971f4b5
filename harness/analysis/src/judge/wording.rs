//! Wording that several reasons of verdicts share.

use memgate_model::{Metric, format_list, format_number_of, format_value};

/// Most names in one sentence.
const NAMED: usize = 5;

/// `between 0 B and 12 B`.
pub(super) fn interval(metric: Metric, low: f64, high: f64) -> String {
    format!("between {} and {}", format_value(metric, low), format_value(metric, high))
}

/// `2 leaks waived: the figures are without them`.
pub(super) fn waived_leaks(count: usize) -> String {
    let them = if count == 1 { "it" } else { "them" };
    format!("{} waived: the figures are without {them}", format_number_of(count, "leak"))
}

/// `a, b, c and 4 more`.
pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    format_list(&names, NAMED)
}
