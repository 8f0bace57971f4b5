//! The agent's option string: every text parses, printed options parse to the same options, and patterns
//! agree with a plain definition.

use memgate_wire::options::{Options, Target, fits};

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let options = Options::default().parse(text);
    assert!(options.wait.as_secs() <= 60);
    assert!(options.complaints.len() <= text.len() + 1);
    let plain = Options { complaints: Vec::new(), ..options.clone() };
    assert_eq!(Options::default().parse(&plain.to_string()), plain);
    let globs =
        options.targets.iter().filter_map(|t| if let Target::Glob(glob) = t { Some(glob) } else { None });
    for glob in globs.take(4).filter(|glob| glob.len() < 200) {
        let text = &options.label.as_bytes()[..options.label.len().min(200)];
        assert_eq!(fits(glob.as_bytes(), text), crate::glob(glob.as_bytes(), text), "{glob:?} {text:?}");
    }
}
