//! Selects the part of a command that this shard (`--partition`) or the filter of the run selects, for the project as
//! it is.
//!
//! Data flow: planned suite → its units, listed by the program itself, by `ctest` or by the test sources →
//! [`ThisShard`](crate::run::this_shard::ThisShard) selects those of this shard → the same suite with a selection added
//! to its command, or nothing.
//!
//! | command | unit | how units are selected |
//! |---|---|---|
//! | GoogleTest executable | test | a filter; a long one in a flag file |
//! | `ctest` | test of ctest | their numbers, in a file |
//! | Maven, Gradle | test class | a file of the classes that are left out |
//! | plain program | the suite | it runs, or it does not |
//!
//! Other commands cannot be divided: next to other suites, each is one unit; alone, it is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use memgate_config::nearest;
use memgate_history::shards::UnitKind;
use memgate_launch::{Ended, Launch, Stream, output};
use memgate_model::Problem;

use super::choose::{Choice, Mode};
use super::framework::Suite;
use super::gtest::LIST_TIMEOUT;
use super::junit::root as project_folder;
use crate::exit::{ExpectedError, chain, failed_to};
use crate::origin;
use crate::plan::PlannedSuite;
use crate::run::engine::{Context, Stopped, launch, typed};
use crate::run::this_shard::ThisShard;
use crate::session::facts::{Facts, problem};
use crate::suite::ctest::CtestTest;
use crate::suite::gtest::{self, SuiteId};
use crate::suite::junit::sources::{
    TestSources, chosen_modules, gradle_excludes, names_excludes, surefire_excludes, test_sources,
};
use crate::suite::{Program, ctest, inspect, junit};

/// A longer filter (in bytes) is written to a file: an argument of a program is limited to 128 KiB.
const LONGEST_FILTER: usize = 100_000;
/// Maximum kept bytes of a listing.
const LIST_BYTES: usize = 64 << 20;

/// The part of a suite that this shard runs.
#[derive(Debug)]
pub(super) struct Selected {
    /// The suite with the selection in its command.
    pub(super) planned: PlannedSuite,
    /// Known suites of the whole run: names depend on them.
    pub(super) known: Known,
    /// GoogleTest: the tests that must run.
    pub(super) tests: Vec<String>,
    /// `ctest`: whether a test that must run is known to start a GoogleTest executable.
    pub(super) starts_tests: bool,
}

/// Suites of one command that may run in other shards, or in a run without a filter.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// GoogleTest executables.
    pub(super) programs: BTreeSet<SuiteId>,
    /// Modules with test classes.
    pub(super) modules: Vec<PathBuf>,
}

/// Selects the part of a suite; `None`: this shard runs nothing of it, or the filter selects nothing (an error).
pub(super) async fn selected(
    context: &Context<'_>,
    planned: &PlannedSuite,
    (program, choice): (&Program, &Choice),
    facts: &mut Facts,
) -> Result<Option<Selected>, Stopped> {
    let Some(shard) = context.this_shard else {
        let mut selected = all(planned);
        match &context.plan.filter {
            Some(filter) if choice.mode == Mode::Tree && ctest::is_ctest(&planned.command) => {
                if let Err(none) = filter_ctest(context, planned, filter, &mut selected).await? {
                    facts.errors.push(none);
                    return Ok(None);
                }
            }
            Some(_) if choice.mode == Mode::Jvm => selected.known.modules = modules(context, planned),
            _ => {}
        }
        return Ok(Some(selected));
    };
    let selected = match choice.mode {
        Mode::Direct => of_gtest(context, shard, planned).await?,
        Mode::Tree if ctest::is_ctest(&planned.command) => of_ctest(context, shard, planned).await?,
        Mode::Jvm if junit::is_build_tool(&planned.command) => of_build(context, shard, planned)?,
        Mode::Tree | Mode::Jvm | Mode::Process | Mode::JvmProcess => whole(context, shard, planned, program)?,
    };
    if selected.is_none() {
        context.console.line(&format!("{}: nothing of it falls to {}", typed(planned), shard.name()));
    }
    Ok(selected)
}

fn all(planned: &PlannedSuite) -> Selected {
    Selected { planned: planned.clone(), known: Known::default(), tests: Vec::new(), starts_tests: false }
}

/// The modules of a build with tests: if a filter leaves one of them, its suite keeps the name that waivers and
/// thresholds know from the whole run.
fn modules(context: &Context<'_>, planned: &PlannedSuite) -> Vec<PathBuf> {
    if !junit::is_build_tool(&planned.command) {
        return Vec::new();
    }
    let root = project_folder(planned);
    match test_sources(&root) {
        Ok(found) => chosen_modules(&planned.command, &root, found.modules),
        Err((path, why)) => {
            context.console.warning(&format!(
                "{}: {why}: if other modules have tests, suites may have other names than in a whole run",
                path.display()
            ));
            Vec::new()
        }
    }
}

