//! Native allocations: the interposer, GoogleTest's boundaries, snapshots.

#[cfg_attr(target_os = "android", path = "no_gtest.rs")]
pub(crate) mod gtest;
#[cfg_attr(
    target_os = "android",
    expect(dead_code, reason = "what opens and starts is not stood in for there")
)]
pub(crate) mod handles;
pub(crate) mod hooks;
pub(crate) mod leak_info;
pub(crate) mod next;
pub(crate) mod snapshot;
#[cfg(not(target_os = "android"))]
pub(crate) mod starts;
