//! Runs other programs and waits for them. Both pipes are read meanwhile, so that no program blocks on a full
//! pipe. After a deadline that even a busy machine meets easily, the test fails with what it waited for, the
//! output so far, and where every thread stands.
//!
//! Data flow: one thread per pipe sends the output, a third waits for the exit; the channel closes when all
//! three are done → [`Running`] keeps the output until it is asked for → after the deadline [`standing`]
//! describes the process and its descendants, JVMs print their threads into the pipes, and all of them are
//! killed.

use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// A program that runs longer is taken to be hung. This is not a limit on its speed.
const PATIENCE: Duration = Duration::from_secs(900);
/// After this long without output, hung programs have given all their answers.
const QUIET: Duration = Duration::from_secs(10);

/// Asks until there is an answer, where no event tells when. `limit`: it comes long before.
#[track_caller]
pub fn until<T>(limit: Duration, what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(begun.elapsed() < limit, "waited for {limit:?} until {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A started program. Dropping the value kills a program that still runs.
pub struct Running {
    name: String,
    child: Child,
    patience: Duration,
    came: Receiver<Came>,
    out: Vec<u8>,
    err: Vec<u8>,
    /// Bytes of `out` that [`Self::hears`] has consumed.
    heard: usize,
    over: bool,
}

enum Came {
    Out(Vec<u8>),
    Err(Vec<u8>),
}

/// Runs a command to its end.
pub fn output(command: &mut Command) -> Output {
    Running::start(command.stdin(Stdio::null())).output()
}

impl Running {
    /// Starts the command.
    pub fn start(command: &mut Command) -> Self {
        let name = format!("{command:?}");
        let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|e| panic!("failed to start {name}: {e}"));
        let (sender, came) = channel();
        read(child.stdout.take().unwrap(), sender.clone(), Came::Out);
        read(child.stderr.take().unwrap(), sender.clone(), Came::Err);
        let pid = Pid::from_child(&child);
        thread::spawn(move || {
            // The process stays a zombie, so that it can still be killed or inspected; its status is
            // collected later.
            let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while waitid(WaitId::Pid(pid), ended).is_err_and(|why| why == Errno::INTR) {}
            drop(sender);
        });
        Self {
            name,
            child,
            patience: PATIENCE,
            came,
            out: Vec::new(),
            err: Vec::new(),
            heard: 0,
            over: false,
        }
    }

    /// Adds time for work that is slow by nature.
    #[must_use]
    pub fn with_patience(mut self, more: Duration) -> Self {
        self.patience += more;
        self
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Its standard input.
    pub fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    /// Waits for the next line of stdout, which must be `line`.
    #[track_caller]
    pub fn hears(&mut self, line: &str) {
        let heard = self.line(line);
        assert_eq!(heard, line, "{}", self.name);
    }

    /// Waits for the next line of stdout: `what`, in words.
    #[track_caller]
    pub fn line(&mut self, what: &str) -> String {
        let until = Instant::now() + self.patience;
        let end = loop {
            if let Some(end) = self.out[self.heard..].iter().position(|&byte| byte == b'\n') {
                break self.heard + end;
            }
            assert!(!self.over, "{} ended before it said `{what}`\n{}", self.name, self.said());
            self.wait(until, what);
        };
        let heard = String::from_utf8_lossy(&self.out[self.heard..end]).into_owned();
        self.heard = end + 1;
        heard
    }

    /// Waits for the exit, and collects all output that [`Self::hears`] has not consumed.
    #[track_caller]
    pub fn output(mut self) -> Output {
        let until = Instant::now() + self.patience;
        while !self.over {
            self.wait(until, "its end");
        }
        let status = self.child.wait().unwrap();
        let stdout = self.out.split_off(self.heard);
        Output { status, stdout, stderr: std::mem::take(&mut self.err) }
    }

    #[track_caller]
    fn wait(&mut self, until: Instant, what: &str) {
        if !self.comes(until.saturating_duration_since(Instant::now())) {
            let asked = self.asked();
            panic!("{}: waited {:?} for {what}\n{asked}{}", self.name, self.patience, self.said());
        }
    }

    /// Waits for output; false if none arrived in this time.
    fn comes(&mut self, limit: Duration) -> bool {
        match self.came.recv_timeout(limit) {
            Ok(Came::Out(bytes)) => self.out.extend(bytes),
            Ok(Came::Err(bytes)) => self.err.extend(bytes),
            Err(RecvTimeoutError::Disconnected) => self.over = true,
            Err(RecvTimeoutError::Timeout) => return false,
        }
        true
    }

    /// Describes where its threads are; JVMs answer through the pipes.
    fn asked(&mut self) -> String {
        let family = family(self.id());
        let asked = family.iter().map(|&pid| standing(pid)).collect();
        for &pid in family.iter().filter(|&&pid| is_java(pid)) {
            signal(pid, Signal::QUIT);
        }
        // Limited, because a hung program may keep printing.
        let quiet = QUIET.min(self.patience);
        let until = Instant::now() + quiet * 6;
        while !self.over && Instant::now() < until && self.comes(quiet) {}
        asked
    }

    fn said(&self) -> String {
        let text = String::from_utf8_lossy;
        format!("--- stdout\n{}--- stderr\n{}", text(&self.out), text(&self.err))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.over {
            family(self.id()).into_iter().for_each(|pid| signal(pid, Signal::KILL));
            drop(self.child.wait());
            // Waits until all of them have ended.
            while !self.over && self.comes(QUIET) {}
        }
    }
}

fn read(mut from: impl Read + Send + 'static, to: Sender<Came>, came: fn(Vec<u8>) -> Came) {
    thread::spawn(move || {
        let mut room = vec![0; 1 << 16];
        while let Ok(bytes @ 1..) = from.read(&mut room) {
            // Keep reading even if nobody listens any more: the program must not block on a full pipe.
            drop(to.send(came(room[..bytes].to_vec())));
        }
    });
}

/// A process and all its descendants.
fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let parents: Vec<(u32, u32)> = numbers("/proc").filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        family.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| pid));
        next += 1;
    }
    family
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name before it may contain anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn is_java(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.file_name() == Some("java".as_ref()))
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _it_may_have_ended = kill_process(pid, signal);
    }
}

