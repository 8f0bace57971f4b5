//! `memgate init`: writes a commented memgate.yaml for the project in this folder.

use std::fs;
use std::path::Path;

use memgate_config::{AndroidFact, Facts, ProjectKind, SuiteFact, init_template};

use super::settings;
use crate::bounded;
use crate::cli::InitArgs;
use crate::exit::{self, ExpectedError};
use crate::output::Console;
use crate::session::write_where_it_leads;

const FILE: &str = "memgate.yaml";

/// Maximum length of a build script that is read.
const LONGEST_SCRIPT: u64 = 1 << 20;

/// Files that show the kind of a project, the most specific first.
const MARKS: [(&str, ProjectKind); 7] = [
    ("CMakeLists.txt", ProjectKind::Cmake),
    ("Cargo.toml", ProjectKind::Cargo),
    ("pom.xml", ProjectKind::Maven),
    ("build.gradle", ProjectKind::Gradle),
    ("build.gradle.kts", ProjectKind::Gradle),
    // For several modules without a build file at the root.
    ("settings.gradle", ProjectKind::Gradle),
    ("settings.gradle.kts", ProjectKind::Gradle),
];

pub(super) fn init(request: &InitArgs, console: &Console) -> Result<u8, ExpectedError> {
    let folder = settings::world()?.directory;
    let kind = write(&folder, request.force)?;
    let found = match kind {
        ProjectKind::Cmake => "a CMake project",
        ProjectKind::Cargo => "a Cargo project",
        ProjectKind::Maven => "a Maven project",
        ProjectKind::Gradle => "a Gradle project",
        ProjectKind::Plain => "no build system it knows",
    };
    console.line(&format!("found {found}, wrote {FILE}"));
    console.hint(match kind {
        ProjectKind::Plain => "name your test programs in its `suites`, then: memgate run",
        ProjectKind::Cmake => "look at its suites (ctest runs what was built in `build`), then: memgate run",
        ProjectKind::Cargo | ProjectKind::Maven | ProjectKind::Gradle => {
            "look at its suites, then: memgate run"
        }
    });
    Ok(exit::PASS)
}

fn write(folder: &Path, force: bool) -> Result<ProjectKind, ExpectedError> {
    let path = folder.join(FILE);
    // A dangling link also counts as existing: somebody made it.
    if (path.exists() || path.is_symlink()) && !force {
        return Err(ExpectedError::usage(format!("{FILE} exists already"), "overwrite it with --force"));
    }
    let kind = kind_of(folder);
    let project = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let android = if kind == ProjectKind::Gradle { android(folder) } else { None };
    let text = init_template(kind, &Facts { project, suites: suites(kind, folder), android });
    write_where_it_leads(&path, text.as_bytes()).map_err(|why| ExpectedError::failed(&why))?;
    Ok(kind)
}

/// Suites that differ from the default of the project's kind: Maven with its wrapper, Gradle without one.
fn suites(kind: ProjectKind, folder: &Path) -> Vec<SuiteFact> {
    let run: &[&str] = match kind {
        ProjectKind::Maven if folder.join("mvnw").is_file() => &["./mvnw", "test"],
        ProjectKind::Gradle if !folder.join("gradlew").is_file() => &["gradle", "test"],
        _ => return Vec::new(),
    };
    vec![SuiteFact { name: "unit".to_owned(), run: run.iter().map(|&word| word.to_owned()).collect() }]
}

/// The first module of an Android application that has instrumented tests.
fn android(folder: &Path) -> Option<AndroidFact> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut modules: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    modules.sort();
    let names = modules.iter().filter_map(|name| name.to_str());
    std::iter::once("").chain(names).find_map(|module| {
        let path = folder.join(module);
        let scripts = ["build.gradle", "build.gradle.kts"].map(|name| path.join(name));
        let script = scripts.iter().find(|script| script.is_file())?;
        let script = String::from_utf8(bounded::read(script, LONGEST_SCRIPT).ok()?).ok()?;
        // `com.android.application`, or the name of this plugin in a catalogue: `libs.plugins.android.application`.
        let is_app = script.contains("android.application") && path.join("src/androidTest").is_dir();
        is_app.then(|| AndroidFact { module: module.to_owned(), application: application_id(&script) })
    })
}

