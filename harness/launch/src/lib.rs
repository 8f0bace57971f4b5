//! Processes on this machine: start, wait, stop, and capture their output.
//!
//! Every process leads its own process group. So stopping it also stops the processes that it started, and Ctrl-C at
//! the terminal reaches only memgate, which then decides. The kernel stops a background group that reads from the
//! terminal, so standard input is empty unless requested.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long to wait for the output of a process that has ended while another process still holds it open.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);

/// A program to start, with its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Looked up in `PATH` unless it contains a slash.
    pub program: PathBuf,
    /// `argv[0]`, if it differs from `program`.
    pub arg0: Option<OsString>,
    /// The other arguments.
    pub arguments: Vec<OsString>,
    /// Working directory; `None`: ours.
    pub directory: Option<PathBuf>,
    /// Environment.
    pub environment: Environment,
    /// Standard input.
    pub stdin: Stream,
    /// Standard output.
    pub stdout: Stream,
    /// Standard error.
    pub stderr: Stream,
}

/// The environment of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Environment {
    /// Ours, with changes: removals first.
    Inherit {
        /// Variables to set.
        set: Vec<(OsString, OsString)>,
        /// Variables to remove.
        remove: Vec<OsString>,
    },
    /// Only these variables.
    Exactly(Vec<(OsString, OsString)>),
}

/// A standard stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Ours.
    Inherit,
    /// Nothing.
    Null,
    /// Kept in memory, up to its last `limit` bytes. For input: an empty one.
    Capture {
        /// Maximum number of bytes kept.
        limit: usize,
    },
}

/// A process that was started. Dropping it before it has ended kills its group. Processes that an ended process left
/// running (a build daemon) belong to the user.
#[derive(Debug)]
pub struct Running {
    program: PathBuf,
    child: Child,
    group: Option<Pid>,
    stdout: Option<Capture>,
    stderr: Option<Capture>,
    /// Until when to wait for the rest of its output, once the process has ended.
    output_until: Option<Instant>,
    ended: bool,
}

/// How a process ended and what it printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How it ended.
    pub exit: Exit,
    /// Captured standard output.
    pub stdout: Vec<u8>,
    /// Captured standard error.
    pub stderr: Vec<u8>,
    /// Was more printed than is kept?
    pub cut: bool,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited.
    Code(i32),
    /// By a signal.
    Signal {
        /// Its number.
        number: i32,
        /// Did it leave a core?
        core_dumped: bool,
    },
}

/// Why a process could not be started or waited for.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// It could not be started.
    #[error("start {}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It could not be waited for.
    #[error("wait for {}", program.display())]
    Wait {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It did not end in time and was killed.
    #[error("wait for {}: it did not end within {limit:?}", program.display())]
    Timeout {
        /// The program.
        program: PathBuf,
        /// The limit.
        limit: Duration,
    },
}

impl Launch {
    /// A program with our environment and output, and without input.
    #[must_use]
    pub fn new(
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        Self {
            program: program.into(),
            arg0: None,
            arguments: arguments.into_iter().map(Into::into).collect(),
            directory: None,
            environment: Environment::Inherit { set: Vec::new(), remove: Vec::new() },
            stdin: Stream::Null,
            stdout: Stream::Inherit,
            stderr: Stream::Inherit,
        }
    }

    /// Starts the program. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The system refuses; the error has the program's name.
    pub fn start(self) -> Result<Running, LaunchError> {
        let Self { program, arg0, arguments, directory, environment, stdin, stdout, stderr } = self;
        let mut command = Command::new(&program);
        command.args(arguments).process_group(0);
        command.stdin(if stdin == Stream::Inherit { Stdio::inherit() } else { Stdio::null() });
        command.stdout(stdout.stdio()).stderr(stderr.stdio());
        if let Some(arg0) = arg0 {
            command.arg0(arg0);
        }
        if let Some(directory) = directory {
            command.current_dir(directory);
        }
        match environment {
            Environment::Inherit { set, remove } => {
                for name in remove {
                    command.env_remove(name);
                }
                command.envs(set);
            }
            Environment::Exactly(all) => {
                command.env_clear().envs(all);
            }
        }
        let mut child =
            command.spawn().map_err(|source| LaunchError::Start { program: program.clone(), source })?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let stdout = Capture::of(child.stdout.take(), stdout);
        let stderr = Capture::of(child.stderr.take(), stderr);
        Ok(Running { program, child, group, stdout, stderr, output_until: None, ended: false })
    }
}

impl Environment {
    /// The value that a variable will have.
    #[must_use]
    pub fn get(&self, name: &OsStr) -> Option<OsString> {
        let among =
            |set: &[(OsString, OsString)]| set.iter().rfind(|(n, _)| n == name).map(|(_, v)| v.clone());
        match self {
            Self::Exactly(all) => among(all),
            Self::Inherit { set, remove } => among(set)
                .or_else(|| if remove.iter().any(|n| n == name) { None } else { std::env::var_os(name) }),
        }
    }

