//! The verdicts on Java tests: which leak, by which name, held by what.

mod baseline;
mod empty;
mod failing;
mod gate;
mod hidden;
mod judge;
mod mapping;
mod memory;
mod names;
mod native;
mod process;
mod sites;
pub(crate) mod suites;
mod truth;
