//! Robust statistics of short series, one file per method. No randomness: equal input, equal
//! result.

mod kendall;
mod median;
mod normal;
mod theil_sen;
mod thin;

pub use kendall::{Trend, mann_kendall};
pub use median::{median, median_of_sorted};
pub use normal::normal_quantile;
pub use theil_sen::{Slope, theil_sen};
pub use thin::thin;
