//! The stream of one process: measurements go in, encoded frames come out at the carrier.
//!
//! A failed Rust allocation ends the process, which is the guest's. So data without a bound known in advance
//! (snapshots, stacks) is allocated fallibly, and everything else only after a check that the heap has room.

mod clock;
mod contents;

use core::cell::OnceCell;
use core::time::Duration;

use memgate_ffi::malloc_debug::Source;
use memgate_ffi::{heap, modules, process};
use memgate_tracker::StopReason;
use memgate_wire::options::{Carrier as CarrierKind, EndOfMain, Options};
use memgate_wire::{
    AgentCost, Boundary, BoundaryKind, END_OF_MAIN, ErrorCode, ErrorFrame, Frame, Hello, Module, Outcome,
    ProcessRole, Runtime, WIRE_VERSION, capability, encode, sampling,
};

use self::clock::Clock;
use crate::carrier::{Carrier, Socket, Spool};
use crate::handles::{self, ReportedHandles};
use crate::left::Leavers;
use crate::looks::Looks;
#[cfg(not(target_os = "android"))]
use crate::mappings;
use crate::recording::{TRACKER, counters};
use crate::setups::SetUps;
use crate::snapshot::{Born, Counts};
use crate::{platform, system};

/// Room in the agent's heap for the frames of a boundary without its snapshot.
const BOUNDARY_ROOM: usize = 32 << 10;

/// The open stream: everything that is written goes through it.
pub struct Session {
    pub(crate) options: Options,
    pub(crate) role: ProcessRole,
    pid: u32,
    executable: String,
    pub(crate) offers: Offers,
    /// The thread pointer of the main thread; 0: another thread opened the session (an agent that was attached).
    main_thread: usize,
    pub(crate) carrier: Carrier,
    pub(crate) buffer: Vec<u8>,
    pub(crate) sequence: u32,
    pub(crate) iteration: u32,
    pub(crate) windows: Vec<Window>,
    pub(crate) setups: SetUps,
    /// Tests of the screen that left something.
    pub(crate) leavers: Leavers,
    /// The last epoch that began.
    pub(crate) epoch: u32,
    pub(crate) known: Known,
    pub(crate) sent_nodes: Vec<u64>,
    sent_handles: ReportedHandles,
    /// Number of threads that had been asked for by the last boundary.
    asked: u32,
    #[cfg(not(target_os = "android"))]
    sent_mappings: mappings::ReportedMappings,
    pub(crate) last_counts: Counts,
    /// Time that boundaries took.
    pub(crate) boundary_ns: u64,
    pub(crate) clock: Clock,
    pub(crate) told_stop: bool,
    pub(crate) bypassing: Option<Bypassing>,
    /// Released when memory runs out, so that there is room to report it.
    reserve: Vec<u8>,
    /// Boundaries in a row at which the harness did not answer.
    pub(crate) silences: u8,
    /// When the harness looked at descriptors and threads.
    pub(crate) looks: Looks,
    /// The last boundary reported survivors.
    left: bool,
    /// The last boundary before which a descriptor or a thread came or went.
    pub(crate) handles_came: u32,
    /// The source of a list of allocations if our own tracker does not run; looked up once, when a test first ends in
    /// that state.
    pub(crate) lists: OnceCell<Option<Source>>,
}

/// The modules as last written, and the loader's counts of loads and unloads at that time.
#[derive(Default)]
pub(crate) struct Known {
    at: Option<(u64, u64)>,
    /// The tracker's generation at that time.
    generation: u32,
    modules: Vec<Module>,
}

/// A test that begins within this time after the end of another one needs no look of its own.
const LOOK_LASTS: Duration = Duration::from_millis(1);

/// A library that was about to be loaded past the agent.
pub(crate) struct Bypassing {
    /// The loader's count of loads before.
    pub(crate) loads: u64,
    /// As it was asked for; empty: it was too early to note it.
    pub(crate) path: String,
    /// In a name space that our list of modules does not show.
    pub(crate) own_name_space: bool,
}

/// What the hello contains besides the process itself.
#[derive(Clone)]
pub struct Offers {
    /// Allocations come through the hooks.
    pub native: bool,
    /// Their stacks are unwound.
    pub stacks: bool,
    /// Stacks of allocations in tests are left to another run.
    pub stacks_later: bool,
    /// A Java virtual machine is measured.
    pub java: bool,
    /// The capability of the test framework that reports its tests to the agent.
    pub framework: Option<&'static str>,
    /// The framework reports when all its tests have run.
    pub rounds: bool,
    /// Is this the stack of something that the framework made for itself?
    pub is_its_own: fn(u32) -> bool,
    /// Why allocations cannot be seen here; a forked child inherits it.
    pub blind: Option<String>,
}

