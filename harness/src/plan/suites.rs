//! Suites to run: the wrapped command, or those of the configuration.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use memgate_config::{Config, Instrumented, REPETITIONS, Runner, Suite, mistyped_repetitions};

use super::{PlannedInstrumentation, PlannedSuite, Settings, World};
use crate::cli::RunArgs;
use crate::exit::ExpectedError;
use crate::history::upload::secret_variables;
use crate::suite::command::with_count;

pub(super) fn suites(
    settings: &Settings,
    request: &RunArgs,
    world: &World,
) -> Result<Vec<PlannedSuite>, ExpectedError> {
    let config = &settings.config;
    if !request.program.is_empty() {
        if let Some(name) = request.suites.first() {
            return Err(ExpectedError::usage(
                format!(
                    "`--suite {name}` runs the command of memgate.yaml, and there is another one after `--`"
                ),
                "leave out one of them",
            ));
        }
        check_braces(&request.program)?;
        let typed = wrapped(config, request, world);
        return Ok(vec![match of_command(config, &request.program) {
            // Its tests have the names that thresholds and waivers use.
            Some(suite) => PlannedSuite {
                command: typed.command,
                repeating: typed.repeating,
                ..configured(config, suite, request, world)
            },
            None => typed,
        }]);
    }
    let file = settings.file.clone().ok_or_else(|| ExpectedError::NothingToRun("memgate.yaml".into()))?;
    let known: Vec<String> = (config.suites.iter().map(|suite| suite.name.clone()))
        .chain(config.instrumented.iter().map(|suite| suite.name.clone()))
        .collect();
    if known.is_empty() {
        return Err(ExpectedError::NoSuites(file));
    }
    if let Some(name) = request.suites.iter().find(|name| !known.contains(name)) {
        return Err(ExpectedError::UnknownSuite { name: name.clone(), file, known });
    }
    let chosen = config.suites.iter().filter(|suite| is_chosen(config, request, &suite.name));
    Ok(chosen.map(|suite| configured(config, suite, request, world)).collect())
}

/// The requested suites on devices.
pub(super) fn instrumented(
    settings: &Settings,
    request: &RunArgs,
    world: &World,
) -> Vec<PlannedInstrumentation> {
    let chosen = |suite: &&Instrumented| is_chosen(&settings.config, request, &suite.name);
    // Only the Test Orchestrator knows this argument.
    let clears = |(name, value): &&(String, String)| name == "clearPackageData" && value == "true";
    let complete = |paths: &[PathBuf]| paths.iter().map(|path| world.directory.join(path)).collect();
    let planned = |suite: &Instrumented| PlannedInstrumentation {
        clear_data: suite.process_per_test && suite.arguments.iter().any(|argument| clears(&argument)),
        timeout: request.timeout.or(suite.timeout).unwrap_or(settings.config.measure.timeout),
        suite: Instrumented {
            devices: request.on().unwrap_or_else(|| suite.devices.clone()),
            apks: complete(&suite.apks),
            mapping: complete(&suite.mapping),
            ..suite.clone()
        },
    };
    settings.config.instrumented.iter().filter(chosen).map(planned).collect()
}

/// Sources of symbols for all suites: a library is identified by its build id, whichever suite named its file.
pub(super) fn symbols(config: &Config, request: &RunArgs, world: &World) -> Vec<PathBuf> {
    let programs = config.suites.iter().map(|suite| (&suite.name, &suite.symbols));
    let on_devices = config.instrumented.iter().map(|suite| (&suite.name, &suite.symbols));
    let chosen = |(name, _): &(&String, _)| is_chosen(config, request, name);
    let configured = programs.chain(on_devices).filter(chosen).flat_map(|(_, symbols)| symbols);
    let all = request.symbols.iter().cloned().chain(configured.map(|path| world.directory.join(path)));
    all.collect::<BTreeSet<PathBuf>>().into_iter().collect()
}

/// Whether the request runs this suite.
pub(super) fn is_chosen(config: &Config, request: &RunArgs, suite: &str) -> bool {
    if !request.program.is_empty() {
        return of_command(config, &request.program).is_some_and(|typed| typed.name == suite);
    }
    request.suites.is_empty() || request.suites.iter().any(|name| name == suite)
}

/// The suite that a typed command runs: the same command in the same place, apart from what it prints. `None` also if
/// this is true of several.
fn of_command<'c>(config: &'c Config, typed: &[OsString]) -> Option<&'c Suite> {
    let typed: Vec<&str> = typed.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    let typed = without_output(&typed);
    let is_same = |suite: &&Suite| {
        let run: Vec<&str> = suite.run.iter().map(String::as_str).collect();
        suite.cwd.is_none() && suite.env.is_empty() && without_output(&run) == typed
    };
    let mut same = config.suites.iter().filter(is_same);
    same.next().filter(|_| same.next().is_none())
}

