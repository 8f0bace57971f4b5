//! The stream that the agent writes in the tested process, and the carriers that take it out.
//!
//! Data flow: the caller at a boundary ([`test_begins`], [`test_ends`], [`window_ends`], …) → [`session`] asks the
//! tracker ([`recording`]) for survivors, encodes frames, hands them to the [`carrier`] and waits, with a limit, for
//! the harness. Code with other measurements appends its own frames ([`write`], [`window_ends`]). This crate knows no
//! test framework and no virtual machine. It exports no function, so that tests can link it.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::arithmetic_side_effects))]
#![deny(unsafe_code, clippy::indexing_slicing)]
#![cfg(all(
    any(target_arch = "aarch64", target_arch = "x86_64"),
    any(target_os = "android", target_os = "linux"),
))]

pub mod carrier;
mod filter;
mod given_up;
pub mod handles;
pub mod leak_info;
mod left;
mod listed;
mod looks;
#[cfg(not(target_os = "android"))]
pub mod mappings;
pub mod platform;
pub mod recording;
#[cfg(not(target_os = "android"))]
mod segments;
mod session;
mod setups;
mod snapshot;
mod stream;
mod system;
mod windows;

pub use filter::{LONGEST, Step};
pub use given_up::{filters, gives_up_counter, goes_strict};
pub use session::{
    Append, Silent, Work, channel, early_bypass, ends, event, fails, is_active, is_repeating,
    iteration_begins, iteration_is_over, library_bypasses, log, main_ends, mark, module_unloaded,
    module_unloads, note_outcome, open, open_late, process_starts, register, set_up_begins, set_up_ends,
    set_up_is_over, settle, tear_down_begins, tear_down_ends, test_begins, test_ends, test_is_reported,
    test_passes, tests_end, try_write, window_ends, write,
};
pub use setups::Around;
pub use stream::{Offers, Session, arguments, executable};
