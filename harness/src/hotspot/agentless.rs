//! Records a launcher of ours in a Java virtual machine without an agent: writes the stream that an agent would write.
//!
//! Data flow: the launcher connects to our socket and reports, line by line, where tests begin and windows end; at the
//! end of a window it waits → its virtual machine is asked to collect and count ([`Attached`]) → frames in a spool of
//! our own ([`Spool`]), in which this thread plays the guest's part → the recorder follows the spool like any other →
//! its orders go back to the launcher as a line. Data that only an agent has (holders of an object, allocation sites,
//! direct buffers) are missing.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use memgate_wire::hotspot::{ClassInstances, class_histogram, number_behind, thread_names};
use memgate_wire::java::{
    ClassCount, ClassName, Classes, HeapHistogram, HistogramScope, JavaState, NAMES_PER_FRAME,
    RECORDS_PER_PART,
};
use memgate_wire::spool::order;
use memgate_wire::{BoundaryKind, Frame, GoodbyeReason, Hello, Outcome, Runtime};

use super::attach::{AttachError, Attached};
use super::spool::Spool;

/// The system property with the path of our socket for the launcher.
const PROPERTY: &str = "memgate.socket";
/// The virtual machine option that enables the attach listener.
pub(crate) const OPTION: &str = "-XX:+StartAttachListener";
/// The virtual machine begins to listen only after its start: number of attempts, and the time between them.
const ATTEMPTS: u32 = 200;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(25);

static SOCKETS: AtomicU32 = AtomicU32::new(0);

/// Waits for one launcher and records for it.
#[derive(Debug)]
pub(crate) struct Agentless {
    folder: PathBuf,
    thread: Option<JoinHandle<Result<(), AgentlessError>>>,
}

/// Why a launcher could not be recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentlessError {
    /// The connection to it broke.
    #[error("speak with the launcher")]
    Launcher(#[source] io::Error),
    /// It sent an unknown line.
    #[error("understand the launcher's line {0:?}")]
    Line(String),
    /// Its virtual machine did not answer.
    #[error(transparent)]
    Machine(#[from] AttachError),
    /// The reply is not a class histogram.
    #[error("read its class histogram: {0:?}")]
    Histogram(String),
    /// Its spool could not be written.
    #[error("write its spool")]
    Spool(#[source] io::Error),
}

/// How a launcher is recorded.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Folder of its spool.
    pub frames: PathBuf,
    /// Its label: what it was started for.
    pub label: String,
    /// Its executable.
    pub executable: String,
    /// Its working directory.
    pub directory: String,
    /// Time limit for the recorder's reply.
    pub wait: Duration,
}

impl Agentless {
    /// Begins to listen.
    ///
    /// # Errors
    /// When no socket can be created.
    pub(crate) fn listen(settings: Settings) -> io::Result<Self> {
        // The path of a socket is limited; that of a session may be too long.
        let number = SOCKETS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("memgate-{}-{number}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let listener = UnixListener::bind(folder.join("s"))?;
        let thread = std::thread::Builder::new().name("agentless".to_owned());
        let thread = thread.spawn(move || serve(&listener, &settings))?;
        Ok(Self { folder, thread: Some(thread) })
    }

    /// The socket for the launcher.
    #[must_use]
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("s")
    }

    /// Ends after the launcher has ended: its spool contains everything it reported.
    ///
    /// # Errors
    /// When it could not be recorded to its end.
    pub(crate) fn end(mut self) -> Result<(), AgentlessError> {
        self.release();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Err(AgentlessError::Launcher(io::Error::other("the thread that speaks for it is gone"))),
        }
    }

    /// Stops waiting for a launcher that never connected.
    fn release(&self) {
        // A launcher that is already connected does not notice.
        drop(UnixStream::connect(self.socket()));
    }
}

impl Drop for Agentless {
    fn drop(&mut self) {
        self.release();
        // If that fails, only an empty folder of our own remains.
        drop(fs::remove_dir_all(&self.folder));
    }
}

