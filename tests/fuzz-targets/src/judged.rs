//! Shared by the targets that judge: streams of several processes, function names as a hostile file could
//! contain them, and every report format.

use std::collections::BTreeMap;
use std::time::Duration;

use memgate_analysis::{
    ConfirmationInput, Ending, GatePolicy, JavaInput, Limits, Observer, ProcessInput, ProcessRecord, Resolve,
    ResolvedStack, RunInput, SuiteInput,
};
use memgate_model::{BoundaryQuality, Level, RunReport, Runner, Verdict};
use memgate_reports::{Flavour, HumanOptions, JunitOptions, from_json, human, json, junit};
use memgate_wire::Frame;

use crate::decoded;

/// Function names as a hostile file could contain them.
pub struct Named(pub Vec<String>);

impl Resolve for Named {
    fn frames(&mut self, record: &ProcessRecord, stack: u32) -> ResolvedStack {
        let (steps, truncated) = record.stack(stack);
        let frames = steps.iter().map(|step| {
            let at = usize::try_from(step.pc).unwrap_or(0) % (self.0.len() + 1);
            memgate_model::Frame {
                function: self.0.get(at).cloned(),
                module: format!("/lib/{:x}.so", step.pc & 3),
                offset: step.pc,
                file: None,
                line: None,
                inlined: step.pc & 4 != 0,
            }
        });
        ResolvedStack { frames: frames.collect(), truncated }
    }
}

/// The records, one per hello; the limits are small, so that they are reached too.
#[must_use]
pub fn records(stream: &[u8]) -> Vec<ProcessRecord> {
    let small = Limits { records: 200, windows: 60, stacks: 400, names: 50, modules: 20, listed: 60 };
    let mut observers: Vec<Observer> = Vec::new();
    for (frame, t_ns) in decoded(stream).0 {
        if observers.is_empty() || (matches!(frame, Frame::Hello(_)) && observers.len() < 6) {
            observers.push(Observer::with_limits(small));
        }
        let Some(observer) = observers.last_mut() else { continue };
        observer.push(frame, t_ns);
    }
    observers.into_iter().map(Observer::into_record).collect()
}

/// The name of the only suite.
pub(crate) const SUITE: &str = "suite";

/// A policy from arbitrary bits.
pub(crate) fn policy(tuning: u8, more: u8) -> GatePolicy {
    GatePolicy {
        warm_up: u32::from(tuning & 3),
        iterations: u32::from(tuning >> 2 & 7),
        max_iterations: u32::from(tuning >> 5) * 5,
        min_run: Duration::from_millis(u64::from(more & 1)),
        unconfirmed: if more & 2 == 0 { Level::Warn } else { Level::Fail },
        today: "2026-11-21".to_owned(),
        ..GatePolicy::default()
    }
}

/// A run of one suite.
pub(crate) fn run_of(
    (runner, boundary): (Runner, BoundaryQuality),
    screen: ProcessInput,
    java: Option<JavaInput>,
    confirmations: BTreeMap<String, ConfirmationInput>,
) -> RunInput {
    let suite = SuiteInput {
        name: SUITE.to_owned(),
        runner,
        boundary,
        screened: Duration::from_secs(1),
        screen: vec![screen],
        stacks: Vec::new(),
        confirmations,
        lost: Duration::ZERO,
        takes_filter: false,
        problems: Vec::new(),
        java,
        hunt: None,
        app_memory: None,
        heap: Vec::new(),
    };
    RunInput {
        project: "p".to_owned(),
        session: "s".to_owned(),
        started: "2026-11-21T00:00:00Z".to_owned(),
        suites: vec![suite],
        ..RunInput::default()
    }
}

/// How a process ended, from arbitrary bits.
#[must_use]
pub fn ending(bits: u8) -> Ending {
    match bits & 7 {
        0..4 => Ending::Unknown,
        4 => Ending::Exited(0),
        5 => Ending::Exited(1),
        6 => Ending::Signalled(9),
        _ => Ending::TimedOut(Duration::from_secs(3)),
    }
}

/// Function names for a process, from its hello.
#[must_use]
pub fn names(record: &ProcessRecord) -> Vec<String> {
    let Some(hello) = &record.hello else { return Vec::new() };
    let mut names = hello.arguments.clone();
    names.extend(hello.capabilities.iter().cloned());
    names
}

fn render(report: &RunReport) {
    for (colour, width, verbose) in [(false, None, true), (true, Some(0), false), (false, Some(41), true)] {
        let options = HumanOptions { colour, width, verbose, report_path: Some("r.json".to_owned()) };
        let text = human(report, &options);
        assert!(!text.is_empty());
        assert!(colour || !text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
    for flavour in [Flavour::Strict, Flavour::Extended] {
        let options = JunitOptions { flavour, charts: Some("charts".to_owned()), ..JunitOptions::default() };
        let xml = junit(report, &options).expect("JUnit holds every report");
        let xml = String::from_utf8(xml).expect("XML is UTF-8");
        let legal = |c: char| matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
        assert!(xml.chars().all(legal), "{xml:?}");
    }
    let text = json(report).expect("JSON holds every report");
    let again = from_json(text.as_bytes()).expect("it reads back");
    assert_eq!(json(&again).expect("JSON holds every report"), text);
}

/// Checks that the exit code fits the verdict and that every report format can be written.
///
/// # Panics
/// When one of them does not hold.
pub fn is_sound(report: &RunReport) {
    // Failing tests of the user make it 1, whatever the verdict; 0 needs a harmless verdict.
    let harmless = matches!(report.verdict, Verdict::Pass | Verdict::NotJudged | Verdict::Warn);
    assert!(report.exit_code != 0 || harmless, "{report:?}");
    render(report);
}
