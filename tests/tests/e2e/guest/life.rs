//! Runs a small program twice, plain and with the agent recording in every process of its tree, and compares:
//! same output, same status, no hang. The recording is returned for further checks; `gate` returns memgate's
//! result.
//!
//! The programs are in `tests/samples/proofs/life*`; the tests are in the files beside this one, by topic.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use memgate_e2e::{Project, Run, agent, repository, samples};
use memgate_wire::{ErrorFrame, Frame, Goodbye, Hello, ProcessRole};
use rustix::process::{Pid, Signal, kill_process};

use crate::agent::spool;

/// Longer than any program here takes.
const DEADLINE: Duration = Duration::from_secs(60);

/// Without built-in functions: otherwise the compiler would remove a pair of malloc and free.
pub(crate) const FLAGS: &[&str] = &["-O1", "-g", "-pthread", "-fno-builtin"];

/// Compiles a sample program with `cc`, named without `life_` and extension.
pub(crate) fn program(name: &str) -> PathBuf {
    compiled(name, &format!("life_{name}.c"), "cc", &[])
}

/// Compiles `source` into the program `name`.
pub(crate) fn compiled(name: &str, source: &str, compiler: &str, flags: &[&str]) -> PathBuf {
    let file = repository().join("tests/samples/proofs").join(source);
    let text = fs::read_to_string(&file).unwrap();
    let standard = if source.ends_with(".cc") { "-std=c++17" } else { "-std=gnu11" };
    let arguments = [&[source, standard], FLAGS, flags].concat();
    samples::compile(name, compiler, &arguments, &[(source, text.as_str())])
}

/// Path of a library or archive that the compiler finds. Reports a missing one; the caller then skips.
pub(crate) fn library(name: &str, package: &str) -> Option<PathBuf> {
    let told = samples::successful(Command::new("cc").arg(format!("-print-file-name={name}")));
    let path = PathBuf::from(told.trim());
    if path.is_absolute() {
        return Some(path);
    }
    memgate_e2e::skip_without(&format!("{name} (package {package})"));
    None
}

/// Checks for root, which the caller's test needs. Reports it if missing; the caller then skips.
pub(crate) fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        memgate_e2e::skip(&format!("only root can test {what}"));
    }
    root
}

/// A program to run both ways.
pub(crate) struct Guest {
    folder: PathBuf,
    agent: PathBuf,
    command: Vec<OsString>,
    before: Option<PathBuf>,
    behind: Option<PathBuf>,
    variables: Vec<(String, String)>,
}

/// Result of both runs; status and stdout are the same.
pub(crate) struct Driven {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    /// Of the plain and of the tracked run: they differ, because sanitizers write addresses and process ids
    /// there.
    pub(crate) stderr: [String; 2],
    pub(crate) streams: Vec<Stream>,
}

/// The recording of one process.
pub(crate) struct Stream {
    pub(crate) hello: Hello,
    pub(crate) frames: Vec<Frame>,
}

impl Guest {
    /// `name`: name of the folder that keeps the files of the test.
    pub(crate) fn new(name: &str, program: &Path, arguments: &[&str]) -> Self {
        let folder = Project::new(&format!("life-{name}")).folder().to_owned();
        let command = std::iter::once(program.into()).chain(arguments.iter().map(Into::into)).collect();
        Self { folder, agent: agent().to_owned(), command, before: None, behind: None, variables: Vec::new() }
    }

    /// Uses a folder that every user can access, with a copy of the agent.
    pub(crate) fn in_reach_of_everybody(mut self, folder: &Path) -> Self {
        self.agent = folder.join("libmemgate_agent.so");
        fs::copy(agent(), &self.agent).unwrap();
        fs::set_permissions(&self.agent, fs::Permissions::from_mode(0o644)).unwrap();
        self.folder = folder.to_owned();
        self
    }

    /// Preloads a library before or after the agent.
    pub(crate) fn preload(mut self, library: &Path, before: bool) -> Self {
        let place = if before { &mut self.before } else { &mut self.behind };
        *place = Some(library.to_owned());
        self
    }

    /// Sets a variable in both runs.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs it both ways; stderr must be the same.
    #[track_caller]
    pub(crate) fn drive(&self) -> Driven {
        let driven = self.drive_loudly();
        assert_eq!(driven.stderr[0], driven.stderr[1], "on stderr");
        driven
    }

    /// As `drive`, for programs whose stderr differs between runs.
    #[track_caller]
    pub(crate) fn drive_loudly(&self) -> Driven {
        let (plain, out, err) = self.once("plain", None);
        let spools = self.folder.join("spools");
        fs::create_dir(&spools).unwrap();
        // A process that changes its user still writes its spool.
        fs::set_permissions(&spools, fs::Permissions::from_mode(0o777)).unwrap();
        let (tracked, tracked_out, tracked_err) = self.once("tracked", Some(&spools));
        assert_eq!((tracked, &tracked_out), (plain, &out), "tracked and plain\n{tracked_err}\n{err}");
        let mut paths: Vec<_> = fs::read_dir(&spools).unwrap().map(|e| e.unwrap().path()).collect();
        paths.sort();
        let unfinished = paths.iter().find(|p| p.extension().is_none_or(|e| e != "mgf"));
        assert_eq!(unfinished, None, "no half a spool is left");
        let streams = paths.iter().map(|path| Stream::of(path)).collect();
        Driven { status: plain, stdout: out, stderr: [err, tracked_err], streams }
    }

