//! The frames: one type per thing that can be observed. Sizes are bytes, times nanoseconds.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::java::{
    Classes, HeapHistogram, Holders, JavaExhausted, JavaObjects, JavaSites, JavaStacks, JavaState, JvmInfo,
};
use crate::native_holders::{NativeCopy, NativeHolders};
use crate::reply::Reply;

/// One frame of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// First frame of every stream.
    Hello(Hello),
    /// Counters at one instant.
    Counters(Counters),
    /// A test, iteration or process begins or ends.
    Boundary(Boundary),
    /// Part of a snapshot of live native allocations.
    NativeSnapshot(NativeSnapshot),
    /// Modules that were mapped when the stacks were taken.
    Modules(Modules),
    /// Stack nodes that later snapshots refer to.
    Stacks(Stacks),
    /// An event, by name.
    Event(Event),
    /// A line for a human reader.
    Log(Log),
    /// The agent could not fulfil a request.
    Error(ErrorFrame),
    /// Last frame of a complete stream.
    Goodbye(Goodbye),
    /// The operating system's figures of the process.
    OsSample(OsSample),
    /// From the harness to the agent (socket carrier; on a spool orders are words of the control
    /// page).
    Order(Order),
    /// Part of a list of the platform's own malloc debugging.
    LeakInfo(LeakInfo),
    /// Where descriptors were opened and threads started.
    Handles(Handles),
    /// Memory that the program itself has mapped.
    Mappings(Mappings),
    /// A sleeping copy of the process was made and can be read.
    NativeCopy(NativeCopy),
    /// The holders of native blocks: written by the harness, next to the agent's stream.
    NativeHolders(NativeHolders),
    /// Tests whose leftovers were all freed.
    Freed(Freed),
    /// The Java virtual machine from which the stream comes.
    JvmInfo(JvmInfo),
    /// Classes that later frames refer to.
    Classes(Classes),
    /// Part of a class histogram.
    HeapHistogram(HeapHistogram),
    /// The state of the virtual machine.
    JavaState(JavaState),
    /// Java stack nodes that later frames refer to.
    JavaStacks(JavaStacks),
    /// Allocation sites of surviving objects.
    JavaSites(JavaSites),
    /// The holders of the objects that grew.
    Holders(Holders),
    /// An `OutOfMemoryError`.
    JavaExhausted(JavaExhausted),
    /// Allocations and frees of followed classes.
    JavaObjects(JavaObjects),
}

/// Numeric type of a frame on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum FrameType {
    /// [`Frame::Hello`]
    Hello = 1,
    /// [`Frame::Counters`]
    Counters = 2,
    /// [`Frame::Boundary`]
    Boundary = 3,
    /// [`Frame::NativeSnapshot`]
    NativeSnapshot = 4,
    /// [`Frame::Modules`]
    Modules = 5,
    /// [`Frame::Stacks`]
    Stacks = 6,
    /// [`Frame::Event`]
    Event = 7,
    /// [`Frame::Log`]
    Log = 8,
    /// [`Frame::Error`]
    Error = 9,
    /// [`Frame::Goodbye`]
    Goodbye = 10,
    /// [`Frame::OsSample`]
    OsSample = 11,
    /// [`Frame::Order`]
    Order = 12,
    /// [`Frame::LeakInfo`]
    LeakInfo = 13,
    /// [`Frame::Handles`]
    Handles = 14,
    /// [`Frame::NativeCopy`]
    NativeCopy = 15,
    /// [`Frame::NativeHolders`]
    NativeHolders = 16,
    /// [`Frame::Mappings`]
    Mappings = 17,
    /// [`Frame::Freed`]
    Freed = 18,
    /// [`Frame::JvmInfo`]
    JvmInfo = 32,
    /// [`Frame::Classes`]
    Classes = 33,
    /// [`Frame::HeapHistogram`]
    HeapHistogram = 34,
    /// [`Frame::JavaState`]
    JavaState = 35,
    /// [`Frame::JavaStacks`]
    JavaStacks = 36,
    /// [`Frame::JavaSites`]
    JavaSites = 37,
    /// [`Frame::Holders`]
    Holders = 38,
    /// [`Frame::JavaExhausted`]
    JavaExhausted = 39,
    /// [`Frame::JavaObjects`]
    JavaObjects = 40,
}

/// The runtime of the tested code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Runtime {
    /// Native code only.
    #[default]
    Native,
    /// A HotSpot JVM.
    HotSpot,
    /// The Android runtime.
    Art,
}

