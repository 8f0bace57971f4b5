//! The agent's option string: total, and patterns agree with a plain definition.
#![no_main]
#![allow(dead_code, reason = "a part of another crate, compiled alone")]

#[path = "../../device-agent/src/options.rs"]
mod options;

use libfuzzer_sys::fuzz_target;
use options::{Options, Target, fits};

/// `*` and `?` by table.
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

fuzz_target!(|text: &str| {
    let options = Options::parse(text);
    assert!(options.wait.as_secs() <= 60);
    assert!(options.complaints.len() <= text.len() + 1);
    let globs =
        options.targets.iter().filter_map(|t| if let Target::Glob(glob) = t { Some(glob) } else { None });
    for glob in globs.take(4).filter(|glob| glob.len() < 200) {
        let text = &options.label.as_bytes()[..options.label.len().min(200)];
        assert_eq!(fits(glob.as_bytes(), text), matches(glob.as_bytes(), text), "{glob:?} {text:?}");
    }
});
