//! `ctest`: lists its tests, and runs some of them.
//!
//! `ctest … -N` lists the tests that the user's own arguments select, by number and name; `-I FILE` runs tests by their
//! numbers. `--show-only=json-v1` shows which programs they start.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use serde::Deserialize;

use super::gtest;

/// Options that select tests by number, like ours.
const NUMBERS: [&str; 2] = ["-I", "--tests-information"];

/// Whether the command is `ctest`.
#[must_use]
pub fn is_ctest(command: &[OsString]) -> bool {
    command.first().map(Path::new).and_then(Path::file_name) == Some(OsStr::new("ctest"))
}

/// Whether the command itself selects tests by number.
#[must_use]
pub fn chooses_numbers(command: &[OsString]) -> bool {
    command.iter().any(|argument| {
        let argument = argument.to_string_lossy();
        NUMBERS.iter().any(|option| argument.starts_with(option))
    })
}

/// A test of `ctest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CtestTest {
    /// Its number among all tests of the build folder.
    pub number: u32,
    /// Its name.
    pub name: String,
}

/// Reads the output of `ctest -N`; `None`: it is not such a listing.
///
/// ```text
///   Test  #1: Map.scroll
///   Test #12: Map.zoom (Disabled)
///
/// Total Tests: 2
/// ```
#[must_use]
pub fn parse_list(output: &[u8]) -> Option<Vec<CtestTest>> {
    let text = String::from_utf8_lossy(output);
    let mut tests = Vec::new();
    let mut total = None;
    for line in text.lines() {
        if let Some(count) = line.strip_prefix("Total Tests: ") {
            total = count.trim().parse::<usize>().ok();
        }
        let Some((number, name)) = line
            .trim_start()
            .strip_prefix("Test")
            .and_then(|rest| rest.trim_start().strip_prefix('#')?.split_once(": "))
        else {
            continue;
        };
        let Ok(number) = number.parse() else { continue };
        tests.push(CtestTest { number, name: name.to_owned() });
    }
    (total == Some(tests.len())).then_some(tests)
}

/// The content of the `-I` file for tests with these numbers.
#[must_use]
pub fn numbers(tests: &[CtestTest]) -> String {
    // First, last, stride: these zeros select no test.
    let numbers = tests.iter().map(|test| format!(",{}", test.number));
    format!("0,0,0{}\n", numbers.collect::<String>())
}

/// The same tests, numbered from 1 in the order of the listing.
#[must_use]
pub fn counted(tests: &[CtestTest]) -> Vec<CtestTest> {
    (1..).zip(tests).map(|(number, test)| CtestTest { number, name: test.name.clone() }).collect()
}

/// Whether all of these tests are listed. Fixtures that they need may be listed too.
#[must_use]
pub fn has_all(listed: &[CtestTest], tests: &[CtestTest]) -> bool {
    let mut left: Vec<&str> = listed.iter().map(|test| test.name.as_str()).collect();
    left.sort_unstable();
    let mut wanted: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
    wanted.sort_unstable();
    let mut left = left.into_iter();
    wanted.into_iter().all(|wanted| left.any(|name| name == wanted))
}

#[derive(Deserialize)]
struct Shown {
    tests: Vec<ShownTest>,
}

#[derive(Deserialize)]
struct ShownTest {
    #[serde(default)]
    name: String,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    properties: Vec<Property>,
}

#[derive(Deserialize)]
struct Property {
    name: String,
    #[serde(default)]
    value: serde_json::Value,
}

/// The tests of ctest that a GoogleTest filter selects, and the names of their own that they start.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Filtered {
    /// Names of the tests of ctest.
    pub tests: BTreeSet<String>,
    /// Each test that a command names, also those that are not selected.
    pub named: Vec<String>,
    /// Whether one of these is selected.
    pub names_one: bool,
}

/// Applies a filter to the commands of tests. A command with a `--gtest_filter` of its own, which goes before any
/// other, is selected by the test that it names. All others get the filter as a variable, so they run.
#[must_use]
pub fn filtered(commands: &[(String, Vec<String>)], filter: &str) -> Filtered {
    let own = |word: &String| {
        let flag = ["--", "-"].iter().find_map(|dashes| word.strip_prefix(dashes))?;
        flag.strip_prefix("gtest_filter=").map(str::to_owned)
    };
    let mut found = Filtered::default();
    for (test, command) in commands {
        let named = command.iter().rev().find_map(own);
        let several = named.as_ref().is_some_and(|named| named.contains(['*', '?', ':', '-']));
        if several || named.as_ref().is_none_or(|named| gtest::selects(filter, named)) {
            found.tests.insert(test.clone());
            found.names_one |= named.is_some();
        }
        found.named.extend(named.filter(|_| !several));
    }
    found
}

