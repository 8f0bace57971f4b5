//! `memgate.yaml`, the waivers file, their errors as people read them, and a waiver added to them.
//!
//! The text is split at the first `\u{1}`: settings before it, the waivers file after it.

use memgate::plan::{self, Settings};
use memgate_config::{Config, NewWaiver, Until, append_waiver};

const LEAK: &str = "n1-5f1c09a2b47d1e03";

fn variable(name: &str) -> Option<String> {
    match name {
        "HOME" => Some("/home/u".to_owned()),
        "EMPTY" => Some(String::new()),
        "ODD" => Some("\u{1b}[31m'\"\n: {\u{0}".to_owned()),
        _ => None,
    }
}

/// Runs one input.
///
/// # Panics
/// When a checked property does not hold; this is a finding.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (settings, waivers) = match text.split_once('\u{1}') {
        Some((settings, waivers)) => (settings, Some(("memgate-waivers.yaml", waivers))),
        None => (text, None),
    };
    match Config::parse(settings, "memgate.yaml", &variable, waivers) {
        Err(mistakes) => {
            assert!(!mistakes.is_empty());
            for colour in [false, true] {
                let shown = mistakes.render(colour);
                assert!(!shown.is_empty());
                // Escape sequences in the file must not reach the terminal.
                assert!(colour || !shown.contains('\u{1b}'), "{shown:?}");
            }
            for mistake in mistakes.iter() {
                assert!(!mistake.message().is_empty() && mistake.line() > 0 && mistake.column() > 0);
            }
        }
        Ok(config) => {
            for suite in &config.suites {
                let _command = suite.command(3);
            }
            let settings = Settings { config, ..Settings::default() };
            let policy = plan::policy(&settings, false, jiff::civil::date(2026, 11, 21));
            for metric in memgate_model::Metric::ALL {
                let _limits = policy.limits("suite", "Test.name", metric, memgate_model::Per::Iteration);
            }
        }
    }
    let _file = Config::waivers_file_of(settings, &variable);
    let new = NewWaiver {
        leak: LEAK.to_owned(),
        test: None,
        up_to: Some(1e6),
        reason: "known".to_owned(),
        owner: None,
        until: Until::Never,
        comment: None,
    };
    if let Some((name, waivers)) = waivers {
        match append_waiver(waivers, name, &new) {
            Ok(longer) => assert!(append_waiver(&longer, name, &new).is_err(), "it is waived now: {longer}"),
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }
}
