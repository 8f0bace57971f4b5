//! Runs the built `memgate` against real processes. This is one test program, so that its modules share slow
//! sessions.
//!
//! `MEMGATE_E2E_LONG=1` runs the clean suite twenty times and long tests with every JDK,
//! `MEMGATE_E2E_PROGRAM=/path/to/memgate` tests another program than the one built here,
//! `MEMGATE_AGENT=/path/to/libmemgate_agent.so` another agent. The files of a test stay in
//! `target/PROFILE/e2e-projects/NAME` until it runs again.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "what a test cannot do without fails it")]

mod aarch64;
mod accounts;
mod adb;
mod adb_devices;
mod adb_heap_dump;
mod adb_trouble;
mod agent_elf;
mod android_artefact;
mod android_artefact_runs;
mod android_artefact_runtime;
mod android_native;
mod bisect;
mod boundaries;
mod ci_recipes;
mod config;
mod confirm;
mod crash;
mod epochs;
mod first_use;
mod gate;
mod guest_life;
mod guest_life_allocators;
mod guest_life_ends;
mod guest_life_foreign;
mod guest_life_libraries;
mod guest_life_memory;
mod guest_life_processes;
mod guest_life_sanitizers;
mod guest_life_surroundings;
mod guest_rules;
mod guest_rules_limits;
mod guest_rules_signals;
mod handles;
mod heap;
mod history;
mod holders;
mod hunt;
mod ids;
mod instrumentation;
mod instrumentation_app;
mod instrumentation_art;
mod instrumentation_devices;
mod instrumentation_endings;
mod instrumentation_faults;
mod instrumentation_listener;
mod instrumentation_mapping;
mod instrumentation_orchestrator;
mod instrumentation_packaged;
mod java;
mod java_attach;
mod java_dormant;
mod java_empty;
mod java_follow;
mod java_foreign;
mod java_forks;
mod java_heap;
mod java_hidden;
mod java_idle;
mod java_judge;
mod java_memory;
mod java_names;
mod java_sites;
mod java_soak;
mod java_truth;
mod junit;
mod junit_agentless;
mod junit_baseline;
mod junit_build;
mod junit_failing;
mod junit_gate;
mod junit_gradle;
mod junit_historic;
mod junit_maven;
mod junit_native;
mod junit_process;
mod junit_reactor;
mod junit_robolectric;
mod leak_info;
mod leaks;
mod live;
mod looks;
mod malloc_debug;
mod malloc_debug_lists;
mod malloc_debug_symbols;
mod mapping;
mod mappings;
mod notify;
mod oidc;
mod partition;
mod report_formats;
mod report_mail;
mod report_origin;
mod report_page;
mod review;
mod sampling;
mod setups;
mod shadow;
mod socket;
mod spool;
mod stacks;
mod survive;
mod survive_kills;
mod survive_socket;
mod tree;
mod tree_unseen;
mod upload;
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
