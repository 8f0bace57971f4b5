//! Rebuilds the facts of a run from its streams alone: which process wrote each stream, and for what purpose.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use memgate_analysis::{ENOUGH_REPETITIONS, ProcessRecord, Window};
use memgate_model::BoundaryQuality;
use memgate_wire::{GoodbyeReason, Hello};

use super::Session;
use super::facts::{
    ConfirmationFacts, EndingFacts, Facts, JavaFacts, Kind, ProcessFacts, SuiteFacts, problem,
};
use super::label::Label;
use super::naming::{self, grouped};
use crate::exit::ExpectedError;
use crate::names::Mappings;
use crate::reading::{self, Records, stream};
use crate::suite::gtest::SuiteId;
use crate::suite::junit::{Configuration, Configured, JvmSuiteId, configurations};

/// The facts of a session; if its run ended early, the facts from its streams.
///
/// # Errors
/// When it cannot be read.
pub fn of_session(
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
    facts.ended_early = true;
    let what = "the run was ended before it was complete: this is what had been recorded".to_owned();
    facts.errors.push(problem(&session.name(), what, "run it again"));
    Ok(facts)
}

/// The facts from streams alone: which process wrote each, and for what purpose.
#[must_use]
pub fn of_streams(name: &str, files: Vec<PathBuf>, records: &mut Records, names: &Arc<Mappings>) -> Facts {
    let mut facts = Facts::new("", name, String::new());
    let mut screens: Vec<((String, GroupId), ProcessFacts)> = Vec::new();
    let mut rounds: Vec<(String, ProcessFacts)> = Vec::new();
    let mut repeated: Vec<Repeated> = Vec::new();
    let mut stacks: Vec<(String, ProcessFacts)> = Vec::new();
    let mut companies: Vec<(String, ProcessFacts)> = Vec::new();
    let mut forked: Vec<(GroupId, ProcessFacts)> = Vec::new();
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
                Label::Confirm { suite, test } => {
                    repeated.push(Repeated { suite, test, length: None, process });
                }
                Label::Length { suite, test, n } => {
                    repeated.push(Repeated { suite, test, length: Some(n), process });
                }
                // This run only narrowed the search, so it is not judged.
                Label::Narrow { .. } => {}
                Label::Rounds { suite } => rounds.push((suite, process)),
                Label::Stacks { suite } => stacks.push((suite, process)),
                Label::Company { suite } => companies.push((suite, process)),
                Label::Screen { suite } => screens.push(((suite, GroupId::of(&record, &hello)), process)),
            }
        } else if matches!(Label::from_text(&hello.label), Label::Screen { .. }) {
            forked.push((GroupId::of(&record, &hello), process));
        }
        records.insert(stream, record);
    }
    facts.suites = screened(grouped(screens), records);
    add_forked(&mut facts.suites, forked, records);
    stacks.sort_by_key(|(_, process)| records.get(&process.stream).map(|record| record.first_ns));
    for (suite, process) in stacks {
        let known = facts.suites.iter_mut().find(|known| known.name == suite);
        known.into_iter().for_each(|known| known.stacks.push(process.clone()));
    }
    for (suite, process) in rounds {
        add_rounds(&mut facts.suites, &suite, process);
    }
    let is_unknown = |process: &ProcessFacts| records.get(&process.stream).is_some_and(ran_no_test);
    let (unknown, repeated): (Vec<_>, Vec<_>) =
        repeated.into_iter().partition(|repeated| is_unknown(&repeated.process));
    for repeated in repeated.into_iter().chain(unknown) {
        let Repeated { suite, test, process, .. } = &repeated;
        if is_unknown(process) && is_judged_with_its_class(&facts.suites, suite, test) {
            continue;
        }
        let kind = kind_of(std::slice::from_ref(process), records);
        add_repeated(&mut facts.suites, repeated, kind);
    }
    for (suite, process) in companies {
        add_company(&mut facts.suites, &suite, &process, records);
    }
    facts
}

