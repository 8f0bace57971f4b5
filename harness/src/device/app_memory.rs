//! Android's figures for the memory of an app's process: from `dumpsys meminfo` (the system, which asks the app itself)
//! and from `/proc` (as the shell, and as the app through `run-as`).
//!
//! Data flow: the device's answers → `memgate_formats` → [`AppMemory`], with the best source that answered. An answer
//! without figures does not count: the next source is used. If none is left, the reasons are reported.

use std::collections::BTreeMap;
use std::time::Duration;

use memgate_adb::{Bounds, Device, command, run_as};
use memgate_formats::meminfo::{MemInfoError, ProcessMemory, read_meminfo, read_meminfo_proto};
use memgate_formats::proc_text::{ProcessStatus, Rollup, read_smaps_rollup, read_status};
use memgate_model::AppMemory;

use super::delivery::App;
use crate::exit::failed_to;

/// Time after which the system gives up on an app, in seconds.
const SYSTEM_LIMIT: &str = "3";
/// Limits of one answer.
const ANSWER: Bounds = Bounds { time: Duration::from_secs(4), bytes: 1 << 20 };
const KILOBYTE: u64 = 1024;
/// This entry among the object counts is not a count.
const NO_COUNT: &str = "Parcel memory";

/// Asks about the process `pid` of an app, which waits after `test` during this time.
///
/// # Errors
/// When no source has a figure: all reasons.
pub async fn ask(device: &Device, app: &App, pid: u32, test: String) -> Result<AppMemory, String> {
    let device = device.clone().with_bounds(ANSWER).with_patience(Duration::ZERO);
    let (meminfo, rollup, status) =
        tokio::join!(meminfo(&device, pid), rollup(&device, app, pid), status(&device, pid));
    let mut memory = AppMemory { test, ..AppMemory::default() };
    let mut reasons = Vec::new();
    let mut source = |name: &str| memory.source = name.to_owned();
    match status {
        Ok(status) => {
            source("/proc/PID/status");
            add_status(&mut memory, &status);
        }
        Err(why) => reasons.push(why),
    }
    match rollup {
        Ok(rollup) => {
            memory.source = "/proc/PID/smaps_rollup".to_owned();
            add_rollup(&mut memory, rollup);
        }
        Err(why) => reasons.push(why),
    }
    match meminfo {
        Ok(process) => {
            memory.source = "dumpsys meminfo".to_owned();
            add_meminfo(&mut memory, &process);
        }
        Err(why) => reasons.push(why),
    }
    if memory.bytes.is_empty() { Err(reasons.join("; ")) } else { Ok(memory) }
}

/// Reads protobuf, or text if the device does not support protobuf.
async fn meminfo(device: &Device, pid: u32) -> Result<ProcessMemory, String> {
    let pid_text = pid.to_string();
    let proto = bytes_of(device, &["dumpsys", "-t", SYSTEM_LIMIT, "meminfo", "--proto", &pid_text]).await?;
    if let Ok(process) = only(read_meminfo_proto(&proto), pid) {
        return Ok(process);
    }
    let line = ["dumpsys", "-t", SYSTEM_LIMIT, "meminfo", &pid_text];
    let text = bytes_of(device, &line).await?;
    only(read_meminfo(&text), pid).map_err(|why| format!("`{}`: {why}", line.join(" ")))
}

fn only(
    processes: Result<Vec<ProcessMemory>, MemInfoError>,
    pid: u32,
) -> Result<ProcessMemory, MemInfoError> {
    let of_pid = |process: &ProcessMemory| process.pid == u64::from(pid);
    processes?.into_iter().find(of_pid).ok_or_else(|| MemInfoError::NoProcess(pid.to_string()))
}

async fn rollup(device: &Device, app: &App, pid: u32) -> Result<Rollup, String> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let line = run_as(&app.package, app.user, &["cat", &path]);
    let told = device.shell(&line).await.and_then(|told| told.success(&line));
    let told = told.map_err(|why| failed_to(&why))?;
    read_smaps_rollup(&told.stdout).map_err(|why| format!("{path}: {why}"))
}

async fn status(device: &Device, pid: u32) -> Result<ProcessStatus, String> {
    let path = format!("/proc/{pid}/status");
    let text = bytes_of(device, &["cat", &path]).await?;
    read_status(&text).map_err(|why| format!("{path}: {why}"))
}

async fn bytes_of(device: &Device, words: &[&str]) -> Result<Vec<u8>, String> {
    let told = device.shell(&command(words)).await;
    told.map(|told| told.stdout).map_err(|why| failed_to(&why))
}

fn add_status(memory: &mut AppMemory, status: &ProcessStatus) {
    let figures = [("total_rss", status.rss), ("swap", status.swap)];
    let known = figures.into_iter().filter_map(|(name, figure)| Some((name, figure?)));
    memory.bytes.extend(known.map(|(name, figure)| (name.to_owned(), figure.saturating_mul(KILOBYTE))));
    memory.objects.insert("threads".to_owned(), status.threads);
}

fn add_rollup(memory: &mut AppMemory, rollup: Rollup) {
    let figures = [
        ("total_rss", rollup.rss),
        ("total_pss", rollup.pss),
        ("private", rollup.unique()),
        ("swap", rollup.swap),
    ];
    memory.bytes.extend(figures.map(|(name, figure)| (name.to_owned(), figure.saturating_mul(KILOBYTE))));
}

fn add_meminfo(memory: &mut AppMemory, process: &ProcessMemory) {
    let summary = process.summary.iter();
    let figures: BTreeMap<String, u64> =
        summary.map(|(label, figure)| (key(label), figure.saturating_mul(KILOBYTE))).collect();
    memory.bytes.extend(figures);
    if let Some(total) = process.total_pss() {
        memory.bytes.insert("total_pss".to_owned(), total.saturating_mul(KILOBYTE));
    }
    let counts = process.objects.iter().filter(|(label, _)| label.as_str() != NO_COUNT);
    memory.objects.extend(counts.map(|(label, count)| (key(label), *count)));
}

/// `TOTAL SWAP (KB)` becomes `total_swap`.
fn key(label: &str) -> String {
    label.trim_end_matches("(KB)").trim().to_ascii_lowercase().replace(' ', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_source_has_the_last_word_and_figures_are_bytes() {
        let mut memory = AppMemory::default();
        let status = ProcessStatus { rss: Some(10), threads: 7, ..ProcessStatus::default() };
        add_status(&mut memory, &status);
        let rollup = Rollup { rss: 11, pss: 5, private_clean: 1, private_dirty: 2, ..Rollup::default() };
        add_rollup(&mut memory, rollup);
        let row = BTreeMap::from([("Pss Total".to_owned(), 6)]);
        let process = ProcessMemory {
            rows: BTreeMap::from([("TOTAL".to_owned(), row)]),
            summary: [("Java Heap", 3), ("TOTAL SWAP (KB)", 0)].map(|(l, n)| (l.to_owned(), n)).into(),
            objects: [("Activities", 2), ("Parcel memory", 9)].map(|(l, n)| (l.to_owned(), n)).into(),
            ..ProcessMemory::default()
        };
        add_meminfo(&mut memory, &process);
        let bytes: Vec<(&str, u64)> = memory.bytes.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        let want = [
            ("java_heap", 3072),
            ("private", 3072),
            ("swap", 0),
            ("total_pss", 6144),
            ("total_rss", 11264),
            ("total_swap", 0),
        ];
        assert_eq!(bytes, want);
        assert_eq!(
            memory.objects,
            [("activities", 2), ("threads", 7)].map(|(l, n)| (l.to_owned(), n)).into()
        );
    }
}
