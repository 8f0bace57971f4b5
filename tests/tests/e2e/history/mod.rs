//! Leaks over commits, on this machine and compared with a base.

mod bisect;
pub(crate) mod commits;
pub(crate) mod review;
