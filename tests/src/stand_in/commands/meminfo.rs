//! `dumpsys meminfo`: the figures of the process on this machine that represents the app, in both of
//! Android's formats.
//!
//! Half of its private memory counts as native, half as Java, so that every sum of a real answer holds.

use std::fs;
use std::io;

use super::Shell;

/// First API levels that print resident memory, and for which the stand-in knows `--proto`.
const WITH_RSS: u32 = 30;
const WITH_PROTO: u32 = 29;
/// One screen is open for every app.
const ACTIVITIES: u64 = 1;

/// Memory figures of a process, in KB.
struct Memory {
    pid: u32,
    name: String,
    pss: u64,
    rss: u64,
    dirty: u64,
    clean: u64,
}

impl Shell<'_> {
    /// Answers for the first process that matches the given id or name.
    pub(super) fn dump_memory(&mut self, words: &[String], rest: &[&str]) -> io::Result<u8> {
        let (proto, asked) = match rest {
            ["--proto", asked] => (true, *asked),
            [asked] if !asked.starts_with('-') => (false, *asked),
            _ => return self.not_found(words),
        };
        if proto && self.device.api() < WITH_PROTO {
            return self.print("Unknown argument: --proto; use -h for help\n");
        }
        let processes = self.device.processes();
        let found = processes.iter().find(|(pid, name)| pid.to_string() == asked || *name == asked);
        let memory = found.and_then(|(pid, name)| Memory::of(*pid, name));
        match memory {
            // The protobuf form prints nothing for a missing process.
            None if proto => Ok(0),
            None => self.print(&format!("No process found for: {asked}\n")),
            Some(memory) if proto => {
                self.terminal.out(&memory.proto())?;
                Ok(0)
            }
            Some(memory) => {
                let text = memory.text(self.device.api() >= WITH_RSS);
                self.print(&text)
            }
        }
    }
}

impl Memory {
    fn of(pid: u32, name: &str) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let figure = |key: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().strip_suffix(" kB")?.parse().ok()
        };
        let name = name.to_owned();
        let [pss, rss, dirty, clean] =
            [figure("Pss:")?, figure("Rss:")?, figure("Private_Dirty:")?, figure("Private_Clean:")?];
        Some(Self { pid, name, pss, rss, dirty, clean })
    }

    /// Private dirty memory: native, then Java.
    fn heaps(&self) -> [u64; 2] {
        [self.dirty / 2, self.dirty - self.dirty / 2]
    }

    fn text(&self, with_rss: bool) -> String {
        let Self { pid, name, pss, rss, dirty, clean } = self;
        let [native, java] = self.heaps();
        let (rest, system) = (pss - dirty, pss.saturating_sub(dirty + clean));
        let rss_of = |figure: u64| if with_rss { format!(" {figure:8}") } else { String::new() };
        let column = |text: &str| if with_rss { format!(" {text:>8}") } else { String::new() };
        let heading = |upper: [&str; 7], rss: &str| {
            let [a, b, c, d, e, f, g] = upper;
            format!("{:13} {a:>8} {b:>8} {c:>8} {d:>8}{} {e:>8} {f:>8} {g:>8}\n", "", column(rss))
        };
        let row = |name: &str, [pss, dirty, clean, rss]: [u64; 4], heap: &str| {
            format!("{name:>13} {pss:8} {dirty:8} {clean:8} {:8}{}{heap}\n", 0, rss_of(rss))
        };
        let heap = |figure: u64| format!(" {figure:8} {figure:8} {:8}", 0);
        let line = "------";
        let table = [
            format!(
                "Applications Memory Usage (in Kilobytes):\nUptime: 1 Realtime: 1\n\n** MEMINFO in pid {pid} [{name}] **\n"
            ),
            heading(["Pss", "Private", "Private", "SwapPss", "Heap", "Heap", "Heap"], "Rss"),
            heading(["Total", "Dirty", "Clean", "Dirty", "Size", "Alloc", "Free"], "Total"),
            heading([line; 7], line),
            row("Native Heap", [native, native, 0, native], &heap(native)),
            row("Dalvik Heap", [java, java, 0, java], &heap(java)),
            row(".so mmap", [rest, 0, *clean, rss - dirty], ""),
            row("TOTAL", [*pss, *dirty, *clean, *rss], &heap(*dirty)),
        ];
        let summary = if with_rss {
            format!(
                " \n App Summary\n                       Pss(KB)                        Rss(KB)\n                        ------                         ------\n\
                 {:>20}: {java:8}                       {java:8}\n{:>20}: {native:8}                       {native:8}\n{:>20}: {clean:8}                       {:8}\n{:>20}: {system:8}\n \n\
                 {:>20}: {pss:8}            TOTAL RSS: {rss:8}       TOTAL SWAP PSS: {:8}\n",
                "Java Heap",
                "Native Heap",
                "Code",
                rss - dirty,
                "System",
                "TOTAL PSS",
                0
            )
        } else {
            format!(
                " \n App Summary\n                       Pss(KB)\n                        ------\n\
                 {:>20}: {java:8}\n{:>20}: {native:8}\n{:>20}: {clean:8}\n{:>20}: {system:8}\n \n\
                 {:>20}: {pss:8}       TOTAL SWAP PSS: {:8}\n",
                "Java Heap", "Native Heap", "Code", "System", "TOTAL", 0
            )
        };
        let objects = format!(
            " \n Objects\n               Views:        0         ViewRootImpl:        0\n         AppContexts:        0           Activities: {ACTIVITIES:8}\n"
        );
        table.concat() + &summary + &objects
    }

    /// `MemInfoDumpProto { app_processes = 4 { process_memory = 1, objects = 2 } }`
    fn proto(&self) -> Vec<u8> {
        let [native, java] = self.heaps();
        let (rest, system) = (self.pss - self.dirty, self.pss.saturating_sub(self.dirty + self.clean));
        let info = |name: &str, pss, dirty, clean, rss| {
            [text(1, name), number(2, pss), number(5, dirty), number(7, clean), number(10, rss)].concat()
        };
        let heap = |field, name, pss| {
            message(field, &[message(1, &[info(name, pss, pss, 0, pss)]), number(2, pss), number(3, pss)])
        };
        let process = [
            number(1, self.pid.into()),
            text(2, &self.name),
            heap(3, "Native Heap", native),
            heap(4, "Dalvik Heap", java),
            message(5, &[info(".so mmap", rest, 0, self.clean, self.rss - self.dirty)]),
            message(7, &[message(1, &[info("TOTAL", self.pss, self.dirty, self.clean, self.rss)])]),
            message(
                9,
                &[
                    number(1, java),
                    number(2, native),
                    number(3, self.clean),
                    number(7, system),
                    number(10, java),
                    number(11, native),
                    number(12, self.rss - self.dirty),
                ],
            ),
        ];
        message(4, &[message(1, &process), message(2, &[number(4, ACTIVITIES)])])
    }
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
    bytes
}

/// Zeros are omitted.
fn number(field: u64, value: u64) -> Vec<u8> {
    if value == 0 { Vec::new() } else { [varint(field << 3), varint(value)].concat() }
}

fn text(field: u64, value: &str) -> Vec<u8> {
    message(field, &[value.as_bytes().to_vec()])
}

fn message(field: u64, parts: &[Vec<u8>]) -> Vec<u8> {
    let body = parts.concat();
    [varint(field << 3 | 2), varint(body.len() as u64), body].concat()
}