/// Options of build tools that change only what is printed.
const OF_OUTPUT: [(&[&str], &[&str]); 3] = [
    (
        &["ctest"],
        &["--output-on-failure", "-V", "--verbose", "-VV", "--extra-verbose", "--no-compress-output"],
    ),
    (
        &["mvn", "mvnw", "mvnd"],
        &["-B", "--batch-mode", "-ntp", "--no-transfer-progress", "-e", "--errors", "-q", "--quiet"],
    ),
    (&["gradle", "gradlew"], &["--console=plain", "-q", "--quiet", "-i", "--info", "-s", "--stacktrace"]),
];

/// A command without such options.
fn without_output<'w>(command: &[&'w str]) -> Vec<&'w str> {
    let name = command.first().and_then(|program| program.rsplit('/').next()).unwrap_or_default();
    let of_tool = OF_OUTPUT.iter().find(|(tools, _)| tools.contains(&name));
    let options = of_tool.map_or(&[][..], |(_, options)| options);
    command.iter().copied().filter(|word| !options.contains(word)).collect()
}

/// Shells and other programs for which `{n}` has a meaning of its own.
const OWN_BRACES: [&str; 9] = ["sh", "bash", "dash", "zsh", "ksh", "fish", "xargs", "find", "parallel"];

/// The arguments in which `{n}` may stand for the number of repetitions.
fn arguments(command: &[OsString]) -> &[OsString] {
    let Some((program, arguments)) = command.split_first() else { return &[] };
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    if OWN_BRACES.contains(&&*name) { &[] } else { arguments }
}

/// A mistyped `{n}` would leave the program's work unrepeated, and what only its end frees would pass.
fn check_braces(command: &[OsString]) -> Result<(), ExpectedError> {
    for argument in arguments(command) {
        let argument = argument.to_string_lossy();
        if let Some(mistyped) = mistyped_repetitions(&argument) {
            return Err(ExpectedError::Usage {
                what: format!("`{mistyped}` in `{argument}` is not the number of repetitions"),
                hint: "write `{n}`; if the program itself needs it, start the program by a script".into(),
            });
        }
    }
    Ok(())
}

/// The command, if one of its arguments contains the number of repetitions.
fn repeating(command: &[OsString]) -> Option<Vec<String>> {
    let repeats = |argument: &OsString| argument.to_string_lossy().contains(REPETITIONS);
    if !arguments(command).iter().any(repeats) {
        return None;
    }
    command.iter().map(|argument| argument.to_str().map(str::to_owned)).collect()
}

fn wrapped(config: &Config, request: &RunArgs, world: &World) -> PlannedSuite {
    let repeating = repeating(&request.program);
    let command = match &repeating {
        Some(arguments) => with_count(arguments, 1).into_iter().map(OsString::from).collect(),
        None => request.program.clone(),
    };
    PlannedSuite {
        name: None,
        command,
        directory: None,
        environment: Vec::new(),
        secrets: secret_variables(config),
        runner: if repeating.is_some() { Runner::Command } else { Runner::Auto },
        repeating,
        targets: request
            .targets
            .iter()
            .map(|glob| glob.absolute(&world.directory.to_string_lossy()))
            .collect(),
        timeout: request.timeout.unwrap_or(config.measure.timeout),
        mapping: Vec::new(),
        heap: None,
    }
}

fn configured(config: &Config, suite: &Suite, request: &RunArgs, world: &World) -> PlannedSuite {
    let directory = suite.cwd.as_ref().map(|cwd| world.directory.join(cwd));
    let globs_start = directory.as_ref().unwrap_or(&world.directory).to_string_lossy().into_owned();
    let targets = (suite.targets.iter().map(|target| target.absolute(&globs_start)))
        .chain(request.targets.iter().map(|glob| glob.absolute(&world.directory.to_string_lossy())));
    PlannedSuite {
        name: Some(suite.name.clone()),
        command: suite.command(1).into_iter().map(OsString::from).collect(),
        repeating: suite.repeats().then(|| suite.run.clone()),
        directory,
        environment: suite.env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        secrets: secret_variables(config),
        runner: suite.runner,
        targets: targets.collect(),
        timeout: request.timeout.or(suite.timeout).unwrap_or(config.measure.timeout),
        mapping: suite.mapping.iter().map(|path| world.directory.join(path)).collect(),
        heap: suite.heap.clone().map(|mut heap| {
            heap.rules.iter_mut().for_each(|path| *path = world.directory.join(&*path));
            heap
        }),
    }
}