/// Every thread of a process with its state and wait channel, and the native stacks if a debugger is
/// available.
fn standing(pid: u32) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let mut text = format!("--- process {pid}: {}\n", read("cmdline").replace('\0', " "));
    for thread in numbers(&format!("/proc/{pid}/task")) {
        let of = |name: &str| read(&format!("task/{thread}/{name}"));
        let status = of("status");
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned()
        };
        let (name, state) = (field("Name:"), field("State:"));
        writeln!(text, "{thread} {name}: {state}, in {}, call {}", of("wchan"), of("syscall").trim())
            .unwrap();
    }
    let debugger = ["60", "gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off"];
    let debugger = [&debugger[..], &["-ex", "thread apply all backtrace 40", "-p"]].concat();
    // Has its own timeout. The debugger may be missing or not permitted.
    let stacks = Command::new("timeout").args(debugger).arg(pid.to_string()).stdin(Stdio::null()).output();
    text + &stacks.map_or_else(|e| e.to_string(), |o| String::from_utf8_lossy(&o.stdout).into_owned())
}

/// The entries of a folder that are numbers.
fn numbers(folder: impl AsRef<Path>) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Running {
        Running::start(Command::new("sh").args(["-c", script]).stdin(Stdio::piped()))
    }

    #[test]
    fn both_pipes_are_read_while_a_line_is_waited_for() {
        let mut shell = shell(
            "echo first; head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero; echo; read word; echo $word; exit 3",
        );
        shell.hears("first");
        shell.hears(&"\0".repeat(300_000));
        let mut stdin = shell.stdin();
        std::io::Write::write_all(&mut stdin, b"second\n").unwrap();
        let output = shell.output();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b"second\n"[..]));
        assert_eq!(output.stderr.len(), 300_000);
    }

    #[test]
    fn one_that_hangs_is_killed_with_those_below_it_and_told() {
        let mut shell = shell("sleep 1000 & echo said; wait");
        shell.hears("said");
        shell.patience = Duration::from_millis(1);
        let pid = shell.id();
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shell.output())).unwrap_err();
        let told = told.downcast::<String>().unwrap();
        assert!(told.contains("waited 1ms for its end") && told.contains("--- stdout\nsaid\n"), "{told}");
        assert!(told.contains(&format!("--- process {pid}: sh -c ")), "{told}");
        let below =
            told.lines().find_map(|line| line.strip_prefix("--- process ")?.strip_suffix(": sleep 1000 "));
        let below = below.unwrap_or_else(|| panic!("{told}"));
        // An ended process has no command line, whether or not its status has been collected.
        assert!(
            fs::read(format!("/proc/{below}/cmdline")).unwrap_or_default().is_empty(),
            "{below} is killed"
        );
    }
}
