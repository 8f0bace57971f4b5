//! SARIF 2.1.0, for code scanning: each leak is a result, its stack the code flow, its id the fingerprint. GitHub
//! refuses a file if one location is in no source file, and shows suppressed results like all others. So each location
//! has a source file, and waived leaks are left out.

use memgate_model::{Frame, Leak, LeakKind, RunReport, TestReport, Verdict};
use serde::Serialize;

use crate::error::RenderError;
use crate::figures::is_certain;
use crate::holder::holder;
use crate::names::of_frame as name;
use crate::places::{Checkout, Place};
use crate::suite_test::SuiteTest;
use crate::summary::{in_short, of_a_leak};
use crate::visible::visible;
use crate::worst::not_passed;

/// Maximum number of results: GitHub's code scanning shows no more.
const MAX_RESULTS: usize = 5000;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Log {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    tool: Tool,
    automation_details: AutomationDetails,
    column_kind: &'static str,
    results: Vec<Finding>,
}

#[derive(Serialize)]
struct AutomationDetails {
    id: String,
}

#[derive(Serialize)]
struct Tool {
    driver: Driver,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Driver {
    name: &'static str,
    semantic_version: &'static str,
    rules: Vec<Rule>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    id: &'static str,
    name: &'static str,
    short_description: Message,
    full_description: Message,
    default_configuration: Configuration,
}

#[derive(Serialize)]
struct Configuration {
    level: &'static str,
}

#[derive(Serialize)]
struct Message {
    text: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    rule_id: &'static str,
    level: &'static str,
    message: Message,
    locations: Vec<Location>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    code_flows: Vec<CodeFlow>,
    partial_fingerprints: Fingerprints,
}

#[derive(Serialize)]
struct Fingerprints {
    #[serde(rename = "memgateLeak/v1")]
    leak: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    physical_location: PhysicalLocation,
    logical_locations: [LogicalLocation; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Message>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PhysicalLocation {
    artifact_location: ArtifactLocation,
    region: Region,
}

#[derive(Serialize)]
struct ArtifactLocation {
    uri: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LogicalLocation {
    fully_qualified_name: String,
    kind: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CodeFlow {
    thread_flows: [ThreadFlow; 1],
}

#[derive(Serialize)]
struct ThreadFlow {
    locations: Vec<Step>,
}

#[derive(Serialize)]
struct Step {
    location: Location,
}

/// The report as SARIF.
///
/// # Errors
/// When JSON cannot be written.
pub fn sarif(report: &RunReport, checkout: &Checkout) -> Result<String, RenderError> {
    let mut results: Vec<Finding> =
        not_passed(report).into_iter().flat_map(|at| of_test(at, checkout)).collect();
    results.truncate(MAX_RESULTS);
    let log = Log {
        schema: "https://json.schemastore.org/sarif-2.1.0.json",
        version: "2.1.0",
        runs: [Run {
            tool: Tool {
                driver: Driver {
                    name: "memgate",
                    semantic_version: env!("CARGO_PKG_VERSION"),
                    rules: rules(),
                },
            },
            automation_details: AutomationDetails { id: format!("memgate/{}/", visible(&report.project)) },
            column_kind: "utf16CodeUnits",
            results,
        }],
    };
    let mut text = serde_json::to_string_pretty(&log).map_err(RenderError::Json)?;
    text.push('\n');
    Ok(text)
}

const LEAK: &str = "memgate.leak";
const NOT_MEASURED: &str = "memgate.not-measured";
const TO_LOOK_AT: &str = "memgate.to-look-at";

fn rules() -> Vec<Rule> {
    let rule = |id, name, short: &str, full: &str, level| Rule {
        id,
        name,
        short_description: Message { text: short.to_owned() },
        full_description: Message { text: full.to_owned() },
        default_configuration: Configuration { level },
    };
    vec![
        rule(
            LEAK,
            "MemoryLeak",
            "A test leaks",
            "Each further iteration of a test leaves more behind than is allowed.",
            "error",
        ),
        rule(
            NOT_MEASURED,
            "NotMeasured",
            "A test could not be measured",
            "What was not measured never passes.",
            "error",
        ),
        rule(
            TO_LOOK_AT,
            "ToLookAt",
            "A test may leak",
            "What it left behind could not be told from a leak.",
            "warning",
        ),
    ]
}

fn of_test(at: SuiteTest<'_>, checkout: &Checkout) -> Vec<Finding> {
    let test = at.test;
    if test.verdict == Verdict::NotJudged {
        return Vec::new();
    }
    let leaks: Vec<&Leak> = test.leaks.iter().filter(|leak| leak.waiver.is_none()).collect();
    if !leaks.is_empty() {
        return leaks.into_iter().map(|leak| of_leak(at, leak, checkout)).collect();
    }
    let test_name = visible(&at.qualified()).into_owned();
    vec![Finding {
        rule_id: rule_of(test),
        level: level_of(test),
        message: Message { text: format!("{test_name}: {}", visible(&in_short(test))) },
        locations: vec![location(checkout.shown(at, None), test_name.clone(), None)],
        code_flows: Vec::new(),
        partial_fingerprints: Fingerprints { leak: test_name },
    }]
}

fn rule_of(test: &TestReport) -> &'static str {
    match test.verdict {
        Verdict::Error => NOT_MEASURED,
        Verdict::Warn if test.against_base.is_none() || !is_certain(test) => TO_LOOK_AT,
        _ => LEAK,
    }
}

fn level_of(test: &TestReport) -> &'static str {
    match test.verdict {
        Verdict::Fail | Verdict::Error => "error",
        Verdict::Warn => "warning",
        Verdict::NotJudged | Verdict::Pass => "note",
    }
}

fn of_leak(at: SuiteTest<'_>, leak: &Leak, checkout: &Checkout) -> Finding {
    let test_name = visible(&at.qualified()).into_owned();
    let mut text = of_a_leak(at, leak);
    if leak.kind == LeakKind::Native && leak.hold.is_some() {
        text += &format!("; {}", holder(leak).replace("  ", " "));
    }
    Finding {
        rule_id: rule_of(at.test),
        level: level_of(at.test),
        message: Message { text },
        locations: vec![location(checkout.shown(at, Some(leak)), test_name, None)],
        code_flows: code_flow(leak, checkout).into_iter().collect(),
        partial_fingerprints: Fingerprints { leak: visible(&leak.id).into_owned() },
    }
}

/// From the test to the allocation, through the project's own code.
fn code_flow(leak: &Leak, checkout: &Checkout) -> Option<CodeFlow> {
    let step = |(Place { file, line }, frame): (Place, &Frame)| {
        let place = (file, line.filter(|line| *line > 0).unwrap_or(1));
        Step { location: location(place, name(frame), Some(name(frame))) }
    };
    let mut locations: Vec<Step> = checkout.places(leak).map(step).collect();
    locations.reverse();
    (!locations.is_empty()).then_some(CodeFlow { thread_flows: [ThreadFlow { locations }] })
}

fn location((file, start_line): (String, u32), logical: String, message: Option<String>) -> Location {
    Location {
        physical_location: PhysicalLocation {
            artifact_location: ArtifactLocation { uri: uri(&file) },
            region: Region { start_line },
        },
        logical_locations: [LogicalLocation { fully_qualified_name: logical, kind: "function" }],
        message: message.map(|text| Message { text }),
    }
}

/// A relative path as a URI reference.
fn uri(path: &str) -> String {
    let mut uri = String::new();
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b'+' => {
                uri.push(char::from(byte))
            }
            byte => uri += &format!("%{byte:02X}"),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn parsed(report: &RunReport) -> serde_json::Value {
        serde_json::from_str(&sarif(report, &Checkout::default()).unwrap()).unwrap()
    }

    #[test]
    fn a_leak_is_a_result_with_its_stack_as_code_flow() {
        let log = parsed(&sample::leak());
        let result = &log["runs"][0]["results"][0];
        assert_eq!(result["ruleId"], "memgate.leak");
        assert_eq!(result["partialFingerprints"]["memgateLeak/v1"], "n1-5f1c09a2b47d1e03");
        let text = result["message"]["text"].as_str().unwrap();
        assert!(
            text.starts_with("MapCache::insert leaks 48.0 KiB per run · src/map_cache.cpp:88 ("),
            "{text}"
        );
        let physical = &result["locations"][0]["physicalLocation"];
        assert_eq!(physical["artifactLocation"]["uri"], "src/map_cache.cpp");
        assert_eq!(physical["region"]["startLine"], 88);
        let flow: Vec<_> = result["codeFlows"][0]["threadFlows"][0]["locations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| step["location"]["message"]["text"].as_str().unwrap())
            .collect();
        assert_eq!(
            flow,
            ["MapCache_scroll_Test::TestBody()", "MapView::scroll(int)", "MapCache::insert(Tile const&)"]
        );
    }

    /// Regression: such a leak had another rule than on the base, and was "may leak" and "inconclusive".
    #[test]
    fn a_leak_that_the_base_has_too_is_the_same_finding_as_there() {
        let mut known = sample::leak();
        let test = &mut known.suites[0].tests[1];
        (test.verdict, test.against_base) = (Verdict::Warn, Some(memgate_model::AgainstBase::Known));
        let log = parsed(&known);
        let result = &log["runs"][0]["results"][0];
        assert_eq!((&result["ruleId"], &result["level"]), (&"memgate.leak".into(), &"warning".into()));
        let text = result["message"]["text"].as_str().unwrap();
        assert!(text.starts_with("MapCache::insert leaks 48.0 KiB per run"), "{text}");
        let told = crate::human::human(&known, &crate::human::HumanOptions::default());
        assert!(told.contains("1 known on the base") && !told.contains("inconclusive"), "{told}");
    }

    /// GitHub: "locationFromSarifResult: expected a physical location", and nothing of the file is shown.
    #[test]
    fn every_location_has_a_place_and_no_waived_leak_is_shown() {
        let mut bare = sample::leak();
        for leak in bare.suites[0].tests.iter_mut().flat_map(|test| &mut test.leaks) {
            leak.frames.iter_mut().for_each(|frame| (frame.file, frame.line) = (None, None));
        }
        let bare_log = parsed(&bare);
        let result = &bare_log["runs"][0]["results"][0];
        let physical = &result["locations"][0]["physicalLocation"];
        assert_eq!(physical["artifactLocation"]["uri"], "engine_tests");
        assert_eq!(physical["region"]["startLine"], 1);
        assert!(result["codeFlows"].is_null(), "{result}");
        for (name, report) in sample::all().into_iter().chain([("bare", bare)]) {
            let log = parsed(&report);
            let results = log["runs"][0]["results"].as_array().unwrap();
            for result in results {
                let flows = result["codeFlows"].as_array().into_iter().flatten();
                let steps = flows.flat_map(|flow| flow["threadFlows"][0]["locations"].as_array().unwrap());
                let all = steps.map(|step| &step["location"]).chain(result["locations"].as_array().unwrap());
                for location in all {
                    let physical = &location["physicalLocation"];
                    let uri = physical["artifactLocation"]["uri"].as_str().unwrap();
                    assert!(!uri.is_empty() && !uri.starts_with('/'), "{name}: {location}");
                    assert!(physical["region"]["startLine"].as_u64().unwrap() > 0, "{name}: {location}");
                }
            }
            let waived = |leak: &&Leak| leak.waiver.is_some();
            let leaks = report.entries().flat_map(|test| &test.leaks);
            for leak in leaks.filter(waived) {
                let shows = |r: &serde_json::Value| r["partialFingerprints"]["memgateLeak/v1"] == *leak.id;
                assert!(!results.iter().any(shows), "{name}: {}", leak.id);
            }
        }
    }

    #[test]
    fn results_name_known_rules_and_levels() {
        for (name, report) in sample::all() {
            let log = parsed(&report);
            let run = &log["runs"][0];
            let rules: Vec<_> =
                run["tool"]["driver"]["rules"].as_array().unwrap().iter().map(|r| r["id"].clone()).collect();
            for result in run["results"].as_array().unwrap() {
                assert!(rules.contains(&result["ruleId"]), "{name}");
                assert!(["error", "warning", "note"].contains(&result["level"].as_str().unwrap()), "{name}");
            }
        }
        assert_eq!(uri("src/größe x.cc"), "src/gr%C3%B6%C3%9Fe%20x.cc");
    }

    /// Before, a descriptor had the bytes of the other leaks of its test.
    #[test]
    fn each_leak_has_the_figure_that_counts_it() {
        let log = parsed(&sample::mixed());
        let results = log["runs"][0]["results"].as_array().unwrap();
        let text = |id: &str| {
            let is_it = |r: &&serde_json::Value| r["partialFingerprints"]["memgateLeak/v1"] == id;
            results.iter().find(is_it).unwrap()["message"]["text"].as_str().unwrap().to_owned()
        };
        let descriptor = text("o1-1b2e09a2b47d1e03");
        assert!(
            descriptor.contains("MapCache.scroll: 1 descriptor per iteration (allowed 0)"),
            "{descriptor}"
        );
        let native = text("n1-00000000000000aa");
        assert!(native.contains("MapCache.scroll: 16.2 KiB per iteration (allowed 4.0 KiB"), "{native}");
    }
}
