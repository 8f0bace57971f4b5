//! Programs that were not measured: each is named, with the reason and advice.

use std::collections::BTreeSet;
use std::path::Path;

use memgate_config::nearest;
use memgate_model::BoundaryQuality;
use memgate_wire::starts::runs_no_suite;

use crate::output::Console;
use crate::plan::PlannedSuite;
use crate::run::engine::{Context, Done, typed};
use crate::run::runners::choose::{self, Choice, Mode};
use crate::run::runners::framework::Suite;
use crate::run::runners::gtest::LIST_TIMEOUT;
use crate::run::runners::starts::{Listed, Tests, Unseen};
use crate::session::facts::{Facts, Kind, SuiteFacts, problem};
use crate::suite::{Program, ctest, gtest};

/// Maximum number of programs that a warning names.
const MOST_NAMED: usize = 5;

/// Test programs that ran below the command without the agent.
pub(super) fn unseen(
    listed: &Listed,
    planned: &PlannedSuite,
    mode: Mode,
    done: &Done,
    facts: &mut Facts,
) -> Vec<Unseen> {
    if listed.lost > 0 {
        let what =
            format!("{} more programs were started than can be noted: they were not looked at", listed.lost);
        facts.errors.push(problem(&typed(planned), what, "run fewer of them in one command"));
    }
    listed.unseen(mode == Mode::Tree, &planned.targets, &said_hello(done))
}

/// Warns about removed programs: it is no longer known whether they were tests.
pub(super) fn gone(console: &Console, listed: &Listed, done: &Done) {
    let gone = listed.gone(&said_hello(done));
    if let Some(first) = gone.first() {
        let more = if gone.len() > 1 { format!(" and {} more", gone.len() - 1) } else { String::new() };
        console.warning(&format!(
            "{first}{more}: removed before memgate looked at it; if it is a test, it was not measured"
        ));
    }
}

/// Warns about test programs of ctest that contain no GoogleTest, and about targets that no program matches. Below
/// other commands most programs are tools.
pub(super) fn left_out(context: &Context<'_>, planned: &PlannedSuite, listed: &Listed, done: &Done) {
    let said_hello = said_hello(done);
    let here = planned.directory.as_deref().unwrap_or(Path::new("."));
    if let Ok(here) = here.canonicalize()
        && ctest::is_ctest(&planned.command)
    {
        let plain = listed.plain(&here, &planned.targets, &said_hello);
        let named: Vec<String> =
            plain.iter().take(MOST_NAMED).map(|path| path.display().to_string()).collect();
        let more = plain.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        if !plain.is_empty() {
            context.console.warning(&format!(
                "{}: not measured, because they contain no GoogleTest: {}{more}; --target GLOB measures such a program as \
                 one test",
                typed(planned),
                named.join(", ")
            ));
        }
    }
    if context.this_shard.is_none() {
        for glob in listed.without_program(&planned.targets, &said_hello) {
            context
                .console
                .warning(&format!("{}: no program that ran matches the target `{glob}`", typed(planned)));
        }
    }
}

/// Executables that were measured.
fn said_hello(done: &Done) -> BTreeSet<&str> {
    done.finished.iter().map(|process| process.hello().executable.as_str()).collect()
}

/// Programs in which the filter selects a test, and those whose tests cannot be listed. A filter selects no tests that
/// a program reports itself: such a program is told only if nothing was measured.
pub(super) async fn with_a_test(unseen: Vec<Unseen>, filter: Option<&str>, measured: bool) -> Vec<Unseen> {
    let Some(filter) = filter else { return unseen };
    let mut selected = Vec::new();
    for unseen in unseen {
        let is_selected = match unseen.tests {
            Tests::GoogleTest => {
                let listing = gtest::list_of(&unseen.path, filter);
                gtest::list_tests(listing, LIST_TIMEOUT).await.map_or(true, |tests| !tests.is_empty())
            }
            Tests::Own => !measured,
            Tests::Other => true,
        };
        if is_selected {
            selected.push(unseen);
        }
    }
    selected
}

/// Advice for a filter that selects no test of these programs: the test whose name is nearest.
pub(super) async fn meant(executables: &BTreeSet<String>, filter: &str) -> String {
    let mut tests = Vec::new();
    for executable in executables {
        tests.extend(
            gtest::list_tests(gtest::list_of(executable, "*"), LIST_TIMEOUT).await.unwrap_or_default(),
        );
    }
    let near = nearest(filter, tests.iter().map(String::as_str));
    near.map_or_else(|| "look at --filter".to_owned(), |near| format!("did you mean {near}?"))
}

