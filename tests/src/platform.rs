//! Test classes of JUnit 5 that JUnit Platform's console launcher runs: one jar on the class path, and no build tool.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::jvm::Jdk;
use crate::samples::successful;
use crate::{Project, Run};

const VERSION: &str = "1.11.4";

/// JUnit Platform with its console launcher and both engines, as Maven keeps it; Maven fetches it where it is missing.
#[must_use]
pub fn console() -> &'static Path {
    static JAR: OnceLock<PathBuf> = OnceLock::new();
    JAR.get_or_init(|| {
        let name = "junit-platform-console-standalone";
        let folder = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default().join(".m2/repository");
        let jar = folder.join(format!("org/junit/platform/{name}/{VERSION}/{name}-{VERSION}.jar"));
        if !jar.exists() {
            let artifact = format!("-Dartifact=org.junit.platform:{name}:{VERSION}");
            successful(Command::new("mvn").args(["-q", "-B", "dependency:get", &artifact]));
        }
        assert!(jar.exists(), "Maven keeps its jars elsewhere than in {}", folder.display());
        jar
    })
}

/// A folder with these classes of the package `com.example`, as name and source, compiled into `classes`.
#[must_use]
pub fn project(name: &str, jdk: &Jdk, sources: &[(&str, &str)]) -> Project {
    let project = Project::new(&format!("{name}-{}", jdk.release));
    let mut javac = Command::new(jdk.home.join("bin/javac"));
    javac.args(["-g", "-nowarn", "-cp"]).arg(console()).arg("-d").arg(project.folder().join("classes"));
    for (class, source) in sources {
        javac.arg(
            project
                .write(&format!("src/com/example/{class}.java"), format!("package com.example;\n{source}")),
        );
    }
    successful(&mut javac);
    project
}

/// Has memgate run all test classes of the project, in a virtual machine with these options.
#[must_use]
pub fn run(project: &Project, jdk: &Jdk, options: &[&str]) -> Run {
    run_with(project, jdk, &[], options)
}

/// The same with these options of memgate's.
#[must_use]
pub fn run_with(project: &Project, jdk: &Jdk, of_memgate: &[&str], options: &[&str]) -> Run {
    let java = jdk.home.join("bin/java").display().to_string();
    let path = format!("classes:{}", console().display());
    let main = "org.junit.platform.console.ConsoleLauncher";
    let mut words = vec!["run"];
    words.extend(of_memgate);
    words.extend(["--", &java]);
    words.extend(options);
    words.extend([
        "-cp",
        &path,
        main,
        "execute",
        "--disable-banner",
        "--details=none",
        "--scan-class-path=classes",
    ]);
    project.memgate(&words)
}
