//! The guest is this test program: either this process (then `/proc` is not read), or the program started again as a
//! child.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use memgate_map::{Bell, ControlPage, Woken};
use memgate_wire::reply::Reply;
use memgate_wire::spool::{self, offset, order, state};
use memgate_wire::{
    AgentCost, Boundary, BoundaryKind, Counters, Frame, Goodbye, GoodbyeReason, Handles, Hello, capability,
    encode,
};

use super::*;
use crate::reading::stream::{os_path, read_process};

/// No test may depend on this time: if it passes, a wake-up was lost.
const LONG: Duration = Duration::from_secs(30);

const GUEST_FOLDER: &str = "MEMGATE_TEST_GUEST_FOLDER";
const GUEST_DOES: &str = "MEMGATE_TEST_GUEST_DOES";

fn options() -> Options {
    Options { interval: LONG * 2, wait: LONG, listing_stands: Duration::ZERO, version: "test".into() }
}

/// The agent's side of a spool.
struct Guest {
    path: PathBuf,
    page: ControlPage,
    committed: u64,
    sequence: u32,
}

impl Guest {
    fn new(folder: &Path) -> Self {
        let pid = std::process::id();
        let path = folder.join(format!("{pid}-{}.mgf", sampler::now_ns()));
        let new = path.with_extension("mgf.new");
        let file = File::options().read(true).write(true).create_new(true).open(&new).unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&spool::MAGIC, 0).unwrap();
        let page = ControlPage::map(file).unwrap();
        page.store_u32(offset::PID, pid).unwrap();
        page.store_u32(offset::STATE, state::RECORDING).unwrap();
        let mut guest = Self { path, page, committed: 4096, sequence: 0 };
        guest.commit(&[]);
        fs::rename(new, &guest.path).unwrap();
        guest.frame(&Frame::Hello(Hello {
            agent_version: "guest".into(),
            pid,
            abi: "x86_64-linux-gnu".into(),
            executable: "/bin/guest".into(),
            arguments: vec!["guest".into()],
            working_directory: "/".into(),
            capabilities: vec![capability::NATIVE_COPY.to_owned()],
            ..Hello::default()
        }));
        guest
    }

    fn commit(&mut self, bytes: &[u8]) {
        self.page.file().write_all_at(bytes, self.committed).unwrap();
        self.committed += bytes.len() as u64;
        self.page.store_u64(offset::COMMITTED, self.committed).unwrap();
    }

    fn frame(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        encode(frame, sampler::now_ns(), &mut bytes);
        self.commit(&bytes);
    }

    /// Reports a boundary, waits for the harness and returns its orders.
    fn boundary(&mut self, kind: BoundaryKind, test: &str) -> u32 {
        self.wait_until(offset::HARNESS, 1);
        self.sequence += 1;
        self.frame(&Frame::Boundary(Boundary {
            sequence: self.sequence,
            kind,
            suite: "S".into(),
            test: test.into(),
            thread_id: 1,
            open_tests: 1,
            ..Boundary::default()
        }));
        self.page.store_u32(offset::BOUNDARY, self.sequence).unwrap();
        self.page.wake(offset::BOUNDARY).unwrap();
        self.wait_until(offset::ACKNOWLEDGED, self.sequence);
        // The high bits are the boundary of the orders.
        self.page.load_u32(offset::ORDERS).unwrap() & 0xff
    }

    fn wait_until(&self, word: usize, value: u32) {
        loop {
            let seen = self.page.load_u32(word).unwrap();
            if seen == value {
                return;
            }
            let woken = self.page.wait(word, seen, &Bell::default(), LONG).unwrap();
            assert_ne!(woken, Woken::Timeout, "word {word} never became {value}");
        }
    }

    fn close(mut self) {
        let (counters, cost) = (Counters::default(), AgentCost::default());
        self.frame(&Frame::Goodbye(Goodbye { reason: GoodbyeReason::Exit, status: Some(0), counters, cost }));
        self.page.store_u32(offset::STATE, state::CLOSED).unwrap();
        self.page.store_u32(offset::BOUNDARY, self.sequence + 1).unwrap();
        self.page.wake(offset::BOUNDARY).unwrap();
    }
}

