//! Decides whether a run leaves out tests. In such a partial run, a missing test proves neither that a leak is gone nor
//! that a waiver is unused. In doubt, a run counts as partial.
//!
//! Data flow: environment variables and the typed command, before the run ([`narrows`], [`selects`]) → arguments of the
//! programs that ran ([`is_filtered`]), which a script may have added.

use std::path::Path;

use memgate_config::{Config, Suite};

use super::Settings;
use super::suites::is_chosen;
use crate::cli::RunArgs;

/// The variables with which a build or a user makes GoogleTest or Cucumber run a part of its tests, with the values
/// that mean all tests.
const NARROWING: [(&str, &[&str]); 9] = [
    ("GTEST_FILTER", &["", "*"]),
    ("GTEST_FLAGFILE", &[""]),
    ("GTEST_TOTAL_SHARDS", &["", "1"]),
    ("GTEST_FAIL_FAST", &["", "0", "false"]),
    ("TESTBRIDGE_TEST_ONLY", &["", "*"]),
    ("CUCUMBER_FEATURES", &[""]),
    ("CUCUMBER_FILTER_NAME", &[""]),
    ("CUCUMBER_FILTER_TAGS", &[""]),
    ("CUCUMBER_OPTIONS", &[""]),
];

/// Programs that run the tests of build files.
const BUILDS: [&str; 6] = ["ctest", "make", "gmake", "ninja", "cmake", "meson"];
/// Options of ctest that leave out tests. A short one may have its value in the next word.
const OF_CTEST: [&str; 15] = [
    "-R",
    "--tests-regex",
    "-E",
    "--exclude-regex",
    "-L",
    "--label-regex",
    "-LE",
    "--label-exclude",
    "-I",
    "--tests-information",
    "--tests-from-file",
    "--exclude-from-file",
    "--rerun-failed",
    "--stop-on-failure",
    "--fixture-exclude",
];
/// Variables of Automake and Autotest that name the tests to run, or may name them.
const OF_AUTOMAKE: [&str; 2] = ["TESTS=", "TESTSUITEFLAGS="];
/// Options of `meson test` that leave out tests.
const OF_MESON: [&str; 4] = ["--suite", "--no-suite", "--slice", "--maxfail"];
/// Its other options that may have their value in the next word. Any other word names a test.
const VALUES_OF_MESON: [&str; 12] = [
    "-C",
    "-j",
    "--num-processes",
    "-t",
    "--timeout-multiplier",
    "--repeat",
    "--setup",
    "--wrap",
    "--wrapper",
    "--logbase",
    "--test-args",
    "--gdb-path",
];
const OF_MAVEN: [&str; 5] = ["-pl", "--projects", "-rf", "--resume-from", "-N"];
/// Properties with which Surefire, Failsafe, Cucumber or others leave out tests.
const OF_SUREFIRE: [&str; 15] = [
    "-Dtest=",
    "-Dit.test=",
    "-Dgroups=",
    "-DexcludedGroups=",
    "-DskipTests",
    "-DskipITs",
    "-Dmaven.test.skip",
    "-Dsurefire.includes",
    "-Dsurefire.excludes",
    "-Dfailsafe.includes",
    "-Dfailsafe.excludes",
    "-Dsurefire.skipAfterFailureCount",
    "-Dcucumber.features",
    "-Dcucumber.filter.",
    "-Dcucumber.options",
];
const OF_GRADLE: [&str; 4] = ["-x", "--exclude-task", "--fail-fast", "-Dtest.single"];
/// Options of JUnit's console launcher.
const OF_JUNIT: [&str; 3] = ["--select-", "--include-", "--exclude-"];

/// Whether a variable with this value makes GoogleTest or Cucumber run a part of its tests.
#[must_use]
pub fn narrows(name: &str, value: &str) -> bool {
    NARROWING.iter().any(|(narrowing, all)| name == *narrowing && !all.contains(&value))
}

/// Whether a variable with this value makes each GoogleTest process run one of several shards.
pub(super) fn is_sharded(name: &str, value: &str) -> bool {
    name == "GTEST_TOTAL_SHARDS" && narrows(name, value)
}

/// Where a command of a script ends.
const END: &str = ";";

