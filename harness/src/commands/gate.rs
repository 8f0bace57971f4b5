//! `memgate gate`: judges what was recorded, by today's settings, without running anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memgate_analysis::ProcessRecord;
use memgate_wire::Hello;

use super::settings;
use crate::cli::GateRequest;
use crate::deliver;
use crate::exit::{self, ExpectedError, chain};
use crate::names::Mappings;
use crate::origin::project_root;
use crate::output::Console;
use crate::plan::{self, Settings, World};
use crate::reading;
use crate::reading::stream;
use crate::run;
use crate::run::judge::{Records, judge};
use crate::run::resolve::Symbols;
use crate::session::facts::{
    ConfirmationFacts, EndingFacts, Facts, JavaFacts, Kind, ProcessFacts, SuiteFacts, problem,
};
use crate::session::label::Label;
use crate::session::{Session, naming};
use crate::suite::gtest::SuiteId;
use crate::suite::junit::JvmSuiteId;
use crate::symbol_files::SymbolFiles;

pub(super) fn gate(request: &GateRequest, console: &Console) -> Result<u8, ExpectedError> {
    let settings = settings::load(request.config.as_deref(), console)?;
    let world = settings::world()?;
    let policy = plan::policy(&settings, request.ignore_test_failures, world.today);
    let mut symbols = Symbols::new(SymbolFiles::open(&symbol_sources(&settings, request, &world))?);
    let names = Arc::new(mappings(&settings, request, &world)?);
    let (mut facts, records) = gather(&request.inputs, &mut symbols, &names)?;
    if facts.root.is_empty() {
        // Streams alone do not say where the project lay: here, it may be.
        facts.root = project_root().map_or_else(String::new, |root| root.to_string_lossy().into_owned());
    }
    let report = judge(&facts, records, Path::new(""), &policy, &mut symbols, &names);
    if symbols.has_files() {
        run::tell_missing_symbols(&symbols, console);
    }
    let screen = console.stdout_screen(request.verbose);
    console.result(&deliver::rendered(&report, request.format, None, screen)?)?;
    Ok(exit::of_report(&report))
}

/// The mapping files that were named. Sessions have their own; for files alone there are those of
/// the configuration, if this is the machine that has them.
fn mappings(settings: &Settings, request: &GateRequest, world: &World) -> Result<Mappings, ExpectedError> {
    let config = &settings.config;
    let programs = config.suites.iter().map(|suite| (suite.name.as_str(), &suite.mapping));
    let on_devices = config.instrumented.iter().map(|suite| (suite.name.as_str(), &suite.mapping));
    let complete = |(suite, mapping): (_, &Vec<PathBuf>)| -> (&str, Vec<PathBuf>) {
        (suite, mapping.iter().map(|path| world.directory.join(path)).collect())
    };
    let named: Vec<_> = programs.chain(on_devices).map(complete).collect();
    // One of several that are not all there may be that of another build.
    let named = named.iter().filter(|(_, paths)| paths.iter().all(|path| path.exists()));
    let named = named.map(|(suite, paths)| (*suite, paths.as_slice()));
    Mappings::for_streams(&request.mapping, named)
}

/// The files with symbols that were named, and those of the configuration, if this is the machine
/// that has them.
fn symbol_sources(settings: &Settings, request: &GateRequest, world: &World) -> Vec<PathBuf> {
    let config = &settings.config;
    let of_programs = config.suites.iter().flat_map(|suite| &suite.symbols);
    let of_devices = config.instrumented.iter().flat_map(|suite| &suite.symbols);
    let configured = of_programs.chain(of_devices).map(|path| world.directory.join(path));
    request.symbols.iter().cloned().chain(configured.filter(|path| path.exists())).collect()
}

/// Facts and records of everything that was named, as of one run.
fn gather(
    inputs: &[PathBuf],
    symbols: &mut Symbols,
    names: &Arc<Mappings>,
) -> Result<(Facts, Records), ExpectedError> {
    let mut all: Option<Facts> = None;
    let mut records = Records::new();
    let mut files = Vec::new();
    // `frames/*.mgf` names the harness's own samples too: they are read with the stream they belong
    // to.
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
        join(&mut all, of_session(&session, &mut records, names)?);
    }
    if !files.is_empty() {
        join(&mut all, of_streams("files", files, &mut records, names));
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
            if let Some(status) = more.command_status {
                all.command_ended(status);
            }
            all.suites.extend(more.suites);
            all.errors.extend(more.errors);
        }
    }
}