pub(super) fn filter_is_not_heard(planned: &PlannedSuite, filter: &str) -> String {
    let command = typed(planned);
    let instead =
        if ctest::is_ctest(&planned.command) { "choose its tests by -R" } else { "change that one" };
    format!(
        "{command}: its --gtest_filter goes before --filter {filter:?}, which has no effect there; {instead}"
    )
}

/// Reports a suite of the configuration whose own filter selects no test. Other suites would hide that nothing ran.
pub(super) fn selects_nothing(planned: &PlannedSuite, suite: &mut Suite) {
    let typed = suite.processes.iter().any(|process| process.record.selects_tests());
    if typed || planned.environment.iter().any(|(name, _)| name == "GTEST_FILTER") {
        let what = "no test ran: the suite's own filter selects none";
        let hint = "look at `--gtest_filter` in its `run`, or GTEST_FILTER in its `env`";
        suite.facts.problems.push(problem(&suite.facts.name, what.to_owned(), hint));
    }
}

/// The option with which a test program runs no test, for example `--gtest_list_tests`.
fn runs_no_test(planned: &PlannedSuite) -> Option<String> {
    let mut arguments = planned.command.iter().skip(1);
    let option = arguments.find(|argument| runs_no_suite(argument.as_encoded_bytes()))?;
    Some(option.to_string_lossy().into_owned())
}

/// Reports a command below which no process said hello.
pub(super) fn not_measured(
    planned: &PlannedSuite,
    (program, choice): (&Program, &Choice),
    done: &Done,
    no_room: Option<String>,
    facts: &mut Facts,
) {
    let name = planned.name.clone().unwrap_or_else(|| file_name(&program.path));
    let (what, hint) = match (program.blind(), choice.mode) {
        (Some(why), _) => (format!("not measured: {why}"), choose::remedy(program).to_owned()),
        (None, Mode::Tree) => {
            let hint = if done.ended.exit.is_success() {
                "did it run a test? Other executables are measured with --target GLOB; ones that are linked statically cannot be"
            } else {
                "does the command work without memgate? It may have ended before its first test; other executables: --target GLOB"
            };
            (
                format!("not measured: no GoogleTest executable ran below `{}`", typed(planned)),
                hint.to_owned(),
            )
        }
        (None, Mode::Direct | Mode::Process | Mode::Jvm | Mode::JvmProcess) => match no_room {
            Some(why) => (
                format!("not measured: {why}"),
                "make room, or name another folder with --output-dir".to_owned(),
            ),
            None => match runs_no_test(planned) {
                Some(option) => (
                    format!("not measured: with `{option}` it runs no test ({})", done.ended.exit),
                    "leave that option out".to_owned(),
                ),
                None => (
                    format!("not measured: the agent did not report from it ({})", done.ended.exit),
                    "`memgate doctor` says whether the agent can work here; a wrapper script needs --target GLOB"
                        .to_owned(),
                ),
            },
        },
    };
    if choice.mode == Mode::Tree {
        // The program may be a link: `cargo` to `rustup`.
        let called = planned.name.clone().unwrap_or_else(|| file_name(Path::new(&typed(planned))));
        facts.errors.push(problem(&called, what, &hint));
        return;
    }
    // A suite's problem has one line in the report.
    let problem = problem(&name, format!("{what}; {hint}"), "");
    let kind = if choice.mode == Mode::Direct { Kind::Tests } else { Kind::Program };
    facts.suites.push(SuiteFacts {
        boundary: BoundaryQuality::Process,
        screened_s: done.elapsed.as_secs_f64(),
        problems: vec![problem],
        ..SuiteFacts::new(name, kind, Vec::new())
    });
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_filter_selects_no_tests_that_a_program_reports_itself() {
        for (tests, measured, is_told) in [
            (Tests::Own, true, false),
            (Tests::Own, false, true),
            (Tests::Other, true, true),
            (Tests::GoogleTest, true, true),
        ] {
            let unseen = Unseen { tests, path: "/nowhere/t".to_owned(), why: String::new(), remedy: "" };
            let told = with_a_test(vec![unseen], Some("A.*"), measured).await;
            assert_eq!(!told.is_empty(), is_told, "{tests:?}: its tests cannot be listed");
        }
    }
}
