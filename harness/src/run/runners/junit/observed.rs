//! Records the build's own run without an agent in it: which processes ran tests, and how each test ended.
//!
//! Data flow: our descendant processes are watched while the build runs ([`Lookout`]): those that run tests, and how
//! they were started → after the run, the results that the build tool wrote below their folders → a stream for each in
//! the session, in the format of an agent, but only with boundaries ([`record`]). Nothing is measured here: the rounds
//! do that.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use memgate_analysis::Observer;
use memgate_formats::jar::manifest_class_path;
use memgate_formats::test_results::{TestOutcome, TestResult};
use memgate_wire::java::JvmInfo;
use memgate_wire::{
    AgentCost, Boundary, BoundaryKind, Counters, Frame, Goodbye, GoodbyeReason, Hello, Outcome, Runtime,
    encode,
};

use super::results;
use crate::proc_fs;
use crate::recorder::{Process, ProcessKey, now_ns};
use crate::run::engine::Finished;
use crate::session::facts::EndingFacts;
use crate::suite::junit::{JavaCommand, WORKER_CLASS_PATH, runs_tests};

/// How often processes are listed. A worker lives for at least half a second; nothing reports its start.
const LOOK: Duration = Duration::from_millis(25);
/// A virtual machine that runs tests.
#[derive(Debug, Clone)]
struct Worker {
    pid: u32,
    executable: PathBuf,
    directory: PathBuf,
    environment: Vec<(OsString, OsString)>,
    command: JavaCommand,
}

/// Looks for virtual machines that run tests, until told to stop.
#[derive(Debug)]
pub(super) struct Lookout {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<BTreeMap<u32, Worker>>>,
    thread: Option<JoinHandle<()>>,
    since: SystemTime,
}

impl Lookout {
    pub(super) fn begin() -> io::Result<Self> {
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(BTreeMap::new())));
        let thread = std::thread::Builder::new().name("lookout".to_owned()).spawn({
            let (stop, seen) = (Arc::clone(&stop), Arc::clone(&seen));
            move || {
                let mut known = BTreeSet::new();
                while !stop.load(Ordering::Acquire) {
                    look(&mut known, &seen);
                    std::thread::sleep(LOOK);
                }
            }
        })?;
        Ok(Self { stop, seen, thread: Some(thread), since: SystemTime::now() })
    }

    /// Ends the look-out. Returns the seen workers, each as if it had recorded itself, and results that could not be
    /// read.
    pub(super) fn end(mut self, frames: &Path, label: &str) -> io::Result<(Vec<Finished>, Vec<String>)> {
        self.halt();
        let seen = std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        let mut problems = Vec::new();
        let mut finished = Vec::new();
        let mut told = BTreeSet::new();
        for worker in seen.into_values() {
            // Forks of one module share its results, so the first fork gets all of them.
            let results = if told.insert(worker.directory.clone()) {
                self.results(&worker, &mut problems)
            } else {
                Vec::new()
            };
            finished.push(record(frames, label, worker, &results)?);
        }
        Ok((finished, problems))
    }

    fn halt(&mut self) {
        self.stop.store(true, Ordering::Release);
        // It cannot panic, so its result can be ignored.
        drop(self.thread.take().map(JoinHandle::join));
    }

    fn results(&self, worker: &Worker, problems: &mut Vec<String>) -> Vec<TestResult> {
        let mut tests = Vec::new();
        for path in results::files(&worker.directory, self.since) {
            match results::read(&path) {
                Ok(results) => tests.extend(results.tests),
                Err(why) => problems.push(format!("{}: {why}", path.display())),
            }
        }
        tests
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.halt();
    }
}

/// Inspects every descendant process whose command line was not seen yet.
fn look(known: &mut BTreeSet<(u32, Vec<u8>)>, seen: &Mutex<BTreeMap<u32, Worker>>) {
    for pid in proc_fs::descendants(std::process::id()) {
        let Some(line) = proc_fs::command_line(pid) else { continue };
        if proc_fs::places(pid).is_some_and(|(_, directory)| is_passing_through(&directory)) {
            // The next look sees the real folder.
            continue;
        }
        if !known.insert((pid, line.clone())) {
            continue;
        }
        if let Some(worker) = worker(pid, &line) {
            seen.lock().unwrap_or_else(PoisonError::into_inner).insert(pid, worker);
        }
    }
}

/// When HotSpot starts, it enters this folder for a moment to remove stale files.
fn is_passing_through(directory: &Path) -> bool {
    let name = directory.file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.starts_with("hsperfdata_"))
}

fn worker(pid: u32, line: &[u8]) -> Option<Worker> {
    let words: Vec<String> = line
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let (program, arguments) = words.split_first()?;
    if !program.ends_with("java") {
        return None;
    }
    let (executable, directory) = proc_fs::places(pid)?;
    let mut command = JavaCommand::of(arguments, &directory).filter(runs_tests)?;
    if let [jar] = command.class_path.as_slice()
        && jar.contains("surefirebooter")
    {
        // The jar is removed after the tests.
        command.class_path = behind_booter(&directory.join(jar))?;
    }
    let absolute = |path: &String| directory.join(path).display().to_string();
    command.class_path = command.class_path.iter().map(absolute).collect();
    Some(Worker { pid, executable, directory, environment: proc_fs::environ(pid)?, command })
}