/// The suite's name, the same on all machines: a command has the name of its program.
pub(super) fn name(planned: &PlannedSuite) -> String {
    planned.name.clone().unwrap_or_else(|| {
        let typed = typed(planned);
        typed.rsplit('/').next().unwrap_or(&typed).to_owned()
    })
}

/// The name and identity of a measured suite: its program with its arguments, for Java its folder. The paths are
/// without our own folders, which differ between machines.
pub(super) fn what_it_is(suite: &Suite) -> Option<(String, String)> {
    let hello = suite.processes.first()?.hello();
    let what = match suite.facts.java {
        Some(_) => hello.working_directory.clone(),
        None => SuiteId::of(hello).to_string(),
    };
    let here = std::env::current_dir().unwrap_or_default();
    let project = origin::project_root().unwrap_or_default();
    Some((suite.facts.name.clone(), origin::without_folders(&what, &project, &here)))
}

fn cannot(planned: &PlannedSuite, why: &str, hint: &str) -> ExpectedError {
    ExpectedError::usage(format!("`{}` cannot be divided: {why}", typed(planned)), hint)
}

fn tell(context: &Context<'_>, shard: &ThisShard, planned: &PlannedSuite, own: usize, of: usize, what: &str) {
    context.console.line(&format!("{}: {own} of {of} {what} fall to {}", typed(planned), shard.name()));
}

async fn of_gtest(
    context: &Context<'_>,
    shard: &ThisShard,
    planned: &PlannedSuite,
) -> Result<Option<Selected>, ExpectedError> {
    let mut listing = launch(planned, context.plan.filter.as_deref());
    listing.arguments.push("--gtest_list_tests".into());
    let listing = Launch {
        stdin: Stream::Null,
        stdout: Stream::Capture { limit: LIST_BYTES },
        stderr: Stream::Null,
        ..listing
    };
    let listed = gtest::list_tests(listing, LIST_TIMEOUT).await;
    let mut tests = listed.map_err(|why| cannot(planned, &failed_to(&why), ""))?;
    let mut seen = BTreeSet::new();
    tests.retain(|test| seen.insert(test.clone()));
    if tests.is_empty() {
        // Whatever the reason, this machine lists no tests.
        return Ok(as_one(shard, planned));
    }
    let own = shard.own(&name(planned), UnitKind::Test, tests.clone());
    tell(context, shard, planned, own.len(), tests.len(), "tests");
    if own.is_empty() {
        return Ok(None);
    }
    let filter = gtest::filter_for_all(&own, &tests)
        .map_err(|why| cannot(planned, &format!("failed to {why}"), ""))?;
    let argument = if filter.len() < LONGEST_FILTER {
        format!("--gtest_filter={filter}")
    } else {
        let ending = gtest::SELECTION_ENDING.trim_start_matches('.');
        let file = keep(context, planned, ending, &format!("--gtest_filter={filter}\n"))?;
        format!("--gtest_flagfile={}", file.display())
    };
    let mut selected = all(planned);
    selected.planned.command.push(argument.into());
    selected.tests = own;
    Ok(Some(selected))
}

async fn of_ctest(
    context: &Context<'_>,
    shard: &ThisShard,
    planned: &PlannedSuite,
) -> Result<Option<Selected>, ExpectedError> {
    if ctest::chooses_numbers(&planned.command) {
        return Err(cannot(planned, "it chooses tests by their numbers", "choose them by name: -R, -L"));
    }
    let tests = ctest_list(context, planned).await?;
    if tests.is_empty() {
        return Ok(as_one(shard, planned));
    }
    let shown = ask_ctest(context, planned, "--show-only=json-v1").await?;
    let commands = ctest::commands(&shown.stdout);
    if commands.is_empty() {
        context.console.warning(
            "`ctest --show-only=json-v1` told nothing: suites of one name may be mixed up in the merged run",
        );
    }
    // A test name is unique only within a folder: tests of the same name stay together.
    let mut seen = BTreeSet::new();
    let names: Vec<String> =
        tests.iter().map(|test| test.name.clone()).filter(|name| seen.insert(name.clone())).collect();
    let own: BTreeSet<String> = shard.own(&name(planned), UnitKind::Program, names).into_iter().collect();
    let numbers =
        |all: &[CtestTest]| all.iter().filter(|test| own.contains(&test.name)).cloned().collect::<Vec<_>>();
    let by_number = numbers(&tests);
    tell(context, shard, planned, by_number.len(), tests.len(), "tests");
    if by_number.is_empty() {
        return Ok(None);
    }
    let mut selected = all(planned);
    let programs = programs(&commands);
    selected.starts_tests = programs.iter().any(|(test, _)| own.contains(test));
    selected.known.programs = programs.into_iter().map(|(_, program)| program).collect();
    let counted = numbers(&ctest::counted(&tests));
    if let Some(by_numbers) = by_numbers(context, planned, [by_number, counted]).await? {
        selected.planned = by_numbers;
        return Ok(Some(selected));
    }
    Err(cannot(
        planned,
        "with -I it does not list the tests that were chosen",
        "choose tests without -R and -L",
    ))
}

