//! `memgate malloc-debug` on captures of a genuine Android 9, and on files that are not captures.

use std::fs::{self, File};
use std::path::PathBuf;

use memgate_e2e::{Project, Run, repository};
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    repository().join("harness/formats/tests/fixtures/malloc-debug").join(name)
}

fn path(name: &str) -> String {
    fixture(name).to_str().unwrap().to_owned()
}

fn memgate(project: &str, arguments: &[&str]) -> Run {
    let arguments = [&["malloc-debug"], arguments].concat();
    Project::new(project).memgate(&arguments)
}

#[track_caller]
fn json(run: &Run) -> Value {
    run.ends_with(0);
    serde_json::from_str(&run.stdout).unwrap()
}

/// Size and count of each record.
fn figures(file: &Value) -> Vec<(u64, u64)> {
    let number = |record: &Value, key: &str| record[key].as_u64().unwrap();
    let records = file["records"].as_array().unwrap().iter();
    records.map(|record| (number(record, "size"), number(record, "count"))).collect()
}

/// Blocks that the captured program left, and the one block that its C++ library already had.
const BASIC: [(u64, u64); 7] = [(65536, 3), (1000, 7), (512, 6), (24, 100), (480, 5), (300, 4), (1, 2)];

fn is_basic(file: &Value) {
    let mut found = figures(file);
    found.retain(|record| ![(8, 1), (4, 1)].contains(record));
    assert_eq!(found, BASIC);
}

#[test]
fn a_buffer_is_read_with_its_sidecar_or_with_flags_and_a_heap_dump_by_itself() {
    for (abi, info_size, backtrace_size) in
        [("x86_64", "144", "16"), ("arm64", "144", "16"), ("arm", "72", "16"), ("x86", "72", "16")]
    {
        let name = |end: &str| path(&format!("{abi}/basic/{end}"));
        let (buffer, sidecar) = (name("after_leaks.info.bin"), name("after_leaks.json"));
        let by_sidecar = memgate("malloc-debug-sidecar", &[&buffer, "--sidecar", &sidecar, "--json"]);
        let by_sidecar = json(&by_sidecar)["files"][0].clone();
        is_basic(&by_sidecar);
        assert_eq!(by_sidecar["totals"]["count"], 128);
        assert_eq!(by_sidecar["odd"], Value::Array(Vec::new()));
        let flags = [&buffer, "--info-size", info_size, "--backtrace-size", backtrace_size, "--json"];
        let by_flags = json(&memgate("malloc-debug-flags", &flags))["files"][0].clone();
        assert_eq!(by_flags["records"], by_sidecar["records"]);
        let dump = json(&memgate("malloc-debug-dump", &["--json", &name("heapdump.signal.txt")]))["files"][0]
            .clone();
        is_basic(&dump);
        // On 32-bit x86 the first frame is the C library's own malloc.
        let places = dump["records"][0]["places"].to_string();
        assert!(places.contains("/data/local/tmp/leaker") && places.contains("/libc.so+0x"), "{places}");
        assert_eq!(dump["records"][0]["frames"], by_sidecar["records"][0]["frames"]);
    }
}

