//! GoogleTest: which processes form one suite, and how to run one of its tests alone.
//!
//! The data that the screening pass recorded of a process (its hello and environment) become the command line that
//! repeats one of its tests: the same executable, arguments, directory and environment. Everything by which GoogleTest
//! selects, orders, repeats or reports tests is removed, and a filter for this test is added.
//!
//! Only flags that every GoogleTest knows are added: with an unknown one, it prints its help and runs nothing.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use memgate_launch::{Environment, Exit, Launch, LaunchError, Stream, output};
use memgate_wire::Hello;

use crate::agent::{OPTIONS_VARIABLE, PRELOAD_VARIABLE};

/// Flags that select, order, repeat or report tests. The others (`death_test_style`,
/// `also_run_disabled_tests`, …) say how a test runs and stay.
const DROPPED_FLAGS: [&str; 13] = [
    "brief",
    "break_on_failure",
    "color",
    "fail_fast",
    "filter",
    "internal_run_death_test",
    "list_tests",
    "output",
    "print_time",
    "random_seed",
    "repeat",
    "shuffle",
    "stream_result_to",
];

/// Variables that do the same without being named after a flag: those for shards, and those that Bazel sets.
const DROPPED_VARIABLES: [&str; 9] = [
    "GTEST_TOTAL_SHARDS",
    "GTEST_SHARD_INDEX",
    "GTEST_SHARD_STATUS_FILE",
    "TEST_TOTAL_SHARDS",
    "TEST_SHARD_INDEX",
    "TESTBRIDGE_TEST_ONLY",
    "TESTBRIDGE_TEST_RUNNER_FAIL_FAST",
    "TEST_PREMATURE_EXIT_FILE",
    "XML_OUTPUT_FILE",
];

/// Variables with the paths of GoogleTest's results.
const RESULT_VARIABLES: [&str; 6] = [
    "GTEST_OUTPUT",
    "GTEST_SHARD_STATUS_FILE",
    "GTEST_STREAM_RESULT_TO",
    "TEST_PREMATURE_EXIT_FILE",
    "TEST_SHARD_STATUS_FILE",
    "XML_OUTPUT_FILE",
];

/// Maximum kept bytes of a listing.
const LIST_BYTES: usize = 64 << 20;

/// File name ending of our flag files.
pub const SELECTION_ENDING: &str = ".memgate-flags";

/// Separator between a name and its comment in GoogleTest's listing.
const COMMENT: &str = "  # ";

/// A suite: an executable with its own arguments. Processes with the same id are one suite.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SuiteId {
    /// Absolute path.
    pub executable: String,
    /// Arguments without GoogleTest's.
    pub arguments: Vec<String>,
}

/// How often a test is repeated in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// This often.
    Times(u32),
    /// Until the process is told to stop.
    Forever,
}

/// Why the tests of an executable could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// It could not be run.
    #[error("list the tests")]
    Run(#[source] LaunchError),
    /// It ended without success.
    #[error("list the tests: it ended with {0}")]
    Failed(Exit),
    /// Its output is cut off.
    #[error("list the tests: the listing ends in the middle of line {line}")]
    Cut {
        /// The last line.
        line: usize,
    },
    /// Its output is too long to be kept completely.
    #[error("list the tests: the listing is longer than {LIST_BYTES} bytes")]
    TooLong,
}

/// Why a test cannot be selected alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The executable does not list it.
    #[error("select {0:?}: the executable lists no such test")]
    NotListed(String),
    /// Every filter that selects it also selects another test.
    #[error("select {id:?}: no filter tells it from {other:?}")]
    Ambiguous {
        /// The wanted test.
        id: String,
        /// The other one.
        other: String,
    },
}

impl SuiteId {
    /// The suite this process belongs to.
    #[must_use]
    pub fn of(hello: &Hello) -> Self {
        let arguments = own_arguments(hello.arguments.get(1..).unwrap_or_default());
        Self { executable: hello.executable.clone(), arguments }
    }
}

