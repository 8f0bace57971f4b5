//! The agent by itself: the library, its C API, its stream on a socket and in a spool.

mod elf;
mod leak_info;
pub(crate) mod socket;
pub(crate) mod spool;
mod wire_fixture;
