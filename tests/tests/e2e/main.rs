//! Runs the built `memgate` against real processes. This is one test program, so that its modules share slow
//! sessions.
//!
//! `MEMGATE_E2E_LONG=1` runs the clean suite twenty times and long tests with every JDK,
//! `MEMGATE_E2E_PROGRAM=/path/to/memgate` tests another program than the one built here,
//! `MEMGATE_AGENT=/path/to/libmemgate_agent.so` another agent. The files of a test stay in
//! `target/PROFILE/e2e-projects/NAME` until it runs again.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "what a test cannot do without fails it")]

mod agent;
mod android;
mod ci;
mod command_line;
mod guest;
mod heap;
mod history;
mod java;
mod native;
mod reports;
mod server;
mod verdicts;

use std::sync::OnceLock;

use memgate_e2e::{Project, Run, samples};

/// The sample `leaks`, run once without any configuration: confirming each leak takes two seconds by design.
fn leaks_session() -> &'static (Project, Run) {
    static SESSION: OnceLock<(Project, Run)> = OnceLock::new();
    SESSION.get_or_init(|| Project::of_run("leaks", &samples::suite("leaks")))
}

/// The sample `clean`, run once.
fn clean_session() -> &'static (Project, Run) {
    static SESSION: OnceLock<(Project, Run)> = OnceLock::new();
    SESSION.get_or_init(|| Project::of_run("clean", &samples::suite("clean")))
}

/// The sample `names`, run once.
fn names_session() -> &'static (Project, Run) {
    static SESSION: OnceLock<(Project, Run)> = OnceLock::new();
    SESSION.get_or_init(|| Project::of_run("names", &samples::suite("names")))
}
