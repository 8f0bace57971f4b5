//! The facts of a run that are not in its frames: which stream belongs to which suite and test, how processes ended,
//! what failed. Kept in `session.json`, so that `memgate gate` judges a session exactly like `memgate run`.
//!
//! Data flow: screening and confirming fill [`Facts`]; [`Facts::input`] joins them with the records of the streams into
//! the `RunInput` of `analysis`. Facts contain no environment and no secret.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use memgate_analysis::{
    ConfirmationInput, Ending, JavaInput, OpenTest, ProcessInput, ProcessRecord, Repetition, RunInput,
    SuiteInput, Window,
};
use memgate_model::{AppMemory, BoundaryQuality, HeapCheck, Hunt, Origin, Problem, Runner};
use memgate_wire::Outcome;
use serde::{Deserialize, Serialize};

use crate::exit::{ExpectedError, chain};
use crate::session::Session;

const VERSION: u32 = 1;

/// The facts of a run that are not in its frames.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Version of this format.
    pub version: u32,
    /// Name of the project.
    pub project: String,
    /// Name of the session folder.
    pub session: String,
    /// When it began, RFC 3339 with zone.
    pub started: String,
    /// How long it took, seconds.
    pub duration_s: f64,
    /// Whether only part of the tests was requested.
    pub partial: bool,
    /// Whether the run is a shard, which may contain no suite.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_be_empty: bool,
    /// Whether the run was ended before it was complete. Such a run has no facts of its own: they are those of its
    /// streams.
    #[serde(skip)]
    pub ended_early: bool,
    /// Exit status of the wrapped command (128 + signal if it was killed); with several commands, the first that is not
    /// 0.
    pub command_status: Option<i32>,
    /// Commit, CI job, machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Folder of the checked-out project: paths inside it are relative to it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub root: String,
    /// The suites, in the order they ran.
    pub suites: Vec<SuiteFacts>,
    /// Errors outside of the suites.
    pub errors: Vec<Problem>,
}

/// One suite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SuiteFacts {
    /// Its name in reports.
    pub name: String,
    /// The runner of its tests.
    pub runner: Runner,
    /// How exactly its boundaries are known.
    pub boundary: BoundaryQuality,
    /// How long the screening pass took, seconds.
    pub screened_s: f64,
    /// Its processes in the screening pass.
    pub screen: Vec<ProcessFacts>,
    /// Processes that took the stacks of survivors, if the screening pass did not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<ProcessFacts>,
    /// For a JVM suite: its rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub java: Option<JavaFacts>,
    /// Results of running suspects again, by test id.
    pub confirmations: BTreeMap<String, ConfirmationFacts>,
    /// Duration of repetitions that were ended without a result, seconds. Their processes are in no confirmation.
    #[serde(default)]
    pub lost_s: f64,
    /// The tests that `--hunt` repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hunt: Option<Hunt>,
    /// Its heap dumps that were read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heap: Vec<HeapCheck>,
    /// Whether `--filter` also selects tests whose programs get a filter as an argument (`ctest`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_filter: bool,
    /// Why it could not be measured as a whole.
    pub problems: Vec<Problem>,
}

impl JavaFacts {
    /// `screen: off`.
    #[must_use]
    pub fn off() -> Self {
        Self { not_screened: Some("`screen: off`".to_owned()), is_off: true, ..Self::default() }
    }
}

/// How a JVM suite was screened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JavaFacts {
    /// The processes that ran its tests in rounds.
    pub rounds: Vec<ProcessFacts>,
    /// Why there were none, if that was intended.
    pub not_screened: Option<String>,
    /// Classes with no more survivors than the baseline.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unchanged: BTreeSet<String>,
    /// Classes that cannot be repeated, with their behaviour: `hangs`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub breaking: BTreeMap<String, String>,
    /// How long the rounds took that such classes ended, seconds.
    #[serde(default)]
    pub broken_off_s: f64,
    /// Whether screening was switched off: nothing is judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_off: bool,
    /// Limits of this kind of run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<String>,
    /// Whether native memory of its libraries must not be judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub native_is_off: bool,
    /// Failures of the user's own that no test explains.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub failures: BTreeSet<String>,
    /// Android's answer about the app's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_memory: Option<AppMemory>,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessFacts {
    /// File name of its stream in `frames/`.
    pub stream: String,
    /// How it ended.
    pub ending: EndingFacts,
    /// The test that the whole process is, in a suite with several tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_test: Option<String>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndingFacts {
    /// It was not waited for.
    Unknown,
    /// With this status.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// The harness ended it because a test ran longer than this many seconds.
    TimedOut(f64),
}

