//! Parses texts of `/proc`, of this machine or from `adb shell cat` and `run-as … cat`: complete, or cut off.
//!
//! Data flow: text → values by key. Keys differ from kernel to kernel, so values are looked up by name, and a file
//! without a needed key is an error.

use std::collections::BTreeMap;

use crate::lines::{Lines, excerpt, text};

/// Why a text cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProcError {
    /// A key that every kernel writes is missing: the text is cut off, or it is another file.
    #[error("`{0}` is missing: the text is cut off, or no such file")]
    Missing(&'static str),
    /// The last line has no end.
    #[error("the last line has no end: the text is cut off")]
    CutOff,
    /// A line that the file cannot have.
    #[error("line {line}: {problem} (`{found}`)")]
    Line {
        /// From 1.
        line: u64,
        /// What is wrong.
        problem: &'static str,
        /// Its beginning.
        found: String,
    },
}

/// The contents of `/proc/PID/status`. A process that is ending has no memory: its figures are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessStatus {
    /// `VmRSS` in KB.
    pub rss: Option<u64>,
    /// `VmSwap` in KB.
    pub swap: Option<u64>,
    /// `Threads`.
    pub threads: u64,
}

/// Reads `/proc/PID/status`.
///
/// # Errors
/// [`ProcError`].
pub fn read_status(bytes: &[u8]) -> Result<ProcessStatus, ProcError> {
    let mut values = BTreeMap::new();
    for (number, line) in Lines::of(bytes).filter(|(_, line)| !line.is_empty()) {
        let line = text(line).into_owned();
        let (key, value) = line.split_once(':').ok_or_else(|| wrong(number, "no key", &line))?;
        values.entry(key.to_owned()).or_insert_with(|| (number, value.trim().to_owned()));
    }
    let number = |key: &str| -> Result<Option<u64>, ProcError> {
        let Some((line, value)) = values.get(key) else { return Ok(None) };
        let digits = value.strip_suffix(" kB").unwrap_or(value);
        digits.parse().map(Some).map_err(|_not_a_number| wrong(*line, "no number", value))
    };
    // The kernel writes it after the others: if it is there, they are too.
    let threads = number("Threads")?.ok_or(ProcError::Missing("Threads"))?;
    is_whole(bytes)?;
    Ok(ProcessStatus { rss: number("VmRSS")?, swap: number("VmSwap")?, threads })
}

/// The contents of `/proc/PID/smaps_rollup`, in KB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rollup {
    /// Resident.
    pub rss: u64,
    /// Its proportional share.
    pub pss: u64,
    /// `Private_Clean`.
    pub private_clean: u64,
    /// `Private_Dirty`.
    pub private_dirty: u64,
    /// Swapped out.
    pub swap: u64,
}

impl Rollup {
    /// Memory that would be freed if this process ended, in KB.
    #[must_use]
    pub const fn unique(&self) -> u64 {
        self.private_clean.saturating_add(self.private_dirty)
    }
}

