//! `memgate merge`: combines the shards of a run that was divided between several machines into one run: one report,
//! one mail, one run of the history.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use memgate_config::WindowBaseline;
use memgate_history::shards::{DESCRIPTION_VERSION, Merged, ShardDescription, ShardReport, merge as merged};
use memgate_model::{Problem, RunReport};

use super::{report, run, settings};
use crate::cli::MergeArgs;
use crate::exit::ExpectedError;
use crate::output::Console;
use crate::plan;
use crate::run::Judged;
use crate::run::this_shard::FILE;
use crate::session::{Session, SessionInfo, WINDOWS_FILE, unchanged};

/// Maximum depth of shards below a named folder.
const MAX_DEPTH: u32 = 4;

pub(super) fn merge(request: &MergeArgs, console: &Console) -> Result<u8, ExpectedError> {
    let settings = settings::load(request.config.config.as_deref(), console)?;
    for warning in settings::missing_secrets(&settings.config) {
        console.warning(&warning);
    }
    let (folders, mut broken) = folders(&request.shards);
    let sessions = all_readable(&folders, &mut broken, |folder| {
        // Locks the shards: they may be in the folder where the merged session is created, which removes the oldest.
        let session = Session::open(folder).map(Session::held).map_err(|why| ExpectedError::failed(&why));
        session.map_err(|why| unusable(folder, &why))
    });
    let mut found = all_readable(&sessions, &mut broken, |session| {
        shard(session).map_err(|why| unusable(session.folder(), &why))
    });
    leave_out_others(&mut found, request.expect, console);
    if found.iter().all(|found| found.shard.report.is_none()) {
        return Err(no_report(broken));
    }
    let project = found.first().map(|found| found.info.project.clone()).unwrap_or_default();
    let (session, mut info) = new_session(request, project)?;
    let narrowed = found.iter().any(|found| found.shard.description.narrowed);
    let shards = found.iter().map(|found| found.shard.clone()).collect();
    let Some(Merged { report, incomplete }) = merged(shards, request.expect, broken, &session.name()) else {
        return Err(nothing(&request.shards));
    };
    // If a shard was run several times, the last attempt counts.
    let counts = |found: &&Found<'_>| report.shards.iter().any(|shard| shard.session == found.shard.session);
    let mut counting: Vec<&Found<'_>> = found.iter().filter(counts).collect();
    counting.sort_by_key(|found| found.shard.description.number);
    keep_windows(counting.iter().map(|found| found.session.folder()), &session)?;
    let told = counting.iter().filter(|found| found.shard.report.is_some());
    if let Err(why) = unchanged::merge(told.map(|found| found.session), &session) {
        console.warning(&format!(
            "`baseline accept` will not know which classes were not measured again: {why}"
        ));
    }
    let partial = narrowed || incomplete;
    // A killed shard has no history data.
    let manifest = counting.iter().find_map(|found| found.info.history.clone());
    let manifest =
        manifest.map(|manifest| memgate_history::Manifest { session: session.name(), partial, ..manifest });
    info.history.clone_from(&manifest);
    session.write_info(&info).map_err(|why| ExpectedError::failed(&why))?;
    let mut judged =
        Judged { report, command_status: None, session, partial, manifest, shard: None, unsaved: None };
    // Each shard knew only its own tests.
    if !judged.report.warnings.is_empty() {
        judged.report.warnings = plan::of_other_suites(&settings, &judged.report).into_iter().collect();
    }
    run::add_without_effect(&settings, &mut judged);
    let reports = settings.reports();
    let destination = run::Destination {
        output_dir: &request.output.output_dir,
        reports: &reports,
        history: &settings.config.history,
        verbose: request.verbose,
        every_report: false,
    };
    run::deliver_to(&destination, judged, None, console)
}

/// Returns what could be read; failures are added to `broken`.
fn all_readable<'a, T, U>(
    all: &'a [T],
    broken: &mut Vec<Problem>,
    read: impl Fn(&'a T) -> Result<U, Problem>,
) -> Vec<U> {
    all.iter().filter_map(|one| read(one).map_err(|why| broken.push(why)).ok()).collect()
}

