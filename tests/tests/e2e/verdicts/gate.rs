//! Recordings are judged again without running anything, however damaged, large or unusual they are.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use memgate_e2e::{Project, Run, repository, samples};
use memgate_model::Verdict;
use memgate_wire::spool::{CONTROL_BYTES, offset};
use memgate_wire::{
    Boundary, BoundaryKind, Counters, Decoded, Frame, Log, LogLevel, Outcome, decode, encode,
};

use crate::agent::spool;
use crate::clean_session;
use crate::leaks_session;

fn fixture() -> Vec<u8> {
    fs::read(repository().join("tests/fixtures/v1.mgf")).unwrap()
}

/// Every whole frame of a spool, with its offset.
fn frames(spool: &[u8]) -> Vec<(usize, Frame)> {
    let (mut at, mut frames) = (CONTROL_BYTES, Vec::new());
    while let Ok(Decoded::Frame { frame, bytes, .. }) = decode(&spool[at..], at as u64) {
        frames.push((at, frame));
        at += bytes;
    }
    assert!(frames.len() > 10, "{}", frames.len());
    frames
}

fn set_committed(spool: &mut [u8], committed: u64) {
    spool[offset::COMMITTED..offset::COMMITTED + 8].copy_from_slice(&committed.to_le_bytes());
}

/// Judges one file.
fn gate(name: &str, spool: &[u8]) -> Run {
    let project = Project::new(name);
    let file = project.write("1-1.mgf", spool);
    project.memgate(&["gate", "--format", "json", file.to_str().unwrap()])
}

/// Checks for an error at that offset, and that the data before it was used.
#[track_caller]
fn damaged_at(run: &Run, offset: usize, tests_before: usize) {
    run.ends_with(2);
    assert!(run.stdout.contains(&format!("byte {offset}")), "byte {offset} is not told:\n{}", run.problems());
    assert_eq!(judged(run), tests_before, "tests that had ended before:\n{}", run.stdout);
}

fn judged(run: &Run) -> usize {
    let tests = run.report().suites.into_iter().flat_map(|suite| suite.tests);
    tests.filter(|test| test.verdict != Verdict::Error).count()
}

fn is_boundary(frame: &Frame, kind: BoundaryKind, test: &str) -> bool {
    matches!(frame, Frame::Boundary(boundary) if boundary.kind == kind && boundary.test == test)
}

fn tests_that_ended(frames: &[(usize, Frame)]) -> usize {
    frames
        .iter()
        .filter(|(_, frame)| matches!(frame, Frame::Boundary(b) if b.kind == BoundaryKind::TestEnd))
        .count()
}

#[test]
fn a_session_is_judged_again_with_the_same_result() {
    for (project, run) in [leaks_session(), clean_session()] {
        let again = project.memgate(&["gate", "--format", "json", ".memgate/latest"]);
        assert_eq!(again.code, run.code);
        let (before, after) = (run.report(), again.report());
        assert_eq!(before.suites.len(), after.suites.len());
        for (before, after) in before.suites.iter().zip(&after.suites) {
            assert_eq!(
                (&before.name, before.verdict, &before.tests),
                (&after.name, after.verdict, &after.tests)
            );
        }
    }
}

#[test]
fn a_session_on_another_machine_needs_nothing_else() {
    let (project, run) = leaks_session();
    let copy = Project::new("copied-session");
    let status = std::process::Command::new("cp")
        .arg("-rL")
        .arg(project.session())
        .arg(copy.folder().join("session"))
        .status()
        .unwrap();
    assert!(status.success());
    let gate = copy.memgate(&["gate", "--format", "json", "session"]);
    assert_eq!(gate.code, run.code);
    assert_eq!(gate.test("Leaks.Strdup").leaks, run.test("Leaks.Strdup").leaks);
}

/// memgate samples descriptors into separate files. Regression: a copy without them passed a test that leaks
/// one.
#[test]
fn descriptors_that_the_session_does_not_have_are_not_nothing() {
    let (project, run) = leaks_session();
    assert_eq!(run.test("Leaks.Descriptor").verdict, Verdict::Fail, "{run}");
    let copy = Project::new("session-without-samples");
    fs::create_dir(copy.folder().join("frames")).unwrap();
    fs::copy(project.session().join("session.json"), copy.folder().join("session.json")).unwrap();
    for entry in fs::read_dir(project.session().join("frames")).unwrap() {
        let (path, name) = (entry.as_ref().unwrap().path(), entry.unwrap().file_name());
        if !name.to_str().unwrap().ends_with(".os.mgf") {
            fs::copy(path, copy.folder().join("frames").join(name)).unwrap();
        }
    }
    let gate = copy.memgate(&["gate", "--format", "json", "."]);
    let test = gate.test("Leaks.Descriptor");
    assert_eq!(test.verdict, Verdict::Error, "{gate}");
    let stream = fs::read_dir(copy.folder().join("frames")).unwrap().next().unwrap().unwrap().path();
    let alone = copy.memgate(&["gate", stream.to_str().unwrap()]);
    alone.says(".os.mgf: descriptors and threads of these tests are not judged");
    assert!(test.reason.contains("its descriptors and threads are not in the session"), "{}", test.reason);
}

