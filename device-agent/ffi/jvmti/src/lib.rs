//! The agent's fence to the Java virtual machine: JVMTI, as much of it as memgate uses.
//!
//! Data flow: the virtual machine calls the agent's `Agent_OnLoad` with a `JavaVM`; [`Jvmti::of`]
//! asks it for its tool interface once; [`Jvmti::listen`] sends its events to one [`Events`] value;
//! everything else is a call of [`Jvmti`], whose results are owned values (what the virtual machine
//! allocated for them is given back here). JNI itself comes from the `jni` crate.
//!
//! [`raw`] names each function by its place in the function table; a test compares them with the
//! JDK's own `jvmti.h`. What ART does not have (tables end earlier there) is [`Error::NotThere`],
//! never a call after the end.
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