fn serve(listener: &UnixListener, settings: &Settings) -> Result<(), AgentlessError> {
    let (stream, _) = listener.accept().map_err(AgentlessError::Launcher)?;
    let mut lines = BufReader::new(stream.try_clone().map_err(AgentlessError::Launcher)?).lines();
    let Some(first) = lines.next() else { return Ok(()) };
    let first = first.map_err(AgentlessError::Launcher)?;
    let pid = first.strip_prefix("pid ").and_then(|pid| pid.parse::<u32>().ok());
    let Some(pid) = pid else { return Err(AgentlessError::Line(first)) };
    let pid = peer(&stream).unwrap_or(pid);
    let mut guest = Guest::new(settings, pid, &stream)?;
    for line in lines {
        match line {
            Ok(line) => guest.line(&line)?,
            Err(why) => return Err(AgentlessError::Launcher(why)),
        }
    }
    Ok(())
}

/// The process at the other end, by its number in our namespace.
fn peer(stream: &UnixStream) -> Option<u32> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
}

struct Guest<'a> {
    spool: Spool,
    machine: Attached,
    answers: &'a UnixStream,
    iteration: u32,
    ids: BTreeMap<String, u32>,
    last: BTreeMap<u32, (u64, u64)>,
}

impl<'a> Guest<'a> {
    fn new(settings: &Settings, pid: u32, answers: &'a UnixStream) -> Result<Self, AgentlessError> {
        let hello = Hello {
            wire_version: memgate_wire::WIRE_VERSION,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            pid,
            parent_pid: std::process::id(),
            pointer_bytes: 8,
            runtime: Runtime::HotSpot,
            executable: settings.executable.clone(),
            working_directory: settings.directory.clone(),
            label: settings.label.clone(),
            ..Hello::default()
        };
        let spool = Spool::new(&settings.frames, hello, settings.wait).map_err(AgentlessError::Spool)?;
        let machine = Attached::to(pid);
        Ok(Self { spool, machine, answers, iteration: 0, ids: BTreeMap::new(), last: BTreeMap::new() })
    }

