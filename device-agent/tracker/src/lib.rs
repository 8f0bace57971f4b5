//! The allocation tracker: which native allocations are alive, how large, from which stack, since
//! which epoch.
//!
//! Data flow: an allocation hook calls [`Tracker::record_alloc_quickly`] with the pointer and the requested size, where
//! no stack is taken, else [`Tracker::record_alloc_with_stack_quickly`] with the caller's registers, too. What is
//! unusual in any way (`quick.rs`) goes on to [`Tracker::record_unusual_alloc`]. Where a stack is taken, the calling
//! thread's [`thread::ThreadState`] walks it ([`capture`]) with unwind rules from the process-wide [`rules::RuleCache`]
//! (filled by [`cfi`] from `.eh_frame`), reuses the part of the previous stack that is provably unchanged, and interns
//! the result in the [`stacks::StackStore`]. (On Android it goes from frame record to frame record, `chain.rs`.) The
//! live table ([`table::Table`]) keeps 8 bytes per allocation: stack, epoch, size; 4 where no stack is taken. A free
//! clears them. At a boundary the agent asks for survivors.
//!
//! # Rules of this crate
//! Everything reachable from the `record_…` functions runs inside somebody else's `malloc`: it takes no lock,
//! calls no function that allocates, logs nothing, cannot panic, uses less than 1 KiB of stack (large scratch
//! lives in the mapped thread state) and makes no system call but `mmap`, `munmap` and, on stacks whose
//! bounds are unknown, `futex` to ask whether a page can be read (on arm64 also for an address without unwind
//! rules, which may be a signal handler's way back). `errno` is kept. When memory or table space ends,
//! recording stops and says so; the guest goes on.
//!
//! This crate is one of the fences for `unsafe` that `ARCHITECTURE.md` lists: raw pointers are its subject. It is
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
