//! Reads `/proc` of a tested process: memory, threads, descriptors, environment. [`memgate_formats::proc_text`] parses
//! the texts.
//!
//! The harness reads at boundaries, while the guest waits, so an ordinary sample must be cheap: one small file for
//! memory, one for time, two calls per thread and one per descriptor. In a screening pass, [`Counted`] lists threads
//! and descriptors only if their numbers differ. All reads are limited, and none fails: a process that has ended, or
//! that may not be read, gives `None`, never a part of its data.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memgate_formats::proc_text::{self, cpu_ns, resident_bytes, rollup_figure, waited_ns};
use memgate_wire::{FdEntry, OsSample, ThreadEntry};

/// Maximum number of listed threads or descriptors; a process with more gets no list.
pub(crate) const MAX_ENTRIES: usize = 4096;

/// The kernel keeps an environment below this (a third of a stack of 8 MiB at most).
const MAX_ENVIRON_BYTES: u64 = 8 << 20;

/// Maximum number of descriptors that a process started here may have and that can be listed.
#[must_use]
pub(crate) fn most_descriptors() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.unwrap_or(u64::MAX).min(MAX_ENTRIES as u64)
}

/// Optional parts of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Depth {
    /// PSS and private dirty bytes: the kernel walks all page tables for them.
    pub proportional: bool,
    /// Where each thread waits in the kernel.
    pub waits: bool,
}

/// A current sample of the process; `None` if it cannot be seen.
#[must_use]
pub(crate) fn os_sample(pid: u32, depth: Depth) -> Option<OsSample> {
    let rss_bytes = resident_bytes(&read(pid, "statm")?, rustix::param::page_size() as u64)?;
    let rollup = if depth.proportional { read(pid, "smaps_rollup") } else { None };
    let bytes = |key| rollup_figure(rollup.as_deref()?, key)?.checked_mul(1024);
    let ticks = rustix::param::clock_ticks_per_second();
    Some(OsSample {
        pid,
        boundary: 0,
        rss_bytes,
        pss_bytes: bytes("Pss"),
        private_dirty_bytes: bytes("Private_Dirty"),
        cpu_ns: read(pid, "stat").and_then(|stat| cpu_ns(&stat, ticks)).unwrap_or(0),
        threads: threads(pid, depth.waits)?,
        fds: descriptors(pid)?,
        counters: None,
    })
}

/// A process that is sampled repeatedly: its threads and descriptors are listed again only if the kernel's counts have
/// changed, or the last listing is too old.
///
/// Data flow: the counts before a listing and the listing are kept if they agree (otherwise the kernel does not count
/// descriptors, as before Linux 6.2, or something changed meanwhile) → if the counts are the same later, the listing is
/// still valid. A check then costs three calls.
#[derive(Debug)]
pub(crate) struct Counted {
    /// `/proc/PID/fd`, whose size is the number of descriptors.
    fds: File,
    /// `/proc/PID/task`, whose link count is the number of threads plus two.
    threads: File,
    statm: File,
    last: Option<(OsSample, Instant)>,
}

impl Counted {
    /// `None`: the process cannot be seen, or no file can be opened.
    #[must_use]
    pub(crate) fn open(pid: u32) -> Option<Self> {
        let open = |name: &str| File::open(folder(pid).join(name)).ok();
        Some(Self { fds: open("fd")?, threads: open("task")?, statm: open("statm")?, last: None })
    }

    /// The last listing, if it is younger than `age` and still valid, with the current memory.
    #[must_use]
    pub(crate) fn unchanged(&self, age: Duration) -> Option<OsSample> {
        let (sample, _) = self.last.as_ref().filter(|(_, taken)| taken.elapsed() < age)?;
        if self.counts()? != listed(sample) {
            return None;
        }
        let mut text = [0; 256];
        let got = self.statm.read_at(&mut text, 0).ok()?;
        let rss_bytes = resident_bytes(text.get(..got)?, rustix::param::page_size() as u64)?;
        Some(OsSample { rss_bytes, ..sample.clone() })
    }

    /// A sample with a new listing.
    pub(crate) fn list(&mut self, pid: u32, depth: Depth) -> Option<OsSample> {
        let (before, taken) = (self.counts(), Instant::now());
        let sample = os_sample(pid, depth);
        self.last = sample.clone().filter(|sample| before == Some(listed(sample))).map(|s| (s, taken));
        sample
    }

    /// Numbers of descriptors and threads, as counted by the kernel.
    fn counts(&self) -> Option<(u64, u64)> {
        let threads = self.threads.metadata().ok()?.nlink();
        Some((self.fds.metadata().ok()?.len(), threads.checked_sub(2)?))
    }
}

