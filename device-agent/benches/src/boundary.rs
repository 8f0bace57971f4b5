//! The cost of a boundary for the thread that reaches it, and its effect on other threads: `native/boundary.c`
//! measures, this module judges.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::inputs;
use crate::measure::options;
use crate::table::{Verdict, median};

/// Number of survivors, and the maximum duration of a boundary with that number, in seconds.
const SIZES: [(&str, f64); 3] = [("0", 100e-6), ("100000", 15e-3), ("5000000", 1.0)];

/// Maximum delay of another thread's allocation.
const DELAY_S: f64 = 1e-3;

/// Runs the three sizes and prints the results.
pub(crate) fn run(folder: &Path, agent: &Path, times: u32) -> Result<Vec<Verdict>, String> {
    let program = inputs::build(folder, "boundary")?;
    let spools = folder.join("boundary-spools");
    let mut verdicts = Vec::new();
    println!(
        "\nboundary:     wall ms  not preempted    CPU ms   allocations of another thread meanwhile, µs: \
         p50  p99  p99.9  max  max not preempted"
    );
    for (survivors, limit_s) in SIZES {
        fs::create_dir_all(&spools).map_err(|e| format!("make {}: {e}", spools.display()))?;
        let output = Command::new(&program)
            .args([survivors, &times.to_string()])
            .env("LD_PRELOAD", agent)
            .env("MEMGATE_AGENT_OPTIONS", options(&spools, "all"))
            .stderr(Stdio::inherit())
            .output()
            .map_err(|e| format!("run {}: {e}", program.display()))?;
        fs::remove_dir_all(&spools).map_err(|e| format!("remove {}: {e}", spools.display()))?;
        if !output.status.success() {
            return Err(format!("run the boundaries with {survivors} survivors: {}", output.status));
        }
        let seen = Seen::read(&String::from_utf8_lossy(&output.stdout))
            .ok_or_else(|| format!("read the boundaries with {survivors} survivors"))?;
        seen.print(survivors);
        // Wall time is the time that the test waits. If its thread was preempted every time, wall time depends only on
        // the machine.
        let worst = seen.undisturbed_s.unwrap_or(0.0).max(seen.cpu_s);
        verdicts.push(Verdict::of(
            &format!("boundary with {survivors} survivors, ms"),
            worst * 1e3,
            limit_s * 1e3,
        ));
        // If a boundary takes only microseconds, other threads notice nothing.
        if let Some(with) = seen.latency.get("with").filter(|with| with.count > 0.0) {
            let what = format!("delay of another thread's allocation, {survivors} survivors, ms");
            verdicts.push(Verdict::of(&what, with.undisturbed_s * 1e3, DELAY_S * 1e3));
        }
    }
    Ok(verdicts)
}

/// The measured values, converted from nanoseconds to seconds.
struct Seen {
    wall_s: f64,
    /// Median of the boundaries during which the kernel did not preempt the thread.
    undisturbed_s: Option<f64>,
    cpu_s: f64,
    latency: BTreeMap<String, Latency>,
}

#[derive(Default)]
struct Latency {
    count: f64,
    quantiles_s: [f64; 3],
    max_s: f64,
    undisturbed_s: f64,
}

impl Seen {
    fn read(text: &str) -> Option<Self> {
        let (mut walls, mut undisturbed, mut cpus) = (Vec::new(), Vec::new(), Vec::new());
        let mut latency = BTreeMap::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |i: usize| words.get(i)?.parse::<f64>().ok();
            match *words.first()? {
                "boundary" => {
                    walls.push(number(1)? / 1e9);
                    cpus.push(number(2)? / 1e9);
                    if number(3)? == 0.0 {
                        undisturbed.push(number(1)? / 1e9);
                    }
                }
                "latency" => {
                    let seconds = |i| number(i).map(|ns| ns / 1e9);
                    let of = Latency {
                        count: number(2)?,
                        quantiles_s: [seconds(3)?, seconds(4)?, seconds(5)?],
                        max_s: seconds(6)?,
                        undisturbed_s: seconds(7)?,
                    };
                    latency.insert((*words.get(1)?).to_owned(), of);
                }
                _ => return None,
            }
        }
        Some(Self {
            wall_s: median(walls)?,
            undisturbed_s: median(undisturbed),
            cpu_s: median(cpus)?,
            latency,
        })
    }

    fn print(&self, survivors: &str) {
        let undisturbed = self.undisturbed_s.map_or("-".to_owned(), |s| format!("{:.3}", s * 1e3));
        print!("{survivors:>8} {:>10.3} {undisturbed:>14} {:>9.3}  ", self.wall_s * 1e3, self.cpu_s * 1e3);
        for (which, between) in [("with", " (without: "), ("without", ")\n")] {
            if let Some(l) = self.latency.get(which) {
                for value in l.quantiles_s.iter().chain([&l.max_s, &l.undisturbed_s]) {
                    print!(" {:.2}", value * 1e6);
                }
            }
            print!("{between}");
        }
    }
}