/// The class path in Surefire's booter jar. Its entries are URLs relative to the jar.
fn behind_booter(jar: &Path) -> Option<Vec<String>> {
    let entries = manifest_class_path(&fs::read(jar).ok()?).ok()?;
    let folder = jar.parent()?;
    let place = |entry: String| {
        let path = decoded(entry.strip_prefix("file:").unwrap_or(&entry));
        folder.join(path).components().fold(PathBuf::new(), |mut path, part| {
            match part {
                std::path::Component::ParentDir => drop(path.pop()),
                std::path::Component::CurDir => {}
                part => path.push(part),
            }
            path
        })
    };
    Some(entries.into_iter().map(place).map(|path| path.display().to_string()).collect())
}

/// Decodes `%20` and the like.
fn decoded(address: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = address.bytes();
    while let Some(byte) = rest.next() {
        let mut ahead = rest.clone();
        let digits = [ahead.next(), ahead.next()].map(|d| d.and_then(|d| char::from(d).to_digit(16)));
        match (byte, digits) {
            (b'%', [Some(high), Some(low)]) => {
                bytes.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                rest = ahead;
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Writes the stream of a worker, and returns its record.
fn record(frames: &Path, label: &str, worker: Worker, results: &[TestResult]) -> io::Result<Finished> {
    let Worker { pid, executable, directory, environment, command } = worker;
    let hello = Hello {
        wire_version: memgate_wire::WIRE_VERSION,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        pid,
        pointer_bytes: 8,
        runtime: Runtime::HotSpot,
        executable: executable.display().to_string(),
        working_directory: directory.display().to_string(),
        label: label.to_owned(),
        ..Hello::default()
    };
    // The home of the virtual machine: the folder above `bin/java`.
    let home = executable.parent().and_then(Path::parent).unwrap_or(Path::new(""));
    let jvm = JvmInfo {
        vm: String::new(),
        version: String::new(),
        home: home.display().to_string(),
        collector: String::new(),
        command: command.command,
        vm_arguments: command.options,
        properties: vec![(WORKER_CLASS_PATH.to_owned(), command.class_path.join(":"))],
        class_path: command.class_path,
        module_path: Vec::new(),
        listener: String::new(),
    };
    let path = frames.join(format!("{pid}-{}.mgf", now_ns()));
    let mut writer =
        Writer { file: File::create_new(&path)?, observer: Observer::new(), t_ns: now_ns(), sequence: 0 };
    writer.frame(Frame::Hello(hello.clone()))?;
    writer.frame(Frame::JvmInfo(jvm))?;
    for test in results {
        writer.boundary(BoundaryKind::TestStart, test)?;
        // The time that its runner reports.
        let took = Duration::try_from_secs_f64(test.seconds).unwrap_or_default();
        writer.t_ns = writer.t_ns.saturating_add(u64::try_from(took.as_nanos()).unwrap_or(0));
        writer.boundary(BoundaryKind::TestEnd, test)?;
    }
    let (counters, cost) = (Counters::default(), AgentCost::default());
    writer.frame(Frame::Goodbye(Goodbye { reason: GoodbyeReason::Exit, status: None, counters, cost }))?;
    Ok(Finished {
        process: Process { key: ProcessKey(0), file: path, hello, environ: Some(environment), visible: true },
        record: writer.observer.into_record(),
        ending: EndingFacts::Unknown,
    })
}

struct Writer {
    file: File,
    observer: Observer,
    t_ns: u64,
    sequence: u32,
}

impl Writer {
    fn frame(&mut self, frame: Frame) -> io::Result<()> {
        let mut bytes = Vec::new();
        if encode(&frame, self.t_ns, &mut bytes) == 0 {
            return Err(io::Error::other("a frame is too large"));
        }
        self.file.write_all(&bytes)?;
        self.observer.push(frame, self.t_ns);
        self.t_ns = self.t_ns.saturating_add(1);
        Ok(())
    }

    fn boundary(&mut self, kind: BoundaryKind, test: &TestResult) -> io::Result<()> {
        self.sequence = self.sequence.saturating_add(1);
        let outcome = match test.outcome {
            TestOutcome::Passed => Outcome::Passed,
            TestOutcome::Failed => Outcome::Failed,
            TestOutcome::Skipped => Outcome::Skipped,
        };
        self.frame(Frame::Boundary(Boundary {
            sequence: self.sequence,
            kind,
            suite: test.class.clone(),
            // Uses the names of the JUnit Platform.
            test: test.name.replace('{', "(").replace('}', ")"),
            outcome: (kind == BoundaryKind::TestEnd).then_some(outcome),
            thread_id: 1,
            open_tests: 1,
            ..Boundary::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn addresses_of_a_booter_jar_are_relative_to_it_and_encoded() {
        assert_eq!(decoded("/a%20b/%C3%A9%zz%4"), "/a b/\u{e9}%zz%4");
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(behind_booter(&folder.path().join("surefirebooter-1.jar")), None, "it may be gone");
    }

    #[test]
    fn a_machine_that_begins_is_seen_in_the_folder_where_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let passing = folder.path().join("hsperfdata_user");
        fs::create_dir(&passing).unwrap();
        // A script with the name of a runner. It changes to its folder when told to.
        let main = "org.junit.runner.JUnitCore";
        fs::write(passing.join(main), "read -r word; cd ..; echo there; read -r word\n").unwrap();
        let mut command = Command::new("bash");
        command.arg0("java").arg(main).current_dir(&passing).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut known, seen) = (BTreeSet::new(), Mutex::new(BTreeMap::new()));
        look(&mut known, &seen);
        assert!(!seen.lock().unwrap().contains_key(&child.id()));
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let mut there = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut there).unwrap();
        look(&mut known, &seen);
        let directory = seen.lock().unwrap().get(&child.id()).map(|worker| worker.directory.clone());
        assert_eq!(directory, Some(folder.path().canonicalize().unwrap()));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