#[test]
fn the_screen_alone_cannot_fail_a_test() {
    let run = gate("screen-alone", &fixture());
    run.ends_with(0);
    let leak = run.test("Leaks.Strdup");
    assert_eq!(leak.verdict, Verdict::Warn, "{}", leak.reason);
    assert_eq!(run.test("Levels/OneParameter.Loads/0").verdict, Verdict::Pass);
}

#[test]
fn a_flipped_bit_is_told_with_its_offset_and_what_came_before_is_used() {
    let mut spool = fixture();
    let frames = frames(&spool);
    let (middle, _) = frames[frames.len() / 2];
    spool[middle + 24] ^= 0x10;
    damaged_at(&gate("flipped-bit", &spool), middle, tests_that_ended(&frames[..frames.len() / 2]));
}

#[test]
fn a_truncated_file_is_told_with_the_offset_of_the_frame_it_cuts() {
    let spool = fixture();
    let frames = frames(&spool);
    let half = frames.len() / 2;
    let cut = &spool[..frames[half].0 + 7];
    damaged_at(&gate("truncated", cut), frames[half].0, tests_that_ended(&frames[..half]));
}

#[test]
fn what_a_killed_process_left_behind_is_used_up_to_its_last_whole_frame() {
    let mut spool = fixture();
    let frames = frames(&spool);
    let open =
        frames.iter().position(|(_, frame)| is_boundary(frame, BoundaryKind::TestStart, "Getline")).unwrap();
    set_committed(&mut spool, frames[open + 1].0 as u64);
    let run = gate("killed", &spool);
    // As far as the recording shows, the test ended the process: it did not pass.
    run.ends_with(1);
    assert_eq!(run.test("Leaks.Getline").verdict, Verdict::Error);
    assert_eq!(judged(&run), tests_that_ended(&frames[..open]), "{}", run.stdout);
}

#[test]
fn a_control_page_that_claims_more_than_there_is_is_an_error() {
    for (name, committed) in [("beyond", 1 << 40), ("beyond-all", u64::MAX), ("inside-the-page", 7)] {
        let mut spool = fixture();
        set_committed(&mut spool, committed);
        let run = gate(name, &spool);
        run.ends_with(2);
        assert!(run.stdout.contains(&committed.to_string()), "{committed}:\n{}", run.problems());
    }
}

#[test]
fn garbage_and_nothing_at_all_are_errors() {
    let mut noise = 1_u32;
    let garbage: Vec<u8> = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        noise.to_le_bytes()[3]
    })
    .take(100_000)
    .collect();
    for (name, bytes) in
        [("garbage", garbage.as_slice()), ("empty", b""), ("text", b"hello\n"), ("magic", b"MGSPOOL1")]
    {
        let run = gate(name, bytes);
        run.ends_with(2);
        assert_eq!(run.report().verdict, Verdict::Error, "{name}");
        assert!(run.problems().contains("1-1.mgf"), "{name}: which file?\n{}", run.problems());
    }
    let missing = Project::new("missing-file").memgate(&["gate", "nothing.mgf"]);
    missing.ends_with(2).says("nothing.mgf").says("hint:");
}

#[test]
fn a_file_of_zeros_as_long_as_its_page_claims_is_damaged_at_its_first_frame() {
    let project = Project::new("zeros");
    let file = project.write("1-1.mgf", &fixture()[..CONTROL_BYTES]);
    let length = 64_u64 << 30;
    let zeros = File::options().write(true).open(&file).unwrap();
    zeros.set_len(length).unwrap();
    zeros.write_all_at(&length.to_le_bytes(), offset::COMMITTED as u64).unwrap();
    let run = project.memgate(&["gate", "--format", "json", file.to_str().unwrap()]);
    run.ends_with(2);
    assert!(run.stdout.contains("byte 4096"), "{}", run.problems());
}

