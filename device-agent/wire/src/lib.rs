//! The frame stream: written by the agent, read by all other parts.
//!
//! Data flow: the agent turns each observation into a [`Frame`], [`encode`] appends its bytes to a buffer, and a
//! carrier (a mapped spool file, or a WebSocket whose every binary message carries whole frames) moves the bytes
//! unchanged. The reader calls [`decode`] on the bytes it has so far and gets a frame, an unknown frame to skip, or
//! "more needed". This crate does no I/O, uses no clock and contains no unsafe code.
//!
//! # Layout of a frame (little endian, no padding)
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | `length`: bytes of the body |
//! | 4 | 2 | `type`: see [`FrameType`] |
//! | 6 | 1 | `version` of this type's body |
//! | 7 | 1 | `flags`: 0; bit 0 is reserved for compressed bodies |
//! | 8 | 8 | `t_ns`: CLOCK_MONOTONIC nanoseconds of the writing machine |
//! | 16 | 4 | `crc`: CRC-32C of bytes 0..16 followed by the body |
//! | 20 | length | body: postcard, its layout frozen per (type, version) |
//!
//! A reader skips an unknown type, or a newer version of a known type, by its length (the checksum
//! must still hold). A damaged frame is an error with its offset; everything before it stays
//! usable.
//!
//! # Version history
//!
//! - **1**: hello, counters, boundary, native snapshot, modules, stacks, event, log, error,
//!   goodbye, OS sample, order; from number 32 on the Java frames ([`java`]; 13 to 18, 39 and 40
//!   came later). `tests/fixtures/v1.mgf` (at the top of the project) is a captured stream.
//! - **2**: boundary and goodbye, version 2: `recording_ns` after their costs.
//!   `tests/fixtures/v2.mgf`.
//! - **3**: order, version 2: the classes to explain, by number ([`reply`]). An order without classes is written as
//!   version 1. `tests/fixtures/v3.mgf`.
//!
//! A field may be added only by raising the version of its frame type and keeping the older
//! decoder.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects))]
#![no_std]

extern crate alloc;

pub mod capability;
mod codec;
mod frame;
pub mod handshake;
pub mod hotspot;
pub mod java;
pub mod native_holders;
pub mod options;
pub mod reply;
pub mod sampling;
pub mod setup;
pub mod spool;
pub mod starts;
mod words;

pub use codec::{
    DecodeError, DecodeErrorKind, Decoded, HEADER_BYTES, MAX_BODY_BYTES, decode, decode_order, encode,
};
pub use frame::{
    AgentCost, Boundary, BoundaryKind, Counters, ErrorCode, ErrorFrame, Event, FdEntry, Frame, FrameType,
    Freed, Goodbye, GoodbyeReason, Handle, Handles, Hello, LeakInfo, Log, LogLevel, Mapped, MappedKind,
    Mappings, Module, Modules, NativeSnapshot, Order, OsSample, Outcome, ProcessRole, Runtime,
    SnapshotRecord, SnapshotScope, StackNode, Stacks, ThreadEntry,
};

/// Version of the stream as a whole, given in the hello.
pub const WIRE_VERSION: u16 = 3;

/// From this [`WIRE_VERSION`] on, an agent explains the classes that the harness names, and chooses none itself.
pub const EXPLAINS_WHAT_IS_NAMED: u16 = 3;

/// Name of the WebSocket sub-protocol that carries this stream.
pub const WEBSOCKET_PROTOCOL: &str = "memgate.v1";

/// Suite and name of the mark that the agent sets when `main` returns or the program calls `exit`, with the
/// survivors.
pub const END_OF_MAIN: (&str, &str) = ("memgate", "end of main");

/// Suite and name of the mark that the agent sets in an app when the last test is over, if the harness asked for a
/// heap dump (`end_dump`): the harness has the heap dumped while the app waits there.
pub const END_OF_TESTS: (&str, &str) = ("memgate", "end of tests");

/// Suite and name of the mark at which a process waits only so that the harness looks at it, because tests have ended
/// since the last look, and the code that follows is no test.
pub const LOOK: (&str, &str) = ("memgate", "look");

/// `pc` of the outermost node of a stack that could not be unwound to its root.
pub const TRUNCATED_PC: u64 = 1;