/// The command with a list of numbers. `None`: it runs other tests then.
async fn by_numbers(
    context: &Context<'_>,
    planned: &PlannedSuite,
    numbered: [Vec<CtestTest>; 2],
) -> Result<Option<PlannedSuite>, ExpectedError> {
    // With -R or -L, some versions number the selected tests, others all tests: the listing shows which.
    for own in numbered {
        let file = keep(context, planned, "tests", &ctest::numbers(&own))?;
        let mut command = planned.command.clone();
        command.extend(["-I".into(), OsString::from(file)]);
        let selected = PlannedSuite { command, ..planned.clone() };
        // With numbers of the other kind, it may have no test to list.
        let Ok(listed) = ctest_list(context, &selected).await else { continue };
        if ctest::has_all(&listed, &own) {
            return Ok(Some(selected));
        }
    }
    Ok(None)
}

/// Leaves out the tests of `ctest` that the filter of the run does not select: the programs of most have a filter of
/// their own, which goes before that. If ctest does not list its tests, all run, and a warning says so later. The inner
/// error: it selects none.
async fn filter_ctest(
    context: &Context<'_>,
    planned: &PlannedSuite,
    filter: &str,
    selected: &mut Selected,
) -> Result<Result<(), Problem>, ExpectedError> {
    if ctest::chooses_numbers(&planned.command) {
        return Ok(Ok(()));
    }
    let Ok(shown) = ask_ctest(context, planned, "--show-only=json-v1").await else { return Ok(Ok(())) };
    let commands = ctest::commands(&shown.stdout);
    let ctest::Filtered { tests: own, named, names_one } = ctest::filtered(&commands, filter);
    if commands.is_empty() {
        return Ok(Ok(()));
    }
    let near = nearest(filter, named.iter().map(String::as_str)).filter(|_| !names_one);
    let hint = near.map_or_else(String::new, |near| format!("did you mean {near}?"));
    if own.is_empty() {
        let what = format!("the filter {filter:?} selects no test of `{}`", typed(planned));
        return Ok(Err(problem(&typed(planned), what, &hint)));
    }
    if !hint.is_empty() {
        context.console.warning(&format!("--filter {filter:?} is no test of `{}`: {hint}", typed(planned)));
    }
    // The programs of the others affect the names of suites.
    selected.known.programs = programs(&commands).into_iter().map(|(_, program)| program).collect();
    // A test without a command is not built: it stays, and ctest fails it.
    let left_out: BTreeSet<&String> =
        commands.iter().map(|(test, _)| test).filter(|test| !own.contains(*test)).collect();
    if left_out.is_empty() {
        return Ok(Ok(()));
    }
    let Ok(tests) = ctest_list(context, planned).await else { return Ok(Ok(())) };
    let numbers = |all: &[CtestTest]| -> Vec<CtestTest> {
        all.iter().filter(|test| !left_out.contains(&test.name)).cloned().collect()
    };
    let numbered = [numbers(&tests), numbers(&ctest::counted(&tests))];
    if let Some(by_numbers) = by_numbers(context, planned, numbered).await? {
        selected.planned = by_numbers;
    }
    Ok(Ok(()))
}

async fn ctest_list(context: &Context<'_>, planned: &PlannedSuite) -> Result<Vec<CtestTest>, ExpectedError> {
    let listed = ask_ctest(context, planned, "-N").await?;
    let whole = Some(&listed).filter(|listed| listed.exit.is_success() && !listed.cut);
    whole.and_then(|listed| ctest::parse_list(&listed.stdout)).ok_or_else(|| {
        let why = format!("with -N it lists no tests ({})", listed.exit);
        cannot(planned, &why, "is the build folder right? -Q keeps it from saying anything")
    })
}

async fn ask_ctest(
    context: &Context<'_>,
    planned: &PlannedSuite,
    argument: &str,
) -> Result<Ended, ExpectedError> {
    let mut listing = launch(planned, context.plan.filter.as_deref());
    listing.arguments.push(argument.into());
    let stdout = Stream::Capture { limit: LIST_BYTES };
    let listing = Launch { stdin: Stream::Null, stdout, stderr: Stream::Null, ..listing };
    output(listing, LIST_TIMEOUT).await.map_err(|why| cannot(planned, &chain(&why), ""))
}

