//! Reads the results that the build itself wrote for its tests: which tests ran, measured or not.
//!
//! Data flow: result files below the project, written since the build began ([`modules`]) → compared with the measured
//! virtual machines ([`unmeasured`]): a module whose tests ran elsewhere (for example in Maven itself) is reported as
//! an error. Without the agent, the same files say which tests a virtual machine ran (`observed`).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read as _;
use std::iter::repeat;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use memgate_formats::test_results::{TestOutcome, TestResults, test_results};
use memgate_model::{Problem, format_list, format_number_of};

use crate::exit::chain;
use crate::plan::PlannedSuite;
use crate::run::engine::Finished;
use crate::session::facts::problem;

/// Folders of Gradle's results, and the maximum depth of the files in them. Maven's folders are `target/*-reports`.
const RESULTS: [(&str, u32); 2] = [("build/test-results", 2), ("build/reports/junit", 2)];
/// Folder of the results of tests that Android's Gradle plugin ran on devices, and the maximum depth of its files.
const ON_DEVICES: (&str, u32) = ("build/outputs/androidTest-results", 5);
/// Maximum size of a result file.
const MAX_RESULT_BYTES: u64 = 64 << 20;
/// Folders to which a build may be configured to write results, the search depth, and the maximum number of folders per
/// level.
const OUTPUTS: [&str; 2] = ["target", "build"];
const OUTPUT_DEPTH: u32 = 3;
const MAX_OUTPUT_FOLDERS: usize = 500;
/// Folders of compiled test classes: Maven's, Gradle's, and those of Android's Gradle plugin for Java and Kotlin.
const CLASSES: [&str; 6] = [
    "target/test-classes",
    "build/classes/*/*",
    "build/intermediates/javac/*/classes",
    "build/intermediates/javac/*/*/classes",
    "build/intermediates/built_in_kotlinc/*/*/classes",
    "build/tmp/kotlin-classes/*",
];
/// Folders of sources and outputs contain no modules.
const NOT_ENTERED: [&str; 5] = ["src", "target", "build", "out", "node_modules"];
/// Maximum depth and number of folders of a project.
const MAX_DEPTH: u32 = 12;
const MAX_FOLDERS: u32 = 50_000;
/// Maximum number of test classes that are named.
const NAMED: usize = 3;
/// A property of the Java virtual machine, present if its runner wrote the properties.
const OF_JAVA: &str = "java.home";

/// A folder in which the build wrote results of Java tests.
#[derive(Debug, Default)]
pub(super) struct Module {
    folder: PathBuf,
    /// Tests by class: those that passed, and all that were not skipped.
    classes: BTreeMap<String, (u64, u64)>,
    /// Tests that ran on devices, by class.
    on_devices: BTreeMap<String, u64>,
}

/// Result files of one module that were written since then, by time: the order in which its classes ran.
pub(super) fn files(module: &Path, since: SystemTime) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for (folder, depth) in RESULTS {
        collect(&module.join(folder), depth, &mut files);
    }
    for entry in fs::read_dir(module.join("target")).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().ends_with("-reports") {
            collect(&entry.path(), 0, &mut files);
        }
    }
    files.retain(|path| is_written(path, since));
    files.sort_by_key(|path| fs::metadata(path).map_or((0, 0), |d| (d.mtime(), d.mtime_nsec())));
    files
}

/// Result files of tests on devices that were written since then.
fn files_on_devices(module: &Path, since: SystemTime) -> Vec<PathBuf> {
    let (folder, depth) = ON_DEVICES;
    let mut files = Vec::new();
    collect(&module.join(folder), depth, &mut files);
    files.retain(|path| is_written(path, since));
    files
}

fn is_written(path: &Path, since: SystemTime) -> bool {
    fs::metadata(path).and_then(|data| data.modified()).is_ok_and(|time| time >= since)
}

/// Result files that were written since then into other output folders, without copies of the usual ones.
fn files_elsewhere(module: &Path, since: SystemTime, usual: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for output in OUTPUTS {
        let mut level = vec![module.join(output)];
        for _ in 0..=OUTPUT_DEPTH {
            level.iter().for_each(|folder| collect(folder, 0, &mut found));
            level = level.iter().flat_map(|folder| folders(folder)).take(MAX_OUTPUT_FOLDERS).collect();
        }
    }
    let mut known: BTreeSet<OsString> =
        usual.iter().filter_map(|path| path.file_name()).map(Into::into).collect();
    let on_devices = module.join(ON_DEVICES.0);
    found.retain(|path| {
        !path.starts_with(&on_devices)
            && is_written(path, since)
            && path.file_name().is_some_and(|name| known.insert(name.into()))
    });
    found
}

