//! Native allocations: the interposer, GoogleTest's boundaries, snapshots.

pub(crate) mod gtest;
pub(crate) mod hooks;
pub(crate) mod leak_info;
pub(crate) mod next;
pub(crate) mod snapshot;
