//! The C API's snapshot keeps the contract of Android's `get_malloc_leak_info`, tested with a program that
//! knows only that contract.
//!
//! Words have 8 bytes here: the agent is built for x86-64 only. The program uses `size_t` and computes its
//! word size itself.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use memgate_e2e::{Project, agent, samples};
use memgate_model::Verdict;

const ALL_HOLD: &str =
    "0 records before the first allocation\nwords of 8 bytes, recorded: 77 checks, 0 do not hold\n";

fn program() -> PathBuf {
    let source = samples::sources().join("leak_info.c");
    let arguments = ["-std=gnu11", "-O1", "-g", source.to_str().unwrap(), "-lpthread", "-ldl"];
    samples::compile("leak_info", "cc", &arguments, &[])
}

fn told(output: &Output) -> String {
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    format!("{}{}", String::from_utf8_lossy(&output.stdout), output.status)
}

#[test]
fn every_promise_of_the_contract_holds() {
    let project = Project::new("leak-info");
    let options = format!("dir={};target=all;wait_ms=0", project.folder().display());
    let output = Command::new(program())
        .env("LD_PRELOAD", agent())
        .env("MEMGATE_AGENT_OPTIONS", options)
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap();
    assert_eq!(told(&output), format!("{ALL_HOLD}exit status: 0"));
    let spools = fs::read_dir(project.folder()).unwrap().count();
    assert_eq!(spools, 2, "its own and that of its forked child");
}

#[test]
fn the_contract_holds_while_memgate_runs_the_program() {
    let run = Project::new("leak-info-run").run(&program());
    run.ends_with(0);
    assert_eq!(run.stdout, ALL_HOLD, "{run}");
    assert_ne!(run.report().verdict, Verdict::Error, "{run}");
}

#[test]
fn a_process_that_is_not_recorded_gets_zeros() {
    let output = Command::new(program()).env("LD_PRELOAD", agent()).output().unwrap();
    let zeros =
        "0 records before the first allocation\nwords of 8 bytes, not recorded: 6 checks, 0 do not hold\n";
    assert_eq!(told(&output), format!("{zeros}exit status: 0"));
}

#[test]
fn the_program_runs_without_the_agent() {
    let output = Command::new(program()).output().unwrap();
    assert_eq!(told(&output), "no snapshots here\nexit status: 0");
}
