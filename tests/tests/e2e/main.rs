//! Drives the built `memgate` against real processes. One test program, so that its modules share the sessions that take long.
#![forbid(unsafe_code)]

mod agent_elf;
mod boundaries;
mod config;
mod crash;
mod gate;
mod ids;
mod junit;
mod leaks;
mod socket;
mod spool;
mod tree;
mod waivers;
mod wire_fixture;

use std::sync::OnceLock;

use memgate_e2e::{Project, Run, samples};

/// The sample `leaks`, run once without any configuration: confirming each leak takes two seconds by design.
fn leaks_session() -> &'static (Project, Run) {
    static SESSION: OnceLock<(Project, Run)> = OnceLock::new();
    SESSION.get_or_init(|| {
        let project = Project::new("leaks");
        let run = project.run(&samples::suite("leaks"));
        (project, run)
    })
}

/// The sample `clean`, run once.
fn clean_session() -> &'static (Project, Run) {
    static SESSION: OnceLock<(Project, Run)> = OnceLock::new();
    SESSION.get_or_init(|| {
        let project = Project::new("clean");
        let run = project.run(&samples::suite("clean"));
        (project, run)
    })
}

/// The sample `names`, run once.
fn names_session() -> &'static (Project, Run) {
    static SESSION: OnceLock<(Project, Run)> = OnceLock::new();
    SESSION.get_or_init(|| {
        let project = Project::new("names");
        let run = project.run(&samples::suite("names"));
        (project, run)
    })
}
