//! The operating system's figures of this process, read by the process itself, because on Android no other process may
//! read them. Elsewhere used only if requested. The figures are the same as those that the harness reads elsewhere.

use std::fs;

use memgate_ffi::process;
use memgate_wire::{FdEntry, OsSample, ThreadEntry};

/// At most this many threads or descriptors are listed.
const MOST_ENTRIES: usize = 4096;

/// A sample for this boundary. `closely`: with figures for which the kernel walks all page tables; `own`: a thread of
/// the agent.
pub(crate) fn sample(boundary: u32, closely: bool, own: u32) -> OsSample {
    let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let status = read("status");
    let shared = if closely { read("smaps_rollup") } else { String::new() };
    OsSample {
        pid: process::pid(),
        boundary,
        rss_bytes: kibibytes(&status, "VmRSS:").unwrap_or(0),
        pss_bytes: kibibytes(&shared, "Pss:"),
        private_dirty_bytes: kibibytes(&shared, "Private_Dirty:"),
        cpu_ns: process::cpu_ns(),
        threads: threads(own),
        fds: descriptors(),
        counters: None,
    }
}

/// The figure of a line such as `VmRSS:     1234 kB`, in bytes.
fn kibibytes(text: &str, label: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn threads(own: u32) -> Vec<ThreadEntry> {
    let mut threads: Vec<ThreadEntry> = numbers("/proc/self/task")
        .filter(|&id| id != own)
        .map(|id| ThreadEntry {
            id,
            name: fs::read_to_string(format!("/proc/self/task/{id}/comm"))
                .map(|name| name.trim_end().to_owned())
                .unwrap_or_default(),
            waits_in: String::new(),
        })
        .collect();
    threads.sort_unstable_by_key(|thread| thread.id);
    threads
}

fn descriptors() -> Vec<FdEntry> {
    let folder = format!("/proc/{}/fd", process::pid());
    let mut descriptors: Vec<FdEntry> = numbers(&folder)
        .filter_map(|fd| {
            let target = fs::read_link(format!("{folder}/{fd}")).ok()?;
            Some(FdEntry { fd, target: target.to_string_lossy().into_owned() })
        })
        // The descriptor of the listed folder itself.
        .filter(|descriptor| descriptor.target != folder)
        .collect();
    descriptors.sort_unstable_by_key(|descriptor| descriptor.fd);
    descriptors
}

/// The entries of a folder that are numbers.
fn numbers(folder: &str) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(MOST_ENTRIES)
}
