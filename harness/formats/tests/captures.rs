//! Tests with captures of a real Android 9: each result must equal the leaks that the captured program states.
//!
//! Next to each buffer, the program wrote the allocations that it left on purpose (`truth`) and the addresses of its
//! own functions (`symbols`).
#![expect(clippy::unwrap_used, reason = "a fixture that is not as described fails the test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use memgate_formats::malloc_debug::{
    Format, LeakInfoError, OutValues, Record, Snapshot, read_heap_dump, read_leak_info,
};
use serde_json::Value;

/// Function, size and flag of a site, and how many are live there.
type Sites = BTreeMap<(String, u64, bool), u64>;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/malloc-debug")
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn address(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().strip_prefix("0x").unwrap(), 16).unwrap()
}

/// All files below the fixtures with this ending, with their relative names.
fn files(end: &str) -> Vec<(String, PathBuf)> {
    let (mut open, mut found) = (vec![fixtures()], Vec::new());
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_str().unwrap().ends_with(end) {
                found.push((path.strip_prefix(fixtures()).unwrap().display().to_string(), path));
            }
        }
    }
    found.sort();
    found
}

struct Capture {
    name: String,
    json: Value,
    buffer: Vec<u8>,
    out: OutValues,
}

fn captures() -> Vec<Capture> {
    let captures = files(".info.bin").into_iter().map(|(name, path)| {
        let json = json(Path::new(&path.to_str().unwrap().replace(".info.bin", ".json")));
        let out = out_values(&json);
        Capture { name, json, buffer: fs::read(path).unwrap(), out }
    });
    captures.collect()
}

fn out_values(json: &Value) -> OutValues {
    let out = &json["out"];
    OutValues {
        overall_size: number(&out["overall_size"]),
        info_size: number(&out["info_size"]),
        total_memory: Some(number(&out["total_memory"])),
        backtrace_size: number(&out["backtrace_size"]),
        android_api: Some(28),
    }
}

fn truth(json: &Value) -> Sites {
    let mut sites = Sites::new();
    for site in json["truth"].as_array().unwrap() {
        let key = (
            site["fn"].as_str().unwrap().to_owned(),
            number(&site["size"]),
            number(&site["zygote_child"]) == 1,
        );
        *sites.entry(key).or_default() += number(&site["count"]);
    }
    sites
}

/// The records, each assigned to its innermost frame that is in a function of `truth`.
fn attributed(json: &Value, records: &[Record]) -> Sites {
    let truth = truth(json);
    let wanted = |name: &str| truth.keys().any(|(function, _, _)| function == name);
    let functions: Vec<(u64, u64, &str)> = json["symbols"]
        .as_array()
        .unwrap()
        .iter()
        .map(|symbol| (address(&symbol["start"]), number(&symbol["size"]), symbol["name"].as_str().unwrap()))
        .collect();
    let function = |pc: &u64| {
        let at = functions.iter().find(|(start, size, _)| (*start..start + size).contains(pc));
        at.map(|(_, _, name)| *name).filter(|name| wanted(name))
    };
    let mut sites = Sites::new();
    for record in records {
        if let Some(name) = record.frames.iter().find_map(function) {
            *sites.entry((name.to_owned(), record.size, record.zygote_child)).or_default() += record.count;
        }
    }
    sites
}

fn read(capture: &Capture) -> Snapshot {
    read_leak_info(&capture.buffer, &capture.out).unwrap_or_else(|error| panic!("{}: {error}", capture.name))
}

#[test]
fn the_attributed_records_of_every_buffer_equal_the_truth() {
    let captures = captures();
    assert_eq!(captures.len(), 100);
    let (mut equal, mut by_design) = (0, Vec::new());
    for capture in &captures {
        let read = read(capture);
        assert_eq!(read.total_bytes, capture.out.total_memory.unwrap(), "{}", capture.name);
        assert_eq!(read.records.len() as u64, number(&capture.json["distinct_records"]), "{}", capture.name);
        assert_eq!(read.total_count, number(&capture.json["sum_num"]), "{}", capture.name);
        let wide = number(&capture.json["size_t_bytes"]) == 8;
        assert_eq!(
            read.format,
            if wide { Format::LeakInfo64 } else { Format::LeakInfo32 },
            "{}",
            capture.name
        );
        if attributed(&capture.json, &read.records) == truth(&capture.json) {
            equal += 1;
        } else {
            by_design.push(capture.name.as_str());
        }
    }
    // Known differences: the site is in an anonymous mapping; the only frame is libc's malloc; the program allocated
    // while capture was off; sizes that the truth gives as 0. The next tests check each of them.
    let known = [
        "/anon_code/after_leaks",
        "x86/basic_bt1/after_leaks",
        "/enable_on_signal/disabled_again",
        "/many_records/after_leaks",
    ];
    for name in &by_design {
        assert!(known.iter().any(|known| name.contains(known)), "{name} differs from its truth");
    }
    assert_eq!((equal, by_design.len()), (87, 13));
}

