//! The agent: the library that is loaded into the tested process.
//!
//! Data flow: the loader runs [`life::load`] (constructor). It binds the next allocator and decides from the options
//! and the executable whether this process is a target. If not, the exported functions stay plain jumps. In a target,
//! the wrapped `main` opens a carrier, says hello and switches the hooks on ([`native::hooks`]). Test boundaries come
//! from GoogleTest ([`native::gtest`]), the C API ([`exports`]) or a virtual machine (`memgate_jvm`). They go to
//! `memgate_session`, which asks the tracker for survivors, encodes frames, passes them to the carrier and waits for
//! the harness, with a time limit. At the end of the process it writes the last boundary and the goodbye.
//!
//! On Android the library is attached to a Java runtime, or preloaded by an app's `wrap.sh`. Then the constructor also
//! opens the carrier, because there is no `main` to wrap.
//!
//! # Layers
//! exports → life → entry (the interposed functions) → native → `memgate_session`, and `memgate_jvm` →
//! `memgate_session`. A lower layer does not know the ones above it. Only this crate exports symbols: tests link the
//! other crates.
//!
//! # Behaviour in the guest's process
//! No thread and no open descriptor in a process that did not ask for a socket; no write except at start, boundaries
//! and end; all memory from own mappings. If anything goes wrong, the guest continues, and the stream reports the loss.
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