    /// Sets a variable.
    pub fn set(&mut self, name: OsString, value: OsString) {
        let (Self::Inherit { set, .. } | Self::Exactly(set)) = self;
        set.retain(|(n, _)| *n != name);
        set.push((name, value));
    }
}

impl Stream {
    fn stdio(self) -> Stdio {
        match self {
            Self::Inherit => Stdio::inherit(),
            Self::Null => Stdio::null(),
            Self::Capture { .. } => Stdio::piped(),
        }
    }
}

impl Running {
    /// Its process id, which is also that of its group.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.group.map_or(0, |group| group.as_raw_nonzero().get().unsigned_abs())
    }

    /// Waits until the process has ended. May be cancelled and called again.
    ///
    /// Processes that it started may live on, in its group: [`Running::kill`] ends them.
    ///
    /// # Errors
    /// The system cannot report how it ended.
    pub async fn wait(&mut self) -> Result<Ended, LaunchError> {
        let status = self
            .child
            .wait()
            .await
            .map_err(|source| LaunchError::Wait { program: self.program.clone(), source })?;
        // If this wait is cancelled, the next one does not begin again.
        let until = *self.output_until.get_or_insert_with(|| Instant::now() + OUTPUT_GRACE);
        let (stdout, out_cut) = Capture::finish(self.stdout.as_mut(), until).await;
        let (stderr, err_cut) = Capture::finish(self.stderr.as_mut(), until).await;
        self.ended = true;
        Ok(Ended { exit: Exit::from(status), stdout, stderr, cut: out_cut || err_cut })
    }

    /// Asks the whole group to end (SIGTERM), and kills the remaining processes after `grace`.
    ///
    /// # Errors
    /// As [`Running::wait`].
    pub async fn stop(&mut self, grace: Duration) -> Result<Ended, LaunchError> {
        self.signal(Signal::TERM);
        if let Ok(ended) = tokio::time::timeout(grace, self.wait()).await {
            self.kill();
            return ended;
        }
        self.kill();
        self.wait().await
    }

    /// Kills the whole group at once.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            #[expect(clippy::let_underscore_must_use, reason = "nobody left to be told is what was wanted")]
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.kill();
        }
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, number) => Self::Signal { number: number.unwrap_or(0), core_dumped: status.core_dumped() },
        }
    }
}

impl Exit {
    /// Did the process report success?
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Code(0))
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal { number, core_dumped } => {
                write!(f, "signal {number}")?;
                if let Some(name) = signal_name(number) {
                    write!(f, " ({name})")?;
                }
                if core_dumped { f.write_str(", core dumped") } else { Ok(()) }
            }
        }
    }
}

/// Starts a program, waits for it and returns its output; kills it after `limit`.
///
/// # Errors
/// It cannot be started, or does not end in time.
pub async fn output(launch: Launch, limit: Duration) -> Result<Ended, LaunchError> {
    let program = launch.program.clone();
    let mut running = launch.start()?;
    match tokio::time::timeout(limit, running.wait()).await {
        Ok(ended) => ended,
        Err(_elapsed) => {
            running.stop(Duration::ZERO).await?;
            Err(LaunchError::Timeout { program, limit })
        }
    }
}

fn signal_name(number: i32) -> Option<&'static str> {
    Some(match Signal::from_named_raw(number)? {
        Signal::HUP => "SIGHUP",
        Signal::INT => "SIGINT",
        Signal::QUIT => "SIGQUIT",
        Signal::ILL => "SIGILL",
        Signal::TRAP => "SIGTRAP",
        Signal::ABORT => "SIGABRT",
        Signal::BUS => "SIGBUS",
        Signal::FPE => "SIGFPE",
        Signal::KILL => "SIGKILL",
        Signal::SEGV => "SIGSEGV",
        Signal::PIPE => "SIGPIPE",
        Signal::ALARM => "SIGALRM",
        Signal::TERM => "SIGTERM",
        Signal::XCPU => "SIGXCPU",
        Signal::XFSZ => "SIGXFSZ",
        Signal::SYS => "SIGSYS",
        _ => return None,
    })
}

/// A pipe that a task reads to its end; its last bytes are kept.
#[derive(Debug)]
struct Capture {
    tail: Arc<Mutex<Tail>>,
    reader: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Tail {
    bytes: VecDeque<u8>,
    cut: bool,
}

impl Capture {
    fn of(pipe: Option<impl AsyncRead + Unpin + Send + 'static>, stream: Stream) -> Option<Self> {
        let (Some(mut pipe), Stream::Capture { limit }) = (pipe, stream) else { return None };
        let tail = Arc::new(Mutex::new(Tail::default()));
        let into = Arc::clone(&tail);
        let reader = tokio::spawn(async move {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(got @ 1..) = pipe.read(&mut buffer).await {
                let mut tail = into.lock().unwrap_or_else(PoisonError::into_inner);
                tail.push(buffer.get(..got).unwrap_or_default(), limit);
            }
        });
        Some(Self { tail, reader })
    }

