//! Texts of `/proc`, as `adb shell cat` or `run-as … cat` delivers them: whole, or cut off.
//!
//! Data flow: text → values by key. Keys differ from kernel to kernel, so what is needed is looked
//! up by name, and a file without it is an error.

use std::collections::BTreeMap;

use crate::lines::{Lines, excerpt, text};

/// Why a text cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProcError {
    /// A key that every kernel writes is not there: cut off, or another file.
    #[error("`{0}` is missing: the text is cut off, or no such file")]
    Missing(&'static str),
    /// The last line has no end.
    #[error("the last line has no end: the text is cut off")]
    CutOff,
    /// A line that does not belong there.
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

/// What `/proc/PID/status` tells. A process that is ending has no memory: its figures are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessStatus {
    /// `Name`, at most 15 bytes.
    pub name: String,
    /// `State`, its letter.
    pub state: Option<char>,
    /// `VmRSS` in KB.
    pub rss: Option<u64>,
    /// `RssAnon` in KB.
    pub anonymous: Option<u64>,
    /// `VmSwap` in KB.
    pub swap: Option<u64>,
    /// `Threads`.
    pub threads: u64,
    /// `FDSize`: slots for descriptors, not descriptors.
    pub fd_slots: u64,
    /// `SigCgt`: bit N - 1 for signal N with a handler.
    pub handlers: u64,
}

impl ProcessStatus {
    /// Would this signal be handled? If not, most of them end the process.
    #[must_use]
    pub const fn handles(&self, signal: u32) -> bool {
        match signal.checked_sub(1) {
            Some(bit) if bit < 64 => self.handlers >> bit & 1 == 1,
            _ => false,
        }
    }
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
    let (line, handlers) = values.get("SigCgt").ok_or(ProcError::Missing("SigCgt"))?;
    is_whole(bytes)?;
    let handlers =
        u64::from_str_radix(handlers, 16).map_err(|_not_hex| wrong(*line, "no number", handlers))?;
    let text = |key: &str| values.get(key).map(|(_, value)| value.as_str());
    Ok(ProcessStatus {
        name: text("Name").ok_or(ProcError::Missing("Name"))?.to_owned(),
        state: text("State").and_then(|state| state.chars().next()),
        rss: number("VmRSS")?,
        anonymous: number("RssAnon")?,
        swap: number("VmSwap")?,
        threads: number("Threads")?.ok_or(ProcError::Missing("Threads"))?,
        fd_slots: number("FDSize")?.ok_or(ProcError::Missing("FDSize"))?,
        handlers,
    })
}

/// What `/proc/PID/smaps_rollup` tells, in KB.
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
    /// Its proportional share; not on every kernel.
    pub swap_pss: Option<u64>,
}

impl Rollup {
    /// What would be free if this process were not there, in KB.
    #[must_use]
    pub const fn unique(&self) -> u64 {
        self.private_clean.saturating_add(self.private_dirty)
    }
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
        swap_pss: values.get("SwapPss").copied(),
    })
}

/// A line of `/proc/net/unix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixSocket {
    /// Number of its file.
    pub inode: u64,
    /// Does it accept connections?
    pub listens: bool,
    /// Path, or the abstract name with a leading `@`; empty: none.
    pub name: String,
}

impl UnixSocket {
    /// Its name in the abstract namespace.
    #[must_use]
    pub fn abstract_name(&self) -> Option<&str> {
        self.name.strip_prefix('@')
    }
}

/// Reads `/proc/net/unix`. A socket that two lines show twice is there twice: one for each accepted
/// connection.
///
/// # Errors
/// [`ProcError`].
pub fn read_unix_sockets(bytes: &[u8]) -> Result<Vec<UnixSocket>, ProcError> {
    let mut lines = Lines::of(bytes);
    if !lines.next().is_some_and(|(_, header)| text(header).trim_start().starts_with("Num ")) {
        return Err(ProcError::Missing("Num"));
    }
    is_whole(bytes)?;
    let mut sockets = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let line = text(line);
        sockets.push(socket(&line).ok_or_else(|| wrong(number, "no socket", &line))?);
    }
    Ok(sockets)
}