impl Default for Offers {
    fn default() -> Self {
        let is_its_own = |_| false;
        Self {
            native: false,
            stacks: false,
            stacks_later: false,
            java: false,
            framework: None,
            rounds: false,
            is_its_own,
            blind: None,
        }
    }
}

/// A test that has begun and not ended.
pub(crate) struct Window {
    pub(crate) suite: String,
    pub(crate) test: String,
    /// The thread that began it.
    pub(crate) thread: usize,
    /// Epoch it began with; 0: not known, because the epochs have restarted since.
    pub(crate) epoch: u32,
    /// For code that ran around tests ([`crate::setups`]): which blocks are its own.
    pub(crate) born: Option<Born>,
    pub(crate) outcome: Option<Outcome>,
}

impl Window {
    /// The window of a test that begins now, with this epoch.
    fn of_test(suite: &str, test: &str, epoch: u32) -> Self {
        let (suite, test) = (suite.to_owned(), test.to_owned());
        let thread = memgate_tracker::sys::thread_pointer();
        Self { suite, test, thread, epoch, born: None, outcome: None }
    }

    /// The window of code that ran around tests.
    pub(crate) fn around_tests(suite: &str, name: &str, born: Born) -> Self {
        Self { born: Some(born), ..Self::of_test(suite, name, 0) }
    }
}

impl Session {
    /// `known`: modules of the parent, in a forked child.
    pub(crate) fn open(options: Options, role: ProcessRole, offers: Offers, known: Known) -> Option<Self> {
        let carrier = match &options.carrier {
            CarrierKind::Spool => {
                let child = role == ProcessRole::ForkChild;
                Carrier::Spool(Spool::create(&options.directory, options.harness, child).ok()?)
            }
            kind => Carrier::Socket(Socket::serve(kind, &options.package, &options.token).ok()?),
        };
        let mut session = Self {
            role,
            pid: process::pid(),
            executable: executable(),
            offers,
            main_thread: main_thread(),
            carrier,
            buffer: Vec::new(),
            sequence: 0,
            iteration: 0,
            windows: Vec::new(),
            setups: SetUps::default(),
            leavers: Leavers::default(),
            epoch: 0,
            known,
            sent_nodes: Vec::new(),
            sent_handles: ReportedHandles::new(),
            asked: handles::asked(),
            #[cfg(not(target_os = "android"))]
            sent_mappings: mappings::ReportedMappings::default(),
            last_counts: Counts::default(),
            boundary_ns: 0,
            clock: Clock::start(),
            told_stop: false,
            bypassing: None,
            reserve: Vec::with_capacity(BOUNDARY_ROOM),
            silences: 0,
            looks: Looks::default(),
            left: false,
            handles_came: 0,
            lists: OnceCell::new(),
            options,
        };
        session.append_hello();
        match role {
            ProcessRole::Main => session.append_modules(),
            ProcessRole::ForkChild => session.append_known_modules(),
        }
        session.flush();
        Some(session)
    }

    /// The process whose stream this is: a forked child has its own stream.
    #[must_use]
    pub const fn process(&self) -> u32 {
        self.pid
    }

    /// Absolute path of the program.
    pub(crate) fn executable(&self) -> &str {
        &self.executable
    }