/// Events that a test sees of a recorder.
#[derive(Debug)]
enum Seen {
    Started(Box<Process>),
    Frame(Box<Frame>, u64),
    Ended(ProcessEnd),
}

struct Tell(Mutex<Sender<Seen>>);

impl Observe for Tell {
    fn started(&self, process: &Process) -> Box<dyn Follow> {
        let tell = lock(&self.0).clone();
        tell.send(Seen::Started(Box::new(process.clone()))).unwrap();
        Box::new(TellOf(tell))
    }
}

struct TellOf(Sender<Seen>);

impl Follow for TellOf {
    fn frame(&mut self, frame: Frame, t_ns: u64) {
        self.0.send(Seen::Frame(Box::new(frame), t_ns)).unwrap();
    }
    fn orders(&mut self, boundary: &Boundary) -> Reply {
        match boundary.test.as_str() {
            "enough" => Reply::of(order::STOP),
            "copied" => Reply::of(order::STOP | order::COPY),
            "defect" => panic!("an observer with a defect"),
            _ => Reply::default(),
        }
    }
    fn ended(&mut self, end: &ProcessEnd) {
        self.0.send(Seen::Ended(end.clone())).unwrap();
    }
}

fn record(folder: &Path, options: Options) -> (Recorder, Receiver<Seen>) {
    let (tell, seen) = mpsc::channel();
    (Recorder::start(folder, options, Arc::new(Tell(Mutex::new(tell)))).unwrap(), seen)
}

/// All events of one process up to its end.
fn all_of(seen: &Receiver<Seen>) -> (Process, Vec<(Frame, u64)>, ProcessEnd) {
    let Ok(Seen::Started(process)) = seen.recv_timeout(LONG) else { panic!("it never started") };
    let mut frames = Vec::new();
    loop {
        match seen.recv_timeout(LONG).unwrap() {
            Seen::Frame(frame, t_ns) => frames.push((*frame, t_ns)),
            Seen::Ended(end) => return (*process, frames, end),
            Seen::Started(other) => panic!("{other:?}"),
        }
    }
}

fn child(folder: &Path, does: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "recorder::tests::guest_process", "--ignored", "--nocapture"])
        .env(GUEST_FOLDER, folder)
        .env(GUEST_DOES, does)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "the child that other tests here start"]
fn guest_process() {
    let folder = std::env::var_os(GUEST_FOLDER).unwrap();
    let mut guest = Guest::new(Path::new(&folder));
    guest.boundary(BoundaryKind::ProcessStart, "");
    match std::env::var(GUEST_DOES).unwrap().as_str() {
        "one test" => {
            guest.boundary(BoundaryKind::TestStart, "a");
            let _kept = File::open("/proc/self/comm").unwrap();
            guest.boundary(BoundaryKind::TestEnd, "a");
            guest.close();
        }
        "many tests" => {
            let mut kept = Vec::new();
            for test in 0_u32..40 {
                guest.boundary(BoundaryKind::TestStart, &test.to_string());
                match test {
                    // This call is not one that the agent replaces, so it reports nothing.
                    20 => kept.push(File::open("/proc/self/comm").unwrap()),
                    // The number of descriptors is the same, but one is different. The agent saw it.
                    25 => {
                        kept.clear();
                        kept.push(File::open("/proc/self/stat").unwrap());
                        let (descriptors, threads) = (Vec::new(), Vec::new());
                        let handles = Handles { boundary: guest.sequence + 1, descriptors, threads };
                        guest.frame(&Frame::Handles(handles));
                    }
                    30 => kept.clear(),
                    35 => drop(std::thread::spawn(|| {
                        loop {
                            std::thread::park()
                        }
                    })),
                    _ => {}
                }
                guest.boundary(BoundaryKind::TestEnd, &test.to_string());
            }
            guest.close();
            std::process::exit(0);
        }
        "no copy" => {
            assert_eq!(guest.boundary(BoundaryKind::TestEnd, "copied"), order::COPY);
            guest.boundary(BoundaryKind::TestEnd, "enough");
            guest.close();
            std::process::exit(0);
        }
        // Waits until its standard input is closed, or it is killed.
        _ => {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).unwrap();
        }
    }
}

