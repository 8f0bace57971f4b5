//! The output of `--gtest_list_tests`, and the filter for each listed test: it selects that test and no
//! other.

use memgate::suite::gtest::{filter_for, parse_list};

fn any(patterns: &str, text: &str) -> bool {
    patterns.split(':').any(|pattern| crate::glob(pattern.as_bytes(), text.as_bytes()))
}

/// Interprets `--gtest_filter` as GoogleTest does.
fn selects(filter: &str, text: &str) -> bool {
    match filter.split_once('-') {
        Some((positive, negative)) => any(positive, text) && !any(negative, text),
        None => any(filter, text),
    }
}

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    let Ok(mut tests) = parse_list(data) else { return };
    tests.truncate(8);
    if tests.iter().any(|test| test.len() > 60) {
        return;
    }
    // A byte that is not UTF-8 is one character here and several for GoogleTest: names with such bytes are
    // selected with `*`.
    for id in &tests {
        let Ok(filter) = filter_for(id, &tests) else { continue };
        let selected: Vec<_> = tests.iter().filter(|test| selects(&filter, test)).collect();
        assert!(selected.contains(&id), "{filter:?} leaves {id:?} out");
        assert!(selected.iter().all(|test| *test == id), "{filter:?} for {id:?} selects {selected:?}");
    }
}