    /// The output until the pipe's end; a surviving descendant may delay that end forever.
    async fn finish(capture: Option<&mut Self>, until: Instant) -> (Vec<u8>, bool) {
        let Some(Self { tail, reader }) = capture else { return (Vec::new(), false) };
        if !reader.is_finished() && tokio::time::timeout_at(until, &mut *reader).await.is_err() {
            reader.abort();
        }
        let tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        (tail.bytes.iter().copied().collect(), tail.cut)
    }
}

impl Tail {
    fn push(&mut self, bytes: &[u8], limit: usize) {
        self.bytes.extend(bytes);
        let over = self.bytes.len().saturating_sub(limit);
        self.cut |= over > 0;
        self.bytes.drain(..over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Launch {
        let capture = Stream::Capture { limit: 1000 };
        Launch { stdout: capture, stderr: capture, ..Launch::new("sh", ["-c", script]) }
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap().trim_end()
    }

    #[tokio::test]
    async fn both_outputs_and_the_exit_code_come_back() {
        let ended = output(shell("echo out; echo err >&2; exit 3"), LONG).await.unwrap();
        assert_eq!((text(&ended.stdout), text(&ended.stderr)), ("out", "err"));
        assert_eq!((ended.exit, ended.cut), (Exit::Code(3), false));
        assert_eq!(ended.exit.to_string(), "exit code 3");
    }

    #[tokio::test]
    async fn a_signal_is_named() {
        let ended = output(shell("kill -SEGV $$"), LONG).await.unwrap();
        let Exit::Signal { number: 11, .. } = ended.exit else { panic!("{:?}", ended.exit) };
        assert!(ended.exit.to_string().starts_with("signal 11 (SIGSEGV)"));
        assert!(!ended.exit.is_success());
    }

    #[tokio::test]
    async fn a_missing_program_is_an_error_that_names_it() {
        let error = Launch::new("/nowhere/tests", ["x"]).start().unwrap_err();
        assert_eq!(error.to_string(), "start /nowhere/tests");
    }

    #[tokio::test]
    async fn stopping_ends_the_whole_group_even_what_ignores_sigterm() {
        // The shell prints the pid of a grandchild that ignores SIGTERM, then waits for it.
        let mut running = shell("(trap '' TERM; sleep 300) & echo $!; wait").start().unwrap();
        let tail = Arc::clone(&running.stdout.as_ref().unwrap().tail);
        let grandchild = loop {
            let printed: Vec<u8> = tail.lock().unwrap().bytes.iter().copied().collect();
            if printed.ends_with(b"\n") {
                break text(&printed).parse::<u32>().unwrap();
            }
            tokio::task::yield_now().await;
        };
        let begun = Instant::now();
        let ended = running.stop(Duration::from_millis(100)).await.unwrap();
        assert!(matches!(ended.exit, Exit::Signal { number: 15 | 9, .. }), "{:?}", ended.exit);
        assert!(begun.elapsed() < LONG);
        let stat = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        while !stat(grandchild).is_empty() && !stat(grandchild).contains(") Z ") {
            assert!(begun.elapsed() < LONG, "{}", stat(grandchild));
            tokio::task::yield_now().await;
        }
    }

    /// Regression: each cancelled wait began to wait again, so a daemon of a test held up its repetitions.
    #[tokio::test]
    async fn an_output_that_somebody_else_keeps_open_does_not_hang_the_wait() {
        let mut running = shell("sleep 300 & echo done").start().unwrap();
        let begun = Instant::now();
        let ended = loop {
            if let Ok(ended) = tokio::time::timeout(OUTPUT_GRACE / 5, running.wait()).await {
                break ended.unwrap();
            }
            assert!(begun.elapsed() < LONG);
        };
        assert_eq!((text(&ended.stdout), ended.exit), ("done", Exit::Code(0)));
        running.kill();
    }

    #[tokio::test]
    async fn a_time_out_kills_and_says_how_long_was_waited() {
        let error = output(shell("sleep 300"), Duration::from_millis(30)).await.unwrap_err();
        assert_eq!(error.to_string(), "wait for sh: it did not end within 30ms");
    }

    #[tokio::test]
    async fn only_the_end_of_a_long_output_is_kept() {
        let ended =
            output(shell("i=0; while [ $i -lt 999 ]; do echo $i; i=$((i+1)); done"), LONG).await.unwrap();
        assert_eq!((ended.stdout.len(), ended.cut), (1000, true));
        assert!(text(&ended.stdout).ends_with("\n997\n998"));
    }

    #[test]
    fn a_removed_variable_has_no_value_and_a_set_one_its_last() {
        let mut environment = Environment::Inherit { set: Vec::new(), remove: vec!["PATH".into()] };
        assert_eq!(environment.get(OsStr::new("PATH")), None);
        environment.set("PATH".into(), "/a".into());
        environment.set("PATH".into(), "/b".into());
        assert_eq!(environment.get(OsStr::new("PATH")), Some("/b".into()));
        let inherited = Environment::Inherit { set: Vec::new(), remove: Vec::new() };
        assert_eq!(inherited.get(OsStr::new("PATH")), std::env::var_os("PATH"));
    }
}
