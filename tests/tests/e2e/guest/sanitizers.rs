//! Sanitizers report the same as without the agent: in the tested program and elsewhere in the process tree.

use std::path::PathBuf;

use crate::guest::life::{Guest, compiled, gate, is_not_measured};

fn sanitized(sanitizer: &str) -> PathBuf {
    let flag = format!("-fsanitize={sanitizer}");
    compiled(&format!("sanitized_{sanitizer}"), "life_sanitized.cc", "c++", &[&flag])
}

/// What a sanitizer found, without addresses and process ids.
fn findings(stderr: &str) -> Vec<String> {
    let finding = |line: &&str| {
        line.contains("SUMMARY:") || line.contains("runtime error:") || line.contains("leaked in")
    };
    let without_addresses = |line: &str| {
        let words = line.split_whitespace().filter(|word| !word.contains("0x"));
        words.collect::<Vec<_>>().join(" ")
    };
    stderr.lines().filter(finding).map(without_addresses).collect()
}

#[test]
fn every_sanitizer_finds_the_same_as_without_the_agent() {
    for (sanitizer, mistake, found) in [
        ("address", "well", None),
        ("address", "leak", Some("4241 byte(s) leaked in 1 allocation(s)")),
        ("address", "after free", Some("heap-use-after-free")),
        ("thread", "well", None),
        ("thread", "race", Some("data race")),
        ("leak", "well", None),
        ("leak", "leak", Some("4241 byte(s) leaked in 1 allocation(s)")),
        ("undefined", "well", None),
        ("undefined", "overflow", Some("signed integer overflow")),
    ] {
        let name = format!("sanitized-{sanitizer}-{}", mistake.replace(' ', "-"));
        let program = sanitized(sanitizer);
        let driven = Guest::new(&name, &program, &[mistake]).drive_loudly();
        let [plain, tracked] = driven.stderr.each_ref().map(|text| findings(text));
        assert_eq!(tracked, plain, "{name}");
        let all = tracked.join("\n");
        assert!(found.map_or(all.is_empty(), |found| all.contains(found)), "{name}: {all}");
        // Without a mistake, the recording is either exact or reported as missing as a whole.
        if mistake == "well" {
            let stream = driven.main(&program);
            stream.is_exact_or_says(&[(4241, 3)], &format!("lib{}san", &sanitizer[..1]));
            assert_eq!(stream.hello.blind.is_none(), sanitizer == "undefined", "{name}");
            assert!(driven.forked().all(|child| child.hello.blind == stream.hello.blind), "{name}");
        }
    }
}

#[test]
fn sanitizers_beside_the_tested_program_stay_as_they_are() {
    let [address, thread, leak] = ["address", "thread", "leak"].map(sanitized);
    let script = format!(
        "{} tree; echo $?; {} tree; echo $?; {} leak; echo $?; exit 9",
        address.display(),
        thread.display(),
        leak.display()
    );
    // The leaking program's output is lost with its buffer, because LeakSanitizer ends it.
    let driven =
        Guest::new("sanitized-tree", "/bin/sh".as_ref(), &["-c", &script]).drive_loudly().ends_with(9);
    assert_eq!(driven.stdout, "child 6\na shell\n7\nchild 6\na shell\n7\n23\n");
    for program in [&address, &thread, &leak] {
        assert!(driven.main(program).hello.blind.is_some());
    }
}

#[test]
fn a_sanitized_program_is_not_measured_and_an_instrumented_one_is() {
    let linked_in =
        compiled("sanitized_static", "life_sanitized.cc", "c++", &["-fsanitize=address", "-static-libasan"]);
    for program in [sanitized("address"), sanitized("thread"), linked_in] {
        let name = program.file_name().unwrap().to_str().unwrap();
        let run = gate(name, &program, &["well"]);
        let why = if name == "sanitized_static" { "the malloc of" } else { "a sanitizer" };
        is_not_measured(&run, &[why, "for the gate"]);
        assert_eq!(run.stdout, "child 6\ndone\n");
    }
    let program = sanitized("undefined");
    gate("sanitized_undefined", &program, &["well"]).ends_with(0);
}
