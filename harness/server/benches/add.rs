//! How long adding a run takes, by how many are there: `cargo bench -p memgate-server [-- runs [address]]`.
//!
//! One line, a commit per run, 500 tests with two metrics, 20 leaks that stay, one that comes and goes, and a new one
//! each 50 commits. Printed: milliseconds
//! per added run, of the last 50.

use std::io::Write as _;
use std::time::Instant;

use memgate_history::{Environment, Manifest};
use memgate_model::{Commit, RunReport};
use memgate_server::store::Store;
use serde_json::{Value, json};

const TESTS: usize = 500;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let runs: usize = arguments.first().map_or(Ok(1_000), |runs| runs.parse())?;
    let folder = std::env::temp_dir().join(format!("memgate-add-{}", std::process::id()));
    let address = arguments
        .get(1)
        .cloned()
        .unwrap_or_else(|| format!("sqlite:{}", folder.join("history.db").display()));
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(measure(runs, &address))?;
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    Ok(())
}

async fn measure(runs: usize, address: &str) -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::open(address).await?;
    let (mut taken, mut out) = (Vec::new(), std::io::stdout());
    writeln!(out, "{:>8} {:>10} {:>8}", "runs", "median ms", "p90 ms")?;
    for number in 0..runs {
        let (manifest, report) = (manifest(number), report(number)?);
        let started = Instant::now();
        store.add(&manifest, &report).await?;
        taken.push(started.elapsed().as_secs_f64() * 1e3);
        if [100, 300, 1_000, 3_000, 10_000].contains(&(number + 1)) || number + 1 == runs {
            let mut last = taken[taken.len().saturating_sub(50)..].to_vec();
            last.sort_by(f64::total_cmp);
            writeln!(
                out,
                "{:>8} {:>10.1} {:>8.1}",
                number + 1,
                last[last.len() / 2],
                last[last.len() * 9 / 10]
            )?;
        }
    }
    store.close().await;
    Ok(())
}

fn sha(number: usize) -> String {
    format!("{number:040x}")
}

fn manifest(number: usize) -> Manifest {
    Manifest {
        project: "bench".into(),
        session: format!("s{number}"),
        commit: Some(Commit { sha: sha(number), branch: "main".into(), ..Commit::default() }),
        ancestors: (number.saturating_sub(50)..number).rev().map(sha).collect(),
        environment: Environment([("architecture".to_owned(), "x86_64".to_owned())].into()),
        lines: vec!["main".into()],
        ..Manifest::default()
    }
}

fn report(number: usize) -> Result<RunReport, Box<dyn std::error::Error>> {
    let figure = |value: usize, unit: &str| {
        json!({ "value": value, "unit": unit, "per": "iteration", "low": value, "high": value, "iterations": 9,
                "confidence": 0.99, "threshold": null })
    };
    let leak = |id: String| {
        let frame = |at: usize| {
            json!({ "function": format!("tiles::load_{at}()"), "file": "src/tiles.cc", "line": at,
                                        "module": "libtiles.so", "offset": at, "inlined": false })
        };
        json!({ "id": id, "kind": "native", "title": "12 × 4096 B", "bytes_per_iteration": 49152.0,
                "count_per_iteration": 12.0, "frames": (0..24).map(frame).collect::<Vec<_>>(), "holder": [] })
    };
    let test = |at: usize| {
        let mut leaks = Vec::new();
        if at < 20 {
            leaks.push(leak(format!("n1-steady-{at}")));
        }
        if at == 20 && number.is_multiple_of(2) {
            leaks.push(leak("n1-flaky".to_owned()));
        }
        if at == 21 {
            leaks.push(leak(format!("n1-of-{}", number / 50)));
        }
        let bytes = 49152 * leaks.len();
        json!({ "id": format!("Suite{}.test_{at}", at / 20), "outcome": "passed",
                "verdict": if leaks.is_empty() { "pass" } else { "fail" }, "reason": "", "duration_s": 0.1, "confirmed": false,
                "metrics": { "native.live_bytes": figure(bytes, "bytes"), "native.live_allocations": figure(bytes / 4096, "count") },
                "leaks": leaks, "one_time": [], "curve": [] })
    };
    let started = jiff::Timestamp::from_second(1_800_000_000 + i64::try_from(number)? * 600)?;
    let report: Value = json!({
        "schema_version": 1, "verdict": "fail", "exit_code": 1, "project": "bench", "session": format!("s{number}"),
        "started": started.to_string(), "duration_s": 60.0,
        "agent_cost": { "cpu_ratio": null, "peak_bytes": 0, "boundary_s": 0.0, "truncated_stacks": 0 },
        "suites": [{ "name": "engine", "runner": "gtest", "boundary": "exact", "verdict": "fail", "screened_s": 1.0, "reason": "",
                     "metrics": {}, "tests": (0..TESTS).map(test).collect::<Vec<_>>() }],
        "waivers": [], "errors": [],
    });
    Ok(serde_json::from_value(report)?)
}
