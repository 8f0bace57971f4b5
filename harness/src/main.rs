//! The `memgate` program: command line in, exit code out. Everything else is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use memgate::output::Console;
use memgate::{cli, commands};

fn main() -> ExitCode {
    let request = match cli::parse(std::env::args_os()) {
        Ok(request) => request,
        Err(told) if told.use_stderr() && cli::is_bisection(std::env::args_os()) => {
            // If the text cannot be printed, nobody would read an error either; the exit code is enough.
            told.print().unwrap_or_default();
            return ExitCode::from(cli::ENDS_BISECTION);
        }
        Err(told) => told.exit(),
    };
    let console = Console::new(request.color);
    let code = commands::execute(request.command, &console).unwrap_or_else(|error| {
        console.error(&error);
        error.exit_code()
    });
    ExitCode::from(code)
}