/// Arguments of a program without GoogleTest's.
#[must_use]
pub fn own_arguments(arguments: &[String]) -> Vec<String> {
    arguments.iter().filter(|argument| flag_name(argument).is_none()).cloned().collect()
}

impl fmt::Display for SuiteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.executable)?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

/// The process that repeats the tests of `filter`, without the agent, which [`with_agent`](crate::agent::with_agent)
/// adds.
#[must_use]
pub fn confirm(
    hello: &Hello,
    environ: Option<&[(OsString, OsString)]>,
    filter: &str,
    repeat: Repeat,
) -> Launch {
    let repeat = match repeat {
        Repeat::Times(times) => times.to_string(),
        Repeat::Forever => "-1".to_owned(),
    };
    again(hello, environ, [format!("--gtest_filter={filter}"), format!("--gtest_repeat={repeat}")])
}

/// The same process once more, with its filter and shard, without the agent. It writes no results, so that those of the
/// first execution stay.
#[must_use]
pub fn once_more(hello: &Hello, environ: &[(OsString, OsString)]) -> Launch {
    let is_of_results = |argument: &str| {
        flag_name(argument).is_some_and(|flag| ["output", "stream_result_to"].contains(&flag))
    };
    let kept = hello.arguments.iter().skip(1).filter(|argument| !is_of_results(argument)).cloned();
    let is_dropped = |name: &OsStr| name == OPTIONS_VARIABLE || RESULT_VARIABLES.iter().any(|it| name == *it);
    let environ = environ.iter().filter(|(name, _)| !is_dropped(name)).cloned().collect();
    as_before(hello, kept, Environment::Exactly(environ))
}

/// The process that lists all tests of the executable.
#[must_use]
pub fn list(hello: &Hello, environ: Option<&[(OsString, OsString)]>) -> Launch {
    let stdout = Stream::Capture { limit: LIST_BYTES };
    Launch { stdout, stderr: Stream::Null, ..again(hello, environ, ["--gtest_list_tests".to_owned()]) }
}

/// The process that lists the tests of an executable that a filter selects.
#[must_use]
pub fn list_of(executable: &str, filter: &str) -> Launch {
    let stdout = Stream::Capture { limit: LIST_BYTES };
    let flags = ["--gtest_list_tests".to_owned(), format!("--gtest_filter={filter}")];
    Launch { stdout, stderr: Stream::Null, ..Launch::new(executable, flags) }
}

/// Runs [`list`] and reads its output.
///
/// # Errors
/// When it cannot be run, fails, or its output is incomplete.
pub async fn list_tests(listing: Launch, limit: Duration) -> Result<Vec<String>, ListError> {
    let ended = output(listing, limit).await.map_err(ListError::Run)?;
    if !ended.exit.is_success() {
        return Err(ListError::Failed(ended.exit));
    }
    if ended.cut {
        return Err(ListError::TooLong);
    }
    parse_list(&ended.stdout)
}

/// Reads the output of `--gtest_list_tests`: the tests as `Suite.Test`, in its order.
///
/// A suite has a line of its own that ends with a full stop. Its tests follow, indented by two spaces. Both may have a
/// comment with the type or value parameter. Other output of the program is skipped.
///
/// # Errors
/// When the output is cut off.
pub fn parse_list(output: &[u8]) -> Result<Vec<String>, ListError> {
    let text = String::from_utf8_lossy(output);
    let lines = text.lines().count();
    let mut tests = Vec::new();
    let mut suite = None;
    let mut suite_is_empty = false;
    for line in text.lines() {
        let line = line.trim_end_matches('\r');
        let (name, _comment) = line.split_once(COMMENT).unwrap_or((line, ""));
        if let (Some(test), Some(suite)) = (name.strip_prefix("  ").filter(|t| !t.is_empty()), suite) {
            tests.push(format!("{suite}{test}"));
            suite_is_empty = false;
        } else {
            let is_suite = name.len() > 1 && name.ends_with('.');
            suite = is_suite.then_some(name);
            // A sentence printed by the program may also end with a full stop; a suite's name contains no space.
            suite_is_empty = is_suite && !name.contains(char::is_whitespace);
        }
    }
    if suite_is_empty || !(text.is_empty() || text.ends_with('\n')) {
        return Err(ListError::Cut { line: lines });
    }
    Ok(tests)
}

