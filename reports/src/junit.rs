//! JUnit XML for Jenkins, GitLab and others.
//!
//! Data flow: each test becomes one [`TestCase`] whose text is the block people read on the terminal; junit-report
//! writes them; `enrich` completes the document. junit-report 0.9.1 needs three guards: it writes control characters
//! and `]]>` unchanged, times in nanoseconds, and neither `skipped`, totals nor properties. So `sanitise` cleans every
//! string, times are whole milliseconds, and `enrich` adds the rest. The iterations of the confirming run are
//! `rerunFailure` elements of the extended flavour (`reruns`), as Surefire writes them for tests that fail again.

mod enrich;
mod merge;
mod reruns;
mod sanitise;

use std::collections::BTreeMap;

use junit_report::{Duration, OffsetDateTime, Report, TestCase, TestCaseBuilder, TestSuite};
use memgate_model::{Outcome, Problem, RunReport, Runner, SuiteReport, TestReport, Verdict};

use crate::chart::{Planned, planned};
use crate::error::RenderError;
use crate::figures::{GAP, suite_figures};
use crate::human::{BlockStyle, suite_block, test_block, test_body};
use crate::places::Checkout;
use crate::suite_test::SuiteTest;
use crate::summary::in_short;
use crate::words::own_outcome;
use enrich::{Extra, Extras, enrich};
pub use merge::{Merged, merge};
use sanitise::{attribute, cdata};

/// The dialect of JUnit XML to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flavour {
    /// Only what the schema of Jenkins' xUnit plugin (`junit-10.xsd`) allows.
    Strict,
    /// Also figures as properties of each test, `skipped` on the root, the file of a leaking test,
    /// the iterations that confirmed a leak, and charts as attachments.
    #[default]
    Extended,
}

/// How the document is written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JunitOptions {
    /// The dialect.
    pub flavour: Flavour,
    /// The folder of the charts, as CI servers find it from the folder of the job; `None`: there are no charts.
    pub charts: Option<String>,
    /// The checked-out project, for the files of leaking tests.
    pub places: Checkout,
}

/// The report as JUnit XML.
///
/// # Errors
/// When the XML cannot be written.
pub fn junit(report: &RunReport, options: &JunitOptions) -> Result<Vec<u8>, RenderError> {
    let flavour = options.flavour;
    let style = BlockStyle::plain(report);
    let attached = match (&options.charts, flavour) {
        (Some(folder), Flavour::Extended) => attachments(report, folder),
        _ => BTreeMap::new(),
    };
    let mut suites: Vec<Suite> =
        report.suites.iter().map(|suite| Suite::new(suite, options, &style, &attached)).collect();
    suites.extend(run_suite(report, &suites));

    let mut document = Report::new();
    let mut extras = Extras { root: root_extra(report, &suites, flavour), ..Extras::default() };
    for Suite { name, properties, cases } in suites {
        let mut suite = TestSuite::new(&name);
        suite.package = attribute(&report.project);
        suite.timestamp = OffsetDateTime::UNIX_EPOCH;
        for (case, extra) in cases {
            suite.add_testcase(case);
            extras.cases.push_back(extra);
        }
        extras.suites.push_back(suite_extra(report, &suite, properties));
        document.add_testsuite(suite);
    }
    let mut xml = Vec::new();
    document.write_xml(&mut xml).map_err(RenderError::Junit)?;
    enrich(&xml, extras).map_err(RenderError::Xml)
}

type Properties = Vec<(String, String)>;

/// A suite, cleaned and ready to be written.
struct Suite {
    name: String,
    properties: Properties,
    cases: Vec<(TestCase, Extra)>,
}

/// Lines that name the charts of a test, by the address of the test in the report.
type Attached = BTreeMap<*const TestReport, String>;

impl Suite {
    fn new(suite: &SuiteReport, options: &JunitOptions, style: &BlockStyle, attached: &Attached) -> Self {
        let case = |test| test_case(suite, test, options, style, attached.get(&std::ptr::from_ref(test)));
        let mut cases: Vec<_> = suite.tests.iter().map(case).collect();
        if let Some(case) = whole_suite_case(suite, style) {
            cases.push((case, Extra::default()));
        }
        let properties = [
            ("memgate.verdict", word(&suite.verdict)),
            ("memgate.runner", suite.runner.to_string()),
            ("memgate.boundary", word(&suite.boundary)),
        ];
        Self { name: attribute(&suite.name), properties: cleaned(properties), cases }
    }
}

