//! Test classes of a Java project, from its sources: known before anything is built, and the same on every machine.
//!
//! A source folder is `src/*/java` (or kotlin, groovy, scala) outside of `src/main`. A class has the package that its
//! file declares and the name of the file; top-level classes with other names count too. Some of these classes are no
//! tests; this does no harm, because the list is only used to exclude classes.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Folders of sources, by their language.
const LANGUAGES: [(&str, &str); 4] =
    [("java", "java"), ("kotlin", "kt"), ("groovy", "groovy"), ("scala", "scala")];
/// Folders that contain no modules.
const NOT_ENTERED: [&str; 6] = ["target", "build", "out", "node_modules", "src", "buildSrc"];
/// Maximum depth of a project, and maximum size of a source file.
const MAX_DEPTH: u32 = 24;
const MAX_BYTES: u64 = 8 << 20;
/// Maximum number of parents of a `pom.xml`.
const PARENTS: u32 = 20;

/// Test classes of a project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TestSources {
    /// Full names of classes, sorted.
    pub classes: Vec<String>,
    /// Folders of the modules with tests, not only helpers, fixtures and benchmarks.
    pub modules: Vec<PathBuf>,
    /// Whether Surefire leaves out nested classes: every `pom.xml` and its parents are known, and none configures which
    /// classes Surefire excludes.
    pub leaves_out_nested: bool,
}

/// Finds the test classes of the project in a folder.
///
/// # Errors
/// When a folder or file cannot be read, with its path.
pub fn test_sources(root: &Path) -> Result<TestSources, (PathBuf, io::Error)> {
    let (mut classes, mut found) =
        (BTreeSet::new(), TestSources { leaves_out_nested: true, ..TestSources::default() });
    module(root, MAX_DEPTH, &mut classes, &mut found)?;
    let options = root.join(".mvn/maven.config");
    found.leaves_out_nested &= !options.is_file() || !names_excludes(&text(&options)?);
    found.classes = classes.into_iter().collect();
    found.modules.sort();
    Ok(found)
}

fn module(
    folder: &Path,
    depth: u32,
    classes: &mut BTreeSet<String>,
    found: &mut TestSources,
) -> Result<(), (PathBuf, io::Error)> {
    let mut has_tests = false;
    for set in folders(&folder.join("src"))? {
        let name = set.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let mut of_set = BTreeSet::new();
        for (language, ending) in LANGUAGES.into_iter().filter(|_| name != "main") {
            sources(&set.join(language), ending, depth, &mut of_set)?;
        }
        let is_test = name == "it" || name.contains("test") && !name.contains("fixture");
        has_tests |= is_test && !of_set.is_empty();
        classes.append(&mut of_set);
    }
    if has_tests {
        found.modules.push(folder.to_owned());
    }
    let pom = folder.join("pom.xml");
    if pom.is_file() {
        found.leaves_out_nested &= !excludes_itself(pom, PARENTS)?;
    }
    if depth == 0 {
        return Ok(());
    }
    for below in folders(folder)? {
        let name = below.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with('.') && !NOT_ENTERED.contains(&name.as_str()) {
            module(&below, depth - 1, classes, found)?;
        }
    }
    Ok(())
}

/// Whether a `pom.xml`, or a parent of it, configures which classes Surefire or Failsafe exclude. Assumed if a parent
/// is not found.
fn excludes_itself(mut pom: PathBuf, most: u32) -> Result<bool, (PathBuf, io::Error)> {
    for _ in 0..most {
        let text = text(&pom)?;
        if excludes_classes(&text) {
            return Ok(true);
        }
        let Some(parent) = between(&text, "<parent>", "</parent>") else { return Ok(false) };
        let Some(found) = parent_file(&pom, parent) else { return Ok(true) };
        pom = found;
    }
    Ok(true)
}

/// Whether a text sets the property with which Surefire or Failsafe exclude classes.
#[must_use]
pub fn names_excludes(text: &str) -> bool {
    ["surefire.excludes", "failsafe.excludes"].iter().any(|property| text.contains(property))
}

fn excludes_classes(pom: &str) -> bool {
    const ELEMENTS: [&str; 5] = ["<exclude>", "<excludes>", "<excludes/", "<excludes ", "<excludesFile"];
    let plugins = ["maven-surefire-plugin", "maven-failsafe-plugin"];
    let mut after = plugins.iter().flat_map(|plugin| pom.split(plugin).skip(1));
    let of_plugin = |rest: &str| {
        let plugin = rest.split("</plugin>").next().unwrap_or_default();
        ELEMENTS.iter().any(|element| plugin.contains(element))
    };
    after.any(of_plugin) || names_excludes(pom)
}