#[test]
fn where_the_truth_cannot_be_attributed_its_figures_are_still_there() {
    for capture in captures() {
        let records = read(&capture).records;
        let name = &capture.name;
        let live = |size: u64| records.iter().filter(|r| r.size == size).map(|r| r.count).sum::<u64>();
        if name.contains("/many_records/after_leaks") {
            let sizes: Vec<_> =
                records.iter().map(|record| record.size).filter(|size| *size >= 10_000).collect();
            assert_eq!(sizes, (10_000..10_300).rev().collect::<Vec<_>>(), "{name}");
        } else if name.contains("/enable_on_signal/disabled_again") {
            assert_eq!(
                (live(1000), live(65536)),
                (7, 0),
                "{name}: what was allocated while capture was off is not tracked"
            );
        } else if name.contains("/anon_code/after_leaks") || name.contains("x86/basic_bt1/after_leaks") {
            for ((function, size, _), count) in truth(&capture.json) {
                assert_eq!(live(size), count, "{name}: {function}");
            }
        }
    }
}

/// The form in which a device writes sites that allocate alternately: one record for each allocation. (None of the
/// captured programs does that.)
fn in_turns(capture: &Capture) -> Capture {
    let word = usize::try_from(number(&capture.json["size_t_bytes"])).unwrap();
    let (mut rounds, mut round) = (Vec::new(), 0);
    loop {
        let before = rounds.len();
        for record in capture.buffer.chunks_exact(usize::try_from(capture.out.info_size).unwrap()) {
            let num =
                u64::from_le_bytes([&record[word..2 * word], &[0; 8][word..]].concat().try_into().unwrap());
            if num > round {
                rounds.extend([&record[..word], &1_u64.to_le_bytes()[..word], &record[2 * word..]].concat());
            }
        }
        if rounds.len() == before {
            break;
        }
        round += 1;
    }
    let out = OutValues { overall_size: rounds.len() as u64, ..capture.out };
    Capture { name: capture.name.clone(), json: capture.json.clone(), buffer: rounds, out }
}

#[test]
fn sites_that_allocate_in_turns_are_one_record_each() {
    let mut split = 0;
    for capture in captures() {
        let turns = in_turns(&capture);
        let (read, read_turns) = (read(&capture), read(&turns));
        assert_eq!(read_turns.records, read.records, "{}", capture.name);
        let told = read_turns.oddities.iter().any(|odd| odd.kind() == "duplicates");
        assert_eq!(told, turns.buffer.len() > capture.buffer.len(), "{}", capture.name);
        split += u32::from(told);
    }
    assert!(split > 20, "{split}");
}

#[test]
fn untouched_and_zero_out_values_are_told_apart_from_an_empty_heap() {
    let (mut zeros, mut untouched) = (0, 0);
    for (name, path) in files(".json").into_iter().filter(|(name, _)| name != "index.json") {
        let json = json(&path);
        let out = out_values(&json);
        if json["out_params_written"] == Value::Bool(false) {
            // The captured program had filled them with a pattern, which is wrong.
            let error = read_leak_info(&[], &out).unwrap_err();
            assert!(matches!(error, LeakInfoError::OtherLength { .. }), "{name}: {error}");
            untouched += 1;
        } else if json["info_is_null"] == Value::Bool(true) {
            assert_eq!(read_leak_info(&[], &out), Err(LeakInfoError::NothingMeasured), "{name}");
            zeros += 1;
        }
    }
    assert!(zeros > 10 && untouched > 10, "{zeros} and {untouched}");
}

/// Also checks the buffers of a program at its end, when its leaks still exist.
#[test]
fn the_attributed_records_of_every_heap_dump_equal_the_truth() {
    let dumps = files(".txt");
    assert_eq!(dumps.len(), 32);
    let mut compared = 0;
    for (name, path) in dumps {
        let dump =
            read_heap_dump(&fs::read(&path).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(dump.format, Format::HeapDump11, "{name}");
        assert!(
            !dump.oddities.iter().any(|odd| odd.kind() == "total_differs"),
            "{name}: {:?}",
            dump.oddities
        );
        let site_known =
            !["/anon_code/", "x86/basic_bt1/", "/enable_on_signal/"].iter().any(|known| name.contains(known));
        if site_known {
            let json = json(&path.with_file_name("after_leaks.json"));
            assert_eq!(attributed(&json, &dump.records), truth(&json), "{name}");
            compared += 1;
        }
        assert!(
            dump.records.iter().flat_map(|r| &r.frames).any(|pc| dump.maps.place(*pc).is_some()),
            "{name}"
        );
    }
    assert_eq!(compared, 23);
}
