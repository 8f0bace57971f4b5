//! `memgate gate`: judges recorded data with the current settings, without running anything.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use memgate_analysis::GatePolicy;
use memgate_history::shards::ShardDescription;
use memgate_model::{Base, BaseLeaks};

use super::{merge, settings};
use crate::cli::{Format, GateArgs};
use crate::deliver;
use crate::exit::{self, ExpectedError, chain};
use crate::history::base;
use crate::names::Mappings;
use crate::origin::project_root;
use crate::output::Console;
use crate::plan::{self, Settings, World};
use crate::reading::{Records, stream};
use crate::run;
use crate::run::judge::judge;
use crate::run::resolve::Symbols;
use crate::session::facts::Facts;
use crate::session::{Session, offline};
use crate::symbol_files::SymbolFiles;

pub(super) fn gate(request: &GateArgs, console: &Console) -> Result<u8, ExpectedError> {
    let settings = settings::load(request.config.config.as_deref(), console)?;
    for warning in settings::not_read(&settings).iter().chain(&plan::warnings(&settings)) {
        console.warning(warning);
    }
    let world = settings::world()?;
    let mut policy = plan::policy(&settings, request.ignore_test_failures, world.today);
    let mut symbols = Symbols::new(SymbolFiles::open(&symbol_sources(&settings, request, &world))?);
    let names = Arc::new(mappings(&settings, request, &world)?);
    let shard = shard(&request.inputs, console)?;
    tell_missing_samples(&request.inputs, console);
    let (mut facts, records) = gather(&request.inputs, &mut symbols, &names)?;
    if facts.root.is_empty() {
        // Streams alone do not contain the project's folder. It may be the current one.
        facts.root = project_root().map_or_else(String::new, |root| root.to_string_lossy().into_owned());
    }
    hold_against(&mut policy, &settings, &request.inputs)?;
    let mut report = judge(&facts, records, Path::new(""), &policy, &mut symbols, &names);
    report.shards.extend(shard.map(|description| description.entry(Some(&report))));
    let owners = settings.config.reports.mail.as_ref().and_then(|mail| mail.owners.as_deref());
    deliver::owners::assign(&mut report, owners.map(|file| settings.root.join(file)).as_deref(), console);
    if symbols.has_files() {
        run::tell_missing_symbols(&symbols, console);
    }
    if !facts.partial {
        report.warnings = plan::without_effect(&settings, &report);
    }
    if request.format != Format::Human {
        // The text has them.
        report.warnings.iter().for_each(|warning| console.warning(warning));
    }
    let screen = console.stdout_screen(request.verbose);
    console.result(&deliver::rendered(&report, request.format, None, screen)?)?;
    Ok(exit::of_report(&report))
}

/// Warns about missing samples. Missing samples are an error in a session, but single files may have been recorded
/// without memgate.
fn tell_missing_samples(inputs: &[PathBuf], console: &Console) {
    let without = |input: &&PathBuf| {
        input.is_file() && stream::is_stream_name(input) && !stream::os_path(input).exists()
    };
    for file in inputs.iter().filter(without) {
        let samples = stream::os_path(file);
        console.warning(&format!(
            "there is no {}: descriptors and threads of these tests are not judged",
            samples.display()
        ));
    }
}

/// The shard that is judged, if it is the only input. The result lacks the findings of the other shards.
fn shard(inputs: &[PathBuf], console: &Console) -> Result<Option<ShardDescription>, ExpectedError> {
    let sessions = inputs.iter().filter(|input| !input.is_file() || input.ends_with("session.json"));
    let mut shards = Vec::new();
    for session in sessions.filter_map(|input| Session::open(input).ok()) {
        shards.extend(merge::shard_of(&session)?);
    }
    for description in &shards {
        console.warning(&format!(
            "part {} of a run: only `memgate merge` tells whether all parts are there",
            description.number
        ));
    }
    Ok(shards.pop().filter(|_| inputs.len() == 1))
}

/// The mapping files that were named. Sessions have their own; for files alone, the configured ones are used if they
/// exist on this machine.
fn mappings(settings: &Settings, request: &GateArgs, world: &World) -> Result<Mappings, ExpectedError> {
    let config = &settings.config;
    let programs = config.suites.iter().map(|suite| (suite.name.as_str(), &suite.mapping));
    let on_devices = config.instrumented.iter().map(|suite| (suite.name.as_str(), &suite.mapping));
    let complete = |(suite, mapping): (_, &Vec<PathBuf>)| -> (&str, Vec<PathBuf>) {
        (suite, mapping.iter().map(|path| world.directory.join(path)).collect())
    };
    let named: Vec<_> = programs.chain(on_devices).map(complete).collect();
    // If not all of several files exist, a remaining one may be of another build.
    let named = named.iter().filter(|(_, paths)| paths.iter().all(|path| path.exists()));
    let named = named.map(|(suite, paths)| (*suite, paths.as_slice()));
    Mappings::for_streams(&request.mapping, named)
}

