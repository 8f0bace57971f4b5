//! Copies the memory of a stopped process, and finds which blocks hold which.
//!
//! Data flow: the reply to a boundary orders a copy → [`prepare`] decides whether the process may be asked for one, and
//! notes the positions of its threads → the agent forks a copy that sleeps, and reports its boundary again
//! ([`memgate_wire::native_holders`]) → [`Copy::open`], while the guest still waits: permission to read a process comes
//! from its parent, and the copy's parent may end next → the guest goes on → [`Copy::search`], in a thread of its own,
//! reads the copy through `/proc/PID/mem` and searches it (`memgate-holders`) → [`NativeHolders`] frames → dropping the
//! copy kills it.
//!
//! # Why a copy, and why it is read from outside
//!
//! The guest is stopped only as long as a fork takes, and the copy's memory does not change while it is read. The copy
//! runs no code of the guest, and only four system calls of the agent. All parsers, searches and limits are in the
//! harness. Registers of other threads cannot be seen (that would need `ptrace`, which guests notice), and the report
//! says so.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use memgate_holders::{
    Blocks, Limits, Mapping, Memory, NotSearched, Process, RootKind, Roots, Site, Thread, function_at,
    parse_maps, search,
};
use memgate_wire::native_holders::{HeldBlocks, HeldLink, NativeCopy, NativeHolders};
use memgate_wire::{Frame, Module, capability};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The input of a search: allocation sites, and the modules of the process.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Stacks whose blocks leak.
    pub stacks: Vec<u32>,
    /// Its modules.
    pub modules: Vec<Module>,
}

/// Time limit of a search, in processor time: a busy machine does not change the result. The copy itself ends after a
/// minute.
const LONGEST: Duration = Duration::from_secs(15);
const ENDED: &str = "the copy of the process ended before it was searched";
/// Number of sites in one frame.
const SITES_PER_FRAME: usize = 256;
/// glibc uses granules of this many bits.
const GLIBC_GRANULE: u8 = 5;

/// Position of a waiting guest thread: stack pointer and code address.
type Stand = Option<(u64, u64)>;

/// State noted before the copy is made.
pub(super) struct Prepared {
    guest: u32,
    before: BTreeMap<u32, Stand>,
}

/// A stopped copy of a process.
pub(super) struct Copy {
    told: NativeCopy,
    memory: Remote,
    mappings: Vec<Mapping>,
    threads: Vec<Thread>,
    /// Used to kill it.
    pidfd: Option<OwnedFd>,
}

/// Whether this process may be asked for a copy of itself.
///
/// # Errors
/// The reason why not.
pub(super) fn prepare(guest: u32, visible: bool, capabilities: &[String]) -> Result<Prepared, String> {
    if !capabilities.iter().any(|it| it == capability::NATIVE_COPY) {
        return Err("the agent in this process cannot copy it".to_owned());
    }
    if !visible {
        return Err("/proc does not show the process here (another process namespace?)".to_owned());
    }
    let filters =
        |pid: &str| status_number(pid, "Seccomp_filters:").or_else(|| status_number(pid, "Seccomp:"));
    if filters(&guest.to_string()) > filters("self") {
        return Err("the process filters its system calls (seccomp): it is not asked to fork".to_owned());
    }
    Ok(Prepared { guest, before: stands(guest) })
}

/// A frame that says that nothing was searched, and why.
pub(super) fn not_searched(boundary: u32, why: String) -> Frame {
    Frame::NativeHolders(NativeHolders { boundary, not_searched: Some(why), ..NativeHolders::default() })
}