/// How this process came to be tracked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessRole {
    /// Loaded by the dynamic linker at exec.
    #[default]
    Main,
    /// Forked from a tracked process, without an exec.
    ForkChild,
}

/// The writer of the stream, and its process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`crate::WIRE_VERSION`] of the writer.
    pub wire_version: u16,
    /// Version of the agent (or of memgate, in streams the harness writes).
    pub agent_version: String,
    /// Process id, as the process itself sees it.
    pub pid: u32,
    /// Its parent.
    pub parent_pid: u32,
    /// For example `x86_64-linux-gnu`.
    pub abi: String,
    /// 4 or 8.
    pub pointer_bytes: u8,
    /// The runtime of the tested code.
    pub runtime: Runtime,
    /// Exec or fork.
    pub role: ProcessRole,
    /// Absolute path of the executable.
    pub executable: String,
    /// Arguments, `argv[0]` included.
    pub arguments: Vec<String>,
    /// Working directory.
    pub working_directory: String,
    /// Unix time minus monotonic time, so that `t_ns` can be shown as a date.
    pub realtime_offset_ns: i64,
    /// Capabilities that the agent offers here ([`crate::capability`]).
    pub capabilities: Vec<String>,
    /// Why allocations cannot be seen, if they cannot (own allocator, …). The verdict is then an error.
    pub blind: Option<String>,
    /// Free text from the options: the purpose for which the harness started this process (`screen`, `confirm 3`, …).
    pub label: String,
}

impl Hello {
    /// Does the agent offer this capability?
    #[must_use]
    pub fn offers(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|it| it == capability)
    }
}

/// Native allocation counters since tracking began. The agent's own memory is never in them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Successful allocations.
    pub allocations: u64,
    /// Frees of tracked allocations.
    pub frees: u64,
    /// Requested bytes of `allocations`.
    pub allocated_bytes: u64,
    /// Requested bytes of `frees`.
    pub freed_bytes: u64,
    /// Frees of pointers that are not in the table (allocated before tracking began): normal, not
    /// judged.
    pub unknown_frees: u64,
    /// Counters frames that were dropped under pressure before this one.
    pub dropped_frames: u64,
}

impl Counters {
    /// Live bytes: can be momentarily negative across threads, then shown as 0.
    #[must_use]
    pub const fn live_bytes(&self) -> u64 {
        self.allocated_bytes.saturating_sub(self.freed_bytes)
    }
    /// Live allocations.
    #[must_use]
    pub const fn live_allocations(&self) -> u64 {
        self.allocations.saturating_sub(self.frees)
    }
}

/// The event at a boundary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BoundaryKind {
    /// Tracking is on, `main` is about to run. Suite and test are empty.
    #[default]
    ProcessStart,
    /// The process ends normally. Survivors are everything still alive.
    ProcessEnd,
    /// A test begins.
    TestStart,
    /// A test ended; its survivors precede this frame.
    TestEnd,
    /// The runner begins iteration `iteration` of its whole selection.
    IterationStart,
    /// A mark set by the program through the C API; its name is `test`.
    Mark,
}

/// How the user's own test ended, if the runner reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Its assertions held.
    Passed,
    /// One of its assertions failed.
    Failed,
    /// It skipped itself.
    Skipped,
}

/// Cost of measuring so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentCost {
    /// Time spent at the start and at boundaries (scans, writing), without waiting for the harness, nanoseconds.
    pub boundary_ns: u64,
    /// Bytes the agent has mapped for itself.
    pub mapped_bytes: u64,
    /// Distinct stack nodes.
    pub stack_nodes: u64,
    /// Stacks that could not be unwound to their root.
    pub truncated_stacks: u64,
    /// CPU time that recording took between boundaries, estimated from samples, nanoseconds; 0 before version 2.
    pub recording_ns: u64,
}

