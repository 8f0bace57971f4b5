//! JUnit without a build tool: compiles a test's own classes against JUnit's console launcher, which runs
//! them. The class path needs one jar only.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::jvm::Jdk;
use crate::samples::successful;
use crate::{Project, Run};

const VERSION: &str = "1.11.4";
/// The launcher's main class, which memgate recognizes as a test runner.
pub const MAIN: &str = "org.junit.platform.console.ConsoleLauncher";

/// The console launcher with its dependencies, from Maven's local repository or fetched once.
#[must_use]
pub fn jar() -> &'static Path {
    static JAR: OnceLock<PathBuf> = OnceLock::new();
    JAR.get_or_init(|| {
        let name = format!("junit-platform-console-standalone-{VERSION}.jar");
        let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
        let kept = home.join(".m2/repository/org/junit/platform/junit-platform-console-standalone");
        let kept = kept.join(VERSION).join(&name);
        if kept.exists() {
            return kept;
        }
        let project = Project::new("junit-jar");
        let artifact = format!("-Dartifact=org.junit.platform:junit-platform-console-standalone:{VERSION}");
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "dependency:copy", &artifact, "-DoutputDirectory=."]);
        successful(maven.current_dir(project.folder()));
        project.folder().join(name)
    })
}

/// JUnit 4 and its dependencies, as the distribution installs them.
const JUNIT4: &str = "/usr/share/java/junit4.jar:/usr/share/java/hamcrest-core.jar";

/// Compiles test classes, each with its name and source, into the folder `classes` below `folder`.
pub fn compile(jdk: &Jdk, folder: &Path, sources: &[(&str, &str)]) -> PathBuf {
    let classes = folder.join("classes");
    let mut javac = jdk.javac();
    javac.args(["-g", "-nowarn", "-cp"]).arg(format!("{}:{JUNIT4}", jar().display())).arg("-d").arg(&classes);
    for (name, source) in sources {
        let path = folder.join("src").join(format!("{name}.java"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, source).unwrap();
        javac.arg(path);
    }
    successful(&mut javac);
    classes
}

/// `java` with these options and the launcher, which runs all tests in the folder `classes`.
#[must_use]
pub fn java(jdk: &Jdk, options: &[&str], classes: &Path) -> Vec<String> {
    let mut words = vec![jdk.home.join("bin/java").display().to_string()];
    words.extend(options.iter().map(|&option| option.to_owned()));
    words.extend(["-cp".to_owned(), format!("{}:{}", classes.display(), jar().display())]);
    words.extend([MAIN, "execute", "--disable-banner", "--details=none"].map(str::to_owned));
    words.push(format!("--scan-class-path={}", classes.display()));
    words
}

/// As [`java`], with JUnit 4 on the class path: Vintage runs its tests.
#[must_use]
pub fn java_vintage(jdk: &Jdk, classes: &Path) -> Vec<String> {
    let mut words = java(jdk, &[], classes);
    words[2] = format!("{}:{JUNIT4}", words[2]);
    words
}

/// `java` with JUnit 4's own runner and one class from the folder `classes`.
#[must_use]
pub fn java4(jdk: &Jdk, classes: &Path, class: &str) -> Vec<String> {
    let path = format!("{}:{JUNIT4}", classes.display());
    let java = jdk.home.join("bin/java").display().to_string();
    [&java, "-cp", &path, "org.junit.runner.JUnitCore", class].map(str::to_owned).to_vec()
}

/// A project with these classes of the package `com.example`, given as name and source and compiled into
/// `classes`.
#[must_use]
pub fn project(name: &str, jdk: &Jdk, sources: &[(&str, &str)]) -> Project {
    let project = Project::new(&format!("{name}-{}", jdk.release));
    let sources: Vec<(&str, String)> =
        sources.iter().map(|(class, source)| (*class, format!("package com.example;\n{source}"))).collect();
    let sources: Vec<(&str, &str)> =
        sources.iter().map(|(class, source)| (*class, source.as_str())).collect();
    compile(jdk, project.folder(), &sources);
    project
}

/// Runs all test classes of the project under memgate, in a JVM with these options.
#[must_use]
pub fn run(project: &Project, jdk: &Jdk, options: &[&str]) -> Run {
    run_with(project, jdk, &[], options)
}

/// As [`run`], with additional options for memgate.
#[must_use]
pub fn run_with(project: &Project, jdk: &Jdk, of_memgate: &[&str], options: &[&str]) -> Run {
    let words = ["run"].iter().chain(of_memgate).chain(&["--"]).map(|&word| word.to_owned());
    let java = java(jdk, options, &project.folder().join("classes"));
    project.memgate(&words.chain(java).collect::<Vec<_>>())
}