/// The symbol files that were named, and the configured ones if they exist on this machine.
fn symbol_sources(settings: &Settings, request: &GateArgs, world: &World) -> Vec<PathBuf> {
    let config = &settings.config;
    let of_programs = config.suites.iter().flat_map(|suite| &suite.symbols);
    let of_devices = config.instrumented.iter().flat_map(|suite| &suite.symbols);
    let configured = of_programs.chain(of_devices).map(|path| world.directory.join(path));
    request.symbols.iter().cloned().chain(configured.filter(|path| path.exists())).collect()
}

/// Uses the base with which the first session with a history was judged; if it had none, a base that was fetched later.
/// No server gets a request.
fn hold_against(
    policy: &mut GatePolicy,
    settings: &Settings,
    inputs: &[PathBuf],
) -> Result<(), ExpectedError> {
    let history = &settings.config.history;
    for input in inputs.iter().filter(|input| !input.is_file() || input.ends_with("session.json")) {
        let Ok(session) = Session::open(input) else { continue };
        let Some(manifest) = session.info().ok().and_then(|info| info.history) else { continue };
        if !base::is_wanted(history, &manifest, &policy.waivers) {
            return Ok(());
        }
        let kept = base::read(&session.folder().join(base::FILE))?;
        let merged: Vec<String> = kept.iter().map(|kept| kept.base.merged.clone()).collect();
        let wanted = base::wanted(&manifest, &merged);
        let found = match kept {
            Some(kept) if !kept.base.is_none() => kept,
            kept => {
                let beside = session.folder().parent().map(|sessions| sessions.join(base::FILE));
                let fetched = beside.and_then(|path| base::fetched(&path, &manifest.project, &wanted));
                let none = || BaseLeaks {
                    base: Base {
                        branch: wanted.branch.clone(),
                        why: "the session has none: `memgate baseline fetch`".to_owned(),
                        ..Base::default()
                    },
                    ..BaseLeaks::default()
                };
                fetched.or(kept).unwrap_or_else(none)
            }
        };
        base::hold_against(policy, found, history, manifest.is_review());
        return Ok(());
    }
    Ok(())
}

/// Facts and records of all inputs, joined as one run.
fn gather(
    inputs: &[PathBuf],
    symbols: &mut Symbols,
    names: &Arc<Mappings>,
) -> Result<(Facts, Records), ExpectedError> {
    let mut all: Option<Facts> = None;
    let mut records = Records::new();
    let mut files = Vec::new();
    // `frames/*.mgf` also matches the harness's own samples: they are read with their stream.
    let is_stream = |input: &&PathBuf| !input.to_string_lossy().ends_with(stream::OS_SUFFIX);
    for input in inputs.iter().filter(is_stream) {
        if input.is_file() && input.file_name().is_none_or(|name| name != "session.json") {
            files.push(input.clone());
            continue;
        }
        let session = Session::open(input).map_err(|why| ExpectedError::Session {
            path: input.clone(),
            why: chain(&why),
            hint: "name a folder below .memgate, or files with frames (*.mgf)".to_owned(),
        })?;
        symbols.recall(session.folder())?;
        join(&mut all, offline::of_session(&session, &mut records, names)?);
    }
    if !files.is_empty() {
        join(&mut all, offline::of_streams("files", files, &mut records, names));
    }
    Ok((all.unwrap_or_else(|| Facts::new("", "", String::new())), records))
}

fn join(all: &mut Option<Facts>, more: Facts) {
    match all {
        None => *all = Some(more),
        Some(all) => {
            all.session = format!("{}, {}", all.session, more.session);
            all.duration_s += more.duration_s;
            all.partial |= more.partial;
            all.may_be_empty &= more.may_be_empty;
            // A test that crashed in a complete run has failed.
            all.ended_early &= more.ended_early;
            if let Some(status) = more.command_status {
                all.command_ended(status);
            }
            all.suites.extend(more.suites);
            all.errors.extend(more.errors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_stream_is_an_error_of_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("1-1.mgf");
        std::fs::write(&file, "hello").unwrap();
        let (facts, _) = gather(&[file], &mut Symbols::new(SymbolFiles::default()), &Arc::default()).unwrap();
        assert_eq!(facts.errors.len(), 1);
        assert!(facts.errors[0].what.starts_with("not measured"), "{:?}", facts.errors);
    }

    #[test]
    fn a_session_that_was_interrupted_is_never_a_pass() {
        let root = tempfile::tempdir().unwrap();
        let info = crate::session::SessionInfo::now(vec!["memgate".into()], "1.0.0");
        let session = Session::create(root.path(), &info).unwrap();
        let names = Arc::default();
        let (facts, records) =
            gather(&[session.folder().to_owned()], &mut Symbols::new(SymbolFiles::default()), &names)
                .unwrap();
        let policy = memgate_analysis::GatePolicy::default();
        let report =
            judge(&facts, records, Path::new(""), &policy, &mut Symbols::new(SymbolFiles::default()), &names);
        assert_eq!(report.exit_code, 2);
        assert!(report.errors[0].what.contains("ended before it was complete"), "{:?}", report.errors);
    }

    #[test]
    fn what_is_neither_session_nor_file_is_told_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let error =
            gather(&[folder.path().to_owned()], &mut Symbols::new(SymbolFiles::default()), &Arc::default())
                .unwrap_err();
        assert!(error.hint().unwrap().contains("*.mgf"));
    }
}
