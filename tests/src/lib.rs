//! Foundation of the end-to-end tests: the built program, the sample suites, and the result of one run.
//!
//! Data flow: [`samples`] compiles a suite into a cache below the target folder → [`Project`] is a folder in
//! which a user types `memgate …` → [`Run`] holds its output, its exit code and the report → [`truth`] gives
//! the expected result.
#![forbid(unsafe_code)]
#![expect(clippy::missing_panics_doc, reason = "a test's support panics where a test would")]
#![expect(clippy::unwrap_used, reason = "a test's support panics where a test would")]

pub mod junit;
pub mod jvm;
pub mod probes;
mod profile;
mod program;
mod project;
pub mod samples;
pub mod stand_in;
pub mod truth;
pub mod waiting;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

pub use program::{agent, memgate};
pub use project::{Project, Run};

/// Root folder of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Prints text that is visible even if the test passes. It writes to the handle directly because the test
/// harness captures the output of the macros.
pub fn say(text: &str) {
    std::io::stderr().write_all(format!("{text}\n").as_bytes()).unwrap();
}

/// Does every test run in its long form?
#[must_use]
pub fn is_long() -> bool {
    std::env::var_os("MEMGATE_E2E_LONG").is_some_and(|value| value == "1")
}

/// Skips a test, or a part of it, that this machine cannot run. `tests/run` counts and names the skips.
pub fn skip(why: &str) {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    say(&format!("{test} skipped: {why}"));
    if let Some(list) = std::env::var_os("MEMGATE_SKIPPED") {
        let mut list = OpenOptions::new().create(true).append(true).open(list).unwrap();
        list.write_all(format!("{test}: {why}\n").as_bytes()).unwrap();
    }
}

/// As [`skip`], for something that `tests/run` installs. In CI, where `tests/run` has run, the test fails
/// instead.
#[track_caller]
pub fn skip_without(what: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "there is no {what}: CI must have it");
    skip(&format!("there is no {what}"));
}

/// Path of something that `tests/peers/fetch` puts below `target/peers`; with `None` the caller skips.
#[must_use]
#[track_caller]
pub fn peer(name: &str) -> Option<PathBuf> {
    let path = repository().join("target/peers").join(name);
    if !path.exists() {
        skip_without(&format!("{} (tests/peers/fetch)", path.display()));
        return None;
    }
    Some(path)
}

/// Is this tool installed? If not, the caller skips.
#[must_use]
#[track_caller]
pub fn has_tool(name: &str) -> bool {
    let found = Command::new(name).arg("--version").output().is_ok();
    if !found {
        skip_without(name);
    }
    found
}
