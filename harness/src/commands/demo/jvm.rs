//! The demo's JUnit 4 suite. It needs a JDK and JUnit's jars, installed or fetched by Maven.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::unpack::unpack;
use crate::agent::embedded;
use crate::exit::ExpectedError;

macro_rules! sample {
    ($($path:literal),+ $(,)?) => {
        [$(($path, include_str!(concat!("../../../../tests/samples/jvm/", $path)))),+]
    };
}

/// The samples, with their paths in the repository.
const SOURCES: [(&str, &str); 14] = sample![
    "tiles/com/example/Caches.java",
    "tiles/com/example/EventBus.java",
    "tiles/com/example/MapView.java",
    "tiles/com/example/Page.java",
    "tiles/com/example/Registry.java",
    "tiles/com/example/Settings.java",
    "tiles/com/example/Titles.java",
    "junit4/pom.xml",
    "junit4/src/test/java/com/example/CachesTest.java",
    "junit4/src/test/java/com/example/MapViewTest.java",
    "junit4/src/test/java/com/example/PageTest.java",
    "junit4/src/test/java/com/example/SettingsTest.java",
    "junit4/src/test/java/com/example/TileCacheTest.java",
    "junit4/src/test/java/com/example/TitlesTest.java",
];
const TESTS: &str = "Test.java";

/// Where distributions install the jars of JUnit 4 and its dependency.
const SYSTEM_JARS: &str = "/usr/share/java";
const SYSTEM_JUNIT: [&str; 2] = ["junit4.jar", "junit.jar"];
const SYSTEM_HAMCREST: [&str; 4] =
    ["hamcrest-core.jar", "hamcrest/core.jar", "hamcrest.jar", "hamcrest/hamcrest.jar"];
/// Where Maven stores them.
const MAVEN_JARS: [&str; 2] =
    ["junit/junit/4.13.2/junit-4.13.2.jar", "org/hamcrest/hamcrest-core/1.3/hamcrest-core-1.3.jar"];
/// Writes the class path of a project to a file.
const MAVEN_GOAL: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath";
/// Time limit for Maven to fetch two jars and a plugin.
const MAVEN_TIME: Duration = Duration::from_secs(120);

/// The command that runs the suite; the inner error says what is missing.
pub(super) fn build(folder: &Path) -> Result<Result<Vec<String>, String>, ExpectedError> {
    if let Err(why) = embedded::jars() {
        return Ok(Err(why.to_string()));
    }
    let (home, path) = (std::env::var_os("JAVA_HOME"), std::env::var_os("PATH"));
    let Some(javac) = javac(home.as_deref(), path.as_deref()) else {
        return Ok(Err("there is no javac in JAVA_HOME or PATH (a JDK 17 or later is needed)".to_owned()));
    };
    unpack(folder, &SOURCES)?;
    let jars = match installed_jars(Path::new(SYSTEM_JARS), std::env::var_os("HOME").as_deref()) {
        Some(jars) => jars,
        None => match fetched_jars(folder, path.as_deref())? {
            Ok(jars) => jars,
            Err(why) => return Ok(Err(why)),
        },
    };
    let classes = folder.join("classes");
    let sources = SOURCES.iter().map(|(name, _)| *name).filter(|name| name.ends_with(".java"));
    let output = std::process::Command::new(&javac)
        .args(["--release", "17", "-g", "-nowarn", "-encoding", "UTF-8", "-cp", &jars, "-d"])
        .arg(&classes)
        .args(sources.clone())
        .current_dir(folder)
        .output()
        .map_err(ExpectedError::file("run", &javac))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        return Ok(Err(format!("{} cannot build it: {said}", javac.display())));
    }
    let java = javac.with_file_name("java").display().to_string();
    let mut command = vec![java, "-cp".to_owned(), format!("{}:{jars}", classes.display())];
    command.push("org.junit.runner.JUnitCore".to_owned());
    let tests = sources
        .filter_map(|name| name.rsplit('/').next()?.strip_suffix(".java").filter(|_| name.ends_with(TESTS)));
    command.extend(tests.map(|name| format!("com.example.{name}")));
    Ok(Ok(command))
}