#[test]
fn frames_come_in_order_and_orders_reach_the_guest() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, seen) = record(folder.path(), options());
    let mut guest = Guest::new(folder.path());
    assert_eq!(guest.boundary(BoundaryKind::TestStart, "a"), 0);
    assert_eq!(guest.boundary(BoundaryKind::TestEnd, "enough"), order::STOP);
    let path = guest.path.clone();
    guest.close();
    let (process, frames, end) = all_of(&seen);
    assert_eq!((process.hello.executable.as_str(), process.file.as_path()), ("/bin/guest", path.as_path()));
    assert_eq!((process.visible, process.environ), (false, None), "it is the harness itself");
    let tests: Vec<_> = frames
        .iter()
        .filter_map(|(frame, _)| if let Frame::Boundary(b) = frame { Some(b.test.as_str()) } else { None })
        .collect();
    assert_eq!(tests, ["a", "enough"]);
    assert!(matches!(frames.last(), Some((Frame::Goodbye(_), _))));
    assert_eq!((end.how, end.damage, end.frames), (End::Closed, None, 4));
    assert_eq!(recorder.stop(), Summary { processes: 1, problems: Vec::new() });
}

#[test]
fn each_boundary_of_a_process_has_its_sample_and_the_folder_gives_the_same_again() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, seen) = record(folder.path(), options());
    let mut child = child(folder.path(), "one test");
    let (process, live, end) = all_of(&seen);
    assert!(child.wait().unwrap().success());
    assert_eq!(end.how, End::Closed);
    assert!(process.visible);
    let environ = process.environ.unwrap();
    assert!(environ.contains(&(GUEST_DOES.into(), "one test".into())), "{environ:?}");

    let samples: Vec<_> =
        live.iter().filter_map(|(f, _)| if let Frame::OsSample(s) = f { Some(s) } else { None }).collect();
    assert_eq!(samples.iter().map(|s| s.boundary).collect::<Vec<_>>(), [1, 2, 3]);
    let comm = format!("/proc/{}/comm", child.id());
    let opened: Vec<_> = samples.iter().map(|s| s.fds.iter().any(|fd| fd.target == comm)).collect();
    assert_eq!(opened, [false, false, true]);
    assert!(samples.iter().all(|s| s.rss_bytes > 0 && !s.threads.is_empty() && s.counters.is_some()));
    for pair in live.windows(2) {
        if let [(Frame::Boundary(boundary), _), (after, _)] = pair {
            assert!(matches!(after, Frame::OsSample(s) if s.boundary == boundary.sequence), "{after:?}");
        }
    }

    let mut again = Vec::new();
    read_process(&process.file, |frame, t_ns| again.push((frame, t_ns))).unwrap();
    assert_eq!(again, live);
    assert!(os_path(&process.file).exists());
    assert_eq!(recorder.stop().problems, Vec::<String>::new());
}

#[test]
fn a_listing_that_stands_tells_the_same_as_one_at_each_boundary() {
    let listings = |listing_stands| {
        let folder = tempfile::tempdir().unwrap();
        let (recorder, seen) = record(folder.path(), Options { listing_stands, ..options() });
        let mut child = child(folder.path(), "many tests");
        let (_, frames, end) = all_of(&seen);
        assert!(child.wait().unwrap().success());
        assert_eq!((end.how, recorder.stop().problems), (End::Closed, Vec::new()));
        let own = format!("/proc/{}/", child.id());
        let of = |sample: &OsSample| {
            let is_own = |target: &str| target.strip_prefix(&own).map(str::to_owned);
            let files: Vec<_> = sample.fds.iter().filter_map(|fd| is_own(&fd.target)).collect();
            (sample.boundary, sample.fds.len(), files, sample.threads.len())
        };
        let samples =
            frames.iter().filter_map(|(f, _)| if let Frame::OsSample(s) = f { Some(of(s)) } else { None });
        samples.collect::<Vec<_>>()
    };
    let (each, stands) = (listings(Duration::ZERO), listings(LONG));
    assert_eq!(each, stands);
    // The process start is boundary 1; test 20 ends at boundary 43.
    let (files, threads): (Vec<_>, Vec<_>) =
        stands.iter().map(|(.., files, threads)| (files.concat(), *threads)).unzip();
    assert_eq!(
        (files[41].as_str(), files[42].as_str(), files[52].as_str(), files[62].as_str()),
        ("", "comm", "stat", "")
    );
    assert_eq!(threads[72], threads[71] + 1);
}

