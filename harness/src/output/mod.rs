//! The only module that prints. Messages about the work go to stderr, requested output (`gate`, `report`, `schema`, …)
//! to stdout; `run` prints its result to stderr too, because stdout belongs to the wrapped tests.

mod console;
mod progress;

pub use console::{Console, Screen, Step};
pub use progress::{Progress, QUIET};