/// The result of running a suspect again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmationFacts {
    /// Alone, repeated in one process.
    Repeated(ProcessFacts),
    /// Alone, and with the tests around it; or why the latter failed.
    InCompany {
        /// The run alone.
        alone: ProcessFacts,
        /// The run with the others; several tests may share it.
        together: Result<ProcessFacts, String>,
    },
    /// Several runs with different numbers of repetitions.
    Lengths(Vec<(u64, ProcessFacts)>),
    /// Later tests freed all its survivors, and there was no time to confirm it.
    FreedSince,
    /// It cannot be repeated; why.
    Impossible(String),
    /// memgate's own run of it broke; why.
    Broken(String),
    /// It could not be screened; why.
    Unscreened(String),
}

impl Facts {
    /// The facts of a run that begins now.
    #[must_use]
    pub fn new(project: &str, session: &str, started: String) -> Self {
        Self {
            version: VERSION,
            project: project.to_owned(),
            session: session.to_owned(),
            started,
            ..Self::default()
        }
    }

    /// Notes how one wrapped command ended.
    pub fn command_ended(&mut self, status: i32) {
        if self.command_status.is_none_or(|before| before == 0) {
            self.command_status = Some(status);
        }
    }

    /// Reads the facts of a session; `None`: the run ended before it wrote them.
    ///
    /// # Errors
    /// When they exist but cannot be read.
    pub fn load(session: &Session) -> Result<Option<Self>, ExpectedError> {
        let wrong = |why: String| ExpectedError::session(session.folder().to_owned(), why, "");
        let info = session.info().map_err(|why| wrong(chain(&why)))?;
        if info.run.is_null() {
            return Ok(None);
        }
        match info.run.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            other => {
                let found =
                    other.map_or_else(|| "no version".to_owned(), |version| format!("version {version}"));
                return Err(wrong(format!(
                    "what it says of its run has {found}, this memgate reads version {VERSION}"
                )));
            }
        }
        serde_json::from_value(info.run).map(Some).map_err(|why| wrong(why.to_string()))
    }

    /// Writes them into the session.
    ///
    /// # Errors
    /// When the session cannot be written.
    pub fn save(&self, session: &Session) -> Result<(), ExpectedError> {
        let mut info = session.info().map_err(|why| ExpectedError::failed(&why))?;
        info.project.clone_from(&self.project);
        info.run = serde_json::to_value(self).map_err(|why| ExpectedError::failed(&why))?;
        session.write_info(&info).map_err(|why| ExpectedError::failed(&why))
    }

    /// The names of all streams, to set their paths.
    pub fn streams_mut(&mut self) -> impl Iterator<Item = &mut String> {
        self.suites.iter_mut().flat_map(|suite| {
            let rounds = suite.java.iter_mut().flat_map(|java| &mut java.rounds);
            let confirming = suite.confirmations.values_mut().flat_map(ConfirmationFacts::processes_mut);
            suite
                .screen
                .iter_mut()
                .chain(&mut suite.stacks)
                .chain(rounds)
                .chain(confirming)
                .map(|process| &mut process.stream)
        })
    }

    /// The input of the judge: the facts with the record of each stream, which `record` reads.
    pub fn input(&self, mut record: impl FnMut(&str) -> ProcessRecord) -> RunInput {
        RunInput {
            project: self.project.clone(),
            session: self.session.clone(),
            started: self.started.clone(),
            duration: seconds(self.duration_s),
            partial: self.partial,
            may_be_empty: self.may_be_empty,
            ended_early: self.ended_early,
            command_status: self.command_status,
            suites: self.suites.iter().map(|suite| suite.input(&mut record)).collect(),
            origin: self.origin.clone(),
            errors: self.errors.clone(),
        }
    }
}