#[test]
fn a_killed_process_is_noticed_at_once_and_what_it_wrote_is_delivered() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, seen) = record(folder.path(), options());
    let mut child = child(folder.path(), "wait");
    let Ok(Seen::Started(process)) = seen.recv_timeout(LONG) else { panic!() };
    let begun = Instant::now();
    assert!(recorder.kill(process.key));
    let end = loop {
        if let Seen::Ended(end) = seen.recv_timeout(LONG).unwrap() {
            break end;
        }
    };
    assert!(begun.elapsed() < LONG / 2, "the sampling interval is longer: the death itself woke us");
    assert_eq!((end.how, end.damage), (End::Died, None));
    assert!(end.frames >= 1);
    assert!(!child.wait().unwrap().success());
    assert!(!recorder.kill(process.key), "it is gone");
    assert_eq!(recorder.capture(process.key), None);
}

#[test]
fn a_hanging_process_says_where_its_threads_stand() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, seen) = record(folder.path(), options());
    let mut child = child(folder.path(), "wait");
    let Ok(Seen::Started(process)) = seen.recv_timeout(LONG) else { panic!() };
    // The process may still be at its boundary for a moment. Then it waits in its read forever.
    let begun = Instant::now();
    let stand = loop {
        let sample = recorder.capture(process.key).unwrap();
        assert_eq!((sample.boundary, sample.pid), (0, child.id()));
        let waits = sample.threads.iter().all(|t| !t.waits_in.is_empty() && t.waits_in != "running");
        if waits || begun.elapsed() > LONG {
            break sample;
        }
    };
    assert!(stand.threads.iter().all(|t| t.waits_in != "running"), "{:?}", stand.threads);
    assert!(stand.pss_bytes.is_some());
    drop(child.stdin.take());
    child.wait().unwrap();
    drop(recorder);
    let mut recorded = 0;
    read_process(&process.file, |frame, _| {
        recorded += usize::from(matches!(frame, Frame::OsSample(s) if s == stand))
    })
    .unwrap();
    assert_eq!(recorded, 1, "the answer is in the folder too");
}

#[test]
fn a_guest_that_goes_on_without_the_copy_it_was_asked_for_has_a_reason_for_the_missing_holders() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, seen) = record(folder.path(), options());
    let mut guest = child(folder.path(), "no copy");
    let (_, frames, _) = all_of(&seen);
    let why = frames.iter().filter_map(|(frame, _)| match frame {
        Frame::NativeHolders(found) => found.not_searched.as_deref(),
        _ => None,
    });
    assert_eq!(
        why.collect::<Vec<_>>(),
        ["the process no longer waited when it was asked for a copy of itself"]
    );
    assert!(guest.wait().unwrap().success());
    assert_eq!(recorder.stop(), Summary { processes: 1, problems: Vec::new() });
}

