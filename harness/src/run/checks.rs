//! Checks before anything starts: a mistake in the last suite is reported at once.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::runners;
use crate::agent::embedded::{EmbeddedError, android_agents};
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

/// What keeps the suites of a plan from running on this machine: everything, not only the first.
pub(crate) fn faults(plan: &Plan, here: &Path) -> Vec<ExpectedError> {
    let programs = plan.suites.iter().filter_map(|suite| program(suite, here).err());
    let mut faults: Vec<_> = programs.collect();
    for PlannedInstrumentation { suite, .. } in &plan.instrumented {
        let name = &suite.name;
        let missing_apks = suite.apks.iter().filter(|apk| !apk.is_file());
        faults.extend(missing_apks.map(|apk| {
            ExpectedError::missing(
                format!("{}: no such file (suite {name})", apk.display()),
                "is it built? Relative paths start in the working directory",
            )
        }));
        if let Some(why) = android_agents().err().filter(|_| !suite.packaged) {
            faults.push(ExpectedError::missing(
                format!("{why} (suite {name})"),
                "build the agent for Android and name its folder: `memgate docs android`",
            ));
        }
    }
    faults
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

#[cfg(test)]
mod tests {
    use memgate_config::Config;

    use super::*;
    use crate::cli::RunArgs;
    use crate::plan::{Settings, World, plan};

    #[test]
    fn everything_that_keeps_a_suite_from_running_is_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        std::fs::write(here.join("test.apk"), "").unwrap();
        let yaml = "version: 1
suites:
  shell: { run: [sh] }
  gone: { run: [build/gone_tests] }
  nowhere: { run: [program-that-nobody-has] }
  app: { runner: instrumentation, package: a.test, agent: packaged, apks: [app.apk, test.apk] }
";
        let config = Config::parse(yaml, "memgate.yaml", &|_| None, None).unwrap();
        let settings =
            Settings { config, file: Some("memgate.yaml".into()), root: here.into(), baseline: None };
        let world = World {
            today: jiff::civil::date(2026, 11, 21),
            directory: here.into(),
            project: here.into(),
            narrowing: Vec::new(),
        };
        let plan = plan(&settings, &RunArgs::default(), &world).unwrap();
        let faults: Vec<String> = faults(&plan, here).iter().map(ToString::to_string).collect();
        let [gone, nowhere, apk] = faults.as_slice() else { panic!("{faults:?}") };
        assert!(gone.contains("build/gone_tests") && gone.contains("no such file (suite gone)"), "{gone}");
        assert!(nowhere.contains("it is not in PATH (suite nowhere)"), "{nowhere}");
        assert!(apk.ends_with("/app.apk: no such file (suite app)"), "{apk}");
    }
}