/// The GoogleTest executables that these commands start, perhaps through another program, each with its test.
fn programs(commands: &[(String, Vec<String>)]) -> Vec<(String, SuiteId)> {
    let mut programs = Vec::new();
    let mut looked = BTreeMap::<&str, Option<String>>::new();
    for (test, command) in commands {
        for (at, word) in command.iter().enumerate().filter(|(_, word)| word.contains('/')) {
            let executable = looked.entry(word).or_insert_with(|| {
                let found = inspect(word.as_ref(), None, Path::new("/")).ok().filter(Program::is_gtest)?;
                Some(std::fs::canonicalize(found.path).ok()?.to_string_lossy().into_owned())
            });
            if let Some(executable) = executable.clone() {
                let arguments = gtest::own_arguments(command.get(at + 1..).unwrap_or_default());
                programs.push((test.clone(), SuiteId { executable, arguments }));
                break;
            }
        }
    }
    programs
}

fn of_build(
    context: &Context<'_>,
    shard: &ThisShard,
    planned: &PlannedSuite,
) -> Result<Option<Selected>, ExpectedError> {
    let is_gradle = junit::is_gradle(&planned.command);
    let names = |argument: &OsString| {
        let argument = argument.to_string_lossy();
        argument.starts_with("-Dtest=") || argument.starts_with("-Dit.test=")
    };
    if !is_gradle && (context.plan.filter.is_some() || planned.command.iter().any(names)) {
        let why = "Surefire runs the tests that a filter names, and leaves none of them out";
        return Err(cannot(planned, why, "run all tests"));
    }
    let own_list = |argument: &OsString| argument.to_string_lossy().contains(".excludesFile=");
    if planned.command.iter().any(own_list) {
        return Err(cannot(
            planned,
            "it names a file of excluded classes itself",
            "exclude them in the build file",
        ));
    }
    let root = project_folder(planned);
    let found = test_sources(&root).map_err(|(path, why)| ExpectedError::file("read", &path)(why))?;
    let TestSources { classes, modules, mut leaves_out_nested } = found;
    let maven_arguments = std::env::var_os("MAVEN_ARGS").unwrap_or_default();
    let mut typed =
        planned.command.iter().chain([&maven_arguments]).map(|argument| argument.to_string_lossy());
    leaves_out_nested &= !typed.any(|argument| names_excludes(&argument));
    if classes.is_empty() {
        let why = format!("there is no source of a test below {}", root.display());
        return Err(cannot(
            planned,
            &why,
            "test classes are looked for in src/*/java, kotlin, groovy and scala",
        ));
    }
    let own = shard.own(&name(planned), UnitKind::Class, classes.clone());
    tell(context, shard, planned, own.len(), classes.len(), "classes of the test sources");
    if own.is_empty() {
        return Ok(None);
    }
    let own: BTreeSet<String> = own.into_iter().collect();
    let others: Vec<String> = classes.into_iter().filter(|class| !own.contains(class)).collect();
    let mut selected = all(planned);
    selected.known.modules = chosen_modules(&planned.command, &root, modules);
    if is_gradle {
        let list = keep(context, planned, "classes", &gradle_excludes(&others))?;
        let script = keep(context, planned, "gradle", &junit::gradle_leaves_out(&list))?;
        selected.planned.command = junit::with_gradle_script(&planned.command, &script);
    } else {
        let list = keep(context, planned, "classes", &surefire_excludes(&others, leaves_out_nested))?;
        for plugin in ["surefire", "failsafe"] {
            selected.planned.command.push(format!("-D{plugin}.excludesFile={}", list.display()).into());
        }
    }
    Ok(Some(selected))
}

/// The command is one unit.
fn whole(
    context: &Context<'_>,
    shard: &ThisShard,
    planned: &PlannedSuite,
    program: &Program,
) -> Result<Option<Selected>, ExpectedError> {
    if context.plan.suites.len() + context.plan.instrumented.len() == 1 {
        let why = match program.is_gtest() {
            true => "it is one test as a whole",
            false => "memgate divides GoogleTest executables, ctest, Maven and Gradle",
        };
        return Err(cannot(planned, why, "name its executables as suites of memgate.yaml: each is a unit"));
    }
    Ok(as_one(shard, planned))
}

/// The command runs as a whole, in one of the shards.
fn as_one(shard: &ThisShard, planned: &PlannedSuite) -> Option<Selected> {
    let suite = name(planned);
    let own = shard.own(&suite, UnitKind::Program, vec![suite.clone()]);
    (!own.is_empty()).then(|| all(planned))
}

/// Writes a selection into the session.
fn keep(
    context: &Context<'_>,
    planned: &PlannedSuite,
    ending: &str,
    text: &str,
) -> Result<PathBuf, ExpectedError> {
    let path = context.session.next_file("selection", (&name(planned), 100), ending)?;
    std::fs::write(&path, text).map_err(ExpectedError::file("write", &path))?;
    Ok(path)
}
