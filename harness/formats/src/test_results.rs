//! Reads the results of a test class that Surefire, Failsafe and Gradle write: `TEST-com.example.ATest.xml`.
//!
//! The result contains the test cases with their outcomes, in the order of the file, and the system properties of the
//! virtual machine that Surefire writes. Everything else (output, stack traces) is skipped. The number of tests and
//! properties is limited; a file that is no XML is an error.

use std::collections::BTreeMap;

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

/// Maximum number of tests and of properties kept per file.
const MAX_ENTRIES: usize = 100_000;

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestOutcome {
    /// No other outcome is given.
    Passed,
    /// A failure or an error.
    Failed,
    /// Skipped.
    Skipped,
}

/// A test as its runner names it.
#[derive(Debug, Clone, PartialEq)]
pub struct TestResult {
    /// Its class, without the suffix in brackets that Surefire's `reportNameSuffix` adds.
    pub class: String,
    /// Its name, without the brackets that JUnit 5 and Gradle write after it.
    pub name: String,
    /// How it ended.
    pub outcome: TestOutcome,
    /// How long it took, seconds.
    pub seconds: f64,
}

/// One file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TestResults {
    /// Its tests.
    pub tests: Vec<TestResult>,
    /// System properties, if the file has them.
    pub properties: BTreeMap<String, String>,
}

/// Reads a file of test results.
///
/// # Errors
/// It is not well-formed XML; with the offset.
pub fn test_results(xml: &[u8]) -> Result<TestResults, TestResultsError> {
    let mut reader = Reader::from_reader(xml);
    let mut results = TestResults::default();
    loop {
        let at = reader.buffer_position();
        let wrong = |source| TestResultsError { at, source };
        match reader.read_event().map_err(wrong)? {
            Event::Start(start) | Event::Empty(start) => {
                element(&mut results, &start).map_err(|source| TestResultsError { at, source })?;
            }
            Event::Eof => return Ok(results),
            _ => {}
        }
    }
}

/// Why a file of test results was not read.
#[derive(Debug, thiserror::Error)]
#[error("read test results at byte {at}")]
pub struct TestResultsError {
    at: u64,
    source: quick_xml::Error,
}

fn element(results: &mut TestResults, start: &BytesStart<'_>) -> Result<(), quick_xml::Error> {
    match start.name().as_ref() {
        b"testcase" if results.tests.len() < MAX_ENTRIES => {
            let name = attribute(start, "name")?;
            results.tests.push(TestResult {
                class: without_suffix(attribute(start, "classname")?),
                name: name.strip_suffix("()").map(str::to_owned).unwrap_or(name),
                outcome: TestOutcome::Passed,
                seconds: attribute(start, "time")?.replace(',', "").parse().unwrap_or(0.0),
            });
        }
        b"failure" | b"error" => outcome(results, TestOutcome::Failed),
        b"skipped" => outcome(results, TestOutcome::Skipped),
        b"property" if results.properties.len() < MAX_ENTRIES => {
            results.properties.insert(attribute(start, "name")?, attribute(start, "value")?);
        }
        _ => {}
    }
    Ok(())
}

/// `com.example.ATest(disk)` is `com.example.ATest`. Names with blanks are no classes (Cucumber's features).
fn without_suffix(class: String) -> String {
    let stem = class.strip_suffix(')').and_then(|class| class.split_once('('));
    match stem {
        Some((stem, _)) if !stem.is_empty() && !stem.contains(char::is_whitespace) => stem.to_owned(),
        _ => class,
    }
}

fn outcome(results: &mut TestResults, outcome: TestOutcome) {
    if let Some(test) = results.tests.last_mut() {
        test.outcome = outcome;
    }
}

fn attribute(start: &BytesStart<'_>, name: &str) -> Result<String, quick_xml::Error> {
    let Some(attribute) = start.try_get_attribute(name)? else { return Ok(String::new()) };
    Ok(attribute.normalized_value(XmlVersion::Implicit1_0)?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surefires_file_tells_tests_outcomes_and_properties() {
        let xml = br#"<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="com.example.ATest" tests="3" failures="1">
  <properties>
    <property name="java.home" value="/jdk"/>
    <property name="line.separator" value="&#10;"/>
  </properties>
  <testcase name="loads(int)[1]" classname="com.example.ATest" time="1,034.5"/>
  <testcase name="fails()" classname="com.example.ATest" time="0.1">
    <failure message="a &lt;b&gt;" type="E"><![CDATA[<testcase name="no"/>]]></failure>
    <system-out>text</system-out>
  </testcase>
  <testcase name="waits" classname="com.example.ATest$In"><skipped/></testcase>
</testsuite>"#;
        let results = test_results(xml).unwrap();
        let told: Vec<_> =
            results.tests.iter().map(|t| (t.class.as_str(), t.name.as_str(), t.outcome)).collect();
        assert_eq!(
            told,
            [
                ("com.example.ATest", "loads(int)[1]", TestOutcome::Passed),
                ("com.example.ATest", "fails", TestOutcome::Failed),
                ("com.example.ATest$In", "waits", TestOutcome::Skipped)
            ]
        );
        assert!((results.tests[0].seconds - 1034.5).abs() < 1e-9);
        assert_eq!(results.properties["java.home"], "/jdk");
        assert_eq!(results.properties["line.separator"], "\n");
    }

    #[test]
    fn a_suffix_of_the_report_is_no_part_of_the_class() {
        for (name, class) in [
            ("com.example.ATest(disk)", "com.example.ATest"),
            ("Search (by name)", "Search (by name)"),
            ("(disk)", "(disk)"),
        ] {
            let xml = format!("<testsuite><testcase name=\"a\" classname=\"{name}\"/></testsuite>");
            assert_eq!(test_results(xml.as_bytes()).unwrap().tests[0].class, class);
        }
    }

    #[test]
    fn a_file_that_is_no_xml_is_an_error_with_its_place() {
        let wrong = test_results(b"<testsuite><testcase name=\"a\" </testsuite>").unwrap_err();
        assert!(wrong.to_string().starts_with("read test results at byte "), "{wrong}");
        assert_eq!(test_results(b"").unwrap(), TestResults::default());
    }
}
