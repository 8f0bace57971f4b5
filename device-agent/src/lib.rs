//! The agent: what is loaded into the tested process.
//!
//! Data flow: the loader runs [`life::load`] (constructor), which binds the next allocator and
//! decides from the options and the executable whether this process is a target; if not, the
//! exported functions stay plain jumps. In a target, the wrapped `main` opens a carrier, says hello
//! and switches the hooks on ([`native::hooks`]). Test boundaries come from GoogleTest
//! ([`native::gtest`]), the C API ([`exports`]) or a virtual machine (`memgate_jvm`) and go to
//! `memgate_session`, which asks the tracker for survivors, encodes frames, hands them to the
//! carrier and waits, bounded, for the harness. The end of the process writes the last boundary and
//! the goodbye.
//!
//! On Android the library is attached to a runtime of Java, or preloaded by an app's `wrap.sh`:
//! then the constructor also opens the carrier, because there is no `main` to wrap.
//!
//! # Layers
//! exports → life → entry (what is stood in for) → native → `memgate_session`, and
//! `memgate_jvm` → `memgate_session`. Nothing below knows what is above. Only this crate exports:
//! tests link the others.
//!
//! # A guest's manners
//! No thread and no open descriptor in a process that did not ask for a socket; no write outside
//! start, boundaries and end; all memory from own mappings; whatever goes wrong, the guest goes on
//! and the stream says what was lost.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]
#![cfg(all(
    any(target_arch = "aarch64", target_arch = "x86_64"),
    any(target_os = "android", target_os = "linux"),
))]

mod entry;
mod exports;
mod life;
mod native;
#[cfg(all(target_arch = "x86_64", not(target_os = "android")))]
mod tls;
mod unwind_stubs;

#[global_allocator]
static HEAP: memgate_ffi::heap::Global = memgate_ffi::heap::Global;