/// Result files below a folder.
fn collect(folder: &Path, depth: u32, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("TEST-") && name.ends_with(".xml") {
            files.push(path);
        } else if depth > 0 && path.is_dir() {
            collect(&path, depth - 1, files);
        }
    }
}

/// Reads a result file, unless it is too large.
pub(super) fn read(path: &Path) -> Result<TestResults, String> {
    test_results(&bytes(path)?).map_err(|why| chain(&why))
}

fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|why| why.to_string())?;
    file.take(MAX_RESULT_BYTES + 1).read_to_end(&mut bytes).map_err(|why| why.to_string())?;
    if bytes.len() as u64 > MAX_RESULT_BYTES {
        return Err(format!("more than {MAX_RESULT_BYTES} bytes of results are too many"));
    }
    Ok(bytes)
}

/// The folder of the build of this command.
pub(in crate::run::runners) fn root(planned: &PlannedSuite) -> PathBuf {
    let here = planned.directory.clone().unwrap_or_default();
    let mut words = planned.command.iter().map(|word| word.to_string_lossy());
    let mut named = None;
    while let Some(word) = words.next() {
        match word.as_ref() {
            "-f" | "--file" | "-p" | "--project-dir" => named = words.next(),
            other => {
                let value = ["--file=", "--project-dir="].iter().find_map(|o| other.strip_prefix(o));
                named = value.map(|value| value.to_owned().into()).or(named);
            }
        }
    }
    let path = here.join(named.as_deref().unwrap_or("."));
    let folder = if path.is_file() { path.parent().map(Path::to_path_buf).unwrap_or_default() } else { path };
    // Virtual machines report real paths.
    fs::canonicalize(&folder).unwrap_or(folder)
}

/// The modules below a folder, and the files that could not be read.
pub(super) fn modules(root: &Path, since: SystemTime) -> (Vec<Module>, Vec<String>) {
    let (mut modules, mut problems) = (Vec::new(), Vec::new());
    let (mut left, mut seen) = (vec![(root.to_path_buf(), 0)], 0);
    while let Some((folder, depth)) = left.pop() {
        seen += 1;
        if seen > MAX_FOLDERS {
            problems.push(format!(
                "more than {MAX_FOLDERS} folders below {}: not all were looked at",
                root.display()
            ));
            break;
        }
        let mut module = Module { folder: folder.clone(), ..Module::default() };
        let usual = files(&folder, since);
        let on_devices = files_on_devices(&folder, since);
        for (file, is_of_device) in usual.iter().zip(repeat(false)).chain(on_devices.iter().zip(repeat(true)))
        {
            match read(file) {
                Ok(results) if is_of_device => module.ran_on_device(&results),
                Ok(results) => module.take(&results, true),
                Err(why) => problems.push(format!("{}: {why}", file.display())),
            }
        }
        // These may be any files of the tests: a file that is no result is ignored.
        let elsewhere = files_elsewhere(&folder, since, &usual);
        elsewhere.iter().filter_map(|file| read(file).ok()).for_each(|results| module.take(&results, false));
        if !(module.classes.is_empty() && module.on_devices.is_empty()) {
            modules.push(module);
        }
        if depth < MAX_DEPTH {
            left.extend(folders(&folder).map(|folder| (folder, depth + 1)));
        }
    }
    (modules, problems)
}

/// Folders that may contain a module. Links are not followed: they lead elsewhere, or back here.
fn folders(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let entered = !name.starts_with('.') && !NOT_ENTERED.contains(&name.as_ref());
        (entered && entry.file_type().is_ok_and(|kind| kind.is_dir())).then(|| entry.path())
    })
}

impl Module {
    /// Its name in messages.
    fn name(&self, root: &Path) -> String {
        let name = self.folder.strip_prefix(root).ok().filter(|path| !path.as_os_str().is_empty());
        let name = name.unwrap_or_else(|| Path::new(self.folder.file_name().unwrap_or_default()));
        name.display().to_string()
    }

