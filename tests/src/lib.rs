//! What the end-to-end tests stand on: the built program, the sample suites, and what one run of it gave.
//!
//! Data flow: [`samples`] compiles a suite into a cache below the target folder → [`Project`] is a folder in which a user
//! types `memgate …` → [`Run`] holds what it printed, how it ended and the report it wrote → [`truth`] says what had to come out.
#![forbid(unsafe_code)]
#![expect(clippy::missing_panics_doc, reason = "a test's support panics where a test would")]
#![expect(clippy::unwrap_used, reason = "a test's support panics where a test would")]

pub mod jvm;
pub mod probes;
mod program;
mod project;
pub mod samples;
pub mod stand_in;
pub mod truth;
pub mod waiting;

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

/// A word that is seen though the test passes: by way of the handle, as the macros' output is kept back.
pub fn say(text: &str) {
    std::io::stderr().write_all(format!("{text}\n").as_bytes()).unwrap();
}

/// Something that `tests/peers/fetch` fetches, below `target/peers`. Says so where it is not there: the caller then skips.
#[must_use]
pub fn peer(name: &str) -> Option<PathBuf> {
    let path = repository().join("target/peers").join(name);
    if !path.exists() {
        say(&format!("skipped: there is no {} (tests/peers/fetch)", path.display()));
        return None;
    }
    Some(path)
}

/// Is there such a tool? Says so where there is none: the caller then skips.
#[must_use]
pub fn has_tool(name: &str) -> bool {
    let found = Command::new(name).arg("--version").output().is_ok();
    if !found {
        say(&format!("skipped: there is no {name} here"));
    }
    found
}
