//! JUnit documents, read back by quick-junit and checked by xmllint where it is installed.

use std::io::Write;
use std::process::{Command, Stdio};

use memgate_model::{RunReport, Runner, TestReport};
use quick_junit::{NonSuccessKind, TestCaseStatus};

use super::*;
use crate::sample;

const FLAVOURS: [Flavour; 2] = [Flavour::Strict, Flavour::Extended];

fn options(flavour: Flavour) -> JunitOptions {
    JunitOptions { flavour, charts: Some("out/charts".to_owned()), ..JunitOptions::default() }
}

fn text(report: &RunReport, flavour: Flavour) -> String {
    String::from_utf8(junit(report, &options(flavour)).unwrap()).unwrap()
}

/// The document as an independent reader sees it.
fn read(report: &RunReport, flavour: Flavour) -> quick_junit::Report {
    let xml = text(report, flavour);
    quick_junit::Report::deserialize_from_str(&xml).unwrap_or_else(|error| panic!("{error}\n{:.2000}", xml))
}

fn kind(case: &quick_junit::TestCase) -> (&str, &str, &str) {
    match &case.status {
        TestCaseStatus::Success { .. } => ("success", "", ""),
        TestCaseStatus::Skipped { ty, message, .. } => ("skipped", as_str(ty), as_str(message)),
        TestCaseStatus::NonSuccess { kind: NonSuccessKind::Failure, ty, message, .. } => {
            ("failure", as_str(ty), as_str(message))
        }
        TestCaseStatus::NonSuccess { kind: NonSuccessKind::Error, ty, message, .. } => {
            ("error", as_str(ty), as_str(message))
        }
    }
}

fn as_str(text: &Option<quick_junit::XmlString>) -> &str {
    text.as_ref().map_or("", quick_junit::XmlString::as_str)
}

/// One element per line, for people who read the snapshot.
fn lines(xml: &str) -> String {
    xml.replace("><", ">\n<")
}

#[test]
fn a_leak_as_ci_servers_get_it() {
    insta::assert_snapshot!("leak_strict", lines(&text(&sample::leak(), Flavour::Strict)));
    insta::assert_snapshot!("leak_extended", lines(&text(&sample::leak(), Flavour::Extended)));
}

#[test]
fn each_verdict_has_its_place() {
    let read = read(&sample::mixed(), Flavour::Extended);
    let cases: Vec<_> = read
        .test_suites
        .iter()
        .flat_map(|suite| &suite.test_cases)
        .map(|case| {
            let (kind, ty, message) = kind(case);
            let out = case.system_out.as_ref().map_or("", |out| out.as_str().lines().next().unwrap_or(""));
            format!("{} / {}: {kind} [{ty}] {message} | {out}", as_str(&case.classname), case.name.as_str())
        })
        .collect();
    insta::assert_snapshot!(cases.join("\n"));
    assert_eq!((read.tests, read.failures, read.errors, read.skipped), (13, 2, 3, 1));
    let engine = &read.test_suites[0];
    assert_eq!((engine.tests, engine.failures, engine.errors, engine.skipped), (9, 2, 1, 1));
}

#[test]
fn the_leak_text_is_the_one_people_read_on_the_terminal() {
    let read = read(&sample::leak(), Flavour::Strict);
    let TestCaseStatus::NonSuccess { description, .. } = &read.test_suites[0].test_cases[1].status else {
        panic!("no failure")
    };
    let text = as_str(description);
    assert!(text.contains("12 × 4096 B  MapCache::insert(Tile const&)     src/map_cache.cpp:88\n"), "{text}");
    assert!(crate::human(&sample::leak(), &crate::HumanOptions::default()).contains(text), "{text}");
}