    /// Adds the tests of a file, if a Java virtual machine ran them: tests of scripts are reported in such files too.
    /// For files in unusual places (`is_usual` is false), a class of the module shows this.
    fn take(&mut self, results: &TestResults, is_usual: bool) {
        let is_java = is_usual && results.properties.contains_key(OF_JAVA);
        for test in results.tests.iter().filter(|test| test.outcome != TestOutcome::Skipped) {
            if is_java || self.classes.contains_key(&test.class) || self.has_class(&test.class) {
                let (passed, all) = self.classes.entry(test.class.clone()).or_default();
                *passed += u64::from(test.outcome == TestOutcome::Passed);
                *all += 1;
            }
        }
    }

    fn ran_on_device(&mut self, results: &TestResults) {
        for test in results.tests.iter().filter(|test| test.outcome != TestOutcome::Skipped) {
            *self.on_devices.entry(test.class.clone()).or_default() += 1;
        }
    }

    /// Surefire reports tests that are not methods, such as ArchUnit rules in fields, under the simple name of their
    /// class. This is one if a class with that simple name has at least as many seen tests as are reported under both
    /// names.
    fn stands_for_a_class_of(&self, simple: &str, seen: &BTreeMap<&str, u64>) -> bool {
        let reported = |class: &str| self.classes.get(class).map_or(0, |(_, all)| *all);
        let is_it = |class: &str| class.rsplit_once('.').is_some_and(|(_, end)| end == simple);
        seen.iter()
            .any(|(class, tests)| is_it(class) && *tests >= reported(class).saturating_add(reported(simple)))
    }

    /// Whether its class file is where a build tool puts it.
    fn has_class(&self, class: &str) -> bool {
        let file = format!("{}.class", class.replace('.', "/"));
        let below =
            |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let into = |folders: Vec<PathBuf>, part: &str| match part {
            "*" => folders.into_iter().flat_map(below).collect(),
            part => folders.into_iter().map(|folder| folder.join(part)).collect(),
        };
        let has = |pattern: &&str| {
            let folders = pattern.split('/').fold(vec![self.folder.clone()], into);
            folders.iter().any(|folder| folder.join(&file).is_file())
        };
        CLASSES.iter().any(has)
    }
}

/// Tests that the build ran but that were not measured, for each module.
///
/// A class counts as measured if one of its tests was seen, or one of the class that its simple name stands for.
/// Runners that name their tests differently report other classes than the agent saw. Their tests may be those that
/// were seen but not reported, so as many missing tests as those are excused.
pub(super) fn unmeasured<'a>(
    root: &Path,
    modules: &[Module],
    processes: impl Iterator<Item = &'a Finished>,
) -> Vec<Problem> {
    let processes: Vec<(Option<&Path>, &Finished)> = processes
        .map(|process| (owner(modules, Path::new(&process.hello().working_directory)), process))
        .collect();
    let mut problems = on_devices(root, modules);
    for module in modules {
        // A worker may run in a folder above its module; one in another module belongs to that module.
        let may_be_its = |owner: &Option<&Path>| owner.is_none_or(|owner| module.folder.starts_with(owner));
        let its = processes.iter().filter(|(owner, _)| may_be_its(owner)).map(|(_, process)| *process);
        // A test that two executions of the build ran is reported twice.
        let seen: BTreeSet<(usize, &str, &str)> = (0..)
            .zip(its)
            .flat_map(|(at, process)| tests(process).map(move |(class, test)| (at, class, test)))
            .collect();
        let mut classes: BTreeMap<&str, u64> = BTreeMap::new();
        seen.iter().for_each(|(_, class, _)| *classes.entry(class).or_default() += 1);
        let reported = |class: &str| modules.iter().any(|module| module.classes.contains_key(class));
        let unexplained = seen.iter().filter(|(_, class, _)| !reported(class)).count() as u64;
        let is_seen =
            |class: &str| classes.contains_key(class) || module.stands_for_a_class_of(class, &classes);
        let missing = module.classes.iter().filter(|(class, _)| !is_seen(class));
        let missing: Vec<(&str, (u64, u64))> =
            missing.map(|(class, tests)| (class.as_str(), *tests)).collect();
        let nothing = missing.len() == module.classes.len();
        // A test that failed before it began is reported but has no boundaries. If other tests of the module were seen,
        // it does not count.
        let count: u64 = missing.iter().map(|(_, (passed, all))| if nothing { all } else { passed }).sum();
        if count > unexplained {
            let missing = missing.into_iter().filter(|(_, (passed, _))| nothing || *passed > 0);
            problems.push(not_measured(
                root,
                module,
                &missing.map(|(class, _)| class).collect::<Vec<_>>(),
                count,
            ));
        }
    }
    problems
}