/// The compiler of `JAVA_HOME` if that is set, otherwise the first in `PATH`.
fn javac(home: Option<&OsStr>, path: Option<&OsStr>) -> Option<PathBuf> {
    let find =
        |name: &OsStr| crate::suite::inspect(name, path, Path::new("/")).ok().map(|program| program.path);
    match home.filter(|home| !home.is_empty()) {
        Some(home) => find(Path::new(home).join("bin/javac").as_os_str()),
        None => find("javac".as_ref()).map(|javac| fs::canonicalize(&javac).unwrap_or(javac)),
    }
}

/// The class path of an installed JUnit 4.
fn installed_jars(system: &Path, home: Option<&OsStr>) -> Option<String> {
    let first = |names: &[&str]| names.iter().map(|name| system.join(name)).find(|path| path.exists());
    let of_system =
        first(&SYSTEM_JUNIT).zip(first(&SYSTEM_HAMCREST)).map(|(junit, hamcrest)| [junit, hamcrest]);
    let of_maven = || {
        let repository = Path::new(home?).join(".m2/repository");
        let jars = MAVEN_JARS.map(|jar| repository.join(jar));
        jars.iter().all(|jar| jar.exists()).then_some(jars)
    };
    let [junit, hamcrest] = of_system.or_else(of_maven)?;
    Some(format!("{}:{}", junit.display(), hamcrest.display()))
}

/// The class path of JUnit 4, fetched by Maven.
fn fetched_jars(folder: &Path, path: Option<&OsStr>) -> Result<Result<String, String>, ExpectedError> {
    let missing = format!("JUnit 4 is neither in {SYSTEM_JARS} nor in ~/.m2/repository");
    let Ok(maven) = crate::suite::inspect("mvn".as_ref(), path, Path::new("/")) else {
        return Ok(Err(format!("{missing}, and there is no mvn that could fetch it")));
    };
    let list = folder.join("class-path");
    let mut command = tokio::process::Command::new(&maven.path);
    command.args(["-q", "-B", "-f", "junit4/pom.xml", MAVEN_GOAL]);
    command.arg(format!("-Dmdep.outputFile={}", list.display()));
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ExpectedError::file("start", "the runtime".as_ref()))?;
    let output = match runtime.block_on(async { tokio::time::timeout(MAVEN_TIME, command.output()).await }) {
        Ok(output) => output.map_err(ExpectedError::file("run", &maven.path))?,
        Err(_elapsed) => {
            return Ok(Err(format!("{missing}, and Maven did not fetch it in {} s", MAVEN_TIME.as_secs())));
        }
    };
    match fs::read_to_string(&list) {
        Ok(jars) if output.status.success() => Ok(Ok(jars.trim().to_owned())),
        _ => {
            let said = String::from_utf8_lossy(&output.stdout);
            Ok(Err(format!("{missing}, and Maven cannot fetch it: {}", complaint(&said))))
        }
    }
}

/// Maven's first error, without the colour escapes before it.
fn complaint(said: &str) -> &str {
    let errors = said.lines().filter_map(|line| line.split_once("[ERROR]"));
    errors.map(|(_, error)| error.trim()).find(|error| !error.is_empty()).unwrap_or("it ended with an error")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junit_is_taken_from_the_system_first_and_only_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (system, home) = (folder.path().join("java"), folder.path().join("home"));
        let touch = |path: PathBuf| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        let found = || installed_jars(&system, Some(home.as_os_str()));
        assert_eq!(found(), None);
        touch(system.join("junit4.jar"));
        assert_eq!(found(), None, "without what it needs it is no use");
        MAVEN_JARS.iter().for_each(|jar| touch(home.join(".m2/repository").join(jar)));
        assert!(found().unwrap().contains("/junit/4.13.2/junit-4.13.2.jar:"));
        touch(system.join("hamcrest/core.jar"));
        assert_eq!(found().unwrap(), format!("{0}/junit4.jar:{0}/hamcrest/core.jar", system.display()));
    }

    #[test]
    fn mavens_complaint_is_found_among_its_escapes() {
        let said = "\x1b[0m\x1b[0m[ERROR] Plugin x could not be resolved\n[ERROR] \n[ERROR] To see more\n";
        assert_eq!(complaint(said), "Plugin x could not be resolved");
        assert_eq!(complaint("[ERROR] \n"), "it ended with an error");
    }

    #[test]
    fn without_a_compiler_there_is_no_suite() {
        assert_eq!(javac(Some("/nowhere".as_ref()), std::env::var_os("PATH").as_deref()), None);
        assert_eq!(javac(None, Some("/nowhere".as_ref())), None);
    }
}