/// A filter that selects `id` and no other test of `all`.
///
/// A filter has no escape: `*`, `?`, `:` and `-` in a name become `?`, which matches any character, and invalid UTF-8
/// becomes `*`. Other tests that this also selects are excluded by name.
///
/// # Errors
/// When the test is not in `all`, or cannot be distinguished from another one.
pub fn filter_for(id: &str, all: &[String]) -> Result<String, FilterError> {
    if !all.iter().any(|test| test == id) {
        return Err(FilterError::NotListed(id.to_owned()));
    }
    let pattern = pattern_of(id);
    let mut excluded = BTreeSet::new();
    // The listing may contain the test twice, if the program runs all tests twice.
    for other in all.iter().filter(|test| *test != id && matches(&pattern, test)) {
        let negative = pattern_of(other);
        if matches(&negative, id) {
            return Err(FilterError::Ambiguous { id: id.to_owned(), other: other.clone() });
        }
        excluded.insert(negative);
    }
    if excluded.is_empty() {
        return Ok(pattern);
    }
    Ok(format!("{pattern}-{}", excluded.into_iter().collect::<Vec<_>>().join(":")))
}

/// A filter that selects these tests of `all` and no others.
///
/// # Errors
/// When one of them cannot be distinguished from a test that is not among them.
pub fn filter_for_all(ids: &[String], all: &[String]) -> Result<String, FilterError> {
    let patterns: Vec<String> = ids.iter().map(|id| pattern_of(id)).collect();
    let wanted: BTreeSet<&String> = ids.iter().collect();
    // Only these patterns can select other tests.
    let wild: Vec<&String> = patterns.iter().filter(|pattern| pattern.contains(['?', '*'])).collect();
    let unwanted = all.iter().filter(|test| !wanted.contains(test));
    let unwanted = unwanted.filter(|test| wild.iter().any(|pattern| matches(pattern, test)));
    let mut excluded = BTreeSet::new();
    for other in unwanted {
        let negative = pattern_of(other);
        if let Some(id) = ids.iter().find(|id| matches(&negative, id)) {
            return Err(FilterError::Ambiguous { id: id.clone(), other: other.clone() });
        }
        excluded.insert(negative);
    }
    let (patterns, excluded) = (patterns.join(":"), excluded.into_iter().collect::<Vec<_>>().join(":"));
    Ok(if excluded.is_empty() { patterns } else { format!("{patterns}-{excluded}") })
}

/// The same executable in the same environment, with other selecting flags.
fn again<const N: usize>(
    hello: &Hello,
    environ: Option<&[(OsString, OsString)]>,
    flags: [String; N],
) -> Launch {
    let dropped = |argument: &str| flag_name(argument).is_some_and(is_dropped) || is_our_selection(argument);
    let kept = hello.arguments.iter().skip(1).filter(|argument| !dropped(argument)).cloned();
    as_before(hello, kept.chain(flags), environment(environ))
}

/// Its executable, started with its name and in its directory.
fn as_before(hello: &Hello, arguments: impl Iterator<Item = String>, environment: Environment) -> Launch {
    let mut launch = Launch::new(&hello.executable, arguments);
    launch.arg0 = hello.arguments.first().map(OsString::from);
    launch.directory = Some(PathBuf::from(&hello.working_directory)).filter(|d| d.is_absolute());
    launch.environment = environment;
    with_its_fakeroot(launch)
}