#[test]
fn frames_of_another_version_and_of_unknown_types_are_skipped() {
    let spool = fixture();
    let frames = frames(&spool);
    let plain = gate("plain-stream", &spool);
    let mut other = spool[..CONTROL_BYTES].to_vec();
    for (number, (at, _)) in frames.iter().enumerate() {
        let end = frames.get(number + 1).map_or_else(|| at + whole(&spool[*at..]), |(next, _)| *next);
        other.extend_from_slice(&spool[*at..end]);
        // A Java frame of a later memgate, and a log frame of a future version.
        other.extend_from_slice(&raw_frame(63, 1, b"what nobody here can read"));
        other.extend_from_slice(&raw_frame(8, 99, b"\xff\xff"));
    }
    let committed = other.len() as u64;
    set_committed(&mut other, committed);
    let run = gate("another-version", &other);
    assert_eq!(run.code, plain.code, "{run}");
    let verdicts = |run: &Run| {
        let tests = run.report().suites.into_iter().flat_map(|suite| suite.tests);
        tests.map(|test| (test.id, test.verdict)).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(&run), verdicts(&plain));
}

#[test]
fn a_stream_whose_first_word_nobody_here_understands_is_an_error() {
    let spool = fixture();
    let (second, _) = frames(&spool)[1];
    let mut newer = spool[..CONTROL_BYTES].to_vec();
    newer.extend_from_slice(&raw_frame(1, 99, b"hello from the future"));
    newer.extend_from_slice(&spool[second..]);
    let committed = newer.len() as u64;
    set_committed(&mut newer, committed);
    let run = gate("newer-hello", &newer);
    run.ends_with(2);
    assert!(run.problems().contains("not measured"), "{}", run.problems());
}

#[test]
fn a_program_of_another_build_lends_no_names() {
    let project = Project::new("another-build");
    let program = project.folder().join("tests");
    fs::copy(samples::suite("leaks"), &program).unwrap();
    let run = project.memgate(&["run", "--no-confirm", "--filter", "Leaks.Strdup", "--", "./tests"]);
    assert_eq!(run.test("Leaks.Strdup").leaks[0].frames[0].function.as_deref(), Some("leaks::copy_title()"));

    let stream = project.streams().remove(0);
    let gated = || project.memgate(&["gate", "--format", "json", stream.to_str().unwrap()]);
    assert_eq!(gated().test("Leaks.Strdup").leaks, run.test("Leaks.Strdup").leaks);
    fs::remove_file(&program).unwrap();
    fs::copy(samples::suite("clean"), &program).unwrap();
    let frames = gated().test("Leaks.Strdup").leaks[0].frames.clone();
    let own: Vec<_> = frames.iter().filter(|frame| frame.module == "tests").collect();
    assert!(!own.is_empty(), "module and offset are told: {frames:#?}");
    assert!(own.iter().all(|frame| frame.function.is_none() && frame.line.is_none()), "{own:#?}");
}

#[test]
fn the_environment_stays_out_of_the_session() {
    let project = Project::new("secret");
    let program = samples::suite("leaks");
    let run = ["run", "--filter", "Leaks.Strdup", "--", program.to_str().unwrap()];
    project.finish(project.command(&run).env("DEPLOY_TOKEN", "hunter2-hunter2")).ends_with(1);
    let told = std::process::Command::new("grep")
        .args(["-rl", "hunter2", ".memgate"])
        .current_dir(project.folder())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&told.stdout), "");
    for stream in project.streams() {
        let frames = format!("{:?}", spool::frames(&stream));
        assert!(frames.contains("Strdup"), "{frames}");
        assert!(!frames.contains("hunter2"), "{frames}");
    }
    assert_eq!(project.read(".memgate/.gitignore"), "*\n");
}

#[test]
fn a_spool_of_more_than_a_gigabyte_is_read_in_bounded_memory() {
    let project = Project::new("gigabyte");
    let file = project.folder().join("1-1.mgf");
    let length = write_gigabyte(&file);
    assert!(length > 1 << 30, "{length}");
    let (run, peak) = peak_memory(&project, &file);
    fs::remove_file(&file).unwrap();
    assert!(peak <= 200 << 20, "{} MiB at most", peak >> 20);
    // The file is read to its end: the last test is there.
    assert_eq!(run.test("Gigabyte.Last").verdict, Verdict::Pass, "{run}");
}

/// A hello, half a million counters, a hundred thousand windows of one test, and a gigabyte of log lines.
fn write_gigabyte(path: &Path) -> u64 {
    let fixture = fixture();
    let (_, hello) = &frames(&fixture)[0];
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).unwrap());
    let mut page = fixture[..CONTROL_BYTES].to_vec();
    set_committed(&mut page, 0);
    file.write_all(&page).unwrap();
    let mut length = CONTROL_BYTES as u64;
    let mut t_ns = 1_000_000_000;
    let mut buffer = Vec::new();
    let mut put = |frames: &[Frame]| {
        buffer.clear();
        for frame in frames {
            t_ns += 1000;
            encode(frame, t_ns, &mut buffer);
        }
        file.write_all(&buffer).unwrap();
        length += buffer.len() as u64;
    };
    put(std::slice::from_ref(hello));
    let mut sequence = 0;
    let mut test = |name: &str, iteration: u32| {
        sequence += 2;
        [BoundaryKind::TestStart, BoundaryKind::TestEnd].map(|kind| boundary(kind, sequence, name, iteration))
    };
    for iteration in 0..100_000 {
        put(&test("Many", iteration));
        put(&[Frame::Counters(Counters::default()), Frame::Counters(Counters::default())]);
    }
    let line = Frame::Log(Log { level: LogLevel::Info, text: "l".repeat(1 << 19) });
    let lines = vec![line; 4];
    for _ in 0..520 {
        put(&lines);
    }
    put(&test("Last", 0));
    file.flush().unwrap();
    file.get_ref().write_all_at(&length.to_le_bytes(), offset::COMMITTED as u64).unwrap();
    length
}

