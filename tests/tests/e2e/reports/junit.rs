//! CI systems can read the JUnit file, whatever the tests are called.

use std::io::Write as _;
use std::process::{Command, Stdio};

use memgate_e2e::{Project, has_tool, samples};
use quick_junit::{Report, TestCaseStatus};

use crate::{leaks_session, names_session};

fn junit(project: &Project) -> String {
    let run = project.memgate(&["report", "--format", "junit"]);
    run.ends_with(0);
    run.stdout
}

#[track_caller]
fn is_well_formed(xml: &str) {
    if has_tool("xmllint") {
        let mut lint = Command::new("xmllint").args(["--noout", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        lint.stdin.take().unwrap().write_all(xml.as_bytes()).unwrap();
        assert!(lint.wait().unwrap().success(), "xmllint refuses it:\n{xml}");
    }
}

#[test]
fn a_leak_is_a_failure_with_its_culprit_and_a_pass_is_a_pass() {
    let (project, _) = leaks_session();
    let xml = junit(project);
    is_well_formed(&xml);
    let report = Report::deserialize_from_str(&xml).unwrap_or_else(|e| panic!("{e}\n{xml}"));
    assert_eq!((report.tests, report.failures, report.errors), (20, 17, 0));
    let cases: Vec<_> = report.test_suites.iter().flat_map(|suite| &suite.test_cases).collect();
    let strdup = cases.iter().find(|case| case.name.as_str().ends_with("Strdup")).unwrap();
    let TestCaseStatus::NonSuccess { message, description, .. } = &strdup.status else {
        panic!("{strdup:?}")
    };
    let told = format!(
        "{} {}",
        message.as_ref().map_or("", |m| m.as_str()),
        description.as_ref().map_or("", |d| d.as_str())
    );
    assert!(told.contains("61 B per iteration") && told.contains("leaks::copy_title"), "{told}");
    assert!(cases.iter().any(|case| matches!(case.status, TestCaseStatus::Success { .. })));
}

#[test]
fn names_that_break_xml_do_not_break_it() {
    let (project, run) = names_session();
    let xml = junit(project);
    is_well_formed(&xml);
    let report = Report::deserialize_from_str(&xml).unwrap_or_else(|e| panic!("{e}\n{xml}"));
    assert_eq!(report.tests, run.suite().tests.len());
    assert!(xml.contains("&lt;a href="), "{xml}");
    assert!(!xml.contains('\u{7}') && !xml.contains('\u{1b}') && !xml.contains('\u{1}'), "{xml}");
}

#[test]
fn the_configuration_says_where_it_is_written() {
    let project = Project::new("junit-file");
    project.write("memgate.yaml", "version: 1\nreports:\n  junit: { path: out/memgate/junit.xml }\n");
    let program = samples::suite("clean");
    let run = project.memgate(&["run", "--filter", "Clean.NothingAtAll", "--", program.to_str().unwrap()]);
    run.ends_with(0);
    let xml = project.read("out/memgate/junit.xml");
    is_well_formed(&xml);
    assert_eq!(Report::deserialize_from_str(&xml).unwrap().tests, 1);
}
