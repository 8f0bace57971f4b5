//! The Java part of the agent: in a virtual machine that runs tests, windows are measured by
//! collecting and counting.
//!
//! Data flow: `start` brings the agent in: it looks at the command line, asks for its events, puts the jars in place,
//! binds the natives of `io.memgate.agent.Hooks` and opens the session. Test listeners (put into JUnit 4's notifier
//! as it is loaded, found by JUnit Platform's launcher through the jar) call [`memgate_jvmti::Natives`]; each test
//! becomes two boundaries. A window of memgate's launcher ends with `Machine::histogram`, whose differences are
//! frames before its boundary. In the build's own run `pace` decides after which test classes a window ends.
//!
//! The agent holds no lock across a call into the virtual machine: it measures before it takes the lock of the
//! session.
//!
//! Measurements become frames here; the session (`memgate_session`) puts them into the stream and knows nothing about
//! Java.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::arithmetic_side_effects))]
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]
#![cfg(all(
    any(target_arch = "aarch64", target_arch = "x86_64"),
    any(target_os = "android", target_os = "linux"),
))]

mod agent;
mod art;
mod chosen;
mod classes;
mod exhausted;
mod explain;
mod follow;
mod frames;
mod graph;
mod heap;
mod limit;
mod machine;
mod names;
mod notifier;
mod pace;
mod reference_paths;
mod ring;
mod sites;
mod soft;
mod stacks;
mod start;
mod survivor_search;
mod survivors;
mod target;
mod vm;
mod weight;

#[cfg(target_os = "android")]
pub use start::on_library;
pub use start::{is_awake, on_attach, on_load};