/// The parent of a `pom.xml`: at its relative path, or in the user's repository.
fn parent_file(pom: &Path, parent: &str) -> Option<PathBuf> {
    let relative = between(parent, "<relativePath>", "</relativePath>").unwrap_or("../pom.xml");
    let beside = pom.parent()?.join(relative);
    let beside = if beside.is_dir() { beside.join("pom.xml") } else { beside };
    let value = |name: &str| between(parent, &format!("<{name}>"), &format!("</{name}>"));
    let (group, artifact, version) = (value("groupId")?, value("artifactId")?, value("version")?);
    let is_it = |path: &PathBuf| {
        text(path).is_ok_and(|text| text.contains(&format!("<artifactId>{artifact}</artifactId>")))
    };
    let repository = || {
        let home = PathBuf::from(std::env::var_os("HOME")?);
        let folder = home.join(".m2/repository").join(group.replace('.', "/")).join(artifact).join(version);
        Some(folder.join(format!("{artifact}-{version}.pom")))
    };
    Some(beside).filter(is_it).or_else(|| repository().filter(is_it))
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    Some(text.split_once(begin)?.1.split_once(end)?.0.trim())
}

/// The folders in a folder, without links, sorted; empty if it does not exist.
fn folders(folder: &Path) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    Ok(entries(folder)?.into_iter().filter(|(_, kind)| kind.is_dir()).map(|(path, _)| path).collect())
}

fn entries(folder: &Path) -> Result<Vec<(PathBuf, fs::FileType)>, (PathBuf, io::Error)> {
    let failed = |why| (folder.to_owned(), why);
    let listing = match fs::read_dir(folder) {
        Err(why) if matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        listing => listing.map_err(failed)?,
    };
    let entry = |entry: io::Result<fs::DirEntry>| {
        let entry = entry?;
        Ok((entry.path(), entry.file_type()?))
    };
    let mut all = listing.map(entry).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    all.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(all)
}

fn sources(
    folder: &Path,
    ending: &str,
    depth: u32,
    classes: &mut BTreeSet<String>,
) -> Result<(), (PathBuf, io::Error)> {
    for (path, kind) in entries(folder)? {
        if kind.is_dir() && depth > 0 {
            sources(&path, ending, depth - 1, classes)?;
        } else if kind.is_file() && path.extension().is_some_and(|it| it == ending || it == "java") {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            classes.extend(classes_of(&stem, &text(&path)?));
        }
    }
    Ok(())
}

fn text(path: &Path) -> Result<String, (PathBuf, io::Error)> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path);
    let read = file.and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    read.map(|_| String::from_utf8_lossy(&bytes).into_owned()).map_err(|why| (path.to_owned(), why))
}

/// The full names of the classes of a source file.
fn classes_of(stem: &str, text: &str) -> BTreeSet<String> {
    let mut package = "";
    let mut names = BTreeSet::from([stem.to_owned()]);
    for line in text.lines() {
        if let Some(rest) = without_comments(line).strip_prefix("package ") {
            package =
                rest.split([';', ' ', '\t', '\r', '/']).find(|part| !part.is_empty()).unwrap_or_default();
        } else if line.starts_with(|c: char| c.is_alphabetic()) {
            // Not indented: a top-level declaration.
            let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'));
            if words.any(|word| word == "class") {
                names.extend(words.find(|word| !word.is_empty()).map(str::to_owned));
            }
        }
    }
    let full = |name: String| if package.is_empty() { name } else { format!("{package}.{name}") };
    names.into_iter().map(full).collect()
}

/// The modules that a command names, by folder (`-pl core,api`) or by task (`:app:test`); all modules if it names none,
/// or in another form.
#[must_use]
pub fn chosen_modules(command: &[OsString], root: &Path, modules: Vec<PathBuf>) -> Vec<PathBuf> {
    let words: Vec<String> = command.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let after =
        |options: &[&str]| words.iter().position(|word| options.contains(&word.as_str())).map(|at| at + 1);
    let with_others = after(&["-am", "-amd", "--also-make", "--also-make-dependents"]).is_some();
    let listed = after(&["-pl", "--projects"]).filter(|_| !with_others).and_then(|at| words.get(at));
    let by_list = listed.map(|list| list.split(',').map(|name| root.join(name)).collect::<Vec<_>>());
    let tasks: Vec<&String> =
        words.iter().filter(|word| !word.starts_with('-') && !word.contains('=')).collect();
    let by_task = || -> Option<Vec<PathBuf>> {
        let folder = |task: &&String| {
            Some(root.join(task.trim_start_matches(':').rsplit_once(':')?.0.replace(':', "/")))
        };
        tasks.iter().map(folder).collect()
    };
    let named = by_list.or_else(|| by_task().filter(|named| !named.is_empty())).unwrap_or_default();
    let named: Vec<PathBuf> = named.iter().map(|path| path.components().collect()).collect();
    let chosen: Vec<PathBuf> = modules.iter().filter(|module| named.contains(module)).cloned().collect();
    if chosen.is_empty() { modules } else { chosen }
}

/// A line without leading comments.
fn without_comments(line: &str) -> &str {
    let mut line = line.trim_start();
    while let Some((_, rest)) = line.strip_prefix("/*").and_then(|rest| rest.split_once("*/")) {
        line = rest.trim_start();
    }
    line
}

