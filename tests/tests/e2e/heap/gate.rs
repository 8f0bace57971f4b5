//! Heap dumps in the gate: a suite of the probes is dumped at its end or when memory runs out, and leaks
//! found in the dump are treated like others.

use std::fs;
use std::process::Command;

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::{Project, Run, probes};
use memgate_model::{LeakKind, Outcome, TestReport, Verdict};

const RULES: &str =
    "[[rule]]\nclass = \"com.example.Probes$Session\"\nfield = \"closed\"\nleaking = \"true\"\n";
const AT_END: &str = "heap dump at the end of the suite";

fn settings(jdk: &Jdk, heap: &str, tests: &[&str], more: &str) -> String {
    let java = probes::java(jdk, &["-Xmx48m"], &[&[probes::RUNNER], tests].concat());
    let java = java.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
    format!(
        "version: 1\nmeasure: {{ screen: off }}\nsuites:\n  unit:\n    runner: junit\n    run: [{java}]\n    heap: {heap}\n{more}"
    )
}

fn run(jdk: &Jdk, name: &str, heap: &str, tests: &[&str], more: &str) -> (Project, Run) {
    let project = Project::new(&format!("jvm-heap-{name}-{}", jdk.release));
    project.write("leaks.toml", RULES);
    project.write("memgate.yaml", settings(jdk, heap, tests, more));
    let git = Command::new("git").args(["init", "-q"]).current_dir(project.folder()).status().unwrap();
    assert!(git.success());
    project.write("CODEOWNERS", "*.java @probes\n");
    project.write("src/com/example/Probes.java", "class Probes {}\n");
    let run = project.memgate(&["run"]);
    (project, run)
}

fn dumps(project: &Project) -> Vec<String> {
    let entries = fs::read_dir(project.session().join("java")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".hprof")).collect()
}

fn entry(run: &Run) -> TestReport {
    let entry = run.test(AT_END);
    assert!(entry.is_heap_dump() && entry.outcome == Outcome::Passed, "{run}");
    entry
}

#[test]
fn what_is_over_and_still_there_fails_the_suite_until_it_is_waived() {
    for jdk in jvm::jdks() {
        let heap = "{ at: suite_end, rules: [leaks.toml] }";
        let (project, run) = run(&jdk, "leaks", heap, &["isClean", "forgetsSessions"], "");
        run.ends_with(1);
        let found = entry(&run);
        assert_eq!((found.verdict, found.leaks.len()), (Verdict::Fail, 1), "{}\n{run}", found.reason);
        assert!(found.reason.contains("1 leak in the heap dump (allowed 0)"), "{}", found.reason);
        let leak = &found.leaks[0];
        assert_eq!((leak.kind, leak.count_per_iteration), (LeakKind::Heap, 2.0), "{leak:#?}");
        assert!(leak.bytes_per_iteration >= 8000.0, "with their buffers: {leak:#?}");
        assert!(
            leak.title.starts_with("2 × com.example.Probes$Session (Probes$Session#closed is true)"),
            "{leak:#?}"
        );
        let way: Vec<String> =
            leak.holder.iter().map(|step| format!("{} {}.{}", step.kind, step.owner, step.name)).collect();
        assert_eq!(way, ["static com.example.Probes.sessions", "element java.util.HashMap.[x]"]);
        // The fingerprint is that of `memgate heap`, which is LeakCanary's.
        let kept = dumps(&project);
        assert!(
            kept.len() == 1 && kept[0].ends_with("_end.hprof.gz"),
            "trimmed, because it is over: {kept:?}"
        );
        let dump = project.session().join("java").join(&kept[0]).display().to_string();
        let told = project.memgate(&["heap", "analyze", &dump, "--rules", "leaks.toml", "--json"]);
        told.ends_with(1);
        assert!(told.stdout.contains(leak.id.strip_prefix("h1-").unwrap()), "{}: {told}", leak.id);
        for (file, wanted) in [("report.html", leak.id.as_str()), ("report.json", "\"heap\"")] {
            let text = fs::read_to_string(project.session().join(file)).unwrap();
            assert!(text.contains(wanted), "{file}");
        }
        // Treated like other leaks: in the formats of CI, and with the owner of the code that holds it.
        assert_eq!(leak.owners, ["@probes"], "{leak:#?}");
        let session = project.session().display().to_string();
        for format in ["junit", "sarif", "markdown", "html"] {
            let told = project.memgate(&["report", &session, "--format", format]);
            told.ends_with(0);
            assert!(told.stdout.contains(&leak.id), "{format}: {told}");
        }
        let known = project.memgate(&["history", "leaks", "--owner", "@probes"]);
        assert!(known.stdout.contains(&leak.id), "{known}");
        // The ledger of its containers is kept next to it.
        let ledger = dump.replace(".hprof.gz", ".ledger.json");
        let three = project.memgate(&["heap", "growth", &ledger, &ledger, &ledger]);
        three.ends_with(0);
        // Judged again without the dump, with a waiver.
        fs::remove_file(&dump).unwrap();
        let waiver = format!("waivers:\n  - {{ leak: {}, reason: known, until: never }}\n", leak.id);
        project.write("memgate.yaml", settings(&jdk, heap, &["isClean"], &waiver));
        let session = project.session().display().to_string();
        let again = project.memgate(&["gate", &session]);
        again.ends_with(0);
        assert!(!again.stdout.contains("FAIL"), "{again}");
    }
}