/// The commands of the enabled tests with the tests' names, from `ctest --show-only=json-v1`; empty if the output has
/// none.
#[must_use]
pub fn commands(json: &[u8]) -> Vec<(String, Vec<String>)> {
    let shown = serde_json::from_slice::<Shown>(json).map(|shown| shown.tests).unwrap_or_default();
    let is_off =
        |property: &Property| property.name == "DISABLED" && property.value == serde_json::Value::Bool(true);
    let runs = |test: &ShownTest| !test.command.is_empty() && !test.properties.iter().any(is_off);
    shown.into_iter().filter(runs).map(|test| (test.name, test.command)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read_with_its_numbers_and_only_whole() {
        let listing =
            "Test project /b\n  Test  #1: Map.scroll\n  Test #12: name: with colon\n\nTotal Tests: 2\n";
        let tests = parse_list(listing.as_bytes()).unwrap();
        assert_eq!(
            tests,
            [
                CtestTest { number: 1, name: "Map.scroll".into() },
                CtestTest { number: 12, name: "name: with colon".into() },
            ]
        );
        assert_eq!(numbers(&tests), "0,0,0,1,12\n");
        assert_eq!(parse_list(b"  Test  #1: Map.scroll\n\nTotal Tests: 2\n"), None, "one is missing");
        assert_eq!(parse_list(b"No tests were found!!!\n"), None);
        assert_eq!(parse_list(b"\nTotal Tests: 0\n"), Some(Vec::new()));
    }

    #[test]
    fn what_is_listed_is_compared_by_name_and_number_of_times() {
        let tests = |names: &[&str]| -> Vec<CtestTest> {
            names.iter().map(|&name| CtestTest { number: 7, name: name.to_owned() }).collect()
        };
        let listed = tests(&["b", "a", "fixture", "b"]);
        assert!(has_all(&listed, &tests(&["a", "b"])) && has_all(&listed, &tests(&["b", "b"])));
        assert!(!has_all(&listed, &tests(&["a", "a"])) && !has_all(&listed, &tests(&["c"])));
        assert_eq!(counted(&listed).iter().map(|test| test.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_filter_selects_the_tests_that_name_one_and_those_that_get_it() {
        let test = |name: &str, command: &str| {
            (name.to_owned(), command.split(' ').map(str::to_owned).collect::<Vec<_>>())
        };
        let commands = [
            test("p.Map.Scroll", "/b/t --gtest_filter=Map.Scroll --gtest_also_run_disabled_tests"),
            test("p.Map.Zoom", "/b/t --gtest_filter=Map.Zoom"),
            test("Load/day", "/b/t --gtest_filter=All/Styles.Load/0"),
            test("whole", "/b/u"),
        ];
        let of = |filter: &str| {
            let Filtered { tests, named, names_one } = filtered(&commands, filter);
            assert_eq!((named.len(), names_one), (3, tests.len() > 1));
            tests.into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("Map.Scroll"), "p.Map.Scroll whole");
        assert_eq!(of("Map.*:-*.Zoom"), "p.Map.Scroll whole");
        assert_eq!(of("-Map.*"), "Load/day whole");
        assert_eq!(of("All/Styles.Load/0"), "Load/day whole");
        assert_eq!(of("Mop.*"), "whole");
        let several = filtered(&[test("maps", "/b/t --gtest_filter=Map.*")], "Map.Zoom");
        assert!(several.tests.contains("maps") && several.named.is_empty(), "{several:?}");
    }

    #[test]
    fn numbers_that_the_user_gave_are_seen() {
        let of = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(is_ctest(&of("/usr/bin/ctest -j4")) && !is_ctest(&of("make test")));
        assert!(
            chooses_numbers(&of("ctest -I 1,2")) && chooses_numbers(&of("ctest --tests-information 1,2"))
        );
        assert!(!chooses_numbers(&of("ctest --test-dir build -R Map")));
    }

    #[test]
    fn commands_are_read_and_bad_ones_are_none() {
        let json = br#"{"tests":[{"name":"a","command":["/b/t","-x"],"properties":[{"name":"LABELS","value":["x"]}]},
            {"name":"b"},{"name":"c","command":["t"],"properties":[{"name":"DISABLED","value":true}]}]}"#;
        assert_eq!(commands(json), [("a".to_owned(), vec!["/b/t".to_owned(), "-x".to_owned()])]);
        assert!(commands(b"{").is_empty());
    }
}