#[test]
fn figures_and_leak_ids_are_properties_of_the_extended_flavour_only() {
    let properties = |flavour| -> Vec<(String, String)> {
        let read = read(&sample::leak(), flavour);
        let properties = &read.test_suites[0].test_cases[1].properties;
        properties.iter().map(|p| (p.name.as_str().to_owned(), p.value.as_str().to_owned())).collect()
    };
    assert_eq!(properties(Flavour::Strict), []);
    assert_eq!(
        properties(Flavour::Extended),
        [
            ("memgate.verdict", "fail"),
            ("native.live_bytes.per_iteration", "49152"),
            ("native.live_bytes.allowed", "0"),
            ("native.live_bytes.threshold", "default"),
            ("native.live_allocations.per_iteration", "12"),
            ("memgate.leak", "n1-5f1c09a2b47d1e03"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
}

/// Regression: the file of a Java leak was that of the outermost frame, which is inside of JUnit.
#[test]
fn a_leaking_test_has_the_outermost_file_of_the_project() {
    let mut report = sample::held();
    let frames = &mut report.suites[0].tests[0].leaks[0].frames;
    let inside = memgate_model::Frame {
        function: Some("org.junit.platform.engine.support.hierarchical.NodeTestTask.execute".to_owned()),
        file: Some("NodeTestTask.java".to_owned()),
        ..frames[0].clone()
    };
    frames.push(inside);
    let sources = vec!["core/src/main/java/com/example/TileLoader.java".to_owned()];
    let options =
        JunitOptions { places: Checkout { root: String::new(), sources }, ..options(Flavour::Extended) };
    let xml = String::from_utf8(junit(&report, &options).unwrap()).unwrap();
    assert!(xml.contains("file=\"core/src/main/java/com/example/TileLoader.java\""), "{xml}");
    assert!(!xml.contains("NodeTestTask.java\""), "{xml}");
}

#[test]
fn a_leak_has_its_iterations_as_reruns_and_its_charts_as_attachments() {
    let cases = |flavour| read(&sample::leak(), flavour).test_suites[0].test_cases.clone();
    let [passed, leaks] = cases(Flavour::Extended).try_into().unwrap();
    assert!(matches!(&passed.status, TestCaseStatus::Success { .. }) && passed.system_out.is_none());
    let TestCaseStatus::NonSuccess { reruns, .. } = &leaks.status else { panic!("{:?}", leaks.status) };
    assert_eq!(reruns.runs.len(), 2, "of four iterations one is warm-up, and two can be compared");
    assert!(as_str(&reruns.runs[1].message).ends_with("48.0 KiB (49152 B) more than at iteration 3"));
    assert_eq!(
        as_str(&leaks.system_out),
        "[[ATTACHMENT|out/charts/engine_tests.MapCache.scroll.growth.native.live_bytes.png]]\n\
         [[ATTACHMENT|out/charts/engine_tests.MapCache.scroll.curve.native.live_bytes.png]]"
    );
    let files = crate::charts(&sample::leak()).unwrap();
    for name in as_str(&leaks.system_out).split("out/charts/").skip(1) {
        let name = name.split("]]").next().unwrap();
        assert!(files.iter().any(|file| file.name == name), "{name} is written");
    }
    let strict = text(&sample::leak(), Flavour::Strict);
    assert!(!strict.contains("rerunFailure") && !strict.contains("ATTACHMENT"), "{strict}");
}

#[test]
fn the_strict_flavour_uses_only_what_junit_10_xsd_allows() {
    // The attributes of https://github.com/jenkinsci/xunit-plugin, junit-10.xsd, and the elements
    // below a test case.
    let allowed = |element: &str| match element {
        "testsuites" => ["name", "time", "tests", "failures", "errors"].as_slice(),
        "testsuite" => &[
            "name",
            "tests",
            "failures",
            "errors",
            "time",
            "skipped",
            "timestamp",
            "hostname",
            "id",
            "package",
        ],
        "testcase" => &["name", "time", "classname"],
        "failure" | "error" | "skipped" => &["type", "message"],
        "property" => &["name", "value"],
        "properties" | "system-out" | "system-err" => &[],
        other => panic!("<{other}> is not in the schema"),
    };
    for (sample, report) in sample::all() {
        let xml = junit(&report, &options(Flavour::Strict)).unwrap();
        let mut reader = quick_xml::Reader::from_reader(xml.as_slice());
        let mut case = false;
        loop {
            match reader.read_event().unwrap() {
                quick_xml::events::Event::Eof => break,
                quick_xml::events::Event::End(end) if end.name().as_ref() == b"testcase" => case = false,
                quick_xml::events::Event::Start(start) => {
                    case |= start.name().as_ref() == b"testcase";
                    assert!(
                        !(case && start.name().as_ref() == b"properties"),
                        "{sample}: properties in a test case"
                    );
                    check_attributes(&start, allowed);
                }
                quick_xml::events::Event::Empty(empty) => check_attributes(&empty, allowed),
                _ => {}
            }
        }
    }
}

fn check_attributes<'a>(start: &quick_xml::events::BytesStart<'_>, allowed: impl Fn(&str) -> &'a [&'a str]) {
    let element = String::from_utf8(start.name().as_ref().to_vec()).unwrap();
    for attribute in start.attributes() {
        let attribute = attribute.unwrap();
        let key = str::from_utf8(attribute.key.as_ref()).unwrap();
        assert!(allowed(&element).contains(&key), "<{element} {key}> is not in the schema");
        if key == "time" && element != "testcase" {
            let (whole, fraction) =
                str::from_utf8(&attribute.value).unwrap().split_once('.').unwrap_or(("0", "0"));
            assert!(whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) && fraction.len() <= 3);
        }
    }
}

