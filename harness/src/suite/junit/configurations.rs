//! Configurations of one suite: a build may run the tests of one class path several times, with different system
//! properties or options. A leak may depend on one of them, so each configuration is repeated separately.
//!
//! Forks of one execution form one configuration, although their numbers, ports and temporary folders differ. No test
//! class runs in two forks of one execution. So if two virtual machines ran the same class, any different value
//! separates them. Otherwise, only properties that both have count, and words with digits in them are ignored.

use std::collections::BTreeSet;
use std::path::Path;

use memgate_wire::java::JvmInfo;

use super::{is_left_out, set_by_build};

/// Properties of build tools: the requested tests, the number of the worker.
const OF_TOOLS: [&str; 7] = ["failsafe.", "gradle.", "idea.", "jacoco", "maven.", "org.gradle.", "surefire."];
const OF_SELECTION: [&str; 4] = ["test", "it.test", "groups", "excludedGroups"];
/// Name endings of properties that have another value in each virtual machine.
const OF_ONE: [&str; 12] = [
    "date",
    "fork",
    "number",
    "pid",
    "port",
    "seed",
    "tempdir",
    "time",
    "timestamp",
    "tmpdir",
    "uuid",
    "worker",
];
/// Folders of outputs, and the build file next to each.
const OUTPUTS: [(&str, &str); 3] =
    [("target", "pom.xml"), ("build", "build.gradle"), ("build", "build.gradle.kts")];
/// Part of values that are temporary paths.
const TEMPORARY: &str = "/tmp/";

/// The build's settings for a virtual machine, and the test classes that ran in it.
#[derive(Debug, Default)]
pub struct Configuration {
    settings: BTreeSet<(String, String)>,
    classes: BTreeSet<String>,
}

/// Virtual machines of one configuration.
#[derive(Debug)]
pub struct Configured<T> {
    /// Settings that differ from the first configuration of the suite.
    pub others: Vec<String>,
    /// Its virtual machines, in their order; those without tests are added to the end of the first configuration.
    pub workers: Vec<T>,
}

impl Configuration {
    /// The configuration of a virtual machine in which tests of these classes ran.
    #[must_use]
    pub fn of(jvm: Option<&JvmInfo>, classes: BTreeSet<String>) -> Self {
        let properties = jvm.into_iter().flat_map(set_by_build);
        let properties = properties.map(|(name, value, _)| (name.to_owned(), value.to_owned()));
        let options = jvm.into_iter().flat_map(|jvm| &jvm.vm_arguments);
        let options = options.filter(|option| !is_left_out(option) && !option.starts_with("-D"));
        let options = options.map(|option| (option.clone(), String::new()));
        let settings = properties.chain(options).filter(|(name, value)| counts(name, value)).collect();
        Self { settings, classes }
    }

    /// Names of settings in which the two differ.
    fn others(&self, other: &Self) -> BTreeSet<String> {
        let is_again = !self.classes.is_disjoint(&other.classes);
        let shown = |text: &str| if is_again { text.to_owned() } else { without_numbers(text) };
        let of = |configuration: &Self| -> BTreeSet<(String, String)> {
            configuration.settings.iter().map(|(name, value)| (shown(name), shown(value))).collect()
        };
        let (ours, theirs) = (of(self), of(other));
        let has = |settings: &BTreeSet<(String, String)>, name: &str| settings.iter().any(|(n, _)| n == name);
        // Properties that tests set during discovery are in some forks only.
        let is_builds =
            |name: &str| is_again || name.starts_with('-') || has(&ours, name) && has(&theirs, name);
        let others = ours.symmetric_difference(&theirs).map(|(name, _)| name.clone());
        others.filter(|name| is_builds(name)).collect()
    }
}

/// The configurations of a suite, in the order of first appearance.
#[must_use]
pub fn configurations<T>(workers: Vec<(Configuration, T)>) -> Vec<Configured<T>> {
    let mut found: Vec<(Configuration, Configured<T>)> = Vec::new();
    let (idle, testing): (Vec<_>, Vec<_>) =
        workers.into_iter().partition(|(configuration, _)| configuration.classes.is_empty());
    for (configuration, worker) in testing {
        match found.iter_mut().find(|(known, _)| known.others(&configuration).is_empty()) {
            Some((known, configured)) => {
                known.classes.extend(configuration.classes);
                configured.workers.push(worker);
            }
            None => {
                let others = found.first().map(|(first, _)| first.others(&configuration));
                let others = others.into_iter().flatten().collect();
                found.push((configuration, Configured { others, workers: vec![worker] }));
            }
        }
    }
    let idle: Vec<T> = idle.into_iter().map(|(_, worker)| worker).collect();
    match found.first_mut() {
        Some((_, first)) => first.workers.extend(idle),
        None => found.push((Configuration::default(), Configured { others: Vec::new(), workers: idle })),
    }
    found.into_iter().map(|(_, configured)| configured).collect()
}

fn counts(name: &str, value: &str) -> bool {
    let lower = name.to_lowercase();
    !OF_TOOLS.iter().any(|start| lower.starts_with(start))
        && !OF_SELECTION.contains(&name)
        && !OF_ONE.iter().any(|end| lower.ends_with(end))
        && !value.contains(TEMPORARY)
        && !name.contains(TEMPORARY)
}

