//! The agent's unsafe fence for the Java virtual machine: the part of JVMTI that memgate uses.
//!
//! Data flow: the virtual machine calls the agent's `Agent_OnLoad` with a `JavaVM`. [`Jvmti::of`] gets its tool
//! interface once. [`Jvmti::listen`] sends its events to one [`Events`] value. Everything else is a call of [`Jvmti`],
//! whose results are owned values (memory that the virtual machine allocated for them is freed here). JNI itself comes
//! from the `jni` crate.
//!
//! [`raw`] lists each function with its slot in the function table; a test compares the slots with the JDK's own
//! `jvmti.h`. Functions that ART does not have (its tables are shorter) give [`Error::NotThere`]; the code never calls
//! beyond the end of the table.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::arithmetic_side_effects))]
#![expect(unsafe_code, reason = "a fence: calls through the virtual machine's function table")]

mod art;
mod calls;
mod events;
mod heap;
mod natives;
pub mod raw;

pub use art::{ArtHeap, ClassTotal};
pub use calls::{Error, Field, Jvmti, Line, Method, OwnJvmti, StackFrame};
pub use events::{Event, Events, with_env};
pub use heap::{HeapFilter, Reference, ReferenceKind, Visit};
pub use natives::{Natives, register};