/// The words of a command. Words inside a shell's argument count separately.
struct Words(Vec<String>);

impl Words {
    fn of(command: &[String]) -> Self {
        let ends = |word: &String| word.replace([';', '&', '|', '(', ')', '\n'], &format!(" {END} "));
        let words = command.iter().map(ends).collect::<Vec<_>>();
        let words = words.iter().flat_map(|word| word.split_whitespace());
        // `make test ARGS="-R Map"`: make passes these words to ctest.
        Self(words.map(|word| word.replace(['"', '\''], "").trim_start_matches("ARGS=").to_owned()).collect())
    }

    fn any(&self, is: impl Fn(&str) -> bool) -> bool {
        self.0.iter().any(|word| is(word))
    }

    fn runs(&self, programs: &[&str]) -> bool {
        self.any(|word| programs.contains(&word.rsplit('/').next().unwrap_or(word)))
    }

    /// `-R`, `--tests-regex=Map`.
    fn has(&self, options: &[&str]) -> bool {
        let is = |word: &str, option| {
            word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        };
        self.any(|word| options.iter().any(|option| is(word, *option)))
    }

    fn begins(&self, options: &[&str]) -> bool {
        self.any(|word| options.iter().any(|option| word.starts_with(option)))
    }

    /// `meson test -C build map`.
    fn names_tests_of_meson(&self) -> bool {
        let of_meson = self.0.windows(2).position(|pair| {
            pair[0].rsplit('/').next().is_some_and(|file| file.starts_with("meson")) && pair[1] == "test"
        });
        let Some(test) = of_meson.map(|meson| meson + 1) else { return false };
        // What follows in a script is no word of meson.
        let ends = |word: &str| word == END || word.contains(['<', '>']);
        let of_it = self.0[test..].iter().take_while(|word| !ends(word));
        let words: Vec<String> = of_it.cloned().collect();
        let names =
            |pair: &[String]| !pair[1].starts_with('-') && !VALUES_OF_MESON.contains(&pair[0].as_str());
        words.windows(2).any(names) || Self(words).has(&OF_MESON)
    }
}

/// Whether this build selects tests of its build files. Several of these may run one program, with other arguments or
/// variables: what such a program does not show may be in a run that was left out.
pub(super) fn selects_of_build(command: &[String]) -> bool {
    let words = Words::of(command);
    (words.runs(&BUILDS) && words.has(&OF_CTEST))
        || (words.runs(&["make", "gmake"]) && words.begins(&OF_AUTOMAKE))
        || words.names_tests_of_meson()
}

/// Whether this command selects some of its tests.
pub(super) fn selects(command: &[String]) -> bool {
    let words = Words::of(command);
    words.any(|word| word.split_once('=').is_some_and(|(name, value)| narrows(name, value)))
        || words.any(|word| of_gtest(word).is_some())
        || words.begins(&OF_SUREFIRE)
        || words.has(&["--tests"])
        || selects_of_build(command)
        || (words.runs(&["mvn", "mvnw", "mvnd"]) && words.has(&OF_MAVEN))
        || (words.runs(&["gradle", "gradlew"]) && words.has(&OF_GRADLE))
        || (words.any(|word| word.contains("junit-platform-console")) && words.begins(&OF_JUNIT))
}

/// The option with which GoogleTest leaves out tests, and its value.
fn of_gtest(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.trim_start_matches('-').strip_prefix("gtest_")?.split_once('=')?;
    let all: &[&str] = match name {
        "filter" => &["", "*"],
        "flagfile" => &[""],
        "fail_fast" => &["0", "false"],
        _ => return None,
    };
    (!all.contains(&value)).then_some((name, value))
}

/// Whether a GoogleTest program below this command got a part of its tests, for example from a script. A build starts
/// each of its tests with a filter, and a filter for one test may come from such a build.
#[must_use]
pub fn is_filtered(command: &[String], arguments: &[String]) -> bool {
    let of_some = |(name, value): (&str, &str)| match name {
        "filter" => value.starts_with('-') || value.contains(['*', '?', ':']),
        _ => name == "flagfile",
    };
    !Words::of(command).runs(&BUILDS) && arguments.iter().filter_map(|word| of_gtest(word)).any(of_some)
}

