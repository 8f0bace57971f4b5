//! Robust statistics of short series, one file per method. No randomness: equal input, equal
//! result.

mod gamma;
mod kendall;
mod median;
mod normal;
mod theil_sen;
mod thin;

pub use gamma::gamma_quantile;
pub use median::{median, median_of_sorted};
pub use normal::normal_quantile;
pub use theil_sen::{Slope, theil_sen};
pub use thin::thin;

#[expect(clippy::cast_precision_loss, reason = "iterations are far below 2^52")]
pub(crate) fn as_f64(n: usize) -> f64 {
    n as f64
}

#[expect(clippy::cast_precision_loss, reason = "a rounded byte count above 2^53 changes no verdict")]
pub(crate) fn float(value: u64) -> f64 {
    value as f64
}

/// Adds the values of one series to another, place by place.
pub(crate) fn add(sum: &mut [f64], values: &[f64]) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

/// Subtracts the values of one series from another, place by place.
pub(crate) fn subtract(rest: &mut [f64], values: &[f64]) {
    rest.iter_mut().zip(values).for_each(|(rest, value)| *rest -= value);
}
