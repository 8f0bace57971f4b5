//! Renders a large run as a page and prints time, size and memory: `cargo run --release -p memgate-reports --example
//! large [FILE]`.
//!
//! 5,000 tests with 200 samples each; every twentieth leaks. Peak memory is the kernel's value for this process.
#![expect(clippy::print_stdout, reason = "that is its purpose")]
#![expect(clippy::cast_precision_loss, reason = "small numbers")]

use std::time::Instant;

use memgate_model::{
    CurvePoint, Frame, GrowthPoint, Leak, LeakKind, Level, Metric, MetricValue, Per, RunReport, Runner,
    SuiteReport, TestReport, Threshold, ThresholdSource, Verdict,
};

const TESTS: u64 = 5000;
const SAMPLES: u64 = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let report = report();
    let before = peak_kib()?;
    let began = Instant::now();
    let page = memgate_reports::html(&report)?;
    let took = began.elapsed();
    println!(
        "{TESTS} tests × {SAMPLES} samples: {:.2} s, {:.1} MiB page, peak {} MiB (the report itself: {} MiB)",
        took.as_secs_f64(),
        page.len() as f64 / 1_048_576.0,
        peak_kib()? / 1024,
        before / 1024,
    );
    if let Some(file) = std::env::args_os().nth(1) {
        std::fs::write(file, page)?;
    }
    Ok(())
}

fn peak_kib() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

fn report() -> RunReport {
    let tests = (0..TESTS).map(test).collect();
    let suite = SuiteReport {
        screened_s: 412.0,
        ..SuiteReport::new("engine_tests", Runner::Gtest, Verdict::Fail, tests)
    };
    RunReport {
        started: "2026-11-21T10:15:00+01:00".to_owned(),
        duration_s: 812.0,
        ..RunReport::new("large", "20261121-101500-000", Verdict::Fail, vec![suite])
    }
}

fn test(number: u64) -> TestReport {
    let leaks = number.is_multiple_of(20);
    let step = if leaks { 148.0 * (number % 7 + 1) as f64 } else { 0.0 };
    // Not smooth: values that compress or fold well would make the result too good.
    let wobble = |n: u64| ((n * 2_654_435_761 + number * 97) % 8192) as f64;
    let metric = Metric::NativeLiveBytes;
    let value = MetricValue {
        iterations: 97,
        confidence: 0.99,
        threshold: Some(Threshold { limit: 0.0, level: Level::Fail, source: ThresholdSource::Default }),
        ..MetricValue::exact(step, metric, Per::Iteration)
    };
    let id = format!("Suite{}.test{number}", number / 40);
    TestReport {
        reason: if leaks { format!("{step} B per iteration (allowed 0 B)") } else { String::new() },
        reason_beside_figures: leaks.then(String::new),
        duration_s: 0.001 * number as f64,
        confirmed: leaks,
        metrics: [(metric, value)].into(),
        leaks: if leaks { vec![leak(number, step)] } else { Vec::new() },
        curve: (0..SAMPLES)
            .map(|n| CurvePoint { t_ns: n * 10_000_000, metric, value: 1e6 + step * n as f64 + wobble(n) })
            .collect(),
        growth: if leaks {
            (1..=100).map(|n| GrowthPoint { iteration: n, metric, value: 1e6 + step * n as f64 }).collect()
        } else {
            Vec::new()
        },
        warm_up: 3,
        ..TestReport::new(&id, if leaks { Verdict::Fail } else { Verdict::Pass })
    }
}

fn leak(number: u64, bytes: f64) -> Leak {
    let frame = |depth: u32| Frame {
        function: Some(format!("engine::Layer{depth}<std::map<int, Tile>>::step{}(int)", number % 97)),
        file: Some(format!("src/layer{depth}.cpp")),
        line: Some(depth + 10),
        module: "engine_tests".to_owned(),
        offset: 0x1000,
        inlined: false,
    };
    Leak {
        id: format!("n1-{number:016x}"),
        kind: LeakKind::Native,
        title: format!("1 × {bytes} B"),
        bytes_per_iteration: bytes,
        count_per_iteration: 1.0,
        frames: (0..12).map(frame).collect(),
        ..Leak::default()
    }
}
