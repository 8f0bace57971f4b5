//! The pages: pure functions of views. They look like `report.html`, need no script, and every chart has its table.
//!
//! Data flow: a value of [`view`](crate::view) → `frame` with the page's own content → bytes. Every text goes through
//! `Html`, which escapes it; only `link` builds URLs.

mod account;
mod compare;
mod curve;
mod frame;
mod leaks;
mod link;
mod live;
mod overview;
mod parts;
mod projects;
mod runs;
mod test;
#[cfg(test)]
mod tests;
mod tune;
pub(crate) mod words;

pub use account::{Own, login, not_found};
pub use compare::compare;
pub use frame::{ICON, STYLE, problem};
pub use leaks::{leak, leaks};
pub use link::address;
pub use live::{SCRIPT as LIVE_SCRIPT, live, live_table};
pub use overview::overview;
pub use projects::projects;
pub use runs::{run, runs};
pub use test::test;
pub use tune::tune;
