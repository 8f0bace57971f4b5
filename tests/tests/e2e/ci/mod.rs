//! Recipes for CI systems, runs that are spread over several machines, and the packages that CI installs.

mod packages;
mod recipes;
pub(crate) mod shards;