fn of_session(
    session: &Session,
    records: &mut Records,
    names: &Arc<Mappings>,
) -> Result<Facts, ExpectedError> {
    let frames = session.frames();
    if let Some(mut facts) = Facts::load(session)? {
        facts.streams_mut().for_each(|stream| *stream = frames.join(&*stream).to_string_lossy().into_owned());
        return Ok(facts);
    }
    let streams = stream::streams_in(&frames).map_err(ExpectedError::file("list", &frames))?;
    let mut facts = of_streams(&session.name(), streams, records, names);
    if let Ok(info) = session.info() {
        facts.started = info.started;
        facts.project = info.project;
    }
    let what = "the run was ended before it was complete: this is what had been recorded".to_owned();
    facts.errors.push(problem(&session.name(), what, "run it again"));
    Ok(facts)
}

/// What streams say by themselves: who wrote them, and what they were recorded for.
fn of_streams(name: &str, files: Vec<PathBuf>, records: &mut Records, names: &Arc<Mappings>) -> Facts {
    let mut facts = Facts::new("", name, String::new());
    let mut screens: Vec<(String, GroupId, Vec<ProcessFacts>)> = Vec::new();
    let mut rounds: Vec<(String, ProcessFacts)> = Vec::new();
    let mut repeated: Vec<(String, String, Option<u64>, ProcessFacts)> = Vec::new();
    let mut companies: Vec<(String, ProcessFacts)> = Vec::new();
    for file in files {
        let record = reading::read_record(&file, names);
        let stream = file.to_string_lossy().into_owned();
        let Some(hello) = record.hello.clone() else {
            let why = record.damaged.clone().unwrap_or_else(|| "nothing was recorded in it".to_owned());
            facts.errors.push(problem(
                &stream,
                format!("not measured: {why}"),
                "is it a file of frames (*.mgf)?",
            ));
            continue;
        };
        let process = ProcessFacts { stream: stream.clone(), ending: EndingFacts::Unknown, as_test: None };
        if record.is_main() {
            match Label::from_text(&hello.label) {
                Label::Confirm { suite, test } => repeated.push((suite, test, None, process)),
                Label::Length { suite, test, n } => repeated.push((suite, test, Some(n), process)),
                // It told where to look, and nothing else.
                Label::Narrow { .. } => {}
                Label::Rounds { suite } => rounds.push((suite, process)),
                Label::Company { suite } => companies.push((suite, process)),
                Label::Screen { suite } => {
                    let id = GroupId::of(&record, &hello);
                    match screens.iter_mut().find(|(name, known, _)| (name, known) == (&suite, &id)) {
                        Some((.., processes)) => processes.push(process),
                        None => screens.push((suite, id, vec![process])),
                    }
                }
            }
        }
        records.insert(stream, record);
    }
    facts.suites = screened(screens, records);
    for (suite, process) in rounds {
        add_rounds(&mut facts.suites, &suite, process);
    }
    for (suite, test, n, process) in repeated {
        let kind = kind_of(std::slice::from_ref(&process), records);
        add_repeated(&mut facts.suites, suite, test, (n, kind), process);
    }
    for (suite, process) in companies {
        add_company(&mut facts.suites, &suite, &process, records);
    }
    facts
}

/// A run of several tests together belongs to each of its tests that ran alone too.
fn add_company(suites: &mut [SuiteFacts], suite: &str, process: &ProcessFacts, records: &Records) {
    let Some(record) = records.get(&process.stream) else { return };
    let known = suites.iter_mut().filter(|known| known.name == suite);
    for (test, confirmation) in known.flat_map(|known| &mut known.confirmations) {
        let ran = record.windows_of(test).next().is_some();
        if let (true, ConfirmationFacts::Repeated(alone)) = (ran, &*confirmation) {
            *confirmation =
                ConfirmationFacts::InCompany { alone: alone.clone(), together: Ok(process.clone()) };
        }
    }
}

/// Of a suite without its rounds.
const NO_ROUNDS: &str = "their recording was not named";

/// What makes processes one suite.
#[derive(Debug, Clone, PartialEq)]
enum GroupId {
    Native(SuiteId),
    Jvm(JvmSuiteId),
}

impl GroupId {
    fn of(record: &ProcessRecord, hello: &Hello) -> Self {
        let jvm = record.java.as_ref().and_then(|java| java.jvm.as_ref());
        match jvm {
            Some(jvm) => Self::Jvm(JvmSuiteId::of(hello, jvm)),
            None => Self::Native(SuiteId::of(hello)),
        }
    }
}