/// Assigns children of plain programs to their suites.
fn add_forked(suites: &mut [SuiteFacts], forked: Vec<(GroupId, ProcessFacts)>, records: &Records) {
    let group = |process: &ProcessFacts| {
        let record = records.get(&process.stream)?;
        Some(GroupId::of(record, record.hello.as_ref()?))
    };
    let programs = suites.iter_mut().filter(|suite| suite.boundary == BoundaryQuality::Process);
    let mut programs: Vec<_> = programs.map(|suite| (suite.screen.first().and_then(group), suite)).collect();
    for (id, child) in forked {
        if let Some((_, suite)) = programs.iter_mut().find(|(known, _)| known.as_ref() == Some(&id)) {
            suite.screen.push(child);
        }
    }
}

/// Adds a run of several tests together to each of its tests that also ran alone, or to all tests of a program that
/// reports them itself.
fn add_company(suites: &mut [SuiteFacts], suite: &str, process: &ProcessFacts, records: &Records) {
    let Some(record) = records.get(&process.stream) else { return };
    let mut tests: BTreeSet<String> = record.windows.iter().map(Window::id).collect();
    for known in suites.iter_mut().filter(|known| known.name == suite) {
        // A program that reports its own tests has no run of one test alone (`run/runners/gtest/itself.rs`).
        let ran_alone = tests.iter().any(|test| known.confirmations.contains_key(test));
        if record.tells_its_own_tests() && !ran_alone {
            tests.retain(|test| record.windows_of(test).count() >= ENOUGH_REPETITIONS);
            let repeated = |test: &String| (test.clone(), ConfirmationFacts::Repeated(process.clone()));
            known.confirmations.extend(tests.iter().map(repeated));
            continue;
        }
        for (test, confirmation) in &mut known.confirmations {
            let ran = record.windows_of(test).next().is_some();
            if let (true, ConfirmationFacts::Repeated(alone)) = (ran, &*confirmation) {
                *confirmation =
                    ConfirmationFacts::InCompany { alone: alone.clone(), together: Ok(process.clone()) };
            }
        }
    }
}

/// Why a suite has no rounds.
const NO_ROUNDS: &str = "their recording was not named";

/// The key by which processes form one suite.
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

fn screened(screens: Vec<((String, GroupId), Vec<ProcessFacts>)>, records: &Records) -> Vec<SuiteFacts> {
    type Groups<Id> = (Vec<Id>, Vec<Vec<ProcessFacts>>);
    let mut by_command: BTreeMap<String, (Groups<JvmSuiteId>, Groups<SuiteId>)> = BTreeMap::new();
    for ((command, id), processes) in screens {
        let (jvm, native) = by_command.entry(command).or_default();
        match id {
            GroupId::Jvm(id) => {
                for Configured { workers, .. } in configurations(with_settings(processes, records)) {
                    jvm.0.push(id.clone());
                    jvm.1.push(workers);
                }
            }
            GroupId::Native(id) => {
                native.0.push(id);
                native.1.push(processes);
            }
        }
    }
    let mut suites = Vec::new();
    for (command, ((jvm_ids, jvms), (ids, natives))) in by_command {
        let configured = (!command.is_empty()).then_some(command.as_str());
        let names = naming::jvm_suite_names(configured, &jvm_ids).into_iter();
        let names = names.chain(naming::suite_names(configured, &ids));
        suites.extend(names.zip(jvms.into_iter().chain(natives)).map(|(name, screen)| {
            let kind = kind_of(&screen, records);
            SuiteFacts::new(name, kind, screen)
        }));
    }
    suites
}

/// Virtual machines with the settings that the build made for them.
fn with_settings(processes: Vec<ProcessFacts>, records: &Records) -> Vec<(Configuration, ProcessFacts)> {
    let of = |process: ProcessFacts| {
        let record = records.get(&process.stream);
        (record.map(naming::configuration).unwrap_or_default(), process)
    };
    processes.into_iter().map(of).collect()
}

/// The kind of a suite. A process that ran no test does not affect the kind if others ran tests.
fn kind_of(screen: &[ProcessFacts], records: &Records) -> Kind {
    let kinds = screen.iter().filter_map(|process| records.get(&process.stream)).map(Kind::of);
    let kinds: Vec<Kind> = kinds.collect();
    let tests = kinds.iter().find(|kind| **kind != Kind::Program);
    tests.or(kinds.first()).copied().unwrap_or(Kind::Program)
}