#[test]
fn objects_of_a_class_are_counted_and_a_name_that_no_class_has_is_told() {
    for jdk in jvm::jdks_in_turn(0) {
        let heap = "{ at: suite_end, keep: never, fail: { class: { 'com.example.Probes$Session': 2, 'com.example.Probes$Draft': 0, com.example.Nobody: 1 } } }";
        let (project, run) = run(&jdk, "class", heap, &["forgetsSessions"], "");
        run.ends_with(1);
        let found = entry(&run);
        assert!(
            found.reason.contains("3 × com.example.Probes$Session in the heap dump (allowed 2)"),
            "{}",
            found.reason
        );
        assert_eq!(found.leaks.len(), 1, "{:#?}", found.leaks);
        assert!(found.leaks[0].id.starts_with("h1-"), "{:#?}", found.leaks);
        assert_eq!(dumps(&project), Vec::<String>::new());
    }
}

#[test]
fn a_dump_in_which_nothing_was_looked_for_or_that_is_missing_is_no_pass() {
    for jdk in jvm::jdks_in_turn(1) {
        let (_, nothing) = run(&jdk, "nothing", "{ at: suite_end }", &["isClean"], "");
        nothing.ends_with(2);
        let found = entry(&nothing);
        assert!(
            found.verdict == Verdict::Error && found.reason.contains("nothing was looked for"),
            "{}",
            found.reason
        );
        let heap = "{ at: suite_end, rules: [leaks.toml] }";
        let (_, missing) = run(&jdk, "missing", heap, &["isClean", "halts"], "");
        let found = entry(&missing);
        assert!(
            found.verdict == Verdict::Error && found.reason.contains("was not written"),
            "{}\n{missing}",
            found.reason
        );
        let (_, unloaded) = run(&jdk, "unloaded", heap, &["isClean"], "");
        unloaded.ends_with(0);
        let found = entry(&unloaded);
        assert!(
            found.verdict == Verdict::Warn && found.reason.contains("nothing was looked for"),
            "the class is not loaded: {}",
            found.reason
        );
    }
}

#[test]
fn what_the_first_failed_test_found_is_dumped_before_the_next_one() {
    for jdk in jvm::jdks() {
        let heap = "{ at: test_failed, rules: [leaks.toml] }";
        let tests = ["isClean", "forgetsSessions", "fails", "endsSessions", "fails"];
        let (project, failed) = run(&jdk, "failed", heap, &tests, "");
        failed.ends_with(1);
        let found = failed.test("heap dump at the first failed test");
        assert_eq!((found.verdict, found.leaks.len()), (Verdict::Fail, 1), "{}\n{failed}", found.reason);
        assert!(found.leaks[0].title.starts_with("2 × com.example.Probes$Session"), "{:#?}", found.leaks);
        assert_eq!(dumps(&project).len(), 1, "one dump of the first failure");
        let (project, passed) = run(&jdk, "passed", heap, &tests[..2], "");
        passed.ends_with(0);
        assert!(!passed.stdout.contains("heap dump") && dumps(&project).is_empty(), "{passed}");
    }
}

#[test]
fn an_error_for_lack_of_memory_says_what_held_the_heap_and_whose_local_variable() {
    for jdk in jvm::jdks() {
        let heap = "{ at: out_of_memory, fail: { class: { 'com.example.Probes$Block': 100 } }, keep: never }";
        let (project, run) = run(&jdk, "memory", heap, &["isClean", "fillsTheHeap"], "");
        run.ends_with(1);
        let full = run.test("com.example.Probes.fillsTheHeap");
        for told in [
            "OutOfMemoryError: Java heap space",
            "most is held by java.util.ArrayList → java.lang.Object[] (",
            // In the constructor of a block, or where the list grows: whichever asks for more memory at that
            // moment.
            "thread main ran out in com.example.Probes",
            "its local variable java.util.ArrayList of com.example.Probes.fillsTheHeap(Probes.java:",
            " % of the heap",
        ] {
            assert!(full.reason.contains(told), "{told}: {}", full.reason);
        }
        assert!(!full.reason.contains("heap dump: "), "it is gone: {}", full.reason);
        assert_eq!(dumps(&project), Vec::<String>::new());
        let found = run.test("heap dump at an OutOfMemoryError");
        assert!(
            found.verdict == Verdict::Fail
                && found.reason.contains("× com.example.Probes$Block in the heap dump (allowed 100)"),
            "{}",
            found.reason
        );
    }
}