/// A boundary. All snapshot parts that belong to it precede it in the stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    /// Number of this boundary in its stream, from 1.
    pub sequence: u32,
    /// The event at this boundary.
    pub kind: BoundaryKind,
    /// Name of the suite (GoogleTest: suite name), empty if there is none.
    pub suite: String,
    /// Name of the test within the suite.
    pub test: String,
    /// Iteration of the runner, from 0.
    pub iteration: u32,
    /// Outcome, at [`BoundaryKind::TestEnd`].
    pub outcome: Option<Outcome>,
    /// Thread that reached the boundary.
    pub thread_id: u32,
    /// Tests that are open now, this one included: more than 1 means that tests overlap.
    pub open_tests: u32,
    /// Counters at the boundary, exact except for concurrent events of other threads.
    pub counters: Counters,
    /// Allocations born since the matching start that are still alive (exact for the thread's own allocations).
    pub survivors: u64,
    /// Parts of the snapshot that belongs to this boundary; 0: none was written.
    pub snapshot_parts: u32,
    /// Cost so far.
    pub cost: AgentCost,
}

/// The allocations that a snapshot contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapshotScope {
    /// Born in the window that ends here and still alive.
    Survivors,
    /// Every (stack, size) whose live count differs from the previous `Changes` snapshot of this stream, with its
    /// current count (0: none left). The first one contains everything alive.
    Changes,
    /// Everything alive.
    All,
}

/// Allocations of one size with one stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    /// Node of the innermost frame, see [`StackNode`]; 0: no stack was taken.
    pub stack: u32,
    /// Requested bytes of each.
    pub size: u64,
    /// How many.
    pub count: u64,
}

/// One part of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeSnapshot {
    /// The [`Boundary::sequence`] it belongs to.
    pub boundary: u32,
    /// The allocations that it contains.
    pub scope: SnapshotScope,
    /// Number of this part, from 0.
    pub part: u32,
    /// The records; (stack, size) pairs do not repeat within one snapshot.
    pub records: Vec<SnapshotRecord>,
}

/// Part of a buffer of Android's `get_malloc_leak_info`, as libc returned it: records of two words (size and zygote
/// bit, count) and `backtrace_size` addresses, in the writer's byte order and width. Records of one allocation site may
/// repeat, because nothing is added up. It is written only if memgate's own tracker does not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeakInfo {
    /// The [`Boundary::sequence`] it belongs to.
    pub boundary: u32,
    /// Number of this part, from 0.
    pub part: u32,
    /// Bytes of the whole buffer.
    pub overall_bytes: u64,
    /// Bytes of a record.
    pub record_bytes: u64,
    /// Bytes of all listed allocations, as libc reports them.
    pub total_bytes: u64,
    /// Addresses of a record.
    pub backtrace_size: u64,
    /// The records; no record is split.
    pub records: Vec<u8>,
}

/// A descriptor or a thread, and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handle {
    /// Number of the descriptor, or thread id.
    pub id: u32,
    /// Stack that opened or started it, see [`StackNode`]; 0: not known (any more).
    pub stack: u32,
}

/// Where descriptors were opened and threads started: only changes since the last such frame. A descriptor that is
/// never listed was opened outside the agent's view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handles {
    /// The [`Boundary::sequence`] of the boundary that follows.
    pub boundary: u32,
    /// Descriptors.
    pub descriptors: Vec<Handle>,
    /// Threads.
    pub threads: Vec<Handle>,
}

/// Kind of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MappedKind {
    /// Private memory without a file.
    Anonymous,
    /// Memory without a file that children share.
    Shared,
    /// A file.
    File,
    /// The program break, moved by `sbrk` or `brk`.
    Break,
    /// A System V segment, attached by `shmat`.
    Segment,
    /// No mapping: a System V segment that the process made and that still exists.
    Unremoved,
}

impl MappedKind {
    /// Its number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Anonymous => 0,
            Self::Shared => 1,
            Self::File => 2,
            Self::Break => 3,
            Self::Segment => 4,
            Self::Unremoved => 5,
        }
    }

    /// The kind with this number; `None`: a newer agent uses it.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Anonymous,
            1 => Self::Shared,
            2 => Self::File,
            3 => Self::Break,
            4 => Self::Segment,
            5 => Self::Unremoved,
            _ => return None,
        })
    }
}

/// Memory that one stack has mapped and not unmapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapped {
    /// The stack that mapped it, see [`StackNode`]; 0: not known.
    pub stack: u32,
    /// [`MappedKind::number`].
    pub kind: u8,
    /// Number of ranges; 0: none is left.
    pub count: u64,
    /// Their bytes, in whole pages.
    pub bytes: u64,
}

/// Memory that the program itself has mapped, by stack and kind: only changes since the last such frame. The first
/// frame shows that mappings are noted, and may be empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mappings {
    /// The [`Boundary::sequence`] of the boundary that follows.
    pub boundary: u32,
    /// Something could not be noted: from here on the mappings are unknown.
    pub lost: bool,
    /// The changes.
    pub mapped: Vec<Mapped>,
}