impl Copy {
    /// Opens the copy that the agent reported, while the guest still waits.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub(super) fn open(prepared: &Prepared, told: NativeCopy) -> Result<Self, String> {
        if told.pid == 0 {
            let why = std::io::Error::from_raw_os_error(told.error);
            return Err(format!("the process could not fork: {why}"));
        }
        let refused = |why: std::io::Error| format!("the copy of the process cannot be read: {why}");
        let pid = i32::try_from(told.pid).ok().and_then(Pid::from_raw);
        let pidfd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // Checked after opening the handle: from now on, the number cannot be reused unnoticed.
        if status_number(&told.pid.to_string(), "PPid:") != Some(prepared.guest.into()) {
            return Err("the copy of the process is not where it was said to be".to_owned());
        }
        let mut copy =
            Self { told, memory: Remote::default(), mappings: Vec::new(), threads: Vec::new(), pidfd };
        let maps = fs::read_to_string(format!("/proc/{}/maps", copy.told.pid)).map_err(refused)?;
        copy.mappings = parse_maps(&maps);
        copy.memory = Remote::open(copy.told.pid, &copy.mappings).map_err(refused)?;
        if !copy.is_there() {
            return Err("the copy of the process cannot be read (ptrace_scope, a container?)".to_owned());
        }
        copy.threads = threads(prepared, &copy.told);
        Ok(copy)
    }

    /// The boundary at which it was made.
    pub(super) const fn boundary(&self) -> u32 {
        self.told.boundary
    }

    /// Searches the copy.
    pub(super) fn search(&self, wanted: &Wanted) -> Vec<Frame> {
        let began = Instant::now();
        let until = processor_time().saturating_add(LONGEST);
        let mut go_on = || processor_time() < until;
        let limits = Limits::default();
        let mut whole = NativeHolders {
            boundary: self.told.boundary,
            unseen_registers: u32::try_from(self.threads.len().saturating_sub(1)).unwrap_or(u32::MAX),
            ..NativeHolders::default()
        };
        let found = Blocks::read(&self.memory, &self.mappings, &self.told.table, limits).and_then(|blocks| {
            (whole.blocks, whole.bytes) = (blocks.len() as u64, blocks.bytes());
            let process = Process {
                mappings: &self.mappings,
                modules: &wanted.modules,
                threads: &self.threads,
                thread_local: &self.told.thread_local,
                is_glibc: self.told.table.granule_shift == GLIBC_GRANULE,
            };
            let roots = Roots::find(&self.memory, &process, &blocks);
            let stacks = wanted.stacks.iter().copied().collect::<BTreeSet<_>>();
            let sites = search(&self.memory, &blocks, &roots, &stacks, limits, &mut go_on)?;
            Ok(sites.iter().map(|site| self.held(site, &roots, wanted)).collect::<Vec<_>>())
        });
        // If the copy has ended, its unreadable memory looks empty.
        let found = found.map_err(|why| match why {
            NotSearched::Time => format!("it took longer than {} s", LONGEST.as_secs()),
            why => why.to_string(),
        });
        let found = found.and_then(|held| if self.is_there() { Ok(held) } else { Err(ENDED.to_owned()) });
        whole.took_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        match found {
            Ok(held) if held.is_empty() => vec![Frame::NativeHolders(whole)],
            Ok(held) => {
                let part = |held: &[HeldBlocks]| NativeHolders { held: held.to_vec(), ..whole.clone() };
                held.chunks(SITES_PER_FRAME).map(|held| Frame::NativeHolders(part(held))).collect()
            }
            Err(why) => {
                whole.not_searched = Some(why);
                vec![Frame::NativeHolders(whole)]
            }
        }
    }

    fn is_there(&self) -> bool {
        self.memory.read(self.told.table.top, &mut [0; 8]) == 8
    }

    fn held(&self, site: &Site, roots: &Roots, wanted: &Wanted) -> HeldBlocks {
        let root = site.root.and_then(|(root, at)| self.root(roots.kind(root)?, at, wanted));
        let blocks = site.way.iter().map(|step| HeldLink::Blocks {
            stack: step.stack,
            size: step.size,
            count: step.count,
        });
        HeldBlocks {
            stack: site.stack,
            blocks: site.blocks,
            state: site.state,
            of_state: site.of_state,
            path: root.into_iter().chain(blocks).collect(),
        }
    }

    fn root(&self, kind: &RootKind, at: u64, wanted: &Wanted) -> Option<HeldLink> {
        let name = |thread: usize| self.threads.get(thread).map_or_else(String::new, |it| it.name.clone());
        Some(match kind {
            RootKind::Static(module) => {
                let module = wanted.modules.get(*module)?;
                HeldLink::Static { module: module.path.clone(), offset: at.wrapping_sub(module.bias) }
            }
            RootKind::Stack(thread) => {
                let pointer = self.threads.get(*thread).and_then(|it| it.stack_pointer).unwrap_or(0);
                let pc = function_at(&self.memory, &self.mappings, pointer, at).unwrap_or(0);
                HeldLink::Stack { thread: name(*thread), pc }
            }
            RootKind::ThreadLocal { thread, module, start } => HeldLink::ThreadLocal {
                thread: name(*thread),
                module: self.told.thread_local.get(*module)?.path.clone(),
                offset: at.wrapping_sub(*start),
            },
            RootKind::ThreadData(thread) => HeldLink::ThreadData { thread: name(*thread) },
            RootKind::Mapped { name } => HeldLink::Mapped { name: name.clone() },
        })
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // Without a handle, or if it has already ended, it ends by itself.
        if let Some(pidfd) = &self.pidfd {
            #[expect(clippy::let_underscore_must_use, reason = "it may be gone")]
            let _ = pidfd_send_signal(pidfd, Signal::KILL);
        }
    }
}