/// `com.example.tiles` for `applicationId = "com.example.tiles"`, otherwise the namespace of the module.
fn application_id(script: &str) -> Option<String> {
    let value = |key: &str| {
        let mut values = script.lines().filter_map(|line| line.trim().strip_prefix(key));
        values.find_map(|value| {
            let value = value.trim_start_matches([' ', '=']).trim_end();
            let quoted = value.strip_prefix(['"', '\''])?.strip_suffix(['"', '\''])?;
            let is_id = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
            (!quoted.is_empty() && quoted.chars().all(is_id)).then(|| quoted.to_owned())
        })
    };
    value("applicationId ").or_else(|| value("namespace "))
}

fn kind_of(folder: &Path) -> ProjectKind {
    MARKS.iter().find(|(mark, _)| folder.join(mark).is_file()).map_or(ProjectKind::Plain, |(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use memgate_config::Config;

    use super::*;

    #[test]
    fn every_kind_of_project_gets_a_file_that_is_right() {
        for (mark, kind) in MARKS.into_iter().chain([("README", ProjectKind::Plain)]) {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(mark), "").unwrap();
            assert_eq!(write(folder.path(), false).unwrap(), kind, "{mark}");
            let text = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
            Config::parse(&text, FILE, &|_| None, None).unwrap_or_else(|e| panic!("{mark}: {e}\n{text}"));
        }
    }

    #[test]
    fn a_wrapper_is_used_where_there_is_one() {
        for (files, run) in [
            (&["pom.xml"][..], "[mvn, test]"),
            (&["pom.xml", "mvnw"], "[\"./mvnw\", test]"),
            (&["build.gradle"], "[gradle, test]"),
            (&["build.gradle.kts", "gradlew"], "[./gradlew, test]"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            for file in files {
                std::fs::write(folder.path().join(file), "").unwrap();
            }
            write(folder.path(), false).unwrap();
            let text = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
            assert!(text.contains(&format!("unit: {{ run: {run}")), "{files:?}\n{text}");
        }
    }

    #[test]
    fn an_android_application_with_instrumented_tests_gets_a_suite_for_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("settings.gradle.kts"), "").unwrap();
        for (module, script) in [
            (
                "app",
                "plugins { alias(libs.plugins.android.application) }\nandroid {\n    namespace = \"com.example\"\n\
                     defaultConfig {\n        applicationId = \"com.example.tiles\"\n}}",
            ),
            ("core", "plugins { id(\"com.android.library\") }"),
        ] {
            fs::create_dir_all(path(module).join("src/androidTest")).unwrap();
            fs::write(path(module).join("build.gradle.kts"), script).unwrap();
        }
        write(folder.path(), false).unwrap();
        let text = fs::read_to_string(path(FILE)).unwrap();
        let on = text.replace("  # instrumented:", "  instrumented:").replace("  #   runner:", "    runner:");
        let on = on.replace("  #   package:", "    package:").replace("  #   apks:", "    apks:");
        let config = Config::parse(&on, FILE, &|_| None, None).unwrap_or_else(|e| panic!("{e}\n{on}"));
        assert_eq!(config.instrumented[0].package, "com.example.tiles.test");
        assert!(
            config.instrumented[0].apks[1]
                .ends_with("app/build/outputs/apk/androidTest/debug/app-debug-androidTest.apk")
        );
        fs::remove_dir(path("app/src/androidTest")).unwrap();
        write(folder.path(), true).unwrap();
        assert!(!fs::read_to_string(path(FILE)).unwrap().contains("instrumentation"));
    }

    #[test]
    fn an_existing_file_is_only_overwritten_when_asked_to() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "mine").unwrap();
        assert!(write(folder.path(), false).unwrap_err().hint().unwrap().contains("--force"));
        assert_eq!(std::fs::read_to_string(folder.path().join(FILE)).unwrap(), "mine");
        write(folder.path(), true).unwrap();
        assert_ne!(std::fs::read_to_string(folder.path().join(FILE)).unwrap(), "mine");
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join(FILE), folder.path().join("shared.yaml"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(write(folder.path(), false).unwrap_err().hint().unwrap().contains("--force"));
        std::fs::write(&target, "theirs").unwrap();
        write(folder.path(), true).unwrap();
        assert!(link.is_symlink());
        assert_ne!(std::fs::read_to_string(&target).unwrap(), "theirs");
    }
}
