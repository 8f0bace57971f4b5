//! Android devices, through the adb server's own protocol.
//!
//! Data flow: [`Server`] (found in the same way as by adb, started if nothing listens) → [`Server::choose`] →
//! [`Device`]. Each request to it opens its own connection, switches it to the device and opens a service: [`Shell`],
//! files (`sync:`), properties, a [`Pipe`] to a socket of an app. The program `adb` only starts the server and
//! installs; a running server is never killed, whatever its version.
//!
//! Everything can be cancelled by dropping it: the connection closes, and the device stops its work for it. Every
//! answer has a limit for its time and its size, and an answer outside the protocol is an error ([`AdbError`], with a
//! hint for what to do).
#![forbid(unsafe_code)]

mod address;
mod device;
mod duplex;
mod error;
mod listing;
mod output;
mod pipe;
mod program;
mod properties;
mod quote;
mod server;
mod shell;
mod sync;
mod tracker;
mod wire;

pub use address::Address;
pub use device::{Bounds, Device};
pub use error::AdbError;
pub use listing::{Listed, State};
pub use output::Chunk;
pub use pipe::Pipe;
pub use properties::DeviceFacts;
pub use quote::{command, quote, run_as};
pub use server::Server;
pub use shell::{Output, Shell};
pub use tracker::Tracker;

/// The serial to use: from the command line, else from the configuration, else from `ANDROID_SERIAL`.
#[must_use]
pub fn wanted_serial(option: Option<&str>, config: Option<&str>) -> Option<String> {
    let variable = std::env::var("ANDROID_SERIAL").ok();
    let all = [option.map(str::to_owned), config.map(str::to_owned), variable];
    all.into_iter().flatten().find(|serial| !serial.is_empty())
}
