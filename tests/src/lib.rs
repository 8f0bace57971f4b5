//! What the end-to-end tests stand on: the built program, the sample suites, and what one run of it
//! gave.
//!
//! Data flow: [`samples`] compiles a suite into a cache below the target folder → [`Project`] is a
//! folder in which a user types `memgate …` → [`Run`] holds what it printed, how it ended and the
//! report it wrote → [`truth`] says what had to come out.
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

/// The checked-out project.
#[must_use]
pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A word that is seen though the test passes: by way of the handle, as the macros' output is kept
/// back.
pub fn say(text: &str) {
    std::io::stderr().write_all(format!("{text}\n").as_bytes()).unwrap();
}

/// Is every test to run in its long form?
#[must_use]
pub fn is_long() -> bool {
    std::env::var_os("MEMGATE_E2E_LONG").is_some_and(|value| value == "1")
}

/// A test, or a part of it, that this machine does not allow. `tests/run` counts and names them.
pub fn skip(why: &str) {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    say(&format!("{test} skipped: {why}"));
    if let Some(list) = std::env::var_os("MEMGATE_SKIPPED") {
        let mut list = OpenOptions::new().create(true).append(true).open(list).unwrap();
        list.write_all(format!("{test}: {why}\n").as_bytes()).unwrap();
    }
}

/// The same for want of something that `tests/run` brings: in CI, where that has run, the test
/// fails.
#[track_caller]
pub fn skip_without(what: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "there is no {what}: CI must have it");
    skip(&format!("there is no {what}"));
}

/// Something that `tests/peers/fetch` fetches, below `target/peers`; `None`: the caller skips.
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

/// Is there such a tool? Where there is none, the caller skips.
#[must_use]
#[track_caller]
pub fn has_tool(name: &str) -> bool {
    let found = Command::new(name).arg("--version").output().is_ok();
    if !found {
        skip_without(name);
    }
    found
}
