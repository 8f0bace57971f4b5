//! The allocation tracker. It knows which native allocations are alive, their sizes, their stacks and their epochs.
//!
//! Data flow: without stacks, an allocation hook calls [`Tracker::record_alloc_quickly`] with the pointer and the
//! requested size. With stacks it calls [`Tracker::record_alloc_with_stack_quickly`], which also gets the caller's
//! registers. Unusual events (`quick.rs`) continue in [`Tracker::record_unusual_alloc`]. To take a stack, the calling
//! thread's [`thread::ThreadState`] walks it ([`capture`]) with unwind rules from the process-wide [`rules::RuleCache`]
//! (filled by [`cfi`] from `.eh_frame`), reuses the part of the previous stack that is provably unchanged, and interns
//! the result in the [`stacks::StackStore`]. (On Android the walk follows frame records, `chain.rs`.) The live table
//! ([`table::Table`]) keeps 8 bytes per allocation: stack, epoch, size. Without stacks it keeps 4. A free clears them.
//! At a boundary the agent asks for survivors.
//!
//! # Rules of this crate
//! Everything reachable from the `record_…` functions runs inside the `malloc` of the guest. It takes no lock, calls no
//! function that allocates, logs nothing, cannot panic, and uses less than 1 KiB of stack (large scratch memory is part
//! of the mapped thread state). Its only system calls are `mmap`, `munmap` and, on stacks whose bounds are unknown,
//! `futex` to ask whether a page can be read (on arm64 also for an address without unwind rules, which may be the
//! return address of a signal handler). `errno` is kept. When memory or table space runs out, recording stops and
//! reports that; the guest continues.
//!
//! This crate is one of the unsafe fences that `ARCHITECTURE.md` lists, because it works with raw pointers. It is
//! `no_std` and depends on nothing but `libc` types.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::arithmetic_side_effects))]
#![cfg_attr(not(loom), no_std)]
#![expect(
    unsafe_code,
    reason = "an allocation tracker reads stacks and maps its own tables; see the rules above"
)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "this crate is for 64-bit targets; packed fields are masked to their widths"
)]
#![cfg(all(
    any(target_arch = "aarch64", target_arch = "x86_64"),
    any(target_os = "android", target_os = "linux"),
))]

#[cfg(all(test, not(loom)))]
extern crate std;

pub mod arch;
#[cfg_attr(
    target_os = "android",
    expect(dead_code, reason = "frame records need less of it than unwind rules")
)]
mod bounds;
#[cfg_attr(target_os = "android", path = "chain.rs")]
pub mod capture;
pub mod cfi;
#[cfg(all(test, not(loom), not(target_os = "android")))]
#[expect(dead_code, unreachable_pub, reason = "Android's `capture`: here its walk is tested")]
mod chain;
mod context;
pub mod cost;
mod counters;
#[cfg(feature = "crosscheck")]
pub mod crosscheck;
mod entry;
pub mod mappings;
mod quick;
mod radix;
pub mod rule;
pub mod rules;
mod sampling;
#[cfg(not(target_os = "android"))]
mod shortcuts;
mod spill;
pub mod stacks;
mod state;
#[cfg(not(loom))]
mod sync;
#[cfg(loom)]
pub mod sync;
pub mod sys;
pub mod table;
pub mod thread;
mod thread_counters;
mod tracker;
mod words;

pub use bounds::StackLayout;
pub use quick::Timing;
pub use tracker::{Removed, StopReason, Totals, Tracker};
pub use words::available as has_thread_words;
