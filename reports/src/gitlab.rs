//! GitLab's code quality report: one entry for each leak, with a fingerprint that survives
//! rebuilds.

use std::collections::BTreeMap;

use memgate_model::{RunReport, Verdict};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::error::RenderError;
use crate::places::Checkout;
use crate::summary::{in_short, of_a_leak};
use crate::visible::visible;
use crate::worst::not_passed;

#[derive(Serialize)]
struct Entry {
    description: String,
    check_name: &'static str,
    fingerprint: String,
    severity: &'static str,
    location: Location,
}

#[derive(Serialize)]
struct Location {
    path: String,
    lines: Lines,
}

#[derive(Serialize)]
struct Lines {
    begin: u32,
}

/// Leaks without a waiver, and tests that were not measured.
///
/// # Errors
/// When JSON cannot be written.
pub fn code_quality(report: &RunReport, checkout: &Checkout) -> Result<String, RenderError> {
    // GitLab decides by the fingerprint which entries are new and which are fixed, so the fingerprint has no part that
    // changes.
    let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
    for at in not_passed(report) {
        let (test, name) = (at.test, at.qualified());
        let severity = match test.verdict {
            Verdict::Fail => "major",
            Verdict::Error => "critical",
            _ => "minor",
        };
        let leaks: Vec<_> = test.leaks.iter().filter(|leak| leak.waiver.is_none()).collect();
        for leak in &leaks {
            let (path, begin) = checkout.shown(at, Some(leak));
            let entry = Entry {
                description: of_a_leak(at, leak),
                check_name: "memgate.leak",
                fingerprint: fingerprint("leak", &leak.id),
                severity,
                location: Location { path, lines: Lines { begin } },
            };
            entries.entry(entry.fingerprint.clone()).or_insert(entry);
        }
        if leaks.is_empty() && test.verdict != Verdict::NotJudged {
            let (path, begin) = checkout.shown(at, None);
            let entry = Entry {
                description: format!("{}: {}", visible(&name), visible(&in_short(test))),
                check_name: "memgate.test",
                fingerprint: fingerprint("test", &name),
                severity,
                location: Location { path, lines: Lines { begin } },
            };
            entries.entry(entry.fingerprint.clone()).or_insert(entry);
        }
    }
    let mut text = serde_json::to_string_pretty(&entries.into_values().collect::<Vec<_>>())
        .map_err(RenderError::Json)?;
    text.push('\n');
    Ok(text)
}

fn fingerprint(rule: &str, of: &str) -> String {
    let hash = Sha256::digest(format!("memgate.{rule}\0{of}"));
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn an_entry_names_the_line_and_keeps_its_fingerprint_when_lines_and_sizes_change() {
        let of = |report: &RunReport| -> serde_json::Value {
            serde_json::from_str(&code_quality(report, &Checkout::default()).unwrap()).unwrap()
        };
        let mut report = sample::leak();
        let before = of(&report);
        assert_eq!(before[0]["location"]["path"], "src/map_cache.cpp");
        assert_eq!(before[0]["location"]["lines"]["begin"], 88);
        let leak = &mut report.suites[0].tests[1].leaks[0];
        leak.bytes_per_iteration = 7.0;
        leak.frames[0].line = Some(99);
        assert_eq!(of(&report)[0]["fingerprint"], before[0]["fingerprint"]);
    }

    #[test]
    fn fingerprints_are_unique_and_paths_relative() {
        for (name, report) in sample::all() {
            let json: serde_json::Value =
                serde_json::from_str(&code_quality(&report, &Checkout::default()).unwrap()).unwrap();
            let entries = json.as_array().unwrap();
            let prints: std::collections::BTreeSet<_> =
                entries.iter().map(|e| e["fingerprint"].as_str().unwrap()).collect();
            assert_eq!(prints.len(), entries.len(), "{name}");
            assert!(
                entries.iter().all(|e| !e["location"]["path"].as_str().unwrap().starts_with(['/', '.'])),
                "{name}"
            );
        }
    }
}
