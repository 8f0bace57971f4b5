//! `memgate demo`: sample suites with planted leaks, built here and run like any others.
//!
//! Data flow: sources in this program → a folder in the user's cache → [`native`] compiles a GoogleTest suite, [`jvm`]
//! a JUnit suite if Java and JUnit are available → a configuration with both → `run`. If something for Java is missing,
//! this is reported, and only the native suite runs.

mod jvm;
mod native;
mod unpack;

use std::fs;
use std::path::{Path, PathBuf};

pub(super) use self::native::compiler;
use super::{run, settings};
use crate::cli::{DemoArgs, RunArgs};
use crate::exit::ExpectedError;
use crate::output::Console;

const CONFIGURATION: &str = "memgate.yaml";

pub(super) fn demo(request: &DemoArgs, console: &Console) -> Result<u8, ExpectedError> {
    let folder = cache().join(format!("demo-{}", std::process::id()));
    let outcome = build_and_run(&folder, request, console);
    if request.keep {
        console.line(&format!("the demo's sources and its suites are in {}", folder.display()));
    } else if folder.exists() {
        fs::remove_dir_all(&folder).map_err(ExpectedError::file("remove", &folder))?;
    }
    outcome
}

/// The user's cache folder, or the folder for temporary files if there is none.
fn cache() -> PathBuf {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute("HOME").map(|home| home.join(".cache"));
    absolute("XDG_CACHE_HOME").or_else(home).unwrap_or_else(std::env::temp_dir).join("memgate")
}

fn build_and_run(folder: &Path, request: &DemoArgs, console: &Console) -> Result<u8, ExpectedError> {
    console.line("building the demo: tests with planted leaks, and tests that only look as if they leaked");
    let mut suites = vec![("native", vec![native::build(folder, request.keep)?.display().to_string()])];
    match jvm::build(&folder.join("jvm"))? {
        Ok(command) => suites.push(("jvm", command)),
        Err(missing) => console.warning(&format!("the JVM suite is left out: {missing}")),
    }
    let file = folder.join(CONFIGURATION);
    fs::write(&file, configuration(&suites)).map_err(ExpectedError::file("write", &file))?;
    let request = RunArgs { output: request.output.clone(), every_report: true, ..RunArgs::default() };
    run::with_settings(&settings::load(Some(&file), console)?, &request, console)
}

/// Commands as JSON, which is valid YAML.
fn configuration(suites: &[(&str, Vec<String>)]) -> String {
    let lines = suites.iter().map(|(name, command)| {
        let words: Vec<String> = command.iter().map(|word| serde_json::json!(word).to_string()).collect();
        format!("  {name}: {{ run: [{}] }}\n", words.join(", "))
    });
    format!("version: 1\nproject: demo\nsuites:\n{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use memgate_config::Config;

    use super::*;

    #[test]
    fn odd_paths_stand_in_the_configuration_as_they_are() {
        let odd = "/home/o'neil \"x\"/\u{e9}\\: #/demo_tests".to_owned();
        let text =
            configuration(&[("native", vec![odd.clone()]), ("jvm", vec!["java".into(), "-cp".into()])]);
        let config = Config::parse(&text, CONFIGURATION, &|_| None, None).unwrap();
        let commands: Vec<_> = config.suites.iter().map(|suite| suite.run.clone()).collect();
        assert_eq!(commands, [vec![odd], vec!["java".into(), "-cp".into()]]);
    }
}