/// The number of the typed command if it is a build that selects some of its tests, otherwise 0.
pub(super) fn of_build(request: &RunArgs, project: &Path) -> i64 {
    let typed = typed(request);
    if selects_of_build(&typed) { number(&typed, project) } else { 0 }
}

/// Each machine may have the project in another folder: paths in it count from there.
fn number(command: &[String], project: &Path) -> i64 {
    let folder = project.parent().map(|_is_not_the_root| project.display().to_string());
    let from_there = |word: &String| match &folder {
        Some(folder) => from_folder(word, folder),
        None => word.clone(),
    };
    memgate_history::number_of_selection(&command.iter().map(from_there).collect::<Vec<_>>())
}

/// Is a path written after this text the value of an option that is glued to it (`-C/home/anna/tiles`)?
fn is_option(before: &str, is_edge: impl Fn(char) -> bool) -> bool {
    let word = before.rsplit(is_edge).next().unwrap_or(before);
    let letters = word.strip_prefix('-').map(|rest| rest.trim_start_matches('-'));
    letters.is_some_and(|letters| !letters.is_empty() && letters.chars().all(|c| c.is_ascii_alphabetic()))
}

/// The word with the paths that begin with this folder counted from it. A word may be text for a shell.
fn from_folder(word: &str, folder: &str) -> String {
    let is_edge = |c: char| c.is_whitespace() || "=:;&|()'\"".contains(c);
    let is_end = |text: &str| text.is_empty() || text.starts_with(is_edge);
    let (mut whole, mut done) = (String::new(), 0);
    for (at, _) in word.match_indices(folder) {
        let (before, rest) = (&word[..at], &word[at + folder.len()..]);
        let inside = rest.strip_prefix('/');
        let begins = before.is_empty() || before.ends_with(is_edge) || is_option(before, is_edge);
        if at < done || !begins || (inside.is_none() && !is_end(rest)) {
            continue;
        }
        whole += &word[done..at];
        if is_end(inside.unwrap_or(rest)) {
            whole.push('.');
        }
        done = at + folder.len() + usize::from(inside.is_some());
    }
    whole + &word[done..]
}

