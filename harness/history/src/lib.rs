//! Leaks over runs: what is stored of a run, the life of a leak, shifts of figures, thresholds from history.
//!
//! Data flow: [`Manifest`] (which commit, where) and a `RunReport` → `record` (columns of values, rosters of
//! tests, exceptions, sightings) → a store (`memgate-server`) → `place` (the order of a line) → `life` (new,
//! known, fixed, regressed, gone), `level` and `noise` (shifts), `tune` (thresholds with evidence).
//! [`shards`] come before: reports of several machines become the report of one run.
//!
//! Everything here is a function of its arguments: no file, no clock, no database, no network.
#![forbid(unsafe_code)]

pub mod bits;
#[cfg(test)]
mod chance;
pub mod column;
pub mod identity;
pub mod level;
pub mod life;
mod manifest;
pub mod noise;
mod observe;
pub mod place;
pub mod record;
pub mod roster;
pub mod shards;
pub mod tune;
mod varint;

pub use column::Figure;
pub use manifest::{Environment, Manifest};
pub use observe::Lines;
pub use record::{How, Look, RunRecord};
