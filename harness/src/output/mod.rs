//! The one place that prints. What memgate says about its work goes to stderr, what was asked for
//! (`gate`, `report`, `schema`, …) to stdout; `run` prints its result to stderr too, because stdout
//! belongs to the wrapped tests.

mod console;
mod progress;

pub use console::{Console, Screen, Step};
pub use progress::Progress;
