//! Small formats of other tools: bytes in, values out, or an error with its position.
//!
//! | module | reads | written by |
//! |---|---|---|
//! | [`instrumentation`] | test runs on a device | `am instrument` |
//! | [`jar`] | the class path of a manifest, zip | Java, Surefire |
//! | [`malloc_debug`] | leak-info buffers, native heap dumps | Android's C library |
//! | [`mapping`] | renamed Java classes, fields, methods, inlined frames | R8, ProGuard |
//! | [`meminfo`] | `dumpsys meminfo PROCESS`, text and protobuf | Android's system server |
//! | [`proc_text`] | `/proc/PID/{status,smaps_rollup}`, `/proc/net/unix` | the kernel |
//! | [`test_results`] | results of test classes, XML | Surefire, Failsafe, Gradle |
//! | [`zip`] | entries of jars and APKs | Java, Android's build |
//!
//! Data flow: the caller reads a file or a stream and passes its bytes; results own their data, or borrow from those
//! bytes. There is no file, socket, clock or environment here, so every rule is tested with bytes alone.
//!
//! The bytes are treated as hostile: no length in them sizes an allocation, memory and time grow no faster than the
//! input, stream state is bounded, and nothing panics.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

pub mod instrumentation;
pub mod jar;
mod lines;
pub mod malloc_debug;
pub mod mapping;
pub mod meminfo;
pub mod proc_text;
mod protobuf;
pub mod test_results;
pub mod zip;
