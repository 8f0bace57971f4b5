//! Where the tested processes run, and how the agent is delivered into them.
//!
//! A [`memgate_launch::Launch`] with the agent's options becomes a process on this machine (Java virtual machines do
//! not load the agent through the dynamic linker: [`hotspot`](crate::hotspot)). [`socket`] reads an agent
//! that listens on a device. Both write streams into a frames folder; later steps do not know which of the two it was.

pub mod app_memory;
pub mod delivery;
pub mod dex;
pub mod heap_dump;
mod local;
mod options;
pub mod socket;

pub use local::with_agent;
pub use options::{OPTIONS_VARIABLE, PRELOAD_VARIABLE, PreloadError, look, of_java, of_tests, preload, text};
