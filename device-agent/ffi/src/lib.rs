//! The agent's unsafe fence for the C library and the kernel: each module wraps a few calls in a safe interface.
//!
//! Nothing here is reachable from an allocation hook (hooks use `memgate-tracker`), except the private heap, which
//! hooks do not use. The code here runs at start, at boundaries, at the end, and in the agent's own thread if there is
//! one.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::arithmetic_side_effects))]
#![expect(unsafe_code, reason = "this crate is a fence: raw calls in, safe functions out")]
#![cfg(any(target_os = "linux", target_os = "android"))]

pub mod calm;
pub mod copy;
pub mod elf;
#[cfg(not(target_os = "android"))]
pub mod exec;
pub mod heap;
pub mod lock;
pub mod malloc_debug;
pub mod modules;
pub mod process;
pub mod shared;
pub mod stack;