    fn append_hello(&mut self) {
        let Offers { native, stacks, stacks_later, java, framework, rounds, blind, .. } = &self.offers;
        let is_spool = matches!(self.carrier, Carrier::Spool(_));
        let passes = is_spool && self.role == ProcessRole::Main && !self.options.look_lasts.is_zero();
        let offered = [
            (*java, capability::JAVA_HISTOGRAM),
            (*java, capability::JUNIT),
            (*native, capability::NATIVE_LIVE),
            (*native, capability::C_API),
            (*native && *stacks, capability::NATIVE_STACKS),
            (*native && *stacks_later, capability::STACKS_LATER),
            (*native && passes, capability::LOOKS_NOW_AND_THEN),
            (*rounds, capability::ROUND_ENDS),
            (*native && !*java && is_spool, capability::NATIVE_COPY),
        ];
        let offered = offered.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name);
        let offered = offered.chain(*framework).map(str::to_owned);
        let interval = Some(self.options.native_sampling).filter(|interval| *native && *interval > 0);
        let capabilities = offered.chain(interval.map(sampling::capability)).collect();
        let hello = Hello {
            wire_version: WIRE_VERSION,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: self.pid,
            parent_pid: process::parent_pid(),
            abi: platform::ABI.to_owned(),
            pointer_bytes: 8,
            runtime: if *java { platform::RUNTIME_OF_JAVA } else { Runtime::Native },
            role: self.role,
            executable: self.executable.clone(),
            arguments: arguments(),
            working_directory: std::env::current_dir()
                .map(|d| d.to_string_lossy().into_owned())
                .unwrap_or_default(),
            realtime_offset_ns: process::realtime_offset_ns(),
            capabilities,
            blind: blind.clone(),
            label: self.options.label.clone(),
        };
        self.append(&Frame::Hello(hello));
        for complaint in core::mem::take(&mut self.options.complaints) {
            self.append(&Frame::Error(ErrorFrame { code: ErrorCode::BadOption, text: complaint }));
        }
    }

    /// Did the harness ask for this process as one test? Then tests inside the process are no boundaries: their
    /// leftovers count at the end of the process.
    pub(crate) fn is_the_test(&self) -> bool {
        self.options.end_of_main == EndOfMain::OfTheTest && self.is_the_program()
    }

    /// Is this the process that the harness asked to record, and not a child that it forked?
    pub(crate) fn is_the_program(&self) -> bool {
        self.role == ProcessRole::Main && self.is_this_process()
    }

    pub(crate) fn boundary(&mut self, kind: BoundaryKind, suite: &str, test: &str, outcome: Option<Outcome>) {
        if kind == BoundaryKind::TestStart {
            let epoch = self.next_epoch();
            self.setups.test_begins(suite, epoch);
            self.windows.push(Window::of_test(suite, test, epoch));
            self.take_stacks();
        }
        TRACKER.publish();
        self.make_room(BOUNDARY_ROOM);
        let sequence = self.sequence.saturating_add(1);
        let (mut survivors, mut parts, mut outcome) = (0, 0, outcome);
        match kind {
            BoundaryKind::TestEnd => {
                let window = self.window(suite, test);
                if let Some(window) = window.and_then(|i| self.windows.get(i)) {
                    outcome = outcome.or(window.outcome).or(Some(Outcome::Passed));
                    let (epoch, born) = (window.epoch, window.born.clone());
                    (survivors, parts) = self.append_test_snapshot(sequence, epoch, born.as_ref());
                }
            }
            BoundaryKind::ProcessEnd => (survivors, parts) = self.append_survivors(sequence, 0),
            BoundaryKind::Mark if (suite, test) == END_OF_MAIN => {
                (survivors, parts) = self.append_survivors(sequence, 0);
            }
            _ => {}
        }
        if kind == BoundaryKind::TestEnd {
            self.append_listed(sequence);
        }
        self.append_handles(sequence);
        #[cfg(not(target_os = "android"))]
        self.append_mappings(sequence);
        if self.options.os {
            let closely = matches!(kind, BoundaryKind::TestEnd | BoundaryKind::ProcessEnd);
            self.append(&Frame::OsSample(system::sample(sequence, closely, self.carrier.thread())));
        }
        self.left = survivors > 0 || parts > 0;
        // Written before the boundary: what could not be recorded is missing in the test that ends with it.
        self.tell_stop();
        self.tell_bypassing();
        self.append_boundary(kind, (suite, test), outcome, (survivors, parts));
        self.flush();
    }

    /// Can the harness skip its look at the test that has just begun? It can if it looked at the end of the test
    /// before, and nothing is known to have happened since: this test began with what it saw then.
    pub(crate) fn begins_as_seen(&mut self) -> bool {
        let lasts = self.options.look_lasts.max(LOOK_LASTS);
        self.is_as_seen() && self.looks.stands(self.sequence, nanos(lasts))
    }

    /// Did the test that has just ended leave nothing, as far as that can be seen without the harness?
    pub(crate) fn ends_unseen(&mut self) -> bool {
        let lasts = self.options.look_lasts;
        !lasts.is_zero()
            && !self.left
            && self.is_as_seen()
            && self.looks.stands_for_end(self.sequence, nanos(lasts))
    }

    /// Is only one test open, and did no descriptor or thread come by this boundary?
    fn is_as_seen(&self) -> bool {
        let is_spool = matches!(self.carrier, Carrier::Spool(_));
        is_spool && self.windows.len() == 1 && self.handles_came != self.sequence
    }

    /// The harness did not look at this boundary, so what was open then is not known.
    pub(crate) fn was_not_answered(&mut self) {
        self.silences = self.silences.saturating_add(1);
        if self.silences == 1 && matches!(self.carrier, Carrier::Spool(_)) {
            let waited = self.options.wait.as_millis();
            let text = format!("memgate did not look at its descriptors and threads within {waited} ms");
            self.append(&Frame::Error(ErrorFrame { code: ErrorCode::Unlisted, text }));
        }
    }

    /// There is no memory for a snapshot, or recording had stopped before: none is written.
    pub(crate) fn gives_up(&mut self) -> (u64, u32) {
        TRACKER.stop(StopReason::Memory);
        self.reserve = Vec::new();
        (0, 0)
    }

    /// Checks that this much more memory is available; if not, recording stops: a failed allocation would end the
    /// guest.
    pub(crate) fn make_room(&mut self, bytes: usize) -> bool {
        let enough = heap::HEAP.has_room(bytes);
        if !enough {
            self.gives_up();
        }
        enough
    }

    /// Recording stopped: reports it once, in the stream.
    fn tell_stop(&mut self) {
        let Some(reason) = TRACKER.stopped().filter(|_| !self.told_stop) else { return };
        self.told_stop = true;
        let (code, text) = match reason {
            StopReason::Memory => {
                (ErrorCode::OutOfMemory, "no memory for the state of a thread or a snapshot")
            }
            StopReason::Table => (ErrorCode::OutOfTable, "no memory for the table of live allocations"),
            StopReason::Stacks => (ErrorCode::OutOfTable, "no memory, or no number, for another call stack"),
        };
        let remedy = "raise its limit of memory (ulimit -v, ulimit -d, the container's), or run fewer tests in one process";
        let text = format!("recording stopped: {text}; {remedy}");
        self.append(&Frame::Error(ErrorFrame { code, text }));
    }

    /// A library has allocated, or will, past the agent, and may free blocks that the agent has seen: nothing is
    /// exact from here on.
    pub(crate) fn tell_bypassing(&mut self) {
        let Some(Bypassing { loads, path, own_name_space }) = self.bypassing.take() else { return };
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let is_listed = || modules::loaded().0.iter().any(|module| name(&module.path) == name(&path));
        // The library may not have been found.
        if modules::counts().0 == loads || !own_name_space && !is_listed() {
            return;
        }
        let path = if path.is_empty() { "a library" } else { path.as_str() };
        let text = format!(
            "{path} was loaded with RTLD_DEEPBIND or into a name space of its own: its malloc is not the process's; \
             load it without that for the gate"
        );
        self.append(&Frame::Error(ErrorFrame { code: ErrorCode::Blind, text }));
    }

    /// Makes no system call in the main thread: by now a filter may forbid all but a few.
    fn thread_id(&self) -> u32 {
        if memgate_tracker::sys::thread_pointer() == self.main_thread {
            self.pid
        } else {
            process::thread_id()
        }
    }

    /// False in a child that shares our memory (`vfork`, `clone(CLONE_VM)`): it works with our state, but its end is
    /// not ours.
    pub(crate) fn is_this_process(&self) -> bool {
        if memgate_tracker::sys::thread_pointer() == self.main_thread {
            process::thread_id_by_futex().is_none_or(|id| id == self.pid)
        } else {
            process::pid() == self.pid
        }
    }

    pub(crate) fn append_boundary(
        &mut self,
        kind: BoundaryKind,
        (suite, test): (&str, &str),
        outcome: Option<Outcome>,
        (survivors, parts): (u64, u32),
    ) {
        self.sequence = self.sequence.saturating_add(1);
        let boundary = Boundary {
            sequence: self.sequence,
            kind,
            suite: suite.to_owned(),
            test: test.to_owned(),
            iteration: self.iteration,
            outcome,
            thread_id: self.thread_id(),
            open_tests: u32::try_from(self.windows.len()).unwrap_or(u32::MAX),
            counters: counters(),
            survivors,
            snapshot_parts: parts,
            cost: self.cost(),
        };
        self.append(&Frame::Boundary(boundary));
    }

    pub(crate) fn cost(&mut self) -> AgentCost {
        AgentCost {
            boundary_ns: self.boundary_ns,
            mapped_bytes: memgate_tracker::sys::mapped_bytes()
                .saturating_add(heap::mapped_bytes())
                .saturating_add(self.carrier.mapped_bytes()),
            stack_nodes: TRACKER.stack_nodes().into(),
            truncated_stacks: TRACKER.totals().truncated_stacks,
            recording_ns: self.clock.recording_ns(),
        }
    }

    /// The number of the boundary that comes next.
    pub fn next_boundary(&self) -> u32 {
        self.sequence.saturating_add(1)
    }

    /// Appends a frame, which [`Self::flush`] hands to the carrier.
    pub fn append(&mut self, frame: &Frame) {
        encode(frame, process::monotonic_ns(), &mut self.buffer);
    }

    /// Hands over what was appended.
    pub fn flush(&mut self) {
        if !self.buffer.is_empty() {
            self.carrier.write(&self.buffer);
            self.buffer.clear();
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn main_thread() -> usize {
    if process::thread_id() == process::pid() { memgate_tracker::sys::thread_pointer() } else { 0 }
}

/// Path of the executable of this process.
#[must_use]
pub fn executable() -> String {
    std::fs::read_link("/proc/self/exe").map(|p| p.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The arguments of this process.
#[must_use]
pub fn arguments() -> Vec<String> {
    let text = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let text = text.strip_suffix(b"\0").unwrap_or(&text);
    text.split(|&b| b == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect()
}
