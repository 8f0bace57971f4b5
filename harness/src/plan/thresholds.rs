//! Thresholds that apply nowhere: those relative to a missing baseline, and those of tests that did not run.

use memgate_config::Override;
use memgate_model::{RunReport, Verdict};

use super::Settings;

/// Warns about a missing baseline file: thresholds cannot compare with it. This happens in the first run of a project.
pub(crate) fn missing_baseline(settings: &Settings) -> Option<String> {
    let config = &settings.config;
    (settings.baseline.is_none() && config.thresholds.need_baseline()).then(|| {
        format!(
            "there is no baseline {}: thresholds relative to it are not judged; `memgate baseline accept` makes it from a \
             run",
            settings.root.join(&config.baseline.path).display()
        )
    })
}

/// Maximum number of unmatched entries that are listed one by one.
const UNMATCHED_TOLD: usize = 10;

/// Entries of `thresholds.tests` that decide nothing in a complete run: they match no test, or earlier entries hide
/// them. Of a run with errors it is unknown which tests are missing.
pub(crate) fn without_effect(settings: &Settings, report: &RunReport) -> Vec<String> {
    if report.verdict == Verdict::Error {
        return Vec::new();
    }
    let tests =
        || report.suites.iter().flat_map(|suite| suite.tests.iter().map(|test| (&suite.name, &test.id)));
    // An entry for all tests of a class also applies to the class.
    let is_for = |entry: &Override, suite: &str, test: &str| {
        entry.tests.matches(suite, test) || entry.tests.matches(suite, &format!("{test}.*"))
    };
    let entries = settings.config.thresholds.overrides();
    let is_unmatched = |entry: &&Override| !tests().any(|(suite, test)| is_for(entry, suite, test));
    let unmatched: Vec<&Override> = entries.iter().filter(is_unmatched).collect();
    let told = unmatched.iter().take(UNMATCHED_TOLD).map(|entry| {
        format!("{}: `{}` matches no test: correct or remove its limits", entry.place, entry.tests.text())
    });
    let others =
        unmatched.iter().skip(UNMATCHED_TOLD).map(|entry| entry.place.to_string()).collect::<Vec<_>>();
    let others = match others.as_slice() {
        [] => None,
        [one] => Some(format!("{one}: one more entry matches no test")),
        [first, .., last] => Some(format!("{first} to {last}: {} more entries match no test", others.len())),
    };
    told.chain(others).chain(hidden(entries).take(UNMATCHED_TOLD)).collect()
}

/// Entries that decide nothing, because earlier ones name all their tests and metrics.
fn hidden(entries: &[Override]) -> impl Iterator<Item = String> {
    entries.iter().enumerate().filter_map(|(index, entry)| {
        let text = entry.tests.text();
        let (suite, tests) = text.split_once("::").unwrap_or(("", text));
        // A pattern that matches the text of another one matches all of its tests.
        let wider = entries[..index].iter().filter(|earlier| earlier.tests.matches(suite, tests));
        let first = wider.clone().next()?;
        let is_decided = |metric| wider.clone().any(|earlier| earlier.limits.contains_key(metric));
        entry.limits.keys().all(is_decided).then(|| {
            format!(
                "{}: `{text}` has no effect: `{}` comes first ({}), and the first entry that names test and metric counts",
                entry.place,
                first.tests.text(),
                first.place
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::super::samples::{YAML, request, settings, world};
    use super::*;

    #[test]
    fn a_missing_baseline_is_said_where_it_is_needed() {
        let warnings = plan(&settings(YAML), &request(), &world()).unwrap().warnings;
        assert!(warnings.iter().any(|w| {
            w.contains("/project/memgate-baseline.json") && w.contains("memgate baseline accept")
        }));
        let plain = plan(&settings("version: 1\nsuites: { a: { run: [x] } }"), &request(), &world()).unwrap();
        assert!(plain.warnings.is_empty());
    }

    #[test]
    fn limits_for_no_test_are_told() {
        let report = |verdict: &str| -> RunReport {
            let test = serde_json::json!({ "id": "MapCache.scroll", "outcome": "passed", "verdict": "pass", "reason": "",
                "duration_s": 0.1, "confirmed": false, "metrics": {}, "leaks": [], "one_time": [], "curve": [] });
            serde_json::from_value(serde_json::json!({
                "schema_version": 1, "verdict": verdict, "exit_code": 0, "project": "tiles", "session": "s",
                "started": "2026-11-21T10:00:00Z", "duration_s": 1.0,
                "agent_cost": { "cpu_ratio": null, "peak_bytes": 0, "boundary_s": 0.0, "truncated_stacks": 0 },
                "suites": [{ "name": "engine", "runner": "gtest", "boundary": "exact", "verdict": "pass",
                    "screened_s": 1.0, "reason": "", "metrics": {}, "tests": [test] }],
                "waivers": [], "errors": []
            }))
            .unwrap()
        };
        let told = without_effect(&settings(YAML), &report("pass"));
        let said = "`Noisy.*` matches no test: correct or remove its limits";
        assert_eq!(told, [format!("memgate.yaml:16: {said}")]);
        assert!(without_effect(&settings(YAML), &report("error")).is_empty(), "a test may be missing");
        let many: String =
            (0..4_000).map(|n| format!("    - {{ match: \"Gone{n}.*\", os.fds: 1 }}\n")).collect();
        let many = settings(&format!("version: 1\nthresholds:\n  tests:\n{many}"));
        let told = without_effect(&many, &report("pass"));
        assert_eq!(told.len(), 11);
        assert_eq!(told[10], "memgate.yaml:14 to memgate.yaml:4003: 3990 more entries match no test");
    }

    #[test]
    fn an_entry_that_earlier_ones_hide_is_said() {
        let report: RunReport = serde_json::from_value(serde_json::json!({
            "schema_version": 1, "verdict": "pass", "exit_code": 0, "project": "tiles", "session": "s",
            "started": "2026-11-21T10:00:00Z", "duration_s": 1.0,
            "agent_cost": { "cpu_ratio": null, "peak_bytes": 0, "boundary_s": 0.0, "truncated_stacks": 0 },
            "suites": [{ "name": "engine", "runner": "gtest", "boundary": "exact", "verdict": "pass",
                "screened_s": 1.0, "reason": "", "metrics": {}, "tests": [{ "id": "Cache.fills", "outcome": "passed",
                    "verdict": "pass", "reason": "", "duration_s": 0.1, "confirmed": false, "metrics": {}, "leaks": [],
                    "one_time": [], "curve": [] }] }],
            "waivers": [], "errors": []
        }))
        .unwrap();
        let told = |second: &str| {
            let yaml = format!(
                "version: 1\nthresholds:\n  tests:\n    - {{ match: \"*\", native.live_bytes: 1 KiB }}\n    - {second}\n"
            );
            without_effect(&settings(&yaml), &report)
        };
        let hidden = told("{ match: \"Cache.*\", native.live_bytes: 0 }");
        let said = "memgate.yaml:5: `Cache.*` has no effect: `*` comes first (memgate.yaml:4), and the first entry that \
                    names test and metric counts";
        assert_eq!(hidden, [said]);
        let fallback = told("{ match: \"*\", os.fds: 1 }");
        assert!(fallback.is_empty(), "{fallback:?}");
        assert!(
            told("{ match: \"Cache.*\", native.live_bytes: 0, os.fds: 1 }").is_empty(),
            "it decides one metric"
        );
    }
}