/// The innermost module that contains a folder.
fn owner<'a>(modules: &'a [Module], folder: &Path) -> Option<&'a Path> {
    let around =
        modules.iter().map(|module| module.folder.as_path()).filter(|module| folder.starts_with(module));
    around.max_by_key(|module| module.components().count())
}

/// The tests of a process, by class and name.
fn tests(process: &Finished) -> impl Iterator<Item = (&str, &str)> {
    let ended = process.record.windows.iter();
    let open = process.record.open.iter().map(|open| &open.window);
    ended.chain(open).filter(|window| !window.test.is_empty()).map(|w| (w.suite.as_str(), w.test.as_str()))
}

/// Tests that the build ran on devices: none of them is measured.
pub(super) fn on_devices(root: &Path, modules: &[Module]) -> Vec<Problem> {
    let tell = |module: &Module| {
        let classes: Vec<&str> = module.on_devices.keys().map(String::as_str).collect();
        let tests = format_number_of(module.on_devices.values().sum::<u64>(), "test");
        let what = format!(
            "not measured: {tests} that the build ran on a device ({})",
            format_list(&classes, NAMED)
        );
        let hint =
            "add a suite with `runner: instrumentation`, which runs them itself (`memgate docs android`)";
        problem(&module.name(root), what, hint)
    };
    modules.iter().filter(|module| !module.on_devices.is_empty()).map(tell).collect()
}