/// The module of a folder that the build created for one fork (`target/fork_2`), otherwise the folder itself: which
/// fork runs a test is chance.
pub(super) fn without_fork(directory: &str) -> String {
    let path = Path::new(directory);
    let is_made = |output: &&Path| {
        OUTPUTS.iter().any(|(name, build)| output.ends_with(name) && output.with_file_name(build).is_file())
    };
    let output = path.ancestors().skip(1).find(is_made);
    let is_numbered = |output: &&Path| {
        let below = path.strip_prefix(output).unwrap_or(path);
        below.to_string_lossy().contains(|c: char| c.is_ascii_digit())
    };
    let module = output.filter(is_numbered).and_then(Path::parent);
    module.map_or_else(|| directory.to_owned(), |module| module.to_string_lossy().into_owned())
}

/// The text with each word that contains a digit replaced by `#`.
fn without_numbers(text: &str) -> String {
    let words = text.split_inclusive(|c: char| !c.is_alphanumeric());
    let mut shown = String::new();
    for word in words {
        if word.contains(|c: char| c.is_ascii_digit()) {
            shown.push('#');
            shown.extend(word.chars().last().filter(|c| !c.is_alphanumeric()));
        } else {
            shown.push_str(word);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its class, properties and options.
    type Fork<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [&'a str]);

    fn split(workers: &[Fork<'_>]) -> Vec<(Vec<String>, Vec<usize>)> {
        let workers = workers.iter().enumerate().map(|(at, (class, properties, options))| {
            let mut jvm = super::super::tests::jvm(properties);
            jvm.vm_arguments = options.iter().map(|&option| option.to_owned()).collect();
            let classes = class.split_whitespace().map(str::to_owned).collect();
            (Configuration::of(Some(&jvm), classes), at)
        });
        configurations(workers.collect()).into_iter().map(|c| (c.others, c.workers)).collect()
    }

    #[test]
    fn each_value_that_the_build_sets_is_a_configuration() {
        let others = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        for (workers, want) in [
            (
                &[
                    ("A", &[("store", "memory"), ("basedir", "/p")][..], &["-Xmx1g"][..]),
                    ("A", &[("store", "disk"), ("basedir", "/p")], &["-Xmx1g"]),
                    ("B", &[("store", "memory"), ("basedir", "/p")], &["-Xmx1g"]),
                ][..],
                vec![(others(&[]), vec![0, 2]), (others(&["store"]), vec![1])],
            ),
            (
                // For executions with the same classes, numbers also count.
                &[("A", &[("level", "1")], &["-Xmx1g"]), ("A", &[("level", "2")], &["-Xmx2g"])],
                vec![(others(&[]), vec![0]), (others(&["-Xmx1g", "-Xmx2g", "level"]), vec![1])],
            ),
            (
                // A setting that only one execution of the build has.
                &[("A", &[], &[]), ("A", &[("store", "disk")], &[]), ("B", &[], &["-XX:+UseZGC"])],
                vec![
                    (others(&[]), vec![0]),
                    (others(&["store"]), vec![1]),
                    (others(&["-XX:+UseZGC"]), vec![2]),
                ],
            ),
            (
                // Other classes, with another word.
                &[("A", &[("store", "memory")], &[]), ("B", &[("store", "disk")], &[])],
                vec![(others(&[]), vec![0]), (others(&["store"]), vec![1])],
            ),
        ] {
            assert_eq!(split(workers), want, "{workers:?}");
        }
    }

    #[test]
    fn folders_of_forks_are_their_module() {
        let root = tempfile::tempdir().unwrap();
        let module = root.path().join("build/tiles");
        std::fs::create_dir_all(&module).unwrap();
        std::fs::write(module.join("pom.xml"), "").unwrap();
        let module = module.to_str().unwrap();
        for (below, found) in
            [("", ""), ("/target/fork_1", ""), ("/target/it", "/target/it"), ("/forks/1", "/forks/1")]
        {
            assert_eq!(without_fork(&format!("{module}{below}")), format!("{module}{found}"));
        }
    }

    #[test]
    fn forks_of_one_execution_are_one_configuration() {
        let first = [
            ("db.name", "store_1"),
            ("http.port", "8081"),
            ("work.dir", "/tmp/surefire-a"),
            ("org.gradle.test.worker", "1"),
            ("run", "6f1d7c52-1f6e-4a3b-9d11-0c8f5e2a7b90"),
        ];
        let second = [
            ("db.name", "store_2"),
            ("http.port", "8082"),
            ("work.dir", "/tmp/surefire-b"),
            ("org.gradle.test.worker", "2"),
            ("run", "0e9a4b13-7c2d-4f6a-8e55-a3b1c9d7e642"),
        ];
        let forks: &[Fork<'_>] = &[
            ("", &[("store", "of another execution")], &[]),
            ("A", &first, &["-XX:ErrorFile=/p/target/fork1.log"]),
            ("B", &second, &["-XX:ErrorFile=/p/target/fork2.log"]),
            (
                "C",
                &[("mode", "set by the test when it was looked for")],
                &["-XX:ErrorFile=/p/target/fork3.log"],
            ),
        ];
        assert_eq!(split(forks), [(Vec::new(), vec![1, 2, 3, 0])]);
        // Surefire was asked for other tests of the same class.
        let asked: &[Fork<'_>] = &[("A", &[("test", "A#one")], &[]), ("A", &[("test", "A#two")], &[])];
        assert_eq!(split(asked).len(), 1);
    }
}
