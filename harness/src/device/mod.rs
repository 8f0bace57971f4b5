//! Where the tested processes run, and how the agent gets into them.
//!
//! A [`memgate_launch::Launch`] plus [`AgentOptions`] becomes a process on this machine (Java
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
pub use options::{
    AgentOptions, Detail, JavaLook, OPTIONS_VARIABLE, PRELOAD_VARIABLE, PreloadError, Target, Windows,
    preload,
};