fn not_measured(root: &Path, module: &Module, classes: &[&str], count: u64) -> Problem {
    let (shown, tests) = (format_list(classes, NAMED), format_number_of(count, "test"));
    let what =
        format!("not measured: the build reports {tests} that no measured virtual machine ran ({shown})");
    let hint = "Surefire with forkCount=0 runs tests in Maven itself, and tests of TestNG or of a JUnit before 4 \
                (surefire-junit3) are not understood: none of them is measured; HotSpot 17 or later is needed";
    problem(&module.name(root), what, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUREFIRE: &str = "<testsuite><properties><property name=\"java.home\" value=\"/jdk\"/></properties>\
        <testcase name=\"a\" classname=\"com.example.ATest\"/>\
        <testcase name=\"b\" classname=\"com.example.BTest\"><skipped/></testcase></testsuite>";

    #[test]
    fn results_that_are_too_large_are_not_read_into_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("TEST-a.xml");
        File::create(&path).unwrap().set_len(MAX_RESULT_BYTES + 1).unwrap();
        assert!(read(&path).unwrap_err().contains("too many"));
        fs::write(&path, "<testsuite/>").unwrap();
        assert_eq!(read(&path), Ok(TestResults::default()));
    }

    #[test]
    fn a_module_is_where_tests_of_java_were_reported() {
        let root = tempfile::tempdir().unwrap();
        let script = "<testsuite><testcase name=\"a\" classname=\"cart\"/></testsuite>";
        for (file, text) in [
            ("core/target/surefire-reports/TEST-a.xml", SUREFIRE),
            ("web/target/surefire-reports/TEST-cart.xml", script),
            (
                "x/app/build/test-results/test/TEST-a.xml",
                "<testsuite><testcase name=\"a\" classname=\"com.ATest\"/></testsuite>",
            ),
            ("x/app/build/classes/java/test/com/ATest.class", ""),
            (".git/target/surefire-reports/TEST-a.xml", SUREFIRE),
            ("y/target/junit/it/TEST-a.xml", SUREFIRE),
            ("y/target/test-classes/com/example/ATest.class", ""),
            ("z/target/fixtures/TEST-a.xml", SUREFIRE),
        ] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let (mut found, problems) = modules(root.path(), SystemTime::UNIX_EPOCH);
        found.sort_by(|a, b| a.folder.cmp(&b.folder));
        let told: Vec<_> = found
            .iter()
            .map(|m| (m.folder.strip_prefix(root.path()).unwrap().to_str().unwrap(), m.classes.clone()))
            .collect();
        let of = |class: &str| BTreeMap::from([(class.to_owned(), (1, 1))]);
        assert_eq!(
            told,
            [("core", of("com.example.ATest")), ("x/app", of("com.ATest")), ("y", of("com.example.ATest"))]
        );
        assert!(problems.is_empty(), "{problems:?}");
        assert!(
            modules(root.path(), SystemTime::now() + std::time::Duration::from_secs(60)).0.is_empty(),
            "of another run"
        );
        assert_eq!(owner(&found, &root.path().join("core/x")), Some(root.path().join("core").as_path()));
        let problems = unmeasured(root.path(), &found, std::iter::empty());
        let places: Vec<&str> = problems.iter().map(|problem| problem.r#where.as_str()).collect();
        assert_eq!(places, ["core", "x/app", "y"]);
        assert!(problems[0].what.contains("1 test that no measured"), "{}", problems[0].what);
    }

    #[test]
    fn modules_of_androids_plugin_have_classes_and_tests_on_devices_too() {
        let root = tempfile::tempdir().unwrap();
        let ran =
            |class: &str| format!("<testsuite><testcase name=\"a\" classname=\"{class}\"/></testsuite>");
        for (file, text) in [
            ("app/build/test-results/testDebugUnitTest/TEST-a.xml", ran("com.ATest")),
            (
                "app/build/intermediates/javac/debugUnitTest/compileDebugUnitTest/classes/com/ATest.class",
                String::new(),
            ),
            ("app/build/test-results/testDebugUnitTest/TEST-b.xml", ran("com.BTest")),
            ("app/build/tmp/kotlin-classes/debugUnitTest/com/BTest.class", String::new()),
            ("app/build/test-results/testDebugUnitTest/TEST-script.xml", ran("script")),
            ("ui/build/outputs/androidTest-results/connected/TEST-old.xml", ran("com.CTest")),
            ("ui/build/intermediates/javac/debugAndroidTest/classes/com/CTest.class", String::new()),
            (
                "ui/build/outputs/androidTest-results/connected/debug/TEST-Pixel - 13-_ui-.xml",
                ran("com.CTest"),
            ),
            (
                "ui/build/outputs/androidTest-results/managedDevice/debug/flavors/f/pixel2/TEST-a.xml",
                ran("com.DTest"),
            ),
        ] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let (found, _) = modules(root.path(), SystemTime::UNIX_EPOCH);
        let mut told: Vec<String> = unmeasured(root.path(), &found, std::iter::empty())
            .into_iter()
            .map(|problem| format!("{}: {}", problem.r#where, problem.what))
            .collect();
        told.sort();
        let want = [
            "app: not measured: the build reports 2 tests that no measured virtual machine ran (com.ATest, com.BTest)",
            "ui: not measured: 3 tests that the build ran on a device (com.CTest, com.DTest)",
        ];
        assert_eq!(told, want);
    }

    #[test]
    fn a_simple_name_stands_for_a_class_of_which_enough_tests_were_seen() {
        let reported = [("ArchTest", (1, 1)), ("com.example.ArchTest", (2, 2)), ("OtherTest", (1, 1))];
        let classes = reported.map(|(class, tests)| (class.to_owned(), tests)).into();
        let module = Module { classes, ..Module::default() };
        let seen = |tests| BTreeMap::from([("com.example.ArchTest", tests), ("com.example.AnotherTest", 9)]);
        assert!(module.stands_for_a_class_of("ArchTest", &seen(3)));
        assert!(!module.stands_for_a_class_of("ArchTest", &seen(2)), "one of these ran elsewhere");
        assert!(!module.stands_for_a_class_of("OtherTest", &seen(3)));
    }

    #[test]
    fn a_build_may_lie_elsewhere() {
        let root_of = |words: &[&str]| {
            let planned = PlannedSuite {
                name: None,
                command: words.iter().map(Into::into).collect(),
                repeating: None,
                directory: Some("/nowhere".into()),
                environment: Vec::new(),
                secrets: Vec::new(),
                runner: memgate_config::Runner::Auto,
                targets: Vec::new(),
                timeout: std::time::Duration::ZERO,
                mapping: Vec::new(),
                heap: None,
            };
            root(&planned).components().collect::<PathBuf>()
        };
        for (words, folder) in [
            (&["mvn", "test"][..], "/nowhere"),
            (&["mvn", "-f", "x", "test"], "/nowhere/x"),
            (&["gradle", "--project-dir=/y", "test"], "/y"),
        ] {
            assert_eq!(root_of(words), Path::new(folder), "{words:?}");
        }
    }
}
