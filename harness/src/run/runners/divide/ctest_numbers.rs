//! Selects tests of `ctest` by their numbers: those of this shard, or those that the filter of the run selects.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;

use memgate_config::nearest;
use memgate_history::shards::UnitKind;
use memgate_launch::{Ended, Launch, Stream, output};
use memgate_model::Problem;

use super::{LIST_BYTES, Selected, all, as_one, cannot, keep, name, tell};
use crate::exit::{ExpectedError, chain};
use crate::plan::PlannedSuite;
use crate::run::engine::{Context, launch, typed};
use crate::run::runners::gtest::LIST_TIMEOUT;
use crate::run::this_shard::ThisShard;
use crate::session::facts::problem;
use crate::suite::ctest::CtestTest;
use crate::suite::gtest::{self, SuiteId};
use crate::suite::{Program, ctest, inspect};

pub(super) async fn of_shard(
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

/// Leaves out the tests of `ctest` that the filter of the run does not select: the programs of most have a filter of
/// their own, which goes before that. If ctest does not list its tests, all run, and a warning says so later. Returns
/// the problem if the filter selects none.
pub(super) async fn of_filter(
    context: &Context<'_>,
    planned: &PlannedSuite,
    filter: &str,
    selected: &mut Selected,
) -> Result<Option<Problem>, ExpectedError> {
    if ctest::chooses_numbers(&planned.command) {
        return Ok(None);
    }
    let Ok(shown) = ask_ctest(context, planned, "--show-only=json-v1").await else { return Ok(None) };
    let commands = ctest::commands(&shown.stdout);
    let ctest::Filtered { tests: own, named, names_one } = ctest::filtered(&commands, filter);
    if commands.is_empty() {
        return Ok(None);
    }
    let near = nearest(filter, named.iter().map(String::as_str)).filter(|_| !names_one);
    let hint = near.map_or_else(String::new, |near| format!("did you mean {near}?"));
    if own.is_empty() {
        let what = format!("the filter {filter:?} selects no test of `{}`", typed(planned));
        return Ok(Some(problem(&typed(planned), what, &hint)));
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
        return Ok(None);
    }
    let Ok(tests) = ctest_list(context, planned).await else { return Ok(None) };
    let numbers = |all: &[CtestTest]| -> Vec<CtestTest> {
        all.iter().filter(|test| !left_out.contains(&test.name)).cloned().collect()
    };
    let numbered = [numbers(&tests), numbers(&ctest::counted(&tests))];
    if let Some(by_numbers) = by_numbers(context, planned, numbered).await? {
        selected.planned = by_numbers;
    }
    Ok(None)
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
