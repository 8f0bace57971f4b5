//! The agent as a guest: programs behave with it as they do alone, and what it could not measure is said.

mod allocators;
mod disks;
mod ends;
mod foreign;
mod kills;
mod libraries;
pub(crate) mod life;
mod limits;
mod memory;
mod processes;
pub(crate) mod rules;
mod sanitizers;
mod signals;
mod socket_peers;
mod surroundings;
