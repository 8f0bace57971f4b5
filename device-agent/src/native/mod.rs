//! Native allocations: the interposer, GoogleTest's boundaries, snapshots.

#[cfg_attr(target_os = "android", path = "no_gtest.rs")]
pub(crate) mod gtest;
pub(crate) mod hooks;
pub(crate) mod leak_info;
pub(crate) mod next;
pub(crate) mod snapshot;
