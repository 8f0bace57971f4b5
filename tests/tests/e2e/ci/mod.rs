//! Recipes for CI systems, and runs that are spread over several machines.

mod recipes;
pub(crate) mod shards;