/// The kind of a suite. It alone decides the runner and how exactly boundaries are known, in a live run and for
/// recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Native tests whose process reports boundaries.
    Tests,
    /// The process is the test.
    Program,
    /// JUnit, with the agent in the build's own virtual machines.
    Junit,
    /// JUnit without the agent, known from the results that the build wrote.
    JunitObserved,
    /// Instrumented tests of an Android app.
    Instrumentation,
}

impl Kind {
    /// The kind of the process of a record.
    #[must_use]
    pub fn of(record: &ProcessRecord) -> Self {
        let tests = |w: &Window| !w.suite.is_empty() || !w.test.is_empty();
        let tests = record.windows.iter().any(tests) || record.open.iter().any(|open| tests(&open.window));
        match &record.java {
            Some(java) if java.jvm.is_some() || tests => {
                // Only an agent's hello lists capabilities.
                let told = record.hello.as_ref().is_some_and(|hello| !hello.capabilities.is_empty());
                if told { Self::Junit } else { Self::JunitObserved }
            }
            // A filter may leave GoogleTest without a test.
            _ if tests || record.iterations > 0 => Self::Tests,
            _ => Self::Program,
        }
    }

    const fn runner(self) -> Runner {
        match self {
            Self::Tests => Runner::Gtest,
            Self::Program => Runner::Command,
            Self::Junit | Self::JunitObserved => Runner::Junit,
            Self::Instrumentation => Runner::Instrumentation,
        }
    }

    const fn boundary(self) -> BoundaryQuality {
        match self {
            Self::Tests | Self::Instrumentation => BoundaryQuality::Exact,
            Self::Program => BoundaryQuality::Process,
            Self::Junit => BoundaryQuality::Class,
            Self::JunitObserved => BoundaryQuality::Observed,
        }
    }

    const fn is_java(self) -> bool {
        matches!(self, Self::Junit | Self::JunitObserved | Self::Instrumentation)
    }
}

impl SuiteFacts {
    /// The facts of a suite that ran in these processes; further facts are added later.
    #[must_use]
    pub fn new(name: String, kind: Kind, screen: Vec<ProcessFacts>) -> Self {
        Self {
            name,
            runner: kind.runner(),
            boundary: kind.boundary(),
            screened_s: 0.0,
            screen,
            stacks: Vec::new(),
            java: kind.is_java().then(JavaFacts::default),
            confirmations: BTreeMap::new(),
            lost_s: 0.0,
            hunt: None,
            heap: Vec::new(),
            takes_filter: false,
            problems: Vec::new(),
        }
    }

    fn input(&self, record: &mut impl FnMut(&str) -> ProcessRecord) -> SuiteInput {
        let screen = self.screen.iter().map(|process| self.held(process.input(record)));
        let mut screen: Vec<ProcessInput> = screen.collect();
        let stacks: Vec<ProcessInput> = self.stacks.iter().map(|process| process.input(record)).collect();
        let runs: Vec<&ProcessRecord> = stacks.iter().map(|run| &run.record).collect();
        for process in &mut screen {
            (1..=runs.len()).for_each(|n| memgate_analysis::complete(&mut process.record, &runs[..n]));
        }
        let mut known = Known::default();
        SuiteInput {
            name: self.name.clone(),
            runner: self.runner,
            boundary: self.boundary,
            screened: seconds(self.screened_s),
            screen,
            stacks,
            confirmations: self
                .confirmations
                .iter()
                .map(|(test, c)| (test.clone(), c.input(&mut known, record)))
                .collect(),
            takes_filter: self.takes_filter,
            problems: self.problems.clone(),
            java: self.java.as_ref().map(|java| JavaInput {
                rounds: java.rounds.iter().map(|process| process.input(record)).collect(),
                not_screened: java.not_screened.clone(),
                unchanged: java.unchanged.clone(),
                breaking: java.breaking.clone(),
                broken_off: seconds(java.broken_off_s),
                is_off: java.is_off,
                limits: java.limits.clone(),
                native_is_off: java.native_is_off,
                failures: java.failures.clone(),
            }),
            lost: seconds(self.lost_s),
            hunt: self.hunt.clone(),
            app_memory: self.java.as_ref().and_then(|java| java.app_memory.clone()),
            heap: self.heap.clone(),
        }
    }

