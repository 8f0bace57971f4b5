//! Tests and results must match those of ddmlib, Android's own reader of these streams. Debian's package
//! `libandroid-ddms-java` contains it; if it or Java is missing, the test is skipped with a message.
#![expect(clippy::unwrap_used, reason = "what the test cannot do without fails it")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use memgate_formats::instrumentation::{Ending, InstrumentationRun, RawStream, Status};

const JARS: &str = "/usr/share/java";
/// ddmlib and its dependencies.
const NEEDED: [&str; 5] = [
    "com.android.tools.ddms.ddmlib.jar",
    "com.android.tools.common.jar",
    "com.android.tools.annotations.jar",
    "kxml2.jar",
    "guava.jar",
];

/// A run as one of the two readers sees it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    tests: Vec<(String, &'static str)>,
    failed: bool,
}

/// The class path of ddmlib; `None`, with a message: it is not installed.
fn class_path() -> Option<String> {
    let say = |why: &str| std::io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).unwrap();
    let jars: Vec<PathBuf> = NEEDED.iter().map(|jar| Path::new(JARS).join(jar)).collect();
    if let Some(missing) = jars.iter().find(|jar| !jar.exists()) {
        say(&format!("there is no {} (Debian: libandroid-ddms-java)", missing.display()));
        return None;
    }
    if Command::new("java").arg("-version").output().is_err() {
        say("there is no java here");
        return None;
    }
    Some(jars.iter().map(|jar| jar.display().to_string()).collect::<Vec<_>>().join(":"))
}

fn bundle(pairs: &[(&str, &str)], code: i64) -> String {
    let values: String =
        pairs.iter().map(|(key, value)| format!("INSTRUMENTATION_STATUS: {key}={value}\n")).collect();
    format!("{values}INSTRUMENTATION_STATUS_CODE: {code}\n")
}

/// Begin and end of one test of `count`; an end of 1: there is none.
fn test(number: u64, count: u64, name: &str, code: i64, stack: &str) -> String {
    let (class, method) = name.split_once('#').unwrap();
    let (number, count) = (number.to_string(), count.to_string());
    let pairs = [
        ("class", class),
        ("current", number.as_str()),
        ("id", "AndroidJUnitRunner"),
        ("numtests", count.as_str()),
        ("stream", ""),
        ("test", method),
    ];
    let begin = bundle(&pairs, 1);
    if code == 1 {
        return begin;
    }
    let trace = [("stack", stack)];
    let more = if stack.is_empty() { &[][..] } else { &trace };
    begin + &bundle(&[&pairs[..], more].concat(), code)
}

fn end(result: &str, code: i64) -> String {
    format!("INSTRUMENTATION_RESULT: {result}\nINSTRUMENTATION_CODE: {code}\n")
}

const TRACE: &str = "java.lang.AssertionError: expected:<4> but was:<5>\n\tat org.junit.Assert.fail(Assert.java:89)\n\n\tat com.a.B.second(B.kt:21)\n";
const DONE: &str = "stream=\n\nTime: 1,745.755\n\nOK (2 tests)\n\n";

