//! Checks before anything starts: a mistake in the last suite is reported at once.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::runners;
use crate::agent::embedded::EmbeddedError;
use crate::exit::ExpectedError;
use crate::names::{Mappings, OfSuite};
use crate::plan::{Plan, PlannedInstrumentation, PlannedSuite};
use crate::suite::{InspectError, Program, inspect};

/// Open files that a run needs.
const FEWEST_FILES: u64 = 32;

/// The programs of all suites.
pub(super) fn programs(plan: &Plan) -> Result<Vec<Program>, ExpectedError> {
    let here =
        std::env::current_dir().map_err(ExpectedError::file("find", "the working directory".as_ref()))?;
    plan.suites.iter().map(|suite| program(suite, &here)).collect()
}

fn program(suite: &PlannedSuite, here: &Path) -> Result<Program, ExpectedError> {
    let typed: OsString = suite.command.first().cloned().unwrap_or_default();
    let name = suite.name.as_ref().map_or_else(String::new, |name| format!(" (suite {name})"));
    let wrong = |why: String, hint: &str| ExpectedError::Program {
        program: typed.to_string_lossy().into_owned(),
        why: format!("{why}{name}"),
        hint: hint.to_owned(),
    };
    let folder = runners::start_folder(suite, here);
    let mut program = inspect(&typed, runners::search_path(suite).as_deref(), folder).map_err(|why| {
        let (text, hint) = match &why {
            InspectError::NoFile(_) if !folder.is_dir() => {
                (format!("there is no working directory {}", folder.display()), "correct `cwd` of the suite")
            }
            InspectError::NoFile(_) if typed.to_string_lossy().contains(' ') => {
                ("no such file".to_owned(), "each argument is an item of its own: [build/tests, \"--fast\"]")
            }
            InspectError::NoFile(_) => {
                ("no such file".to_owned(), "is it built? Relative paths start in the working directory")
            }
            InspectError::NotInPath(_) if folder.join(&typed).exists() => {
                ("it is not in PATH".to_owned(), "a program of this folder is called with `./`")
            }
            InspectError::NotInPath(_) => ("it is not in PATH".to_owned(), "is it installed?"),
            InspectError::NotAProgram { what, .. } => (format!("it is {what}"), ""),
            InspectError::Read { source, .. } => (source.to_string(), ""),
        };
        wrong(text, hint)
    })?;
    // The agent compares the path with /proc/self/exe.
    program.path = std::fs::canonicalize(&program.path).map_err(|why| wrong(why.to_string(), ""))?;
    Ok(program)
}

/// With fewer, the runtime cannot even start. memgate does not raise the limit: the tests would then run with another
/// limit than without memgate.
pub(super) fn enough_files() -> Result<(), ExpectedError> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match limit {
        Some(limit) if limit < FEWEST_FILES => Err(ExpectedError::Machinery {
            what: format!("{limit} open files are allowed here, memgate needs {FEWEST_FILES}"),
            hint: format!("`ulimit -n {FEWEST_FILES}` or more"),
        }),
        _ => Ok(()),
    }
}

/// The mapping files of the suites that run.
pub(super) fn mappings(plan: &Plan) -> Result<Mappings, ExpectedError> {
    let programs = plan.suites.iter().filter_map(|PlannedSuite { name, mapping, .. }| {
        Some(OfSuite { suite: name.as_deref()?, mapping, apks: &[] })
    });
    let on_devices = plan.instrumented.iter().map(|PlannedInstrumentation { suite, .. }| OfSuite {
        suite: &suite.name,
        mapping: &suite.mapping,
        apks: &suite.apks,
    });
    Mappings::for_run(&plan.mapping, programs.chain(on_devices))
}

/// The Java part, where a suite needs it.
pub(super) fn jars(plan: &Plan, programs: &[Program]) -> Result<Option<PathBuf>, ExpectedError> {
    if !plan.suites.iter().zip(programs).any(|(suite, program)| runners::is_java(suite, program)) {
        return Ok(None);
    }
    match crate::agent::embedded::jars() {
        Ok(jars) => Ok(Some(jars)),
        Err(why @ EmbeddedError::NoJava) => Err(ExpectedError::Missing {
            what: format!("failed to {why}"),
            hint: "install a JDK (its javac in PATH, or JAVA_HOME) and build memgate again".to_owned(),
        }),
        Err(why) => Err(ExpectedError::failed_with_hint(&why, "`memgate doctor` says more")),
    }
}