/// `0000000000000000: 00000002 00000000 00010000 0001 01 12345 @name with blanks`
fn socket(line: &str) -> Option<UnixSocket> {
    let (address, mut rest) = line.split_once(':')?;
    u64::from_str_radix(address.trim(), 16).ok()?;
    let mut word = || {
        let (word, behind) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
        rest = behind;
        (!word.is_empty()).then_some(word)
    };
    let (_references, _protocol, flags) = (word()?, word()?, word()?);
    let (_kind, _state, inode) = (word()?, word()?, word()?);
    let flags = u64::from_str_radix(flags, 16).ok()?;
    Some(UnixSocket { inode: inode.parse().ok()?, listens: flags & ACCEPTS != 0, name: rest.to_owned() })
}

/// `__SO_ACCEPTCON` of the kernel.
const ACCEPTS: u64 = 1 << 16;

/// The kernel ends every line: half a number is another number.
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
        assert!(own.threads >= 1 && own.rss.unwrap() > 0 && own.fd_slots > 0 && own.state.is_some());
        let rollup = read_smaps_rollup(&std::fs::read("/proc/self/smaps_rollup").unwrap()).unwrap();
        assert!(rollup.rss >= rollup.pss && rollup.pss > 0 && rollup.unique() > 0);
        assert!(read_unix_sockets(&std::fs::read("/proc/net/unix").unwrap()).is_ok());
    }

    const STATUS: &str = "Name:\tcom.example: x\nState:\tS (sleeping)\nFDSize:\t128\nVmRSS:\t   40960 kB\nThreads:\t17\nSigCgt:\t0000600380004a02\n";

    #[test]
    fn a_status_is_read_by_key() {
        let status = read_status(STATUS.as_bytes()).unwrap();
        assert_eq!(
            (status.name.as_str(), status.state, status.rss, status.swap),
            ("com.example: x", Some('S'), Some(40960), None)
        );
        assert_eq!((status.threads, status.fd_slots), (17, 128));
        // Signal 47 is bit 46: with malloc_debug on it writes a heap dump, without it ends the
        // process.
        assert!(
            status.handles(47)
                && status.handles(46)
                && !status.handles(45)
                && !status.handles(0)
                && !status.handles(65)
        );
    }

    #[test]
    fn a_text_that_is_cut_or_another_is_an_error() {
        for (text, want) in [
            ("", "`SigCgt` is missing"),
            ("cat: /proc/1/status: No such file or directory\n", "`SigCgt` is missing"),
            (&STATUS[..60], "`SigCgt` is missing"),
            // Half of its handlers.
            (&STATUS[..STATUS.len() - 8], "the last line has no end"),
            (&STATUS.replace("17", "many"), "line 5: no number (`many`)"),
            ("nonsense\n", "line 1: no key"),
        ] {
            let error = read_status(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
        let rollup = "55-7f ---p 00000000 00:00 0    [rollup]\nRss:  10 kB\nPss: 5 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: 2 kB\nSwap: 0 kB\n";
        let read = read_smaps_rollup(rollup.as_bytes()).unwrap();
        assert_eq!((read.unique(), read.swap_pss), (3, None));
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
    fn abstract_names_keep_their_blanks() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 12345 @memgate-com.example-77\n\
            0000000000000000: 00000003 00000000 00000000 0001 03    99\n\
            ffff8880: 00000002 00000000 00010000 0001 01 7 /run/a b\n";
        let sockets = read_unix_sockets(text.as_bytes()).unwrap();
        let told: Vec<_> =
            sockets.iter().map(|s| (s.inode, s.listens, s.name.as_str(), s.abstract_name())).collect();
        assert_eq!(
            told,
            [
                (12345, true, "@memgate-com.example-77", Some("memgate-com.example-77")),
                (99, false, "", None),
                (7, true, "/run/a b", None)
            ]
        );
        for (text, want) in [
            ("", "`Num` is missing"),
            ("Permission denied\n", "`Num` is missing"),
            ("Num Path\n0000: 1 2\n", "line 2: no socket"),
            ("Num Path\n0: 2 0 0 1 1 12", "has no end"),
        ] {
            assert!(read_unix_sockets(text.as_bytes()).unwrap_err().to_string().contains(want), "{text}");
        }
    }
}