    /// Adds the findings of the heap dump for each time that memory ran out.
    fn held(&self, mut process: ProcessInput) -> ProcessInput {
        let dumps = self.heap.iter().flat_map(|heap| &heap.dumps);
        let exhausted = process.record.java.iter_mut().flat_map(|java| &mut java.exhausted);
        for exhaustion in exhausted {
            let of_it = dumps.clone().find(|dump| exhaustion.dump.as_ref() == Some(&dump.path));
            if let Some(dump) = of_it {
                exhaustion.held = match &dump.seen {
                    Ok(seen) => seen.held.clone(),
                    Err(why) => format!("the heap dump {why}"),
                };
                exhaustion.dump.clone_from(&dump.kept);
            }
        }
        process
    }
}

impl ProcessFacts {
    /// Its record, and how it ended.
    pub fn input(&self, record: &mut impl FnMut(&str) -> ProcessRecord) -> ProcessInput {
        let ending = match self.ending {
            EndingFacts::Unknown => Ending::Unknown,
            EndingFacts::Exited(status) => Ending::Exited(status),
            EndingFacts::Signalled(signal) => Ending::Signalled(signal),
            EndingFacts::TimedOut(after) => Ending::TimedOut(seconds(after)),
        };
        let mut record = record(&self.stream);
        if let Some(test) = &self.as_test {
            become_test(&mut record, test, &self.ending);
        }
        ProcessInput { record, ending }
    }
}

/// Processes by their stream: one may have repeated many tests.
#[derive(Default)]
struct Known(BTreeMap<(String, Option<String>), Arc<ProcessInput>>);

impl Known {
    fn of(
        &mut self,
        process: &ProcessFacts,
        record: &mut impl FnMut(&str) -> ProcessRecord,
    ) -> Arc<ProcessInput> {
        let known = self.0.entry((process.stream.clone(), process.as_test.clone()));
        Arc::clone(known.or_insert_with(|| Arc::new(process.input(record))))
    }
}

impl ConfirmationFacts {
    fn processes_mut(&mut self) -> Vec<&mut ProcessFacts> {
        match self {
            Self::Repeated(process) => vec![process],
            Self::InCompany { alone, together } => {
                std::iter::once(alone).chain(together.as_mut().ok()).collect()
            }
            Self::Lengths(runs) => runs.iter_mut().map(|(_, process)| process).collect(),
            Self::FreedSince | Self::Impossible(_) | Self::Broken(_) | Self::Unscreened(_) => Vec::new(),
        }
    }

    fn input(&self, known: &mut Known, record: &mut impl FnMut(&str) -> ProcessRecord) -> ConfirmationInput {
        match self {
            Self::Repeated(process) => ConfirmationInput::Repeated(known.of(process, record)),
            Self::InCompany { alone, together } => ConfirmationInput::InCompany {
                alone: known.of(alone, record),
                together: match together {
                    Ok(process) => Ok(known.of(process, record)),
                    Err(why) => Err(why.clone()),
                },
            },
            Self::Lengths(runs) => ConfirmationInput::Lengths(
                runs.iter()
                    .map(|(n, process)| Repetition { n: *n, process: process.input(record) })
                    .collect(),
            ),
            Self::FreedSince => ConfirmationInput::FreedSince,
            Self::Impossible(why) => ConfirmationInput::Impossible(why.clone()),
            Self::Broken(why) => ConfirmationInput::Broken(why.clone()),
            Self::Unscreened(why) => ConfirmationInput::Unscreened(why.clone()),
        }
    }
}

