//! Groups processes into suites, and names suites: names are as short as possible, but unique.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use memgate_analysis::ProcessRecord;

use crate::suite::gtest::SuiteId;
use crate::suite::junit::{Configuration, JvmSuiteId};

/// Groups items by id, in the order of first appearance.
#[must_use]
pub fn grouped<Id: PartialEq, T>(all: impl IntoIterator<Item = (Id, T)>) -> Vec<(Id, Vec<T>)> {
    let mut groups: Vec<(Id, Vec<T>)> = Vec::new();
    for (id, one) in all {
        match groups.iter_mut().find(|(known, _)| *known == id) {
            Some((_, group)) => group.push(one),
            None => groups.push((id, vec![one])),
        }
    }
    groups
}

/// The settings that the build made for a virtual machine, and the test classes that ran in it.
#[must_use]
pub fn configuration(record: &ProcessRecord) -> Configuration {
    let jvm = record.java.as_ref().and_then(|java| java.jvm.as_ref());
    let open = record.open.iter().map(|open| &open.window);
    let classes = record.windows.iter().chain(open).filter(|window| !window.test.is_empty());
    Configuration::of(jvm, classes.map(|window| window.suite.clone()).collect())
}

/// Names for the suites of one command. The only suite of a configured command has the configured name; several have it
/// as a prefix.
#[must_use]
pub fn suite_names(configured: Option<&str>, keys: &[SuiteId]) -> Vec<String> {
    match (configured, keys) {
        (None, _) => names(keys),
        (Some(name), [_]) => vec![name.to_owned()],
        (Some(name), _) => names(keys).into_iter().map(|own| format!("{name}/{own}")).collect(),
    }
}

/// Longest text of the arguments in the name of a suite that another one started.
const ARGUMENTS_SHOWN: usize = 120;

/// A name for the suite of processes that a measured program started. The name contains all arguments, if they are
/// short, and is not among the names in `taken`. So the names of other suites do not depend on it.
pub fn name_of_started(configured: Option<&str>, id: &SuiteId, taken: &mut BTreeSet<String>) -> String {
    let own = [vec![tail(&id.executable, 1)], arguments_of(id)].concat().join(" ");
    let own = match own.char_indices().nth(ARGUMENTS_SHOWN) {
        Some((at, _)) => format!("{}…", &own[..at]),
        None => own,
    };
    let name = configured.map_or_else(|| own.clone(), |name| format!("{name}/{own}"));
    let numbered = (2..).map(|number| format!("{name} ({number})"));
    let free = std::iter::once(name.clone()).chain(numbered).find(|name| taken.insert(name.clone()));
    free.unwrap_or(name)
}

/// Names for the JVM suites of one command: each suite's folder, with as many of its last parts as make it unique, and
/// its task.
#[must_use]
pub fn jvm_suite_names(configured: Option<&str>, suites: &[JvmSuiteId]) -> Vec<String> {
    if let (Some(name), [_]) = (configured, suites) {
        return vec![name.to_owned()];
    }
    let folders: Vec<SuiteId> = suites
        .iter()
        .map(|suite| SuiteId {
            executable: suite.directory.trim_end_matches('/').to_owned(),
            arguments: Vec::new(),
        })
        .collect();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    folders
        .iter()
        .zip(suites)
        .map(|(folder, suite)| {
            let mut own = short_path(folder, &folders);
            if let Some(task) = &suite.task {
                own = format!("{own} ({task})");
            }
            let name = configured.map_or_else(|| own.clone(), |name| format!("{name}/{own}"));
            // The same folder with another class path (unit and integration tests), or another configuration.
            let count = seen.entry(name.clone()).or_default();
            *count += 1;
            if *count > 1 { format!("{name} ({count})") } else { name }
        })
        .collect()
}

/// A name for each suite. The file name is usually enough; folders are added from the right while two executables share
/// it, then arguments if one executable runs with several.
fn names(keys: &[SuiteId]) -> Vec<String> {
    let shown: Vec<String> = keys.iter().map(|key| short_path(key, keys)).collect();
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for name in &shown {
        *seen.entry(name).or_default() += 1;
    }
    keys.iter()
        .zip(&shown)
        .map(|(key, name)| match seen.get(name.as_str()) {
            Some(2..) if !key.arguments.is_empty() => format!("{name} {}", arguments_of(key).join(" ")),
            _ => name.clone(),
        })
        .collect()
}

/// The arguments of a suite. Paths begin at the folder of its executable, so the suite has the same name in each
/// checkout.
fn arguments_of(id: &SuiteId) -> Vec<String> {
    let shown = |argument: &String| {
        let option = argument.find("=/").map_or("", |at| &argument[..=at]);
        let option = if argument.starts_with('/') { "" } else { option };
        let path = from_folder_of(&id.executable, &argument[option.len()..]);
        path.map_or_else(|| argument.clone(), |path| format!("{option}{path}"))
    };
    id.arguments.iter().map(shown).collect()
}