#[test]
fn between_boundaries_samples_are_taken_no_more_often_than_the_interval() {
    let interval = Duration::from_millis(5);
    let folder = tempfile::tempdir().unwrap();
    let (recorder, seen) = record(folder.path(), Options { interval, ..options() });
    let mut child = child(folder.path(), "wait");
    let mut taken = Vec::new();
    while taken.len() < 4 {
        if let Seen::Frame(frame, t_ns) = seen.recv_timeout(LONG).unwrap()
            && matches!(*frame, Frame::OsSample(s) if s.boundary == 0)
        {
            taken.push(Duration::from_nanos(t_ns));
        }
    }
    // On a busy machine, samples may be late. Even so, the next sample is due an interval after the previous one.
    for pair in taken.windows(2) {
        assert!(pair[1] - pair[0] >= interval, "{taken:?}");
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    drop(recorder);
}

#[test]
fn a_guest_is_freed_when_the_recorder_stops() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, seen) = record(folder.path(), options());
    let mut child = child(folder.path(), "wait");
    let Ok(Seen::Started(process)) = seen.recv_timeout(LONG) else { panic!() };
    assert_eq!(recorder.stop().problems, Vec::<String>::new());
    let ends: Vec<_> =
        seen.iter().filter_map(|s| if let Seen::Ended(end) = s { Some(end.how) } else { None }).collect();
    assert_eq!(ends, [End::Abandoned]);
    let page = ControlPage::map(File::options().read(true).write(true).open(&process.file).unwrap()).unwrap();
    assert_eq!(page.load_u32(offset::HARNESS).unwrap(), 0);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn spools_of_an_earlier_recording_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    Guest::new(folder.path()).close();
    let (recorder, seen) = record(folder.path(), options());
    let mut guest = Guest::new(folder.path());
    guest.boundary(BoundaryKind::TestStart, "of this one");
    let path = guest.path.clone();
    guest.close();
    assert_eq!(recorder.stop(), Summary { processes: 1, problems: Vec::new() });
    let (process, _, end) = all_of(&seen);
    assert_eq!((process.file, end.how), (path, End::Closed));
    assert_eq!(seen.iter().count(), 0);
}

#[test]
fn damage_is_told_with_its_place_and_the_guest_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, seen) = record(folder.path(), options());
    let mut guest = Guest::new(folder.path());
    let at = guest.committed;
    guest.commit(&[0x55; 64]);
    // The guest would wait here forever if it were not freed.
    guest.boundary(BoundaryKind::TestStart, "behind the damage");
    let (_, frames, end) = all_of(&seen);
    assert_eq!(frames.len(), 1, "the hello");
    let damage = end.damage.unwrap();
    assert!(damage.contains(&format!("damaged frame at byte {at}")), "{damage}");
    drop(recorder);
}

#[test]
fn a_spool_without_a_hello_and_one_that_is_cut_are_problems_that_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| {
        File::create(folder.path().join("new")).unwrap().write_all(bytes).unwrap();
        fs::rename(folder.path().join("new"), folder.path().join(name)).unwrap();
    };
    let mut page = vec![0; 4096];
    page[..8].copy_from_slice(&spool::MAGIC);
    page[offset::STATE] = 2;
    page[offset::COMMITTED..offset::COMMITTED + 8].copy_from_slice(&4096_u64.to_le_bytes());
    let (recorder, seen) = record(folder.path(), options());
    put("1-1.mgf", &page);
    put("2-2.mgf", &page[..99]);
    put("3-3.mgf", b"a bare stream has nobody to follow");
    put("4-4.txt", &page);
    let mut summary = recorder.stop();
    summary.problems.sort();
    let shown: Vec<_> =
        summary.problems.iter().map(|p| p.replace(&*folder.path().to_string_lossy(), "F")).collect();
    assert_eq!(
        shown,
        [
            "F/1-1.mgf: it ends before its hello",
            "F/2-2.mgf: the file has 99 bytes, a control page needs 4096"
        ]
    );
    assert_eq!(seen.iter().count(), 0);
}

#[test]
fn an_observer_with_a_defect_does_not_keep_the_guest() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, _seen) = record(folder.path(), options());
    let mut guest = Guest::new(folder.path());
    guest.boundary(BoundaryKind::TestStart, "defect");
    guest.wait_until(offset::HARNESS, 0);
    let problems = recorder.stop().problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("ended by a defect"), "{problems:?}");
}