/// `/proc/PID/mem` of a process that may end at any time: unreadable memory counts as absent.
#[derive(Default)]
struct Remote {
    memory: Option<File>,
    /// `/proc/PID/pagemap`; `None`: it is unknown which pages were written to.
    pages: Option<File>,
    /// Mappings whose pages are zeros until they are written to, in ascending order.
    anonymous: Vec<Range<u64>>,
}

/// How many pages are looked at together.
const PAGES: usize = 512;

impl Remote {
    fn open(pid: u32, mappings: &[Mapping]) -> std::io::Result<Self> {
        let anonymous = mappings.iter().filter(|mapping| !mapping.of_file && !mapping.shared);
        Ok(Self {
            memory: Some(File::open(format!("/proc/{pid}/mem"))?),
            pages: File::open(format!("/proc/{pid}/pagemap")).ok(),
            anonymous: anonymous.map(|mapping| mapping.range.clone()).collect(),
        })
    }
}

impl Memory for Remote {
    fn read(&self, at: u64, into: &mut [u8]) -> usize {
        let Some(file) = &self.memory else { return 0 };
        let mut read = 0;
        while let Some(rest) = into.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, at.wrapping_add(read as u64)) {
                Ok(0) | Err(_) => break,
                Ok(more) => read += more,
            }
        }
        read
    }

    fn written(&self, range: Range<u64>) -> u64 {
        let mapping = self.anonymous.partition_point(|mapping| mapping.end <= range.start);
        let mapping = self.anonymous.get(mapping).filter(|mapping| mapping.contains(&range.start));
        let Some((mapping, pages)) = mapping.zip(self.pages.as_ref()) else { return range.start };
        let page = rustix::param::page_size() as u64;
        let first = range.start / page;
        let mut entries = [0; PAGES * 8];
        let read = pages.read_at(&mut entries, first * 8).unwrap_or(0);
        // In memory, or swapped out.
        let is_written = |entry: &[u8; 8]| u64::from_le_bytes(*entry) >> 62 != 0;
        let (entries, _) = entries[..read].as_chunks::<8>();
        let unwritten = entries.iter().take_while(|entry| !is_written(entry)).count();
        let end = (first + unwritten as u64) * page;
        end.min(mapping.end).clamp(range.start, range.end)
    }
}

