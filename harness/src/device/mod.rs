//! Where the tested processes run, and how the agent gets into them.
//!
//! A [`memgate_launch::Launch`] plus the options of the agent becomes a process on this machine (Java
//! virtual machines load the agent by another way than the dynamic linker:
//! [`hotspot`](crate::hotspot)); a [`socket::Endpoint`] is an agent that listens elsewhere. Both
//! leave streams in a frames folder, and nothing after them knows which it was.

pub mod app_memory;
pub mod delivery;
pub mod dex;
pub mod heap_dump;
mod local;
mod options;
pub mod socket;

pub use local::with_agent;
pub use options::{OPTIONS_VARIABLE, PRELOAD_VARIABLE, PreloadError, look, of_java, of_tests, preload, text};