    fn line(&mut self, line: &str) -> Result<(), AgentlessError> {
        let wrong = || AgentlessError::Line(line.to_owned());
        let mut words = line.splitn(4, '\t');
        let mut word = || words.next().unwrap_or_default();
        match (word(), word(), word(), word()) {
            ("iteration", number, ..) => {
                self.iteration = number.parse().map_err(|_no_number| wrong())?;
                self.boundary(BoundaryKind::IterationStart, "", "", None)?;
            }
            ("start", _, suite, test) => {
                self.boundary(BoundaryKind::TestStart, suite, test, None)?;
            }
            ("end", outcome, suite, test) => {
                self.boundary(BoundaryKind::TestEnd, suite, test, outcome_of(outcome))?;
            }
            ("window", outcome, suite, test) => {
                self.measure()?;
                let orders = self.boundary(BoundaryKind::TestEnd, suite, test, outcome_of(outcome))?;
                self.answer(orders.unwrap_or(order::STOP))?;
            }
            ("bye", ..) => {
                self.spool.close(GoodbyeReason::Exit).map_err(AgentlessError::Spool)?;
                self.answer(0)?;
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }

    fn answer(&mut self, orders: u32) -> Result<(), AgentlessError> {
        self.answers.write_all(format!("{orders}\n").as_bytes()).map_err(AgentlessError::Launcher)
    }

    fn boundary(
        &mut self,
        kind: BoundaryKind,
        suite: &str,
        test: &str,
        outcome: Option<Outcome>,
    ) -> Result<Option<u32>, AgentlessError> {
        self.spool.boundary(kind, (suite, test), self.iteration, outcome).map_err(AgentlessError::Spool)
    }

    /// Collects, counts, and writes the differences from the last time.
    fn measure(&mut self) -> Result<(), AgentlessError> {
        let began = crate::recorder::now_ns();
        // A second collection, in addition to that of the histogram: values behind soft references of this window go
        // only with the second one, and some collectors count objects that they did not collect.
        self.ask("GC.run")?;
        let told = self.ask("GC.class_histogram")?;
        let live = class_histogram(&told)
            .ok_or_else(|| AgentlessError::Histogram(told.lines().next().unwrap_or_default().to_owned()))?;
        let threads = self.ask("Thread.print")?;
        let metaspace = self.ask("VM.metaspace basic scale=1")?;
        let boundary = self.spool.next();
        self.histogram(boundary, &live)?;
        let mut names = thread_names(&threads);
        names.sort();
        let state = JavaState {
            boundary,
            heap_used: Some(live.iter().map(|class| class.bytes).fold(0, u64::saturating_add)),
            threads: u32::try_from(names.len()).ok(),
            thread_names: names,
            metaspace_bytes: number_behind(&metaspace, "Both:"),
            jni_globals: number_behind(&threads, "JNI global refs:"),
            boundary_ns: crate::recorder::now_ns().saturating_sub(began),
            ..JavaState::default()
        };
        self.frame(&Frame::JavaState(state))
    }

    fn ask(&self, command: &str) -> Result<String, AgentlessError> {
        let mut attempt = 0;
        loop {
            match self.machine.command(command) {
                // No event reports when it begins to listen.
                Err(AttachError::Socket { .. }) if attempt < ATTEMPTS && self.last.is_empty() => {
                    attempt += 1;
                    std::thread::sleep(BETWEEN_ATTEMPTS);
                }
                answer => return Ok(answer?),
            }
        }
    }

    fn histogram(&mut self, boundary: u32, live: &[ClassInstances]) -> Result<(), AgentlessError> {
        let scope = if self.last.is_empty() { HistogramScope::All } else { HistogramScope::Changes };
        let mut now = BTreeMap::<u32, (u64, u64)>::new();
        let mut names = Vec::new();
        for class in live {
            let next = u32::try_from(self.ids.len()).unwrap_or(u32::MAX).saturating_add(1);
            let id = *self.ids.entry(class.class.clone()).or_insert_with(|| {
                names.push(ClassName { id: next, name: class.class.clone() });
                next
            });
            // Several loaders may have classes of the same name.
            let (instances, bytes) = now.entry(id).or_default();
            *instances = instances.saturating_add(class.instances);
            *bytes = bytes.saturating_add(class.bytes);
        }
        for chunk in names.chunks(NAMES_PER_FRAME) {
            self.frame(&Frame::Classes(Classes { classes: chunk.to_vec() }))?;
        }
        let gone = self.last.keys().filter(|id| !now.contains_key(id)).map(|&id| (id, (0, 0)));
        let changed =
            now.iter().filter(|(id, figures)| self.last.get(id) != Some(figures)).map(|(&id, &f)| (id, f));
        let records: Vec<ClassCount> = gone
            .chain(changed)
            .map(|(class, (instances, bytes))| ClassCount { class, instances, bytes })
            .collect();
        let nothing: &[ClassCount] = &[];
        let parts =
            if records.is_empty() { vec![nothing] } else { records.chunks(RECORDS_PER_PART).collect() };
        for (part, chunk) in (0..).zip(parts) {
            self.frame(&Frame::HeapHistogram(HeapHistogram {
                boundary,
                part,
                scope,
                records: chunk.to_vec(),
            }))?;
        }
        self.last = now;
        Ok(())
    }

    fn frame(&mut self, frame: &Frame) -> Result<(), AgentlessError> {
        self.spool.frame(frame).map_err(AgentlessError::Spool)
    }
}

fn outcome_of(number: &str) -> Option<Outcome> {
    match number {
        "0" => Some(Outcome::Passed),
        "1" => Some(Outcome::Failed),
        "2" => Some(Outcome::Skipped),
        _ => None,
    }
}

/// The launcher's option with the path of our socket.
#[must_use]
pub(crate) fn property(socket: &Path) -> String {
    format!("-D{PROPERTY}={}", socket.display())
}
