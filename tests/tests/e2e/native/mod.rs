//! Native suites: their tests, their leaks, and how a leak is named.

mod aarch64;
mod boundaries;
mod epochs;
mod handles;
mod holders;
mod leaks;
mod looks;
pub(crate) mod mappings;
mod sampling;
mod setups;
mod shadow;
mod stacks;
mod tree;
mod tree_unseen;