/// One figure of `/proc/PID/smaps_rollup`, in KB: not every kernel prints them all.
#[must_use]
pub fn rollup_figure(rollup: &[u8], key: &str) -> Option<u64> {
    let text = String::from_utf8_lossy(rollup);
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    value.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Reads `/proc/PID/smaps_rollup`.
///
/// # Errors
/// [`ProcError`].
pub fn read_smaps_rollup(bytes: &[u8]) -> Result<Rollup, ProcError> {
    let mut values: BTreeMap<String, u64> = BTreeMap::new();
    let mut rollup = false;
    for (number, line) in Lines::of(bytes).filter(|(_, line)| !line.is_empty()) {
        let line = text(line);
        if number == 1 && line.ends_with("[rollup]") {
            rollup = true;
            continue;
        }
        let wrong = || wrong(number, "no `Key: N kB`", &line);
        let (key, value) = line.split_once(':').ok_or_else(wrong)?;
        let kilobytes = value.trim().strip_suffix(" kB").and_then(|digits| digits.trim().parse().ok());
        values.entry(key.to_owned()).or_insert(kilobytes.ok_or_else(wrong)?);
    }
    if !rollup {
        return Err(ProcError::Missing("[rollup]"));
    }
    is_whole(bytes)?;
    let get = |key: &'static str| values.get(key).copied().ok_or(ProcError::Missing(key));
    Ok(Rollup {
        rss: get("Rss")?,
        pss: get("Pss")?,
        private_clean: get("Private_Clean")?,
        private_dirty: get("Private_Dirty")?,
        swap: get("Swap")?,
    })
}

/// Resident bytes, from `/proc/PID/statm`: sizes in pages, the second one is the resident size.
#[must_use]
pub fn resident_bytes(statm: &[u8], page_bytes: u64) -> Option<u64> {
    let pages: u64 = std::str::from_utf8(statm).ok()?.split(' ').nth(1)?.parse().ok()?;
    pages.checked_mul(page_bytes)
}

/// Processor time, from `/proc/PID/stat`: the name may contain spaces and brackets; the fields after it begin with
/// the third. The fourteenth and fifteenth are user and system time in ticks.
#[must_use]
pub fn cpu_ns(stat: &[u8], ticks_per_second: u64) -> Option<u64> {
    let behind_name = stat.rsplitn(2, |b| *b == b')').next()?;
    let mut fields = std::str::from_utf8(behind_name).ok()?.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let ns_per_tick = 1_000_000_000_u64.checked_div(ticks_per_second)?;
    user.checked_add(system)?.checked_mul(ns_per_tick)
}

/// Nanoseconds ready to run, but waiting for a processor: the second field of
/// `/proc/PID/task/TID/schedstat`.
#[must_use]
pub fn waited_ns(schedstat: &[u8]) -> Option<u64> {
    std::str::from_utf8(schedstat).ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// `/proc/PID/environ`: entries end with NUL; an entry without `=` is not a variable.
#[must_use]
pub fn environ(bytes: &[u8]) -> Vec<(&[u8], &[u8])> {
    let variable = |entry: &'_ [u8]| -> Option<usize> {
        // A name may begin with `=` (a shell on another system left it there), but is never empty.
        entry.iter().skip(1).position(|b| *b == b'=')?.checked_add(1)
    };
    let entries = bytes.split(|b| *b == 0);
    entries
        .filter_map(|entry| {
            let (name, value) = entry.split_at_checked(variable(entry)?)?;
            Some((name, value.get(1..)?))
        })
        .collect()
}

/// The kernel ends every line. A truncated number looks like another number.
fn is_whole(bytes: &[u8]) -> Result<(), ProcError> {
    if bytes.ends_with(b"\n") { Ok(()) } else { Err(ProcError::CutOff) }
}

fn wrong(line: u64, problem: &'static str, found: &str) -> ProcError {
    ProcError::Line { line, problem, found: excerpt(found.as_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_kernel_writes_is_read() {
        let own = read_status(&std::fs::read("/proc/self/status").unwrap()).unwrap();
        assert!(own.threads >= 1 && own.rss.unwrap() > 0);
        let rollup = read_smaps_rollup(&std::fs::read("/proc/self/smaps_rollup").unwrap()).unwrap();
        assert!(rollup.rss >= rollup.pss && rollup.pss > 0 && rollup.unique() > 0);
    }

    const STATUS: &str =
        "Name:\tcom.example: x\nState:\tS (sleeping)\nFDSize:\t128\nVmRSS:\t   40960 kB\nThreads:\t17\n";

    #[test]
    fn a_status_is_read_by_key() {
        let status = read_status(STATUS.as_bytes()).unwrap();
        assert_eq!((status.rss, status.swap, status.threads), (Some(40960), None, 17));
    }

    #[test]
    fn a_text_that_is_cut_or_another_is_an_error() {
        for (text, want) in [
            ("", "`Threads` is missing"),
            ("cat: /proc/1/status: No such file or directory\n", "`Threads` is missing"),
            (&STATUS[..60], "`Threads` is missing"),
            // With half of its number.
            (&STATUS[..STATUS.len() - 2], "the last line has no end"),
            (&STATUS.replace("17", "many"), "line 5: no number (`many`)"),
            ("nonsense\n", "line 1: no key"),
        ] {
            let error = read_status(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
        let rollup = "55-7f ---p 00000000 00:00 0    [rollup]\nRss:  10 kB\nPss: 5 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: 2 kB\nSwap: 0 kB\n";
        let read = read_smaps_rollup(rollup.as_bytes()).unwrap();
        assert_eq!(read.unique(), 3);
        for (text, want) in [
            (rollup.replace("[rollup]", "x"), "line 1: no `Key: N kB`"),
            (rollup.replace("Swap: 0 kB\n", ""), "`Swap` is missing"),
            (rollup.replace("Pss: 5 kB", "Pss: 5"), "line 3: no `Key: N kB`"),
            (rollup.trim_end().to_owned(), "the last line has no end"),
            ("run-as: package not debuggable: com.example\n".to_owned(), "line 1: no `Key: N kB`"),
            (String::new(), "`[rollup]` is missing"),
        ] {
            let error = read_smaps_rollup(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn time_without_a_processor_is_the_second_figure() {
        assert_eq!(waited_ns(b"12678369 153026 4\n"), Some(153_026));
        assert_eq!([waited_ns(b""), waited_ns(b"1"), waited_ns(b"1 x 2")], [None; 3]);
    }

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_hide_the_time() {
        let stat = b"7 (a) b (c)) S 1 7 7 0 -1 4194304 100 0 0 0 3 4 0 0 20 0 1 0 9 1 1";
        assert_eq!(cpu_ns(stat, 100), Some(70_000_000));
        assert_eq!(cpu_ns(b"7 (a) S 1", 100), None);
    }
}