/// Adds rounds to their suite; if the screening pass was not copied too, the rounds form a suite alone.
fn add_rounds(suites: &mut Vec<SuiteFacts>, suite: &str, process: ProcessFacts) {
    if !suites.iter().any(|known| known.name == suite) {
        suites.push(SuiteFacts::new(suite.to_owned(), Kind::Junit, Vec::new()));
    }
    let known = suites.iter_mut().find(|known| known.name == suite);
    if let Some(java) = known.map(|known| known.java.get_or_insert_with(JavaFacts::default)) {
        java.rounds.push(process);
    }
}

/// Whether our launcher ended without a test. It does not find some (JUnit 3's, Kotest's): these are judged with their
/// class.
fn ran_no_test(record: &ProcessRecord) -> bool {
    let is_over = record.goodbye.as_ref().is_some_and(|goodbye| goodbye.reason == GoodbyeReason::Exit);
    record.java.is_some() && is_over && record.windows.is_empty() && record.open.is_empty()
}

fn is_judged_with_its_class(suites: &[SuiteFacts], suite: &str, test: &str) -> bool {
    let of_suite = suites.iter().filter(|known| known.name == suite);
    of_suite.flat_map(|known| &known.confirmations).any(|(class, how)| {
        let is_of = test.strip_prefix(class.as_str()).is_some_and(|rest| rest.starts_with('.'));
        is_of && matches!(how, ConfirmationFacts::Repeated(_))
    })
}

/// A confirming run.
struct Repeated {
    suite: String,
    test: String,
    /// Its iterations, if runs of different lengths are compared.
    length: Option<u64>,
    process: ProcessFacts,
}

/// Adds a confirming run to its suite. If the screening pass was not copied too, a run of native tests forms a suite of
/// its own, and a run of Java tests is a confirmation without rounds: its first iterations are no screen.
fn add_repeated(suites: &mut Vec<SuiteFacts>, repeated: Repeated, kind: Kind) {
    let Repeated { suite, test, length, process } = repeated;
    let kind = match (length, kind) {
        (Some(_), _) => Kind::Program,
        // The process should have repeated a test, but recorded none.
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
    match (length, known.confirmations.get_mut(&test)) {
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
            let (suite, test, process) = ("replay".into(), "replay".into(), process(&format!("{n}.mgf")));
            add_repeated(&mut suites, Repeated { suite, test, length: Some(n), process }, Kind::Program);
        }
        assert_eq!(suites.len(), 1, "the first stands for the screen that is missing");
        let Some(ConfirmationFacts::Lengths(runs)) = suites[0].confirmations.get("replay") else {
            panic!("{suites:?}")
        };
        assert_eq!(runs.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [8, 12]);
    }

    #[test]
    fn a_program_that_reports_its_own_tests_has_confirmed_them_all_by_its_second_run() {
        let known = || SuiteFacts::new("api".into(), Kind::Tests, vec![process("screen.mgf")]);
        let mut record = ProcessRecord::default();
        let capabilities = vec![memgate_wire::capability::C_API.to_owned()];
        record.hello = Some(Hello { capabilities, ..Hello::default() });
        let window = |test: &str| Window { suite: "A".into(), test: test.into(), ..Window::default() };
        record.windows = ["a", "b"].repeat(ENOUGH_REPETITIONS).into_iter().map(window).collect();
        record.windows.push(window("seldom"));
        let records = Records::from([("again.mgf".to_owned(), record)]);
        let mut suites = vec![known()];
        add_company(&mut suites, "api", &process("again.mgf"), &records);
        let repeated =
            |test: &str| matches!(suites[0].confirmations.get(test), Some(ConfirmationFacts::Repeated(_)));
        assert!(repeated("A.a") && repeated("A.b") && !repeated("A.seldom"), "{suites:?}");

        // GoogleTest's own tests also ran alone (`memgate_gtest.h`).
        let mut suites = vec![known()];
        suites[0].confirmations.insert("A.a".into(), ConfirmationFacts::Repeated(process("alone.mgf")));
        add_company(&mut suites, "api", &process("again.mgf"), &records);
        let confirmations: Vec<_> = suites[0].confirmations.iter().collect();
        assert!(
            matches!(confirmations[..], [(test, ConfirmationFacts::InCompany { .. })] if test == "A.a"),
            "{confirmations:?}"
        );
    }
}
