//! `memgate run`: all steps from settings to the exit code.

use std::path::Path;
use std::time::Duration;

use memgate_config::{Config, History, Reports, UploadMode};
use memgate_history::Manifest;
use memgate_server::store::Added;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use super::settings;
use crate::cli::RunArgs;
use crate::deliver;
use crate::exit::{self, ExpectedError};
use crate::history::live::Live;
use crate::history::{self, artefacts, upload};
use crate::origin;
use crate::output::Console;
use crate::plan::{self, Plan, Settings};
use crate::run::{self, Judged};

pub(super) fn run(request: &RunArgs, console: &Console) -> Result<u8, ExpectedError> {
    let settings = settings::load(request.config.config.as_deref(), console)?;
    if let Some(warning) = settings::not_read(&settings) {
        console.warning(&warning);
    }
    with_settings(&settings, request, console)
}

/// Tests do not get the variables with secrets, and cannot read them from this process either.
fn hide_environment(config: &Config) -> Result<(), ExpectedError> {
    if !upload::secret_variables(config).iter().any(|name| std::env::var_os(name).is_some()) {
        return Ok(());
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|why| ExpectedError::Machinery {
        what: format!("failed to keep tests from reading the secrets of this process: {why}"),
        hint: String::new(),
    })
}

/// A judged run.
pub(super) struct Measured<'a> {
    pub(super) plan: Plan,
    pub(super) judged: Judged,
    /// Progress for the server, with `--live`.
    pub(super) live: Option<Live<'a>>,
}

/// Runs the suites of `settings`, or the command of the request.
pub(super) fn measured<'a>(
    settings: &Settings,
    request: &RunArgs,
    console: &'a Console,
) -> Result<Measured<'a>, ExpectedError> {
    let plan = plan::plan(settings, request, &settings::world()?)?;
    for warning in plan.warnings.iter().chain(&settings::missing_secrets(&settings.config)) {
        console.warning(warning);
    }
    if plan.shard.is_none() && request.bisect.is_none() {
        deliver::files::check(&plan.reports)?;
    }
    let live = if request.live { Some(live(&plan, console)?) } else { None };
    hide_environment(&settings.config)?;
    let command_line = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let mut judged = run::run(&plan, console, command_line)?;
    let owners = plan.reports.mail.as_ref().and_then(|mail| mail.owners.as_deref());
    deliver::owners::assign(&mut judged.report, owners, console);
    Ok(Measured { plan, judged, live })
}

fn live<'a>(plan: &Plan, console: &'a Console) -> Result<Live<'a>, ExpectedError> {
    let Some(to) = plan.history.upload.as_ref().filter(|to| to.mode != UploadMode::Off) else {
        return Err(ExpectedError::usage(
            "there is no server on which this run could be watched",
            "name it: `history.server` in memgate.yaml",
        ));
    };
    let here = origin::here(origin::project_root().as_deref());
    console.line(&format!(
        "this run can be watched: {}{}/live",
        to.server,
        memgate_server::pages::address(&plan.project)
    ));
    Ok(Live::begin(to, &plan.project, &here, console))
}

/// All steps: runs, then writes, sends, prints and stores the result.
pub(super) fn with_settings(
    settings: &Settings,
    request: &RunArgs,
    console: &Console,
) -> Result<u8, ExpectedError> {
    let Measured { mut plan, mut judged, live } = measured(settings, request, console)?;
    add_without_effect(settings, &mut judged);
    if plan.suites.iter().any(|suite| suite.name.is_none()) {
        let of_others = plan::of_other_suites(settings, &judged.report);
        judged.report.warnings.extend(of_others);
    }
    if judged.shard.is_some() {
        // A shard is only stored in its session: reports, mail and history belong to the whole run.
        judged.manifest = None;
        plan.reports = Reports::default();
    }
    let destination = Destination {
        output_dir: &plan.output_dir,
        reports: &plan.reports,
        history: &plan.history,
        verbose: request.verbose,
        every_report: request.every_report,
    };
    deliver_to(&destination, judged, live, console)
}

/// Adds the warnings to the report, only of a complete run, as with waivers without a match: an entry may be meant for
/// tests that did not run.
pub(super) fn add_without_effect(settings: &Settings, judged: &mut Judged) {
    if !judged.partial {
        let warnings = plan::without_effect(settings, &judged.report);
        judged.report.warnings.extend(warnings);
    }
}

/// Destinations of a judged run.
pub(super) struct Destination<'a> {
    /// Folder of the sessions.
    pub(super) output_dir: &'a Path,
    pub(super) reports: &'a Reports,
    pub(super) history: &'a History,
    pub(super) verbose: bool,
    /// Whether to write every report format into the session folder.
    pub(super) every_report: bool,
}