fn typed(request: &RunArgs) -> Vec<String> {
    request.program.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Whether the run is partial: a waiver without a match is reported only when everything ran.
pub(super) fn is_partial(settings: &Settings, request: &RunArgs) -> bool {
    let narrowed = |suite: &Suite| suite.env.iter().any(|(name, value)| narrows(name, value));
    request.filter.is_some()
        || settings.config.suites.iter().any(narrowed)
        || !request.suites.is_empty()
        || selects(&typed(request))
        || (!request.program.is_empty() && leaves_out_suites(&settings.config, request))
}

/// Whether a suite of the configuration does not run.
fn leaves_out_suites(config: &Config, request: &RunArgs) -> bool {
    let programs = config.suites.iter().map(|suite| &suite.name);
    let on_devices = config.instrumented.iter().map(|suite| &suite.name);
    programs.chain(on_devices).any(|name| !is_chosen(config, request, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split('|').map(str::to_owned).collect()
    }

    #[test]
    fn a_command_that_chooses_tests_is_known() {
        for command in [
            "ctest|--test-dir|cb|-R|clean",
            "/usr/bin/ctest|-LE|slow",
            "ctest|--tests-regex=Map",
            "ctest|--rerun-failed",
            "make|test|ARGS=-j4 -E Map",
            "make|check|TESTS=map.test tile.test",
            "meson|test|-C|build|map",
            "/usr/bin/meson|test|--no-suite=slow",
            "sh|-c|cd cb && ctest -I 1,5",
            "sh|-c|build/t --gtest_filter='Map.*'",
            "build/t|--gtest_flagfile=flags",
            "env|GTEST_FILTER=Map.*|build/t",
            "sh|-c|GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=0 build/t",
            "mvn|test|-Dtest=MapTest",
            "mvn|verify|-Dit.test=MapIT",
            "mvn|test|-Dgroups=fast",
            "mvn|test|-Dcucumber.filter.name=a tile",
            "mvn|test|-Dsurefire.skipAfterFailureCount=1",
            "env|CUCUMBER_FILTER_TAGS=not @wip|mvn|test",
            "gradle|test|--fail-fast",
            "./mvnw|-pl|core|-am|test",
            "mvn|-rf|:core|test",
            "gradle|test|--tests|MapTest",
            "./gradlew|check|-x|slowTest",
            "java|-jar|junit-platform-console-standalone.jar|--select-class=MapTest",
        ] {
            assert!(selects(&words(command)), "{command}");
        }
    }

    #[test]
    fn only_a_build_may_leave_out_other_runs_of_a_program() {
        for command in ["ctest|-R|clean", "make|check|TESTS=map.test", "meson|test|map"] {
            assert!(selects_of_build(&words(command)), "{command}");
        }
        for command in ["ctest|-j4", "build/t|--gtest_filter=Map.*", "mvn|test|-Dtest=MapTest"] {
            assert!(!selects_of_build(&words(command)), "{command}");
        }
    }

    /// Regression: on another machine the same command was another selection, so it proved no fix.
    #[test]
    fn a_selection_is_the_same_wherever_the_project_is() {
        let of = |command: &str, project: &str| number(&words(command), Path::new(project));
        let first = of("ctest|--test-dir|/home/a/build/x|-R|map", "/home/a");
        assert_eq!(first, of("ctest|--test-dir|/ci/7/build/x|-R|map", "/ci/7"));
        assert_eq!(first, of("ctest|--test-dir|build/x|-R|map", "/ci/7"));
        assert_ne!(first, of("ctest|--test-dir|/home/a/build/y|-R|map", "/home/a"), "another build");
        assert_ne!(first, of("ctest|--test-dir|/home/a/build/x|-R|map", "/"), "no project is known");
    }

    #[test]
    fn the_folder_of_a_project_is_left_out_only_where_a_path_begins_with_it() {
        for (word, counted) in [
            ("/home/a", "."),
            ("/home/a/", "."),
            ("--test-dir=/home/a", "--test-dir=."),
            ("--test-dir=/home/a/x", "--test-dir=x"),
            ("cd /home/a && ctest --test-dir /home/a/x -R '/home/a/y'", "cd . && ctest --test-dir x -R 'y'"),
            ("-C/home/a/x", "-Cx"),
            ("-LE/home/a", "-LE."),
            ("make -C/home/a/x", "make -Cx"),
            ("/-C/home/a", "/-C/home/a"),
            ("-/home/a", "-/home/a"),
            ("/home/ab", "/home/ab"),
            ("/mnt/home/a", "/mnt/home/a"),
            ("/mnt/home/a/x", "/mnt/home/a/x"),
        ] {
            assert_eq!(from_folder(word, "/home/a"), counted, "{word}");
        }
        assert_eq!(from_folder("/a b)/a b)/x", "/a b)"), "a b)/x");
    }

    #[test]
    fn a_command_that_runs_all_tests_is_none() {
        for command in [
            "build/t",
            "build/t|--gtest_filter=*|--gtest_shuffle",
            "build/t|-R|-x|-pl",
            "build/t|TESTS=5",
            "make|-j4|check",
            "meson|test|-C|build|-j|4|--print-errorlogs",
            "ctest|--test-dir|cb|-j8|--output-on-failure",
            "env|GTEST_FILTER=*|GTEST_TOTAL_SHARDS=1|build/t",
            "mvn|-B|-Pci|-Dsurefire.useFile=false|clean|test",
            "./gradlew|--no-daemon|test|--continue",
            "java|-jar|junit-platform-console-standalone.jar|--scan-classpath",
        ] {
            assert!(!selects(&words(command)), "{command}");
        }
    }

    #[test]
    fn a_filter_that_a_script_gives_is_known_and_ctests_own_is_none() {
        for filter in
            ["--gtest_filter=Map.*", "--gtest_filter=A.a:B.b", "--gtest_filter=-Slow.a", "--gtest_flagfile=f"]
        {
            assert!(is_filtered(&words("./test.sh"), &words(filter)), "{filter}");
            assert!(!is_filtered(&words("ctest|-j8"), &words(filter)), "CMake files say so: {filter}");
        }
        for filter in ["--gtest_filter=Map.scroll", "--gtest_filter=*", "--gtest_repeat=2"] {
            assert!(!is_filtered(&words("./test.sh"), &words(filter)), "{filter}");
        }
    }
}
