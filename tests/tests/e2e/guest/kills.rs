//! `kill -9` of the tested process and of the harness at random moments: nothing hangs, nothing passes that
//! was not measured, the recording can be read to its last whole frame, and the user's tests continue without
//! their harness.
//!
//! Every test run does six kills; `tests/proofs/kills` does more. Each has a number that determines
//! everything about it: `MEMGATE_KILLS=1 MEMGATE_KILLS_SEED=4711` repeats one.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use memgate_e2e::{Project, memgate, probes, samples, say};
use memgate_model::{RunReport, Verdict};
use memgate_wire::spool::{CONTROL_BYTES, Extent, offset};
use memgate_wire::{Decoded, Frame, decode};
use rustix::process::{Pid, Signal, kill_process};

/// Nothing here takes longer, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long the guest waits for a harness, once.
const BOUNDARY_WAIT: Duration = Duration::from_secs(2);
/// How long to wait for a moment in the guest (a boundary, a growing spool).
const MOMENT: Duration = Duration::from_millis(400);
/// Kills at the same time.
const SIDE_BY_SIDE: usize = 2;

/// A suite of short tests, some of which leave much behind from many places, so that boundaries take long and
/// the spool grows.
const SUITE: &str = r#"
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>
static void *volatile sink;
__attribute__((noinline)) void *deep(int depth, unsigned path, size_t n);
__attribute__((noinline)) void *left(int depth, unsigned path, size_t n) { void *p = deep(depth, path, n); sink = p; return p; }
__attribute__((noinline)) void *right(int depth, unsigned path, size_t n) { void *p = deep(depth, path, n); sink = p; return p; }
void *deep(int depth, unsigned path, size_t n) {
  if (depth == 0) return malloc(n);
  return path & 1 ? left(depth - 1, path >> 1, n) : right(depth - 1, path >> 1, n);
}
static void work() { for (int i = 0; i < 300; i++) { free(deep(6, i, 40)); usleep(50); } }
TEST(Clean, A) { work(); }
TEST(Clean, B) { work(); }
#ifdef LEAKY
TEST(Leaky, One) { deep(6, 5, 61); }
TEST(Leaky, Many) { for (unsigned i = 0; i < 2500; i++) deep(12, i, 9 + i % 5); }
#endif
TEST(Clean, C) { work(); }
TEST(Clean, D) { void *all[8000]; for (unsigned i = 0; i < 8000; i++) all[i] = deep(13, i, 33); usleep(3000); for (void *p : all) free(p); }
TEST(Clean, E) { work(); }
"#;

/// Chooses a kill: SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Guest,
    Harness,
}

/// The moment to wait for after the random delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    Anywhere,
    AtABoundary,
    WhileTheSpoolGrows,
}

/// One of the two suites, and how long it takes with memgate if nothing is killed.
struct Subject {
    leaky: bool,
    program: PathBuf,
    screen: Duration,
    whole: Duration,
}

/// A run that was killed, and its state.
struct Killed<'a> {
    subject: &'a Subject,
    project: Project,
    victim: Victim,
    /// What the harness was doing, for the summary.
    phase: String,
}

#[test]
fn kills_at_random_moments_leave_a_readable_session_and_no_wrong_verdict() {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let kills = number("MEMGATE_KILLS").unwrap_or(6);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let first = number("MEMGATE_KILLS_SEED").unwrap_or_else(|| now.as_secs() % 1_000_000 * 1000);
    say(&format!("kills: {kills}, seeds {first} to {}", first + kills - 1));
    let subjects = [subject(false), subject(true)];
    let (taken, phases) = (AtomicU64::new(0), Mutex::new(BTreeMap::<String, u32>::new()));
    let work = || {
        loop {
            let i = taken.fetch_add(1, Ordering::Relaxed);
            if i >= kills {
                return;
            }
            let phase = kill_once(first + i, &subjects);
            *phases.lock().unwrap().entry(phase).or_default() += 1;
        }
    };
    std::thread::scope(|scope| (0..SIDE_BY_SIDE).for_each(|_| drop(scope.spawn(work))));
    let phases = phases.into_inner().unwrap();
    for (phase, count) in &phases {
        say(&format!("kills: {count:4}  {phase}"));
    }
    assert_eq!(u64::from(phases.values().sum::<u32>()), kills, "each was judged");
}