/// Writes, sends, prints and stores a run; returns its exit code.
pub(super) fn deliver_to(
    destination: &Destination<'_>,
    judged: Judged,
    live: Option<Live<'_>>,
    console: &Console,
) -> Result<u8, ExpectedError> {
    let address = history::address(destination.output_dir, None);
    // The folder of a CI job is empty: every leak is new there. The server says what the run changed.
    let is_told_by_server = |manifest: &Manifest| {
        manifest.ci.is_some()
            && destination.history.upload.as_ref().is_some_and(|to| to.mode != UploadMode::Off)
    };
    let folder = |manifest| (!is_told_by_server(manifest)).then_some(destination.output_dir);
    let delivered = std::thread::scope(|scope| {
        // In parallel: reports and history wait for different things. Only messages need what the history knows.
        let add = |manifest| history::add(&address, manifest, &judged.report, Some(PATIENCE));
        let adding = judged.manifest.as_ref().map(|manifest| {
            (manifest, std::thread::Builder::new().spawn_scoped(scope, move || add(manifest)))
        });
        let delivered = report(destination, &judged, console);
        let added = adding.map(|(manifest, adding)| {
            let slow = "waiting until the run is in the history: another process may hold it, 10 s at most";
            let added = match adding {
                Ok(adding) => console
                    .tell_if_slow(slow, || adding.join())
                    .unwrap_or_else(|defect| std::panic::resume_unwind(defect)),
                // No thread could be started.
                Err(_) => add(manifest),
            };
            (manifest, added)
        });
        let known = added.as_ref().and_then(|(_, added)| added.as_ref().ok());
        let events = known.map_or(&[][..], |added| &added.events);
        let session = judged.session.folder();
        deliver::send(&judged.report, Some(session), destination.reports, events, console);
        if let Some((manifest, added)) = added {
            tell_added(added, folder(manifest), console);
        }
        delivered
    })?;
    let uploaded = uploaded(destination.history, &judged, console);
    if let Some(live) = live {
        let ended = (judged.report.verdict, judged.report.entries().count());
        live.end(ended, uploaded.as_deref().unwrap_or_default());
    }
    let code = exit::of_report(&judged.report);
    // Write errors are reported after the verdict. If the verdict is a failure, its exit code stays.
    let mut unwritten: Vec<_> = judged.unsaved.into_iter().chain(delivered.err()).collect();
    let last = if code == exit::FAIL { None } else { unwritten.pop() };
    unwritten.iter().for_each(|why| console.error(why));
    if let Some(why) = last {
        return Err(why);
    }
    let with_upload = exit::with_upload(code, uploaded.is_some());
    if with_upload != code {
        console.line("exit code 2: the run was not uploaded, and `history.upload` is `required`");
    }
    Ok(with_upload)
}

/// The path of the run's page if it was uploaded as configured, empty if it has none; `None`: a required upload failed.
/// Failures are warnings: the verdict stays.
fn uploaded(history: &History, judged: &Judged, console: &Console) -> Option<String> {
    let (Some(to), Some(manifest)) = (&history.upload, &judged.manifest) else { return Some(String::new()) };
    if to.mode == UploadMode::Off {
        return Some(String::new());
    }
    match upload::upload(to, manifest, &judged.report, console) {
        Ok(uploaded) => {
            upload::tell(&uploaded, manifest, console);
            artefacts::add_artefacts(to, &uploaded, judged.session.folder(), console);
            Some(uploaded.page.strip_prefix(&to.server).unwrap_or_default().to_owned())
        }
        Err(why) => {
            console.warning(&why.to_string());
            if let Some(hint) = why.hint() {
                console.hint(&hint);
            }
            console.hint(&upload::later(judged.session.folder()));
            (to.mode != UploadMode::Required).then(String::new)
        }
    }
}

/// Time limit for adding to the history: another process may hold it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Failures are warnings: the verdict stays. `sessions`: the folder of a history that knows earlier runs.
fn tell_added(added: Result<Added, ExpectedError>, sessions: Option<&Path>, console: &Console) {
    match added {
        Ok(added) => {
            if let Some(changes) = sessions.and_then(|sessions| history::told(&added, sessions, None)) {
                console.line(&changes);
            }
        }
        Err(why) => {
            console.warning(&format!("this run is not in the history: {why}"));
            if let Some(hint) = why.hint() {
                console.hint(&hint);
            }
        }
    }
}

/// Writes the reports, then prints the verdict. Outer error: the verdict could not be printed. Inner error:
/// something could not be written, which is reported after the verdict.
fn report(
    destination: &Destination<'_>,
    judged: &Judged,
    console: &Console,
) -> Result<Result<(), ExpectedError>, ExpectedError> {
    let session = judged.session.folder();
    let mut delivered =
        deliver::files::write_all(&judged.report, Some(session), destination.reports, console);
    if destination.every_report {
        let all = deliver::files::write_everything(&judged.report, session);
        delivered = delivered.and(all).and(super::mail::preview(&judged.report, None, session).map(drop));
    }
    let full = destination.output_dir.join(crate::session::LATEST).join("report.html");
    let screen = console.stderr_screen(destination.verbose);
    let text = deliver::rendered(&judged.report, crate::cli::Format::Human, Some(&full), screen)?;
    console.rendered(&format!("\n{}", String::from_utf8_lossy(&text).trim_end()));
    if let Some(why) = exit::against_the_command(&judged.report, judged.command_status) {
        console.line(&why);
    }
    Ok(delivered)
}