/// A program started below `fakeroot` talks to a daemon that has ended, and would wait forever: it is started below a
/// new `fakeroot`.
fn with_its_fakeroot(mut launch: Launch) -> Launch {
    let Environment::Exactly(environ) = &mut launch.environment else { return launch };
    let Some(key) = environ.iter().position(|(name, _)| name == "FAKEROOTKEY") else { return launch };
    environ.remove(key);
    for (_, value) in environ.iter_mut().filter(|(name, _)| name == PRELOAD_VARIABLE) {
        let of_fakeroot =
            |path: &[u8]| path.rsplit(|&b| b == b'/').next().unwrap_or(path).starts_with(b"libfakeroot");
        let kept = value.as_bytes().split(|b| b": ".contains(b)).filter(|path| !of_fakeroot(path));
        *value = OsString::from_vec(kept.collect::<Vec<_>>().join(&b':'));
    }
    let program = std::mem::replace(&mut launch.program, "fakeroot".into());
    launch.arguments.splice(0..0, ["--".into(), program.into_os_string()]);
    launch.arg0 = None;
    launch
}

fn environment(environ: Option<&[(OsString, OsString)]>) -> Environment {
    let ours = |name: &OsStr| name == OPTIONS_VARIABLE;
    if let Some(environ) = environ {
        let kept = environ.iter().filter(|(name, _)| !is_dropped_variable(name) && !ours(name));
        return Environment::Exactly(kept.cloned().collect());
    }
    let flags = DROPPED_FLAGS.iter().map(|flag| format!("GTEST_{}", flag.to_ascii_uppercase()));
    let remove = flags.chain(DROPPED_VARIABLES.map(str::to_owned)).map(OsString::from).collect();
    Environment::Inherit { set: Vec::new(), remove }
}

/// Whether this is a flag file of ours, with a filter that is too long for a command line. The user's flag files
/// contain more.
#[must_use]
pub fn is_our_selection(argument: &str) -> bool {
    flag_name(argument) == Some("flagfile") && argument.ends_with(SELECTION_ENDING)
}

/// Whether the argument selects tests. It overrides the variable `GTEST_FILTER`.
#[must_use]
pub fn selects_tests(argument: &str) -> bool {
    flag_name(argument) == Some("filter")
}

/// The name of the GoogleTest flag an argument sets, without prefix and value.
fn flag_name(argument: &str) -> Option<&str> {
    let name = ["--gtest_", "-gtest_", "/gtest_"].iter().find_map(|prefix| argument.strip_prefix(prefix))?;
    name.split('=').next()
}

fn is_dropped(flag: &str) -> bool {
    DROPPED_FLAGS.contains(&flag)
}

fn is_dropped_variable(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let by_flag = |flag: &str| is_dropped(&flag.to_ascii_lowercase());
    DROPPED_VARIABLES.contains(&name) || name.strip_prefix("GTEST_").is_some_and(by_flag)
}

fn pattern_of(id: &str) -> String {
    id.replace(['*', '?', ':', '-'], "?").replace(char::REPLACEMENT_CHARACTER, "*")
}

/// Whether a filter selects a test, as GoogleTest reads it: patterns to run, then `-` and patterns to leave out.
pub(crate) fn selects(filter: &str, name: &str) -> bool {
    let (run, left_out) = filter.split_once('-').unwrap_or((filter, ""));
    let any = |patterns: &str| patterns.split(':').any(|pattern| matches(pattern, name));
    (run.is_empty() || any(run)) && !any(left_out)
}

/// GoogleTest's matching of one pattern, byte by byte: `?` matches any byte, `*` any number of bytes.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.as_bytes(), name.as_bytes());
    // The pattern after the last `*`, and the name after the bytes it has consumed.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        match (pattern.split_first(), name.split_first()) {
            (Some((b'*', behind)), _) => {
                star = Some((behind, name));
                pattern = behind;
            }
            (Some((p, more)), Some((n, rest))) if *p == b'?' || p == n => (pattern, name) = (more, rest),
            (None, None) => return true,
            _ => {
                let Some((behind, [_, rest @ ..])) = star else { return false };
                star = Some((behind, rest));
                (pattern, name) = (behind, rest);
            }
        }
    }
}

#[cfg(test)]
mod tests;