/// The error if no shard has a report: the first reason.
fn no_report(broken: Vec<Problem>) -> ExpectedError {
    match broken.into_iter().next() {
        Some(Problem { r#where, what, hint }) => ExpectedError::session(r#where, what, hint),
        None => {
            let hint = "they ended too early: run them again";
            ExpectedError::machinery("none of these shards has a report", hint)
        }
    }
}

/// The session of the merged run.
fn new_session(request: &MergeArgs, project: String) -> Result<(Session, SessionInfo), ExpectedError> {
    let command = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let info = SessionInfo { project, ..SessionInfo::now(command, env!("CARGO_PKG_VERSION")) };
    let root = std::path::absolute(&request.output.output_dir)
        .map_err(ExpectedError::file("find", &request.output.output_dir))?;
    let session = Session::create(&root, &info).map_err(|why| ExpectedError::failed(&why))?;
    Ok((session, info))
}

/// A shard, and where it was found.
struct Found<'a> {
    shard: ShardReport,
    info: SessionInfo,
    session: &'a Session,
}

/// If the number of shards is given, drops shards of another division: they are left over from an earlier run.
fn leave_out_others(all: &mut Vec<Found<'_>>, expected: Option<u32>, console: &Console) {
    let fits = |found: &Found<'_>| expected.is_none_or(|of| found.shard.description.number.of() == of);
    if all.iter().any(fits) {
        for Found { shard, .. } in all.extract_if(.., |found| !fits(found)) {
            console.warning(&format!(
                "left out: part {} in session {}",
                shard.description.number, shard.session
            ));
        }
    }
}

/// Refuses a shard: a history, a server or a baseline must not take it for the whole run.
pub(super) fn refuse_a_shard(report: &RunReport, file: &Path) -> Result<(), ExpectedError> {
    match report.as_shard() {
        Some(shard) => Err(ExpectedError::session(
            file.to_owned(),
            format!("it is part {} of a run", shard.number),
            "`memgate merge` makes one run of all parts",
        )),
        None => Ok(()),
    }
}

/// The description of a shard's session; `None`: it is not a shard. A merged session has no frames: it cannot be judged
/// again.
pub(super) fn shard_of(session: &Session) -> Result<Option<ShardDescription>, ExpectedError> {
    if session.folder().join(FILE).exists() {
        return Ok(Some(shard(session)?.shard.description));
    }
    let report = session.folder().join("report.json");
    // A session with an unreadable report is judged by its frames.
    let merged = report::read(session.folder()).is_ok_and(|(report, _)| !report.shards.is_empty());
    if merged {
        let why = "it is merged of several shards, which have the frames".to_owned();
        return Err(ExpectedError::session(report, why, "name the sessions of the shards"));
    }
    Ok(None)
}

fn nothing(named: &[PathBuf]) -> ExpectedError {
    let path = named.first().cloned().unwrap_or_default();
    let hint = "name the sessions of `memgate run --partition`, or a folder with them";
    ExpectedError::session(path, format!("there is no shard in it (no {FILE})"), hint)
}

/// The problem for a shard that cannot be read, perhaps because its upload is incomplete: an error in addition to the
/// results of others.
fn unusable(named: &Path, why: &ExpectedError) -> Problem {
    let (what, hint) = (why.to_string(), why.hint().unwrap_or_default());
    Problem { r#where: named.display().to_string(), what, hint }
}

/// The folders of the named shards, each once, and the named paths without a shard: perhaps a job ended too early.
fn folders(named: &[PathBuf]) -> (Vec<PathBuf>, Vec<Problem>) {
    let (mut all, mut broken) = (Vec::new(), Vec::new());
    for path in named {
        let before = all.len();
        if let Err(why) = collect(path, MAX_DEPTH, &mut all) {
            broken.push(unusable(path, &why));
        } else if all.len() == before {
            broken.push(Problem {
                r#where: path.display().to_string(),
                what: format!("there is no shard in it (no {FILE})"),
                hint: "did its job end before memgate began?".to_owned(),
            });
        }
    }
    all.sort();
    all.dedup();
    (all, broken)
}

fn collect(path: &Path, depth: u32, all: &mut Vec<PathBuf>) -> Result<(), ExpectedError> {
    if path.join(FILE).is_file() {
        all.push(fs::canonicalize(path).map_err(ExpectedError::file("open", path))?);
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(ExpectedError::file("list", path))? {
        let below = entry.map_err(ExpectedError::file("list", path))?.path();
        if below.is_dir() {
            collect(&below, depth - 1, all)?;
        }
    }
    Ok(())
}

fn shard(session: &Session) -> Result<Found<'_>, ExpectedError> {
    let folder = session.folder();
    let file = folder.join(FILE);
    let wrong = |why: String| ExpectedError::session(file.clone(), why, "run the shard again");
    let bytes = fs::read(&file).map_err(ExpectedError::file("read", &file))?;
    let description: ShardDescription =
        serde_json::from_slice(&bytes).map_err(|why| wrong(why.to_string()))?;
    if description.version != DESCRIPTION_VERSION {
        let why = format!(
            "it has version {}, this memgate reads version {DESCRIPTION_VERSION}",
            description.version
        );
        return Err(wrong(why));
    }
    let info = session.info().map_err(|why| ExpectedError::failed(&why))?;
    let told = if folder.join("report.json").exists() { Some(report::read(folder)?.0) } else { None };
    let name = told.as_ref().map_or_else(|| session.name(), |report| report.session.clone());
    let shard = ShardReport { description, report: told, session: name, started: info.started.clone() };
    Ok(Found { shard, info, session })
}

/// Keeps the survivors of the windows of JVM suites, for `baseline accept`.
fn keep_windows<'a>(folders: impl Iterator<Item = &'a Path>, session: &Session) -> Result<(), ExpectedError> {
    let mut all = BTreeMap::<String, Vec<WindowBaseline>>::new();
    for folder in folders {
        let path = folder.join(WINDOWS_FILE);
        if !path.exists() {
            continue;
        }
        let bytes = fs::read(&path).map_err(ExpectedError::file("read", &path))?;
        let windows: BTreeMap<String, Vec<WindowBaseline>> = serde_json::from_slice(&bytes)
            .map_err(|why| ExpectedError::session(path, why.to_string(), "run the shard again"))?;
        for (suite, windows) in windows {
            all.entry(suite).or_default().extend(windows);
        }
    }
    if all.is_empty() {
        return Ok(());
    }
    let json = serde_json::to_vec(&all).map_err(|why| ExpectedError::failed(&why))?;
    session.write(WINDOWS_FILE, &json).map(drop).map_err(|why| ExpectedError::failed(&why))
}