/// All kinds of tests, and all endings that ddmlib knows.
fn streams() -> Vec<(&'static str, String)> {
    let crash = "shortMsg=Process crashed.";
    vec![
        ("pass and fail", test(1, 2, "com.a.B#first", 0, "") + &test(2, 2, "com.a.B#second", -2, TRACE) + &end(DONE, -1)),
        ("error of an old runner", test(1, 1, "com.a.B#first", -1, TRACE) + &end(DONE, -1)),
        (
            "ignored and assumed",
            test(1, 3, "com.a.B#a", -3, "") + &test(2, 3, "com.a.B#b", -4, TRACE) + &test(3, 3, "com.a.C#c[x y=1]", 0, "") + &end(DONE, -1),
        ),
        ("no tests", end("stream=\n\nTime: 0.001\n\nOK (0 tests)\n\n", -1)),
        ("killed in a test", test(1, 2, "com.a.B#a", 0, "") + &test(2, 2, "com.a.B#b", 1, "") + &end(crash, 0)),
        ("killed between tests", test(1, 2, "com.a.B#a", 0, "") + &end(crash, 0)),
        (
            "exception with a long message",
            test(1, 1, "com.a.B#a", 1, "") + &end("shortMsg=java.lang.IllegalStateException\nINSTRUMENTATION_RESULT: longMsg=java.lang.IllegalStateException: BT Adapter is not turned ON", 0),
        ),
        ("fewer tests than announced", test(1, 3, "com.a.B#a", 0, "") + &end(DONE, -1)),
        ("the stream stops", test(1, 2, "com.a.B#a", 0, "") + &test(2, 2, "com.a.B#b", 1, "")),
        (
            "unknown component",
            "INSTRUMENTATION_STATUS: Error=Unable to find instrumentation info for: ComponentInfo{a.test/R}\nINSTRUMENTATION_STATUS: id=ActivityManagerService\n\
             INSTRUMENTATION_STATUS_CODE: -1\nandroid.util.AndroidException: INSTRUMENTATION_FAILED: a.test/R\n\tat com.android.commands.am.Am.run(Am.java:100)\n"
                .to_owned(),
        ),
        ("nothing at all", String::new()),
    ]
}

/// What the listener of ddmlib received, stream by stream.
fn by_ddmlib(class_path: &str, files: &[PathBuf]) -> Vec<Seen> {
    let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ddmlib/Oracle.java");
    let output = Command::new("java").args(["-cp", class_path]).arg(oracle).args(files).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    // The library prints its own log in between.
    text.split("stream\n").skip(1).map(of_events).collect()
}

fn of_events(events: &str) -> Seen {
    let mut seen = Seen { tests: Vec::new(), failed: false };
    for (event, about) in events.lines().filter_map(|line| line.split_once('\t')) {
        let outcome = match event {
            // The end of an ignored test is reported as another start of it.
            "testStarted" if seen.tests.last().is_some_and(|(name, _)| name == about) => continue,
            "testStarted" => {
                seen.tests.push((about.to_owned(), "passed"));
                continue;
            }
            "testRunFailed" => {
                seen.failed = true;
                continue;
            }
            "testFailed" => "failed",
            "testIgnored" => "ignored",
            "testAssumptionFailure" => "assumption",
            _ => continue,
        };
        let test = seen.tests.iter_mut().find(|(name, _)| name == about);
        test.unwrap_or_else(|| panic!("{event} of {about}:\n{events}")).1 = outcome;
    }
    seen
}

fn by_us(stream: &str) -> Seen {
    let (mut run, mut reader) = (InstrumentationRun::new(), RawStream::new());
    reader.push(stream.as_bytes(), |item| run.apply(item));
    reader.finish(|item| run.apply(item));
    let ending = run.end();
    let outcome = |status: Status| match status {
        Status::Passed => "passed",
        Status::Ignored => "ignored",
        Status::AssumptionFailed => "assumption",
        Status::Failed | Status::Error | Status::Crashed | Status::NotEnded | Status::Unknown => "failed",
    };
    let tests = run.tests().iter().map(|test| {
        (format!("{}#{}", test.class, test.method.as_deref().unwrap_or("null")), outcome(test.status))
    });
    let tests = tests.collect();
    // ddmlib does not count a run without a test as a failure. memgate reports it as an ending of its own.
    Seen { tests, failed: !matches!(ending, Ending::Complete | Ending::NoTests) }
}

#[test]
fn tests_and_results_are_those_that_ddmlib_reads() {
    let Some(class_path) = class_path() else { return };
    let folder = env::temp_dir().join(format!("memgate-ddmlib-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let streams = streams();
    let files: Vec<PathBuf> = (0..streams.len()).map(|number| folder.join(format!("{number}.txt"))).collect();
    for (file, (_, stream)) in files.iter().zip(&streams) {
        fs::write(file, stream).unwrap();
    }
    let seen = by_ddmlib(&class_path, &files);
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(seen.len(), streams.len());
    for ((what, stream), seen) in streams.iter().zip(seen) {
        assert_eq!(by_us(stream), seen, "{what}: ours, then ddmlib's\n{stream}");
    }
}