fn boundary(kind: BoundaryKind, sequence: u32, test: &str, iteration: u32) -> Frame {
    let is_end = kind == BoundaryKind::TestEnd;
    Frame::Boundary(Boundary {
        sequence: sequence + u32::from(is_end),
        kind,
        suite: "Gigabyte".into(),
        test: test.into(),
        iteration,
        outcome: is_end.then_some(Outcome::Passed),
        thread_id: 1,
        open_tests: 1,
        counters: Counters::default(),
        survivors: 0,
        snapshot_parts: 0,
        cost: memgate_wire::AgentCost::default(),
    })
}

/// Runs `memgate gate FILE` and reads its peak memory meanwhile.
fn peak_memory(project: &Project, file: &Path) -> (Run, u64) {
    let out = project.folder().join("out.json");
    let mut gate = project
        .command(&["gate", "--format", "json", file.to_str().unwrap()])
        .stdout(Stdio::from(File::create(&out).unwrap()))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = PathBuf::from(format!("/proc/{}/status", gate.id()));
    let begun = Instant::now();
    let mut peak = 0;
    let ended = loop {
        if let Some(kib) = fs::read_to_string(&status).ok().and_then(|text| high_water_kib(&text)) {
            peak = peak.max(kib << 10);
        }
        if let Some(ended) = gate.try_wait().unwrap() {
            break ended;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "it does not come to its end");
        // The kernel keeps the high-water mark: only the time between the last read and the end is missed.
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(peak > 0);
    let stdout = fs::read_to_string(&out).unwrap();
    (Run { code: ended.code(), stdout, stderr: String::new(), report: None }, peak)
}

fn high_water_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Size of the frame at the start of `bytes`.
fn whole(bytes: &[u8]) -> usize {
    memgate_wire::HEADER_BYTES + u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize
}

/// A frame that no encoder here writes.
fn raw_frame(number: u16, version: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
    frame.extend_from_slice(&number.to_le_bytes());
    frame.extend_from_slice(&[version, 0]);
    frame.extend_from_slice(&1_u64.to_le_bytes());
    let checksum = crc32c(&[&frame, body]);
    frame.extend_from_slice(&checksum.to_le_bytes());
    frame.extend_from_slice(body);
    frame
}

/// Castagnoli's polynomial, bit by bit: independent of the crate that the product uses.
fn crc32c(parts: &[&[u8]]) -> u32 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    !bytes.fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

#[test]
fn a_relative_threshold_without_an_accepted_figure_says_so() {
    let project = Project::new("relative-without-figure");
    let program = samples::suite("clean");
    let words = format!("[{:?}, --gtest_filter=Clean.NothingAtAll]", program.display().to_string());
    project.write(
        "memgate.yaml",
        format!(
            "version: 1\nsuites:\n  clean: {{ run: {words} }}\nthresholds:\n  \
             os.rss: {{ per: suite, fail: +10%, against: baseline }}\n"
        ),
    );
    let accepted = |suite: &str| {
        format!(
            "{{\"schema_version\":1,\"suites\":{{{suite:?}:{{\"metrics\":{{\"os.rss\":{{\"value\":1e12,\"per\":\"suite\"}}}}}}}}}}"
        )
    };
    project.write("memgate-baseline.json", accepted("clean"));
    assert_eq!(project.memgate(&["run"]).suite().verdict, Verdict::Pass);
    project.write("memgate-baseline.json", accepted("another"));
    let run = project.memgate(&["run"]);
    run.ends_with(0);
    let suite = run.suite();
    assert_eq!(suite.verdict, Verdict::Warn, "{run}");
    assert!(suite.reason.contains("os.rss is not judged: its threshold is relative"), "{}", suite.reason);
    std::fs::remove_file(project.folder().join("memgate-baseline.json")).unwrap();
    let without = project.memgate(&["gate", ".memgate/latest"]);
    without.ends_with(0).says("there is no baseline memgate-baseline.json").says("`memgate baseline accept`");
    assert!(without.stdout.contains("os.rss is not judged: its threshold is relative"), "{without}");
}