/// Builds a suite and runs it once undisturbed, which checks the verdicts and gives the reference times.
fn subject(leaky: bool) -> Subject {
    let name = if leaky { "kills_leaky" } else { "kills_clean" };
    let source = if leaky { format!("#define LEAKY\n{SUITE}") } else { SUITE.to_owned() };
    let program = samples::own_suite(name, &source);
    let project = Project::new(name);
    assert!(memgate().exists(), "it is built before the clock runs");
    let begun = Instant::now();
    let run = project.run(&wrapper(&project, &program));
    let whole = begun.elapsed();
    run.ends_with(i32::from(leaky));
    let report = run.report();
    check_verdicts(&report, leaky).unwrap_or_else(|wrong| panic!("undisturbed, {wrong}:\n{run}"));
    assert_eq!(report.suites[0].tests.len(), if leaky { 7 } else { 5 });
    Subject { leaky, program, screen: Duration::from_secs_f64(report.suites[0].screened_s), whole }
}

/// A script that records the exit status of the tests: it outlives the harness.
fn wrapper(project: &Project, program: &Path) -> PathBuf {
    let script = format!(
        "#!/bin/sh\n{program} \"$@\"\nstatus=$?\necho $status >{folder}/status.new && mv {folder}/status.new {folder}/status\nexit $status\n",
        program = program.display(),
        folder = project.folder().display(),
    );
    let path = project.write("tests.sh", script);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn kill_once(seed: u64, subjects: &[Subject; 2]) -> String {
    let mut dice = Dice(seed);
    let subject = &subjects[usize::try_from(dice.below(2)).unwrap()];
    let victim = if dice.below(2) == 0 { Victim::Guest } else { Victim::Harness };
    let aim = [Aim::Anywhere, Aim::Anywhere, Aim::AtABoundary, Aim::WhileTheSpoolGrows]
        [usize::try_from(dice.below(4)).unwrap()];
    // The screen is short compared with the confirming runs: half of the kills aim at it.
    let within = if dice.below(2) == 0 { subject.screen * 3 / 2 } else { subject.whole * 9 / 10 };
    let delay = Duration::from_micros(dice.below(u64::try_from(within.as_micros()).unwrap()));

    let project = Project::new(&format!("kill-{}", seed % 64));
    let script = wrapper(&project, &subject.program);
    let output = |name: &str| File::create(project.folder().join(name)).unwrap();
    let mut memgate = project
        .command(&["run".as_ref(), "--".as_ref(), script.as_os_str()])
        .stdout(output("stdout"))
        .stderr(output("stderr"))
        .spawn()
        .unwrap();
    // The random delay.
    std::thread::sleep(delay);
    let phase = kill_at(&project, &mut memgate, victim, aim, delay);
    let killed = Killed { subject, project, victim, phase };
    if let Err(wrong) = killed.check(&mut memgate) {
        // Panics at once, before the next kill reuses its folder.
        panic!("kill {seed} ({victim:?}, {aim:?} after {delay:?}, {}): {wrong}", killed.phase);
    }
    killed.phase
}

/// Waits for the moment, kills, and returns what was killed while doing what.
fn kill_at(project: &Project, memgate: &mut Child, victim: Victim, aim: Aim, delay: Duration) -> String {
    let until = Instant::now() + if aim == Aim::Anywhere { Duration::ZERO } else { MOMENT };
    let mut before = None;
    let guest = loop {
        let guest = newest_guest(project);
        let length = guest.as_ref().and_then(|guest| fs::metadata(&guest.stream).ok()).map(|m| m.len());
        let grown = before.is_some_and(|before| before != length);
        before = Some(length);
        let hit = match aim {
            Aim::Anywhere => true,
            Aim::AtABoundary => guest.as_ref().is_some_and(Guest::waits),
            Aim::WhileTheSpoolGrows => grown && length.is_some(),
        };
        if hit || Instant::now() >= until {
            break guest;
        }
        std::thread::yield_now();
    };
    let ended = memgate.try_wait().unwrap().is_some();
    let at = match &guest {
        _ if ended => "after its end".to_owned(),
        None if delay < Duration::from_millis(100) => "at its start".to_owned(),
        None => "with no guest alive".to_owned(),
        Some(guest) => {
            let place = if guest.waits() { "at a boundary" } else { "between boundaries" };
            format!("{} {place}", if guest.confirming() { "confirming," } else { "screening," })
        }
    };
    match victim {
        Victim::Harness => memgate.kill().unwrap(),
        Victim::Guest => {
            if let Some(guest) = guest {
                // The guest may have ended meanwhile: then this run is undisturbed.
                let _ended = kill_process(guest.pid, Signal::KILL);
            }
        }
    }
    format!("{victim:?} {at}")
}

/// A running tested process.
struct Guest {
    pid: Pid,
    stream: PathBuf,
}

impl Guest {
    fn page(&self) -> Vec<u8> {
        let mut page = vec![0; CONTROL_BYTES];
        let got = File::open(&self.stream).and_then(|file| file.read_at(&mut page, 0)).unwrap_or(0);
        page.truncate(got);
        page
    }

    /// Does it wait at a boundary without an answer?
    fn waits(&self) -> bool {
        let page = self.page();
        let word = |at: usize| page.get(at..at + 4).map(<[u8]>::to_vec);
        word(offset::BOUNDARY).is_some() && word(offset::BOUNDARY) != word(offset::ACKNOWLEDGED)
    }

    fn confirming(&self) -> bool {
        let first = fs::read(&self.stream).unwrap_or_default();
        let hello = first.get(CONTROL_BYTES..).and_then(|bytes| decode(bytes, 0).ok());
        matches!(hello, Some(Decoded::Frame { frame: Frame::Hello(hello), .. }) if hello.label.starts_with("confirm"))
    }
}

fn guests(project: &Project) -> Vec<Guest> {
    let entries = fs::read_dir(project.session().join("frames")).into_iter().flatten().flatten();
    let mut guests: Vec<_> = entries
        .filter_map(|entry| {
            let stream = entry.path();
            let name = stream.file_name()?.to_str()?.to_owned();
            let (pid, rest) = name.split_once('-')?;
            let is_spool = rest.ends_with(".mgf") && !rest.ends_with(".os.mgf");
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok().filter(|_| is_spool)?;
            let time: u64 = rest.strip_suffix(".mgf")?.parse().ok()?;
            let pid = Pid::from_raw(pid.parse().ok()?)?;
            maps.contains(&name).then_some((time, Guest { pid, stream }))
        })
        .collect();
    guests.sort_by_key(|(time, _)| *time);
    guests.into_iter().map(|(_, guest)| guest).collect()
}

fn newest_guest(project: &Project) -> Option<Guest> {
    guests(project).pop()
}

impl Killed<'_> {
    fn check(&self, memgate: &mut Child) -> Result<(), String> {
        let killed_at = Instant::now();
        let status = wait(memgate)?;
        self.guests_end(killed_at)?;
        if self.victim == Victim::Guest {
            self.harness_is_right(status)?;
        }
        let told = fs::read_to_string(self.project.folder().join("stderr")).unwrap_or_default();
        if told.contains("panicked") || told.contains("by a defect") {
            return Err(format!("memgate panicked:\n{told}"));
        }
        if !self.project.session().exists() {
            // memgate was killed before it started anything.
            return Ok(());
        }
        self.streams_are_whole()?;
        self.session_is_readable()
    }

    /// All started processes end by themselves, without long delays.
    fn guests_end(&self, killed_at: Instant) -> Result<(), String> {
        // The wrapped tests take a part of `whole`; the rest allows for a busy machine.
        let limit = self.subject.whole * 4 + BOUNDARY_WAIT + Duration::from_secs(15);
        loop {
            let left = guests(&self.project);
            if left.is_empty() {
                break;
            }
            if killed_at.elapsed() > limit {
                let pids: Vec<_> = left.iter().map(|guest| guest.pid).collect();
                return Err(format!("{pids:?} still run {limit:?} after the kill"));
            }
            // Other processes end: there is no event to wait for.
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.victim != Victim::Harness || !self.started() {
            return Ok(());
        }
        let path = self.project.folder().join("status");
        let begun = Instant::now();
        while !path.exists() {
            if begun.elapsed() > DEADLINE {
                return Err("the wrapped tests did not come to their end".to_owned());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let status = self.project.read("status");
        let told = self.project.read("stdout");
        let tests = if self.subject.leaky { 7 } else { 5 };
        if status.trim() != "0" || !told.contains(&format!("[  PASSED  ] {tests} tests.")) {
            return Err(format!("without its harness the suite ended with {status}{told}"));
        }
        Ok(())
    }

    /// Did the wrapped tests begin?
    fn started(&self) -> bool {
        self.project.read("stdout").contains("[==========]")
    }

    /// Checks the harness's verdict on a run whose guest was killed.
    fn harness_is_right(&self, status: ExitStatus) -> Result<(), String> {
        let told = self.project.read("stderr");
        let report = self.project.session().join("report.json");
        let text = fs::read_to_string(&report).map_err(|e| format!("no report ({e}); {status}\n{told}"))?;
        self.judged_right("memgate run", status.code(), &text)
    }

    /// Checks that the result is right as far as it goes: a pass only if nothing is missing.
    fn judged_right(&self, who: &str, code: Option<i32>, report: &str) -> Result<(), String> {
        let report: RunReport =
            serde_json::from_str(report).map_err(|e| format!("{who}: no report: {e}\n{report}"))?;
        if code != Some(report.exit_code) {
            return Err(format!("{who} ended with {code:?}, its report says {}", report.exit_code));
        }
        check_verdicts(&report, self.subject.leaky)
            .map_err(|wrong| format!("{who}: {wrong}: {report:#?}"))?;
        let complete = !self.subject.leaky
            && self.complete()
            && report.suites.iter().map(|s| s.tests.len()).sum::<usize>() == 5;
        if (code == Some(0) || report.verdict == Verdict::Pass) && !complete {
            return Err(format!("{who} passes what was not measured to its end: {report:#?}"));
        }
        Ok(())
    }

    /// Did the suite reach its end, by its exit status and by its stream?
    fn complete(&self) -> bool {
        let ended_well =
            fs::read_to_string(self.project.folder().join("status")).is_ok_and(|s| s.trim() == "0");
        let screen = self.project.streams().into_iter().find_map(|path| whole_frames(&path).ok());
        ended_well && screen.is_some_and(|frames| matches!(frames.last(), Some(Frame::Goodbye(_))))
    }

    fn streams_are_whole(&self) -> Result<(), String> {
        let folder = self.project.session().join("frames");
        if !folder.exists() {
            return Ok(());
        }
        for path in self.project.streams() {
            whole_frames(&path).map_err(|wrong| format!("{}: {wrong}", path.display()))?;
        }
        Ok(())
    }

    /// `memgate gate` and `memgate report` give a result or say what is missing.
    fn session_is_readable(&self) -> Result<(), String> {
        let session = self.project.session();
        let gate = self.project.memgate(&["gate", "--format", "json", session.to_str().unwrap()]);
        if gate.stderr.contains("panicked") {
            return Err(format!("memgate gate panicked:\n{gate}"));
        }
        match gate.code {
            Some(0..=2) if gate.stdout.starts_with('{') => {
                self.judged_right("memgate gate", gate.code, &gate.stdout)?;
            }
            Some(2) if gate.stderr.contains("error: ") => {}
            _ => return Err(format!("memgate gate gives neither a result nor a reason:\n{gate}")),
        }
        let report = self.project.memgate(&["report", session.to_str().unwrap()]);
        let has_report = session.join("report.json").exists();
        match report.code {
            Some(0) if has_report => Ok(()),
            Some(2) if !has_report && report.stderr.contains("report.json") => Ok(()),
            _ => Err(format!("memgate report gives neither a report nor what is missing:\n{report}")),
        }
    }
}

/// A leaking test never passes, a clean one is never reported as a leak, and a crashed one is an error.
fn check_verdicts(report: &RunReport, leaky: bool) -> Result<(), String> {
    for test in report.suites.iter().flat_map(|suite| &suite.tests) {
        let right = if test.id.starts_with("Leaky.") {
            matches!(test.verdict, Verdict::Fail | Verdict::Error | Verdict::Warn)
        } else {
            matches!(test.verdict, Verdict::Pass | Verdict::Error)
        };
        if !right {
            return Err(format!("{} is {:?}: {}", test.id, test.verdict, test.reason));
        }
    }
    let passes = report.verdict == Verdict::Pass || report.exit_code == 0;
    if leaky && passes { Err("a leaking suite passes".to_owned()) } else { Ok(()) }
}

fn wait(child: &mut Child) -> Result<ExitStatus, String> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Ok(status);
        }
        if begun.elapsed() > DEADLINE {
            child.kill().unwrap();
            return Err(format!("memgate still runs after {DEADLINE:?}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The frames up to the end that the control page calls committed; they must be whole.
fn whole_frames(path: &Path) -> Result<Vec<Frame>, String> {
    let bytes = probes::stream_bytes(path);
    let extent = Extent::of(&bytes);
    let end = usize::try_from(extent.end.ok_or("no control page")?).unwrap();
    let (mut at, mut frames) = (CONTROL_BYTES, Vec::new());
    let committed = bytes.get(..end).ok_or(format!("{end} bytes are committed of {}", bytes.len()))?;
    while at < end {
        match decode(&committed[at..], at as u64) {
            Ok(Decoded::Frame { frame, bytes, .. }) => {
                frames.push(frame);
                at += bytes;
            }
            other => return Err(format!("no frame at byte {at} of {end}: {other:?}")),
        }
    }
    Ok(frames)
}
