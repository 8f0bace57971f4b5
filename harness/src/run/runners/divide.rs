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

mod ctest_numbers;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use memgate_history::shards::UnitKind;
use memgate_launch::{Launch, Stream};

use super::choose::{Choice, Mode};
use super::framework::Suite;
use super::gtest::LIST_TIMEOUT;
use super::junit::root as project_folder;
use crate::exit::{ExpectedError, failed_to};
use crate::origin;
use crate::plan::PlannedSuite;
use crate::run::engine::{Context, Stopped, launch, typed};
use crate::run::this_shard::ThisShard;
use crate::session::facts::Facts;
use crate::suite::gtest::{self, SuiteId};
use crate::suite::junit::sources::{
    TestSources, chosen_modules, gradle_excludes, names_excludes, surefire_excludes, test_sources,
};
use crate::suite::{Program, ctest, junit};

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
                if let Some(none) = ctest_numbers::of_filter(context, planned, filter, &mut selected).await? {
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
        Mode::Tree if ctest::is_ctest(&planned.command) => {
            ctest_numbers::of_shard(context, shard, planned).await?
        }
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