/// `../data/tiles` for a path that begins with the first two folders of `executable`, or with the first one if no more
/// than one is left. Other paths are outside of the project.
fn from_folder_of(executable: &str, path: &str) -> Option<String> {
    let folder: Vec<&str> = executable.rsplit_once('/')?.0.split('/').collect();
    let path: Vec<&str> = path.split('/').collect();
    let common = folder.iter().zip(&path).take_while(|(one, other)| one == other).count();
    let up = folder.len() - common;
    let steps: Vec<&str> = std::iter::repeat_n("..", up).chain(path[common..].iter().copied()).collect();
    let relative = if steps.is_empty() { ".".to_owned() } else { steps.join("/") };
    (common > 2 || common > 1 && up < common).then_some(relative)
}

fn short_path(key: &SuiteId, keys: &[SuiteId]) -> String {
    let parts = Path::new(&key.executable).components().count();
    (1..=parts)
        .map(|count| tail(&key.executable, count))
        .find(|short| {
            keys.iter()
                .all(|other| other.executable == key.executable || !ends_with(&other.executable, short))
        })
        .unwrap_or_else(|| key.executable.clone())
}

/// The last `count` components of a path.
fn tail(path: &str, count: usize) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    parts[parts.len().saturating_sub(count)..].join("/")
}

fn ends_with(path: &str, short: &str) -> bool {
    path.strip_suffix(short).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_name_stands_before_those_of_several_executables() {
        let key = |executable: &str| SuiteId { executable: executable.to_owned(), arguments: Vec::new() };
        assert_eq!(suite_names(Some("unit"), &[key("/b/one")]), ["unit"]);
        assert_eq!(suite_names(Some("unit"), &[key("/b/one"), key("/b/two")]), ["unit/one", "unit/two"]);
        assert_eq!(suite_names(None, &[key("/b/one")]), ["one"]);
    }

    #[test]
    fn a_process_that_a_suite_started_has_a_bounded_name_of_its_own() {
        let mut taken = BTreeSet::from(["run x".to_owned()]);
        let mut name = |arguments: &[&str], configured| {
            let arguments = arguments.iter().map(|&a| a.to_owned()).collect();
            name_of_started(configured, &SuiteId { executable: "/b/run".to_owned(), arguments }, &mut taken)
        };
        assert_eq!(name(&["y", "z"], None), "run y z");
        assert_eq!(name(&["x"], None), "run x (2)", "another suite has the name");
        assert_eq!(name(&["x"], Some("uv")), "uv/run x");
        let long = ["ä".repeat(1000), "ä".repeat(1001)];
        let names = long.each_ref().map(|long| name(&[long], None));
        assert!(names[0].chars().count() == 121 && names[0] != names[1], "{names:?}");
    }

    #[test]
    fn jvm_suites_are_called_like_their_folders() {
        let suite = |directory: &str, task: &str| JvmSuiteId {
            directory: directory.to_owned(),
            class_path: Vec::new(),
            task: (!task.is_empty()).then(|| task.to_owned()),
        };
        assert_eq!(jvm_suite_names(None, &[suite("/p/tiles", "")]), ["tiles"]);
        assert_eq!(jvm_suite_names(Some("unit"), &[suite("/p/tiles", "slow")]), ["unit"]);
        let of = |all: &[(&str, &str)]| {
            let all: Vec<_> = all.iter().map(|(directory, task)| suite(directory, task)).collect();
            jvm_suite_names(Some("unit"), &all)
        };
        assert_eq!(
            of(&[("/p/core", ""), ("/p/core", ""), ("/p/x/api", ""), ("/p/y/api/", "")]),
            ["unit/core", "unit/core (2)", "unit/x/api", "unit/y/api"]
        );
        let tasks = [("/p/core", "slow"), ("/p/core", ""), ("/p/core", "testRelease"), ("/p/core", "slow")];
        let names = ["unit/core (slow)", "unit/core", "unit/core (testRelease)", "unit/core (slow) (2)"];
        assert_eq!(of(&tasks), names, "the order of tasks does not matter");
    }

    #[test]
    fn names_are_short_and_different() {
        let key = |executable: &str, arguments: &[&str]| SuiteId {
            executable: executable.to_owned(),
            arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
        };
        for (keys, want) in [
            (vec![key("/b/engine_tests", &[])], vec!["engine_tests"]),
            (vec![key("/b/one", &["--fast"]), key("/b/two", &[])], vec!["one", "two"]),
            (vec![key("/b/a/tests", &[]), key("/b/c/tests", &[])], vec!["a/tests", "c/tests"]),
            (vec![key("/x/a/tests", &[]), key("/y/a/tests", &[])], vec!["x/a/tests", "y/a/tests"]),
            (vec![key("/b/tests", &[]), key("/b/tests", &["--slow"])], vec!["tests", "tests --slow"]),
            (vec![key("/tests", &[]), key("/a/tests", &[])], vec!["/tests", "a/tests"]),
            (
                vec![
                    key("/ci/1/b/json", &["/ci/1/t/a=/b", "/etc/x"]),
                    key("/ci/1/b/json", &["-i=/ci/1/b/c", "a", "/ci/1/b", "/ci/shared/x"]),
                ],
                vec!["json ../t/a=/b /etc/x", "json -i=c a . /ci/shared/x"],
            ),
            (vec![key("", &[])], vec![""]),
        ] {
            assert_eq!(names(&keys), want, "{keys:?}");
        }
    }
}
