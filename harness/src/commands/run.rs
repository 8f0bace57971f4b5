//! `memgate run`: the whole way from settings to the exit code.

use super::settings;
use crate::cli::RunRequest;
use crate::exit::{self, ExpectedError};
use crate::output::Console;
use crate::plan::{self, Settings};
use crate::run::{self, deliver};

pub(super) fn run(request: &RunRequest, console: &Console) -> Result<u8, ExpectedError> {
    let settings = settings::load(request.config.as_deref(), console)?;
    with_settings(&settings, request, console)
}

/// For the demo, which is not this project's business.
pub(super) fn run_without_configuration(
    request: &RunRequest,
    console: &Console,
) -> Result<u8, ExpectedError> {
    with_settings(&Settings::default(), request, console)
}

fn with_settings(settings: &Settings, request: &RunRequest, console: &Console) -> Result<u8, ExpectedError> {
    let plan = plan::plan(settings, request, &settings::world()?)?;
    for warning in &plan.warnings {
        console.warning(warning);
    }
    let command_line = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let judged = run::run(&plan, console, command_line)?;
    let delivered = deliver::deliver(&judged.report, Some(judged.session.folder()), &plan.reports);
    let full = plan.output_dir.join(crate::store::LATEST).join("report.json");
    let screen = console.stderr_screen(request.verbose);
    let text = deliver::rendered(&judged.report, crate::cli::Format::Human, Some(&full), screen)?;
    console.line(&format!("\n{}", String::from_utf8_lossy(&text).trim_end()));
    // What could not be written is told behind the verdict, which is worth more.
    delivered?;
    Ok(exit::of_report(&judged.report))
}
