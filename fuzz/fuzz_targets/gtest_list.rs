//! The output of `--gtest_list_tests`, and the filter for each test it lists: it selects that test and no other.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memgate::suite::gtest::{filter_for, parse_list};

/// One pattern of a GoogleTest filter, by table.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut row: Vec<bool> = (0..=text.len()).map(|n| n == 0).collect();
    for p in pattern {
        let mut next = vec![row[0] && *p == b'*'];
        for (i, t) in text.iter().enumerate() {
            let here = if *p == b'*' { next[i] || row[i + 1] } else { row[i] && (*p == b'?' || p == t) };
            next.push(here);
        }
        row = next;
    }
    row[text.len()]
}

fn any(patterns: &str, text: &str) -> bool {
    patterns.split(':').any(|pattern| matches(pattern.as_bytes(), text.as_bytes()))
}

/// GoogleTest's reading of `--gtest_filter`.
fn selects(filter: &str, text: &str) -> bool {
    match filter.split_once('-') {
        Some((positive, negative)) => any(positive, text) && !any(negative, text),
        None => any(filter, text),
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(mut tests) = parse_list(data) else { return };
    tests.truncate(8);
    if tests.iter().any(|test| test.len() > 60) {
        return;
    }
    // Bytes that were no UTF-8 are one character here and several to GoogleTest: names with them are selected with `*`.
    for id in &tests {
        let Ok(filter) = filter_for(id, &tests) else { continue };
        let selected: Vec<_> = tests.iter().filter(|test| selects(&filter, test)).collect();
        assert!(selected.contains(&id), "{filter:?} leaves {id:?} out");
        assert!(selected.iter().all(|test| *test == id), "{filter:?} for {id:?} selects {selected:?}");
    }
});