fn listed(sample: &OsSample) -> (u64, u64) {
    (sample.fds.len() as u64, sample.threads.len() as u64)
}

/// The threads of a process in the order of their ids; with `waits`, also where each waits in the kernel. `None`: they
/// may not be listed, or are too many.
fn threads(pid: u32, waits: bool) -> Option<Vec<ThreadEntry>> {
    let mut threads: Vec<_> = all_numbers(&folder(pid).join("task"))?
        .into_iter()
        .map(|id| ThreadEntry {
            id,
            name: read(pid, &format!("task/{id}/comm")).map(|name| line(&name)).unwrap_or_default(),
            waits_in: if waits { waits_in(pid, id) } else { String::new() },
        })
        .collect();
    threads.sort_unstable_by_key(|t| t.id);
    Some(threads)
}

/// The number of threads of a process; 0 if it has ended.
#[must_use]
pub(crate) fn thread_count(pid: u32) -> u64 {
    numbers(&folder(pid).join("task")).fold(0, |count, _| count + 1)
}

/// How long all threads of a process together have waited for a processor that others used; zero if the kernel does not
/// report it.
#[must_use]
pub(crate) fn starved(pid: u32) -> Duration {
    let waited = |id| waited_ns(&read(pid, &format!("task/{id}/schedstat"))?);
    Duration::from_nanos(numbers(&folder(pid).join("task")).filter_map(waited).fold(0, u64::saturating_add))
}

/// The environment with which the process was started. It is only kept in memory: it may contain secrets.
#[must_use]
pub(crate) fn environ(pid: u32) -> Option<Vec<(OsString, OsString)>> {
    let owned = |text: &[u8]| OsString::from_vec(text.to_vec());
    let variables = read(pid, "environ")?;
    Some(
        proc_text::environ(&variables).into_iter().map(|(name, value)| (owned(name), owned(value))).collect(),
    )
}

/// The command line of a process: words, each followed by a zero byte.
#[must_use]
pub(crate) fn command_line(pid: u32) -> Option<Vec<u8>> {
    read(pid, "cmdline").filter(|line| !line.is_empty())
}

/// The executable of a process, and its working directory.
#[must_use]
pub(crate) fn places(pid: u32) -> Option<(PathBuf, PathBuf)> {
    let link = |name: &str| fs::read_link(folder(pid).join(name)).ok();
    Some((link("exe")?, link("cwd")?))
}

/// The processes that a process started, directly or indirectly.
#[must_use]
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&pid) = found.get(next).filter(|_| found.len() < MAX_ENTRIES) {
        for thread in numbers(&folder(pid).join("task")) {
            let children = read(pid, &format!("task/{thread}/children")).unwrap_or_default();
            let children = String::from_utf8_lossy(&children).into_owned();
            found.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        next += 1;
    }
    found.split_off(1)
}