#[test]
fn a_library_of_a_dump_acts_on_no_terminal_and_gives_no_command() {
    let dump = fs::read_to_string(fixture("x86_64/basic/heapdump.signal.txt")).unwrap();
    assert!(dump.contains("/data/local/tmp/leaker"));
    let project = Project::new("malloc-debug-evil");
    let evil = "\u{1b}]0;owned\u{7}\u{1b}[2J##[error]\u{9b}31m";
    let file =
        project.write("dump.txt", dump.replace("/data/local/tmp/leaker", &format!("/data/{evil}/leaker")));
    let odd = project.write("::error::boo.txt", dump);
    let text = project.memgate(&["malloc-debug".as_ref(), file.as_os_str()]);
    text.ends_with(0);
    assert!(text.stdout.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
    assert!(text.stdout.contains(r"\u{1b}]0;owned\u{7}") && !text.stdout.contains("##["), "{text}");
    let name = odd.file_name().unwrap();
    let told = project.memgate(&["malloc-debug".as_ref(), name]);
    told.ends_with(0);
    assert!(told.stdout.starts_with(r"\u{3a}:error::boo.txt  "), "{told}");
    assert!(told.stdout.lines().all(|line| !line.trim_start().starts_with("::")), "{told}");
}

#[test]
fn a_person_sees_bytes_counts_places_and_what_is_odd() {
    let run = memgate("malloc-debug-human", &[&path("x86_64/enable_on_signal/heapdump.signal.txt")]);
    run.ends_with(0);
    for text in [
        "heap dump v1.1  138296 B in 19 allocations, 4 records",
        "note: 12 allocations of 131296 B have no stack",
        "        7000 B  7 × 1000 B",
        "/data/local/tmp/leaker64+0x14d2",
    ] {
        assert!(run.stdout.contains(text), "{text}:\n{}", run.stdout);
    }
}

#[test]
fn the_difference_of_two_captures_is_what_was_leaked_between_them() {
    let file = |label: &str, end: &str| path(&format!("x86_64/basic/{label}.{end}"));
    let arguments = [
        "--diff",
        "--json",
        &file("baseline", "info.bin"),
        &file("after_leaks", "info.bin"),
        "--sidecar",
        &file("baseline", "json"),
        "--sidecar",
        &file("after_leaks", "json"),
    ];
    let told = json(&memgate("malloc-debug-diff", &arguments));
    let changes: Vec<_> =
        told["changes"].as_array().unwrap().iter().map(|change| change["count"].as_u64()).collect();
    assert_eq!(changes, BASIC.map(|(_, count)| Some(count)));
    assert_eq!((&told["change"]["bytes"], &told["change"]["count"]), (&212_682.into(), &127.into()));
}

#[test]
fn what_was_not_measured_is_no_empty_heap() {
    let untouched = Project::new("malloc-debug-untouched");
    let buffer = untouched.write("empty.bin", "");
    for sidecar in [
        "x86_64/unset/after_leaks.json",
        "x86_64/bad_option/baseline.json",
        "arm/leak_track_only/baseline.json",
    ] {
        let run = untouched.memgate(&["malloc-debug", buffer.to_str().unwrap(), "--sidecar", &path(sidecar)]);
        run.ends_with(2).says("nothing was measured").says("malloc_debug's option `backtrace`");
    }
    let stands_in =
        "Native heap dump not available. To enable, run these commands (requires root):\n# adb shell stop\n";
    let stands_in = untouched.write("none.txt", stands_in);
    untouched
        .memgate(&["malloc-debug", stands_in.to_str().unwrap()])
        .ends_with(2)
        .says("nothing was measured");
}

#[test]
fn damaged_and_wrong_input_is_refused_with_file_place_and_remedy() {
    let project = Project::new("malloc-debug-damaged");
    let whole = fs::read_to_string(fixture("x86_64/basic/heapdump.signal.txt")).unwrap();
    let cut = project.write("cut.txt", whole.trim_end().strip_suffix("END").unwrap());
    let run = project.memgate(&["malloc-debug", cut.to_str().unwrap()]);
    run.ends_with(2).says("cut.txt").says("the dump is cut off: it has no `END`").says("pull it again");
    let broken = project.write("broken.txt", whole.replacen("sz     1000", "sz     x000", 1));
    project
        .memgate(&["malloc-debug", broken.to_str().unwrap()])
        .ends_with(2)
        .says("line 8: expected an allocation record");

    let buffer = path("x86_64/basic/after_leaks.info.bin");
    project.memgate(&["malloc-debug", &buffer]).ends_with(2).says("--sidecar FILE.json");
    let other = path("x86_64/deep_bt64/after_leaks.json");
    let run = project.memgate(&["malloc-debug", &buffer, "--sidecar", &other]);
    run.ends_with(2).says("the buffer has 1152").says("of one call");
    let run = project.memgate(&["malloc-debug", &buffer, "--sidecar", &other, "--sidecar", &other]);
    run.ends_with(2);
    project.memgate(&["malloc-debug", "absent.txt"]).ends_with(2).says("absent.txt");

    let huge = project.folder().join("huge.bin");
    File::create(&huge).unwrap().set_len(2 << 30).unwrap();
    project.memgate(&["malloc-debug", huge.to_str().unwrap()]).ends_with(2).says("larger than 512 MiB");
    fs::remove_file(huge).unwrap();
}
