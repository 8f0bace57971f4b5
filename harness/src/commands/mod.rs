//! One file per command: request in, exit code out. [`settings`] reads the files that commands depend on, and
//! [`packages`] says how to install what is missing.

mod accounts;
mod baseline;
mod bisect;
mod compare;
mod demo;
mod devices;
mod docs;
mod doctor;
mod follow;
mod gate;
mod heap;
mod history;
mod init;
mod kits;
mod mail;
mod malloc_debug;
mod merge;
mod notify;
mod open_history;
mod packages;
mod report;
mod run;
mod schema;
mod serve;
mod settings;
mod shell;
mod tokens;
mod tune;
mod upkeep;
mod upload;
mod waive;

use crate::cli::{BaselineCommand, Command};
use crate::exit::ExpectedError;
use crate::output::Console;

/// Runs the requested command.
///
/// # Errors
/// Why the command failed; `error.exit_code()` is then the exit code.
pub fn execute(command: Command, console: &Console) -> Result<u8, ExpectedError> {
    match command {
        Command::Run(request) => match request.step() {
            Some(step) => bisect::step(&request, step, console),
            None => run::run(&request, console),
        },
        Command::Gate(request) => gate::gate(&request, console),
        Command::Merge(request) => merge::merge(&request, console),
        Command::Demo(request) => demo::demo(&request, console),
        Command::Report(request) => report::report(&request, console),
        Command::Compare(request) => compare::compare(&request, console),
        Command::History(request) => history::history(&request, console),
        Command::Upload(request) => upload::upload(&request, console),
        Command::Bisect(request) => bisect::bisect(&request, console),
        Command::Tune(request) => tune::tune(&request, console),
        Command::Serve(request) => serve::serve(&request, console),
        Command::Mail(request) => mail::mail(&request, console),
        Command::Follow(request) => follow::follow(&request, console),
        Command::Waive(request) => waive::waive(&request, console),
        Command::Baseline(BaselineCommand::Accept(request)) => baseline::accept(&request, console),
        Command::Baseline(BaselineCommand::Fetch(request)) => baseline::fetch(&request, console),
        Command::MallocDebug(request) => malloc_debug::malloc_debug(&request, console),
        Command::Heap(command) => heap::heap(&command, console),
        Command::Init(request) => init::init(&request, console),
        Command::Devices => devices::devices(console),
        Command::Doctor => doctor::doctor(console),
        Command::Docs { page } => docs::docs(page.as_deref(), console),
        Command::NativeKit { folder } => kits::native(&folder, console),
        Command::AndroidKit { folder } => kits::android(&folder, console),
        Command::ShadowKit { folder } => kits::shadow(&folder, console),
        Command::Schema(schema) => schema::schema(schema.name, console),
        Command::Completions { shell } => shell::completions(shell, console),
        Command::Man => shell::man(console),
    }
}
