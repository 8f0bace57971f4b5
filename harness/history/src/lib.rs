//! Leaks over several runs: the stored form of a run, the life of a leak, shifts of figures, thresholds from history.
//!
//! Data flow: [`Manifest`] (the commit, and where it ran) and a `RunReport` → `record` (columns of values, rosters of
//! tests, exceptions, sightings) → a store (`memgate-server`) → `place` (the order of runs on a line) → `life` (new,
//! known, fixed, regressed, gone), `level` and `noise` (shifts), `tune` (thresholds with evidence). Before that,
//! [`shards`] merges reports of several machines into the report of one run.
//!
//! Everything here is a pure function: it uses no file, clock, database or network.
#![forbid(unsafe_code)]

pub mod bits;
#[cfg(test)]
mod chance;
pub mod column;
mod digest;
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
pub use digest::{hex, sha256_hex};
pub use manifest::{Environment, Manifest, number_of_selection};
pub use observe::Lines;
pub use record::{How, Look, RunRecord};
