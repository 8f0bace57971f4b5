//! Runs of one line, one commit each, for the benchmarks.

use memgate_history::{Environment, Manifest};
use memgate_model::{Commit, RunReport};
use serde_json::{Value, json};

fn sha(number: usize) -> String {
    format!("{number:040x}")
}

pub(super) fn manifest(number: usize) -> Manifest {
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

pub(super) fn figure(value: f64, unit: &str) -> Value {
    json!({ "value": value, "unit": unit, "per": "iteration", "low": value, "high": value, "iterations": 9,
            "confidence": 0.99, "threshold": null })
}

pub(super) fn leak(id: &str) -> Value {
    let frame = |at: usize| {
        json!({ "function": format!("tiles::load_{at}()"), "file": "src/tiles.cc", "line": at,
                "module": "libtiles.so", "offset": at, "inlined": false })
    };
    json!({ "id": id, "kind": "native", "title": "12 × 4096 B", "bytes_per_iteration": 49152.0,
            "count_per_iteration": 12.0, "frames": (0..24).map(frame).collect::<Vec<_>>(), "holder": [] })
}

pub(super) fn test(at: usize, metrics: &Value, leaks: &[Value]) -> Value {
    json!({ "id": format!("Suite{}.test_{at}", at / 20), "outcome": "passed",
            "verdict": if leaks.is_empty() { "pass" } else { "fail" }, "reason": "", "duration_s": 0.1, "confirmed": false,
            "metrics": metrics, "leaks": leaks, "one_time": [], "curve": [] })
}

pub(super) fn report(number: usize, tests: &[Value]) -> Result<RunReport, Box<dyn std::error::Error>> {
    let started = jiff::Timestamp::from_second(1_700_000_000 + i64::try_from(number)? * 600)?;
    let report: Value = json!({
        "schema_version": 1, "verdict": "fail", "exit_code": 1, "project": "bench", "session": format!("s{number}"),
        "started": started.to_string(), "duration_s": 60.0,
        "agent_cost": { "cpu_ratio": null, "peak_bytes": 0, "boundary_s": 0.0, "truncated_stacks": 0 },
        "suites": [{ "name": "engine", "runner": "gtest", "boundary": "exact", "verdict": "fail", "screened_s": 1.0, "reason": "",
                     "metrics": {}, "tests": tests }],
        "waivers": [], "errors": [],
    });
    Ok(serde_json::from_value(report)?)
}