/// One test. A leak and a failed measurement come first, then the result of the user's own test.
fn test_case(
    suite: &SuiteReport,
    test: &TestReport,
    options: &JunitOptions,
    style: &BlockStyle,
    attached: Option<&String>,
) -> (TestCase, Extra) {
    let (class, name) = class_and_name(suite, test);
    let at = SuiteTest { suite, test };
    let mut case = with_result(name, test);
    case.set_classname(&attribute(&class));
    let text = match test.verdict {
        Verdict::Pass | Verdict::NotJudged => test_body(at, style),
        _ => test_block(at, &test.id, None, style),
    };
    let attached = attached.map_or("", String::as_str);
    if case.testcase.is_error() || case.testcase.is_failure() {
        case.set_trace(&cdata(&text));
        if !attached.is_empty() {
            case.set_system_out(&cdata(attached));
        }
    } else if !text.is_empty() || !attached.is_empty() {
        // The marker is on a line of its own, after everything else: both GitLab and Jenkins find it there.
        case.set_system_out(&cdata(&format!("{text}{attached}")));
    }
    if options.flavour == Flavour::Strict {
        return (case.build(), Extra::default());
    }
    if let Some(file) = test.leaks.first().and_then(|leak| options.places.test_file(at, leak)) {
        case.set_filepath(&attribute(&file));
    }
    let reruns = if test.verdict == Verdict::Fail { reruns::of(test) } else { Vec::new() };
    (case.build(), Extra { properties: test_properties(test), reruns, ..Extra::default() })
}

/// A test case with its result in the words of JUnit.
fn with_result(name: &str, test: &TestReport) -> TestCaseBuilder {
    let (name, time) = (attribute(name), milliseconds(test.duration_s));
    let message = attribute(&if test.verdict == Verdict::Fail { in_short(test) } else { reason(test) });
    match (test.verdict, test.outcome) {
        (Verdict::Fail, _) => TestCaseBuilder::failure(&name, time, "leak", &message),
        (_, Outcome::Crashed) => TestCaseBuilder::error(&name, time, "crashed", &message),
        (_, Outcome::TimedOut) => TestCaseBuilder::error(&name, time, "timed out", &message),
        (Verdict::Error, _) => TestCaseBuilder::error(&name, time, "not measured", &message),
        (_, Outcome::Failed) => TestCaseBuilder::failure(&name, time, "test", &message),
        (_, Outcome::Skipped) => TestCaseBuilder::skipped_with_cause(&name, "skipped", &message),
        (Verdict::Pass | Verdict::Warn | Verdict::NotJudged, Outcome::Passed) => {
            TestCaseBuilder::success(&name, time)
        }
    }
}

/// The charts of every test, for GitLab and for Jenkins' junit-attachments. GitLab shows the first, which is the
/// growth.
fn attachments(report: &RunReport, folder: &str) -> Attached {
    let mut attached = Attached::new();
    // These characters would end the marker early.
    if folder.contains(['|', ']', '\n']) {
        return attached;
    }
    for Planned { test, stem, .. } in planned(report) {
        let Some(test) = test else { continue };
        let lines = attached.entry(std::ptr::from_ref(test)).or_insert_with(|| "\n".to_owned());
        *lines += &format!("[[ATTACHMENT|{}/{stem}.png]]\n", folder.trim_end_matches('/'));
    }
    attached
}

/// GoogleTest's `Suite.Test` becomes class and name, below its suite. JUnit's own class is not changed, so that viewers
/// join the results of both; its methods may have parameters with dots in them.
fn class_and_name<'a>(suite: &SuiteReport, test: &'a TestReport) -> (String, &'a str) {
    if test.is_heap_dump() {
        return (suite.name.clone(), &test.id);
    }
    if test.is_class {
        return (test.id.clone(), "(the class as a whole)");
    }
    if suite.runner == Runner::Junit {
        let name_ends = test.id.find(['(', '[']).unwrap_or(test.id.len());
        return match test.id[..name_ends].rfind('.') {
            Some(dot) => (test.id[..dot].to_owned(), &test.id[dot + 1..]),
            None => (suite.name.clone(), &test.id),
        };
    }
    match test.id.rsplit_once('.').filter(|_| suite.runner != Runner::Command) {
        Some((class, name)) => (format!("{}.{class}", suite.name), name),
        None => (suite.name.clone(), &test.id),
    }
}

fn reason(test: &TestReport) -> String {
    if test.reason.is_empty() { own_outcome(test.outcome).to_owned() } else { test.reason.clone() }
}

fn test_properties(test: &TestReport) -> Properties {
    let mut properties = vec![("memgate.verdict".to_owned(), word(&test.verdict))];
    for (metric, value) in &test.metrics {
        properties.push((format!("{metric}.per_{}", word(&value.per)), value.value.to_string()));
        if let Some(threshold) = &value.threshold {
            properties.push((format!("{metric}.allowed"), threshold.limit.to_string()));
            properties.push((format!("{metric}.threshold"), threshold.source.to_string()));
        }
    }
    properties.extend(test.leaks.iter().map(|leak| ("memgate.leak".to_owned(), leak.id.clone())));
    cleaned(properties)
}

