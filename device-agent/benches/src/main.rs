//! Measures the cost of the agent: one command, one table.
//!
//! ```text
//! cargo run --release -p memgate-benches              # the table, the bounds; exit code 1: a bound is exceeded
//! cargo run --release -p memgate-benches -- --short   # the same with fewer runs
//! cargo run --release -p memgate-benches -- --java    # what it costs a Java virtual machine: JDK and Maven are needed
//! ```
//!
//! Data flow: inputs and C programs are made in a scratch folder → every round runs every workload plain, tracked, and
//! under heaptrack's in-process part, one after the other → ratios within a round → medians → table → bounds; then
//! boundaries. Time is CPU time of the process, because wall time on a shared machine also measures other processes.
//! The agent is `$MEMGATE_AGENT`; without it, the agent is built.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is its purpose")]

mod boundary;
mod inputs;
mod java;
mod measure;
mod table;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::inputs::{Kind, Workload};
use crate::measure::{Bench, Mode};
use crate::table::{Round, Row, Verdict};

const HELP: &str = "\
options: --rounds N      rounds over all workloads (5)
         --runs N        runs of each kind in a round, of which the fastest counts (4)
         --short         two runs of each kind
         --only NAME     workloads whose name contains NAME, or `boundary` (Java: `idle`, `json`, `1000000 objects`, …);
                         repeatable
         --java          a Java virtual machine instead of native programs
         --sampling N    the agent notes samples, of one byte in N
         --no-stacks     the agent takes no call stacks, as in the screen of a suite
         --no-peer       without heaptrack, or async-profiler
         --no-dormant    without the runs of a dormant agent
         --allow PERCENT by which CPU ratios may exceed their bounds (10)";

struct Options {
    rounds: u32,
    runs: u32,
    only: Vec<String>,
    java: bool,
    sampling: u64,
    stacks: bool,
    peer: bool,
    dormant: bool,
    allow: f64,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            rounds: 5,
            runs: 4,
            only: Vec::new(),
            java: false,
            sampling: 0,
            stacks: true,
            peer: true,
            dormant: true,
            allow: 0.1,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value\n{HELP}"));
            let bad = |e: &dyn std::fmt::Display| format!("{argument}: {e}\n{HELP}");
            match argument.as_str() {
                "--rounds" => options.rounds = value()?.parse().map_err(|e| bad(&e))?,
                "--runs" => options.runs = value()?.parse().map_err(|e| bad(&e))?,
                "--short" => options.runs = 2,
                "--only" => options.only.push(value()?),
                "--java" => options.java = true,
                "--sampling" => options.sampling = value()?.parse().map_err(|e| bad(&e))?,
                "--no-stacks" => options.stacks = false,
                "--no-dormant" => options.dormant = false,
                "--no-peer" => options.peer = false,
                "--allow" => options.allow = value()?.parse::<f64>().map_err(|e| bad(&e))? / 100.0,
                _ => return Err(format!("{argument} is not known\n{HELP}")),
            }
        }
        Ok(options)
    }

    /// Additional options for the agent.
    fn extra(&self) -> String {
        let stacks = if self.stacks { "" } else { ";stacks=never" };
        format!(";native_sampling={}{stacks}", self.sampling)
    }
}

fn main() -> ExitCode {
    match Options::parse(env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            eprintln!("failed to {text}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<bool, String> {
    let folder = env::temp_dir().join(format!("memgate-benches-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|e| format!("make {}: {e}", folder.display()))?;
    let result = measured(options, &folder);
    fs::remove_dir_all(&folder).map_err(|e| format!("remove {}: {e}", folder.display()))?;
    result
}

fn measured(options: &Options, folder: &Path) -> Result<bool, String> {
    if options.java {
        let rounds = options.rounds.max(7);
        return Ok(all_hold(&java::run(folder, &agent()?, rounds, options.peer, &options.only)?));
    }
    if options.peer && !measure::peer_is_there() {
        return Err("find heaptrack (Debian package heaptrack; --no-peer goes without)".to_owned());
    }
    let mut workloads = inputs::prepare(folder)?;
    workloads.retain(|w| options.only.is_empty() || options.only.iter().any(|name| w.name.contains(name)));
    let measure = inputs::build(folder, "measure")?;
    let bench = Bench { folder: folder.to_owned(), agent: agent()?, measure, extra: options.extra() };

    let mut rows = Vec::new();
    for (workload, rounds) in workloads.iter().zip(rounds(&bench, &workloads, options)?) {
        rows.push(Row::new(workload.name, workload.kind, &rounds));
    }
    println!("{}", table::HEAD);
    for row in &rows {
        println!("{}", table::line(row));
    }
    if let Some(mean) = table::mean_quotient(&rows) {
        println!("geometric mean of the programs' added CPU by heaptrack's: {mean:.3} (1/{:.1})", 1.0 / mean);
    }
    let mut verdicts = table::verdicts(&rows, options.allow);
    if options.only.is_empty() || options.only.iter().any(|name| "boundary".contains(name.as_str())) {
        verdicts.extend(boundary::run(folder, &bench.agent, options.runs.max(3))?);
    }
    Ok(all_hold(&verdicts))
}

fn all_hold(verdicts: &[Verdict]) -> bool {
    println!();
    for verdict in verdicts {
        println!("{verdict}");
    }
    verdicts.iter().all(|verdict| verdict.holds)
}

/// Runs all rounds over all workloads, so that a slow minute of the machine affects only one or two rounds of each
/// workload.
fn rounds(bench: &Bench, workloads: &[Workload], options: &Options) -> Result<Vec<Vec<Round>>, String> {
    let mut all: Vec<Vec<Round>> = workloads.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        for (workload, rounds) in workloads.iter().zip(&mut all) {
            let mut round = Round::default();
            for _ in 0..options.runs {
                round.plain.push(bench.run(workload, Mode::Plain)?);
                round.tracked.push(bench.run(workload, Mode::Tracked)?);
                if options.dormant && !matches!(workload.kind, Kind::Churn { .. }) {
                    round.dormant.push(bench.run(workload, Mode::Dormant)?);
                }
            }
            if options.peer {
                round.peer.push(bench.run(workload, Mode::Peer)?);
            }
            rounds.push(round);
        }
    }
    Ok(all)
}

/// `$MEMGATE_AGENT`; without it, the agent is built with its own profile and its own target folder.
fn agent() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os("MEMGATE_AGENT").filter(|path| !path.is_empty()) {
        return fs::canonicalize(&path).map_err(|e| format!("find {}: {e}", path.display()));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = root.join("target/agent-proofs");
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "build",
            "--quiet",
            "--locked",
            "-p",
            "memgate-agent",
            "--profile",
            "agent",
            "--manifest-path",
        ])
        .arg(root.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .status()
        .map_err(|e| format!("build the agent: {e}"))?;
    let built = target.join("agent/libmemgate_agent.so");
    if !status.success() {
        return Err("build the agent".to_owned());
    }
    fs::canonicalize(&built).map_err(|e| format!("find {}: {e}", built.display()))
}