/// A problem in `where`.
pub(crate) fn problem(r#where: &str, what: String, hint: &str) -> Problem {
    Problem { r#where: r#where.to_owned(), what, hint: hint.to_owned() }
}

/// Makes a whole process one execution of `test`.
fn become_test(record: &mut ProcessRecord, test: &str, ending: &EndingFacts) {
    let mut window = Window::of_process(record, test, record.end.as_ref());
    if record.end.is_none() {
        record.open = vec![OpenTest { id: test.to_owned(), window }];
        return;
    }
    let status = match ending {
        EndingFacts::Exited(status) => Some(*status),
        _ => record.goodbye.as_ref().and_then(|goodbye| goodbye.status),
    };
    window.outcome = status.map(|status| if status == 0 { Outcome::Passed } else { Outcome::Failed });
    record.windows = vec![window];
}

/// Seconds from a file: invalid durations read as zero.
fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use memgate_analysis::ProcessEnd;

    use super::*;

    fn process(stream: &str, ending: EndingFacts) -> ProcessFacts {
        ProcessFacts { stream: stream.to_owned(), ending, as_test: None }
    }

    fn facts() -> Facts {
        let mut facts = Facts::new("tiles", "s1", "2026-11-21T10:00:00+00:00".into());
        facts.suites.push(SuiteFacts {
            name: "engine".into(),
            runner: Runner::Gtest,
            boundary: BoundaryQuality::Exact,
            screened_s: 1.5,
            stacks: vec![process("4-1.mgf", EndingFacts::Exited(0))],
            screen: vec![process("1-1.mgf", EndingFacts::TimedOut(60.0))],
            java: Some(JavaFacts {
                rounds: vec![process("3-1.mgf", EndingFacts::Exited(0))],
                ..JavaFacts::default()
            }),
            confirmations: BTreeMap::from([
                ("A.b".into(), ConfirmationFacts::Repeated(process("2-1.mgf", EndingFacts::Exited(0)))),
                ("A.c".into(), ConfirmationFacts::Broken("no".into())),
            ]),
            lost_s: 0.0,
            hunt: Some(Hunt { of: 3, repeated: 2, ..Hunt::default() }),
            heap: Vec::new(),
            takes_filter: false,
            problems: Vec::new(),
        });
        facts
    }

    fn session(root: &std::path::Path) -> Session {
        Session::create(root, &crate::session::SessionInfo::now(vec!["memgate".into()], "1.0.0")).unwrap()
    }

    #[test]
    fn a_session_keeps_what_the_frames_do_not_say() {
        let root = tempfile::tempdir().unwrap();
        let session = session(root.path());
        assert_eq!(Facts::load(&session).unwrap(), None, "a run that was ended early says nothing");
        facts().save(&session).unwrap();
        assert_eq!(Facts::load(&session).unwrap(), Some(facts()));
        assert_eq!(session.info().unwrap().project, "tiles");
    }

    #[test]
    fn facts_of_another_version_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let session = session(root.path());
        Facts { version: 2, ..facts() }.save(&session).unwrap();
        let error = Facts::load(&session).unwrap_err().to_string();
        assert!(error.ends_with("has version 2, this memgate reads version 1"), "{error}");
    }

    #[test]
    fn every_stream_finds_its_place_in_what_is_judged() {
        let mut read = Vec::new();
        let input = facts().input(|stream| {
            read.push(stream.to_owned());
            ProcessRecord::default()
        });
        assert_eq!(read, ["1-1.mgf", "4-1.mgf", "2-1.mgf", "3-1.mgf"]);
        assert_eq!(input.suites[0].screen[0].ending, Ending::TimedOut(Duration::from_secs(60)));
        assert!(matches!(input.suites[0].confirmations["A.c"], ConfirmationInput::Broken(_)));
    }

    #[test]
    fn a_process_can_be_one_test_of_several() {
        let end = ProcessEnd { t_ns: 9, survivor_count: 2, ..ProcessEnd::default() };
        let mut record = ProcessRecord::default();
        record.end = Some(end);
        let facts = |ending| ProcessFacts { as_test: Some("A.b".into()), ..process("1-1.mgf", ending) };
        for (ending, outcome) in [(0, Outcome::Passed), (1, Outcome::Failed)] {
            let input = facts(EndingFacts::Exited(ending)).input(&mut |_| record.clone());
            let window = &input.record.windows[0];
            assert_eq!(
                (window.id(), window.outcome, window.survivor_count),
                ("A.b".into(), Some(outcome), 2)
            );
        }
        let gone = facts(EndingFacts::Signalled(11)).input(&mut |_| ProcessRecord::default());
        assert_eq!(gone.record.open[0].id, "A.b", "one that broke off did not end");
    }

    #[test]
    fn the_first_failing_command_is_the_one_that_counts() {
        let mut facts = facts();
        for (status, kept) in [(0, 0), (8, 8), (0, 8), (2, 8)] {
            facts.command_ended(status);
            assert_eq!(facts.command_status, Some(kept));
        }
    }
}