/// Problems of a suite as a whole, as a test case of their own, because viewers show nothing else.
fn whole_suite_case(suite: &SuiteReport, style: &BlockStyle) -> Option<TestCase> {
    let (verdict, block) = suite_block(suite, style)?;
    let message = suite_figures(suite).0.into_iter().next().unwrap_or_else(|| suite.reason.clone());
    let (name, time, message) = ("(suite)", Duration::ZERO, attribute(&message.replace(GAP, ", ")));
    let mut case = match verdict {
        Verdict::Fail => TestCaseBuilder::failure(name, time, "leak", &message),
        Verdict::Error => TestCaseBuilder::error(name, time, "not measured", &message),
        _ => TestCaseBuilder::success(name, time),
    };
    case.set_classname(&attribute(&suite.name));
    match verdict {
        Verdict::Fail | Verdict::Error => case.set_trace(&cdata(&block)),
        _ => case.set_system_out(&cdata(&block)),
    };
    Some(case.build())
}

/// Problems outside the suites, and any other reason for a failed run, because a failed run must not have a green
/// document.
fn run_suite(report: &RunReport, suites: &[Suite]) -> Option<Suite> {
    let red = report.exit_code != 0;
    let mut cases: Vec<_> =
        report.errors.iter().map(|problem| (problem_case(problem, red), Extra::default())).collect();
    let explained =
        suites.iter().flat_map(|suite| &suite.cases).any(|(case, _)| case.is_error() || case.is_failure());
    if red && !explained && cases.is_empty() {
        let message = format!("exit code {}, verdict {}", report.exit_code, word(&report.verdict));
        cases.push((TestCase::error("run", Duration::ZERO, "run", &message), Extra::default()));
    }
    for (case, _) in &mut cases {
        case.set_classname("memgate");
    }
    (!cases.is_empty()).then(|| Suite { name: "memgate".to_owned(), properties: Properties::new(), cases })
}

fn problem_case(Problem { r#where, what, hint }: &Problem, red: bool) -> TestCase {
    let (name, what_line) = (attribute(r#where), attribute(what));
    let text = cdata(&format!("{}: {what}\n{hint}", r#where));
    if red {
        TestCaseBuilder::error(&name, Duration::ZERO, "problem", &what_line).set_trace(&text).build()
    } else {
        TestCaseBuilder::success(&name, Duration::ZERO).set_system_out(&text).build()
    }
}

fn root_extra(report: &RunReport, suites: &[Suite], flavour: Flavour) -> Extra {
    let count = |is: fn(&TestCase) -> bool| {
        Some(suites.iter().flat_map(|suite| &suite.cases).filter(|(case, _)| is(case)).count().to_string())
    };
    let mut attributes = vec![
        ("name", Some(attribute(&report.project))),
        ("time", Some(milliseconds(report.duration_s).as_seconds_f64().to_string())),
        ("tests", count(|_| true)),
        ("failures", count(TestCase::is_failure)),
        ("errors", count(TestCase::is_error)),
    ];
    if flavour == Flavour::Extended {
        attributes.push(("skipped", count(TestCase::is_skipped)));
    }
    Extra { attributes, ..Extra::default() }
}

fn suite_extra(report: &RunReport, suite: &TestSuite, properties: Properties) -> Extra {
    let started = Some(attribute(&report.started)).filter(|started| is_rfc3339(started));
    // junit-report guesses `localhost`, and takes the time stamp from the clock.
    let attributes =
        vec![("skipped", Some(suite.skipped().to_string())), ("timestamp", started), ("hostname", None)];
    Extra { attributes, properties, ..Extra::default() }
}

/// Whether `text` has the form `2026-11-21T10:15:00…`. Some readers reject a whole file for a time stamp that they do
/// not understand.
fn is_rfc3339(text: &str) -> bool {
    let shape = |shape: &str, text: &[u8]| {
        shape.len() == text.len()
            && shape.bytes().zip(text).all(|(s, t)| if s == b'0' { t.is_ascii_digit() } else { s == *t })
    };
    let bytes = text.as_bytes();
    let Some((date, rest)) = bytes.split_at_checked("0000-00-00T00:00:00".len()) else { return false };
    let fraction = if rest.first() == Some(&b'.') {
        1 + rest[1..].iter().take_while(|b| b.is_ascii_digit()).count()
    } else {
        0
    };
    let zone = &rest[fraction..];
    shape("0000-00-00T00:00:00", date)
        && fraction != 1
        && (zone == b"Z" || shape("+00:00", zone) || shape("-00:00", zone))
}

/// Whole milliseconds, never negative. The schema allows no more digits, and sums of whole milliseconds have no more
/// either.
fn milliseconds(seconds: f64) -> Duration {
    /// Ten thousand years; a larger value is damaged.
    const MOST: f64 = 3.2e14;
    #[expect(clippy::cast_possible_truncation, reason = "clamped before")]
    let milliseconds = (seconds.clamp(0.0, MOST / 1000.0) * 1000.0).round() as i64;
    Duration::milliseconds(milliseconds)
}

/// The word for a value in `report.json`.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn cleaned(properties: impl IntoIterator<Item = (impl AsRef<str>, String)>) -> Properties {
    properties.into_iter().map(|(name, value)| (attribute(name.as_ref()), attribute(&value))).collect()
}

#[cfg(test)]
mod tests;
