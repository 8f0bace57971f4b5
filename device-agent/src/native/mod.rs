//! Native programs: allocation hooks, GoogleTest boundaries, and the start of other programs.

#[cfg_attr(target_os = "android", path = "no_gtest.rs")]
pub(crate) mod gtest;
pub(crate) mod hooks;
pub(crate) mod next;
#[cfg(not(target_os = "android"))]
pub(crate) mod starts;