    fn once(&self, how: &str, spools: Option<&Path>) -> (ExitStatus, String, String) {
        let (program, arguments) = self.command.split_first().unwrap();
        let (out, err) = (self.folder.join(format!("{how}.out")), self.folder.join(format!("{how}.err")));
        let mut command = Command::new(program);
        command.args(arguments).env_remove("LD_LIBRARY_PATH").stdin(Stdio::null());
        // Files: a pipe would stay open as long as a descendant holds it.
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let agent = spools.map(|_| &self.agent);
        let preloaded = [self.before.as_ref(), agent, self.behind.as_ref()].into_iter().flatten();
        let preloaded: Vec<&str> = preloaded.map(|path| path.to_str().unwrap()).collect();
        command.env("LD_PRELOAD", preloaded.join(":"));
        if let Some(spools) = spools {
            let options = format!("dir={};target=all;wait_ms=0", spools.display());
            command.env("MEMGATE_AGENT_OPTIONS", options);
            // As memgate sets it.
            command.env("ASAN_OPTIONS", "verify_asan_link_order=0");
        }
        let mut child = command.spawn().unwrap();
        let pid = Pid::from_child(&child);
        let (ended, end) = mpsc::channel();
        let waiting = std::thread::spawn(move || ended.send(child.wait().unwrap()).unwrap());
        let status = end.recv_timeout(DEADLINE).unwrap_or_else(|_| {
            kill_process(pid, Signal::KILL).unwrap();
            panic!("{how}: {:?} hangs", self.command)
        });
        waiting.join().unwrap();
        let text = |path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        (status, text(&out), text(&err))
    }
}

impl Driven {
    /// Checks how it ended: exit status, or minus the signal number.
    #[track_caller]
    pub(crate) fn ends_with(self, wanted: i32) -> Self {
        let ended = self.status.code().unwrap_or_else(|| -self.status.signal().unwrap());
        assert_eq!(ended, wanted, "{}\n{}", self.stdout, self.stderr[0]);
        self
    }

    /// The only process that ran this program from the start.
    #[track_caller]
    pub(crate) fn main(&self, program: &Path) -> &Stream {
        let of_it: Vec<&Stream> = self.mains(program).collect();
        let [only] = of_it.as_slice() else { panic!("{} streams of {}", of_it.len(), program.display()) };
        only
    }

    /// The processes that ran this program from the start, ordered by the names of their streams.
    pub(crate) fn mains(&self, program: &Path) -> impl Iterator<Item = &Stream> {
        let path = program.to_str().unwrap().to_owned();
        self.streams.iter().filter(move |s| s.hello.role == ProcessRole::Main && s.hello.executable == path)
    }

    /// The forked processes.
    pub(crate) fn forked(&self) -> impl Iterator<Item = &Stream> {
        self.streams.iter().filter(|s| s.hello.role == ProcessRole::ForkChild)
    }
}

impl Stream {
    fn of(path: &Path) -> Self {
        let mut frames = spool::frames(path);
        let Frame::Hello(hello) = frames.remove(0) else { panic!("{} has no hello", path.display()) };
        Self { hello, frames }
    }

    /// Number of blocks of this size alive at its end.
    pub(crate) fn kept(&self, size: u64) -> u64 {
        let records = self.frames.iter().filter_map(|frame| match frame {
            Frame::NativeSnapshot(part) => Some(&part.records),
            _ => None,
        });
        records.flatten().filter(|r| r.size == size).map(|r| r.count).sum()
    }

    /// Its goodbye frame.
    pub(crate) fn goodbye(&self) -> Option<&Goodbye> {
        self.frames.iter().find_map(|frame| if let Frame::Goodbye(bye) = frame { Some(bye) } else { None })
    }

    /// The agent's errors.
    pub(crate) fn errors(&self) -> Vec<&ErrorFrame> {
        self.frames
            .iter()
            .filter_map(|frame| if let Frame::Error(error) = frame { Some(error) } else { None })
            .collect()
    }

    /// Checks that the recording is exactly `keeps` (size, count), or that the stream says it is blind
    /// because of `whom`.
    #[track_caller]
    pub(crate) fn is_exact_or_says(&self, keeps: &[(u64, u64)], whom: &str) {
        match &self.hello.blind {
            Some(why) => {
                assert!(why.contains(whom) && why.contains("for the gate"), "not because of {whom}: {why}");
                assert_eq!(self.goodbye().unwrap().counters.allocations, 0, "and nothing is half measured");
            }
            None => self.is_exact(keeps),
        }
    }

    /// Checks that everything was recorded, and that these blocks were alive at the end.
    #[track_caller]
    pub(crate) fn is_exact(&self, keeps: &[(u64, u64)]) {
        assert_eq!(self.hello.blind, None);
        assert_eq!(self.errors(), [] as [&ErrorFrame; 0]);
        for (size, count) in keeps {
            assert_eq!(self.kept(*size), *count, "blocks of {size}");
        }
        assert!(self.goodbye().is_some());
    }
}

/// Result of `memgate run -- PROGRAM ARGUMENTS`.
pub(crate) fn gate(name: &str, program: &Path, arguments: &[&str]) -> Run {
    let program = program.to_str().unwrap();
    Project::new(&format!("life-gate-{name}")).memgate(&[&["run", "--", program], arguments].concat())
}

/// Checks that memgate reports "not measured" with these texts about cause and advice, and ends with the
/// matching exit code.
#[track_caller]
pub(crate) fn is_not_measured(run: &Run, why: &[&str]) {
    run.ends_with(2);
    assert_eq!(run.report().verdict, memgate_model::Verdict::Error, "{run}");
    for text in ["not measured"].iter().chain(why) {
        run.says(text);
    }
}