/// Lines of the file with which Surefire and Failsafe exclude these classes and those nested in them. A plain pattern
/// instead of an expression would match in every package.
#[must_use]
pub fn surefire_excludes(classes: &[String], leaves_out_nested: bool) -> String {
    let nested = if leaves_out_nested { "**/*$*\n" } else { "" };
    let line =
        |class: &String| format!("%regex[{}(\\$.*)?\\.class]\n", class.replace('.', "/").replace('$', "\\$"));
    nested.to_owned() + &classes.iter().map(line).collect::<String>()
}

/// Lines of the file with which Gradle's test tasks exclude these classes.
#[must_use]
pub fn gradle_excludes(classes: &[String]) -> String {
    classes.iter().map(|class| format!("{}\n", class.replace('.', "/"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn classes_are_found_below_the_test_sources_of_all_modules() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "pom.xml", "<project/>");
        write(
            root.path(),
            "a/src/test/java/com/x/ATest.java",
            "/* (c) */ package com.x;\nclass ATest {}\nfinal class Other { class In {} }\n",
        );
        write(root.path(), "a/src/main/java/com/x/A.java", "package com.x;\nclass A {}");
        write(
            root.path(),
            "b/src/integrationTest/kotlin/BTest.kt",
            "package com.y\n\nclass BTest\nclass CTest {\n  class D\n}\n",
        );
        write(root.path(), "b/target/src/test/java/com/x/Copy.java", "package com.x;");
        let found = test_sources(root.path()).unwrap();
        assert_eq!(found.classes, ["com.x.ATest", "com.x.Other", "com.y.BTest", "com.y.CTest"]);
        assert_eq!(found.modules, [root.path().join("a"), root.path().join("b")]);
        assert!(found.leaves_out_nested);
    }

    #[test]
    fn only_what_surefire_and_failsafe_leave_out_counts() {
        let plugin = |name: &str| {
            format!(
                "<plugin><artifactId>{name}</artifactId><excludes><exclude>*IT</exclude></excludes></plugin>"
            )
        };
        assert!(excludes_classes(&plugin("maven-failsafe-plugin")));
        assert!(excludes_classes("<properties><surefire.excludes>*IT</surefire.excludes></properties>"));
        let groups = "<plugin>maven-surefire-plugin<excludedGroups>slow</excludedGroups></plugin>";
        assert!(!excludes_classes(groups));
        assert!(!excludes_classes(&format!(
            "<artifactId>maven-surefire-plugin</artifactId></plugin>{}",
            plugin("jacoco")
        )));
    }

    #[test]
    fn modules_that_a_command_names_are_chosen() {
        let root = Path::new("/p");
        let modules = || ["core", "api", "app/ui"].map(|module| root.join(module)).to_vec();
        for (command, chosen) in [
            ("mvn -q test", &["core", "api", "app/ui"][..]),
            ("mvn -pl core,./api test", &["core", "api"]),
            ("mvn -pl :artifact test", &["core", "api", "app/ui"]),
            ("mvn -pl core -am test", &["core", "api", "app/ui"]),
            ("./gradlew --no-daemon :app:ui:test", &["app/ui"]),
            ("gradle core:test :api:check", &["core", "api"]),
            ("gradle core:test lint", &["core", "api", "app/ui"]),
        ] {
            let command: Vec<OsString> = command.split(' ').map(Into::into).collect();
            let want: Vec<PathBuf> = chosen.iter().map(|module| root.join(module)).collect();
            assert_eq!(chosen_modules(&command, root, modules()), want, "{command:?}");
        }
    }

    #[test]
    fn a_parent_that_is_not_found_may_say_anything() {
        let root = tempfile::tempdir().unwrap();
        let parent = |more: &str| {
            format!(
                "<project><parent><groupId>g</groupId><artifactId>up</artifactId><version>1</version>{more}</parent></project>"
            )
        };
        write(root.path(), "app/pom.xml", &parent(""));
        let nested = || test_sources(&root.path().join("app")).unwrap().leaves_out_nested;
        assert!(!nested());
        write(root.path(), "pom.xml", "<project><artifactId>up</artifactId></project>");
        assert!(nested());
        let plugin = "<plugin>maven-surefire-plugin<excludes/></plugin>";
        write(root.path(), "pom.xml", &format!("<project><artifactId>up</artifactId>{plugin}</project>"));
        assert!(!nested());
        write(root.path(), "app/pom.xml", &parent("<relativePath/>"));
        assert!(!nested(), "it is in no repository");
    }

    #[test]
    fn each_tool_is_told_what_to_leave_out_in_its_own_way() {
        let classes = ["com.x.ATest".to_owned(), "B".to_owned()];
        let expressions = "%regex[com/x/ATest(\\$.*)?\\.class]\n%regex[B(\\$.*)?\\.class]\n";
        assert_eq!(surefire_excludes(&classes, true), format!("**/*$*\n{expressions}"));
        assert_eq!(surefire_excludes(&classes, false), expressions);
        assert_eq!(gradle_excludes(&classes), "com/x/ATest\nB\n");
    }
}
