//! The command line, in two stages: `args` is what was typed (clap types, help texts), `request` is what it means.
//!
//! Data flow: `std::env::args_os` → [`parse`] → [`Request`] → `commands::execute`. Nothing here opens a file.

mod args;
mod request;

use std::ffi::OsString;

use clap::{CommandFactory as _, Parser as _};

pub use args::{ColorChoice, Format, SchemaName};
pub use request::{
    AcceptRequest, Command, DemoRequest, GateRequest, InitRequest, ReportRequest, Request, RunRequest,
    WaiveRequest,
};

/// Reads the command line.
///
/// # Errors
/// What clap says of a wrong command line; `--help` and `--version` are told the same way.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, clap::Error> {
    args::Cli::try_parse_from(arguments).and_then(Request::try_from)
}

/// The whole command, for completions and the man page.
#[must_use]
pub fn command() -> clap::Command {
    args::Cli::command()
}