/// The guest's threads at the moment of the copy. A thread that did not move between two looks was at that position.
/// For a thread that moved, the lower stack pointer counts. For a running thread, nothing is known.
fn threads(prepared: &Prepared, told: &NativeCopy) -> Vec<Thread> {
    let after = stands(prepared.guest);
    let mut ids: Vec<u32> = after.keys().copied().collect();
    // The main thread comes first.
    ids.sort_by_key(|id| (*id != prepared.guest, *id));
    let thread = |id: u32| {
        if id == told.thread_id {
            return Thread {
                id,
                name: name_of(prepared.guest, id),
                stack_pointer: Some(told.stack_pointer),
                pc: 0,
                thread_pointer: Some(told.thread_pointer),
            };
        }
        let now = after.get(&id).copied().flatten();
        let before = prepared.before.get(&id).copied().flatten();
        let (stack_pointer, pc) = match now.zip(before) {
            Some(((now, pc), (before, _))) => (Some(now.min(before)), pc),
            None => (None, 0),
        };
        Thread { id, name: name_of(prepared.guest, id), stack_pointer, pc, thread_pointer: None }
    };
    ids.into_iter().map(thread).collect()
}

/// Positions of a process's threads. Reading them needs the same permission as reading its memory.
fn stands(pid: u32) -> BTreeMap<u32, Stand> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return BTreeMap::new() };
    let ids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let stand = |id: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{id}/syscall")).ok()?;
        let mut last = text.split_whitespace().rev();
        let mut address = || u64::from_str_radix(last.next()?.strip_prefix("0x")?, 16).ok();
        let pc = address()?;
        address().map(|pointer| (pointer, pc))
    };
    ids.map(|id| (id, stand(id))).collect()
}

fn name_of(pid: u32, thread: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm")).unwrap_or_default();
    if pid == thread { "main".to_owned() } else { name.trim_end().to_owned() }
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

/// A number of `/proc/PID/status`.
fn status_number(pid: &str, key: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(key))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_cannot_copy_itself_or_is_not_seen_is_not_asked() {
        let own = std::process::id();
        let can = [capability::NATIVE_COPY.to_owned()];
        for (visible, capabilities, why) in [
            (true, &[][..], Some("the agent in this process cannot copy it")),
            (false, &can[..], Some("/proc does not show the process here (another process namespace?)")),
            (true, &can[..], None),
        ] {
            assert_eq!(prepare(own, visible, capabilities).err().as_deref(), why);
        }
    }

    #[test]
    fn a_copy_that_was_not_made_or_is_another_process_is_not_read() {
        let can = [capability::NATIVE_COPY.to_owned()];
        let prepared = prepare(std::process::id(), true, &can).unwrap();
        let none = NativeCopy { error: 12, ..NativeCopy::default() };
        let why = Copy::open(&prepared, none).err().unwrap();
        assert!(why.starts_with("the process could not fork: Cannot allocate memory"), "{why}");
        let other = NativeCopy { pid: 1, ..NativeCopy::default() };
        let why = Copy::open(&prepared, other).err().unwrap();
        assert_eq!(why, "the copy of the process is not where it was said to be");
    }

    /// Regression test: reading the untouched stacks of 2000 threads that nobody joined took a minute.
    #[test]
    fn pages_that_the_process_never_wrote_to_are_known() {
        const HUGE: u64 = 2 << 20;
        let mut block = vec![0_u8; 64 << 20];
        block[40 << 20] = 1;
        let start = block.as_ptr().addr() as u64;
        let at = start + (40 << 20);
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let memory = Remote::open(std::process::id(), &parse_maps(&maps)).unwrap();
        let end = start + (64 << 20);
        // The first page has the allocator's own data.
        let (mut from, mut looks) = (start + HUGE, 0);
        while memory.written(from..end) > from {
            from = memory.written(from..end);
            looks += 1;
        }
        assert!((at - HUGE..=at).contains(&from) && looks > 1, "{start:x} {from:x} {looks}");
        assert_eq!(memory.written(at..end), at);
        let after = (at + HUGE).next_multiple_of(HUGE);
        assert!(memory.written(after..end) > after);
    }
}
