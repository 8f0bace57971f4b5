//! A test that runs out of memory: the report says what filled the heap, and where that was allocated.

use std::fs;

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::{Project, Run, probes};
use memgate_model::{Outcome, Verdict};

const SETTINGS: &str = "version: 1\nmeasure: { screen: off }\n";
const WITH_DUMP: &str = "version: 1\nmeasure: { screen: off, java: { heap_dump: out_of_memory } }\n";

fn run(jdk: &Jdk, name: &str, settings: &str, tests: &[&str]) -> (Project, Run) {
    let project = Project::new(&format!("jvm-memory-{name}-{}", jdk.release));
    project.write("memgate.yaml", settings);
    let java = probes::java(jdk, &["-Xmx48m"], &[&[probes::RUNNER], tests].concat());
    let arguments: Vec<String> = ["run", "--"].map(str::to_owned).into_iter().chain(java).collect();
    let run = project.memgate(&arguments);
    (project, run)
}

#[test]
fn the_test_that_filled_the_heap_says_with_what() {
    for jdk in jvm::jdks() {
        let (project, run) = run(&jdk, "full", WITH_DUMP, &["isClean", "fillsTheHeap"]);
        let full = run.test("com.example.Probes.fillsTheHeap");
        assert_eq!((full.outcome, full.verdict), (Outcome::Failed, Verdict::NotJudged), "{run}");
        for told in ["OutOfMemoryError: Java heap space", "of 48.0 MiB used", "× long[] (", "(Probes.java:"]
        {
            assert!(full.reason.contains(told), "{told}: {}", full.reason);
        }
        assert!(full.reason.contains("most allocated at com.example.Probes$Block.<init>"), "{}", full.reason);
        let (_, dump) = full.reason.split_once("heap dump: ").unwrap_or_else(|| panic!("{}", full.reason));
        let head = fs::read(dump).unwrap();
        assert!(head.starts_with(b"JAVA PROFILE 1.0.2"), "{dump}");
        assert!(
            dump.starts_with(&fs::canonicalize(project.session()).unwrap().display().to_string()),
            "{dump}"
        );
        assert!(
            !run.stdout.contains("jvmti"),
            "the virtual machine's own word of it is not the guest's: {run}"
        );
        let clean = run.test("com.example.Probes.isClean");
        assert!(!clean.reason.contains("OutOfMemoryError"), "{}", clean.reason);
    }
}

#[test]
fn an_error_that_the_test_expects_changes_nothing() {
    for jdk in jvm::jdks() {
        let (project, run) = run(&jdk, "expected", SETTINGS, &["asksForTooMuch", "isClean"]);
        let asks = run.test("com.example.Probes.asksForTooMuch");
        assert_eq!(asks.outcome, Outcome::Passed, "{run}");
        assert!(!asks.reason.contains("OutOfMemoryError"), "{}", asks.reason);
        let dumps = fs::read_dir(project.session().join("java")).unwrap();
        let hprof =
            dumps.map(|entry| entry.unwrap().path()).find(|p| p.extension().is_some_and(|e| e == "hprof"));
        assert_eq!(hprof, None, "nobody asked for one");
    }
}
