//! A mapping file and names retraced with it; other files that build tools write, and a JVM's answers.

use memgate_formats::jar::manifest_class_path;
use memgate_formats::mapping::{Mapping, map_ids};
use memgate_formats::test_results::test_results;
use memgate_wire::hotspot::{class_histogram, number_behind, thread_names};

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    for id in map_ids(data) {
        // JSON may escape any character of the id.
        let stands_there =
            data.contains(&b'\\') || data.windows(id.len()).any(|window| window == id.as_bytes());
        assert!(!id.is_empty() && stands_there, "{id}");
    }
    drop((manifest_class_path(data), test_results(data)));
    let Ok(text) = std::str::from_utf8(data) else { return };
    drop((class_histogram(text), number_behind(text, "a:"), thread_names(text)));
    let (mapping, trace) = text.split_once("\n\n\n").unwrap_or((text, "\tat a.a.a(SourceFile:1)\n"));
    let Ok(mapping) = Mapping::read(mapping) else { return };
    let retraced = mapping.trace(trace);
    assert!(retraced.lines().count() >= trace.lines().count(), "{retraced}");
    if mapping.is_empty() {
        assert_eq!(retraced, trace);
    }
}