/// Tests whose leftovers were all freed before the last test had run. Written before the environments are torn down, if
/// each test runs once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freed {
    /// The [`Boundary::sequence`] of the end of each test.
    pub boundaries: Vec<u32>,
}

/// A mapped ELF file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// First mapped address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Load bias: address = bias + virtual address in the file.
    pub bias: u64,
    /// Path as the loader knows it; the executable's absolute path for the main program.
    pub path: String,
    /// GNU build id, empty if there is none.
    pub build_id: Vec<u8>,
}

/// The modules of one generation. A generation ends when a module is unloaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modules {
    /// Stack nodes of this generation resolve against this list. A later list of the same
    /// generation extends it.
    pub generation: u32,
    /// All modules mapped now.
    pub modules: Vec<Module>,
}

/// One frame of a stack, as a node of a tree whose root is id 0 (no frame).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackNode {
    /// Id, never 0.
    pub id: u32,
    /// The caller's node; 0 for the outermost frame.
    pub parent: u32,
    /// Return address (look up `pc - 1`), or [`crate::TRUNCATED_PC`].
    pub pc: u64,
}

/// Stack nodes, parents first. A node is written once per stream, before the first record that
/// needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stacks {
    /// Module generation in which these were taken.
    pub generation: u32,
    /// The nodes.
    pub nodes: Vec<StackNode>,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// `settle`, `fork`, `dlclose`, …
    pub name: String,
    /// Free text.
    pub detail: String,
}

/// How much a log line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogLevel {
    /// For a developer of memgate.
    Debug,
    /// For the reader of a report.
    Info,
    /// Something is wrong.
    Warn,
}

/// A line for a human reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// Its importance.
    pub level: LogLevel,
    /// The text.
    pub text: String,
}

/// Why something was not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorCode {
    /// An option was not understood.
    BadOption,
    /// The agent could get no more memory and stopped recording.
    OutOfMemory,
    /// A table is full and recording stopped.
    OutOfTable,
    /// The carrier failed (disk full, socket gone).
    Carrier,
    /// The process's allocations do not pass through the agent.
    Blind,
    /// Anything else.
    Other,
    /// The operating system does not list the descriptors and threads of the process.
    Unlisted,
}

/// The agent could not fulfil a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorFrame {
    /// Which kind.
    pub code: ErrorCode,
    /// For a human reader.
    pub text: String,
}

/// How the process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GoodbyeReason {
    /// `exit`, or return from `main`.
    Exit,
    /// `_exit`, `_Exit` or `quick_exit`.
    QuickExit,
    /// The process replaces itself by another program.
    Exec,
    /// The harness asked the agent to stop.
    Stopped,
}

/// Last frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goodbye {
    /// How.
    pub reason: GoodbyeReason,
    /// Exit status, if known.
    pub status: Option<i32>,
    /// Final counters.
    pub counters: Counters,
    /// Final cost.
    pub cost: AgentCost,
}

/// A thread of the tested process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadEntry {
    /// Thread id.
    pub id: u32,
    /// Its name (`/proc/PID/task/TID/comm`).
    pub name: String,
    /// Where it waits in the kernel, if that can be read (`wchan`), else empty.
    pub waits_in: String,
}

/// An open descriptor of the tested process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdEntry {
    /// Number.
    pub fd: u32,
    /// The target that it refers to (`/proc/PID/fd/N`).
    pub target: String,
}

/// The operating system's figures of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsSample {
    /// Process id.
    pub pid: u32,
    /// The [`Boundary::sequence`] at which the process waited for this sample; 0: taken in between.
    pub boundary: u32,
    /// Resident bytes.
    pub rss_bytes: u64,
    /// Proportional set size, if it was read.
    pub pss_bytes: Option<u64>,
    /// Private dirty bytes, if they were read.
    pub private_dirty_bytes: Option<u64>,
    /// CPU time of the process so far (user and system).
    pub cpu_ns: u64,
    /// Threads.
    pub threads: Vec<ThreadEntry>,
    /// Open descriptors.
    pub fds: Vec<FdEntry>,
    /// Native counters read from the control page at the same moment.
    pub counters: Option<Counters>,
}

/// From the harness to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// The boundary that it answers.
    pub boundary: u32,
    /// The answer.
    pub reply: Reply,
}
