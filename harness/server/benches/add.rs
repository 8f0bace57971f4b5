//! Time to add a run, by the number of stored runs: `cargo bench -p memgate-server [-- runs [address]]`.
//!
//! One line, a commit per run, 500 tests with two metrics, 20 leaks that stay, one that comes and goes, and a new one
//! each 50 commits. Printed: milliseconds per added run, for the last 50; then the CPU time of adding all, compared
//! with one parse of each report's JSON (without the database server's own time).

mod line;

use std::io::Write as _;
use std::time::{Duration, Instant};

use memgate_model::RunReport;
use memgate_server::store::Store;
use serde_json::json;

const TESTS: usize = 500;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let runs: usize = arguments.first().map_or(Ok(1_000), |runs| runs.parse())?;
    let folder = std::env::temp_dir().join(format!("memgate-add-{}", std::process::id()));
    let address = arguments
        .get(1)
        .cloned()
        .unwrap_or_else(|| format!("sqlite:{}", folder.join("history.db").display()));
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(measure(runs, &address))?;
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    Ok(())
}

async fn measure(runs: usize, address: &str) -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::open(address).await?;
    let (mut taken, mut out) = (Vec::new(), std::io::stdout());
    writeln!(out, "{:>8} {:>10} {:>8}", "runs", "median ms", "p90 ms")?;
    let (mut adding, mut parsing) = (Duration::ZERO, Duration::ZERO);
    for number in 0..runs {
        let (manifest, body) = (line::manifest(number), serde_json::to_vec(&report(number)?)?);
        let before = processor_time();
        let report: RunReport = serde_json::from_slice(&body)?;
        let parsed = processor_time();
        let started = Instant::now();
        store.add(&manifest, &report).await?;
        taken.push(started.elapsed().as_secs_f64() * 1e3);
        adding += processor_time() - parsed;
        parsing += parsed - before;
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
    let (adding, parsing) = (adding.as_secs_f64(), parsing.as_secs_f64());
    writeln!(
        out,
        "{adding:.2} s of processor time to add, {:.2} of {parsing:.2} s to parse",
        adding / parsing
    )?;
    store.close().await;
    Ok(())
}

/// CPU time of this process, all threads.
fn processor_time() -> Duration {
    let taken = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(taken.tv_sec).unwrap_or(0), u32::try_from(taken.tv_nsec).unwrap_or(0))
}

fn report(number: usize) -> Result<RunReport, Box<dyn std::error::Error>> {
    let test = |at: usize| {
        let mut leaks = Vec::new();
        if at < 20 {
            leaks.push(line::leak(&format!("n1-steady-{at}")));
        }
        if at == 20 && number.is_multiple_of(2) {
            leaks.push(line::leak("n1-flaky"));
        }
        if at == 21 {
            leaks.push(line::leak(&format!("n1-of-{}", number / 50)));
        }
        let blocks = 12.0 * leaks.len() as f64;
        let metrics = json!({ "native.live_bytes": line::figure(4096.0 * blocks, "bytes"),
                              "native.live_allocations": line::figure(blocks, "count") });
        line::test(at, &metrics, &leaks)
    };
    line::report(number, &(0..TESTS).map(test).collect::<Vec<_>>())
}