/// Whether `/proc/PID` is the process that has mapped the spool with this name. Another process namespace may use the
/// same number for another process.
#[must_use]
pub(crate) fn has_mapped(pid: u32, spool: &Path) -> bool {
    let Some(name) = spool.file_name() else { return false };
    let Ok(maps) = File::open(folder(pid).join("maps")) else { return false };
    let mut maps = std::io::BufReader::new(maps);
    let mut line = Vec::new();
    loop {
        line.clear();
        match std::io::BufRead::read_until(&mut maps, b'\n', &mut line) {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
        let path = line.trim_ascii_end();
        // The agent maps the file before it gets its final name; which of the two is shown depends on the file system.
        let path = path.strip_suffix(b".new").unwrap_or(path);
        let before = path.strip_suffix(name.as_bytes());
        if before.is_some_and(|before| before.ends_with(b"/")) {
            return true;
        }
    }
}

fn folder(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

fn read(pid: u32, name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(folder(pid).join(name)).ok()?;
    file.take(MAX_ENVIRON_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The numeric names in a folder of /proc.
fn numbers(folder: &Path) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).take(MAX_ENTRIES)
}

/// The same, all of them; `None`: they cannot be read, or are too many.
fn all_numbers(folder: &Path) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder).ok()? {
        numbers.extend(entry.ok()?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
        if numbers.len() > MAX_ENTRIES {
            return None;
        }
    }
    Some(numbers)
}

fn descriptors(pid: u32) -> Option<Vec<FdEntry>> {
    let folder = folder(pid).join("fd");
    let mut fds: Vec<_> = all_numbers(&folder)?
        .into_iter()
        .filter_map(|fd| {
            let target = fs::read_link(folder.join(fd.to_string())).ok()?;
            Some(FdEntry { fd, target: target.to_string_lossy().into_owned() })
        })
        .collect();
    fds.sort_unstable_by_key(|entry| entry.fd);
    Some(fds)
}

/// The kernel function in which a thread sleeps, and its system call, if the kernel shows them.
fn waits_in(pid: u32, thread: u32) -> String {
    let text = |name: &str| read(pid, &format!("task/{thread}/{name}")).map(|t| line(&t)).unwrap_or_default();
    let wchan = text("wchan");
    // The word "running", or: number, six arguments, stack pointer, program counter.
    let syscall = text("syscall");
    let call = syscall.split(' ').next().unwrap_or_default();
    match (wchan.as_str(), call) {
        ("" | "0", "") => String::new(),
        ("" | "0", "running") => "running".to_owned(),
        ("" | "0", number) => format!("system call {number}"),
        (function, "" | "running") => function.to_owned(),
        (function, number) => format!("{function} (system call {number})"),
    }
}

fn line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.trim_ascii_end()).into_owned()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    const ALL: Depth = Depth { proportional: true, waits: true };

    #[test]
    fn a_listing_stands_until_a_descriptor_or_a_thread_comes_or_goes() {
        const EVER: Duration = Duration::from_secs(1000);
        let depth = Depth { proportional: false, waits: false };
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        // Once `cat` runs, it waits in a read.
        while places(pid).is_none_or(|(exe, _)| !exe.ends_with("cat"))
            || threads(pid, true).unwrap()[0].waits_in == "running"
        {
            std::thread::yield_now();
        }
        let mut counted = Counted::open(pid).unwrap();
        assert_eq!(counted.unchanged(EVER), None, "nothing was listed");
        let sample = counted.list(pid, depth).unwrap();
        // Before Linux 6.2, the kernel does not count descriptors: each check lists.
        if counted.last.is_some() {
            let again = counted.unchanged(EVER).unwrap();
            assert_eq!((&again.fds, &again.threads), (&sample.fds, &sample.threads));
            assert_eq!(counted.unchanged(Duration::ZERO), None, "too old");
        } else {
            let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
            let mut version = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
            assert!((version.next().unwrap(), version.next().unwrap()) < (6, 2), "{release}");
        }
        let (last, taken) = counted.last.clone().unwrap_or((sample, Instant::now()));
        for (fds, threads) in [(1, 0), (0, 1)] {
            let mut other = last.clone();
            other.fds.truncate(last.fds.len() - fds);
            other.threads.truncate(last.threads.len() - threads);
            counted.last = Some((other, taken));
            assert_eq!(counted.unchanged(EVER), None, "{fds} descriptors, {threads} threads more");
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(counted.unchanged(EVER), None, "it is gone");
        assert_eq!(counted.list(pid, depth), None);
    }

    #[test]
    fn a_sample_of_this_process_shows_its_memory_threads_and_descriptors() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (runs, running) = std::sync::mpsc::channel();
        let park = move || {
            runs.send(()).unwrap();
            wait.recv()
        };
        let parked = std::thread::Builder::new().name("parked-7".into()).spawn(park).unwrap();
        running.recv().unwrap();
        let sample = os_sample(std::process::id(), ALL).unwrap();
        assert!(sample.rss_bytes > 100_000, "{}", sample.rss_bytes);
        assert!(sample.pss_bytes.unwrap() > 0 && sample.pss_bytes.unwrap() <= sample.rss_bytes * 2);
        assert!(sample.private_dirty_bytes.unwrap() > 0);
        assert!(sample.threads.iter().any(|t| t.name == "parked-7"), "{:?}", sample.threads);
        let path = file.path().to_string_lossy();
        assert!(sample.fds.iter().any(|fd| fd.target == path), "{path} {:?}", sample.fds);
        drop(go);
        assert!(parked.join().unwrap().is_err());
    }

    #[test]
    fn a_process_that_is_gone_gives_nothing() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert_eq!(os_sample(pid, ALL), None);
        assert_eq!(environ(pid), None);
        assert_eq!(threads(pid, true), None);
        assert!(!has_mapped(pid, Path::new("/x/1-1.mgf")));
    }

    #[test]
    fn the_environment_of_a_child_is_what_it_was_started_with() {
        let mut child = Command::new("sleep")
            .arg("60")
            .env_clear()
            .env("A", "1=2")
            .env("EMPTY", "")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        // `spawn` returns when the child has made its exec.
        let environ = environ(child.id()).unwrap();
        let stands = threads(child.id(), true).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(environ, [("A".into(), "1=2".into()), ("EMPTY".into(), "".into())]);
        assert_eq!(stands.len(), 1);
    }
}
