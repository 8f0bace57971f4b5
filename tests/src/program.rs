//! The program under test and its embedded agent, built once.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::profile::profile_folder;
use crate::samples::successful;
use crate::waiting::Running;

/// Names another `memgate` to test, for example an installed one.
const PROGRAM_VARIABLE: &str = "MEMGATE_E2E_PROGRAM";
/// Extra time for a build from scratch.
const BUILD: Duration = Duration::from_secs(3600);

/// The built `memgate`. Cargo builds it once, so that it exists and is up to date.
#[must_use]
pub fn memgate() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(program) = env::var_os(PROGRAM_VARIABLE) {
            return program.into();
        }
        let folder = profile_folder();
        let profile = match folder.file_name().and_then(|name| name.to_str()).unwrap() {
            "debug" => "dev",
            other => other,
        };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "--package", "memgate", "--profile", profile, "--target-dir"]);
        cargo.arg(folder.parent().unwrap()).current_dir(crate::repository());
        // The cargo that runs this test sets these for this package. Passed on, they would make it rebuild
        // other packages.
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            // So would `RUSTC_BOOTSTRAP`, which lets a stable test harness report times.
            if text.starts_with("CARGO_PKG_")
                || text.starts_with("CARGO_MANIFEST_")
                || text == "RUSTC_BOOTSTRAP"
            {
                cargo.env_remove(&name);
            }
        }
        let built = Running::start(cargo.stdin(Stdio::null())).with_patience(BUILD).output();
        assert!(built.status.success(), "{cargo:?}: {}", String::from_utf8_lossy(&built.stderr));
        folder.join("memgate")
    })
}

/// The agent as `memgate` unpacks it for its users.
#[must_use]
pub fn agent() -> &'static Path {
    static AGENT: OnceLock<PathBuf> = OnceLock::new();
    AGENT.get_or_init(|| {
        let told = successful(Command::new(memgate()).arg("doctor").current_dir(env::temp_dir()));
        let line = told.lines().find_map(|line| line.split_once("agent: ").map(|(_, path)| path));
        PathBuf::from(line.unwrap_or_else(|| panic!("doctor names no agent:\n{told}")))
    })
}
