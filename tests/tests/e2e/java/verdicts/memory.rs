//! A test that runs out of memory, or fills more of the heap than allowed: the report says with what, where
//! that was allocated, and shows the heap up to that point.

use std::fs;

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::{Project, Run, probes};
use memgate_model::{Metric, Outcome, TestReport, Verdict};

const SETTINGS: &str = "version: 1\nmeasure: { screen: off }\n";
const WITH_DUMP: &str = "version: 1\nmeasure: { screen: off, java: { heap_dump: out_of_memory } }\n";

fn run(jdk: &Jdk, name: &str, settings: &str, tests: &[&str]) -> (Project, Run) {
    let project = Project::new(&format!("jvm-memory-{name}-{}", jdk.release));
    project.write("memgate.yaml", settings);
    let java = probes::java(jdk, &["-Xmx48m"], &[&[probes::RUNNER], tests].concat());
    let run = project.run_command(&java);
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

/// Used bytes of the heap over the test.
fn heap(test: &TestReport) -> Vec<f64> {
    let points = test.curve.iter().filter(|point| point.metric == Metric::JavaHeapUsed);
    points.map(|point| point.value).collect()
}

#[test]
fn the_heap_is_shown_up_to_the_error() {
    for jdk in jvm::jdks() {
        let (project, run) = run(&jdk, "curve", SETTINGS, &["isClean", "fillsTheHeap"]);
        let heap = heap(&run.test("com.example.Probes.fillsTheHeap"));
        let highest = heap.iter().copied().fold(0.0, f64::max);
        assert!(heap.len() >= 5 && heap[0] < highest / 2.0, "it fills: {heap:?}");
        assert!(highest > 0.8 * 48.0 * 1024.0 * 1024.0, "up to its end: {heap:?}");
        let page = fs::read_to_string(project.session().join("report.html")).unwrap();
        assert!(
            page.contains("java.heap_used over time") && page.contains("java.heap_used over the whole suite")
        );
    }
}

#[test]
fn a_test_that_fills_more_of_the_heap_than_it_may_gets_a_warning_with_what_fills_it() {
    const LIMITED: &str =
        "version: 1\nmeasure: { screen: off, java: { heap_limit: 50%, heap_dump: heap_limit } }\n";
    for jdk in jvm::jdks() {
        let (project, run) = run(&jdk, "limit", LIMITED, &["isClean", "nearlyFillsTheHeap", "writesNotes"]);
        run.ends_with(0);
        let full = run.test("com.example.Probes.nearlyFillsTheHeap");
        assert_eq!((full.outcome, full.verdict), (Outcome::Passed, Verdict::Warn), "{run}");
        for told in ["heap usage above 50 %, ", " of 48.0 MiB used", "× long[] (", "(Probes.java:"] {
            assert!(full.reason.contains(told), "{told}: {}\n{run}", full.reason);
        }
        let heap = heap(&full);
        assert!(heap.len() >= 5 && heap[0] < 0.5 * 48.0 * 1024.0 * 1024.0, "up to the limit: {heap:?}");
        let (_, dump) = full.reason.split_once("heap dump: ").unwrap_or_else(|| panic!("{}", full.reason));
        assert!(fs::read(dump).unwrap().starts_with(b"JAVA PROFILE 1.0.2"), "{dump}");
        assert!(dump.starts_with(&fs::canonicalize(project.session()).unwrap().display().to_string()));
        for other in ["isClean", "writesNotes"] {
            let other = run.test(&format!("com.example.Probes.{other}"));
            assert_eq!(other.verdict, Verdict::NotJudged, "{}", other.reason);
        }
    }
}

#[test]
fn garbage_is_not_above_the_limit() {
    const LIMITED: &str = "version: 1\nmeasure: { screen: off, java: { heap_limit: 50% } }\n";
    for jdk in jvm::jdks() {
        let (_, run) = run(&jdk, "garbage", LIMITED, &["makesGarbage"]);
        let test = run.test("com.example.Probes.makesGarbage");
        let unscreened = (Verdict::NotJudged, "not screened: `screen: off`");
        assert_eq!((test.verdict, test.reason.as_str()), unscreened, "{run}");
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