fn screened(screens: Vec<(String, GroupId, Vec<ProcessFacts>)>, records: &Records) -> Vec<SuiteFacts> {
    type Groups<Id> = (Vec<Id>, Vec<Vec<ProcessFacts>>);
    let mut by_command: BTreeMap<String, (Groups<SuiteId>, Groups<JvmSuiteId>)> = BTreeMap::new();
    for (command, id, processes) in screens {
        let (native, jvm) = by_command.entry(command).or_default();
        match id {
            GroupId::Native(id) => {
                native.0.push(id);
                native.1.push(processes);
            }
            GroupId::Jvm(id) => {
                jvm.0.push(id);
                jvm.1.push(processes);
            }
        }
    }
    let mut suites = Vec::new();
    for (command, ((ids, groups), (jvm_ids, jvm_groups))) in by_command {
        let configured = (!command.is_empty()).then_some(command.as_str());
        let names = naming::jvm_suite_names(configured, &jvm_ids);
        let of_suite = |(name, screen): (String, Vec<ProcessFacts>)| {
            let kind = kind_of(&screen, records);
            SuiteFacts::new(name, kind, screen)
        };
        suites.extend(names.into_iter().zip(jvm_groups).map(of_suite));
        let names = naming::suite_names(configured, &ids);
        suites.extend(names.into_iter().zip(groups).map(of_suite));
    }
    suites
}

/// A process that ran no test, beside others that did, makes no other suite of it.
fn kind_of(screen: &[ProcessFacts], records: &Records) -> Kind {
    let kinds = screen.iter().filter_map(|process| records.get(&process.stream)).map(Kind::of);
    let kinds: Vec<Kind> = kinds.collect();
    let tests = kinds.iter().find(|kind| **kind != Kind::Program);
    tests.or(kinds.first()).copied().unwrap_or(Kind::Program)
}

/// Rounds find their suite; where the screen was not copied along, they stand alone.
fn add_rounds(suites: &mut Vec<SuiteFacts>, suite: &str, process: ProcessFacts) {
    if !suites.iter().any(|known| known.name == suite) {
        suites.push(SuiteFacts::new(suite.to_owned(), Kind::Junit, Vec::new()));
    }
    let known = suites.iter_mut().find(|known| known.name == suite);
    if let Some(java) = known.map(|known| known.java.get_or_insert_with(JavaFacts::default)) {
        java.rounds.push(process);
    }
}

/// A confirming run finds its suite. Where the screen was not copied along, one of native tests
/// stands for itself, and one of Java tests confirms what is not there: its first iterations are no
/// screen.
fn add_repeated(
    suites: &mut Vec<SuiteFacts>,
    suite: String,
    test: String,
    (n, kind): (Option<u64>, Kind),
    process: ProcessFacts,
) {
    let kind = match (n, kind) {
        (Some(_), _) => Kind::Program,
        // It was to repeat a test, and recorded none.
        (None, Kind::Program) => Kind::Tests,
        (None, kind) => kind,
    };
    let is_java = matches!(kind, Kind::Junit | Kind::JunitObserved);
    if is_java && !suites.iter().any(|known| known.name == suite) {
        let mut alone = SuiteFacts::new(suite.clone(), kind, Vec::new());
        alone.java = Some(JavaFacts { not_screened: Some(NO_ROUNDS.to_owned()), ..JavaFacts::default() });
        suites.push(alone);
    }
    let Some(known) = suites.iter_mut().find(|known| known.name == suite) else {
        suites.push(SuiteFacts::new(suite, kind, vec![process]));
        return;
    };
    match (n, known.confirmations.get_mut(&test)) {
        (Some(n), Some(ConfirmationFacts::Lengths(runs))) => runs.push((n, process)),
        (Some(n), _) => {
            known.confirmations.insert(test, ConfirmationFacts::Lengths(vec![(n, process)]));
        }
        (None, _) => {
            known.confirmations.insert(test, ConfirmationFacts::Repeated(process));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(stream: &str) -> ProcessFacts {
        ProcessFacts { stream: stream.into(), ending: EndingFacts::Unknown, as_test: None }
    }

    #[test]
    fn runs_of_different_length_come_together() {
        let mut suites = Vec::new();
        for n in [4, 8, 12] {
            add_repeated(
                &mut suites,
                "replay".into(),
                "replay".into(),
                (Some(n), Kind::Program),
                process(&format!("{n}.mgf")),
            );
        }
        assert_eq!(suites.len(), 1, "the first stands for the screen that is missing");
        let Some(ConfirmationFacts::Lengths(runs)) = suites[0].confirmations.get("replay") else {
            panic!("{suites:?}")
        };
        assert_eq!(runs.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [8, 12]);
    }

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