#[test]
fn hostile_names_and_a_megabyte_of_text_come_through() {
    for flavour in FLAVOURS {
        let read = read(&sample::hostile(), flavour);
        let [suite, run] = read.test_suites.as_slice() else { panic!("{} suites", read.test_suites.len()) };
        assert_eq!(suite.name.as_str(), r#"a\u{0}bred]]>\u{fffe}  <&"'>\u{202e}�"#);
        assert!(suite.test_cases[0].name.as_str().contains(r"\u{0}bred]]>"));
        assert_eq!(kind(&suite.test_cases[0]).0, "failure");
        let out = suite.test_cases[1].system_out.as_ref().unwrap().as_str();
        assert!(out.len() > 1_000_000 && out.contains(r"out]]>\u{0}"), "{}", out.len());
        assert_eq!(kind(&run.test_cases[0]).0, "error");
    }
}

#[test]
fn lossy_text_of_a_test_that_prints_surrogates_comes_through() {
    let surrogate = String::from_utf8_lossy(b"Tile.\xed\xa0\x80end").into_owned();
    let tests = vec![sample::test(&surrogate)];
    let report = sample::run(Verdict::Pass, 0, vec![sample::suite("s", Verdict::Pass, tests)]);
    assert_eq!(read(&report, Flavour::Strict).test_suites[0].test_cases[0].name.as_str(), "���end");
}

#[test]
fn a_red_run_never_has_a_green_document() {
    let mut report = sample::clean();
    (report.verdict, report.exit_code) = (Verdict::Error, 2);
    let read = read(&report, Flavour::Strict);
    assert_eq!((read.errors, kind(&read.test_suites[1].test_cases[0]).2), (1, "exit code 2, verdict error"));

    report.suites[0].verdict = Verdict::Error;
    report.suites[0].reason = "ran no test".to_owned();
    report.suites[0].tests.clear();
    let suite = &self::read(&report, Flavour::Strict).test_suites[0];
    assert_eq!(kind(&suite.test_cases[0]), ("error", "not measured", "ran no test"));
}

#[test]
fn a_problem_of_a_green_run_stays_green() {
    let mut report = sample::clean();
    report.errors = sample::nothing().errors;
    let read = read(&report, Flavour::Extended);
    let case = &read.test_suites[1].test_cases[0];
    assert_eq!((read.errors, kind(case).0), (0, "success"));
    assert_eq!(
        case.system_out.as_ref().unwrap().as_str(),
        "build/engine_tests: no such file\nbuild it first"
    );
}

#[test]
fn an_own_failure_is_the_users_whatever_memgate_thinks_of_the_test() {
    for (outcome, verdict, expected) in [
        (Outcome::Failed, Verdict::NotJudged, ("failure", "test", "failed by itself")),
        (Outcome::Failed, Verdict::Warn, ("failure", "test", "failed by itself")),
        (Outcome::Failed, Verdict::Fail, ("failure", "leak", "failed by itself")),
        (Outcome::Skipped, Verdict::NotJudged, ("skipped", "skipped", "skipped itself")),
        (Outcome::Crashed, Verdict::NotJudged, ("error", "crashed", "crashed")),
        (Outcome::TimedOut, Verdict::Error, ("error", "timed out", "timed out")),
        (Outcome::Passed, Verdict::Error, ("error", "not measured", "passed")),
        (Outcome::Passed, Verdict::NotJudged, ("success", "", "")),
    ] {
        let tests = vec![TestReport { outcome, verdict, ..sample::test("A.b") }];
        let report = sample::run(verdict, 0, vec![sample::suite("s", verdict, tests)]);
        let read = read(&report, Flavour::Extended);
        assert_eq!(kind(&read.test_suites[0].test_cases[0]), expected, "{outcome:?} {verdict:?}");
    }
}

#[test]
fn classes_group_tests_below_their_suite() {
    let class = |runner: Runner, id: &str| {
        let suite = SuiteReport { runner, ..sample::suite("engine", Verdict::Pass, vec![]) };
        let test = sample::test(id);
        let (class, name) = class_and_name(&suite, &test);
        (class, name.to_owned())
    };
    assert_eq!(
        class(Runner::Gtest, "Some/Cache.works/3"),
        ("engine.Some/Cache".to_owned(), "works/3".to_owned())
    );
    assert_eq!(class(Runner::Command, "replay.sh"), ("engine".to_owned(), "replay.sh".to_owned()));
    assert_eq!(class(Runner::Gtest, "odd"), ("engine".to_owned(), "odd".to_owned()));
}

#[test]
fn times_are_whole_milliseconds() {
    for (seconds, milliseconds_) in
        [(0.0313, 31), (1.9996, 2000), (-1.0, 0), (f64::NAN, 0), (f64::MAX, 320_000_000_000_000)]
    {
        assert_eq!(milliseconds(seconds).whole_milliseconds(), milliseconds_, "{seconds}");
    }
}

#[test]
fn only_a_time_stamp_that_readers_understand_is_written() {
    for (text, good) in [
        ("2026-11-21T10:15:00+01:00", true),
        ("2026-11-21T10:15:00.123456789Z", true),
        ("2026-11-21T10:15:00-08:00", true),
        ("2026-11-21T10:15:00+01:00[Europe/Berlin]", false),
        ("2026-11-21T10:15:00.Z", false),
        ("2026-11-21T10:15:00", false),
        ("2026-11-21 10:15:00Z", false),
        ("2026-11-21T10:15:0ü", false),
        ("", false),
    ] {
        assert_eq!(is_rfc3339(text), good, "{text}");
    }
}

#[test]
fn an_empty_suite_keeps_its_properties() {
    let report = sample::run(Verdict::Pass, 0, vec![sample::suite("empty", Verdict::Pass, vec![])]);
    let read = read(&report, Flavour::Strict);
    assert_eq!(read.test_suites[0].properties.len(), 3);
}

#[test]
fn xmllint_finds_every_document_well_formed() {
    for (name, report) in sample::all() {
        for flavour in FLAVOURS {
            let child =
                Command::new("xmllint").args(["--noout", "--huge", "-"]).stdin(Stdio::piped()).spawn();
            let Ok(mut child) = child else { return };
            child.stdin.take().unwrap().write_all(&junit(&report, &options(flavour)).unwrap()).unwrap();
            assert!(child.wait().unwrap().success(), "{name} {flavour:?}");
        }
    }
}

#[test]
fn a_java_test_keeps_its_class_whatever_its_parameters_are() {
    for (id, class, name) in [
        ("com.example.TileCacheTest.evicts", "com.example.TileCacheTest", "evicts"),
        ("com.example.A.b(java.lang.String)[2]", "com.example.A", "b(java.lang.String)[2]"),
        ("com.example.A.b[1.5]", "com.example.A", "b[1.5]"),
        ("Alone", "loaders", "Alone"),
    ] {
        let java = SuiteReport {
            runner: Runner::Junit,
            ..sample::suite("loaders", Verdict::Pass, vec![sample::test(id)])
        };
        assert_eq!(class_and_name(&java, &java.tests[0]), (class.to_owned(), name), "{id}");
    }
}
